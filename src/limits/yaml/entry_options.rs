//! The options of an entry: mode, shadow, debt, comment, owner and end.

use std::collections::HashMap;

use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::options::Note;
use crate::limits::registry::{OverrideTerms, SourcePath, check_options};
use crate::limits::{LimitMode, LimitOptions, shown};

use super::entry::Entry;
use super::events::Scalar;
use super::faults::Path;
use super::fields::Field;
use super::limit::EntryFault;
use super::walk::Walk;

/// The options that were read of an entry.
#[derive(Default)]
pub(super) struct EntryOptions<'e> {
    pub(super) annotations: Annotations,
    pub(super) mode: LimitMode,
    pub(super) shadow: Option<Box<Entry<'e>>>,
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

impl Walk<'_, '_> {
    /// Returns the terms of an override. If its limit is at fault, they have none, and the load fails later.
    pub(super) fn override_terms(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> OverrideTerms {
        let limit = self.limit(entry, at).flatten();
        let max_debt = entry.values[Field::MaxDebt as usize];
        if let (Some(limit), Some(units)) = (&limit, max_debt)
            && let Err(fault) = limit.check_max_debt(units)
        {
            self.entry_fault(entry, at, EntryFault::Invalid(fault));
        }
        let expires = entry.options.annotations.expires.unwrap_or(Expiry::NEVER);
        let path = SourcePath {
            source: self.role as u16,
            is_listed: entry.line_of(Field::Ids).is_some(),
            element: self.element,
        };
        OverrideTerms { limit, expires, max_debt, note: None, path }
    }

    /// Returns the options of a default. `limit` is `None` if its limit is at fault.
    pub(super) fn default_options(
        &mut self,
        entry: &mut Entry<'_>,
        limit: Option<&Option<Limit>>,
        at: &Path<'_>,
    ) -> LimitOptions {
        let at_shadow = at.key(Field::Shadow.name());
        let shadow = self.shadow(entry, &at_shadow);
        if shadow == Some(None) {
            let message = "no limit: numbers that limit are wanted";
            self.fault(entry.line_of(Field::Shadow), &at_shadow, message);
        }
        let options = LimitOptions {
            mode: entry.options.mode,
            shadow: shadow.flatten(),
            max_debt: entry.values[Field::MaxDebt as usize].unwrap_or_default(),
        };
        // A limit that is switched off may omit its parameters.
        if let Some(limit) = limit
            && !(entry.is_disabled && limit.is_none())
            && let Err(fault) = check_options(&options, limit.as_ref())
        {
            self.entry_fault(entry, at, EntryFault::Invalid(fault));
        }
        options
    }
}
