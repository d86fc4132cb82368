//! `Limit::at_most`: no window, whenever it begins, has more than `n` units.

use super::random::Random;
use super::support::full_size;
use super::*;
use tollgate::{Bucket, Clock};

/// Spends as much as the bucket gives: by half of the callers each unit at its first moment, by the others some units at once,
/// when the next come, or a window after an earlier charge. Returns the most units that a window with both its ends has had.
fn most_in_a_window(limit: Limit, (n, window_ns): (u64, u64), random: &mut Random) -> u64 {
    let interval_ns = limit.emission_interval().as_nanos() as u64;
    let burst = limit.burst();
    let (clock, hand) = Clock::manual();
    let bucket = Bucket::new(limit, clock);
    let (mut now_ns, mut admitted): (u64, Vec<(u64, u64)>) = (1, Vec::new());
    let is_greedy = random.chance(1, 2);
    for _ in 0..if is_greedy { n } else { 24 } {
        hand.set(Duration::from_nanos(now_ns));
        let cost = if is_greedy || random.chance(1, 2) { 1 } else { random.within(1, burst) };
        let mut last = bucket.spend(cost).unwrap();
        while last.allowed() {
            admitted.push((now_ns, cost));
            last = bucket.spend(cost).unwrap();
        }
        let wait_ns = last.retry_in().as_nanos() as u64;
        now_ns = match random.below(4) {
            _ if is_greedy => now_ns + wait_ns,
            0 | 1 => now_ns + wait_ns,
            2 => now_ns.max(random.pick(&admitted).0 + window_ns),
            _ => now_ns + random.within(1, 2 * interval_ns),
        };
    }
    let (mut most, mut sum, mut from) = (0, 0, 0);
    for &(at_ns, cost) in &admitted {
        sum += cost;
        while admitted[from].0 + window_ns < at_ns {
            sum -= admitted[from].1;
            from += 1;
        }
        most = most.max(sum);
    }
    most
}

/// A limit, a window and a burst. Windows of few nanoseconds for each unit show in which direction the interval is rounded.
fn any(random: &mut Random) -> (u64, u64, u64) {
    let largest = random.pick(&[4, 20, 300]);
    let n = random.within(2, largest);
    let burst = random.within(1, (n - 1).min(12));
    let window_ns = match random.below(3) {
        0 => random.within(1, 40) * 1_000_000,
        1 => random.within(100, 300) * n + random.below(n),
        _ => random.within(1, 90 * 86_400) * 1_000_000_000,
    };
    (n, window_ns, burst)
}

#[test]
fn no_window_has_more() {
    let (mut random, mut reached) = (Random(1), 0);
    let cases = full_size(5_000, 1_000_000);
    for _ in 0..cases {
        let (n, window_ns, burst) = any(&mut random);
        let limit = Limit::at_most(n, Duration::from_nanos(window_ns), burst).unwrap();
        let most = most_in_a_window(limit, (n, window_ns), &mut random);
        assert!(most <= n, "{most} of {n} in {window_ns} ns, burst {burst}");
        reached += u64::from(most == n);
    }
    assert!(reached > cases / 10, "{reached} of {cases} windows had all their units");
}

/// The same with the interval rounded down, as in `Limit::new`.
#[test]
fn rounded_down_some_window_has_more() {
    let (mut random, mut above) = (Random(1), 0);
    for _ in 0..5_000 {
        let (n, window_ns, burst) = any(&mut random);
        let interval = Duration::from_nanos(window_ns / (n - burst));
        let limit = Limit::new(burst, 1, interval).unwrap();
        above += u64::from(most_in_a_window(limit, (n, window_ns), &mut random) > n);
    }
    assert!(above > 0);
}

#[test]
fn steady_callers_get_all_but_the_burst() {
    for (n, burst) in [(100, 1), (100, 10), (1_000, 500)] {
        let (clock, hand) = Clock::manual();
        let minute = Duration::from_secs(60);
        let bucket = Bucket::new(Limit::at_most(n, minute, burst).unwrap(), clock);
        let (mut admitted, mut now) = (0, Duration::ZERO);
        while now < 10 * minute {
            hand.set(now);
            let decision = bucket.spend(1).unwrap();
            admitted += u64::from(decision.allowed());
            now += decision.retry_in();
        }
        let of_rate = 10 * (n - burst);
        assert!((of_rate..=of_rate + burst).contains(&admitted), "{n} {burst}: {admitted}");
    }
}

#[test]
fn faults_name_what_is_allowed() {
    let second = Duration::from_secs(1);
    let max = Duration::MAX;
    for (n, window, burst, text) in [
        (
            0,
            second,
            1,
            "invalid limit 0: at least 2, a burst of 1 and a unit of the rate, is allowed",
        ),
        (
            1,
            second,
            1,
            "invalid limit 1: at least 2, a burst of 1 and a unit of the rate, is allowed",
        ),
        (5, second, 0, "invalid burst 0: at least 1 is allowed"),
        (5, second, 5, "invalid burst 5: at most 4, one below the limit, is allowed"),
        (
            5,
            second,
            u64::MAX,
            "invalid burst 18446744073709551615: at most 4, one below the limit, is allowed",
        ),
        (5, Duration::ZERO, 1, "invalid window 0s: more than 0s is allowed"),
        (
            u64::MAX,
            second,
            1,
            "invalid window 1s: for 18446744073709551614 units the interval, rounded up, is 1 ns, which makes the window 18446744072709551614 ns longer, at most 1 % is allowed",
        ),
    ] {
        assert_eq!(Limit::at_most(n, window, burst).unwrap_err().to_string(), text);
    }
    assert!(Limit::at_most(5, max, 1).unwrap_err().to_string().starts_with("invalid window"));
    let long = Duration::from_nanos((1 << 62) * 2);
    assert!(Limit::at_most(3, long, 1).is_ok());
    assert!(Limit::at_most(3, long + Duration::from_nanos(1), 1).unwrap_err().is_invalid_limit());
    assert!(Limit::at_most(4, long, 2).unwrap_err().to_string().starts_with("invalid burst 2"));
}
