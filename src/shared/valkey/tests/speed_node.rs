//! Measures what a call of a handle costs its node, beside a plain client with a script of its own.

use std::time::{Duration, Instant};

use redis::Value;
use redis::aio::MultiplexedConnection;

use super::server::{Server, with_each};
use super::speed_exact::{Cpu, PLAIN_GCRA};
use super::wait_until;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::{SharedLimit, block_on};

const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

/// Who makes the calls.
#[derive(Clone)]
enum Client {
    Plain(MultiplexedConnection, String),
    Handle(SharedLimit),
}

impl Client {
    async fn call(&self, id: &str) {
        match self {
            Client::Plain(connection, hash) => {
                let mut command = redis::cmd("EVALSHA");
                command.arg(hash).arg(1).arg(format!("tat:{id}"));
                command.arg(&["0.000001", "1000000", "1"]);
                let answer: Value = command.query_async(&mut connection.clone()).await.unwrap();
                assert_ne!(answer, Value::Nil);
            }
            Client::Handle(limit) => assert!(limit.spend(id, 1).await.unwrap().allowed()),
        }
    }
}

/// Calls by `at_once` tasks of a runtime with one thread. Returns the calls of a second, and the processor time of this process
/// for each of them.
fn measured(client: impl Future<Output = Client>, at_once: usize) -> (f64, f64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client.await;
        let cpu = || Cpu::of(std::process::id(), "");
        let (before, began) = (cpu(), Instant::now());
        let tasks: Vec<_> = (0..at_once)
            .map(|task| {
                let client = client.clone();
                tokio::spawn(async move {
                    let (id, mut calls) = (format!("client-{task}"), 0_usize);
                    while began.elapsed() < TIME {
                        client.call(&id).await;
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        let mut calls = 0;
        for task in tasks {
            calls += task.await.unwrap();
        }
        (calls as f64 / TIME.as_secs_f64(), cpu().since(before).us_per_call(calls))
    })
}

#[test]
#[ignore = "measures"]
fn handles_beside_a_plain_client() {
    with_each(|binary| {
        let server = Server::start(binary);
        let file = format!(
            "store: {{url: \"{}\", timeout: 1s}}\n\
             All: {{burst: 1000000, count: 1000000, period: 1s, id: string, shared: exact}}\n",
            server.url("")
        );
        let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
        let all = limiter.shared("All").unwrap();
        wait_until("connected", || block_on(all.blocked("none")).is_ok());
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(PLAIN_GCRA).to_owned();
        let hash: String = load.query(&mut server.connection()).unwrap();
        for at_once in [1, 64] {
            let mut best = [(0.0_f64, f64::MAX); 2];
            for _ in 0..ROUNDS {
                let plain = async {
                    let client = redis::Client::open(server.url("")).unwrap();
                    let connection = client.get_multiplexed_async_connection().await.unwrap();
                    Client::Plain(connection, hash.clone())
                };
                let rounds = [
                    measured(plain, at_once),
                    measured(async { Client::Handle(all.clone()) }, at_once),
                ];
                for (best, round) in best.iter_mut().zip(rounds) {
                    *best = (best.0.max(round.0), best.1.min(round.1));
                }
            }
            let [plain, handle] = best;
            println!(
                "{at_once} at once: a plain client {:.0} a second, {:.1} us each; a handle {:.0} a second, {:.1} us each ({:.2} times)",
                plain.0,
                plain.1,
                handle.0,
                handle.1,
                handle.1 / plain.1,
            );
        }
    });
}
