//! Options of a layer besides its rules and its answers.

use http::request::Parts;
use http::response;

use crate::http::tower::outcome::OnRequest;
use crate::http::tower::{Outcome, RateLimitBuilder};

impl RateLimitBuilder {
    /// Calls a function with every response, of denied and of allowed requests, for example to add fields or to write a log.
    ///
    /// The layer calls `on_request` with each request, before the charge. `on_request` returns the function that the layer
    /// calls with the response. Neither may block.
    ///
    /// The function may change the head of the response, which has the layer's fields already. Afterwards the layer sets
    /// `Cache-Control` to `no-store` again for a denial and for an inner layer's rejection. A [permissive](RateLimitBuilder::permissive)
    /// layer calls the function also with the responses to requests that the limits deny.
    ///
    /// The function is not called
    ///
    /// - for a request that the layer rejects, even if the layer is permissive and so serves the request;
    /// - while the layer is switched off;
    /// - if no response comes.
    ///
    /// A layer without such a function does no work for it. With one, each request costs one more allocation, and a second one
    /// if the function takes data from the request.
    ///
    /// # Example: a log of the clients that use their last unit
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
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(rule)
    ///     .on_response(|request| {
    ///         let uri = request.uri.clone();
    ///         move |outcome, response| {
    ///             if outcome.decision().remaining() == Some(0) {
    ///                 println!("{uri}: {}, nothing is left", response.status);
    ///             }
    ///         }
    ///     })
    ///     .build()?;
    /// send(&layer, get())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_response<F>(
        self,
        on_request: impl Fn(&Parts) -> F + Send + Sync + 'static,
    ) -> RateLimitBuilder
    where
        F: FnOnce(&Outcome<'_>, &mut response::Parts) + Send + Sync + 'static,
    {
        let on_request: OnRequest = Box::new(move |request| Box::new(on_request(request)));
        RateLimitBuilder { on_request: Some(on_request), ..self }
    }

    /// Serves every request, and only reports the limits' decision: to the service as a [`Report`](crate::http::Report) in the
    /// request's extensions, and to the client in the response's fields, without `Retry-After`. Only requests that the limits
    /// allow are charged.
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
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).permissive(true).build()?;
    /// send(&layer, get())?;
    /// let served = send(&layer, get())?; // the bucket is empty
    /// assert_eq!((served.status().as_u16(), &served.headers()["ratelimit"]), (200, &r#""All";r=0;t=60"#.parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn permissive(self, permissive: bool) -> RateLimitBuilder {
        RateLimitBuilder { permissive, ..self }
    }

    /// Logs each request that this layer denies as an event (feature `tracing`): the method, the path, the names of the
    /// limits that deny the request, as clients see them, and the time until the limits would allow it. Default: no events.
    ///
    /// A flood of denied requests causes a flood of events.
    /// [`LimiterOptions::log_denials`](crate::LimiterOptions::log_denials) logs only some of the denials, and with their ids.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Limiter, Limits};
    /// # use tollgate::http::RateLimitLayer;
    /// # let limiter = Limiter::new(Limits::builder().build());
    /// let builder = RateLimitLayer::builder(&limiter).log_denials();
    /// # let _ = builder;
    /// ```
    #[cfg(feature = "tracing")]
    pub fn log_denials(self) -> RateLimitBuilder {
        RateLimitBuilder { logs_denials: true, ..self }
    }
}
