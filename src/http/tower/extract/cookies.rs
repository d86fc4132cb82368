//! Finds a cookie in a request, in whichever spelling the service may read it.

use std::borrow::Cow;

use http::header::COOKIE;
use http::request::Parts;

use crate::http::forwarded::trim;
use crate::http::tower::{Rejection, Who};
use crate::limits::Id;
use crate::observe::rejections::RejectionKind;
use crate::util::escape::quoted;

/// Returns the value of the cookie, or `missing()` if the request has none of that name.
pub(super) fn find<'a>(parts: &'a Parts, name: &str, missing: impl FnOnce() -> Who<'a>) -> Who<'a> {
    let rejected = |what: &str| {
        let reason = format!("the cookie {} {what}", quoted(name, 64));
        Who::Refused(Rejection::of_client(RejectionKind::InvalidId, reason))
    };
    let decoded_name = decoded(name.as_bytes());
    // HTTP/2 may spread the cookies over several fields (RFC 9113, 8.2.3).
    let lines = parts.headers.get_all(COOKIE).iter();
    let mut values = lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .filter_map(|pair| value_of(pair, &decoded_name));
    let Some(value) = values.next() else { return missing() };
    // Servers differ in which of several they take.
    if values.next().is_some() {
        return rejected("occurs more than once");
    }
    let decoded = match decoded(value) {
        Cow::Borrowed(value) => std::str::from_utf8(value).ok().map(|text| Who::Id(Id::Text(text))),
        Cow::Owned(value) => String::from_utf8(value).ok().map(Who::Text),
    };
    match decoded {
        Some(Who::Id(Id::Text("")) | Who::NoLimit) => rejected("is empty"),
        Some(who) => who,
        None => rejected("is not UTF-8"),
    }
}

/// Returns the value of a pair if it has this decoded name. Some servers decode names as well.
fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = pair.iter().position(|byte| *byte == b'=')?;
    if *decoded(trim(&pair[..at])) != *name {
        return None;
    }
    match trim(&pair[at + 1..]) {
        [b'"', inner @ .., b'"'] => Some(inner),
        value => Some(value),
    }
}

/// Decodes `%` with two hexadecimal digits. Any other `%` stands for itself.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return text.into();
    }
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                // Two digits of 4 bits are at most 255.
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out.into()
}
