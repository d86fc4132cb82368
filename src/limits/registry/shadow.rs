//! Shadow limits. Each is a limit without a public name, so that the table, the sweep and the reload treat it as any other.

use super::{Entry, Limits, QuickDefault};
use crate::limit::Limit;
use crate::limits::LimitMode;
use crate::store::key::{KeyRef, LimitIndex, LimitTag, Quick};

/// The end of a shadow's name. No valid name has a blank.
const ENDING: &str = " (shadow)";

/// Whether this is the name of a shadow.
pub(super) fn is_name(name: &str) -> bool {
    name.ends_with(ENDING)
}

/// Removes the ending from the name of a shadow. Other names stay as they are.
#[cfg(feature = "snapshot")]
pub(super) fn without_ending(name: &str) -> &str {
    name.strip_suffix(ENDING).unwrap_or(name)
}

impl Limits {
    /// Sets for each limit which other limit is its shadow, and whether its calls can take the fast path.
    pub(super) fn find_shadows(&mut self) {
        let by_name = &self.by_name;
        for entry in &mut self.entries {
            let has_shadow = entry.options.shadow.is_some();
            entry.shadow =
                has_shadow.then(|| by_name.get(&*entry.shadow_name()).copied()).flatten();
            // A limit with networks may have buckets of addresses that a reload has moved into a network since.
            let is_plain =
                !entry.is_shared() && !entry.counts_in_flight() && entry.networks.is_none();
            let is_quick = entry.shadow.is_none() && !entry.is_shadow() && is_plain;
            entry.quick = if is_quick { entry.stamp.quick() } else { Quick::NEVER };
            let gcra = entry.default.as_ref().and_then(|limit| limit.rule().gcra());
            entry.quick_default = gcra
                .map_or(QuickDefault::NONE, |gcra| QuickDefault { tag: entry.quick, gcra: *gcra });
        }
    }

    /// Returns the shadow limit of the limit that applies to a key, with its index and its tag. For `generation` see
    /// [`entry_of`](Limits::entry_of).
    pub(crate) fn shadow_of(
        &self,
        (key, generation): (KeyRef<'_>, u64),
        now_ns: u64,
    ) -> Option<(LimitIndex, &Limit, LimitTag)> {
        let entry = self.entry_of(key.limit, generation);
        let (_, tag) = entry.limit_for(key.id, now_ns)?;
        let index = entry.shadow_beside(tag)?;
        let (limit, tag) = self.entry(index).limit_for(key.id, now_ns)?;
        Some((index, limit, tag))
    }
}

impl Entry {
    pub(super) fn shadow_name(&self) -> String {
        format!("{}{ENDING}", self.name)
    }

    /// Whether the limit is in shadow mode: it denies no call, but counts the calls that it would deny.
    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.options.mode == LimitMode::Shadow
    }

    /// Returns the shadow limit, if the tag is the default's. An override replaces both the default and its shadow.
    #[inline]
    pub(crate) fn shadow_beside(&self, tag: LimitTag) -> Option<LimitIndex> {
        self.shadow.filter(|_| tag.terms() == 0)
    }
}
