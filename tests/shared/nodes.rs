//! Random calls of two nodes on one store: each answer is that of one local limiter.

use std::time::Duration;

use proptest::prelude::*;

use tollgate::batch::MemberMode;
use tollgate::limits::LimitOptions;
use tollgate::shared::Store;
use tollgate::{Clock, Decision, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::{exact, node, now};

const IDS: [&str; 3] = [
    "a",
    "b",
    "an id that is so long that the store has its hash: 0123456789 0123456789 0123456789",
];
const MODES: [MemberMode; 3] =
    [MemberMode::CheckAndSpend, MemberMode::CheckOnly, MemberMode::SpendOnly];

/// Limit, id, cost, mode, factor.
type OneCall = (usize, usize, u64, usize, usize);

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Spend(OneCall),
    Check(OneCall),
    Refund(OneCall),
    Reset(OneCall),
    /// For whole milliseconds, as the store has them.
    Block(OneCall, u64),
    Unblock(OneCall),
    Batch(Vec<OneCall>, bool),
}

fn one_call() -> impl Strategy<Value = OneCall> {
    (0..5usize, 0..3usize, 0..7u64, 0..3usize, 0..6usize)
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        2 => (0..3_000_000_000u64).prop_map(Step::Wait),
        4 => one_call().prop_map(Step::Spend),
        1 => one_call().prop_map(Step::Check),
        1 => one_call().prop_map(Step::Refund),
        1 => one_call().prop_map(Step::Reset),
        1 => (one_call(), 0..5_000u64).prop_map(|(call, ms)| Step::Block(call, ms)),
        1 => one_call().prop_map(Step::Unblock),
        4 => (prop::collection::vec(one_call(), 1..5), any::<bool>())
            .prop_map(|(calls, spends)| Step::Batch(calls, spends)),
    ];
    prop::collection::vec((0..2usize, step), 1..60)
}

/// Four shared limits, one of each algorithm, and a limit of each node.
fn limits(of_nodes: LimitOptions) -> Limits {
    let ms = Duration::from_millis;
    let all = [
        ("Gcra", Limit::new(5, 3, ms(2_000))),
        ("Fixed", Limit::fixed_window(5, ms(1_700))),
        ("Tokens", Limit::token_bucket(4, 6, ms(1_300))),
        ("Leaky", Limit::leaky_bucket(5, 2, ms(700))),
    ];
    let mut builder = Limits::builder();
    for (name, limit) in all {
        builder =
            builder.limit_with(name, IdFormat::String, limit.unwrap(), of_nodes.clone()).unwrap();
    }
    builder.limit("Own", IdFormat::String, Limit::new(5, 3, ms(2_000)).unwrap()).unwrap().build()
}

const NAMES: [&str; 5] = ["Gcra", "Fixed", "Tokens", "Leaky", "Own"];
const OWN: usize = 4;

/// Ids of the limit `Own` differ between the nodes.
fn id_of(node: usize, (limit, id, ..): OneCall) -> String {
    if limit == OWN { format!("{node} {}", IDS[id]) } else { IDS[id].into() }
}

struct World {
    nodes: [Limiter; 2],
    oracle: Limiter,
}

impl World {
    fn step(&self, at: usize, step: &Step) -> Result<(), TestCaseError> {
        let (node, oracle) = (&self.nodes[at], &self.oracle);
        let handles = |call: &OneCall| {
            (
                node.shared(NAMES[call.0]).unwrap(),
                oracle.limit(NAMES[call.0]).unwrap(),
                id_of(at, *call),
            )
        };
        match step {
            Step::Wait(_) => {}
            Step::Spend(call) | Step::Check(call) | Step::Refund(call) | Step::Reset(call) => {
                let (here, there, id) = handles(call);
                let (id, cost) = (&*id, call.2);
                let (answer, expected) = match step {
                    Step::Spend(_) => (now(here.spend(id, cost)), there.spend(id, cost)),
                    Step::Check(_) => (now(here.check(id, cost)), there.check(id, cost)),
                    Step::Refund(_) => (now(here.refund(id, cost)), there.refund(id, cost)),
                    _ => (now(here.reset(id)), there.reset(id)),
                };
                same(answer, expected)?;
            }
            Step::Block(call, ms) => {
                let (here, there, id) = handles(call);
                let time = Duration::from_millis(*ms);
                let left = now(here.block(&id, time)).unwrap();
                prop_assert_eq!(left, there.block(&id, time).unwrap());
                prop_assert_eq!(
                    now(here.blocked_for(&id)).unwrap(),
                    there.blocked_for(&id).unwrap()
                );
            }
            Step::Unblock(call) => {
                let (here, there, id) = handles(call);
                prop_assert_eq!(now(here.unblock(&id)).unwrap(), there.unblock(&id).unwrap());
            }
            Step::Batch(calls, spends) => self.batch(at, calls, *spends)?,
        }
        Ok(())
    }

    fn batch(&self, at: usize, calls: &[OneCall], spends: bool) -> Result<(), TestCaseError> {
        let ids: Vec<String> = calls.iter().map(|call| id_of(at, *call)).collect();
        let of = |call: &OneCall| {
            let (here, there) = (&self.nodes[at], &self.oracle);
            (here.shared(NAMES[call.0]).unwrap(), there.limit(NAMES[call.0]).unwrap())
        };
        let handles: Vec<_> = calls.iter().map(of).collect();
        let all = || handles.iter().zip(calls).zip(&ids);
        let factor = |call: &OneCall| ["1", "1", "1", "0.5", "2", "0"][call.4].parse().unwrap();
        let mine: Vec<_> = all()
            .map(|(((here, _), call), id)| {
                here.member(id).cost(call.2).mode(MODES[call.3]).factor(factor(call))
            })
            .collect();
        let theirs: Vec<_> = all()
            .map(|(((_, there), call), id)| {
                there.member(id).cost(call.2).mode(MODES[call.3]).factor(factor(call))
            })
            .collect();
        let (batch, expected) = (self.nodes[at].shared_batch(&mine), self.oracle.batch(&theirs));
        let own: Vec<_> = theirs.iter().zip(calls).filter(|(_, call)| call.0 == OWN).collect();
        let own: Vec<_> = own.into_iter().map(|(member, _)| *member).collect();
        let denied_here = self.oracle.batch(&own).check().is_ok_and(|own| !own.allowed());
        let (answer, expected) = match spends {
            true => (now(batch.spend()), expected.spend()),
            false => (now(batch.check()), expected.check()),
        };
        match (answer, expected) {
            // The store was not asked: the decision is that of the node's own members.
            (Ok(answer), Ok(expected)) if denied_here => {
                prop_assert!(!answer.allowed() && !expected.allowed());
                Ok(())
            }
            (answer, expected) => same(answer, expected),
        }
    }
}

fn same(
    answer: Result<Decision, tollgate::Error>,
    expected: Result<Decision, tollgate::Error>,
) -> Result<(), TestCaseError> {
    match (answer, expected) {
        (Ok(answer), Ok(expected)) => prop_assert_eq!(answer, expected),
        (Err(answer), Err(expected)) => prop_assert_eq!(answer.to_string(), expected.to_string()),
        (answer, expected) => prop_assert!(false, "{answer:?} {expected:?}"),
    }
    Ok(())
}

proptest! {
    #[test]
    fn two_nodes_answer_as_one_limiter(steps in steps()) {
        // The clock of the nodes is not the store's, so they keep no denials, and see each other's blocks at once.
        let ((clock, hand), (of_store, hand_of_store)) = (Clock::manual(), Clock::manual());
        let mut time = Duration::from_secs(1_000);
        let store = Store::in_memory(of_store);
        let nodes = [0, 1].map(|_| node(limits(exact()), &store, &clock));
        let options = LimiterOptions::default().clock(clock);
        let oracle = Limiter::with_options(limits(LimitOptions::default()), options).unwrap();
        let world = World { nodes, oracle };
        for (at, step) in &steps {
            if let Step::Wait(ns) = step {
                time += Duration::from_nanos(*ns);
            }
            if matches!(step, Step::Block(..)) {
                // Let the block end in a whole millisecond of the store.
                time = Duration::from_millis(time.as_nanos().div_ceil(1_000_000) as u64);
            }
            hand.set(time);
            hand_of_store.set(time);
            world.step(*at, step)?;
        }
    }
}
