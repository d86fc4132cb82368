//! Random histories of all calls that charge and return, against the bound: in any interval at most
//! `burst + interval / emission interval` units are admitted, and what was returned since the first of these charges. A vacant
//! place counts as charged when it was first reserved.

use proptest::prelude::*;
use tollgate::reserve::Receipt;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Spend(u64),
    Estimate(u64),
    Place(u64),
    /// Settles or cancels one of the open charges, to a part of its cost.
    End(usize, u64),
    Refund(u64),
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (1..4u64).prop_map(Op::Spend),
        3 => (1..4u64).prop_map(Op::Estimate),
        4 => (1..4u64).prop_map(Op::Place),
        6 => (any::<usize>(), 0..4u64).prop_map(|(which, to)| Op::End(which, to)),
        1 => (1..4u64).prop_map(Op::Refund),
        4 => (0..4 * MS).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..60)
}

/// A charge: its position among all events, when it admits, and its cost.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    order: usize,
    at_ns: u64,
    cost: u64,
}

enum Open {
    Receipt(Receipt),
    Place(Reservation),
}

struct Record {
    admitted: Vec<Admitted>,
    /// Positions and units of what was returned.
    returned: Vec<(usize, u64)>,
}

impl Record {
    fn bound(&self, burst: u64, returns_count: bool) -> Result<(), String> {
        for first in &self.admitted {
            for last in &self.admitted {
                if last.at_ns < first.at_ns {
                    continue;
                }
                let among = |it: &&Admitted| (first.at_ns..=last.at_ns).contains(&it.at_ns);
                let sum: u64 = self.admitted.iter().filter(among).map(|it| it.cost).sum();
                let since = self.admitted.iter().filter(among).map(|it| it.order).min().unwrap();
                let back: u64 = self.returned.iter().filter(|it| it.0 > since).map(|it| it.1).sum();
                let most =
                    burst + (last.at_ns - first.at_ns) / MS + if returns_count { back } else { 0 };
                if sum > most {
                    return Err(format!(
                        "{sum} from {} to {}, at most {most}",
                        first.at_ns, last.at_ns
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Runs a history. `twice` returns a unit too much at each refund, and does not record it.
fn history(burst: u64, engine: Engine, ops: &[Op], twice: bool) -> Record {
    let (clock, hand) = Clock::manual();
    let handle =
        limiter_on(&Limit::new(burst, 1, ms(1)).unwrap(), clock, engine).limit("Own").unwrap();
    let mut now_ns = 0;
    let mut record = Record { admitted: Vec::new(), returned: Vec::new() };
    let mut open: Vec<(usize, Open)> = Vec::new();
    // The earliest charge of a place that is vacant.
    let mut vacant = usize::MAX;
    for (order, &op) in ops.iter().enumerate() {
        match op {
            Op::Spend(cost) => {
                if handle.spend("id", cost.min(burst)).unwrap().allowed() {
                    record.admitted.push(Admitted { order, at_ns: now_ns, cost: cost.min(burst) });
                }
            }
            Op::Estimate(cost) => {
                let cost = cost.min(burst);
                if let (_, Some(receipt)) = handle.spend_estimate("id", cost).unwrap() {
                    open.push((record.admitted.len(), Open::Receipt(receipt)));
                    record.admitted.push(Admitted { order, at_ns: now_ns, cost });
                }
            }
            Op::Place(cost) => {
                let cost = cost.min(burst);
                let before = handle.check("id", 0).unwrap().reset_in();
                let place = place(&handle, cost);
                let at_ns = now_ns + place.wait().as_nanos() as u64;
                let is_vacant = handle.check("id", 0).unwrap().reset_in() == before;
                let order = if is_vacant { order.min(vacant) } else { order };
                open.push((record.admitted.len(), Open::Place(place)));
                record.admitted.push(Admitted { order, at_ns, cost });
            }
            Op::End(which, to) if !open.is_empty() => {
                let (at, ended) = open.swap_remove(which % open.len());
                let charged = record.admitted[at];
                match ended {
                    Open::Receipt(receipt) => {
                        let to = to.min(charged.cost);
                        let before = handle.check("id", 0).unwrap().reset_in();
                        let after = receipt.settle(to).reset_in();
                        let lowered = (before.saturating_sub(after)).as_nanos() as u64;
                        assert!(lowered <= (charged.cost - to) * MS);
                        record.returned.push((order, lowered.div_ceil(MS)));
                    }
                    Open::Place(place) => {
                        let before = handle.check("id", 0).unwrap().reset_in();
                        place.cancel();
                        let after = handle.check("id", 0).unwrap().reset_in();
                        let lowered = before.saturating_sub(after).as_nanos() as u64;
                        record.returned.push((order, lowered.div_ceil(MS)));
                        if charged.at_ns > now_ns {
                            // It has not acted, and its units are others' now.
                            record.admitted[at].cost = 0;
                            vacant = vacant.min(charged.order);
                        }
                    }
                }
            }
            Op::Refund(units) => {
                let units = units.min(burst);
                let before = handle.check("id", 0).unwrap().reset_in();
                let _ = handle.refund("id", units).unwrap();
                let after = handle.check("id", 0).unwrap().reset_in();
                let lowered = before.saturating_sub(after).as_nanos() as u64;
                assert!(lowered <= units * MS);
                record.returned.push((order, lowered.div_ceil(MS)));
                if twice {
                    let _ = handle.refund("id", units).unwrap();
                }
            }
            Op::Advance(by_ns) => {
                now_ns += by_ns;
                hand.advance(Duration::from_nanos(by_ns));
            }
            Op::End(..) => {}
        }
    }
    record
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 3000 } else { 100_000 }))]

    #[test]
    fn grants_keep_bound_with_returns(
        burst in 2..6u64, ops in ops(), engine in prop::sample::select(ENGINES.to_vec()),
    ) {
        let kept = history(burst, engine, &ops, false).bound(burst, true);
        prop_assert!(kept.is_ok(), "{:?}", kept);
    }
}

/// The check itself: it sees a unit that is returned twice.
#[test]
fn bound_breaks_if_a_unit_returns_twice() {
    let ops = [Op::Spend(2), Op::Spend(2), Op::Refund(2), Op::Spend(3), Op::Spend(1)];
    assert!(history(4, Engine::LockFree, &ops, false).bound(4, true).is_ok());
    assert!(history(4, Engine::LockFree, &ops, true).bound(4, true).is_err());
    let without = history(4, Engine::LockFree, &ops, false).bound(4, false);
    assert!(without.is_err(), "what was returned is admitted once more");
}
