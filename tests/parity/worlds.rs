//! Generates random limits, calls and times. Each run has only some of the features, which helps to tell the cause of a
//! failure.

use tollgate::batch::MemberMode;
use tollgate::limits::Floor;
use tollgate::reload::CarryOver;

use super::call::{BatchCall, Call, OF_FLOOR, ONE};
use super::random::Random;
use super::spec::{
    ADDRESSES, KNOWN, LARGEST_FACTOR, LATE, LimitSpec, List, NETWORKS, Numbers, Over, RATES,
    Sharing, Spec, Target,
};

pub(crate) const NS_PER_S: u64 = 1_000_000_000;
pub(crate) const DAY_S: u64 = 86_400;
const MODES: [MemberMode; 3] =
    [MemberMode::CheckAndSpend, MemberMode::CheckOnly, MemberMode::SpendOnly];
pub(crate) const DEBTS: [CarryOver; 4] =
    [CarryOver::Share, CarryOver::Units, CarryOver::Time, CarryOver::Afresh];
const PERIODS_MS: [u64; 7] = [1000, 2500, 10_000, 60_000, 600_000, 3_600_000, 100 * DAY_S * 1000];

/// The sets of algorithms that a run may use: 0 gcra, 1 fixed_window, 2 token_bucket, 3 leaky_bucket.
const KINDS: &[&[u64]] = &[&[0, 1, 2, 3], &[0, 1, 2, 3], &[0], &[0, 3], &[1, 2], &[3]];

/// The algorithm of the limits of permits.
pub(crate) const PERMITS: u64 = 4;

/// The features of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    pub(crate) reloads: bool,
    /// Reloads add and remove limits and defaults.
    pub(crate) defaults: bool,
    pub(crate) overrides: bool,
    pub(crate) accounts: bool,
    /// Overrides of addresses are of networks, too.
    pub(crate) networks: bool,
    pub(crate) ends: bool,
    /// Reloads change a limit's algorithm.
    pub(crate) algorithms: bool,
    /// The algorithms of the limits.
    pub(crate) kinds: &'static [u64],
    pub(crate) shadows: bool,
    pub(crate) factors: bool,
    pub(crate) batches: bool,
    pub(crate) sweeps: bool,
    pub(crate) files: bool,
    pub(crate) back: bool,
    pub(crate) switch: bool,
    pub(crate) blocks: bool,
    /// Some limits are of concurrency.
    pub(crate) permits: bool,
    /// Spends, checks and members of batches leave units, some of them by their priority.
    pub(crate) leaves: bool,
    /// How many quarters of the ids are used.
    pub(crate) ids: u64,
    /// One id, short intervals and small steps, so that calls often meet.
    pub(crate) dense: bool,
    /// How the limits are shared: one of these each.
    pub(crate) sharing: &'static [Sharing],
}

impl Features {
    pub(crate) fn any(random: &mut Random) -> Features {
        let (ids, kinds) = (random.within(1, 4), random.pick(KINDS));
        let mut often = || random.chance(1, 2);
        let overrides = often();
        Features {
            reloads: often() || often(),
            defaults: often(),
            overrides,
            accounts: overrides && often(),
            networks: overrides && often(),
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
            permits: false,
            leaves: often(),
            ids,
            dense: false,
            sharing: &[],
        }
    }
}

/// The time by which an override of addresses is slower, so that each end changes the limit of an address. An end that does
/// not is not known to the ns.
fn ms_of(target: Target) -> u64 {
    match target {
        Target::Network(at) => 2 + at as u64,
        Target::Id(_) | Target::Account(_) => 1,
    }
}

impl Numbers {
    fn slower_by_ms(self, ms: u64) -> Numbers {
        match self {
            Numbers::Gcra { burst, count, period_ms } => {
                Numbers::Gcra { burst, count, period_ms: period_ms + ms }
            }
            Numbers::Fixed { limit, window_ms } => {
                Numbers::Fixed { limit, window_ms: window_ms + ms }
            }
            Numbers::Tokens { limit, window_ms, burst } => {
                Numbers::Tokens { limit, window_ms: window_ms + ms, burst }
            }
            Numbers::Leaky { size, rate_ms, drip } => {
                Numbers::Leaky { size, rate_ms: rate_ms + ms, drip }
            }
            Numbers::Permits { max } => Numbers::Permits { max },
        }
    }
}

pub(crate) struct Generator {
    pub(crate) random: Random,
    pub(crate) features: Features,
    /// The algorithm of each limit since the last reload.
    pub(crate) algorithms: [u64; KNOWN.len()],
}

impl Generator {
    pub(crate) fn algorithm(&mut self) -> u64 {
        self.random.pick(self.features.kinds)
    }

    fn numbers(&mut self, algorithm: u64) -> Numbers {
        let random = &mut self.random;
        if algorithm == PERMITS {
            return Numbers::Permits { max: random.within(1, 5) };
        }
        if self.features.dense {
            let (size, period_ms) = (random.within(1, 6), random.pick(&[50, 50, 100, 300]));
            return match algorithm {
                0 => Numbers::Gcra { burst: size, count: 1, period_ms },
                1 => Numbers::Fixed { limit: size, window_ms: size * period_ms },
                2 => Numbers::Tokens { limit: size, window_ms: size * period_ms, burst: 1 },
                _ => Numbers::Leaky { size, rate_ms: period_ms, drip: 1 },
            };
        }
        let size = if random.chance(3, 4) { random.within(1, 12) } else { random.within(1, 60) };
        let period_ms = random.pick(&PERIODS_MS);
        match algorithm {
            0 => Numbers::Gcra { burst: size, count: random.pick(&[1, 1, 2, 3, 7]), period_ms },
            1 => Numbers::Fixed { limit: size, window_ms: period_ms },
            2 => {
                Numbers::Tokens { limit: size, window_ms: period_ms, burst: random.within(1, size) }
            }
            _ => Numbers::Leaky { size, rate_ms: period_ms / 5, drip: random.within(1, size + 2) },
        }
    }

    fn limit_spec(&mut self, limit: usize, can_be_without: bool) -> LimitSpec {
        let algorithm = self.algorithms[limit];
        let is_without = can_be_without && self.random.chance(1, 3);
        let default = (!is_without).then(|| self.numbers(algorithm));
        let shadow = self.features.shadows && self.random.chance(1, 4);
        let is_tried = algorithm != PERMITS && self.features.shadows && self.random.chance(1, 4);
        let tried = is_tried.then(|| self.numbers(algorithm));
        let mut overrides = Vec::new();
        if self.features.overrides {
            for target in self.targets(limit) {
                let numbers = (!self.random.chance(1, 12)).then(|| self.numbers(algorithm));
                let numbers = numbers.map(|numbers| match limit {
                    ADDRESSES => numbers.slower_by_ms(ms_of(target)),
                    _ => numbers,
                });
                overrides.push(Over { target, numbers, ends_s: self.ends_s() });
            }
        }
        let sharing = self.sharing();
        // Leases are for gcra alone.
        let is_leased = !matches!(sharing, Sharing::Local | Sharing::Exact);
        let sharing = if is_leased && algorithm != 0 { Sharing::Exact } else { sharing };
        let overrides = List(overrides);
        // A shared limit has no shadow limit.
        let tried = tried.filter(|_| sharing == Sharing::Local);
        // Permits have no floors.
        let floor = if algorithm == PERMITS { Floor::Units(0) } else { self.floor(default) };
        LimitSpec { default, shadow, tried, overrides, sharing, floor }
    }

    /// A floor; in units it is at most the default's burst.
    fn floor(&mut self, default: Option<Numbers>) -> Floor {
        let most = default.map_or(12, |numbers| numbers.limit().burst());
        match self.features.leaves {
            true if self.random.chance(1, 2) => Floor::Units(self.random.below(most.min(12) + 1)),
            true => Floor::Percent(self.random.pick(&[0, 1, 10, 34, 50, 50, 99, 100])),
            false => Floor::Units(0),
        }
    }

    fn sharing(&mut self) -> Sharing {
        match self.features.sharing {
            [] => Sharing::Local,
            some => self.random.pick(some),
        }
    }

    fn targets(&mut self, limit: usize) -> Vec<Target> {
        let known = &KNOWN[limit];
        let mut accounts: Vec<u64> =
            (0..known.ids.len()).filter_map(|id| known.account_of(id)).collect();
        accounts.dedup();
        let mut all: Vec<Target> = (0..known.ids.len()).map(Target::Id).collect();
        all.retain(|_| self.random.chance(1, 4));
        if self.features.accounts {
            accounts.retain(|_| self.random.chance(1, 3));
            all.extend(accounts.into_iter().map(Target::Account));
        }
        if self.features.networks && limit == ADDRESSES {
            all.extend(
                (0..NETWORKS.len()).map(Target::Network).filter(|_| self.random.chance(1, 2)),
            );
        }
        all
    }

    fn ends_s(&mut self) -> Option<i64> {
        if !self.features.ends || self.random.chance(1, 3) {
            return None;
        }
        // -5 has ended already.
        Some(self.random.pick(&[-5, 60, 60, 90, 3600, 3600, 7200, 86_400, 40 * 86_400]))
    }

    pub(crate) fn first_spec(&mut self) -> Spec {
        let limits = (0..KNOWN.len()).map(|limit| {
            // A reload adds that limit.
            (limit != LATE && self.has(limit)).then(|| self.limit_spec(limit, false))
        });
        Spec(List(limits.collect()))
    }

    /// Whether runs have the limit at all.
    fn has(&self, limit: usize) -> bool {
        limit < RATES || self.features.permits
    }

    pub(crate) fn next_spec(&mut self) -> Spec {
        let defaults = self.features.defaults;
        let limits = (0..KNOWN.len()).map(|limit| {
            if limit < RATES && self.features.algorithms && self.random.chance(1, 4) {
                self.algorithms[limit] = self.algorithm();
            }
            let is_there = !defaults || self.random.chance(4, 5);
            (is_there && self.has(limit)).then(|| self.limit_spec(limit, defaults))
        });
        Spec(List(limits.collect()))
    }

    pub(crate) fn call(&mut self) -> Call {
        if self.features.dense {
            let cost = self.random.within(1, 4);
            let has_factor = self.features.factors && self.random.chance(1, 6);
            let factor =
                if has_factor { self.random.pick(&[500_000, LARGEST_FACTOR]) } else { ONE };
            return Call { limit: 0, id: 0, cost, factor, leave: 0 };
        }
        let limit = self.random.below(RATES as u64) as usize;
        let ids = (KNOWN[limit].ids.len() as u64 * self.features.ids).div_ceil(4);
        let id = self.random.below(ids) as usize;
        let cost = match self.random.below(10) {
            0 => 0,
            1 => self.random.within(1, 61),
            2 | 3 => self.random.within(1, 12),
            _ => self.random.within(1, 4),
        };
        let has_factor = self.features.factors && self.random.chance(1, 4);
        let factors = [0, 250_000, 333_333, 500_000, 1_500_000, LARGEST_FACTOR];
        let factor = if has_factor { self.random.pick(&factors) } else { ONE };
        Call { limit, id, cost, factor, leave: 0 }
    }

    /// A call that may have to leave units.
    pub(crate) fn leaving_call(&mut self) -> Call {
        let leaves = self.features.leaves && self.random.chance(1, 3);
        let leave = if leaves {
            self.random.pick(&[1, 1, 2, 3, 4, 6, 11, OF_FLOOR, OF_FLOOR, OF_FLOOR, OF_FLOOR])
        } else {
            0
        };
        Call { leave, ..self.call() }
    }

    /// A call for a limit of permits.
    pub(crate) fn permit_call(&mut self) -> Call {
        let limit = RATES + self.random.below((KNOWN.len() - RATES) as u64) as usize;
        let ids = (KNOWN[limit].ids.len() as u64 * self.features.ids).div_ceil(4);
        let cost = match self.random.below(12) {
            0 => 0,
            1 => self.random.within(1, 7),
            2..5 => self.random.within(1, 3),
            _ => 1,
        };
        let id = self.random.below(ids) as usize;
        match self.features.dense {
            true => Call { limit: RATES, id: 0, cost, factor: ONE, leave: 0 },
            false => Call { limit, id, cost, factor: ONE, leave: 0 },
        }
    }

    /// A call for any limit.
    fn any_call(&mut self) -> Call {
        let is_of_permits = self.features.permits && self.random.chance(1, 3);
        if is_of_permits { self.permit_call() } else { self.leaving_call() }
    }

    /// The time of a block; `None`: the end of one.
    pub(crate) fn block_time(&mut self) -> Option<u64> {
        if self.random.chance(1, 4) {
            return None;
        }
        let most = self.random.pick(&[1, 5 * NS_PER_S, 100 * NS_PER_S, 7200 * NS_PER_S]);
        Some(self.random.within(0, most))
    }

    pub(crate) fn debt(&mut self) -> CarryOver {
        self.random.pick(&DEBTS)
    }

    pub(crate) fn time_step(&mut self) -> u64 {
        if self.features.dense {
            let most_ms = self.random.pick(&[10, 10, 120]);
            return self.random.within(1, most_ms) * 1_000_000;
        }
        let most = match self.random.below(20) {
            0..4 => 3,
            4..8 => 2 * NS_PER_S,
            8..13 => 100 * NS_PER_S,
            13..19 => 7200 * NS_PER_S,
            _ => 60 * DAY_S * NS_PER_S,
        };
        let by = self.random.within(1, most);
        // Whole seconds are frequent, so that the clock hits the edges of windows.
        let is_whole = by > NS_PER_S && self.random.chance(1, 2);
        if is_whole { by / NS_PER_S * NS_PER_S } else { by }
    }

    pub(crate) fn any_batch(&mut self) -> (BatchCall, Vec<(Call, MemberMode)>) {
        let length = self.random.within(0, 5);
        let mut members: Vec<(Call, MemberMode)> =
            (0..length).map(|_| (self.any_call(), self.random.pick(&MODES))).collect();
        if !self.random.chance(1, 10) {
            // Most batches name no bucket twice and have small costs.
            members.sort_by_key(|(call, _)| (call.limit, call.id));
            members.dedup_by_key(|(call, _)| (call.limit, call.id));
            members.iter_mut().for_each(|(call, _)| call.cost = call.cost.min(3));
            if self.random.chance(1, 2) {
                members.reverse();
            }
        }
        let what = match self.random.below(10) {
            0..4 => BatchCall::SpendAll,
            4..7 => BatchCall::SpendEach,
            7 => BatchCall::CheckAll,
            8 => BatchCall::RefundAll,
            _ => BatchCall::ResetAll,
        };
        (what, members)
    }
}
