//! An entry of a file, as far as it was read.

use crate::limits::registry::TermsIndex;
use crate::limits::{Floor, IdFormat};

use super::entry_options::EntryOptions;
use super::fields::{ByField, Field, FileAlgorithm, Parameter};
use super::names::KnownLimit;
use super::node::Scalar;

/// The limit and the terms that ids are added to.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) limit: KnownLimit,
    pub(super) terms: TermsIndex,
}

/// The fields of an id's map.
pub(super) const ID_FIELDS: &[Field] = &[Field::Id, Field::Comment, Field::Owner, Field::Expires];

/// The shape of an entry, on which its fields depend.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "serde"),
    allow(dead_code, reason = "only configurations have limits and options that stand alone")
)]
pub(super) enum Shape {
    /// `Name:id`: an override of one id.
    Keyed,
    /// An override with `ids`: in the list form, and everywhere in the file of overrides.
    Listed,
    /// A default, or an override with `ids`.
    Either,
    /// The shadow of a default.
    Shadow,
    /// An id of a list, with its annotations.
    ListedId,
    /// A limit that stands alone.
    Limit,
    /// The options of a limit, without its parameters.
    LimitOptions,
    /// The options of an override, without its parameters.
    OverrideOptions,
}

impl Shape {
    /// Returns the fields that are no parameters of an algorithm.
    pub(super) fn others(self) -> &'static [Field] {
        use Field::{
            Algorithm, Comment, Enabled, Expires, Floors, For, Fraction, Id, Ids, Lease, MaxDebt,
            MaxKeys, Mode, OnError, Owner, Shadow, Shared, Unlimited,
        };
        match self {
            Shape::Keyed => &[Unlimited, MaxDebt, Comment, Owner, Expires],
            Shape::Listed => &[Ids, Unlimited, MaxDebt, Comment, Owner, Expires],
            Shape::Either => &[
                Ids, Id, Unlimited, Algorithm, Enabled, Mode, Shadow, MaxDebt, MaxKeys, Floors,
                Shared, OnError, Fraction, For, Lease, Comment, Owner, Expires,
            ],
            Shape::Shadow => &[],
            Shape::ListedId => ID_FIELDS,
            Shape::Limit => &[Algorithm],
            Shape::LimitOptions => {
                &[Mode, Shadow, MaxDebt, MaxKeys, Floors, Shared, OnError, Fraction, For, Lease]
            }
            Shape::OverrideOptions => &[MaxDebt, Comment, Owner, Expires],
        }
    }

    /// Whether it can only be an override, or a part of one. [`Shape::Either`] may be a default.
    pub(super) fn is_only_override(self) -> bool {
        use Shape::{Keyed, Listed, ListedId, OverrideOptions};
        matches!(self, Keyed | Listed | ListedId | OverrideOptions)
    }

    pub(super) fn has_parameters(self) -> bool {
        !matches!(self, Shape::ListedId | Shape::LimitOptions | Shape::OverrideOptions)
    }

    /// Returns the names of all fields of an entry of this shape with this algorithm.
    pub(super) fn fields(self, algorithm: FileAlgorithm) -> Vec<&'static str> {
        let parameters = if self.has_parameters() { algorithm.parameters() } else { &[] };
        parameters.iter().chain(self.others()).map(|field| field.name()).collect()
    }
}

/// A default, an override, a shadow or an id of a list, as far as it was read.
pub(super) struct Entry<'e> {
    pub(super) name: &'e str,
    pub(super) line: u64,
    pub(super) shape: Shape,
    /// The line of each field that was given.
    pub(super) lines: ByField<Option<u64>>,
    /// The valid values as numbers: units, buckets, millionths, nanoseconds, or the number that stands for a word.
    pub(super) values: ByField<Option<u64>>,
    pub(super) format: Option<IdFormat>,
    /// The id of a [`Shape::ListedId`], with its line.
    pub(super) id: Option<(u64, Scalar<'e>)>,
    /// Whether a key is at fault or unknown.
    pub(super) has_faulty_key: bool,
    pub(super) is_disabled: bool,
    /// The limit and the terms of its ids.
    pub(super) target: Option<Target>,
    /// The fields that may be parameters, at most 64, in the order of the file. They are read once the algorithm is
    /// known.
    pub(super) parameters: Vec<Parameter<'e>>,
    pub(super) algorithm: Option<FileAlgorithm>,
    pub(super) options: EntryOptions,
    pub(super) shadow: Option<Box<Entry<'e>>>,
    /// The floors that were read, each with its line.
    pub(super) floors: Vec<(u64, Box<str>, Floor)>,
}

impl<'e> Entry<'e> {
    /// Returns the buckets that the limit has for itself.
    pub(super) fn max_keys(&self) -> Option<usize> {
        self.values[Field::MaxKeys as usize].map(|keys| usize::try_from(keys).unwrap_or(usize::MAX))
    }

    pub(super) fn new(name: &'e str, line: u64, shape: Shape) -> Entry<'e> {
        Entry {
            name,
            line,
            shape,
            lines: Default::default(),
            values: Default::default(),
            format: None,
            id: None,
            has_faulty_key: false,
            is_disabled: false,
            target: None,
            parameters: Vec::new(),
            algorithm: None,
            options: EntryOptions::default(),
            shadow: None,
            floors: Vec::new(),
        }
    }

    pub(super) fn line_of(&self, field: Field) -> Option<u64> {
        self.lines[field as usize]
    }

    pub(super) fn has_any(&self, fields: &[Field]) -> bool {
        fields.iter().any(|field| self.line_of(*field).is_some())
    }

    /// Whether it is a limit, and no override: its parameters are of gcra unless another algorithm is named.
    pub(super) fn is_whole_limit(&self) -> bool {
        match self.shape {
            Shape::Either => self.line_of(Field::Ids).is_none(),
            shape => shape == Shape::Limit,
        }
    }

    /// Returns the line of `unlimited`, if it is given in an override.
    pub(super) fn unlimited(&self) -> Option<u64> {
        self.line_of(Field::Unlimited).filter(|_| !self.is_whole_limit())
    }

    /// Returns the algorithm that the parameters of a default without `algorithm` belong to, if it is not gcra.
    pub(super) fn meant_algorithm(&self) -> Option<FileAlgorithm> {
        let is_gcra = self.has_any(&[Field::Algorithm, Field::Count, Field::Period]);
        let meant = self.algorithm_by_fields();
        (self.is_whole_limit() && !is_gcra && meant != FileAlgorithm::Gcra).then_some(meant)
    }

    /// Guesses the algorithm from the fields: of an override whose limit has none yet, or of a default for a hint.
    pub(super) fn algorithm_by_fields(&self) -> FileAlgorithm {
        use Field::{DripRate, DripSize, Duration, Max, MinInterval, RetryAfter, Size};
        // `max` may be of a leaky bucket, which it does not limit by itself.
        let is_leaky = self.has_any(&[Size, DripRate, DripSize, Duration, MinInterval]);
        if self.line_of(RetryAfter).is_some() || (self.line_of(Max).is_some() && !is_leaky) {
            FileAlgorithm::Concurrency
        } else if is_leaky {
            FileAlgorithm::LeakyBucket
        } else if !self.has_any(FileAlgorithm::FixedWindow.parameters()) {
            FileAlgorithm::Gcra
        } else if self.line_of(Field::Burst).is_some() {
            FileAlgorithm::TokenBucket
        } else {
            FileAlgorithm::FixedWindow
        }
    }
}
