//! Restricts rules and exemptions to the routes that a server has matched.

use http::StatusCode;
use http::request::Parts;

use crate::http::SetupError;
use crate::http::tower::{Rejection, Rule};
use crate::observe::rejections::RejectionKind;
use crate::util::escape::quoted;

/// Compares a request's route with others. `None`: the server has not provided the route.
type Compare = Box<dyn Fn(&Parts) -> Option<bool> + Send + Sync>;

/// Routes that are named in a rule or in an exemption.
pub(crate) struct Routes {
    contain: Compare,
    /// The first that cannot be a route.
    invalid: Option<String>,
}

impl Routes {
    pub(crate) fn new<T: Send + Sync + 'static>(
        matched: impl Fn(&T) -> &str + Send + Sync + 'static,
        routes: impl IntoIterator<Item = impl Into<String>>,
    ) -> Routes {
        let routes: Vec<String> = routes.into_iter().map(Into::into).collect();
        let invalid = routes.iter().find(|route| !route.starts_with('/')).cloned();
        let contain = move |parts: &Parts| {
            let route = matched(parts.extensions.get()?);
            Some(routes.iter().any(|own| own == route))
        };
        Routes { contain: Box::new(contain), invalid }
    }

    /// Returns whether the request's route is one of these. `None` if the server has not provided it.
    pub(crate) fn contain(&self, parts: &Parts) -> Option<bool> {
        (self.contain)(parts)
    }

    /// Checks that each text can be a route. `of` names the rule or the option.
    pub(crate) fn check(&self, of: &str) -> Result<(), SetupError> {
        let Some(route) = &self.invalid else { return Ok(()) };
        let route = quoted(route, 64);
        Err(SetupError::new(format!("{of}: invalid route {route}: a route begins with /")))
    }
}

impl Rule {
    /// Restricts the rule to the requests for this route, in every spelling that the server takes for it. Further calls
    /// add routes. All methods count, also HEAD and OPTIONS; [`when`](Rule::when) can restrict them.
    ///
    /// `matched` takes the route from an extension of the request, in axum `MatchedPath::as_str`. The text must be the
    /// whole route as the server has it, with the prefixes of axum's `nest` and with its parameters: `/api/users/{id}`.
    ///
    /// A request without the extension is rejected with a 404, because it could be for this route. Under axum's
    /// `Router::layer` these are the requests that no route matches; `Router::route_layer` leaves them to the router's
    /// fallback. A layer around the whole router rejects every request, because the router matches them later. Under
    /// `nest_service` the requests are rejected as well. A router that is another one's fallback or `route_service` needs a
    /// layer itself.
    ///
    /// # Example: logins
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::{Router, extract::MatchedPath, routing::{get, post}};
    /// use tollgate::http::{RateLimitLayer, Rule, extract};
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(5, 5, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("Login", IdFormat::String, limit)?.build());
    /// let login = Rule::new(limiter.limit("Login")?, extract::everyone("all"))
    ///     .route(MatchedPath::as_str, "/api/login");
    /// let layer = RateLimitLayer::builder(&limiter).rule(login).build()?;
    /// let api = Router::new().route("/login", post(|| async { "welcome" }));
    /// let app: Router = Router::new()
    ///     .nest("/api", api)
    ///     .route("/", get(|| async { "hello" }))
    ///     .route_layer(layer);
    /// # let _ = app;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn route<T: Send + Sync + 'static>(
        mut self,
        matched: impl Fn(&T) -> &str + Send + Sync + 'static,
        route: impl Into<String>,
    ) -> Rule {
        self.routes.push(Routes::new(matched, [route]));
        self
    }
}

/// Returns whether a rule with these routes applies to the request; a rule without routes applies to all requests. If the
/// server has not provided the route, the request is rejected: it could be a request for a route of the rule.
#[inline]
pub(crate) fn applies(routes: &[Routes], parts: &Parts) -> Result<bool, Rejection> {
    let mut applies = routes.is_empty();
    for route in routes {
        applies |= route.contain(parts).ok_or_else(unknown_route)?;
    }
    Ok(applies)
}

#[cold]
fn unknown_route() -> Rejection {
    let rejection = Rejection::new(StatusCode::NOT_FOUND, "no route is known for this request");
    rejection.of_kind(RejectionKind::NoRoute)
}
