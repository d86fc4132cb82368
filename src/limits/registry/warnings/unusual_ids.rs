//! Warns of ids with invisible characters or in an unusual form of Unicode, which look like another id.

use std::fmt::{self, Write as _};

use super::WarningKind;
#[cfg(feature = "boulder")]
use crate::limits::IdFormat;
use crate::limits::SHOWN_MAX_CHARS;
use crate::limits::registry::entries::OverrideEntry;
use crate::util::escape::is_visible;

impl OverrideEntry<'_> {
    /// Returns the warnings about the id. Formats without a `string` refuse such ids.
    pub(super) fn unusual_id(&self) -> Vec<(WarningKind, String)> {
        let mut found = Vec::new();
        let format = self.limit_entry().format();
        if !format.has_free_text() {
            return found;
        }
        let id = self.id();
        if id.bytes().all(|it| it.is_ascii_graphic()) {
            return found;
        }
        found.extend(invisible_or_quote(&id).map(|text| (WarningKind::Invisible, text)));
        #[cfg(feature = "boulder")]
        if format == IdFormat::String {
            found.extend(self.unnormalized(&id).map(|text| (WarningKind::Unnormalized, text)));
        }
        found
    }

    /// Warns if the id is not in Unicode's composed form (NFC), in which text is typed, or if its compatibility form
    /// (NFKC) has an override.
    #[cfg(feature = "boulder")]
    fn unnormalized(&self, id: &str) -> Option<String> {
        use icu_normalizer::ComposingNormalizerBorrowed as Normalizer;

        if id.is_ascii() {
            return None;
        }
        let not_ascii = |c: char| !c.is_ascii();
        let composed = Normalizer::new_nfc().normalize(id);
        let compatible = Normalizer::new_nfkc().normalize(id);
        let mut forms = [&composed, &compatible].into_iter().filter(|form| **form != id);
        let other = forms.find_map(|form| self.limit_entry().override_at(form.as_bytes()));
        let given = Visible(id, not_ascii);
        let Some(other) = other else {
            let composed = Visible(&composed, not_ascii);
            return (composed.0 != id).then(|| {
                format!("has an id that is not in the composed form of Unicode, NFC: {given}, which is {composed} there")
            });
        };
        let others = other.id();
        let others = Visible(&others, not_ascii);
        let mut text = format!(
            "has an id that differs from another one by its form of Unicode alone: {given}, and {others}"
        );
        if let Some(place) = other.location() {
            let _ = write!(text, " on {place}");
        }
        Some(text)
    }
}

/// Warns of an invisible character, or a typographic quotation mark at an end.
fn invisible_or_quote(id: &str) -> Option<String> {
    let text = |c: char, what: &str, id: &dyn fmt::Display| {
        format!("has U+{:04X} in its id, {what}: {id}", u32::from(c))
    };
    if let Some(c) = id.chars().find(|c| !is_visible(*c)) {
        let what = "which is not seen, or looks like a blank";
        return Some(text(c, what, &Visible(id, |c| !is_visible(c))));
    }
    let mut ends = id.chars().next().into_iter().chain(id.chars().next_back());
    let quote = ends.find(|c| is_quote(*c))?;
    Some(text(quote, "a quotation mark that is part of it", &Visible(id, is_quote)))
}

/// Shows at most [`SHOWN_MAX_CHARS`] of an id in quotes, with invisible and some other characters escaped.
struct Visible<'i, F>(&'i str, F);

impl<F: Fn(char) -> bool> fmt::Display for Visible<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut rest = self.0.chars();
        for c in rest.by_ref().take(SHOWN_MAX_CHARS) {
            match self.1(c) || !is_visible(c) {
                true => write!(f, "{}", c.escape_unicode())?,
                false => f.write_char(c)?,
            }
        }
        f.write_str(if rest.next().is_some() { "\"..." } else { "\"" })
    }
}

/// Whether a word processor may have written it for an ASCII quotation mark.
fn is_quote(c: char) -> bool {
    matches!(c, '\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}' | '\u{2039}' | '\u{203a}')
}
