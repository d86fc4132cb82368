//! Compares fixed windows and token buckets with PlugLimit's scripts: calls and their answers from PlugLimit's own
//! tests (FW, TB) and from recorded runs of the scripts (V). Times are in ms.
//!
//! Tollgate differs from PlugLimit in two points. A window excludes its last instant: V-FW3's call at 10000,
//! V-FW4's at 5000, V-TB4's and V-TB8's at 60000 and V-TB9's at 3000 are in the next window. Times are exact, whereas
//! PlugLimit rounds them half up to seconds, or gives the time of a whole token: V-TB3's call at 9000 waits 1 s, not 5.

use super::laws::ByHand;
use super::naive::figures;
use super::*;

/// A call's time, and its answer: allowed, remaining, retry_in, reset_in.
type Row = (u64, (bool, u64, u64, u64));

#[track_caller]
fn check(limit: &Limit, rows: &[Row]) {
    let mut bucket = ByHand::new(limit, 1);
    for (i, (at, wanted)) in rows.iter().enumerate() {
        bucket.now_ns = 1 + at * MS;
        assert_eq!(figures(bucket.spend(1)), *wanted, "row {i}, at {at} ms, of {limit:?}");
    }
}

#[test]
fn fw1_and_fw2_three_in_a_window() {
    let five = |at, window| {
        [
            (at, (true, 2, 0, window)),
            (at, (true, 1, 0, window)),
            (at, (true, 0, window, window)),
            (at, (false, 0, window, window)),
            (at, (false, 0, window, window)),
        ]
    };
    check(&fixed(3, 60_000), &five(0, 60_000));
    check(&fixed(3, 1000), &[five(0, 1000), five(1000, 1000)].concat());
}

#[test]
fn v_fw3_window_counts_from_first_call() {
    check(
        &fixed(10, 10_000),
        &[
            (0, (true, 9, 0, 10_000)),
            (500, (true, 8, 0, 9500)),
            (501, (true, 7, 0, 9499)),
            (1500, (true, 6, 0, 8500)),
            (1501, (true, 5, 0, 8499)),
            (9499, (true, 4, 0, 501)),
            (9501, (true, 3, 0, 499)),
            (10_000, (true, 9, 0, 10_000)),
            (10_001, (true, 8, 0, 9999)),
        ],
    );
}

#[test]
fn v_fw4_one_in_five_seconds() {
    check(
        &fixed(1, 5000),
        &[
            (0, (true, 0, 5000, 5000)),
            (1, (false, 0, 4999, 4999)),
            (4999, (false, 0, 1, 1)),
            (5000, (true, 0, 5000, 5000)),
            (5001, (false, 0, 4999, 4999)),
        ],
    );
}

#[test]
fn tb1_and_tb2_burst_plus_rate() {
    check(
        &tokens(5, 2000, 3),
        &[
            (0, (true, 4, 0, 2000)),
            (0, (true, 3, 0, 2000)),
            (0, (true, 2, 1000, 2000)),
            (0, (false, 2, 1000, 2000)),
            (0, (false, 2, 1000, 2000)),
            (1000, (true, 1, 1000, 1000)),
            (1000, (false, 1, 1000, 1000)),
            (1000, (false, 1, 1000, 1000)),
        ],
    );
    check(
        &tokens(4, 2000, 2),
        &[
            (0, (true, 3, 0, 2000)),
            (0, (true, 2, 1000, 2000)),
            (0, (false, 2, 1000, 2000)),
            (0, (false, 2, 1000, 2000)),
            (1000, (true, 1, 1000, 1000)),
            (1000, (false, 1, 1000, 1000)),
            (2100, (true, 3, 0, 2000)),
        ],
    );
}

#[test]
fn v_tb3_a_token_every_five_seconds() {
    let start =
        [(0, (true, 14, 0, 60_000)), (0, (true, 13, 0, 60_000)), (0, (true, 12, 5000, 60_000))];
    let slow = [
        (0, (false, 12, 5000, 60_000)),
        (1000, (false, 12, 4000, 59_000)),
        (4999, (false, 12, 1, 55_001)),
        (5000, (true, 11, 5000, 55_000)),
        (5001, (false, 11, 4999, 54_999)),
        (10_000, (true, 10, 5000, 50_000)),
    ];
    check(&tokens(15, 60_000, 3), &[&start[..], &slow].concat());
    let late = [
        (9000, (true, 11, 1000, 51_000)),
        (9000, (false, 11, 1000, 51_000)),
        (9999, (false, 11, 1, 50_001)),
        (10_000, (true, 10, 5000, 50_000)),
    ];
    check(&tokens(15, 60_000, 3), &[&start[..], &late].concat());
}

#[test]
fn v_tb4_tb7_tb8_to_window_end() {
    check(
        &tokens(6, 60_000, 3),
        &[
            (0, (true, 5, 0, 60_000)),
            (0, (true, 4, 0, 60_000)),
            (0, (true, 3, 20_000, 60_000)),
            (0, (false, 3, 20_000, 60_000)),
            (5000, (false, 3, 15_000, 55_000)),
            (19_999, (false, 3, 1, 40_001)),
            (20_000, (true, 2, 20_000, 40_000)),
            (40_000, (true, 1, 20_000, 20_000)),
            (60_000, (true, 5, 0, 60_000)),
            (60_001, (true, 4, 0, 59_999)),
        ],
    );
    check(
        &tokens(3, 60_000, 3),
        &[
            (0, (true, 2, 0, 60_000)),
            (0, (true, 1, 0, 60_000)),
            (0, (true, 0, 60_000, 60_000)),
            (0, (false, 0, 60_000, 60_000)),
            (30_000, (false, 0, 30_000, 30_000)),
            (59_600, (false, 0, 400, 400)),
            (60_001, (true, 2, 0, 60_000)),
        ],
    );
    check(
        &tokens(2, 60_000, 1),
        &[
            (0, (true, 1, 60_000, 60_000)),
            (0, (false, 1, 60_000, 60_000)),
            (30_000, (false, 1, 30_000, 30_000)),
            (60_000, (true, 1, 60_000, 60_000)),
            (60_001, (false, 1, 59_999, 59_999)),
        ],
    );
}

#[test]
fn v_tb5_half_tokens() {
    check(
        &tokens(20, 600_000, 5),
        &[
            (0, (true, 19, 0, 600_000)),
            (0, (true, 18, 0, 600_000)),
            (0, (true, 17, 0, 600_000)),
            (0, (true, 16, 0, 600_000)),
            (0, (true, 15, 40_000, 600_000)),
            (0, (false, 15, 40_000, 600_000)),
            (40_000, (true, 14, 40_000, 560_000)),
            (300_000, (true, 13, 0, 300_000)),
        ],
    );
}

#[test]
fn v_tb6_tokens_not_capped_in_window() {
    let mut rows = vec![(0, (true, 9, 1112, 10_000))];
    rows.extend((1..8).map(|n| (9000, (true, 9 - n, 0, 1000))));
    rows.extend([(9000, (true, 1, 1000, 1000)), (9000, (false, 1, 1000, 1000))]);
    check(&tokens(10, 10_000, 1), &rows);
}

#[test]
fn v_tb9_a_rate_of_two_a_second() {
    check(
        &tokens(10, 3000, 4),
        &[
            (0, (true, 9, 0, 3000)),
            (0, (true, 8, 0, 3000)),
            (0, (true, 7, 0, 3000)),
            (0, (true, 6, 500, 3000)),
            (499, (false, 6, 1, 2501)),
            (500, (true, 5, 500, 2500)),
            (999, (false, 5, 1, 2001)),
            (1000, (true, 4, 500, 2000)),
            (1500, (true, 3, 500, 1500)),
            (2000, (true, 2, 500, 1000)),
            (2500, (true, 1, 500, 500)),
            (3000, (true, 9, 0, 3000)),
        ],
    );
}

#[test]
fn exact_arithmetic_allows_at_a_tokens_boundary() {
    // PlugLimit's script denies the fifth call, because it computes in floating point.
    let limit = tokens(10, 6000, 2);
    let mut bucket = ByHand::new(&limit, 1);
    for (at, allowed) in [(0, true), (500, true), (1000, true), (1000, false), (1500, true)] {
        bucket.now_ns = 1 + at * MS;
        assert_eq!(bucket.spend(1).allowed(), allowed, "at {at}");
    }
}
