//! Ids of a shared limit whose override lifts the limit.

use tollgate::limits::LimitsBuilder;
use tollgate::shared::Store;
use tollgate::{Clock, IdFormat, Limits};

use super::{exact, minutely, node, now};

fn all(lift: fn(LimitsBuilder) -> LimitsBuilder) -> Limits {
    let builder = Limits::builder().limit_with("All", IdFormat::String, minutely(5), exact());
    lift(builder.unwrap()).build()
}

#[test]
fn its_calls_ask_no_store() {
    let clock = Clock::manual().0;
    let store = Store::in_memory(clock.clone());
    let limiter = node(all(|limits| limits), &store, &clock);
    let handle = limiter.shared("All").unwrap();
    assert_eq!(now(handle.spend("ops", 4)).unwrap().remaining(), Some(1));
    limiter.reload(all(|limits| limits.override_id("All", "ops", None).unwrap())).unwrap();
    let decision = now(handle.spend("ops", 99)).unwrap();
    assert!(decision.allowed() && decision.remaining().is_none());
    assert_eq!(now(handle.spend("user", 1)).unwrap().remaining(), Some(4));
    // Its bucket in the store is as it was.
    limiter.reload(all(|limits| limits)).unwrap();
    assert_eq!(now(handle.check("ops", 0)).unwrap().remaining(), Some(1));
}
