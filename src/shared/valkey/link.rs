//! The connection to the server: made in the background, given to calls, and closed for a time after failures.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ahash::RandomState;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisError};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::fault::{Failure, failure};
use crate::error::{Error, ErrorKind};
use crate::limits::StoreOptions;
#[cfg(feature = "tracing")]
use crate::observe::events::store_warning;
use crate::observe::store_figures::{StoreFault, StoreFigures};
use crate::util::escape::shown;

/// The failures in a row after which calls are refused for a time.
const MAX_FAILURES: u32 = 5;
/// The time for which calls are refused, and the longest time between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);
/// The time between the first two attempts to connect.
const FIRST_WAIT: Duration = Duration::from_millis(20);

pub(super) struct Link {
    client: Client,
    /// The address, without secrets.
    name: String,
    connect_timeout: Duration,
    answer_timeout: Duration,
    state: Mutex<State>,
    /// Tells the thread that the connection is gone.
    lost: Notify,
    /// Tells calls that an attempt to connect has ended.
    attempted: Notify,
    figures: StoreFigures,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// The number of connections that were made, so that a failure of an old one does not end a new one.
    made: u64,
    /// Why the last attempt to connect failed.
    why: Option<String>,
    /// What is wrong with the settings of the server of the last connection.
    warning: Option<String>,
    /// Calls that failed since the last one that did not. A new connection does not change it: a server may accept
    /// connections and answer no script.
    failures: u32,
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

    /// Whether the first attempt to connect has not ended.
    fn is_first(&self) -> bool {
        self.made == 0 && self.why.is_none()
    }
}

impl Link {
    pub(super) fn new(options: &StoreOptions) -> Result<Link, Error> {
        // Without one, a connection by TLS would panic. An error says that the program has chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let name = options.shown_url();
        let opened = options.url().into_connection_info().and_then(|address| {
            // Else a call waits for the answer to the one before.
            Client::open(address.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
        });
        let client = opened.map_err(|error| {
            let text = format!("the address {name} of the store is invalid: {}", error.category());
            Error::new(ErrorKind::Store, text)
        })?;
        Ok(Link {
            client,
            name,
            connect_timeout: options.connects_within(),
            answer_timeout: options.answers_within(),
            state: Mutex::default(),
            lost: Notify::new(),
            attempted: Notify::new(),
            figures: StoreFigures::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Connects, and connects again when the connection is lost. Never ends.
    pub(super) async fn keep_connected(&self) {
        let mut wait = FIRST_WAIT;
        loop {
            match self.connect().await {
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
                    self.lost.notified().await;
                }
                Err(why) => {
                    self.state.lock().why = Some(why);
                    self.attempted.notify_waiters();
                    sleep(with_jitter(wait)).await;
                    wait = (2 * wait).min(PAUSE);
                }
            }
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, String> {
        // The deadlines of calls are those of `with_connection`.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        match timeout(self.connect_timeout, connecting).await {
            Ok(connected) => connected.map_err(|error| failure(&error).text),
            Err(_) => Err(format!("no connection within {:?}", self.connect_timeout)),
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

    pub(super) fn figures(&self) -> &StoreFigures {
        &self.figures
    }

    /// Returns what is wrong with the server's settings.
    pub(super) fn warning(&self) -> Option<String> {
        self.state.lock().warning.clone()
    }

    /// Calls `call` with the connection, within the time that an answer may take.
    pub(super) async fn with_connection<T>(
        &self,
        call: impl AsyncFnOnce(MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Error> {
        let admitted = match self.admitted() {
            Err(_) if self.state.lock().is_first() => {
                self.first_attempt().await;
                self.admitted()
            }
            admitted => admitted,
        };
        let (connection, made) = admitted.map_err(|(fault, why)| {
            self.figures.count_error(fault);
            self.error(ErrorKind::StoreOutage, &why)
        })?;
        self.figures.count_call();
        let answered = timeout(self.answer_timeout, call(connection)).await;
        let failed = match answered {
            Ok(Ok(answer)) => {
                self.note_answer(made);
                return Ok(answer);
            }
            Ok(Err(error)) => failure(&error),
            Err(_) => Failure::late(self.answer_timeout),
        };
        self.figures.count_error(failed.fault());
        if failed.is_answer {
            self.note_answer(made);
        } else {
            self.note_failure(made, failed.is_lost);
        }
        let kind = if failed.is_of_key { ErrorKind::Store } else { ErrorKind::StoreOutage };
        Err(self.error(kind, &failed.text))
    }

    /// Waits until the first attempt to connect has ended, but no longer than for an answer: a program that has just
    /// started need not have its first calls decided without the store.
    async fn first_attempt(&self) {
        // Made before the look at the state: it is told of an attempt that ends after this line.
        let ended = self.attempted.notified();
        if self.state.lock().is_first() {
            let _ = timeout(self.answer_timeout, ended).await;
        }
    }

    /// Returns the connection, or why there is none for a call.
    fn admitted(&self) -> Result<(MultiplexedConnection, u64), (StoreFault, String)> {
        let mut state = self.state.lock();
        let Some(connection) = state.connection.clone() else {
            let why = state.why.as_deref().unwrap_or("the first connection is being made");
            let text = format!("there is no connection: {why}");
            return Err((StoreFault::NoConnection, text));
        };
        if let Some(until) = state.closed_until {
            let now = Instant::now();
            if now < until {
                let text = format!(
                    "{} calls in a row failed; it is asked again each second",
                    state.failures
                );
                return Err((StoreFault::Paused, text));
            }
            state.closed_until = Some(now + with_jitter(PAUSE));
        }
        Ok((connection, state.made))
    }

    fn note_answer(&self, made: u64) {
        let mut state = self.state.lock();
        if state.has(made) {
            (state.failures, state.closed_until) = (0, None);
            self.figures.set_paused(false);
        }
    }

    fn note_failure(&self, made: u64, is_lost: bool) {
        let mut state = self.state.lock();
        // The calls that are lost with one connection are one failure.
        if !state.has(made) {
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures >= MAX_FAILURES {
            state.closed_until = Some(Instant::now() + with_jitter(PAUSE));
            self.figures.set_paused(true);
        }
        // A connection on which nothing is answered may be half open: a new one tells.
        if is_lost || state.failures >= MAX_FAILURES {
            state.connection = None;
            state.why = Some("the last connection was lost, a new one is being made".into());
            self.lost.notify_one();
        }
    }

    #[cold]
    pub(super) fn unknown_answer(&self) -> Error {
        self.figures.count_error(StoreFault::UnknownText);
        let text = "its answer is none that the script gives: is it Valkey or Redis?";
        self.error(ErrorKind::Store, text)
    }

    #[cold]
    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        Error::new(kind, format!("the store {}: {what}", self.name))
    }
}

/// Returns a random time from `time` to its double, so that nodes do not all ask at once.
fn with_jitter(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8);
    time + time.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}
