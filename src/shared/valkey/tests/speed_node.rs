//! Measures the time that a call of a handle takes on its node, beside a plain client that runs another script.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use redis::Value;
use redis::aio::MultiplexedConnection;

use super::server::{Server, with_each};
use super::speed_exact::{Cpu, PLAIN_GCRA};
use super::wait_until;
use crate::decision::Decision;
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

/// Calls by `at_once` tasks of a runtime with one thread, or with that many workers. Returns the calls of a second, and the
/// processor time of this process for each of them.
fn measured(
    client: impl Future<Output = Client>,
    at_once: usize,
    workers: Option<usize>,
) -> (f64, f64) {
    let mut builder = match workers {
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
        None => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.worker_threads(workers.unwrap_or(1)).enable_all().build().unwrap();
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
        wait_until("connected", || block_on(all.blocked_for("none")).is_ok());
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(PLAIN_GCRA).to_owned();
        let hash: String = load.query(&mut server.connection()).unwrap();
        for (at_once, workers) in [(1, None), (64, None), (1, Some(2)), (64, Some(2))] {
            let mut best = [(0.0_f64, f64::MAX); 2];
            for _ in 0..ROUNDS {
                let plain = async {
                    let client = redis::Client::open(server.url("")).unwrap();
                    let connection = client.get_multiplexed_async_connection().await.unwrap();
                    Client::Plain(connection, hash.clone())
                };
                let rounds = [
                    measured(plain, at_once, workers),
                    measured(async { Client::Handle(all.clone()) }, at_once, workers),
                ];
                for (best, round) in best.iter_mut().zip(rounds) {
                    *best = (best.0.max(round.0), best.1.min(round.1));
                }
            }
            let [plain, handle] = best;
            println!(
                "{at_once} at once, workers {workers:?}: a plain client {:.0} a second, {:.1} us each; a handle {:.0} a second, {:.1} us each ({:.2} times)",
                plain.0,
                plain.1,
                handle.0,
                handle.1,
                handle.1 / plain.1,
            );
        }
    });
}

/// What callers have got under one load.
#[derive(Default)]
struct Answers {
    times: Vec<Duration>,
    allowed: usize,
    overloaded: usize,
}

/// Makes calls at even distances for [`TIME`], whether those before have ended or not. Calls that are not ready at their first poll
/// go to a runtime. Returns all answers.
fn paced(
    runtime: &tokio::runtime::Runtime,
    limit: &SharedLimit,
    ids: &[String],
    each_second: usize,
) -> Answers {
    let (tell, told) = std::sync::mpsc::channel();
    let (began, mut answers) = (Instant::now(), Answers::default());
    for call in 0..(TIME.as_secs_f64() * each_second as f64) as usize {
        let due = began + Duration::from_secs_f64(call as f64 / each_second as f64);
        // It sleeps, so that the server and the node have the processors; calls that are due meanwhile come together.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (limit, id, called) = (limit.clone(), ids[call % ids.len()].clone(), Instant::now());
        let mut spend = Box::pin(async move { limit.spend(&*id, 1).await.unwrap() });
        match spend.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => answers.add(called, decision),
            Poll::Pending => {
                let tell = tell.clone();
                runtime.spawn(async move {
                    let decision = spend.await;
                    let _ = tell.send((called, called.elapsed(), decision));
                });
            }
        }
    }
    drop(tell);
    for (_, time, decision) in told {
        answers.times.push(time);
        answers.count(decision);
    }
    answers.times.sort_unstable();
    answers
}

impl Answers {
    fn add(&mut self, called: Instant, decision: Decision) {
        self.times.push(called.elapsed());
        self.count(decision);
    }

    fn count(&mut self, decision: Decision) {
        self.allowed += usize::from(decision.allowed());
        self.overloaded += usize::from(decision.overloaded());
    }
}

/// Calls for a thousand ids of a limit by three threads, and beside them for another client each 10 ms.
fn offered([all, clients]: [&SharedLimit; 2], each_second: usize) -> [Answers; 2] {
    const THREADS: usize = 3;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    std::thread::scope(|scope| {
        let runtime = &runtime;
        let pacers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let ids: Vec<_> = (0..334).map(|id| format!("{thread}-{id}")).collect();
                scope.spawn(move || paced(runtime, all, &ids, each_second / THREADS))
            })
            .collect();
        let other = paced(runtime, clients, &["other".into()], 100);
        let mut sum = Answers::default();
        for pacer in pacers {
            let part = pacer.join().unwrap();
            sum.times.extend(part.times);
            sum.allowed += part.allowed;
            sum.overloaded += part.overloaded;
        }
        sum.times.sort_unstable();
        [sum, other]
    })
}

/// From a tenth to ten times of what a node can ask: the time of each answer, the calls that are decided, and another client's.
#[test]
#[ignore = "measures"]
fn answers_at_any_load() {
    with_each(|binary| {
        let server = Server::start(binary);
        let file = format!(
            "store: {{url: \"{}\"}}\n\
             All: {{burst: 1000000, count: 1000000, period: 1s, id: string, shared: exact}}\n\
             Slow: {{burst: 20, count: 10, period: 1s, id: string, shared: exact}}\n",
            server.url("")
        );
        let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
        let (all, slow) = (limiter.shared("All").unwrap(), limiter.shared("Slow").unwrap());
        wait_until("connected", || block_on(all.blocked_for("none")).is_ok());
        let loads = [10_000, 30_000, 60_000, 100_000, 200_000, 500_000, 1_000_000];
        for (limit, each_second) in
            [&all, &slow].into_iter().flat_map(|it| loads.map(|by| (it, by)))
        {
            let [answers, other] = offered([limit, &all], each_second);
            let at = |answers: &Answers, share: f64| {
                answers.times[((answers.times.len() - 1) as f64 * share) as usize].as_micros()
            };
            println!(
                "{} {each_second} offered a second: {} allowed, {} overloaded of {}; p50 {} us, p99 {} us, longest {} us; another client: {} of {}, p99 {} us, longest {} us",
                limit.name(),
                answers.allowed,
                answers.overloaded,
                answers.times.len(),
                at(&answers, 0.5),
                at(&answers, 0.99),
                at(&answers, 1.0),
                other.allowed,
                other.times.len(),
                at(&other, 0.99),
                at(&other, 1.0),
            );
        }
        println!("{:?}", limiter.counters().store().unwrap());
    });
}
