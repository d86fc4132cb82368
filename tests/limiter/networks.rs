//! Overrides of networks of addresses.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tollgate::limits::{Applies, LimitsBuilder, OverrideOptions, WhyNot};
use tollgate::options::AtCap;
use tollgate::reserve::ReserveError;
use tollgate::{IdFormat, KeyedLimit, Limit, LimiterOptions, Limits};

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
            for (after, wanted) in [(soon + seconds(2), [50, 50, 50, 5]), (soon, [5, 5, 5, 5])] {
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

#[test]
fn a_full_table_denies_a_networks_new_addresses() {
    for engine in ENGINES {
        for at_cap in [AtCap::Share, AtCap::Deny] {
            let options = LimiterOptions::default().engine(engine).max_keys(1).at_cap(at_cap);
            let (limiter, _hand) = limiter_with(with(NESTED), options);
            let a = limiter.limit("A").unwrap();
            assert!(a.spend("9.9.9.9", 1).unwrap().allowed());
            let denied = a.spend("10.0.0.1", 1).unwrap();
            assert!(!denied.allowed() && denied.out_of_room(), "{engine:?} {at_cap:?}");
            // Single addresses have their places beside the cap, and no limit needs no place.
            assert!(a.spend("10.1.2.3", 1).unwrap().allowed(), "{engine:?} {at_cap:?}");
            assert!(a.spend("10.1.3.3", 1).unwrap().allowed(), "{engine:?} {at_cap:?}");
            assert_eq!(limiter.stats().cells, 2, "{engine:?} {at_cap:?}");
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
