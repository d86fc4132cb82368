//! Short lists, by hand or of a random run that failed once.

use super::bound;
use super::known;
use super::ops::{Op, call};
use super::run::{On, Start};
use super::spec::{LimitSpec, List, Numbers, Spec};

const MS: u64 = 1_000_000;

/// One limit without overrides.
fn only(default: Numbers) -> Spec {
    let overrides = List(Vec::new());
    let limit = LimitSpec { default: Some(default), shadow: false, tried: None, overrides };
    Spec(List(vec![Some(limit)]))
}

fn keeps_the_bound(start: &Start, ops: &[Op]) {
    for on in [On::LockFree, On::Exact] {
        if let Err(failure) = bound::run(on, start, ops) {
            panic!("{on:?}: {}", failure.text);
        }
    }
}

/// A place that is settled before its time, and then a charge from before it: issue 11, section 3.
#[test]
fn an_early_settlement_moves_no_place_forward() {
    if !known::EARLY_SETTLEMENTS.is_on() {
        return;
    }
    let numbers = Numbers::Gcra { burst: 3, count: 1, period_ms: 50 };
    let start = Start { spec: only(numbers), now: 1, cap: None };
    let ops = [
        Op::Spend(call(0, 0, 2)),
        Op::Advance(8 * MS),
        Op::Reserve(call(0, 0, 1), u64::MAX),
        Op::Keep(0),
        Op::Advance(40 * MS),
        Op::Reserve(call(0, 0, 3), u64::MAX),
        Op::Keep(0),
        Op::Settle(1, 2),
        Op::Advance(8 * MS),
        Op::Settle(0, 0),
        Op::Reserve(call(0, 0, 3), u64::MAX),
    ];
    keeps_the_bound(&start, &ops);
}

/// The last place is given up, one beneath it settled down, and then the first: of seed 16966.
#[test]
fn settlements_beneath_a_cancelled_place_keep_the_bound() {
    if !known::EARLY_SETTLEMENTS.is_on() {
        return;
    }
    let numbers = Numbers::Gcra { burst: 2, count: 1, period_ms: 50 };
    let start = Start { spec: only(numbers), now: 1, cap: None };
    let ops = [
        Op::Reserve(call(0, 0, 2), u64::MAX),
        Op::Reserve(call(0, 0, 2), u64::MAX),
        Op::Keep(1),
        Op::Reserve(call(0, 0, 2), u64::MAX),
        Op::Cancel(1),
        Op::Settle(0, 1),
        Op::Keep(0),
        Op::Settle(0, 0),
        Op::Reserve(call(0, 0, 2), u64::MAX),
    ];
    keeps_the_bound(&start, &ops);
}

/// A charge from before a reset that is settled after it: issue 11, section 3.
#[test]
fn a_reset_ends_what_earlier_receipts_give_back() {
    if !known::RESETS_AND_RECEIPTS.is_on() {
        return;
    }
    let numbers = Numbers::Gcra { burst: 3, count: 1, period_ms: 50 };
    let start = Start { spec: only(numbers), now: 1, cap: None };
    let ops = [
        Op::Charge(call(0, 0, 2)),
        Op::Reset(call(0, 0, 0)),
        Op::Spend(call(0, 0, 2)),
        Op::Settle(0, 1),
        Op::Charge(call(0, 0, 2)),
    ];
    keeps_the_bound(&start, &ops);
}
