//! Leases of one node beside other calls.

mod checks;
mod edges;

use std::time::SystemTime;

use super::*;
use crate::clock::ManualClock;
use crate::decision::Decision;
use crate::limiter::batch::MemberMode;
use crate::limits::OverrideOptions;
use crate::shared::block_on;

/// A node on a store in memory with its clock: a limit of this node, and a leased one of 20 units, each of one a minute.
struct Leasing {
    limiter: Limiter,
    store: Store,
    hand: ManualClock,
    own: KeyedLimit,
    all: SharedLimit,
}

fn leased_limits(burst: u64) -> Limits {
    let limit = |burst| Limit::new(burst, 1, MINUTE).unwrap();
    let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
    let limits = Limits::builder().limit("Own", IdFormat::String, limit(5)).unwrap();
    limits.limit_with("All", IdFormat::String, limit(burst), leased).unwrap().build()
}

fn leasing(max_keys: usize) -> Leasing {
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let options = LimiterOptions::default().clock(clock).store(store.clone()).counting(true);
    let limiter = Limiter::with_options(leased_limits(20), options.max_keys(max_keys)).unwrap();
    let (own, all) = (limiter.limit("Own").unwrap(), limiter.shared("All").unwrap());
    Leasing { limiter, store, hand, own, all }
}

impl Leasing {
    /// Spends two units of an id, the second with a request for a lease: then it has 8.
    fn take_lease(&self, id: &str) {
        for _ in 0..2 {
            self.hand.advance(MS);
            assert!(block_on(self.all.spend(id, 1)).unwrap().allowed());
        }
    }

    fn without_store(&self, cost: u64) -> Option<Decision> {
        self.all.spend_here("a", cost)
    }

    /// The units that all nodes together still have.
    fn left(&self, id: &str) -> Option<u64> {
        block_on(self.limiter.give_leases_back()).unwrap();
        block_on(self.all.check(id, 0)).unwrap().remaining()
    }
}

/// The table has a place for the lease again when a call is denied.
#[test]
fn leases_without_a_word_meet_a_place() {
    for denies in [false, true] {
        let node = leasing(1);
        node.hand.advance(900 * MS);
        node.take_lease("first");
        node.hand.advance(200 * MS);
        node.take_lease("second");
        node.hand.advance(950 * MS);
        while !node.limiter.inner.sweep(1_000, 0).finished {}
        if denies {
            assert!(!block_on(node.all.spend("second", 19)).unwrap().allowed());
        }
        assert!(block_on(node.all.spend("second", 18)).unwrap().allowed(), "denies: {denies}");
    }
}

/// Of calls that are sent together one gets a lease. The others take its units when the store has none left for them.
#[test]
fn calls_together_share_the_lease() {
    let node = node_with(leased_limits(20));
    assert!(node.is_allowed(1));
    node.hand.advance(MS);
    let mut calls: Vec<_> = (0..30).map(|_| Box::pin(node.all.spend("a", 1))).collect();
    assert!(calls.iter_mut().all(|call| poll(call.as_mut()).is_pending()));
    node.store.run_all();
    let decisions = calls.iter_mut().map(|call| answered(call.as_mut()).unwrap());
    assert_eq!(decisions.filter(Decision::allowed).count(), 19);
    assert_eq!(node.counts()[1], (20, 11));
    assert_eq!(node.left().1, Some(0));
}

#[test]
fn checks_count_leases_without_a_word() {
    let node = leasing(1);
    node.take_lease("first");
    node.take_lease("second");
    assert!(block_on(node.all.check("second", 18)).unwrap().allowed());
    assert!(block_on(node.all.spend("second", 18)).unwrap().allowed());
}

/// A call that is not sent would not get another lease.
#[test]
fn calls_that_are_not_sent_keep_the_lease() {
    let node = node_with_lease();
    let held = || node.limiter.counters().store().unwrap().held_units;
    assert_eq!(held(), 8);
    node.set_outage(true);
    *node.store.is_unready.lock() = true;
    assert!(!node.is_allowed(15), "by the policy");
    assert_eq!(held(), 8);
    assert!(node.is_allowed(1), "by the lease");
    *node.store.is_unready.lock() = false;
    assert!(!node.is_allowed(15), "by the policy");
    assert_eq!(held(), 0, "the store may have got the call, and ended the lease");
}

/// A forgotten name has another index when it is back, and another limit may have its old one.
#[test]
fn leases_follow_a_forgotten_names_index() {
    let node = leasing(1_000);
    node.take_lease("a");
    let Leasing { limiter, hand, own, all, .. } = node;
    drop((own, all));
    let named = |names: &[&str]| {
        let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
        let limit = Limit::new(20, 1, MINUTE).unwrap();
        let add = |builder: crate::limits::LimitsBuilder, name: &&str| {
            builder.limit_with(name, IdFormat::String, limit.clone(), leased.clone()).unwrap()
        };
        names.iter().fold(Limits::builder(), add).build()
    };
    assert_eq!(limiter.reload(named(&["Other"])).unwrap().removed, ["Own", "All"]);
    limiter.reload(named(&["Other", "More", "Still", "All"])).unwrap();
    let handles = ["More", "Still", "All"].map(|name| limiter.shared(name).unwrap());
    let spend = |handle: &SharedLimit| {
        hand.advance(MS);
        assert!(block_on(handle.spend("a", 1)).unwrap().allowed());
    };
    for handle in &handles {
        spend(handle);
        spend(handle);
        spend(handle);
    }
    block_on(limiter.give_leases_back()).unwrap();
    let left = handles.each_ref().map(|it| block_on(it.check("a", 0)).unwrap().remaining());
    // The store knows nothing of the reloads: two units of All were spent before.
    assert_eq!(left, [Some(17), Some(17), Some(15)]);
}

/// A reset and a refund give nothing back that a node still holds, and say so.
#[test]
fn resets_and_refunds_show_what_nodes_hold() {
    {
        let limit = Limit::new(20, 1, MINUTE).unwrap();
        let leased = LimitOptions::default().shared(Shared::Leased);
        let limits = Limits::builder().limit_with("All", IdFormat::String, limit, leased).unwrap();
        let (clock, hand) = Clock::manual();
        let store = Store::in_memory(clock.clone());
        let node = || {
            let options = LimiterOptions::default().clock(clock.clone()).store(store.clone());
            Limiter::with_options(limits.clone().build(), options).unwrap().shared("All").unwrap()
        };
        let (one, other) = (node(), node());
        for _ in 0..2 {
            hand.advance(MS);
            assert!(block_on(one.spend("a", 1)).unwrap().allowed());
        }
        let shown = |decision: Decision| (decision.remaining(), decision.reset_in());
        let refunded = block_on(other.refund("a", 1)).unwrap();
        assert!(refunded.allowed() && refunded.remaining() == Some(11), "{refunded:?}");
        assert_eq!(shown(refunded), shown(block_on(other.check("a", 0)).unwrap()));
        let reset = block_on(other.reset("a")).unwrap();
        assert!(reset.allowed() && reset.remaining() == Some(12), "{reset:?}");
        assert_eq!(shown(reset), shown(block_on(other.check("a", 0)).unwrap()));
    }
}

#[test]
fn batches_without_io_spend_from_leases() {
    let node = leasing(100);
    node.take_lease("a");
    let calls = node.store.calls();
    let members =
        |own, all| [node.own.member("a").cost(own).into(), node.all.member("a").cost(all)];
    let batch = |own, all| now(node.limiter.shared_batch(&members(own, all)).spend());
    assert_eq!(batch(2, 3).unwrap().remaining(), Some(3));
    assert_eq!(
        now(node.limiter.shared_batch(&members(1, 5)).check()).unwrap().remaining(),
        Some(0)
    );
    assert_eq!(batch(4, 1).unwrap().denied_by(), Some(0), "the local member denies");
    assert_eq!(node.own.check("a", 0).unwrap().remaining(), Some(3), "given back");
    assert_eq!(node.store.calls(), calls, "5 units are left of the lease");
    assert_eq!(batch(3, 5).unwrap().remaining(), Some(0));
    let counters = node.limiter.counters();
    let all = counters.limits.iter().find(|limit| limit.name == "All").unwrap();
    // A decision from a lease does not have the rest of the bucket, so it is not counted as near.
    assert_eq!((all.allowed, all.near, all.cost), (4, 0, 10));
    assert_eq!(node.left("a"), Some(10));
}

#[test]
fn denials_are_kept_until_units_come_back() {
    let node = leasing(100);
    assert!(block_on(node.all.spend("a", 19)).unwrap().allowed());
    let asked = block_on(node.all.spend("a", 3)).unwrap();
    assert_eq!((asked.allowed(), asked.remaining()), (false, Some(1)));
    assert_eq!(node.without_store(3), Some(asked));
    let less = node.without_store(2).unwrap();
    assert_eq!((less.remaining(), less.retry_in()), (Some(1), MINUTE), "another cost");
    assert_eq!(node.without_store(1), None, "the bucket may have it");
    assert!(!here(&node.all, node.all.check("a", 4)).unwrap().allowed());
    let _ = block_on(node.all.refund("a", 5)).unwrap();
    assert_eq!(node.without_store(3), None);
    assert!(block_on(node.all.spend("a", 5)).unwrap().allowed());
    assert!(!block_on(node.all.spend("a", 9)).unwrap().allowed());
    assert!(!node.without_store(9).unwrap().allowed());
    node.hand.advance(100 * MS);
    assert_eq!(node.without_store(9), None, "after the time for which it is kept");
    assert!(
        now(node.all.spend("a", 21)).unwrap_err().is_cost_above_burst()
            || node.without_store(20).is_none()
    );
}

#[test]
fn overdrawn_buckets_fill_after_they_allow() {
    let node = leasing(100);
    assert!(block_on(node.all.spend("a", 19)).unwrap().allowed());
    let _ = node.limiter.reload(leased_limits(3)).unwrap();
    let asked = block_on(node.all.spend("a", 3)).unwrap();
    let kept = node.without_store(3).unwrap();
    assert!(!asked.allowed() && kept == asked, "{asked:?} {kept:?}");
    assert!(kept.reset_in() >= kept.retry_in() && kept.retry_in() > 10 * MINUTE, "{kept:?}");
}

#[test]
fn denials_end_with_a_reload() {
    let node = leasing(100);
    assert!(block_on(node.all.spend("a", 19)).unwrap().allowed());
    assert!(!block_on(node.all.spend("a", 3)).unwrap().allowed());
    assert!(!node.without_store(3).unwrap().allowed());
    let _ = node.limiter.reload(leased_limits(30)).unwrap();
    assert_eq!(node.without_store(3), None, "a denial under the limit before");
    assert!(block_on(node.all.spend("a", 3)).unwrap().allowed());
}

#[test]
fn denials_end_with_an_override() {
    let (clock, hand) = Clock::manual();
    let leased = LimitOptions::default().shared(Shared::Leased).lease(10_000 * MS);
    let until = OverrideOptions::default().expires(SystemTime::now() + MINUTE);
    let limit = |burst| Limit::new(burst, 1, MINUTE).unwrap();
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit(40), leased).unwrap();
    let limits = limits.override_with("All", "a", limit(20), until).unwrap().build();
    let options = LimiterOptions::default().clock(clock.clone()).store(Store::in_memory(clock));
    let all = Limiter::with_options(limits, options).unwrap().shared("All").unwrap();
    hand.advance(55_000 * MS);
    assert!(block_on(all.spend("a", 20)).unwrap().allowed());
    assert!(!block_on(all.spend("a", 20)).unwrap().allowed());
    assert!(!here(&all, all.spend("a", 20)).unwrap().allowed(), "without the store");
    hand.advance(9_500 * MS);
    assert!(all.spend_here("a", 20).is_none(), "by another limit");
}

#[test]
fn records_of_idle_buckets_are_dropped() {
    let node = leasing(8_000);
    for id in 0..10_000 {
        node.hand.advance(MS);
        assert!(block_on(node.all.spend(id.to_string().as_str(), 1)).unwrap().allowed());
    }
    // Those of the last second, and no more than that again before they are looked through.
    let records = node.limiter.inner.leases().unwrap().records();
    assert!((1_000..=4_000).contains(&records), "{records}");
}

#[test]
fn blocks_end_leases_of_their_node() {
    let node = leasing(100);
    node.take_lease("a");
    assert!(node.without_store(1).unwrap().allowed());
    block_on(node.all.block("a", MINUTE)).unwrap();
    assert_eq!(node.without_store(0), None, "the lease is dropped");
    let asked = block_on(node.all.spend("a", 1)).unwrap();
    assert!(asked.blocked(), "the store knows it");
    node.hand.advance(MS);
    let denied = node.without_store(1).unwrap();
    assert!(denied.blocked() && denied.retry_in() == MINUTE - MS, "{denied:?}");
    assert!(block_on(node.all.unblock("a")).unwrap());
    assert_eq!(node.without_store(1), None);
    assert!(block_on(node.all.spend("a", 1)).unwrap().allowed());
    assert_eq!(node.left("a"), Some(16), "no unit of the lease is lost");
}

#[test]
fn reloads_and_ends_give_leases_back() {
    let node = leasing(100);
    node.take_lease("a");
    assert!(node.without_store(3).unwrap().allowed());
    let _ = node.limiter.reload(leased_limits(30)).unwrap();
    assert_eq!(node.without_store(1), None, "the lease is given back");
    assert_eq!(node.left("a"), Some(25), "5 units were spent");
    node.take_lease("b");
    assert_eq!(block_on(node.limiter.give_leases_back()).unwrap(), 1);
    assert_eq!(block_on(node.limiter.give_leases_back()).unwrap(), 0);
    assert_eq!(node.left("b"), Some(28));
}

#[test]
fn ids_beyond_the_cap_lose_no_units() {
    let node = leasing(1);
    node.take_lease("first");
    let mut allowed = 0;
    for _ in 0..60 {
        node.hand.advance(MS);
        let decision = block_on(node.all.spend("second", 1)).unwrap();
        allowed += u64::from(decision.allowed());
    }
    assert_eq!(allowed, 20);
    assert_eq!(node.left("first"), Some(18));
}

/// A denied call keeps a lease for which the table had no place, and the next one gives it back.
#[test]
fn denials_keep_leases_without_a_word() {
    let node = leasing(1);
    node.take_lease("first");
    node.take_lease("second");
    assert!(!block_on(node.all.spend("second", 19)).unwrap().allowed());
    assert!(block_on(node.all.spend("second", 18)).unwrap().allowed());
}

#[test]
fn other_clocks_take_no_leases() {
    let store = Store::in_memory(Clock::manual().0);
    for clock in [Clock::manual().0, Clock::custom(|| MINUTE), Clock::coarse(MS).unwrap()] {
        let options = LimiterOptions::default().clock(clock).store(store.clone());
        let all = Limiter::with_options(leased_limits(20), options).unwrap().shared("All").unwrap();
        for _ in 0..5 {
            assert!(all.spend_here("a", 1).is_none());
            assert!(block_on(all.spend("a", 1)).unwrap().allowed());
        }
        let _ = block_on(all.reset("a")).unwrap();
    }
}

#[test]
fn leases_end_before_those_of_the_store() {
    let node = leasing(100);
    node.take_lease("a");
    // The store's lease ends at 2 s, and the node's a thousandth and a millisecond earlier.
    node.hand.advance(1_994 * MS);
    assert!(node.without_store(1).unwrap().allowed());
    node.hand.advance(MS);
    assert_eq!(node.without_store(1), None);
}

/// In the last moments of a lease the store still has it, and a spend gives it back.
#[test]
fn ended_leases_count_for_checks_as_well() {
    for checks in [false, true] {
        let node = leasing(100);
        node.take_lease("a");
        assert!(node.without_store(1).unwrap().allowed());
        node.hand.advance(1_996 * MS);
        assert_eq!(node.without_store(1), None, "the node's lease has ended");
        if checks {
            assert!(block_on(node.all.check("a", 17)).unwrap().allowed(), "10 and 7");
            assert!(!block_on(node.all.check("a", 18)).unwrap().allowed());
        }
        assert!(block_on(node.all.spend("a", 17)).unwrap().allowed(), "after checks: {checks}");
    }
}

/// The denied call has lost the lease, so the next one finds the bucket without its units.
#[test]
fn denials_of_ended_leases_are_not_kept() {
    let node = leasing(100);
    node.take_lease("a");
    node.hand.advance(1_996 * MS);
    assert!(!block_on(node.all.spend("a", 19)).unwrap().allowed());
    assert_eq!(node.without_store(19), None);
    let asked = block_on(node.all.spend("a", 19)).unwrap();
    assert_eq!(node.without_store(19), Some(asked));
}

/// The time of a block is its own: a call may have to wait longer, because the bucket does not have its units.
#[test]
fn kept_blocks_end_with_the_block() {
    let node = leasing(100);
    let (clock, limits) = (node.limiter.inner.clock.clone(), leased_limits(20));
    let options = LimiterOptions::default().clock(clock).store(node.store.clone());
    let other = Limiter::with_options(limits, options).unwrap().shared("All").unwrap();
    assert!(block_on(other.spend("a", 15)).unwrap().allowed());
    block_on(other.block("a", 100 * MS)).unwrap();
    let asked = block_on(node.all.spend("a", 10)).unwrap();
    assert!(asked.blocked() && asked.retry_in() > 4 * MINUTE, "{asked:?}");
    let kept = node.without_store(1).unwrap();
    assert!(kept.blocked() && kept.retry_in() == 100 * MS, "{kept:?}");
    node.hand.advance(MS);
    assert_eq!(node.without_store(1).unwrap().retry_in(), 99 * MS);
    node.hand.advance(99 * MS);
    assert_eq!(node.without_store(1), None);
    assert!(block_on(node.all.spend("a", 1)).unwrap().allowed());
}

#[test]
fn denied_batches_give_leased_units_back() {
    let node = leasing(100);
    node.take_lease("a");
    assert!(block_on(node.all.spend("b", 20)).unwrap().allowed());
    let members = [node.all.member("a").cost(3), node.all.member("b").cost(5)];
    let batch = node.limiter.shared_batch(&members);
    assert_eq!(block_on(batch.spend()).unwrap().denied_by(), Some(1), "by the store");
    assert_eq!(
        now(batch.spend()).unwrap().denied_by(),
        Some(1),
        "by the denial that the node keeps"
    );
    assert!(node.without_store(8).unwrap().allowed());
}

#[test]
fn kept_denials_give_local_charges_back() {
    let node = leasing(100);
    assert!(block_on(node.all.spend("a", 20)).unwrap().allowed());
    assert!(!block_on(node.all.spend("a", 3)).unwrap().allowed());
    let calls = node.store.calls();
    let members = [node.own.member("a").cost(2).into(), node.all.member("a").cost(3)];
    let batch = node.limiter.shared_batch(&members);
    assert_eq!(now(batch.spend()).unwrap().denied_by(), Some(1));
    assert_eq!(block_on(batch.spend()).unwrap().denied_by(), Some(1));
    let mut decisions = Vec::new();
    assert!(!block_on(batch.spend_into(&mut decisions)).unwrap().allowed());
    assert_eq!(node.store.calls(), calls);
    assert_eq!(node.own.check("a", 0).unwrap().remaining(), Some(5));
}

#[test]
fn all_of_many_leases_are_given_back() {
    let node = leasing(1_000);
    let ids: Vec<String> = (0..150).map(|id| id.to_string()).collect();
    ids.iter().for_each(|id| node.take_lease(id));
    assert_eq!(block_on(node.limiter.give_leases_back()).unwrap(), ids.len());
    for id in &ids {
        let left = block_on(node.all.check(id.as_str(), 0)).unwrap().remaining();
        assert_eq!(left, Some(18), "{id}");
    }
}

#[cfg(feature = "tower")]
#[test]
fn refunds_of_kept_charges_end_denials() {
    let node = leasing(100);
    let members = [node.all.member("a").cost(19)];
    let begun = node
        .limiter
        .shared_batch(&members)
        .begin(crate::shared::calls::asked::SharedCall::SPEND.keeping())
        .unwrap();
    let crate::shared::calls::batch::Begun::Asks(asked) = begun else {
        panic!("the store is asked")
    };
    let decided = block_on(asked.ask()).unwrap().unwrap();
    assert!(decided.decision.allowed());
    assert!(!block_on(node.all.spend("a", 3)).unwrap().allowed());
    assert!(!node.without_store(3).unwrap().allowed());
    crate::http::tower::charge::GiveBack::give_back(decided.members[0].charge.as_ref().unwrap());
    assert_eq!(node.without_store(3), None);
    assert!(block_on(node.all.spend("a", 20)).unwrap().allowed());
}
