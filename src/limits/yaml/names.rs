//! The names of limits as a load knows them, and suggestions for those that it does not.

use std::collections::{HashMap, HashSet};

use crate::limits::{LimitsBuilder, names};
use crate::store::key::LimitIndex;

/// A limit that is declared or Boulder's.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) index: LimitIndex,
    /// Whether ids of its overrides in reserved address blocks are refused.
    pub(super) public_only: bool,
}

/// What is known of a name.
pub(super) enum Lookup {
    Known(Known),
    /// Not declared, and that is reported elsewhere.
    Faulty,
    Unknown,
}

pub(super) struct Names {
    known: HashMap<Box<str>, Known, ahash::RandomState>,
    /// Names whose declaration was faulty: their overrides are not at fault.
    faulty: HashSet<Box<str>>,
    /// Whether declarations may be missing, because a file was not read to its end.
    is_incomplete: bool,
    /// How many more names may be compared for suggestions.
    comparisons_left: usize,
}

impl Names {
    /// Bounds the time that suggestions take, to some tenths of a second.
    const COMPARISONS_MAX: usize = 200_000;

    pub(super) fn new() -> Names {
        Names {
            known: HashMap::default(),
            faulty: HashSet::new(),
            is_incomplete: false,
            comparisons_left: Names::COMPARISONS_MAX,
        }
    }

    pub(super) fn add_boulders(&mut self, builder: &LimitsBuilder, public_only: bool) {
        for boulder in names::BOULDER {
            if let Ok(index) = builder.index_of(boulder.name) {
                self.known.insert(boulder.name.into(), Known { index, public_only });
            }
        }
    }

    pub(super) fn look_up(&self, name: &str) -> Lookup {
        match self.known.get(name) {
            Some(&known) => Lookup::Known(known),
            None if self.is_incomplete || self.faulty.contains(name) => Lookup::Faulty,
            None => Lookup::Unknown,
        }
    }

    pub(super) fn add(&mut self, name: &str, index: LimitIndex) {
        self.known.entry(name.into()).or_insert(Known { index, public_only: false });
    }

    pub(super) fn add_faulty(&mut self, name: &str) {
        if !self.known.contains_key(name) {
            self.faulty.insert(name.into());
        }
    }

    /// Whether any declaration was faulty.
    pub(super) fn has_faulty(&self) -> bool {
        !self.faulty.is_empty()
    }

    pub(super) fn set_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// `; did you mean ...?` for the nearest name, if one is near.
    pub(super) fn hint(&mut self, given: &str) -> String {
        let Some(left) = self.comparisons_left.checked_sub(self.known.len()) else {
            return String::new();
        };
        self.comparisons_left = left;
        // In order, so that of two equally near ones always the same is suggested.
        let mut known: Vec<&str> = self.known.keys().map(|name| &**name).collect();
        known.sort_unstable();
        hint(given, &known)
    }
}

/// `; did you mean ...?` for the nearest of the words, if one is near.
pub(super) fn hint(given: &str, words: &[&str]) -> String {
    match names::nearest(given, words.iter().copied()) {
        Some(near) => format!("; did you mean {near}?"),
        None => String::new(),
    }
}
