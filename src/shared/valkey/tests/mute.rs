//! A server of the test's own, which answers the beginning of each connection, and scripts only when it is told to.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::{charge, member, options_of, secondly, wait_until};
use crate::error::Error;
use crate::shared::protocol::{SharedStore, StoreMember};
use crate::shared::valkey::ValkeyStore;
use crate::util::lock::Mutex;

/// The state of the server: its answers, and the calls that it has had.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) connections: usize,
    pub(super) scripts: usize,
    pub(super) pings: usize,
    /// Whether scripts are answered.
    pub(super) answers: bool,
    /// Whether questions have no answers either.
    pub(super) stands: bool,
    /// The time that the server takes for a script.
    pub(super) takes: Duration,
    /// The time that it takes for a question.
    pub(super) question_takes: Duration,
    /// Whether its memory has a bound and a policy that forgets buckets.
    pub(super) forgets: bool,
    /// The refusal that scripts get.
    pub(super) refuses: Option<&'static str>,
    /// How many of the first connections get no answers any more, as if something between had dropped them silently.
    pub(super) dropped: usize,
    /// The number of scripts at which the server ends all connections.
    pub(super) ends_at: Option<usize>,
    /// Whether all connections end now.
    pub(super) ends: bool,
    /// How far the server's clock is ahead, in s.
    pub(super) ahead_s: u64,
}

/// A server that speaks as much of the protocol as a charge needs. Its threads end with their connections.
pub(super) struct Mute {
    pub(super) seen: Arc<Mutex<Seen>>,
    pub(super) store: Arc<ValkeyStore>,
}

impl Mute {
    pub(super) fn start(seen: Seen, answer_timeout: Duration) -> Mute {
        Mute::start_as("redis", seen, answer_timeout)
    }

    pub(super) fn start_as(scheme: &str, seen: Seen, answer_timeout: Duration) -> Mute {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(seen));
        let by = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                by.lock().connections += 1;
                let (by, number) = (by.clone(), by.lock().connections);
                std::thread::spawn(move || serve(stream.unwrap(), number, &by));
            }
        });
        let options = options_of(&url).answer_timeout(answer_timeout).unwrap();
        let store = Arc::new(ValkeyStore::start(&options).unwrap());
        wait_until("connected", || {
            let text = charge(&store, &members()).map_err(|error| error.to_string());
            !text.is_err_and(|text| text.contains("there is no connection"))
        });
        Mute { seen, store }
    }

    /// Makes a call, as a handle does.
    pub(super) fn call(&self) -> Result<(), Error> {
        let _passed = self.store.admit(&mut std::iter::once("a"), false)?;
        charge(&self.store, &members()).map(drop)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.call().is_ok()
    }

    /// Lets the server answer all from now on.
    pub(super) fn answer(&self) {
        let mut seen = self.seen.lock();
        (seen.stands, seen.answers) = (false, true);
    }

    pub(super) fn scripts(&self) -> usize {
        self.seen.lock().scripts
    }

    /// Calls until the store refuses calls.
    pub(super) fn until_refused(&self) {
        wait_until("refused", || {
            // A call is answered if this process stands still until its answer is there.
            let error = self.call().err().map(|error| error.to_string());
            error.is_some_and(|error| error.contains("no answer came in time for"))
        });
    }
}

pub(super) fn members() -> [StoreMember; 1] {
    [member("a", &secondly(5, 1), 1)]
}

/// Answers the commands of one connection.
fn serve(mut stream: TcpStream, number: usize, seen: &Mutex<Seen>) {
    let mut bytes = [0; 1 << 16];
    let port = stream.local_addr().unwrap().port();
    // Commands after a script without an answer have none either: answers come in the order of the commands.
    let mut is_stuck = false;
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    loop {
        if seen.lock().ends {
            return;
        }
        let count = match stream.read(&mut bytes) {
            Ok(0) => return,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let text = String::from_utf8_lossy(&bytes[..count]);
        let mut seen = seen.lock();
        seen.scripts += text.matches("EVALSHA").count();
        seen.pings += text.matches("PING").count();
        if seen.ends_at.is_some_and(|at| seen.scripts >= at) {
            seen.ends_at = None;
            return;
        }
        let mut answer = String::new();
        for word in text.split("\r\n") {
            is_stuck |= seen.dropped >= number;
            let found = match word {
                "SETINFO" => "+OK\r\n".into(),
                "PING" => "+PONG\r\n".into(),
                "EVAL" if seen.stands => {
                    is_stuck = true;
                    continue;
                }
                "EVAL" => {
                    std::thread::sleep(seen.question_takes);
                    ":1\r\n".into()
                }
                "CONFIG" if seen.forgets => {
                    std::thread::sleep(seen.question_takes);
                    let (size, policy) =
                        ("maxmemory\r\n$1\r\n9", "maxmemory-policy\r\n$11\r\nallkeys-lru");
                    format!("*4\r\n$9\r\n{size}\r\n$16\r\n{policy}\r\n")
                }
                "CONFIG" => "-ERR unknown command\r\n".into(),
                "SLOTS" => {
                    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
                }
                "EVALSHA" => match seen.refuses {
                    Some(refusal) => format!("-{refusal}\r\n"),
                    None if seen.answers => {
                        std::thread::sleep(seen.takes);
                        let now_s = 1_790_000_000 + seen.ahead_s;
                        format!("*4\r\n$10\r\n{now_s}\r\n$1\r\n0\r\n:0\r\n$-1\r\n")
                    }
                    None => {
                        is_stuck = true;
                        continue;
                    }
                },
                _ => continue,
            };
            if !is_stuck {
                answer.push_str(&found);
            }
        }
        drop(seen);
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
