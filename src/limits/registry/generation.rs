//! Gives limits the indices, stamps and ends of a generation, so that a reload can follow on from the limits before it.

use std::time::{Duration, SystemTime};

use super::sharing::check_store;
use super::{Entry, Limits, Override};
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::{IdFormat, format};
use crate::store::key::{LimitIndex, LimitTag, OwnedId, Stamp};

/// An override, as a reload lists them.
pub(crate) struct OverrideById<'a> {
    pub(crate) limit: LimitIndex,
    pub(crate) format: IdFormat,
    /// In normal form.
    pub(crate) id: &'a [u8],
    /// Whether it applies to all ids of an account.
    pub(crate) is_of_account: bool,
    pub(crate) tag: LimitTag,
}

/// Converts an end to the limiter's clock, given one reading of that clock and of the system's, taken together.
fn end_on_clock(expires: Expiry, (now_ns, now): (u64, SystemTime)) -> u64 {
    let Some(end) = expires.time() else { return u64::MAX };
    match end.duration_since(now) {
        Ok(left) => u64::try_from(left.as_nanos()).map_or(u64::MAX, |ns| now_ns.saturating_add(ns)),
        // The end is past. It is not before this reading, because up to now the bucket's debt was counted under the
        // override.
        Err(_) => now_ns,
    }
}

impl Limits {
    /// Makes these the limits of a generation. `clocks` are a reading of the limiter's clock and one of the system's,
    /// taken together; without them no override ends.
    pub(crate) fn in_generation(
        mut self,
        number: u64,
        clocks: Option<(u64, SystemTime)>,
    ) -> Limits {
        self.has_ends = false;
        self.clocks = clocks;
        for (at, entry) in self.entries.iter_mut().enumerate() {
            entry.stamp = Stamp::new(LimitIndex::new(at), number);
            entry.ends_ns.clear();
            let has_ends = entry.terms.iter().any(|terms| terms.expires != Expiry::NEVER);
            if let Some(clocks) = clocks.filter(|_| has_ends) {
                let ends = entry.terms.iter().map(|terms| end_on_clock(terms.expires, clocks));
                entry.ends_ns = ends.collect();
                self.has_ends = true;
            }
        }
        // A bucket that is full under an override that has ended may owe under the limit that applies since.
        self.is_gcra &= !self.has_ends;
        self.find_shadows();
        self
    }

    /// Returns the system's time at a reading of the limiter's clock, by the two readings that ends were converted by.
    pub(crate) fn system_time_at(&self, now_ns: u64) -> Option<SystemTime> {
        let (then_ns, then) = self.clocks?;
        match now_ns.checked_sub(then_ns) {
            Some(since_ns) => then.checked_add(Duration::from_nanos(since_ns)),
            None => then.checked_sub(Duration::from_nanos(then_ns - now_ns)),
        }
    }

    /// Gives these limits the indices that `before` has for their names. A name that is only in `before` keeps its
    /// index and limits nothing, because callers still have handles for it.
    pub(crate) fn following(mut self, before: &Limits) -> Result<Limits, Error> {
        check_store(before, &self)?;
        let mut entries = Vec::with_capacity(before.count().max(self.count()));
        for old in &before.entries {
            let Some(index) = self.by_name.remove(&old.name) else {
                entries.push(Entry::empty(&old.name, old.format));
                continue;
            };
            let new = self.take_entry(index);
            if new.format != old.format {
                let text = format!(
                    "the ids of {} are {} and cannot become {} while buckets are kept by them: give the limit another name",
                    old.name, old.format, new.format
                );
                return Err(Error::new(ErrorKind::Limit, text));
            }
            entries.push(new);
        }
        entries.extend(self.entries.drain(..).filter(|entry| !entry.name.is_empty()));
        Ok(self.with_entries(entries))
    }

    /// Takes an entry and leaves one without a name.
    pub(super) fn take_entry(&mut self, index: LimitIndex) -> Entry {
        std::mem::replace(&mut self.entries[index.0 as usize], Entry::unnamed())
    }

    /// Replaces the entries. Entries without a name only take an index.
    pub(super) fn with_entries(mut self, entries: Vec<Entry>) -> Limits {
        let named = entries.iter().enumerate().filter(|(_, entry)| !entry.name.is_empty());
        self.by_name = named.map(|(at, entry)| (entry.name.clone(), LimitIndex::new(at))).collect();
        self.entries = entries;
        self
    }

    /// Whether both apply the same limits, with the same options, to every id.
    pub(crate) fn is_same_as(&self, other: &Limits) -> bool {
        if self.store != other.store {
            return false;
        }
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(a, b)| a.is_same_as(b))
    }

    /// Returns all limits, including those that limit nothing.
    pub(crate) fn by_index(&self) -> impl Iterator<Item = (LimitIndex, &Entry)> {
        self.entries.iter().enumerate().map(|(at, entry)| (LimitIndex::new(at), entry))
    }

    /// Returns all overrides, including those that have ended and those without a limit.
    pub(crate) fn overrides_by_id(&self) -> impl Iterator<Item = OverrideById<'_>> {
        self.by_index().flat_map(|(limit, entry)| {
            entry.overrides.iter().map(move |(id, given)| OverrideById {
                limit,
                format: entry.format,
                id: id.as_bytes(),
                is_of_account: format::is_account(entry.format, id.as_bytes()),
                tag: entry.stamp.tag(given.terms.0 + 1),
            })
        })
    }
}

impl Entry {
    /// Returns the default, or the limit of some override.
    pub(crate) fn any_limit(&self) -> Option<&Limit> {
        self.default.as_ref().or_else(|| self.terms.iter().find_map(|terms| terms.limit.as_ref()))
    }

    /// Whether both apply the same limits to every id, and files give them on the same lines.
    fn is_same_as(&self, other: &Entry) -> bool {
        let is_same = |(id, given): (&OwnedId, &Override)| {
            let others = other.overrides.get(id);
            others.is_some_and(|others| {
                let terms = self.terms.get(given.terms.0 as usize);
                given.line == others.line && terms == other.terms.get(others.terms.0 as usize)
            })
        };
        self.name == other.name
            && self.format == other.format
            && self.default == other.default
            && self.options == other.options
            && self.location == other.location
            && self.notes == other.notes
            && self.overrides.len() == other.overrides.len()
            && self.overrides.iter().all(is_same)
    }
}
