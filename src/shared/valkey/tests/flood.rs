//! A flood of calls at one node: the store is well, and the node cannot ask it as often as it is called.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::server::{Server, with_each};
use super::{member, options, run, secondly, wait_until, wait_until_connected};
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::block_on;
use crate::shared::protocol::SharedStore;
use crate::shared::valkey::ValkeyStore;
use crate::util::sync::{Figure, Ordering, Switch};

const BURST: u64 = 100;
const A_SECOND: u64 = 10;
const TIME: Duration = Duration::from_secs(2);
/// Calls that wait at the same time.
const CALLERS: usize = 2_000;
/// The time from one call of a caller to its next one: together they make 100,000 a second.
const PAUSE: Duration = Duration::from_millis(20);

fn node(server: &Server, policy: &str) -> Limiter {
    node_with(server, "", policy)
}

/// Makes a node with more options of its store.
fn node_with(server: &Server, more: &str, policy: &str) -> Limiter {
    let file = format!(
        "store: {{url: \"{}\"{more}}}\n\
         PerClient: {{burst: {BURST}, count: {A_SECOND}, period: 1s, id: string, {policy}}}\n",
        server.url("")
    );
    let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
    let clients = limiter.shared("PerClient").unwrap();
    wait_until("connected", || block_on(clients.blocked_for("none")).is_ok());
    limiter
}

/// Makes calls at once, on several threads, and waits for their answers.
fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    calls: usize,
    call: impl Fn(usize) -> F,
) -> Vec<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let tasks: Vec<_> = (0..calls).map(|at| runtime.spawn(call(at))).collect();
    tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect()
}

struct Flood {
    calls: u64,
    admitted: u64,
    took: Duration,
    /// The calls to the store.
    asked: u64,
    /// The calls of a client beside the flood, those that were allowed, and the longest wait of one.
    other: (u64, u64, Duration),
}

/// Calls with the id that `id_of` makes of a caller and a call's number, from many tasks at once, while another client makes
/// one call each 100 ms.
fn flood(limiter: &Limiter, id_of: impl Fn(usize, u64) -> String + Send + Sync + 'static) -> Flood {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let clients = limiter.shared("PerClient").unwrap();
    let (calls, admitted) = (Arc::new(Figure::new(0)), Arc::new(Figure::new(0)));
    let (ends, id_of, began) = (Arc::new(Switch::new(false)), Arc::new(id_of), Instant::now());
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (clients, id_of, ends) = (clients.clone(), id_of.clone(), ends.clone());
            let (calls, admitted) = (calls.clone(), admitted.clone());
            runtime.spawn(async move {
                let mut number = 0;
                while !ends.load(Ordering::Relaxed) {
                    number += 1;
                    let decision = clients.spend(&id_of(caller, number), 1).await.unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                    admitted.fetch_add(decision.allowed().into(), Ordering::Relaxed);
                    tokio::time::sleep_until((began + number as u32 * PAUSE).into()).await;
                }
            })
        })
        .collect();
    let mut other = (0, 0, Duration::ZERO);
    let to_store = || limiter.counters().store().unwrap().calls;
    let asked_before = to_store();
    while began.elapsed() < TIME {
        std::thread::sleep(Duration::from_millis(100));
        let called = Instant::now();
        let decision = block_on(clients.spend("other", 1)).unwrap();
        other =
            (other.0 + 1, other.1 + u64::from(decision.allowed()), other.2.max(called.elapsed()));
    }
    ends.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    Flood {
        calls: calls.load(Ordering::Relaxed),
        admitted: admitted.load(Ordering::Relaxed),
        took: began.elapsed(),
        asked: to_store() - asked_before,
        other,
    }
}

const POLICIES: [&str; 4] = [
    "shared: exact, on_error: allow",
    "shared: exact, on_error: local",
    "shared: exact, on_error: deny",
    "shared: leased, on_error: allow",
];

/// The node was late with its own calls, and took that for an outage: under `on_error: allow` one client's flood switched the
/// limit off.
#[test]
fn flood_of_one_id_stays_within_its_limit() {
    with_each(|binary| {
        let server = Server::start(binary);
        for policy in POLICIES {
            let limiter = node(&server, policy);
            let flood = flood(&limiter, move |_, _| policy.into());
            let Flood { calls, admitted, took, asked, other } = flood;
            println!(
                "{policy}: {admitted} of {calls} calls in {took:?}, {asked} to the store; beside it {other:?}"
            );
            let most = BURST + (took.as_secs_f64() * A_SECOND as f64).ceil() as u64;
            // While other programs take the processors, a question that the server got in time can be without an answer: the
            // policy decides the calls that waited for it, which are hundreds if a lease is asked for. An outage decides
            // most calls.
            let shared = limiter.counters().limits[0].shared().unwrap();
            let by_policy = shared.allowed_without_store;
            assert!(by_policy <= calls / 100, "{policy}: {by_policy} without the store");
            assert!(admitted <= most + by_policy, "{policy}: {admitted} of at most {most}");
            // On a machine that has no time for the server answers are late, and their units are spent.
            assert!(admitted > 0, "{policy}: {admitted}");
            // The other client had 5 of 118 before. Beside other programs some of its answers are late as well.
            assert!(other.1 * 2 >= other.0, "{policy}: the other client has {other:?}");
        }
    });
}

/// All of them waited for the last one, five times as long as the store's timeout.
#[test]
fn burst_of_calls_is_answered_in_time() {
    with_each(|binary| {
        let server = Server::start(binary);
        let limiter = node(&server, "shared: exact, on_error: allow");
        let clients = limiter.shared("PerClient").unwrap();
        let answers = at_once(CALLERS, |caller| {
            let clients = clients.clone();
            async move {
                let called = Instant::now();
                let decision = clients.spend(&format!("client{caller}"), 1).await.unwrap();
                (decision, called.elapsed())
            }
        });
        let allowed = answers.iter().filter(|(decision, _)| decision.allowed()).count();
        let overloaded = answers.iter().filter(|(decision, _)| decision.overloaded()).count();
        let longest = answers.iter().map(|answer| answer.1).max().unwrap();
        println!("{allowed} allowed, {overloaded} overloaded, the longest wait {longest:?}");
        assert_eq!(allowed + overloaded, CALLERS, "no bucket is empty");
        // A slow build on a busy machine may be late for all of them.
        wait_until("answered", || block_on(clients.spend("later", 1)).unwrap().allowed());
        let store = limiter.counters().store().unwrap();
        assert!(overloaded == 0 || store.errors.overload + store.errors.timeout > 0);
        let Some((denied, _)) = answers.iter().find(|(decision, _)| decision.overloaded()) else {
            return;
        };
        assert_eq!((denied.remaining(), denied.denied_by()), (Some(0), Some(0)));
        assert!(!denied.retry_in().is_zero() && !denied.blocked());
    });
}

/// The server stands still. A late call says nothing about the store: that of a lone caller may be late because of other nodes.
#[test]
fn late_answers_are_no_outage() {
    with_each(|binary| {
        let server = Server::start(binary);
        for callers in [1, 20] {
            // Long enough for all calls to begin, also on a busy machine.
            let limiter = node_with(&server, ", timeout: 300ms", "shared: exact, on_error: allow");
            let clients = limiter.shared("PerClient").unwrap();
            let outages = || limiter.counters().store().unwrap().outages;
            server.signal("-STOP");
            let crowd = at_once(callers, |_| {
                let clients = clients.clone();
                async move { clients.spend("crowd", 1).await.unwrap() }
            });
            assert!(crowd.iter().all(|decision| decision.overloaded()), "{crowd:?}");
            assert_eq!(outages(), 0);
            wait_until("decided by the policy", || {
                let alone = block_on(clients.spend("alone", 1)).unwrap();
                assert_eq!(outages(), u64::from(!alone.overloaded()), "{alone:?}");
                alone.allowed()
            });
            server.signal("-CONT");
        }
    });
}

/// A call that has waited in the node for as long as the timeout is not sent.
#[test]
fn late_calls_are_not_sent() {
    with_each(|binary| {
        let server = Server::start(binary);
        let quick = options(&server).answer_timeout(Duration::from_millis(50)).unwrap();
        let store = ValkeyStore::start(&quick).unwrap();
        wait_until_connected(&store);
        let calls = store.figures().unwrap().calls();
        let (servers, members) = (store.servers.clone(), [member("a", &secondly(5, 1), 1)]);
        let called = tokio::time::Instant::now() - Duration::from_millis(50);
        let asked = async move { servers.charge_now(&members, called, Duration::ZERO).await };
        let error = run(&store, asked).unwrap_err();
        assert!(error.is_unsent() && !error.is_store_outage(), "{error}");
        let figures = store.figures().unwrap();
        assert_eq!((figures.calls(), figures.errors().overload), (calls, 1));
    });
}

/// It took two questions, so that a slow network made an outage of each of its calls.
#[test]
fn blocked_id_takes_one_question() {
    with_each(|binary| {
        let server = Server::start(binary);
        let limiter = node_with(&server, ", timeout: 2s", "shared: exact");
        let clients = limiter.shared("PerClient").unwrap();
        assert!(block_on(clients.spend("first", 1)).unwrap().allowed());
        block_on(clients.block("client", Duration::from_secs(60))).unwrap();
        let calls = limiter.counters().store().unwrap().calls;
        assert!(block_on(clients.spend("client", 1)).unwrap().blocked());
        assert_eq!(limiter.counters().store().unwrap().calls, calls + 1);
    });
}

/// Of 1,000 at once most had no answer in time: their units stayed charged, and an outage began.
#[test]
fn crowds_of_returns_wait_for_their_turn() {
    with_each(|binary| {
        let server = Server::start(binary);
        let limiter = node(&server, "shared: exact");
        let clients = limiter.shared("PerClient").unwrap();
        let refunds = at_once(1_000, |id| {
            let clients = clients.clone();
            async move { clients.refund(&format!("client{}", id % 50), 1).await }
        });
        assert!(refunds.iter().all(Result::is_ok));
        assert_eq!(limiter.counters().store().unwrap().outages, 0);
    });
}

/// Each of them sent the whole script, and most were late for it.
#[test]
fn one_of_the_first_calls_sends_the_script() {
    with_each(|binary| {
        let server = Server::start(binary);
        let limiter = node(&server, "shared: exact");
        let clients = limiter.shared("PerClient").unwrap();
        let script = redis::cmd("SCRIPT").arg("FLUSH").to_owned();
        let () = script.query(&mut server.connection()).unwrap();
        let before = limiter.counters().store().unwrap().scripts_sent;
        at_once(200, |id| {
            let clients = clients.clone();
            async move { clients.spend(&format!("client{id}"), 1).await }
        });
        let sent = limiter.counters().store().unwrap().scripts_sent - before;
        assert!((1..=20).contains(&sent), "{sent}");
    });
}
