//! Each written field parses, and its values agree with the decision.
#![cfg(feature = "http")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName};
use proptest::prelude::*;
use sfv::{BareItem, Item as Parsed, List, ListEntry, Parser};
use tollgate::clock::ManualClock;
use tollgate::http::{Answer, Fields, Item, PlugLimitNames, Policy, Reset, Style, retry_after};
use tollgate::limit::Parameters;
use tollgate::{Bucket, Clock, Decision, Limit};

fn bucket(burst: u64, count: u64, period: Duration) -> (Bucket, Policy, ManualClock) {
    let limit = Limit::new(burst, count, period).unwrap();
    let (clock, manual) = Clock::manual();
    (Bucket::new(limit.clone(), clock), Policy::new("a", &limit).unwrap(), manual)
}

fn written(style: Style, policy: &Policy, decision: Decision) -> Vec<String> {
    written_at(style, policy, decision, UNIX_EPOCH)
}

fn written_at(style: Style, policy: &Policy, decision: Decision, now: SystemTime) -> Vec<String> {
    let mut headers = HeaderMap::new();
    Fields::new([style]).unwrap().write(&mut headers, &Answer::one(policy, decision), now);
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

#[test]
fn each_style_of_allowed_and_denied_calls() {
    // 3 at once, then 2 every 3 s: one every 1.5 s, and all 3 in 4.5 s.
    let (bucket, policy, _hand) = bucket(3, 2, Duration::from_secs(3));
    let allowed = bucket.spend(2).unwrap();
    let denied = bucket.spend(3).unwrap();
    assert_eq!(
        (denied.retry_in(), denied.reset_in()),
        (Duration::from_secs(3), Duration::from_secs(3),)
    );
    let denied_soon = bucket.spend(2).unwrap();
    assert_eq!(denied_soon.retry_in(), Duration::from_millis(1500));
    let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_001);
    let names = PlugLimitNames::default()
        .limit(HeaderName::from_static("quota"))
        .retry_after(HeaderName::from_static("wait"));
    let table: [(Style, &[&str], &[&str]); 7] = [
        (
            Style::Ietf,
            &[r#"ratelimit-policy: "a";q=3;w=5"#, r#"ratelimit: "a";r=1;t=2"#],
            &[r#"ratelimit-policy: "a";q=3;w=5"#, r#"ratelimit: "a";r=1;t=2"#, "retry-after: 2"],
        ),
        (
            Style::Draft06,
            &[
                "ratelimit-limit: 3",
                "ratelimit-policy: 3;w=5",
                "ratelimit-remaining: 1",
                "ratelimit-reset: 2",
            ],
            &[
                "ratelimit-limit: 3",
                "ratelimit-policy: 3;w=5",
                "ratelimit-remaining: 1",
                "ratelimit-reset: 2",
                "retry-after: 2",
            ],
        ),
        (
            Style::Draft03,
            &["ratelimit-limit: 3, 3;w=5", "ratelimit-remaining: 1", "ratelimit-reset: 2"],
            &[
                "ratelimit-limit: 3, 3;w=5",
                "ratelimit-remaining: 1",
                "ratelimit-reset: 2",
                "retry-after: 2",
            ],
        ),
        (
            Style::XRateLimit(Reset::Delta),
            &["x-ratelimit-limit: 3", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 2"],
            &[
                "retry-after: 2",
                "x-ratelimit-limit: 3",
                "x-ratelimit-remaining: 1",
                "x-ratelimit-reset: 2",
            ],
        ),
        (
            Style::XRateLimit(Reset::Epoch),
            &["x-ratelimit-limit: 3", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 1700000002"],
            &[
                "retry-after: 2",
                "x-ratelimit-limit: 3",
                "x-ratelimit-remaining: 1",
                "x-ratelimit-reset: 1700000002",
            ],
        ),
        (
            Style::PlugLimit(names),
            &["quota: 3", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 3"],
            &[
                "quota: 3",
                "retry-after: 2",
                "wait: 2",
                "x-ratelimit-remaining: 1",
                "x-ratelimit-reset: 3",
            ],
        ),
        (
            Style::Sharkey,
            &["x-ratelimit-clear: 3.000", "x-ratelimit-remaining: 1"],
            &[
                "retry-after: 2",
                "x-ratelimit-clear: 3.000",
                "x-ratelimit-remaining: 1",
                "x-ratelimit-reset: 1.500",
            ],
        ),
    ];
    for (style, of_allowed, of_denied) in table {
        let sorted = |lines: &[&str]| {
            let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            lines.sort();
            lines
        };
        let shown = format!("{style:?}");
        assert_eq!(written_at(style.clone(), &policy, allowed, at), sorted(of_allowed), "{shown}");
        assert_eq!(written_at(style, &policy, denied_soon, at), sorted(of_denied), "{shown}");
    }
}

#[test]
fn sharkeys_times_have_three_decimals_rounded_up() {
    let (bucket, policy, manual) = bucket(1, 1, Duration::from_millis(10));
    let _ = bucket.spend(1).unwrap();
    manual.advance(Duration::from_nanos(123_456));
    let denied = bucket.spend(1).unwrap();
    let expected = [
        "retry-after: 1",
        "x-ratelimit-clear: 0.010",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-reset: 0.010",
    ];
    assert_eq!(written(Style::Sharkey, &policy, denied), expected);
}

#[test]
fn styles_that_contradict_each_other_are_refused() {
    let pairs = [
        (Style::Ietf, Style::Draft06, "ratelimit-policy"),
        (Style::Draft03, Style::Draft06, "ratelimit-limit"),
        (Style::XRateLimit(Reset::Delta), Style::XRateLimit(Reset::Epoch), "x-ratelimit-limit"),
        (Style::Sharkey, Style::PlugLimit(PlugLimitNames::default()), "x-ratelimit-remaining"),
    ];
    for (one, other, name) in pairs {
        let error = Fields::new([one, other]).unwrap_err();
        assert_eq!(error.to_string(), format!("two styles write the field {name}"));
    }
    assert!(Fields::new([Style::Ietf, Style::Draft03, Style::Sharkey]).is_ok());
}

/// No style of any algorithm shows more remaining units than the quota.
#[test]
fn remaining_is_never_above_the_quota() {
    let second = Duration::from_secs(1);
    let limits = [
        Limit::new(20, 10, second).unwrap(),
        Limit::new(1 << 62, 1, Duration::from_nanos(1)).unwrap(),
        Limit::fixed_window(5, 10 * second).unwrap(),
        Limit::token_bucket(3, 13, 30 * second).unwrap(),
        Limit::leaky_bucket(4, 1, 2 * second).unwrap(),
        Limit::leaky_bucket(4, 10, 2 * second).unwrap(),
    ];
    let styles = [
        Style::Ietf,
        Style::Draft06,
        Style::Draft03,
        Style::XRateLimit(Reset::Delta),
        Style::PlugLimit(PlugLimitNames::default()),
    ];
    // Reads all numbers of a field.
    let numbers = |text: &str| -> Vec<u64> {
        let digits = |c: char| !c.is_ascii_digit();
        text.split(digits).filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect()
    };
    for limit in &limits {
        let policy = Policy::new("a", limit).unwrap();
        // A full bucket of the limit, and one of a larger limit, as before a reload.
        let larger = Bucket::new(
            Limit::new(1 << 60, 1, Duration::from_nanos(1)).unwrap(),
            Clock::manual().0,
        );
        let full = Bucket::new(limit.clone(), Clock::manual().0);
        for decision in [full.check(0).unwrap(), larger.check(0).unwrap()] {
            for style in &styles {
                let mut quotas = Vec::new();
                let mut remaining = None;
                for line in written(style.clone(), &policy, decision) {
                    let (name, value) = line.split_once(": ").unwrap();
                    match name {
                        "ratelimit-limit" | "x-ratelimit-limit" | "ratelimit-policy" => {
                            quotas.push(numbers(value)[0]);
                        }
                        "ratelimit" | "ratelimit-remaining" | "x-ratelimit-remaining" => {
                            remaining = Some(numbers(value)[0]);
                        }
                        _ => {}
                    }
                    assert!(!value.contains("tollgate"), "{line}");
                }
                let lowest = quotas.iter().min().unwrap();
                assert!(
                    remaining.unwrap() <= *lowest,
                    "{limit:?} {style:?}: {remaining:?} of {quotas:?}"
                );
            }
        }
    }
}

#[test]
fn policy_window_is_its_quotas_refill_time() {
    let ms = Duration::from_millis;
    for (limit, ietf, draft06) in [
        (Limit::new(20, 10, ms(1000)).unwrap(), "q=20;w=2", "20;w=2"),
        (Limit::new(20, 10, ms(1001)).unwrap(), "q=20;w=3", "20;w=3"),
        (Limit::new(1, 1000, ms(1000)).unwrap(), "q=1;w=1", "1;w=1"),
        (Limit::new(300, 600, ms(10_800_000)).unwrap(), "q=300;w=5400", "300;w=5400"),
        (Limit::fixed_window(5, ms(1500)).unwrap(), "q=5;w=2", "5;w=2"),
        (Limit::token_bucket(3, 13, ms(30_000)).unwrap(), "q=13;w=30", "13;w=30"),
        (Limit::leaky_bucket(4, 1, ms(2000)).unwrap(), "q=4;w=8", "4;w=8"),
        (Limit::leaky_bucket(4, 10, ms(2000)).unwrap(), "q=4;w=2", "4;w=2"),
    ] {
        let policy = Policy::new("a", &limit).unwrap();
        let decision = Bucket::new(limit.clone(), Clock::manual().0).check(0).unwrap();
        let field = format!("ratelimit-policy: \"a\";{ietf}");
        assert!(written(Style::Ietf, &policy, decision).contains(&field), "{limit:?}");
        let field = format!("ratelimit-policy: {draft06}");
        assert!(written(Style::Draft06, &policy, decision).contains(&field), "{limit:?}");
    }
}

#[test]
fn unenforced_wait_has_no_retry_after() {
    let (bucket, policy, _hand) = bucket(1, 1, Duration::from_secs(1));
    let _ = bucket.spend(1).unwrap();
    let answer = Answer::one(&policy, bucket.spend(1).unwrap()).only_reported();
    let mut headers = HeaderMap::new();
    Fields::new([Style::Ietf]).unwrap().write(&mut headers, &answer, UNIX_EPOCH);
    assert!(headers.contains_key("ratelimit") && !headers.contains_key("retry-after"));

    let limiter = tollgate::Limiter::new(tollgate::Limits::builder().build());
    let unlimited = limiter.batch(&[]).spend().unwrap();
    let mut headers = HeaderMap::new();
    let all = [Style::Ietf, Style::Draft03, Style::Sharkey];
    Fields::new(all).unwrap().write(&mut headers, &Answer::one(&policy, unlimited), UNIX_EPOCH);
    assert!(headers.is_empty(), "{headers:?}");
}

/// A client ignores a list of which one line is invalid, so a service's own invalid line would hide the layer's members.
#[test]
fn an_invalid_list_of_the_service_is_dropped() {
    let (bucket, policy, _hand) = bucket(3, 2, Duration::from_secs(3));
    let decision = bucket.spend(1).unwrap();
    let written = |style: Style, before: &[(&'static str, &'static str)], name: &str| {
        let mut headers = HeaderMap::new();
        for (name, value) in before {
            headers.append(*name, value.parse().unwrap());
        }
        let answer = Answer::one(&policy, decision);
        Fields::new([style]).unwrap().write(&mut headers, &answer, UNIX_EPOCH);
        let lines: Vec<_> = headers.get_all(name).iter().collect();
        assert_eq!(lines.len(), 1, "{headers:?}");
        Parser::new(headers[name].as_bytes()).parse::<List>().expect("a structured list");
        lines[0].to_str().unwrap().to_owned()
    };
    let own = r#""a";r=2;t=2"#;
    let with = |before: &str| format!("{before}, {own}");
    let table: &[(&[&'static str], String)] = &[
        (&["limit=100, remaining=50, reset=5"], own.into()),
        (&[r#""x;r=1"#], own.into()),
        (&["12,"], own.into()),
        (&["", "  ", ","], own.into()),
        (&[r#""x";r=1"#, "x=1", r#""y";r=2 "#], with(r#""x";r=1, "y";r=2"#)),
        (
            &[r#""x";r=1;t=3;pk=:YQ==:;z=?1, (1 2.5);w=@1"#],
            with(r#""x";r=1;t=3;pk=:YQ==:;z=?1, (1 2.5);w=@1"#),
        ),
    ];
    for (lines, expected) in table {
        let before: Vec<_> = lines.iter().map(|line| ("ratelimit", *line)).collect();
        assert_eq!(&written(Style::Ietf, &before, "ratelimit"), expected);
    }
    let policy = |style, value| written(style, &[("ratelimit-policy", value)], "ratelimit-policy");
    assert_eq!(policy(Style::Ietf, "10;w=1, 20;w"), r#"10;w=1, 20;w, "a";q=3;w=5"#);
    assert_eq!(policy(Style::Ietf, "10 per minute"), r#""a";q=3;w=5"#);
    assert_eq!(policy(Style::Draft06, "10 per minute"), "3;w=5");
    // The number and its policies are one field, and its set is the service's or the layer's as a whole.
    let set = |limit| {
        let set =
            [("ratelimit-limit", limit), ("ratelimit-remaining", "1"), ("ratelimit-reset", "9")];
        written(Style::Draft03, &set, "ratelimit-limit")
    };
    assert_eq!(set("4, 4;w=9"), "4, 4;w=9, 3;w=5");
    assert_eq!(set("4 per minute"), "3, 3;w=5");
}

/// Returns a parameter of an item of a structured list.
fn integer(item: &Parsed, name: &str) -> Option<i64> {
    match item.params.get(name)? {
        BareItem::Integer(number) => Some((*number).into()),
        other => panic!("{name} is {other:?}"),
    }
}

fn list(headers: &HeaderMap, name: &str) -> Vec<Parsed> {
    let list: List = Parser::new(headers[name].as_bytes()).parse().expect("a structured list");
    list.into_iter()
        .map(|entry| match entry {
            ListEntry::Item(item) => item,
            ListEntry::InnerList(inner) => panic!("{inner:?}"),
        })
        .collect()
}

fn clamped(number: u64) -> i64 {
    number.min(999_999_999_999_999) as i64
}

fn seconds(time: Duration) -> u64 {
    time.as_nanos().div_ceil(1_000_000_000) as u64
}

/// Computes the window from the numbers given to the limit: the whole seconds in which the burst comes back.
fn window(limit: &Limit) -> u64 {
    let Parameters::Gcra { burst, count, period } = limit.parameters() else { panic!("gcra") };
    let ns = u128::from(burst) * period.as_nanos();
    u64::try_from(ns.div_ceil(u128::from(count) * 1_000_000_000)).unwrap().max(1)
}

/// Computes the time until the next unit from the time until all of them: each of the others takes one interval.
fn next_unit_in(case: &Case) -> Duration {
    let lacking = case.limit.burst() - case.decision.remaining().unwrap();
    let others = lacking.saturating_sub(1);
    let ns = u128::from(others) * case.limit.emission_interval().as_nanos();
    case.decision.reset_in() - Duration::from_nanos(ns.try_into().unwrap())
}

#[derive(Clone, Debug)]
struct Case {
    name: String,
    limit: Limit,
    decision: Decision,
    partition: Option<Vec<u8>>,
}

prop_compose! {
    fn cases()(
        name in "[ -~]{1,128}",
        burst in prop_oneof![1u64..100, 1u64..1 << 40, Just(u64::MAX >> 2)],
        count in prop_oneof![1u64..100, 1u64..1_000_000],
        period_ns in prop_oneof![1u64..1_000_000_000_000, Just(1u64), 1u64..u64::MAX],
        spent in prop::collection::vec((1u64..200, 0u64..2_000_000_000), 1..6),
        partition in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
    ) -> Option<Case> {
        let limit = Limit::new(burst, count, Duration::from_nanos(period_ns)).ok()?;
        let (clock, manual) = Clock::manual();
        let bucket = Bucket::new(limit.clone(), clock);
        let mut decision = bucket.check(0).ok()?;
        for (cost, wait_ns) in spent {
            if let Ok(next) = bucket.spend(cost) {
                decision = next;
            }
            manual.advance(Duration::from_nanos(wait_ns));
        }
        Some(Case { name, limit, decision, partition })
    }
}

proptest! {
    #[test]
    fn structured_fields_parse_again_and_mean_the_same(
        cases in prop::collection::vec(cases().prop_filter_map("no limit", |case| case), 1..5),
    ) {
        let policies: Vec<_> =
            cases.iter().map(|case| Policy::new(&case.name, &case.limit).unwrap()).collect();
        let items: Vec<_> = cases.iter().zip(&policies).map(|(case, policy)| {
            let item = Item::new(policy, case.decision);
            case.partition.as_deref().map_or(item, |key| item.partition(key))
        }).collect();
        let answer = Answer::new(cases[0].decision, &items);
        let mut headers = HeaderMap::new();
        Fields::new([Style::Ietf]).unwrap().write(&mut headers, &answer, UNIX_EPOCH);

        let said = list(&headers, "ratelimit");
        let policy = list(&headers, "ratelimit-policy");
        prop_assert_eq!((said.len(), policy.len()), (cases.len(), cases.len()));
        for ((said, policy), case) in said.iter().zip(&policy).zip(&cases) {
            let name = sfv::String::from_string(case.name.clone()).unwrap();
            prop_assert_eq!(&said.bare_item, &BareItem::String(name.clone()));
            prop_assert_eq!(&policy.bare_item, &BareItem::String(name));
            let (r, q) = (integer(said, "r"), integer(policy, "q"));
            prop_assert_eq!(r, case.decision.remaining().map(clamped));
            prop_assert!(r <= q, "{:?} of {:?}", r, q);
            let more_in_s = || cases[0].decision.allowed().then(|| seconds(next_unit_in(case)));
            let time = retry_after(&case.decision).or_else(more_in_s);
            prop_assert_eq!(integer(said, "t"), time.map(clamped));
            prop_assert_eq!(q, Some(clamped(case.limit.burst())));
            prop_assert_eq!(integer(policy, "w"), Some(clamped(window(&case.limit))));
            let key = case.partition.clone().map(BareItem::ByteSequence);
            prop_assert_eq!(said.params.get("pk"), key.as_ref());
            prop_assert_eq!(policy.params.get("pk"), key.as_ref());
        }

        for style in [Style::Draft03, Style::Draft06] {
            let mut headers = HeaderMap::new();
            Fields::new([style.clone()]).unwrap().write(&mut headers, &answer, UNIX_EPOCH);
            let of_policies = if style == Style::Draft06 { "ratelimit-policy" } else { "ratelimit-limit" };
            let skipped = usize::from(style == Style::Draft03);
            let number = |name: &str| headers[name].to_str().unwrap().parse::<i64>();
            let limit = headers["ratelimit-limit"].to_str().unwrap();
            let limit: i64 = limit.split(',').next().unwrap().parse().unwrap();
            prop_assert!(number("ratelimit-remaining").unwrap() <= limit);
            let policy = list(&headers, of_policies);
            prop_assert_eq!(policy.len(), cases.len() + skipped);
            for (policy, case) in policy[skipped..].iter().zip(&cases) {
                let quota = sfv::Integer::try_from(clamped(case.limit.burst())).unwrap();
                prop_assert_eq!(&policy.bare_item, &BareItem::Integer(quota));
                prop_assert_eq!(integer(policy, "w"), Some(clamped(window(&case.limit))));
                prop_assert_eq!(policy.params.len(), 1, "no parameter of our own");
            }
        }
    }

    #[test]
    fn client_obeying_retry_after_is_then_admitted(
        burst in 1u64..50,
        count in 1u64..50,
        period_ms in 1u64..100_000,
        costs in prop::collection::vec(1u64..50, 1..40),
    ) {
        let Ok(limit) = Limit::new(burst, count, Duration::from_millis(period_ms)) else {
            return Ok(());
        };
        let (clock, manual) = Clock::manual();
        let bucket = Bucket::new(limit.clone(), clock);
        for cost in costs.into_iter().map(|cost| cost.min(burst)) {
            let decision = bucket.spend(cost).unwrap();
            if let Some(wait) = retry_after(&decision) {
                prop_assert!(wait > 0);
                manual.advance(Duration::from_secs(wait));
                prop_assert!(bucket.spend(cost).unwrap().allowed(), "cost {} after {} s", cost, wait);
            }
        }
    }
}
