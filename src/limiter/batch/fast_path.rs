//! The fast path of a batch: one to four plain members whose keys the lock-free table knows.
//!
//! It does what [`charge`](super::charge) does, in the same order, without copies of the ids and without a search for
//! each step: it finds all slots, decides all members by their words, and then swaps each word once.

use crate::algorithm::Charge;
use crate::algorithm::factor::Factor;
use crate::algorithm::gcra::{Gcra, GcraCharge};
use crate::core::ledger::LedgerMark;
use crate::core::spent::{ChargedTo, Spent};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::batch::charge::undo;
use crate::limiter::batch::member::{Member, MemberMode};
use crate::limits::with_plain_bytes;
use crate::store::key::KeyRef;
use crate::store::{Fingerprint, Home, Known, Store, StoreKey, pin, pin_briefly};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

/// A member whose slot and limit are known.
#[derive(Clone, Copy)]
struct Found<'g> {
    known: Known<'g>,
    limit: &'g Limit,
    gcra: &'g Gcra,
    /// The word by which the member was decided last.
    word: u64,
}

/// Why a batch was not charged.
enum Uncharged {
    /// A member was denied, because another call took units meanwhile.
    Denied,
    /// A cell has died or moved.
    NotLive,
}

/// Receives each member's position, its own decision, and its limit.
type Tell<'t> = Option<&'t mut dyn FnMut(usize, Decision, &Limit)>;

/// Spends a batch. `None`: nothing has changed, and the general way has to decide. If the batch is denied, `tell` gets
/// for a member that would have been allowed the decision of a check at a cost of 0.
#[inline]
pub(super) fn spend(limiter: &Limiter, members: &[Member<'_>], tell: Tell<'_>) -> Option<Decision> {
    match members.len() {
        1 => spend_known::<1>(limiter, members.first_chunk()?, tell),
        2 => spend_known::<2>(limiter, members.first_chunk()?, tell),
        3 => spend_known::<3>(limiter, members.first_chunk()?, tell),
        4 => spend_known::<4>(limiter, members.first_chunk()?, tell),
        _ => None,
    }
}

fn spend_known<const N: usize>(
    limiter: &Limiter,
    members: &[Member<'_>; N],
    tell: Tell<'_>,
) -> Option<Decision> {
    let shared = &*limiter.inner;
    let Store::LockFree(table) = &shared.store else { return None };
    // A custom clock may panic in a rollback, which the general way is prepared for.
    if !shared.is_enabled() || shared.blocks.is_any() || shared.clock.is_custom() {
        return None;
    }
    for member in members {
        if !is_plain(member) || member.handle.check_limiter(limiter).is_err() {
            return None;
        }
    }
    let order = order_of_keys(members)?;
    // A reading of a clock that is not quick may take long: it is made before the thread is pinned, and a rollback makes
    // one under a pin that may last.
    let read_ns = (!shared.clock.is_quick()).then(|| shared.clock.now_ns());
    let guard = if read_ns.is_none() { pin_briefly() } else { pin() };
    // Hash all ids and prefetch their buckets, so that the waits for memory overlap.
    let home = |member: &Member<'_>| {
        let handle = member.handle;
        let fingerprint = with_plain_bytes(handle.format, &member.id, |id| handle.fingerprint(id))?;
        let home = table.home(&guard, fingerprint)?;
        if N > 1 {
            home.prefetch();
        }
        Some((fingerprint, home))
    };
    let mut homes = [home(&members[0])?; N];
    for at in 1..N {
        homes[at] = home(&members[at])?;
    }
    let view = shared.view(&guard);
    let now_ns = match read_ns {
        Some(now_ns) => now_ns,
        None => shared.clock.quick_now_ns()?,
    };
    // Find each slot and decide each member by its word.
    let mut found = [find(homes[0].1, view, &members[0], now_ns)?; N];
    for at in 1..N {
        found[at] = find(homes[at].1, view, &members[at], now_ns)?;
    }
    let mut is_allowed = true;
    for (it, member) in found.iter().zip(members) {
        is_allowed &= it.charge(member, now_ns).is_allowed();
    }
    if is_allowed
        && let Err(Uncharged::NotLive) = charge_all(
            view,
            members,
            &homes.map(|(fingerprint, _)| fingerprint),
            &mut found,
            &order,
            now_ns,
        )
    {
        return None;
    }
    let mut decision = found[0].decision(&members[0], now_ns);
    for at in 1..N {
        let own = found[at].decision(&members[at], now_ns).for_member(at);
        decision = decision.stricter(own);
    }
    for (at, (it, member)) in found.iter().zip(members).enumerate() {
        if member.handle.is_counting() {
            count(member, it, at, decision, now_ns);
        }
    }
    if let Some(tell) = tell {
        for (at, (it, member)) in found.iter().zip(members).enumerate() {
            let mut own = it.charge(member, now_ns);
            if !decision.allowed() && own.is_allowed() {
                own = it.gcra.charge(it.word, now_ns, 0);
            }
            tell(at, it.gcra.decision(own).for_member(at), it.limit);
        }
    }
    Some(decision)
}

impl Found<'_> {
    /// Computes the member's charge from the word.
    #[inline(always)]
    fn charge(&self, member: &Member<'_>, now_ns: u64) -> GcraCharge {
        self.gcra.charge(self.word, now_ns, member.cost)
    }

    #[inline(always)]
    fn decision(&self, member: &Member<'_>, now_ns: u64) -> Decision {
        self.gcra.decision(self.charge(member, now_ns))
    }
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
    let limit = entry.quick_limit_at(known.tag(), now_ns)?;
    let gcra = limit.rule().gcra().filter(|gcra| member.cost <= gcra.burst())?;
    Some(Found { known, limit, gcra, word: known.word()? })
}

/// Whether the member is charged by its limit alone, and can deny the batch.
#[inline(always)]
fn is_plain(member: &Member<'_>) -> bool {
    member.mode == MemberMode::CheckAndSpend && member.factor == Factor::ONE && member.cost > 0
}

/// Returns the members' positions in the order of their keys. `None` if two members name one bucket.
#[inline(always)]
fn order_of_keys<const N: usize>(members: &[Member<'_>; N]) -> Option<[usize; N]> {
    let mut order = std::array::from_fn(|at| at);
    for end in 1..N {
        for at in (1..=end).rev() {
            let [first, second] = [order[at - 1], order[at]];
            match compare_keys(&members[first], &members[second]) {
                std::cmp::Ordering::Less => break,
                std::cmp::Ordering::Equal => return None,
                std::cmp::Ordering::Greater if fault::active(Fault::CallersOrder) => break,
                std::cmp::Ordering::Greater => order.swap(at - 1, at),
            }
        }
    }
    Some(order)
}

/// Compares the keys of two plain members: by limit, then by the bytes of the id.
#[inline(always)]
fn compare_keys(first: &Member<'_>, second: &Member<'_>) -> std::cmp::Ordering {
    let [by_limit, other] = [first, second].map(|member| member.handle.index.0);
    by_limit.cmp(&other).then_with(|| compare_ids(first, second))
}

#[inline(never)]
fn compare_ids(first: &Member<'_>, second: &Member<'_>) -> std::cmp::Ordering {
    let format = first.handle.format;
    with_plain_bytes(format, &first.id, |a| with_plain_bytes(format, &second.id, |b| a.cmp(b)))
        .flatten()
        .unwrap_or(std::cmp::Ordering::Equal)
}

/// Charges all members, in order. If one is denied or its cell is not live any more, all charges are rolled back.
#[inline(always)]
fn charge_all<const N: usize>(
    view: LimitsView<'_>,
    members: &[Member<'_>; N],
    fingerprints: &[Fingerprint; N],
    found: &mut [Found<'_>; N],
    order: &[usize; N],
    now_ns: u64,
) -> Result<(), Uncharged> {
    // By each member's place in the order.
    let mut ledger_marks = [LedgerMark::default(); N];
    for (charged, &at) in order.iter().enumerate() {
        let (member, it) = (&members[at], &mut found[at]);
        if charged + 1 < N {
            // Before the charge: a call that lowers the word after the charge then counts as later. The last member's
            // charge is never rolled back.
            let key = KeyRef { limit: member.handle.index, id: &[] };
            ledger_marks[charged] =
                view.inner.ledger.entry_by_fingerprint(fingerprints[at], key).mark();
        }
        // Repeats only when another call has changed the word.
        while !it.known.swap(it.word, it.charge(member, now_ns).spent_ns) {
            let word = it.known.word();
            if let Some(word) = word {
                it.word = word;
            }
            if word.is_none() || !it.charge(member, now_ns).is_allowed() {
                if charged > 0 {
                    coverage::hit(match word {
                        None => Race::KnownBatchMoved,
                        Some(_) => Race::KnownBatchDenied,
                    });
                }
                for (charged, &at) in order[..charged].iter().enumerate().rev() {
                    let (member, fingerprint) = (&members[at], fingerprints[at]);
                    roll_back(view, member, fingerprint, &found[at], ledger_marks[charged], now_ns);
                }
                return Err(if word.is_none() { Uncharged::NotLive } else { Uncharged::Denied });
            }
        }
    }
    coverage::hit(Race::KnownBatchCharged);
    Ok(())
}

#[cold]
#[inline(never)]
fn roll_back(
    view: LimitsView<'_>,
    member: &Member<'_>,
    fingerprint: Fingerprint,
    found: &Found<'_>,
    ledger_mark: LedgerMark,
    now_ns: u64,
) {
    let Found { known, limit, word, .. } = *found;
    let spent = Spent {
        decision: found.decision(member, now_ns),
        charge: Some(Charge::new(word, found.charge(member, now_ns).spent_ns, now_ns)),
        to: ChargedTo::OwnCell,
        ledger_mark,
        is_part: false,
        converted_below: None,
    };
    with_plain_bytes(member.handle.format, &member.id, |id| {
        let key = KeyRef { limit: member.handle.index, id };
        let key = StoreKey { key, fingerprint, tag: known.tag() };
        undo(view, &key, limit, member.cost, &spent);
    });
}

/// Counts the member at `position`: of an allowed batch, or if it has denied the batch.
#[inline(never)]
fn count(member: &Member<'_>, found: &Found<'_>, position: usize, decision: Decision, now_ns: u64) {
    let handle = member.handle;
    let Some(stripes) = &handle.stripes else { return };
    match decision.denied_by() {
        None => {
            let own = found.decision(member, now_ns);
            stripes.count_allowed(&own, found.limit.burst(), member.cost);
        }
        Some(denier) if denier == position => {
            with_plain_bytes(handle.format, &member.id, |id| {
                handle.count_denied(stripes, id, &decision, now_ns);
            });
        }
        Some(_) => {}
    }
}
