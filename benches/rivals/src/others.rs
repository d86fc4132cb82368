//! Limiters that stand beside because users know them, though each promises something else.

use std::sync::Arc;
use std::time::Duration;

use pingora_limits::rate::Rate;
use ratelimit::Ratelimiter;
use runlimit_core::{Check, GcraPolicy, KeyHasher, PolicyId, ScopeId};
use runlimit_memory::{GcraStore, MemoryStoreConfig};

use crate::ids::{Key, Text};
use crate::work::{Contender, Outcome, Setup, Who};

/// The interval in which pingora-limits counts.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// More keys would take minutes and gigabytes.
pub(crate) const MOST_KEYS: usize = 1_000_000;
/// The shards of runlimit's table. By default it has one, behind one lock.
const SHARDS: usize = 64;

/// Returns the limiters that take one key. pingora-limits estimates how often each key came, in constant memory, and may deny a
/// key because of others: none of its denials can be checked.
pub(crate) fn single<K: Key>(setup: Setup, keys: &Arc<[K]>) -> Vec<Contender> {
    let runlimit = Runlimit::new(setup);
    let mut all = vec![Contender::new(Who::Runlimit, keys, move |key: &K| {
        let check = runlimit.check_of(&runlimit.policies[0], key);
        runlimit.store.check(&check).expect("a table with room").is_allowed()
    })];
    if setup.outcome == Outcome::Allowed {
        let (rate, most) = (Rate::new(DAY), isize::MAX);
        all.push(Contender::new(Who::Pingora, keys, move |key: &K| rate.observe(key, 1) <= most));
    }
    all
}

/// Returns the limiter that has batches.
pub(crate) fn batch_of_2(setup: Setup, keys: &Arc<[(Text, u64)]>) -> Contender {
    let runlimit = Runlimit::new(setup);
    Contender::new(Who::Runlimit, keys, move |(text, number)| {
        let [first, second] = &runlimit.policies;
        let checks = [runlimit.check_of(first, text), runlimit.check_of(second, number)];
        runlimit.store.check_all(&checks).expect("a table with room").permits_request()
    })
}

/// Returns the limiter that has no keys.
pub(crate) fn bucket(setup: Setup, keys: &Arc<[()]>) -> Contender {
    let rule = setup.rule();
    let limiter = Ratelimiter::builder(1)
        .period(rule.interval())
        .max_tokens(rule.burst().into())
        .initial_available(rule.burst().into())
        .build()
        .expect("a rate that is valid");
    Contender::new(Who::Ratelimit, keys, move |()| limiter.try_wait().is_ok())
}

/// runlimit's table with two limits. It has a keyed SHA-256 of each id in place of the id.
struct Runlimit {
    store: GcraStore,
    policies: [GcraPolicy; 2],
    hasher: KeyHasher,
}

impl Runlimit {
    fn new(setup: Setup) -> Runlimit {
        // Each shard has its part of the room, and the keys are not spread evenly.
        let config = MemoryStoreConfig::new(4 * (setup.keys + SHARDS));
        let config = config.and_then(|config| config.with_shard_count(SHARDS)).expect("room");
        let policies = ["first", "second"].map(|scope| {
            let id = PolicyId::new("rule").expect("a name");
            let scope = ScopeId::new(scope).expect("a name");
            let (burst, interval) = setup.rule().within_285_years();
            GcraPolicy::new(id, scope, 1, interval, burst).expect("a rule that is valid")
        });
        let hasher = KeyHasher::new([7; 32]).expect("32 bytes");
        Runlimit { store: GcraStore::new(config), policies, hasher }
    }

    fn check_of<'p>(&self, policy: &'p GcraPolicy, key: &impl Key) -> Check<'p, GcraPolicy> {
        Check::new(policy, key.with_bytes(|bytes| self.hasher.hash_for(policy, bytes)))
    }
}
