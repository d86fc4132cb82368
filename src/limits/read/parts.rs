//! Reads what can stand alone in a configuration: one limit, or options.

use crate::error::ConfigFault;
use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::{LimitOptions, Limits, OverrideOptions};

use super::entry::{Entry, Shape};
use super::faults::Path;
use super::fields::Field;
use super::limit::EntryFault;
use super::names::{Names, ReadOptions};
use super::node::{Nodes, Value};
use super::sharing;
use super::walk::{File, Role, Walk, Walked};
use crate::limits::registry::sharing_faults;

/// The fault of a limit that stands alone, and whose parameters mean "no limit".
const NO_LIMIT: &str = "no limit: numbers that limit are wanted";

/// Reads one limit: the fields of an algorithm, and `algorithm` if it is not gcra.
pub(crate) fn read_limit<'t>(nodes: &mut dyn Nodes<'t>) -> Result<Limit, Vec<ConfigFault>> {
    read(nodes, Shape::Limit, "a map of a limit's parameters", |walk, entry, at| {
        walk.limit_alone(entry, at)
    })
}

/// Reads the options of a limit. The limit of `shadow` may have an `algorithm` here.
pub(crate) fn read_limit_options<'t>(
    nodes: &mut dyn Nodes<'t>,
) -> Result<LimitOptions, Vec<ConfigFault>> {
    read(nodes, Shape::LimitOptions, "a map of a limit's options", |walk, entry, at| {
        let at_shadow = at.key(Field::Shadow.name());
        let shadow = entry.shadow.take().map(|mut shadow| {
            walk.check_fields(&mut shadow, &at_shadow);
            walk.limit_alone(&shadow, &at_shadow)
        });
        let mode = entry.options.mode;
        let max_debt = entry.values[Field::MaxDebt as usize].unwrap_or_default();
        let options = LimitOptions {
            mode,
            shadow: shadow.flatten(),
            max_debt,
            max_keys: entry.max_keys(),
            floors: walk.floors_of(entry, None, at),
            sharing: sharing::given(entry),
        };
        for fault in sharing_faults(&options, None) {
            walk.entry_fault(entry, at, EntryFault::Invalid(fault));
        }
        Some(options)
    })
}

/// Reads the options of an override.
pub(crate) fn read_override_options<'t>(
    nodes: &mut dyn Nodes<'t>,
) -> Result<OverrideOptions, Vec<ConfigFault>> {
    read(nodes, Shape::OverrideOptions, "a map of an override's options", |_, entry, _| {
        let annotations = std::mem::take(&mut entry.options.annotations);
        let expires = annotations.expires.unwrap_or(Expiry::NEVER);
        let max_debt = entry.values[Field::MaxDebt as usize];
        Some(OverrideOptions { note: annotations.note, expires, max_debt })
    })
}

/// Reads the map that is the root of `nodes`. `make` returns `None` for a fault that it has reported.
fn read<'t, T>(
    nodes: &mut dyn Nodes<'t>,
    shape: Shape,
    wanted: &str,
    make: impl FnOnce(&mut Walk<'_, 't>, &mut Entry<'t>, &Path<'_>) -> Option<T>,
) -> Result<T, Vec<ConfigFault>> {
    let mut builder = Limits::builder();
    let mut names = Names::new(&builder, &ReadOptions::default());
    let file = File::section(Role::Limits, &builder);
    let mut walk = Walk::new(nodes, file, &mut names, &mut builder);
    let made = walk.part(shape, wanted, make).unwrap_or_default();
    let faults = walk.faults.into_sorted();
    made.filter(|_| faults.is_empty()).ok_or(faults)
}

impl<'t> Walk<'_, 't> {
    fn part<T>(
        &mut self,
        shape: Shape,
        wanted: &str,
        make: impl FnOnce(&mut Self, &mut Entry<'t>, &Path<'_>) -> Option<T>,
    ) -> Walked<Option<T>> {
        let at = Path::Root;
        // The start of the document.
        self.node()?;
        let (line, value) = self.value(&at)?;
        if !matches!(value, Value::Map) {
            self.unexpected(line, &at, value, wanted)?;
            return Ok(None);
        }
        let mut entry = Entry::new("", line, shape);
        self.fields(&mut entry, &at)?;
        self.check_fields(&mut entry, &at);
        Ok(make(self, &mut entry, &at))
    }

    /// Returns the limit of an entry that must have one.
    fn limit_alone(&mut self, entry: &Entry<'_>, at: &Path<'_>) -> Option<Limit> {
        let limit = self.limit(entry, at)?;
        if limit.is_none() {
            self.fault(entry.line, at, NO_LIMIT);
        }
        limit
    }
}
