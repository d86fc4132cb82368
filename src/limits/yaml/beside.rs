//! What an entry says beside its numbers: the mode, what is only tried, debts, notes and ends.

use std::collections::HashMap;

use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::options::Note;
use crate::limits::registry;
use crate::limits::registry::{Numbers, Within};
use crate::limits::{LimitMode, LimitOptions};

use super::entry::Entry;
use super::events::Scalar;
use super::faults::Path;
use super::field;
use super::field::Field;
use super::names::Known;
use super::numbers::NumberFault;
use super::walk::Walk;

/// What was read of an entry beside its numbers.
#[derive(Default)]
pub(super) struct Beside<'e> {
    pub(super) note: Note,
    expires: Option<Expiry>,
    mode: LimitMode,
    pub(super) shadow: Option<Box<Entry<'e>>>,
    pub(super) dated: Dated,
}

/// The ends that single ids of a list have: each makes numbers of its own, after those of the list.
#[derive(Default)]
pub(super) struct Dated {
    places: HashMap<Expiry, u32>,
    order: Vec<Expiry>,
}

impl Dated {
    /// How far after the numbers of the list those with this end will be.
    pub(super) fn place(&mut self, expires: Expiry) -> u32 {
        *self.places.entry(expires).or_insert_with(|| {
            self.order.push(expires);
            u32::try_from(self.order.len()).expect("fewer ids than a file has bytes")
        })
    }

    /// The ends of all numbers that the list makes; `own` is the list's.
    pub(super) fn in_order(&mut self, own: Expiry) -> impl Iterator<Item = Expiry> + use<> {
        std::iter::once(own).chain(std::mem::take(&mut self.order))
    }
}

impl Beside<'_> {
    /// Reads a field; else says what was given and what is allowed.
    pub(super) fn read(&mut self, field: Field, scalar: &Scalar<'_>) -> Result<(), String> {
        match field {
            Field::Mode => self.mode = field::mode(&scalar.text)?,
            Field::Expires => self.expires = Some(field::expires(&scalar.text)?),
            Field::Comment => self.note.comment = text(scalar),
            _ => self.note.owner = text(scalar),
        }
        Ok(())
    }
}

/// Free text; nothing, if nothing is written.
pub(super) fn text(scalar: &Scalar<'_>) -> Option<Box<str>> {
    (!scalar.is_null()).then(|| (&*scalar.text).into())
}

impl Walk<'_, '_> {
    /// The numbers of an override and what stands beside them. Where they are at fault, there is no limit
    /// until the load fails.
    pub(super) fn override_numbers(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Numbers {
        let limit = self.limit(entry, at).flatten();
        let max_debt = entry.numbers[Field::MaxDebt as usize];
        if let (Some(limit), Some(units)) = (&limit, max_debt)
            && let Err(fault) = limit.check_max_debt(units)
        {
            self.number_fault(entry, at, NumberFault::Invalid(fault));
        }
        let within = Within { source: self.role as u16, is_listed: false, element: self.element };
        let expires = entry.beside.expires.unwrap_or(Expiry::NEVER);
        Numbers { expires, max_debt, ..Numbers::new(limit, within) }
    }

    /// What a default has beside its numbers, which are `None` if they are at fault.
    pub(super) fn options(
        &mut self,
        entry: &mut Entry<'_>,
        limit: Option<&Option<Limit>>,
        at: &Path<'_>,
    ) -> LimitOptions {
        let shadow = match self.shadow(entry, &at.key(Field::Shadow.name())) {
            Some(None) => {
                let line = entry.line_of(Field::Shadow);
                let message = "no limit: numbers that limit are wanted";
                self.fault(line, &at.key(Field::Shadow.name()), message);
                None
            }
            made => made.flatten(),
        };
        let max_debt = entry.numbers[Field::MaxDebt as usize].unwrap_or_default();
        let options = LimitOptions { mode: entry.beside.mode, shadow, max_debt };
        // A limit that is switched off may leave its numbers out.
        if let Some(limit) = limit
            && !(entry.is_disabled && limit.is_none())
            && let Err(fault) = registry::check_options(&options, limit.as_ref())
        {
            self.number_fault(entry, at, NumberFault::Invalid(fault));
        }
        options
    }

    pub(super) fn set_beside(&mut self, known: Known, line: u64, options: LimitOptions) {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        let given = registry::Given { source: self.role as u32, line };
        self.builder.set_options(known.index, options);
        self.builder.set_given(known.index, given);
    }
}
