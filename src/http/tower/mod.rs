//! Puts limits in front of a tower service.

mod answer;
mod body;
pub mod extract;
mod grpc;
mod layer;
mod policies;
mod rejection;
pub mod responder;
mod rules;
mod service;

pub use body::ResponseBody;
pub use layer::{RateLimitBuilder, RateLimitLayer, Switch};
pub use rejection::Rejection;
pub use responder::Denial;
pub use rules::{Rule, Who};
pub use service::{Denied, RateLimit, Report, ResponseFuture};
