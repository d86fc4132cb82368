//! Compares a restored limiter with rules computed directly, and with a limiter that was not restarted.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use crate::algorithm::Algorithm;
use crate::clock::{Clock, ManualClock};
use crate::core::at_cap::AtCap;
use crate::full_size::full_size;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::{IdFormat, Limits, LimitsBuilder};
use crate::snapshot::Restored;
use crate::store::Engine;

const IDS: [&str; 5] = ["a", "b", "overridden", "d", "an id that is longer than a word or two"];
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let time = || prop_oneof![1..5_000u64, 1..50_000_000u64, Just(YEAR.as_millis() as u64)];
    prop_oneof![
        (1..20u64, time()).prop_map(|(n, t)| Limit::new(n, 1, ms(t)).unwrap()),
        (1..20u64, time()).prop_map(|(n, t)| Limit::fixed_window(n, ms(t)).unwrap()),
        (1..20u64, time(), 1..20u64)
            .prop_map(|(n, t, b)| Limit::token_bucket(b, n.max(b), ms(t)).unwrap()),
        (1..20u64, time(), 1..5u64).prop_map(|(n, t, d)| Limit::leaky_bucket(n, d, ms(t)).unwrap()),
    ]
}

/// Two limits. The second has an override for one id, of the same algorithm.
#[derive(Clone, Debug)]
struct Numbers {
    first: Limit,
    second: Limit,
    overridden: Limit,
}

fn any_limits() -> impl Strategy<Value = Numbers> {
    (any_limit(), any_limit(), 1..20u64).prop_map(|(first, second, n)| {
        let overridden = match second.parameters() {
            crate::limit::Parameters::Gcra { period, .. } => Limit::new(n, 1, period),
            crate::limit::Parameters::FixedWindow { window, .. } => Limit::fixed_window(n, window),
            crate::limit::Parameters::TokenBucket { window, burst, .. } => {
                Limit::token_bucket(burst, n.max(burst), window)
            }
            crate::limit::Parameters::LeakyBucket { drip_rate, drip_size, .. } => {
                Limit::leaky_bucket(n, drip_size, drip_rate)
            }
            crate::limit::Parameters::Concurrency { .. } | crate::limit::Parameters::Custom(_) => {
                unreachable!("none was made")
            }
        };
        Numbers { first, second, overridden: overridden.unwrap() }
    })
}

impl Numbers {
    /// Builds the limits in either order.
    fn limits(&self, first_first: bool) -> Limits {
        let add = |builder: LimitsBuilder, name: &str, limit: &Limit| {
            builder.limit(name, IdFormat::String, limit.clone()).unwrap()
        };
        let builder = Limits::builder();
        let builder = if first_first {
            add(add(builder, "first", &self.first), "second", &self.second)
        } else {
            add(add(builder, "second", &self.second), "first", &self.first)
        };
        builder.override_id("second", "overridden", self.overridden.clone()).unwrap().build()
    }

    fn of(&self, name: &str, id: &str) -> &Limit {
        match (name, id) {
            ("first", _) => &self.first,
            (_, "overridden") => &self.overridden,
            _ => &self.second,
        }
    }
}

/// A limiter, and each of its buckets as a bare word on a clock that is never restarted.
struct Pair {
    numbers: Numbers,
    limiter: Limiter,
    manual: ManualClock,
    words: HashMap<(&'static str, &'static str), u64>,
    now_ns: u64,
    wall_ns: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Spend(usize, bool, u64),
    Refund(usize, bool, u64),
    Forward(Duration),
    Sweep,
    /// A restart after `down`, while the wall clock is set back by `back`.
    Restart {
        down: Duration,
        back: Duration,
        engine_changes: bool,
        first_first: bool,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let id = || 0..IDS.len();
    let time = || {
        prop_oneof![
            Just(Duration::ZERO),
            (0..5_000_000_000u64).prop_map(Duration::from_nanos),
            (0..50_000_000u64).prop_map(ms),
            (0..4u32).prop_map(|years| years * YEAR),
        ]
    };
    let restart = (time(), time(), any::<bool>(), any::<bool>());
    prop_oneof![
        8 => (id(), any::<bool>(), 0..6u64).prop_map(|(id, which, n)| Step::Spend(id, which, n)),
        2 => (id(), any::<bool>(), 0..6u64).prop_map(|(id, which, n)| Step::Refund(id, which, n)),
        3 => time().prop_map(Step::Forward),
        1 => Just(Step::Sweep),
        2 => restart.prop_map(|(down, back, engine_changes, first_first)| {
            Step::Restart { down, back, engine_changes, first_first }
        }),
    ]
}

impl Pair {
    fn new(numbers: Numbers, engine: Engine) -> Pair {
        let (clock, manual) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(100);
        let limiter = Limiter::with_options(numbers.limits(true), options).unwrap();
        let wall_ns = 40 * YEAR.as_nanos() as u64;
        Pair { numbers, limiter, manual, words: HashMap::new(), now_ns: 1, wall_ns }
    }

    fn step(&mut self, step: &Step, path: &Path, engine: &mut Engine) {
        match *step {
            Step::Spend(id, first, cost) => self.call(id, first, cost, true),
            Step::Refund(id, first, cost) => self.call(id, first, cost, false),
            Step::Forward(by) => self.forward(by),
            Step::Sweep => _ = self.limiter.sweep(1_000),
            Step::Restart { down, back, engine_changes, first_first } => {
                // A file with fingerprints can be restored into the lock-free engine only.
                if engine_changes && *engine != Engine::LockFree {
                    *engine = Engine::LockFree;
                }
                self.restart(down, back, *engine, first_first, path);
            }
        }
        self.compare();
    }

    fn call(&mut self, id: usize, first: bool, cost: u64, is_spend: bool) {
        let (name, id) = (if first { "first" } else { "second" }, IDS[id]);
        let limit = self.numbers.of(name, id).clone();
        let cost = cost.min(limit.burst());
        let handle = self.limiter.limit(name).unwrap();
        let word = self.words.entry((name, id)).or_insert(0);
        let (said, outcome) = if is_spend {
            (handle.spend(id, cost).unwrap(), limit.spend(*word, self.now_ns, cost))
        } else {
            (handle.refund(id, cost).unwrap(), limit.refund(*word, self.now_ns, cost))
        };
        assert_eq!(said, outcome.decision, "{name} {id} {limit:?} {word:#x} at {}", self.now_ns);
        *word = outcome.word.unwrap_or(*word);
    }

    fn forward(&mut self, by: Duration) {
        self.manual.advance(by);
        self.now_ns += by.as_nanos() as u64;
        self.wall_ns += by.as_nanos() as u64;
    }

    fn restart(
        &mut self,
        down: Duration,
        back: Duration,
        engine: Engine,
        first_first: bool,
        path: &Path,
    ) {
        let at_ns = self.wall_ns;
        self.limiter.snapshot_at(path, || at_ns).unwrap();
        self.wall_ns = at_ns + down.as_nanos() as u64 - back.as_nanos() as u64;
        // The next process has another clock, which may already show a later time.
        let (clock, manual) = Clock::manual();
        manual.advance(down);
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(100);
        let limits = self.numbers.limits(first_first);
        let restored = Limiter::restore_at(limits, options, path, CarryOver::Share, self.wall_ns);
        let (limiter, restored) = restored.unwrap();
        (self.limiter, self.manual) = (limiter, manual);
        let elapsed = down.saturating_sub(back);
        assert_eq!((restored.elapsed, restored.dropped), (elapsed, 0));
        self.now_ns += elapsed.as_nanos() as u64;
        let owing = self
            .words
            .iter()
            .filter(|((name, id), word)| !self.numbers.of(name, id).is_full(**word, self.now_ns));
        assert_eq!(restored.buckets, owing.count() as u64);
        assert_eq!(self.limiter.stats().cells as u64, restored.buckets);
    }

    fn compare(&self) {
        for (name, id) in ["first", "second"].iter().flat_map(|name| IDS.map(|id| (*name, id))) {
            let word = self.words.get(&(name, id)).copied().unwrap_or(0);
            let limit = self.numbers.of(name, id);
            let handle = self.limiter.limit(name).unwrap();
            for cost in [0, 1, limit.burst()] {
                let said = handle.check(id, cost).unwrap();
                let expected = limit.spend(word, self.now_ns, cost).decision;
                assert_eq!(said, expected, "{name} {id} {limit:?} {word:#x} at {}", self.now_ns);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(full_size(64, 256)))]

    #[test]
    fn restarts_change_nothing_but_the_time_that_passed(
        numbers in any_limits(),
        engine in prop::sample::select(Engine::ALL),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("buckets");
        let mut engine = engine;
        let mut pair = Pair::new(numbers, engine);
        for step in &steps {
            // The compared words count from the first start, and have room for 17 years.
            let years = pair.now_ns / YEAR.as_nanos() as u64;
            if years < 12 {
                pair.step(step, &path, &mut engine);
            }
        }
    }

    /// One limiter gets changed limits by a reload, the other by a restart.
    #[test]
    fn a_restart_with_other_limits_is_a_reload(
        (old, new) in (any_limits(), any_limits()),
        engine in prop::sample::select(Engine::ALL),
        debt in prop::sample::select(vec![CarryOver::Share, CarryOver::Units, CarryOver::Time, CarryOver::Afresh]),
        calls in prop::collection::vec((0..IDS.len(), any::<bool>(), 1..6u64, 0..5_000u64), 1..30),
        waits in prop::collection::vec(0..5_000_000_000u64, 1..5),
        first_first in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("buckets");
        let mut pair = Pair::new(old, engine);
        // Windows can then begin before the change.
        pair.forward(YEAR);
        for (id, first, cost, wait_ms) in calls {
            pair.call(id, first, cost, true);
            pair.forward(ms(wait_ms));
        }
        pair.limiter.snapshot_at(&path, || 5).unwrap();
        let (clock, manual) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limits = new.limits(first_first);
        let restored = Limiter::restore_at(limits.clone(), options, &path, debt, 5);
        let (restarted, _) = restored.unwrap();
        pair.limiter.reload_with(limits, debt).unwrap();
        for wait_ns in [0].into_iter().chain(waits) {
            let wait = Duration::from_nanos(wait_ns);
            pair.manual.advance(wait);
            manual.advance(wait);
            for name in ["first", "second"] {
                let of = |limiter: &Limiter| limiter.limit(name).unwrap();
                for id in IDS {
                    let reloaded = of(&pair.limiter).check(id, 1).unwrap();
                    prop_assert_eq!(of(&restarted).check(id, 1).unwrap(), reloaded, "{} {}", name, id);
                }
            }
        }
    }
}

/// Makes a limiter, calls `spend`, takes a snapshot at the wall clock's time 0 and restores it at `wall`.
fn restarted(
    limits: &dyn Fn() -> Limits,
    engine: Engine,
    wall: Duration,
    spend: impl Fn(&Limiter, &ManualClock),
) -> (Limiter, ManualClock, Restored) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let options = |clock| LimiterOptions::default().clock(clock).engine(engine);
    let (clock, manual) = Clock::manual();
    let limiter = Limiter::with_options(limits(), options(clock)).unwrap();
    spend(&limiter, &manual);
    limiter.snapshot_at(&path, || 0).unwrap();
    let (clock, manual) = Clock::manual();
    let wall_ns = wall.as_nanos() as u64;
    let restored = Limiter::restore_at(limits(), options(clock), &path, CarryOver::Share, wall_ns);
    let (limiter, restored) = restored.unwrap();
    (limiter, manual, restored)
}

#[test]
fn moving_the_origin_lowers_no_debt() {
    // A window of three years, in its second year, with the wall clock a hundred years later or at the same time.
    let limits = || {
        let window = Limit::fixed_window(10, 3 * YEAR).unwrap();
        Limits::builder().limit("A", IdFormat::String, window).unwrap().build()
    };
    let spend = |limiter: &Limiter, manual: &ManualClock| {
        manual.advance(2 * YEAR);
        assert!(limiter.limit("A").unwrap().spend("x", 10).unwrap().allowed());
        manual.advance(YEAR);
    };
    for &engine in Engine::ALL {
        let (limiter, manual, _) = restarted(&limits, engine, YEAR, spend);
        let wait = limiter.limit("A").unwrap().check("x", 1).unwrap().retry_in();
        assert_eq!(wait, YEAR, "{engine:?}");
        manual.advance(YEAR);
        assert!(limiter.limit("A").unwrap().check("x", 10).unwrap().allowed());
        let (limiter, manual, restored) = restarted(&limits, engine, 100 * YEAR, spend);
        assert_eq!((restored.buckets, restored.full), (1, 0), "it began before the origin");
        let denied = limiter.limit("A").unwrap().check("x", 1).unwrap();
        assert!(!denied.allowed() && denied.retry_in() < YEAR);
        manual.advance(denied.retry_in());
        assert!(limiter.limit("A").unwrap().check("x", 10).unwrap().allowed());
    }
}

#[test]
fn a_factors_slower_drips_are_persisted() {
    let limits = || {
        let leaky = Limit::leaky_bucket(10, 1, ms(1000)).unwrap();
        Limits::builder().limit("A", IdFormat::String, leaky).unwrap().build()
    };
    let twice = "2".parse().unwrap();
    for &engine in Engine::ALL {
        let (limiter, manual, restored) = restarted(&limits, engine, ms(6_000), |limiter, _| {
            assert!(limiter.limit("A").unwrap().scaled(twice).spend("x", 5).unwrap().allowed());
        });
        // The bucket is empty after 5 s without the factor, after 10 s with it.
        assert_eq!((restored.buckets, restored.full), (1, 0), "{engine:?}");
        let handle = limiter.limit("A").unwrap();
        assert_eq!(limiter.sweep(1_000_000).dropped, 0);
        assert_eq!(handle.scaled(twice).check("x", 1).unwrap().remaining(), Some(5 - 2 - 1));
        manual.advance(ms(4_000));
        assert_eq!(limiter.sweep(1_000_000).dropped, 1);
    }
}

#[test]
fn untracked_keys_owe_their_overflow_bucket() {
    let limit = Limit::new(10, 1, ms(1000)).unwrap();
    let limits = || Limits::builder().limit("A", IdFormat::String, limit.clone()).unwrap().build();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for &engine in Engine::ALL {
        let (clock, _manual) = Clock::manual();
        let options = LimiterOptions::default().engine(engine).max_keys(1).clock(clock);
        let limiter = Limiter::with_options(limits(), options.clone()).unwrap();
        let handle = limiter.limit("A").unwrap();
        assert!(handle.spend("first", 1).unwrap().allowed());
        assert!(handle.spend("newcomer", 8).unwrap().allowed());
        assert_eq!(limiter.stats().overflowed, 1);
        limiter.snapshot_at(&path, || 0).unwrap();
        for at_cap in [AtCap::Share, AtCap::Deny, AtCap::Allow] {
            let options = options.clone().at_cap(at_cap);
            let restored =
                Limiter::restore_at(limits(), options, &path, CarryOver::Share, 1_000_000_000);
            let handle = restored.unwrap().0.limit("A").unwrap();
            let left = handle.check("another", 0).unwrap().remaining();
            assert_eq!(left, Some(3), "{engine:?} {at_cap:?}");
        }
    }
}

#[test]
fn dropped_keys_decide_at_the_time_floor() {
    let limits = || {
        let limit = Limit::new(1, 1, ms(1000)).unwrap();
        Limits::builder().limit("A", IdFormat::String, limit).unwrap().build()
    };
    for &engine in Engine::ALL {
        let (limiter, _, restored) =
            restarted(&limits, engine, Duration::ZERO, |limiter, manual| {
                assert!(limiter.limit("A").unwrap().spend("x", 1).unwrap().allowed());
                manual.advance(ms(1000));
                assert_eq!(limiter.sweep(1_000_000).dropped, 1);
                // The clock goes back before the snapshot.
                manual.set(Duration::ZERO);
            });
        assert_eq!(restored.buckets, 0);
        let decision = limiter.limit("A").unwrap().spend("x", 1).unwrap();
        assert_eq!(decision.reset_in(), ms(2000), "1 s until the sweep, and 1 s since");
        let again = limiter.limit("A").unwrap().check("x", 1).unwrap();
        assert_eq!(
            again.retry_in(),
            ms(2000),
            "{engine:?}: spent once, a second ahead of the clock"
        );
    }
}

#[test]
fn moving_the_origin_keeps_a_blocks_end() {
    let limits = || {
        let limit = Limit::new(1, 1, ms(1000)).unwrap();
        Limits::builder().limit("A", IdFormat::String, limit).unwrap().build()
    };
    for &engine in Engine::ALL {
        let (limiter, manual, restored) = restarted(&limits, engine, 10 * YEAR, |limiter, _| {
            limiter.limit("A").unwrap().block("x", 100 * YEAR).unwrap();
        });
        assert_eq!(restored.blocks, 1);
        let handle = limiter.limit("A").unwrap();
        assert_eq!(handle.blocked_for("x").unwrap(), Some(90 * YEAR), "{engine:?}");
        manual.advance(90 * YEAR);
        assert_eq!(handle.blocked_for("x").unwrap(), None, "{engine:?}");
    }
}

/// A writer into memory that calls a function before the first bytes.
struct Beside<F> {
    bytes: Vec<u8>,
    call: Option<F>,
}

impl<F: FnOnce()> std::io::Write for Beside<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(call) = self.call.take() {
            call();
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn ids_swept_during_a_snapshot_keep_the_floor() {
    const KEYS: u64 = 20_000;
    let limits = || {
        let limit = Limit::new(1, 1, ms(1000)).unwrap();
        Limits::builder().limit("A", IdFormat::RegId, limit).unwrap().build()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for &engine in Engine::ALL {
        let (clock, manual) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(limits(), options).unwrap();
        let handle = limiter.limit("A").unwrap();
        (0..KEYS).for_each(|id| assert!(handle.spend(id, 1).unwrap().allowed()));
        let sweep = || {
            manual.advance(ms(1000));
            while !limiter.sweep(1 << 20).finished {}
        };
        let file = Beside { bytes: Vec::new(), call: Some(sweep) };
        let (file, written) = super::write::write(&limiter.inner, file, || 0).unwrap();
        // A part of the buckets was written before the sweep dropped all of them.
        assert!((1..KEYS).contains(&written.buckets), "{engine:?}: {written:?}");
        std::fs::write(&path, file.bytes).unwrap();
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let (limiter, _) =
            Limiter::restore_at(limits(), options, &path, CarryOver::Share, 0).unwrap();
        let handle = limiter.limit("A").unwrap();
        for id in 0..KEYS {
            // The restored clock shows the time of the charge, a second before the sweep.
            let spent = handle.spend(id, 1).unwrap();
            let again = handle.check(id, 1).unwrap();
            let as_of_the_sweep = again.retry_in() >= ms(2000);
            assert!(!spent.allowed() || as_of_the_sweep, "{engine:?} {id}: {again:?}");
        }
    }
}
