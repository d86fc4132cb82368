//! Reads the parameters of an entry, once its algorithm is known: a file may name the algorithm after them.

use std::borrow::Cow;

use super::duration;
use super::entry::{Entry, Shape};
use super::faults::{Path, listed};
use super::fields::{self, Field, FileAlgorithm, Parameter, SHARING, unknown_field};
use super::names::NameLookup;
use super::node::{Scalar, Value};
use super::walk::{Walk, Walked};

/// The most parameters and unknown fields that an entry keeps until its end.
const KEPT_MAX: usize = 64;

impl<'t> Walk<'_, 't> {
    /// Keeps a field that is no other field of the entry's shape. Its key was read.
    pub(super) fn parameter<'e>(
        &mut self,
        entry: &mut Entry<'e>,
        line: u64,
        key: Cow<'t, str>,
        at: &Path<'_>,
    ) -> Walked
    where
        't: 'e,
    {
        let at_field = at.key(&key);
        let is_of_default =
            |field| matches!(field, Field::MaxKeys | Field::Floors) || SHARING.contains(&field);
        if Field::from_name(&key).is_some_and(is_of_default) && entry.shape.is_only_override() {
            let message = "not in an override: it belongs to the limit's default";
            self.fault(line, &at_field, message);
            return self.skip_value(&at_field);
        }
        let has_parameters = entry.shape.has_parameters();
        let parameter = |field: &Field| has_parameters && field.is_parameter();
        let field = Field::from_name(&key).filter(parameter);
        entry.has_faulty_key |= field.is_none();
        if entry.shape == Shape::ListedId {
            return self.unknown_id_field(&key, line, at, &at_field);
        }
        let before = entry.parameters.iter().find(|before| before.key == key);
        if let Some(before) = before.map(|before| before.line) {
            return self.given_twice(line, &at_field, before);
        }
        if entry.parameters.len() >= KEPT_MAX {
            // Reported at once, so that the bound on faults ends a file of nothing else.
            let message = format!("more than {KEPT_MAX} fields: no algorithm has so many");
            self.fault(line, &at_field, message);
            return self.skip_value(&at_field);
        }
        if let Some(field) = field {
            entry.lines[field as usize] = Some(line);
        }
        let read = self.parameter_value(&at_field);
        let (value, walked) = match read {
            Ok(value) => (value, Ok(())),
            Err(stopped) => (Err(Parameter::REFUSED), Err(stopped)),
        };
        entry.parameters.push(Parameter { line, key, field, value });
        walked
    }

    /// Reads the value of a parameter: a scalar, or what it is instead.
    fn parameter_value(&mut self, at: &Path<'_>) -> Walked<Result<Scalar<'t>, &'static str>> {
        let (_, value) = self.value(at)?;
        self.skip(&value)?;
        Ok(match value {
            Value::Scalar(scalar) => Ok(scalar),
            Value::List => Err("a list"),
            Value::Map => Err("a map"),
            _ => Err(Parameter::REFUSED),
        })
    }

    /// Sets an entry's algorithm, reads its parameters, and reports the fields that the algorithm does not have.
    pub(super) fn check_fields(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        if let Some(line) = entry.unlimited() {
            return self.check_unlimited(entry, line, at);
        }
        if entry.line_of(Field::Algorithm).is_none() {
            let is_default = entry.is_whole_limit();
            let known = match self.names.look_up(entry.name) {
                NameLookup::Known(known) if !is_default => {
                    self.builder.entry(known.index).algorithm
                }
                _ => None,
            };
            let declared = self.names.declared(entry.name).filter(|_| !is_default);
            let known = known.map(|name| (name, self.names.algorithms().find(name)));
            entry.algorithm = match (declared, known) {
                (Some(declared), _) => Some(declared),
                (None, Some((name, None))) => {
                    let text = format!(
                        "the algorithm of {} is {name:?}, which is not registered by Loader::algorithm: its overrides are made in code",
                        entry.name
                    );
                    return self.fault(entry.line, at, text);
                }
                (None, Some((_, known))) => known,
                (None, None) if is_default => Some(FileAlgorithm::Gcra),
                (None, None) => Some(entry.algorithm_by_fields()),
            };
        }
        use FileAlgorithm::{AtMost, Concurrency, Custom};
        if let Some(algorithm @ (AtMost | Concurrency | Custom(_))) = entry.algorithm
            && entry.is_whole_limit()
        {
            self.names.declare(entry.name, algorithm);
        }
        self.parameters(entry, at);
    }

    /// Reports the fields beside `unlimited`, which is on `line`, that are about a bucket. Any other field may be a parameter.
    fn check_unlimited(&mut self, entry: &Entry<'_>, line: u64, at: &Path<'_>) {
        let mut beside: Vec<&str> = entry.parameters.iter().map(|given| &*given.key).collect();
        beside.extend(entry.line_of(Field::MaxDebt).map(|_| Field::MaxDebt.name()));
        if !beside.is_empty() {
            let message = format!(
                "not beside {}: unlimited: true stands in place of parameters",
                listed(&beside)
            );
            self.fault(line, &at.key(Field::Unlimited.name()), message);
        }
    }

    /// Reads the parameters of an entry whose algorithm is set, and reports those that the algorithm does not have.
    pub(super) fn parameters(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) {
        if let Some(FileAlgorithm::Custom(_)) = entry.algorithm {
            // The function that makes the algorithm reads them.
            return;
        }
        let parameters = std::mem::take(&mut entry.parameters);
        let meant = entry.meant_algorithm();
        for Parameter { line, key, field, value } in &parameters {
            let at_field = at.key(key);
            if let Some(field) = *field {
                match value {
                    Ok(scalar) => match read(field, scalar) {
                        Ok(number) => entry.values[field as usize] = Some(number),
                        Err(reason) => {
                            let message = format!("invalid {} {reason}", field.name());
                            self.fault(*line, &at_field, message);
                        }
                    },
                    Err(Parameter::REFUSED) => {}
                    Err(kind) => {
                        let message = format!("{kind}: {} is allowed", field.allowed());
                        self.fault(*line, &at_field, message);
                    }
                }
            }
            let is_known = |algorithm: FileAlgorithm| {
                field.is_some_and(|field| algorithm.parameters().contains(&field))
            };
            // A faulty algorithm is reported already. Any field may have been meant.
            if entry.algorithm.map_or(field.is_some(), is_known) {
                continue;
            }
            let allowed = match entry.algorithm {
                Some(algorithm) => entry.shape.fields(algorithm),
                None => Field::all().map(Field::name).collect(),
            };
            let mut message = unknown_field(key, &allowed);
            if let Some(meant) = meant.filter(|meant| is_known(*meant)) {
                message += &format!("; did you mean algorithm: {}?", meant.name());
            }
            self.fault(*line, &at_field, message);
        }
        if meant.is_some() {
            // The parameters of gcra are not missing.
            entry.algorithm = None;
        }
    }
}

/// Reads a parameter of a built-in algorithm. An error says what was given and what is allowed.
fn read(field: Field, scalar: &Scalar<'_>) -> Result<u64, String> {
    if scalar.is_null() {
        return Err(format!("null: {} is allowed", field.allowed()));
    }
    match field {
        Field::Burst | Field::Count | Field::Limit => fields::whole_number(scalar, field),
        Field::Size | Field::DripSize | Field::Max => {
            Ok(fields::decimal(scalar, field)?.millionths)
        }
        _ => match duration::parse(&scalar.text)? {
            0 if field == Field::Period => Err("0s: more than 0s is allowed".into()),
            ns => Ok(ns),
        },
    }
}
