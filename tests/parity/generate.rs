//! Generates random runs of one limiter.

use tollgate::options::AtCap;

use super::ops::{BatchCall, Call, Op, call};
use super::random::Random;
use super::run::Start;
use super::spec::{KNOWN, List, RATES};
use super::worlds::{DAY_S, Features, Generator, NS_PER_S, PERMITS};

/// Generates a run of at most 300 operations. A third of the runs has one bucket, whose calls often meet.
pub(crate) fn any(seed: u64) -> (Start, Vec<Op>) {
    any_with(seed, seed.is_multiple_of(2))
}

/// The same without limits of permits.
pub(crate) fn any_of_rates(seed: u64) -> (Start, Vec<Op>) {
    any_with(seed, false)
}

fn any_with(seed: u64, permits: bool) -> (Start, Vec<Op>) {
    let mut random = Random(seed);
    let features = Features { dense: random.chance(1, 3), permits, ..Features::any(&mut random) };
    let few = Features { reloads: false, batches: false, sweeps: false, files: false, ..features };
    let features = if features.dense && random.chance(1, 2) { few } else { features };
    let now = if random.chance(1, 3) { 1 } else { random.within(1, 150 * DAY_S * NS_PER_S) };
    let length = random.within(10, 300);
    run_of(Generator { algorithms: [0; KNOWN.len()], features, random }, now, None, length)
}

/// Generates a run in a full table, with few ids.
pub(crate) fn any_full(seed: u64) -> (Start, Vec<Op>) {
    let mut random = Random(seed);
    let features = Features {
        ids: random.within(1, 2),
        shadows: false,
        factors: false,
        networks: false,
        back: false,
        switch: false,
        permits: random.chance(2, 3),
        ..Features::any(&mut random)
    };
    let at_cap = random.pick(&[AtCap::Share, AtCap::Share, AtCap::Deny, AtCap::Allow]);
    let cap = Some((random.within(1, 6) as usize, at_cap));
    let (length, now) = (random.within(10, 150), random.within(1, 150 * DAY_S * NS_PER_S));
    run_of(Generator { algorithms: [0; KNOWN.len()], features, random }, now, cap, length)
}

fn run_of(
    mut generator: Generator,
    now: u64,
    cap: Option<(usize, AtCap)>,
    length: u64,
) -> (Start, Vec<Op>) {
    generator.algorithms =
        std::array::from_fn(|limit| if limit < RATES { generator.algorithm() } else { PERMITS });
    let start = Start { spec: generator.first_spec(), now, cap };
    let mut ops: Vec<Op> = (0..length).map(|_| generator.op()).collect();
    // Half of the limits stay as they are.
    let mut spec = start.spec.clone();
    for op in &mut ops {
        if let Op::Reload(next, _) | Op::Restore(next, _) = op {
            for (next, before) in next.0.0.iter_mut().zip(spec.0.0) {
                if generator.random.chance(1, 2) {
                    *next = before;
                }
            }
            spec = next.clone();
        }
    }
    (start, ops)
}

/// Operations of a run.
impl Generator {
    fn op(&mut self) -> Op {
        if self.random.chance(2, 5) {
            return self.held_op();
        }
        let features = self.features;
        if features.permits && self.random.chance(1, 4) {
            return self.permit_op();
        }
        match self.random.below(100) {
            0..16 => self.advance(),
            16..20 if features.back => Op::Back(self.random.below(5 * NS_PER_S)),
            20..24 if features.ends => {
                Op::ToEnd(self.random.pick(&[-1, 0, 1, 1_000_000, 7_000_000_000]))
            }
            24..30 if features.reloads => Op::Reload(self.next_spec(), self.debt()),
            30..34 if features.sweeps => match self.random.chance(1, 2) {
                true => Op::SweepAll,
                false => Op::Sweep(self.random.within(0, 40) as usize),
            },
            34..36 if features.files => Op::Snapshot,
            36..38 if features.files => Op::Restore(self.next_spec(), self.debt()),
            38..39 if features.switch => Op::Enable(self.random.chance(2, 3)),
            39..46 if features.batches => self.batch(),
            46..50 if features.batches => Op::Denied(List(self.any_batch().1)),
            50..55 if features.blocks => self.block(),
            50..60 => Op::Check(self.leaving_call()),
            60..66 => Op::Refund(self.call()),
            66..69 => Op::Reset(self.call()),
            69..71 => self.many(),
            71..73 => self.some(),
            _ => Op::Spend(self.leaving_call()),
        }
    }

    /// An operation of charges that callers hold.
    fn held_op(&mut self) -> Op {
        let at = self.random.below(8) as usize;
        if self.features.batches && self.random.chance(1, 4) {
            return match self.random.below(4) {
                0 | 1 => self.reserve_batch(),
                2 => Op::CancelBatch(at),
                _ => Op::KeepBatch(at),
            };
        }
        match self.random.below(16) {
            12..14 if self.features.batches => Op::ChargeBatch(List(self.any_batch().1)),
            14 => Op::SettleBatch(at, self.random.below(6)),
            15 => {
                let position = self.random.below(5) as usize;
                Op::SettleMember(at, position, self.random.below(6))
            }
            0..4 => {
                let at_most = self.random.pick(&[0, 5 * NS_PER_S, 3600 * NS_PER_S, u64::MAX]);
                let call = self.call();
                Op::Reserve(Call { cost: call.cost.min(6), ..call }, at_most)
            }
            4..6 => Op::Cancel(at),
            6..8 => Op::Keep(at),
            8..10 => Op::Charge(self.call()),
            _ => Op::Settle(at, self.random.below(6)),
        }
    }

    /// A batch of different buckets, most of the time. In a dense run it has two.
    fn reserve_batch(&mut self) -> Op {
        let at_most = self.random.pick(&[0, 5 * NS_PER_S, 3600 * NS_PER_S, u64::MAX]);
        let members = self.random.within(0, 4);
        let members = (0..members).map(|at| {
            let Call { limit, id, cost, .. } = self.call();
            let limit = if self.features.dense { at as usize % 2 } else { limit };
            call(limit, id, cost.min(3))
        });
        let mut members: Vec<Call> = members.collect();
        if !self.random.chance(1, 10) {
            members.sort_by_key(|call| (call.limit, call.id));
            members.dedup_by_key(|call| (call.limit, call.id));
            if self.random.chance(1, 2) {
                members.reverse();
            }
        }
        Op::ReserveBatch(List(members), at_most)
    }

    fn permit_op(&mut self) -> Op {
        let at = self.random.below(8) as usize;
        match self.random.below(16) {
            0..3 if self.features.batches => Op::ChargeBatch(List(self.any_batch().1)),
            3 if self.features.batches => Op::Denied(List(self.any_batch().1)),
            0..9 => Op::Acquire(self.permit_call()),
            9 => Op::CheckPermits(self.permit_call()),
            10 => Op::DropBatch(at),
            11 if self.random.chance(1, 2) => {
                Op::SetMax(self.permit_call().limit, self.random.below(8))
            }
            _ => Op::Release(at),
        }
    }

    /// A call that takes all units of the bucket.
    fn some(&mut self) -> Op {
        let call = self.call();
        match self.random.chance(1, 3) {
            true => Op::Drain(call),
            false => Op::SpendUpTo(call),
        }
    }

    fn block(&mut self) -> Op {
        let is_of_permits = self.features.permits && self.random.chance(1, 3);
        let Call { limit, id, .. } = if is_of_permits { self.permit_call() } else { self.call() };
        match self.block_time() {
            Some(time) => Op::Block(limit, id, time),
            None => Op::Unblock(limit, id),
        }
    }

    fn advance(&mut self) -> Op {
        Op::Advance(self.time_step())
    }

    fn many(&mut self) -> Op {
        let Call { limit, cost, .. } = self.call();
        let ids = KNOWN[limit].ids.len() as u64;
        let length = self.random.below(24);
        let ids = (0..length).map(|_| self.random.below(ids) as usize).collect();
        Op::SpendMany { limit, ids: List(ids), cost }
    }

    fn batch(&mut self) -> Op {
        let (what, mut members) = self.any_batch();
        if what != BatchCall::CheckAll && self.random.chance(3, 4) {
            members.retain(|(call, _)| call.limit < RATES);
        }
        Op::Batch(what, List(members))
    }
}
