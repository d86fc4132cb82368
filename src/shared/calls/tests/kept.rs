//! Charges that a caller keeps, and gives back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::algorithm::factor::Factor;
use crate::http::tower::charge::GiveBack;
use crate::limiter::batch::MemberMode;
use crate::shared::SharedMember;
use crate::shared::block_on;
use crate::shared::calls::asked::SharedCall;
use crate::shared::calls::batch::Begun;
use crate::shared::calls::kept::{DecidedBatch, MemberCharge};
use crate::util::sync::{AtomicU64, Ordering};

impl Node {
    /// Spends a batch, and keeps its charges.
    fn keep(&self, members: &[SharedMember<'_>]) -> DecidedBatch {
        match self.limiter.shared_batch(members).begin(SharedCall::SPEND.keeping()).unwrap() {
            Begun::Asks(asked) => self.answer(asked.ask()).unwrap().unwrap(),
            Begun::Decided(decided) => decided,
            Begun::Local => panic!("a member is shared"),
        }
    }

    /// Gives charges back, to their end.
    fn give_back<'c>(&self, charges: impl IntoIterator<Item = &'c MemberCharge>) {
        charges.into_iter().for_each(GiveBack::give_back);
        while self.store.run_all() > 0 {}
    }

    /// The calls of the store, and the errors of the limit of all nodes.
    fn calls_and_errors(&self) -> (u64, u64) {
        let counters = self.limiter.counters();
        (counters.store().unwrap().calls, counters.limits[1].errors)
    }
}

/// A node that holds 8 units of each id.
fn leasing(ids: &[&str]) -> Node {
    let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
    let node = node_with(limits_of((10, 64), leased));
    for id in [ids, ids].concat() {
        node.hand.advance(MS);
        assert!(node.answer(node.all.spend(id, 1)).unwrap().allowed());
    }
    node
}

/// Another node of the same store, which answers it at once.
fn other_node(node: &Node) -> SharedLimit {
    let store = StoreHandle { store: node.store.inner.clone(), prefix: Box::default() };
    let options = LimiterOptions::default().clock(node.limiter.inner.clock.clone());
    let limits = (*node.limiter.limits()).clone();
    Limiter::with_options(limits, options.store(Store(store))).unwrap().shared("All").unwrap()
}

/// In a cluster, where one of the texts is no bucket. Another node has leases that end at the same time.
#[test]
fn leases_of_slots_go_back_once() {
    const IDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let node = leasing(&IDS);
    let others = other_node(&node);
    for id in [IDS, IDS].concat() {
        node.hand.advance(MS);
        assert!(block_on(others.spend(id, 1)).unwrap().allowed());
    }
    assert!(IDS.iter().all(|id| now(others.check(id, 8)).unwrap().allowed()), "from leases");
    node.store.inner.put("All:h", "12 apples");
    *node.store.is_split.lock() = true;
    let error = node.answer(node.limiter.give_leases_back()).unwrap_err();
    assert!(error.is_store_failure() && error.to_string().contains("12 apples"), "{error}");
    for id in &IDS[..7] {
        let left = node.answer(node.all.check(id, 0)).unwrap().remaining();
        assert_eq!(left, Some(64 - 4 - 8), "{id}: four are spent, and the other node holds 8");
    }
}

#[test]
fn each_member_has_its_own_charge() {
    const IDS: [&str; 3] = ["a", "b", "c"];
    for given_back in 0..6 {
        let node = leasing(&IDS);
        let left = || {
            let own = IDS.map(|id| node.own.check(id, 0).unwrap().remaining().unwrap());
            let held = IDS.map(|id| now(node.all.check(id, 0)).unwrap().remaining().unwrap());
            [own, held].concat()
        };
        let mut expected = vec![10, 10, 10, 8, 8, 8];
        assert_eq!(left(), expected);
        let cost_of = |position: usize| position as u64 + 1;
        let members: Vec<_> = (0..6)
            .map(|position| {
                let id = IDS[position / 2];
                let member = match position % 2 {
                    0 => node.own.member(id).into(),
                    _ => node.all.member(id),
                };
                member.cost(cost_of(position))
            })
            .collect();
        let decided = node.keep(&members);
        let order = [0, 2, 4, 1, 3, 5];
        expected.iter_mut().zip(order).for_each(|(left, position)| *left -= cost_of(position));
        assert_eq!(left(), expected);
        node.give_back([decided.members[given_back].charge.as_ref().unwrap()]);
        let at = order.iter().position(|&position| position == given_back).unwrap();
        expected[at] += cost_of(given_back);
        assert_eq!(left(), expected, "that of member {given_back}");
    }
}

#[test]
fn checked_and_denied_members_keep_no_charge() {
    let node = node();
    assert!(node.is_allowed(3));
    let checked = node.all.member("a").cost(2).mode(MemberMode::CheckOnly);
    let decided = node.keep(&[node.own.member("a").into(), checked]);
    let has_charge = |decided: &DecidedBatch| {
        decided.members.iter().map(|member| member.charge.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(has_charge(&decided), [true, false]);
    let denied = node.keep(&[node.own.member("a").into(), node.all.member("a").cost(3)]);
    assert!(!denied.decision.allowed());
    assert_eq!(has_charge(&denied), [false, false]);
    assert_eq!(node.left(), (Some(9), Some(2)));
}

#[test]
fn failed_returns_and_settlements_are_counted() {
    let node = node();
    let decided = node.keep(&[node.all.member("a").cost(2)]);
    let (_, receipt) = node.answer(node.all.spend_estimate("a", 2)).unwrap();
    node.set_outage(true);
    let charge = decided.members[0].charge.as_ref().unwrap();
    node.give_back([charge]);
    assert_eq!(node.calls_and_errors().1, 1);
    drop(receipt.unwrap().settle(1));
    while node.store.run_all() > 0 {}
    assert_eq!(node.calls_and_errors().1, 2);
    node.set_outage(false);
    assert_eq!(node.left().1, Some(1));
}

#[test]
fn charges_beside_lease_requests_come_back() {
    let node = leasing(&[]);
    let other = other_node(&node);
    // The first call asks for no lease, the second one does.
    for left in [64, 64 - 8] {
        node.hand.advance(MS);
        let decided = node.keep(&[node.all.member("a").cost(9)]);
        let before = node.calls_and_errors().0;
        node.give_back(decided.members.iter().filter_map(|member| member.charge.as_ref()));
        assert_eq!(node.calls_and_errors().0 - before, 1);
        assert_eq!(block_on(other.check("a", 0)).unwrap().remaining(), Some(left));
    }
}

/// The units of a lease that the node does not hold any more come back to the bucket in the store.
#[test]
fn units_of_ended_leases_come_back() {
    for ends in ["not", "by its time", "by the next lease", "by a denial", "by a reload"] {
        let node = leasing(&["a"]);
        let other = other_node(&node);
        let decided = node.keep(&[node.all.member("a").cost(4)]);
        match ends {
            "by its time" => node.hand.advance(Duration::from_secs(2)),
            "by the next lease" => assert!(node.is_allowed(5)),
            "by a denial" => {
                assert!(node.is_allowed(4) && node.is_allowed(54) && !node.is_allowed(1));
            }
            "by a reload" => {
                let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
                let _ = node.limiter.reload(limits_of((11, 64), leased)).unwrap();
                while node.store.run_all() > 0 {}
            }
            _ => {}
        }
        let left = || block_on(other.check("a", 0)).unwrap().remaining().unwrap();
        let (before, calls) = (left(), node.calls_and_errors().0);
        node.give_back(decided.members.iter().filter_map(|member| member.charge.as_ref()));
        let back = if ends == "not" { 0 } else { 4 };
        let calls = node.calls_and_errors().0 - calls;
        assert_eq!((calls, left()), (back / 4, before + back), "ended {ends}");
    }
}

#[test]
fn members_of_denied_batches_show_their_buckets() {
    let node = node();
    assert!(node.answer(node.all.spend("b", 3)).unwrap().allowed());
    let denied = node.keep(&[node.all.member("a").cost(2), node.all.member("b").cost(3)]);
    assert_eq!(denied.decision.denied_by(), Some(1));
    let left = denied.members.iter().map(|member| member.decision.remaining());
    assert_eq!(left.collect::<Vec<_>>(), [5, 2].map(Some));
}

#[test]
fn returns_find_the_text_of_their_member() {
    let node = node();
    assert!(node.is_allowed(4));
    let decided = node.keep(&[node.all.member("a"), node.all.member("b").cost(3)]);
    assert!(decided.decision.allowed());
    node.give_back([decided.members[1].charge.as_ref().unwrap()]);
    let left = ["a", "b"].map(|id| node.answer(node.all.check(id, 0)).unwrap().remaining());
    assert_eq!(left, [0, 5].map(Some));
}

/// The batch gives its units back before its members are looked at.
#[test]
fn leases_of_denied_batches_show_their_units() {
    let node = leasing(&["a", "b"]);
    assert!(node.answer(node.all.block("b", MINUTE)).is_ok());
    let denied = node.keep(&[node.all.member("a").cost(2), node.all.member("b")]);
    assert_eq!(denied.decision.denied_by(), Some(1));
    assert_eq!(denied.members[0].decision.remaining(), Some(8));
    assert_eq!(now(node.all.check("a", 0)).unwrap().remaining(), Some(8));
}

/// Calls that are sent together share the lease that one of them gets, and can give its units back.
#[test]
fn units_taken_after_a_denial_come_back() {
    let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
    let node = node_with(limits_of((100, 64), leased));
    assert!(node.is_allowed(1));
    node.hand.advance(MS);
    let members = [node.own.member("a").into(), node.all.member("a")];
    let batch = node.limiter.shared_batch(&members);
    let begin = |_| match batch.begin(SharedCall::SPEND.keeping()).unwrap() {
        Begun::Asks(asked) => Box::pin(asked.ask()),
        Begun::Decided(_) | Begun::Local => panic!("the store has to be asked"),
    };
    let mut calls: Vec<_> = (0..80).map(begin).collect();
    assert!(calls.iter_mut().all(|call| poll(call.as_mut()).is_pending()));
    node.store.run_all();
    let decided = calls.iter_mut().map(|call| answered(call.as_mut()).unwrap().unwrap());
    let decided: Vec<DecidedBatch> = decided.collect();
    assert_eq!(decided.iter().filter(|it| it.decision.allowed()).count(), 63);
    assert_eq!(node.left(), (Some(100 - 63), Some(0)));
    node.give_back(decided.iter().flat_map(|it| &it.members).filter_map(|it| it.charge.as_ref()));
    node.answer(node.limiter.give_leases_back()).unwrap();
    assert_eq!(node.left(), (Some(100), Some(63)));
}

/// A lease that a denied batch would have given up is the node's again.
#[test]
fn denied_batches_show_the_lease_they_leave() {
    let node = leasing(&["a"]);
    assert!(node.answer(node.all.spend("b", 64)).unwrap().allowed());
    let denied = node.keep(&[node.all.member("a").cost(20), node.all.member("b").cost(2)]);
    assert_eq!(denied.decision.denied_by(), Some(1));
    assert_eq!(denied.members[0].decision.remaining(), Some(64 - 2));
    assert_eq!(now(node.all.check("a", 0)).unwrap().remaining(), Some(8));
    let checked = node.answer(node.all.check("a", 9)).unwrap();
    assert_eq!(checked.remaining(), Some(64 - 2 - 9));
}

#[test]
fn shadows_of_claims_are_their_own() {
    let shadow = Limit::new(3, 1, MINUTE).unwrap();
    let limit = Limit::new(10, 1, MINUTE).unwrap();
    let tried = LimitOptions::default().shadow(shadow);
    let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
    let limits = limits.limit_with("All", IdFormat::String, limit.clone(), exact()).unwrap();
    let limits = limits.limit_with("Tried", IdFormat::String, limit, tried).unwrap();
    let node = node_with(limits.build());
    let tried = node.limiter.limit("Tried").unwrap();
    for round in 0..4 {
        let decided = node.keep(&[
            node.own.member("a").into(),
            node.all.member("a"),
            tried.member("a").cost(3).into(),
        ]);
        assert!(decided.decision.allowed());
        let would_deny = node.limiter.counters().limits[2].shadow_denied;
        assert_eq!(would_deny, 0, "each charge has come back to its shadow: {round}");
        node.give_back(decided.members.iter().filter_map(|member| member.charge.as_ref()));
    }
}

#[test]
fn units_of_another_limits_lease_stay() {
    let node = leasing(&["a"]);
    let other = other_node(&node);
    let decided = node.keep(&[node.all.member("a").cost(4)]);
    let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
    let _ = node.limiter.reload(limits_of((10, 32), leased)).unwrap();
    while node.store.run_all() > 0 {}
    let left = || block_on(other.check("a", 0)).unwrap().remaining().unwrap();
    let before = left();
    node.give_back(decided.members.iter().filter_map(|member| member.charge.as_ref()));
    assert_eq!(left(), before);
}

#[test]
fn returns_with_a_factor_count_as_local_ones() {
    let leaky = Limit::leaky_bucket(10, 2, Duration::from_secs(10)).unwrap();
    let limits = Limits::builder().limit("Own", IdFormat::String, leaky.clone()).unwrap();
    let node =
        node_with(limits.limit_with("All", IdFormat::String, leaky, exact()).unwrap().build());
    let factor = Factor::from_millionths(500_000);
    let of = [node.own.member("a").into(), node.all.member("a")]
        .map(|it: SharedMember| it.cost(4).factor(factor));
    let decided = node.keep(&of);
    assert!(decided.decision.allowed());
    node.hand.advance(Duration::from_secs(13));
    node.give_back(decided.members.iter().filter_map(|member| member.charge.as_ref()));
    for seconds in [0, 3, 5] {
        node.hand.advance(Duration::from_secs(seconds));
        let own = node.own.check("a", 0).unwrap();
        let all = node.answer(node.all.check("a", 0)).unwrap();
        assert_eq!((own.remaining(), own.reset_in()), (all.remaining(), all.reset_in()));
    }
}

/// The clock was read between the local charges and what gives them back.
#[test]
fn panic_after_local_charges_gives_them_back() {
    for panic_at in 1..4 {
        let reads = Arc::new(AtomicU64::new(1000));
        let by = reads.clone();
        let clock = Clock::custom(move || {
            assert!(by.fetch_add(1, Ordering::Relaxed) != 500 + panic_at, "planted");
            Duration::from_secs(1)
        });
        let store = SlowStore::new(Clock::manual().0);
        let handle = StoreHandle { store: Arc::new(store.clone()), prefix: Box::default() };
        let options = LimiterOptions::default().clock(clock).store(Store(handle));
        let limiter = Limiter::with_options(limits_of((10, 5), exact()), options).unwrap();
        let (own, all) = (limiter.limit("Own").unwrap(), limiter.shared("All").unwrap());
        assert!(own.spend("a", 5).unwrap().allowed());
        reads.store(500, Ordering::Relaxed);
        let members = [own.member("a").cost(2).into(), all.member("a")];
        let batch = limiter.shared_batch(&members);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut call = Box::pin(batch.spend());
            poll(call.as_mut()).is_pending()
        }));
        reads.store(1000, Ordering::Relaxed);
        while store.run_all() > 0 {}
        let left = own.check("a", 0).unwrap().remaining();
        assert!(result.is_ok() || left == Some(5), "reading {panic_at}: {left:?}");
    }
}
