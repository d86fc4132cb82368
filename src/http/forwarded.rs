//! Parses the fields in which proxies give a client's address: `Forwarded` (RFC 7239) and `X-Forwarded-For`.
//!
//! Both are read from the right, entry by entry: each proxy appends its entry, so the nearest proxy's is the last, and
//! a client can have written anything to the left of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// No notation of an address with a port is longer.
const ENTRY_MAX_BYTES: usize = 1024;

/// Parses one entry of `X-Forwarded-For`: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:4711`, with or without spaces around it. `None` for anything else, including an address with a
/// zone.
///
/// # Example
///
/// ```
/// use tollgate::http::parse_forwarded_for_entry as parse;
///
/// assert_eq!(parse(b" 192.0.2.1:4711 "), Some([192, 0, 2, 1].into()));
/// assert_eq!(parse(b"unknown"), None);
/// ```
pub fn parse_forwarded_for_entry(entry: &[u8]) -> Option<IpAddr> {
    if entry.len() > ENTRY_MAX_BYTES {
        return None;
    }
    let entry = std::str::from_utf8(trim(entry)).ok()?;
    match entry.strip_prefix('[') {
        Some(rest) => parse_bracketed(rest),
        None => entry.parse().ok().or_else(|| {
            let (address, port) = entry.split_once(':')?;
            let address: Ipv4Addr = address.parse().ok()?;
            is_port(port).then_some(IpAddr::V4(address))
        }),
    }
}

/// Parses the address in the parameter `for` of one element of `Forwarded`. `None` if the element is malformed, has no
/// such parameter or more than one, or if its value is `unknown` or an obfuscated identifier. IPv6 addresses must be in
/// brackets (RFC 7239, 6).
///
/// # Example
///
/// ```
/// use tollgate::http::parse_forwarded_element as parse;
///
/// assert_eq!(parse(br#"for="[2001:db8::1]:4711";proto=https"#), "2001:db8::1".parse().ok());
/// assert_eq!(parse(b"for=_hidden"), None);
/// ```
pub fn parse_forwarded_element(element: &[u8]) -> Option<IpAddr> {
    if element.len() > ENTRY_MAX_BYTES {
        return None;
    }
    let mut found = None;
    for pair in FromRight::new(element, b';') {
        let pair = trim(pair);
        if pair.is_empty() {
            // RFC 7239, 4, allows empty pairs: `for=a;;by=b`.
            continue;
        }
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&pair[..at], &pair[at + 1..]);
        if name.eq_ignore_ascii_case(b"for") && found.replace(parse_node(value)?).is_some() {
            return None;
        }
    }
    found
}

/// Parses a node, which is a token or a quoted string. A quoted string with escapes is no address.
fn parse_node(value: &[u8]) -> Option<IpAddr> {
    let inner = match value {
        [b'"', inner @ .., b'"'] => inner,
        unquoted => unquoted,
    };
    let text = std::str::from_utf8(inner).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        return parse_bracketed(rest);
    }
    let (address, port) = match text.split_once(':') {
        Some((address, port)) => (address, Some(port)),
        None => (text, None),
    };
    let address: Ipv4Addr = address.parse().ok()?;
    port.is_none_or(|port| is_port(port) || is_obfuscated(port)).then_some(IpAddr::V4(address))
}

/// Parses an IPv6 address and its port from the text after the opening bracket.
fn parse_bracketed(rest: &str) -> Option<IpAddr> {
    let (address, port) = rest.split_once(']')?;
    let address: Ipv6Addr = address.parse().ok()?;
    let port = match port.strip_prefix(':') {
        Some(port) => port,
        None if port.is_empty() => return Some(IpAddr::V6(address)),
        None => return None,
    };
    (is_port(port) || is_obfuscated(port)).then_some(IpAddr::V6(address))
}

fn is_port(port: &str) -> bool {
    (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a port is an obfuscated one: `_` and a name (RFC 7239, 6.3).
fn is_obfuscated(port: &str) -> bool {
    port.len() > 1
        && port.starts_with('_')
        && port.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Removes spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Iterates over the parts of a field between separators, from the last to the first. A separator within quotes
/// separates nothing. Because it reads from the right, a quote that a client left open affects no part to its right.
pub(crate) struct FromRight<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> FromRight<'a> {
    pub(crate) fn new(field: &'a [u8], separator: u8) -> FromRight<'a> {
        FromRight { rest: Some(field), separator }
    }
}

impl<'a> Iterator for FromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let mut at = rest.len();
        while at > 0 {
            at -= 1;
            if rest[at] == b'"' {
                // Skip to the opening quote. Without one, the rest of the field is this part.
                at = opening_quote(&rest[..at]).unwrap_or(0);
            } else if rest[at] == self.separator {
                self.rest = Some(&rest[..at]);
                return Some(&rest[at + 1..]);
            }
        }
        Some(rest)
    }
}

/// Finds the last quote that is not escaped.
fn opening_quote(before: &[u8]) -> Option<usize> {
    let mut end = before.len();
    loop {
        let at = before[..end].iter().rposition(|&byte| byte == b'"')?;
        let escapes = before[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
        if escapes.is_multiple_of(2) {
            return Some(at);
        }
        end = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(field: &str) -> Vec<&str> {
        FromRight::new(field.as_bytes(), b',')
            .map(|part| std::str::from_utf8(part).unwrap())
            .collect()
    }

    #[test]
    fn parts_are_read_from_the_right_outside_quotes() {
        assert_eq!(parts("a, b,c"), ["c", " b", "a"]);
        assert_eq!(parts(""), [""]);
        assert_eq!(parts(",,"), ["", "", ""]);
        assert_eq!(parts(r#"a="x, y",b"#), ["b", r#"a="x, y""#]);
        assert_eq!(parts(r#"a="x\", y",b"#), ["b", r#"a="x\", y""#]);
        // A quote that a client left open, and one before the proxy's comma.
        assert_eq!(parts(r#"for=", for=b"#), [" for=b", r#"for=""#]);
        assert_eq!(parts(r#"for="\, for=b"#), [" for=b", r#"for="\"#]);
        assert_eq!(parts(r#"a, b""#), [r#"a, b""#]);
    }

    #[test]
    fn entries_of_x_forwarded_for() {
        let parse = |entry: &str| parse_forwarded_for_entry(entry.as_bytes());
        let v4: IpAddr = [192, 0, 2, 1].into();
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        for entry in ["192.0.2.1", " \t192.0.2.1 ", "192.0.2.1:1", "192.0.2.1:65535"] {
            assert_eq!(parse(entry), Some(v4), "{entry:?}");
        }
        for entry in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443", "2001:DB8:0::1"] {
            assert_eq!(parse(entry), Some(v6), "{entry:?}");
        }
        let bad = [
            "",
            "unknown",
            "_hidden",
            "192.0.2.1:",
            "192.0.2.1:port",
            "192.0.2.1:123456",
            "192.0.2.256",
            "192.0.2.01",
            "[192.0.2.1]",
            "[2001:db8::1",
            "[2001:db8::1]x",
            "[2001:db8::1]:",
            "fe80::1%eth0",
            "[fe80::1%25eth0]",
            "\"192.0.2.1\"",
            "192.0.2.1\0",
            "192.0.2.1 192.0.2.2",
            "1.1",
            "0x7f000001",
        ];
        for entry in bad {
            assert_eq!(parse(entry), None, "{entry:?}");
        }
        assert_eq!(parse_forwarded_for_entry(b"\xff192.0.2.1"), None);
        assert_eq!(parse_forwarded_for_entry(&[b' '; 100_000]), None);
    }

    #[test]
    fn elements_of_forwarded() {
        let parse = |element: &str| parse_forwarded_element(element.as_bytes());
        let v4: IpAddr = [192, 0, 2, 43].into();
        let v6: IpAddr = "2001:db8:cafe::17".parse().unwrap();
        for element in [
            "for=192.0.2.43",
            "For=\"192.0.2.43\"",
            "for=192.0.2.43;proto=http;by=203.0.113.43",
            " proto=https ; FOR=192.0.2.43 ",
            "for=\"192.0.2.43:47011\"",
            "for=\"192.0.2.43:_port\"",
            "host=\"a;for=6.6.6.6\";for=192.0.2.43",
            ";;for=192.0.2.43;",
        ] {
            assert_eq!(parse(element), Some(v4), "{element:?}");
        }
        for element in ["for=\"[2001:db8:cafe::17]\"", "for=\"[2001:db8:cafe::17]:4711\""] {
            assert_eq!(parse(element), Some(v6), "{element:?}");
        }
        for element in [
            "",
            "by=192.0.2.43",
            "for",
            "for=",
            "for=unknown",
            "for=\"_gazonk\"",
            "for=2001:db8::1",
            "for=\"2001:db8::1\"",
            "for=192.0.2.43;for=192.0.2.44",
            "for=\"192.0.2.43",
            "for=192.0.2.43\"",
            "for=\"192.0.2.43\\\"\"",
            "for=192.0.2.43;nonsense",
        ] {
            assert_eq!(parse(element), None, "{element:?}");
        }
    }
}
