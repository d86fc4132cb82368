//! Explanations from the store, and the number of calls to it.

use std::time::Duration;

use tollgate::limits::{ExplainedCall, LimitMode, Shared};
use tollgate::shared::Store;
use tollgate::shared::block_on;
use tollgate::{Clock, IdFormat, Limits};

use super::{exact, limits, minutely, node, now};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_explanation_reads_the_store() {
    let (clock, time) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let (one, other) = (node(limits(2, 5), &store, &clock), node(limits(2, 5), &store, &clock));
    let (one, other) = (one.shared("All").unwrap(), other.shared("All").unwrap());
    assert!(block_on(one.spend("a", 3)).unwrap().allowed());
    time.advance(10 * SECOND);
    let asked = store.calls();
    let explain =
        |cost| -> ExplainedCall { block_on(other.explain("a", cost)).unwrap().call.unwrap() };
    let call = explain(2);
    assert_eq!((call.cost, call.state.remaining(), call.blocked), (2, Some(2), None));
    assert_eq!(call.state.reset_in(), 170 * SECOND);
    assert_eq!(call.decision.unwrap().remaining(), Some(0));
    assert_eq!(store.calls(), asked + 1);
    assert_eq!(explain(3).decision.unwrap().retry_in(), 50 * SECOND);
    assert!(explain(5).decision.is_some(), "5 are in the burst");
    assert!(explain(6).decision.is_none(), "6 is above the burst");
    assert_eq!(explain(0).state.remaining(), Some(2), "an explanation charges nothing");
    // A block, which does not change the bucket.
    now(one.block("a", 300 * SECOND)).unwrap();
    let call = explain(1);
    assert_eq!((call.blocked, call.state.remaining()), (Some(300 * SECOND), Some(2)));
    let decision = call.decision.unwrap();
    assert!(decision.blocked() && decision.retry_in() == 300 * SECOND);
}

#[test]
fn an_explanation_of_other_limits_asks_nothing() {
    let clock = Clock::manual().0;
    let store = Store::in_memory(clock.clone());
    let node_of = |limits: Limits| node(limits, &store, &clock).shared("All").unwrap();
    let own = node(limits(2, 5), &store, &clock).shared("Own").unwrap();
    assert!(block_on(own.spend("a", 2)).unwrap().allowed());
    let call = block_on(own.explain("a", 1)).unwrap().call.unwrap();
    assert_eq!((call.state.remaining(), call.decision.unwrap().allowed()), (Some(0), false));
    let builder = || Limits::builder();
    let none = builder().limit_with("All", IdFormat::String, None, exact()).unwrap().build();
    let call = block_on(node_of(none).explain("a", 1)).unwrap().call.unwrap();
    assert_eq!(call.decision.unwrap().remaining(), None);
    assert_eq!(store.calls(), 0);

    let shadow = exact().mode(LimitMode::Shadow);
    let shadow = builder().limit_with("All", IdFormat::String, minutely(5), shadow).unwrap();
    let shadow = node_of(shadow.build());
    assert!(block_on(shadow.spend("a", 5)).unwrap().allowed());
    for cost in [1, 6] {
        let call = block_on(shadow.explain("a", cost)).unwrap().call.unwrap();
        assert!(call.decision.unwrap().allowed(), "a limit in shadow mode denies nothing");
        assert_eq!(call.state.remaining(), Some(0));
    }
}

#[test]
fn each_question_to_the_store_is_counted() {
    let clock = Clock::manual().0;
    let store = Store::in_memory(clock.clone());
    let limiter = node(limits(9, 9), &store, &clock);
    let (own, all) = (limiter.shared("Own").unwrap(), limiter.shared("All").unwrap());
    let mut before = 0;
    let mut asked = |what: &str, calls| {
        assert_eq!(store.calls() - before, calls, "{what}");
        before = store.calls();
    };
    asked("nothing", 0);
    let _ = block_on(own.spend("a", 1)).unwrap();
    asked("a local spend", 0);
    let _ = block_on(all.spend("a", 1)).unwrap();
    asked("a spend", 1);
    assert!(block_on(all.check("a", 8)).unwrap().allowed());
    asked("a check", 1);
    let members = [own.member("a"), all.member("a"), all.member("b")];
    let _ = block_on(limiter.shared_batch(&members).spend()).unwrap();
    asked("a batch", 1);
    assert!(block_on(limiter.shared_batch(&members).check()).unwrap().allowed());
    asked("the check of a batch", 1);
    let _ = now(all.refund("a", 1)).unwrap();
    asked("a refund", 1);
}

#[test]
fn limits_can_be_shared_in_another_way() {
    let clock = Clock::manual().0;
    let store = Store::in_memory(clock.clone());
    let node = |shared| node(limits(2, 5).share_all(shared), &store, &clock).shared("Own").unwrap();
    let nodes = [node(Shared::Exact), node(Shared::Exact), node(Shared::Local)];
    for (node, left) in nodes.iter().zip([1, 0, 1]) {
        assert_eq!(block_on(node.spend("a", 1)).unwrap().remaining(), Some(left));
    }
    assert_eq!(store.calls(), 2);
}
