//! The names of limits that a load knows, and suggestions for unknown names.

use std::collections::{HashMap, HashSet};

use crate::limits::{LimitsBuilder, names};
use crate::store::key::LimitIndex;

use super::custom::CustomAlgorithms;
use super::fields::FileAlgorithm;

/// A limit that is declared or Boulder's.
#[derive(Clone, Copy)]
pub(super) struct KnownLimit {
    pub(super) index: LimitIndex,
    /// Whether its overrides may not have ids in reserved address blocks.
    pub(super) public_only: bool,
}

/// The result of looking a name up.
pub(super) enum NameLookup {
    Known(KnownLimit),
    /// The name is not declared, because of a fault that is reported elsewhere.
    Faulty,
    Unknown,
}

/// The options of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadOptions {
    /// Whether overrides of Boulder's limits may have ids in reserved address blocks.
    pub(crate) allow_reserved: bool,
    pub(crate) algorithms: CustomAlgorithms,
}

pub(crate) struct Names {
    algorithms: CustomAlgorithms,
    known: HashMap<Box<str>, KnownLimit>,
    /// The custom algorithms that defaults name, and at_most: a default that is switched off or at fault sets none in the registry.
    declared: HashMap<Box<str>, FileAlgorithm>,
    /// Names with a faulty declaration. Their overrides are not at fault.
    faulty: HashSet<Box<str>>,
    /// Whether declarations may be missing, because a file was not read to its end.
    is_incomplete: bool,
    /// The number of names that may still be compared for suggestions.
    comparisons_left: usize,
}

impl Names {
    /// Bounds the time of all suggestions to some tenths of a second.
    const COMPARISONS_MAX: usize = 200_000;

    /// Returns Boulder's names, and those of the limits that the builder has.
    pub(crate) fn new(builder: &LimitsBuilder, options: &ReadOptions) -> Names {
        let public_only = !options.allow_reserved;
        let boulders = names::BOULDER.iter().filter_map(|(name, _)| {
            let index = builder.index_of(name)?;
            Some(((*name).into(), KnownLimit { index, public_only }))
        });
        let given = |(name, index): (&str, LimitIndex)| {
            (name.into(), KnownLimit { index, public_only: false })
        };
        Names {
            algorithms: options.algorithms.clone(),
            known: builder.given().map(given).chain(boulders).collect(),
            declared: HashMap::default(),
            faulty: HashSet::new(),
            is_incomplete: false,
            comparisons_left: Names::COMPARISONS_MAX,
        }
    }

    pub(super) fn algorithms(&self) -> &CustomAlgorithms {
        &self.algorithms
    }

    /// Notes the algorithm that a default names, if it is a custom one or at_most, which is gcra to all others.
    pub(super) fn declare(&mut self, name: &str, algorithm: FileAlgorithm) {
        self.declared.insert(name.into(), algorithm);
    }

    /// Returns the algorithm that [`declare`](Names::declare) has noted.
    pub(super) fn declared(&self, name: &str) -> Option<FileAlgorithm> {
        self.declared.get(name).copied()
    }

    pub(super) fn look_up(&self, name: &str) -> NameLookup {
        match self.known.get(name) {
            Some(&known) => NameLookup::Known(known),
            None if self.is_incomplete || self.faulty.contains(name) => NameLookup::Faulty,
            None => NameLookup::Unknown,
        }
    }

    pub(crate) fn add(&mut self, name: &str, index: LimitIndex) {
        self.known.entry(name.into()).or_insert(KnownLimit { index, public_only: false });
    }

    pub(super) fn add_faulty(&mut self, name: &str) {
        if !self.known.contains_key(name) {
            self.faulty.insert(name.into());
        }
    }

    /// Whether any declaration was faulty.
    #[cfg(feature = "yaml")]
    pub(crate) fn has_faulty(&self) -> bool {
        !self.faulty.is_empty()
    }

    pub(crate) fn set_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// Returns `; did you mean ...?` with the nearest name, or nothing if none is near.
    pub(super) fn hint(&mut self, given: &str) -> String {
        let Some(left) = self.comparisons_left.checked_sub(self.known.len()) else {
            return String::new();
        };
        self.comparisons_left = left;
        names::hint(given, self.known.keys().map(|name| &**name))
    }
}
