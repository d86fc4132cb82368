//! Denied batches whose limit changes between their charges and their returns, by a reload or by an override's end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tollgate::limit::Parameters;
use tollgate::limits::OverrideOptions;
use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::reserve::{Receipt, Reservation};
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::scripted;
use super::support::{ENGINES, hourly, limits, ms, seconds};

const HOUR: Duration = Duration::from_secs(3600);

/// A limiter with the limits "Own" and "Then". The rule of "Then" has the limiter until this is dropped.
struct LateDenial {
    limiter: Limiter,
    of_rule: Arc<Mutex<Option<(Limiter, Limit)>>>,
}

impl Drop for LateDenial {
    fn drop(&mut self) {
        self.of_rule.lock().unwrap().take();
    }
}

impl std::ops::Deref for LateDenial {
    type Target = Limiter;

    fn deref(&self) -> &Limiter {
        &self.limiter
    }
}

/// If a batch charges "Then", calls `when_charged` with the limiter and the limit "Then", and denies.
fn with_late_denial(
    own: Limit,
    clock: Clock,
    engine: Engine,
    when_charged: impl Fn(&Limiter, Limit) + Send + Sync + 'static,
) -> LateDenial {
    let asked = AtomicU64::new(0);
    let of_rule: Arc<Mutex<Option<(Limiter, Limit)>>> = Arc::default();
    let in_rule = of_rule.clone();
    let then = scripted(move || {
        let before = asked.fetch_add(1, Ordering::Relaxed);
        if before == 1 {
            let (limiter, then) = in_rule.lock().unwrap().take().unwrap();
            when_charged(&limiter, then);
        }
        before == 0
    });
    let options = LimiterOptions::default().clock(clock).engine(engine);
    let limiter = Limiter::with_options(limits(&[("Own", own), ("Then", then.clone())]), options);
    *of_rule.lock().unwrap() = Some((limiter.clone(), then));
    LateDenial { limiter, of_rule }
}

fn denied_batch(limiter: &Limiter, cost: u64) {
    let [own, then] = ["Own", "Then"].map(|name| limiter.limit(name).unwrap());
    let batch = [own.member("id").cost(cost), then.member("id")];
    assert!(!limiter.batch(&batch).spend().unwrap().allowed());
}

fn remaining(own: &KeyedLimit) -> u64 {
    own.check("id", 0).unwrap().remaining().unwrap()
}

/// Returns the units that are left after a reload. With `has_batch` a batch begins before the reload and is denied after it.
fn left_after_reload(
    make: fn(u64) -> Limit,
    [old, new, others, cost]: [u64; 4],
    way: Way,
    carry_over: CarryOver,
    has_batch: bool,
) -> u64 {
    let act = move |limiter: &Limiter, then: Limit| {
        way.charge(&limiter.limit("Own").unwrap(), others);
        let limits = limits(&[("Own", make(new)), ("Then", then)]);
        limiter.reload_with(limits, carry_over).unwrap();
    };
    let limiter = with_late_denial(make(old), Clock::manual().0, Engine::LockFree, act);
    if has_batch {
        denied_batch(&limiter, cost);
    } else {
        let then = limiter.limit("Then").unwrap().limit_for("id").unwrap().unwrap();
        act(&limiter, then);
    }
    remaining(&limiter.limit("Own").unwrap())
}

/// Returns the units that are left after the end of an override, plus those that are spent right after it. With `next` a
/// reload to that burst follows.
fn left_after_end(
    make: fn(u64) -> Limit,
    [own, default, others, cost]: [u64; 4],
    (way, next): (Way, Option<u64>),
    (carry_over, engine): (CarryOver, Engine),
    has_batch: bool,
) -> u64 {
    let (clock, hand) = Clock::manual();
    let spent: Arc<AtomicU64> = Arc::default();
    let after_end = spent.clone();
    let act = move |limiter: &Limiter, then: Limit| {
        let own = limiter.limit("Own").unwrap();
        way.charge(&own, others);
        hand.advance(seconds(11));
        let is_allowed = next.is_none() && own.spend("id", 1).unwrap().allowed();
        after_end.store(is_allowed.into(), Ordering::Relaxed);
        if let Some(next) = next {
            let limits = limits(&[("Own", make(next)), ("Then", then)]);
            limiter.reload_with(limits, carry_over).unwrap();
        }
    };
    let limiter = with_late_denial(hourly(1), clock, engine, act.clone());
    let end = OverrideOptions::default().expires(SystemTime::now() + seconds(10));
    let then = limiter.limit("Then").unwrap().limit_for("id").unwrap().unwrap();
    let limits = Limits::builder()
        .limit("Own", IdFormat::String, make(default))
        .unwrap()
        .override_with("Own", "id", make(own), end)
        .unwrap()
        .limit("Then", IdFormat::String, then.clone())
        .unwrap();
    limiter.reload_with(limits.build(), carry_over).unwrap();
    if has_batch {
        denied_batch(&limiter, cost);
    } else {
        act(&limiter, then);
    }
    remaining(&limiter.limit("Own").unwrap()) + spent.load(Ordering::Relaxed)
}

/// How another call charges while the batch holds its charge.
#[derive(Clone, Copy, Debug)]
enum Way {
    Spend,
    /// Under gcra alone. The grant is in the future if the bucket does not have the units yet.
    Reserve,
}

impl Way {
    fn charge(self, own: &KeyedLimit, cost: u64) {
        match self {
            Way::Spend => drop(own.spend("id", cost).unwrap()),
            Way::Reserve if cost == 0 => {}
            Way::Reserve => {
                drop(own.reserve("id", cost, Duration::MAX).map(Reservation::into_receipt))
            }
        }
    }
}

const ALGORITHMS: [fn(u64) -> Limit; 6] = [
    |burst| Limit::new(burst, burst, 10 * HOUR).unwrap(),
    |burst| Limit::fixed_window(burst, 10 * HOUR).unwrap(),
    |burst| Limit::token_bucket(burst, 10 * HOUR, burst).unwrap(),
    |burst| Limit::leaky_bucket(burst as u32, 10 * HOUR, 1).unwrap(),
    // A larger burst refills more slowly.
    |burst| Limit::new(burst, 1, HOUR * burst as u32).unwrap(),
    |burst| Limit::token_bucket(burst, HOUR * burst as u32, burst.div_ceil(3)).unwrap(),
];

fn any_way() -> impl Strategy<Value = Way> {
    prop_oneof![Just(Way::Spend), Just(Way::Reserve)]
}

fn any_carry_over() -> impl Strategy<Value = CarryOver> {
    prop_oneof![Just(CarryOver::Units), Just(CarryOver::Time), Just(CarryOver::Share)]
}

/// Makes the old burst, the new one, the units that other calls spend, and the batch's cost.
fn changes() -> impl Strategy<Value = [u64; 4]> {
    let burst = || prop_oneof![1..20_u64, Just(10), Just(100)];
    (burst(), burst()).prop_flat_map(|(old, new)| {
        (0..=old, 1..=old).prop_map(move |(others, cost)| [old, new, others, cost])
    })
}

/// Whether the batch is denied by the rule of "Then" alone, and the other call is answered as without the batch.
fn fits(make: fn(u64) -> Limit, [old, _, others, cost]: [u64; 4], way: Way) -> bool {
    let burst = match make(old).parameters() {
        Parameters::TokenBucket { burst, .. } => burst,
        _ => old,
    };
    match way {
        Way::Spend => others + cost <= burst,
        Way::Reserve => others.max(cost) <= burst,
    }
}

proptest! {
    /// A denied batch may stay charged. It never returns units that other calls have spent.
    #[test]
    fn denied_batch_beside_reload_forgets_no_debt(
        at in 0..ALGORITHMS.len(),
        change in changes(),
        way in any_way(),
        carry_over in any_carry_over(),
    ) {
        prop_assume!(fits(ALGORITHMS[at], change, way));
        let make = ALGORITHMS[at];
        let left = |has_batch| left_after_reload(make, change, way, carry_over, has_batch);
        prop_assert!(left(true) <= left(false), "{} {}", left(true), left(false));
    }

    #[test]
    fn denied_batch_at_override_end_forgets_no_debt(
        at in 0..ALGORITHMS.len(),
        change in changes(),
        way in any_way(),
        carry_over in any_carry_over(),
        engine in prop::sample::select(ENGINES.to_vec()),
    ) {
        prop_assume!(fits(ALGORITHMS[at], change, way));
        let (make, with) = (ALGORITHMS[at], (carry_over, engine));
        let left = |has_batch| left_after_end(make, change, (way, None), with, has_batch);
        prop_assert!(left(true) <= left(false), "{} {}", left(true), left(false));
    }
}

/// The override ends, and then a reload gives the default the parameters that the override had: two conversions.
#[test]
fn denied_batch_beneath_end_and_reload_forgets_nothing() {
    for make in ALGORITHMS {
        for carry_over in [CarryOver::Units, CarryOver::Time, CarryOver::Share] {
            let next = (Way::Spend, Some(10));
            let change =
                if fits(make, [10, 3, 7, 3], Way::Spend) { [10, 3, 7, 3] } else { [10, 3, 2, 1] };
            let with = (carry_over, Engine::LockFree);
            let left = |has_batch| left_after_end(make, change, next, with, has_batch);
            assert!(left(true) <= left(false), "{:?} {carry_over:?}", make(10));
        }
    }
}

/// The batch's charge has refilled by a nanosecond, so that its rest does not convert without rounding.
#[test]
fn partly_refilled_charge_is_not_rounded_down() {
    let of = |burst, ns| Limit::new(burst, 1, Duration::from_nanos(ns)).unwrap();
    let reset_in = |has_batch| {
        let (clock, hand) = Clock::manual();
        let act = move |limiter: &Limiter, then: Limit| {
            hand.advance(Duration::from_nanos(1));
            assert!(limiter.limit("Own").unwrap().spend("id", 1).unwrap().allowed());
            let limits = limits(&[("Own", of(12, 5_000_000)), ("Then", then)]);
            limiter.reload_with(limits, CarryOver::Share).unwrap();
        };
        let own = of(9, 9_999_999);
        let limiter = with_late_denial(own, clock, Engine::LockFree, act.clone());
        if has_batch {
            denied_batch(&limiter, 3);
        } else {
            act(&limiter, limiter.limit("Then").unwrap().limit_for("id").unwrap().unwrap());
        }
        limiter.limit("Own").unwrap().check("id", 0).unwrap().reset_in()
    };
    assert!(reset_in(true) >= reset_in(false));
}

/// A settlement after the batch's charge is counted in units of the limit before the reload.
#[test]
fn lowering_before_a_reload_is_in_other_units() {
    let (clock, hand) = Clock::manual();
    let receipt: Arc<Mutex<Option<Receipt>>> = Arc::default();
    let to_settle = receipt.clone();
    let act = move |limiter: &Limiter, then: Limit| {
        let _ = to_settle.lock().unwrap().take().unwrap().settle(0);
        let own = Limit::new(4, 1, ms(100)).unwrap();
        limiter.reload_with(limits(&[("Own", own), ("Then", then)]), CarryOver::Units).unwrap();
        hand.advance(ms(150));
        assert!(limiter.limit("Own").unwrap().spend("id", 3).unwrap().allowed());
    };
    let own = Limit::new(4, 1, ms(10)).unwrap();
    let limiter = with_late_denial(own, clock, Engine::LockFree, act);
    let own = limiter.limit("Own").unwrap();
    *receipt.lock().unwrap() = own.spend_estimate("id", 1).unwrap().1;
    denied_batch(&limiter, 2);
    let left = own.check("id", 0).unwrap();
    assert!(left.reset_in() >= ms(300), "three units were spent just now: {left:?}");
}

/// A place that was cancelled before a reload has the word of a place after it, in other units.
#[test]
fn cancelled_place_before_a_reload_stays() {
    let of = |interval| limits(&[("Own", Limit::new(10, 1, ms(interval)).unwrap())]);
    let limiter = Limiter::with_clock(of(10), Clock::manual().0);
    let own = limiter.limit("Own").unwrap();
    let place = |cost| own.reserve("id", cost, Duration::MAX).unwrap();
    assert!(own.spend("id", 10).unwrap().allowed());
    let [first, _second] = [(); 2].map(|()| place(1));
    first.cancel();
    assert!(limiter.reload_with(of(5), CarryOver::Units).unwrap().changed);
    let [third, fourth] = [place(8), place(1)];
    assert_eq!([&third, &fourth].map(Reservation::wait), [ms(60), ms(65)]);
    fourth.cancel();
    assert_eq!(place(1).wait(), ms(65), "the third keeps its time");
}
