//! What a call keeps of a charge, to give it back or to add to it later.

use crate::algorithm::Outcome;
use crate::algorithm::factor::Factor;
use crate::core::cancel::Cancel;
use crate::core::view::{ChargedTo, LimitsView, Spent};
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::{Call, KeyedLimit, Refund, Spend};
use crate::limits::{Id, Scratch};
use crate::store::key::{Key, KeyRef, LimitTag};
use crate::store::{Outdated, StoreKey};
use crate::util::fault::{self, Fault};

/// A charge that was made to a bucket, and which bucket.
pub(crate) struct Claim {
    limiter: Limiter,
    key: Key,
    cost: u64,
    /// The caller's, by which the limit's numbers were scaled.
    factor: Factor,
    spent: Spent,
    /// The number of the limits that the charge's words are under. What was charged under others cannot
    /// be told apart any more: after a reload nothing is given back.
    generation: u64,
    /// Which of these applied to the bucket: an override may end without a reload.
    tag: LimitTag,
    /// Whether the bucket's shadow was charged, too.
    is_in_shadow: bool,
}

/// What became of a call that charges.
pub(super) struct Claimed {
    pub(super) decision: Decision,
    /// `None`: no limit applies.
    pub(super) claim: Option<Claim>,
    /// It was denied because there is no room for its bucket.
    pub(super) finds_no_room: bool,
    /// The time until the block of its id ends, if that is blocked.
    pub(super) blocked_ns: Option<u64>,
    /// The limit only says that it would deny.
    pub(super) is_tried: bool,
}

impl Claimed {
    const UNLIMITED: Claimed = Claimed {
        decision: Decision::UNLIMITED,
        claim: None,
        finds_no_room: false,
        blocked_ns: None,
        is_tried: false,
    };
}

impl KeyedLimit {
    /// Charges what `ask` makes of the limit and the bucket's word; asks only, at a cost of 0. A limit
    /// that denies nobody charges what is there.
    pub(super) fn claim(
        &self,
        id: Id<'_>,
        cost: u64,
        now_ns: u64,
        ask: impl Fn(&Limit, u64, u64) -> Outcome,
    ) -> Result<Claimed, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Claimed::UNLIMITED);
        }
        let mut scratch = Scratch::new();
        let key = KeyRef { limit: self.index, id: self.encoded(id, &mut scratch)? };
        let claimed = inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            let Some((limit, tag)) = entry.limit_for(key.id, view.limits_ns(now_ns)) else {
                return Ok(Ok((Claimed::UNLIMITED, false)));
            };
            let (is_above, is_tried) = (cost > limit.burst(), entry.is_shadow());
            if is_above && !is_tried {
                return Ok(Err(limit.cost_error(cost, Some(&entry.name))));
            }
            let charged = if is_above { 0 } else { cost };
            let spend = |word, now_ns| limit.rule().spend(word, now_ns, charged);
            let ask = |word, now_ns| match is_tried {
                true => spend(word, now_ns),
                false => ask(limit, word, now_ns),
            };
            let store_key = view.store_key(key, tag);
            let blocked_ns = view.blocked_ns(&store_key, now_ns);
            let mut spent = match (blocked_ns, charged) {
                (Some(left_ns), _) => Spent::nothing(
                    view.denied_by_block(&store_key, limit, charged, now_ns, left_ns)?,
                ),
                (None, 0) => Spent::nothing(view.look(&store_key, now_ns, ask)?),
                (None, _) => view.charge_to_keep(&store_key, limit, now_ns, ask)?,
            };
            let is_denied = !spent.decision.allowed();
            let would_deny = is_above || is_denied;
            let found_no_room = is_denied && charged > 0 && spent.to == ChargedTo::Nothing;
            let finds_no_room = found_no_room && blocked_ns.is_none();
            if is_tried {
                self.note_shadow(would_deny);
                spent.decision = spent.decision.in_shadow();
            }
            // (A place says how long it is to be waited for, and not what is left.)
            let left = || {
                view.look(&store_key, now_ns, |word, now_ns| limit.rule().spend(word, now_ns, 0))
            };
            let told = match self.is_counting() && !would_deny {
                true => left().unwrap_or(spent.decision).in_shadow(),
                false => spent.decision,
            };
            self.count(key.id, limit, if would_deny { 0 } else { cost }, &told, now_ns);
            let decision = spent.decision;
            let (limiter, key) = (self.limiter.clone(), Key::new(key));
            let generation = view.generation.number;
            let is_in_shadow = false;
            let factor = Factor::ONE;
            let claim =
                Some(Claim { limiter, key, cost, factor, spent, generation, tag, is_in_shadow });
            let has_shadow = entry.shadow_beside(tag).is_some() && blocked_ns.is_none();
            let claimed = Claimed { decision, claim, finds_no_room, is_tried, blocked_ns };
            Ok(Ok((claimed, has_shadow)))
        });
        let (mut claimed, has_shadow) = claimed.inspect_err(|_| self.tally.count_error())?;
        if has_shadow {
            let would_deny = inner.in_shadow(key, Factor::ONE, cost, Spend(cost), now_ns);
            self.note_shadow(would_deny);
            if let Some(claim) = &mut claimed.claim {
                claim.is_in_shadow = !would_deny;
            }
        }
        Ok(claimed)
    }
}

impl Claim {
    /// Of what a member of a batch was charged: `cost` units, by its limit's numbers as `factor` makes them.
    #[cfg(feature = "tower")]
    pub(crate) fn of_member(
        limiter: &Limiter,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        (cost, factor): (u64, Factor),
        spent: Spent,
        is_in_shadow: bool,
    ) -> Claim {
        let (generation, tag) = (view.generation.number, key.tag);
        let (limiter, key) = (limiter.clone(), Key::new(key.key));
        Claim { limiter, key, cost, factor, spent, generation, tag, is_in_shadow }
    }

    /// When it was charged, if it was.
    pub(super) fn charged_at_ns(&self) -> Option<u64> {
        self.spent.charge.map(|charge| charge.now_ns)
    }

    /// Calls `then` with the bucket as it is now; `None` if there is no limit any more.
    fn with_bucket<R>(
        &self,
        mut then: impl FnMut(LimitsView<'_>, &StoreKey<'_>, &Limit) -> Result<R, Outdated>,
    ) -> Option<R> {
        self.limiter.inner.with_view(|view| {
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

    /// Whether the bucket's word is in the units of the charge still.
    fn is_under(&self, view: LimitsView<'_>, key: &StoreKey<'_>) -> bool {
        view.generation.number == self.generation && key.tag == self.tag
    }

    /// What the bucket says, at a cost of 0.
    pub(crate) fn look(&self) -> Decision {
        let now_ns = self.limiter.inner.clock.now_ns();
        let said = self.with_bucket(|view, key, limit| {
            view.look(key, now_ns, |word, now_ns| limit.rule().spend(word, now_ns, 0))
        });
        said.unwrap_or(Decision::UNLIMITED)
    }

    /// Takes back all of the charge but `actual` units, which are less.
    pub(crate) fn roll_back_to(&self, actual: u64) {
        let Some(charge) = self.spent.charge else { return };
        let is_given_back = self.with_bucket(|view, key, limit| {
            if !self.is_under(view, key) {
                return Ok(false);
            }
            if fault::active(Fault::RefundForSettle) {
                let now_ns = view.inner.clock.now_ns();
                return view.refund(key, limit, self.cost - actual, now_ns).map(|_| true);
            }
            if let Some(rest) = limit.rule().without(charge, self.cost, actual) {
                let is_part = actual > 0;
                view.roll_back(key, limit, &Spent { charge: Some(rest), is_part, ..self.spent })?;
            }
            Ok(true)
        });
        if is_given_back == Some(true) && self.is_in_shadow {
            self.in_shadow(Refund(self.cost - actual));
        }
    }

    /// Charges so many units more, whether they are there or not, down to the limit's floor.
    pub(super) fn owe(&self, units: u64) {
        let now_ns = self.limiter.inner.clock.now_ns();
        self.with_bucket(|view, key, limit| {
            let max_debt = view.generation.limits.entry(key.key.limit).max_debt_at(key.tag);
            let ask = |word, now_ns| Outcome {
                word: limit.rule().owe(word, now_ns, units, max_debt),
                decision: Decision::UNLIMITED,
            };
            view.charge(key, limit, now_ns, ask).map(drop)
        });
        // As far as it is there: what a shadow would let one owe, its limit says.
        self.in_shadow(Spend(units));
    }

    /// Does in the shadow of the bucket, if it has one, what was done to the bucket.
    fn in_shadow(&self, call: impl Call) {
        let inner = &*self.limiter.inner;
        let _ = inner.in_shadow(self.key.as_ref(), self.factor, 0, call, inner.clock.now_ns());
    }

    /// Gives up a place that is granted at `granted_at_ns`: see [`Reservation::cancel`](super::Reservation::cancel).
    pub(super) fn give_up(&self, granted_at_ns: u64) {
        let Spent { charge: Some(charge), to, noted, .. } = self.spent else { return };
        let is_given_up = self.with_bucket(|view, key, limit| {
            let now_ns = view.inner.clock.now_after_loads_ns();
            if !self.is_under(view, key) || granted_at_ns < now_ns {
                return Ok(false);
            }
            if fault::active(Fault::RefundForCancel) {
                return view.refund(key, limit, self.cost, now_ns).map(|_| false);
            }
            Ok(true)
        });
        if is_given_up != Some(true) {
            return;
        }
        let (key, tag, generation) = (self.key.clone(), self.tag, self.generation);
        let cancel = Cancel { key, tag, generation, charge, to, noted, granted_at_ns };
        cancel.give_up(&self.limiter.inner);
        if self.is_in_shadow {
            self.in_shadow(Refund(self.cost));
        }
    }
}
