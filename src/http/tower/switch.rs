//! Switches a layer off and on.

use std::fmt;
use std::sync::Arc;

use crate::util::sync;
use crate::util::sync::Ordering;

/// Switches a layer off and on while it runs. While it is off, requests pass unchanged and their responses get no
/// field.
///
/// The next request sees the change; on other cores it may take a moment longer.
///
/// [`Limiter::set_enabled`](crate::Limiter::set_enabled) switches off the limiter under all its layers instead. The layers then deny nothing, but
/// still reject requests without a valid id with 400 or 500.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::http::{RateLimitLayer, Rule, extract};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let limiter = Limiter::new(Limits::builder().limit("All", IdFormat::String, limit)?.build());
/// let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
/// let switch = RateLimitLayer::builder(&limiter).rule(rule).build()?.switch();
/// switch.set_enabled(false);
/// assert!(!switch.enabled());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Switch(Arc<sync::Switch>);

impl Switch {
    pub(crate) fn new() -> Switch {
        Switch(Arc::new(sync::Switch::new(true)))
    }

    /// Returns whether the layer is on.
    pub fn enabled(&self) -> bool {
        // Relaxed: no other data depends on the flag.
        self.0.load(Ordering::Relaxed)
    }

    /// Switches the layer on or off.
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
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// layer.switch().set_enabled(false);
    /// assert!(!layer.switch().enabled() && send(&layer, get())?.headers().is_empty());
    /// layer.switch().set_enabled(true);
    /// assert!(send(&layer, get())?.headers().contains_key("ratelimit"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_enabled(&self, enabled: bool) {
        // Relaxed: no other data depends on the flag.
        self.0.store(enabled, Ordering::Relaxed);
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Switch({})", self.enabled())
    }
}
