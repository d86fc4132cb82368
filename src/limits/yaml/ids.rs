//! The ids of an override, each on its way from the text to the registry.

use crate::limits::IdFormat;
use crate::limits::expiry::Expiry;
use crate::limits::format::encode_override;
use crate::limits::options::Note;
use crate::limits::registry::{GivenBefore, NumbersIndex};

use super::beside;
use super::beside::Dated;
use super::events::Scalar;
use super::faults::{Given, Path};
use super::field;
use super::field::{Field, unknown_field};
use super::names::Known;
use super::walk::{Value, Walk, Walked};
use super::written::Written;

/// What ids are given to: a limit, and the numbers that are theirs.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) known: Known,
    pub(super) numbers: NumbersIndex,
}

/// The fields of an id in its map.
const FIELDS: [Field; 4] = [Field::Id, Field::Comment, Field::Owner, Field::Expires];

const ALLOWED: &str = "an id, or a map with id, comment, owner and expires,";

/// What was read of an id's map.
#[derive(Default)]
struct IdMap<'t> {
    /// The line of each field that was given.
    lines: [Option<u64>; FIELDS.len()],
    id: Option<(u64, Scalar<'t>)>,
    note: Note,
    expires: Option<Expiry>,
    has_faulty_key: bool,
}

impl<'t> Walk<'_, 't> {
    /// What the ids of a list point to: the numbers that the rest of their entry gives.
    pub(super) fn target(&self, known: Known) -> Target {
        Target { known, numbers: self.builder.next_numbers(known.index) }
    }

    /// The ids of a list whose start was read.
    pub(super) fn ids(
        &mut self,
        target: Option<Target>,
        dated: &mut Dated,
        line: u64,
        at: &Path<'_>,
    ) -> Walked {
        for i in 0.. {
            let at_id = at.index(i);
            let (id_line, value) = self.value(&at_id)?;
            match value {
                Value::Scalar(scalar) => {
                    self.id(target, &scalar, Note::default(), id_line, &at_id);
                }
                Value::Map => self.id_map(target, dated, id_line, &at_id)?,
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

    /// `{id, comment, owner, expires}`, whose start was read.
    fn id_map(
        &mut self,
        target: Option<Target>,
        dated: &mut Dated,
        line: u64,
        at: &Path<'_>,
    ) -> Walked {
        let mut map = IdMap::default();
        let walked = self.id_fields(&mut map, at);
        if map.lines[0].is_none() && !map.has_faulty_key && walked.is_ok() {
            self.fault(Some(line), at, "no id: one is wanted");
        }
        if let Some((id_line, id)) = map.id {
            let target = target.map(|target| match map.expires {
                Some(expires) => {
                    Target { numbers: target.numbers.after(dated.place(expires)), ..target }
                }
                None => target,
            });
            self.id(target, &id, map.note, id_line, &at.key(Field::Id.name()));
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
            let Some(i) = FIELDS.iter().position(|field| field.name() == key) else {
                map.has_faulty_key = true;
                self.unknown_id_field(&key, key_line, at, &at_field)?;
                continue;
            };
            if let Some(before) = map.lines[i] {
                let message = format!("the field was given before, on line {before}");
                self.fault(Some(key_line), &at_field, message);
                self.skip_value(&at_field)?;
                continue;
            }
            map.lines[i] = Some(key_line);
            let field = FIELDS[i];
            let (line, value) = self.value(&at_field)?;
            match value {
                Value::Scalar(scalar) if field == Field::Id => map.id = Some((line, scalar)),
                Value::Scalar(scalar) => {
                    if let Err(reason) = map.read(field, &scalar) {
                        let message = format!("invalid {} {reason}", field.name());
                        self.fault(Some(line), &at_field, message);
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
            self.fault(Some(line), at_field, unknown_field(key, &FIELDS.map(Field::name)));
        }
        self.skip(&value)
    }

    fn id(
        &mut self,
        target: Option<Target>,
        scalar: &Scalar<'_>,
        note: Note,
        line: u64,
        at: &Path<'_>,
    ) {
        if scalar.is_null() {
            self.fault(
                Some(line),
                at,
                "null: an id is wanted; one that is spelled so must be quoted",
            );
        } else if let Some(target) = target {
            self.add_override(target, Written::alone(scalar), note, line, at);
        }
    }

    /// Points an id to its numbers.
    pub(super) fn add_override(
        &mut self,
        target: Target,
        id: Written<'_>,
        note: Note,
        line: u64,
        at: &Path<'_>,
    ) {
        let Known { index, public_only } = target.known;
        let format = self.builder.entry(index).format;
        // The others tell by themselves what an id is; under `string` any text is one.
        if format == IdFormat::String
            && let Err(message) = id.check()
        {
            return self.fault(Some(line), at, message);
        }
        let bytes = match encode_override(format, id.text, public_only, &mut self.scratch) {
            Ok(bytes) => bytes,
            Err(error) => return self.fault(Some(line), at, error.to_string()),
        };
        let kept_line = u32::try_from(line).unwrap_or(u32::MAX);
        match self.builder.add_override(index, bytes, target.numbers, kept_line) {
            Ok(()) => self.builder.add_note(index, bytes, note),
            Err(before) => {
                let message =
                    format!("the id {} was given before, {}", Given(id.text), self.place(before));
                self.fault(Some(line), at, message);
            }
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

impl IdMap<'_> {
    /// Reads a field beside the id; else says what was given and what is allowed.
    fn read(&mut self, field: Field, scalar: &Scalar<'_>) -> Result<(), String> {
        match field {
            Field::Expires if scalar.is_null() => {
                return Err(format!("null: {} is allowed", field.allowed()));
            }
            Field::Expires => self.expires = Some(field::expires(&scalar.text)?),
            Field::Comment => self.note.comment = beside::text(scalar),
            _ => self.note.owner = beside::text(scalar),
        }
        Ok(())
    }
}
