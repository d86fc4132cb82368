//! Denials and refusals as gRPC and gRPC-Web have them: a status in headers that are trailers as well.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::http::Rejection;
use crate::http::retry_after::milliseconds;
use crate::http::text::{number, value_of};
use crate::http::tower::Denial;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What a gRPC client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http2,
    Web,
    WebText,
}

impl Protocol {
    /// `None` for a request that is not gRPC's. An answer to gRPC has the status 200, which a cache
    /// may keep and a browser takes for success: a request that only looks like gRPC must not get it.
    pub(crate) fn of(request: &Parts) -> Option<Protocol> {
        let mut types = request.headers.get_all(CONTENT_TYPE).iter();
        let (Some(value), None) = (types.next(), types.next()) else { return None };
        if request.method != Method::POST {
            return None;
        }
        let protocols = [Protocol::Http2, Protocol::Web, Protocol::WebText];
        protocols.into_iter().find(|protocol| is_type(value.as_bytes(), protocol.media_type()))
    }

    fn media_type(self) -> &'static str {
        match self {
            Protocol::Http2 => "application/grpc",
            Protocol::Web => "application/grpc-web",
            Protocol::WebText => "application/grpc-web-text",
        }
    }

    /// The content type of an answer. gRPC-Web's must name the format, even of no message at all.
    fn answer_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Protocol::Http2 => "application/grpc",
            Protocol::Web => "application/grpc-web+proto",
            Protocol::WebText => "application/grpc-web-text+proto",
        })
    }

    /// RESOURCE_EXHAUSTED, and how long to wait before a retry.
    pub(crate) fn denied(self, denial: &Denial<'_>) -> Response<Bytes> {
        let text = format!("too many requests: try again in {} s", denial.retry_after());
        let mut response = self.status("8", &text);
        if let Some(value) = pushback(denial.decision().retry_in()) {
            response.headers_mut().insert(GRPC_PUSHBACK, value);
        }
        response
    }

    /// INVALID_ARGUMENT, UNAUTHENTICATED or PERMISSION_DENIED, else INTERNAL.
    pub(crate) fn refused(self, refusal: &Rejection) -> Response<Bytes> {
        let code = match refusal.status() {
            StatusCode::UNAUTHORIZED => "16",
            StatusCode::FORBIDDEN => "7",
            status if status.is_client_error() => "3",
            _ => "13",
        };
        self.status(code, refusal.reason())
    }

    fn status(self, code: &'static str, message: &str) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, self.answer_type());
        headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
        if let Some(message) = value_of(|text| push_percent(text, message)) {
            headers.insert(GRPC_MESSAGE, message);
        }
        response
    }
}

/// Whether a content type is this media type, alone, with a format (`+proto`) or with parameters.
fn is_type(value: &[u8], media_type: &str) -> bool {
    let Some((start, rest)) = value.split_at_checked(media_type.len()) else { return false };
    start.eq_ignore_ascii_case(media_type.as_bytes())
        && matches!(rest.first(), None | Some(b'+' | b';'))
}

/// The wait in milliseconds, rounded up. Clients read it as 32 bits: for a longer one they are told not
/// to retry at all, which is what -1 means (gRFC A6).
fn pushback(wait: Duration) -> Option<HeaderValue> {
    match i32::try_from(milliseconds(wait)) {
        Ok(ms) => number(u64::from(ms.max(1).unsigned_abs())),
        Err(_) => Some(HeaderValue::from_static("-1")),
    }
}

/// Adds a text as gRPC has it over HTTP/2: all but printable ASCII, and `%`, as `%` and two digits.
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
        Protocol::of(&request.into_parts().0)
    }

    #[test]
    fn only_post_with_grpc_content_type_is_grpc() {
        use Protocol::{Http2, Web, WebText};
        for (value, expected) in [
            ("application/grpc", Some(Http2)),
            ("Application/GRPC", Some(Http2)),
            ("application/grpc+proto", Some(Http2)),
            ("application/grpc;charset=utf-8", Some(Http2)),
            ("application/grpc-web", Some(Web)),
            ("application/grpc-Web+proto", Some(Web)),
            ("application/grpc-web-text", Some(WebText)),
            ("application/grpc-web-text+proto; q=1", Some(WebText)),
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
    fn pushback_rounds_up_and_fits_32_bits() {
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
