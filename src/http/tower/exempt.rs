//! Exempts requests from all rules of a layer.

use http::request::Parts;

use crate::http::client::networks::{Use, parse_network};
use crate::http::tower::RateLimitBuilder;
use crate::http::tower::routes::Routes;
use crate::http::{ClientAddress, SetupError};

pub(crate) type Exempts = Box<dyn Fn(&Parts) -> bool + Send + Sync>;

/// The exemptions of a layer.
#[derive(Default)]
pub(crate) struct Exemptions {
    exempts: Vec<Exempts>,
    routes: Vec<Routes>,
}

impl Exemptions {
    /// Returns whether no rule applies to the request. A request whose route is unknown is not exempt by its route.
    #[inline]
    pub(crate) fn contain(&self, parts: &Parts) -> bool {
        self.exempts.iter().any(|exempts| exempts(parts))
            || self.routes.iter().any(|route| route.contain(parts).unwrap_or(false))
    }

    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.routes.iter().try_for_each(|route| route.check("exempt_routes"))
    }
}

impl RateLimitBuilder {
    /// Exempts the requests for which `exempts` returns true: no rule of this layer applies to them. It is called once a
    /// request, before the rules; it must not block. A layer of [`build_waiting`](RateLimitBuilder::build_waiting) calls it again
    /// for a request that waits or that is denied because too many wait: it must return the same. Several exemptions may be given.
    ///
    /// A path that is compared here is a spelling that the client chooses, and under axum's `nest` a part of it. A client
    /// must not be able to write an exempt spelling of a path that is to be limited:
    /// [`exempt_routes`](RateLimitBuilder::exempt_routes) has no such risk.
    ///
    /// # Example: the health checks of gRPC
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
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(rule)
    ///     .exempt(|request| request.uri.path() == "/grpc.health.v1.Health/Check")
    ///     .build()?;
    /// let check = || Request::post("/grpc.health.v1.Health/Check").body(());
    /// send(&layer, check()?)?;
    /// assert_eq!(send(&layer, check()?)?.status(), 200); // the limit is 1
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exempt(
        mut self,
        exempts: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> RateLimitBuilder {
        self.exemptions.exempts.push(Box::new(exempts));
        self
    }

    /// Exempts the requests for these routes, such as `/health`. The routes are those of [`Rule::route`](crate::http::Rule::route).
    /// A request whose route is unknown is not exempt.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use axum::{Router, extract::MatchedPath, routing::get};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("All", IdFormat::String, limit)?.build());
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(rule)
    ///     .exempt_routes(MatchedPath::as_str, ["/health", "/static/{*file}"])
    ///     .build()?;
    /// let app: Router = Router::new().route("/health", get(|| async { "ok" })).layer(layer);
    /// # let _ = app;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exempt_routes<T: Send + Sync + 'static>(
        mut self,
        matched: impl Fn(&T) -> &str + Send + Sync + 'static,
        routes: impl IntoIterator<Item = impl Into<String>>,
    ) -> RateLimitBuilder {
        self.exemptions.routes.push(Routes::new(matched, routes));
        self
    }

    /// Exempts the clients of these networks, written as `192.0.2.0/24` or `2001:db8::7`. The network is compared with the
    /// client's own address, not with its /64; behind a translator with the IPv4 address. A client whose address is
    /// unknown is not exempt. See [`ClientAddress::trusted_hops`] for clients that choose their address.
    ///
    /// # Errors
    ///
    /// A text is neither a network nor an address; or a network contains all addresses.
    ///
    /// # Example: the company's own network
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    /// # let limiter = Limiter::new(limits);
    /// let clients = ClientAddress::new();
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(Rule::new(limiter.limit("PerClient")?, extract::client(clients.clone())))
    ///     .exempt_networks(clients, ["198.51.100.0/24", "2001:db8:7::/48"])?
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exempt_networks<'n>(
        self,
        clients: ClientAddress,
        networks: impl IntoIterator<Item = &'n str>,
    ) -> Result<RateLimitBuilder, SetupError> {
        let networks = networks.into_iter().map(|text| parse_network(text, Use::Exempt));
        let networks = networks.collect::<Result<Vec<_>, _>>()?;
        Ok(self.exempt(move |parts| {
            let client = clients.exact_of(&parts.headers, &parts.extensions);
            client.is_ok_and(|client| networks.iter().any(|network| network.contains(&client)))
        }))
    }
}
