//! Domain names: checks them, and finds their form in ASCII and their registered domain.

use std::borrow::Cow;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use psl::{Info, List, Psl, Type};

use super::{Origin, Scratch};

const NAME_MAX_BYTES: usize = 253;
const LABEL_MAX_BYTES: usize = 63;
const LABELS_MIN: usize = 2;
const LABELS_MAX: usize = 10;
const WILDCARD: &[u8] = b"*.";

/// A longer text is refused before it is mapped: without characters that mapping removes, it is no name of 253 bytes.
const GIVEN_MAX_BYTES: usize = 4 * NAME_MAX_BYTES;

/// Where a name and its registered domain begin in the scratch.
pub(super) struct PushedName {
    start: usize,
    registered: usize,
}

/// Appends a domain name in normal form. A request's name is converted to it; a file's must be in it.
pub(super) fn push(
    text: &str,
    origin: Origin,
    scratch: &mut Scratch,
) -> Result<PushedName, String> {
    let is_request = matches!(origin, Origin::Request);
    let ascii = match is_request {
        true => to_ascii(text)?,
        false => Cow::Borrowed(text),
    };
    let name = match ascii.strip_suffix('.') {
        Some(rest) if is_request => rest,
        Some(_) => return Err("name ends in a dot".into()),
        None => &ascii,
    };
    check_characters(name, is_request)?;
    let start = scratch.len();
    let base = name.strip_prefix("*.").unwrap_or(name);
    if base.len() > NAME_MAX_BYTES {
        return Err(format!("name is longer than {NAME_MAX_BYTES} bytes"));
    }
    scratch.extend_from_slice(name.as_bytes());
    scratch[start..].make_ascii_lowercase();
    let registered = check_labels(&scratch[start..], is_request)?;
    Ok(PushedName { start, registered: start + registered })
}

impl PushedName {
    /// Cuts a call's name to its registered domain. An override's name below that domain stays: it applies to no call, and
    /// [`Limits::warnings`](crate::Limits::warnings) says so.
    pub(super) fn cut_to_registered(self, origin: Origin, scratch: &mut Scratch) {
        if matches!(origin, Origin::Request) {
            scratch.drain(self.start..self.registered);
        }
    }
}

/// Returns the name in ASCII. A name that is ASCII stays as it is, because a check is cheaper than mapping.
fn to_ascii(text: &str) -> Result<Cow<'_, str>, String> {
    if text.is_ascii() {
        return Ok(Cow::Borrowed(text));
    }
    if text.len() > GIVEN_MAX_BYTES {
        return Err(format!("name is longer than {NAME_MAX_BYTES} bytes"));
    }
    map(text.as_bytes()).ok_or_else(|| "name has no form in ASCII by IDNA".into())
}

fn map(name: &[u8]) -> Option<Cow<'_, str>> {
    Uts46::new().to_ascii(name, AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore).ok()
}

fn check_characters(name: &str, is_request: bool) -> Result<(), String> {
    if name.is_empty() {
        return Err("identifier value (name) is empty".into());
    }
    let Some(invalid) = name.chars().find(|&c| !is_allowed(c, is_request)) else { return Ok(()) };
    let hint = match invalid {
        'A'..='Z' => ": must be in lower case",
        '\u{80}'.. => ": must be in ASCII, as \"xn--\" labels",
        _ => "",
    };
    Err(format!("name contains an invalid character, {invalid:?}{hint}"))
}

fn is_allowed(c: char, is_request: bool) -> bool {
    matches!(c, 'a'..='z' | '0'..='9' | '.' | '-' | '*') || (is_request && c.is_ascii_uppercase())
}

/// Checks a name in lower-case ASCII and returns where its registered domain begins.
///
/// A request's name may be a public suffix, which is its own registered domain, as in Boulder.
fn check_labels(name: &[u8], is_request: bool) -> Result<usize, String> {
    let base = name.strip_prefix(WILDCARD).unwrap_or(name);
    if base.contains(&b'*') {
        return Err("name has a wildcard that is not its only and first label".into());
    }
    let labels = base.split(|&byte| byte == b'.');
    match labels.clone().count() {
        ..LABELS_MIN => return Err("name needs at least one dot".into()),
        LABELS_MIN..=LABELS_MAX => {}
        _ => return Err(format!("name has more than {LABELS_MAX} labels")),
    }
    labels.clone().try_for_each(check_label)?;
    let Some(suffixes) = Suffixes::find(base) else {
        return Err("name does not end in a public suffix that ICANN knows".into());
    };
    let is_suffix = suffixes.icann_bytes == base.len();
    if is_suffix && base.len() < name.len() {
        return Err("name is a wildcard for an ICANN public suffix".into());
    }
    if is_suffix && !is_request {
        return Err("name is an ICANN public suffix, not a name below one".into());
    }
    // A suffix is its own registered domain.
    let start = registered_start(base, suffixes.any_bytes).unwrap_or(0);
    Ok(name.len() - base.len() + start)
}

fn check_label(label: &[u8]) -> Result<(), String> {
    if label.is_empty() {
        return Err("name has an empty label".into());
    }
    if label.len() > LABEL_MAX_BYTES {
        return Err(format!("name has a label longer than {LABEL_MAX_BYTES} bytes"));
    }
    if label.starts_with(b"-") || label.ends_with(b"-") {
        return Err(
            "name has a label that begins or ends with a hyphen, an invalid character there".into(),
        );
    }
    if label.get(2..4) != Some(b"--") {
        return Ok(());
    }
    if !label.starts_with(b"xn") {
        return Err("name has a label in a reserved format, '??--' without \"xn\"".into());
    }
    // Mapping leaves a label unchanged if and only if it encodes a valid label in NFC.
    match map(label) {
        Some(mapped) if mapped.as_bytes() == label => Ok(()),
        _ => Err("name has an \"xn--\" label that is malformed punycode".into()),
    }
}

/// The lengths of a name's public suffix: by the rules of ICANN's section, and by all rules.
struct Suffixes {
    icann_bytes: usize,
    any_bytes: usize,
}

impl Suffixes {
    /// Finds the suffixes; `None` if the name ends in no suffix of ICANN's section.
    fn find(name: &[u8]) -> Option<Suffixes> {
        let longest = longest_rule(name);
        let mut rule = longest;
        // A private suffix lies below a suffix of ICANN's; each step removes a label.
        while rule.typ == Some(Type::Private) {
            let suffix = &name[name.len().checked_sub(rule.len)?..];
            let dot = suffix.iter().position(|&byte| byte == b'.')?;
            rule = longest_rule(&suffix[dot + 1..]);
        }
        (rule.typ == Some(Type::Icann))
            .then_some(Suffixes { icann_bytes: rule.len, any_bytes: longest.len })
    }
}

/// Returns the registered domain of a name in normal form; `None` if the name is a suffix.
pub(super) fn registered_domain(name: &str) -> Option<&str> {
    let suffix_bytes = longest_rule(name.as_bytes()).len;
    name.get(registered_start(name.as_bytes(), suffix_bytes)?..)
}

/// Returns where the suffix with one more label begins in `name`; `None` if the name is a suffix.
fn registered_start(name: &[u8], suffix_bytes: usize) -> Option<usize> {
    let dot = name.len().checked_sub(suffix_bytes + 1)?;
    Some(name[..dot].iter().rposition(|&byte| byte == b'.').map_or(0, |dot| dot + 1))
}

/// The only function that calls the list. The list's code is generic, so a second caller would compile all of it again.
fn longest_rule(name: &[u8]) -> Info {
    List.find(name.rsplit(|&byte| byte == b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Origin = Origin::Override { public_only: true };

    fn run(text: &str, origin: Origin, is_cut: bool) -> Result<String, String> {
        let mut scratch = Scratch::new();
        let name = super::push(text, origin, &mut scratch)?;
        if is_cut {
            name.cut_to_registered(origin, &mut scratch);
        }
        Ok(String::from_utf8(scratch.to_vec()).unwrap())
    }

    fn push(text: &str, origin: Origin) -> Result<String, String> {
        run(text, origin, false)
    }

    fn registered(text: &str, origin: Origin) -> Result<String, String> {
        run(text, origin, true)
    }

    #[test]
    fn a_requests_name_is_brought_into_normal_form() {
        for (text, normal) in [
            ("example.com", "example.com"),
            ("WWW.Example.COM.", "www.example.com"),
            ("*.example.com", "*.example.com"),
            ("co.uk", "co.uk"),
            ("b\u{fc}cher.example.de", "xn--bcher-kva.example.de"),
            ("B\u{dc}CHER.de", "xn--bcher-kva.de"),
            ("*.b\u{fc}cher.de", "*.xn--bcher-kva.de"),
            ("\u{4f8b}\u{3002}com", "xn--fsq.com"),
            ("XN--80AK6AA92E.com", "xn--80ak6aa92e.com"),
            ("foo.\u{4e2d}\u{56fd}", "foo.xn--fiqs8s"),
        ] {
            assert_eq!(push(text, Origin::Request).as_deref(), Ok(normal), "{text}");
            assert_eq!(push(normal, Origin::Request).as_deref(), Ok(normal), "{text}");
        }
    }

    #[test]
    fn invalid_names_are_refused_with_a_reason() {
        let long_label = format!("{}.com", "a".repeat(64));
        let long_name = format!("{}com", "abcdefghijklmnopqrstuvwxyzabcdefghij.".repeat(7));
        for (text, why) in [
            ("", "is empty"),
            (".", "is empty"),
            ("..", "has an empty label"),
            ("com", "needs at least one dot"),
            ("example..com", "empty label"),
            (".example.com", "empty label"),
            ("example.com..", "empty label"),
            ("exa mple.com", "invalid character, ' '"),
            ("_dmarc.example.com", "invalid character, '_'"),
            ("example.com\n", "invalid character, '\\n'"),
            ("-a.example.com", "hyphen"),
            ("a-.example.com", "hyphen"),
            ("ab--c.example.com", "reserved format"),
            ("xn--.example.com", "hyphen"),
            ("xn--a.example.com", "malformed punycode"),
            ("xn--99999999999.example.com", "malformed punycode"),
            ("*.*.example.com", "wildcard"),
            ("*", "wildcard"),
            ("a.*.example.com", "wildcard"),
            ("*a.example.com", "wildcard"),
            ("*.com", "needs at least one dot"),
            ("*.co.uk", "wildcard for an ICANN public suffix"),
            ("a.b.c.d.e.f.g.h.i.example.com", "more than 10 labels"),
            ("8.8.8.8", "does not end in a public suffix"),
            ("host.internal", "does not end in a public suffix"),
            (&long_label, "longer than 63"),
            (&long_name, "longer than 253"),
        ] {
            for origin in [Origin::Request, FILE] {
                let given = push(text, origin);
                let is_dotted = matches!(origin, Origin::Override { .. }) && text.ends_with('.');
                let why = if is_dotted { "ends in a dot" } else { why };
                assert!(
                    given.as_ref().is_err_and(|given| given.contains(why)),
                    "{text}: {given:?}"
                );
            }
        }
        assert!(push(&"\u{fc}".repeat(100_000), Origin::Request).is_err());
        assert!(push(&"a.".repeat(100_000), Origin::Request).is_err());
    }

    #[test]
    fn file_names_equal_normalised_request_names() {
        for (text, why) in [
            ("EXAMPLE.com", "invalid character, 'E': must be in lower case"),
            ("b\u{fc}cher.de", "invalid character, '\u{fc}': must be in ASCII"),
            ("example.com.", "ends in a dot"),
            ("co.uk", "is an ICANN public suffix"),
            ("foo.ck", "is an ICANN public suffix"),
        ] {
            let given = push(text, FILE).unwrap_err();
            assert!(given.contains(why), "{text}: {given}");
        }
        for text in [
            "github.io",
            "foo.github.io",
            "*.example.com",
            "*.github.io",
            "www.ck",
            "xn--80ak6aa92e.com",
        ] {
            assert_eq!(push(text, FILE).as_deref(), Ok(text));
        }
    }

    #[test]
    fn covering_domains_are_boulders() {
        for (text, wanted) in [
            ("example.com", "example.com"),
            ("www.example.com", "example.com"),
            ("foo.bar.baz.www.example.com", "example.com"),
            ("*.example.com", "example.com"),
            ("www.example.co.uk", "example.co.uk"),
            ("co.uk", "co.uk"),
            ("github.io", "github.io"),
            ("*.github.io", "github.io"),
            ("foo.github.io", "foo.github.io"),
            ("a.foo.github.io", "foo.github.io"),
            ("a.b.kawasaki.jp", "a.b.kawasaki.jp"),
            ("x.city.kawasaki.jp", "city.kawasaki.jp"),
            ("x.www.ck", "www.ck"),
        ] {
            assert_eq!(registered(text, Origin::Request).as_deref(), Ok(wanted), "{text}");
            assert_eq!(registered(wanted, Origin::Request).as_deref(), Ok(wanted));
        }
        for text in
            ["www.example.com", "*.example.com", "example.com", "github.io", "foo.github.io"]
        {
            assert_eq!(registered(text, FILE).as_deref(), Ok(text));
        }
    }

    #[test]
    fn registered_domain_is_suffix_with_one_label() {
        for (name, wanted) in [
            ("example.com", Some("example.com")),
            ("a.b.example.co.uk", Some("example.co.uk")),
            ("*.foo.github.io", Some("foo.github.io")),
            ("a.b.c.kawasaki.jp", Some("b.c.kawasaki.jp")),
            ("x.www.ck", Some("www.ck")),
            ("host.internal", Some("host.internal")),
            ("github.io", None),
            ("co.uk", None),
            ("com", None),
            ("", None),
        ] {
            assert_eq!(registered_domain(name), wanted, "{name}");
        }
    }
}
