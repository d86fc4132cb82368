//! Calls of handles beside reloads, leases and switched-off limiters, and waits by retry.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate::batch::MemberMode;
use tollgate::clock::ManualClock;
use tollgate::limits::{LimitMode, LimitOptions, Shared};
use tollgate::reserve::ReserveError;
use tollgate::shared::{SharedLimit, Store, block_on};
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::{exact, limits, minutely, node, now};

const SECOND: Duration = Duration::from_secs(1);

fn one(limit: Limit, options: LimitOptions) -> (Limiter, SharedLimit, ManualClock) {
    let (clock, hand) = Clock::manual();
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit, options).unwrap();
    let limiter = node(limits.build(), &Store::in_memory(clock.clone()), &clock);
    let all = limiter.shared("All").unwrap();
    (limiter, all, hand)
}

/// Makes calls while reloads share a limit and take it back. They migrate 50,000 buckets of another limit, so that calls meet
/// limits before and after them.
fn beside_reloads(call: impl Fn(&Limiter, &SharedLimit) + Sync) {
    let clock = Clock::system();
    let store = Store::in_memory(clock.clone());
    let large = Limit::new(1_000_000, 1_000_000, 60 * SECOND).unwrap();
    let limits_of = |all: Shared, burst| {
        let many = Limits::builder().limit("Many", IdFormat::String, minutely(burst)).unwrap();
        let options = LimitOptions::default().shared(all);
        many.limit_with("All", IdFormat::String, large.clone(), options).unwrap().build()
    };
    let limiter = node(limits_of(Shared::Local, 5), &store, &clock);
    let many = limiter.limit("Many").unwrap();
    for id in 0..50_000_u32 {
        assert!(many.spend(id.to_string().as_str(), 1).unwrap().allowed());
    }
    let all = limiter.shared("All").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                call(&limiter, &all);
            }
        });
        for (burst, way) in (6..14).zip([Shared::Exact, Shared::Local].into_iter().cycle()) {
            limiter.reload(limits_of(way, burst)).unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        calling.join().unwrap();
    });
}

#[test]
fn handles_pass_while_reloads_share_limits() {
    beside_reloads(|_, all| assert!(block_on(all.spend("a", 1)).unwrap().allowed()));
    beside_reloads(|_, all| drop(block_on(all.reserve("a", 1, Duration::ZERO)).unwrap()));
    beside_reloads(|_, all| assert!(block_on(all.spend_estimate("a", 1)).unwrap().0.allowed()));
}

#[test]
fn batches_pass_while_reloads_share_limits() {
    beside_reloads(|limiter, all| {
        let members = [all.member("a")];
        assert!(block_on(limiter.shared_batch(&members).spend()).unwrap().allowed());
    });
    beside_reloads(|limiter, all| {
        let (members, mut each) = ([all.member("a")], Vec::new());
        assert!(block_on(limiter.shared_batch(&members).spend_into(&mut each)).unwrap().allowed());
    });
}

#[test]
fn retries_end_at_their_deadline() {
    let (_limiter, all, hand) = one(Limit::fixed_window(1, 10 * SECOND).unwrap(), exact());
    assert!(now(all.spend("a", 1)).unwrap().allowed());
    let sleeps = Cell::new(0);
    let timer = |time| {
        sleeps.set(sleeps.get() + 1);
        assert!(sleeps.get() < 3, "the deadline begins anew");
        hand.advance(time);
        assert!(now(all.spend("a", 1)).unwrap().allowed(), "another caller takes it");
        std::future::ready(())
    };
    let waited = now(all.until_allowed("a", 1, 15 * SECOND, timer));
    assert!(matches!(waited, Err(ReserveError::NotInTime { .. })), "{waited:?}");
    assert_eq!(sleeps.get(), 1);
}

#[test]
fn retries_have_jitter_within_the_deadline() {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..8 {
        let (_limiter, all, hand) = one(Limit::fixed_window(1, 10 * SECOND).unwrap(), exact());
        assert!(now(all.spend("a", 1)).unwrap().allowed());
        let times = RefCell::new(Vec::new());
        let timer = |time| {
            times.borrow_mut().push(time);
            hand.advance(time);
            std::future::ready(())
        };
        let waiting = all.waiting(12 * SECOND, timer).jitter(1000 * SECOND);
        assert!(now(waiting.until_allowed("a", 1)).is_ok());
        let times = times.into_inner();
        assert!(times.iter().all(|time| *time <= 12 * SECOND), "{times:?}");
        seen.extend(times);
    }
    assert!(seen.len() > 1);
}

#[test]
fn blocks_end_retries() {
    let (_limiter, all, hand) = one(Limit::fixed_window(1, 10 * SECOND).unwrap(), exact());
    now(all.block("a", 5 * SECOND)).unwrap();
    let timer = |time| {
        hand.advance(time);
        std::future::ready(())
    };
    let waited = now(all.until_allowed("a", 1, 60 * SECOND, timer));
    assert!(matches!(waited, Err(ReserveError::Blocked { left }) if left == 5 * SECOND));
}

/// Its jitter is added once, also if a timer wakes early.
#[test]
fn jitter_of_places_ends_at_deadline() {
    let (_limiter, all, hand) = one(Limit::new(1, 1, 10 * SECOND).unwrap(), exact());
    for _ in 0..8 {
        let _ = now(all.reset("a")).unwrap();
        assert!(now(all.spend("a", 1)).unwrap().allowed());
        let times = RefCell::new(Vec::new());
        let timer = |time: Duration| {
            times.borrow_mut().push(time);
            let is_early = times.borrow().len() == 1;
            hand.advance(if is_early { 4 * SECOND } else { time });
            std::future::ready(())
        };
        let waiting = all.waiting(12 * SECOND, timer).jitter(1000 * SECOND);
        assert!(now(waiting.until_allowed("a", 1)).is_ok());
        let times = times.into_inner();
        assert!(times[0] <= 12 * SECOND && times[1] == 6 * SECOND, "{times:?}");
    }
}

#[test]
fn off_limiters_refund_any_batch() {
    let clock = Clock::manual().0;
    let limiter = node(limits(10, 5), &Store::in_memory(clock.clone()), &clock);
    let (own, all) = (limiter.limit("Own").unwrap(), limiter.shared("All").unwrap());
    limiter.set_enabled(false);
    assert!(limiter.batch(&[own.member("a").cost(60)]).refund().is_ok());
    assert!(now(limiter.shared_batch(&[all.member("a").cost(60)]).refund()).is_ok());
}

#[test]
fn batches_give_back_by_each_members_mode() {
    let clock = Clock::manual().0;
    let limiter = node(limits(10, 10), &Store::in_memory(clock.clone()), &clock);
    let (own, all) = (limiter.limit("Own").unwrap(), limiter.shared("All").unwrap());
    for refunds in [true, false] {
        assert!(own.reset("a").is_ok() && own.spend("a", 6).unwrap().allowed());
        for id in ["a", "b"] {
            assert!(now(all.reset(id)).is_ok() && now(all.spend(id, 6)).unwrap().allowed());
        }
        let checked = MemberMode::CheckOnly;
        let members = [
            all.member("a").cost(2),
            all.member("b").cost(3).mode(checked),
            own.member("a").cost(4).into(),
        ];
        let batch = limiter.shared_batch(&members);
        let given = if refunds { now(batch.refund()) } else { now(batch.reset()) }.unwrap();
        let left = (now(all.check("a", 0)), now(all.check("b", 0)), own.check("a", 0));
        let left = (left.0.unwrap().remaining(), left.1.unwrap().remaining(), left.2.unwrap());
        let expected = if refunds { (Some(6), Some(8)) } else { (Some(10), Some(10)) };
        assert_eq!((left.0, left.2.remaining()), expected);
        assert_eq!(left.1, Some(4), "it is only looked at");
        // A refund of nothing is none.
        assert_eq!((given.allowed(), given.remaining()), (!refunds, Some(4)));
        // An error is that of all members.
        let members = [all.member("a"), own.member("a").cost(11).into()];
        let above = now(limiter.shared_batch(&members).refund()).unwrap_err();
        assert!(above.is_cost_above_burst());
        assert_eq!(now(all.check("a", 0)).unwrap().remaining(), expected.0);
    }
}

#[test]
fn partial_grants_in_shadow_mode_count() {
    let (limiter, all, _hand) = one(minutely(5), exact().mode(LimitMode::Shadow));
    assert!(now(all.spend("a", 5)).unwrap().allowed());
    assert_eq!(now(all.spend_up_to("a", 3)).unwrap().0, 3);
    assert_eq!(limiter.counters().limits[0].shadow_denied, 1);
}

#[test]
fn calls_without_a_store_count_errors() {
    let limits = |options| {
        let limits = Limits::builder().limit_with("All", IdFormat::String, minutely(5), options);
        limits.unwrap().build()
    };
    let options = LimiterOptions::default().counting(true);
    let limiter = Limiter::with_options(limits(LimitOptions::default()), options).unwrap();
    let all = limiter.shared("All").unwrap();
    limiter.reload(limits(exact())).unwrap();
    assert!(now(all.spend("a", 1)).unwrap_err().is_store_failure());
    assert_eq!(limiter.counters().limits[0].errors, 1);
}

/// By the system's clock, with which calls take the fast path to a lease.
#[test]
fn factors_take_nothing_from_leases() {
    let clock = Clock::system();
    let store = Store::in_memory(clock.clone());
    let leased = LimitOptions::default().shared(Shared::Leased).lease(10 * SECOND);
    let limit = Limit::new(20, 1, 60 * SECOND).unwrap();
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit, leased).unwrap();
    let limiter = node(limits.build(), &store, &clock);
    let all = limiter.shared("All").unwrap();
    for _ in 0..4 {
        assert!(now(all.spend("a", 1)).unwrap().allowed());
        std::thread::sleep(Duration::from_millis(2));
    }
    let calls = store.calls();
    assert!(now(all.spend("a", 1)).unwrap().allowed());
    assert_eq!(store.calls(), calls, "by the lease");
    assert!(now(all.scaled("2".parse().unwrap()).check("a", 1)).is_ok());
    assert_eq!(store.calls(), calls + 1);
}

/// The deadline is one, though the wait begins in the local bucket and goes on in the store.
#[test]
fn waits_keep_their_deadline_over_a_reload() {
    let window = || Limit::fixed_window(1, 10 * SECOND).unwrap();
    let (limiter, all, hand) = one(window(), LimitOptions::default());
    assert!(now(all.spend("a", 1)).unwrap().allowed());
    let sleeps = Cell::new(0);
    let timer = |time| {
        sleeps.set(sleeps.get() + 1);
        assert!(sleeps.get() < 3, "the deadline begins anew");
        if sleeps.get() == 1 {
            let limits =
                Limits::builder().limit_with("All", IdFormat::String, window(), exact()).unwrap();
            limiter.reload(limits.build()).unwrap();
        }
        hand.advance(time);
        assert!(now(all.spend("a", 1)).unwrap().allowed(), "another caller takes it");
        std::future::ready(())
    };
    let waited = now(all.until_allowed("a", 1, 15 * SECOND, timer));
    assert!(matches!(waited, Err(ReserveError::NotInTime { .. })), "{waited:?}");
    assert_eq!(sleeps.get(), 1);
}

/// A task of tokio has a budget of polls. Once it is used up, each of tokio's futures is pending and wakes the task at once, so that
/// `block_on` polled for ever.
#[test]
fn blocking_in_a_task_of_tokio_ends() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (_limiter, all, _hand) = one(minutely(1_000), exact());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let calls = async { (0..1_000).all(|_| block_on(all.spend("a", 1)).unwrap().allowed()) };
        done.send(runtime.block_on(calls)).unwrap();
    });
    let are_allowed = is_done.recv_timeout(20 * SECOND).expect("the calls end");
    assert!(are_allowed);
}
