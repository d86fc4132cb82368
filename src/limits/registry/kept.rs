//! Limits in the places that those had under which buckets were kept in a file.

use super::{Entry, IdFormat, Limits, shadow};
use crate::key::LimitIndex;

impl Limits {
    /// These limits, each with the index that the limit of its name has among `names`, for a fingerprint
    /// tells it. Others take the places between them, and after.
    pub(crate) fn in_places_of(mut self, names: &[Box<str>]) -> Limits {
        let mut kept: Vec<Option<Entry>> = vec![None; names.len()];
        for (place, name) in kept.iter_mut().zip(names) {
            let Some(index) = self.by_name.remove(name) else { continue };
            let entry = &mut self.entries[index.0 as usize];
            let nobody = Entry::without_numbers("", entry.format);
            *place = Some(std::mem::replace(entry, nobody));
        }
        let mut others = self.entries.drain(..).filter(|entry| !entry.name.is_empty());
        let mut entries: Vec<Entry> = Vec::with_capacity(kept.len());
        for place in kept {
            let entry = place.or_else(|| others.next());
            entries.push(entry.unwrap_or_else(|| Entry::without_numbers("", IdFormat::String)));
        }
        entries.extend(others);
        while entries.last().is_some_and(|entry| entry.name.is_empty()) {
            entries.pop();
        }
        self.with_entries(entries)
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
    use crate::Limit;
    use crate::limits::BEFORE_ALL_ENDS_NS;

    #[test]
    fn each_limit_has_the_place_of_its_name() {
        let limits = |names: &[&str]| {
            let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
            let add = |builder: crate::LimitsBuilder, name: &&str| {
                builder.limit(name, IdFormat::String, limit.clone()).unwrap()
            };
            names.iter().fold(Limits::builder(), add).build()
        };
        let place = |limits: &Limits, name: &str| limits.index_of(name).map(|index| index.0);
        let names = ["gone", "b", "", "a", "gone, too"].map(Box::from);
        let placed = limits(&["a", "b", "c"]).in_places_of(&names).in_generation(0, None);
        assert_eq!((place(&placed, "b").unwrap(), place(&placed, "a").unwrap()), (1, 3));
        assert!(place(&placed, "").is_err() && place(&placed, "gone").is_err());
        let given: Vec<&str> = placed.names().collect();
        assert_eq!(given.len(), 3);
        for name in ["a", "b", "c"] {
            let index = placed.index_of(name).unwrap();
            let numbers = placed.entry(index).numbers_of(b"x", BEFORE_ALL_ENDS_NS);
            assert_eq!(numbers.map(|(_, meta)| meta.limit()), Some(Some(index)), "{name}");
        }
        // Places that nobody takes are found by no name, after a reload either.
        let few = limits(&["a"]).in_places_of(&["", "", "x", "a"].map(Box::from));
        let again = limits(&["a", "d"]).following(&few).unwrap();
        assert!(place(&again, "").is_err());
        assert_eq!(place(&again, "a").unwrap(), place(&few, "a").unwrap());
    }
}
