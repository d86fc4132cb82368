//! Random histories of a bucket with leases, each of them twice: in the first one calls charge estimates and settle them, in the
//! second one they charge the actual costs at once. So the first bucket never has more units than the second. Charges of a leaky
//! bucket by a factor above 1 are in the first one only.

use std::time::Duration;

use super::*;
use crate::algorithm::factor::Factor;
use crate::algorithm::rule::Rule;
use crate::core::shared::decide::{decide, written};
use crate::core::shared::lease::{Granted, LeaseEnd, LeaseRequest};
use crate::core::shared::{SharedMember, SharedMode};
use crate::random::Random;

pub(super) const HISTORIES: u64 = if cfg!(debug_assertions) { 10_000 } else { 500_000 };
pub(super) const START_NS: u64 = 1_790_000_000_000_000_000;
pub(super) const LEASE_MS: u64 = 40;

/// The text of a bucket in a store that forgets none.
#[derive(Default)]
pub(super) struct Text(pub(super) Option<String>);

impl Text {
    fn found(&self, limit: &Limit) -> SharedBucket {
        SharedBucket::read(limit, self.0.as_deref().map(str::as_bytes)).unwrap()
    }

    /// Makes a call, and returns its charge and its lease. `None`: denied.
    pub(super) fn call(
        &mut self,
        member: &SharedMember,
        unix_ns: u64,
    ) -> Option<(Option<ReversibleCharge>, Option<Granted>)> {
        let (limits, found) = (member.limits(), self.found(&member.limit));
        let text = self.0.as_deref().map(str::as_bytes);
        let decided = decide(std::slice::from_ref(member), &[text], unix_ns).unwrap();
        if !decided[0].decision.allowed() {
            return None;
        }
        let rule = member.limit.rule();
        let before = found.guarded(limits, unix_ns);
        let word = rule.spend(before.word, rule_time_ns(unix_ns), member.cost).word?;
        let after = SharedBucket { word, ..before }.with_drain(limits, found, unix_ns);
        let charge = ReversibleCharge::new(limits, found, after, unix_ns);
        self.0 = written(member, &decided[0], unix_ns).map(|it| it.0);
        Some((charge.filter(|_| member.lease.is_none()), decided[0].granted))
    }

    /// Changes the bucket. Returns whether there was a change.
    pub(super) fn change(
        &mut self,
        own: &Limit,
        unix_ns: u64,
        change: impl Fn(SharedBucket) -> Option<SharedBucket>,
    ) -> bool {
        let new = change(self.found(own).guarded((own, own), unix_ns));
        let is_changed = new.is_some();
        self.0 = new.map(|new| new.text(own)).or(self.0.take());
        is_changed
    }

    /// The word at a time by the limit without a factor.
    pub(super) fn word(&self, own: &Limit, unix_ns: u64) -> u64 {
        self.found(own).guarded((own, own), unix_ns).word
    }
}

/// An estimate that is not settled.
struct Open {
    number: usize,
    charge: ReversibleCharge,
    limit: Limit,
    cost: u64,
    actual: u64,
    /// The first bucket may have more units than the second until the charge is rolled back.
    drains_early: bool,
}

#[derive(Default, Debug)]
struct Sums {
    rolled_back: u64,
    kept: u64,
    leases: u64,
    returned: u64,
}

struct History<'l> {
    own: &'l Limit,
    random: Random,
    now_ns: u64,
    texts: [Text; 2],
    open: Vec<Open>,
    /// The leases in both buckets, and their units that no call has spent.
    leases: Vec<([Granted; 2], u64)>,
    calls: usize,
    /// The calls with a factor, which drip at other times.
    calls_by_factor: u64,
    is_over: bool,
    log: Vec<String>,
}

impl History<'_> {
    fn member(&self, factor: Factor, cost: u64, lease: Option<LeaseRequest>) -> SharedMember {
        SharedMember {
            key: "a".into(),
            limit: self.own.scaled(factor).unwrap().unwrap(),
            unscaled: (factor != Factor::ONE).then(|| Box::new(self.own.clone())),
            keeps_ledger: true,
            cost,
            mode: SharedMode::CheckAndSpend,
            keep_ms: 0,
            lease,
        }
    }

    fn step(&mut self, sums: &mut Sums) {
        match self.random.below(20) {
            0..=6 => self.call(),
            7..=10 => self.settle(sums),
            11..=13 => self.lease(sums),
            14..=15 => self.end_lease(sums),
            _ => {
                let ms = self.random.below(30) * self.random.below(5);
                self.now_ns += ms * NS_PER_MS + self.random.below(2) * 333_337;
            }
        }
        let texts = self.texts.each_ref().map(|text| text.0.clone().unwrap_or_default());
        self.log.push(format!("{:?}", texts));
    }

    fn call(&mut self) {
        let factors = [1, 1, 1, 250_000, 500_000, 700_000, 1_500_000, 3_000_000];
        let factor = match factors[self.random.below(8) as usize] {
            1 => Factor::ONE,
            millionths => Factor::from_millionths(millionths),
        };
        let limit = self.own.scaled(factor).unwrap().unwrap();
        let cost = 1 + self.random.below(limit.burst().min(2 * self.own.burst()));
        self.calls += 1;
        let number = self.calls;
        self.say(format!("{number} spends {cost} by {factor}"));
        let first = self.member(factor, cost, None);
        let Some((charge, _)) = self.texts[0].call(&first, self.now_ns) else { return };
        self.calls_by_factor += u64::from(factor != Factor::ONE);
        let charge = charge.filter(|_| self.random.below(3) > 0);
        let is_leaky = matches!(self.own.rule(), Rule::LeakyBucket(_));
        // By a factor above 1 the drips since the word's time are fewer: how many depends on when the last call was.
        let drips_slowly = is_leaky && limit.burst() < self.own.burst();
        let actual = match (&charge, factor == Factor::ONE) {
            _ if drips_slowly => 0,
            (None, _) => cost,
            (Some(_), true) => self.random.below(2) * self.random.below(cost),
            (Some(_), false) => 0,
        };
        if actual > 0 {
            let second = self.member(factor, actual, None);
            let is_allowed = self.texts[1].call(&second, self.now_ns).is_some();
            self.end_unless(is_allowed);
        }
        if let Some(charge) = charge {
            let drains_early = is_leaky && limit.burst() > self.own.burst();
            self.open.push(Open { number, charge, limit, cost, actual, drains_early });
        }
    }

    fn settle(&mut self, sums: &mut Sums) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let Open { number, charge, limit, cost, actual, drains_early } = self.open.swap_remove(at);
        self.say(format!("{number} settles to {actual}"));
        let (own, now_ns) = (self.own, self.now_ns);
        let is_changed = self.texts[0].change(own, now_ns, |bucket| {
            charge.rolled_back((&limit, own), bucket, now_ns, (cost, actual))
        });
        sums.rolled_back += u64::from(is_changed);
        sums.kept += u64::from(!is_changed);
        // The units that the charge has let drip out stay out of the bucket.
        self.is_over |= drains_early && !is_changed;
    }

    fn lease(&mut self, sums: &mut Sums) {
        let want = 1 + self.random.below(self.own.burst());
        self.say(format!("leases {want}"));
        let request = |want| LeaseRequest { want, length_ms: LEASE_MS, end: None };
        let first = self.member(Factor::ONE, 1, Some(request(want)));
        let Some((_, granted)) = self.texts[0].call(&first, self.now_ns) else { return };
        let units = granted.map_or(0, |granted| granted.units);
        let second = self.member(Factor::ONE, 1, Some(request(units)));
        let second = self.texts[1].call(&second, self.now_ns).and_then(|it| it.1);
        self.end_unless(units == second.map_or(0, |second| second.units));
        if let (Some(first), Some(second)) = (granted, second) {
            sums.leases += 1;
            let unspent = self.random.below(units + 1);
            self.leases.push(([first, second], unspent));
        }
    }

    fn end_lease(&mut self, sums: &mut Sums) {
        if self.leases.is_empty() {
            return;
        }
        let at = self.random.below(self.leases.len() as u64) as usize;
        let (granted, unspent) = self.leases.swap_remove(at);
        self.say(format!("{unspent} of {} come back", granted[0].units));
        let (own, now_ns) = (self.own, self.now_ns);
        let ended = [0, 1].map(|at| {
            let Granted { units, tag_ms, .. } = granted[at];
            let end = LeaseEnd { tag_ms, granted: units, unspent };
            self.texts[at].change(own, now_ns, |bucket| bucket.without_lease(own, now_ns, end))
        });
        assert_eq!(ended[0], ended[1], "{:#?}", self.log);
        sums.returned += u64::from(ended[0]);
    }

    fn say(&mut self, what: String) {
        let at_ms = (self.now_ns - START_NS) as f64 / NS_PER_MS as f64;
        self.log.push(format!("at {at_ms} ms {what}"));
    }

    /// The units by which the first bucket may have fewer, because its drips come at other times: less than one of the limit
    /// itself, and less than four of each call with a factor.
    fn tolerance(&self) -> u64 {
        match self.own.rule() {
            Rule::LeakyBucket(leaky) => u64::from(leaky.drip_size) * (1 + 4 * self.calls_by_factor),
            _ => 0,
        }
    }

    /// Ends a history whose second bucket does not admit what the first one has.
    fn end_unless(&mut self, admits_both: bool) {
        assert!(admits_both || self.tolerance() > 0, "{:#?}", self.log);
        self.is_over |= !admits_both;
    }

    fn check(&self) {
        if self.open.iter().any(|open| open.drains_early) {
            return;
        }
        for at_ns in (0..12).map(|later| self.now_ns + later * 7 * NS_PER_MS) {
            let now_ns = rule_time_ns(at_ns);
            let [first, second] = self.texts.each_ref().map(|text| text.word(self.own, at_ns));
            let is_more = match self.own.rule() {
                Rule::LeakyBucket(leaky) => {
                    let [first, second] = [first, second].map(|it| leaky.counter_at(it, now_ns));
                    first + self.tolerance() < second
                }
                _ => first.max(now_ns) < second.max(now_ns),
            };
            assert!(!is_more, "{} at {at_ns}: {:#?}", self.own, self.log);
        }
    }
}

#[test]
fn settled_estimates_beside_leases_are_no_better() {
    let leaky = |size, rate_ms, drip| {
        Limit::leaky_bucket(size, Duration::from_millis(rate_ms), drip).unwrap()
    };
    let gcra = |burst, ns| Limit::new(burst, 1, Duration::from_nanos(ns)).unwrap();
    let leaky = [leaky(40, 8, 1), leaky(200, 8, 3), leaky(120, 40, 2)];
    for own in [gcra(10, 7_333_333), gcra(4, 25_000_000)].iter().chain(&leaky) {
        let mut sums = Sums::default();
        let mut over = 0;
        for seed in 0..HISTORIES {
            let mut history = History {
                own,
                random: Random(seed * 1_000_000),
                now_ns: START_NS + seed,
                texts: Default::default(),
                open: Vec::new(),
                leases: Vec::new(),
                calls: 0,
                calls_by_factor: 0,
                is_over: false,
                log: vec![format!("seed {seed}")],
            };
            for _ in 0..6 + seed % 40 {
                history.step(&mut sums);
                if history.is_over {
                    over += 1;
                    break;
                }
                history.check();
            }
        }
        println!("{own}: {sums:?}, {over} of {HISTORIES} not to their end");
        assert!(sums.rolled_back > HISTORIES / 4 && sums.returned > HISTORIES / 4, "{sums:?}");
        assert!(over < HISTORIES / 4);
    }
}
