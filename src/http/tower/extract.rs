//! Extractors find the id for which a request is counted. [`Rule::new`](crate::http::Rule::new) takes the extractor
//! that one of these functions returns, or a closure.
//!
//! Two spellings of a value are two ids, and the client chooses the spelling. [`header`] takes a field byte by byte. If
//! two spellings mean the same, such as `Bearer t` and `bearer  t`, the extractor must make one id of them, as
//! [`bearer`] and [`cookie`] do. [`path`] takes the path as the client sends it: `/p/1` and `/p/%31` are two ids. The route that the
//! server has matched is one id for both: [`extension`] takes it.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use axum::extract::OriginalUri;
//! use http::HeaderName;
//! use tollgate::http::{ClientAddress, Rule, extract};
//! use tollgate::{IdFormat, Limit, Limiter, Limits};
//!
//! let limit = |burst| Limit::new(burst, burst, Duration::from_secs(60));
//! let limits = Limits::builder()
//!     .limit("PerClient", IdFormat::IpAddress, limit(600)?)?
//!     .limit("PerKey", IdFormat::String, limit(100)?)?
//!     .limit("PerPath", IdFormat::String, limit(5_000)?)?
//!     .limit("All", IdFormat::String, limit(10_000)?)?
//!     .build();
//! let limiter = Limiter::new(limits);
//! let rules = [
//!     Rule::new(limiter.limit("PerClient")?, extract::client(ClientAddress::new())),
//!     Rule::new(limiter.limit("PerKey")?, extract::header_if_present(HeaderName::from_static("x-api-key"))),
//!     Rule::new(limiter.limit("PerPath")?, extract::path::<OriginalUri>()),
//!     Rule::new(limiter.limit("All")?, extract::everyone("all")),
//! ];
//! # let _ = rules;
//! # Ok::<(), tollgate::Error>(())
//! ```

mod cookies;

use std::any::{Any, type_name};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderName, Request, Uri};

use crate::http::ClientAddress;
use crate::http::tower::{Rejection, Who};
use crate::limits::Id;
use crate::observe::rejections::RejectionKind;
use crate::util::escape::quoted;

/// The whitespace that field values may have (RFC 9110, 5.6.3).
const SPACES: [char; 2] = [' ', '\t'];

/// Takes the client's address. A request without a known address is rejected with a 500. If the limit's format allows no
/// address, [`build`](crate::http::RateLimitBuilder::build) returns an error.
///
/// # Example
///
/// ```
/// # use http::Request;
/// # use tollgate::http::{ClientAddress, Peer, Who, extract};
/// let (mut parts, ()) = Request::new(()).into_parts();
/// let client = extract::client(ClientAddress::new());
/// assert!(matches!(client(&parts), Who::Refused(_)), "the server gave no address");
/// parts.extensions.insert(Peer::Unix);
/// assert!(matches!(client(&parts), Who::Refused(_)), "not trusted");
/// parts.extensions.insert(Peer::Address([192, 0, 2, 7].into()));
/// assert!(matches!(client(&parts), Who::OfServer(_)));
/// ```
pub fn client(
    clients: ClientAddress,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match clients.of(&parts.headers, &parts.extensions) {
        Ok(address) => Who::OfServer(Id::Address(address)),
        Err(error) => Who::Refused(error.into()),
    }
}

/// Takes the value of a header field as the client writes it, such as an API key. For tokens use [`bearer`]. A request
/// without the field, with more than one such field, or with a value that is not printable ASCII is rejected with a
/// 400.
///
/// # Example
///
/// ```
/// # use http::{HeaderName, Request};
/// # use tollgate::Id;
/// # use tollgate::http::{Who, extract};
/// let key = extract::header(HeaderName::from_static("x-api-key"));
/// let (parts, ()) = Request::builder().header("x-api-key", "k1").body(())?.into_parts();
/// assert!(matches!(key(&parts), Who::Id(Id::Text("k1"))));
/// let (parts, ()) = Request::new(()).into_parts();
/// assert!(matches!(key(&parts), Who::Refused(rejection) if rejection.status() == 400));
/// # Ok::<(), http::Error>(())
/// ```
pub fn header(name: HeaderName) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| {
        let missing = || bad_request(format!("the field {name} is missing"));
        who_or(printable_value(parts, &name), missing)
    }
}

/// Works like [`header`], but the rule does not apply to requests without the field. Another rule should limit them.
///
/// # Example
///
/// ```
/// # use http::{HeaderName, Request};
/// # use tollgate::Id;
/// # use tollgate::http::{Who, extract};
/// let key = extract::header_if_present(HeaderName::from_static("x-api-key"));
/// let (parts, ()) = Request::new(()).into_parts();
/// assert!(matches!(key(&parts), Who::NoLimit));
/// ```
pub fn header_if_present(
    name: HeaderName,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| who_or(printable_value(parts, &name), || Who::NoLimit)
}

/// Takes the bearer token of `Authorization` (RFC 6750). The case of the scheme's letters and the number of spaces
/// before the token do not matter, so all spellings of one token are one id. A request without a token, with another
/// scheme, or with several `Authorization` fields is rejected with a 400.
///
/// The token is not verified, so a client that invents tokens gets a bucket for each. Put the layer behind the
/// authentication, or add a rule by address. A request with a token of more than 1,024 bytes is rejected, as for any
/// id. If tokens are long or change often, as JWTs do, count by the subject that the authentication has found, with
/// [`extension`].
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::http::{Rule, extract};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let limiter = Limiter::new(Limits::builder().limit("PerToken", IdFormat::String, limit)?.build());
/// let rule = Rule::new(limiter.limit("PerToken")?, extract::bearer());
/// # let _ = rule;
/// # Ok::<(), tollgate::Error>(())
/// ```
pub fn bearer() -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    |parts: &Parts| {
        who_or(bearer_token(parts), || bad_request("the field authorization has no bearer token"))
    }
}

/// Works like [`bearer`], but the rule does not apply to requests without `Authorization` or with another scheme. So
/// the service can answer them with a 401. Another rule should limit them.
///
/// # Example
///
/// ```
/// # use http::{HeaderName, Request};
/// # use tollgate::Id;
/// # use tollgate::http::{Who, extract};
/// let (parts, ()) = Request::builder().header("authorization", "Basic eDp5").body(())?.into_parts();
/// assert!(matches!(extract::bearer_if_present()(&parts), Who::NoLimit));
/// assert!(matches!(extract::bearer()(&parts), Who::Refused(_)));
/// # Ok::<(), http::Error>(())
/// ```
pub fn bearer_if_present() -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    |parts: &Parts| who_or(bearer_token(parts), || Who::NoLimit)
}

/// Takes the value of a cookie, such as a session. All spellings that servers read as one value are one id: with percent
/// encoding (`%61` is `a`), in quotation marks, and in one field or several. A request without the cookie, with more than
/// one of that name, or with a value that is empty or not UTF-8 is rejected with a 400.
///
/// The value is not verified, so a client that invents sessions gets a bucket for each, and a client that drops its cookie
/// a new one. Put the layer behind the authentication, or add a rule by address.
///
/// # Example
///
/// ```
/// # use http::Request;
/// # use tollgate::Id;
/// # use tollgate::http::{Who, extract};
/// let session = extract::cookie("session");
/// let with = |cookie: &str| Request::builder().header("cookie", cookie).body(()).map(|it| it.into_parts().0);
/// assert!(matches!(session(&with("theme=dark; session=s1")?), Who::Id(Id::Text("s1"))));
/// assert!(matches!(session(&with("theme=dark; session=%731")?), Who::Text(id) if id == "s1"));
/// assert!(matches!(session(&with("theme=dark")?), Who::Refused(rejection) if rejection.status() == 400));
/// # Ok::<(), http::Error>(())
/// ```
pub fn cookie(
    name: impl Into<String>,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    let name = name.into();
    move |parts: &Parts| {
        let missing = || bad_request(format!("the cookie {} is missing", quoted(&name, 64)));
        cookies::find(parts, &name, missing)
    }
}

/// Works like [`cookie`], but the rule does not apply to requests without the cookie. Another rule should limit them.
///
/// # Example
///
/// ```
/// # use http::Request;
/// # use tollgate::http::{Who, extract};
/// let (parts, ()) = Request::builder().header("cookie", "theme=dark").body(())?.into_parts();
/// assert!(matches!(extract::cookie_if_present("session")(&parts), Who::NoLimit));
/// # Ok::<(), http::Error>(())
/// ```
pub fn cookie_if_present(
    name: impl Into<String>,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    let name = name.into();
    move |parts: &Parts| cookies::find(parts, &name, || Who::NoLimit)
}

/// Takes the text of an extension that the server has put into the request, such as axum's matched path. A request
/// without the extension, or with a text that the limit's format does not allow, is rejected with a 500.
///
/// # Example: one bucket for each route of axum
///
/// All spellings of a path are one route. The layer is a `route_layer`: it does not see a request that matches no
/// route, which would have no matched path.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, extract::MatchedPath, routing::get};
/// use tollgate::http::{RateLimitLayer, Rule, extract};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(100, 100, Duration::from_secs(1))?;
/// let limiter = Limiter::new(Limits::builder().limit("PerRoute", IdFormat::String, limit)?.build());
/// let route = extract::extension(MatchedPath::as_str);
/// let layer =
///     RateLimitLayer::builder(&limiter).rule(Rule::new(limiter.limit("PerRoute")?, route)).build()?;
/// let app: Router = Router::new().route("/p/{id}", get(|| async { "page" })).route_layer(layer);
/// # let _ = app;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn extension<T: Send + Sync + 'static>(
    text: impl Fn(&T) -> &str + Send + Sync + 'static,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match parts.extensions.get() {
        Some(extension) => Who::OfServer(Id::Text(text(extension))),
        None => Who::Refused(no_extension::<T>()),
    }
}

fn no_extension<T>() -> Rejection {
    let text = format!("the request has no extension {}", type_name::<T>());
    Rejection::of_server(RejectionKind::NoId, text)
}

/// Works like [`extension`], but the rule does not apply to requests without the extension. Another rule should limit
/// them.
///
/// # Example
///
/// ```
/// # use http::{HeaderName, Request};
/// # use tollgate::Id;
/// # use tollgate::http::{Who, extract};
/// #[derive(Clone)]
/// struct User(String);
///
/// let user = extract::extension_if_present(|user: &User| &user.0);
/// let (mut parts, ()) = Request::new(()).into_parts();
/// assert!(matches!(user(&parts), Who::NoLimit)); // not logged in
/// parts.extensions.insert(User("alice".into()));
/// assert!(matches!(user(&parts), Who::OfServer(Id::Text("alice"))));
/// ```
pub fn extension_if_present<T: Send + Sync + 'static>(
    text: impl Fn(&T) -> &str + Send + Sync + 'static,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match parts.extensions.get() {
        Some(extension) => Who::OfServer(Id::Text(text(extension))),
        None => Who::NoLimit,
    }
}

/// Takes the request's path without its query, so that all clients share a path's bucket. `T` is the extension in which the
/// server keeps the URI as the client sent it, in axum `OriginalUri`: under `nest` the request's own URI has lost its
/// prefix, and `/a/users` and `/b/users` would be one id. A request without the extension is rejected with a 500.
///
/// Each path that a client sends has its own bucket, and so has each spelling: `/p/1` and `/p/%31` have two. To count by
/// route, use [`extension`]. A server that changes no path can take it by a closure: `|request|
/// Who::from(request.uri.path())`.
///
/// # Example
///
/// ```
/// # use http::Request;
/// # use tollgate::Id;
/// # use tollgate::http::{Who, extract};
/// use axum::extract::OriginalUri;
///
/// let (mut parts, ()) = Request::builder().uri("/users").body(())?.into_parts();
/// parts.extensions.insert(OriginalUri("/a/users?q=1".parse().unwrap())); // as axum does
/// assert!(matches!(extract::path::<OriginalUri>()(&parts), Who::Id(Id::Text("/a/users"))));
/// # Ok::<(), http::Error>(())
/// ```
pub fn path<T: Deref<Target = Uri> + Send + Sync + 'static>()
-> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    |parts: &Parts| match parts.extensions.get::<T>() {
        Some(uri) => Who::from(uri.path()),
        None => Who::Refused(no_extension::<T>()),
    }
}

/// Returns the closure as it is, with the type that rules take. A closure that is passed to
/// [`Rule::new`](crate::http::Rule::new) directly needs no such call; one in a variable does not compile without it.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::http::{Rule, Who, extract};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let limiter = Limiter::new(Limits::builder().limit("PerKind", IdFormat::String, limit)?.build());
/// let kind = extract::by(|request| Who::from(if request.method.is_safe() { "read" } else { "write" }));
/// let rule = Rule::new(limiter.limit("PerKind")?, kind);
/// # let _ = rule;
/// # Ok::<(), tollgate::Error>(())
/// ```
pub fn by<F: for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static>(find: F) -> F {
    find
}

/// Takes the same id for all requests, which then share one bucket. If the limit's format does not allow the id,
/// [`build`](crate::http::RateLimitBuilder::build) returns an error.
///
/// # Example
///
/// ```
/// # use http::{HeaderName, Request};
/// # use tollgate::Id;
/// # use tollgate::http::{Who, extract};
/// let (parts, ()) = Request::new(()).into_parts();
/// assert!(matches!(extract::everyone("all")(&parts), Who::Shared(id) if &*id == "all"));
/// ```
pub fn everyone(
    id: impl Into<String>,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    constant(id.into().into())
}

/// Makes the function of [`everyone`]. It has one type for all types of ids, by which [`constant_id`] knows it.
fn constant(id: Arc<str>) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |_: &Parts| Who::Shared(Arc::clone(&id))
}

/// Returns whether `who` is the function of [`client`].
pub(crate) fn counts_clients<F: for<'a> Fn(&'a Parts) -> Who<'a> + 'static>(who: &F) -> bool {
    who.type_id() == client(ClientAddress::new()).type_id()
}

/// Returns the id that `who` takes for all requests, if it is the function of [`everyone`].
pub(crate) fn constant_id<F: for<'a> Fn(&'a Parts) -> Who<'a> + 'static>(
    who: &F,
) -> Option<Arc<str>> {
    if who.type_id() != constant("".into()).type_id() {
        return None;
    }
    // That function does not read the request.
    match who(&Request::new(()).into_parts().0) {
        Who::Shared(id) => Some(id),
        _ => None,
    }
}

/// The id in a request, `None` if the request has none, or the rejection of a request with an invalid one.
type FoundId<'a> = Result<Option<&'a str>, Rejection>;

/// Returns the id that was found, or `missing()` if the request has none.
fn who_or<'a>(id: FoundId<'a>, missing: impl FnOnce() -> Who<'a>) -> Who<'a> {
    match id {
        Ok(Some(text)) => Who::Id(Id::Text(text)),
        Ok(None) => missing(),
        Err(rejection) => Who::Refused(rejection),
    }
}

fn bad_request(reason: impl Into<Cow<'static, str>>) -> Who<'static> {
    Who::Refused(Rejection::of_client(RejectionKind::NoId, reason))
}

/// Returns the value of a field; a request that has the field more than once is rejected.
fn single_value<'a>(parts: &'a Parts, name: &HeaderName) -> FoundId<'a> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let rejected = |what: &str| {
        Rejection::of_client(RejectionKind::InvalidId, format!("the field {name} {what}"))
    };
    if values.next().is_some() {
        return Err(rejected("occurs more than once"));
    }
    value.to_str().map(Some).map_err(|_| rejected("is not printable ASCII text"))
}

/// Returns the value of a field like [`single_value`]; one with a tab is rejected.
fn printable_value<'a>(parts: &'a Parts, name: &HeaderName) -> FoundId<'a> {
    let value = single_value(parts, name)?;
    if value.is_some_and(|value| value.contains('\t')) {
        let reason = format!("the field {name} is not printable ASCII text");
        return Err(Rejection::of_client(RejectionKind::InvalidId, reason));
    }
    Ok(value)
}

/// Returns the token after the scheme `Bearer`, or `None` if the request has no `Authorization` or another scheme.
fn bearer_token(parts: &Parts) -> FoundId<'_> {
    let Some(value) = single_value(parts, &AUTHORIZATION)? else { return Ok(None) };
    let value = value.trim_matches(SPACES);
    let (scheme, token) = value.split_once(SPACES).unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    let token = token.trim_start_matches(SPACES);
    if token.is_empty() || token.contains(SPACES) {
        return Err(Rejection::of_client(
            RejectionKind::InvalidId,
            "the bearer token is empty or has spaces",
        ));
    }
    Ok(Some(token))
}
