//! Models of the words of leases: spends beside the end of a lease, units that come back late, and sweeps.

use super::*;
use crate::core::lease_words::LeaseWords;
use crate::core::lease_words::word::{LeaseWord, TICK_NS};
use crate::core::view::LimitsView;
use crate::store::key::KeyRef;
use crate::store::{Outdated, StoreKey};

/// The words of a limiter's leases, and one bucket of limit A.
#[derive(Clone)]
struct Node {
    limiter: Limiter,
    words: Arc<LeaseWords>,
}

impl Node {
    /// Makes a node with a lease of 3 units until a time.
    fn new(until_ns: u64) -> Node {
        let node =
            Node { limiter: limiter(1, 1).0, words: Arc::new(LeaseWords::new(Engine::Exact, 8)) };
        node.grant(until_ns);
        node
    }

    fn grant(&self, until_ns: u64) {
        let lease = LeaseWord::lease(until_ns, 3).unwrap();
        assert!(self.with_key(|words, view, key| words.set(view, key, lease, 1)));
    }

    fn with_key<R>(
        &self,
        call: impl Fn(&LeaseWords, LimitsView<'_>, &StoreKey<'_>) -> Result<R, Outdated>,
    ) -> R {
        self.limiter.inner.with_view(|view| {
            let index = self.limiter.limit("A").unwrap().index;
            let key = KeyRef { limit: index, id: b"k" };
            let (_, tag) = view.generation.limits.entry(index).limit_for(key.id, 1).unwrap();
            call(&self.words, view, &self.words.key(view, key, tag))
        })
    }

    /// Spends units at a time. Returns how many, and the end of their lease.
    fn spend(&self, cost: u64, now_ns: u64) -> (u64, u64) {
        self.with_key(|words, view, key| {
            let spent = words.spend(view, key, (cost, true), now_ns)?;
            Ok(spent.map_or((0, 0), |(_, until_ns)| (cost, until_ns)))
        })
    }

    fn give_back(&self, units: u64, until_ns: u64, now_ns: u64) {
        let _ =
            self.with_key(|words, view, key| words.give_back(view, key, (until_ns, units), now_ns));
    }

    /// Ends the lease; returns the units that go back to the store.
    fn take(&self) -> u64 {
        self.with_key(|words, view, key| words.take(view, key, 1)).units()
    }
}

/// Excluded: units that go back to the store are spent here as well.
fn lease_end_vs_spend_model() {
    let node = Node::new(9 * TICK_NS);
    let (spender, batch) = (node.clone(), node.clone());
    let spender = loom::thread::spawn(move || spender.spend(1, 1).0);
    let batch = loom::thread::spawn(move || {
        let (taken, until_ns) = batch.spend(2, 1);
        if taken > 0 {
            batch.give_back(taken, until_ns, 1);
        }
    });
    let returned = node.take();
    let spent = spender.join().unwrap();
    batch.join().unwrap();
    let left = node.spend(3, 1).0 + node.spend(2, 1).0 + node.spend(1, 1).0;
    count(match (spent, returned) {
        (0, 3) => "ended before",
        (1, 2) => "ended after",
        _ => "ended between",
    });
    assert!(spent + returned + left <= 3, "more units than granted: {spent} {returned} {left}");
}

#[test]
fn lease_end_vs_spend() {
    explore_bounded(Some(3), lease_end_vs_spend_model);
    assert_happened(&["ended before", "ended after", "ended between"]);
    let model = lease_end_vs_spend_model;
    fails_bounded(Some(3), Fault::LeaseTakenByLoad, "more units than granted", model);
}

/// Excluded: units of a lease that is over come to the next one.
fn late_units_vs_next_lease_model() {
    let node = Node::new(9 * TICK_NS);
    let (taken, until_ns) = node.spend(2, 1);
    let late = node.clone();
    let late = loom::thread::spawn(move || late.give_back(taken, until_ns, 1));
    let sweeper = node.clone();
    let sweeper = loom::thread::spawn(move || {
        sweeper.limiter.inner.with_view(|view| {
            sweeper.words.sweep(8, 9 * TICK_NS, view);
            Ok(())
        });
    });
    let returned = node.take();
    node.grant(20 * TICK_NS);
    late.join().unwrap();
    sweeper.join().unwrap();
    count(if returned == 3 { "back before" } else { "too late" });
    let left = node.spend(3, 1).0;
    assert_eq!(left, 3, "the next lease was swept");
    assert_eq!(node.spend(1, 1).0, 0, "more units than the next lease has");
}

#[test]
fn late_units_vs_next_lease() {
    explore_bounded(Some(3), late_units_vs_next_lease_model);
    assert_happened(&["back before", "too late"]);
    let model = late_units_vs_next_lease_model;
    fails_bounded(Some(3), Fault::UnitsBackToAnyLease, "more units than the next", model);
}
