//! One entry: a default, or an override of one id or several.

use std::collections::HashMap;

use crate::limit::Limit;
use crate::limits::IdFormat;
use crate::limits::registry::Numbers;

use super::beside::Beside;
use super::duration;
use super::events::Scalar;
use super::faults::{Given, Path, listed};
use super::field;
use super::field::{Field, Named, unknown_field};
use super::ids::Target;
use super::names::{Known, Lookup};
use super::numbers;
use super::numbers::NumberFault;
use super::walk::{Form, Role, Value, Walk, Walked, given};
use super::written::Written;

/// Which fields an entry may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `Name:id`, an override of one id.
    Keyed,
    /// An override that names its `ids`: in the list form, and everywhere in the overrides' file.
    Listed,
    /// A default, or an override with `ids`.
    Either,
    /// The numbers that are tried beside a default's.
    Shadow,
}

impl Shape {
    /// The fields beside the numbers.
    fn others(self) -> &'static [Field] {
        use Field::{Algorithm, Comment, Enabled, Expires, Id, Ids, MaxDebt, Mode, Owner, Shadow};
        match self {
            Shape::Keyed => &[MaxDebt, Comment, Owner, Expires],
            Shape::Listed => &[Ids, MaxDebt, Comment, Owner, Expires],
            Shape::Either => {
                &[Ids, Id, Algorithm, Enabled, Mode, Shadow, MaxDebt, Comment, Owner, Expires]
            }
            Shape::Shadow => &[],
        }
    }

    /// All that an entry of this shape may have, if its numbers are those of `named`.
    fn fields(self, named: Named) -> Vec<&'static str> {
        named.numbers().iter().chain(self.others()).map(|field| field.name()).collect()
    }
}

/// The keys without a meaning that an entry keeps until its end.
const UNKNOWN_MAX: usize = 64;

/// What was read of an entry.
pub(super) struct Entry<'e> {
    name: &'e str,
    pub(super) line: u64,
    shape: Shape,
    /// The line of each field that was given.
    lines: [Option<u64>; Field::COUNT],
    /// The numbers that are in order, by field: units, millionths of units, or nanoseconds.
    pub(super) numbers: [Option<u64>; Field::COUNT],
    format: Option<IdFormat>,
    pub(super) is_disabled: bool,
    /// What its ids point to.
    target: Option<Target>,
    /// Keys that are no field of this shape, up to [`UNKNOWN_MAX`]: what they may be instead is known
    /// when the algorithm is.
    unknown: Vec<(u64, String)>,
    algorithm: Option<Named>,
    pub(super) beside: Beside<'e>,
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
            is_disabled: false,
            target: None,
            unknown: Vec::new(),
            algorithm: None,
            beside: Beside::default(),
        }
    }

    pub(super) fn line_of(&self, field: Field) -> Option<u64> {
        self.lines[field as usize]
    }

    pub(super) fn has_any(&self, fields: &[Field]) -> bool {
        fields.iter().any(|field| self.line_of(*field).is_some())
    }

    /// The algorithm that the fields of an override are of, where its limit has no numbers yet.
    fn algorithm_by_fields(&self) -> Named {
        if self.has_any(Named::LeakyBucket.numbers()) {
            return Named::LeakyBucket;
        }
        if !self.has_any(Named::FixedWindow.numbers()) {
            return Named::Gcra;
        }
        let has_burst = self.line_of(Field::Burst).is_some();
        if has_burst { Named::TokenBucket } else { Named::FixedWindow }
    }
}

impl<'t> Walk<'_, 't> {
    /// The entry of a key that was read. `names_given` are the names before it in the same map.
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
        let walked = self.fields(&mut entry, at);
        self.check_fields(&mut entry, at);
        walked?;
        match id {
            Some(id) => self.keyed(&mut entry, Written::in_key(id, key), at),
            None if entry.line_of(Field::Ids).is_some() => self.listed(&mut entry, at),
            None if shape == Shape::Either => self.default(&mut entry, at),
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
        if Field::of_name(entry.name).is_some() {
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
        let fields =
            listed(&Named::Gcra.numbers().iter().map(|field| field.name()).collect::<Vec<_>>());
        self.unexpected(line, at, value, &format!("a map with {fields}"))
    }

    /// The fields of a map whose start was read.
    fn fields(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) -> Walked {
        while let Some((line, key)) = self.key(at, "a field")? {
            let Some(key) = key else {
                self.skip_value(at)?;
                continue;
            };
            let key = key.text;
            let at_field = at.key(&key);
            let known = Field::of_name(&key);
            let Some(field) =
                known.filter(|field| field.is_number() || entry.shape.others().contains(field))
            else {
                if entry.unknown.len() >= UNKNOWN_MAX {
                    // Now, so that a file of nothing else ends with its faults.
                    let named = entry.algorithm.unwrap_or(Named::Gcra);
                    let message = unknown_field(&key, &entry.shape.fields(named));
                    self.fault(Some(line), &at_field, message);
                } else {
                    entry.unknown.push((line, key.to_string()));
                }
                self.skip_value(&at_field)?;
                continue;
            };
            if let Some(before) = entry.line_of(field) {
                self.fault(
                    Some(line),
                    &at_field,
                    format!("the field was given before, on line {before}"),
                );
                self.skip_value(&at_field)?;
                continue;
            }
            entry.lines[field as usize] = Some(line);
            self.field(entry, field, at, &at_field)?;
        }
        Ok(())
    }

    /// Finds an entry's algorithm, and the fields that it does not have.
    fn check_fields(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        if entry.line_of(Field::Algorithm).is_none() {
            let is_default = entry.shape == Shape::Either && entry.line_of(Field::Ids).is_none();
            let known = match self.names.look_up(entry.name) {
                Lookup::Known(known) if !is_default => self.builder.entry(known.index).algorithm,
                _ => None,
            };
            entry.algorithm = Some(match known.and_then(Named::of_name) {
                Some(named) => named,
                None if is_default => Named::Gcra,
                None => entry.algorithm_by_fields(),
            });
        }
        self.check_known(entry, at);
    }

    /// Finds the fields that the entry's algorithm does not have.
    fn check_known(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        // Without an algorithm, which is a fault already, any may have been meant.
        let Some(named) = entry.algorithm else {
            let known = Field::ALL.map(Field::name);
            for (line, key) in std::mem::take(&mut entry.unknown) {
                self.fault(Some(line), &at.key(&key), unknown_field(&key, &known));
            }
            return;
        };
        let mut unknown = std::mem::take(&mut entry.unknown);
        for field in Field::ALL {
            if let Some(line) = entry.line_of(field)
                && field.is_number()
                && !named.numbers().contains(&field)
            {
                unknown.push((line, field.name().into()));
            }
        }
        if unknown.is_empty() {
            return;
        }
        let allowed = entry.shape.fields(named);
        for (line, key) in unknown {
            self.fault(Some(line), &at.key(&key), unknown_field(&key, &allowed));
        }
    }

    fn field<'e>(
        &mut self,
        entry: &mut Entry<'e>,
        field: Field,
        at: &Path<'_>,
        at_field: &Path<'_>,
    ) -> Walked {
        let (line, value) = self.value(at_field)?;
        match value {
            Value::List if field == Field::Ids => {
                let known = self.known(entry.name, entry.line, at);
                entry.target = known.map(|known| self.target(known));
                return self.ids(entry.target, &mut entry.beside.dated, line, at_field);
            }
            Value::Map if field == Field::Shadow => {
                let mut shadow = Entry::new(entry.name, line, Shape::Shadow);
                let walked = self.fields(&mut shadow, at_field);
                entry.beside.shadow = Some(Box::new(shadow));
                return walked;
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
    fn keyed(&mut self, entry: &mut Entry<'_>, id: Written<'_>, at: &Path<'_>) {
        let numbers = self.override_numbers(entry, at);
        if id.text.is_empty() {
            self.fault(Some(entry.line), at, "no id after the colon: Name:id is allowed");
        } else if let Some(known) = self.known(entry.name, entry.line, at) {
            let numbers = self.builder.add_numbers(known.index, numbers);
            let note = std::mem::take(&mut entry.beside.note);
            self.add_override(Target { known, numbers }, id, note, entry.line, at);
        }
    }

    /// The numbers of an override whose ids were read.
    fn listed(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        for field in [Field::Id, Field::Algorithm, Field::Enabled, Field::Mode, Field::Shadow] {
            if let Some(line) = entry.line_of(field) {
                let message = "not beside ids: it belongs to the limit's default";
                self.fault(Some(line), &at.key(field.name()), message);
            }
        }
        let mut numbers = self.override_numbers(entry, at);
        numbers.within.is_listed = true;
        let note = std::mem::take(&mut entry.beside.note);
        numbers.note = (!note.is_empty()).then(|| note.into());
        if let Some(Target { known, .. }) = entry.target {
            // In the order in which the ids were pointed to them.
            for expires in entry.beside.dated.in_order(numbers.expires) {
                let numbers = Numbers { expires, ..numbers.clone() };
                self.builder.add_numbers_anew(known.index, numbers);
            }
        }
    }

    fn default(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        for field in [Field::Comment, Field::Owner, Field::Expires] {
            if let Some(line) = entry.line_of(field) {
                let message = "not without ids: it belongs to an override";
                self.fault(Some(line), &at.key(field.name()), message);
            }
        }
        let is_bare = entry.is_disabled
            && !Field::ALL
                .into_iter()
                .any(|field| field.is_number() && entry.line_of(field).is_some());
        let limit = if is_bare { Some(None) } else { self.limit(entry, at) };
        let options = self.options(entry, limit.as_ref(), at);
        let known = self.declared(entry, at);
        if known.is_none() {
            self.names.add_faulty(entry.name);
        }
        let (Some(known), Some(limit)) = (known, limit) else { return };
        if entry.is_disabled {
            self.builder.set_disabled(known.index);
        }
        match self.builder.set_default(known.index, limit) {
            Ok(()) => self.set_beside(known, entry.line, options),
            Err(message) => self.fault(Some(entry.line), at, message),
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

    /// Those of the numbers that are tried, once the algorithm of the entry that has them is known.
    pub(super) fn shadow(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) -> Option<Option<Limit>> {
        let mut shadow = entry.beside.shadow.take()?;
        shadow.algorithm = entry.algorithm;
        self.check_known(&mut shadow, at);
        self.limit(&shadow, at)
    }

    /// The limit of an entry's numbers, `Some(None)` if they say that there is none; else their faults.
    pub(super) fn limit(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Option<Option<Limit>> {
        let named = entry.algorithm?;
        match numbers::limit(entry, named) {
            Ok(limit) => Some(limit),
            Err(faults) => {
                for fault in faults {
                    self.number_fault(entry, at, fault);
                }
                None
            }
        }
    }

    pub(super) fn number_fault(&mut self, entry: &Entry<'_>, at: &Path<'_>, fault: NumberFault) {
        match fault {
            NumberFault::Missing(field) => {
                let message = format!("no {}: {} is wanted", field.name(), field.allowed());
                self.fault(Some(entry.line), at, message);
            }
            NumberFault::Invalid(fault) => {
                let line = Field::of_name(fault.field).and_then(|field| entry.line_of(field));
                let line = line.unwrap_or(entry.line);
                self.fault(Some(line), &at.key(fault.field), fault.message);
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
    if scalar.is_null() && !matches!(field, Field::Comment | Field::Owner) {
        return Err(format!("null: {} is allowed", field.allowed()));
    }
    let number = match field {
        Field::Burst | Field::Count | Field::Limit => field::whole_number(scalar, field)?,
        Field::Size | Field::DripSize | Field::Max => field::decimal(scalar, field)?.millionths,
        Field::Period | Field::Window | Field::DripRate | Field::Duration | Field::MinInterval => {
            duration::parse(&scalar.text)?
        }
        Field::Id => {
            entry.format = Some(field::id_format(&scalar.text)?);
            return Ok(());
        }
        Field::Algorithm => {
            entry.algorithm = Some(field::algorithm(&scalar.text)?);
            return Ok(());
        }
        Field::Enabled => {
            entry.is_disabled = !field::switch(scalar, field)?;
            return Ok(());
        }
        Field::MaxDebt => field::whole_number_or_0(scalar, field)?,
        Field::Mode | Field::Comment | Field::Owner | Field::Expires => {
            return entry.beside.read(field, scalar);
        }
        Field::Ids | Field::Shadow => {
            return Err(format!("{}: {} is allowed", given(scalar), field.allowed()));
        }
    };
    if field == Field::Period && number == 0 {
        return Err("0s: more than 0s is allowed".into());
    }
    entry.numbers[field as usize] = Some(number);
    Ok(())
}
