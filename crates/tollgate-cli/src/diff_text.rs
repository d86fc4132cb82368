//! What a diff came to, for people.

use std::fmt::Write;

use crate::diff::{
    ACCOUNT, Change, Difference, FieldChange, LimitChange, OverrideChange, OverrideChanges, Value,
};
use crate::text::{grouped, shortened};

/// Characters of an id or a comment that are shown.
const MAX_SHOWN_CHARS: usize = 1024;

/// A paragraph a limit.
pub(crate) fn text(difference: &Difference) -> String {
    if difference.limits.is_empty() {
        return "no differences\n".into();
    }
    let limits: Vec<String> = difference.limits.iter().map(limit).collect();
    limits.join("\n")
}

// Writing to a string does not fail.

fn limit(change: &LimitChange) -> String {
    let mut text = String::new();
    let _ = match change.change {
        Change::Added => writeln!(text, "{}: added", change.limit),
        Change::Removed => writeln!(text, "{}: removed", change.limit),
        Change::Changed => writeln!(text, "{}: changed", change.limit),
        Change::Refused => writeln!(
            text,
            "{}: a reload refuses this, the format of its ids changes: give it another name",
            change.limit
        ),
    };
    match change.change {
        Change::Added | Change::Removed => {
            let _ = writeln!(text, "  {}", all(&change.fields));
        }
        Change::Changed | Change::Refused => {
            for field in &change.fields {
                let _ = writeln!(text, "  {}", line(field));
            }
        }
    }
    if !change.fields.is_empty() && change.change != Change::Refused {
        let _ = writeln!(text, "  for {}", change.for_whom);
    }
    for field in &change.fields {
        if let Some(meaning) = of_mode(field) {
            let _ = writeln!(text, "  {meaning}");
        }
    }
    if let Some(effect) = &change.live_buckets {
        let _ = writeln!(text, "  live buckets: {effect}");
    }
    overrides(&mut text, &change.overrides);
    text
}

/// What a change of mode means for calls.
fn of_mode(field: &FieldChange) -> Option<&'static str> {
    let text = |value: &Option<Value>| value.as_ref().map(Value::to_text);
    match (field.field, text(&field.old).as_deref(), text(&field.new).as_deref()) {
        ("mode", Some("enforce"), Some("shadow")) => {
            Some("nobody is denied any more; buckets keep what was used")
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
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count as u64)))
        .collect();
    if counts.is_empty() {
        return;
    }
    let _ = writeln!(text, "  overrides: {}", counts.join(", "));
    for change in &changes.shown {
        one(text, change);
    }
    let left = changes.count() - changes.shown.len();
    if left > 0 && !changes.shown.is_empty() {
        let _ = writeln!(text, "    and {} more, which --all shows", grouped(left as u64));
    }
}

fn one(text: &mut String, change: &OverrideChange) {
    let sign = match change.change {
        Change::Added => '+',
        Change::Removed => '-',
        Change::Changed | Change::Refused => '~',
    };
    let fields = match change.change {
        Change::Added | Change::Removed => all(&change.fields),
        Change::Changed | Change::Refused => {
            change.fields.iter().map(line).collect::<Vec<_>>().join(", ")
        }
    };
    let _ = writeln!(text, "    {sign} {}: {fields}", tamed(&change.id));
    if change.for_whom == ACCOUNT {
        let _ = writeln!(text, "      for {ACCOUNT}");
    }
    if let Some(effect) = &change.live_buckets {
        let _ = writeln!(text, "      live buckets: {effect}");
    }
}

/// The fields of what is there in one of both only.
fn all(fields: &[FieldChange]) -> String {
    let text = |field: &FieldChange| {
        let value = field.old.as_ref().or(field.new.as_ref());
        format!("{} {}", field.field, tamed(&value.map(Value::to_text).unwrap_or_default()))
    };
    fields.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn line(field: &FieldChange) -> String {
    let text = |value: &Value| tamed(&value.to_text());
    let of = |value: &Option<Value>| value.as_ref().map_or("none".into(), text);
    format!("{} {} -> {}", field.field, of(&field.old), of(&field.new))
}

fn tamed(text: &str) -> String {
    shortened(text, MAX_SHOWN_CHARS)
}
