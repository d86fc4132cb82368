//! Puts limits that nodes share in front of a tower service.

mod ask;
mod layer;

use http::request::Parts;

use crate::http::{RateLimitBuilder, Rule, SetupError, Who};
use crate::shared::SharedLimit;

pub use layer::{SharedRateLimit, SharedRateLimitLayer, SharedResponseFuture};

impl Rule {
    /// Makes a rule of a limit that nodes may [share](crate::limits::Shared), like [`Rule::new`]. Its layer is built by
    /// [`build_shared`](RateLimitBuilder::build_shared).
    ///
    /// # Example
    ///
    /// See [`SharedRateLimitLayer`].
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
    /// # Example
    ///
    /// See [`SharedRateLimitLayer`].
    pub fn build_shared(self) -> Result<SharedRateLimitLayer, SetupError> {
        Ok(SharedRateLimitLayer(self.build_any()?))
    }
}
