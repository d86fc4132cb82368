//! One entry: a default, or an override of one id or several.

use std::collections::HashMap;

use crate::Limit;
use crate::limits::IdFormat;

use super::duration;
use super::events::Scalar;
use super::faults::{Given, Path, listed};
use super::field::{self, Field, unknown_field};
use super::ids::Target;
use super::names::{Known, Lookup};
use super::walk::{Form, Role, Value, Walk, Walked, given};

/// Which fields an entry may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `Name:id`, an override of one id.
    Keyed,
    /// An override that names its `ids`: in the list form, and everywhere in the overrides' file.
    Listed,
    /// A default, or an override with `ids`.
    Either,
}

impl Shape {
    fn fields(self) -> &'static [&'static str] {
        match self {
            Shape::Keyed => &Field::NAMES[..3],
            Shape::Listed => &Field::NAMES[..4],
            Shape::Either => &Field::NAMES,
        }
    }
}

/// What was read of an entry.
struct Entry<'e> {
    name: &'e str,
    line: u64,
    shape: Shape,
    /// The line of each field that was given.
    lines: [Option<u64>; Field::ALL.len()],
    /// `burst`, `count` and `period` in ns, of those that are in order.
    numbers: [Option<u64>; Field::NUMBERS.len()],
    format: Option<IdFormat>,
    /// What its ids point to.
    target: Option<Target>,
    /// Fields of other algorithms: faults, unless the algorithm itself is refused.
    later_fields: Vec<(u64, String)>,
    is_later_algorithm: bool,
}

impl<'e> Entry<'e> {
    fn new(name: &'e str, line: u64, shape: Shape) -> Entry<'e> {
        Entry {
            name,
            line,
            shape,
            lines: Default::default(),
            numbers: Default::default(),
            format: None,
            target: None,
            later_fields: Vec::new(),
            is_later_algorithm: false,
        }
    }

    fn line_of(&self, field: Field) -> Option<u64> {
        self.lines[field as usize]
    }
}

impl<'t> Walk<'_, 't> {
    /// The entry of a key that was read. `names_given` are the names before it in the same map.
    pub(super) fn entry(
        &mut self,
        form: Form,
        key: &str,
        line: u64,
        at: &Path<'_>,
        names_given: &mut HashMap<Box<str>, u64>,
    ) -> Walked {
        let (name, id) = match key.split_once(':') {
            Some((name, id)) => (name, Some(id)),
            None => (key, None),
        };
        if id.is_none() {
            if let Some(before) = names_given.get(name) {
                let message =
                    format!("the name was given before, on line {before} of the same map");
                self.fault(Some(line), at, message);
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
        self.fields(&mut entry, at)?;
        match id {
            Some(id) => self.keyed(&entry, id, at),
            None if entry.line_of(Field::Ids).is_some() => self.listed(&entry, at),
            None if shape == Shape::Either => self.default(&entry, at),
            None => {
                let message =
                    "no ids: an override has a list of them, or one in its key, as Name:id";
                self.fault(Some(line), at, message);
                self.known(name, line, at);
                self.limit(&entry, at);
            }
        }
        Ok(())
    }

    /// An entry without a map of fields.
    fn no_body(&mut self, entry: &Entry<'_>, line: u64, at: &Path<'_>, value: Value<'t>) -> Walked {
        if Field::NAMES.contains(&entry.name) {
            let message = format!(
                "{} where a limit's name is allowed: is it a field to indent?",
                Given(entry.name)
            );
            self.fault(Some(entry.line), at, message);
            return self.skip(&value);
        }
        self.known(entry.name, entry.line, at);
        if entry.shape == Shape::Either {
            self.names.add_faulty(entry.name);
        }
        let fields = listed(&entry.shape.fields()[..3]);
        self.unexpected(line, at, value, &format!("a map with {fields}"))
    }

    /// The fields of a map whose start was read.
    fn fields(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) -> Walked {
        let allowed = entry.shape.fields();
        while let Some((line, key)) = self.key(at, "a field")? {
            let Some(key) = key else {
                self.skip_value(at)?;
                continue;
            };
            let at_field = at.key(&key);
            let Some(i) = allowed.iter().position(|name| *name == key) else {
                if entry.shape == Shape::Either && field::is_later_field(&key) {
                    entry.later_fields.push((line, key.to_string()));
                } else {
                    self.fault(Some(line), &at_field, unknown_field(&key, allowed));
                }
                self.skip_value(&at_field)?;
                continue;
            };
            if let Some(before) = entry.lines[i] {
                self.fault(
                    Some(line),
                    &at_field,
                    format!("the field was given before, on line {before}"),
                );
                self.skip_value(&at_field)?;
                continue;
            }
            entry.lines[i] = Some(line);
            self.field(entry, Field::ALL[i], at, &at_field)?;
        }
        if !entry.is_later_algorithm {
            for (line, field) in &entry.later_fields {
                self.fault(Some(*line), &at.key(field), unknown_field(field, allowed));
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        entry: &mut Entry<'_>,
        field: Field,
        at: &Path<'_>,
        at_field: &Path<'_>,
    ) -> Walked {
        let (line, value) = self.value(at_field)?;
        match value {
            Value::List if field == Field::Ids => {
                let known = self.known(entry.name, entry.line, at);
                entry.target = known.map(|known| self.target(known));
                return self.ids(entry.target, line, at_field);
            }
            Value::Scalar(scalar) => {
                if let Err(reason) = read_scalar(entry, field, &scalar) {
                    self.fault(Some(line), at_field, format!("invalid {} {reason}", field.name()));
                }
            }
            other => self.unexpected(line, at_field, other, field.allowed())?,
        }
        Ok(())
    }

    /// An override of the one id in the key.
    fn keyed(&mut self, entry: &Entry<'_>, id: &str, at: &Path<'_>) {
        let limit = self.limit(entry, at).unwrap_or_else(placeholder);
        if id.is_empty() {
            self.fault(Some(entry.line), at, "no id after the colon: Name:id is allowed");
        } else if let Some(known) = self.known(entry.name, entry.line, at) {
            let numbers = self.builder.add_numbers(known.index, limit, self.role as u32);
            self.add_override(Target { known, numbers }, id, entry.line, at);
        }
    }

    /// The numbers of an override whose ids were read.
    fn listed(&mut self, entry: &Entry<'_>, at: &Path<'_>) {
        for field in [Field::Id, Field::Algorithm] {
            if let Some(line) = entry.line_of(field) {
                let message = "not beside ids: it belongs to the limit's default";
                self.fault(Some(line), &at.key(field.name()), message);
            }
        }
        let limit = self.limit(entry, at).unwrap_or_else(placeholder);
        if let Some(Target { known, .. }) = entry.target {
            self.builder.add_numbers_anew(known.index, limit, self.role as u32);
        }
    }

    fn default(&mut self, entry: &Entry<'_>, at: &Path<'_>) {
        let limit = self.limit(entry, at);
        let known = self.declared(entry, at);
        if known.is_none() {
            self.names.add_faulty(entry.name);
        }
        if let (Some(known), Some(limit)) = (known, limit)
            && let Err(message) = self.builder.set_default(known.index, limit)
        {
            self.fault(Some(entry.line), at, message);
        }
    }

    /// The limit that a default is for: Boulder's, or declared here by the format of its ids.
    fn declared(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Option<Known> {
        let Some(format) = entry.format else {
            // If the format is at fault, that the name is unknown without it is not another fault.
            return match entry.line_of(Field::Id) {
                None => self.known(entry.name, entry.line, at),
                Some(_) => None,
            };
        };
        match self.builder.declare(entry.name, format) {
            Ok(index) => {
                self.names.add(entry.name, index);
                self.known(entry.name, entry.line, at)
            }
            Err(message) => {
                // A name of Boulder's has a format; of any other, the name itself is at fault.
                let is_known = matches!(self.names.look_up(entry.name), Lookup::Known(_));
                match entry.line_of(Field::Id).filter(|_| is_known) {
                    Some(line) => self.fault(Some(line), &at.key(Field::Id.name()), message),
                    None => self.fault(Some(entry.line), at, message),
                }
                None
            }
        }
    }

    /// The limit of an entry's numbers, or their faults.
    fn limit(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Option<Limit> {
        for field in Field::NUMBERS {
            if entry.line_of(field).is_none() && !entry.is_later_algorithm {
                let message = format!("no {}: {} is wanted", field.name(), field.allowed());
                self.fault(Some(entry.line), at, message);
            }
        }
        let [Some(burst), Some(count), Some(period_ns)] = entry.numbers else {
            return None;
        };
        match Limit::validate(burst, count, period_ns) {
            Ok(limit) => Some(limit),
            Err(fault) => {
                let field = Field::ALL.into_iter().find(|field| field.name() == fault.field);
                let line = field.and_then(|field| entry.line_of(field)).unwrap_or(entry.line);
                self.fault(Some(line), &at.key(fault.field), fault.message);
                None
            }
        }
    }

    /// The limit of a name; else the fault, unless that is recorded elsewhere.
    fn known(&mut self, name: &str, line: u64, at: &Path<'_>) -> Option<Known> {
        match self.names.look_up(name) {
            Lookup::Known(known) => Some(known),
            Lookup::Faulty => None,
            Lookup::Unknown => {
                let hint = self.names.hint(name);
                let message = format!(
                    "unknown limit {}{hint}; a limit of one's own is declared before its overrides, with the format of its ids, such as id: ipAddress",
                    Given(name)
                );
                self.fault(Some(line), at, message);
                None
            }
        }
    }
}

/// Reads the value of a field that is not a list; else what was given and what is allowed.
fn read_scalar(entry: &mut Entry<'_>, field: Field, scalar: &Scalar<'_>) -> Result<(), String> {
    if scalar.is_null() {
        return Err(format!("null: {} is allowed", field.allowed()));
    }
    match field {
        Field::Burst | Field::Count => {
            entry.numbers[field as usize] = Some(field::whole_number(scalar, field)?);
        }
        Field::Period => {
            let period_ns = duration::parse(&scalar.text)?;
            if period_ns == 0 {
                return Err("0s: more than 0s is allowed".into());
            }
            entry.numbers[field as usize] = Some(period_ns);
        }
        Field::Id => entry.format = Some(field::id_format(&scalar.text)?),
        Field::Algorithm => {
            entry.is_later_algorithm = field::is_later_algorithm(&scalar.text);
            field::algorithm(&scalar.text)?;
        }
        Field::Ids => return Err(format!("{}: {} is allowed", given(scalar), field.allowed())),
    }
    Ok(())
}

/// Stands for numbers that are at fault, so that ids can point to something until the load fails.
fn placeholder() -> Limit {
    Limit::validate(1, 1, 1).expect("one a nanosecond is a limit")
}
