//! Ids that are not what a person reads: each is another id than the one that looks the same.

use std::fmt::{self, Write as _};

use super::WarningKind;
use crate::limits::IdFormat;
use crate::limits::registry::entries::OverrideEntry;

/// How much of an id is shown.
const SHOWN_MAX_CHARS: usize = 64;

impl OverrideEntry<'_> {
    /// What is odd about the id. The formats other than `string` refuse what is.
    pub(super) fn odd(&self) -> Vec<(WarningKind, String)> {
        let mut found = Vec::new();
        let Ok(id) = std::str::from_utf8(self.id_bytes()) else { return found };
        if self.limit().format() != IdFormat::String || id.bytes().all(|it| it.is_ascii_graphic()) {
            return found;
        }
        found.extend(unseen(id).map(|text| (WarningKind::Invisible, text)));
        #[cfg(feature = "yaml")]
        found.extend(self.unnormalized(id).map(|text| (WarningKind::Unnormalized, text)));
        found
    }

    /// Whether the id is another one in a normal form of Unicode: in the composed one, as which it is
    /// typed, or in the compatible one, if there is an override for that.
    #[cfg(feature = "yaml")]
    fn unnormalized(&self, id: &str) -> Option<String> {
        use icu_normalizer::ComposingNormalizerBorrowed as Normalizer;

        if id.is_ascii() {
            return None;
        }
        let not_ascii = |c: char| !c.is_ascii();
        let composed = Normalizer::new_nfc().normalize(id);
        let compatible = Normalizer::new_nfkc().normalize(id);
        let mut forms = [&composed, &compatible].into_iter().filter(|form| **form != id);
        let other = forms.find_map(|form| self.limit().override_at(form.as_bytes()));
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

/// What cannot be seen of an id, or is not what it looks like.
fn unseen(id: &str) -> Option<String> {
    let text = |c: char, what: &str, id: &dyn fmt::Display| {
        format!("has U+{:04X} in its id, {what}: {id}", u32::from(c))
    };
    if let Some(c) = id.chars().find(|c| is_unseen(*c)) {
        let what = "which is not seen, or looks like a blank";
        return Some(text(c, what, &Visible(id, is_unseen)));
    }
    let mut ends = id.chars().next().into_iter().chain(id.chars().next_back());
    let quote = ends.find(|c| is_quote(*c))?;
    Some(text(quote, "a quotation mark that is part of it", &Visible(id, is_quote)))
}

/// An id in quotes, of which some characters are escaped; cut after [`SHOWN_MAX_CHARS`].
struct Visible<'i, F>(&'i str, F);

impl<F: Fn(char) -> bool> fmt::Display for Visible<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut rest = self.0.chars();
        for c in rest.by_ref().take(SHOWN_MAX_CHARS) {
            match self.1(c) || is_unseen(c) {
                true => write!(f, "{}", c.escape_unicode())?,
                false => f.write_char(c)?,
            }
        }
        f.write_str(if rest.next().is_some() { "\"..." } else { "\"" })
    }
}

/// Whether a character is a control character, white space other than the blank, or one that Unicode says
/// is not to be shown (`Default_Ignorable_Code_Point`) or stands for nothing that is.
fn is_unseen(c: char) -> bool {
    (c.is_whitespace() && c != ' ')
        || c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Whether a word processor may have put it in the place of a quotation mark of ASCII.
fn is_quote(c: char) -> bool {
    matches!(c, '\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}' | '\u{2039}' | '\u{203a}')
}
