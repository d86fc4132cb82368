//! Gives limits the indices that a snapshot's limits had, by which its buckets name them.

use std::borrow::Cow;

use super::{Entry, IdFormat, Limits, names, networks, shadow};
use crate::store::key::LimitIndex;

/// The end of the name that a snapshot has for an index without a limit. No valid name has a blank.
const FREE: &str = " (free)";

impl Limits {
    /// Gives each limit the index that its name has in `names`, the list of a snapshot: fingerprints depend on the index. A name
    /// of the list without a limit gets one that limits nothing if `kept_format` returns the format of its ids; else its index
    /// is free. Limits that the list lacks take the free indices, then new ones.
    pub(crate) fn in_places_of<'a>(
        mut self,
        names: impl Iterator<Item = &'a str>,
        kept_format: impl Fn(usize) -> Option<IdFormat>,
    ) -> Limits {
        let mut places: Vec<Option<Entry>> = names
            .enumerate()
            .map(|(at, name)| match self.by_name.remove(name) {
                Some(index) => Some(self.take_entry(index)),
                None => kept_format(at).map(|format| Entry::empty(name, format)),
            })
            .collect();
        let taken = places.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
        places.truncate(taken);
        let others = std::mem::take(&mut self.entries);
        let mut others = others.into_iter().filter(|entry| !entry.name.is_empty());
        let mut entries: Vec<Entry> = places
            .into_iter()
            .map(|place| place.or_else(|| others.next()).unwrap_or_else(Entry::unnamed))
            .collect();
        entries.extend(others);
        self.with_entries(entries)
    }

    /// Returns a limit's name in a snapshot. An index without a limit is named by its number, so that all names differ.
    pub(crate) fn name_in_file(&self, index: LimitIndex) -> Cow<'_, str> {
        match &*self.entry(index).name {
            "" => format!("{}{FREE}", index.0).into(),
            name => name.into(),
        }
    }

    /// Whether a snapshot can have this name.
    pub(crate) fn is_name_in_file(name: &str) -> bool {
        if let Some(number) = name.strip_suffix(FREE) {
            return number.len() <= 10 && number.bytes().all(|byte| byte.is_ascii_digit());
        }
        networks::is_valid_name(name) || names::is_valid_name(shadow::without_ending(name))
    }

    /// Returns the index of a name, also of a hidden one.
    pub(crate) fn place_of(&self, name: &str) -> Option<LimitIndex> {
        self.by_name.get(name).copied()
    }

    /// Whether the name is a shadow's or of a network's limit, which callers cannot use.
    pub(crate) fn is_hidden(name: &str) -> bool {
        super::is_hidden(name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
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
            let numbers = placed.entry(index).limit_for(b"x", BEFORE_ALL_ENDS_NS);
            assert_eq!(numbers.map(|(_, tag)| tag.limit()), Some(Some(index)), "{name}");
        }
        // A limit that only the snapshot has limits nothing.
        let kept = |at| (at == 4).then_some(IdFormat::RegId);
        let placed = limits(&["a", "b", "c"]).in_places_of(names(), kept);
        assert_eq!(placed.place_of("gone, too").map(|index| index.0), Some(4));
        let entry = placed.entry(LimitIndex(4));
        assert!(entry.format == IdFormat::RegId && entry.any_limit().is_none());
        // No name leads to a free index, also after a reload.
        let few = limits(&["a"]).in_places_of(["x", "y", "z", "a", "gone"].into_iter(), |_| None);
        let boulders = limits(&[]).count();
        assert_eq!(few.count(), 4 + boulders.saturating_sub(3), "no place after the last");
        let again = limits(&["a", "d"]).following(&few, 1, &HashSet::new());
        assert!(place(&again, "").is_err());
        assert_eq!(place(&again, "a").unwrap(), place(&few, "a").unwrap());
    }
}
