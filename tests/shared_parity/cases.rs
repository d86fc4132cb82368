//! Short lists of operations, written by hand or found by a random run that failed.

use tollgate::batch::MemberMode::{CheckAndSpend, CheckOnly, SpendOnly};
use tollgate::limits::Floor;
use tollgate::reload::CarryOver::Share;

use super::call::{BatchCall, Call};
use super::ops::{Kind, ONE, Op, Way, call};
use super::run::{On, Start, run};
use super::spec::Numbers::Gcra;
use super::spec::{LimitSpec, List, Numbers, Sharing, Spec};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const LEASED: Sharing = Sharing::Leased { lease_ms: 1000 };

fn limit(default: Numbers, sharing: Sharing) -> Option<LimitSpec> {
    let (default, overrides) = (Some(default), List(Vec::new()));
    let floor = Floor::Units(0);
    Some(LimitSpec { default, shadow: false, tried: None, overrides, sharing, floor })
}

fn in_shadow_mode(limit: Option<LimitSpec>) -> Option<LimitSpec> {
    limit.map(|limit| LimitSpec { shadow: true, ..limit })
}

fn start(limits: Vec<Option<LimitSpec>>, nodes: usize) -> Start {
    Start { spec: Spec(List(limits)), now: 200 * 86_400 * S, nodes }
}

fn answers(start: &Start, ops: &[Op]) {
    for on in [On::LockFree, On::Exact] {
        run(on, start, ops).unwrap_or_else(|failure| panic!("{on:?}: {failure:?}"));
    }
}

fn spend(node: usize, call: Call) -> Op {
    Op::One(node, Way::Async, Kind::Spend, call)
}

fn batch(members: Vec<(Call, tollgate::batch::MemberMode)>, what: BatchCall) -> Op {
    Op::Batch(0, Way::Async, what, List(members))
}

const MINUTELY: Numbers = Gcra { burst: 20, count: 1, period_ms: 60_000 };

/// Each call for the id waited without end.
#[test]
fn limiter_that_is_off_knows_blocks() {
    let start = start(vec![limit(MINUTELY, Sharing::Exact)], 1);
    let ops = [
        Op::Enable(0, false),
        Op::Block(0, 0, 0, 5 * S),
        Op::Explain(0, call(0, 0, 1)),
        Op::Enable(0, true),
        spend(0, call(0, 0, 1)),
        Op::Enable(0, false),
        Op::Unblock(0, 0, 0),
    ];
    answers(&start, &ops);
}

/// Seed 11.
#[test]
fn refund_above_the_burst_in_shadow_mode() {
    let limits = vec![in_shadow_mode(limit(MINUTELY, Sharing::Exact))];
    answers(&start(limits, 1), &[Op::One(0, Way::Async, Kind::Refund, call(0, 0, 21))]);
}

/// Seed 15: the node itself denied the first member, and the second was not asked.
#[test]
fn blocked_spend_only_member_beside_another() {
    let limits = vec![limit(MINUTELY, LEASED), limit(MINUTELY, Sharing::Exact)];
    let members = vec![(call(0, 0, 1), SpendOnly), (call(1, 0, 2), CheckAndSpend)];
    let ops = [
        Op::Block(0, 0, 0, 60 * S),
        spend(0, call(1, 0, 20)),
        batch(members.clone(), BatchCall::CheckAll),
        batch(members, BatchCall::SpendAll),
    ];
    answers(&start(limits, 1), &ops);
}

/// Seed 200263: the store charged nothing, and the batch was told to be allowed.
#[test]
fn checked_member_in_shadow_mode_without_units() {
    let tried = Gcra { burst: 2, count: 2, period_ms: 60_000 };
    let limits =
        vec![in_shadow_mode(limit(tried, Sharing::Exact)), limit(MINUTELY, Sharing::Exact)];
    let members = vec![(call(0, 0, 2), CheckOnly), (call(1, 0, 3), CheckAndSpend)];
    let ops = [spend(0, call(0, 0, 2)), batch(members, BatchCall::SpendAll)];
    answers(&start(limits, 1), &ops);
}

/// Seed 301491: the text was kept for a minute, and the units of the lease for longer.
#[test]
fn lease_is_spent_after_a_reset() {
    let slow = Gcra { burst: 27, count: 1, period_ms: 600_000 };
    let ops = [
        spend(0, call(0, 0, 2)),
        Op::Advance(MS),
        spend(0, call(0, 0, 2)),
        Op::One(0, Way::Async, Kind::Reset, call(0, 0, 0)),
        Op::One(0, Way::Async, Kind::Spend, call(0, 0, 1)),
        Op::Advance(340 * S),
    ];
    answers(&start(vec![limit(slow, LEASED)], 1), &ops);
}

/// A call with a factor of 0.5 was free where leased units held the bucket back.
#[test]
fn call_with_a_factor_beside_a_lease() {
    let limits = vec![limit(Gcra { burst: 8, count: 1, period_ms: 1000 }, LEASED)];
    let halved = vec![(Call { factor: 500_000, ..call(0, 0, 2) }, CheckAndSpend)];
    let ops = [
        spend(0, call(0, 0, 1)),
        Op::Advance(MS),
        spend(0, call(0, 0, 1)),
        Op::Advance(900 * MS),
        Op::Batch(1, Way::Async, BatchCall::SpendAll, List(halved)),
        spend(1, call(0, 0, 4)),
        Op::One(0, Way::Async, Kind::Spend, Call { factor: ONE, ..call(0, 0, 2) }),
    ];
    answers(&start(limits, 2), &ops);
}

/// Units that one node holds are no other node's, and come back at the end.
#[test]
fn leases_of_two_nodes_come_back() {
    let limits = vec![limit(Gcra { burst: 40, count: 1, period_ms: 3_600_000 }, LEASED)];
    let ops = [
        spend(0, call(0, 0, 1)),
        spend(0, call(0, 0, 1)),
        spend(1, call(0, 0, 1)),
        spend(1, call(0, 0, 1)),
        spend(0, call(0, 0, 9)),
        Op::Explain(1, call(0, 0, 1)),
        Op::GiveBack(Some(1)),
        Op::Reload(Spec(List(vec![limit(MINUTELY, Sharing::Local)])), (Share, None)),
    ];
    answers(&start(limits, 2), &ops);
}
