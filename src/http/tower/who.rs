//! Defines the id for which a request counts.

use std::sync::Arc;

use crate::http::tower::rejection::Rejection;
use crate::limits::Id;

/// The id for which a request counts under one rule.
///
/// # Example: a rule with a custom closure
///
/// ```
/// use http::StatusCode;
/// use std::time::Duration;
/// use tollgate::http::{Rejection, Rule, Who};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(100, 100, Duration::from_secs(60))?;
/// let limiter = Limiter::new(Limits::builder().limit("PerTenant", IdFormat::String, limit)?.build());
/// let rule = Rule::new(limiter.limit("PerTenant")?, |request| {
///     match request.uri.path().split('/').nth(1) {
///         Some("health") => Who::NoLimit,
///         Some(tenant) if !tenant.is_empty() => Who::from(tenant),
///         _ => Who::Refused(Rejection::new(StatusCode::NOT_FOUND, "no tenant in the path")),
///     }
/// });
/// # let _ = rule;
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Who<'a> {
    /// An id that borrows from the request, such as the value of a field. If the limit's format does not allow it, the
    /// client gets a 400 with the reason.
    Id(Id<'a>),
    /// An id that the server has made, such as the user that the authentication has found. If the limit's format does not
    /// allow it, the server is set up wrong: the client gets a 500, which does not show the id.
    OfServer(Id<'a>),
    /// An id made for this request.
    Text(String),
    /// An id that many requests share.
    Shared(Arc<str>),
    /// The rule does not apply to this request.
    NoLimit,
    /// The id is unknown, and the layer rejects the request.
    Refused(Rejection),
}

impl<'a, I: Into<Id<'a>>> From<I> for Who<'a> {
    fn from(id: I) -> Who<'a> {
        Who::Id(id.into())
    }
}

impl Who<'_> {
    pub(crate) fn id(&self) -> Option<Id<'_>> {
        match self {
            Who::Id(id) | Who::OfServer(id) => Some(*id),
            Who::Text(text) => Some(Id::Text(text)),
            Who::Shared(text) => Some(Id::Text(text)),
            Who::NoLimit | Who::Refused(_) => None,
        }
    }
}
