//! Shared limits beside other features.

use std::time::Duration;

use tollgate::batch::MemberMode;
use tollgate::limit::Factor;
use tollgate::limits::{LimitMode, LimitOptions, Shared};
use tollgate::shared::Store;
use tollgate::shared::block_on;
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};

use super::{exact, minutely, node, now};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn one(limit: Limit, options: LimitOptions) -> Limits {
    Limits::builder().limit_with("All", IdFormat::String, limit, options).unwrap().build()
}

/// A node on a store of the same clock, with one limit.
fn node_of(limit: Limit, options: LimitOptions) -> (Limiter, tollgate::clock::ManualClock) {
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    (node(one(limit, options), &store, &clock), hand)
}

#[test]
fn limiter_that_is_off_blocks_ids() {
    let (limiter, _hand) = node_of(minutely(5), exact());
    let all = limiter.shared("All").unwrap();
    limiter.set_enabled(false);
    assert_eq!(now(all.block("a", MINUTE)).unwrap(), MINUTE);
    assert_eq!(now(all.blocked_for("a")).unwrap(), Some(MINUTE));
    assert!(block_on(all.spend("a", 1)).unwrap().allowed());
    let explained = block_on(all.explain("a", 1)).unwrap().call.unwrap();
    assert!(!explained.is_enabled && explained.decision.unwrap().allowed());
    assert_eq!((explained.state.remaining(), explained.blocked), (None, Some(MINUTE)));
    limiter.set_enabled(true);
    assert!(block_on(all.spend("a", 1)).unwrap().blocked());
    limiter.set_enabled(false);
    assert!(now(all.unblock("a")).unwrap());
    limiter.set_enabled(true);
    assert!(block_on(all.spend("a", 1)).unwrap().allowed());
}

#[test]
fn blocks_deny_nothing_in_shadow_mode() {
    let options = LimitOptions::default().shared(Shared::Leased).mode(LimitMode::Shadow);
    let (limiter, _hand) = node_of(minutely(5), options);
    let all = limiter.shared("All").unwrap();
    assert_eq!(now(all.block("a", MINUTE)).unwrap(), MINUTE);
    let decision = block_on(all.spend("a", 1)).unwrap();
    assert!(decision.allowed() && !decision.blocked(), "{decision:?}");
    let members = [all.member("a")];
    assert!(block_on(limiter.shared_batch(&members).spend()).unwrap().allowed());
}

#[test]
fn large_refunds_are_no_error_in_shadow_mode() {
    let (limiter, _hand) = node_of(minutely(5), exact().mode(LimitMode::Shadow));
    let all = limiter.shared("All").unwrap();
    assert!(block_on(all.spend("a", 3)).unwrap().allowed());
    let refunded = now(all.refund("a", 6)).unwrap();
    assert_eq!((refunded.allowed(), refunded.remaining()), (false, Some(2)));
    assert_eq!(now(all.refund("a", 5)).unwrap().remaining(), Some(5));
}

/// The block answered the whole check, which then had no member that could deny.
#[test]
fn checks_ask_beside_blocked_spend_only_members() {
    let (clock, _hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let leased = LimitOptions::default().shared(Shared::Leased);
    let limits = Limits::builder().limit_with("Leased", IdFormat::String, minutely(5), leased);
    let limits = limits.unwrap().limit_with("All", IdFormat::String, minutely(5), exact());
    let limiter = node(limits.unwrap().build(), &store, &clock);
    let (leased, all) = (limiter.shared("Leased").unwrap(), limiter.shared("All").unwrap());
    assert_eq!(now(leased.block("a", MINUTE)).unwrap(), MINUTE);
    assert!(block_on(all.spend("a", 5)).unwrap().allowed());
    let members = [leased.member("a").mode(MemberMode::SpendOnly), all.member("a")];
    let batch = limiter.shared_batch(&members);
    assert_eq!(block_on(batch.check()).unwrap().denied_by(), Some(1));
    assert_eq!(block_on(batch.spend()).unwrap().denied_by(), Some(1));
}

#[test]
fn factor_of_zero_needs_no_store() {
    for options in [exact(), LimitOptions::default().shared(Shared::Leased)] {
        let (limiter, _hand) = node_of(minutely(5), options);
        let all = limiter.shared("All").unwrap();
        assert_eq!(block_on(all.scaled(Factor::ZERO).spend("a", 9)).unwrap().remaining(), None);
    }
}

/// As a server does. A longer window found the units of one that was long over.
#[test]
fn store_in_memory_forgets_texts_in_time() {
    let fixed = |window| Limit::fixed_window(5, window).unwrap();
    let (limiter, hand) = node_of(fixed(SECOND), exact());
    let all = limiter.shared("All").unwrap();
    assert!(block_on(all.spend("a", 5)).unwrap().allowed());
    hand.advance(2 * MINUTE);
    assert!(limiter.reload(one(fixed(60 * MINUTE), exact())).unwrap().changed);
    assert_eq!(block_on(all.check("a", 0)).unwrap().remaining(), Some(5));
}

/// The store denied the batch for a member that can deny none: it was told to be allowed, and nothing was charged.
#[test]
fn checked_members_in_shadow_mode_deny_nothing() {
    let (clock, _hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let shadow = exact().mode(LimitMode::Shadow);
    let limits = Limits::builder().limit_with("Tried", IdFormat::String, minutely(1), shadow);
    let limits = limits.unwrap().limit_with("All", IdFormat::String, minutely(3), exact());
    let limiter = node(limits.unwrap().build(), &store, &clock);
    let (tried, all) = (limiter.shared("Tried").unwrap(), limiter.shared("All").unwrap());
    assert!(block_on(tried.spend("a", 1)).unwrap().allowed());
    let members = [tried.member("a").mode(MemberMode::CheckOnly), all.member("a")];
    let batch = limiter.shared_batch(&members);
    for left in [2, 1, 0] {
        assert_eq!(block_on(batch.spend()).unwrap().remaining(), Some(left));
    }
    assert_eq!(block_on(batch.spend()).unwrap().denied_by(), Some(1));
}

/// While units are leased, the bucket does not refill past them. For a call with a factor of 0.5 they counted half, so
/// that its cost was free.
#[test]
fn factors_keep_the_units_of_leases() {
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let leased = LimitOptions::default().shared(Shared::Leased).lease(10 * SECOND);
    let limit = Limit::new(8, 1, SECOND).unwrap();
    let nodes = [0, 1].map(|_| node(one(limit.clone(), leased.clone()), &store, &clock));
    let [holder, other] = [0, 1].map(|at: usize| nodes[at].shared("All").unwrap());
    assert!(block_on(holder.spend("a", 1)).unwrap().allowed());
    hand.advance(SECOND);
    assert!(block_on(holder.spend("a", 1)).unwrap().allowed());
    let held = block_on(holder.check("a", 0)).unwrap().remaining().unwrap();
    assert!(held >= 2);
    hand.advance(7 * SECOND);
    // Units of a second each that were spent in one instant.
    let halved = [other.member("a").factor("0.5".parse().unwrap()).cost(2)];
    assert!(block_on(nodes[1].shared_batch(&halved).spend()).unwrap().allowed());
    let mut spent = held + 1;
    while block_on(other.spend("a", 1)).unwrap().allowed() {
        spent += 1;
    }
    assert!(block_on(holder.spend("a", held)).unwrap().allowed());
    assert!(spent <= 8, "{spent} of 8 units");
}

/// The reset text said that the bucket was full, so it was forgotten a minute later, and with it the units of the lease.
#[test]
fn resets_forget_no_leased_units() {
    let leased = LimitOptions::default().shared(Shared::Leased);
    let (limiter, hand) = node_of(minutely(20), leased);
    let all = limiter.shared("All").unwrap();
    for _ in 0..2 {
        hand.advance(SECOND / 10);
        assert!(block_on(all.spend("a", 1)).unwrap().allowed());
    }
    assert_eq!(block_on(all.check("a", 0)).unwrap().remaining(), Some(8));
    assert_eq!(now(all.reset("a")).unwrap().remaining(), Some(12), "8 are leased");
    assert!(block_on(all.spend("a", 8)).unwrap().allowed());
    hand.advance(2 * MINUTE);
    let left = block_on(all.check("a", 0)).unwrap().remaining().unwrap();
    assert!(left <= 14, "8 of 20 units were spent, and {left} are left after two minutes");
}
