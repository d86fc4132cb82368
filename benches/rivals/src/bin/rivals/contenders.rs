//! The limiters behind one trait.

use std::hash::BuildHasher;

use governor::clock::DefaultClock;
use rivals::keys::Keys;
use rivals::limiters::{self, Governor, NUMBER, TEXT};
use rivals::rule::Rule;
use tollgate::{Decision, Error, KeyedLimit, LimiterOptions};

use crate::work::{Answer, Work};

/// Makes the calls of a whole round, behind one dynamic call.
pub(crate) trait Contender: Sync {
    /// Spends one unit of each of these keys; returns the number of expected answers.
    fn call_all(&self, keys: &Keys, order: &[u32], wanted: Answer) -> usize;
}

/// The keys of one call for many keys.
const MANY: usize = 16;

struct TollgateText(KeyedLimit);
struct TollgateNumber(KeyedLimit);
struct TollgateMany(KeyedLimit);

pub(crate) fn tollgate(work: Work, rule: Rule, options: LimiterOptions) -> Box<dyn Contender> {
    let limiter = limiters::tollgate(rule, options);
    let text = || limiters::handle(&limiter, TEXT);
    match work {
        Work::SpendString | Work::DeniedString => Box::new(TollgateText(text())),
        Work::SpendU64 => Box::new(TollgateNumber(limiters::handle(&limiter, NUMBER))),
        Work::Many16String => Box::new(TollgateMany(text())),
    }
}

/// Compares an answer; an error is never the expected one.
#[inline]
fn says(decision: &Result<Decision, Error>, wanted: Answer) -> bool {
    decision.as_ref().is_ok_and(|decision| Answer::of(decision.allowed()) == wanted)
}

impl Contender for TollgateText {
    fn call_all(&self, keys: &Keys, order: &[u32], wanted: Answer) -> usize {
        order.iter().filter(|&&i| says(&self.0.spend(keys.text(i), 1), wanted)).count()
    }
}

impl Contender for TollgateNumber {
    fn call_all(&self, keys: &Keys, order: &[u32], wanted: Answer) -> usize {
        order.iter().filter(|&&i| says(&self.0.spend(keys.number(i), 1), wanted)).count()
    }
}

impl Contender for TollgateMany {
    fn call_all(&self, keys: &Keys, order: &[u32], wanted: Answer) -> usize {
        let mut decisions = Vec::with_capacity(MANY);
        let calls = order.chunks(MANY).map(|many| {
            decisions.clear();
            self.0.spend_many(many.iter().map(|&i| keys.text(i)), 1, &mut decisions);
            decisions.iter().filter(|decision| says(decision, wanted)).count()
        });
        calls.sum()
    }
}

/// Spends with governor, which looks up a `String` by `&String`: the caller writes each key into one `String`.
struct GovernorText<S: BuildHasher + Clone>(Governor<String, S, DefaultClock>);
struct GovernorNumber<S: BuildHasher + Clone>(Governor<u64, S, DefaultClock>);

pub(crate) fn governor<S>(work: Work, rule: Rule) -> Box<dyn Contender>
where
    S: BuildHasher + Clone + Default + Send + Sync + 'static,
{
    let clock = DefaultClock::default();
    match work {
        Work::SpendU64 => Box::new(GovernorNumber::<S>(limiters::governor(rule, clock))),
        Work::SpendString | Work::Many16String | Work::DeniedString => {
            Box::new(GovernorText::<S>(limiters::governor(rule, clock)))
        }
    }
}

impl<S: BuildHasher + Clone + Send + Sync> Contender for GovernorText<S> {
    fn call_all(&self, keys: &Keys, order: &[u32], wanted: Answer) -> usize {
        let mut key = String::with_capacity(32);
        let calls = order.iter().filter(|&&i| {
            key.clear();
            key.push_str(keys.text(i));
            Answer::of(self.0.check_key(&key).is_ok()) == wanted
        });
        calls.count()
    }
}

impl<S: BuildHasher + Clone + Send + Sync> Contender for GovernorNumber<S> {
    fn call_all(&self, keys: &Keys, order: &[u32], wanted: Answer) -> usize {
        let says = |&&i: &&u32| Answer::of(self.0.check_key(&keys.number(i)).is_ok()) == wanted;
        order.iter().filter(says).count()
    }
}

struct RateNetText(rate_net::RateLimiter);
struct RateNetNumber(rate_net::RateLimiter);

pub(crate) fn rate_net(work: Work, rule: Rule) -> Box<dyn Contender> {
    let limiter = limiters::rate_net(rule);
    match work {
        Work::SpendU64 => Box::new(RateNetNumber(limiter)),
        Work::SpendString | Work::Many16String | Work::DeniedString => {
            Box::new(RateNetText(limiter))
        }
    }
}

impl Contender for RateNetText {
    fn call_all(&self, keys: &Keys, order: &[u32], wanted: Answer) -> usize {
        let says = |&&i: &&u32| Answer::of(self.0.check_bytes(keys.text(i)).is_allow()) == wanted;
        order.iter().filter(says).count()
    }
}

impl Contender for RateNetNumber {
    fn call_all(&self, keys: &Keys, order: &[u32], wanted: Answer) -> usize {
        let says = |&&i: &&u32| {
            let key = rate_net::Key::id(keys.number(i));
            Answer::of(self.0.check(key).is_allow()) == wanted
        };
        order.iter().filter(says).count()
    }
}
