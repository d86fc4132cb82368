//! Reads the fields of a shared limit, and the section of the store.

use std::time::Duration;

use super::duration;
use super::entry::Entry;
use super::faults::Path;
use super::fields::{Field, ON_ERROR, SHARED, SHARING, named, unknown_field};
use super::node::{Scalar, Value};
use super::walk::{Walk, Walked};
use crate::limit::Factor;
use crate::limits::StoreOptions;
use crate::limits::names;
use crate::limits::sharing::{OnError, Shared, Sharing};
use crate::limits::shown;
use crate::util::decimal::Decimal;

/// Reads the value of a field: the number of a word, millionths or nanoseconds. Whether it is in its range depends on
/// other fields. An error says what was given and what is allowed.
pub(super) fn read(field: Field, scalar: &Scalar<'_>) -> Result<u64, String> {
    match field {
        Field::Shared => named(&scalar.text, SHARED),
        Field::OnError => named(&scalar.text, ON_ERROR),
        // As a factor, it may be a number or the text of one.
        Field::Fraction => {
            let read = Decimal::parse(&scalar.text).map(|read| read.millionths);
            read.map_err(|reason| {
                let is_negative = reason.starts_with("negative");
                let reason = if is_negative { "more than 0 is allowed" } else { &*reason };
                format!("{}: {reason}", shown(&scalar.text))
            })
        }
        _ => duration::parse(&scalar.text),
    }
}

/// Returns the options of a shared limit. If one of them is at fault, which was reported, they are those of a local limit:
/// the others may fit what was meant.
pub(super) fn given(entry: &Entry<'_>) -> Sharing {
    let value = |field: Field| entry.values[field as usize];
    let is_faulty = |field: &Field| entry.line_of(*field).is_some() && value(*field).is_none();
    if SHARING.iter().any(is_faulty) {
        return Sharing::default();
    }
    Sharing {
        shared: match value(Field::Shared) {
            Some(1) => Shared::Leased,
            Some(2) => Shared::Exact,
            _ => Shared::Local,
        },
        on_error: value(Field::OnError).map(|word| match word {
            0 => OnError::Deny,
            1 => OnError::Allow,
            _ => OnError::Local,
        }),
        fraction: value(Field::Fraction).map(Factor::from_millionths),
        allow_for: value(Field::For).map(Duration::from_nanos),
        lease: value(Field::Lease).map(Duration::from_nanos),
    }
}

/// The fields of the section, with their values for messages.
const FIELDS: [(&str, &str); 6] = [
    ("url", "a URL such as redis://localhost:6379"),
    ("prefix", "text such as tollgate:"),
    ("tag", "text"),
    ("format", "tollgate or boulder"),
    ("connect", "a duration such as 250ms"),
    ("timeout", "a duration such as 10ms"),
];

/// The section, as far as it was read.
struct Section {
    /// The line of each field that was given.
    lines: [Option<u64>; FIELDS.len()],
    is_faulty: bool,
    /// Whether it has a field of limits.
    is_limit: bool,
    options: StoreOptions,
}

impl Walk<'_, '_> {
    pub(super) fn section(&mut self, line: u64, at: &Path<'_>) -> Walked {
        const MAP: &str = "a map with url, such as {url: redis://localhost:6379},";
        let (value_line, value) = self.value(at)?;
        match &value {
            Value::Map => {}
            Value::Scalar(scalar) if !scalar.is_null() => {
                // The text is not shown: it may be a URL with a password.
                self.fault(value_line, at, format!("a text: {MAP} is allowed"));
                return Ok(());
            }
            _ => return self.unexpected(value_line, at, value, MAP),
        }
        let mut section = Section {
            lines: Default::default(),
            is_faulty: false,
            is_limit: false,
            options: StoreOptions::without_url(),
        };
        while let Some((line, key)) = self.key(at, "a field of the store")? {
            match key {
                Some(key) => self.section_field(&mut section, &key, line, at)?,
                None => {
                    section.is_faulty = true;
                    self.skip_value(at)?;
                }
            }
        }
        if section.is_limit {
            self.fault(line, at, names::STORE_IS_RESERVED);
        } else if section.lines[0].is_none() {
            self.fault(line, at, format!("no url: {} is wanted", FIELDS[0].1));
        } else if !section.is_faulty
            && let Err(message) = self.builder.set_store(section.options)
        {
            self.fault(line, at, message);
        }
        Ok(())
    }

    /// Reads a field of the section. Its key was read.
    fn section_field(
        &mut self,
        section: &mut Section,
        key: &Scalar<'_>,
        line: u64,
        at: &Path<'_>,
    ) -> Walked {
        let at_field = at.key(&key.text);
        let Some(place) = FIELDS.iter().position(|(name, _)| *name == key.text) else {
            section.is_faulty = true;
            if key.text.contains("://") {
                // The key is not shown: it may be a URL with a password.
                self.fault(line, at, "a URL in place of a field: url: is wanted before it");
            } else if Field::from_name(&key.text).is_some() {
                section.is_limit = true;
            } else {
                let message = unknown_field(&key.text, &FIELDS.map(|(name, _)| name));
                self.fault(line, &at_field, message);
            }
            return self.skip_value(at);
        };
        if let Some(before) = section.lines[place] {
            section.is_faulty = true;
            return self.given_twice(line, &at_field, before);
        }
        section.lines[place] = Some(line);
        let (name, allowed) = FIELDS[place];
        let (line, value) = self.value(&at_field)?;
        let read = match &value {
            Value::Scalar(scalar) if !scalar.is_null() => {
                set(&mut section.options, name, &scalar.text)
            }
            _ => {
                section.is_faulty = true;
                return self.unexpected(line, &at_field, value, allowed);
            }
        };
        if let Err(message) = read {
            section.is_faulty = true;
            self.fault(line, &at_field, message);
        }
        Ok(())
    }
}

/// Sets an option of a store. An error says what was given and what is allowed; that of a URL does not show the URL.
fn set(options: &mut StoreOptions, name: &str, text: &str) -> Result<(), String> {
    let time = || {
        let read = duration::parse(text).map(Duration::from_nanos);
        read.map_err(|reason| format!("invalid {name} {reason}"))
    };
    let before = options.clone();
    let set = match name {
        "url" => before.with_url(text),
        "prefix" => before.prefix(text),
        "tag" => before.tag(text),
        "format" => before.format(text),
        "connect" => before.connect_timeout(time()?),
        _ => before.answer_timeout(time()?),
    };
    *options = set.map_err(|error| error.to_string())?;
    Ok(())
}
