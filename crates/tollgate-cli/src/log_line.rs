//! A line of an access log in one of the two formats, and its client.

use std::borrow::Cow;
use std::net::IpAddr;

use clap::ValueEnum;
use tollgate::http::parse_forwarded_for_entry;

use crate::access_log::{self, Field, is_present};
use crate::client::network_of;
use crate::json_log::{self, Keys};

/// The format of a log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The common or the combined format of Apache and nginx
    Text,
    /// One JSON object a line
    Json,
}

/// The rules by which the client of a line is found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clients {
    /// The proxies in front of the server, each of which has appended an address to `X-Forwarded-For`.
    pub(crate) trusted_hops: Option<u8>,
    /// The prefix length of the network that an IPv6 client is counted by.
    pub(crate) ipv6_prefix: Option<u8>,
}

/// A parsed line.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) at_ns: u64,
    line: Line<'a>,
    /// The client, if it is not the one as written.
    client: Option<String>,
}

#[derive(Clone, Debug)]
enum Line<'a> {
    Text(access_log::Entry<'a>),
    Json(json_log::Entry<'a>),
}

impl Format {
    /// Returns the format of a log with this line; `None` if the line is empty.
    pub(crate) fn of(line: &[u8]) -> Option<Format> {
        match line.trim_ascii().first()? {
            b'{' => Some(Format::Json),
            _ => Some(Format::Text),
        }
    }

    /// Parses a line without its line feed. The error is the reason to skip it.
    pub(crate) fn parse<'a>(self, line: &'a [u8], keys: &'a Keys) -> Result<Entry<'a>, String> {
        let (at_ns, line) = match self {
            Format::Text => {
                let entry = access_log::parse(line)?;
                (entry.at_ns, Line::Text(entry))
            }
            Format::Json => {
                let entry = json_log::parse(line, keys)?;
                (entry.at_ns, Line::Json(entry))
            }
        };
        Ok(Entry { at_ns, line, client: None })
    }
}

impl Clients {
    /// Finds the client of a line. The error is the reason to skip the line.
    pub(crate) fn find(self, entry: &mut Entry<'_>) -> Result<(), String> {
        if let Some(hops @ 1..) = self.trusted_hops {
            let field = entry.field(Field::ForwardedFor).ok_or("no forwarded_for")?;
            entry.client = Some(forwarded(&field, hops)?.to_string());
        }
        if let Some(prefix) = self.ipv6_prefix
            && let Some(network) = network_of(&entry.client(), prefix)
        {
            entry.client = Some(network);
        }
        Ok(())
    }
}

/// Returns the address that the farthest of the trusted proxies has appended. Clients can have written the entries left of it.
fn forwarded(field: &[u8], hops: u8) -> Result<IpAddr, String> {
    let entries = field.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let mut entries = entries.filter(|entry| !entry.is_empty()).rev();
    let entry = entries.nth(usize::from(hops) - 1).ok_or_else(|| {
        format!("forwarded_for has fewer addresses than there are trusted hops, {hops}")
    })?;
    let address = parse_forwarded_for_entry(entry);
    address.map(|address| address.to_canonical()).ok_or("forwarded_for: no address".into())
}

impl Entry<'_> {
    pub(crate) fn client(&self) -> Cow<'_, [u8]> {
        match (&self.client, &self.line) {
            (Some(client), _) => client.as_bytes().into(),
            (None, Line::Text(entry)) => entry.client().into(),
            (None, Line::Json(entry)) => bytes(entry.client()),
        }
    }

    /// Returns a field; `None` if the line does not have it or has `-` in its place.
    pub(crate) fn field(&self, field: Field) -> Option<Cow<'_, [u8]>> {
        match (field, &self.line) {
            (Field::Client, _) => Some(self.client()).filter(|client| is_present(client)),
            (_, Line::Text(entry)) => entry.field(field).map(Cow::Borrowed),
            (_, Line::Json(entry)) => entry.field(field).map(bytes),
        }
    }

    /// Returns the member of a JSON object that a key without its first dot names.
    pub(crate) fn member(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        match &self.line {
            Line::Text(_) => None,
            Line::Json(entry) => entry.member(key).map(bytes),
        }
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_tells_the_format() {
        for (line, format) in [
            ("", None),
            (" \t\r", None),
            ("  {\"a\":1}", Some(Format::Json)),
            ("1.1.1.1 - {", Some(Format::Text)),
        ] {
            assert_eq!(Format::of(line.as_bytes()), format, "{line:?}");
        }
    }

    #[test]
    fn a_hyphen_is_no_client() {
        let keys = Keys::default();
        for line in [
            "- - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1",
            r#"{"ts":1,"remote_addr":"-","request":"GET / HTTP/1.1"}"#,
        ] {
            let entry = Format::of(line.as_bytes()).unwrap().parse(line.as_bytes(), &keys).unwrap();
            assert_eq!(entry.field(Field::Client), None, "{line}");
        }
    }

    #[test]
    fn hops_count_from_the_right() {
        let of = |field: &str, hops| forwarded(field.as_bytes(), hops).map(|ip| ip.to_string());
        let field = "6.6.6.6, , [2001:db8::1]:80,192.0.2.7:4711, ::ffff:10.0.0.1,";
        for (hops, client) in
            [(1, "10.0.0.1"), (2, "192.0.2.7"), (3, "2001:db8::1"), (4, "6.6.6.6")]
        {
            assert_eq!(of(field, hops), Ok(client.to_owned()));
        }
        assert!(of(field, 5).unwrap_err().contains("fewer addresses"));
        assert!(of("unknown", 1).unwrap_err().contains("no address"));
    }
}
