//! Reads arbitrary bytes as the text of a bucket in the store, and decides a call from it at any time: an error, or a bucket
//! whose text is read again as the same, which admits no more than a full one, and which the store keeps until it is full.
//!
//! The first 16 bytes are the limit, the time and the call; the rest is the text.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tollgate::Limit;
use tollgate::limit::Parameters;
use tollgate::shared::fuzzing::{Call, TextBucket, decide_text};

/// 2020-01-01 and the end of the words' time, in ns since 1970.
const TIMES: std::ops::Range<u64> = 1_577_836_800_000_000_000..2_127_000_000_000_000_000;
const SLACK_MS: u64 = 60_000;

static LIMITS: LazyLock<Vec<Limit>> = LazyLock::new(|| {
    let (second, year) = (Duration::from_secs(1), Duration::from_secs(365 * 86_400));
    let limits = [
        Limit::new(20, 10, second),
        Limit::new(1, 1, year),
        Limit::new(1_000_000, 1, Duration::from_micros(1)),
        Limit::fixed_window(20, second),
        Limit::fixed_window(1_000_000, Duration::from_secs(7 * 86_400)),
        Limit::token_bucket(20, 50, second),
        Limit::leaky_bucket(20, 7, second),
        Limit::leaky_bucket(1_000_000, 1, Duration::from_millis(1)),
    ];
    limits.map(|limit| limit.expect("a limit")).into()
});

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fuzz_target!(|data: &[u8]| {
    let Some((head, text)) = data.split_at_checked(16) else { return };
    let limit = &LIMITS[usize::from(head[0]) % LIMITS.len()];
    let unix_ns = match head[1] % 3 {
        0 => number(&head[2..10]),
        1 => 1_790_000_000_000_000_000 + number(&head[2..6]),
        _ => TIMES.start + number(&head[2..10]) % (TIMES.end - TIMES.start),
    };
    let cost = limit.burst() * u64::from(head[10]) / 255;
    let units = number(&head[13..16]);
    let call = Call {
        cost,
        mode: head[11] % 3,
        lease: (head[11] & 4 != 0).then_some((units, 1 + 100 * u64::from(head[12]))),
        // A lease of this text, if it has one.
        end: lease_of(text).filter(|_| head[11] & 8 != 0).unwrap_or_default(),
    };
    let bucket = match TextBucket::read(limit, text) {
        Ok(bucket) => bucket,
        Err(fault) => {
            assert!(fault.len() < 1000 && !fault.chars().any(char::is_control), "{fault:?}");
            assert!(decide_text(limit, text, unix_ns, call).is_err());
            return;
        }
    };
    check(limit, bucket);
    let guarded = bucket.guarded(limit, unix_ns);
    // A bucket that was never charged, whose block is over, has no text.
    if !guarded.text(limit).is_empty() {
        check(limit, guarded);
    }
    check_kept(limit, guarded, unix_ns, guarded.kept_ms(limit, unix_ns));

    let answer = decide_text(limit, text, unix_ns, call).expect("the text was read");
    let decision = answer.decision;
    let left = decision.remaining().expect("a limit's figure");
    // A token bucket can have the units of its window, and gives out a burst of them at once.
    let most = match limit.parameters() {
        Parameters::TokenBucket { limit, .. } => limit,
        _ => limit.burst(),
    };
    assert!(left <= most, "{left} of {limit}");
    assert!(answer.granted <= limit.burst() / 2 && answer.granted <= units, "{answer:?}");
    assert!(answer.granted == 0 || decision.allowed(), "{answer:?}");
    if decision.allowed() && call.mode != 1 {
        assert!(left + cost <= most && answer.granted <= left, "{answer:?}");
    }
    let before = Call { cost: 0, mode: 1, lease: None, end: (0, 0, 0) };
    let before = decide_text(limit, text, unix_ns, before).expect("the text was read").decision;
    if decision.allowed() && call.end.1 == 0 {
        assert!(before.remaining() >= Some(cost), "{before:?} before {answer:?}");
    }
    let Some((new, kept_ms)) = answer.written else { return };
    let new_bucket = TextBucket::read(limit, new.as_bytes()).expect("a text that was written");
    assert_eq!(new_bucket.text(limit), new);
    check_kept(limit, new_bucket, unix_ns, kept_ms);
});

/// The text of a bucket is read as the same bucket.
fn check(limit: &Limit, bucket: TextBucket) {
    let text = bucket.text(limit);
    assert_eq!(TextBucket::read(limit, text.as_bytes()), Ok(bucket), "{text:?}");
}

/// A bucket that the store has forgotten says nothing.
fn check_kept(limit: &Limit, bucket: TextBucket, unix_ns: u64, kept_ms: u64) {
    assert!(kept_ms >= SLACK_MS, "{bucket:?} {kept_ms}");
    let until_ns = kept_ms.checked_mul(1_000_000).and_then(|ns| ns.checked_add(unix_ns));
    let until_ns = until_ns.filter(|ns| TIMES.contains(ns) && TIMES.contains(&unix_ns));
    if let Some(until_ns) = until_ns {
        assert!(bucket.is_over(limit, until_ns), "{bucket:?} of {limit} after {kept_ms} ms");
    }
}

/// The end and the units of the first lease that a text seems to have, and half of them unspent.
fn lease_of(text: &[u8]) -> Option<(u64, u64, u64)> {
    let text = std::str::from_utf8(text).ok()?.split('~').next()?;
    let mut parts = text.split('|').skip(2).map(str::parse);
    let (tag_ms, units) = (parts.next()?.ok()?, parts.next()?.ok()?);
    Some((tag_ms, units, units / 2))
}
