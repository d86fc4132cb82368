//! Puts limits in front of a tower service.

mod answer;
mod body;
#[cfg(feature = "valkey")]
mod by_store;
pub mod extract;
mod grpc;
mod layer;
mod outcome;
mod policies;
mod rejection;
pub mod responder;
mod rule_fields;
mod rules;
mod service;
#[cfg(feature = "valkey")]
mod shared;
mod switch;

pub use body::ResponseBody;
pub use layer::{RateLimitBuilder, RateLimitLayer};
pub use outcome::Outcome;
pub use rejection::Rejection;
pub use responder::Denial;
pub use rules::{Rule, Who};
pub use service::{Denied, RateLimit, Report, ResponseFuture};
#[cfg(feature = "valkey")]
pub use shared::{SharedRateLimit, SharedRateLimitLayer, SharedResponseFuture};
pub use switch::Switch;
