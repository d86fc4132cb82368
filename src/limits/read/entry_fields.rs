//! Reads the map of fields of an entry, of a shadow, or of an id in a list.

use crate::error::Error;

use super::duration;
use super::entry::{Entry, Shape, Target};
use super::faults::{Path, on_line};
use super::fields::{self, ALGORITHMS, Field, FileAlgorithm, MODES, named, unknown_field};
use super::names::NameLookup;
use super::node::{Scalar, Value};
use super::walk::{Walk, Walked, given};

/// The most unknown keys that an entry keeps until its end.
const UNKNOWN_MAX: usize = 64;

impl<'t> Walk<'_, 't> {
    /// Reads the fields of a map. The start of the map was read.
    pub(super) fn fields<'e>(&mut self, entry: &mut Entry<'e>, at: &Path<'_>) -> Walked
    where
        't: 'e,
    {
        while let Some((line, key)) = self.key(at, "a field")? {
            let Some(key) = key else {
                entry.has_faulty_key = true;
                self.skip_value(at)?;
                continue;
            };
            let key = key.text;
            let at_field = at.key(&key);
            let has_parameters = entry.shape.has_parameters();
            let is_known = |field: &Field| {
                (field.is_parameter() && has_parameters) || entry.shape.others().contains(field)
            };
            let Some(field) = Field::from_name(&key).filter(is_known) else {
                entry.has_faulty_key = true;
                if entry.shape == Shape::ListedId {
                    self.unknown_id_field(&key, line, at, &at_field)?;
                    continue;
                }
                if entry.unknown.len() >= UNKNOWN_MAX {
                    // Reported at once, so that the bound on faults ends a file of nothing else.
                    let algorithm = entry.algorithm.unwrap_or(FileAlgorithm::Gcra);
                    let message = unknown_field(&key, &entry.shape.fields(algorithm));
                    self.fault(line, &at_field, message);
                } else {
                    entry.unknown.push((line, key.to_string()));
                }
                self.skip_value(&at_field)?;
                continue;
            };
            if let Some(before) = entry.line_of(field) {
                let message = format!("the field was given before{}", on_line(before));
                self.fault(line, &at_field, message);
                self.skip_value(&at_field)?;
                continue;
            }
            entry.lines[field as usize] = Some(line);
            self.field(entry, field, at, &at_field)?;
        }
        Ok(())
    }

    /// Sets an entry's algorithm, and reports the fields that the algorithm does not have.
    pub(super) fn check_fields(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        if entry.line_of(Field::Algorithm).is_none() {
            let is_default = entry.is_default();
            let known = match self.names.look_up(entry.name) {
                NameLookup::Known(known) if !is_default => {
                    self.builder.entry(known.index).algorithm
                }
                _ => None,
            };
            entry.algorithm = Some(match known.and_then(FileAlgorithm::from_name) {
                Some(algorithm) => algorithm,
                None if is_default => FileAlgorithm::Gcra,
                None => entry.algorithm_by_fields(),
            });
        }
        self.report_unknown(entry, at);
    }

    /// Reports the fields that the entry's algorithm does not have.
    pub(super) fn report_unknown(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        let mut unknown = std::mem::take(&mut entry.unknown);
        if let Some(algorithm) = entry.algorithm {
            let is_other = |field: &Field| !algorithm.parameters().contains(field);
            for field in Field::all().filter(|field| field.is_parameter()).filter(is_other) {
                let line = entry.line_of(field);
                unknown.extend(line.map(|line| (line, field.name().into())));
            }
        }
        if unknown.is_empty() {
            return;
        }
        let allowed = match entry.algorithm {
            Some(algorithm) => entry.shape.fields(algorithm),
            // A faulty algorithm is reported already. Any field may have been meant.
            None => Field::all().map(Field::name).collect(),
        };
        let meant = entry.meant_algorithm();
        for (line, key) in unknown {
            let mut message = unknown_field(&key, &allowed);
            let field = Field::from_name(&key);
            if let Some(meant) = meant
                && field.is_some_and(|field| meant.parameters().contains(&field))
            {
                message += &format!("; did you mean algorithm: {}?", meant.name());
            }
            self.fault(line, &at.key(&key), message);
        }
        if meant.is_some() {
            // The parameters of gcra are not missing.
            entry.algorithm = None;
        }
    }

    /// Reads the value of a field.
    fn field<'e>(
        &mut self,
        entry: &mut Entry<'e>,
        field: Field,
        at: &Path<'_>,
        at_field: &Path<'_>,
    ) -> Walked
    where
        't: 'e,
    {
        let (line, value) = self.value(at_field)?;
        let is_id = field == Field::Id && entry.shape == Shape::ListedId;
        match value {
            Value::Scalar(scalar) if is_id => entry.id = Some((line, scalar)),
            Value::List if field == Field::Ids => {
                let known = self.known_limit(entry.name, entry.line, at);
                // The ids point to the terms that the rest of the entry gives.
                entry.target = known
                    .map(|limit| Target { limit, terms: self.builder.next_terms(limit.index) });
                return self.ids(entry.target, &mut entry.options.id_ends, line, at_field);
            }
            Value::Map if field == Field::Shadow => {
                let shape = match entry.shape {
                    Shape::LimitOptions => Shape::Limit,
                    _ => Shape::Shadow,
                };
                let mut shadow = Entry::new(entry.name, line, shape);
                let walked = self.fields(&mut shadow, at_field);
                entry.shadow = Some(Box::new(shadow));
                return walked;
            }
            Value::Scalar(scalar) => {
                if let Err(reason) = read_scalar(entry, field, &scalar) {
                    self.fault(line, at_field, format!("invalid {} {reason}", field.name()));
                }
            }
            other => {
                let wanted = if is_id { "an id" } else { field.allowed() };
                self.unexpected(line, at_field, other, wanted)?;
            }
        }
        Ok(())
    }
}

/// Reads a field whose value is a scalar. An error says what was given and what is allowed.
fn read_scalar(entry: &mut Entry<'_>, field: Field, scalar: &Scalar<'_>) -> Result<(), String> {
    if scalar.is_null() && !matches!(field, Field::Comment | Field::Owner) {
        return Err(format!("null: {} is allowed", field.allowed()));
    }
    let number = match field {
        Field::Burst | Field::Count | Field::Limit => fields::whole_number(scalar, field)?,
        Field::Size | Field::DripSize | Field::Max => fields::decimal(scalar, field)?.millionths,
        Field::Period | Field::Window | Field::DripRate | Field::Duration | Field::MinInterval => {
            duration::parse(&scalar.text)?
        }
        Field::Id => {
            entry.format = Some(scalar.text.parse().map_err(|why: Error| why.to_string())?);
            return Ok(());
        }
        Field::Algorithm => {
            entry.algorithm = Some(named(&scalar.text, ALGORITHMS)?);
            return Ok(());
        }
        Field::Enabled => {
            entry.is_disabled = !fields::boolean(scalar, field.allowed())?;
            return Ok(());
        }
        Field::MaxDebt => fields::whole_number_or_0(scalar, field.allowed())?,
        Field::Mode => {
            entry.options.mode = named(&scalar.text, MODES)?;
            return Ok(());
        }
        Field::Comment | Field::Owner | Field::Expires => {
            return entry.options.annotations.read(field, scalar);
        }
        Field::Ids | Field::Shadow => {
            return Err(format!("{}: {} is allowed", given(scalar), field.allowed()));
        }
    };
    if field == Field::Period && number == 0 {
        return Err("0s: more than 0s is allowed".into());
    }
    entry.values[field as usize] = Some(number);
    Ok(())
}
