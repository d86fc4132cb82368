//! What a reload makes of limits: the indices and notes of one generation, and those of the next.

use std::time::SystemTime;

use super::{Entry, Limits};
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::{IdFormat, format};
use crate::store::key::{LimitIndex, LimitTag, OwnedId, Stamp};

/// The account's part of a composite id.
const ACCOUNT_BYTES: usize = size_of::<u64>();

/// An override as a table of overrides has it.
pub(crate) struct OverrideById<'a> {
    pub(crate) limit: LimitIndex,
    pub(crate) format: IdFormat,
    /// In normal form.
    pub(crate) id: &'a [u8],
    /// Whether it stands for all ids of an account.
    pub(crate) is_of_account: bool,
    pub(crate) tag: LimitTag,
}

/// A time of the system's clock on a limiter's.
fn on_clock(expires: Expiry, (now_ns, now): (u64, SystemTime)) -> u64 {
    let Some(end) = expires.time() else { return u64::MAX };
    match end.duration_since(now) {
        Ok(left) => u64::try_from(left.as_nanos()).map_or(u64::MAX, |ns| now_ns.saturating_add(ns)),
        // Over already. No earlier than this: what was owed until now was owed by these numbers.
        Err(_) => now_ns,
    }
}

impl Limits {
    /// These limits as those of a generation, on a clock that read the first of the times when the
    /// system's read the other.
    pub(crate) fn in_generation(
        mut self,
        number: u64,
        clocks: Option<(u64, SystemTime)>,
    ) -> Limits {
        self.has_ends = false;
        for (at, entry) in self.entries.iter_mut().enumerate() {
            entry.stamp = Stamp::new(LimitIndex::new(at), number);
            entry.ends_ns.clear();
            let ends = entry.numbers.iter().any(|numbers| numbers.expires != Expiry::NEVER);
            if let Some(clocks) = clocks.filter(|_| ends) {
                let numbers = entry.numbers.iter();
                entry.ends_ns = numbers.map(|numbers| on_clock(numbers.expires, clocks)).collect();
                self.has_ends = true;
            }
        }
        // A word that is full by numbers that have ended may owe by those that apply then.
        self.is_gcra &= !self.has_ends;
        self.find_shadows();
        self
    }

    /// These limits with the indices that `before` has for their names. A limit that is gone stays, as no
    /// limit: handles for it are still about.
    pub(crate) fn following(mut self, before: &Limits) -> Result<Limits, Error> {
        let mut entries = Vec::with_capacity(before.count().max(self.count()));
        for old in &before.entries {
            let Some(index) = self.by_name.remove(&old.name) else {
                entries.push(Entry::without_numbers(&old.name, old.format));
                continue;
            };
            let new = &mut self.entries[index.0 as usize];
            if new.format != old.format {
                let text = format!(
                    "the ids of {} are {} and cannot become {} while buckets are kept by them: give the limit another name",
                    old.name, old.format, new.format
                );
                return Err(Error::new(ErrorKind::Limit, text));
            }
            entries.push(std::mem::replace(new, Entry::without_numbers("", old.format)));
        }
        entries.extend(self.entries.drain(..).filter(|entry| !entry.name.is_empty()));
        Ok(self.with_entries(entries))
    }

    /// The same with these entries, of which those without a name only take their places.
    pub(super) fn with_entries(mut self, entries: Vec<Entry>) -> Limits {
        let named = entries.iter().enumerate().filter(|(_, entry)| !entry.name.is_empty());
        self.by_name = named.map(|(at, entry)| (entry.name.clone(), LimitIndex::new(at))).collect();
        self.entries = entries;
        self
    }

    /// Whether both say the same of every id.
    pub(crate) fn is_same_as(&self, other: &Limits) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(a, b)| a.is_same_as(b))
    }

    /// All limits, those without numbers included.
    pub(crate) fn by_index(&self) -> impl Iterator<Item = (LimitIndex, &Entry)> {
        self.entries.iter().enumerate().map(|(at, entry)| (LimitIndex::new(at), entry))
    }

    /// All overrides, those that have ended and those that say that there is no limit included.
    pub(crate) fn overrides_by_id(&self) -> impl Iterator<Item = OverrideById<'_>> {
        self.by_index().flat_map(|(limit, entry)| {
            let is_composite = format::is_composite(entry.format);
            entry.overrides.iter().map(move |(id, given)| {
                let id = id.as_bytes();
                OverrideById {
                    limit,
                    format: entry.format,
                    id,
                    is_of_account: is_composite && id.len() == ACCOUNT_BYTES,
                    tag: entry.stamp.tag(given.numbers.0 + 1),
                }
            })
        })
    }
}

impl Entry {
    /// Some of the limit's numbers, if it has any.
    pub(crate) fn any_numbers(&self) -> Option<&Limit> {
        self.default.as_ref().or_else(|| self.numbers.iter().find_map(|it| it.limit.as_ref()))
    }

    /// Whether both say the same of every id, where their files do.
    fn is_same_as(&self, other: &Entry) -> bool {
        let is_same = |(id, given): (&OwnedId, &super::Override)| {
            let others = other.overrides.get(id);
            others.is_some_and(|others| {
                let numbers = self.numbers.get(given.numbers.0 as usize);
                given.line == others.line && numbers == other.numbers.get(others.numbers.0 as usize)
            })
        };
        self.name == other.name
            && self.format == other.format
            && self.default == other.default
            && self.terms == other.terms
            && self.overrides.len() == other.overrides.len()
            && self.overrides.iter().all(is_same)
    }
}
