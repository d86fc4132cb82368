//! The answer to a denied call: ready responders, which a responder of one's own can call as well.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::Decision;
use crate::http::Refusal;
use crate::http::retry_after::retry_after;
use crate::http::text::value_of;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Of draft-ietf-httpapi-ratelimit-headers-11, 5.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// A denied call, for a responder.
#[derive(Debug)]
pub struct Denial<'a> {
    pub(crate) decision: Decision,
    pub(crate) violated: &'a [&'a str],
    pub(crate) request: &'a Parts,
}

impl Denial<'_> {
    /// The decision.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// The names of the limits that deny, as clients see them.
    pub fn violated(&self) -> &[&str] {
        self.violated
    }

    /// The whole seconds that `Retry-After` will say, at least 1.
    pub fn retry_after(&self) -> u64 {
        retry_after(&self.decision).unwrap_or(1)
    }

    /// The request, without its body.
    pub fn request(&self) -> &Parts {
        self.request
    }
}

/// A 429 with a problem document (RFC 9457) of the type `quota-exceeded`, which names the limits that
/// deny. No cache may keep it (RFC 6585, 4).
pub fn problem_json(denial: &Denial<'_>) -> Response<Bytes> {
    let mut text = format!(
        "{{\"type\":\"{QUOTA_EXCEEDED}\",\"title\":\"Quota exceeded\",\"status\":429,\"detail\":\"try again in {} s\",\"violated-policies\":[",
        denial.retry_after()
    );
    for (at, name) in denial.violated.iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        push_json(&mut text, name);
    }
    text.push_str("]}");
    response(StatusCode::TOO_MANY_REQUESTS, PROBLEM_JSON, text)
}

/// A 429 with a line of text. No cache may keep it.
pub fn plain_text(denial: &Denial<'_>) -> Response<Bytes> {
    let text = format!("too many requests: try again in {} s\n", denial.retry_after());
    response(StatusCode::TOO_MANY_REQUESTS, PLAIN_TEXT, text)
}

/// What gRPC has for it: RESOURCE_EXHAUSTED, in headers that are trailers as well.
pub(crate) fn grpc(denial: &Denial<'_>) -> Response<Bytes> {
    let text = format!("too many requests: try again in {} s", denial.retry_after());
    grpc_status("8", &text)
}

/// A refusal, as problem document or as text.
pub(crate) fn refused(refusal: &Refusal, as_text: bool) -> Response<Bytes> {
    let (status, reason) = (refusal.status(), refusal.reason());
    if as_text {
        return response(status, PLAIN_TEXT, format!("{reason}\n"));
    }
    let mut text = String::from("{\"title\":");
    push_json(&mut text, status.canonical_reason().unwrap_or("Error"));
    let _ = write!(text, ",\"status\":{},\"detail\":", status.as_u16());
    push_json(&mut text, reason);
    text.push('}');
    response(status, PROBLEM_JSON, text)
}

/// A refusal as gRPC has it: INVALID_ARGUMENT, UNAUTHENTICATED or PERMISSION_DENIED, else INTERNAL.
pub(crate) fn grpc_refused(refusal: &Refusal) -> Response<Bytes> {
    let code = match refusal.status() {
        StatusCode::UNAUTHORIZED => "16",
        StatusCode::FORBIDDEN => "7",
        status if status.is_client_error() => "3",
        _ => "13",
    };
    grpc_status(code, refusal.reason())
}

/// Whether a request is gRPC's, by its content type.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn grpc_status(code: &'static str, message: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
    if let Some(message) = value_of(|text| push_percent(text, message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    response
}

fn response(status: StatusCode, content_type: HeaderValue, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Adds a string of JSON (RFC 8259, 7).
fn push_json(json: &mut String, text: &str) {
    json.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => json.extend(['\\', char]),
            // Writing to a string does not fail.
            _ if char.is_control() => _ = write!(json, "\\u{:04x}", u32::from(char)),
            _ => json.push(char),
        }
    }
    json.push('"');
}

/// Adds a text as gRPC has it over HTTP/2: all but printable ASCII, and `%`, as `%` and two digits.
fn push_percent(value: &mut String, text: &str) {
    for &byte in text.as_bytes() {
        match byte {
            b'%' | ..b' ' | 0x7f.. => _ = write!(value, "%{byte:02X}"),
            _ => value.push(char::from(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_percent_escapes() {
        let mut json = String::new();
        push_json(&mut json, "a\"b\\c\n\u{85}\u{e9}");
        assert_eq!(json, "\"a\\\"b\\\\c\\u000a\\u0085\u{e9}\"");
        let mut percent = String::new();
        push_percent(&mut percent, "50% of \u{e9}\r\n~");
        assert_eq!(percent, "50%25 of %C3%A9%0D%0A~");
    }

    #[test]
    fn only_grpcs_own_content_types_are_grpcs() {
        for (value, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc-web+proto", true),
            ("application/json", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(is_grpc(&headers), expected, "{value}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
