//! Keeps the connection: makes it again when it is lost, and asks the server whether it answers.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{LOST, Link, PAUSE, State, Waited, answer_until, with_jitter};
use crate::error::ErrorKind;
#[cfg(feature = "tracing")]
use crate::shared::events::store_warning;
use crate::shared::valkey::fault::failure;
use crate::util::escape::shown;

/// The time without an answer to a question after which calls are refused for a time. A server that is only slower than its
/// callers answers earlier: it takes less than two seconds for the calls that a few nodes send at once.
pub(in crate::shared::valkey) const SILENT: Duration = Duration::from_secs(2);
/// The time from the answer to a question to the next question.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(20);
/// The time between the first two attempts to connect.
pub(in crate::shared::valkey) const FIRST_WAIT: Duration = Duration::from_millis(20);
/// A connection that is lost sooner, as one to a replica is, is not made again at once.
const SHORT: Duration = Duration::from_millis(100);
/// The time without a call after which the server is asked whether the connection lives: half of the shortest `timeout` by
/// which a server closes idle connections.
const IDLE: Duration = Duration::from_millis(500);

/// A thread that is late by more than this time has stood still. One that is busy is late by some milliseconds.
const STOOD_STILL: Duration = Duration::from_millis(200);

/// The result of a question to the server.
enum Asked {
    Answered,
    /// There is no connection, or it was lost.
    Lost,
    /// There is another connection.
    Replaced,
    /// No answer came in time.
    Silent,
    /// This thread stood still: the question may have been sent just now.
    StoodStill,
}

impl Link {
    /// Connects, and connects again when the connection is lost. Never ends.
    pub(in crate::shared::valkey) async fn keep_connected(&self) {
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

    /// Asks the server after a call without an answer in time. Without an answer for long enough, calls are refused for a time.
    /// Never ends.
    async fn ask_after_late_calls(&self) {
        let whole = SILENT.max(self.answer_timeout);
        let mut within = whole;
        loop {
            self.late.notified().await;
            let waiting = self.entrance.gate.wait_for_answers();
            let asked = self.answer_within(within).await;
            // A connection that ends again and again leaves the next question less time.
            within = if matches!(asked, Asked::Lost) { IDLE } else { whole };
            if matches!(asked, Asked::Silent) {
                self.pause();
            }
            drop(waiting);
            sleep(BETWEEN_QUESTIONS).await;
        }
    }

    /// Asks the server a script, and asks it again on each new connection: a server may answer other commands and no script, as
    /// one does while a failover begins. Returns `Answered`, `Silent` if no answer came in time, or `Lost` if there is no
    /// connection when the time is over.
    async fn answer_within(&self, within: Duration) -> Asked {
        let mut question = redis::cmd("EVAL");
        question.arg("return 1").arg(0);
        let mut until = Instant::now() + within;
        loop {
            match self.question(&question, until).await {
                Asked::Replaced => {}
                Asked::StoodStill => until = Instant::now() + within,
                // Something between may end each connection before the time is over.
                Asked::Lost if timeout_at(until, self.connected()).await.is_ok() => {}
                asked => return asked,
            }
        }
    }

    /// Refuses calls for a time from now, also in a pause.
    pub(super) fn pause(&self) {
        let mut state = self.state.lock();
        let until = Instant::now() + with_jitter(PAUSE);
        if state.closed_until.replace(until).is_none() {
            self.figures.begin_pause();
        }
        // The connection may be half open: a new one tells.
        if state.connection.is_some() {
            state.end_connection();
            self.lost.notify_one();
        }
    }

    /// Asks the server. The question is no call: without an answer it is no failure, and with one it ends no pause.
    async fn question(&self, question: &Cmd, until: Instant) -> Asked {
        let (connection, made) = {
            let state = self.state.lock();
            (state.connection.clone(), state.made)
        };
        let Some(mut connection) = connection else { return Asked::Lost };
        let mut asked = pin!(question.exec_async(&mut connection));
        tokio::select! {
            waited = answer_until(until, asked.as_mut()) => match waited {
                Waited::Answer(Err(error)) if !failure(&error).is_answer => {
                    self.reconnect(made, LOST.into());
                    Asked::Lost
                }
                Waited::Answer(_) => Asked::Answered,
                Waited::LateHere(by) if by > STOOD_STILL => Asked::StoodStill,
                Waited::Late | Waited::LateHere(_) => Asked::Silent,
            },
            () = self.replaced(made) => Asked::Replaced,
        }
    }

    /// Waits until there is another connection.
    async fn replaced(&self, made: u64) {
        self.until_state(|state| state.made != made).await;
    }

    async fn connected(&self) {
        self.until_state(|state| state.connection.is_some()).await;
    }

    async fn until_state(&self, is_there: impl Fn(&State) -> bool) {
        loop {
            let attempted = self.attempted.notified();
            if is_there(&self.state.lock()) {
                return;
            }
            attempted.await;
        }
    }

    /// Asks the server now and then, while no calls do, whether the connection lives. That also keeps the server, and proxies
    /// between, from closing it.
    async fn until_found_lost(&self) {
        loop {
            self.until_idle().await;
            let until = Instant::now() + PAUSE.max(self.answer_timeout);
            match self.question(&redis::cmd("PING"), until).await {
                Asked::Answered | Asked::StoodStill => {}
                // Silent: the server stands still, or something between has dropped the connection. Calls keep it until there
                // is another one.
                Asked::Silent | Asked::Lost | Asked::Replaced => return,
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
}
