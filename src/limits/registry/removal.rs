//! Finds the limits that a reload takes away, and refuses to take away those that callers use.

use super::{Entry, Limits, names};
use crate::error::{Error, ErrorKind};
use crate::store::key::LimitIndex;

/// The most names that an error lists.
const MAX_NAMES: usize = 8;

/// What of a limit is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitUse {
    /// Handles, which layers and batches have as well.
    Handles,
    /// Blocks of ids, and no handle.
    Blocks,
    Nothing,
}

impl Limits {
    /// Returns the limits that a reload to `new` takes away or gives another format of ids.
    pub(crate) fn lost_by<'a>(&'a self, new: &'a Limits) -> impl Iterator<Item = LimitIndex> + 'a {
        let lost =
            self.by_index().filter(|(_, old)| old.is_removed_by(new) || old.leaves_index(new));
        lost.map(|(index, _)| index)
    }

    /// Returns whether a reload to `new` takes a limit's name from its index: `new` does not know the name, or by another
    /// format of ids.
    pub(crate) fn is_left_by(&self, new: &Limits, index: LimitIndex) -> bool {
        self.entry(index).leaves_index(new)
    }

    /// Returns the names of the declared limits that `new` does not declare.
    pub(crate) fn removed_by(&self, new: &Limits) -> Vec<String> {
        self.entries
            .iter()
            .filter(|old| old.is_removed_by(new))
            .map(|old| old.name.to_string())
            .collect()
    }

    /// Fails if a reload to `new` would take away a limit that callers use, or give its ids another format.
    /// `may_remove`: limits may be taken away.
    pub(crate) fn check_removals(
        &self,
        new: &Limits,
        may_remove: bool,
        used: impl Fn(LimitIndex) -> LimitUse,
    ) -> Result<(), Error> {
        let mut faults = Vec::new();
        let (mut missing, mut count) = (Vec::new(), 0);
        for index in self.lost_by(new) {
            let (old, used) = (self.entry(index), used(index));
            let by = match used {
                LimitUse::Handles => "handles, layers or batches of it are alive",
                LimitUse::Blocks => "ids of it are blocked",
                LimitUse::Nothing => continue,
            };
            if let Some(new) = new.by_name_of(old).filter(|new| new.format != old.format) {
                faults.push(format!(
                    "the ids of {} are {} and cannot become {} while {by}: give the limit another name",
                    old.name, old.format, new.format
                ));
            }
            // A limit that is off can go.
            let is_missing = old.is_removed_by(new) && !old.is_disabled;
            if is_missing && !may_remove && used == LimitUse::Handles {
                count += 1;
                if count <= MAX_NAMES {
                    missing.push(format!("{}{}", old.name, self.renamed(old, new)));
                }
            }
        }
        if count > 0 {
            let more = if count > MAX_NAMES {
                format!(" and {} more", count - MAX_NAMES)
            } else {
                String::new()
            };
            faults.push(format!(
                "the new limits lack {}{more}, of which handles, layers or batches are alive: declare each under its name, with `enabled: false` to switch it off, or remove them by ReloadOptions::remove_missing",
                missing.join(", ")
            ));
        }
        if faults.is_empty() {
            return Ok(());
        }
        let text = format!("{}{}", new.in_files(), faults.join("; "));
        Err(Error::new(ErrorKind::Limit, text))
    }

    /// Returns how an error about several limits begins: with the files that they come from.
    pub(super) fn in_files(&self) -> String {
        let files: Vec<&str> =
            self.files.iter().map(String::as_str).filter(|file| !file.is_empty()).collect();
        if files.is_empty() { String::new() } else { files.join(", ") + ": " }
    }

    /// Returns the text that names the new limit of `new` that is most like the missing `old`, or nothing if none is.
    fn renamed(&self, old: &Entry, new: &Limits) -> String {
        let is_known = |entry: &Entry| self.by_name_of(entry).is_some_and(Entry::is_declared);
        let added = new.entries.iter().filter(|entry| entry.is_declared() && !is_known(entry));
        let Some(near) = names::nearest(&old.name, added.map(|entry| &*entry.name)) else {
            return String::new();
        };
        let at = new.by_name.get(near).and_then(|&index| new.location(new.entry(index).location?));
        let at = at.map_or_else(String::new, |at| format!(" at {at}"));
        format!(" (there is {near}{at})")
    }

    /// Returns the limit that has the name of an entry of other limits.
    pub(crate) fn by_name_of(&self, other: &Entry) -> Option<&Entry> {
        self.by_name.get(&other.name).map(|&index| self.entry(index))
    }
}

impl Entry {
    fn leaves_index(&self, new: &Limits) -> bool {
        let known = new.by_name_of(self);
        !self.name.is_empty() && known.is_none_or(|known| known.format != self.format)
    }

    fn is_removed_by(&self, new: &Limits) -> bool {
        let is_lost = |is: fn(&Entry) -> bool| is(self) && !new.by_name_of(self).is_some_and(is);
        // A limit of Boulder's names may have overrides alone.
        is_lost(Entry::is_declared) || is_lost(Entry::is_given)
    }
}
