//! Numbers that are tried: each a limit of its own that has no name for callers, so that a table, a sweep
//! and a reload need not know of them.

use super::{Entry, Limits, LimitsBuilder};
use crate::limit::Limit;
use crate::limits::LimitMode;
use crate::store::key::{KeyRef, LimitIndex, LimitTag, Quick};

/// What the names of such limits end in: no name that is given can.
const ENDING: &str = " (shadow)";

/// Whether a name is one of those that callers do not have.
pub(super) fn is_name(name: &str) -> bool {
    name.ends_with(ENDING)
}

/// The name of the limit that a shadow of this name is beside; that of another limit is its own.
#[cfg(feature = "snapshot")]
pub(super) fn without_ending(name: &str) -> &str {
    name.strip_suffix(ENDING).unwrap_or(name)
}

impl LimitsBuilder {
    /// Makes a limit of each shadow.
    pub(super) fn add_shadows(&mut self) {
        for at in 0..self.limits.entries.len() {
            let entry = &self.limits.entries[at];
            let Some(shadow) = entry.terms.options.shadow.clone() else { continue };
            let (name, format) = (format!("{}{ENDING}", entry.name), entry.format);
            let index = self.intern(&name, format);
            let hidden = &mut self.limits.entries[index.0 as usize];
            hidden.note_algorithm(Some(&shadow));
            hidden.default = Some(shadow);
        }
    }
}

impl Limits {
    /// Says of each limit which one is its shadow, and whether its calls can go the short way.
    pub(super) fn find_shadows(&mut self) {
        let by_name = &self.by_name;
        for entry in &mut self.entries {
            let shadow = entry.terms.options.shadow.as_ref();
            entry.shadow =
                shadow.and_then(|_| by_name.get(&*format!("{}{ENDING}", entry.name)).copied());
            let is_quick = entry.shadow.is_none() && !entry.is_shadow();
            entry.quick = if is_quick { entry.stamp.quick() } else { Quick::NEVER };
        }
    }

    /// The numbers that are tried for a key beside those that apply to it, their limit, and their note.
    pub(crate) fn shadow_of(
        &self,
        key: KeyRef<'_>,
        now_ns: u64,
    ) -> Option<(LimitIndex, &Limit, LimitTag)> {
        let entry = self.entry(key.limit);
        let (_, tag) = entry.numbers_of(key.id, now_ns)?;
        let index = entry.shadow_beside(tag)?;
        let (limit, tag) = self.entry(index).numbers_of(key.id, now_ns)?;
        Some((index, limit, tag))
    }
}

impl Entry {
    pub(super) fn mode(&self) -> LimitMode {
        self.terms.options.mode
    }

    /// Whether the limit only says that it would deny.
    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.mode() == LimitMode::Shadow
    }

    /// The limit whose numbers are tried beside those that the note says: beside the default's alone. An
    /// override stands in the place of either.
    #[inline]
    pub(crate) fn shadow_beside(&self, noted: LimitTag) -> Option<LimitIndex> {
        self.shadow.filter(|_| noted.numbers() == 0)
    }
}
