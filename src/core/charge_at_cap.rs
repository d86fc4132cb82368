//! A charge for a key without a bucket while the table is full.

use crate::core::at_cap::{AtCap, Owes};
use crate::core::spent::{ChargedTo, Spent};
use crate::core::view::{Ask, LimitsView};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::{Outdated, StoreKey};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

impl LimitsView<'_> {
    /// Whether calls for a key without a bucket are denied while the table is full.
    fn is_denied_at_cap(self, key: &StoreKey<'_>, limit: &Limit) -> bool {
        match self.inner.overflow.at_cap {
            AtCap::Deny => true,
            // A shared bucket would have permits for `max` callers in all, and deny the others as long as these hold them.
            AtCap::Share if limit.rule().is_concurrency() => true,
            // The overflow bucket's word is in the units of one limit: the default, without a factor.
            AtCap::Share => !self.generation.limits.is_default(key.tag, limit),
            AtCap::Allow => false,
        }
    }

    /// Returns the decision of a spend of a key without a bucket that is not charged, because the table has no room for the
    /// bucket.
    pub(super) fn look_at_cap(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        ask: Ask<'_>,
    ) -> Option<Decision> {
        let is_allowed = self.inner.overflow.at_cap == AtCap::Allow;
        if !is_allowed && !self.is_denied_at_cap(key, limit) {
            return None;
        }
        match self.inner.store.room_in_ns(key.tag, now_ns, &self) {
            Some(0) => None,
            _ if is_allowed => Some(ask(0, now_ns).decision),
            wait_ns => Some(self.without_room(key, wait_ns)),
        }
    }

    /// The denial of a key without a bucket. If no bucket tells when there is room, it is the time in which an empty bucket
    /// of the limit's default fills: by then the limit's own buckets are full.
    fn without_room(self, key: &StoreKey<'_>, wait_ns: Option<u64>) -> Decision {
        let limits = &self.generation.limits;
        let default = limits.default_tag(key.key.limit).and_then(|tag| limits.limit_at(tag));
        let of_key = || limits.limit_at(key.tag);
        let limit = || default.or_else(of_key).map_or(1, |limit| limit.rule().fills_in_ns());
        Decision::without_room(wait_ns.unwrap_or_else(limit))
    }

    /// Denies a spend for an untracked key, because the table is full.
    pub(super) fn denied_at_cap(self, key: &StoreKey<'_>, limit: &Limit, now_ns: u64) -> Spent {
        self.inner.overflow.counts.count_denied();
        let wait_ns = self.inner.store.room_in_ns(key.tag, now_ns, &self);
        // There is room by now, but there was none.
        let wait_ns = wait_ns.map(|ns| if ns == 0 { limit.rule().unit_ns() } else { ns });
        Spent::nothing(self.without_room(key, wait_ns))
    }

    /// Allows a spend for an untracked key while the table is full, and charges nothing.
    pub(super) fn allowed_at_cap(self, decision: Decision) -> Spent {
        self.inner.overflow.counts.count_allowed();
        Spent::nothing(decision)
    }

    /// Decides a call for an untracked key while the table is full. `None`: the key may have a cell by now, or may
    /// have had one.
    #[cold]
    pub(super) fn charge_at_cap(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        (now_ns, owes): (u64, Owes),
        (ask, again): (Ask<'_>, Ask<'_>),
    ) -> Result<Option<Spent>, Outdated> {
        if self.is_denied_at_cap(key, limit) {
            return Ok(Some(self.denied_at_cap(key, limit, now_ns)));
        }
        if self.inner.overflow.at_cap == AtCap::Allow {
            return Ok(Some(self.allowed_at_cap(ask(0, now_ns).decision)));
        }
        let index = key.key.limit;
        let floor_ns = self.inner.store.floor_ns();
        let at_ns = now_ns.max(floor_ns);
        let (mut word, mut charged, mut is_allowed) = (0, None, false);
        self.generation.update_overflow(index, |current| {
            let outcome = ask(current, at_ns);
            (word, charged, is_allowed) = (current, outcome.word, outcome.decision.allowed());
            charged
        })?;
        // A settlement of which an empty bucket takes nothing is allowed as well.
        if charged.is_some() || (is_allowed && owes == Owes::WholeDebt) {
            let charged = charged.unwrap_or(word);
            let full_at_ns = limit.rule().full_at_ns(charged, at_ns);
            // The word of another algorithm is no time.
            let is_own = owes == Owes::OwnUnits && limit.rule().gcra().is_some();
            // A spend moves the time of each bucket by as much.
            let spent_ns = charged.saturating_sub(word.max(at_ns));
            let from_ns = at_ns.max(self.generation.all_owe_until_ns(index));
            self.inner.overflow.note_charged(self.hash(key), |until_ns| match is_own {
                true => until_ns.max(from_ns).saturating_add(spent_ns),
                false => until_ns.max(full_at_ns),
            });
        }
        let to = ChargedTo::Overflow;
        let spent = Spent::new(limit.rule(), again(word, at_ns), (at_ns, now_ns), to);
        self.inner.overflow.fence();
        // The key may have got a cell since. Or it had one that was charged after `at_ns`, became full and was
        // dropped: that takes at least the time in which a unit comes back.
        let unit_ns = limit.rule().unit_ns();
        let had_cell = || {
            let dropped_ns = self.inner.store.floor_ns();
            dropped_ns > at_ns && dropped_ns - floor_ns >= unit_ns
        };
        let has_cell = || match self.inner.store.look(key, &self) {
            Ok(word) => word.is_some(),
            // Unknown: treated as if it had one.
            Err(Outdated) => true,
        };
        if !fault::active(Fault::NoSecondLook) && (has_cell() || had_cell()) {
            coverage::hit(Race::SharedRolledBack);
            self.undo_overflow(key, word, spent);
            return Ok(None);
        }
        self.inner.overflow.counts.count_overflowed();
        Ok(Some(spent))
    }
}
