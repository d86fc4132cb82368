//! What a reload makes of limits: the indices and notes of one generation, and those of the next.

use std::time::SystemTime;

use super::{Entry, Limits, NumbersIndex};
use crate::Limit;
use crate::error::{Error, ErrorKind};
use crate::key::{KeyRef, LimitIndex, Meta, OwnedId, Stamp};
use crate::limits::expiry::Expiry;
use crate::limits::format;

/// The account's part of a composite id.
const ACCOUNT_BYTES: usize = size_of::<u64>();

/// The accounts that have an override: the last of an entry's numbers are theirs, each account's its own,
/// so that what a reload makes of them can be told without an id.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    /// The place of the first one's among the numbers.
    first: usize,
    ids: Vec<[u8; ACCOUNT_BYTES]>,
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
            entry.stamp = Stamp::new(LimitIndex::of(at), number);
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
        self.by_name = named.map(|(at, entry)| (entry.name.clone(), LimitIndex::of(at))).collect();
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
        self.entries.iter().enumerate().map(|(at, entry)| (LimitIndex::of(at), entry))
    }

    /// Whether some account has an override, so that an id with the default may get another by a reload.
    pub(crate) fn has_accounts(&self, index: LimitIndex) -> bool {
        let entry = self.entries.get(index.0 as usize);
        entry.is_some_and(|entry| !entry.accounts.ids.is_empty())
    }

    /// Which numbers apply to a key that has none of its own, as far as that can be told without its id:
    /// by its account, if that is known.
    pub(crate) fn meta_without_id(
        &self,
        limit: LimitIndex,
        account: Option<&[u8]>,
        now_ns: u64,
    ) -> Option<Meta> {
        match account {
            Some(id) => self.meta_of(KeyRef { limit, id }, now_ns),
            None if self.has_accounts(limit) => {
                let default = self.default_meta(limit);
                default.map(|meta| meta.stamp().meta(Meta::UNSURE))
            }
            None => self.default_meta(limit),
        }
    }

    /// The account that noted numbers are for, if they are for an account.
    pub(crate) fn account_at(&self, noted: Meta) -> Option<&[u8]> {
        let entry = self.entries.get(noted.limit()?.0 as usize)?;
        let at = (noted.numbers() as usize).checked_sub(1)?.checked_sub(entry.accounts.first)?;
        entry.accounts.ids.get(at).map(|account| &account[..])
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

    /// The places of the numbers that are accounts'.
    pub(super) fn account_numbers(&self) -> std::ops::Range<usize> {
        self.accounts.first..self.accounts.first + self.accounts.ids.len()
    }

    /// Gives each account that has an override numbers of its own.
    pub(super) fn tell_accounts_apart(&mut self) {
        if !format::is_composite(self.format) {
            return;
        }
        self.accounts.first = self.numbers.len();
        for (id, given) in &mut self.overrides {
            let Ok(account) = <[u8; ACCOUNT_BYTES]>::try_from(id.as_bytes()) else { continue };
            let Some(numbers) = self.numbers.get(given.numbers.0 as usize) else { continue };
            let own = numbers.clone();
            given.numbers = NumbersIndex::of(self.numbers.len());
            self.numbers.push(own);
            self.accounts.ids.push(account);
        }
    }

    /// The ids that have an override, other than those of whole accounts, in normal form.
    pub(crate) fn overridden_ids(&self) -> impl Iterator<Item = &[u8]> {
        let is_composite = format::is_composite(self.format);
        let ids = self.overrides.keys().map(|id| id.as_bytes());
        ids.filter(move |id| !is_composite || id.len() != ACCOUNT_BYTES)
    }
}
