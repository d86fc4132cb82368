//! Keeps the connection: makes it again when it is lost, and asks the server whether it answers.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{LAST_WAIT, LOST, Link, Waited, answer_until, with_jitter};
use crate::error::ErrorKind;
#[cfg(feature = "tracing")]
use crate::shared::events::store_warning;
use crate::shared::valkey::fault::failure;
use crate::util::escape::shown;

/// The time without an answer in time, to a question or a call, after which calls are refused. A server that is only slower than its
/// callers answers some earlier: its nodes send it fewer calls after each that is late.
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
    /// The answer came within the time that a call has.
    InTime,
    /// The answer came after that.
    Late,
    /// There is no connection, or it was lost.
    Lost,
    /// No answer came.
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
                    wait = (2 * wait).min(LAST_WAIT);
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

    /// Asks the server after a call without an answer in time. Without one for long enough, calls are refused until there is one.
    /// Never ends.
    async fn ask_after_late_calls(&self) {
        loop {
            self.late.notified().await;
            loop {
                match self.ask_until_in_time().await {
                    Asked::InTime => break,
                    asked => self.pause(!matches!(asked, Asked::Late)),
                }
            }
            self.end_pause();
            sleep(BETWEEN_QUESTIONS).await;
        }
    }

    /// Asks the server a script, again and again: it may answer other commands and no script, as one does while a failover
    /// begins. Returns `InTime` if a question or a call was answered in time; `Late` if questions were answered late alone, for
    /// `SILENT`.
    async fn ask_until_in_time(&self) -> Asked {
        let mut question = redis::cmd("EVAL");
        question.arg("return 1").arg(0);
        let within = SILENT.max(self.answer_timeout);
        let (mut since, mut is_late) = (Instant::now(), false);
        loop {
            let until = since + within;
            let asked = self.question(&question, until).await;
            match asked {
                Asked::InTime => return asked,
                Asked::StoodStill => since = Instant::now(),
                Asked::Lost => drop(timeout_at(until, self.connected()).await),
                Asked::Late => {
                    is_late = true;
                    sleep(BETWEEN_QUESTIONS).await;
                }
                Asked::Silent => {}
            }
            if Instant::now() >= since + within {
                let is_in_time = self.state.lock().answered_at.is_some_and(|at| at >= since);
                return match (is_in_time, is_late) {
                    (true, _) => Asked::InTime,
                    (false, true) => Asked::Late,
                    (false, false) => asked,
                };
            }
        }
    }

    /// Refuses calls. `is_silent`: the connection may be half open, and a new one tells.
    pub(super) fn pause(&self, is_silent: bool) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.is_paused, true) {
            self.figures.begin_pause();
        }
        if is_silent && state.connection.is_some() {
            state.end_connection(LOST.into());
            self.lost.notify_one();
        }
    }

    fn end_pause(&self) {
        if std::mem::take(&mut self.state.lock().is_paused) {
            self.figures.end_pause();
        }
    }

    /// Asks the server, and waits for the answer until a time. The question is no call: without an answer it is no failure.
    async fn question(&self, question: &Cmd, until: Instant) -> Asked {
        let (connection, made) = {
            let state = self.state.lock();
            (state.connection.clone(), state.made)
        };
        let Some(mut connection) = connection else { return Asked::Lost };
        let in_time = until.min(Instant::now() + self.answer_timeout);
        let mut asked = pin!(question.exec_async(&mut connection));
        for (until, answered) in [(in_time, Asked::InTime), (until, Asked::Late)] {
            match answer_until(until, asked.as_mut()).await {
                Waited::Answer(Err(error)) if !failure(&error).is_answer => {
                    self.reconnect(made, LOST.into());
                    return Asked::Lost;
                }
                Waited::Answer(_) => {
                    if std::mem::take(&mut self.state.lock().late) > 0 {
                        self.gate.note_caught_up();
                    }
                    return answered;
                }
                Waited::LateHere(by) if by > STOOD_STILL => return Asked::StoodStill,
                Waited::Late | Waited::LateHere(_) => {}
            }
        }
        Asked::Silent
    }

    /// Waits until there is a connection.
    async fn connected(&self) {
        loop {
            let attempted = self.attempted.notified();
            if self.connection().is_some() {
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
            let until = Instant::now() + SILENT.max(self.answer_timeout);
            match self.question(&redis::cmd("PING"), until).await {
                Asked::InTime | Asked::Late | Asked::StoodStill => {}
                // Silent: the server stands still, or something between has dropped the connection. Calls keep it until there
                // is another one.
                Asked::Silent | Asked::Lost => return,
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
        let settings = timeout(SILENT.max(self.answer_timeout), asked).await.ok()?.ok()?;
        let policy = settings.get("maxmemory-policy")?;
        let keeps_buckets = settings.get("maxmemory")? == "0"
            || matches!(policy.as_str(), "noeviction" | "volatile-ttl");
        (!keeps_buckets).then(|| {
            let policy = shown(policy, 40);
            format!("the store {} has a maxmemory and the maxmemory-policy {policy}, by which it may forget buckets: they are full then; set noeviction or volatile-ttl", self.name)
        })
    }
}
