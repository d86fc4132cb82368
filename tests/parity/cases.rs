//! Short lists of operations, written by hand or found by a random run that failed.

use tollgate::batch::MemberMode::{CheckAndSpend, SpendOnly};
use tollgate::limits::Floor;
use tollgate::options::AtCap;
use tollgate::reload::CarryOver::{Afresh, Share, Time, Units};

use super::ops::{BatchCall, Op, call};
use super::run;
use super::run::{Checks, On, Start};
use super::spec::Numbers::{Fixed, Gcra, Leaky, Permits, Tokens};
use super::spec::{LimitSpec, List, Numbers, Over, Sharing, Spec, Target};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const DAYS_100_MS: u64 = 100 * 86_400_000;

fn limit(default: impl Into<Option<Numbers>>, overrides: Vec<Over>) -> Option<LimitSpec> {
    let (default, overrides, sharing) = (default.into(), List(overrides), Sharing::Local);
    let floor = Floor::Units(0);
    Some(LimitSpec { default, shadow: false, tried: None, overrides, sharing, floor })
}

/// Limits of which only the one at `place` is set.
fn at(place: usize, limit: Option<LimitSpec>) -> Spec {
    let mut limits = vec![None; place];
    limits.push(limit);
    Spec(List(limits))
}

/// One limit without overrides.
fn only(default: Numbers) -> Spec {
    at(0, limit(default, Vec::new()))
}

/// One limit with one override.
fn only_with(default: Numbers, over: Over) -> Spec {
    at(0, limit(default, vec![over]))
}

fn over(target: Target, numbers: Numbers, ends_s: Option<i64>) -> Over {
    Over { target, numbers: Some(numbers), ends_s }
}

fn start(spec: Spec) -> Start {
    Start { spec, now: 200 * 86_400 * S, cap: None }
}

fn answers_exactly(start: &Start, ops: &[Op]) {
    for on in [On::LockFree, On::Exact] {
        run::run(on, Checks::All, start, ops)
            .unwrap_or_else(|failure| panic!("{on:?}: {failure:?}"));
    }
}

fn keeps_the_bound(start: &Start, ops: &[Op]) {
    for on in [On::LockFree, On::Exact] {
        run::run(on, Checks::Bound, start, ops)
            .unwrap_or_else(|failure| panic!("{on:?}: {failure:?}"));
    }
}

/// Untracked keys of a full table share a bucket. One of them has an override, which the reload keeps.
#[test]
fn default_reload_forgets_no_override_at_cap() {
    let slow = Gcra { burst: 4, count: 3, period_ms: DAYS_100_MS };
    let filling = Gcra { burst: 4, count: 1, period_ms: 2500 };
    let before = Spec(List(vec![None, limit(slow, vec![]), limit(filling, vec![])]));
    let faster = Gcra { burst: 41, count: 3, period_ms: 60_000 };
    let after = at(1, limit(faster, vec![over(Target::Id(1), slow, None)]));
    let start = Start { cap: Some((2, AtCap::Share)), ..start(before) };
    let ops = [
        Op::Spend(call(2, 1, 4)),
        Op::Spend(call(2, 0, 2)),
        Op::Reserve(call(1, 1, 4), 0),
        Op::Reload(after, Afresh),
        Op::Spend(call(1, 1, 3)),
    ];
    keeps_the_bound(&start, &ops);
}

/// Under `CarryOver::Time` a shortened window began in the future, and its waits counted from that time. They
/// were too short for a bucket that owes for longer than an empty one takes.
#[test]
fn shortened_window_ends_by_an_empty_windows_end() {
    let start = start(only(Fixed { limit: 4, window_ms: DAYS_100_MS }));
    let ops = [
        Op::Spend(call(0, 0, 2)),
        Op::Reload(only(Fixed { limit: 5, window_ms: 2500 }), Time),
        Op::Advance(77 * S),
        Op::Check(call(0, 0, 1)),
    ];
    answers_exactly(&start, &ops);
}

/// The shadow limit's burst is smaller than the cost that is settled, or refunded in a batch. The shadow was
/// charged or refunded the whole difference: a debug assertion failed, and a product could wrap.
#[test]
fn tried_numbers_take_more_than_their_burst() {
    let mut limit = limit(Gcra { burst: 5, count: 2, period_ms: 10_000 }, vec![]);
    let of = limit.as_mut().expect("it was made");
    of.tried = Some(Gcra { burst: 2, count: 3, period_ms: 600_000 });
    let start = start(at(0, limit));
    answers_exactly(&start, &[Op::Charge(call(0, 5, 1)), Op::Settle(0, 4)]);
    let members = List(vec![(call(0, 0, 3), SpendOnly)]);
    answers_exactly(&start, &[Op::Batch(BatchCall::RefundAll, members)]);
}

/// Seed 58: the override's end changes the bucket before the reload does.
#[test]
fn override_end_then_reload_each_migrate_the_bucket() {
    let long = Gcra { burst: 43, count: 7, period_ms: DAYS_100_MS };
    let short = Gcra { burst: 8, count: 3, period_ms: 600_000 };
    let ending = at(1, limit(short, vec![over(Target::Id(1), long, Some(3600))]));
    let after = at(1, limit(Gcra { burst: 12, count: 1, period_ms: DAYS_100_MS }, vec![]));
    let ops = [
        Op::Reload(ending, Afresh),
        Op::Spend(call(1, 1, 2)),
        Op::ToEnd(MS as i64),
        Op::Reload(after, Units),
    ];
    answers_exactly(&start(at(1, None)), &ops);
}

/// Seed 94: by the override the bucket would be full when the reload comes, but the override ended before.
#[test]
fn ended_overrides_debt_is_not_forgotten() {
    let default = Leaky { size: 12, rate_ms: DAYS_100_MS / 5, drip: 7 };
    let of_account = Leaky { size: 6, rate_ms: 200, drip: 8 };
    let first = at(2, limit(default, vec![over(Target::Account(8), of_account, Some(60))]));
    let after = at(2, limit(Tokens { limit: 9, window_ms: 600_000, burst: 7 }, vec![]));
    let ops =
        [Op::ToEnd(-1), Op::Spend(call(2, 2, 3)), Op::Advance(2 * S), Op::Reload(after, Share)];
    answers_exactly(&start(first), &ops);
}

/// Seed 39: another override of the same limit has ended before the reload.
#[test]
fn an_override_applies_beside_one_that_has_ended() {
    let fast = Gcra { burst: 53, count: 7, period_ms: 2500 };
    let slow = Gcra { burst: 6, count: 3, period_ms: 3_600_000 };
    let default = Gcra { burst: 9, count: 2, period_ms: 60_000 };
    let first = vec![over(Target::Id(0), fast, None), over(Target::Id(1), slow, None)];
    let second = vec![
        over(Target::Id(1), Gcra { burst: 4, count: 3, period_ms: 60_000 }, None),
        over(Target::Id(4), slow, Some(-5)),
    ];
    let start = start(at(0, limit(default, first)));
    let ops = [Op::Spend(call(0, 1, 1)), Op::Reload(at(0, limit(default, second)), Time)];
    answers_exactly(&start, &ops);
}

/// Seed 55: a reload brings an account's override and another default. The bucket is carried to the
/// override alone.
#[test]
fn an_accounts_new_override_carries_its_buckets_once() {
    let first = at(1, limit(Leaky { size: 12, rate_ms: DAYS_100_MS / 5, drip: 7 }, vec![]));
    let of_account = Leaky { size: 9, rate_ms: 720_000, drip: 11 };
    let overrides = vec![over(Target::Account(1), of_account, None)];
    let second = at(1, limit(Leaky { size: 5, rate_ms: 720_000, drip: 3 }, overrides));
    let ops = [Op::Spend(call(1, 0, 6)), Op::Reload(second, Units)];
    answers_exactly(&start(first), &ops);
}

/// Issue 11, section 1: a reload removes the default and gives the account an override.
#[test]
fn account_keeps_debt_of_a_removed_default() {
    let first = at(1, limit(Gcra { burst: 10, count: 1, period_ms: 60_000 }, vec![]));
    let of_account = Gcra { burst: 100, count: 10, period_ms: 60_000 };
    let second = at(1, limit(None, vec![over(Target::Account(1), of_account, None)]));
    let ops = [Op::Spend(call(1, 0, 10)), Op::Reload(second, Share), Op::Check(call(1, 0, 1))];
    answers_exactly(&start(first), &ops);
}

/// Issue 11, section 1: a sweep uses the account's slow limit, not the default.
#[test]
fn a_sweep_keeps_what_an_account_owes() {
    let first = at(1, limit(Gcra { burst: 10, count: 1, period_ms: 1000 }, vec![]));
    let slow = Gcra { burst: 10, count: 10, period_ms: DAYS_100_MS };
    let second = vec![over(Target::Account(1), slow, None)];
    let second = at(1, limit(Gcra { burst: 10, count: 1, period_ms: 1000 }, second));
    let ops = [
        Op::Spend(call(1, 0, 10)),
        Op::Reload(second, Share),
        Op::Advance(60 * S),
        Op::SweepAll,
        Op::Check(call(1, 0, 1)),
    ];
    answers_exactly(&start(first), &ops);
}

/// The default has the override's numbers, so no answer tells that it has ended.
#[test]
fn charge_before_override_end_returns_nothing() {
    let numbers = Gcra { burst: 5, count: 1, period_ms: 3_600_000 };
    let start = start(only_with(numbers, over(Target::Id(0), numbers, Some(60))));
    let ops = [
        Op::Charge(call(0, 0, 4)),
        Op::Reserve(call(0, 0, 3), u64::MAX),
        Op::ToEnd(7 * S as i64),
        Op::Settle(0, 1),
        Op::Cancel(0),
    ];
    answers_exactly(&start, &ops);
}

/// A reload gives the id an override with the default's numbers and an end: another limit.
#[test]
fn charge_stays_under_an_override_with_end() {
    let numbers = Gcra { burst: 5, count: 1, period_ms: 3_600_000 };
    let with_end = only_with(numbers, over(Target::Id(0), numbers, Some(60)));
    for (first, second) in [(only(numbers), with_end.clone()), (with_end.clone(), only(numbers))] {
        let ops = [
            Op::Charge(call(0, 0, 4)),
            Op::Reload(second, Share),
            Op::Settle(0, 1),
            Op::Check(call(0, 0, 1)),
        ];
        answers_exactly(&start(first), &ops);
    }
}

/// Seed 4737: a limiter restores a snapshot that lacks one of its limits. Batches charge that limit last.
#[test]
fn denied_batch_charges_new_limit_last() {
    let spec = at(4, limit(Fixed { limit: 31, window_ms: 600_000 }, vec![]));
    let ops = [
        Op::Snapshot,
        Op::Restore(spec, Share),
        Op::Denied(List(vec![(call(4, 0, 3), CheckAndSpend)])),
        Op::Back(3 * S),
        Op::Spend(call(4, 0, 3)),
    ];
    answers_exactly(&start(at(4, None)), &ops);
}

/// A reload gives a limit that it brings the place of a name that was forgotten. Batches charge it before the limit that denies.
#[test]
fn denied_batch_charges_new_limit_first() {
    let flights = at(6, limit(Permits { max: 2 }, vec![]));
    let brought = at(4, limit(Fixed { limit: 31, window_ms: 600_000 }, vec![]));
    let ops = [
        Op::Reload(only(Fixed { limit: 1, window_ms: 1000 }), Share),
        Op::Reload(brought, Share),
        Op::Advance(60 * S),
        Op::Denied(List(vec![(call(4, 0, 3), CheckAndSpend)])),
        Op::Back(3 * S),
        Op::Spend(call(4, 0, 3)),
    ];
    answers_exactly(&start(flights), &ops);
}

/// A vacant place is taken until the clock has passed it, also when its time has come.
#[test]
fn vacant_place_is_taken_after_its_time() {
    let limit = Gcra { burst: 2, count: 1, period_ms: 10 };
    let place = Op::Reserve(call(0, 0, 1), u64::MAX);
    let [a, b, c, d, e] = [(); 5].map(|()| place.clone());
    let ops = [a, b, c, d, e, Op::Cancel(2), Op::Advance(15 * MS), place.clone(), place.clone()];
    answers_exactly(&start(only(limit)), &ops);
}

/// A place that was vacant before is vacant again when it is cancelled after its time.
#[test]
fn taken_vacant_place_is_vacant_again() {
    let limit = Gcra { burst: 1, count: 1, period_ms: 10 };
    let place = Op::Reserve(call(0, 0, 1), u64::MAX);
    let [a, b, c, d, e] = [(); 5].map(|()| place.clone());
    let ops = [a, b, c, Op::Cancel(1), d, Op::Advance(10 * MS), Op::Cancel(2), e];
    answers_exactly(&start(only(limit)), &ops);
}
