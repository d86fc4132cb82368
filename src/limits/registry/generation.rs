//! What a reload makes of limits: the indices and notes of one generation, and those of the next.

use super::{Entry, Limits, NumbersIndex, Override};
use crate::Limit;
use crate::error::{Error, ErrorKind};
use crate::key::{LimitIndex, Meta, Stamp};
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

impl Limits {
    /// These limits as those of a generation.
    pub(crate) fn in_generation(mut self, number: u64) -> Limits {
        for (at, entry) in self.entries.iter_mut().enumerate() {
            entry.stamp = Stamp::new(LimitIndex::of(at), number);
        }
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
        let by_name = entries.iter().enumerate();
        self.by_name =
            by_name.map(|(at, entry)| (entry.name.clone(), LimitIndex::of(at))).collect();
        self.entries = entries;
        Ok(self)
    }

    /// Whether both give every id the same numbers.
    pub(crate) fn is_same_as(&self, other: &Limits) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(a, b)| a.is_same_as(b))
    }

    /// All limits, those without numbers included.
    pub(crate) fn by_index(&self) -> impl Iterator<Item = (LimitIndex, &Entry)> {
        self.entries.iter().enumerate().map(|(at, entry)| (LimitIndex::of(at), entry))
    }

    /// The note of a limit's default numbers, if it has any.
    pub(crate) fn default_meta(&self, index: LimitIndex) -> Option<Meta> {
        let entry = self.entries.get(index.0 as usize)?;
        entry.default.as_ref().map(|_| entry.stamp.meta(0))
    }

    /// The numbers that a note says, if it is of these limits.
    pub(crate) fn numbers_at(&self, noted: Meta) -> Option<&Limit> {
        let entry = self.entries.get(noted.limit()?.0 as usize)?;
        entry.numbers_at(if noted.numbers() == Meta::UNSURE {
            noted.stamp().meta(0)
        } else {
            noted
        })
    }

    /// Whether some account has an override, so that an id with the default may get another by a reload.
    pub(crate) fn has_accounts(&self, index: LimitIndex) -> bool {
        let entry = self.entries.get(index.0 as usize);
        entry.is_some_and(|entry| !entry.accounts.ids.is_empty())
    }

    /// Whether a note is of these limits.
    pub(crate) fn has_stamp(&self, noted: Meta) -> bool {
        let entry = noted.limit().and_then(|index| self.entries.get(index.0 as usize));
        entry.is_some_and(|entry| entry.stamp == noted.stamp())
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

    /// Whether both give every id the same numbers.
    fn is_same_as(&self, other: &Entry) -> bool {
        let of = |entry: &Entry, given: &Override| {
            entry.numbers.get(given.numbers.0 as usize).map(|numbers| numbers.limit.clone())
        };
        self.name == other.name
            && self.format == other.format
            && self.default == other.default
            && self.mode() == other.mode()
            && self.overrides.len() == other.overrides.len()
            && self.overrides.iter().all(|(id, given)| {
                let others = other.overrides.get(id);
                others.is_some_and(|others| of(self, given) == of(other, others))
            })
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
