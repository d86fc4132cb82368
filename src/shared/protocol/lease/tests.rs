use std::time::Duration;

use super::*;
use crate::shared::protocol::groups::{LeaseGroups, MAX_GROUP_UNITS};

const S: u64 = 1_000_000_000;
const AT: u64 = 1_790_000_000 * S;

fn limit() -> Limit {
    Limit::new(20, 10, Duration::from_secs(1)).unwrap()
}

fn left(limit: &Limit, bucket: SharedBucket, unix_ns: u64) -> u64 {
    let word = bucket.guarded(limit, unix_ns).word;
    limit.rule().spend(word, rule_time_ns(unix_ns), 0).decision.remaining().unwrap()
}

fn request(want: u64) -> LeaseRequest {
    LeaseRequest { want, length_ms: 1_000, end: None }
}

#[test]
fn a_lease_takes_at_most_half() {
    let limit = limit();
    let (bucket, granted) =
        SharedBucket::default().with_lease(&limit, AT, request(1 << 30)).unwrap();
    assert!(granted.units > 5 && granted.units <= 10, "{granted:?}");
    assert_eq!(left(&limit, bucket, AT), 20 - granted.units);
    assert!(granted.until_ms >= unix_ms(AT) + 1_000 && granted.until_ms <= unix_ms(AT) + 2_000);
    assert_eq!(bucket.with_lease(&limit, AT, request(0)), None);
    let one_left = (0..20).fold(SharedBucket::default(), |bucket, _| {
        let word = limit.rule().spend(bucket.word, rule_time_ns(AT), 1).word;
        SharedBucket { word: word.unwrap_or(bucket.word), ..bucket }
    });
    assert_eq!(one_left.with_lease(&limit, AT, request(1)), None);
}

#[test]
fn a_bucket_does_not_refill_past_its_leases() {
    let limit = limit();
    let (bucket, granted) = SharedBucket::default().with_lease(&limit, AT, request(8)).unwrap();
    assert_eq!(granted.units, 8);
    let end_ns = granted.until_ms * NS_PER_MS;
    assert_eq!(left(&limit, bucket, end_ns - S / 10), 12, "as if taken just now");
    // As if spent at the end; 10 units a second come then.
    assert_eq!(left(&limit, bucket, end_ns + S / 20), 12);
    assert_eq!(left(&limit, bucket, end_ns + S / 2), 17);
    assert_eq!(left(&limit, bucket, end_ns + S), 20);
}

#[test]
fn an_ended_lease_leaves_what_was_spent() {
    let limit = limit();
    let (bucket, granted) = SharedBucket::default().with_lease(&limit, AT, request(4)).unwrap();
    let end = LeaseEnd { tag_ms: granted.tag_ms, granted: 4, unspent: 3 };
    let ended = bucket.guarded(&limit, AT).without_lease(&limit, AT, end).unwrap();
    assert_eq!(left(&limit, ended, AT), 19);
    assert_eq!(ended.leases, LeaseGroups::default());
    let other = LeaseEnd { tag_ms: granted.tag_ms + 1, ..end };
    assert_eq!(bucket.without_lease(&limit, AT, other), None);
    assert_eq!(ended.without_lease(&limit, AT, end), None, "it comes back once");
    let late_ns = granted.until_ms * NS_PER_MS;
    assert_eq!(bucket.guarded(&limit, late_ns).without_lease(&limit, late_ns, end), None);
}

#[test]
fn other_algorithms_have_no_leases() {
    let second = Duration::from_secs(1);
    for limit in [
        Limit::fixed_window(20, second).unwrap(),
        Limit::token_bucket(10, 20, second).unwrap(),
        Limit::leaky_bucket(20, 1, second).unwrap(),
    ] {
        assert_eq!(SharedBucket::default().with_lease(&limit, AT, request(4)), None, "{limit}");
    }
}

#[test]
fn groups_are_in_the_order_of_their_ends() {
    let none = LeaseGroups::default();
    let (one, tag) = none.with(2_000_000_000_500, 5).unwrap();
    assert_eq!(tag, 2_000_000_000_500);
    let (two, tag) = one.with(2_000_000_000_000, 7).unwrap();
    assert_eq!(tag, 2_000_000_000_000);
    let ends: Vec<_> = two.iter().map(|group| (group.until_ms, group.units)).collect();
    assert_eq!(ends, [(2_000_000_000_000, 7), (2_000_000_000_500, 5)]);
    assert_eq!((two.units(), two.last_end_ms()), (12, 2_000_000_000_500));
    // A third end joins a group that ends later; after the last there is none.
    assert_eq!(two.with(2_000_000_000_100, 1).map(|(_, tag)| tag), Some(2_000_000_000_500));
    assert_eq!(two.with(2_000_000_000_501, 1), None);
    assert_eq!(one.with(2_000_000_000_500, MAX_GROUP_UNITS), None);
    assert_eq!(two.without(2_000_000_000_000, 7), Some(one));
    assert_eq!(two.without(2_000_000_000_000, 8), None);
    assert_eq!(none.without(0, 0), None);
}

#[test]
fn leases_above_a_smaller_burst_leave_debt() {
    let second = Duration::from_secs(1);
    let [old, new] = [40, 10].map(|burst| Limit::new(burst, 10, second).unwrap());
    let (bucket, granted) = SharedBucket::default().with_lease(&old, AT, request(16)).unwrap();
    assert_eq!(granted.units, 16);
    let end_ns = granted.until_ms * NS_PER_MS;
    let is_allowed = |at_ns| {
        let word = bucket.guarded(&new, at_ns).word;
        new.rule().spend(word, rule_time_ns(at_ns), 1).decision.allowed()
    };
    // 16 units were spent at the end, and 7 must come before one of 10 is there.
    assert!(!is_allowed(end_ns - 1) && !is_allowed(end_ns + 69 * S / 100));
    assert!(is_allowed(end_ns + 7 * S / 10 + NS_PER_MS));
}

/// A text with the end of a lease before 2020 is refused.
#[test]
fn a_clock_before_2020_grants_no_lease() {
    let limit = limit();
    let lease = |unix_ns| SharedBucket::default().with_lease(&limit, unix_ns, request(8));
    assert_eq!(lease(282_023_143_000_000), None);
    let at_ns = (ORIGIN_MS + 1) * NS_PER_MS;
    let (bucket, _) = lease(at_ns).unwrap();
    let text = bucket.text(&limit);
    assert_eq!(SharedBucket::read(&limit, Some(text.as_bytes())), Ok(bucket));
}
