//! Ready extractors: to whom a request counts. A custom closure does as well.
//!
//! Every spelling that a client can choose is a bucket of its own. A field counts as it is written, byte by
//! byte; where two spellings mean the same, as `Bearer t` and `bearer  t` do, the extractor has to know it,
//! as [`bearer`] does. A path counts as it is sent: `/p/1` and `/p/%31` are two ids for [`path`] and one for
//! the route that the server has matched, which [`extension`] takes.

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderName, StatusCode};

use crate::http::ClientAddress;
use crate::http::tower::{Rejection, Who};
use crate::limits::Id;

/// The whitespace of fields (RFC 9110, 5.6.3).
const SPACES: [char; 2] = [' ', '\t'];

/// The client's address. A request of which it cannot be said is refused with a 500.
pub fn client(
    clients: ClientAddress,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match clients.of(&parts.headers, &parts.extensions) {
        Ok(address) => Who::Id(Id::Address(address)),
        Err(error) => Who::Refused(error.into()),
    }
}

/// The value of a field as it is written, such as an API key's; for tokens there is [`bearer`]. A request without it, or with more than one, or with
/// one that is no text, is refused with a 400.
pub fn header(name: HeaderName) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match the_only(parts, &name) {
        Ok(Some(value)) => Who::Id(Id::Text(value)),
        Ok(None) => Who::Refused(Rejection::new(
            StatusCode::BAD_REQUEST,
            format!("the field {name} is missing"),
        )),
        Err(refusal) => Who::Refused(refusal),
    }
}

/// As [`header`], where a request without the field counts for no one: another rule is to limit it.
pub fn header_if_present(
    name: HeaderName,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match the_only(parts, &name) {
        Ok(Some(value)) => Who::Id(Id::Text(value)),
        Ok(None) => Who::NoLimit,
        Err(refusal) => Who::Refused(refusal),
    }
}

/// The bearer token of `Authorization` (RFC 6750): the scheme in any case, and the token after any number of
/// spaces, so that all spellings of one token are one id. A request without one, with another scheme, or
/// with more than one `Authorization` is refused with a 400.
///
/// The token is not checked, and a client that invents tokens has a bucket for each: put the layer behind
/// the authentication, or have a rule by address beside this one. A token longer than 1,024 bytes is
/// refused, as any id; where tokens are long or change often, as JWTs do, count by the subject that the
/// authentication has found instead, with [`extension`].
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
    |parts: &Parts| match bearer_token(parts) {
        Ok(Some(token)) => Who::Id(Id::Text(token)),
        Ok(None) => Who::Refused(Rejection::new(
            StatusCode::BAD_REQUEST,
            "the field authorization has no bearer token",
        )),
        Err(refusal) => Who::Refused(refusal),
    }
}

/// As [`bearer`], where a request without `Authorization` or with another scheme counts for no one, so that
/// the service can answer it with a 401: another rule is to limit it.
pub fn bearer_if_present() -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    |parts: &Parts| match bearer_token(parts) {
        Ok(Some(token)) => Who::Id(Id::Text(token)),
        Ok(None) => Who::NoLimit,
        Err(refusal) => Who::Refused(refusal),
    }
}

/// The text of an extension that the server has put into the request, such as axum's matched path. A
/// request without it is refused with a 500.
///
/// # Example: one bucket for each route of axum
///
/// All spellings of a path are one route. The layer is a `route_layer`, because a request that no route
/// matches has no matched path.
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
    text_of: impl Fn(&T) -> &str + Send + Sync + 'static,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match parts.extensions.get() {
        Some(extension) => Who::Id(Id::Text(text_of(extension))),
        None => Who::Refused(Rejection::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server has not said what this request counts by",
        )),
    }
}

/// As [`extension`], where a request without it counts for no one: another rule is to limit it.
pub fn extension_if_present<T: Send + Sync + 'static>(
    text_of: impl Fn(&T) -> &str + Send + Sync + 'static,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match parts.extensions.get() {
        Some(extension) => Who::Id(Id::Text(text_of(extension))),
        None => Who::NoLimit,
    }
}

/// The path that is asked for, without its query, for all clients together. Where clients choose
/// paths freely, each of them is a bucket, and so is each spelling: `/p/1` and `/p/%31` are two. See
/// [`extension`] for the route instead.
pub fn path() -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    |parts: &Parts| Who::Id(Id::Text(parts.uri.path()))
}

/// One bucket for all requests, with this id.
pub fn everyone(
    id: impl Into<String>,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    let id: std::sync::Arc<str> = id.into().into();
    move |_: &Parts| Who::Shared(std::sync::Arc::clone(&id))
}

fn the_only<'a>(parts: &'a Parts, name: &HeaderName) -> Result<Option<&'a str>, Rejection> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refused =
        |what: &str| Rejection::new(StatusCode::BAD_REQUEST, format!("the field {name} is {what}"));
    if values.next().is_some() {
        return Err(refused("there twice"));
    }
    value.to_str().map(Some).map_err(|_| refused("no text"))
}

/// The token behind the scheme `Bearer`; `None` without the field, or for another scheme.
fn bearer_token(parts: &Parts) -> Result<Option<&str>, Rejection> {
    let Some(value) = the_only(parts, &AUTHORIZATION)? else { return Ok(None) };
    let value = value.trim_matches(SPACES);
    let (scheme, token) = value.split_once(SPACES).unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    let token = token.trim_start_matches(SPACES);
    if token.is_empty() || token.contains(SPACES) {
        return Err(Rejection::new(
            StatusCode::BAD_REQUEST,
            "the bearer token is empty or has spaces",
        ));
    }
    Ok(Some(token))
}
