//! Charges a bucket as a call wants it: now, or at a place in the future.

use std::cell::Cell;

use crate::algorithm::Outcome;
use crate::algorithm::demand::Demand;
use crate::core::at_cap::Owes;
use crate::core::places::Place;
use crate::core::spent::{ChargedTo, Spent};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::{Outdated, StoreKey};
use crate::util::time::saturating_ns;

/// The kind of charge that a call makes or looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The units, if they are there now.
    Now,
    /// Like `Now`, for a caller that repeats a denied call: the denial is not counted.
    NowOrLater,
    /// A place that is granted within `at_most_ns`.
    Place { at_most_ns: u64 },
    /// A place that is granted within `at_most_ns`, and not before `from_ns`, a time of the clock. With `after_blocks` it may come
    /// after a block of the id. The batch that takes it counts the call.
    PlaceOfBatch { at_most_ns: u64, from_ns: u64, after_blocks: bool },
    /// A look at the place that a batch would get: nothing is charged.
    LookForPlace { from_ns: u64, after_blocks: bool },
}

/// The times within which a call wants a place.
#[derive(Clone, Copy)]
pub(super) struct WantedPlace {
    at_most_ns: u64,
    from_ns: u64,
    looks: bool,
}

impl Wanted {
    pub(super) fn place(self) -> Option<WantedPlace> {
        let (at_most_ns, from_ns, looks) = match self {
            Wanted::Now | Wanted::NowOrLater => return None,
            Wanted::Place { at_most_ns } => (at_most_ns, 0, false),
            Wanted::PlaceOfBatch { at_most_ns, from_ns, .. } => (at_most_ns, from_ns, false),
            Wanted::LookForPlace { from_ns, .. } => (TOO_FAR_NS - 1, from_ns, true),
        };
        Some(WantedPlace { at_most_ns, from_ns, looks })
    }

    /// Whether a block that ends `left_ns` after `now_ns` denies the call. With `after_blocks` a place may begin after it.
    pub(super) fn is_blocked_for(self, left_ns: u64, now_ns: u64) -> bool {
        match self {
            Wanted::PlaceOfBatch { from_ns, after_blocks: true, .. }
            | Wanted::LookForPlace { from_ns, after_blocks: true } => {
                now_ns.saturating_add(left_ns) > from_ns
            }
            _ => true,
        }
    }

    /// Whether the call charges nothing.
    pub(super) fn looks(self) -> bool {
        matches!(self, Wanted::LookForPlace { .. })
    }

    /// Whether the batch counts the call, once it has all its charges.
    pub(super) fn is_of_batch(self) -> bool {
        matches!(self, Wanted::PlaceOfBatch { .. })
    }

    /// Whether a call with this outcome is counted.
    pub(super) fn is_counted(self, is_allowed: bool) -> bool {
        match self {
            Wanted::Now | Wanted::Place { .. } => true,
            Wanted::NowOrLater => is_allowed,
            Wanted::PlaceOfBatch { .. } | Wanted::LookForPlace { .. } => false,
        }
    }
}

/// Charges `cost` units as it is wanted. The decision about a place has its wait as `retry_in`. The time that a
/// place of a batch leaves free in front of it is vacant. In the bucket that untracked keys share there is no such place: no other
/// call could use the time. `is_in_vacant` becomes true if a vacant place was taken.
pub(super) fn spend(
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    (limit, cost): (&Limit, u64),
    now_ns: u64,
    wanted: Wanted,
    is_in_vacant: &Cell<bool>,
) -> Result<Spent, Outdated> {
    let (WantedPlace { at_most_ns, from_ns, looks }, gcra) =
        match (wanted.place(), limit.rule().gcra()) {
            (Some(place), Some(gcra)) => (place, gcra),
            _ if cost == 0 => return Ok(Spent::nothing(look_at(view, key, limit, now_ns)?)),
            _ => return view.spend(key, limit, cost.into(), now_ns),
        };
    if cost == 0 {
        let decision = look_at(view, key, limit, now_ns)?;
        let wait_ns = if decision.allowed() { 0 } else { saturating_ns(decision.retry_in()) };
        let wait_ns = wait_ns.max(from_ns.saturating_sub(now_ns));
        return Ok(Spent::nothing(place_in(wait_ns, at_most_ns)));
    }
    if let Some(place) = view.take_vacant(key, gcra, cost, now_ns, (at_most_ns, from_ns, looks))? {
        let granted_ns = place.end_ns.saturating_sub(gcra.burst_offset_ns()).max(from_ns);
        let decision = place_in(granted_ns.saturating_sub(now_ns), at_most_ns);
        if looks {
            return Ok(Spent::nothing(decision));
        }
        is_in_vacant.set(true);
        let outcome = Outcome { word: Some(place.end_ns), decision };
        return Ok(Spent::new(limit.rule(), outcome, (now_ns, now_ns), ChargedTo::OwnCell));
    }
    // The time that stays free in front of a place that begins at `from_ns`.
    let idle = Cell::new(None);
    let ask = |word: u64, at_ns: u64| {
        idle.set(Some(word.max(at_ns)).filter(|&start_ns| start_ns < from_ns));
        match gcra.reserve(word, at_ns.max(from_ns), cost) {
            Some(new) => {
                // The decision's wait counts from `at_ns`, which may be after `now_ns`; the caller's from `now_ns`.
                let at_most_ns = at_most_ns.saturating_sub(at_ns - now_ns);
                let decision = place_in(new.at_ns - at_ns, at_most_ns);
                Outcome { word: decision.allowed().then_some(new.word), decision }
            }
            None => Outcome { word: None, decision: Decision::new(false, (0, 1), TOO_FAR_NS, 0) },
        }
    };
    if looks {
        return Ok(Spent::nothing(view.look(key, (limit, cost.into()), now_ns, ask)?));
    }
    let spent = view.charge(key, limit, (now_ns, Owes::WholeDebt), ask)?;
    if let Some(start_ns) = idle.get().filter(|_| spent.decision.allowed()) {
        match spent.to {
            ChargedTo::OwnCell => {
                view.put_vacant(key, gcra, Place { start_ns, end_ns: from_ns }, now_ns);
            }
            ChargedTo::Overflow => {
                view.undo_overflow(key, start_ns, spent);
                return Ok(Spent::nothing(Decision::without_room(0)));
            }
            ChargedTo::Nothing => {}
        }
    }
    Ok(spent)
}

/// The wait for a place that no clock reaches: the longest wait for one is 2^62 ns.
pub(super) const TOO_FAR_NS: u64 = u64::MAX;

/// The decision about a place that is granted in `wait_ns`.
fn place_in(wait_ns: u64, at_most_ns: u64) -> Decision {
    Decision::new(wait_ns <= at_most_ns, (0, 1), wait_ns, 0)
}

/// Decides a check at a cost of 0.
pub(super) fn look_at(
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    limit: &Limit,
    now_ns: u64,
) -> Result<Decision, Outdated> {
    view.look(key, (limit, Demand::NOTHING), now_ns, |word, at_ns| {
        limit.rule().spend(word, at_ns, 0)
    })
}
