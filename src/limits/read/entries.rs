//! Adds one entry to the registry: a default, or an override of one or more ids.

use std::collections::HashMap;

use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::registry::sharing_faults;
use crate::limits::registry::{OverrideTerms, SourceLine, SourcePath, check_options};
use crate::limits::{LimitOptions, names, shown};

use super::entry::{Entry, Shape, Target};
use super::faults::{Path, listed};
use super::fields::{Field, FileAlgorithm, SHARING};
use super::limit::{self, EntryFault};
use super::names::{KnownLimit, NameLookup};
use super::node::{Scalar, Value};
use super::sharing;
use super::string_ids::WrittenId;
use super::walk::{Form, Role, Walk, Walked};

/// The message for a default of a custom limit without the field `id`.
const NO_FORMAT: &str = if cfg!(feature = "boulder") {
    "the format of the limit's ids is wanted, such as id: string, ipAddress or regId"
} else {
    "the format of the limit's ids is wanted, such as id: string, ipAddress or regId (Boulder's limits need none, with the feature boulder)"
};

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
                let message = match *before {
                    0 => "the name was given before in the same map".into(),
                    line => format!("the name was given before, on line {line} of the same map"),
                };
                self.fault(line, at, message);
                return self.skip_value(at);
            }
            names_given.insert(name.into(), line);
        }
        if name == names::STORE {
            return self.store(form, id.is_some(), line, at);
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
        use Field::{Algorithm, Enabled, Floors, Id, MaxKeys, Mode, Shadow};
        let of_default = [Id, Algorithm, Enabled, Mode, Shadow, MaxKeys, Floors];
        for field in of_default.into_iter().chain(SHARING) {
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
        if let Some(line) = entry.line_of(Field::Unlimited) {
            let message =
                "not without ids: it belongs to an override; enabled: false switches a limit off";
            self.fault(line, &at.key(Field::Unlimited.name()), message);
        }
        let has_builtin =
            Field::all().any(|field| field.is_parameter() && entry.line_of(field).is_some());
        let is_bare = entry.is_disabled && !has_builtin && entry.parameters.is_empty();
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
        let location = SourceLine { source: self.source, line };
        match self.builder.set_default(index, limit, options) {
            Ok(()) => self.builder.set_location(index, location),
            Err(message) => self.fault(entry.line, at, message),
        }
    }

    /// Returns the limit of a default: Boulder's, or one that the entry declares by the format of its ids.
    fn declared(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Option<KnownLimit> {
        let Some(format) = entry.format else {
            return match (entry.line_of(Field::Id), self.names.look_up(entry.name)) {
                (None, NameLookup::Unknown) => {
                    let hint = self.names.hint(entry.name);
                    let message = format!("no id: {NO_FORMAT}{hint}");
                    self.fault(entry.line, at, message);
                    None
                }
                (None, _) => self.known_limit(entry.name, entry.line, at),
                // A faulty format is reported already: that the name is then unknown is not another fault.
                (Some(_), _) => None,
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
    fn shadow(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) -> Option<Option<Limit>> {
        let mut shadow = entry.shadow.take()?;
        shadow.algorithm = entry.algorithm;
        self.parameters(&mut shadow, at);
        self.limit(&shadow, at)
    }

    /// Returns an entry's limit: `Some(None)` if its parameters say that there is none, `None` if they are at fault.
    pub(super) fn limit(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Option<Option<Limit>> {
        if entry.unlimited().is_some() {
            return Some(None);
        }
        let algorithm = entry.algorithm?;
        if let FileAlgorithm::Custom(place) = algorithm {
            return self.custom_limit(entry, place, at).map(Some);
        }
        match limit::make(entry, algorithm) {
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

    /// Returns the terms of an override. If its limit is at fault, they have none, and the load fails later.
    fn override_terms(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> OverrideTerms {
        let limit = self.limit(entry, at).flatten();
        let max_debt = entry.values[Field::MaxDebt as usize];
        if let (Some(limit), Some(units)) = (&limit, max_debt)
            && let Err(fault) = limit.check_max_debt(units)
        {
            self.entry_fault(entry, at, EntryFault::Invalid(fault));
        }
        let expires = entry.options.annotations.expires.unwrap_or(Expiry::NEVER);
        let path = SourcePath {
            source: u16::try_from(self.source).unwrap_or(SourcePath::IN_CODE),
            is_listed: entry.line_of(Field::Ids).is_some(),
            element: self.element,
        };
        OverrideTerms { limit, expires, max_debt, note: None, path }
    }

    /// Returns the options of a default. `limit` is `None` if its limit is at fault.
    fn default_options(
        &mut self,
        entry: &mut Entry<'_>,
        limit: Option<&Option<Limit>>,
        at: &Path<'_>,
    ) -> LimitOptions {
        let at_shadow = at.key(Field::Shadow.name());
        let shadow = self.shadow(entry, &at_shadow);
        if shadow == Some(None) {
            let message = "no limit: numbers that limit are wanted";
            self.fault(entry.line_of(Field::Shadow), &at_shadow, message);
        }
        let options = LimitOptions {
            mode: entry.options.mode,
            shadow: shadow.flatten(),
            max_debt: entry.values[Field::MaxDebt as usize].unwrap_or_default(),
            max_keys: entry.max_keys(),
            floors: self.floors_of(entry, limit.and_then(Option::as_ref), at),
            sharing: sharing::given(entry),
        };
        for fault in sharing_faults(&options, limit.and_then(Option::as_ref)) {
            self.entry_fault(entry, at, EntryFault::Invalid(fault));
        }
        // A limit that is switched off may omit its parameters.
        if let Some(limit) = limit
            && !(entry.is_disabled && limit.is_none())
            && let Err(fault) = check_options(&options, limit.as_ref())
        {
            self.entry_fault(entry, at, EntryFault::Invalid(fault));
        }
        options
    }
}
