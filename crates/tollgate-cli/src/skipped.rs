//! Counts the lines of a log that are skipped, by their reasons, and writes messages about the first.

use std::collections::HashMap;

use crate::escape::shortened;
use crate::text::grouped;

/// Skipped lines that are printed.
const MAX_PRINTED: usize = 5;
/// Characters of a skipped line that are printed.
const MAX_LINE_CHARS: usize = 100;
/// Characters of a reason that are printed.
const MAX_REASON_CHARS: usize = 200;
/// Kinds of reasons that are counted. Most logs have a few.
const MAX_KINDS: usize = 100;

/// The number of lines that one of the files skips, and messages about the first.
#[derive(Default)]
pub(crate) struct Skipped {
    /// The words for the file in a message.
    pub(crate) under: String,
    pub(crate) count: u64,
    pub(crate) messages: Vec<String>,
    /// By [kind](kind_of).
    reasons: HashMap<String, Reason>,
}

/// A kind of reason.
pub(crate) struct Reason {
    count: u64,
    first_line: u64,
    /// The reason to skip the first line.
    pub(crate) text: String,
}

impl Skipped {
    pub(crate) fn add(&mut self, line: u64, reason: &str, text: &[u8]) {
        self.count += 1;
        self.count_reason(line, reason);
        if self.messages.len() == MAX_PRINTED {
            return;
        }
        let text = shortened(&String::from_utf8_lossy(text), MAX_LINE_CHARS);
        let colon = if text.is_empty() { "" } else { ": " };
        let reason = shortened(reason, MAX_REASON_CHARS);
        self.messages.push(format!("skipped line {line}{}: {reason}{colon}{text}", self.under));
    }

    fn count_reason(&mut self, line: u64, reason: &str) {
        let kind = kind_of(reason);
        if let Some(known) = self.reasons.get_mut(&kind) {
            known.count += 1;
        } else if self.reasons.len() < MAX_KINDS {
            let text = shortened(reason, MAX_REASON_CHARS);
            self.reasons.insert(kind, Reason { count: 1, first_line: line, text });
        }
    }

    /// Returns the reason of the most lines; of several that have as many, the one that came first.
    pub(crate) fn most_frequent(&self) -> Option<&Reason> {
        self.reasons.values().max_by_key(|it| (it.count, u64::MAX - it.first_line))
    }
}

impl Reason {
    /// Formats the reason with the number of its lines. `all`: the lines of the log.
    pub(crate) fn to_text(&self, all: u64) -> String {
        let Reason { count, first_line, text } = self;
        let (count, all) = (grouped(*count), grouped(all));
        format!(
            "the most frequent reason ({count} of {all} lines, first line {first_line}) is: {text}"
        )
    }
}

/// Returns a reason without the parts that differ from line to line: quoted texts and numbers.
fn kind_of(reason: &str) -> String {
    let mut kind = String::with_capacity(reason.len());
    let mut chars = reason.chars();
    while let Some(c) = chars.next() {
        if c == '"' {
            while let Some(quoted) = chars.next().filter(|quoted| *quoted != '"') {
                if quoted == '\\' {
                    chars.next();
                }
            }
        }
        if !c.is_ascii_digit() {
            kind.push(c);
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_without_texts_and_numbers() {
        for (reason, kind) in [
            (r#"client: invalid ipAddress "a\"1\\"..., x"#, r#"client: invalid ipAddress "..., x"#),
            ("cost 21 is above the burst 20 of A", "cost  is above the burst  of A"),
            (r#"cut "off"#, r#"cut ""#),
            ("no user", "no user"),
        ] {
            assert_eq!(kind_of(reason), kind);
        }
    }

    #[test]
    fn kinds_are_counted_up_to_a_number() {
        let mut skipped = Skipped::default();
        for line in 1..=1_000 {
            let reason = format!("reason {}", "x".repeat(line as usize));
            skipped.add(line, &reason, b"");
        }
        skipped.add(1_001, "reason xx", b"");
        assert_eq!((skipped.count, skipped.reasons.len()), (1_001, MAX_KINDS));
        let reason = skipped.most_frequent().unwrap();
        assert_eq!((reason.count, reason.first_line, &*reason.text), (2, 2, "reason xx"));
    }
}
