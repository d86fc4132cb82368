//! Checks beside leases.

use super::*;

#[test]
fn checks_count_the_lease_of_their_node() {
    let node = leasing(64);
    node.take_lease("a");
    let check = |cost| block_on(node.all.check("a", cost)).unwrap();
    for (cost, left) in [(8, Some(0)), (11, Some(7)), (18, Some(0)), (19, None)] {
        let decision = check(cost);
        assert_eq!(
            (decision.allowed(), decision.allowed().then(|| decision.remaining().unwrap())),
            (left.is_some(), left)
        );
    }
    let batch = [node.own.member("a").into(), node.all.member("a").cost(18)];
    assert!(block_on(node.limiter.shared_batch(&batch).check()).unwrap().allowed());
    assert!(node.without_store(8).unwrap().allowed(), "a check takes nothing from the lease");
    assert!(check(10).allowed() && !check(11).allowed());
    assert!(block_on(node.all.spend("a", 10)).unwrap().allowed());
}

#[test]
fn checks_count_what_their_lease_has_left() {
    let node = leasing(64);
    node.take_lease("a");
    assert!(node.without_store(3).unwrap().allowed());
    let check = |cost| block_on(node.all.check("a", cost)).unwrap();
    assert_eq!(check(15).remaining(), Some(0));
    assert!(!check(16).allowed());
}

#[test]
fn checks_count_each_members_own_lease() {
    let node = leasing(64);
    node.take_lease("b");
    assert!(block_on(node.all.spend("a", 12)).unwrap().allowed());
    let check = |cost| {
        let members = [node.all.member("a").cost(8), node.all.member("b").cost(cost)];
        block_on(node.limiter.shared_batch(&members).check()).unwrap()
    };
    assert!(check(18).allowed());
    assert_eq!(check(19).denied_by(), Some(1));
}

/// Their units were not taken from the lease.
#[test]
fn denied_batches_give_no_checked_units_back() {
    let node = leasing(100);
    node.take_lease("a");
    assert!(block_on(node.all.spend("b", 20)).unwrap().allowed());
    assert!(node.without_store(5).unwrap().allowed());
    let checked = node.all.member("a").cost(3).mode(MemberMode::CheckOnly);
    let batch = [checked, node.all.member("b").cost(5)];
    let denied = block_on(node.limiter.shared_batch(&batch).spend()).unwrap();
    assert_eq!(denied.denied_by(), Some(1));
    assert!(node.without_store(3).unwrap().allowed());
    assert_eq!(node.without_store(1), None);
}

/// The store denies the batch, and has charged nothing.
#[test]
fn checked_members_of_spends_count_no_lease() {
    let node = leasing(64);
    node.take_lease("a");
    for (cost, allowed) in [(10, true), (11, false)] {
        let checked = node.all.member("a").cost(cost).mode(MemberMode::CheckOnly);
        let members = [checked, node.all.member("b")];
        let decision = block_on(node.limiter.shared_batch(&members).spend()).unwrap();
        assert_eq!(decision.allowed(), allowed, "{cost}");
    }
    assert_eq!(node.left("b"), Some(19));
}
