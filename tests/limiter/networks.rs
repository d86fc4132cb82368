//! Overrides of networks of addresses.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use tollgate::limits::{
    Applies, Floor, LimitMode, LimitOptions, LimitsBuilder, OverrideOptions, WhyNot,
};
use tollgate::options::{AtCap, Engine};
use tollgate::reserve::ReserveError;
use tollgate::{IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, hourly, limiter, limiter_with, seconds, sweep_all};

/// A default of 10 units, and overrides of addresses and networks; 0 units stand for no limit.
fn with(overrides: &[(&str, u64)]) -> Limits {
    let builder = Limits::builder().limit("A", IdFormat::IpAddress, hourly(10)).unwrap();
    let add = |builder: LimitsBuilder, &(id, burst): &(&str, u64)| {
        builder.override_id("A", id, (burst > 0).then(|| hourly(burst))).unwrap()
    };
    overrides.iter().fold(builder, add).build()
}

const NESTED: &[(&str, u64)] = &[
    ("10.0.0.0/8", 20),
    ("10.1.0.0/16", 30),
    ("10.1.2.3", 40),
    ("10.1.3.0/24", 0),
    ("2001:db8::/32", 50),
    ("2001:db8:1::/48", 60),
    ("2001:db8:1::7", 70),
    ("::/0", 80),
];

/// Addresses, each with the units of the override that applies.
const BURSTS: &[(&str, Option<u64>)] = &[
    ("9.255.255.255", Some(10)),
    ("10.0.0.0", Some(20)),
    ("10.255.255.255", Some(20)),
    ("10.1.0.0", Some(30)),
    ("10.1.255.255", Some(30)),
    ("10.1.2.3", Some(40)),
    ("10.1.2.4", Some(30)),
    ("10.1.3.4", None),
    ("11.0.0.0", Some(10)),
    ("2001:db8::1", Some(50)),
    ("2001:db8:1::1", Some(60)),
    ("2001:db8:1::7", Some(70)),
    ("2001:db9::1", Some(80)),
    ("::ffff:10.1.2.4", Some(30)),
    ("::ffff:9.9.9.9", Some(10)),
];

fn left(handle: &KeyedLimit, id: &str) -> Option<u64> {
    handle.check(id, 0).unwrap().remaining()
}

#[test]
fn the_smallest_network_around_an_address_applies() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(NESTED), engine);
        let a = limiter.limit("A").unwrap();
        for &(id, burst) in BURSTS {
            let limit = a.limit_for(id).unwrap();
            assert_eq!(limit.map(|limit| limit.burst()), burst, "{engine:?} {id}");
            for spent in 1..4 {
                let spend = match spent {
                    2 => a.spend(id.parse::<IpAddr>().unwrap(), 1),
                    _ => a.spend(id, 1),
                };
                let wanted = burst.map(|burst| burst - spent);
                let shared = if id == "::ffff:10.1.2.4" { 3 } else { 0 };
                let wanted = wanted.map(|left| left - shared);
                assert_eq!(spend.unwrap().remaining(), wanted, "{engine:?} {id}");
            }
        }
        sweep_all(&limiter);
        assert_eq!(left(&a, "10.0.0.0"), Some(17), "{engine:?}");
    }
}

#[test]
fn each_address_has_its_own_bucket() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(NESTED), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("10.0.0.1", 20).unwrap().allowed());
        assert!(!a.spend("10.0.0.1", 1).unwrap().allowed());
        assert_eq!(a.spend("10.0.0.2", 1).unwrap().remaining(), Some(19), "{engine:?}");
        assert!(a.reserve("10.0.0.1", 1, Duration::from_secs(200)).is_ok(), "{engine:?}");
        let refused = a.reserve("10.0.0.1", 1, Duration::ZERO).unwrap_err();
        assert!(matches!(refused, ReserveError::NotInTime { .. }), "{engine:?} {refused:?}");
    }
}

#[test]
fn members_of_a_batch_have_their_networks() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(NESTED), engine);
        let a = limiter.limit("A").unwrap();
        // The second time the cells are known.
        for round in 1..4 {
            let members =
                [a.member("10.0.0.1").cost(5), a.member("9.9.9.9"), a.member("10.1.3.1").cost(99)];
            let decision = limiter.batch(&members).spend().unwrap();
            assert_eq!(decision.allowed(), round < 5, "{engine:?}");
            assert_eq!(left(&a, "10.0.0.1"), Some(20 - 5 * round), "{engine:?}");
            assert_eq!(left(&a, "9.9.9.9"), Some(10 - round), "{engine:?}");
        }
        let denied = limiter.batch(&[a.member("10.0.0.1").cost(6), a.member("9.9.9.9")]).spend();
        assert_eq!(denied.unwrap().denied_by(), Some(0), "{engine:?}");
    }
}

#[test]
fn explain_names_the_network_and_larger_ones() {
    let limits = with(NESTED);
    let explained = limits.explain("A", "10.1.9.9", SystemTime::now()).unwrap();
    assert_eq!(
        (explained.applies, explained.applies.to_string()),
        (Applies::Network, "network".into())
    );
    assert_eq!(explained.network.as_deref(), Some("10.1.0.0/16"));
    assert_eq!(explained.limit.map(|limit| limit.burst()), Some(30));
    let near: Vec<_> = explained.near.iter().map(|near| (near.id.as_deref(), &near.why)).collect();
    assert_eq!(
        near[..2],
        [(Some("10.0.0.0/8"), &WhyNot::LessSpecific), (None, &WhyNot::LessSpecific)]
    );
    let own = limits.explain("A", "10.1.2.3", SystemTime::now()).unwrap();
    assert_eq!((own.applies, own.network, own.near.len() >= 3), (Applies::Override, None, true));
    let lifted = limits.explain("A", "10.1.3.3", SystemTime::now()).unwrap();
    assert_eq!((lifted.applies, lifted.limit), (Applies::Network, None));
}

/// A network is neither around itself nor around a larger one that begins with it.
#[test]
fn networks_around_a_network_are_larger() {
    let limits =
        with(&[("10.0.0.0/8", 20), ("10.0.0.0/16", 30), ("10.0.0.0/24", 40), ("::/0", 50)]);
    let clients = limits.limit("A").unwrap();
    for (id, wanted) in [
        ("10.0.0.0", &["10.0.0.0/24", "10.0.0.0/16", "10.0.0.0/8"][..]),
        ("10.0.0.0/24", &["10.0.0.0/16", "10.0.0.0/8"]),
        ("10.0.0.0/16", &["10.0.0.0/8"]),
        ("10.0.0.0/8", &[]),
        ("0.0.0.0/0", &[]),
        ("::/0", &[]),
        ("::/1", &["::/0"]),
    ] {
        let around: Vec<_> =
            clients.overrides_around(id).unwrap().iter().map(|it| it.id()).collect();
        assert_eq!(around, wanted, "{id}");
    }
}

/// From its end on, an address has the bucket of the larger network or of the default, full or as it was before.
#[test]
fn ended_networks_leave_addresses_to_larger_ones() {
    let (soon, later) = (seconds(3600), seconds(7200));
    let now = SystemTime::now();
    let slow = |burst| Limit::new(burst, burst, seconds(36_000_000)).unwrap();
    let limits = || {
        let ending = |after| OverrideOptions::default().expires(now + after);
        let builder = Limits::builder().limit("A", IdFormat::IpAddress, slow(10)).unwrap();
        let builder = builder.override_with("A", "10.0.0.0/8", slow(100), ending(later)).unwrap();
        let builder = builder.override_with("A", "10.1.0.0/16", slow(1000), ending(soon)).unwrap();
        builder.override_with("A", "10.1.2.3", slow(2000), ending(soon)).unwrap().build()
    };
    for engine in ENGINES {
        for is_swept in [false, true] {
            let (limiter, hand) = limiter(limits(), engine);
            let a = limiter.limit("A").unwrap();
            for (id, cost) in
                [("10.1.2.3", 1000), ("10.1.2.4", 500), ("10.2.2.2", 50), ("9.9.9.9", 5)]
            {
                assert!(a.spend(id, cost).unwrap().allowed(), "{engine:?}");
            }
            let all =
                || ["10.1.2.3", "10.1.2.4", "10.2.2.2", "9.9.9.9"].map(|id| left(&a, id).unwrap());
            assert_eq!(all(), [1000, 500, 50, 5], "{engine:?}");
            // The bucket of 10.1.2.3 itself is converted to the default, and used again once no network is around it.
            for (after, wanted) in [(soon + seconds(2), [100, 100, 50, 5]), (soon, [5, 10, 10, 5])]
            {
                hand.advance(after);
                if is_swept {
                    sweep_all(&limiter);
                }
                assert_eq!(all(), wanted, "{engine:?} {is_swept} {after:?}");
            }
            assert_eq!(limiter.stats().cells, 4, "{engine:?}");
        }
    }
}

/// A network has a part of its limit's part of the table, and a bucket for the addresses beyond.
#[test]
fn networks_share_their_limits_part_of_a_table() {
    for engine in ENGINES {
        for at_cap in [AtCap::Share, AtCap::Deny] {
            // One place each for the default and the five networks with a limit, and six common ones.
            let options = LimiterOptions::default().engine(engine).max_keys(12).at_cap(at_cap);
            let (limiter, _hand) = limiter_with(with(NESTED), options);
            let a = limiter.limit("A").unwrap();
            for at in 1..=7 {
                assert!(
                    a.spend(IpAddr::from([9, 9, 9, at]), 1).unwrap().allowed(),
                    "{engine:?} {at}"
                );
            }
            let context = format!("{engine:?} {at_cap:?}");
            assert!(a.spend("10.0.0.1", 1).unwrap().allowed(), "{context}");
            let beyond = a.spend("10.0.0.2", 1).unwrap();
            assert_eq!(beyond.allowed(), at_cap == AtCap::Share, "{context}");
            if at_cap == AtCap::Share {
                assert_eq!(left(&a, "10.0.0.3"), Some(19), "{context}");
                assert!(!a.spend("10.0.0.3", 20).unwrap().allowed(), "{context}");
            }
            // Single addresses have their places beside the cap, and no limit needs no place.
            assert!(a.spend("10.1.2.3", 1).unwrap().allowed(), "{context}");
            assert!(a.spend("10.1.3.3", 1).unwrap().allowed(), "{context}");
            assert_eq!(limiter.stats().cells, 9, "{context}");
        }
    }
}

#[test]
fn max_keys_has_a_place_for_each_network() {
    let limits = |max_keys| {
        let options = LimitOptions::default().max_keys(max_keys);
        let builder =
            Limits::builder().limit_with("A", IdFormat::IpAddress, hourly(10), options).unwrap();
        builder.override_id("A", "10.0.0.0/8", hourly(20)).unwrap().build()
    };
    let error = Limiter::with_options(limits(1), LimiterOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "max_keys of A is less than 1 for each of its 1 networks and for the addresses outside: at least 2 is allowed"
    );
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).at_cap(AtCap::Deny);
        let (limiter, _hand) = limiter_with(limits(2), options);
        let a = limiter.limit("A").unwrap();
        for (id, is_allowed) in
            [("10.0.0.1", true), ("10.0.0.2", false), ("9.9.9.9", true), ("9.9.9.8", false)]
        {
            assert_eq!(a.spend(id, 1).unwrap().allowed(), is_allowed, "{engine:?} {id}");
        }
    }
}

/// No name but the limit's is in any output.
#[test]
fn networks_count_under_their_limits_name() {
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).counting(true).top_denied(5);
        let (limiter, _hand) = limiter_with(with(NESTED), options);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("10.0.0.1", 20).unwrap().allowed());
        for _ in 0..3 {
            assert!(!a.spend("10.0.0.1", 1).unwrap().allowed());
        }
        let counters = limiter.counters();
        let named: Vec<_> = counters.limits.iter().filter(|it| it.allowed > 0).collect();
        let [of_a] = &*named else { panic!("{named:?}") };
        assert_eq!((&*of_a.name, of_a.allowed, of_a.denied, of_a.cost), ("A", 1, 3, 20));
        assert!(!limiter.prometheus().contains("network"));
        let top = &limiter.top_denied()[0];
        assert_eq!((&*top.limit, &*top.id, top.denied), ("A", "10.0.0.1", 3));
        assert!(limiter.limits().names().all(|name| !name.contains(' ')));
        assert!(limiter.limit("A (network 10.0.0.0/8)").unwrap_err().is_invalid_name());
        let error = a.spend("10.0.0.1", 21).unwrap_err();
        assert!(
            error.to_string().contains(" A") && !error.to_string().contains("network"),
            "{error}"
        );
        if engine != Engine::LockFree {
            let ids = a.ids();
            assert_eq!(ids, Some(vec!["10.0.0.1".into()]));
        }
    }
}

#[test]
fn calls_by_hand_reach_an_addresss_network() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(NESTED), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("10.0.0.1", 20).unwrap().allowed());
        assert_eq!(a.refund("10.0.0.1", 3).unwrap().remaining(), Some(3), "{engine:?}");
        assert_eq!(a.reset("10.0.0.1").unwrap().remaining(), Some(20), "{engine:?}");
        assert_eq!(a.drain("10.0.0.1", 2).unwrap().remaining(), Some(2), "{engine:?}");
        assert_eq!(a.spend_up_to("10.0.0.1", 9).unwrap().0, 2, "{engine:?}");
        let (decision, receipt) = a.spend_estimate("10.1.9.9", 30).unwrap();
        assert!(decision.allowed());
        assert_eq!(receipt.unwrap().settle(10).remaining(), Some(20), "{engine:?}");
        let explained = a.explain("10.1.9.9", 5).unwrap();
        assert_eq!(explained.call.unwrap().state.remaining(), Some(20), "{engine:?}");
        let doubled: tollgate::limit::Factor = "2".parse().unwrap();
        assert_eq!(
            a.scaled(doubled).spend("10.1.9.9", 1).unwrap().remaining(),
            Some(9),
            "{engine:?}"
        );
        let mut decisions = Vec::new();
        a.spend_many(["10.1.9.9", "9.9.9.9", "10.1.9.9"], 1, &mut decisions);
        let left: Vec<_> = decisions.into_iter().map(|it| it.unwrap().remaining()).collect();
        assert_eq!(left, [Some(17), Some(9), Some(16)], "{engine:?}");
    }
}

#[test]
fn a_batch_names_each_address_once() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(NESTED), engine);
        let a = limiter.limit("A").unwrap();
        let twice = [a.member("10.0.0.1"), a.member("::ffff:10.0.0.1")];
        let error = limiter.batch(&twice).spend().unwrap_err();
        assert_eq!(error.to_string(), "the bucket A:10.0.0.1 is named twice in the batch");
        let members = [a.member("10.0.0.1").cost(20), a.member("10.1.0.1").cost(30)];
        assert!(limiter.batch(&members).spend().unwrap().allowed(), "{engine:?}");
        assert!(limiter.batch(&members).refund().unwrap().allowed(), "{engine:?}");
        let (_, receipt) = limiter.batch(&members).spend_estimate().unwrap();
        let _ = receipt.unwrap().settle(4);
        assert_eq!(
            (left(&a, "10.0.0.1"), left(&a, "10.1.0.1")),
            (Some(16), Some(26)),
            "{engine:?}"
        );
        assert!(limiter.batch(&members).reset().unwrap().allowed());
        assert_eq!(
            (left(&a, "10.0.0.1"), left(&a, "10.1.0.1")),
            (Some(20), Some(30)),
            "{engine:?}"
        );
    }
}

/// A batch that waits has places in networks, and none where only a network has a limit of another algorithm.
#[test]
fn batches_wait_in_networks() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(NESTED), engine);
        let a = limiter.limit("A").unwrap();
        let members = [a.member("10.0.0.1").cost(20), a.member("10.1.0.1").cost(30)];
        assert!(limiter.batch(&members).spend().unwrap().allowed());
        let place = limiter.batch(&members).reserve(seconds(3600)).unwrap();
        assert_eq!(place.wait(), seconds(3600), "{engine:?}");
        place.cancel();

        let window = Limit::fixed_window(5, seconds(60)).unwrap();
        let limits = Limits::builder().limit("W", IdFormat::IpAddress, None).unwrap();
        let limits = limits.override_id("W", "10.0.0.0/8", window).unwrap().build();
        let (limiter, _hand) = super::support::limiter(limits, engine);
        let w = limiter.limit("W").unwrap();
        let members = [w.member("10.0.0.1").cost(5), w.member("9.9.9.9")];
        let batch = limiter.batch(&members);
        let wait = batch.until_allowed(seconds(1), async |_: Duration| {});
        let polled = pin!(wait).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(_))), "{engine:?}");
        assert_eq!(left(&w, "10.0.0.1"), Some(0), "{engine:?}");
    }
}

/// The limit's mode and debt hold for its networks; its shadow limit is tried beside the default alone.
#[test]
fn options_of_a_limit_hold_in_networks() {
    for engine in ENGINES {
        let with = |options: LimitOptions| {
            let builder = Limits::builder()
                .limit_with("A", IdFormat::IpAddress, hourly(10), options)
                .unwrap();
            let own = OverrideOptions::default().max_debt(3);
            let builder = builder.override_with("A", "10.1.0.0/16", hourly(20), own).unwrap();
            let limits = builder.override_id("A", "10.0.0.0/8", hourly(20)).unwrap().build();
            limiter_with(limits, LimiterOptions::default().engine(engine).counting(true)).0
        };
        let tried = with(LimitOptions::default().mode(LimitMode::Shadow));
        let a = tried.limit("A").unwrap();
        assert!(
            a.spend("10.0.0.1", 25).unwrap().allowed()
                && a.spend("10.0.0.1", 15).unwrap().allowed()
        );
        assert!(a.spend("10.0.0.1", 15).unwrap().allowed(), "{engine:?}");
        assert_eq!(tried.counters().limits.iter().map(|it| it.shadow_denied).sum::<u64>(), 2);

        let beside = with(LimitOptions::default().shadow(hourly(1)));
        let a = beside.limit("A").unwrap();
        assert!(
            a.spend("10.0.0.1", 5).unwrap().allowed() && a.spend("9.9.9.9", 5).unwrap().allowed()
        );
        assert_eq!(beside.counters().limits.iter().map(|it| it.shadow_denied).sum::<u64>(), 1);

        let a = with(LimitOptions::default().max_debt(7)).limit("A").unwrap();
        for (id, debt) in [("10.0.0.1", 7), ("10.1.0.1", 3)] {
            let _ = a.spend_estimate(id, 20).unwrap().1.unwrap().settle(100);
            let wait = a.spend(id, 1).unwrap().retry_in();
            assert_eq!(wait, seconds(3600 / 20 * (debt + 1)), "{engine:?} {id}");
        }
    }
}

/// The floors are the limit's, and a percentage is of the network's burst.
#[test]
fn floors_hold_in_networks() {
    let floors =
        LimitOptions::default().floor("batch", Floor::Percent(45)).floor("few", Floor::Units(7));
    for engine in ENGINES {
        let builder = Limits::builder();
        let builder = builder.limit_with("A", IdFormat::IpAddress, hourly(10), floors.clone());
        let limits = builder.unwrap().override_id("A", "10.0.0.0/8", hourly(20)).unwrap();
        let (limiter, _hand) = limiter(limits.build(), engine);
        let a = limiter.limit("A").unwrap();
        for (id, name, most) in [
            ("10.0.0.1", "batch", 11),
            ("9.9.9.1", "batch", 5),
            ("10.0.0.2", "few", 13),
            ("9.9.9.2", "few", 3),
        ] {
            let calls = a.priority(name).unwrap();
            let of_batch = |cost| limiter.batch(&[calls.member(id).cost(cost)]).spend();
            let context = format!("{engine:?} {id} {name}");
            assert!(calls.spend(id, most + 1).unwrap_err().is_cost_above_burst(), "{context}");
            assert!(of_batch(most + 1).unwrap_err().is_cost_above_burst(), "{context}");
            assert!(calls.spend(id, 1).unwrap().allowed(), "{context}");
            assert!(of_batch(most - 1).unwrap().allowed(), "{context}");
            assert!(!calls.spend(id, 1).unwrap().allowed(), "{context}");
            assert!(!of_batch(1).unwrap().allowed(), "{context}");
        }
    }
}

#[test]
fn full_buckets_of_a_network_are_swept() {
    for engine in ENGINES {
        let (limiter, hand) = limiter(with(NESTED), engine);
        let a = limiter.limit("A").unwrap();
        for id in ["10.0.0.1", "9.9.9.9"] {
            assert!(a.spend(id, 5).unwrap().allowed());
        }
        hand.advance(seconds(3600));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
    }
}

#[test]
fn code_must_give_networks_as_files_do() {
    let builder = || Limits::builder().limit("A", IdFormat::IpAddress, hourly(1)).unwrap();
    let builder = |id: &str| builder().override_id("A", id, None);
    let error = builder("10.0.0.1/8").unwrap_err();
    assert!(error.is_invalid_id());
    assert_eq!(
        error.to_string(),
        "invalid ipAddress \"10.0.0.1/8\": must be in canonical form, \"10.0.0.0/8\""
    );
    let twice = builder("10.0.0.0/8").unwrap().override_id("A", "10.0.0.0/8", None).unwrap_err();
    assert_eq!(twice.to_string(), "the id 10.0.0.0/8 of A was given twice");
    // A call has an address, and no other format has networks.
    let limits = with(NESTED);
    assert!(limits.limit_for("A", "10.0.0.0/8").unwrap_err().is_invalid_id());
    let pair = Limits::builder().limit("B", "ipAddress:string".parse().unwrap(), None).unwrap();
    assert!(pair.override_id("B", ("10.0.0.0/8", "a"), None).unwrap_err().is_invalid_id());
}
