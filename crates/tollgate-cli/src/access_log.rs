//! Parses a line of an access log in the common or the combined format, with or without a virtual host.
//!
//!     [vhost:port ]client ident user [time] "request" status bytes "referer" "agent" "x-forwarded-for"
//!
//! Fields are borrowed from the line. The escapes that the server wrote stay in them.

use jiff::fmt::strtime;
use memchr::{memchr, memchr_iter, memchr2, memrchr};

/// A parsed line: it has a client, a time and a request. The rest may be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The time since the Unix epoch, at most [`MAX_AT_NS`].
    pub(crate) at_ns: u64,
    vhost: Option<&'a [u8]>,
    client: &'a [u8],
    user: &'a [u8],
    request: &'a [u8],
    /// Everything after the closing quote of the request.
    tail: &'a [u8],
}

/// The latest time that is parsed, in February 2116. The clock of a limiter can count the time between any
/// two parsed times.
pub(crate) const MAX_AT_NS: u64 = (1 << 62) - 2;

/// A field that a rule takes its ids from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Client,
    User,
    Method,
    Path,
    Host,
    UserAgent,
    Status,
    /// The bytes of the response.
    Bytes,
    /// `X-Forwarded-For`, which is not part of the combined format, but follows it in nginx's `main`.
    ForwardedFor,
}

const EMPTY: &str = "the line is empty";
const NO_CLIENT: &str = "no client";
const NO_TIME: &str = "no [time]";
pub(crate) const BAD_TIME: &str =
    "the time is not like [17/May/2015:10:05:03 +0000], from 1970 to 2115";
const NO_REQUEST: &str = "no \"request\" after the time";
const CUT_REQUEST: &str = "the request is cut off";

/// Parses a line without its line feed. The error names the missing part.
pub(crate) fn parse(line: &[u8]) -> Result<Entry<'_>, &'static str> {
    if line.trim_ascii().is_empty() {
        return Err(EMPTY);
    }
    let (head, at_ns, quoted) = split_at_time(line)?;
    let (vhost, head) = split_vhost(head);
    let (client, head) = split_token(head);
    if client.is_empty() {
        return Err(NO_CLIENT);
    }
    let (_ident, user) = split_token(head);
    let end = closing_quote(quoted).ok_or(CUT_REQUEST)?;
    let (request, tail) = (&quoted[..end], &quoted[end + 1..]);
    Ok(Entry { at_ns, vhost, client, user, request, tail })
}

impl<'a> Entry<'a> {
    pub(crate) fn client(&self) -> &'a [u8] {
        self.client
    }

    /// Returns a field as written; `None` if the line does not have it or has `-` in its place.
    pub(crate) fn field(&self, field: Field) -> Option<&'a [u8]> {
        let value = match field {
            Field::Client => Some(self.client),
            Field::User => Some(self.user),
            Field::Method => self.request_line().map(|(method, _)| method),
            Field::Path => self.request_line().map(|(_, target)| target),
            Field::Host => self.host(),
            Field::UserAgent => self.quoted(1),
            Field::Status => self.status(),
            Field::Bytes => self.bytes(),
            Field::ForwardedFor => self.quoted(2),
        };
        value.filter(|value| is_present(value))
    }

    fn request_line(&self) -> Option<(&'a [u8], &'a [u8])> {
        request_line(self.request)
    }

    fn host(&self) -> Option<&'a [u8]> {
        host(self.request_line().map(|(_, target)| target), self.vhost)
    }

    fn status(&self) -> Option<&'a [u8]> {
        let (status, _) = split_token(self.tail.strip_prefix(b" ")?);
        is_status(status).then_some(status)
    }

    fn bytes(&self) -> Option<&'a [u8]> {
        let (_status, rest) = split_token(self.tail.strip_prefix(b" ")?);
        match split_token(rest).0 {
            // The common format has `-` for a response without a body.
            b"-" => Some(b"0"),
            bytes => bytes.iter().all(u8::is_ascii_digit).then_some(bytes),
        }
    }

    /// Returns a quoted field after the bytes: 0 is the referer.
    fn quoted(&self, number: usize) -> Option<&'a [u8]> {
        let (_status, rest) = split_token(self.tail.strip_prefix(b" ")?);
        let (_bytes, mut rest) = split_token(rest);
        for _ in 0..number {
            let before = rest.strip_prefix(b"\"")?;
            rest = before[closing_quote(before)? + 1..].strip_prefix(b" ")?;
        }
        let field = rest.strip_prefix(b"\"")?;
        Some(&field[..closing_quote(field)?])
    }
}

/// Returns whether a field has a value. Servers write `-` where there is none.
pub(crate) fn is_present(value: &[u8]) -> bool {
    !value.is_empty() && value != b"-"
}

pub(crate) fn is_status(status: &[u8]) -> bool {
    status.len() == 3 && status.iter().all(u8::is_ascii_digit)
}

/// Returns the method and the target of a request. A request of one word, such as `-` or a TLS hello, has neither.
pub(crate) fn request_line(request: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr(b' ', request)?;
    let (method, rest) = (&request[..space], &request[space + 1..]);
    // A target may contain spaces that the client did not escape: only the version ends it.
    let target = match memrchr(b' ', rest) {
        Some(space) if rest[space + 1..].starts_with(b"HTTP/") => &rest[..space],
        _ => rest,
    };
    Some((method, target))
}

/// Returns the host of an absolute target, else the virtual host.
pub(crate) fn host<'a>(target: Option<&'a [u8]>, vhost: Option<&'a [u8]>) -> Option<&'a [u8]> {
    target.and_then(authority).or(vhost).map(without_port)
}

impl Field {
    pub(crate) const ALL: [(&'static str, Field); 9] = [
        ("client", Field::Client),
        ("user", Field::User),
        ("method", Field::Method),
        ("path", Field::Path),
        ("host", Field::Host),
        ("user_agent", Field::UserAgent),
        ("status", Field::Status),
        ("bytes", Field::Bytes),
        ("forwarded_for", Field::ForwardedFor),
    ];

    pub(crate) fn named(name: &str) -> Option<Field> {
        Field::ALL.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
    }

    pub(crate) fn name(self) -> &'static str {
        Field::ALL.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }
}

/// Splits a line at its time, and at the quote that opens the request: the time is the first in brackets before ` "`.
///
/// The client chooses the user's name, which stands before the time, also if the server refuses that user. A name may have times
/// in brackets, but Apache and nginx write its quotes as `\"` and `\x22`. So the first time before ` "` is the server's own. In
/// the log of a server that does not escape quotes, no part of a line can be trusted.
fn split_at_time(line: &[u8]) -> Result<(&[u8], u64, &[u8]), &'static str> {
    let mut fault = NO_TIME;
    for bracket in memchr_iter(b'[', line) {
        if bracket == 0 || line[bracket - 1] != b' ' {
            continue;
        }
        let inside = &line[bracket + 1..];
        if let Some((time, rest)) = inside.split_first_chunk::<TIME_LEN>()
            && let Some(rest) = rest.strip_prefix(b"]")
            && let Some(at_ns) = unix_ns(time)
        {
            if let Some(quoted) = rest.strip_prefix(b" \"") {
                return Ok((&line[..bracket - 1], at_ns, quoted));
            }
            fault = NO_REQUEST;
        } else if fault == NO_TIME {
            fault = BAD_TIME;
        }
    }
    Err(fault)
}

/// The length of `17/May/2015:10:05:03 +0000`.
const TIME_LEN: usize = 26;

/// Parses a time such as `17/May/2015:10:05:03 +0000`.
pub(crate) fn unix_ns(time: &[u8; TIME_LEN]) -> Option<u64> {
    // A leap second, the 60th, is read as the 59th.
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).ok()?.to_timestamp().ok()?;
    let at_ns = u64::try_from(time.as_second()).ok()?.checked_mul(1_000_000_000)?;
    (at_ns <= MAX_AT_NS).then_some(at_ns)
}

/// Splits `vhost:port` from the start of `vhost:port client ident user`. It has a port, unlike a client, and
/// three words follow it.
fn split_vhost(head: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let (first, rest) = split_token(head);
    if has_port(first) && memchr_iter(b' ', rest).take(2).count() == 2 {
        (Some(first), rest)
    } else {
        (None, head)
    }
}

fn has_port(authority: &[u8]) -> bool {
    let Some(colon) = memrchr(b':', authority) else { return false };
    let (name, port) = (&authority[..colon], &authority[colon + 1..]);
    // An IPv6 address without brackets has more colons, and no port.
    let is_name = if name.first() == Some(&b'[') {
        name.last() == Some(&b']')
    } else {
        !name.is_empty() && memchr(b':', name).is_none()
    };
    is_name && (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit)
}

/// Returns `host:port` of a target such as `http://user@host:port/path`.
fn authority(target: &[u8]) -> Option<&[u8]> {
    let (authority, _) = split_authority(target)?;
    Some(memrchr(b'@', authority).map_or(authority, |at| &authority[at + 1..]))
}

/// Splits an absolute target behind its scheme: `user@host:port` and `/path`.
fn split_authority(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr(b':', target)?;
    let scheme = &target[..colon];
    if scheme.is_empty() || !scheme.iter().all(u8::is_ascii_alphabetic) {
        return None;
    }
    let rest = target[colon..].strip_prefix(b"://")?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    Some(rest.split_at(end.unwrap_or(rest.len())))
}

/// Returns the path of a target: without scheme and host, and without a query.
pub(crate) fn path_of(target: &[u8]) -> &[u8] {
    let path = split_authority(target).map_or(target, |(_, path)| path);
    &path[..memchr2(b'?', b'#', path).unwrap_or(path.len())]
}

/// Returns the host of `host:port`, and `2001:db8::1` of `[2001:db8::1]:443`.
fn without_port(authority: &[u8]) -> &[u8] {
    if let Some(bracketed) = authority.strip_prefix(b"[")
        && let Some(end) = memchr(b']', bracketed)
    {
        return &bracketed[..end];
    }
    memchr(b':', authority).map_or(authority, |colon| &authority[..colon])
}

/// Splits at the first space. Without a space, the second part is empty.
fn split_token(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b' ', text) {
        Some(space) => (&text[..space], &text[space + 1..]),
        None => (text, b""),
    }
}

/// Returns the position of the quote that ends a quoted field. A backslash escapes the byte after it.
fn closing_quote(quoted: &[u8]) -> Option<usize> {
    let mut from = 0;
    // Each iteration moves `from` forward.
    loop {
        let at = from + memchr2(b'"', b'\\', quoted.get(from..)?)?;
        if quoted[at] == b'"' {
            return Some(at);
        }
        from = at + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMBINED: &str = r#"83.149.9.216 - frank [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 203023 "http://x.example/" "Mozilla/5.0 (X11)""#;

    fn field(line: &str, field: Field) -> Option<String> {
        let entry = parse(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
        entry.field(field).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    fn at(time: &str) -> Result<u64, &'static str> {
        let line = format!("1.2.3.4 - - [{time}] \"GET / HTTP/1.1\" 200 1");
        parse(line.as_bytes()).map(|entry| entry.at_ns / 1_000_000_000)
    }

    #[test]
    fn combined_lines_have_all_fields_but_host() {
        let fields = Field::ALL.map(|(_, name)| field(COMBINED, name));
        let (path, agent) = ("/a?b=c", "Mozilla/5.0 (X11)");
        let expected = ["83.149.9.216", "frank", "GET", path, "", agent, "200", "203023", ""];
        let expected = expected.map(|text| (!text.is_empty()).then(|| text.to_owned()));
        assert_eq!(fields, expected);
    }

    #[test]
    fn forwarded_addresses_follow_the_user_agent() {
        let line = COMBINED.to_owned() + r#" "6.6.6.6, 192.0.2.7""#;
        assert_eq!(field(&line, Field::ForwardedFor).as_deref(), Some("6.6.6.6, 192.0.2.7"));
        assert_eq!(field(&line, Field::UserAgent).as_deref(), Some("Mozilla/5.0 (X11)"));
        assert_eq!(field(&(COMBINED.to_owned() + r#" "-""#), Field::ForwardedFor), None);
    }

    #[test]
    fn a_response_without_body_has_zero_bytes() {
        let line = |bytes| COMBINED.replace("203023", bytes);
        assert_eq!(field(&line("-"), Field::Bytes).as_deref(), Some("0"));
        assert_eq!(field(&line("x1"), Field::Bytes), None);
    }

    #[test]
    fn paths_have_no_host_and_no_query() {
        for (target, path) in [
            ("/a/b?c=/d#e", "/a/b"),
            ("http://me@a.example:80/b?c", "/b"),
            ("http://a.example?c", ""),
            ("*", "*"),
            ("/go?to=http://a.example/", "/go"),
        ] {
            assert_eq!(path_of(target.as_bytes()), path.as_bytes(), "{target}");
        }
    }

    #[test]
    fn times_are_converted_from_their_zone() {
        assert_eq!(at("17/May/2015:10:05:03 +0000"), Ok(1_431_857_103));
        assert_eq!(at("17/May/2015:12:05:03 +0200"), Ok(1_431_857_103));
        assert_eq!(at("17/May/2015:04:35:03 -0530"), Ok(1_431_857_103));
        assert_eq!(at("01/Jan/1970:00:00:00 +0000"), Ok(0));
        assert_eq!(at("29/Feb/2016:00:00:00 +0000"), Ok(1_456_704_000));
        assert_eq!(at("31/Dec/2016:23:59:60 +0000"), Ok(1_483_228_799), "a leap second");
    }

    #[test]
    fn invalid_times_are_refused() {
        for time in [
            "29/Feb/2015:00:00:00 +0000",
            "17/May/2015:24:05:03 +0000",
            "17/May/2015:10:05:61 +0000",
            "17/Mai/2015:10:05:03 +0000",
            "17/May/2015:10:05:03 00000",
            "17/May/2015:10:05:03 +0060",
            "17/May/2015:10:05:03",
            "31/Dec/1969:23:59:59 +0000",
            "21/Feb/2116:00:00:00 +0000",
            "-7/May/2015:10:05:03 +0000",
        ] {
            assert_eq!(at(time), Err(BAD_TIME), "{time}");
        }
    }

    #[test]
    fn escaped_quotes_stay_as_written() {
        let line = r#"::1 - - [17/May/2015:10:05:03 +0000] "GET /\"a\\\x22 HTTP/1.1" 404 - "-" "\"quoted\" \\""#;
        assert_eq!(field(line, Field::Path).as_deref(), Some(r#"/\"a\\\x22"#));
        assert_eq!(field(line, Field::UserAgent).as_deref(), Some(r#"\"quoted\" \\"#));
        assert_eq!(field(line, Field::Client).as_deref(), Some("::1"));
        assert_eq!(field(line, Field::User), None);
    }

    #[test]
    fn the_tail_may_be_cut_off() {
        let request_end = COMBINED.find("1.1\"").unwrap() + 4;
        for end in request_end..COMBINED.len() {
            let line = &COMBINED[..end];
            assert_eq!(field(line, Field::Path).as_deref(), Some("/a?b=c"), "{line}");
            assert_eq!(field(line, Field::UserAgent), None, "{line}");
        }
        assert_eq!(
            field(&COMBINED[..request_end + 3], Field::Status),
            None,
            "a status of two digits"
        );
        assert_eq!(parse(&COMBINED.as_bytes()[..request_end - 1]), Err(CUT_REQUEST));
    }

    #[test]
    fn hosts_come_from_target_or_virtual_host() {
        let host = |front: &str, target: &str| {
            let line = format!(
                "{front}1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET {target} HTTP/1.1\""
            );
            assert_eq!(field(&line, Field::Client).as_deref(), Some("1.2.3.4"));
            field(&line, Field::Host)
        };
        assert_eq!(host("", "/"), None);
        assert_eq!(host("example.org:443 ", "/").as_deref(), Some("example.org"));
        assert_eq!(host("[2001:db8::1]:80 ", "/").as_deref(), Some("2001:db8::1"));
        assert_eq!(
            host("example.org:443 ", "http://other.example/").as_deref(),
            Some("other.example")
        );
        assert_eq!(host("", "http://me@other.example:8080?x").as_deref(), Some("other.example"));
        assert_eq!(host("", "/redirect?to=http://other.example/"), None);
    }

    #[test]
    fn clients_with_colons_are_no_virtual_hosts() {
        let line = "2001:db8::1:80 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1";
        assert_eq!(field(line, Field::Client).as_deref(), Some("2001:db8::1:80"));
        let line = "a.example:80 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1";
        assert_eq!(field(line, Field::Client).as_deref(), Some("a.example:80"));
    }

    #[test]
    fn users_may_have_spaces_and_brackets() {
        let line = "1.2.3.4 - john [the user] doe [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\"";
        assert_eq!(field(line, Field::User).as_deref(), Some("john [the user] doe"));
    }

    /// Whoever sends a request chooses the user's name, also of one that is refused.
    #[test]
    fn a_user_may_look_like_a_time() {
        let real = "[20/Nov/2026:10:05:03 +0000] \"GET / HTTP/1.1\" 401 1";
        for user in [
            "x [17/May/2015:10:05:03 +0000]",
            "[17/May/2015:10:05:03 +0000]",
            "[17/May/2015:25:05:03 +0000]",
            // Apache and nginx escape quotes.
            r#"x [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 1"#,
            r"x [17/May/2015:10:05:03 +0000] \x22GET /a HTTP/1.1\x22 200 1",
        ] {
            let line = format!("1.2.3.4 - {user} {real}");
            assert_eq!(field(&line, Field::User).as_deref(), Some(user));
            let at_ns = parse(line.as_bytes()).unwrap().at_ns;
            assert_eq!(at_ns, 1_795_169_103_000_000_000, "{user}");
        }
        // Fields behind the time can look like a time.
        let time = "[17/May/2015:10:05:03 +0000]";
        let line = format!("1.2.3.4 - - {time} \"GET / {time} \" 400 1 \"{time} \" \"{time} \"");
        assert_eq!(field(&line, Field::Path), Some(format!("/ {time} ")));
    }

    #[test]
    fn requests_of_one_word_have_no_method() {
        for request in ["-", "\\x16\\x03\\x01", ""] {
            let line = format!("1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"{request}\" 400 0");
            assert_eq!(field(&line, Field::Method), None);
            assert_eq!(field(&line, Field::Path), None);
            assert_eq!(field(&line, Field::Status).as_deref(), Some("400"));
        }
        let line = "1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET /a b\" 400 0";
        assert_eq!(field(line, Field::Path).as_deref(), Some("/a b"));
    }

    #[test]
    fn errors_name_the_missing_part() {
        assert_eq!(parse(b" \t"), Err(EMPTY));
        assert_eq!(parse(b"hello"), Err(NO_TIME));
        assert_eq!(parse(b" - - [17/May/2015:10:05:03 +0000] \"GET /\""), Err(NO_CLIENT));
        assert_eq!(parse(b"a - - [17/May/2015:10:05:03 +0000]"), Err(NO_REQUEST));
        assert_eq!(parse(b"a - - [17/May/2015:10:05:03 +0000] GET /[a] [b]"), Err(NO_REQUEST));
        assert_eq!(parse(b"a - - [17/May/2015:10:05:03] \"GET /\""), Err(BAD_TIME));
        assert_eq!(parse(b"a - - [17/May/2015:10:05:03 +0000] \"GET /\\\""), Err(CUT_REQUEST));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(entry) = parse(&line) {
                for (_, field) in Field::ALL {
                    entry.field(field);
                }
            }
        }

        #[test]
        fn mutated_lines_are_parsed_or_refused(
            at in 0..COMBINED.len(), byte in any::<u8>(), end in 0..=COMBINED.len(),
        ) {
            let mut line = COMBINED.as_bytes().to_vec();
            line[at] = byte;
            line.truncate(end);
            if let Ok(entry) = parse(&line) {
                for (_, field) in Field::ALL {
                    entry.field(field);
                }
            }
        }
    }
}
