//! Random histories of a leaky bucket whose calls have factors, beside a queue of units: a rollback returns units of its own
//! charge only.

use std::collections::VecDeque;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::algorithm::factor::Factor;
use crate::algorithm::timed_count::{NS_PER_MS, TimedCount, ms_of};
use crate::clock::{Clock, ManualClock};
use crate::core::view::LimitsView;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limiter::reserve::claim::Claim;
use crate::limits::{IdFormat, LimitOptions, Limits};
use crate::random::Random;
use crate::store::key::{KeyRef, LimitIndex};
use crate::store::{Engine, StoreKey};
use crate::util::decimal;

const HISTORIES: u64 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };

/// The units in the bucket, those that drip out next in front, each with the number of its charge.
#[derive(Clone, Debug, Default)]
struct Queue(VecDeque<(usize, u64)>);

/// The number of units that belong to no open charge.
const NO_CHARGE: usize = usize::MAX;

impl Queue {
    fn drain(&mut self, mut units: u64) {
        while let Some(front) = self.0.front_mut().filter(|_| units > 0) {
            let drained = units.min(front.1);
            front.1 -= drained;
            units -= drained;
            if front.1 == 0 {
                self.0.pop_front();
            }
        }
    }

    fn push(&mut self, charge: usize, units: u64) {
        self.0.push_back((charge, units));
    }

    fn units_of(&self, charge: usize) -> u64 {
        self.0.iter().filter(|it| it.0 == charge).map(|it| it.1).sum()
    }

    fn remove(&mut self, charge: usize, mut units: u64) {
        for it in self.0.iter_mut().rev().filter(|it| it.0 == charge) {
            let removed = units.min(it.1);
            it.1 -= removed;
            units -= removed;
        }
        self.0.retain(|it| it.1 > 0);
    }
}

/// A charge that may be rolled back, with the bucket before it.
struct Open {
    number: usize,
    cost: u64,
    claim: Claim,
    words: (u64, u64),
    queue_before: Queue,
    /// The refunds before it, and the calls that had lowered the bucket beside undone charges.
    refunds: usize,
    lowerings: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// The units that settlements were to return and that the bucket still had.
    there: u64,
    returned: u64,
}

struct History<'l> {
    limiter: &'l Limiter,
    index: LimitIndex,
    limit: &'l Limit,
    hand: &'l ManualClock,
    id: String,
    random: Random,
    queue: Queue,
    open: Vec<Open>,
    charges: usize,
    refunds: usize,
    lowerings: usize,
    now_ms: u64,
    log: Vec<String>,
    sums: Sums,
}

fn limiter_on(limit: &Limit, engine: Engine) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    let own = LimitOptions::default().max_debt(3);
    let limits = Limits::builder().limit_with("Own", IdFormat::String, limit.clone(), own);
    let options = LimiterOptions::default().clock(clock).engine(engine);
    (Limiter::with_options(limits.unwrap().build(), options), hand)
}

impl History<'_> {
    /// Calls `then` with the bucket under the limit multiplied by a factor.
    fn with<R>(
        &self,
        factor: Factor,
        then: impl Fn(LimitsView<'_>, &StoreKey<'_>, &Limit) -> R,
    ) -> R {
        let key = KeyRef { limit: self.index, id: self.id.as_bytes() };
        self.limiter.inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            let (limit, tag) = entry.limit_for(key.id, view.limits_now_ns()).unwrap();
            let scaled = view.scaled(self.index, limit, factor).unwrap().unwrap();
            Ok(then(view, &view.store_key(key, tag), &scaled))
        })
    }

    fn word(&self) -> u64 {
        self.with(Factor::ONE, |view, key, _| {
            self.limiter.inner.store.look(key, &view).ok().flatten().unwrap_or(0)
        })
    }

    fn now_ns(&self) -> u64 {
        self.limiter.inner.clock.now_ns()
    }

    /// The time of a rollback: a sweep may have come before the charges.
    fn rollback_ns(&self) -> u64 {
        self.now_ns().max(self.limiter.inner.store.floor_ns())
    }

    /// The units in a bucket after the drips of a limit, one after the other.
    fn units_after_drips(&self, limit: &Limit, word: u64, now_ns: u64) -> u64 {
        let (rate_ms, drip) = drips_of(limit);
        let TimedCount { mut at_ms, mut count } = TimedCount::from_word(word);
        while count > 0 && at_ms + rate_ms <= ms_of(now_ns) {
            (at_ms, count) = (at_ms + rate_ms, count.saturating_sub(drip));
        }
        count
    }

    /// Records a charge by a limit that has replaced the first word by the second.
    fn charged(&mut self, limit: &Limit, (before, after): (u64, u64), number: usize) {
        if before == after {
            return;
        }
        if before == 0 {
            self.queue = Queue::default();
        }
        let left = self.units_after_drips(limit, before, self.now_ns());
        self.queue.drain(TimedCount::from_word(before).count - left);
        self.queue.push(number, TimedCount::from_word(after).count - left);
    }

    fn spend(&mut self) {
        let factors = [1, 1, 250_000, 500_000, 700_000, 1_000, 1_500_000, 3_000_000];
        let factor = match factors[self.random.below(8) as usize] {
            1 => Factor::ONE,
            millionths => Factor::from_millionths(millionths),
        };
        let scaled = self.limit.scaled(factor).unwrap().unwrap();
        let cost = 1 + self.random.below(scaled.max_cost().min(2 * self.limit.max_cost()));
        let (before, now_ns) = (self.word(), self.now_ns());
        let queue_before = self.queue.clone();
        let claim = self.with(factor, |view, key, limit| {
            let ask = |word, at_ns| limit.rule().spend(word, at_ns, cost);
            let spent = view.charge_reversibly(key, limit, now_ns, ask).ok().unwrap();
            let is_charged = spent.charge.is_some();
            is_charged.then(|| Claim::new(self.limiter, view, key, cost, factor, spent))
        });
        self.charges += 1;
        let (number, after) = (self.charges, self.word());
        self.log.push(format!("at {}: {number} spends {cost} by {factor}", self.now_ms));
        self.charged(&scaled, (before, after), number);
        if let Some(claim) = claim.filter(|_| self.random.below(3) > 0) {
            let (refunds, lowerings) = (self.refunds, self.lowerings);
            let words = (before, after);
            self.open.push(Open { number, cost, claim, words, queue_before, refunds, lowerings });
        }
    }

    fn settle(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let open = self.open.swap_remove(at);
        let before = self.word();
        if self.random.below(8) == 0 {
            open.claim.owe(2);
            self.log.push(format!("at {}: {} owes 2", self.now_ms, open.number));
            // The claim's own factor is not known here: see the units that are new.
            self.charged_by_claim(before);
            return;
        }
        let actual = self.random.below(2) * self.random.below(open.cost);
        self.log.push(format!("at {}: {} settles to {actual}", self.now_ms, open.number));
        open.claim.roll_back_to(actual);
        let after = self.word();
        if before == after {
            let left = self.units_after_drips(self.limit, before, self.rollback_ns());
            self.queue_there(left, before, open.number, open.cost - actual, open.refunds);
            return;
        }
        let is_last = before == open.words.1 && self.lowerings == open.lowerings;
        if is_last && actual == 0 {
            self.queue = open.queue_before;
            return;
        }
        if is_last {
            // The word is as if the call had charged the actual cost at first.
            let [before, after] = [before, after].map(TimedCount::from_word);
            assert_eq!(
                (before.at_ms, before.count - after.count),
                (after.at_ms, open.cost - actual)
            );
            self.queue.remove(open.number, open.cost - actual);
            self.lowerings += 1;
            return;
        }
        assert_eq!(open.refunds, self.refunds, "after a refund: {:#?}", self.log);
        let left = self.units_after_drips(self.limit, before, self.rollback_ns());
        let there = self.queue_there(left, before, open.number, open.cost - actual, open.refunds);
        self.queue.drain(TimedCount::from_word(before).count - left);
        self.lowerings += 1;
        match left.checked_sub(TimedCount::from_word(after).count) {
            Some(returned) => {
                assert!(
                    returned <= there,
                    "{} returns {returned} of {there}: {:?} {:#?}",
                    open.number,
                    self.queue,
                    self.log
                );
                self.sums.returned += returned;
                self.queue.remove(open.number, returned);
            }
            // The units that the charge has let drip out by its factor are missing.
            None => self.queue.push(NO_CHARGE, TimedCount::from_word(after).count - left),
        }
    }

    /// The units of a charge that a settlement may return, in a bucket with `left` units of those in its word.
    fn queue_there(
        &mut self,
        left: u64,
        word: u64,
        number: usize,
        most: u64,
        refunds: usize,
    ) -> u64 {
        let mut queue = self.queue.clone();
        queue.drain(TimedCount::from_word(word).count - left);
        let there = queue.units_of(number).min(most);
        if refunds == self.refunds {
            self.sums.there += there;
        }
        there
    }

    /// Records units that a charge owes. Its factor may have let others drip out: the units are those at the end.
    fn charged_by_claim(&mut self, before: u64) {
        let after = self.word();
        if before == after {
            return;
        }
        // Which units have dripped out depends on the factor: none of them may come back.
        self.queue = Queue::default();
        self.queue.push(NO_CHARGE, TimedCount::from_word(after).count);
        self.open.clear();
    }

    fn step(&mut self) {
        let (rate_ms, _) = drips_of(self.limit);
        match self.random.below(20) {
            0..=7 => self.spend(),
            8..=12 => self.settle(),
            13 if self.random.below(4) == 0 => {
                let cost = 1 + self.random.below(self.limit.max_cost());
                let handle = self.limiter.limit("Own").unwrap();
                if handle.refund(&*self.id, cost).unwrap().allowed() {
                    self.log.push(format!("at {}: refund {cost}", self.now_ms));
                    self.refunds += 1;
                    self.queue = Queue::default();
                    self.queue.push(NO_CHARGE, TimedCount::from_word(self.word()).count);
                }
            }
            14 if self.random.below(4) == 0 => {
                self.limiter.sweep(64);
                self.log.push("sweep".into());
                if self.word() == 0 {
                    self.queue = Queue::default();
                }
            }
            15 if self.random.below(4) == 0 => self.move_to(self.now_ms.saturating_sub(rate_ms)),
            _ => {
                let ms = self.random.below(5 * rate_ms / 2 + 1);
                self.move_to(self.now_ms + ms);
            }
        }
    }

    fn move_to(&mut self, now_ms: u64) {
        self.now_ms = now_ms.max(1);
        self.hand.set(Duration::from_nanos(self.now_ms * NS_PER_MS));
    }
}

fn drips_of(limit: &Limit) -> (u64, u64) {
    match limit.parameters() {
        crate::limit::Parameters::LeakyBucket { drip_rate, drip_size, .. } => {
            (drip_rate.as_millis() as u64, drip_size)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rollbacks_return_own_units_beside_factors() {
    let leaky = |size, rate_ms, drip| {
        Limit::leaky_bucket(size, Duration::from_millis(rate_ms), drip).unwrap()
    };
    for limit in [leaky(10, 8, 1), leaky(20, 5, 3), leaky(6, 40, 2), leaky(3, 2, 1)] {
        for &engine in Engine::ALL {
            let (limiter, hand) = limiter_on(&limit, engine);
            let mut sums = Sums::default();
            let mut now_ms = 1_000;
            for seed in 0..HISTORIES {
                let mut history = History {
                    limiter: &limiter,
                    index: limiter.limit("Own").unwrap().index,
                    limit: &limit,
                    hand: &hand,
                    id: format!("id{seed}"),
                    random: Random(seed * decimal::ONE),
                    queue: Queue::default(),
                    open: Vec::new(),
                    charges: 0,
                    refunds: 0,
                    lowerings: 0,
                    now_ms,
                    log: Vec::new(),
                    sums,
                };
                history.move_to(now_ms);
                (0..4 + seed % 30).for_each(|_| history.step());
                (sums, now_ms) = (history.sums, history.now_ms + 1_000);
                if seed % 4096 == 0 {
                    while !limiter.sweep(1 << 16).finished {}
                }
            }
            println!("{limit}, {engine:?}: returned {} of {} units", sums.returned, sums.there);
            assert!(sums.returned > sums.there / 10 * 8, "{limit}: {sums:?}");
        }
    }
}
