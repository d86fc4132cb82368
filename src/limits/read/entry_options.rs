//! The options of an entry: mode, comment, owner and ends.

use std::collections::HashMap;

use crate::limits::expiry::Expiry;
use crate::limits::options::Note;
use crate::limits::{LimitMode, shown};

use super::fields::Field;
use super::node::Scalar;

/// The options that were read of an entry.
#[derive(Default)]
pub(super) struct EntryOptions {
    pub(super) annotations: Annotations,
    pub(super) mode: LimitMode,
    pub(super) id_ends: IdEnds,
}

/// The comment, the owner and the end of an override, or of one id in a list.
#[derive(Default)]
pub(super) struct Annotations {
    pub(super) note: Note,
    pub(super) expires: Option<Expiry>,
}

impl Annotations {
    /// Reads one of the fields. An error says what was given and what is allowed.
    pub(super) fn read(&mut self, field: Field, scalar: &Scalar<'_>) -> Result<(), String> {
        if field == Field::Expires {
            let end = Expiry::after_day(&scalar.text);
            self.expires =
                Some(end.map_err(|allowed| format!("{}: {allowed}", shown(&scalar.text)))?);
            return Ok(());
        }
        let text = (!scalar.is_null()).then(|| (&*scalar.text).into());
        match field {
            Field::Comment => self.note.comment = text,
            _ => self.note.owner = text,
        }
        Ok(())
    }
}

/// The ends of single ids of a list. Each end makes its own terms, which follow the terms of the list.
#[derive(Default)]
pub(super) struct IdEnds(HashMap<Expiry, u32>);

impl IdEnds {
    /// Returns how far the terms with this end will be after the list's.
    pub(super) fn offset(&mut self, end: Expiry) -> u32 {
        let next = u32::try_from(self.0.len() + 1).expect("fewer ids than a file has bytes");
        *self.0.entry(end).or_insert(next)
    }

    /// Returns the ends of all terms that the list makes, in their order. `own` is the list's own end.
    pub(super) fn in_order(&self, own: Expiry) -> Vec<Expiry> {
        let mut ends = vec![own; self.0.len() + 1];
        for (end, offset) in &self.0 {
            ends[*offset as usize] = *end;
        }
        ends
    }
}
