//! The units that a node admits in an outage are charged at its end.

use super::*;

/// A node that allows all calls in an outage. Its store's bucket has 5 units.
fn allowing() -> (Node, ManualClock) {
    let allow = exact().on_error(OnError::Allow).allow_for(60 * MINUTE);
    let node = node_of(allow);
    let hand = node.hand.clone();
    (node, hand)
}

impl Node {
    /// Spends one unit of each id.
    fn spend_of(&self, ids: &[&str]) {
        for id in ids {
            assert!(self.answer(self.all.spend(*id, 1)).unwrap().allowed(), "{id}");
        }
    }

    /// Ends the outage by a check, and runs the report that this starts.
    fn end_outage(&self) {
        self.set_outage(false);
        assert!(self.answer(self.all.check("none", 0)).unwrap().allowed());
        while self.store.run_all() > 0 {}
    }

    fn left_of(&self, id: &str) -> Option<u64> {
        self.answer(self.all.check(id, 0)).unwrap().remaining()
    }
}

#[test]
fn an_outages_units_are_charged_at_its_end() {
    let (node, _) = allowing();
    node.spend_of(&["a"]);
    node.set_outage(true);
    node.spend_of(&["a", "a", "b", "c", "c", "c", "c", "c", "c", "c"]);
    assert!(node.answer(node.all.check("d", 1)).unwrap().allowed());
    assert!(node.are_allowed(1), "a batch is charged as well");
    node.end_outage();
    assert_eq!(["a", "b", "c", "d"].map(|id| node.left_of(id)), [1, 4, 0, 5].map(Some));
    // Once only.
    node.set_outage(true);
    node.spend_of(&["b"]);
    node.end_outage();
    assert_eq!(["a", "b", "c"].map(|id| node.left_of(id)), [1, 3, 0].map(Some));
}

#[test]
fn a_part_is_charged_without_delay_of_calls() {
    let node = node_of(exact().fraction(Factor::ONE));
    let hand = node.hand.clone();
    assert!(node.is_allowed(5));
    node.set_outage(true);
    assert!(!node.is_allowed(1));
    hand.advance(3 * MINUTE);
    assert!(node.is_allowed(2));
    node.set_outage(false);
    assert!(node.is_allowed(1), "the first answer does not wait for the report");
    assert_eq!(node.store.run_all(), 1);
    assert_eq!(node.left().1, Some(0), "3 have come, and 1 and 2 were charged");
    hand.advance(MINUTE);
    assert_eq!(node.left().1, Some(1));
}

#[test]
fn a_second_outage_keeps_what_is_owed() {
    let (node, _) = allowing();
    node.set_outage(true);
    node.spend_of(&["a", "b"]);
    node.set_outage(false);
    assert!(node.answer(node.all.check("none", 0)).unwrap().allowed());
    // The report waits, and a second outage begins before it has asked.
    node.set_outage(true);
    node.spend_of(&["a"]);
    node.end_outage();
    assert_eq!(["a", "b"].map(|id| node.left_of(id)), [3, 4].map(Some));
}

/// The only call that the store does not answer is that of the report: it is made again without another outage.
#[test]
fn a_report_without_an_answer_is_made_again() {
    let (node, _) = allowing();
    node.set_outage(true);
    node.spend_of(&["a", "a", "b"]);
    node.set_outage(false);
    assert!(node.answer(node.all.check("none", 0)).unwrap().allowed());
    node.set_outage(true);
    while node.store.run_all() > 0 {}
    assert!(node.limiter.counters().store().unwrap().is_outage);
    node.end_outage();
    assert_eq!(["a", "b"].map(|id| node.left_of(id)), [3, 4].map(Some));
    assert!(!node.limiter.counters().store().unwrap().is_outage);
}

/// The node had too many returns under way, or the connection was lost between the two calls. What it owes was lost.
#[test]
fn unsent_reports_are_made_again() {
    for kind in [ErrorKind::StoreOverload, ErrorKind::StoreGone] {
        let (node, _) = allowing();
        node.set_outage(true);
        node.spend_of(&["a", "a", "b"]);
        node.store.set_answers(Answers::UnsentOnce(kind));
        node.end_outage();
        // The report may have begun another outage.
        node.end_outage();
        assert_eq!(["a", "b"].map(|id| node.left_of(id)), [3, 4].map(Some), "{kind:?}");
    }
}

#[test]
fn many_buckets_are_charged_in_batches() {
    let (node, _) = allowing();
    let ids: Vec<String> = (0..150).map(|id| id.to_string()).collect();
    // In the outage its block is not known.
    node.answer(node.all.block("7", MINUTE)).unwrap();
    node.set_outage(true);
    for id in &ids {
        node.spend_of(&[id]);
    }
    let calls = || node.limiter.counters().store().unwrap().calls;
    node.set_outage(false);
    assert!(node.answer(node.all.check("none", 0)).unwrap().allowed());
    let before = calls();
    while node.store.run_all() > 0 {}
    assert_eq!(calls() - before, 6, "three batches, each read and changed");
    assert!(node.answer(node.all.unblock("7")).unwrap());
    assert!(ids.iter().all(|id| node.left_of(id) == Some(4)));
}

#[test]
fn a_text_that_is_none_leaves_the_others() {
    let (node, _) = allowing();
    node.set_outage(true);
    node.spend_of(&["a", "b", "c"]);
    node.store.inner.put("All:b", "12 apples");
    node.end_outage();
    assert_eq!(["a", "c"].map(|id| node.left_of(id)), [4, 4].map(Some));
    assert!(node.answer(node.all.check("b", 0)).is_err());
}

#[test]
fn reports_charge_all_algorithms_to_empty() {
    let tenth = MINUTE / 10;
    let limits = [
        Limit::new(10, 10, MINUTE).unwrap(),
        Limit::fixed_window(10, MINUTE).unwrap(),
        Limit::token_bucket(10, 10, MINUTE).unwrap(),
        Limit::leaky_bucket(10, 1, tenth).unwrap(),
    ];
    for limit in limits {
        for (admitted, left) in [(3, 6), (9, 0), (50, 0)] {
            let (clock, hand) = Clock::manual();
            let store = SlowStore::new(clock.clone());
            let handle = StoreHandle { store: Arc::new(store.clone()), prefix: Box::default() };
            let options = LimiterOptions::default().clock(clock).store(Store(handle));
            let allow = exact().on_error(OnError::Allow);
            let file = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
            let file = file.limit_with("All", IdFormat::String, limit.clone(), allow);
            let limiter = Limiter::with_options(file.unwrap().build(), options).unwrap();
            let all = limiter.shared("All").unwrap();
            let own = limiter.limit("Own").unwrap();
            let node = Node { limiter, store, own, all, hand };
            assert!(node.is_allowed(1));
            node.set_outage(true);
            assert!((0..admitted).all(|_| node.is_allowed(1)));
            node.end_outage();
            assert_eq!(node.left_of("a"), Some(left), "{limit}: {admitted}");
        }
    }
}

#[test]
fn changes_without_an_answer_are_charged_once() {
    for is_split in [false, true] {
        let (node, _) = allowing();
        *node.store.is_split.lock() = is_split;
        node.set_outage(true);
        node.spend_of(&["a", "a", "b"]);
        node.store.set_answers(Answers::NoneToChanges);
        node.end_outage();
        node.store.set_answers(Answers::AtOnce);
        assert_eq!(["a", "b"].map(|id| node.left_of(id)), [3, 4].map(Some), "{is_split}");
        node.set_outage(true);
        node.spend_of(&["c"]);
        node.end_outage();
        assert_eq!(["a", "b", "c"].map(|id| node.left_of(id)), [3, 4, 4].map(Some), "{is_split}");
    }
}

#[test]
fn buckets_in_several_slots_are_charged_apart() {
    let (node, _) = allowing();
    *node.store.is_split.lock() = true;
    node.set_outage(true);
    node.spend_of(&["a", "a", "b", "c"]);
    node.end_outage();
    assert_eq!(["a", "b", "c"].map(|id| node.left_of(id)), [3, 4, 4].map(Some));
}

#[test]
fn reports_keep_the_leases_of_buckets() {
    for is_split in [false, true] {
        let leased = LimitOptions::default().shared(Shared::Leased).lease(Duration::from_secs(10));
        let allow = leased.on_error(OnError::Allow).allow_for(60 * MINUTE);
        let node = node_with(limits_of((10, 40), allow));
        for _ in 0..2 {
            node.hand.advance(Duration::from_millis(1));
            node.spend_of(&["a"]);
        }
        assert_eq!(now(node.all.check("a", 0)).unwrap().remaining(), Some(8), "held");
        *node.store.is_split.lock() = is_split;
        node.set_outage(true);
        node.spend_of(&["b"]);
        assert!(node.is_allowed(9));
        node.end_outage();
        // 2 and 9 units are spent, and 8 are leased: that lease ends at 20 s.
        assert_eq!(node.left_of("a"), Some(21), "{is_split}");
        assert!(node.answer(node.all.reset("a")).unwrap().allowed());
        assert_eq!(node.left_of("a"), Some(32), "{is_split}");
    }
}
