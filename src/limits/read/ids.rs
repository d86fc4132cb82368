//! Reads the ids of an override and adds them to the registry.

use crate::limits::format::encode_override;
use crate::limits::options::Note;
use crate::limits::registry::{SourceLine, SourcePath};
use crate::limits::shown;

use super::entry::{Entry, ID_FIELDS, Shape, Target};
use super::entry_options::{Annotations, IdEnds};
use super::faults::{Path, on_line};
use super::fields::{Field, unknown_field};
use super::names::KnownLimit;
use super::node::{Scalar, Value};
use super::string_ids::WrittenId;
use super::walk::{Walk, Walked};

const ALLOWED: &str = "an id, or a map with id, comment, owner and expires,";

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
        let mut map = Entry::new("", line, Shape::ListedId);
        let walked = self.fields(&mut map, at);
        if map.line_of(Field::Id).is_none() && !map.has_faulty_key && walked.is_ok() {
            self.fault(line, at, "no id: one is wanted");
        }
        if let Some((id_line, id)) = map.id {
            let Annotations { note, expires } = map.options.annotations;
            let target = target.map(|target| Target {
                terms: target.terms.after(expires.map_or(0, |end| ends.offset(end))),
                ..target
            });
            self.listed_id(target, &id, note, id_line, &at.key(Field::Id.name()));
        }
        walked
    }

    /// Reports an unknown field of an id's map, or an id that YAML reads as a key because it ends in a colon.
    pub(super) fn unknown_id_field(
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
            let known: Vec<&str> = ID_FIELDS.iter().map(|field| field.name()).collect();
            self.fault(line, at_field, unknown_field(key, &known));
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
        if format.has_free_text()
            && let Err(message) = id.check()
        {
            return self.fault(line, at, message);
        }
        let bytes = match encode_override(format, id.text, public_only, &mut self.scratch) {
            Ok(bytes) => bytes,
            Err(error) => return self.fault(line, at, error.to_string()),
        };
        if let Err(message) = self.builder.check_network(index, bytes) {
            return self.fault(line, at, message);
        }
        let source_line =
            SourceLine { source: self.source, line: u32::try_from(line).unwrap_or(u32::MAX) };
        match self.builder.add_override(index, bytes, target.terms, source_line) {
            Ok(()) => self.builder.add_note(index, bytes, note),
            Err(before) => {
                let mut place = on_line(before.line.into());
                if before.source == u32::from(SourcePath::IN_CODE) {
                    place = ", in code".into();
                } else if let Some(file) = self.builder.file(before.source)
                    && before.source != self.source
                {
                    place = format!("{place} of {file}");
                }
                let message = format!("the id {} was given before{place}", shown(id.text));
                self.fault(line, at, message);
            }
        }
    }
}
