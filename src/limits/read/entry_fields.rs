//! Reads the map of fields of an entry, of a shadow, or of an id in a list.

use crate::error::Error;

use super::custom::CustomAlgorithms;
use super::entry::{Entry, Shape, Target};
use super::faults::{Path, on_line};
use super::fields::{self, Field, MODES, named, unknown_name};
use super::node::{Scalar, Value, shown_scalar};
use super::sharing;
use super::walk::{Walk, Walked};

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
            let at_field = at.key(&key.text);
            let field = Field::from_name(&key.text);
            let Some(field) = field.filter(|field| entry.shape.others().contains(field)) else {
                self.parameter(entry, line, key.text, at)?;
                continue;
            };
            if let Some(before) = entry.line_of(field) {
                self.given_twice(line, &at_field, before)?;
                continue;
            }
            entry.lines[field as usize] = Some(line);
            self.field(entry, field, at, &at_field)?;
        }
        Ok(())
    }

    /// Reports a field that was given before, on the line `before`, and skips its value.
    pub(super) fn given_twice(&mut self, line: u64, at: &Path<'_>, before: u64) -> Walked {
        let message = format!("the field was given before{}", on_line(before));
        self.fault(line, at, message);
        self.skip_value(at)
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
            Value::Map if field == Field::Floors => return self.floors(entry, at_field),
            Value::Scalar(scalar) => {
                let read = read_scalar(entry, field, &scalar, self.names.algorithms());
                if let Err(reason) = read {
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
fn read_scalar(
    entry: &mut Entry<'_>,
    field: Field,
    scalar: &Scalar<'_>,
    algorithms: &CustomAlgorithms,
) -> Result<(), String> {
    if scalar.is_null() && !matches!(field, Field::Comment | Field::Owner) {
        return Err(format!("null: {} is allowed", field.allowed()));
    }
    match field {
        Field::Id => {
            entry.format = Some(scalar.text.parse().map_err(|why: Error| why.to_string())?);
        }
        Field::Algorithm => {
            let unknown = || unknown_name(&scalar.text, &algorithms.allowed());
            entry.algorithm = Some(algorithms.find(&scalar.text).ok_or_else(unknown)?);
        }
        Field::Enabled => entry.is_disabled = !fields::boolean(scalar, field.allowed())?,
        Field::Unlimited => {
            if !fields::boolean(scalar, field.allowed())? {
                return Err("false: true is allowed; for a limit, write its parameters in place of unlimited".into());
            }
        }
        Field::MaxDebt => {
            let units = fields::whole_number_or_0(scalar, field.allowed())?;
            entry.values[field as usize] = Some(units);
        }
        Field::MaxKeys => {
            let keys = fields::whole_number(scalar, field)?;
            entry.values[field as usize] = Some(keys);
        }
        Field::Mode => entry.options.mode = named(&scalar.text, MODES)?,
        Field::Shared | Field::OnError | Field::Fraction | Field::For | Field::Lease => {
            entry.values[field as usize] = Some(sharing::read(field, scalar)?);
        }
        Field::Comment | Field::Owner | Field::Expires => {
            return entry.options.annotations.read(field, scalar);
        }
        // A list or a map is wanted. (Parameters do not come here: their algorithm may be unknown still.)
        _ => return Err(format!("{}: {} is allowed", shown_scalar(scalar), field.allowed())),
    }
    Ok(())
}
