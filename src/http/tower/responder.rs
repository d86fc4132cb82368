//! Makes the answer to a denied request. Custom responders can call these functions as well. The layer adds
//! `Cache-Control: no-store` and its fields to every answer.
//!
//! # Example: gRPC's own answers, and text for all others
//!
//! ```
//! use tollgate::http::{RateLimitLayer, responder};
//! use tollgate::{Limiter, Limits};
//!
//! let limiter = Limiter::new(Limits::builder().build());
//! let builder = RateLimitLayer::builder(&limiter)
//!     .respond(|denial| responder::grpc(denial).unwrap_or_else(|| responder::plain_text(denial)));
//! # let _ = builder;
//! ```

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};

use crate::decision::Decision;
use crate::http::retry_after::retry_after;
use crate::http::tower::grpc::Protocol;
use crate::http::{RateLimitBuilder, Rejection};

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The problem type of draft-ietf-httpapi-ratelimit-headers-11, 5.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The problem type, from the same section, of a server that cannot serve as many requests as usual.
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// A denied request, the input of a responder. [`RateLimitBuilder::respond`](crate::http::RateLimitBuilder::respond) has
/// an example.
///
/// # Example
///
/// ```
/// # use http::{Request, Response};
/// # use std::{convert::Infallible, time::Duration};
/// # use tollgate::http::{RateLimitLayer, Rule, extract};
/// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
/// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
/// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
/// # let get = || Request::new(());
/// # use http::HeaderValue;
/// use tollgate::http::responder::{self, Denial};
///
/// let respond = |denial: &Denial<'_>| {
///     let mut response = responder::plain_text(denial);
///     response.headers_mut().insert("x-denied-by", HeaderValue::from_str(denial.violated()[0]).unwrap());
///     response
/// };
/// let layer = RateLimitLayer::builder(&limiter).rule(rule).respond(respond).build()?;
/// send(&layer, get())?;
/// assert_eq!(send(&layer, get())?.headers()["x-denied-by"], "All");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Denial<'a> {
    pub(crate) decision: Decision,
    pub(crate) violated: &'a [&'a str],
    pub(crate) request: &'a Parts,
    /// Whether the answer is a 503, because the table has no room and the layer says so.
    pub(crate) is_unavailable: bool,
}

impl Denial<'_> {
    /// Returns the decision.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns the names of the limits that deny the request, as clients see them.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let builder = RateLimitLayer::builder(&limiter).rule(rule);
    /// let layer = builder.respond(|denial| Response::new(denial.violated().join(", "))).build()?;
    /// send(&layer, get())?;
    /// # use http_body_util::BodyExt;
    /// let body = runtime.block_on(send(&layer, get())?.into_body().collect())?.to_bytes();
    /// assert_eq!(body, "All");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn violated(&self) -> &[&str] {
        self.violated
    }

    /// Returns the whole seconds that `Retry-After` will have, at least 1.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let builder = RateLimitLayer::builder(&limiter).rule(rule);
    /// let layer = builder.respond(|denial| Response::new("x".repeat(denial.retry_after() as usize))).build()?;
    /// send(&layer, get())?;
    /// let denied = send(&layer, get())?;
    /// assert_eq!(http_body::Body::size_hint(denied.body()).exact(), Some(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_after(&self) -> u64 {
        retry_after(&self.decision).unwrap_or(1)
    }

    /// Returns the request without its body.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// # use tollgate::http::responder;
    /// let builder = RateLimitLayer::builder(&limiter).rule(rule);
    /// let layer = builder.respond(|denial| match denial.request().uri.path() {
    ///     "/api" => responder::problem_json(denial),
    ///     _ => responder::plain_text(denial),
    /// });
    /// let layer = layer.build()?;
    /// send(&layer, get())?;
    /// assert_eq!(send(&layer, get())?.headers()["content-type"], "text/plain; charset=utf-8");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn request(&self) -> &Parts {
        self.request
    }
}

impl Denial<'_> {
    fn status(&self) -> StatusCode {
        match self.is_unavailable {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Returns the beginning of a line of text.
    pub(crate) fn title(&self) -> &'static str {
        if self.is_unavailable { "no room for a new client" } else { "too many requests" }
    }
}

impl RateLimitBuilder {
    /// Answers a denial for lack of room ([`Decision::out_of_room`]) with 503 in place of 429: the client has not made too
    /// many requests, and the server has no room to count those of a new client. The problem document is of the type
    /// `temporary-reduced-capacity`, and gRPC's status is UNAVAILABLE. A [custom
    /// responder](RateLimitBuilder::respond) that calls a function of [`responder`](crate::http::responder) gets the same.
    /// Default: 429.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::options::AtCap;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// let no_room = LimiterOptions::default().max_keys(0).at_cap(AtCap::Deny);
    /// let limiter = Limiter::with_options(limits, no_room)?;
    /// let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).unavailable_without_room().build()?;
    /// assert_eq!(send(&layer, Request::new(()))?.status(), 503);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unavailable_without_room(mut self) -> RateLimitBuilder {
        self.responders.unavailable = true;
        self
    }
}

/// Makes a 429 with a problem document (RFC 9457) of the type `quota-exceeded`, which names the limits that deny the
/// request.
///
/// # Example
///
/// ```
/// # use http::{Request, Response};
/// # use std::{convert::Infallible, time::Duration};
/// # use tollgate::http::{RateLimitLayer, Rule, extract};
/// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
/// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
/// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
/// # let get = || Request::new(());
/// # use tollgate::http::responder;
/// let layer = RateLimitLayer::builder(&limiter).rule(rule).respond(responder::problem_json).build()?;
/// send(&layer, get())?;
/// assert_eq!(send(&layer, get())?.headers()["content-type"], "application/problem+json");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn problem_json(denial: &Denial<'_>) -> Response<Bytes> {
    let (problem, title) = match denial.is_unavailable {
        true => (REDUCED_CAPACITY, "Temporary reduced capacity"),
        false => (QUOTA_EXCEEDED, "Quota exceeded"),
    };
    let status = denial.status();
    let mut text = format!(
        "{{\"type\":\"{problem}\",\"title\":\"{title}\",\"status\":{},\"detail\":\"try again in {} s\",\"violated-policies\":[",
        status.as_u16(),
        denial.retry_after()
    );
    for (at, name) in denial.violated.iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        push_json(&mut text, name);
    }
    text.push_str("]}");
    response(status, PROBLEM_JSON, text)
}

/// Makes a 429 with a line of text.
///
/// # Example
///
/// ```
/// # use http::{Request, Response};
/// # use std::{convert::Infallible, time::Duration};
/// # use tollgate::http::{RateLimitLayer, Rule, extract};
/// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
/// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
/// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
/// # let get = || Request::new(());
/// # use tollgate::http::responder;
/// let layer = RateLimitLayer::builder(&limiter).rule(rule).respond(responder::plain_text).build()?;
/// send(&layer, get())?;
/// assert_eq!(send(&layer, get())?.headers()["content-type"], "text/plain; charset=utf-8");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plain_text(denial: &Denial<'_>) -> Response<Bytes> {
    let text = format!("{}: try again in {} s\n", denial.title(), denial.retry_after());
    response(denial.status(), PLAIN_TEXT, text)
}

/// Makes gRPC's answer: RESOURCE_EXHAUSTED with `grpc-retry-pushback-ms`, in the content type of gRPC or of gRPC-Web.
/// `None` for any other request. A request of gRPC or gRPC-Web is a POST whose content type is `application/grpc`,
/// `application/grpc-web` or `application/grpc-web-text`, alone, with `+` and a format, or with `;` and parameters.
///
/// This is for custom responders. Without one, use [`RateLimitBuilder::grpc`](crate::http::RateLimitBuilder::grpc).
///
/// # Example
///
/// ```
/// # use http::{Request, Response};
/// # use std::{convert::Infallible, time::Duration};
/// # use tollgate::http::{RateLimitLayer, Rule, extract};
/// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
/// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
/// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
/// # let get = || Request::new(());
/// use tollgate::http::responder::{self, Denial};
///
/// let respond = |denial: &Denial<'_>| responder::grpc(denial).unwrap_or_else(|| responder::plain_text(denial));
/// let layer = RateLimitLayer::builder(&limiter).rule(rule).respond(respond).build()?;
/// send(&layer, get())?;
/// let call = Request::post("/pb.Users/Get").header("content-type", "application/grpc").body(())?;
/// assert_eq!(send(&layer, call)?.headers()["grpc-status"], "8"); // RESOURCE_EXHAUSTED
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn grpc(denial: &Denial<'_>) -> Option<Response<Bytes>> {
    Protocol::from_request(denial.request).map(|protocol| protocol.denied(denial))
}

/// A rejected request, the input of a responder for rejections.
/// [`RateLimitBuilder::respond_rejected`](crate::http::RateLimitBuilder::respond_rejected) has an example.
#[derive(Debug)]
pub struct Rejected<'a> {
    pub(crate) rejection: &'a Rejection,
    pub(crate) request: &'a Parts,
}

impl Rejected<'_> {
    /// Returns why the request is rejected: its kind, the sentence for the client, and the detail for operators.
    pub fn rejection(&self) -> &Rejection {
        self.rejection
    }

    /// Returns the request without its body.
    pub fn request(&self) -> &Parts {
        self.request
    }
}

/// Makes the answer to a rejected request with the rejection's status, as a problem document (RFC 9457).
///
/// # Example
///
/// ```
/// use tollgate::http::{RateLimitLayer, responder};
/// use tollgate::{Limiter, Limits};
///
/// let limiter = Limiter::new(Limits::builder().build());
/// let builder = RateLimitLayer::builder(&limiter)
///     .respond_rejected(|rejected| responder::rejected_problem_json(rejected));
/// # let _ = builder;
/// ```
pub fn rejected_problem_json(rejected: &Rejected<'_>) -> Response<Bytes> {
    let (status, reason) = (rejected.rejection.status(), rejected.rejection.reason());
    let mut text = String::from("{\"title\":");
    push_json(&mut text, status.canonical_reason().unwrap_or("Error"));
    let _ = write!(text, ",\"status\":{},\"detail\":", status.as_u16());
    push_json(&mut text, reason);
    text.push('}');
    response(status, PROBLEM_JSON, text)
}

/// Makes the answer to a rejected request with the rejection's status, as a line of text.
///
/// # Example
///
/// ```
/// use tollgate::http::{RateLimitLayer, responder};
/// use tollgate::{Limiter, Limits};
///
/// let limiter = Limiter::new(Limits::builder().build());
/// let builder = RateLimitLayer::builder(&limiter)
///     .respond_rejected(|rejected| responder::rejected_plain_text(rejected));
/// # let _ = builder;
/// ```
pub fn rejected_plain_text(rejected: &Rejected<'_>) -> Response<Bytes> {
    let rejection = rejected.rejection;
    response(rejection.status(), PLAIN_TEXT, format!("{}\n", rejection.reason()))
}

/// Makes gRPC's answer to a rejected request: UNAUTHENTICATED for 401, PERMISSION_DENIED for 403, UNIMPLEMENTED for
/// 404, INVALID_ARGUMENT for another error of the client, else INTERNAL. `None` for a request that is not of [gRPC](grpc).
///
/// # Example
///
/// ```
/// use tollgate::http::{RateLimitLayer, responder};
/// use tollgate::{Limiter, Limits};
///
/// let limiter = Limiter::new(Limits::builder().build());
/// let builder = RateLimitLayer::builder(&limiter)
///     .respond_rejected(|rejected| {
///         responder::rejected_grpc(rejected).unwrap_or_else(|| responder::rejected_plain_text(rejected))
///     });
/// # let _ = builder;
/// ```
pub fn rejected_grpc(rejected: &Rejected<'_>) -> Option<Response<Bytes>> {
    let protocol = Protocol::from_request(rejected.request);
    protocol.map(|protocol| protocol.rejected(rejected.rejection))
}

fn response(status: StatusCode, content_type: HeaderValue, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Appends `text` as a JSON string (RFC 8259, 7).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_json_are_escaped() {
        let mut json = String::new();
        push_json(&mut json, "a\"b\\c\n\u{85}\u{e9}");
        assert_eq!(json, "\"a\\\"b\\\\c\\u000a\\u0085\u{e9}\"");
    }
}
