//! Random histories of a bucket with leases, beside one bucket that makes all calls itself, and each spend from a lease when the
//! node makes it. The store and the nodes together never have more units than the one bucket.

use std::time::Duration;

use super::histories::{HISTORIES, LEASE_MS, START_NS, Text};
use super::*;
use crate::algorithm::factor::Factor;
use crate::algorithm::rule::Rule;
use crate::algorithm::timed_count::TimedCount;
use crate::core::shared::lease::{Granted, LeaseEnd, LeaseRequest};
use crate::core::shared::{SharedMember, SharedMode};
use crate::random::Random;

/// A lease, and its units that no call has spent.
struct Held {
    granted: Granted,
    unspent: u64,
}

#[derive(Default, Debug)]
struct Sums {
    calls_by_factor: u64,
    spent: u64,
    returned: u64,
    ended: u64,
}

struct History<'l> {
    own: &'l Limit,
    factors: &'l [u64],
    random: Random,
    now_ns: u64,
    text: Text,
    /// The word of the one bucket.
    one: u64,
    held: Vec<Held>,
    log: Vec<String>,
}

impl History<'_> {
    fn step(&mut self, sums: &mut Sums) {
        match self.random.below(20) {
            0..=4 => self.call(sums),
            5..=7 => self.lease(),
            8..=11 => self.spend(sums),
            12..=13 => self.give_back(sums),
            _ => {
                let ms = self.random.below(30) * self.random.below(5);
                self.now_ns += ms * NS_PER_MS + self.random.below(2) * 333_337;
                let (before, now_ms) = (self.held.len(), self.now_ns / NS_PER_MS);
                self.held.retain(|held| held.granted.until_ms > now_ms);
                sums.ended += (before - self.held.len()) as u64;
            }
        }
        let text = self.text.0.clone().unwrap_or_default();
        self.log.push(format!("{text} beside {:?}", TimedCount::from_word(self.one)));
    }

    /// The one bucket makes a call that the store or a lease has allowed. It may owe units then: a call by a factor below 1 may
    /// leave more in the bucket than the limit itself, from which a lease is spent later.
    fn charge_one(&mut self, limit: &Limit, cost: u64) {
        let word = limit.rule().owe(self.one, rule_time_ns(self.now_ns), cost, u64::MAX / 2);
        self.one = word.unwrap_or_else(|| panic!("{:#?}", self.log));
    }

    fn call(&mut self, sums: &mut Sums) {
        let factor = Factor::from_millionths(self.random.pick(self.factors));
        let limit = self.own.scaled(factor).unwrap().unwrap();
        let cost = 1 + self.random.below(limit.burst().min(2 * self.own.burst()));
        self.say(format!("spends {cost} by {factor}"));
        let unscaled = (factor != Factor::ONE).then(|| Box::new(self.own.clone()));
        if self
            .charge(SharedMember { limit: limit.clone(), unscaled, ..self.member(cost) })
            .is_some()
        {
            sums.calls_by_factor += u64::from(factor != Factor::ONE);
            self.charge_one(&limit, cost);
        }
    }

    fn member(&self, cost: u64) -> SharedMember {
        SharedMember {
            key: "a".into(),
            limit: self.own.clone(),
            unscaled: None,
            keeps_ledger: true,
            cost,
            mode: SharedMode::CheckAndSpend,
            keep_ms: 0,
            lease: None,
        }
    }

    fn charge(&mut self, member: SharedMember) -> Option<Option<Granted>> {
        self.text.call(&member, self.now_ns).map(|(_, granted)| granted)
    }

    fn lease(&mut self) {
        let want = 1 + self.random.below(self.own.burst());
        self.say(format!("leases {want}"));
        let request = LeaseRequest { want, length_ms: LEASE_MS, end: None };
        let Some(granted) = self.charge(SharedMember { lease: Some(request), ..self.member(1) })
        else {
            return;
        };
        self.charge_one(&self.own.clone(), 1);
        self.held.extend(granted.map(|granted| Held { granted, unspent: granted.units }));
    }

    fn spend(&mut self, sums: &mut Sums) {
        let Some(at) = self.pick_held() else { return };
        let units = self.random.below(self.held[at].unspent + 1);
        self.say(format!("spends {units} of {}", self.held[at].unspent));
        if units > 0 {
            self.held[at].unspent -= units;
            sums.spent += units;
            self.charge_one(&self.own.clone(), units);
        }
    }

    fn give_back(&mut self, sums: &mut Sums) {
        let Some(at) = self.pick_held() else { return };
        let Held { granted: Granted { units, tag_ms, .. }, unspent } = self.held.swap_remove(at);
        self.say(format!("{unspent} of {units} come back"));
        let end = LeaseEnd { tag_ms, granted: units, unspent };
        let (own, now_ns) = (self.own, self.now_ns);
        let is_back =
            self.text.change(own, now_ns, |bucket| bucket.without_lease(own, now_ns, end));
        assert!(is_back, "{:#?}", self.log);
        sums.returned += 1;
    }

    fn pick_held(&mut self) -> Option<usize> {
        let count = self.held.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    fn say(&mut self, what: String) {
        let at_ms = (self.now_ns - START_NS) as f64 / NS_PER_MS as f64;
        self.log.push(format!("at {at_ms} ms {what}"));
    }

    /// The time or the units until the bucket is full.
    fn used(&self, word: u64, at_ns: u64) -> u64 {
        let now_ns = rule_time_ns(at_ns);
        match self.own.rule() {
            Rule::LeakyBucket(leaky) => leaky.counter_at(word, now_ns),
            _ => word.saturating_sub(now_ns),
        }
    }

    /// The units by which the store may have more, because its drips come earlier: units of a lost lease have kept it from being
    /// empty, and a call by a factor below 1 counts its own drips since the last one. The longest drip time of the factors has
    /// this many of the shortest.
    fn tolerance(&self) -> u64 {
        let drips = self.factors.iter().max().unwrap() / self.factors.iter().min().unwrap();
        match self.own.rule() {
            Rule::LeakyBucket(leaky) => drips * u64::from(leaky.drip_size),
            _ => 0,
        }
    }

    /// All leases are spent now in the one bucket, and end in the store.
    fn check(&self) {
        let unit = self.own.rule().gcra().map_or(1, |gcra| gcra.emission_interval_ns());
        for at_ns in (0..12).map(|later| self.now_ns + later * 7 * NS_PER_MS) {
            let held = self.held.iter().filter(|held| held.granted.until_ms > at_ns / NS_PER_MS);
            let unspent: u64 = held.map(|held| held.unspent).sum();
            let store = self.used(self.text.word(self.own, at_ns), at_ns);
            let one = self.used(self.one, at_ns) + unspent * unit;
            let least = one.saturating_sub(self.tolerance());
            assert!(least <= store, "{} at {at_ns}: {store}, not {one}: {:#?}", self.own, self.log);
        }
    }
}

#[test]
fn leases_have_no_more_than_one_bucket() {
    let leaky = |size, rate_ms, drip| {
        Limit::leaky_bucket(size, Duration::from_millis(rate_ms), drip).unwrap()
    };
    let gcra = |burst, ns| Limit::new(burst, 1, Duration::from_nanos(ns)).unwrap();
    const ONE: u64 = 1_000_000;
    let fast: &[u64] = &[ONE, ONE, ONE, 250_000, 500_000, 700_000];
    let any: &[u64] = &[ONE, ONE, 250_000, 700_000, 1_500_000, 3_000_000];
    let leaky = [leaky(40, 8, 1), leaky(200, 8, 3), leaky(120, 40, 2)];
    let by = |factors| move |own: &Limit| (own.clone(), factors);
    let gcra = [gcra(10, 7_333_333), gcra(4, 25_000_000)];
    let limits = gcra.iter().chain(&leaky).map(by(any)).chain(leaky.iter().map(by(fast)));
    for (own, factors) in limits {
        let mut sums = Sums::default();
        for seed in 0..HISTORIES {
            let mut history = History {
                own: &own,
                factors,
                random: Random(seed * 1_000_000),
                now_ns: START_NS + seed,
                text: Text::default(),
                one: 0,
                held: Vec::new(),
                log: vec![format!("seed {seed}")],
            };
            for _ in 0..6 + seed % 40 {
                history.step(&mut sums);
                history.check();
            }
        }
        println!("{own}: {sums:?}");
        let Sums { calls_by_factor, spent, returned, ended } = sums;
        assert!([calls_by_factor, spent, returned, ended].iter().all(|sum| *sum > HISTORIES / 4));
    }
}
