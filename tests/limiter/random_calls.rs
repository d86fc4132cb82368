//! Compares random calls, with random sweeps between them, with an oracle.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::batch::MemberMode;
use tollgate::options::Engine;
use tollgate::{Clock, Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::oracle::{Figures, Member, Mode, Numbers, Oracle};
use super::support::ENGINES;

/// Burst, count and period in ns of limits A and B. The emission interval of B is rounded.
const LIMITS: [(u64, u64, u64); 2] = [(5, 10, 1_000), (3, 3, 1_000_000_000)];
/// An id of limit A with an override, and the burst, count and period in ns of the override.
const OVERRIDE: (u64, (u64, u64, u64)) = (1, (8, 1, 70));
const IDS: u64 = 4;

#[derive(Clone, Debug)]
enum Op {
    Spend(Vec<Call>),
    Check(Vec<Call>),
    Refund(Vec<Call>),
    Reset(Vec<Call>),
    Advance(u64),
    Sweep(usize),
}

/// A limit, an id, a cost (taken modulo the burst plus one) and a mode.
#[derive(Clone, Debug)]
struct Call {
    limit: usize,
    id: u64,
    cost: u64,
    mode: u8,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = (0..2usize, 0..IDS, 0..9u64, 0..3u8).prop_map(|(limit, id, cost, mode)| Call {
        limit,
        id,
        cost,
        mode,
    });
    prop::collection::vec(call, 0..4).prop_map(|mut calls| {
        calls.sort_by_key(|call| (call.limit, call.id));
        calls.dedup_by_key(|call| (call.limit, call.id));
        calls
    })
}

fn engines() -> impl Strategy<Value = Engine> {
    prop::sample::select(ENGINES.to_vec())
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let advance = prop_oneof![0..200u64, 0..2_000_000_000u64];
    prop::collection::vec(
        prop_oneof![
            6 => calls().prop_map(Op::Spend),
            2 => calls().prop_map(Op::Check),
            1 => calls().prop_map(Op::Refund),
            1 => calls().prop_map(Op::Reset),
            4 => advance.prop_map(Op::Advance),
            2 => (0..40usize).prop_map(Op::Sweep),
        ],
        1..60,
    )
}

fn numbers(limit: usize, id: u64) -> (u64, u64, u64) {
    if limit == 0 && id == OVERRIDE.0 { OVERRIDE.1 } else { LIMITS[limit] }
}

fn limits() -> Limits {
    let made = |(burst, count, period_ns)| {
        Limit::new(burst, count, Duration::from_nanos(period_ns)).unwrap()
    };
    let limits = Limits::builder();
    let limits = limits.limit("A", IdFormat::RegId, made(LIMITS[0])).unwrap();
    let limits = limits.limit("B", IdFormat::String, made(LIMITS[1])).unwrap();
    limits.override_id("A", OVERRIDE.0, made(OVERRIDE.1)).unwrap().build()
}

struct Both {
    limiter: Limiter,
    handles: [KeyedLimit; 2],
    oracle: Oracle,
}

impl Both {
    /// Makes the calls as one batch on the limiter and on the oracle, and compares the decisions. A single call in the
    /// mode `CheckAndSpend` is made on its handle, not as a batch.
    fn compare(&mut self, op: &Op, calls: &[Call]) -> Result<(), TestCaseError> {
        let modes = [MemberMode::CheckAndSpend, MemberMode::CheckOnly, MemberMode::SpendOnly];
        let oracle_modes = [Mode::CheckAndSpend, Mode::CheckOnly, Mode::SpendOnly];
        let ids: Vec<String> = calls.iter().map(|call| call.id.to_string()).collect();
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for (call, id) in calls.iter().zip(&ids) {
            let (burst, count, period_ns) = numbers(call.limit, call.id);
            let cost = call.cost % (burst + 1);
            let member = self.handles[call.limit].member(id).cost(cost);
            ours.push(member.mode(modes[usize::from(call.mode)]));
            theirs.push(Member {
                bucket: call.limit as u64 * IDS + call.id,
                numbers: Numbers::new(burst, count, period_ns),
                cost: cost.into(),
                mode: oracle_modes[usize::from(call.mode)],
            });
        }
        let single = match (calls, ids.as_slice()) {
            ([call], [id]) if call.mode == 0 => {
                let (burst, ..) = numbers(call.limit, call.id);
                Some((&self.handles[call.limit], id, call.cost % (burst + 1)))
            }
            _ => None,
        };
        let batch = self.limiter.batch(&ours);
        let (said, expected) = match (op, single) {
            (Op::Spend(_), Some((handle, id, cost))) => {
                (handle.spend(id, cost), self.oracle.spend(&theirs))
            }
            (Op::Check(_), Some((handle, id, cost))) => {
                (handle.check(id, cost), self.oracle.check(&theirs))
            }
            (Op::Refund(_), Some((handle, id, cost))) => {
                (handle.refund(id, cost), self.oracle.refund(&theirs))
            }
            (Op::Reset(_), Some((handle, id, _))) => (handle.reset(id), self.oracle.reset(&theirs)),
            (Op::Spend(_), None) => (batch.spend(), self.oracle.spend(&theirs)),
            (Op::Check(_), None) => (batch.check(), self.oracle.check(&theirs)),
            (Op::Refund(_), None) => (batch.refund(), self.oracle.refund(&theirs)),
            (Op::Reset(_), None) => (batch.reset(), self.oracle.reset(&theirs)),
            _ => unreachable!("not a call"),
        };
        prop_assert_eq!(figures(said.unwrap()), expected, "{:?} at {}", op, self.oracle.now);
        Ok(())
    }
}

fn figures(decision: Decision) -> Figures {
    let remaining = decision.remaining()?;
    let ns = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap();
    Some((decision.allowed(), remaining.into(), ns(decision.retry_in()), ns(decision.reset_in())))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn answers_as_the_oracle_with_any_sweeps(ops in ops(), engine in engines()) {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(limits(), options);
        let handles = [limiter.limit("A").unwrap(), limiter.limit("B").unwrap()];
        let mut both = Both { limiter, handles, oracle: Oracle::new() };
        for op in &ops {
            match op {
                Op::Spend(calls) | Op::Check(calls) | Op::Refund(calls) | Op::Reset(calls) => {
                    both.compare(op, calls)?;
                }
                Op::Advance(by_ns) => {
                    hand.advance(Duration::from_nanos(*by_ns));
                    both.oracle.now += i128::from(*by_ns);
                }
                Op::Sweep(cells) => {
                    let _ = both.limiter.sweep(*cells);
                }
            }
        }
    }

    /// The bound under a clock that jumps back and forth: the cost admitted at times in [a, b] is at most
    /// burst + (b - a) / interval.
    #[test]
    fn the_bound_holds_under_any_clock(
        steps in prop::collection::vec((0..400u64, 1..4u64, 0..8u8), 1..80),
        engine in engines(),
    ) {
        let (burst, count, period_ns) = LIMITS[0];
        let ei = period_ns / count;
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(limits(), options);
        let handle = limiter.limit("A").unwrap();
        let mut latest = 0;
        // Time and cost of each admission. A decision on a new cell is made at the time of the latest sweep or
        // later.
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        let mut swept_at = 0;
        for (now, cost, what) in steps {
            hand.set(Duration::from_nanos(now));
            latest = latest.max(now);
            if what == 0 {
                while !limiter.sweep(1).finished {}
                swept_at = swept_at.max(now);
            } else if handle.spend(0u64, cost).unwrap().allowed() {
                admitted.push((now.max(swept_at.min(latest)), cost));
            }
        }
        for &(a, _) in &admitted {
            for &(b, _) in &admitted {
                let sum: u64 = admitted.iter().filter(|(t, _)| (a..=b).contains(t)).map(|(_, c)| c).sum();
                if a <= b {
                    prop_assert!(sum <= burst + (b - a) / ei, "{} in [{}, {}]", sum, a, b);
                }
            }
        }
    }
}
