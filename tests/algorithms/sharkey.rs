//! Sharkey's limiter as calls and answers: its tests (B9), row by row, and a recorded run. Times are in ms.
//!
//! This crate differs where the specification says so. Drips that have fallen shorten `reset_in`: 900 where
//! row 14 (and 40, 54) says 1000, 4900 where row 71 says 5000, and likewise in the run. Drips of more than
//! one unit move the time by one drip (D1), and an empty bucket keeps no phase (D4). Row 73, a switch of
//! the process's environment, is `enabled: false` in a file. Keys that expire (12, 13, 38, 39, 52, 53, 69,
//! 70) are full buckets. A negative or broken number (18, 19, 24, 25, 44, 60) cannot be written in code; in a
//! file it is an error.

use super::laws::ByHand;
use super::naive::figures;
use super::*;
use tollgate::algorithm::Algorithm;
use tollgate::limit::Factor;

type Figures = (bool, u64, u64, u64);

/// A bucket that holds `counter` units and last dripped at 0; a roomier limit fills it.
fn preset(limit: &Limit, counter: u64) -> ByHand<'_, Limit> {
    let mut bucket = ByHand::new(limit, 1);
    bucket.word = leaky(100_000, 1000, 1).spend(0, 1, counter).word.unwrap_or(0);
    bucket
}

/// Checks calls of one unit at their times, each with its figures.
#[track_caller]
fn check(limit: &Limit, counter: u64, calls: &[(u64, Figures)]) {
    let mut bucket = preset(limit, counter);
    for (i, (at, wanted)) in calls.iter().enumerate() {
        bucket.now_ns = 1 + at * MS;
        let word = bucket.word;
        assert_eq!(figures(bucket.spend(1)), *wanted, "call {i} at {at} of {limit:?}");
        assert!(wanted.0 || bucket.word == word, "a denial changes nothing");
    }
}

/// Checks whether each call of one unit is allowed.
#[track_caller]
fn allows(limit: &Limit, counter: u64, calls: &[(u64, bool)]) {
    let mut bucket = preset(limit, counter);
    for (i, (at, wanted)) in calls.iter().enumerate() {
        bucket.now_ns = 1 + at * MS;
        assert_eq!(bucket.spend(1).allowed(), *wanted, "call {i} at {at} of {limit:?}");
    }
}

fn legacy(max: Option<u64>, duration: Option<u64>, min_interval: Option<u64>) -> Option<Limit> {
    Limit::from_sharkey(max, duration.map(ms), min_interval.map(ms)).unwrap()
}

fn halved(limit: &Limit) -> Limit {
    limit.scaled("0.5".parse().unwrap()).unwrap().unwrap()
}

fn expires(limit: &Limit, after_ms: u64) {
    let word = limit.spend(0, 1, limit.max_cost()).word.unwrap();
    assert!(limit.is_full(word, 1 + after_ms * MS) && !limit.is_full(word, after_ms * MS));
}

#[test]
fn rows_1_to_61_bucket_of_one() {
    // The same bucket in three forms.
    let forms = [
        leaky(1, 1000, 1),
        legacy(None, None, Some(1000)).unwrap(),
        legacy(Some(1), Some(1000), None).unwrap(),
    ];
    let once = (true, 0, 1000, 1000);
    for limit in &forms {
        assert_eq!(*limit, forms[0]);
        // 1, 3, 28, 29, 30, 46: the first call. 4, 31: at its own time.
        check(limit, 0, &[(0, once)]);
        check(limit, 0, &[(1000, once), (1999, (false, 0, 1, 1)), (2000, once)]);
        // 5: two drip out in two times. 32: one in one.
        check(limit, 2, &[(2000, once)]);
        // 8, 9, 34, 35, and 10, 36: full, and not a time later.
        check(limit, 1, &[(0, (false, 0, 1000, 1000)), (1000, once)]);
        // 14, 40, 54.
        check(limit, 1, &[(100, (false, 0, 900, 900))]);
        // 26, 45, 61: above its size.
        check(limit, 2, &[(0, (false, 0, 2000, 2000))]);
        // 11, 27, 37, 51.
        allows(&halved(limit), 1, &[(0, true), (0, false), (500, true)]);
        // 12, 13, 38, 39, 52, 53.
        expires(limit, 1000);
        // 15, 41, 56: no limit. 16, 42, 57: an error.
        assert_eq!(limit.scaled(Factor::ZERO).unwrap(), None);
        // 33: an idle time leaves no credit.
        let calls = [(0, true), (1000, true), (1000, false), (1000, false), (3000, true)];
        allows(limit, 0, &calls);
        // 50: far above its size.
        check(limit, 10, &[(1000, (false, 0, 9000, 9000))]);
    }
    assert!(Factor::try_from(-1.0).is_err());
    // 2.
    check(&leaky(2, 1000, 1), 1, &[(0, (true, 0, 1000, 2000))]);
    // 6.
    check(&leaky(1, 1000, 2), 2, &[(1000, once)]);
    // 7.
    let row_7 = [
        (0, (true, 4, 0, 1000)),
        (1000, (true, 4, 0, 1000)),
        (1000, (true, 3, 0, 2000)),
        (1000, (true, 2, 0, 3000)),
        (3000, (true, 3, 0, 2000)),
    ];
    check(&leaky(5, 1000, 1), 0, &row_7);
}

#[test]
fn selected_rows_17_to_60_numbers() {
    assert!(Limit::leaky_bucket(0, 1, ms(1000)).is_err(), "17");
    assert!(Limit::leaky_bucket(1, 0, ms(1000)).is_err(), "23");
    for wrong in [Duration::ZERO, Duration::from_micros(500)] {
        assert!(Limit::leaky_bucket(1, 1, wrong).is_err(), "20 to 22: {wrong:?}");
    }
    assert_eq!(legacy(None, None, Some(0)), None, "43");
    assert_eq!(legacy(Some(1), Some(0), None), None, "58");
    assert!(Limit::from_sharkey(Some(0), Some(ms(1000)), None).is_err(), "59");
}

#[test]
fn rows_47_to_49_55_max_duration() {
    let ten = legacy(Some(10), Some(10_000), None).unwrap();
    let row_47 =
        [(0, false), (1000, true), (3000, true), (3000, true), (3000, false), (5000, true)];
    allows(&ten, 10, &row_47);
    check(&ten, 10, &[(2000, (true, 1, 0, 9000))]);
    check(&ten, 10, &[(0, (false, 0, 1000, 10_000))]);
    let many = legacy(Some(4096), Some(2000), None).unwrap();
    allows(&many, 4096, &[(0, false), (1, true)]);
}

#[test]
fn rows_62_to_72_max_duration_min_interval() {
    let limit = legacy(Some(10), Some(5000), Some(1000)).unwrap();
    assert_eq!(limit, leaky(10, 1000, 2));
    check(&limit, 0, &[(0, (true, 9, 0, 1000))]);
    check(&limit, 9, &[(0, (true, 0, 1000, 5000))]);
    check(&limit, 10, &[(0, (false, 0, 1000, 5000))]);
    allows(&limit, 5, &[(1000, true)]);
    allows(&limit, 10, &[(1000, true), (1000, true), (1000, false)]);
    allows(&halved(&limit), 19, &[(0, true), (0, false), (500, true)]);
    expires(&limit, 5000);
    check(&limit, 10, &[(100, (false, 0, 900, 4900))]);
    check(&limit, 12, &[(0, (false, 0, 2000, 6000))]);
}

#[test]
fn the_run_of_a_bucket_of_five() {
    let limit = leaky(5, 1000, 1);
    check(
        &limit,
        0,
        &[
            (0, (true, 4, 0, 1000)),
            (0, (true, 3, 0, 2000)),
            (0, (true, 2, 0, 3000)),
            (0, (true, 1, 0, 4000)),
            (0, (true, 0, 1000, 5000)),
            (0, (false, 0, 1000, 5000)),
            (500, (false, 0, 500, 4500)),
            (999, (false, 0, 1, 4001)),
            (1000, (true, 0, 1000, 5000)),
            (1000, (false, 0, 1000, 5000)),
            (2500, (true, 0, 500, 4500)),
            (2500, (false, 0, 500, 4500)),
            (8000, (true, 4, 0, 1000)),
        ],
    );
}

#[test]
fn defects_of_the_original_are_mended() {
    // D1: two of a drip are two a second, not two in two.
    let two = leaky(4, 1000, 2);
    let full = [(0, true); 4];
    let after = [(0, false), (1000, true), (1000, true), (1000, false), (2000, true), (2000, true)];
    allows(&two, 0, &[&full[..], &after].concat());
    // D2: no time is lost, however long the bucket rests.
    let calls = [(0, true), (900, true), (3500, true)];
    allows(&leaky(10, 1000, 4), 0, &calls);
    // D4: an empty bucket keeps no phase.
    allows(&leaky(1, 1500, 1), 0, &[(0, true), (1999, true), (3000, false), (3499, true)]);
}
