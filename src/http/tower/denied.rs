//! Defines the extension of a denial's response.

use std::time::Duration;

use crate::decision::Decision;
use crate::http::Fields;

/// A denial: an extension of the response to a denied request, for an outer layer that writes a log. An outer layer's
/// rule may [refund its cost](crate::http::Rule::refund_if_denied_within) if the response has one.
///
/// # Example: the limits that denied a request, for a log
///
/// ```
/// use tollgate::http::Denied;
///
/// fn limits_that_denied<B>(response: &http::Response<B>) -> &[String] {
///     response.extensions().get::<Denied>().map_or(&[], Denied::violated)
/// }
/// # assert!(limits_that_denied(&http::Response::new(())).is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Denied {
    pub(super) decision: Decision,
    pub(super) violated: Vec<String>,
    /// The fields that show the denial.
    pub(super) fields: Fields,
    /// The wait of the response: that of the decision, or a longer one of an outer layer.
    pub(super) wait: Duration,
}

impl Denied {
    /// Returns the decision.
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
    /// # use tollgate::http::Denied;
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// assert!(send(&layer, get())?.extensions().get::<Denied>().is_none());
    /// let response = send(&layer, get())?;
    /// let denied = response.extensions().get::<Denied>().expect("the bucket is empty");
    /// assert!(denied.decision().retry_in() > Duration::from_secs(50));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns the names of the limits that deny the request, as clients see them.
    pub fn violated(&self) -> &[String] {
        &self.violated
    }
}
