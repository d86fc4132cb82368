//! Defines what a handler is told of the limits' decision.

use crate::decision::Decision;
use crate::http::Rejection;

/// The limits' decision on a request that is served in any case. A
/// [permissive](crate::http::RateLimitBuilder::permissive) layer adds it to the extensions of each request. Behind several
/// permissive layers, one report joins the decisions of all of them.
///
/// # Example: a handler that logs requests which would be denied
///
/// ```
/// use tollgate::http::Report;
///
/// fn log<B>(request: &http::Request<B>) {
///     if let Some(report) = request.extensions().get::<Report>().filter(|report| !report.allowed()) {
///         println!("{} would be denied by {:?}", request.uri(), report.violated());
///     }
/// }
/// # log(&http::Request::new(()));
/// ```
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) outcome: Result<Decision, Rejection>,
    pub(super) violated: Vec<String>,
}

impl Report {
    /// Joins the reports of two permissive layers: the stricter decision, and all limits that would have denied.
    pub(super) fn joined(self, inner: Report) -> Report {
        let outcome = match (self.outcome, inner.outcome) {
            (Ok(outer), Ok(inner)) => Ok(outer.stricter(inner)),
            (Err(rejection), _) | (_, Err(rejection)) => Err(rejection),
        };
        Report { outcome, violated: [self.violated, inner.violated].concat() }
    }

    /// Returns whether the limits allow the request.
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
    /// # use tollgate::http::Report;
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).permissive(true).build()?;
    /// let handler = service_fn(|request: Request<()>| async move {
    ///     let report = request.extensions().get::<Report>().expect("the layer is permissive");
    ///     Ok::<_, std::convert::Infallible>(Response::new(report.allowed()))
    /// });
    /// let ask = || runtime.block_on(layer.layer(handler).oneshot(get()));
    /// assert!(format!("{:?}", ask()?.body()).contains("true"));
    /// assert!(format!("{:?}", ask()?.body()).contains("false"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allowed(&self) -> bool {
        self.outcome.as_ref().is_ok_and(Decision::allowed)
    }

    /// Returns the decision.
    ///
    /// # Errors
    ///
    /// The request has no valid id, so no limit was asked.
    pub fn decision(&self) -> Result<Decision, &Rejection> {
        self.outcome.as_ref().copied()
    }

    /// Returns the names of the limits that would have denied the request, as clients see them.
    pub fn violated(&self) -> &[String] {
        &self.violated
    }
}
