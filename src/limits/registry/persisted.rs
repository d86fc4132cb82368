//! Limits in the places that those had under which buckets were kept in a file.

use std::borrow::Cow;

use super::{Entry, IdFormat, Limits, names, shadow};
use crate::store::key::LimitIndex;

/// What the name of a place ends in that no limit has: no name that is given can.
const FREE: &str = " (free)";

impl Limits {
    /// These limits, each with the index that the limit of its name has among `names`, for a fingerprint
    /// tells it. A name that has none gets one without numbers, with ids of the format that `kept_format` has for its
    /// place, if it has one. Others take the places between them, and after.
    pub(crate) fn in_places_of<'a>(
        mut self,
        names: impl Iterator<Item = &'a str>,
        kept_format: impl Fn(usize) -> Option<IdFormat>,
    ) -> Limits {
        enum Place {
            Of(usize),
            Kept(Box<Entry>),
            Free,
        }
        let places: Vec<Place> = names
            .enumerate()
            .map(|(at, name)| match (self.by_name.remove(name), kept_format(at)) {
                (Some(index), _) => Place::Of(index.0 as usize),
                (None, Some(format)) => Place::Kept(Box::new(Entry::without_numbers(name, format))),
                (None, None) => Place::Free,
            })
            .collect();
        let mut is_placed = vec![false; self.entries.len()];
        for place in &places {
            if let Place::Of(index) = place {
                is_placed[*index] = true;
            }
        }
        let is_other = |&at: &usize| !is_placed[at] && !self.entries[at].name.is_empty();
        let others: Vec<usize> = (0..self.entries.len()).filter(is_other).collect();
        let mut others = others.into_iter();
        // No place is kept after the last one that is taken.
        let is_taken = |place: &Place| !matches!(place, Place::Free);
        let taken = places.iter().rposition(is_taken).map_or(0, |at| at + 1);
        let mut entries: Vec<Entry> = Vec::with_capacity(taken.max(self.entries.len()));
        let nobody = || Entry::without_numbers("", IdFormat::String);
        for place in places.into_iter().take(taken) {
            let found = match place {
                Place::Kept(entry) => {
                    entries.push(*entry);
                    continue;
                }
                Place::Of(index) => Some(index),
                Place::Free => others.next(),
            };
            let entry = found.map(|at| std::mem::replace(&mut self.entries[at], nobody()));
            entries.push(entry.unwrap_or_else(nobody));
        }
        entries.extend(others.map(|at| std::mem::replace(&mut self.entries[at], nobody())));
        self.with_entries(entries)
    }

    /// What a limit is called in a file; a place that no limit has, by its number: no two are called the same.
    pub(crate) fn name_in_file(&self, index: LimitIndex) -> Cow<'_, str> {
        match &*self.entry(index).name {
            "" => format!("{}{FREE}", index.0).into(),
            name => name.into(),
        }
    }

    /// Whether a file can have this name.
    pub(crate) fn is_name_in_file(name: &str) -> bool {
        if let Some(number) = name.strip_suffix(FREE) {
            return number.len() <= 10 && number.bytes().all(|byte| byte.is_ascii_digit());
        }
        names::is_valid_name(shadow::without_ending(name))
    }

    /// The place of a limit, of one that callers have no name for, too.
    pub(crate) fn place_of(&self, name: &str) -> Option<LimitIndex> {
        self.by_name.get(name).copied()
    }

    /// Whether callers have no name for such a limit.
    pub(crate) fn is_hidden(name: &str) -> bool {
        shadow::is_name(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Limit;
    use crate::limits::BEFORE_ALL_ENDS_NS;

    #[test]
    fn each_limit_has_the_place_of_its_name() {
        let limits = |names: &[&str]| {
            let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
            let add = |builder: crate::limits::LimitsBuilder, name: &&str| {
                builder.limit(name, IdFormat::String, limit.clone()).unwrap()
            };
            names.iter().fold(Limits::builder(), add).build()
        };
        let place = |limits: &Limits, name: &str| limits.index_of(name).map(|index| index.0);
        let names = || ["gone", "b", "2 (free)", "a", "gone, too"].into_iter();
        let placed = limits(&["a", "b", "c"]).in_places_of(names(), |_| None);
        let placed = placed.in_generation(0, None);
        assert_eq!((place(&placed, "b").unwrap(), place(&placed, "a").unwrap()), (1, 3));
        assert!(place(&placed, "").is_err() && place(&placed, "gone").is_err());
        let given: Vec<&str> = placed.names().collect();
        assert_eq!(given.len(), 3);
        for name in ["a", "b", "c"] {
            let index = placed.index_of(name).unwrap();
            let numbers = placed.entry(index).numbers_of(b"x", BEFORE_ALL_ENDS_NS);
            assert_eq!(numbers.map(|(_, tag)| tag.limit()), Some(Some(index)), "{name}");
        }
        // One that is kept has no numbers, until it is given some.
        let kept = |at| (at == 4).then_some(IdFormat::RegId);
        let placed = limits(&["a", "b", "c"]).in_places_of(names(), kept);
        assert_eq!(placed.place_of("gone, too").map(|index| index.0), Some(4));
        let entry = placed.entry(LimitIndex(4));
        assert!(entry.format == IdFormat::RegId && entry.any_numbers().is_none());
        // Places that nobody takes are found by no name, after a reload either.
        let few = limits(&["a"]).in_places_of(["x", "y", "z", "a", "gone"].into_iter(), |_| None);
        let boulders = limits(&[]).count();
        assert_eq!(few.count(), 4 + boulders.saturating_sub(3), "no place after the last");
        let again = limits(&["a", "d"]).following(&few).unwrap();
        assert!(place(&again, "").is_err());
        assert_eq!(place(&again, "a").unwrap(), place(&few, "a").unwrap());
    }
}
