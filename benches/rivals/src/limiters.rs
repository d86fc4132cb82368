//! Makes each limiter from the same rule.

use std::hash::{BuildHasher, Hash};

use governor::RateLimiter;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use tollgate::limits::LimitsBuilder;
use tollgate::options::Engine;
use tollgate::{IdFormat, KeyedLimit, Limiter, LimiterOptions, Limits};

use crate::rule::Rule;

/// Options of Tollgate's table.
#[derive(clap::Args, Clone, Copy)]
pub struct TableArgs {
    /// Measures Tollgate's `DashMap` engine (`Engine::Exact`) instead of its default.
    #[arg(long)]
    exact: bool,
    /// Has Tollgate count its calls (`LimiterOptions::counting`).
    #[arg(long)]
    counting: bool,
    /// Has Tollgate reserve memory for this number of keys (`LimiterOptions::reserve`).
    #[arg(long, default_value_t = 0)]
    reserve: usize,
}

impl TableArgs {
    pub fn options(self) -> LimiterOptions {
        let engine = if self.exact { Engine::Exact } else { Engine::default() };
        let options = LimiterOptions::default().engine(engine).counting(self.counting);
        options.reserve(self.reserve)
    }
}

/// The names of Tollgate's limits, whose ids are text, UUIDs as text, numbers, pairs of a number and text, and addresses.
pub const TEXT: &str = "Text";
pub const UUID: &str = "Uuid";
pub const NUMBER: &str = "Number";
pub const PAIR: &str = "Pair";
pub const ADDRESS: &str = "Address";

/// Makes the limits of a rule; overrides can be added.
pub fn limits(rule: Rule) -> LimitsBuilder {
    let add = |limits: LimitsBuilder, name, format| limits.limit(name, format, rule.tollgate());
    let limits = add(Limits::builder(), TEXT, IdFormat::String).expect("a name of its own");
    let limits = add(limits, UUID, IdFormat::String).expect("a name of its own");
    let limits = add(limits, NUMBER, IdFormat::RegId).expect("a name of its own");
    let pair = IdFormat::tuple(&[IdFormat::RegId, IdFormat::String]).expect("two fields");
    let limits = add(limits, PAIR, pair).expect("a name of its own");
    add(limits, ADDRESS, IdFormat::IpAddress).expect("a name of its own")
}

/// Makes the limits of a rule, with overrides of the same parameters for these ids.
pub fn limits_with_overrides<'a>(rule: Rule, ids: impl Iterator<Item = &'a str>) -> LimitsBuilder {
    ids.fold(limits(rule), |limits, id| {
        limits.override_id(TEXT, id, rule.tollgate()).expect("each id once")
    })
}

pub fn tollgate(rule: Rule, options: LimiterOptions) -> Limiter {
    Limiter::with_options(limits(rule).build(), options).unwrap()
}

pub fn handle(limiter: &Limiter, name: &str) -> KeyedLimit {
    limiter.limit(name).expect("a limit of this name")
}

/// governor with a given hasher and clock.
pub type Governor<K, S, C> =
    RateLimiter<K, DashMapStateStore<K, S>, C, NoOpMiddleware<<C as Clock>::Instant>>;

pub fn governor<K, S, C>(rule: Rule, clock: C) -> Governor<K, S, C>
where
    K: Hash + Eq + Clone,
    S: BuildHasher + Default + Clone,
    C: Clock,
{
    RateLimiter::new(rule.governor(), DashMapStateStore::with_hasher(S::default()), clock)
}

pub fn rate_net(rule: Rule) -> rate_net::RateLimiter {
    // Room for all keys: the default cap of about a million keys would evict some.
    rule.rate_net().eviction(rate_net::Eviction::unbounded()).build()
}
