//! Records a charge, so that it can be rolled back or increased later.

use crate::algorithm::Outcome;
use crate::algorithm::factor::Factor;
use crate::core::cancel::Cancel;
use crate::core::rollback::ChargedBucket;
use crate::core::spent::{ChargedTo, Spent};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::{Call, KeyedLimit};
#[cfg(feature = "valkey")]
use crate::limiter::needs_store::needs_store;
use crate::limits::{Id, Scratch};
use crate::store::key::{Key, KeyRef, LimitTag};
use crate::store::{Outdated, StoreKey};
use crate::util::fault::{self, Fault};

/// A charge, and the bucket that it was made to.
pub(crate) struct Claim {
    limiter: Limiter,
    key: Key,
    cost: u64,
    /// The caller's factor, which scaled the limit.
    factor: Factor,
    spent: Spent,
    /// The generation of the limits under which the bucket was charged. A reload converts the word, and the charge
    /// cannot be found in the converted word. So after a reload nothing is returned.
    generation: u64,
    /// The tag of the limit that applied. An override may end without a reload.
    tag: LimitTag,
    /// Whether the shadow bucket was charged as well.
    pub(crate) is_in_shadow: bool,
}

/// The result of a call that may charge.
pub(super) struct Claimed {
    pub(super) decision: Decision,
    /// `None` if no limit applies.
    pub(super) claim: Option<Claim>,
    /// Whether the call was denied because the table is full.
    pub(super) found_no_room: bool,
    /// The time until the block of the id ends, if the id is blocked.
    pub(super) blocked_ns: Option<u64>,
    pub(super) is_in_shadow_mode: bool,
    /// Whether the limit has a shadow limit that must be charged as well.
    has_shadow: bool,
}

impl Claimed {
    const UNLIMITED: Claimed = Claimed {
        decision: Decision::UNLIMITED,
        claim: None,
        found_no_room: false,
        blocked_ns: None,
        is_in_shadow_mode: false,
        has_shadow: false,
    };
}

impl KeyedLimit {
    /// Stores the word that `ask` computes in the id's bucket, and counts the call. With a cost of 0 it stores nothing.
    /// A limit in shadow mode is charged by a plain spend instead. `ask` also returns the time at which the charge is
    /// granted, which for a reservation is later than its argument.
    pub(super) fn claim(
        &self,
        id: Id<'_>,
        cost: u64,
        now_ns: u64,
        ask: impl Fn(&Limit, u64, u64) -> (Outcome, u64),
    ) -> Result<Claimed, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Claimed::UNLIMITED);
        }
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: self.encoded(id, &mut scratch)? };
        let claimed = inner.with_view(|view| self.claim_in(view, key, cost, now_ns, &ask));
        let mut claimed = claimed.inspect_err(|_| self.tally.count_error())?;
        if claimed.has_shadow {
            let would_deny = inner.in_shadow(key, Factor::ONE, Call::Spend(cost), now_ns);
            self.note_shadow(would_deny);
            if let Some(claim) = &mut claimed.claim {
                claim.is_in_shadow = !would_deny;
            }
        }
        Ok(claimed)
    }

    fn claim_in(
        &self,
        view: LimitsView<'_>,
        key: KeyRef<'_>,
        cost: u64,
        now_ns: u64,
        ask: impl Fn(&Limit, u64, u64) -> (Outcome, u64),
    ) -> Result<Result<Claimed, Error>, Outdated> {
        let entry = view.generation.limits.entry(self.index);
        let Some((limit, tag)) = entry.limit_for(key.id, view.limits_ns(now_ns)) else {
            return Ok(Ok(Claimed::UNLIMITED));
        };
        #[cfg(feature = "valkey")]
        if entry.is_shared() {
            return Ok(Err(needs_store(&entry.name)));
        }
        let (is_above, is_in_shadow_mode) = (cost > limit.burst(), entry.is_shadow());
        if is_above && !is_in_shadow_mode {
            return Ok(Err(limit.cost_error(cost, Some(&entry.name))));
        }
        let charged = if is_above { 0 } else { cost };
        let store_key = view.store_key(key, tag);
        let ask = |word, now_ns| {
            if is_in_shadow_mode {
                return limit.rule().spend(word, now_ns, charged);
            }
            let (outcome, granted_at_ns) = ask(limit, word, now_ns);
            if outcome.word.is_some() && granted_at_ns > now_ns {
                view.record_grant(&store_key, granted_at_ns);
            }
            outcome
        };
        let blocked_ns = view.blocked_ns(&store_key, now_ns);
        let mut spent = match (blocked_ns, charged) {
            (Some(left_ns), _) => {
                Spent::nothing(view.denied_by_block(&store_key, limit, charged, now_ns, left_ns)?)
            }
            (None, 0) => Spent::nothing(view.look(&store_key, now_ns, ask)?),
            (None, _) => view.charge_reversibly(&store_key, limit, now_ns, ask)?,
        };
        let is_denied = !spent.decision.allowed();
        let would_deny = is_above || is_denied;
        let is_uncharged = charged > 0 && spent.to == ChargedTo::Nothing;
        if is_in_shadow_mode {
            self.note_shadow(would_deny);
            spent.decision = spent.decision.in_shadow();
        }
        // The decision about a reservation has its wait, but not the remaining units. A check at a cost of 0 has them.
        let counted = match self.is_counting() && !would_deny {
            true => look_at(view, &store_key, limit, now_ns).unwrap_or(spent.decision).in_shadow(),
            false => spent.decision,
        };
        self.count(key.id, limit, if would_deny { 0 } else { cost }, &counted, now_ns);
        Ok(Ok(Claimed {
            decision: spent.decision,
            claim: Some(Claim::new(&self.limiter, view, &store_key, cost, Factor::ONE, spent)),
            found_no_room: is_denied && is_uncharged && blocked_ns.is_none(),
            blocked_ns,
            is_in_shadow_mode,
            has_shadow: entry.shadow_beside(tag).is_some() && blocked_ns.is_none(),
        }))
    }
}

/// Decides a check at a cost of 0.
fn look_at(
    view: LimitsView<'_>,
    key: &StoreKey<'_>,
    limit: &Limit,
    now_ns: u64,
) -> Result<Decision, Outdated> {
    view.look(key, now_ns, |word, now_ns| limit.rule().spend(word, now_ns, 0))
}

impl Claim {
    /// Records a charge of `cost` units that was made in this view by the limit scaled by `factor`.
    pub(crate) fn new(
        limiter: &Limiter,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        cost: u64,
        factor: Factor,
        spent: Spent,
    ) -> Claim {
        let (generation, tag) = (view.generation.number, key.tag);
        let (limiter, key, is_in_shadow) = (limiter.clone(), Key::new(key.key), false);
        Claim { limiter, key, cost, factor, spent, generation, tag, is_in_shadow }
    }

    /// The time of the charge, if there was one.
    pub(super) fn charged_at_ns(&self) -> Option<u64> {
        self.spent.charge.map(|charge| charge.now_ns)
    }

    /// Reads the limiter's clock.
    pub(super) fn now_ns(&self) -> u64 {
        self.limiter.inner.clock.now_ns()
    }

    /// Calls `then` with the bucket under the limits that apply now; `None` if no limit applies any more, and while the
    /// limiter is switched off.
    fn with_bucket<R>(
        &self,
        mut then: impl FnMut(LimitsView<'_>, &StoreKey<'_>, &Limit) -> Result<R, Outdated>,
    ) -> Option<R> {
        if !self.limiter.inner.is_enabled() {
            return None;
        }
        self.limiter.inner.with_view(|view| {
            if view.generation.number < self.generation {
                // A reload is running, and the charge was made under its limits.
                return Err(Outdated);
            }
            let key = self.key.as_ref();
            let entry = view.generation.limits.entry(key.limit);
            let Some((limit, tag)) = entry.limit_for(key.id, view.limits_now_ns()) else {
                return Ok(None);
            };
            let store_key = view.store_key(key, tag);
            if self.factor == Factor::ONE {
                return then(view, &store_key, limit).map(Some);
            }
            let scaled = view.scaled(key.limit, limit, self.factor).ok().flatten();
            scaled.map(|limit| then(view, &store_key, &limit)).transpose()
        })
    }

    /// Whether the bucket's word is still in the units of the charge.
    fn has_units_of(&self, view: LimitsView<'_>, key: &StoreKey<'_>) -> bool {
        view.generation.number == self.generation && key.tag == self.tag
    }

    /// Decides a [`check`](KeyedLimit::check) of the bucket at a cost of 0. A block is no matter of the bucket, and does not
    /// count.
    pub(crate) fn look(&self) -> Decision {
        let now_ns = self.now_ns();
        let decision = self.with_bucket(|view, key, limit| {
            let decision = look_at(view, key, limit, now_ns)?;
            let is_in_shadow_mode = view.generation.limits.entry(key.key.limit).is_shadow();
            Ok(if is_in_shadow_mode { decision.in_shadow() } else { decision })
        });
        decision.unwrap_or(Decision::UNLIMITED)
    }

    /// Rolls the charge back to `actual` units, which are fewer than were charged.
    pub(crate) fn roll_back_to(&self, actual: u64) {
        let Some(charge) = self.spent.charge else { return };
        let is_rolled_back = self.with_bucket(|view, key, limit| {
            if !self.has_units_of(view, key) {
                return Ok(false);
            }
            if fault::active(Fault::RefundForSettle) {
                let now_ns = view.inner.clock.now_ns();
                return view.refund(key, limit, self.cost - actual, now_ns).map(|_| true);
            }
            if let Some(rest) = limit.rule().without(charge, self.cost, actual) {
                let is_part = actual > 0;
                let spent = Spent { charge: Some(rest), is_part, ..self.spent };
                view.roll_back_estimate(key, limit, &spent)?;
            }
            Ok(true)
        });
        if is_rolled_back == Some(true) && self.is_in_shadow {
            self.in_shadow(Call::Refund(self.cost - actual));
        }
    }

    /// Charges `units` more units, even if the bucket does not have them. The bucket then owes at most the limit's
    /// [`max_debt`](crate::limits::LimitOptions::max_debt).
    pub(super) fn owe(&self, units: u64) {
        let now_ns = self.now_ns();
        self.with_bucket(|view, key, limit| {
            let entry = view.generation.limits.entry(key.key.limit);
            if entry.is_shadow() && self.cost > 0 && self.spent.charge.is_none() {
                // The limit would have denied the estimate, so nothing of the call is charged.
                return Ok(());
            }
            let max_debt = entry.max_debt_at(key.tag);
            let ask = |word, now_ns| Outcome {
                word: limit.rule().owe(word, now_ns, units, max_debt),
                decision: Decision::UNLIMITED,
            };
            view.charge(key, limit, now_ns, ask).map(drop)
        });
        // A plain spend charges the shadow bucket only if it has the units: only the enforced limit has debt.
        self.in_shadow(Call::Spend(units));
    }

    /// Repeats a call on the shadow of the bucket, if it has one.
    fn in_shadow(&self, call: Call) {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return;
        }
        let now_ns = inner.clock.now_ns();
        let _ = inner.in_shadow_capped(self.key.as_ref(), self.factor, call, now_ns);
    }

    /// Cancels the reservation that is granted at `granted_at_ns`: see
    /// [`Reservation::cancel`](super::Reservation::cancel).
    pub(super) fn cancel(&self, granted_at_ns: u64) {
        let Spent { charge: Some(charge), to, ledger_mark, .. } = self.spent else { return };
        let is_pending = self.with_bucket(|view, key, limit| {
            let now_ns = view.inner.clock.now_after_loads_ns();
            if !self.has_units_of(view, key) || granted_at_ns < now_ns {
                return Ok(false);
            }
            if fault::active(Fault::RefundForCancel) {
                return view.refund(key, limit, self.cost, now_ns).map(|_| false);
            }
            Ok(true)
        });
        if is_pending != Some(true) {
            return;
        }
        let bucket = ChargedBucket::new(self.key.clone(), self.tag, self.generation, to);
        let cancel = Cancel { bucket, charge, ledger_mark, granted_at_ns };
        cancel.submit(&self.limiter.inner);
        if self.is_in_shadow {
            self.in_shadow(Call::Refund(self.cost));
        }
    }
}
