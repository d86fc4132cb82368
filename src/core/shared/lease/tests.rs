use std::time::Duration;

use super::*;
use crate::core::shared::groups::{LeaseGroups, MAX_GROUP_UNITS};

const S: u64 = 1_000_000_000;
const AT: u64 = 1_790_000_000 * S;

fn limits() -> [Limit; 4] {
    let second = Duration::from_secs(1);
    [
        Limit::new(20, 10, second).unwrap(),
        Limit::fixed_window(20, 2 * second).unwrap(),
        Limit::token_bucket(20, 2 * second, 10).unwrap(),
        Limit::leaky_bucket(20, second / 10, 1).unwrap(),
    ]
}

fn left(limit: &Limit, bucket: SharedBucket, unix_ns: u64) -> u64 {
    let word = bucket.guarded((limit, limit), unix_ns).word;
    limit.rule().spend(word, rule_time_ns(unix_ns), 0).decision.remaining().unwrap()
}

fn request(want: u64) -> LeaseRequest {
    LeaseRequest { want, length_ms: 1_000, end: None }
}

#[test]
fn a_lease_takes_at_most_half() {
    for limit in limits() {
        let half = if limit.algorithm() == "token_bucket" { 5 } else { 10 };
        let (bucket, granted) =
            SharedBucket::default().with_lease(&limit, AT, request(1 << 30)).unwrap();
        assert!(granted.units > half / 2 && granted.units <= half, "{limit}: {granted:?}");
        assert_eq!(left(&limit, bucket, AT), 20 - granted.units, "{limit}");
        assert!(granted.until_ms >= unix_ms(AT) + 1_000 && granted.until_ms <= unix_ms(AT) + 2_000);
        assert_eq!(bucket.with_lease(&limit, AT, request(0)), None);
        let one_left = (0..20).fold(SharedBucket::default(), |bucket, _| {
            let word = limit.rule().spend(bucket.word, rule_time_ns(AT), 1).word;
            SharedBucket { word: word.unwrap_or(bucket.word), ..bucket }
        });
        assert_eq!(one_left.with_lease(&limit, AT, request(1)), None, "{limit}");
    }
}

#[test]
fn a_bucket_does_not_refill_past_its_leases() {
    for limit in [&limits()[0], &limits()[3]] {
        let (bucket, granted) = SharedBucket::default().with_lease(limit, AT, request(8)).unwrap();
        assert_eq!(granted.units, 8);
        let end_ns = granted.until_ms * NS_PER_MS;
        assert_eq!(left(limit, bucket, end_ns - S / 10), 12, "{limit}: as if taken just now");
        // As if spent at the end; 10 units a second come then.
        assert_eq!(left(limit, bucket, end_ns + S / 20), 12, "{limit}");
        assert_eq!(left(limit, bucket, end_ns + S / 2), 17, "{limit}");
        assert_eq!(left(limit, bucket, end_ns + S), 20, "{limit}");
    }
}

#[test]
fn an_ended_lease_leaves_what_was_spent() {
    for limit in limits() {
        let (bucket, granted) = SharedBucket::default().with_lease(&limit, AT, request(4)).unwrap();
        let end = LeaseEnd { tag_ms: granted.tag_ms, granted: 4, unspent: 3 };
        let ended = bucket.guarded((&limit, &limit), AT).without_lease(&limit, AT, end).unwrap();
        assert_eq!(left(&limit, ended, AT), 19, "{limit}");
        assert_eq!(ended.leases, LeaseGroups::default());
        let other = LeaseEnd { tag_ms: granted.tag_ms + 1, ..end };
        assert_eq!(bucket.without_lease(&limit, AT, other), None, "{limit}");
        if limit.algorithm() != "fixed_window" && limit.algorithm() != "token_bucket" {
            assert_eq!(ended.without_lease(&limit, AT, end), None, "{limit}: it comes back once");
            let late_ns = granted.until_ms * NS_PER_MS;
            assert_eq!(
                bucket.guarded((&limit, &limit), late_ns).without_lease(&limit, late_ns, end),
                None
            );
        }
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
    let versions = [
        (Limit::new(40, 10, second), Limit::new(10, 10, second)),
        (Limit::leaky_bucket(40, second / 10, 1), Limit::leaky_bucket(10, second / 10, 1)),
    ];
    for (old, new) in versions.map(|(old, new)| (old.unwrap(), new.unwrap())) {
        let (bucket, granted) = SharedBucket::default().with_lease(&old, AT, request(16)).unwrap();
        assert_eq!(granted.units, 16);
        let end_ns = granted.until_ms * NS_PER_MS;
        let is_allowed = |at_ns| {
            let word = bucket.guarded((&new, &new), at_ns).word;
            new.rule().spend(word, rule_time_ns(at_ns), 1).decision.allowed()
        };
        // 16 units were spent at the end, and 7 must come before one of 10 is there.
        assert!(!is_allowed(end_ns - 1) && !is_allowed(end_ns + 69 * S / 100), "{new}");
        assert!(is_allowed(end_ns + 7 * S / 10 + NS_PER_MS), "{new}");
    }
}

/// A text with the end of a lease before 2020 is refused.
#[test]
fn a_clock_before_2020_grants_no_lease() {
    for limit in limits() {
        let lease = |unix_ns| SharedBucket::default().with_lease(&limit, unix_ns, request(8));
        assert_eq!(lease(282_023_143_000_000), None, "{limit}");
        let at_ns = (ORIGIN_MS + 1) * NS_PER_MS;
        let (bucket, _) = lease(at_ns).unwrap();
        let text = bucket.text(&limit);
        assert_eq!(SharedBucket::read(&limit, Some(text.as_bytes())), Ok(bucket), "{limit}");
    }
}

/// By a factor above 1 the unit before the lease has not dripped out when the lease ends, or just has, and by one below 1 more
/// units have than by the limit itself.
#[test]
fn calls_by_factor_keep_what_leases_held() {
    let own = Limit::leaky_bucket(100, Duration::from_millis(700), 1).unwrap();
    let word = own.rule().spend(0, rule_time_ns(AT), 1).word.unwrap();
    let bucket = SharedBucket { word, ..SharedBucket::default() };
    let (leased, granted) = bucket.with_lease(&own, AT, request(30)).unwrap();
    assert_eq!(granted.units, 30);
    let end_ns = granted.until_ms * NS_PER_MS;
    assert_eq!(end_ns, AT + 2 * S, "two drips of the limit itself");
    for (factor, in_front) in [("3", 1), ("2", 0), ("0.25", 0)] {
        let scaled = own.scaled(factor.parse().unwrap()).unwrap().unwrap();
        let found = leased.guarded((&scaled, &own), end_ns);
        let word = scaled.rule().spend(found.word, rule_time_ns(end_ns), 1).word.unwrap();
        let new = SharedBucket { word, ..found };
        assert_eq!(left(&own, new, end_ns), 100 - in_front - 30 - 1, "factor {factor}");
    }
}

/// After a limit has changed from `leased` to `exact`, while nodes still hold leases.
#[test]
fn no_lease_comes_back_in_front_of_reservations() {
    let limit = Limit::fixed_window(10, Duration::from_secs(2)).unwrap();
    let (leased, granted) = SharedBucket::default().with_lease(&limit, AT, request(4)).unwrap();
    let end = LeaseEnd { tag_ms: granted.tag_ms, granted: 4, unspent: 4 };
    let reserved = |cost| {
        let grant = limit.rule().reserve(leased.word, rule_time_ns(AT), cost).unwrap();
        SharedBucket { word: grant.word, ..leased }.without_lease(&limit, AT, end)
    };
    assert_eq!(reserved(6).map(|it| left(&limit, it, AT)), Some(4), "in this window");
    assert_eq!(reserved(7), None, "in the next one");
}

/// The units of a lease are spent late. A call by a factor below 1, which comes next, must not let more units drip out than after
/// such spends in one bucket.
#[test]
fn late_spends_put_fast_drips_off() {
    let ms = |ms| AT + ms * NS_PER_MS;
    // The limit's size, ms and units of a drip; the units that are charged and leased at 0, the length of the lease, the time of
    // the spends; the call's factor and time, 0 for the lease's end.
    for (limit, (charged, units, length_ms), spent_ms, factor, at_ms) in [
        ((100, 100, 1), (51, 20, 500), 990, "0.1", 0),
        ((100, 100, 1), (51, 20, 500), 990, "0.1", 995),
        ((200, 1_000, 1), (101, 32, 20_000), 39_000, "0.5", 0),
        ((100, 1_000, 20), (1, 25, 1_500), 1_990, "0.25", 1_990),
        ((100, 100, 1), (9, 25, 1_000), 990, "3", 990),
    ] {
        let own = Limit::leaky_bucket(limit.0, Duration::from_millis(limit.1), limit.2).unwrap();
        let scaled = own.scaled(factor.parse().unwrap()).unwrap().unwrap();
        let spend = |limit: &Limit, word, cost, at_ns| {
            limit.rule().spend(word, rule_time_ns(at_ns), cost).word.unwrap()
        };
        let start = SharedBucket { word: spend(&own, 0, charged, AT), ..SharedBucket::default() };
        let request = LeaseRequest { length_ms, ..request(units) };
        let (leased, granted) = start.with_lease(&own, AT, request).unwrap();
        assert_eq!(granted.units, units);
        let at_ns = if at_ms == 0 { granted.until_ms * NS_PER_MS } else { ms(at_ms) };
        let found = leased.guarded((&scaled, &own), at_ns);
        let store = SharedBucket { word: spend(&scaled, found.word, 1, at_ns), ..found };
        let before = spend(&own, start.word, units, ms(spent_ms));
        let before = SharedBucket { word: spend(&scaled, before, 1, at_ns), ..start };
        let after = spend(&own, spend(&scaled, start.word, 1, at_ns), units, at_ns);
        let after = SharedBucket { word: after, ..start };
        for now_ns in [at_ns, at_ns + S / 5, at_ns + 2 * S] {
            let (store, one) = (left(&own, store, now_ns), left(&own, before, now_ns));
            assert!(store <= one, "{own} {factor}: {store} of {one} at {now_ns}");
            let one = left(&own, after, now_ns);
            assert!(at_ms == 0 || store <= one, "{own} {factor}: {store} of {one} at {now_ns}");
        }
        // The same for a lease that comes back without units.
        let end = LeaseEnd { tag_ms: granted.tag_ms, granted: units, unspent: 0 };
        let found =
            leased.guarded((&own, &own), ms(spent_ms)).without_lease(&own, ms(spent_ms), end);
        let found = found.unwrap().guarded((&scaled, &own), at_ns);
        let store = SharedBucket { word: spend(&scaled, found.word, 1, at_ns), ..found };
        assert!(left(&own, store, at_ns) <= left(&own, before, at_ns), "{own} {factor}");
    }
}

/// All units of the lease are spent just before it comes back, and a call by a factor below 1 comes next.
#[test]
fn spent_leases_do_not_drip_out_again() {
    let own = Limit::leaky_bucket(100, Duration::from_millis(100), 1).unwrap();
    let fast = own.scaled("0.25".parse().unwrap()).unwrap().unwrap();
    let word = own.rule().spend(0, rule_time_ns(AT), 40).word.unwrap();
    let bucket = SharedBucket { word, ..SharedBucket::default() };
    let (leased, granted) = bucket.with_lease(&own, AT, request(30)).unwrap();
    assert_eq!(granted.units, 30);
    let end = LeaseEnd { tag_ms: granted.tag_ms, granted: 30, unspent: 0 };
    let at_ns = AT + S;
    let ended = leased.guarded((&own, &own), at_ns).without_lease(&own, at_ns, end).unwrap();
    assert_eq!(left(&own, ended, at_ns), 100 - 60, "ten have dripped out");
    assert_eq!(left(&fast, ended, at_ns), 400 - 60, "the same, as after any call of this time");
}
