//! Makes limits a generation: gives each limit the index that its name had in the generation before, the generation's stamp,
//! and the ends of its overrides on the limiter's clock.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Entry, Limits, Override};
use crate::algorithm::rule::Rule;
use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::{IdFormat, format};
use crate::store::key::{LimitIndex, LimitTag, OwnedId, Stamp};

/// An override of an id or an account, as [`Limits::overrides_by_id`] returns it.
pub(crate) struct OverrideById<'a> {
    pub(crate) limit: LimitIndex,
    pub(crate) format: IdFormat,
    /// In normal form.
    pub(crate) id: &'a [u8],
    /// Whether it applies to all ids of an account.
    pub(crate) is_of_account: bool,
    pub(crate) tag: LimitTag,
}

/// Converts the end of an override to the limiter's clock. The pair is a reading of that clock and one of the system's clock,
/// taken together.
fn end_on_clock(expires: Expiry, (now_ns, now): (u64, SystemTime)) -> u64 {
    let Some(end) = expires.time() else { return u64::MAX };
    match end.duration_since(now) {
        Ok(left) => u64::try_from(left.as_nanos()).map_or(u64::MAX, |ns| now_ns.saturating_add(ns)),
        // The end has passed. It still counts as this reading, not as an earlier time: until now the bucket was charged
        // under the override.
        Err(_) => now_ns,
    }
}

impl Limits {
    /// Makes these the limits of a generation. `clocks` is a reading of the limiter's clock and one of the system's clock,
    /// taken together; if it is `None`, no override ends.
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
            if let Some(clocks) = clocks.filter(|_| entry.has_ends()) {
                let ends = entry.terms.iter().map(|terms| end_on_clock(terms.expires, clocks));
                entry.ends_ns = ends.collect();
                self.has_ends = true;
            }
        }
        // The word alone does not tell any more whether a bucket is full: if an override has ended, its bucket may be full
        // under the override and owe units under the limit that applies since.
        self.word_tells_full &= !self.has_ends;
        self.find_networks();
        self.find_shadows();
        self
    }

    /// Converts a reading of the limiter's clock to the system's time, by the same two readings as the ends of overrides.
    pub(crate) fn system_time_at(&self, now_ns: u64) -> Option<SystemTime> {
        let (then_ns, then) = self.clocks?;
        match now_ns.checked_sub(then_ns) {
            Some(since_ns) => then.checked_add(Duration::from_nanos(since_ns)),
            None => then.checked_sub(Duration::from_nanos(then_ns - now_ns)),
        }
    }

    /// Gives these limits the indices that `before` has for their names, in a generation with this number. A name that
    /// is only in `before` keeps its index and limits nothing, because callers have handles for it.
    ///
    /// The indices of `forgotten` lose their names. They stay empty in this generation, because buckets are still counted
    /// under `before`; the next reload gives them to new names. The table treats a new name at an old index like a limit
    /// that was removed and comes back.
    ///
    /// The hidden limit of a network that is only in `before`, and not forgotten, keeps its limit: its buckets stay until they
    /// are full.
    pub(crate) fn following(
        mut self,
        before: &Limits,
        number: u64,
        forgotten: &HashSet<LimitIndex>,
    ) -> Limits {
        let mut entries = Vec::with_capacity(before.count().max(self.count()));
        let mut free = Vec::new();
        for (index, old) in before.by_index() {
            if old.name.is_empty() {
                free.push(entries.len());
            }
            if old.name.is_empty() || forgotten.contains(&index) {
                entries.push(Entry::unnamed());
                continue;
            }
            let mut entry = match self.by_name.remove(&old.name) {
                Some(index) => self.take_entry(index),
                None if old.network_of.is_some() => {
                    self.word_tells_full &= old.algorithm == Some(Rule::GCRA);
                    old.clone()
                }
                None => Entry::empty(&old.name, old.format),
            };
            if entry.algorithm.is_none() && old.counts_in_flight() {
                // Handles that take permits have a type of their own. So a concurrency limit that is lifted stays one if it comes back.
                entry.algorithm = old.algorithm;
            }
            // Ends are converted to the limiter's clock anew: after a step of the system's clock an ended override may apply again.
            let is_same = entry.applies_as(old) && !entry.has_ends();
            let unchanged_since = if is_same { old.unchanged_since } else { number };
            entries.push(Entry { since: old.since, unchanged_since, ..entry });
        }
        let mut free = free.into_iter();
        for new in self.entries.drain(..).filter(|entry| !entry.name.is_empty()) {
            let new = Entry { since: number, unchanged_since: number, ..new };
            match free.next() {
                Some(at) => entries[at] = new,
                None => entries.push(new),
            }
        }
        self.with_entries(entries)
    }

    /// Returns a value for each limit. `values` has the values of the limits `before`, by index. A limit keeps its value if
    /// its index had the same name there; else it gets a new one.
    pub(crate) fn known_or_new<T: Clone>(
        &self,
        (before, values): (&Limits, &[T]),
        new: impl Fn(&Entry) -> T,
    ) -> Arc<[T]> {
        let value = |(index, entry): (LimitIndex, &Entry)| {
            let known = values.get(index.0 as usize);
            let known = known.filter(|_| before.entry(index).name == entry.name);
            known.cloned().unwrap_or_else(|| new(entry))
        };
        self.by_index().map(value).collect()
    }

    /// Takes an entry and leaves one without a name.
    pub(super) fn take_entry(&mut self, index: LimitIndex) -> Entry {
        std::mem::replace(&mut self.entries[index.0 as usize], Entry::unnamed())
    }

    /// Replaces the entries. An entry without a name only fills its index: no look-up finds it by name.
    pub(super) fn with_entries(mut self, entries: Vec<Entry>) -> Limits {
        let named = entries.iter().enumerate().filter(|(_, entry)| !entry.name.is_empty());
        self.by_name = named.map(|(at, entry)| (entry.name.clone(), LimitIndex::new(at))).collect();
        self.entries = entries;
        self
    }

    /// Whether both have the same store and the same limits, with the same options, comments and lines of files.
    pub(crate) fn is_same_as(&self, other: &Limits) -> bool {
        if self.store != other.store {
            return false;
        }
        // A name without a default and overrides makes no difference, so one set may have it and the other not.
        let has_all_of = |these: &Limits, those: &Limits| {
            let mut given = those.by_index().filter(|(_, entry)| entry.is_given());
            given.all(|(index, entry)| {
                let same = these.entry(index);
                same.is_given() && entry.is_same_as(same)
            })
        };
        has_all_of(self, other) && has_all_of(other, self)
    }

    /// Returns all limits, including those that limit nothing.
    pub(crate) fn by_index(&self) -> impl Iterator<Item = (LimitIndex, &Entry)> {
        self.entries.iter().enumerate().map(|(at, entry)| (LimitIndex::new(at), entry))
    }

    /// Returns all overrides but those of networks, including those that have ended and those without a limit.
    pub(crate) fn overrides_by_id(&self) -> impl Iterator<Item = OverrideById<'_>> {
        self.by_index().flat_map(|(limit, entry)| {
            let is_id = |id: &OwnedId| !format::is_network(entry.format, id.as_bytes());
            let of_ids = entry.overrides.iter().filter(move |(id, _)| is_id(id));
            of_ids.map(move |(id, given)| {
                let is_of_account = format::is_account(entry.format, id.as_bytes());
                OverrideById {
                    limit,
                    format: entry.format,
                    id: id.as_bytes(),
                    is_of_account,
                    tag: entry.tag_of(given.terms, !is_of_account),
                }
            })
        })
    }
}

impl Entry {
    /// Returns the default, or the limit of some override.
    pub(crate) fn any_limit(&self) -> Option<&Limit> {
        self.default.as_ref().or_else(|| self.terms.iter().find_map(|terms| terms.limit.as_ref()))
    }

    /// Whether both apply the same limits to every id, with the same floors, comments and owners, from the same lines of files.
    fn is_same_as(&self, other: &Entry) -> bool {
        let is_same_line = |(id, given): (&OwnedId, &Override)| {
            other.overrides.get(id).is_some_and(|others| given.line == others.line)
        };
        self.applies_as(other)
            && self.options.floors == other.options.floors
            && self.location == other.location
            && self.notes == other.notes
            && self.overrides.iter().all(is_same_line)
    }

    /// Whether an override has an end.
    fn has_ends(&self) -> bool {
        self.terms.iter().any(|terms| terms.expires != Expiry::NEVER)
    }

    /// Whether both apply the same limits to every id.
    fn applies_as(&self, other: &Entry) -> bool {
        let is_same = |(id, given): (&OwnedId, &Override)| {
            let others = other.overrides.get(id);
            others.is_some_and(|others| {
                let terms = self.terms.get(given.terms.0 as usize);
                terms == other.terms.get(others.terms.0 as usize)
            })
        };
        self.name == other.name
            && self.format == other.format
            && self.default == other.default
            && self.options.charge_as(&other.options)
            && self.overrides.len() == other.overrides.len()
            && self.overrides.iter().all(is_same)
    }
}
