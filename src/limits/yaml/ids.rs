//! Reads the ids of an override and adds them to the registry.

use crate::limits::IdFormat;
use crate::limits::format::encode_override;
use crate::limits::options::Note;
use crate::limits::registry::{SourceLine, TermsIndex};
use crate::limits::shown;

use super::entry_options::{Annotations, IdEnds};
use super::events::{Scalar, Value};
use super::faults::Path;
use super::fields::{ByField, Field, unknown_field};
use super::names::KnownLimit;
use super::string_ids::WrittenId;
use super::walk::{Walk, Walked};

/// The limit and the terms that ids are added to.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) limit: KnownLimit,
    pub(super) terms: TermsIndex,
}

/// The fields of an id's map.
const FIELDS: [Field; 4] = [Field::Id, Field::Comment, Field::Owner, Field::Expires];

const ALLOWED: &str = "an id, or a map with id, comment, owner and expires,";

/// An id's map, as far as it was read.
#[derive(Default)]
struct IdMap<'t> {
    /// The line of each field that was given.
    lines: ByField<Option<u64>>,
    id: Option<(u64, Scalar<'t>)>,
    annotations: Annotations,
    has_faulty_key: bool,
}

impl<'t> Walk<'_, 't> {
    /// Reads the ids of a list. The start of the list was read. The target is `None` if the limit is unknown.
    pub(super) fn ids(
        &mut self,
        target: Option<Target>,
        ends: &mut IdEnds,
        line: u64,
        at: &Path<'_>,
    ) -> Walked {
        for i in 0.. {
            let at_id = at.index(i);
            let (id_line, value) = self.value(&at_id)?;
            match value {
                Value::Scalar(scalar) => {
                    self.listed_id(target, &scalar, Note::default(), id_line, &at_id);
                }
                Value::Map => self.id_map(target, ends, id_line, &at_id)?,
                Value::End => {
                    if i == 0 {
                        self.fault(line, at, "an empty list: at least one id is wanted");
                    }
                    break;
                }
                other => self.unexpected(id_line, &at_id, other, ALLOWED)?,
            }
        }
        Ok(())
    }

    /// Reads `{id, comment, owner, expires}`. The start of the map was read.
    fn id_map(
        &mut self,
        target: Option<Target>,
        ends: &mut IdEnds,
        line: u64,
        at: &Path<'_>,
    ) -> Walked {
        let mut map = IdMap::default();
        let walked = self.id_fields(&mut map, at);
        let has_id = map.lines[Field::Id as usize].is_some();
        if !has_id && !map.has_faulty_key && walked.is_ok() {
            self.fault(line, at, "no id: one is wanted");
        }
        if let Some((id_line, id)) = map.id {
            let Annotations { note, expires } = map.annotations;
            let target = target.map(|target| Target {
                terms: target.terms.after(expires.map_or(0, |end| ends.offset(end))),
                ..target
            });
            self.listed_id(target, &id, note, id_line, &at.key(Field::Id.name()));
        }
        walked
    }

    fn id_fields(&mut self, map: &mut IdMap<'t>, at: &Path<'_>) -> Walked {
        while let Some((key_line, key)) = self.key(at, "a field")? {
            let Some(key) = key else {
                map.has_faulty_key = true;
                self.skip_value(at)?;
                continue;
            };
            let key = key.text;
            let at_field = at.key(&key);
            let Some(field) = FIELDS.into_iter().find(|field| field.name() == key) else {
                map.has_faulty_key = true;
                self.unknown_id_field(&key, key_line, at, &at_field)?;
                continue;
            };
            if !self.is_first(&mut map.lines, field, key_line, &at_field)? {
                continue;
            }
            let (line, value) = self.value(&at_field)?;
            match value {
                Value::Scalar(scalar) if field == Field::Id => map.id = Some((line, scalar)),
                Value::Scalar(scalar) => {
                    if let Err(reason) = map.annotations.read(field, &scalar) {
                        let message = format!("invalid {} {reason}", field.name());
                        self.fault(line, &at_field, message);
                    }
                }
                other => {
                    let wanted = if field == Field::Id { "an id" } else { field.allowed() };
                    self.unexpected(line, &at_field, other, wanted)?;
                }
            }
        }
        Ok(())
    }

    /// Records the line of a field. If the field was given before, that is a fault, and the value is skipped.
    pub(super) fn is_first(
        &mut self,
        lines: &mut ByField<Option<u64>>,
        field: Field,
        line: u64,
        at_field: &Path<'_>,
    ) -> Walked<bool> {
        if let Some(before) = lines[field as usize] {
            let message = format!("the field was given before, on line {before}");
            self.fault(line, at_field, message);
            self.skip_value(at_field)?;
            return Ok(false);
        }
        lines[field as usize] = Some(line);
        Ok(true)
    }

    /// Reports an unknown field of an id's map, or an id that YAML reads as a key because it ends in a colon.
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
            let id = shown(&format!("{key}:"));
            let message = format!("a map: an id that ends in ':' must be quoted, as {id}");
            self.fault(line, at, message);
        } else {
            self.fault(line, at_field, unknown_field(key, &FIELDS.map(Field::name)));
        }
        self.skip(&value)
    }

    fn listed_id(
        &mut self,
        target: Option<Target>,
        scalar: &Scalar<'_>,
        note: Note,
        line: u64,
        at: &Path<'_>,
    ) {
        if scalar.is_null() {
            self.fault(line, at, "null: an id is wanted; one that is spelled so must be quoted");
        } else if let Some(target) = target {
            self.add_override(target, WrittenId::in_list(scalar), note, line, at);
        }
    }

    /// Adds an override of an id.
    pub(super) fn add_override(
        &mut self,
        target: Target,
        id: WrittenId<'_>,
        note: Note,
        line: u64,
        at: &Path<'_>,
    ) {
        let KnownLimit { index, public_only } = target.limit;
        let format = self.builder.entry(index).format;
        // Under `string` any text is an id, so how it is written is checked. The other formats check the text.
        if format == IdFormat::String
            && let Err(message) = id.check()
        {
            return self.fault(line, at, message);
        }
        let bytes = match encode_override(format, id.text, public_only, &mut self.scratch) {
            Ok(bytes) => bytes,
            Err(error) => return self.fault(line, at, error.to_string()),
        };
        let here = self.role as u32;
        let source_line =
            SourceLine { source: here, line: u32::try_from(line).unwrap_or(u32::MAX) };
        match self.builder.add_override(index, bytes, target.terms, source_line) {
            Ok(()) => self.builder.add_note(index, bytes, note),
            Err(before) => {
                let mut place = format!("on line {}", before.line);
                if let Some(file) = self.files.get(before.source as usize)
                    && before.source != here
                {
                    place = format!("{place} of {file}");
                }
                let message = format!("the id {} was given before, {place}", shown(id.text));
                self.fault(line, at, message);
            }
        }
    }
}
