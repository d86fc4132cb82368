//! The bound of a limit, counted from outside under any clock, and the ends of the ranges of numbers.

use super::laws::{ByHand, Step};
use super::*;
use tollgate::algorithm::Algorithm;
use tollgate::limit::Parameters;

/// Returns the admitted charges with the times in ms at which they were admitted. No time is earlier than
/// the bucket's, so each is the largest so far.
fn admitted(limit: &Limit, start_ns: u64, history: &[(Step, u64)]) -> Vec<(u64, u64)> {
    let mut bucket = ByHand::new(limit, start_ns);
    let mut admitted = Vec::new();
    for &(step, part) in history {
        match step {
            Step::Forward(_) | Step::Back(_) => {
                bucket.step(step, part);
            }
            _ => {
                let cost = bucket.cost(part);
                if bucket.spend(cost).allowed() {
                    admitted.push(((bucket.now_ns - 1) / MS, cost));
                }
            }
        }
    }
    admitted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::full_size(400, 2000)))]

    #[test]
    fn hold_under_any_clock((limit, start_ns, history) in limit_and_history()) {
        let charges = admitted(&limit, start_ns, &history);
        for from in 0..charges.len() {
            let (mut first, mut last, mut sum) = (u64::MAX, 0, 0);
            for &(at, cost) in &charges[from..] {
                (first, last, sum) = (first.min(at), last.max(at), sum + cost);
                let length = last - first;
                let most = match limit.parameters() {
                    // An interval shorter than two windows touches at most three.
                    Parameters::FixedWindow { limit, window }
                    | Parameters::TokenBucket { limit, window, .. } => {
                        (length / window.as_millis() as u64 + 2) * limit
                    }
                    Parameters::LeakyBucket { size, drip_rate, drip_size } => {
                        size + length.div_ceil(drip_rate.as_millis() as u64).max(1) * drip_size
                    }
                    other => panic!("{other:?}"),
                };
                prop_assert!(sum <= most, "{} in {} ms, at most {}: {:?}", sum, length, most, charges);
            }
        }
    }

    #[test]
    fn a_window_admits_its_limit_and_no_more(
        limit in 1..20u64, burst in 1..20u64, window in 1..40u64, costs in prop::collection::vec((0..3u64, 1..6u64), 1..80),
    ) {
        let burst = burst.min(limit);
        for rule in [fixed(limit, window), tokens(limit, window, burst)] {
            let (mut word, mut now, mut start, mut sum) = (0, 0, None, 0);
            for &(wait, cost) in &costs {
                now += wait;
                if start.is_some_and(|start| now >= start + window) {
                    (start, sum) = (None, 0);
                }
                let cost = cost.min(rule.max_cost());
                let said = rule.spend(word, 1 + now * MS, cost);
                if let Some(new) = said.word {
                    word = new;
                    start.get_or_insert(now);
                    sum += cost;
                    prop_assert!(sum <= limit, "{:?}", rule);
                } else if rule.algorithm() == "fixed_window" {
                    prop_assert!(sum + cost > limit, "{:?}", rule);
                }
            }
        }
    }

    #[test]
    fn no_word_or_time_makes_rules_panic(
        (limit, _) in any_limit(), word in 0..1u64 << 63, now_ns in any::<u64>(), cost in any::<u64>(),
    ) {
        for outcome in [limit.spend(word, now_ns, cost), limit.refund(word, now_ns, cost), limit.reset(word, now_ns)] {
            if let Some(new) = outcome.word {
                prop_assert!(new != 0 && new >> 63 == 0, "{:?} of {:#x}", outcome, word);
            }
        }
        let _ = limit.is_full(word, now_ns);
    }
}

#[test]
fn largest_numbers_at_latest_time_do_not_wrap() {
    let longest = (1 << 39) - 1;
    let most = 16_777_215;
    let now_ns = (1 << 62) - 1;
    for limit in [
        fixed(most, longest),
        tokens(most, longest, 1),
        tokens(most, longest, most),
        leaky(most, 274_877, 1),
        leaky(most, longest, most),
    ] {
        let spent = limit.spend(0, now_ns, limit.max_cost());
        assert!(spent.decision.allowed(), "{limit:?}");
        let word = spent.word.unwrap();
        assert_eq!(word >> 63, 0, "{limit:?}");
        let denied = limit.spend(word, now_ns, 1).decision;
        assert!(!denied.allowed() && denied.retry_in() >= ms(32_769), "{limit:?} {denied:?}");
        // The words' time ends after 17.4 years and stands still from there.
        assert_eq!(limit.spend(word, 1 << 60, 1).decision, denied, "{limit:?}");
    }
}

#[test]
fn a_lowered_limit_is_never_negative() {
    for (high, low) in [
        (fixed(10, 1000), fixed(3, 500)),
        (tokens(10, 1000, 10), tokens(3, 500, 1)),
        (leaky(10, 1000, 1), leaky(3, 500, 2)),
    ] {
        let word = high.spend(0, 1, 10).word.unwrap();
        let denied = low.spend(word, 1, 0).decision;
        assert_eq!((denied.allowed(), denied.remaining()), (false, Some(0)), "{low:?}");
        assert_eq!(low.refund(word, 1, 1).decision.remaining(), Some(0), "{low:?}");
        let at = 1 + u64::try_from(denied.retry_in().as_nanos()).unwrap();
        assert!(low.spend(word, at, 0).decision.allowed(), "{low:?}");
    }
}

#[test]
fn refuse_numbers_out_of_their_range() {
    let text = |made: Result<Limit, tollgate::Error>| made.unwrap_err().to_string();
    let us = Duration::from_micros;
    for (made, wanted) in [
        (Limit::fixed_window(0, ms(1)), "invalid limit 0: at least 1 is allowed"),
        (
            Limit::fixed_window(16_777_216, ms(1)),
            "invalid limit 16777216: at most 16777215 is allowed; count in thousands, or use gcra",
        ),
        (Limit::fixed_window(1, ms(0)), "invalid window 0s: at least 1ms is allowed"),
        (Limit::fixed_window(1, us(500)), "invalid window 500µs: whole milliseconds are allowed"),
        (Limit::fixed_window(1, us(1500)), "invalid window 1.5ms: whole milliseconds are allowed"),
        (
            Limit::fixed_window(1, ms(1 << 39)),
            "invalid window 549755813.888s: at most 549755813887ms is allowed",
        ),
        (Limit::token_bucket(0, 5, ms(1)), "invalid burst 0: at least 1 is allowed"),
        (Limit::token_bucket(6, 5, ms(1)), "invalid burst 6: at most the limit 5 is allowed"),
        (Limit::leaky_bucket(0, 1, ms(1)), "invalid size 0: at least 1 is allowed"),
        (
            Limit::leaky_bucket(16_777_216, 1, ms(1)),
            "invalid size 16777216: at most 16777215 is allowed; count in thousands, or use gcra",
        ),
        (Limit::leaky_bucket(1, 1, us(999)), "invalid drip_rate 999µs: at least 1ms is allowed"),
        (Limit::leaky_bucket(1, 0, ms(1)), "invalid drip_size 0: at least 1 is allowed"),
        (
            Limit::leaky_bucket(1, 1, ms(1 << 39)),
            "invalid drip_rate 549755813888ms: at most 549755813887ms is allowed",
        ),
    ] {
        assert_eq!(text(made), wanted);
    }
    let long = text(Limit::leaky_bucket(16_777_215, 1, ms(1 << 30)));
    assert!(long.starts_with("invalid size 16777215: by 1 every 1073741824ms"), "{long}");
}
