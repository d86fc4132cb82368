//! Puts limits in front of a tower service.

pub(crate) mod answer;
mod body;
mod exempt;
pub mod extract;
mod grpc;
mod layer;
pub(crate) mod outcome;
mod policies;
mod rejection;
pub mod responder;
mod routes;
mod rule_fields;
mod rules;
mod service;
mod switch;

pub use crate::observe::rejections::RejectionKind;
pub use body::ResponseBody;
pub use layer::{RateLimitBuilder, RateLimitLayer};
pub use outcome::Outcome;
pub use rejection::Rejection;
pub use responder::{Denial, Rejected};
pub use rules::{Rule, Who};
pub use service::{Denied, RateLimit, Report, ResponseFuture};
pub use switch::Switch;
