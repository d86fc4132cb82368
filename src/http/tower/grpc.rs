//! Makes the answers to denied and rejected requests for gRPC and gRPC-Web: responses that have only headers, which
//! clients read as trailers.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::http::Rejection;
use crate::http::retry_after::milliseconds;
use crate::http::text::{number, value_of};
use crate::http::tower::Denial;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The content types of gRPC over HTTP/2, of gRPC-Web and of gRPC-Web as text: a request's media type, and the type of the
/// answer. For gRPC-Web the answer must name the message format, even without a message.
const CONTENT_TYPES: [(&str, &str); 3] = [
    ("application/grpc", "application/grpc"),
    ("application/grpc-web", "application/grpc-web+proto"),
    ("application/grpc-web-text", "application/grpc-web-text+proto"),
];

/// The protocol of a gRPC request, by the content type of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol(&'static str);

impl Protocol {
    /// Returns the protocol of a gRPC request, `None` for any other request. gRPC's answers have the status 200, which a
    /// cache may store and a browser takes for success, so a request that only resembles gRPC must not get one.
    pub(crate) fn from_request(request: &Parts) -> Option<Protocol> {
        let mut types = request.headers.get_all(CONTENT_TYPE).iter();
        let (Some(value), None) = (types.next(), types.next()) else { return None };
        if request.method != Method::POST {
            return None;
        }
        let mut known = CONTENT_TYPES.iter();
        let found = known.find(|(media_type, _)| is_type(value.as_bytes(), media_type));
        found.map(|(_, answer)| Protocol(answer))
    }

    /// Makes a RESOURCE_EXHAUSTED with the wait until a retry, or an UNAVAILABLE in place of a 503.
    pub(crate) fn denied(self, denial: &Denial<'_>) -> Response<Bytes> {
        let text = format!("{}: try again in {} s", denial.title(), denial.retry_after());
        let mut response = self.status(if denial.is_unavailable { "14" } else { "8" }, &text);
        if let Some(value) = pushback(denial.decision().retry_in()) {
            response.headers_mut().insert(GRPC_PUSHBACK, value);
        }
        response
    }

    /// Makes the answer to a rejection: UNAUTHENTICATED for 401, PERMISSION_DENIED for 403, UNIMPLEMENTED for 404,
    /// INVALID_ARGUMENT for another client error, else INTERNAL.
    pub(crate) fn rejected(self, rejection: &Rejection) -> Response<Bytes> {
        let code = match rejection.status() {
            StatusCode::UNAUTHORIZED => "16",
            StatusCode::FORBIDDEN => "7",
            StatusCode::NOT_FOUND => "12",
            status if status.is_client_error() => "3",
            _ => "13",
        };
        self.status(code, rejection.reason())
    }

    fn status(self, code: &'static str, message: &str) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.0));
        headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
        if let Some(message) = value_of(|text| push_percent(text, message)) {
            headers.insert(GRPC_MESSAGE, message);
        }
        response
    }
}

/// Returns whether a content type is this media type, alone, with a format (`+proto`) or with parameters.
fn is_type(value: &[u8], media_type: &str) -> bool {
    let Some((start, rest)) = value.split_at_checked(media_type.len()) else { return false };
    start.eq_ignore_ascii_case(media_type.as_bytes())
        && matches!(rest.first(), None | Some(b'+' | b';'))
}

/// Returns the wait in milliseconds, rounded up. Clients read 32 bits. A longer wait becomes -1, which tells the client
/// not to retry (gRFC A6).
fn pushback(wait: Duration) -> Option<HeaderValue> {
    match i32::try_from(milliseconds(wait)) {
        Ok(ms) => number(u64::from(ms.max(1).unsigned_abs())),
        Err(_) => Some(HeaderValue::from_static("-1")),
    }
}

/// Replaces the wait of an inner layer's denial by a longer one. A -1, which tells the client not to retry, stays.
pub(crate) fn raise_pushback(headers: &mut HeaderMap, wait: Duration) {
    if headers.get(GRPC_PUSHBACK).is_some_and(|existing| existing != "-1")
        && let Some(value) = pushback(wait)
    {
        headers.insert(GRPC_PUSHBACK, value);
    }
}

/// Appends a text in gRPC's percent encoding: `%` and all bytes except printable ASCII become `%` and two digits.
fn push_percent(value: &mut String, text: &str) {
    for &byte in text.as_bytes() {
        match byte {
            // Writing to a string does not fail.
            b'%' | ..b' ' | 0x7f.. => _ = write!(value, "%{byte:02X}"),
            _ => value.push(char::from(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol(method: Method, types: &[&'static str]) -> Option<Protocol> {
        let mut request = http::Request::new(());
        *request.method_mut() = method;
        for value in types {
            request.headers_mut().append(CONTENT_TYPE, HeaderValue::from_static(value));
        }
        Protocol::from_request(&request.into_parts().0)
    }

    #[test]
    fn only_posts_with_grpcs_content_type_are_grpc() {
        const HTTP2: Protocol = Protocol("application/grpc");
        const WEB: Protocol = Protocol("application/grpc-web+proto");
        const WEB_TEXT: Protocol = Protocol("application/grpc-web-text+proto");
        for (value, expected) in [
            ("application/grpc", Some(HTTP2)),
            ("Application/GRPC", Some(HTTP2)),
            ("application/grpc+proto", Some(HTTP2)),
            ("application/grpc;charset=utf-8", Some(HTTP2)),
            ("application/grpc-web", Some(WEB)),
            ("application/grpc-Web+proto", Some(WEB)),
            ("application/grpc-web-text", Some(WEB_TEXT)),
            ("application/grpc-web-text+proto; q=1", Some(WEB_TEXT)),
            ("application/grpcfoo", None),
            ("application/grpc-webfoo", None),
            ("application/grpc/x", None),
            ("application/grpc ", None),
            ("application/grp", None),
            ("application/json", None),
            ("", None),
        ] {
            assert_eq!(protocol(Method::POST, &[value]), expected, "{value}");
            assert_eq!(protocol(Method::GET, &[value]), None, "{value}");
        }
        assert_eq!(protocol(Method::POST, &[]), None);
        assert_eq!(protocol(Method::POST, &["application/grpc", "text/html"]), None);
    }

    #[test]
    fn pushback_is_rounded_up_to_32_bits() {
        for (ns, ms) in [
            (0, "1"),
            (1, "1"),
            (1_000_000, "1"),
            (1_000_001, "2"),
            (2_147_483_647_000_000, "2147483647"),
        ] {
            assert_eq!(pushback(Duration::from_nanos(ns)).unwrap(), ms);
        }
        assert_eq!(pushback(Duration::from_nanos(2_147_483_647_000_001)).unwrap(), "-1");
        assert_eq!(pushback(Duration::MAX).unwrap(), "-1");
    }

    #[test]
    fn messages_are_escaped() {
        let mut percent = String::new();
        push_percent(&mut percent, "50% of \u{e9}\r\n~");
        assert_eq!(percent, "50%25 of %C3%A9%0D%0A~");
    }
}
