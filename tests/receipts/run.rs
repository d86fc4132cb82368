//! One run: a limiter with random limits, and calls that are compared with the model after each.

use std::time::Duration;

use tollgate::batch::{Member, MemberMode};
use tollgate::clock::ManualClock;
use tollgate::limits::LimitOptions;
use tollgate::options::Engine;
use tollgate::reserve::Receipt;
use tollgate::{
    ConcurrencyLimit, Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits,
};

use super::model::{Answer, Bucket, Mark, NS_PER_MS, Rule};
use super::random::Random;
use super::support;

const BATCHES_PER_RUN: u64 = 1_000;
/// The receipts that are held at once.
const MOST_HELD: usize = 6;
const NAMES: [&str; 8] = ["G1", "G2", "G3", "Fixed", "Tokens", "Leaky", "P1", "P2"];
/// The limits of gcra come first: a batch of them alone is charged in another way.
const GCRAS: u64 = 3;
/// The first limit of permits.
const PERMITS: usize = 6;
const IDS: [&str; 3] = ["a", "b", "free"];
/// Has no limit of the name `G1`.
const FREE: Key = (0, 2);

/// A limit and an id, by their places.
type Key = (usize, usize);

/// What the runs have met: a run that meets too little tests too little.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) batches: u64,
    allowed: u64,
    denied: [u64; 3],
    refused: u64,
    below: u64,
    above: u64,
    in_debt: u64,
    dropped: u64,
    back: u64,
    swept: u64,
}

impl Seen {
    pub(crate) fn check(&self) {
        let few = self.batches / 200;
        let [first, second, third] = self.denied;
        for seen in [self.allowed, first, second, third, self.below, self.above, self.dropped] {
            assert!(seen > few, "{self:?}");
        }
        for seen in [self.refused, self.in_debt, self.back, self.swept] {
            assert!(seen > few / 20, "{self:?}");
        }
    }
}

enum Handle {
    Units(KeyedLimit),
    Permits(ConcurrencyLimit),
}

/// A charge of a member that can be settled.
struct Claim {
    position: usize,
    key: Key,
    cost: i128,
    mark: Mark,
}

struct Held {
    receipt: Receipt,
    claims: Vec<Claim>,
    permits: Vec<(Key, i128)>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    key: Key,
    cost: u64,
    leave: u64,
    mode: MemberMode,
}

struct Run<'s> {
    random: Random,
    seen: &'s mut Seen,
    limiter: Limiter,
    handles: Vec<Handle>,
    rules: Vec<Rule>,
    buckets: [[Bucket; IDS.len()]; NAMES.len()],
    held: Vec<Held>,
    hand: ManualClock,
    /// ns since the clock's origin, which is 1 ns.
    now: i128,
    /// The clock does not go back before a sweep: a new bucket would begin there.
    swept_at: i128,
}

/// Makes a run, and panics at the first difference.
pub(crate) fn run(engine: Engine, seed: u64, seen: &mut Seen) {
    let mut random = Random(seed);
    let mut builder = Limits::builder();
    let mut rules = Vec::new();
    for (at, name) in NAMES.iter().enumerate() {
        let debt = random.below(3) * random.below(6);
        let (limit, rule) = any_limit(at, debt.into(), &mut random);
        let debt = if at < PERMITS { debt } else { 0 };
        let options = LimitOptions::default().max_debt(debt);
        builder = builder.limit_with(name, IdFormat::String, limit, options).unwrap();
        rules.push(rule);
    }
    let limits = builder.override_id(NAMES[FREE.0], IDS[FREE.1], None).unwrap().build();
    let options = LimiterOptions::default().engine(engine);
    let (limiter, hand) = support::limiter_with(limits, options);
    let handle = |(at, name): (usize, &&str)| match at < PERMITS {
        true => Handle::Units(limiter.limit(name).unwrap()),
        false => Handle::Permits(limiter.concurrency(name).unwrap()),
    };
    let handles = NAMES.iter().enumerate().map(handle).collect();
    let (buckets, held, now, swept_at) = (Default::default(), Vec::new(), 1, 1);
    let mut run = Run { random, seen, limiter, handles, rules, buckets, held, hand, now, swept_at };
    run.advance(10_000 * NS_PER_MS);
    for step in 0..BATCHES_PER_RUN {
        let done = run.step();
        if let Err(difference) = done {
            panic!("RECEIPT_SEED={seed} on {engine:?}: batch {step}: {difference}");
        }
    }
    if let Err(difference) = run.end() {
        panic!("RECEIPT_SEED={seed} on {engine:?}: at the end: {difference}");
    }
}

/// A random limit of the algorithm at this place, with its rule.
fn any_limit(at: usize, debt: i128, random: &mut Random) -> (Limit, Rule) {
    let most = random.within(1, 9);
    let less = random.within(1, most);
    let ms = random.pick(&[1, 40, 700, 3_000]);
    let time = Duration::from_millis(ms);
    let [most_units, less_units, length] = [most, less, ms].map(i128::from);
    match at {
        0..=2 => {
            let interval = length * NS_PER_MS / less_units;
            let rule = Rule::Gcra { burst: most_units, interval, debt };
            (Limit::new(most, less, time).unwrap(), rule)
        }
        3 => (
            Limit::fixed_window(most, time).unwrap(),
            Rule::Window {
                quota: most_units,
                burst: most_units,
                window: length,
                debt,
                is_fixed: true,
            },
        ),
        4 => (
            Limit::token_bucket(less, most, time).unwrap(),
            Rule::Window {
                quota: most_units,
                burst: less_units,
                window: length,
                debt,
                is_fixed: false,
            },
        ),
        5 => (
            Limit::leaky_bucket(most, less, time).unwrap(),
            Rule::Leaky { size: most_units, drip: less_units, rate: length, debt },
        ),
        _ => {
            (Limit::concurrency(most).unwrap(), Rule::Permits { max: most_units, most: most_units })
        }
    }
}

impl Run<'_> {
    fn advance(&mut self, by: i128) {
        self.now = (self.now + by).max(self.swept_at);
        self.hand.set(Duration::from_nanos(u64::try_from(self.now - 1).unwrap()));
    }

    /// A batch, and what happens between two batches.
    fn step(&mut self) -> Result<(), String> {
        match self.random.below(16) {
            0..=7 => {
                let by = [1, 999_999, 1_000_000, 39_000_000, 350_000_000, 2_999_999_999];
                let by = self.random.pick(&by) * self.random.pick(&[1, 1, 4]);
                self.advance(by);
            }
            8 => {
                self.seen.back += 1;
                let by = self.random.below(4_000_000_000);
                self.advance(-i128::from(by));
            }
            9 if self.random.chance(1, 4) => {
                support::sweep_all(&self.limiter);
                self.swept_at = self.now;
                self.seen.swept += 1;
            }
            10 if self.random.chance(1, 4) => self.set_max(),
            _ => {}
        }
        while self.held.len() >= MOST_HELD || !self.held.is_empty() && self.random.chance(1, 3) {
            let at = self.random.below(self.held.len() as u64) as usize;
            self.settle(at)?;
        }
        self.batch()
    }

    fn set_max(&mut self) {
        let at = PERMITS + self.random.below((NAMES.len() - PERMITS) as u64) as usize;
        let given = self.random.below(10);
        let (Handle::Permits(handle), Rule::Permits { max, .. }) =
            (&self.handles[at], &mut self.rules[at])
        else {
            unreachable!("the limit is one of permits")
        };
        handle.set_max(given);
        *max = given.into();
    }

    fn call(&mut self, is_plain: bool, limits: u64) -> Call {
        let id = self.random.pick(&[0, 0, 0, 0, 1, 1, 1, 2]);
        let key = (self.random.below(limits) as usize, id);
        let most = self.rules[key.0].most() as u64;
        let cost = match self.random.below(16) {
            0 if !is_plain => 0,
            1 if !is_plain && self.random.chance(1, 4) => most + 1,
            2..=5 => self.random.within(1, most),
            6 => most,
            _ => 1,
        };
        let mut call = Call { key, cost, leave: 0, mode: MemberMode::CheckAndSpend };
        if !is_plain && self.random.chance(1, 4) {
            let modes = [MemberMode::CheckOnly, MemberMode::SpendOnly];
            call.mode = self.random.pick(&modes);
        }
        if !is_plain && self.random.chance(1, 4) {
            call.leave = self.random.below(3);
        }
        call
    }

    fn member(&self, call: &Call) -> Member<'_> {
        let id = IDS[call.key.1];
        let member = match &self.handles[call.key.0] {
            Handle::Units(handle) => handle.member(id),
            Handle::Permits(handle) => handle.member(id),
        };
        member.cost(call.cost).leaving(call.leave).mode(call.mode)
    }

    fn batch(&mut self) -> Result<(), String> {
        self.seen.batches += 1;
        let is_plain = self.random.chance(3, 4);
        let limits = if self.random.chance(1, 3) { GCRAS } else { NAMES.len() as u64 };
        let mut calls: [Call; 3] = std::array::from_fn(|_| self.call(is_plain, limits));
        // Few batches name a bucket twice.
        while is_twice(&calls) && self.random.chance(15, 16) {
            calls = std::array::from_fn(|_| self.call(is_plain, limits));
        }
        let [one, two, three] = &calls;
        let members = [self.member(one), self.member(two), self.member(three)];
        let answer = self.limiter.batch(&members).spend_estimate();

        let limited: Vec<(usize, Call)> =
            calls.iter().copied().enumerate().filter(|(_, call)| call.key != FREE).collect();
        let is_above =
            |call: &Call| i128::from(call.cost + call.leave) > self.rules[call.key.0].most();
        if limited.iter().any(|(_, call)| is_above(call)) || is_twice(&calls) {
            self.seen.refused += 1;
            let is_refused = answer
                .as_ref()
                .is_err_and(|error| error.is_cost_above_burst() || error.is_invalid_batch());
            if !is_refused {
                return Err(format!("{calls:?} is {answer:?}, not an error"));
            }
            return self.check_all(limited.iter().map(|(_, call)| call.key));
        }
        let (decision, receipt) = answer.map_err(|error| format!("{calls:?}: {error}"))?;
        self.compare(&calls, &limited, decision, receipt)
    }

    fn compare(
        &mut self,
        calls: &[Call; 3],
        limited: &[(usize, Call)],
        decision: Decision,
        receipt: Option<Receipt>,
    ) -> Result<(), String> {
        let mut strictest: Option<(Answer, usize)> = None;
        let mut after = Vec::new();
        for &(position, call) in limited {
            let Call { key, cost, leave, mode } = call;
            let rule = self.rules[key.0];
            let demand = (cost.into(), leave.into());
            let (bucket, own) = rule.spend(self.buckets[key.0][key.1], self.now, demand);
            after.push((position, call, bucket, own));
            if mode != MemberMode::SpendOnly {
                let is_later = strictest.is_none_or(|(found, _)| found.stricter(own) == own);
                strictest = if is_later { Some((own, position)) } else { strictest };
            }
        }
        let is_allowed = strictest.is_none_or(|(answer, _)| answer.allowed);
        let expected = strictest.map(|(answer, _)| answer);
        let denied_by = strictest.filter(|_| !is_allowed).map(|(_, position)| position);
        same(&decision, expected, || format!("{calls:?}"))?;
        if decision.denied_by() != denied_by || receipt.is_some() != is_allowed {
            return Err(format!("{calls:?}: {decision:?} {receipt:?}, denied by {denied_by:?}"));
        }
        if let Some(position) = denied_by {
            self.seen.denied[position] += 1;
        }
        if let Some(receipt) = receipt {
            self.seen.allowed += 1;
            let mut held = Held { receipt, claims: Vec::new(), permits: Vec::new() };
            for (position, Call { key, cost, mode, .. }, bucket, own) in after {
                if mode == MemberMode::CheckOnly || cost > 0 && !own.allowed {
                    continue;
                }
                self.buckets[key.0][key.1] = bucket;
                let cost = cost.into();
                match key.0 < PERMITS {
                    true => {
                        let mark = self.rules[key.0].mark(bucket);
                        held.claims.push(Claim { position, key, cost, mark });
                    }
                    false => held.permits.push((key, cost)),
                }
            }
            self.held.push(held);
        }
        self.check_all(limited.iter().map(|(_, call)| call.key))
    }

    /// Settles a receipt, one of its members, or drops it.
    fn settle(&mut self, at: usize) -> Result<(), String> {
        let mut held = self.held.swap_remove(at);
        let below = self.random.pick(&[2, 5, 12]);
        let actual = self.random.below(below);
        let way = self.random.below(8);
        let keys: Vec<Key> = (held.claims.iter().map(|claim| claim.key))
            .chain(held.permits.iter().map(|(key, _)| *key))
            .collect();
        match way {
            0..=2 => {
                let decision = held.receipt.settle(actual);
                let settled: Vec<Answer> =
                    held.claims.iter().map(|claim| self.settled(claim, actual)).collect();
                let expected = settled.into_iter().reduce(Answer::stricter);
                same(&decision, expected, || format!("settle {actual}"))?;
                self.give_back(&held.permits);
            }
            3 => {
                self.seen.dropped += 1;
                drop(held.receipt);
                self.give_back(&held.permits);
            }
            _ => {
                let position = self.random.below(4) as usize;
                let decision = held.receipt.settle_member(position, actual);
                let claim = held.claims.iter().position(|claim| claim.position == position);
                let expected = claim.map(|at| self.settled(&held.claims.remove(at), actual));
                let both = (&decision, expected);
                match both {
                    (Some(decision), Some(_)) => {
                        same(decision, expected, || format!("settle {position} to {actual}"))?;
                    }
                    (None, None) => {}
                    _ => return Err(format!("{position} is settled to {both:?}")),
                }
                self.held.push(held);
            }
        }
        self.check_all(keys.into_iter())
    }

    fn settled(&mut self, claim: &Claim, actual: u64) -> Answer {
        let Claim { key, cost, mark, .. } = *claim;
        let (rule, bucket) = (self.rules[key.0], &mut self.buckets[key.0][key.1]);
        *bucket = rule.settle(*bucket, self.now, (cost, actual.into()), mark);
        let answer = rule.check(*bucket, self.now);
        self.seen.below += u64::from(i128::from(actual) < cost);
        self.seen.above += u64::from(i128::from(actual) > cost);
        self.seen.in_debt += u64::from(!answer.allowed);
        answer
    }

    fn give_back(&mut self, permits: &[(Key, i128)]) {
        for &((limit, id), count) in permits {
            self.buckets[limit][id].used -= count;
        }
    }

    fn check_all(&mut self, keys: impl Iterator<Item = Key>) -> Result<(), String> {
        let other = (self.random.below(NAMES.len() as u64) as usize, self.random.below(2) as usize);
        keys.chain([other]).try_for_each(|key| self.check(key))
    }

    /// Compares all that a bucket's word says.
    fn check(&self, key: Key) -> Result<(), String> {
        let (name, id) = (NAMES[key.0], IDS[key.1]);
        let (rule, bucket) = (self.rules[key.0], self.buckets[key.0][key.1]);
        let decision = match &self.handles[key.0] {
            Handle::Units(handle) => handle.check(id, 0),
            Handle::Permits(handle) => {
                let out = handle.in_flight(id).unwrap();
                if i128::from(out) != bucket.used {
                    return Err(format!("{name} {id}: {out} are out, not {}", bucket.used));
                }
                handle.check(id, 0)
            }
        };
        let expected = (key != FREE).then(|| rule.check(bucket, self.now));
        same(&decision.unwrap(), expected, || format!("{name} {id} by {rule:?}"))
    }

    /// Settles all receipts. No permit is out, and no unit is lost: each bucket is as in the model, and full in time.
    fn end(mut self) -> Result<(), String> {
        while !self.held.is_empty() {
            self.settle(0)?;
        }
        let keys = || (0..NAMES.len()).flat_map(|limit| [(limit, 0), (limit, 1), (limit, 2)]);
        for _ in 0..4 {
            keys().try_for_each(|key| self.check(key))?;
            self.advance(777 * NS_PER_MS);
        }
        self.advance(1_000_000 * NS_PER_MS);
        for key in keys().filter(|&key| key != FREE) {
            self.check(key)?;
            let full = self.rules[key.0].check(Bucket::default(), self.now);
            let now = self.rules[key.0].check(self.buckets[key.0][key.1], self.now);
            if full != now {
                return Err(format!("{key:?} is not full: {now:?}"));
            }
        }
        let out = |handle: &Handle| match handle {
            Handle::Units(_) => 0,
            Handle::Permits(handle) => handle.total_in_flight(),
        };
        match self.handles.iter().map(out).sum() {
            0 => Ok(()),
            out => Err(format!("{out} permits are out")),
        }
    }
}

/// Whether two calls name one bucket. Calls that no limit applies to name none.
fn is_twice(calls: &[Call; 3]) -> bool {
    let [one, two, three] = calls.map(|call| call.key);
    let is_same = |one: Key, other: Key| one == other && one != FREE;
    is_same(one, two) || is_same(one, three) || is_same(two, three)
}

/// Compares a decision with the model's; `None`: no limit applies.
fn same(
    decision: &Decision,
    expected: Option<Answer>,
    what: impl Fn() -> String,
) -> Result<(), String> {
    let ns = |time: Duration| time.as_nanos() as i128;
    let found = decision.remaining().map(|remaining| Answer {
        allowed: decision.allowed(),
        remaining: remaining.into(),
        retry: ns(decision.retry_in()),
        reset: ns(decision.reset_in()),
    });
    if found == expected && (expected.is_some() || decision.allowed()) {
        return Ok(());
    }
    Err(format!("{}: {found:?}, not {expected:?}", what()))
}
