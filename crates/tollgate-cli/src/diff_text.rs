//! Formats differences for people.

use std::fmt::Write;

use crate::diff::{
    ACCOUNT, Change, Difference, FieldChange, LimitChange, NETWORK, OverrideChange, OverrideChanges,
};
use crate::escape::shortened;
use crate::fields::Field;
use crate::text::grouped;

/// Characters of an id or a comment that are printed.
const MAX_TEXT_CHARS: usize = 1024;

/// Formats one paragraph for each limit.
pub(crate) fn text(difference: &Difference) -> String {
    if difference.limits.is_empty() {
        return "no differences\n".into();
    }
    let limits: Vec<String> = difference.limits.iter().map(limit).collect();
    limits.join("\n")
}

// Writing to a string does not fail.

fn limit(change: &LimitChange) -> String {
    let mut text = match change.change {
        Change::Added => format!("{}: added\n", change.limit),
        Change::Removed => format!("{}: removed\n", change.limit),
        Change::Changed => format!("{}: changed\n", change.limit),
        Change::RefusedFormat => refused(change, "the format of its ids changes"),
        Change::RefusedPermits => refused(change, "permits are no units"),
    };
    let separator = match change.change {
        Change::Added | Change::Removed => ", ",
        _ => "\n  ",
    };
    let is_refused = matches!(change.change, Change::RefusedFormat | Change::RefusedPermits);
    if !change.fields.is_empty() {
        let _ = writeln!(text, "  {}", fields(change.change, &change.fields, separator));
    }
    if !change.fields.is_empty() && !is_refused {
        let _ = writeln!(text, "  for {}", change.applies_to);
    }
    for meaning in change.fields.iter().filter_map(mode_change) {
        let _ = writeln!(text, "  {meaning}");
    }
    if let Some(effect) = &change.live_buckets {
        let _ = writeln!(text, "  live buckets: {effect}");
    }
    overrides(&mut text, &change.overrides);
    text
}

fn refused(change: &LimitChange, why: &str) -> String {
    format!("{}: a reload refuses this, {why}: give it another name\n", change.limit)
}

/// Explains the effect of a changed mode on calls.
fn mode_change(field: &FieldChange) -> Option<&'static str> {
    let text = |field: &Option<Field>| field.as_ref().map(|field| field.text.clone());
    match (field.name(), text(&field.old).as_deref(), text(&field.new).as_deref()) {
        ("mode", Some("enforce"), Some("shadow")) => {
            Some("no call is denied any more; buckets keep what was used")
        }
        ("mode", Some("shadow"), Some("enforce")) => {
            Some("calls are denied from then on; what was used in shadow counts")
        }
        _ => None,
    }
}

fn overrides(text: &mut String, changes: &OverrideChanges) {
    let counts =
        [(changes.added, "added"), (changes.removed, "removed"), (changes.changed, "changed")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> =
        counts.map(|(count, verb)| format!("{} {verb}", grouped(count as u64))).collect();
    if counts.is_empty() {
        return;
    }
    let _ = writeln!(text, "  overrides: {}", counts.join(", "));
    for change in &changes.listed {
        override_change(text, change);
    }
    let rest = changes.count() - changes.listed.len();
    if rest > 0 && !changes.listed.is_empty() {
        let _ = writeln!(text, "    and {} more, which --all shows", grouped(rest as u64));
    }
}

fn override_change(text: &mut String, change: &OverrideChange) {
    let sign = match change.change {
        Change::Added => '+',
        Change::Removed => '-',
        _ => '~',
    };
    let (id, fields) = (escaped(&change.id), fields(change.change, &change.fields, ", "));
    let _ = writeln!(text, "    {sign} {id}: {fields}");
    if [ACCOUNT, NETWORK].contains(&change.applies_to) {
        let _ = writeln!(text, "      for {}", change.applies_to);
    }
    if let Some(effect) = &change.live_buckets {
        let _ = writeln!(text, "      live buckets: {effect}");
    }
}

/// Formats the values of an entry that was added or removed, else the old and the new ones.
fn fields(change: Change, fields: &[FieldChange], separator: &str) -> String {
    let value = |field: &Option<Field>| {
        field.as_ref().map_or("none".to_owned(), |field| escaped(&field.text))
    };
    let text = |field: &FieldChange| match change {
        Change::Added => format!("{} {}", field.name(), value(&field.new)),
        Change::Removed => format!("{} {}", field.name(), value(&field.old)),
        _ => format!("{} {} -> {}", field.name(), value(&field.old), value(&field.new)),
    };
    fields.iter().map(text).collect::<Vec<_>>().join(separator)
}

fn escaped(text: &str) -> String {
    shortened(text, MAX_TEXT_CHARS)
}
