//! Each call under a block, compared with a second limiter in which no id is ever blocked.

use std::time::Duration;

use tollgate::batch::MemberMode;
use tollgate::limit::Factor;
use tollgate::limits::LimitOptions;
use tollgate::options::Engine;
use tollgate::reload::ReloadOptions;
use tollgate::reserve::ReserveError;
use tollgate::{
    Clock, Decision, Error, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits,
};

use super::support::{ENGINES, ms, state};
use super::{NS, limits, limits_of_all, on};

/// Runs `check` on the handles of both limiters, for each limit and engine.
fn for_each_pair(mut check: impl FnMut(&Limit, Engine, [KeyedLimit; 2], &dyn Fn(Duration))) {
    for engine in ENGINES {
        for limit in limits_of_all() {
            let (_one, handle, hand) = on(&limit, engine);
            let (_other, same, same_hand) = on(&limit, engine);
            check(&limit, engine, [handle, same], &|time| {
                hand.advance(time);
                same_hand.advance(time);
            });
        }
    }
}

#[test]
fn block_denies_exactly_until_its_end() {
    for (spent, time) in [(0, ms(1)), (3, ms(25)), (4, ms(5)), (4, ms(700)), (1, ms(86_400_000))] {
        for_each_pair(|limit, engine, [handle, same], advance| {
            for handle in [&handle, &same] {
                assert!(spent == 0 || handle.spend("id", spent).unwrap().allowed());
            }
            assert_eq!(handle.block("id", time).unwrap(), time);
            let context = format!("{engine:?} {limit:?}: {time:?}, {spent} spent");
            let untouched = same.check("id", 0).unwrap();
            for cost in 0..=4 {
                let own = same.check("id", cost).unwrap();
                for denied in [handle.check("id", cost).unwrap(), handle.spend("id", cost).unwrap()]
                {
                    assert!(!denied.allowed() && denied.blocked(), "{context}");
                    assert_eq!(denied.remaining(), Some(0), "{context}");
                    let own_wait = if own.allowed() { Duration::ZERO } else { own.retry_in() };
                    assert_eq!(denied.retry_in(), time.max(own_wait), "{context}");
                    assert_eq!(denied.reset_in(), untouched.reset_in(), "{context}");
                    assert_eq!(denied.denied_by(), Some(0), "{context}");
                }
            }
            advance(time - NS);
            assert!(handle.spend("id", 1).unwrap().blocked(), "{context}");
            advance(NS);
            assert_eq!(handle.blocked_for("id").unwrap(), None, "{context}");
            assert_eq!(state(&handle), state(&same), "{context}");
            assert_eq!(handle.spend("id", 1).unwrap(), same.spend("id", 1).unwrap(), "{context}");
        });
    }
}

#[test]
fn lifting_a_block_leaves_the_bucket_unchanged() {
    for (spent, later) in [(0, 0), (3, 0), (4, 0), (4, 15), (4, 1000)] {
        for_each_pair(|limit, engine, [handle, same], advance| {
            for handle in [&handle, &same] {
                assert!(spent == 0 || handle.spend("id", spent).unwrap().allowed());
            }
            handle.block("id", ms(5000)).unwrap();
            advance(ms(later));
            assert!(state(&handle).blocked() && !state(&same).blocked());
            assert!(handle.unblock("id").unwrap());
            assert_eq!(state(&handle), state(&same), "{engine:?} {limit:?}: {spent}, {later}");
            assert!(!handle.unblock("id").unwrap(), "there is none any more");
        });
    }
}

#[test]
fn refunds_under_a_block_reach_the_bucket() {
    for_each_pair(|limit, engine, [handle, same], advance| {
        for handle in [&handle, &same] {
            assert!(handle.spend("id", 3).unwrap().allowed());
        }
        let [(_, receipt), (_, same_receipt)] =
            [&handle, &same].map(|handle| handle.spend_estimate("id", 1).unwrap());
        handle.block("id", ms(700)).unwrap();
        assert_eq!(handle.refund("id", 1).unwrap(), same.refund("id", 1).unwrap());
        assert!(state(&handle).blocked(), "{engine:?} {limit:?}: it stays");
        let settled = [receipt, same_receipt].map(|receipt| receipt.unwrap().settle(0));
        assert_eq!(settled[0], settled[1], "{engine:?} {limit:?}");
        advance(ms(3));
        assert_eq!(handle.reset("id").unwrap(), same.reset("id").unwrap(), "{engine:?} {limit:?}");
        assert!(state(&handle).blocked(), "{engine:?} {limit:?}: it stays");
        assert!(handle.unblock("id").unwrap());
        assert_eq!(state(&handle), state(&same), "{engine:?} {limit:?}");
    });
}

#[test]
fn block_refuses_new_reservations_and_keeps_earlier() {
    for_each_pair(|limit, engine, [handle, same], advance| {
        if limit.algorithm() != "gcra" {
            return;
        }
        let place = |handle: &KeyedLimit| handle.reserve("id", 4, Duration::MAX);
        let places = |handle: &KeyedLimit| [(); 3].map(|()| place(handle).unwrap());
        let (places, same_places) = (places(&handle), places(&same));
        handle.block("id", ms(700)).unwrap();
        let waits = |places: &[tollgate::reserve::Reservation; 3]| {
            places.iter().map(tollgate::reserve::Reservation::wait).collect::<Vec<_>>()
        };
        assert_eq!(waits(&places), waits(&same_places), "{engine:?} {limit:?}");
        advance(ms(3));
        for cost in [0, 1, 4] {
            let refused = handle.reserve("id", cost, Duration::MAX).unwrap_err();
            assert!(
                matches!(refused, ReserveError::Blocked { left } if left == ms(697)),
                "{engine:?} {limit:?}: {refused:?}"
            );
            assert!(refused.is_blocked() && refused.needed().is_none());
        }
        let (denied, receipt) = handle.spend_estimate("id", 1).unwrap();
        assert!(denied.blocked() && receipt.is_none(), "{engine:?} {limit:?}");
        assert!(denied.retry_in() >= ms(697));
        let parked = handle.parking(Duration::MAX).wait_until_allowed("id", 1);
        assert!(parked.unwrap_err().is_blocked(), "at once");
        // They are cancelled as without a block.
        for [one, two, three] in [places, same_places] {
            three.cancel();
            two.cancel();
            drop(one);
        }
        assert!(handle.unblock("id").unwrap());
        assert_eq!(state(&handle), state(&same), "{engine:?} {limit:?}");
        let next = |handle: &KeyedLimit| place(handle).unwrap().wait();
        assert_eq!(next(&handle), next(&same), "{engine:?} {limit:?}");
    });
}

#[test]
fn blocked_member_denies_batch_or_is_skipped() {
    for engine in ENGINES {
        for limit in limits_of_all() {
            let (limiter, own, _hand) = on(&limit, engine);
            let other = limiter.limit("Other").unwrap();
            own.block("id", ms(700)).unwrap();
            for mode in [MemberMode::CheckAndSpend, MemberMode::CheckOnly] {
                let members = [other.member("id"), own.member("id").mode(mode)];
                let batch = limiter.batch(&members);
                let denied = [batch.spend().unwrap(), batch.check().unwrap()];
                for denied in denied {
                    assert!(denied.blocked() && denied.denied_by() == Some(1), "{limit:?}");
                    assert_eq!((denied.retry_in(), denied.remaining()), (ms(700), Some(0)));
                }
                let mut each = Vec::new();
                assert!(batch.spend_into(&mut each).unwrap().blocked());
                assert!(each[0].allowed() && each[1].blocked() && each[1].denied_by() == Some(1));
            }
            assert_eq!(other.check("id", 0).unwrap().remaining(), Some(9), "nothing is charged");
            // The other id's wait is longer than the block.
            assert!(other.reserve("x", 9, Duration::MAX).unwrap().wait().is_zero());
            let places = [(); 100].map(|()| other.reserve("x", 9, Duration::MAX).unwrap());
            let denied = limiter.batch(&[other.member("x"), own.member("id")]).spend().unwrap();
            assert!(denied.retry_in() > ms(700) && !denied.blocked(), "the strictest denies");
            drop(places);

            let members = [own.member("id").mode(MemberMode::SpendOnly), other.member("id")];
            let mut each = Vec::new();
            assert!(limiter.batch(&members).spend_into(&mut each).unwrap().allowed());
            assert!(each[0].blocked() && each[1].allowed(), "{limit:?}");
            assert_eq!(other.check("id", 0).unwrap().remaining(), Some(8));
            own.unblock("id").unwrap();
            assert_eq!(own.check("id", 0).unwrap().reset_in(), ms(0), "{limit:?}: dropped");
            // Refunds and resets do not look for blocks.
            assert!(own.spend("id", 4).unwrap().allowed());
            own.block("id", ms(700)).unwrap();
            assert!(limiter.batch(&members).refund().unwrap().allowed());
            assert!(limiter.batch(&[own.member("id")]).reset().unwrap().allowed());
        }
    }
}

#[test]
fn spend_many_checks_each_ids_block() {
    for engine in ENGINES {
        let (_limiter, handle, _hand) = on(&limits_of_all()[0], engine);
        // A known id and an unknown one.
        assert!(handle.spend("known", 1).unwrap().allowed());
        handle.block("known", ms(10)).unwrap();
        handle.block("new", ms(10)).unwrap();
        let mut decisions = Vec::new();
        handle.spend_many(["a", "known", "b", "new"], 1, &mut decisions);
        let blocked: Vec<_> = decisions.iter().flatten().map(|it| it.blocked()).collect();
        assert_eq!(blocked, [false, true, false, true], "{engine:?}");
    }
}

/// Blocks "c" and switches the limiter off, as told, while `spend_many` passes decisions on.
struct Meddler {
    handle: KeyedLimit,
    limiter: Limiter,
    decisions: Vec<Decision>,
}

impl Extend<Result<Decision, Error>> for Meddler {
    fn extend<I: IntoIterator<Item = Result<Decision, Error>>>(&mut self, new: I) {
        for decision in new {
            self.decisions.push(decision.unwrap());
            match self.decisions.len() {
                1 => drop(self.handle.block("c", ms(10))),
                4 => self.limiter.set_enabled(false),
                _ => {}
            }
        }
    }
}

#[test]
fn spend_many_obeys_blocks_made_meanwhile() {
    for engine in ENGINES {
        let (limiter, handle, _hand) = on(&limits_of_all()[0], engine);
        let mut meddler = Meddler { handle: handle.clone(), limiter, decisions: Vec::new() };
        handle.spend_many(["a", "b", "c", "b", "b", "c"], 1, &mut meddler);
        let blocked: Vec<_> = meddler.decisions.iter().map(|it| it.blocked()).collect();
        assert_eq!(blocked, [false, false, true, false, false, false], "{engine:?}");
        let remaining: Vec<_> = meddler.decisions.iter().map(|it| it.remaining()).collect();
        assert_eq!(remaining[4..], [None, None], "{engine:?}: switched off");
    }
}

#[test]
fn invalid_call_is_an_error_under_a_block() {
    let (limiter, handle, _hand) = on(&limits_of_all()[0], Engine::LockFree);
    handle.block("id", ms(10)).unwrap();
    assert!(handle.spend("id", 5).unwrap_err().is_cost_above_burst());
    assert!(handle.reserve("id", 5, Duration::MAX).unwrap_err().is_never());
    let member = [handle.member("id").cost(5)];
    assert!(limiter.batch(&member).spend().unwrap_err().is_cost_above_burst());
}

#[test]
fn block_creates_no_bucket_and_writes_nothing() {
    for engine in ENGINES {
        let (limiter, handle, _hand) = on(&limits_of_all()[0], engine);
        handle.block("id", ms(700)).unwrap();
        for _ in 0..3 {
            assert!(handle.spend("id", 1).unwrap().blocked());
            assert!(handle.reserve("id", 1, Duration::MAX).is_err());
        }
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
    }
}

#[test]
fn a_block_denies_where_its_limit_applies() {
    for engine in ENGINES {
        let limit = Limit::leaky_bucket(4, 1, ms(10)).unwrap();
        let (limiter, handle, _hand) = on(&limit, engine);
        handle.block("id", ms(700)).unwrap();
        let is_blocked = || handle.spend("id", 1).unwrap().blocked();
        // A factor is another size of the same bucket; 0 disables the limit.
        assert!(handle.scaled("0.5".parse().unwrap()).spend("id", 1).unwrap().blocked());
        assert!(handle.scaled(Factor::ZERO).spend("id", 1).unwrap().allowed());
        limiter.set_enabled(false);
        assert!(!is_blocked() && limiter.blocks().len() == 1, "{engine:?}: switched off");
        limiter.set_enabled(true);
        assert!(is_blocked(), "{engine:?}: switched on");
        // Reload without the limit, then with it again.
        let none = || Limits::builder().limit("Other", IdFormat::String, limit.clone()).unwrap();
        let removing = ReloadOptions::default().remove_missing(true);
        assert!(limiter.reload_with(none().build(), removing).unwrap().changed);
        assert!(!is_blocked() && limiter.blocks().len() == 1, "{engine:?}: no limit");
        assert!(handle.block("more", ms(9)).unwrap_err().is_invalid_block());
        assert!(limiter.reload(limits(&limit)).unwrap().changed);
        assert!(is_blocked(), "{engine:?}: the limit is back");
        // Reload without a limit for the id.
        let one = none().limit("Own", IdFormat::String, None::<Limit>).unwrap();
        let one = one.override_id("Own", "other", limit.clone()).unwrap().build();
        assert!(limiter.reload(one).unwrap().changed);
        assert!(!is_blocked(), "{engine:?}: no limit for this id");
        let error = handle.block("bob", ms(10)).unwrap_err();
        assert_eq!(error.to_string(), "Own:bob cannot be blocked: no limit applies to it");
        assert!(limiter.reload(limits(&limit)).unwrap().changed);
        assert!(is_blocked(), "{engine:?}");
    }
}

#[cfg(feature = "yaml")]
#[test]
fn shadow_mode_counts_blocked_calls_without_denying() {
    let limits =
        Limits::from_yaml("Own: {burst: 4, count: 1, period: 1s, id: string, mode: shadow}")
            .unwrap();
    for engine in ENGINES {
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(limits.clone(), options.counting(true)).unwrap();
        let handle = limiter.limit("Own").unwrap();
        handle.block("id", ms(700)).unwrap();
        assert!(handle.spend("id", 1).unwrap().allowed(), "{engine:?}");
        assert!(handle.reserve("id", 1, Duration::MAX).unwrap().wait().is_zero());
        assert!(limiter.batch(&[handle.member("id")]).spend().unwrap().allowed());
        let counters = limiter.counters();
        assert_eq!((counters.limits[0].shadow_denied, counters.limits[0].denied), (3, 0));
        assert_eq!(limiter.stats().cells, 0, "{engine:?}: nothing was charged");
    }
}

#[test]
fn blocked_call_does_not_reach_the_shadow() {
    for engine in ENGINES {
        let beside = LimitOptions::default().shadow(Limit::new(1, 1, ms(1000)).unwrap());
        let limit = Limit::new(4, 1, ms(1000)).unwrap();
        let limits = Limits::builder().limit_with("Own", IdFormat::String, limit, beside).unwrap();
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(limits.build(), options.counting(true)).unwrap();
        let handle = limiter.limit("Own").unwrap();
        handle.block("id", ms(700)).unwrap();
        for _ in 0..3 {
            assert!(handle.spend("id", 1).unwrap().blocked());
            assert!(handle.spend_estimate("id", 1).unwrap().0.blocked());
            assert!(limiter.batch(&[handle.member("id")]).spend().unwrap().blocked());
        }
        let counters = limiter.counters();
        assert_eq!((counters.limits[0].shadow_denied, counters.limits[0].denied), (0, 9));
        assert_eq!(limiter.stats().cells, 0, "{engine:?}: neither was charged");
    }
}

#[test]
fn explanation_shows_bucket_state_and_block() {
    let (_limiter, handle, hand) = on(&limits_of_all()[0], Engine::LockFree);
    assert!(handle.spend("id", 1).unwrap().allowed());
    handle.block("id", ms(100)).unwrap();
    hand.advance(ms(5));
    let explained = handle.explain("id", 1).unwrap().call.expect("a limiter has buckets");
    assert_eq!(explained.blocked, Some(ms(95)));
    assert_eq!((explained.state.remaining(), explained.state.reset_in()), (Some(3), ms(5)));
    assert_eq!(explained.decision.unwrap().retry_in(), ms(95));
    assert_eq!(handle.explain("alice", 1).unwrap().call.unwrap().blocked, None);
}
