//! The limiters, each behind one call. A limit so wide that it never denies: what is measured is the
//! way of an allowed call.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::rounds::{Keys, Work};

/// Makes calls; a whole round of them behind one dynamic call.
pub trait Contender: Sync {
    /// Spends one unit of each of these keys; returns how many calls were admitted.
    fn spend_all(&self, keys: &Keys, work: Work, order: &[u32]) -> usize;
}

const BURST: u32 = u32::MAX;
const A_SECOND: u32 = 1_000_000;

struct Tollgate {
    text: tollgate::Handle,
    number: tollgate::Handle,
}

pub fn tollgate(_: Work) -> Box<dyn Contender> {
    use tollgate::{IdFormat, Limit, Limiter, Limits};
    let second = Duration::from_secs(1);
    let limit = Limit::new(BURST.into(), A_SECOND.into(), second).unwrap();
    let limits = Limits::builder();
    let limits = limits.limit("Text", IdFormat::String, limit).unwrap();
    let limits = limits.limit("Number", IdFormat::RegId, limit).unwrap();
    let limiter = Limiter::new(limits.build());
    let handle = |name| limiter.limit(name).unwrap();
    Box::new(Tollgate { text: handle("Text"), number: handle("Number") })
}

impl Contender for Tollgate {
    fn spend_all(&self, keys: &Keys, work: Work, order: &[u32]) -> usize {
        let admits = |decision: Result<tollgate::Decision, _>| decision.is_ok_and(|d| d.allowed());
        match work {
            Work::SpendString => {
                order.iter().filter(|&&i| admits(self.text.spend(keys.text(i), 1))).count()
            }
            Work::SpendU64 => {
                order.iter().filter(|&&i| admits(self.number.spend(keys.number(i), 1))).count()
            }
        }
    }
}

type Governor<K, S> = RateLimiter<K, DashMapStateStore<K, S>, DefaultClock>;

/// governor looks a `String` up by `&String`: the caller keeps one and writes each key into it.
struct GovernorText<S: BuildHasher + Clone>(Governor<String, S>);
struct GovernorNumber<S: BuildHasher + Clone>(Governor<u64, S>);

fn quota() -> Quota {
    let burst = NonZeroU32::new(BURST).unwrap();
    Quota::per_second(NonZeroU32::new(A_SECOND).unwrap()).allow_burst(burst)
}

fn governor<S: BuildHasher + Clone + Default + Send + Sync + 'static>(work: Work) -> Box<dyn Contender> {
    let clock = DefaultClock::default();
    match work {
        Work::SpendString => {
            let store = DashMapStateStore::with_hasher(S::default());
            Box::new(GovernorText(RateLimiter::new(quota(), store, clock)))
        }
        Work::SpendU64 => {
            let store = DashMapStateStore::with_hasher(S::default());
            Box::new(GovernorNumber(RateLimiter::new(quota(), store, clock)))
        }
    }
}

pub fn governor_default(work: Work) -> Box<dyn Contender> {
    governor::<std::hash::RandomState>(work)
}

pub fn governor_ahash(work: Work) -> Box<dyn Contender> {
    governor::<ahash::RandomState>(work)
}

impl<S: BuildHasher + Clone + Send + Sync> Contender for GovernorText<S> {
    fn spend_all(&self, keys: &Keys, _: Work, order: &[u32]) -> usize {
        let mut key = String::with_capacity(32);
        let admitted = order.iter().filter(|&&i| {
            key.clear();
            key.push_str(keys.text(i));
            self.0.check_key(&key).is_ok()
        });
        admitted.count()
    }
}

impl<S: BuildHasher + Clone + Send + Sync> Contender for GovernorNumber<S> {
    fn spend_all(&self, keys: &Keys, _: Work, order: &[u32]) -> usize {
        order.iter().filter(|&&i| self.0.check_key(&keys.number(i)).is_ok()).count()
    }
}

struct RateNet(rate_net::RateLimiter);

pub fn rate_net(_: Work) -> Box<dyn Contender> {
    let builder = rate_net::RateLimiter::builder().per_second(A_SECOND).burst(BURST);
    // Room for all keys: its default cap of about a million would evict.
    let roomy = rate_net::Eviction::unbounded();
    Box::new(RateNet(builder.eviction(roomy).build()))
}

impl Contender for RateNet {
    fn spend_all(&self, keys: &Keys, work: Work, order: &[u32]) -> usize {
        match work {
            Work::SpendString => {
                order.iter().filter(|&&i| self.0.check_bytes(keys.text(i)).is_allow()).count()
            }
            Work::SpendU64 => {
                let allows = |&&i: &&u32| self.0.check(rate_net::Key::id(keys.number(i))).is_allow();
                order.iter().filter(allows).count()
            }
        }
    }
}
