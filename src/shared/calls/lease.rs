//! Members of batches whose limit is leased: they take units from the node's leases, or ask the store.

use crate::algorithm::factor::Factor;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::batch::Prepared;
use crate::limiter::batch::prepared::Trial;
use crate::limiter::handle::KeyedLimit;
use crate::shared::calls::lease_path::allowed;
use crate::shared::calls::taken::TakenFromLease;
use crate::shared::protocol::decide::DecidedMember;
use crate::shared::protocol::lease::{LeaseEnd, LeaseRequest};
use crate::shared::protocol::leases::{Asking, LeaseOutcome, LeasedBucket, Leases};
use crate::shared::protocol::{Found, SharedMode, StoreMember};
use crate::store::key::{Key, KeyRef, LimitTag};
use crate::store::{Outdated, StoreKey};
use crate::util::time::saturating_ns;

const NS_PER_MS: u64 = 1_000_000;

/// Returns the leases, and the length of those of a member, in ns, if the member can be answered from a lease.
fn leases_of<'v>(view: LimitsView<'v>, member: &Prepared<'_>) -> Option<(&'v Leases, u64)> {
    let entry = view.generation.limits.entry(member.key.key.limit);
    let length = entry.sharing().lease()?;
    let is_plain = member.factor == Factor::ONE && member.trial == Trial::Nothing;
    Some((view.inner.leases().filter(|_| is_plain)?, saturating_ns(length)))
}

impl Leases {
    /// Returns where the word of a key's lease is, by the limit that applies then.
    pub(super) fn place<'k>(
        &self,
        view: LimitsView<'_>,
        key: KeyRef<'k>,
        now_ns: u64,
    ) -> Option<StoreKey<'k>> {
        let entry = view.generation.limits.entry(key.limit);
        let (_, tag) = entry.limit_for(key.id, view.limits_ns(now_ns))?;
        Some(self.words.key(view, key, tag))
    }
}

/// Answers a member from its lease. `None`: only the store can tell.
pub(super) fn answer_by_lease(
    view: LimitsView<'_>,
    member: &mut Prepared<'_>,
    mode: SharedMode,
    now_ns: u64,
) -> Result<Option<Option<TakenFromLease>>, Outdated> {
    let Some((leases, _)) = leases_of(view, member) else { return Ok(None) };
    let (key, cost) = (member.key.key, member.cost);
    let key = leases.words.key(view, key, member.key.tag);
    let spent = leases.words.spend(view, &key, (cost, mode.is_charged()), now_ns)?;
    let Some((left, until_ns)) = spent else { return Ok(None) };
    member.decision = allowed(&member.limit, left);
    let is_taken = mode.is_charged() && cost > 0;
    Ok(Some(is_taken.then(|| TakenFromLease {
        handle: member.handle.clone(),
        key: Key::new(key.key),
        generation: view.generation.number,
        tag: member.key.tag,
        limit: (*member.limit).clone(),
        ends_ns: view.generation.limits.end_ns(member.key.tag),
        until_ns,
        units: cost,
    })))
}

/// Whether a kept denial may decide these members: none of them would get units by giving up its lease. One with a factor gives up
/// none.
pub(super) fn have_no_units(
    view: LimitsView<'_>,
    members: &[&Prepared<'_>],
    now_ns: u64,
) -> Result<bool, Outdated> {
    for member in members {
        if let Some((leases, _)) = leases_of(view, member) {
            let key = leases.words.key(view, member.key.key, member.key.tag);
            if leases.words.units(view, &key, now_ns)? > 0 {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A member of a leased limit that the store decides.
pub(super) struct LeasedMember {
    handle: KeyedLimit,
    key: Key,
    name: Box<str>,
    limit: Limit,
    sent_ns: u64,
    /// `None`: it asks for no lease, because another call does.
    asking: Option<Asking>,
    /// The lease that a check leaves to its node: a spend would give it up, and so could spend its units as well.
    kept: Option<LeaseEnd>,
}

impl LeasedMember {
    /// Makes the leased part of a member that the store decides; `None` if its limit takes no leases. `may_ask`: whether the
    /// member may ask for a lease; `is_check`: whether it only checks.
    pub(super) fn new(
        view: LimitsView<'_>,
        member: &Prepared<'_>,
        name: &str,
        (may_ask, is_check): (bool, bool),
        sent_ns: u64,
    ) -> Result<Option<LeasedMember>, Outdated> {
        let Some((leases, length_ns)) = leases_of(view, member) else { return Ok(None) };
        let key = leases.words.key(view, member.key.key, member.key.tag);
        let bucket = LeasedBucket { key, name, length_ns, burst: member.limit.burst() };
        let asking = match may_ask {
            true => leases.begin(view, bucket, sent_ns)?,
            false => None,
        };
        let kept = match is_check {
            true => leases.end_now(view, bucket, sent_ns)?,
            false => None,
        };
        Ok(Some(LeasedMember {
            handle: member.handle.clone(),
            key: Key::new(member.key.key),
            name: name.into(),
            limit: (*member.limit).clone(),
            sent_ns,
            asking,
            kept,
        }))
    }

    /// Returns a check of the member as the store got it, as if the node gave up its lease; `None` if it holds none.
    pub(super) fn with_kept(&self, to_store: &StoreMember) -> Option<StoreMember> {
        let request = LeaseRequest { want: 0, length_ms: 1, end: Some(self.kept?) };
        Some(StoreMember { lease: Some(request), ..to_store.clone() })
    }

    /// Returns the member's request for a lease; `None` if it has none.
    pub(super) fn request(&self) -> Option<LeaseRequest> {
        let request = self.asking.as_ref()?.request;
        (request.want > 0 || request.end.is_some()).then_some(request)
    }

    /// Records that the store never had the call: the lease that was to go back stays.
    pub(super) fn not_sent(&mut self) {
        let asking = self.asking.take();
        self.record(asking, LeaseOutcome::Denied);
    }

    /// Records the store's answer.
    pub(super) fn answered(&mut self, decided: &DecidedMember, found: &Found) {
        let outcome = match (found.denied, decided.granted) {
            (Some(_), _) => LeaseOutcome::Denied,
            (None, None) => LeaseOutcome::None,
            (None, Some(granted)) => {
                // On the node's clock the lease ends earlier than on the store's: its time is counted from before the call
                // was sent, and a thousandth and a millisecond less, because the clocks may run at different speeds.
                let left_ns = (granted.until_ms * NS_PER_MS).saturating_sub(found.unix_ns);
                let left_ns = (left_ns - left_ns / 1000).saturating_sub(NS_PER_MS);
                LeaseOutcome::Granted(granted, self.sent_ns.saturating_add(left_ns))
            }
        };
        let asking = self.asking.take();
        self.record(asking, outcome);
    }

    /// Whether the next call finds the bucket as this one does, if it is denied: this one gives up a lease without units, or none.
    pub(super) fn leaves_no_units(&self) -> bool {
        let asking = self.asking.as_ref();
        asking.is_some_and(|asking| asking.request.end.is_none_or(|end| end.unspent == 0))
    }

    /// Takes the units of a denied call from a lease that another call has got since.
    pub(super) fn take_instead(&self, cost: u64) -> Option<(Decision, TakenFromLease)> {
        let inner = &*self.handle.limiter.inner;
        let (leases, now_ns) = (inner.leases()?, inner.clock.now_ns());
        inner.with_view(|view| {
            let Some(tag) = self.tag(view, now_ns) else { return Ok(None) };
            let key = leases.words.key(view, self.key.as_ref(), tag);
            let spent = leases.words.spend(view, &key, (cost, true), now_ns)?;
            Ok(spent.map(|(left, until_ns)| {
                let taken = TakenFromLease {
                    handle: self.handle.clone(),
                    key: self.key.clone(),
                    generation: view.generation.number,
                    tag,
                    limit: self.limit.clone(),
                    ends_ns: view.generation.limits.end_ns(tag),
                    until_ns,
                    units: cost,
                };
                (allowed(&self.limit, left), taken)
            }))
        })
    }

    /// Returns the tag of the limit that the call was made under; `None` if another one applies by now.
    fn tag(&self, view: LimitsView<'_>, now_ns: u64) -> Option<LimitTag> {
        let key = self.key.as_ref();
        let entry = view.generation.limits.entry(key.limit);
        let (limit, tag) = entry.limit_for(key.id, view.limits_ns(now_ns))?;
        (*limit == self.limit && entry.sharing().lease().is_some()).then_some(tag)
    }

    fn record(&self, asking: Option<Asking>, outcome: LeaseOutcome) {
        let inner = &*self.handle.limiter.inner;
        let (Some(leases), Some(asking)) = (inner.leases(), asking) else { return };
        let now_ns = inner.clock.now_ns();
        inner.with_view(|view| {
            let tag = self.tag(view, now_ns);
            let key = tag.map(|tag| leases.words.key(view, self.key.as_ref(), tag));
            leases.end(key.map(|key| (view, key)), &self.name, &asking, outcome, now_ns);
            Ok(())
        });
        self.handle.limiter.watch_leases();
    }
}

impl Drop for LeasedMember {
    /// The store has not answered: the lease that was given up is lost.
    fn drop(&mut self) {
        if self.asking.is_some()
            && let Some(leases) = self.handle.limiter.inner.leases()
        {
            leases.abandon(&self.name);
        }
    }
}

impl KeyedLimit {
    /// Gives up the lease of an id that was blocked now, and drops that of a call that is under way. `name`: the bucket's name in the store.
    pub(super) fn drop_lease(&self, id: &[u8], name: &str) {
        let inner = &*self.limiter.inner;
        let Some(leases) = inner.leases() else { return };
        let (now_ns, generation) = (inner.clock.now_ns(), self.limiter.generation());
        let key = KeyRef { limit: self.index, id };
        let end = inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            match entry.limit_for(id, view.limits_ns(now_ns)) {
                Some((_, tag)) if entry.sharing().lease().is_some() => {
                    leases.block(view, &leases.words.key(view, key, tag), name, now_ns)
                }
                _ => Ok(None),
            }
        });
        if let Some(end) = end {
            self.limiter.begin_to_give_back_lease(Key::new(key), end, generation);
        }
    }
}
