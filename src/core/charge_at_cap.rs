//! A charge for a key without a bucket while the table is full.

use crate::algorithm::Outcome;
use crate::core::at_cap::AtCap;
use crate::core::spent::{ChargedTo, Spent};
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::{Outdated, StoreKey};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

impl LimitsView<'_> {
    /// Decides a call for an untracked key while the table is full. `None`: the key may have a cell by now, or may
    /// have had one.
    #[cold]
    pub(super) fn charge_at_cap(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        (ask, again): (impl Fn(u64, u64) -> Outcome, impl Fn(u64, u64) -> Outcome),
    ) -> Result<Option<Spent>, Outdated> {
        let counts = &self.inner.overflow.counts;
        let denied = || {
            counts.count_denied();
            let wait_ns = limit.rule().wait_for_room_ns();
            let decision = Decision::new(false, (0, 1), wait_ns, wait_ns);
            Ok(Some(Spent::nothing(decision)))
        };
        match self.inner.overflow.at_cap {
            AtCap::Deny => denied(),
            // The overflow bucket's word is in the units of one limit: the default, without a factor.
            AtCap::Share if !self.generation.limits.is_default(key.tag, limit) => denied(),
            AtCap::Allow => {
                counts.count_allowed();
                let decision = ask(0, now_ns).decision;
                Ok(Some(Spent::nothing(decision)))
            }
            AtCap::Share => {
                let index = key.key.limit;
                let floor_ns = self.inner.store.floor_ns();
                let at_ns = now_ns.max(floor_ns);
                let mut word = 0;
                self.generation.update_overflow(index, |current| {
                    word = current;
                    ask(current, at_ns).word
                })?;
                let to = ChargedTo::Overflow;
                let spent = Spent::new(limit.rule(), again(word, at_ns), at_ns, to);
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
                counts.count_overflowed();
                Ok(Some(spent))
            }
        }
    }
}
