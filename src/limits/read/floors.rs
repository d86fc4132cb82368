//! Reads the floors of a limit.

use std::borrow::Cow;

use super::entry::Entry;
use super::faults::Path;
use super::fields::{Field, whole_number_or_0};
use super::node::{Scalar, Value};
use super::walk::{Walk, Walked};
use crate::limit::Limit;
use crate::limits::floors::Floors;
use crate::limits::{Floor, shown};

const ALLOWED: &str = "a whole number or a whole percentage up to 100%";

impl<'t> Walk<'_, 't> {
    /// Reads a map of floors. The start of the map was read.
    pub(super) fn floors(&mut self, entry: &mut Entry<'_>, at: &Path<'_>) -> Walked {
        let mut lines: Vec<(Cow<'t, str>, u64)> = Vec::new();
        while let Some((line, key)) = self.key(at, "a floor's name")? {
            let Some(Scalar { text: name, .. }) = key else {
                self.skip_value(at)?;
                lines.push(("".into(), line));
                continue;
            };
            let at_floor = at.key(&name);
            if let Some((_, before)) = lines.iter().find(|(given, _)| *given == name) {
                self.given_twice(line, &at_floor, *before)?;
                continue;
            }
            let (value_line, value) = self.value(&at_floor)?;
            match value {
                Value::Scalar(scalar) if !scalar.is_null() => match read(&scalar) {
                    Ok(floor) => entry.floors.push((line, (&*name).into(), floor)),
                    Err(reason) => {
                        self.fault(value_line, &at_floor, format!("invalid floor {reason}"));
                    }
                },
                other => self.unexpected(value_line, &at_floor, other, ALLOWED)?,
            }
            lines.push((name, line));
            if lines.len() > Floors::MAX {
                // The number is a fault of its own.
                return self.skip(&Value::Map);
            }
        }
        if lines.is_empty() {
            let message = format!("no floor: {} is allowed", Field::Floors.allowed());
            self.fault(entry.line_of(Field::Floors), at, message);
        }
        Ok(())
    }

    /// Returns the floors of an entry with this limit, and reports their faults.
    pub(super) fn floors_of(
        &mut self,
        entry: &Entry<'_>,
        limit: Option<&Limit>,
        at: &Path<'_>,
    ) -> Floors {
        let mut floors = Floors::default();
        entry.floors.iter().for_each(|(_, name, floor)| floors.set(name, *floor));
        let at_floors = at.key(Field::Floors.name());
        for (name, message) in floors.faults(limit) {
            let line = |name: &str| entry.floors.iter().find(|(_, given, _)| **given == *name);
            match name.as_deref() {
                Some(name) => {
                    self.fault(line(name).map(|it| it.0), &at_floors.key(name), message);
                }
                None => self.fault(entry.line_of(Field::Floors), &at_floors, message),
            }
        }
        floors
    }
}

fn read(scalar: &Scalar<'_>) -> Result<Floor, String> {
    let Some(digits) = scalar.text.strip_suffix('%') else {
        return whole_number_or_0(scalar, ALLOWED).map(Floor::Units);
    };
    let is_number = digits == "0" || !digits.starts_with('0');
    let is_number = is_number && digits.bytes().all(|byte| byte.is_ascii_digit());
    let percent = digits.parse().ok().filter(|percent| is_number && *percent <= 100);
    percent
        .map(Floor::Percent)
        .ok_or_else(|| format!("{}: {ALLOWED} is allowed", shown(&scalar.text)))
}
