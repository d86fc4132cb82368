//! Shortens a list of operations that fails.

use tollgate::limits::Floor;

use super::ops::Op;
use super::run::{Failure, Start};
use super::spec::{Sharing, Spec};

/// Runs of a list before it counts as passing: the table's hash seeds are random.
const TRIES: usize = 3;

/// Runs a list and returns its failure.
pub(crate) type Run<'a> = &'a dyn Fn(&Start, &[Op]) -> Option<Failure>;

fn fails(run: Run<'_>, start: &Start, ops: &[Op]) -> Option<Failure> {
    (0..TRIES).find_map(|_| run(start, ops))
}

/// Deletes operations, then parts of limits, while the rest still fails.
pub(crate) fn shrunk(
    run: Run<'_>,
    start: Start,
    ops: Vec<Op>,
) -> (Start, Vec<Op>, Option<Failure>) {
    let Some(mut failure) = fails(run, &start, &ops) else { return (start, ops, None) };
    let (mut start, mut ops) = (start, ops);
    ops.truncate(failure.at + 1);
    let mut part = ops.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let before = ops.len();
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + part).min(ops.len()));
            match fails(run, &start, &fewer) {
                Some(again) => {
                    fewer.truncate(again.at + 1);
                    (ops, failure) = (fewer, again);
                }
                None => at += part,
            }
        }
        if part == 1 && ops.len() == before {
            break;
        }
        part = (part / 2).max(1);
    }
    for at in 0..=ops.len() {
        simpler_spec(run, &mut start, &mut ops, at, &mut failure);
    }
    (start, ops, Some(failure))
}

/// Removes the parts of one operation's limits that the failure does not need. The index after the last
/// operation means the limits at the start.
fn simpler_spec(run: Run<'_>, start: &mut Start, ops: &mut [Op], at: usize, failure: &mut Failure) {
    let spec_of = |start: &Start, ops: &[Op]| match ops.get(at) {
        None => Some(start.spec.clone()),
        Some(Op::Reload(spec, _) | Op::Restore(spec, _)) => Some(spec.clone()),
        Some(_) => None,
    };
    let put = |start: &mut Start, ops: &mut [Op], spec: Spec| match ops.get_mut(at) {
        None => start.spec = spec,
        Some(Op::Reload(place, _) | Op::Restore(place, _)) => *place = spec,
        Some(_) => {}
    };
    let mut step = 0;
    while let Some(spec) = spec_of(start, ops) {
        let Some(simpler) = simpler(&spec, step) else { return };
        step += 1;
        if simpler == spec {
            continue;
        }
        put(start, ops, simpler);
        match fails(run, start, ops) {
            Some(again) => *failure = again,
            None => put(start, ops, spec),
        }
    }
}

/// Returns the limits without one part, or `None` after the last part.
fn simpler(spec: &Spec, step: usize) -> Option<Spec> {
    let mut spec = spec.clone();
    let (limit, what) = (step / 32, step % 32);
    let place = spec.0.0.get_mut(limit)?;
    if what == 0 {
        *place = None;
        return Some(spec);
    }
    let Some(limit) = place else { return Some(spec) };
    match what {
        1 => limit.shadow = false,
        2 => limit.tried = None,
        3 => limit.overrides.0.clear(),
        4..16 => {
            // From the last override, so that the others keep their indices.
            if let Some(at) = limit.overrides.0.len().checked_sub(what - 3) {
                limit.overrides.0.remove(at);
            }
        }
        16..28 => {
            if let Some(over) = limit.overrides.0.get_mut(what - 16) {
                over.ends_s = None;
            }
        }
        28 => limit.sharing = Sharing::Local,
        30 => limit.floor = Floor::Units(0),
        29 if limit.sharing != Sharing::Local => limit.sharing = Sharing::Exact,
        _ => {}
    }
    Some(spec)
}
