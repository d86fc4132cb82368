//! The ids of an override, each on its way from the text to the registry.

use crate::limits::format::encode_override;
use crate::limits::registry::{GivenBefore, NumbersIndex};

use super::events::Scalar;
use super::faults::{Given, Path};
use super::field::unknown_field;
use super::names::Known;
use super::walk::{Value, Walk, Walked};

/// What ids are given to: a limit, and the numbers that are theirs.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) known: Known,
    pub(super) numbers: NumbersIndex,
}

/// The fields of an id in its map.
const FIELDS: [&str; 2] = ["id", "comment"];
const ID: usize = 0;

const ALLOWED: &str = "an id, or a map with id and comment,";

impl<'t> Walk<'_, 't> {
    /// What the ids of a list point to: the numbers that the rest of their entry gives.
    pub(super) fn target(&self, known: Known) -> Target {
        Target { known, numbers: self.builder.next_numbers(known.index) }
    }

    /// The ids of a list whose start was read.
    pub(super) fn ids(&mut self, target: Option<Target>, line: u64, at: &Path<'_>) -> Walked {
        for i in 0.. {
            let at_id = at.index(i);
            let (id_line, value) = self.value(&at_id)?;
            match value {
                Value::Scalar(scalar) => self.id(target, &scalar, id_line, &at_id),
                Value::Map => self.id_map(target, id_line, &at_id)?,
                Value::End => {
                    if i == 0 {
                        self.fault(Some(line), at, "an empty list: at least one id is wanted");
                    }
                    break;
                }
                other => self.unexpected(id_line, &at_id, other, ALLOWED)?,
            }
        }
        Ok(())
    }

    /// `{id, comment}`, whose start was read.
    fn id_map(&mut self, target: Option<Target>, line: u64, at: &Path<'_>) -> Walked {
        let mut lines = [None; FIELDS.len()];
        let mut has_faulty_key = false;
        while let Some((key_line, key)) = self.key(at, "a field")? {
            let Some(key) = key else {
                has_faulty_key = true;
                self.skip_value(at)?;
                continue;
            };
            let at_field = at.key(&key);
            let Some(i) = FIELDS.iter().position(|name| *name == key) else {
                has_faulty_key = true;
                self.unknown_id_field(&key, key_line, at, &at_field)?;
                continue;
            };
            if let Some(before) = lines[i] {
                let message = format!("the field was given before, on line {before}");
                self.fault(Some(key_line), &at_field, message);
                self.skip_value(&at_field)?;
                continue;
            }
            lines[i] = Some(key_line);
            let (value_line, value) = self.value(&at_field)?;
            match value {
                Value::Scalar(scalar) if i == ID => self.id(target, &scalar, value_line, &at_field),
                Value::Scalar(_) => {}
                other => {
                    let wanted = if i == ID { "an id" } else { "text" };
                    self.unexpected(value_line, &at_field, other, wanted)?;
                }
            }
        }
        if lines[ID].is_none() && !has_faulty_key {
            self.fault(Some(line), at, "no id: one is wanted");
        }
        Ok(())
    }

    /// A field that is none, or an id that became one by the colon at its end.
    fn unknown_id_field(
        &mut self,
        key: &str,
        line: u64,
        at: &Path<'_>,
        at_field: &Path<'_>,
    ) -> Walked {
        let (_, value) = self.value(at_field)?;
        let is_null = matches!(&value, Value::Scalar(scalar) if scalar.is_null());
        if is_null && key.contains(':') {
            let id = format!("{key}:");
            let message =
                format!("a map: an id that ends in ':' must be quoted, as {}", Given(&id));
            self.fault(Some(line), at, message);
        } else {
            self.fault(Some(line), at_field, unknown_field(key, &FIELDS));
        }
        self.skip(&value)
    }

    fn id(&mut self, target: Option<Target>, scalar: &Scalar<'_>, line: u64, at: &Path<'_>) {
        if scalar.is_null() {
            self.fault(
                Some(line),
                at,
                "null: an id is wanted; one that is spelled so must be quoted",
            );
        } else if let Some(target) = target {
            self.add_override(target, &scalar.text, line, at);
        }
    }

    /// Points an id to its numbers.
    pub(super) fn add_override(&mut self, target: Target, id: &str, line: u64, at: &Path<'_>) {
        let Known { index, is_boulders } = target.known;
        let format = self.builder.entry(index).format;
        let bytes = match encode_override(format, id, is_boulders, &mut self.scratch) {
            Ok(bytes) => bytes,
            Err(error) => return self.fault(Some(line), at, error.to_string()),
        };
        let kept_line = u32::try_from(line).unwrap_or(u32::MAX);
        if let Err(before) = self.builder.add_override(index, bytes, target.numbers, kept_line) {
            let message = format!("the id {} was given before, {}", Given(id), self.place(before));
            self.fault(Some(line), at, message);
        }
    }

    /// Where an id was given before, in words.
    fn place(&self, before: GivenBefore) -> String {
        let here = self.role as usize;
        let source = before.source.map_or(here, |source| source as usize);
        match self.files.get(source) {
            Some(file) if source != here => format!("on line {} of {file}", before.line),
            _ => format!("on line {}", before.line),
        }
    }
}
