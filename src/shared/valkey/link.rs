//! The connection to one server: made in the background, given to calls, and closed for a time if the server answers nothing.

mod keep;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use super::CHANGED_WITHIN;
use super::fault::{Redirect, failure, overload, store_error};
use super::script::ScriptCalls;
use super::sentinel::Place;
use crate::error::{Error, ErrorKind};
use crate::limiter::reserve::pending::random_below;
use crate::limits::StoreOptions;
use crate::shared::protocol::gate::{Gate, Passed, PassedReturn};
use crate::shared::store_figures::{StoreFault, StoreFigures};
use crate::util::lock::Mutex;
pub(super) use keep::{FIRST_WAIT, SILENT};

/// The longest time between two attempts to connect.
pub(super) const LAST_WAIT: Duration = Duration::from_secs(1);
/// The time after a deadline from which this thread was late to find that it has passed.
const LATE: Duration = Duration::from_millis(2);
/// The late calls behind which no other begins before the server has come to them: it has work enough, and would come to that call
/// too late as well.
const MOST_LATE: usize = 4;
pub(super) const TOO_LATE: &str = "the call was too late, and was not sent";
const LOST: &str = "the last connection was lost, a new one is being made";

/// The answer to a script; the [`Redirect`] of a node if it [is followed](Link::is_followed): the script has not run.
pub(super) type Asked = Result<Result<Value, Redirect>, Error>;

/// The result of a wait for an answer.
enum Waited<T> {
    Answer(T),
    Late,
    /// This thread was late by this time to find that the time is over, and has no answer that it has not read.
    LateHere(Duration),
}

pub(super) struct Link {
    place: Place,
    /// The address, without secrets.
    name: String,
    connect_timeout: Duration,
    answer_timeout: Duration,
    state: Mutex<State>,
    gate: Arc<Gate>,
    /// When the text of a script was last sent to the server.
    script_sent: Mutex<Option<Instant>>,
    /// Whether the caller sends a call on to the node that the server names: it does in a cluster.
    pub(super) is_followed: bool,
    /// Tells the thread that the connection is gone.
    lost: Notify,
    /// Tells the thread that a call had no answer in time.
    late: Notify,
    /// Tells calls that an attempt to connect has ended.
    attempted: Notify,
    /// Those of all servers of the store.
    figures: Arc<StoreFigures>,
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
    /// The calls without an answer in time that the server may not have come to yet.
    late: usize,
    /// When an answer to a call came in time last.
    answered_at: Option<Instant>,
    /// Whether calls are refused until the server answers a question in time.
    is_paused: bool,
}

impl State {
    /// Gives calls a new connection.
    fn begin_with(&mut self, connection: MultiplexedConnection) {
        self.connection = Some(connection);
        self.made += 1;
        self.why = None;
    }

    fn end_connection(&mut self, why: String) {
        (self.connection, self.why) = (None, Some(why));
    }

    /// Returns the connection for a call, or why the call is refused.
    fn usable(&self) -> Result<&MultiplexedConnection, (StoreFault, String)> {
        let Some(connection) = &self.connection else {
            let why = self.why.as_deref().unwrap_or("the first connection is being made");
            return Err((StoreFault::NoConnection, format!("there is no connection: {why}")));
        };
        if self.is_paused {
            let text =
                format!("no answer came in time for {SILENT:?}; it is asked again and again");
            return Err((StoreFault::Paused, text));
        }
        Ok(connection)
    }

    /// Whether no call begins before the server has come to those that are late. One that would be refused ends at once.
    fn is_behind(&self) -> bool {
        self.late >= MOST_LATE && self.usable().is_ok()
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
            gate: Arc::new(Gate::new(options.answers_within())),
            script_sent: Mutex::default(),
            is_followed: false,
            lost: Notify::new(),
            late: Notify::new(),
            attempted: Notify::new(),
            figures,
        }
    }

    /// Returns the connection, if there is one.
    pub(super) fn connection(&self) -> Option<MultiplexedConnection> {
        self.state.lock().connection.clone()
    }

    /// Returns a warning about the server's settings.
    pub(super) fn warning(&self) -> Option<String> {
        self.state.lock().warning.clone()
    }

    /// Lets a call in that names these buckets, if it would be sent; `None` if too many are under way.
    pub(super) fn admit<'k>(
        &self,
        keys: impl Iterator<Item = &'k str>,
        was_denied: bool,
    ) -> Result<Option<Passed>, Error> {
        let state = self.state.lock();
        // A first call waits for its connection.
        let refused = if state.is_first() { None } else { state.usable().err() };
        let is_behind = refused.is_none() && state.is_behind();
        drop(state);
        if let Some((fault, why)) = refused {
            return Err(self.refusal(fault, &why));
        }
        Ok(if is_behind { None } else { self.gate.pass(keys, was_denied) })
    }

    /// Waits for a place of a call that admits nothing; `None` if there was none in time.
    pub(super) async fn place(&self, until: Instant) -> Option<PassedReturn> {
        self.gate.place(until, || !self.state.lock().is_behind()).await
    }

    /// Asks one script.
    pub(super) async fn ask_one(
        &self,
        call: &ScriptCalls<'_>,
        is_asking: bool,
        deadline: Instant,
    ) -> Asked {
        let asked = self.ask(call, is_asking, deadline).await.pop();
        asked.unwrap_or_else(|| Err(self.error(ErrorKind::Store, "no script was asked")))
    }

    /// Asks scripts, and waits for their answers until the deadline. Returns one of each. `is_asking`: another node has sent the
    /// call here, and this one gets the slot.
    pub(super) async fn ask(
        &self,
        calls: &ScriptCalls<'_>,
        is_asking: bool,
        deadline: Instant,
    ) -> Vec<Asked> {
        let (began, count) = (Instant::now(), calls.len());
        let each = |error: &dyn Fn() -> Error| (0..count).map(|_| Err(error())).collect();
        if began >= deadline {
            self.gate.note_late((deadline - self.answer_timeout).into_std(), None);
            return each(&|| overload(&self.figures, &self.name, TOO_LATE));
        }
        let (connection, made) = match self.admitted(began) {
            Ok(admitted) => admitted,
            Err((fault, why)) => return each(&|| self.refusal(fault, &why)),
        };
        self.figures.count_calls(count);
        let before = self.gate.answers();
        let sent = (&*self.figures, &self.script_sent);
        let mut call = pin!(calls.ask(connection, is_asking, sent));
        let waited = answer_until(deadline, call.as_mut()).await;
        if let Waited::Answer(answers) = waited {
            self.note_answers(began, answers.iter().filter(|answer| answer.is_ok()).count());
            let asked = answers.into_iter().map(|answer| match answer {
                Ok(answer) => Ok(Ok(answer)),
                Err(error) => self.failed(&error, (began, made)).map(Err),
            });
            return asked.collect();
        }
        let within = deadline - began;
        // If other servers took most of the call's time, as for a later step of a batch, that says nothing about this one.
        if within >= self.answer_timeout / 2 {
            self.state.lock().late += count;
            self.late.notify_one();
            // Returns have longer, so one that is late says less about the number of calls.
            if within <= self.answer_timeout {
                let answered = self.gate.answers().wrapping_sub(before);
                self.gate.note_late(began.into_std(), Some(answered));
            }
        }
        let (fault, text) = match waited {
            Waited::LateHere(_) => {
                let text = "this node was too late to read its answer: it may have charged";
                (StoreFault::Overload, text.into())
            }
            _ => {
                let within =
                    if within > self.answer_timeout { CHANGED_WITHIN } else { self.answer_timeout };
                let text =
                    format!("no answer within {within:?}: whether the call has run is unknown");
                (StoreFault::Timeout, text)
            }
        };
        let error = self.error(ErrorKind::StoreLate, &text);
        self.figures.note_error(&error);
        each(&|| {
            self.figures.count_error(fault);
            error.clone()
        })
    }

    /// Notes that the server has refused a call, or that its connection was lost. A redirect that is followed is no error.
    #[cold]
    fn failed(&self, error: &RedisError, (began, made): (Instant, u64)) -> Result<Redirect, Error> {
        let failed = failure(error);
        if failed.is_answer {
            self.note_answers(began, 1);
        }
        if self.is_followed
            && let Some(redirect) = failed.redirect
        {
            return Ok(redirect);
        }
        let kind = if failed.is_of_key { ErrorKind::Store } else { ErrorKind::StoreOutage };
        let error = self.error(kind, &failed.text);
        let fault = if failed.is_answer { StoreFault::Refused } else { StoreFault::NoConnection };
        if failed.is_of_key {
            self.figures.count_unusable(fault, &error);
        } else {
            self.figures.count_error(fault);
            self.figures.note_error(&error);
        }
        if failed.is_lost {
            // A replica answers, and a new connection may lead to the primary.
            let why = if failed.is_answer { &failed.text } else { LOST };
            self.reconnect(made, why.into());
        }
        Err(error)
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

    /// Whether there is a connection, and no pause.
    pub(super) fn is_ready(&self) -> bool {
        self.state.lock().usable().is_ok()
    }

    #[cold]
    fn refusal(&self, fault: StoreFault, why: &str) -> Error {
        self.figures.count_error(fault);
        self.error(ErrorKind::StoreGone, why)
    }

    /// Returns the connection, or why there is none for a call.
    fn admitted(&self, now: Instant) -> Result<(MultiplexedConnection, u64), (StoreFault, String)> {
        let mut state = self.state.lock();
        let connection = state.usable()?.clone();
        state.used_at = Some(now);
        Ok((connection, state.made))
    }

    /// Notes the answers to calls that began then.
    fn note_answers(&self, began: Instant, answers: usize) {
        let now = Instant::now();
        // A return may take longer.
        if answers > 0 && now - began <= self.answer_timeout {
            self.gate.note_answers(answers);
            self.state.lock().answered_at = Some(now);
        }
    }

    fn reconnect(&self, made: u64, why: String) {
        let mut state = self.state.lock();
        // Else the call has used a connection that is lost already.
        if state.made == made && state.connection.is_some() {
            state.end_connection(why);
            self.lost.notify_one();
        }
    }

    #[cold]
    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        store_error(kind, &self.name, what)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.state.lock().is_paused {
            self.figures.end_pause();
        }
    }
}

/// Waits for an answer until a deadline.
async fn answer_until<T>(
    deadline: Instant,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> Waited<T> {
    if let Ok(answer) = timeout_at(deadline, call.as_mut()).await {
        return Waited::Answer(answer);
    }
    let late_by = deadline.elapsed();
    if late_by < LATE {
        return Waited::Late;
    }
    // This thread was late, not the server, whose answer may be there unread.
    unread(call).await.map_or(Waited::LateHere(late_by), Waited::Answer)
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
    time + random_below(time)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::shared::valkey::script::Scripts;

    /// An answer that took longer than a spend may says nothing about how many the server can give in time.
    #[test]
    fn late_answers_to_returns_are_not_counted() {
        let url = "redis://127.0.0.1:1";
        let options = StoreOptions::new(url).unwrap();
        let place = Place::Known(redis::Client::open(url).unwrap());
        let link = Link::new(place, url.into(), &options, Arc::default());
        link.note_answers(Instant::now() - 2 * link.answer_timeout, 1);
        assert_eq!((link.gate.answers(), link.state.lock().answered_at), (0, None));
        link.note_answers(Instant::now(), 2);
        assert_eq!(link.gate.answers(), 2);
        assert!(link.state.lock().answered_at.is_some());
    }

    /// A server that refuses calls in time is not silent.
    #[test]
    fn refusals_in_time_are_answers() {
        let url = "redis://127.0.0.1:1";
        let place = Place::Known(redis::Client::open(url).unwrap());
        let link = Link::new(place, url.into(), &StoreOptions::new(url).unwrap(), Arc::default());
        let lost = RedisError::from((redis::ErrorKind::Io, "planted"));
        let oom = redis::make_extension_error("OOM".into(), None);
        for (error, answers) in [(lost, 0), (oom, 1)] {
            assert!(link.failed(&error, (Instant::now(), 0)).is_err());
            assert_eq!(link.gate.answers(), answers, "{error}");
            assert_eq!(link.state.lock().answered_at.is_some(), answers > 0, "{error}");
        }
    }

    /// This node has too many of them: the others are fewer from then on.
    #[test]
    fn calls_that_are_not_sent_narrow_the_gate() {
        let url = "redis://127.0.0.1:1";
        let place = Place::Known(redis::Client::open(url).unwrap());
        let link = Link::new(place, url.into(), &StoreOptions::new(url).unwrap(), Arc::default());
        let pass = |id: usize| link.gate.pass(std::iter::once(&*id.to_string()), false);
        let crowd: Vec<_> = (0..20).filter_map(pass).collect();
        assert_eq!(crowd.len(), 20);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let scripts = Scripts::new();
        let mut calls = ScriptCalls::with_capacity(2);
        [(); 2].iter().for_each(|()| scripts.charge(&mut calls, &[]));
        let asked = runtime.block_on(link.ask(&calls, false, Instant::now()));
        assert!(asked.len() == 2 && asked.iter().flat_map(Result::as_ref).count() == 0);
        assert!(asked.into_iter().filter_map(Result::err).all(|error| error.is_unsent()));
        drop(crowd);
        assert_eq!((0..1_000).filter_map(pass).collect::<Vec<_>>().len(), 15);
    }

    /// A node of a cluster that leaves the map in a pause. The figure said for ever that calls are refused.
    #[test]
    fn a_link_that_goes_ends_its_pause() {
        let url = "redis://127.0.0.1:1";
        let options = StoreOptions::new(url).unwrap();
        let figures = Arc::new(StoreFigures::default());
        let links = [(); 2].map(|()| {
            let place = Place::Known(redis::Client::open(url).unwrap());
            Link::new(place, url.into(), &options, figures.clone())
        });
        for link in links.iter().chain(&links) {
            link.pause(true);
        }
        let [first, second] = links;
        drop(first);
        assert!(figures.is_paused());
        drop(second);
        assert!(!figures.is_paused());
    }
}
