//! Random histories of one bucket: the granted units, at their final costs, keep to the limit in every
//! window.
//!
//! The numbers are small, so that calls of a history interact. Between the two charges of a batch a custom
//! rule makes other calls, and then denies.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tollgate::algorithm::Algorithm;
use tollgate::limit::Parameters;
use tollgate::limits::LimitOptions;
use tollgate::reserve::Receipt;

use super::random::Random;
use super::support::rules::scripted;
use super::*;

pub(super) const HISTORIES: u64 = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };

/// A grant: the number of its call, its time and its final cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) order: usize,
    pub(super) at_ns: u64,
    pub(super) cost: u64,
}

/// The units that a refund or a reset returned: as ns of the time until full, and as units.
#[derive(Clone, Copy, Debug)]
struct GivenBack {
    order: usize,
    ns: u64,
    units: u64,
    is_reset: bool,
}

pub(super) enum Open {
    Receipt(Receipt),
    Place(Reservation),
}

/// An open charge: the index of its grant, and the units charged.
pub(super) struct OpenCharge {
    pub(super) granted: usize,
    pub(super) cost: u64,
    pub(super) open: Open,
}

/// The record of one history.
#[derive(Default)]
pub(super) struct Record {
    order: usize,
    granted: Vec<Grant>,
    given_back: Vec<GivenBack>,
    calls: Vec<String>,
}

/// One history of one bucket.
struct History {
    limit: Limit,
    limiter: Limiter,
    handle: KeyedLimit,
    fickle: KeyedLimit,
    hand: ManualClock,
    id: String,
    random: Random,
    now_ns: u64,
    /// The clock moves by at most one and a half of these at once.
    step_ns: u64,
    has_batches: bool,
    held: Vec<OpenCharge>,
    record: Record,
}

type Shared = Rc<RefCell<History>>;

thread_local! {
    static BETWEEN: RefCell<Option<Shared>> = const { RefCell::new(None) };
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// A rule that allows when a batch asks it. When the batch charges it, it first makes other calls of the
/// history, and denies.
fn fickle() -> Limit {
    scripted(|| {
        let asked_before = ASKED.replace(ASKED.get() + 1);
        let history = BETWEEN.with_borrow(Clone::clone);
        if asked_before == 1
            && let Some(history) = history
        {
            let number = history.borrow_mut().random.below(4);
            (0..number).for_each(|_| step(&history, false));
        }
        asked_before == 0
    })
}

pub(super) fn limiter_of(limit: &Limit, clock: Clock, engine: Engine) -> Limiter {
    let own = LimitOptions::default().max_debt(2);
    let limits = Limits::builder()
        .limit_with("Own", IdFormat::String, limit.clone(), own)
        .unwrap()
        .limit("Zfickle", IdFormat::String, fickle())
        .unwrap();
    let options = LimiterOptions::default().clock(clock).engine(engine);
    Limiter::with_options(limits.build(), options)
}

/// Makes one call. `is_first` is false in the middle of another call.
fn step(history: &Shared, is_first: bool) {
    let batch_of = history.borrow_mut().call(is_first);
    let Some(cost) = batch_of else { return };
    // The calls in between borrow the history.
    let (limiter, own, fickle, id) = {
        let this = history.borrow();
        (this.limiter.clone(), this.handle.clone(), this.fickle.clone(), this.id.clone())
    };
    ASKED.set(0);
    let members = [own.member(&*id).cost(cost), fickle.member("f")];
    let denied_by = limiter.batch(&members).spend().unwrap().denied_by();
    assert!(denied_by.is_some());
    history.borrow_mut().record.calls.push(format!("the batch was denied by {denied_by:?}"));
}

impl History {
    /// Makes a call. If it is a batch, returns its cost, and the caller makes it.
    fn call(&mut self, is_first: bool) -> Option<u64> {
        self.record.order += 1;
        let (order, now_ns) = (self.record.order, self.now_ns);
        let cost = 1 + self.random.below(self.limit.max_cost());
        let kind = self.random.below(20);
        let id = self.id.clone();
        self.record.calls.push(format!("at {now_ns}: {kind}, cost {cost}"));
        match kind {
            0..=2 if self.handle.spend(&*id, cost).unwrap().allowed() => {
                self.record.granted.push(Grant { order, at_ns: now_ns, cost });
            }
            3..=5 => {
                if let (_, Some(receipt)) = self.handle.spend_estimate(&*id, cost).unwrap() {
                    self.hold(Grant { order, at_ns: now_ns, cost }, Open::Receipt(receipt));
                }
            }
            6..=8 => {
                let place = self.handle.reserve(&*id, cost, Duration::MAX).ok()?;
                let at_ns = now_ns + place.wait().as_nanos() as u64;
                let open = match self.random.below(2) {
                    0 => Open::Place(place),
                    _ => Open::Receipt(place.into_receipt()),
                };
                self.hold(Grant { order, at_ns, cost }, open);
            }
            9..=12 if !self.held.is_empty() => self.close(),
            13 => self.give_back(cost, false),
            14 if self.random.below(3) == 0 => self.give_back(cost, true),
            15 if self.random.below(4) == 0 => {
                self.limiter.sweep(64);
            }
            16..=17 if is_first && self.has_batches => return Some(cost),
            _ => {
                self.now_ns += self.random.below(7) * self.step_ns / 4 + self.random.below(2);
                self.hand.set(Duration::from_nanos(self.now_ns));
            }
        }
        None
    }

    fn hold(&mut self, granted: Grant, open: Open) {
        self.held.push(OpenCharge { granted: self.record.granted.len(), cost: granted.cost, open });
        self.record.granted.push(granted);
    }

    fn reset_in_ns(&self) -> u64 {
        self.handle.check(&*self.id, 0).unwrap().reset_in().as_nanos() as u64
    }

    fn remaining(&self) -> u64 {
        self.handle.check(&*self.id, 0).unwrap().remaining().unwrap()
    }

    /// Settles a receipt or cancels a reservation.
    fn close(&mut self) {
        let which = self.random.below(self.held.len() as u64) as usize;
        let OpenCharge { granted, cost, open } = self.held.swap_remove(which);
        let more = if self.random.below(8) == 0 { 3 } else { 0 };
        let actual = self.random.below(cost + 1) + more;
        let before_ns = self.reset_in_ns();
        let granted = &mut self.record.granted[granted];
        let (order, at_ns) = (granted.order, granted.at_ns);
        match open {
            Open::Receipt(receipt) => {
                self.record.calls.push(format!("settle {order} to {actual}"));
                granted.cost = actual.min(cost);
                let _ = receipt.settle(actual);
            }
            Open::Place(place) => {
                self.record.calls.push(format!("cancel {order}, due at {at_ns}"));
                if at_ns >= self.now_ns {
                    granted.cost = 0;
                }
                place.cancel();
            }
        }
        let is_reset = self.record.given_back.iter().any(|it| it.is_reset && it.order > order);
        if is_reset && actual <= cost {
            let after_ns = self.reset_in_ns();
            assert_eq!(after_ns, before_ns, "after a reset: {:#?}", self.record.calls);
        }
    }

    fn give_back(&mut self, cost: u64, is_reset: bool) {
        let before = (self.reset_in_ns(), self.remaining());
        if is_reset {
            let _ = self.handle.reset(&*self.id).unwrap();
        } else {
            let _ = self.handle.refund(&*self.id, cost).unwrap();
        }
        self.record.calls.push(format!("given back, a reset: {is_reset}"));
        let ns = before.0 - self.reset_in_ns().min(before.0);
        // In debt `remaining` is 0 and cannot measure the units: a reset counts as returning all, a refund
        // its cost.
        let units = if is_reset { u64::MAX / 2 } else { cost };
        let order = self.record.order;
        self.record.given_back.push(GivenBack { order, ns, units, is_reset });
    }

    /// Checks every window against the limit, and the bucket's debt against the grants.
    fn check(&self) {
        self.record.keeps_the_bound(&self.limit);
        let Parameters::Gcra { burst, .. } = self.limit.parameters() else { return };
        let unit_ns = self.limit.burst_offset().as_nanos() as u64 / burst;
        let full_at_ns = i128::from(self.now_ns + self.reset_in_ns());
        let least_ns = self.record.owes_until(unit_ns).max(i128::from(self.now_ns));
        assert!(
            full_at_ns >= least_ns,
            "full at {full_at_ns}, and not before {least_ns}: {:#?} {:#?}",
            self.record.granted,
            self.record.calls
        );
    }
}

impl Record {
    /// Builds a record of grants whose calls have no known order.
    pub(super) fn from_grants(granted: Vec<Grant>) -> Record {
        Record { granted, ..Record::default() }
    }

    /// The units returned between the first and the last call of a window's grants.
    fn given_back(&self, orders: (usize, usize), of: impl Fn(&GivenBack) -> u64) -> u64 {
        let between = |it: &&GivenBack| (orders.0..=orders.1).contains(&it.order);
        self.given_back.iter().filter(between).map(of).fold(0, u64::saturating_add)
    }

    /// Checks that the costs in any window, less the units returned in between, are within the limit.
    pub(super) fn keeps_the_bound(&self, limit: &Limit) {
        let mut granted: Vec<Grant> =
            self.granted.iter().copied().filter(|it| it.cost > 0).collect();
        granted.sort_unstable_by_key(|it| (it.at_ns, it.order));
        for (first, from) in granted.iter().enumerate() {
            let (mut sum, mut orders) = (0, (from.order, from.order));
            for (at, to) in granted.iter().enumerate().skip(first) {
                sum += to.cost;
                orders = (orders.0.min(to.order), orders.1.max(to.order));
                if granted.get(at + 1).is_some_and(|next| next.at_ns == to.at_ns) {
                    continue;
                }
                let back = self.given_back(orders, |it| it.units);
                let most = bound(limit, from.at_ns, to.at_ns);
                assert!(
                    sum <= most.saturating_add(back),
                    "{limit:?}: {sum} of {most} from {} to {}: {granted:?} {:#?}",
                    from.at_ns,
                    to.at_ns,
                    self.calls
                );
            }
        }
    }

    /// The time until which a gcra bucket owes at least: for each time, as if all later grants had been
    /// charged then.
    fn owes_until(&self, unit_ns: u64) -> i128 {
        let since = |from_ns: u64| {
            let granted = || self.granted.iter().filter(|it| it.cost > 0 && it.at_ns >= from_ns);
            let sum: u64 = granted().map(|it| it.cost * unit_ns).sum();
            let first = granted().map(|it| it.order).min().unwrap_or(0);
            let back = self.given_back((first, usize::MAX), |it| it.ns);
            i128::from(from_ns) + i128::from(sum) - i128::from(back)
        };
        self.granted.iter().filter(|it| it.cost > 0).map(|it| since(it.at_ns)).max().unwrap_or(0)
    }
}

/// The most that may be granted in a window, ends included.
fn bound(limit: &Limit, from_ns: u64, to_ns: u64) -> u64 {
    let ms_of = |ns: u64| ns / MS;
    match limit.parameters() {
        Parameters::Gcra { burst, .. } => {
            let unit_ns = limit.burst_offset().as_nanos() as u64 / burst;
            burst + (to_ns - from_ns) / unit_ns
        }
        Parameters::FixedWindow { limit, window }
        | Parameters::TokenBucket { limit, window, .. } => match ms_of(to_ns) - ms_of(from_ns) {
            0 => limit,
            ms => (ms / window.as_millis() as u64 + 2) * limit,
        },
        Parameters::LeakyBucket { size, drip_rate, drip_size } => {
            let ms = ms_of(to_ns) - ms_of(from_ns);
            size + ms.div_ceil(drip_rate.as_millis() as u64) * drip_size
        }
        other => panic!("{other:?}"),
    }
}

/// Runs histories on one limiter, each with a new id.
fn histories(limit: &Limit, engine: Engine, number: u64, seed: u64) {
    let (clock, hand) = Clock::manual();
    let limiter = limiter_of(limit, clock, engine);
    let (handle, fickle) = (limiter.limit("Own").unwrap(), limiter.limit("Zfickle").unwrap());
    let step_ns = match limit.parameters() {
        Parameters::Gcra { burst, .. } => limit.burst_offset().as_nanos() as u64 / burst,
        _ => MS,
    };
    let mut now_ns = 0;
    for at in 0..number {
        let history = Rc::new(RefCell::new(History {
            limit: limit.clone(),
            limiter: limiter.clone(),
            handle: handle.clone(),
            fickle: fickle.clone(),
            hand: hand.clone(),
            id: format!("id{at}"),
            random: Random(seed ^ (at << 20)),
            now_ns,
            step_ns,
            // The exact engine holds a lock while it asks a rule.
            has_batches: engine == Engine::LockFree,
            held: Vec::new(),
            record: Record::default(),
        }));
        BETWEEN.set(Some(history.clone()));
        let calls = 4 + at % 20;
        for _ in 0..calls {
            step(&history, true);
            history.borrow().check();
        }
        BETWEEN.set(None);
        now_ns = history.borrow().now_ns;
        hand.set(Duration::from_nanos(now_ns));
        if at % 4096 == 0 {
            while !limiter.sweep(1 << 16).finished {}
        }
    }
}

fn small_gcra() -> Vec<Limit> {
    let gcra = |burst, ns| Limit::new(burst, 1, Duration::from_nanos(ns)).unwrap();
    vec![gcra(3, 4), gcra(1, 8), gcra(2, 3), gcra(5, 100), gcra(10, 4)]
}

#[test]
fn no_history_exceeds_the_bound_of_gcra() {
    for (seed, limit) in (0..).zip(small_gcra()) {
        histories(&limit, Engine::LockFree, HISTORIES, seed);
        #[cfg(feature = "exact")]
        histories(&limit, Engine::Exact, HISTORIES / 10, seed + 100);
    }
}

#[test]
fn no_history_exceeds_bound_of_counting_rules() {
    let window = Limit::fixed_window(3, ms(4)).unwrap();
    let tokens = Limit::token_bucket(6, ms(6), 3).unwrap();
    let leaky = |size, rate_ms, drip| Limit::leaky_bucket(size, ms(rate_ms), drip).unwrap();
    let limits = [window, tokens, leaky(3, 2, 1), leaky(4, 3, 2), leaky(2, 1, 3)];
    for (seed, limit) in (1000..).zip(limits) {
        histories(&limit, Engine::LockFree, HISTORIES, seed);
        #[cfg(feature = "exact")]
        histories(&limit, Engine::Exact, HISTORIES / 10, seed + 100);
    }
}
