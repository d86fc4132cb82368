//! The tower layer: limits in front of a service.

mod answer;
mod body;
pub mod extract;
mod grpc;
mod layer;
mod policies;
mod refusal;
pub mod responder;
mod rules;
mod service;

pub use body::ResponseBody;
pub use layer::{RateLimitBuilder, RateLimitLayer, Switch};
pub use refusal::Rejection;
pub use responder::Denial;
pub use rules::{Rule, Who};
pub use service::{Denied, RateLimit, Report, ResponseFuture};
