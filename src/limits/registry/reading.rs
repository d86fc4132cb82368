//! What only a reader of files asks of a builder.

use super::{Entry, LimitsBuilder, Numbers, NumbersIndex};
use crate::limits::names;
use crate::store::key::LimitIndex;

impl LimitsBuilder {
    /// The index of a limit that is declared or Boulder's; else the text of the error.
    pub(crate) fn index_of(&self, name: &str) -> Result<LimitIndex, String> {
        let known = &self.limits.by_name;
        known
            .get(name)
            .copied()
            .ok_or_else(|| names::unknown(name, known.keys().map(|name| &**name)))
    }

    pub(crate) fn entry(&self, index: LimitIndex) -> &Entry {
        self.limits.entry(index)
    }

    /// Whether no limit was given.
    pub(crate) fn is_empty(&self) -> bool {
        !self.limits.entries.iter().any(Entry::is_given)
    }

    /// Where the next [`add_numbers_anew`](Self::add_numbers_anew) will put its numbers: a file may
    /// give the ids first.
    pub(crate) fn next_numbers(&self, index: LimitIndex) -> NumbersIndex {
        NumbersIndex::of(self.limits.entry(index).numbers.len())
    }

    /// Adds numbers at [`next_numbers`](Self::next_numbers).
    pub(crate) fn add_numbers_anew(&mut self, index: LimitIndex, new: Numbers) {
        let entry = &mut self.limits.entries[index.0 as usize];
        entry.note_algorithm(new.limit.as_ref());
        entry.numbers.push(new);
    }
}
