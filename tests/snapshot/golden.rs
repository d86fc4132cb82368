//! Every later version of the crate reads snapshots of version 3, the first version that is released, on
//! every kind of processor.
//!
//! `writes_the_golden_files` wrote the two files once. Their buckets refill so slowly that they owe units until the year
//! 2100; `elapsed` says by how much they have refilled.
#![cfg(feature = "boulder")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate::options::Engine;
use tollgate::{IdFormat, Limit, Limiter, Limits};

use super::{ENGINES, limiter, options};

const DAY: Duration = Duration::from_secs(86_400);
const DECADE: Duration = Duration::from_secs(10 * 365 * 86_400);
const PER_ACCOUNT: &str = "CertificatesPerDomainPerAccount";

fn slowest(burst: u64) -> Limit {
    Limit::new(burst, 1, DECADE).unwrap()
}

fn all_limits() -> Limits {
    let builder = Limits::builder()
        .limit("Gcra", IdFormat::String, slowest(10))
        .and_then(|it| it.override_id("Gcra", "overridden", slowest(12)))
        .and_then(|it| it.limit("Ids", IdFormat::RegId, slowest(10)))
        .and_then(|it| it.limit("Window", IdFormat::String, Limit::fixed_window(10, DECADE)?))
        .and_then(|it| it.limit("Tokens", IdFormat::String, Limit::token_bucket(5, 10, DECADE)?))
        .and_then(|it| it.limit("Drips", IdFormat::String, Limit::leaky_bucket(10, 1, DECADE)?))
        .and_then(|it| it.limit(PER_ACCOUNT, IdFormat::RegIdDomainOrCidr, slowest(10)))
        .and_then(|it| it.override_id(PER_ACCOUNT, "12", slowest(11)));
    builder.unwrap().build()
}

/// The gcra buckets: limit, id and units spent.
const SPENT: [(&str, &str, u64); 6] = [
    ("Gcra", "short", 3),
    ("Gcra", "an id of more than sixteen bytes", 4),
    (
        "Gcra",
        "an id of more than sixty-four bytes, which is hashed by another way than shorter ones",
        5,
    ),
    ("Gcra", "overridden", 6),
    (PER_ACCOUNT, "12:example.com", 7),
    (PER_ACCOUNT, "13:example.com", 8),
];

const BLOCKED: [(&str, &str, Option<&str>); 2] =
    [("Gcra", "mallory", Some("ticket 4711")), (PER_ACCOUNT, "13:example.com", None)];

fn golden(engine: Engine) -> PathBuf {
    let keys = if engine != Engine::LockFree { "ids" } else { "fingerprints" };
    let name = format!("v3-{keys}");
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshot").join(name)
}

#[test]
#[ignore = "the files were written once"]
fn writes_the_golden_files() {
    for engine in ENGINES {
        let (limiter, hand) = limiter(all_limits(), engine);
        hand.advance(DAY);
        for (name, id, cost) in SPENT {
            assert!(limiter.limit(name).unwrap().spend(id, cost).unwrap().allowed());
        }
        assert!(limiter.limit("Ids").unwrap().spend(1_u64 << 40, 9).unwrap().allowed());
        for name in ["Window", "Tokens", "Drips"] {
            assert!(limiter.limit(name).unwrap().spend("x", 2).unwrap().allowed());
        }
        for (name, id, reason) in BLOCKED {
            let handle = limiter.limit(name).unwrap();
            let century = 10 * DECADE;
            match reason {
                Some(reason) => handle.block_with_reason(id, century, reason),
                None => handle.block(id, century),
            }
            .unwrap();
        }
        hand.advance(DAY);
        let written = limiter.snapshot(golden(engine)).unwrap();
        assert_eq!((written.buckets, written.blocks), (10, 2));
    }
}

#[test]
fn files_of_version_3_can_be_read() {
    for engine in ENGINES {
        can_be_read(engine);
    }
}

fn can_be_read(engine: Engine) {
    let path = golden(engine);
    let (limiter, restored) = Limiter::restore(all_limits(), options(engine).0, &path).unwrap();
    assert_eq!((restored.buckets + restored.full, restored.dropped), (10, 0));
    assert_eq!(restored.blocks as usize, BLOCKED.len());
    for listed in limiter.blocks() {
        let block = (&*listed.limit, &*listed.id, listed.reason.as_deref());
        assert!(BLOCKED.contains(&block), "{block:?}");
        assert_eq!(listed.left, 10 * DECADE - DAY - restored.elapsed);
        assert!(limiter.limit(&listed.limit).unwrap().unblock(&listed.id).unwrap());
    }
    // Whenever the test runs, each bucket owes less by the time that has passed.
    let owes = |name: &str, id: &str, spent: u64| {
        let owed = DECADE * spent as u32 - DAY;
        let left = limiter.limit(name).unwrap().check(id, 0).unwrap().reset_in();
        let late = left.checked_sub(owed.saturating_sub(restored.elapsed));
        // The algorithms that count milliseconds answer as of the start of the present millisecond.
        let most =
            if limiter.limit(name).unwrap().limit_for(id).unwrap().unwrap().algorithm() == "gcra" {
                Duration::ZERO
            } else {
                Duration::from_millis(1)
            };
        assert!(late.is_some_and(|late| late <= most), "{engine:?} {name} {id}: {left:?}");
    };
    SPENT.iter().for_each(|&(name, id, spent)| owes(name, id, spent));
    owes("Ids", &(1_u64 << 40).to_string(), 9);
    if restored.elapsed < 365 * DAY {
        for name in ["Window", "Tokens"] {
            owes(name, "x", 1);
        }
        owes("Drips", "x", 2);
    }
    let numbers = limiter.limit("Gcra").unwrap().limit_for("overridden").unwrap();
    assert_eq!(numbers, Some(slowest(12)));
}
