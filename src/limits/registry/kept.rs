//! Limits in the places that those had under which buckets were kept in a file.

use std::borrow::Cow;

use super::{Entry, IdFormat, Limits, names, shadow};
use crate::key::LimitIndex;

/// What the name of a place ends in that no limit has: no name that is given can.
const FREE: &str = " (free)";

impl Limits {
    /// These limits, each with the index that the limit of its name has among `names`, for a fingerprint
    /// tells it. Others take the places between them, and after.
    pub(crate) fn in_places_of<'a>(mut self, names: impl Iterator<Item = &'a str>) -> Limits {
        let places: Vec<Option<LimitIndex>> = names.map(|name| self.by_name.remove(name)).collect();
        let mut is_placed = vec![false; self.entries.len()];
        places.iter().flatten().for_each(|index| is_placed[index.0 as usize] = true);
        let is_other = |&at: &usize| !is_placed[at] && !self.entries[at].name.is_empty();
        let others: Vec<usize> = (0..self.entries.len()).filter(is_other).collect();
        let mut others = others.into_iter();
        // No place is kept after the last one that is taken.
        let taken = places.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
        let mut entries: Vec<Entry> = Vec::with_capacity(taken.max(self.entries.len()));
        let nobody = || Entry::without_numbers("", IdFormat::String);
        for place in &places[..taken] {
            let found = place.map(|index| index.0 as usize).or_else(|| others.next());
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
        let names = ["gone", "b", "2 (free)", "a", "gone, too"].into_iter();
        let placed = limits(&["a", "b", "c"]).in_places_of(names).in_generation(0, None);
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
        let few = limits(&["a"]).in_places_of(["x", "y", "z", "a", "gone"].into_iter());
        let boulders = limits(&[]).count();
        assert_eq!(few.count(), 4 + boulders.saturating_sub(3), "no place after the last");
        let again = limits(&["a", "d"]).following(&few).unwrap();
        assert!(place(&again, "").is_err());
        assert_eq!(place(&again, "a").unwrap(), place(&few, "a").unwrap());
    }
}
