//! Tests factors, and the legacy parameters of Sharkey's leaky bucket.

use super::*;
use tollgate::limit::{Factor, Parameters};

fn scaled(limit: &Limit, factor: &str) -> Limit {
    limit.scaled(factor.parse().unwrap()).unwrap().unwrap()
}

#[test]
fn divide_what_is_there_and_stretch_the_time() {
    let gcra = Limit::new(20, 20, ms(1000)).unwrap();
    let of = |burst, interval_ms| Limit::new(burst, 1, ms(interval_ms)).unwrap();
    assert_eq!(scaled(&gcra, "0.5"), of(40, 25));
    assert_eq!(scaled(&gcra, "3"), of(7, 150));
    assert_eq!(scaled(&gcra, "100"), of(1, 5000));
    assert_eq!(scaled(&fixed(10, 60_000), "3"), fixed(4, 60_000));
    assert_eq!(scaled(&fixed(10, 60_000), "0.3"), fixed(34, 60_000));
    assert_eq!(scaled(&tokens(15, 60_000, 3), "2"), tokens(8, 60_000, 2));
    assert_eq!(scaled(&tokens(15, 60_000, 3), "1000"), tokens(1, 60_000, 1));
    assert_eq!(scaled(&leaky(10, 100, 1), "0.5"), leaky(20, 50, 1));
    assert_eq!(scaled(&leaky(10, 100, 1), "3"), leaky(4, 300, 1));
    assert_eq!(scaled(&leaky(10, 1000, 2), "0.5"), leaky(20, 500, 2));
    assert_eq!(scaled(&leaky(10, 1000, 2), "3"), leaky(4, 3000, 2));
    assert_eq!(scaled(&leaky(10, 1, 1), "0.000001"), leaky(10_000_000, 1, 1));
}

#[test]
fn of_0_1_and_out_of_range() {
    for limit in
        [Limit::new(20, 7, ms(1001)).unwrap(), fixed(3, 5), tokens(3, 5, 2), leaky(3, 5, 7)]
    {
        assert_eq!(limit.scaled(Factor::ONE).unwrap(), Some(limit.clone()));
        assert_eq!(limit.scaled(Factor::ZERO).unwrap(), None);
    }
    let error = fixed(20, 1000).scaled("0.000001".parse().unwrap()).unwrap_err();
    assert!(error.is_invalid_limit());
    assert_eq!(
        error.to_string(),
        "with factor 0.000001: invalid limit 20000000: at most 16777215 is allowed; count in thousands, or use gcra"
    );
    let error = leaky(1, 1 << 38, 1).scaled(Factor::from(1000)).unwrap_err();
    assert!(error.to_string().contains("invalid drip_rate"), "{error}");
    let largest = Factor::from_millionths(u64::MAX);
    let gcra = Limit::new(1, 1, Duration::from_secs(3600)).unwrap();
    assert!(gcra.scaled(largest).unwrap_err().to_string().contains("emission interval"));
    for number in [-1.0, -0.5, f64::NAN, f64::INFINITY, 0.1234567] {
        assert!(Factor::try_from(number).unwrap_err().is_invalid_limit(), "{number}");
    }
    let text = "-1".parse::<Factor>().unwrap_err().to_string();
    assert_eq!(text, "invalid factor \"-1\": negative; at least 0 is allowed");
}

/// Returns the size, the drip_rate in ms and the drip_size of the limit for these legacy parameters.
fn legacy(max: u64, duration_ms: u64, min_interval_ms: Option<u64>) -> (u64, u64, u64) {
    let made = Limit::from_sharkey(Some(max), Some(ms(duration_ms)), min_interval_ms.map(ms));
    match made.unwrap().unwrap().parameters() {
        Parameters::LeakyBucket { size, drip_rate, drip_size } => {
            (size, drip_rate.as_millis() as u64, drip_size)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn legacy_numbers_are_translated_as_by_the_original() {
    let (second, minute, hour) = (1000, 60_000, 3_600_000);
    for (max, duration, min_interval, wanted) in [
        (10, second, None, (10, 100, 1)),
        (2, second, None, (2, 500, 1)),
        (3, second, None, (3, 333, 1)),
        (10, 5 * second, None, (10, 500, 1)),
        (7, 10 * second, None, (7, 1429, 1)),
        (20, hour, None, (20, 180_000, 1)),
        (10, hour, Some(second), (10, 360_000, 1)),
        (300, hour, Some(second), (300, 12_000, 1)),
        (120, hour, Some(30 * second), (120, 30_000, 1)),
        (120, minute, Some(200), (120, 500, 1)),
        (200, 30 * minute, Some(250), (200, 9000, 1)),
        (10, 5 * second, Some(second), (10, 1000, 2)),
        (10, 10 * second, Some(2500), (10, 3000, 3)),
        (4096, 2 * second, None, (4096, 1, 2)),
        (10, 5 * second, Some(0), (10, 500, 1)),
    ] {
        assert_eq!(
            legacy(max, duration, min_interval),
            wanted,
            "{max}/{duration} {min_interval:?}"
        );
    }
}

#[test]
fn legacy_numbers_may_be_no_limit_or_wrong() {
    let made = |max, duration: Option<u64>, min_interval: Option<u64>| {
        Limit::from_sharkey(max, duration.map(ms), min_interval.map(ms))
    };
    for (max, duration, min_interval) in [
        (None, None, None),
        (Some(10), None, None),
        (None, Some(1000), None),
        (Some(10), Some(0), None),
        (Some(10), Some(0), Some(1000)),
        (None, None, Some(0)),
        (None, Some(1000), Some(0)),
    ] {
        assert_eq!(made(max, duration, min_interval).unwrap(), None);
    }
    assert_eq!(made(None, None, Some(1000)).unwrap(), Some(leaky(1, 1000, 1)));
    assert_eq!(made(Some(5), None, Some(1000)).unwrap(), Some(leaky(1, 1000, 1)));
    let short = Limit::from_sharkey(None, None, Some(Duration::from_micros(400)));
    assert_eq!(short.unwrap(), Some(leaky(1, 1, 1)), "0.4 ms becomes 1 ms");
    for (max, wanted) in [
        (0, "invalid max 0: at least 1 is allowed"),
        (
            20_000_000,
            "invalid max 20000000: at most 16777215 is allowed; count in thousands, or use gcra",
        ),
    ] {
        assert_eq!(made(Some(max), Some(1000), None).unwrap_err().to_string(), wanted);
    }
    let text = made(Some(16_000_000), Some(1), Some(1000)).unwrap_err().to_string();
    assert!(
        text.starts_with("invalid min_interval 1s: it makes drips of 16000000000 units"),
        "{text}"
    );
}

proptest! {
    #[test]
    fn factors_are_exact(burst in 1..1u64 << 24, interval in 1..1u64 << 20, millionths in 1..1u64 << 30) {
        let limit = Limit::new(burst, 1, Duration::from_nanos(interval)).unwrap();
        let made = limit.scaled(Factor::from_millionths(millionths)).unwrap().unwrap();
        // Both are rounded up. The burst is the least number whose product with the factor is at least the old burst.
        // The emission interval is the least number of ns that is at least the old interval times the factor.
        let (wide, one) = (u128::from(burst) * 1_000_000, u128::from(millionths));
        let by = u128::from(made.burst()) * one;
        prop_assert!(by >= wide && (by - one < wide));
        let (wide, by) = (u128::from(interval) * one, made.emission_interval().as_nanos() * 1_000_000);
        prop_assert!(by >= wide && by - 1_000_000 < wide);
    }
}
