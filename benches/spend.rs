//! Measures the time of a call, on one thread and on two at once.
//!
//! Run it with `cargo bench --bench spend`; with `-- --test` each bench runs once. Every answer is checked.
//! `benches/rivals` compares with other limiters.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use tollgate::{Bucket, Clock, Decision, Error, Id, IdFormat, KeyedLimit, Limit, Limiter, Limits};

/// The number of known keys, which the calls use in turn: more than the nearest cache of a processor holds.
const KEYS: usize = 4_096;
/// The number of new keys that a thread inserts into one limiter.
const NEW_KEYS: usize = 65_536;

type Group<'a> = BenchmarkGroup<'a, WallTime>;
type Answer = Result<Decision, Error>;

/// A limit that denies no call of a run.
fn ample() -> Limit {
    Limit::new(1 << 62, 1, Duration::from_nanos(1)).unwrap()
}

/// A limit that denies all calls of a key but the first.
fn scarce() -> Limit {
    Limit::new(1, 1, Duration::from_secs(3600)).unwrap()
}

fn limiter(limit: Limit) -> Limiter {
    let builder = Limits::builder()
        .limit("PerUser", IdFormat::String, limit.clone())
        .unwrap()
        .limit("PerAccount", IdFormat::RegId, limit.clone())
        .unwrap()
        .limit("PerPath", IdFormat::String, limit.clone())
        .unwrap();
    Limiter::new(builder.build())
}

fn handles(limit: Limit) -> [KeyedLimit; 2] {
    let limiter = limiter(limit);
    ["PerUser", "PerAccount"].map(|name| limiter.limit(name).unwrap())
}

/// The keys, as text and as numbers.
fn keys() -> Vec<(String, u64)> {
    (0..KEYS as u64).map(|i| (format!("user-{i:08}"), i)).collect()
}

/// Measures `call`, whose argument counts up, on one thread and on two; each thread makes all the calls.
fn bench(group: &mut Group<'_>, name: &str, allowed: bool, call: impl Fn(usize) -> Answer + Sync) {
    let run = |from: usize, calls: u64| {
        let start = Instant::now();
        for i in from..from + calls as usize {
            let decision = call(black_box(i)).unwrap();
            assert_eq!(decision.allowed(), allowed, "{name}: call {i}: {decision:?}");
        }
        start.elapsed()
    };
    group.bench_function(format!("{name}/1 thread"), |b| b.iter_custom(|calls| run(0, calls)));
    group.bench_function(format!("{name}/2 threads"), |b| {
        b.iter_custom(|calls| on_two(|me| run(me * KEYS / 2, calls)));
    });
}

/// Runs `work` on two threads that start together; returns the time of the slower thread.
fn on_two(work: impl Fn(usize) -> Duration + Sync) -> Duration {
    let start = Barrier::new(2);
    let work = |me| {
        start.wait();
        work(me)
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| work(1));
        work(0).max(second.join().unwrap())
    })
}

/// Measures a call with text keys and with number keys. `call` takes a handle and an id.
fn bench_keys(
    group: &mut Group<'_>,
    limit: Limit,
    allowed: bool,
    call: impl Fn(&KeyedLimit, Id<'_>) -> Answer + Sync,
) {
    let keys = keys();
    let [by_user, by_account] = handles(limit);
    for (user, account) in &keys {
        // The key is known now, and with `scarce` its only unit is spent.
        assert!(by_user.spend(user, 1).unwrap().allowed());
        assert!(by_account.spend(*account, 1).unwrap().allowed());
    }
    bench(group, "string", allowed, |i| call(&by_user, Id::from(&keys[i % KEYS].0)));
    bench(group, "u64", allowed, |i| call(&by_account, Id::from(keys[i % KEYS].1)));
}

fn spend(c: &mut Criterion) {
    let group = &mut group(c, "spend allowed");
    bench_keys(group, ample(), true, |limit, id| limit.spend(id, 1));
}

fn spend_denied(c: &mut Criterion) {
    let group = &mut group(c, "spend denied");
    bench_keys(group, scarce(), false, |limit, id| limit.spend(id, 1));
}

fn check(c: &mut Criterion) {
    let group = &mut group(c, "check");
    bench_keys(group, ample(), true, |limit, id| limit.check(id, 1));
}

/// Measures spends of one key by all threads, which contend for its word.
fn one_key(c: &mut Criterion) {
    let group = &mut group(c, "spend allowed, one key");
    let [by_user, _] = handles(ample());
    bench(group, "string", true, |_| by_user.spend("user", 1));
}

/// Measures spends of new keys while the table grows from empty; each thread has its own keys.
fn new_key(c: &mut Criterion) {
    let group = &mut group(c, "spend, new key");
    let users: Vec<String> = (0..2 * NEW_KEYS).map(|i| format!("user-{i:08}")).collect();
    bench_new(group, "string", &|[by_user, _], i| by_user.spend(&users[i], 1));
    bench_new(group, "u64", &|[_, by_account], i| by_account.spend(i as u64, 1));
}

fn bench_new(
    group: &mut Group<'_>,
    name: &str,
    spend: &(impl Fn(&[KeyedLimit; 2], usize) -> Answer + Sync),
) {
    let insert = |handles: &[KeyedLimit; 2], from: usize, calls: usize| {
        let start = Instant::now();
        for i in from..from + calls {
            assert!(spend(handles, i).unwrap().allowed(), "{name}: key {i} was not new");
        }
        start.elapsed()
    };
    // The time to make and to drop a limiter does not count.
    let rounds = |calls: u64, round: &dyn Fn(&[KeyedLimit; 2], usize) -> Duration| {
        let calls = calls as usize;
        let from = (0..calls).step_by(NEW_KEYS);
        from.map(|from| round(&handles(scarce()), NEW_KEYS.min(calls - from))).sum()
    };
    group.bench_function(format!("{name}/1 thread"), |b| {
        b.iter_custom(|calls| rounds(calls, &|handles, calls| insert(handles, 0, calls)));
    });
    group.bench_function(format!("{name}/2 threads"), |b| {
        b.iter_custom(|calls| {
            rounds(calls, &|handles, calls| on_two(|me| insert(handles, me * NEW_KEYS, calls)))
        });
    });
}

fn batch_of_3(c: &mut Criterion) {
    let keys = keys();
    for (name, limit, allowed) in
        [("batch of 3, allowed", ample(), true), ("batch of 3, denied", scarce(), false)]
    {
        let group = &mut group(c, name);
        let limiter = limiter(limit);
        let [users, accounts, paths] =
            ["PerUser", "PerAccount", "PerPath"].map(|name| limiter.limit(name).unwrap());
        let spend = |i: usize| {
            let (user, account) = &keys[i % KEYS];
            let members = [users.member(user), accounts.member(*account), paths.member("/")];
            limiter.batch(&members).spend()
        };
        assert!(spend(0).unwrap().allowed());
        bench(group, "string, u64, one path", allowed, spend);
    }
}

fn bucket(c: &mut Criterion) {
    let group = &mut group(c, "bucket");
    let (ample, scarce) =
        (Bucket::new(ample(), Clock::system()), Bucket::new(scarce(), Clock::system()));
    assert!(scarce.spend(1).unwrap().allowed());
    bench(group, "spend allowed", true, |_| ample.spend(1));
    bench(group, "spend denied", false, |_| scarce.spend(1));
    bench(group, "check", true, |_| ample.check(1));
}

fn group<'c>(c: &'c mut Criterion, name: &str) -> Group<'c> {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    group
}

fn config() -> Criterion {
    Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = benches;
    config = config();
    targets = spend, spend_denied, check, one_key, new_key, batch_of_3, bucket
}
criterion_main!(benches);
