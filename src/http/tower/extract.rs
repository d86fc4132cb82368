//! Ready extractors: to whom a request counts. A closure of one's own does as well.

use http::request::Parts;
use http::{HeaderName, StatusCode};

use crate::Id;
use crate::http::ClientAddress;
use crate::http::tower::{Refusal, Who};

/// The client's address. A request of which it cannot be said is refused with a 500.
pub fn client(
    clients: ClientAddress,
) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match clients.of(&parts.headers, &parts.extensions) {
        Ok(address) => Who::Id(Id::Address(address)),
        Err(error) => Who::Refused(error.into()),
    }
}

/// The value of a field, such as an API key's. A request without it, or with more than one, or with
/// one that is no text, is refused with a 400.
pub fn header(name: HeaderName) -> impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static {
    move |parts: &Parts| match the_only(parts, &name) {
        Ok(Some(value)) => Who::Id(Id::Text(value)),
        Ok(None) => Who::Refused(Refusal::new(
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

/// The path that is asked for, without its query, for all clients together. Where clients choose
/// paths freely, each of them is a bucket.
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

fn the_only<'a>(parts: &'a Parts, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refused =
        |what: &str| Refusal::new(StatusCode::BAD_REQUEST, format!("the field {name} is {what}"));
    if values.next().is_some() {
        return Err(refused("there twice"));
    }
    value.to_str().map(Some).map_err(|_| refused("no text"))
}
