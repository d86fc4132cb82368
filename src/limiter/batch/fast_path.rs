//! The fast path of a batch: one to four plain members whose keys the lock-free table knows.
//!
//! It does what [`charge`](super::charge) does, without copies of the ids and without a search for each step: it finds and
//! decides the members in the caller's order, and then swaps each word, in the order of keys.

use std::array;
use std::cmp::Ordering;

use crate::algorithm::Outcome;
use crate::algorithm::gcra::{Gcra, GcraCharge};
use crate::core::spent::{ChargedTo, Spent};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::batch::charge::return_charge;
use crate::limiter::batch::member::Member;
use crate::limiter::reserve::Receipt;
use crate::limiter::reserve::claim::Claim;
use crate::limits::with_plain_bytes;
use crate::store::key::KeyRef;
use crate::store::{Guard, Home, Known, Store, StoreKey, Table, pin, pin_briefly};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

/// A member whose slot and limit are known.
#[derive(Clone, Copy)]
struct Found<'g> {
    /// With the word by which the member was decided last.
    known: Known<'g>,
    gcra: &'g Gcra,
}

/// How the charges of an allowed batch have ended.
enum Charged {
    AsDecided,
    /// Another call has changed a word, so the members have other decisions: a denial, if it has taken units that were needed.
    Anew,
    /// A cell has died or moved. Nothing is charged.
    NotLive,
}

/// Receives each member's position, its own decision, and its limit.
type Tell<'t> = dyn FnMut(usize, Decision, &Limit) + 't;

/// Receives the decisions and the charges of a batch's members, if the caller needs them.
pub(super) struct After<'t> {
    pub(super) tell: Option<&'t mut Tell<'t>>,
    /// Receives each member's charge, if the batch is allowed.
    pub(super) keep: Option<&'t mut Receipt>,
}

/// Spends a batch. `None`: nothing has changed, and `charge` has to decide. If the batch is denied, `after.tell` gets the
/// decision of a check at a cost of 0 for each member that would have been allowed.
#[inline(always)]
pub(super) fn spend(
    limiter: &Limiter,
    members: &[Member<'_>],
    after: Option<&mut After<'_>>,
) -> Option<Decision> {
    match members.len() {
        1 => spend_known::<1>(limiter, members.first_chunk()?, after),
        2 => spend_known::<2>(limiter, members.first_chunk()?, after),
        3 => spend_known::<3>(limiter, members.first_chunk()?, after),
        4 => spend_known::<4>(limiter, members.first_chunk()?, after),
        _ => None,
    }
}

#[inline(never)]
fn spend_known<const N: usize>(
    limiter: &Limiter,
    members: &[Member<'_>; N],
    after: Option<&mut After<'_>>,
) -> Option<Decision> {
    let inner = &*limiter.inner;
    // A custom clock may panic in a return, which the general way is prepared for.
    if !inner.is_enabled() || inner.blocks.is_any() || inner.clock.is_custom() {
        return None;
    }
    if !members.iter().all(|member| member.handle.is_of(limiter)) {
        return None;
    }
    let order = order_of_keys(members)?;
    // A reading of a clock that is not quick may take long: it is made before the thread is pinned, and a return makes
    // one under a pin that may last.
    let read_ns = (!inner.clock.is_quick()).then(|| inner.clock.now_ns());
    let guard = if read_ns.is_none() { pin_briefly() } else { pin() };
    spend_with_guard(limiter, &guard, members, order, read_ns, after)
}

/// Spends members, and charges them in the order `order`. `read_ns` is a reading of the clock, if one was made.
#[inline(always)]
fn spend_with_guard<const N: usize>(
    limiter: &Limiter,
    guard: &Guard,
    members: &[Member<'_>; N],
    order: [usize; N],
    read_ns: Option<u64>,
    after: Option<&mut After<'_>>,
) -> Option<Decision> {
    let inner = &*limiter.inner;
    let Store::LockFree(table) = &inner.store else { return None };
    // Prefetch all buckets, so that the waits for memory overlap.
    let mut homes = [home(table, guard, &members[0], N > 1)?; N];
    for at in 1..N {
        homes[at] = home(table, guard, &members[at], true)?;
    }
    let view = inner.view(guard);
    let now_ns = match read_ns {
        Some(now_ns) => now_ns,
        None => inner.clock.quick_now_ns()?,
    };
    // Find each slot and decide each member by its word.
    let mut found = [find(homes[0], view, &members[0], now_ns)?; N];
    for at in 1..N {
        found[at] = find(homes[at], view, &members[at], now_ns)?;
    }
    let mut strictest = strictest_of(members, &found, now_ns);
    if strictest.1.is_allowed() {
        match charge_all(view, members, order, &mut found, now_ns) {
            Charged::AsDecided => {}
            Charged::Anew => strictest = strictest_again(members, &found, now_ns),
            Charged::NotLive => return None,
        }
    }
    let (at, charge) = strictest;
    let decision = found[at].gcra.decision(charge).for_member(at);
    for (at, (it, member)) in found.iter().zip(members).enumerate() {
        if member.handle.is_counting() {
            count(member, it, at, decision, now_ns);
        }
    }
    if let Some(after) = after {
        report(limiter, (view, now_ns), (members, &found), order, &decision, after);
    }
    Some(decision)
}

/// Tells the members' decisions to the caller, and keeps their charges for it, as `after` says.
#[inline(never)]
fn report<const N: usize>(
    limiter: &Limiter,
    (view, now_ns): (LimitsView<'_>, u64),
    (members, found): (&[Member<'_>; N], &[Found<'_>; N]),
    order: [usize; N],
    decision: &Decision,
    after: &mut After<'_>,
) {
    if let Some(tell) = &mut after.tell {
        for (at, (it, member)) in found.iter().zip(members).enumerate() {
            if let Some(limit) = it.limit(view, member, now_ns) {
                tell(at, it.told(member, decision, now_ns).for_member(at), limit);
            }
        }
    }
    if let Some(keep) = &mut after.keep
        && decision.allowed()
    {
        for at in order {
            let (member, Found { known, gcra, .. }) = (&members[at], found[at]);
            with_plain_bytes(member.handle.format, &member.id, |id| {
                let key = KeyRef { limit: member.handle.index, id };
                let claim = Claim::of_gcra(key, known.tag(), gcra, member.cost);
                keep.add(limiter, view, claim.of_member(at));
            });
        }
    }
}

/// Returns where the search for a member's bucket begins.
#[inline(always)]
fn home<'g>(
    table: &'g Table,
    guard: &'g Guard,
    member: &Member<'_>,
    prefetches: bool,
) -> Option<Home<'g>> {
    let home = table.home(guard, member.fingerprint?)?;
    if prefetches {
        home.prefetch();
    }
    Some(home)
}

impl Found<'_> {
    /// Computes the charge that the word allows or denies.
    #[inline(always)]
    fn charge(&self, member: &Member<'_>, now_ns: u64) -> GcraCharge {
        self.gcra.charge(self.known.word(), now_ns, member.cost)
    }

    /// Returns the member's own decision, in a batch with the decision `of_batch`.
    fn told(&self, member: &Member<'_>, of_batch: &Decision, now_ns: u64) -> Decision {
        let charge = self.charge(member, now_ns);
        if charge.is_allowed() && !of_batch.allowed() {
            return self.gcra.decision(self.gcra.charge(self.known.word(), now_ns, 0));
        }
        self.gcra.decision(charge)
    }

    /// Returns the limit that applies to the member.
    fn limit<'v>(
        &self,
        view: LimitsView<'v>,
        member: &Member<'_>,
        now_ns: u64,
    ) -> Option<&'v Limit> {
        let entry = view.generation.limits.entry(member.handle.index);
        entry.quick_limit_at(self.known.tag(), now_ns)
    }
}

/// Returns the strictest member and its charge, by the words that were read last; of equally strict ones the last.
#[inline(always)]
fn strictest_of<const N: usize>(
    members: &[Member<'_>; N],
    found: &[Found<'_>; N],
    now_ns: u64,
) -> (usize, GcraCharge) {
    let mut strictest = (0, found[0].charge(&members[0], now_ns));
    for at in 1..N {
        let (own, (other_at, other)) = (found[at].charge(&members[at], now_ns), strictest);
        let remaining = |at: usize, charge| found[at].gcra.remaining(charge);
        let is_stricter = match own.rank() == other.rank() {
            true => remaining(at, own) <= remaining(other_at, other),
            false => own.rank() > other.rank(),
        };
        if is_stricter {
            strictest = (at, own);
        }
    }
    strictest
}

#[cold]
#[inline(never)]
fn strictest_again<const N: usize>(
    members: &[Member<'_>; N],
    found: &[Found<'_>; N],
    now_ns: u64,
) -> (usize, GcraCharge) {
    strictest_of(members, found, now_ns)
}

/// Finds a member that needs nothing but its bucket.
#[inline(always)]
fn find<'g>(
    home: Home<'g>,
    view: LimitsView<'g>,
    member: &Member<'_>,
    now_ns: u64,
) -> Option<Found<'g>> {
    let known = home.known()?;
    let entry = view.generation.limits.entry(member.handle.index);
    let gcra = match entry.quick_default(known.tag()) {
        Some(gcra) => gcra,
        None => entry.quick_limit_at(known.tag(), now_ns)?.rule().gcra()?,
    };
    (member.cost <= gcra.burst()).then_some(Found { known, gcra })
}

/// Returns the members' positions in the order of their keys. `None` if two of them name one bucket.
#[inline(always)]
fn order_of_keys<const N: usize>(members: &[Member<'_>; N]) -> Option<[usize; N]> {
    let mut order = array::from_fn(|position| position);
    for end in 1..N {
        for at in (1..=end).rev() {
            let is_after = is_after(&members[order[at - 1]], &members[order[at]])?;
            if !is_after || fault::active(Fault::CallersOrder) {
                break;
            }
            order.swap(at - 1, at);
        }
    }
    Some(order)
}

/// Whether the key of the first of two members is after that of the second: by limit, then by the bytes of the id. `None` if both
/// name one bucket.
#[inline(always)]
fn is_after(first: &Member<'_>, second: &Member<'_>) -> Option<bool> {
    let [by_limit, other] = [first, second].map(|member| member.handle.index.0);
    if by_limit != other {
        return Some(by_limit > other);
    }
    match compare_ids(first, second) {
        Ordering::Equal => None,
        order => Some(order == Ordering::Greater),
    }
}

#[inline(never)]
fn compare_ids(first: &Member<'_>, second: &Member<'_>) -> Ordering {
    let format = first.handle.format;
    with_plain_bytes(format, &first.id, |a| with_plain_bytes(format, &second.id, |b| a.cmp(b)))
        .flatten()
        .unwrap_or(Ordering::Equal)
}

/// Charges all members in the order `order`. If one is denied or its cell is not live any more, all charges are returned.
#[inline(always)]
fn charge_all<const N: usize>(
    view: LimitsView<'_>,
    members: &[Member<'_>; N],
    order: [usize; N],
    found: &mut [Found<'_>; N],
    now_ns: u64,
) -> Charged {
    let mut ended = Charged::AsDecided;
    for (charged, at) in order.into_iter().enumerate() {
        let (member, it) = (&members[at], &mut found[at]);
        // Repeats only when another call has changed the word.
        while !it.known.swap(it.charge(member, now_ns).spent_ns) {
            ended = Charged::Anew;
            let is_live = it.known.read_again();
            if !is_live || !it.charge(member, now_ns).is_allowed() {
                if charged > 0 {
                    coverage::hit(match is_live {
                        false => Race::KnownBatchMoved,
                        true => Race::KnownBatchDenied,
                    });
                }
                for &at in order[..charged].iter().rev() {
                    give_back(view, &members[at], &found[at], now_ns);
                }
                return if is_live { ended } else { Charged::NotLive };
            }
        }
    }
    coverage::hit(Race::KnownBatchCharged);
    ended
}

#[cold]
#[inline(never)]
fn give_back(view: LimitsView<'_>, member: &Member<'_>, found: &Found<'_>, now_ns: u64) {
    let (Some(limit), Some(fingerprint)) = (found.limit(view, member, now_ns), member.fingerprint)
    else {
        return;
    };
    let charge = found.charge(member, now_ns);
    let outcome = Outcome { word: Some(charge.spent_ns), decision: found.gcra.decision(charge) };
    let spent = Spent::new(limit.rule(), outcome, (now_ns, now_ns), ChargedTo::OwnCell);
    with_plain_bytes(member.handle.format, &member.id, |id| {
        let key = KeyRef { limit: member.handle.index, id };
        let key = StoreKey { key, fingerprint, tag: found.known.tag() };
        return_charge(view, &key, member.cost, &spent);
    });
}

/// Counts the member at `position`: of an allowed batch, or if it has denied the batch.
#[inline(never)]
fn count(member: &Member<'_>, found: &Found<'_>, position: usize, decision: Decision, now_ns: u64) {
    let handle = member.handle;
    let Some(stripes) = &handle.stripes else { return };
    match decision.denied_by() {
        None => {
            let own = found.gcra.decision(found.charge(member, now_ns));
            stripes.count_allowed(&own, found.gcra.burst(), member.cost);
        }
        Some(denier) if denier == position => {
            with_plain_bytes(handle.format, &member.id, |id| {
                handle.count_denied(stripes, id, &decision, now_ns);
            });
        }
        Some(_) => {}
    }
}
