//! Reads one entry: a default, or an override of one or more ids.

use std::collections::HashMap;

use crate::limit::Limit;
use crate::limits::registry::{OverrideTerms, SourceLine};
use crate::limits::{IdFormat, shown};

use super::entry_options::EntryOptions;
use super::events::{Scalar, Value};
use super::faults::{Path, listed};
use super::fields::{ByField, Field, FileAlgorithm};
use super::ids::{ID_FIELDS, Target};
use super::limit::{self, EntryFault};
use super::names::{KnownLimit, NameLookup};
use super::string_ids::WrittenId;
use super::walk::{Form, Role, Walk, Walked};

/// The shape of an entry, on which its fields depend.
#[derive(Clone, Copy, PartialEq, Eq)]
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
}

impl Shape {
    /// Returns the fields that are no parameters of an algorithm.
    pub(super) fn others(self) -> &'static [Field] {
        use Field::{Algorithm, Comment, Enabled, Expires, Id, Ids, MaxDebt, Mode, Owner, Shadow};
        match self {
            Shape::Keyed => &[MaxDebt, Comment, Owner, Expires],
            Shape::Listed => &[Ids, MaxDebt, Comment, Owner, Expires],
            Shape::Either => {
                &[Ids, Id, Algorithm, Enabled, Mode, Shadow, MaxDebt, Comment, Owner, Expires]
            }
            Shape::Shadow => &[],
            Shape::ListedId => ID_FIELDS,
        }
    }

    /// Returns the names of all fields of an entry of this shape with this algorithm.
    pub(super) fn fields(self, algorithm: FileAlgorithm) -> Vec<&'static str> {
        algorithm.parameters().iter().chain(self.others()).map(|field| field.name()).collect()
    }
}

/// An entry, as far as it was read.
pub(super) struct Entry<'e> {
    pub(super) name: &'e str,
    pub(super) line: u64,
    pub(super) shape: Shape,
    /// The line of each field that was given.
    pub(super) lines: ByField<Option<u64>>,
    /// The valid numbers: units, millionths of units, or nanoseconds.
    pub(super) values: ByField<Option<u64>>,
    pub(super) format: Option<IdFormat>,
    /// The id of a [`Shape::ListedId`], with its line.
    pub(super) id: Option<(u64, Scalar<'e>)>,
    /// Whether a key is at fault or unknown.
    pub(super) has_faulty_key: bool,
    pub(super) is_disabled: bool,
    /// The limit and the terms of its ids.
    pub(super) target: Option<Target>,
    /// Keys that are no field of this shape, at most 64. They are reported once the algorithm is known, with
    /// the fields that it allows.
    pub(super) unknown: Vec<(u64, String)>,
    pub(super) algorithm: Option<FileAlgorithm>,
    pub(super) options: EntryOptions<'e>,
}

impl<'e> Entry<'e> {
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
            unknown: Vec::new(),
            algorithm: None,
            options: EntryOptions::default(),
        }
    }

    pub(super) fn line_of(&self, field: Field) -> Option<u64> {
        self.lines[field as usize]
    }

    pub(super) fn has_any(&self, fields: &[Field]) -> bool {
        fields.iter().any(|field| self.line_of(*field).is_some())
    }

    /// Returns the algorithm that the fields of an override belong to. It is used if the limit has none yet.
    pub(super) fn algorithm_by_fields(&self) -> FileAlgorithm {
        if self.has_any(FileAlgorithm::LeakyBucket.parameters()) {
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

impl<'t> Walk<'_, 't> {
    /// Reads the entry of a key. `names_given` are the names before it in the same map, with their lines.
    pub(super) fn entry(
        &mut self,
        form: Form,
        key: &Scalar<'_>,
        line: u64,
        at: &Path<'_>,
        names_given: &mut HashMap<Box<str>, u64>,
    ) -> Walked {
        let (name, id) = match key.text.split_once(':') {
            Some((name, id)) => (name, Some(id)),
            None => (&*key.text, None),
        };
        if id.is_none() {
            if let Some(before) = names_given.get(name) {
                let message =
                    format!("the name was given before, on line {before} of the same map");
                self.fault(line, at, message);
                return self.skip_value(at);
            }
            names_given.insert(name.into(), line);
        }
        let shape = match (id, form, self.role) {
            (Some(_), ..) => Shape::Keyed,
            (None, Form::Map, Role::Limits) => Shape::Either,
            _ => Shape::Listed,
        };
        let mut entry = Entry::new(name, line, shape);
        let (value_line, value) = self.value(at)?;
        if !matches!(value, Value::Map) {
            return self.no_body(&entry, value_line, at, value);
        }
        let walked = self.fields(&mut entry, at);
        self.check_fields(&mut entry, at);
        walked?;
        match id {
            Some(id) => self.keyed(&mut entry, WrittenId::in_key(id, key), at),
            None if entry.line_of(Field::Ids).is_some() => self.listed(&mut entry, at),
            None if shape == Shape::Either => self.default(&mut entry, at),
            None => {
                let message =
                    "no ids: an override has a list of them, or one in its key, as Name:id";
                self.fault(line, at, message);
                self.known_limit(name, line, at);
                self.limit(&entry, at);
            }
        }
        Ok(())
    }

    /// Reports an entry that is no map of fields.
    fn no_body(&mut self, entry: &Entry<'_>, line: u64, at: &Path<'_>, value: Value<'t>) -> Walked {
        if Field::from_name(entry.name).is_some() {
            let message = format!(
                "{} where a limit's name is allowed: is it a field to indent?",
                shown(entry.name)
            );
            self.fault(entry.line, at, message);
            return self.skip(&value);
        }
        self.known_limit(entry.name, entry.line, at);
        if entry.shape == Shape::Either {
            self.names.add_faulty(entry.name);
        }
        let parameters = FileAlgorithm::Gcra.parameters().iter();
        let fields = listed(&parameters.map(|field| field.name()).collect::<Vec<_>>());
        self.unexpected(line, at, value, &format!("a map with {fields}"))
    }

    /// Adds the override of the id in the key.
    fn keyed(&mut self, entry: &mut Entry<'_>, id: WrittenId<'_>, at: &Path<'_>) {
        let terms = self.override_terms(entry, at);
        if id.text.is_empty() {
            self.fault(entry.line, at, "no id after the colon: Name:id is allowed");
        } else if let Some(limit) = self.known_limit(entry.name, entry.line, at) {
            let terms = self.builder.add_terms(limit.index, terms);
            let note = std::mem::take(&mut entry.options.annotations.note);
            self.add_override(Target { limit, terms }, id, note, entry.line, at);
        }
    }

    /// Adds the terms of an override whose ids were read.
    fn listed(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        for field in [Field::Id, Field::Algorithm, Field::Enabled, Field::Mode, Field::Shadow] {
            if let Some(line) = entry.line_of(field) {
                let message = "not beside ids: it belongs to the limit's default";
                self.fault(line, &at.key(field.name()), message);
            }
        }
        let mut terms = self.override_terms(entry, at);
        let note = std::mem::take(&mut entry.options.annotations.note);
        terms.note = (!note.is_empty()).then(|| note.into());
        if let Some(Target { limit, .. }) = entry.target {
            for expires in entry.options.id_ends.in_order(terms.expires) {
                let terms = OverrideTerms { expires, ..terms.clone() };
                self.builder.add_new_terms(limit.index, terms);
            }
        }
    }

    /// Adds a default.
    fn default(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        for field in [Field::Comment, Field::Owner, Field::Expires] {
            if let Some(line) = entry.line_of(field) {
                let message = "not without ids: it belongs to an override";
                self.fault(line, &at.key(field.name()), message);
            }
        }
        let has_parameters =
            Field::all().any(|field| field.is_parameter() && entry.line_of(field).is_some());
        let is_bare = entry.is_disabled && !has_parameters;
        let limit = if is_bare { Some(None) } else { self.limit(entry, at) };
        let options = self.default_options(entry, limit.as_ref(), at);
        let known = self.declared(entry, at);
        if known.is_none() {
            self.names.add_faulty(entry.name);
        }
        let (Some(KnownLimit { index, .. }), Some(limit)) = (known, limit) else { return };
        if entry.is_disabled {
            self.builder.set_disabled(index);
        }
        let line = u32::try_from(entry.line).unwrap_or(u32::MAX);
        let location = SourceLine { source: self.role as u32, line };
        match self.builder.set_default(index, limit, options) {
            Ok(()) => self.builder.set_location(index, location),
            Err(message) => self.fault(entry.line, at, message),
        }
    }

    /// Returns the limit of a default: Boulder's, or one that the entry declares by the format of its ids.
    fn declared(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Option<KnownLimit> {
        let Some(format) = entry.format else {
            // A faulty format is reported already: that the name is then unknown is not another fault.
            return match entry.line_of(Field::Id) {
                None => self.known_limit(entry.name, entry.line, at),
                Some(_) => None,
            };
        };
        match self.builder.declare(entry.name, format) {
            Ok(index) => {
                self.names.add(entry.name, index);
                self.known_limit(entry.name, entry.line, at)
            }
            Err(message) => {
                // A known name has another format. Otherwise the name itself is at fault.
                let is_known = matches!(self.names.look_up(entry.name), NameLookup::Known(_));
                match entry.line_of(Field::Id).filter(|_| is_known) {
                    Some(line) => self.fault(line, &at.key(Field::Id.name()), message),
                    None => self.fault(entry.line, at, message),
                }
                None
            }
        }
    }

    /// Returns the limit of an entry's shadow. The entry's algorithm must be known.
    pub(super) fn shadow(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) -> Option<Option<Limit>> {
        let mut shadow = entry.options.shadow.take()?;
        shadow.algorithm = entry.algorithm;
        self.report_unknown(&mut shadow, at);
        self.limit(&shadow, at)
    }

    /// Returns an entry's limit: `Some(None)` if its parameters say that there is none, `None` if they are at fault.
    pub(super) fn limit(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Option<Option<Limit>> {
        match limit::make(entry, entry.algorithm?) {
            Ok(limit) => Some(limit),
            Err(faults) => {
                for fault in faults {
                    self.entry_fault(entry, at, fault);
                }
                None
            }
        }
    }

    pub(super) fn entry_fault(&mut self, entry: &Entry<'_>, at: &Path<'_>, fault: EntryFault) {
        match fault {
            EntryFault::Missing(field) => {
                let message = format!("no {}: {} is wanted", field.name(), field.allowed());
                self.fault(entry.line, at, message);
            }
            EntryFault::Invalid(fault) => {
                let line = Field::from_name(fault.field).and_then(|field| entry.line_of(field));
                let line = line.unwrap_or(entry.line);
                self.fault(line, &at.key(fault.field), fault.message);
            }
        }
    }

    /// Returns the limit of a name. An unknown name is a fault, unless its reason is reported elsewhere.
    pub(super) fn known_limit(
        &mut self,
        name: &str,
        line: u64,
        at: &Path<'_>,
    ) -> Option<KnownLimit> {
        match self.names.look_up(name) {
            NameLookup::Known(known) => Some(known),
            NameLookup::Faulty => None,
            NameLookup::Unknown => {
                let hint = self.names.hint(name);
                let message = format!(
                    "unknown limit {}{hint}; a custom limit is declared before its overrides, with the format of its ids, such as id: ipAddress",
                    shown(name)
                );
                self.fault(line, at, message);
                None
            }
        }
    }
}
