//! The algorithms in a limiter: both engines, sweeps at any moment, batches of several algorithms, the cap.

use super::laws::{Step, steps};
use super::naive::{Naive, figures};
use super::support::{ENGINES, limiter, limits, sweep_all};
use super::*;
use tollgate::options::{AtCap, Engine};
use tollgate::{Bucket, Clock, IdFormat, Limiter, LimiterOptions, Limits};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn answer_as_the_oracle_despite_sweeps(
        three in (1..5u64, 1..20u64, 1..9u64, 1..5u64).prop_map(|(count, time, more, drip)| {
            [fixed(count, time), tokens(count + more, time, count), leaky(count, time, drip)]
        }),
        history in steps(8 * MS),
        sweep_every in 1..6usize,
    ) {
        for engine in ENGINES {
            for limit in &three {
                // The other two limits make a sweep tell whose cell it looks at.
                let named = [("Fixed", fixed(1, 1)), ("Gcra", Limit::new(1, 1, ms(1)).unwrap()), ("Own", limit.clone())];
                let (limiter, hand) = limiter(limits(&named), engine);
                let handle = limiter.limit("Own").unwrap();
                let mut naive = Naive::new(limit);
                let mut now_ns = 1;
                for (i, &(step, part)) in history.iter().enumerate() {
                    if i % sweep_every == 0 {
                        limiter.sweep(1 << 20);
                    }
                    naive.at((now_ns - 1) / MS);
                    let cost = part % (limit.burst() + 1);
                    let (said, wanted) = match step {
                        Step::Spend => (handle.spend("id", cost), naive.spend(cost)),
                        Step::Check => (handle.check("id", cost), naive.check(cost)),
                        Step::Refund => (handle.refund("id", cost), naive.refund(cost)),
                        Step::Reset => (handle.reset("id"), naive.reset()),
                        // The laws cover a clock that goes back; here a sweep sets a floor.
                        Step::Forward(ns) | Step::Back(ns) => {
                            hand.advance(Duration::from_nanos(ns));
                            now_ns += ns;
                            continue;
                        }
                    };
                    prop_assert_eq!(figures(said.unwrap()), wanted, "{:?} {:?} {}", limit, step, cost);
                }
            }
        }
    }
}

#[test]
fn denied_batch_leaves_each_algorithms_bucket_unchanged() {
    let named = [
        ("Gcra", Limit::new(2, 1, ms(1000)).unwrap()),
        ("Fixed", fixed(2, 1000)),
        ("Tokens", tokens(4, 1000, 2)),
        ("Leaky", leaky(2, 1000, 1)),
        ("Last", fixed(1, 1000)),
    ];
    for engine in ENGINES {
        let (limiter, hand) = limiter(limits(&named), engine);
        let handles: Vec<_> = named.iter().map(|(name, _)| limiter.limit(name).unwrap()).collect();
        let members: Vec<_> = handles.iter().map(|handle| handle.member("id")).collect();
        assert!(limiter.batch(&members).spend().unwrap().allowed());
        let denied = limiter.batch(&members).spend().unwrap();
        assert_eq!(denied.denied_by(), Some(4));
        for handle in &handles[..4] {
            assert!(handle.spend("id", 1).unwrap().allowed(), "{handle:?}: nothing was taken");
        }
        hand.advance(ms(2000));
        while limiter.stats().cells > 0 {
            limiter.sweep(1 << 20);
        }
        assert!(limiter.batch(&members).spend().unwrap().allowed());
    }
}

#[test]
fn cost_that_never_fits_names_limits_parameter() {
    for (limit, wanted) in [
        (fixed(3, 1000), "cost 4 is above the limit 3"),
        (tokens(9, 1000, 3), "cost 4 is above the burst 3"),
        (leaky(3, 1000, 1), "cost 4 is above the size 3"),
    ] {
        let error = Bucket::new(limit, Clock::manual().0).spend(4).unwrap_err();
        assert!(error.is_cost_above_burst());
        assert_eq!(error.to_string(), wanted);
    }
}

#[test]
fn untracked_keys_share_bucket_of_any_algorithm() {
    for limit in [fixed(2, 1000), tokens(2, 1000, 2), leaky(2, 1000, 2)] {
        for (at_cap, admitted) in [(AtCap::Share, 2), (AtCap::Deny, 0), (AtCap::Allow, 50)] {
            let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
            let (clock, hand) = Clock::manual();
            let options = LimiterOptions::default().clock(clock).max_keys(1).at_cap(at_cap);
            let limiter = Limiter::with_options(limits.build(), options).unwrap();
            let handle = limiter.limit("Own").unwrap();
            assert!(handle.spend("first", 1).unwrap().allowed());
            let spend = |n: u32| handle.spend(&*format!("other {n}"), 1).unwrap();
            let allowed = (0..50).filter(|n| spend(*n).allowed()).count();
            assert_eq!(allowed, admitted, "{limit:?} {at_cap:?}");
            if at_cap != AtCap::Allow {
                assert_eq!(spend(99).retry_in(), ms(1000), "{limit:?} {at_cap:?}");
            }
            hand.advance(ms(1000));
            assert!(at_cap == AtCap::Deny || spend(100).allowed(), "{limit:?} {at_cap:?}");
        }
    }
}

#[test]
fn factor_shares_the_bucket_and_0_disables() {
    for engine in ENGINES {
        let named = [("Leaky", leaky(4, 1000, 1)), ("Fixed", fixed(4, 1000))];
        let (limiter, _hand) = limiter(limits(&named), engine);
        for handle in named.each_ref().map(|(name, _)| limiter.limit(name).unwrap()) {
            let (half, double) = (handle.scaled(0.5.try_into().unwrap()), handle.scaled(2.into()));
            assert!(handle.spend("id", 4).unwrap().allowed());
            assert!(!double.check("id", 1).unwrap().allowed());
            assert_eq!(half.spend("id", 1).unwrap().remaining(), Some(3), "{handle:?}: of 8");
            assert!(half.spend("id", 9).unwrap_err().is_cost_above_burst());
            assert!(double.spend("other", 3).unwrap_err().is_cost_above_burst(), "2 is the most");
            assert_eq!(handle.scaled(0.into()).spend("id", 1000).unwrap().remaining(), None);
            assert!(half.refund("id", 2).unwrap().allowed());
            assert_eq!(handle.check("id", 0).unwrap().remaining(), Some(1), "4 of 3 are spent");
            assert!(half.reset("id").unwrap().allowed());
            let members = [half.member("id").cost(8), handle.member("third")];
            assert!(limiter.batch(&members).spend().unwrap().allowed());
            assert_eq!(limiter.batch(&members).spend().unwrap().denied_by(), Some(0));
        }
        let leaky = limiter.limit("Leaky").unwrap();
        let error = leaky.scaled(4_000_000_000_u32.into()).spend("id", 1).unwrap_err();
        assert!(error.is_invalid_limit() && error.to_string().contains("Leaky"), "{error}");
    }
}

#[test]
fn sweep_keeps_a_bucket_slowed_by_factor() {
    for engine in ENGINES {
        let (limiter, hand) = limiter(limits(&[("Leaky", leaky(4, 1000, 1))]), engine);
        let leaky = limiter.limit("Leaky").unwrap();
        let slow = leaky.scaled(4.into());
        assert!(slow.spend("id", 1).unwrap().allowed(), "one unit, one drip in 4 s");
        hand.advance(ms(3999));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 1, "{engine:?}: full by the limit, not by the factor");
        assert!(!slow.spend("id", 1).unwrap().allowed());
        hand.advance(ms(1));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
        assert!(slow.spend("id", 1).unwrap().allowed());
    }
}

#[test]
fn each_member_of_a_batch_says_its_own() {
    let named = [("Gcra", Limit::new(3, 1, ms(1000)).unwrap()), ("Fixed", fixed(1, 1000))];
    let (limiter, _hand) = limiter(limits(&named), Engine::LockFree);
    let (gcra, fixed) = (limiter.limit("Gcra").unwrap(), limiter.limit("Fixed").unwrap());
    let members = [fixed.member("id"), gcra.member("id"), fixed.scaled(0.into()).member("other")];
    let batch = limiter.batch(&members);
    let mut each = Vec::new();
    assert!(batch.spend_into(&mut each).unwrap().allowed());
    let remaining: Vec<_> = each.iter().map(|said| said.remaining()).collect();
    assert_eq!(remaining, [Some(0), Some(2), None]);
    each.clear();
    let denied = batch.spend_into(&mut each).unwrap();
    assert_eq!((denied.denied_by(), denied), (Some(0), each[0]));
    assert_eq!((each[1].allowed(), each[1].remaining()), (true, Some(2)), "charged nothing");
    assert_eq!(gcra.check("id", 0).unwrap().remaining(), Some(2));
}
