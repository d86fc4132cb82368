//! The connection to one server: made in the background, given to calls, and closed for a time if the server answers nothing.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ahash::RandomState;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::CHANGED_WITHIN;
use super::entrance::Entrance;
use super::fault::{Failure, Redirect, failure, store_error};
use super::sentinel::Place;
use crate::error::{Error, ErrorKind};
use crate::limits::StoreOptions;
#[cfg(feature = "tracing")]
use crate::shared::events::store_warning;
use crate::shared::store_figures::{StoreFault, StoreFigures};
use crate::util::escape::shown;
use crate::util::lock::Mutex;

/// The time without an answer to a question after which calls are refused for a time. A server that is only slower than its callers
/// answers the question earlier: what a few nodes send it at once takes it less than two seconds.
pub(super) const SILENT: Duration = Duration::from_secs(2);
/// The time from the answer to a question to the next question.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(20);
/// The time for which calls are refused, and the longest time between two attempts to connect.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The time after a deadline from which this thread was late to find that it has passed.
const LATE: Duration = Duration::from_millis(2);
/// The time between the first two attempts to connect.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(20);
/// A connection that is lost sooner, as one to a replica is, is not made again at once.
const SHORT: Duration = Duration::from_millis(100);
/// The time without a call after which the server is asked whether the connection lives: half of the shortest `timeout` by
/// which a server closes idle connections.
const IDLE: Duration = Duration::from_millis(500);

const LOST: &str = "the last connection was lost, a new one is being made";

/// The result of a question to the server.
enum Asked {
    Answered,
    /// There is no connection, or it was lost.
    Lost,
    /// No answer came in time. `made`: see [`State`].
    Silent {
        made: u64,
    },
}

pub(super) struct Link {
    place: Place,
    /// The address, without secrets.
    name: String,
    connect_timeout: Duration,
    answer_timeout: Duration,
    state: Mutex<State>,
    pub(super) entrance: Entrance,
    /// When the server last had the text of a script: one call sends it at a time.
    pub(super) script_sent: tokio::sync::Mutex<Option<Instant>>,
    /// Tells the thread that the connection is gone.
    lost: Notify,
    /// Tells the thread that a call had no answer in time.
    late: Notify,
    /// Tells calls that an attempt to connect has ended.
    attempted: Notify,
    /// Those of all servers of the store.
    figures: Arc<StoreFigures>,
}

/// A call that the server has not decided.
pub(super) struct Refused {
    pub(super) error: Error,
    /// Where the cluster's node sends the call.
    pub(super) redirect: Option<Redirect>,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        refused.error
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused { error, redirect: None }
    }
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// The number of connections that were made, so that a failure of an old one does not end a new one.
    made: u64,
    /// When a call has last been given the connection.
    used_at: Option<Instant>,
    /// Why the last attempt to connect failed.
    why: Option<String>,
    /// A warning about the settings of the server of the last connection.
    warning: Option<String>,
    /// No call asks the server before this time. Then one call asks, and moves it on: if that call has no answer, or goes
    /// away, the next one asks when this time is over again.
    closed_until: Option<Instant>,
}

impl State {
    /// Gives calls a new connection.
    fn begin_with(&mut self, connection: MultiplexedConnection) {
        self.connection = Some(connection);
        self.made += 1;
        self.why = None;
    }

    /// Whether a call has used the present connection, not one that is lost already.
    fn has(&self, made: u64) -> bool {
        self.made == made && self.connection.is_some()
    }

    fn end_connection(&mut self) {
        self.connection = None;
        self.why = Some(LOST.into());
    }

    fn no_connection(&self) -> (StoreFault, String) {
        let why = self.why.as_deref().unwrap_or("the first connection is being made");
        (StoreFault::NoConnection, format!("there is no connection: {why}"))
    }

    /// Returns why a call is refused during a pause.
    fn refused_at(&self, now: Instant) -> Option<(StoreFault, String)> {
        self.closed_until.filter(|&until| now < until).map(|_| {
            let text = format!("no answer came for {SILENT:?}; it is asked again each second");
            (StoreFault::Paused, text)
        })
    }

    /// Whether the first attempt to connect has not ended.
    fn is_first(&self) -> bool {
        self.made == 0 && self.why.is_none()
    }
}

impl Link {
    /// `name`: the address, without secrets.
    pub(super) fn new(
        place: Place,
        name: String,
        options: &StoreOptions,
        figures: Arc<StoreFigures>,
    ) -> Link {
        Link {
            place,
            name,
            connect_timeout: options.connects_within(),
            answer_timeout: options.answers_within(),
            state: Mutex::default(),
            entrance: Entrance::new(options),
            script_sent: tokio::sync::Mutex::default(),
            lost: Notify::new(),
            late: Notify::new(),
            attempted: Notify::new(),
            figures,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Connects, and connects again when the connection is lost. Never ends.
    pub(super) async fn keep_connected(&self) {
        tokio::join!(self.connect_again(), self.ask_after_late_calls());
    }

    async fn connect_again(&self) {
        let mut wait = FIRST_WAIT;
        loop {
            match self.place.connect(self.connect_timeout).await {
                Ok(connection) => {
                    self.state.lock().begin_with(connection.clone());
                    self.attempted.notify_waiters();
                    // Calls have the connection already.
                    let warning = self.warning_of(connection).await;
                    #[cfg(feature = "tracing")]
                    if let Some(warning) = &warning {
                        store_warning(&self.name, warning);
                    }
                    self.state.lock().warning = warning;
                    wait = FIRST_WAIT;
                    let began = Instant::now();
                    self.until_lost().await;
                    if began.elapsed() < SHORT {
                        sleep(with_jitter(SHORT)).await;
                    }
                }
                Err(why) => {
                    self.figures.note_error(&self.error(ErrorKind::StoreOutage, &why));
                    self.state.lock().why = Some(why);
                    self.attempted.notify_waiters();
                    sleep(with_jitter(wait)).await;
                    wait = (2 * wait).min(PAUSE);
                }
            }
        }
    }

    /// Waits until a new connection is needed.
    async fn until_lost(&self) {
        loop {
            tokio::select! {
                // Else it was told of a connection that has been replaced already.
                () = self.lost.notified() => if self.connection().is_none() { return },
                () = self.until_found_lost() => return,
            }
        }
    }

    /// Asks the server after a call without an answer in time. Without an answer for long enough, calls are refused for a time. The
    /// question is a script, because a server may answer other commands, and no script, while a failover begins. Never ends.
    async fn ask_after_late_calls(&self) {
        let mut question = redis::cmd("EVAL");
        question.arg("return 1").arg(0);
        loop {
            self.late.notified().await;
            let waiting = self.entrance.gate.wait_for_answers();
            let asked = self.question(&question, SILENT.max(self.answer_timeout)).await;
            drop(waiting);
            if let Asked::Silent { made } = asked {
                let mut state = self.state.lock();
                if state.has(made) {
                    state.closed_until = Some(Instant::now() + with_jitter(PAUSE));
                    self.figures.set_paused(true);
                    // The connection may be half open: a new one tells.
                    state.end_connection();
                    self.lost.notify_one();
                }
            }
            sleep(BETWEEN_QUESTIONS).await;
        }
    }

    /// Asks the server. The question is no call: without an answer it is no failure, and with one it ends no pause.
    async fn question(&self, question: &Cmd, within: Duration) -> Asked {
        let (connection, made) = {
            let state = self.state.lock();
            (state.connection.clone(), state.made)
        };
        let Some(mut connection) = connection else { return Asked::Lost };
        match timeout(within, question.exec_async(&mut connection)).await {
            Ok(Err(error)) if !failure(&error).is_answer => {
                self.reconnect(made, LOST.into());
                Asked::Lost
            }
            Err(_) => Asked::Silent { made },
            Ok(_) => Asked::Answered,
        }
    }

    /// Asks the server now and then, while no calls do, whether the connection lives. That also keeps the server, and proxies
    /// between, from closing it.
    async fn until_found_lost(&self) {
        loop {
            self.until_idle().await;
            let asked = self.question(&redis::cmd("PING"), PAUSE.max(self.answer_timeout)).await;
            // Silent: the server stands still, or something between has dropped the connection. Calls keep it until there is
            // another one.
            if !matches!(asked, Asked::Answered) {
                return;
            }
        }
    }

    /// Waits until no call was given the connection for a time.
    async fn until_idle(&self) {
        let mut since = Instant::now();
        loop {
            sleep_until(since + IDLE).await;
            match self.state.lock().used_at {
                Some(at) if at > since => since = at,
                _ => return,
            }
        }
    }

    /// Asks a server whether it may forget buckets before their time. A server that does not say, such as a managed one that
    /// refuses the question, gets no warning.
    async fn warning_of(&self, mut connection: MultiplexedConnection) -> Option<String> {
        let mut question = redis::cmd("CONFIG");
        question.arg("GET").arg("maxmemory*");
        let asked = question.query_async::<HashMap<String, String>>(&mut connection);
        let settings = timeout(self.answer_timeout, asked).await.ok()?.ok()?;
        let policy = settings.get("maxmemory-policy")?;
        let keeps_buckets = settings.get("maxmemory")? == "0"
            || matches!(policy.as_str(), "noeviction" | "volatile-ttl");
        (!keeps_buckets).then(|| {
            let policy = shown(policy, 40);
            format!("the store {} has a maxmemory and the maxmemory-policy {policy}, by which it may forget buckets: they are full then; set noeviction or volatile-ttl", self.name)
        })
    }

    /// Returns the connection, if there is one.
    pub(super) fn connection(&self) -> Option<MultiplexedConnection> {
        self.state.lock().connection.clone()
    }

    /// Returns a warning about the server's settings.
    pub(super) fn warning(&self) -> Option<String> {
        self.state.lock().warning.clone()
    }

    /// Calls `call` with the connection, until the deadline of an answer.
    pub(super) async fn with_connection<T>(
        &self,
        deadline: Instant,
        call: impl AsyncFnOnce(MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Refused> {
        let began = Instant::now();
        if began >= deadline {
            self.figures.count_error(StoreFault::Timeout);
            let text = "no time is left to ask it: nothing is charged there";
            return Err(self.error(ErrorKind::StoreLate, text).into());
        }
        let (connection, made) = self.admitted(began).map_err(|why| self.refusal(why))?;
        self.figures.count_call();
        let mut call = pin!(call(connection));
        let answered = match timeout_at(deadline, call.as_mut()).await {
            Ok(answered) => Some(answered),
            Err(_) if deadline.elapsed() < LATE => None,
            Err(_) => {
                // This thread was late, not the server, whose answer may be there unread.
                let Some(answered) = unread(call.as_mut()).await else {
                    self.figures.count_error(StoreFault::Overload);
                    let text = "this node was too late to read its answer: it may have charged";
                    return Err(self.error(ErrorKind::StoreLate, text).into());
                };
                Some(answered)
            }
        };
        let is_late = answered.is_none();
        let failed = match answered {
            Some(Ok(answer)) => {
                self.note_answer(made);
                return Ok(answer);
            }
            Some(Err(error)) => failure(&error),
            None if deadline - began > self.answer_timeout => Failure::late(CHANGED_WITHIN),
            None => Failure::late(self.answer_timeout),
        };
        let kind = match (failed.is_of_key, is_late) {
            (true, _) => ErrorKind::Store,
            (false, true) => ErrorKind::StoreLate,
            (false, false) => ErrorKind::StoreOutage,
        };
        let error = self.error(kind, &failed.text);
        if failed.redirect.is_none() {
            self.figures.note_error(&error);
        }
        match failed.redirect {
            // A caller that does not follow it counts it.
            Some(_) => {}
            None if failed.is_of_key => self.figures.count_unusable(failed.fault(), &error),
            None => self.figures.count_error(failed.fault()),
        }
        if is_late {
            self.late.notify_one();
        } else if failed.is_answer {
            self.note_answer(made);
            // A replica: a new connection may lead to the primary. It answers at once, so that a pause would only be time lost.
            if failed.is_lost {
                self.reconnect(made, failed.text);
            }
        } else if failed.is_lost {
            self.reconnect(made, LOST.into());
        }
        Err(Refused { error, redirect: failed.redirect })
    }

    /// Waits until the first attempt to connect has ended, at most for as long as it may take: a program that has just
    /// started need not have its first calls decided without the store.
    /// Returns whether it has waited.
    pub(super) async fn first_attempt(&self) -> bool {
        // Made before the look at the state: it is told of an attempt that ends after this line.
        let ended = self.attempted.notified();
        let is_first = self.state.lock().is_first();
        if is_first {
            let _ = timeout(self.connect_timeout, ended).await;
        }
        is_first
    }

    pub(super) fn is_connected(&self) -> bool {
        let state = self.state.lock();
        // A server that stands still has a connection, and the attempt to make another one has failed.
        state.connection.is_some() && state.why.is_none()
    }

    /// Whether there is a connection, and no pause after failures.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.state.lock();
        state.connection.is_some() && state.closed_until.is_none()
    }

    /// Returns the error with which a call would end at once.
    pub(super) fn check(&self) -> Result<(), Error> {
        let state = self.state.lock();
        let refused = match state.connection.is_some() || state.is_first() {
            true => state.refused_at(Instant::now()),
            false => Some(state.no_connection()),
        };
        drop(state);
        refused.map_or(Ok(()), |why| Err(self.refusal(why)))
    }

    #[cold]
    fn refusal(&self, (fault, why): (StoreFault, String)) -> Error {
        self.figures.count_error(fault);
        self.error(ErrorKind::StoreOutage, &why)
    }

    /// Returns the connection, or why there is none for a call.
    fn admitted(&self, now: Instant) -> Result<(MultiplexedConnection, u64), (StoreFault, String)> {
        let mut state = self.state.lock();
        let Some(connection) = state.connection.clone() else {
            return Err(state.no_connection());
        };
        if let Some(refused) = state.refused_at(now) {
            return Err(refused);
        }
        if state.closed_until.is_some() {
            state.closed_until = Some(now + with_jitter(PAUSE));
        }
        state.used_at = Some(now);
        Ok((connection, state.made))
    }

    fn note_answer(&self, made: u64) {
        let mut state = self.state.lock();
        if state.has(made) {
            // Only the node that was paused ends the pause.
            if state.closed_until.take().is_some() {
                self.figures.set_paused(false);
            }
        }
    }

    fn reconnect(&self, made: u64, why: String) {
        let mut state = self.state.lock();
        if state.has(made) {
            state.end_connection();
            state.why = Some(why);
            self.lost.notify_one();
        }
    }

    #[cold]
    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        store_error(kind, &self.name, what)
    }
}

/// Returns the answer of a call if it has come already, and this thread has only to read it.
async fn unread<T>(mut call: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    /// Turns of the other tasks: one reads from the socket, and another one passes the answer on.
    const TURNS: usize = 4;
    for _ in 0..TURNS {
        yield_now().await;
        let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = polled {
            return Some(answer);
        }
    }
    None
}

/// Returns a random time from `time` to its double, so that nodes do not all ask at once.
pub(super) fn with_jitter(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8);
    time + time.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}
