//! Calls and reloads in any order, compared with a bucket of unbounded whole numbers; and the bound across
//! changes.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Limit;
use tollgate::reload::CarryOver;

use super::support::{ENGINES, limiter, limits};

const NS_PER_MS: u128 = 1_000_000;
/// A multiple of all intervals, so that the units that come back in a time are a whole number of parts.
const ALL_MS: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    burst: u64,
    /// The time in which a unit comes back.
    ms: u64,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(u64),
    Spend(u64),
    Reload(Numbers, CarryOver),
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let ms = prop::sample::select(vec![1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]);
    (1..40_u64, ms).prop_map(|(burst, ms)| Numbers { burst, ms })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let debt = prop::sample::select(vec![
        CarryOver::Share,
        CarryOver::Units,
        CarryOver::Time,
        CarryOver::Afresh,
    ]);
    let op = prop_oneof![
        2 => (0..100_000_000_u64).prop_map(Op::Wait),
        5 => (0..45_u64).prop_map(Op::Spend),
        1 => (numbers(), debt).prop_map(|(numbers, debt)| Op::Reload(numbers, debt)),
    ];
    prop::collection::vec(op, 1..80)
}

/// A bucket's debt in ns, as of a time.
struct Oracle {
    numbers: Numbers,
    owed_ns: u128,
    now_ns: u128,
}

impl Oracle {
    fn interval_ns(&self) -> u128 {
        u128::from(self.numbers.ms) * NS_PER_MS
    }

    fn most_ns(&self) -> u128 {
        self.interval_ns() * u128::from(self.numbers.burst)
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += u128::from(ns);
        self.owed_ns = self.owed_ns.saturating_sub(u128::from(ns));
    }

    fn spend(&mut self, cost: u64) -> bool {
        let asked_ns = self.owed_ns + self.interval_ns() * u128::from(cost);
        let is_allowed = asked_ns <= self.most_ns();
        if is_allowed {
            self.owed_ns = asked_ns;
        }
        is_allowed
    }

    fn reload(&mut self, numbers: Numbers, debt: CarryOver) {
        if numbers == self.numbers {
            return;
        }
        let (old_ns, old_most_ns) = (self.interval_ns(), self.most_ns());
        self.numbers = numbers;
        let kept_ns = match debt {
            CarryOver::Share => (self.owed_ns * self.most_ns()).div_ceil(old_most_ns),
            CarryOver::Units => (self.owed_ns * self.interval_ns()).div_ceil(old_ns),
            CarryOver::Time => self.owed_ns,
            _ => 0,
        };
        self.owed_ns = kept_ns.min(self.most_ns());
    }
}

/// Numbers, and the time from which they applied.
type Change = (u128, Numbers);

/// The most that may be admitted from one time to another: every burst that applied, and the units that the
/// rates bring back. In parts, of which a unit has `ALL_MS * NS_PER_MS`.
fn most_parts(changes: &[Change], from_ns: u128, to_ns: u128) -> u128 {
    let unit = u128::from(ALL_MS) * NS_PER_MS;
    let ends = changes.iter().skip(1).map(|change| change.0).chain([u128::MAX]);
    changes
        .iter()
        .zip(ends)
        .filter(|((begin, _), end)| *begin <= to_ns && from_ns <= *end)
        .map(|(&(begin, numbers), end)| {
            let in_it_ns = to_ns.min(end) - from_ns.max(begin);
            u128::from(numbers.burst) * unit + in_it_ns * u128::from(ALL_MS / numbers.ms)
        })
        .sum()
}

proptest! {
    #[test]
    fn reloads_match_the_oracle_and_keep_bound(first in numbers(), ops in ops()) {
        for engine in ENGINES {
            let of = |it: Numbers| {
                let limit = Limit::new(it.burst, 1, Duration::from_millis(it.ms)).unwrap();
                limits(&[("A", limit)])
            };
            let (limiter, hand) = limiter(of(first), engine);
            let handle = limiter.limit("A").unwrap();
            let mut oracle = Oracle { numbers: first, owed_ns: 0, now_ns: 0 };
            let mut changes: Vec<Change> = vec![(0, first)];
            let mut admitted: Vec<(u128, u64)> = Vec::new();
            for &op in &ops {
                match op {
                    Op::Wait(ns) => {
                        hand.advance(Duration::from_nanos(ns));
                        oracle.wait(ns);
                    }
                    Op::Reload(numbers, debt) => {
                        let reloaded = limiter.reload_with(of(numbers), debt).unwrap();
                        prop_assert_eq!(reloaded.changed, numbers != oracle.numbers);
                        if reloaded.changed {
                            changes.push((oracle.now_ns, numbers));
                        }
                        oracle.reload(numbers, debt);
                    }
                    Op::Spend(cost) if cost > oracle.numbers.burst => {
                        let refused = handle.spend("x", cost).unwrap_err();
                        prop_assert!(refused.is_cost_above_burst());
                    }
                    Op::Spend(cost) => {
                        let said = handle.spend("x", cost).unwrap();
                        prop_assert_eq!(said.allowed(), oracle.spend(cost), "{:?}", engine);
                        if said.allowed() {
                            admitted.push((oracle.now_ns, cost));
                        }
                    }
                }
                let left_ns = oracle.most_ns() - oracle.owed_ns;
                let said = handle.check("x", 0).unwrap();
                prop_assert_eq!(said.reset_in().as_nanos(), oracle.owed_ns, "{:?} {:?}", engine, op);
                let left = said.remaining().map(u128::from);
                prop_assert_eq!(left, Some(left_ns / oracle.interval_ns()));
            }
            let unit = u128::from(ALL_MS) * NS_PER_MS;
            for (at, &(from_ns, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for &(to_ns, cost) in &admitted[at..] {
                    sum += u128::from(cost);
                    // Under a rule that forgets debt, a bucket holds its burst again after each change.
                    prop_assert!(sum * unit <= most_parts(&changes, from_ns, to_ns));
                }
            }
        }
    }
}
