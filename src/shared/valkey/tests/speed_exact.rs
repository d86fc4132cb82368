//! Measures a call under `shared: exact`, beside what others do, and beside the floor. Run it alone, in a release build:
//! `cargo test --release --features valkey --lib shared::valkey::tests::speed_exact -- --ignored --nocapture`

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::server::{Server, with_each};
use super::{member, options, run, wait_until_connected};
use crate::limit::Limit;
use crate::shared::protocol::{SharedMode, SharedStore, StoreMember};
use crate::shared::valkey::ValkeyStore;
use crate::util::lock::Mutex;

/// The time of one measurement.
const TIME: Duration = Duration::from_millis(1_000);
/// Each is measured as often, all in turn; the round with the least CPU of the server counts.
const ROUNDS: usize = 3;
const AT_ONCE: [usize; 3] = [1, 16, 64];

/// GCRA as users of Redis write it: one script, one time in seconds, an answer of four values, as redis-cell's.
pub(super) const PLAIN_GCRA: &str = "
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + interval * cost
local early = now - (tat - burst * interval)
if early < 0 then return { 0, 0, tostring(-early), tostring(tat - now) } end
redis.call('SET', KEYS[1], string.format('%.17g', tat), 'EX', math.ceil(tat - now))
return { 1, math.floor(early / interval), '-1', tostring(tat - now) }";

/// A call that is measured.
#[derive(Clone)]
enum Call {
    Command(Cmd),
    /// The commands of a client that counts in a fixed window: both in one write.
    IncrAndExpire,
    Charge(Arc<[StoreMember]>),
}

impl Call {
    async fn ask(&self, store: &ValkeyStore, mut connection: MultiplexedConnection) {
        match self {
            Call::Command(command) => {
                let answer: Value = command.query_async(&mut connection).await.unwrap();
                assert_ne!(answer, Value::Nil);
            }
            Call::IncrAndExpire => {
                let mut both = redis::pipe();
                both.incr("count:alice", 1).expire("count:alice", 60);
                let _: (u64, u64) = both.query_async(&mut connection).await.unwrap();
            }
            Call::Charge(members) => {
                assert_eq!(store.charge(members.clone()).await.unwrap().denied, None);
            }
        }
    }
}

fn evalsha(server: &Server, script: &str, arguments: &[&str]) -> Call {
    let hash: String =
        redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut server.connection()).unwrap();
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(1).arg("tat:alice").arg(arguments);
    Call::Command(command)
}

fn cases(server: &Server) -> Vec<(&'static str, Call)> {
    let limit = Limit::new(1_000_000, 1_000_000, Duration::from_secs(1)).unwrap();
    let window = Limit::fixed_window(16_000_000, Duration::from_secs(1)).unwrap();
    let buckets = |limit: &Limit, mode: SharedMode, ids: &[&str]| {
        let member = |id: &&str| StoreMember {
            mode,
            ..member(&format!("tollgate:{}:{id}", limit.algorithm()), limit, 1)
        };
        Call::Charge(ids.iter().map(member).collect())
    };
    let (plain, one, three) = (SharedMode::CheckAndSpend, ["alice"], ["alice", "bob", "carol"]);
    vec![
        ("PING", Call::Command(redis::cmd("PING"))),
        ("INCR and EXPIRE", Call::IncrAndExpire),
        ("EVALSHA of `return 1`", evalsha(server, "return 1", &[])),
        ("EVALSHA of a plain GCRA", evalsha(server, PLAIN_GCRA, &["0.000001", "1000000", "1"])),
        ("exact, gcra", buckets(&limit, plain, &one)),
        ("exact, three of gcra", buckets(&limit, plain, &three)),
        ("exact, fixed_window", buckets(&window, plain, &one)),
        ("exact, gcra by the general script", buckets(&limit, SharedMode::SpendOnly, &one)),
        ("exact, three by the general script", buckets(&limit, SharedMode::SpendOnly, &three)),
    ]
}

/// CPU time.
#[derive(Clone, Copy, Default)]
pub(super) struct Cpu {
    ns: u64,
    user_ticks: u64,
    system_ticks: u64,
}

impl Cpu {
    /// The CPU time so far of the threads of a process that have this name; of all if it is empty.
    pub(super) fn of(pid: u32, thread: &str) -> Cpu {
        let mut cpu = Cpu::default();
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let folder = task.unwrap().path();
            // A thread that has just ended is none.
            let Ok(stat) = fs::read_to_string(folder.join("stat")) else { continue };
            let Ok(times) = fs::read_to_string(folder.join("schedstat")) else { continue };
            let (name, fields) = stat.split_once('(').unwrap().1.rsplit_once(')').unwrap();
            if thread.is_empty() || name == thread {
                let ticks: Vec<&str> = fields.split_whitespace().collect();
                cpu.ns += times.split_whitespace().next().unwrap().parse::<u64>().unwrap();
                cpu.user_ticks += ticks[11].parse::<u64>().unwrap();
                cpu.system_ticks += ticks[12].parse::<u64>().unwrap();
            }
        }
        cpu
    }

    pub(super) fn since(self, before: Cpu) -> Cpu {
        Cpu {
            ns: self.ns - before.ns,
            user_ticks: self.user_ticks - before.user_ticks,
            system_ticks: self.system_ticks - before.system_ticks,
        }
    }

    pub(super) fn us_per_call(self, calls: usize) -> f64 {
        self.ns as f64 / 1e3 / calls as f64
    }
}

/// One measurement.
struct Measured {
    server: Cpu,
    node: Cpu,
    took: Duration,
    /// In order.
    times: Vec<Duration>,
}

impl Measured {
    fn of(server: &Server, calls: impl FnOnce() -> Vec<Duration>) -> Measured {
        let cpus = || [Cpu::of(server.pid(), ""), Cpu::of(std::process::id(), "tollgate-store")];
        let (before, began) = (cpus(), Instant::now());
        let mut times = calls();
        let (took, after) = (began.elapsed(), cpus());
        times.sort_unstable();
        let [server, node] = [0, 1].map(|of| after[of].since(before[of]));
        Measured { server, node, took, times }
    }

    /// Returns the one with less CPU of the server, with the ticks of both: they are coarse, and tell only shares.
    fn or_better(self, other: Option<Measured>) -> Measured {
        let Some(other) = other else { return self };
        let user_ticks = self.server.user_ticks + other.server.user_ticks;
        let system_ticks = self.server.system_ticks + other.server.system_ticks;
        let us = |of: &Measured| of.server.us_per_call(of.times.len());
        let mut best = if us(&self) < us(&other) { self } else { other };
        best.server = Cpu { user_ticks, system_ticks, ..best.server };
        best
    }

    fn print(&self, name: &str, load: &str) {
        let Measured { server, node, took, times } = self;
        let us = server.us_per_call(times.len());
        let user = server.user_ticks as f64 / (server.user_ticks + server.system_ticks) as f64;
        let at = |share: f64| times[(times.len() as f64 * share) as usize].as_micros();
        println!(
            "| {name} | {load} | {:.0} | {:.1} | {:.1} | {:.1} | {:.0} | {} | {} |",
            1e6 / us,
            us * user,
            us * (1.0 - user),
            node.us_per_call(times.len()),
            times.len() as f64 / took.as_secs_f64(),
            at(0.5),
            at(0.99),
        );
    }
}

/// Calls again and again for [`TIME`], `at_once` calls at a time, on the store's thread.
fn in_turn(
    store: &Arc<ValkeyStore>,
    server: &Server,
    call: &Call,
    at_once: usize,
) -> Vec<Duration> {
    let (by, call, url) = (store.clone(), call.clone(), server.url(""));
    run(store, async move {
        let client = redis::Client::open(url).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let until = Instant::now() + TIME;
        let tasks: Vec<_> = (0..at_once)
            .map(|_| {
                let (by, call, connection) = (by.clone(), call.clone(), connection.clone());
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    let mut began = Instant::now();
                    while began < until {
                        call.ask(&by, connection.clone()).await;
                        let ended = Instant::now();
                        times.push(ended - began);
                        began = ended;
                    }
                    times
                })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await.unwrap());
        }
        Ok(times)
    })
    .unwrap()
}

/// Begins calls at even distances for three times [`TIME`], whether the calls before have ended or not. A call's time begins
/// when it is due.
fn paced(
    store: &Arc<ValkeyStore>,
    members: &Arc<[StoreMember]>,
    each_second: u32,
) -> Vec<Duration> {
    let calls = (3 * TIME).as_millis() as u32 * each_second / 1_000;
    let (times, began) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    for call in 0..calls {
        let due = began + Duration::from_secs(1) * call / each_second;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (asked, times) = (store.charge(members.clone()), times.clone());
        store.run(Box::pin(async move {
            assert_eq!(asked.await.unwrap().denied, None);
            times.lock().push(due.elapsed());
        }));
    }
    while times.lock().len() < calls as usize {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut times = times.lock();
    std::mem::take(&mut *times)
}

#[test]
#[ignore = "measures"]
fn calls_beside_those_of_others() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = Arc::new(ValkeyStore::start(&options(&server)).unwrap());
        wait_until_connected(&store);
        println!(
            "| call | at once | a second of the server's CPU | its user us | its system us | node us | a second | p50 us | p99 us |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        let cases = cases(&server);
        let mut best: Vec<Option<Measured>> = Vec::new();
        best.resize_with(cases.len() * AT_ONCE.len(), || None);
        for _ in 0..ROUNDS {
            let each = cases.iter().flat_map(|(_, call)| AT_ONCE.map(|at_once| (call, at_once)));
            for ((call, at_once), best) in each.zip(&mut best) {
                let now = Measured::of(&server, || in_turn(&store, &server, call, at_once));
                *best = Some(now.or_better(best.take()));
            }
        }
        let each = cases.iter().flat_map(|(name, _)| AT_ONCE.map(|at_once| (name, at_once)));
        for ((name, at_once), measured) in each.zip(best) {
            measured.unwrap().print(name, &at_once.to_string());
        }
        let exact = cases.iter().find(|(name, _)| *name == "exact, gcra").unwrap();
        let Call::Charge(members) = &exact.1 else { panic!("it is a charge") };
        for each_second in [20_000, 37_500] {
            for _ in 0..ROUNDS {
                let now = Measured::of(&server, || paced(&store, members, each_second));
                now.print(exact.0, &format!("{each_second} a second"));
            }
        }
    });
}
