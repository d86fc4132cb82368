//! Leases that end, are given up, or stand beside denials and limits of another generation.

use super::*;
use crate::shared::block_on;
use crate::util::sync::{Ordering, Switch};

/// A call that gave its lease up and got no other gives up nothing more.
#[test]
fn leases_are_given_up_once() {
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let limit = Limit::new(40, 1, 100 * MS).unwrap();
    let leased = LimitOptions::default().shared(Shared::Leased).lease(10_000 * MS);
    let limits =
        Limits::builder().limit_with("All", IdFormat::String, limit, leased).unwrap().build();
    let node = || {
        let options = LimiterOptions::default().clock(clock.clone()).store(store.clone());
        let limiter = Limiter::with_options(limits.clone(), options).unwrap();
        let all = limiter.shared("All").unwrap();
        (limiter, all)
    };
    let ((other, others), (_one, ones)) = (node(), node());
    for all in [&others, &ones] {
        for _ in 0..2 {
            hand.advance(MS);
            assert!(block_on(all.spend("a", 1)).unwrap().allowed());
        }
    }
    assert!(
        here(&others, others.check("a", 8)).unwrap().allowed()
            && here(&ones, ones.spend("a", 8)).unwrap().allowed()
    );
    // All that is left: no units to lease.
    assert!(block_on(ones.spend("a", 20)).unwrap().allowed());
    for _ in 0..3 {
        hand.advance(150 * MS);
        assert!(block_on(ones.spend("a", 1)).unwrap().allowed());
    }
    let before = block_on(ones.explain("a", 0)).unwrap().call.unwrap().state.remaining();
    assert_eq!(block_on(other.give_leases_back()).unwrap(), 1);
    let after = block_on(ones.explain("a", 0)).unwrap().call.unwrap().state.remaining();
    assert_eq!((before, after.map(|it| it - 8)), (after.map(|it| it - 8), before));
}

#[test]
fn calls_of_nothing_take_no_lease() {
    let node = leasing(100);
    for _ in 0..3 {
        node.hand.advance(MS);
        assert!(block_on(node.all.spend("a", 0)).unwrap().allowed());
    }
    assert_eq!(node.without_store(1), None);
    assert_eq!(node.limiter.counters().store().unwrap().leases, 0);
}

#[test]
fn local_denials_need_no_store() {
    let node = leasing(100);
    assert!(node.own.spend("a", 5).unwrap().allowed());
    let members = [node.own.member("a").into(), node.all.member("a")];
    let (batch, calls) = (node.limiter.shared_batch(&members), node.store.calls());
    let denied = now(batch.spend()).unwrap();
    assert_eq!(denied.denied_by(), Some(0));
    for answer in [now(batch.check()), now(batch.spend())] {
        assert_eq!(answer.unwrap(), denied);
    }
    assert_eq!(node.store.calls(), calls);
}

#[test]
fn reservations_wait_for_the_end_of_leases() {
    use crate::shared::protocol::SharedMode;
    use crate::shared::protocol::change::{BucketChange, Step};
    use crate::shared::protocol::lease::LeaseRequest;
    use crate::shared::protocol::text::SharedBucket;
    let at_ns = 1_790_000_000_000_000_000;
    let limit = Limit::new(20, 10, Duration::from_secs(1)).unwrap();
    let request = LeaseRequest { want: 8, length_ms: 10_000, end: None };
    let (leased, _) = SharedBucket::default().with_lease(&limit, at_ns, request).unwrap();
    let text = leased.text(&limit);
    let reserved = |units| {
        let member = StoreMember {
            key: "a".into(),
            limit: limit.clone(),
            unscaled: None,
            cost: 0,
            mode: SharedMode::CheckOnly,
            keep_ms: 0,
            lease: None,
        };
        let step = Step::Reserve { units, at_most_ns: u64::MAX };
        BucketChange { member, step }.stepped(Some(text.as_bytes()), at_ns).unwrap().new
    };
    assert!(reserved(12).is_some(), "granted at once");
    assert_eq!(reserved(13), None, "none waits beside leases");
}

#[test]
fn one_unknown_text_leaves_the_other_leases() {
    let node = leasing(100);
    node.take_lease("a");
    node.take_lease("b");
    let handle = &node.limiter.inner.part().unwrap().handle;
    handle.store.put(&format!("{}All:a", handle.prefix), "12 apples");
    assert!(block_on(node.limiter.give_leases_back()).unwrap_err().is_store_failure());
    assert_eq!(block_on(node.all.check("b", 0)).unwrap().remaining(), Some(18));
}

#[test]
fn requests_by_old_limits_end() {
    use crate::shared::protocol::leases::LeasedBucket;
    use crate::store::key::KeyRef;
    use crate::store::pin;
    let node = leasing(100);
    let inner = &*node.limiter.inner;
    let guard = pin();
    let old = inner.view(&guard);
    let _ = node.limiter.reload(leased_limits(21)).unwrap();
    node.take_lease("a");
    let (leases, now_ns) = (inner.leases().unwrap(), inner.clock.now_ns());
    let index = inner.view(&guard).generation.limits.index_of("All").unwrap();
    let name = format!("{}All:a", inner.part().unwrap().handle.prefix);
    let begin = |view: crate::core::view::LimitsView<'_>| {
        let entry = view.generation.limits.entry(index);
        let (_, tag) = entry.limit_for(b"a", view.limits_ns(now_ns)).unwrap();
        let key = leases.words.key(view, KeyRef { limit: index, id: b"a" }, tag);
        let bucket = LeasedBucket { key, name: &name, length_ns: 1_000_000_000, burst: 20 };
        leases.begin(view, bucket, now_ns).map(|asking| asking.is_some())
    };
    assert!(begin(old).is_err(), "its word is of newer limits");
    assert!(begin(inner.view(&guard)).unwrap(), "no other call asks");
}

#[test]
fn kept_denials_answer_no_cost_above_the_burst() {
    let node = leasing(100);
    assert!(block_on(node.all.spend("a", 20)).unwrap().allowed());
    assert!(!block_on(node.all.spend("a", 3)).unwrap().allowed());
    assert!(!node.without_store(4).unwrap().allowed(), "the denial is kept");
    let error = block_on(node.all.spend("a", 21)).unwrap_err();
    assert!(error.is_cost_above_burst(), "{error}");
    assert!(node.all.spend_here("a", 21).is_none());
}

#[test]
fn leases_are_not_spent_while_off() {
    let node = leasing(100);
    node.take_lease("a");
    assert!(block_on(node.all.spend("b", 20)).unwrap().allowed());
    assert!(!block_on(node.all.spend("b", 3)).unwrap().allowed());
    node.limiter.set_enabled(false);
    assert_eq!(here(&node.all, node.all.spend("a", 3)).unwrap().remaining(), None);
    assert!(
        here(&node.all, node.all.spend("b", 3)).unwrap().allowed()
            && block_on(node.all.spend("b", 3)).unwrap().allowed()
    );
    node.limiter.set_enabled(true);
    assert!(node.without_store(8).unwrap().allowed());
}

#[test]
fn ended_leases_make_room() {
    let node = leasing(1);
    node.take_lease("first");
    node.hand.advance(3_000 * MS);
    while !node.limiter.inner.sweep(1_000, 0).finished {}
    node.take_lease("a");
    assert!(node.without_store(1).unwrap().allowed());
}

/// With the system's clock, by which calls take the fast path.
#[test]
fn fast_paths_refuse_as_general_ones_do() {
    let store = Store::in_memory(Clock::system());
    let limit = Limit::new(20, 1, MINUTE).unwrap();
    let leased = LimitOptions::default().shared(Shared::Leased).lease(10_000 * MS);
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit, leased).unwrap();
    let options = LimiterOptions::default().store(store.clone());
    let limiter = Limiter::with_options(limits.build(), options).unwrap();
    let all = limiter.shared("All").unwrap();
    for _ in 0..2 {
        assert!(block_on(all.spend("a", 1)).unwrap().allowed());
    }
    assert_eq!(here(&all, all.check("a", 0)).unwrap().remaining(), Some(8));
    assert!(block_on(all.spend("b", 20)).unwrap().allowed());
    // A denial is kept for 2 ms until a call asks again, and this thread may stand still for longer.
    let is_kept = (0..1_000).any(|_| {
        assert!(!block_on(all.spend("b", 3)).unwrap().allowed());
        all.spend_here("b", 3).is_some_and(|kept| !kept.allowed())
    });
    assert!(is_kept);
    limiter.set_enabled(false);
    assert_eq!(here(&all, all.spend("a", 3)).unwrap().remaining(), None);
    assert!(
        here(&all, all.spend("b", 3)).unwrap().allowed()
            && block_on(all.spend("b", 3)).unwrap().allowed()
    );
    limiter.set_enabled(true);
    assert_eq!(here(&all, all.check("a", 0)).unwrap().remaining(), Some(8));
    let error = block_on(all.spend("b", 21)).unwrap_err();
    assert!(error.is_cost_above_burst(), "{error}");
    assert!(all.spend_here("b", 21).is_none());
}

#[test]
fn words_of_ended_leases_are_swept() {
    let node = leasing(1_000);
    for id in 0..100 {
        node.take_lease(&id.to_string());
    }
    node.hand.advance(3_000 * MS);
    for _ in 0..3 {
        while !node.limiter.inner.sweep(1_000, 0).finished {}
    }
    let leases = node.limiter.inner.leases().unwrap();
    assert_eq!(leases.words.cells(), 0);
}

/// A lease that is granted between the taking of the leases by a reload and its new limits: the next call gives it back.
#[test]
fn leases_granted_within_a_reload_come_back() {
    let node = leasing(100);
    let reloading = node.limiter.inner.begin_reload();
    node.take_lease("a");
    assert_eq!(node.without_store(1), None, "the lease has no word");
    drop(reloading);
    assert!(block_on(node.all.spend("a", 1)).unwrap().allowed());
    assert_eq!(block_on(node.all.check("a", 0)).unwrap().remaining(), Some(17));
    node.take_lease("a");
    assert!(node.without_store(1).unwrap().allowed());
}

/// The node asks the store for the other ids, without a lease.
#[test]
fn records_of_leases_are_at_most_the_keys() {
    let node = leasing(20);
    for id in 0..50 {
        node.take_lease(&id.to_string());
    }
    let ids = || node.limiter.counters().store().unwrap().leased_ids;
    assert_eq!(ids(), 20);
    assert!(block_on(node.all.spend("another", 3)).unwrap().allowed());
    // Idle ids make room for others, without a sweep.
    node.hand.advance(60_000 * MS);
    node.take_lease("later");
    assert!(here(&node.all, node.all.spend("later", 1)).unwrap().allowed());
    assert!(ids() < 20);
}

#[test]
fn a_reload_that_panics_leaves_leases() {
    let node = leasing(100);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _reloading = node.limiter.inner.begin_reload();
        panic!("planted");
    }));
    assert!(result.is_err());
    node.take_lease("a");
    assert!(node.without_store(1).unwrap().allowed(), "the lease has its word");
}

#[test]
fn reloads_drop_words_of_old_limits() {
    let node = leasing(1_000);
    for id in 0..100 {
        node.take_lease(&id.to_string());
    }
    let cells = || node.limiter.inner.leases().unwrap().words.cells();
    assert_eq!(cells(), 100);
    assert!(node.limiter.reload(leased_limits(21)).unwrap().changed);
    assert_eq!(cells(), 0);
}

/// The records are searched for ended leases once a second while they are at the cap.
#[test]
fn records_are_searched_once_a_second() {
    let node = leasing(20);
    for id in 0..20 {
        node.take_lease(&id.to_string());
    }
    let records = || node.limiter.inner.leases().unwrap().records();
    node.hand.advance(20_000 * MS);
    node.take_lease("first");
    let after = records();
    assert!(after < 20);
    for id in 0..20 {
        node.take_lease(&format!("more-{id}"));
    }
    assert_eq!(records(), 20);
}

/// The clock panics while the reload gives the leases up.
#[test]
fn a_reload_that_panics_at_its_beginning_ends() {
    let is_planted = Arc::new(Switch::new(false));
    let by = is_planted.clone();
    let clock = Clock::custom(move || {
        assert!(!by.load(Ordering::Relaxed), "planted");
        MINUTE
    });
    let options = LimiterOptions::default().clock(clock.clone()).store(Store::in_memory(clock));
    let limiter = Limiter::with_options(leased_limits(20), options).unwrap();
    let all = limiter.shared("All").unwrap();
    is_planted.store(true, Ordering::Relaxed);
    let begin = std::panic::AssertUnwindSafe(|| drop(limiter.inner.begin_reload()));
    assert!(std::panic::catch_unwind(begin).is_err());
    is_planted.store(false, Ordering::Relaxed);
    let held = |_| {
        assert!(block_on(all.spend("a", 1)).unwrap().allowed());
        all.spend_here("a", 1).is_some()
    };
    assert!((0..5).any(held), "a lease has its word");
}
