//! Puts limits that nodes share in front of a tower service.

mod ask;

use std::sync::Arc;

use http::request::Parts;

use crate::http::tower::answer::Rules;
use crate::http::{AsyncRateLimitLayer, RateLimitBuilder, Rule, SetupError, Who};
use crate::shared::SharedLimit;

impl Rule {
    /// Makes a rule of a limit that nodes may [share](crate::limits::Shared), like [`Rule::new`]. Its layer is built by
    /// [`build_shared`](RateLimitBuilder::build_shared).
    ///
    /// # Example
    ///
    /// See [`build_shared`](RateLimitBuilder::build_shared).
    pub fn shared(
        limit: SharedLimit,
        who: impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static,
    ) -> Rule {
        Rule::asking(limit.limit, true, who)
    }
}

impl RateLimitBuilder {
    /// Builds a layer of rules of any kind, which waits for the store where it has to be asked. The inner service must be
    /// `Clone`, because it is called after the store has answered; those of axum, hyper and tonic are.
    ///
    /// # Errors
    ///
    /// As [`build`](RateLimitBuilder::build).
    ///
    /// Requests that only local limits or the leases of this node decide go on at once;
    /// for the others the response waits for the store, at most for its
    /// [timeout](crate::limits::StoreOptions::answers_within). In an outage of the store the limits'
    /// [policies](crate::limits::LimitOptions::on_error) decide. An error of the store, such as a text that is no bucket, is
    /// answered as any error of the limiter: by a status of 500, without the error's text.
    ///
    /// A request whose future is dropped before the store has answered may have been charged: all of its limits, or none.
    /// Refunds of shared limits begin when the response comes and do not delay it, so its fields do not show them.
    ///
    /// # Example
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// use http::{Request, Response};
    /// use tollgate::http::{RateLimitLayer, Rule, extract};
    /// use tollgate::limits::{LimitOptions, Shared};
    /// use tollgate::shared::Store;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let exact = LimitOptions::default().shared(Shared::Exact);
    /// let limits = Limits::builder().limit_with("All", IdFormat::String, limit, exact)?.build();
    /// let store = Store::in_memory(Clock::system());
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().store(store))?;
    /// let rule = Rule::shared(limiter.shared("All")?, extract::everyone("all"));
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build_shared()?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// let send = |request| runtime.block_on(layer.layer(inner).oneshot(request));
    /// assert_eq!(send(Request::new(()))?.status(), 200);
    /// assert_eq!(send(Request::new(()))?.status(), 429);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_shared(self) -> Result<AsyncRateLimitLayer, SetupError> {
        Ok(AsyncRateLimitLayer::new(self.build_any()?, Arc::new(Rules::ask_with_store)))
    }
}
