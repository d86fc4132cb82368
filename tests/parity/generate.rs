//! Generates random runs. Each run has only some of the features, which helps to tell the cause of a
//! failure.

use tollgate::batch::MemberMode;
use tollgate::options::AtCap;
use tollgate::reload::CarryOver;

use super::ops::{BatchCall, Call, ONE, Op};
use super::rng::Rng;
use super::run::{LARGEST_FACTOR, Start};
use super::spec::{KNOWN, LimitSpec, List, Numbers, Over, Spec, Target};

const NS_PER_S: u64 = 1_000_000_000;
const DAY_S: u64 = 86_400;
const MODES: [MemberMode; 3] =
    [MemberMode::CheckAndSpend, MemberMode::CheckOnly, MemberMode::SpendOnly];
pub(crate) const DEBTS: [CarryOver; 4] =
    [CarryOver::Share, CarryOver::Units, CarryOver::Time, CarryOver::Afresh];
const PERIODS_MS: [u64; 7] = [1000, 2500, 10_000, 60_000, 600_000, 3_600_000, 100 * DAY_S * 1000];

/// The sets of algorithms that a run may use: 0 gcra, 1 fixed_window, 2 token_bucket, 3 leaky_bucket.
const KINDS: &[&[u64]] = &[&[0, 1, 2, 3], &[0, 1, 2, 3], &[0], &[0, 3], &[1, 2], &[3]];

/// The features of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    reloads: bool,
    /// Reloads add and remove limits and defaults.
    defaults: bool,
    overrides: bool,
    accounts: bool,
    ends: bool,
    /// Reloads change a limit's algorithm.
    algorithms: bool,
    /// The algorithms of the limits.
    kinds: &'static [u64],
    shadows: bool,
    factors: bool,
    batches: bool,
    sweeps: bool,
    files: bool,
    back: bool,
    switch: bool,
    blocks: bool,
    /// How many quarters of the ids are used.
    ids: u64,
    /// One id, short intervals and small steps, so that calls often meet.
    dense: bool,
}

impl Features {
    fn any(rng: &mut Rng) -> Features {
        let (ids, kinds) = (rng.within(1, 4), rng.pick(KINDS));
        let mut often = || rng.chance(1, 2);
        let overrides = often();
        Features {
            reloads: often() || often(),
            defaults: often(),
            overrides,
            accounts: overrides && often(),
            ends: overrides && often(),
            algorithms: often(),
            kinds,
            shadows: often() && often(),
            factors: often() && often(),
            batches: often(),
            sweeps: often(),
            files: often() && often(),
            back: often() && often(),
            switch: often() && often() && often(),
            blocks: often(),
            ids,
            dense: false,
        }
    }
}

/// Generates a run of at most 300 operations with exact answers.
pub(crate) fn any(seed: u64) -> (Start, Vec<Op>) {
    let mut rng = Rng::new(seed);
    let features = Features::any(&mut rng);
    let now = if rng.chance(1, 3) { 1 } else { rng.within(1, 150 * DAY_S * NS_PER_S) };
    let length = rng.within(10, 300);
    let mut generator = Generator { algorithms: [0; KNOWN.len()], features, rng };
    generator.algorithms = std::array::from_fn(|_| generator.algorithm());
    let start = Start { spec: generator.first_spec(), now, cap: None };
    let ops = (0..length).map(|_| generator.op()).collect();
    (start, ops)
}

/// Generates a run without exact answers, with few ids.
pub(crate) fn any_bound(seed: u64) -> (Start, Vec<Op>) {
    let mut rng = Rng::new(seed);
    let features = Features {
        ids: rng.within(1, 2),
        shadows: false,
        factors: false,
        back: false,
        switch: false,
        dense: rng.chance(2, 3),
        ..Features::any(&mut rng)
    };
    let cap = rng.chance(1, 3).then(|| {
        let at_cap = rng.pick(&[AtCap::Share, AtCap::Share, AtCap::Deny, AtCap::Allow]);
        (rng.within(1, 6) as usize, at_cap)
    });
    let dense =
        Features { reloads: false, batches: false, sweeps: false, files: false, ..features };
    let features = if features.dense && rng.chance(1, 2) { dense } else { features };
    let length = rng.within(10, 150);
    let now = rng.within(1, 150 * DAY_S * NS_PER_S);
    let mut generator = Generator { algorithms: [0; KNOWN.len()], features, rng };
    generator.algorithms = std::array::from_fn(|_| generator.algorithm());
    let start = Start { spec: generator.first_spec(), now, cap };
    let ops = (0..length).map(|_| generator.bound_op()).collect();
    (start, ops)
}

struct Generator {
    rng: Rng,
    features: Features,
    /// The algorithm of each limit since the last reload.
    algorithms: [u64; KNOWN.len()],
}

impl Generator {
    fn algorithm(&mut self) -> u64 {
        self.rng.pick(self.features.kinds)
    }

    fn numbers(&mut self, algorithm: u64) -> Numbers {
        let rng = &mut self.rng;
        if self.features.dense {
            let (size, period_ms) = (rng.within(1, 6), rng.pick(&[50, 50, 100, 300]));
            return match algorithm {
                0 => Numbers::Gcra { burst: size, count: 1, period_ms },
                1 => Numbers::Fixed { limit: size, window_ms: size * period_ms },
                2 => Numbers::Tokens { limit: size, window_ms: size * period_ms, burst: 1 },
                _ => Numbers::Leaky { size, rate_ms: period_ms, drip: 1 },
            };
        }
        let size = if rng.chance(3, 4) { rng.within(1, 12) } else { rng.within(1, 60) };
        let period_ms = rng.pick(&PERIODS_MS);
        match algorithm {
            0 => Numbers::Gcra { burst: size, count: rng.pick(&[1, 1, 2, 3, 7]), period_ms },
            1 => Numbers::Fixed { limit: size, window_ms: period_ms },
            2 => Numbers::Tokens { limit: size, window_ms: period_ms, burst: rng.within(1, size) },
            _ => Numbers::Leaky { size, rate_ms: period_ms / 5, drip: rng.within(1, size + 2) },
        }
    }

    fn limit_spec(&mut self, limit: usize, can_be_without: bool) -> LimitSpec {
        let algorithm = self.algorithms[limit];
        let is_without = can_be_without && self.rng.chance(1, 3);
        let default = (!is_without).then(|| self.numbers(algorithm));
        let shadow = self.features.shadows && self.rng.chance(1, 4);
        let is_tried = self.features.shadows && self.rng.chance(1, 4);
        let tried = is_tried.then(|| self.numbers(algorithm));
        let mut overrides = Vec::new();
        if self.features.overrides {
            for target in self.targets(limit) {
                let numbers = (!self.rng.chance(1, 12)).then(|| self.numbers(algorithm));
                overrides.push(Over { target, numbers, ends_s: self.ends_s() });
            }
        }
        LimitSpec { default, shadow, tried, overrides: List(overrides) }
    }

    fn targets(&mut self, limit: usize) -> Vec<Target> {
        let known = &KNOWN[limit];
        let mut accounts: Vec<u64> =
            (0..known.ids.len()).filter_map(|id| known.account_of(id)).collect();
        accounts.dedup();
        let mut all: Vec<Target> = (0..known.ids.len()).map(Target::Id).collect();
        all.retain(|_| self.rng.chance(1, 4));
        if self.features.accounts {
            accounts.retain(|_| self.rng.chance(1, 3));
            all.extend(accounts.into_iter().map(Target::Account));
        }
        all
    }

    fn ends_s(&mut self) -> Option<i64> {
        if !self.features.ends || self.rng.chance(1, 3) {
            return None;
        }
        // -5 has ended already.
        Some(self.rng.pick(&[-5, 60, 60, 90, 3600, 3600, 7200, 86_400, 40 * 86_400]))
    }

    fn first_spec(&mut self) -> Spec {
        let limits = (0..KNOWN.len()).map(|limit| {
            // A reload adds the last limit.
            (limit + 1 < KNOWN.len()).then(|| self.limit_spec(limit, false))
        });
        Spec(List(limits.collect()))
    }

    fn next_spec(&mut self) -> Spec {
        let defaults = self.features.defaults;
        let limits = (0..KNOWN.len()).map(|limit| {
            if self.features.algorithms && self.rng.chance(1, 4) {
                self.algorithms[limit] = self.algorithm();
            }
            let is_there = !defaults || self.rng.chance(4, 5);
            is_there.then(|| self.limit_spec(limit, defaults))
        });
        Spec(List(limits.collect()))
    }

    fn call(&mut self) -> Call {
        if self.features.dense {
            let cost = self.rng.within(1, 4);
            return Call { limit: 0, id: 0, cost, factor: ONE };
        }
        let limit = self.rng.below(KNOWN.len() as u64) as usize;
        let ids = (KNOWN[limit].ids.len() as u64 * self.features.ids).div_ceil(4);
        let id = self.rng.below(ids) as usize;
        let cost = match self.rng.below(10) {
            0 => 0,
            1 => self.rng.within(1, 61),
            2 | 3 => self.rng.within(1, 12),
            _ => self.rng.within(1, 4),
        };
        let has_factor = self.features.factors && self.rng.chance(1, 4);
        let factors = [0, 250_000, 333_333, 500_000, 1_500_000, LARGEST_FACTOR];
        let factor = if has_factor { self.rng.pick(&factors) } else { ONE };
        Call { limit, id, cost, factor }
    }

    fn op(&mut self) -> Op {
        let features = self.features;
        match self.rng.below(100) {
            0..16 => self.advance(),
            16..20 if features.back => Op::Back(self.rng.below(5 * NS_PER_S)),
            20..24 if features.ends => {
                Op::ToEnd(self.rng.pick(&[-1, 0, 1, 1_000_000, 7_000_000_000]))
            }
            24..30 if features.reloads => Op::Reload(self.next_spec(), self.debt()),
            30..34 if features.sweeps => match self.rng.chance(1, 2) {
                true => Op::SweepAll,
                false => Op::Sweep(self.rng.within(0, 40) as usize),
            },
            34..36 if features.files => Op::Snapshot,
            36..38 if features.files => Op::Restore(self.next_spec(), self.debt()),
            38..39 if features.switch => Op::Enable(self.rng.chance(2, 3)),
            39..50 if features.batches => self.batch(),
            50..55 if features.blocks => self.block(),
            50..60 => Op::Check(self.call()),
            60..66 => Op::Refund(self.call()),
            66..69 => Op::Reset(self.call()),
            69..71 => self.many(),
            71 => self.some(),
            72..75 => {
                let call = self.call();
                Op::Settled(call, self.rng.within(0, call.cost + 3))
            }
            _ => Op::Spend(self.call()),
        }
    }

    /// A call that takes what the bucket has.
    fn some(&mut self) -> Op {
        let call = self.call();
        match self.rng.chance(1, 3) {
            true => Op::Drain(call),
            false => Op::SpendUpTo(call),
        }
    }

    fn bound_op(&mut self) -> Op {
        match self.rng.below(100) {
            0..15 => {
                let at_most = self.rng.pick(&[0, 5 * NS_PER_S, 3600 * NS_PER_S, u64::MAX]);
                let call = self.call();
                Op::Reserve(Call { cost: call.cost.min(6), ..call }, at_most)
            }
            15..20 => Op::Cancel(self.rng.below(8) as usize),
            20..27 => Op::Keep(self.rng.below(8) as usize),
            27..33 => Op::Charge(self.call()),
            33..41 => Op::Settle(self.rng.below(8) as usize, self.rng.below(4)),
            41..48 => Op::Spend(self.call()),
            48..50 => self.some(),
            _ => match self.op() {
                // A restore writes the snapshot that it reads.
                Op::Snapshot => self.advance(),
                op => op,
            },
        }
    }

    fn block(&mut self) -> Op {
        let Call { limit, id, .. } = self.call();
        if self.rng.chance(1, 4) {
            return Op::Unblock(limit, id);
        }
        let most = self.rng.pick(&[1, 5 * NS_PER_S, 100 * NS_PER_S, 7200 * NS_PER_S]);
        Op::Block(limit, id, self.rng.within(0, most))
    }

    fn debt(&mut self) -> CarryOver {
        self.rng.pick(&DEBTS)
    }

    fn advance(&mut self) -> Op {
        if self.features.dense {
            let most_ms = self.rng.pick(&[10, 10, 120]);
            return Op::Advance(self.rng.within(1, most_ms) * 1_000_000);
        }
        let most = match self.rng.below(20) {
            0..4 => 3,
            4..8 => 2 * NS_PER_S,
            8..13 => 100 * NS_PER_S,
            13..19 => 7200 * NS_PER_S,
            _ => 60 * DAY_S * NS_PER_S,
        };
        let by = self.rng.within(1, most);
        // Whole seconds are frequent, so that the clock hits the edges of windows.
        let is_whole = by > NS_PER_S && self.rng.chance(1, 2);
        Op::Advance(if is_whole { by / NS_PER_S * NS_PER_S } else { by })
    }

    fn many(&mut self) -> Op {
        let Call { limit, cost, .. } = self.call();
        let ids = KNOWN[limit].ids.len() as u64;
        let length = self.rng.below(24);
        let ids = (0..length).map(|_| self.rng.below(ids) as usize).collect();
        Op::SpendMany { limit, ids: List(ids), cost }
    }

    fn batch(&mut self) -> Op {
        let length = self.rng.within(0, 5);
        let mut members: Vec<(Call, MemberMode)> =
            (0..length).map(|_| (self.call(), self.rng.pick(&MODES))).collect();
        if !self.rng.chance(1, 10) {
            // Most batches name no bucket twice and have small costs.
            members.sort_by_key(|(call, _)| (call.limit, call.id));
            members.dedup_by_key(|(call, _)| (call.limit, call.id));
            members.iter_mut().for_each(|(call, _)| call.cost = call.cost.min(3));
            if self.rng.chance(1, 2) {
                members.reverse();
            }
        }
        let what = match self.rng.below(10) {
            0..4 => BatchCall::SpendAll,
            4..7 => BatchCall::SpendEach,
            7 => BatchCall::CheckAll,
            8 => BatchCall::RefundAll,
            _ => BatchCall::ResetAll,
        };
        Op::Batch(what, List(members))
    }
}

/// Whether any override ends: ends are by the system's clock and differ from run to run.
pub(crate) fn has_ends(start: &Start, ops: &[Op]) -> bool {
    let ends = |spec: &Spec| {
        spec.limits().any(|(_, limit)| limit.overrides.0.iter().any(|over| over.ends_s.is_some()))
    };
    ends(&start.spec)
        || ops.iter().any(|op| match op {
            Op::Reload(spec, _) | Op::Restore(spec, _) => ends(spec),
            _ => false,
        })
}
