//! Computes a bucket's debt after its numbers changed, by the documentation of [`CarryOver`].
//!
//! Where that says nothing, these rules apply:
//! * A kept window ends at its old end, or one new window after the change if that is sooner, by every
//!   carry-over. With used-up windows behind it, it keeps its old end.
//! * A token bucket whose window begins before it did has no tokens for that time: they count as used.
//! * The time since the last drip counts for the next one, at most as one new drip less a millisecond; by `Time`
//!   the next drip falls so that the bucket is full after the same time.
//! * Under another algorithm the window begins, and the first drip counts, with the change; of units beyond
//!   the capacity the same share is kept.
//! * Debt beyond the 24 bits of a count is forgotten.

use tollgate::reload::CarryOver;

use super::bucket::{Rule, State, ceil, ms_of};

/// The largest count: a word has 24 bits for it. Debt beyond it is forgotten.
const MOST: i128 = (1 << 24) - 1;
/// The latest time that a word can hold.
const MAX_NS: i128 = (1 << 63) - 1;

/// The state under `new` of a bucket that had `state` under `old` when the numbers changed. `None`: full.
pub(crate) fn carried(
    debt: CarryOver,
    old: Rule,
    new: Rule,
    state: State,
    now: i128,
) -> Option<State> {
    // Permits are out until their holders drop them.
    if old == new || matches!((old, new), (Rule::Permits { .. }, Rule::Permits { .. })) {
        return Some(state);
    }
    if debt == CarryOver::Afresh {
        return None;
    }
    if old.is_full(state, now) {
        return Some(match new {
            Rule::Gcra { .. } => State::Tat(now),
            _ => State::Counted { at: ms_of(now), used: 0 },
        });
    }
    let state = match (old, new, state) {
        (
            Rule::Gcra { interval, .. },
            Rule::Gcra { interval: new_interval, .. },
            State::Tat(tat),
        ) => {
            let owed = tat - now;
            let within = owed.min(old.capacity());
            let kept = match debt {
                CarryOver::Units => ceil(within * new_interval, interval),
                CarryOver::Time => within,
                _ => ceil(within * new.capacity(), old.capacity()),
            };
            State::Tat(now + kept.min(new.capacity()) + (owed - within))
        }
        (Rule::Fixed { .. }, Rule::Fixed { .. }, _)
        | (Rule::Tokens { .. }, Rule::Tokens { .. }, _) => window(debt, old, new, state, now),
        (Rule::Leaky { .. }, Rule::Leaky { .. }, _) => drips(debt, old, new, state, now),
        _ => {
            let used = match state {
                State::Tat(tat) => tat - now,
                State::Counted { at, used } => old.current(at, used, ms_of(now)).used,
                State::InFlight { .. } => unreachable!("permits never become units"),
            };
            let share = ceil(used * new.capacity(), old.capacity());
            match new {
                Rule::Gcra { .. } => State::Tat(now + share),
                _ => State::Counted { at: ms_of(now), used: share },
            }
        }
    };
    Some(match state {
        State::Counted { at, used } => State::Counted { at, used: used.min(MOST) },
        State::Tat(tat) => State::Tat(tat.min(MAX_NS)),
        State::InFlight { .. } => state,
    })
}

fn length(rule: Rule) -> i128 {
    match rule {
        Rule::Fixed { window, .. } | Rule::Tokens { window, .. } => window,
        _ => unreachable!("{rule:?} has no window"),
    }
}

fn window(debt: CarryOver, old: Rule, new: Rule, state: State, now: i128) -> State {
    let State::Counted { at, used } = state else { unreachable!("{state:?}") };
    let (mut at, mut used) = (at, used);
    if used > old.capacity() {
        let current = old.current(at, used, ms_of(now));
        (at, used) = (current.at, current.used);
    }
    // Whole used-up windows, and the units used in the last one.
    let behind = (used - 1).max(0) / old.capacity();
    let within = used - behind * old.capacity();
    let kept = match debt {
        CarryOver::Units => within.min(new.capacity()),
        _ => ceil(within * new.capacity(), old.capacity()),
    };
    let behind_kept = ceil(behind * length(old), length(new)) * new.capacity();
    let end = at + length(old);
    // No window begins before the clock did.
    if behind > 0 {
        return State::Counted { at: (end - length(new)).max(1), used: kept + behind_kept };
    }
    let end = end.min(ms_of(now) + length(new));
    let start = (end - length(new)).max(1);
    // The tokens at hand are at most those from before the change, or the new burst.
    let at_hand = (come(old, ms_of(now) - at) - within).max(come(new, 0));
    State::Counted { at: start, used: kept.max(come(new, ms_of(now) - start) - at_hand) }
}

/// The units that a window has had up to a time after its start.
fn come(rule: Rule, elapsed: i128) -> i128 {
    match rule {
        Rule::Tokens { limit, window, burst } => {
            (burst + (limit - burst) * elapsed.max(0) / window).min(limit)
        }
        _ => rule.capacity(),
    }
}

fn drips(debt: CarryOver, old: Rule, new: Rule, state: State, now: i128) -> State {
    let State::Counted { at, used } = state else { unreachable!("{state:?}") };
    let (Rule::Leaky { rate, drip, .. }, Rule::Leaky { rate: new_rate, drip: new_drip, .. }) =
        (old, new)
    else {
        unreachable!("{old:?} {new:?}")
    };
    let current = old.current(at, used, ms_of(now));
    let used = current.used;
    let mut begun = (ms_of(now) - current.at).clamp(0, new_rate - 1);
    let within = used.min(old.capacity());
    let in_time = |units: i128| ceil(ceil(units, drip) * rate, new_rate) * new_drip;
    let kept = match debt {
        CarryOver::Units => within,
        CarryOver::Time => {
            let left = ceil(within, drip) * rate - (ms_of(now) - current.at).max(0);
            let drips = ceil(left, new_rate);
            // Full after the same time, at most after the time from empty to full.
            let is_longer = drips > ceil(new.capacity(), new_drip);
            begun = if is_longer { 0 } else { drips * new_rate - left };
            // Of the counts that take as many drips, the one nearest to the units before.
            within.clamp((drips - 1) * new_drip + 1, drips * new_drip)
        }
        _ => ceil(within * new.capacity(), old.capacity()),
    };
    State::Counted {
        // No drip falls before the clock began.
        at: (ms_of(now) - begun).max(1),
        used: kept.min(new.capacity()) + in_time(used - within),
    }
}
