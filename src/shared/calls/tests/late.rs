//! Answers for leased limits that come late, after a reload, or never.

use super::*;

/// A node whose limit has 40 units, and leases that end one to two seconds after they are taken.
fn leasing() -> Node {
    node_with(leased_limits(40))
}

fn leased_limits(burst: u64) -> Limits {
    let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
    limits_of((10, burst), leased)
}

type Spend<'n> = Pin<Box<dyn Future<Output = Result<crate::Decision, Error>> + 'n>>;

impl Node {
    /// Begins a spend that the store decides now, and answers later.
    fn begin_spend(&self, cost: u64) -> Spend<'_> {
        self.store.set_answers(Answers::Late);
        let mut spend: Spend<'_> = Box::pin(self.all.spend("a", cost));
        assert!(poll(spend.as_mut()).is_pending());
        self.store.run_all();
        assert!(poll(spend.as_mut()).is_pending());
        spend
    }

    /// Takes the answer of a spend that was begun. Returns whether it is allowed.
    fn take_answer(&self, mut spend: Spend<'_>) -> bool {
        self.store.set_answers(Answers::AtOnce);
        self.store.run_all();
        let Poll::Ready(decision) = poll(spend.as_mut()) else { panic!("answered") };
        decision.unwrap().allowed()
    }

    /// The node's answer without the store; `None` if only the store can tell.
    fn without_store(&self, cost: u64) -> Option<bool> {
        self.all.spend_here("a", cost).map(|decision| decision.allowed())
    }

    /// Moves the clock on to a time since the store's origin, which is the clock's first reading.
    fn advance_to(&self, time: Duration, passed: &mut Duration) {
        self.hand.advance(time - *passed);
        *passed = time;
    }
}

#[test]
fn late_answers_do_not_lengthen_leases() {
    let (node, mut passed) = (leasing(), Duration::ZERO);
    assert!(node.is_allowed(1));
    node.advance_to(MS, &mut passed);
    let spend = node.begin_spend(1);
    node.advance_to(900 * MS, &mut passed);
    assert!(node.take_answer(spend));
    node.advance_to(1_990 * MS, &mut passed);
    assert_eq!(node.without_store(1), Some(true));
    // The store takes the lease for spent two seconds after its origin.
    node.advance_to(2_000 * MS, &mut passed);
    assert_eq!(node.without_store(1), None);
}

#[test]
fn late_denials_are_not_kept_longer() {
    let (node, mut passed) = (leasing(), Duration::ZERO);
    assert!(node.is_allowed(40));
    let spend = node.begin_spend(3);
    node.advance_to(40 * MS, &mut passed);
    assert!(!node.take_answer(spend));
    node.advance_to(99 * MS, &mut passed);
    assert_eq!(node.without_store(3), None, "one call asks");
    assert_eq!(node.without_store(3), Some(false));
    node.advance_to(100 * MS, &mut passed);
    assert_eq!(node.without_store(3), None, "100 ms after the call was sent");
}

#[test]
fn leases_granted_after_a_reload_come_back() {
    let node = leasing();
    assert!(node.is_allowed(1));
    node.hand.advance(MS);
    let spend = node.begin_spend(1);
    let _ = node.limiter.reload(leased_limits(60)).unwrap();
    assert!(node.take_answer(spend));
    assert_eq!(node.without_store(1), None, "the lease was taken under the limit before");
    // The next call gives its units back, and the one after that takes a lease of the new limit.
    assert!(node.is_allowed(1));
    assert_eq!(node.answer(node.all.check("a", 0)).unwrap().remaining(), Some(57));
    assert_eq!(node.without_store(1), None);
    assert!(node.is_allowed(1));
    assert_eq!(node.without_store(1), Some(true));
}

#[test]
fn denials_after_a_reload_are_not_kept() {
    let node = leasing();
    assert!(node.is_allowed(40));
    let spend = node.begin_spend(3);
    let _ = node.limiter.reload(leased_limits(60)).unwrap();
    assert!(!node.take_answer(spend));
    assert_eq!(node.without_store(3), None, "20 units have come with the reload");
    assert!(node.is_allowed(3));
}

#[test]
fn dropped_calls_leave_leases_to_later_ones() {
    let node = leasing();
    assert!(node.is_allowed(1));
    node.hand.advance(MS);
    let spend = node.begin_spend(1);
    node.store.set_answers(Answers::AtOnce);
    // The store's thread ends.
    node.store.tasks.lock().clear();
    drop(spend);
    assert_eq!(node.without_store(1), None);
    assert!(node.is_allowed(1));
    assert_eq!(node.without_store(1), Some(true));
}

/// Batches that wait for the store at once, which all get no answer: each gives its charges of this node back.
#[test]
fn local_charges_of_many_batches_come_back() {
    let limits = [
        Limit::new(20, 20, 60 * MINUTE).unwrap(),
        Limit::fixed_window(20, 60 * MINUTE).unwrap(),
        Limit::token_bucket(20, 20, 60 * MINUTE).unwrap(),
        Limit::leaky_bucket(20, 1, 3 * MINUTE).unwrap(),
    ];
    for own in limits {
        let builder = Limits::builder().limit("Own", IdFormat::String, own.clone()).unwrap();
        let denying = exact().on_error(OnError::Deny);
        let all = Limit::new(5, 1, MINUTE).unwrap();
        let node =
            node_with(builder.limit_with("All", IdFormat::String, all, denying).unwrap().build());
        node.set_outage(true);
        let members = [node.own.member("a").into(), node.all.member("a")];
        let batch = node.limiter.shared_batch(&members);
        let mut calls: Vec<Spend<'_>> = Vec::new();
        for _ in 0..20 {
            node.hand.advance(MS);
            let mut call: Spend<'_> = Box::pin(batch.spend());
            assert!(poll(call.as_mut()).is_pending());
            calls.push(call);
        }
        node.store.run_all();
        for call in &mut calls {
            let Poll::Ready(decision) = poll(call.as_mut()) else { panic!("answered") };
            assert!(!decision.unwrap().allowed());
        }
        assert_eq!(node.own.check("a", 0).unwrap().remaining(), Some(20), "{own}");
    }
}

/// The lease of the call, or the one that it had given up, was spent for up to two seconds after the block.
#[test]
fn blocks_end_leases_of_calls_under_way() {
    for (before, cost, is_granted) in [(1, 1, true), (2, 39, false)] {
        let node = leasing();
        for _ in 0..before {
            assert!(node.is_allowed(1));
            node.hand.advance(MS);
        }
        let spend = node.begin_spend(cost);
        let mut block = Box::pin(node.all.block("a", MINUTE));
        assert!(poll(block.as_mut()).is_pending());
        // The answer to the block comes first.
        node.store.tasks.lock().reverse();
        assert_eq!(node.take_answer(spend), is_granted);
        assert!(matches!(poll(block.as_mut()), Poll::Ready(Ok(_))));
        assert_ne!(node.without_store(1), Some(true), "granted: {is_granted}");
        assert!(!node.is_allowed(1));
    }
}
