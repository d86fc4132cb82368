//! Makes and records the calls: threads on one limiter beside a sweeper, with keys that come and go.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::options::Engine;
use tollgate::{Clock, Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::check::{CallKind, Checker, Counts, Record, Rule, Violation};
use super::random::Random;

/// Ten units at once, one more every 20 us: less than the threads ask of one hot key, and more than they
/// ask of a key that comes and goes.
pub(crate) const RULE: Rule = Rule { burst: 10, interval_ns: 20_000 };
const THREADS: u64 = 4;
const HOT_KEYS: u64 = 8;
/// The number of keys that come and go: in rounds in which the table grows, and in those in which it
/// shrinks.
const KEYS: [u64; 2] = [2_000, 40];
/// Too many for a run to reach the cap or the pressure before it, where the overflow bucket decides.
const MAX_KEYS: usize = 8_000;
const _: () = assert!(HOT_KEYS + KEYS[0] < MAX_KEYS as u64 / 2 && KEYS[1] < KEYS[0]);
/// The lag of the sweeper's clock, so that a sweep decides few calls: only those of threads that stalled in
/// between.
const SWEEPER_LAG_NS: u64 = 20_000;

thread_local! {
    /// The thread's last reading.
    static READ_NS: Cell<u64> = const { Cell::new(0) };
    static IS_SWEEPER: Cell<bool> = const { Cell::new(false) };
}

/// The clock of a run. It records the readings of each thread.
#[derive(Clone)]
struct Time {
    started: Instant,
    /// The latest reading of a sweeper.
    swept_ns: Arc<AtomicU64>,
}

impl Time {
    fn now_ns(&self) -> u64 {
        // Starts well after the origin, so that no lag goes before it.
        self.started.elapsed().as_nanos() as u64 + 1_000_000
    }

    fn read(&self) -> Duration {
        let mut now_ns = self.now_ns();
        if IS_SWEEPER.get() {
            now_ns -= SWEEPER_LAG_NS;
            // Stored before the sweep uses the reading: a call that sees the sweep's effect sees the
            // reading.
            self.swept_ns.fetch_max(now_ns, Ordering::SeqCst);
        }
        READ_NS.set(now_ns);
        Duration::from_nanos(now_ns)
    }
}

/// The size of a run, and the fault planted in it.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) engine: Engine,
    pub(crate) rounds: u64,
    pub(crate) calls_a_round: u64,
    pub(crate) fault: Fault,
}

/// The faults that the check must catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Every other thread has its own limiter.
    TwoLimiters,
    /// The limiter's burst is one unit larger.
    BurstAndOne,
    /// A bucket is made full now and then, without a record.
    Forgets,
    /// A spend's charge is refunded now and then, without a record.
    LosesSpends,
}

/// The results of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) counts: Counts,
    pub(crate) calls: u64,
    pub(crate) migrations: u64,
    pub(crate) swept: u64,
}

struct Run {
    time: Time,
    /// One limiter, or with [`Fault::TwoLimiters`] two, which the threads use in turn.
    limiters: Vec<(Limiter, KeyedLimit)>,
    plan: Plan,
}

impl Run {
    fn new(plan: Plan) -> Run {
        let time = Time { started: Instant::now(), swept_ns: Arc::default() };
        let burst = RULE.burst + u64::from(plan.fault == Fault::BurstAndOne);
        let limit = Limit::new(burst, 1, Duration::from_nanos(RULE.interval_ns)).unwrap();
        let count = if plan.fault == Fault::TwoLimiters { 2 } else { 1 };
        let limiters = (0..count).map(|_| {
            let limits =
                Limits::builder().limit("A", IdFormat::RegId, limit.clone()).unwrap().build();
            let read = time.clone();
            let options = LimiterOptions::default().engine(plan.engine).max_keys(MAX_KEYS);
            let options = options.clock(Clock::custom(move || read.read()));
            let limiter = Limiter::with_options(limits, options).unwrap();
            let handle = limiter.limit("A").unwrap();
            (limiter, handle)
        });
        Run { limiters: limiters.collect(), time, plan }
    }

    fn handle(&self, thread: u64) -> &KeyedLimit {
        &self.limiters[thread as usize % self.limiters.len()].1
    }

    /// When the bucket is full again; 0 if it is full. No thread may call meanwhile.
    fn word_of(&self, key: u32) -> u64 {
        let decision = self.limiters[0].1.check(u64::from(key), 0).unwrap();
        match decision.reset_in().as_nanos() as u64 {
            0 => 0,
            full_in_ns => READ_NS.get() + full_in_ns,
        }
    }

    /// Runs a round. Returns the records of all threads.
    fn round(&self, round: u64) -> Vec<Record> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let sweeper = scope.spawn(|| {
                IS_SWEEPER.set(true);
                // Ends with the round.
                while !done.load(Ordering::Relaxed) {
                    self.limiters.iter().for_each(|(limiter, _)| _ = limiter.sweep(64));
                    thread::yield_now();
                }
            });
            let threads: Vec<_> =
                (0..THREADS).map(|me| scope.spawn(move || self.calls(round, me))).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            let records = joined.collect::<Vec<_>>().concat();
            done.store(true, Ordering::Relaxed);
            sweeper.join().unwrap();
            records
        })
    }

    fn calls(&self, round: u64, me: u64) -> Vec<Record> {
        let mut random = Random(round << 8 | me);
        let keys = KEYS[round as usize / 4 % KEYS.len()];
        let calls = self.plan.calls_a_round / THREADS;
        let mut records = Vec::with_capacity(calls as usize);
        for _ in 0..calls {
            let key = if random.below(2) == 0 {
                random.below(HOT_KEYS)
            } else {
                HOT_KEYS + random.below(keys)
            };
            let is_refund = random.below(32) == 0;
            let cost = 1 + random.below(3);
            records.extend(self.call(me, key, cost, is_refund));
            self.fail(me, key, cost, &mut random);
        }
        records
    }

    /// Makes a call. Returns `None` if the call changed nothing, and so tells nothing.
    fn call(&self, me: u64, key: u64, cost: u64, is_refund: bool) -> Option<Record> {
        let handle = self.handle(me);
        let decision = match is_refund {
            true => handle.refund(key, cost).unwrap(),
            false => handle.spend(key, cost).unwrap(),
        };
        let now_ns = READ_NS.get();
        let kind = match (is_refund, decision.allowed()) {
            (true, false) => return None,
            (true, true) => CallKind::Refunded,
            (false, true) => CallKind::Admitted,
            (false, false) => CallKind::Denied,
        };
        Some(Record {
            key: key as u32,
            kind,
            cost: cost as u8,
            now_ns,
            full_in_ns: full_in_ns(decision),
            end_ns: self.time.now_ns(),
            swept_ns: self.time.swept_ns.load(Ordering::SeqCst),
        })
    }

    fn fail(&self, me: u64, key: u64, cost: u64, random: &mut Random) {
        match self.plan.fault {
            Fault::Forgets if random.below(1_000) == 0 => _ = self.handle(me).reset(key).unwrap(),
            Fault::LosesSpends if random.below(1_000) == 0 => {
                _ = self.handle(me).refund(key, cost).unwrap();
            }
            _ => {}
        }
    }
}

fn full_in_ns(decision: Decision) -> u64 {
    decision.reset_in().as_nanos() as u64
}

/// Runs a plan and checks every round.
pub(crate) fn run(plan: Plan) -> Result<Report, Violation> {
    let run = Run::new(plan);
    let mut checker = Checker::new(RULE);
    let mut calls = 0;
    for round in 0..plan.rounds {
        let mut records = run.round(round);
        calls += records.len() as u64;
        checker.round(&mut records, |key| run.word_of(key))?;
    }
    let stats = run.limiters[0].0.stats();
    let (migrations, swept) = (stats.migrations, stats.swept);
    Ok(Report { counts: checker.counts, calls, migrations, swept })
}
