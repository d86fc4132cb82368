//! Puts limits in front of a tower service.

pub(crate) mod answer;
pub(crate) mod async_layer;
mod body;
pub(crate) mod charge;
mod denied;
mod exempt;
pub mod extract;
mod grpc;
mod holding;
pub(crate) mod layer;
pub(crate) mod outcome;
mod policies;
mod rejection;
pub mod responder;
mod response_state;
mod routes;
mod rule_fields;
mod rules;
mod service;
mod switch;
mod waiting;
mod who;

pub use crate::observe::rejections::RejectionKind;
pub use async_layer::{AsyncRateLimit, AsyncRateLimitLayer, AsyncResponseFuture};
pub use body::ResponseBody;
pub use charge::Charge;
pub use denied::Denied;
pub use layer::{RateLimitBuilder, RateLimitLayer};
pub use outcome::Outcome;
pub use rejection::Rejection;
pub use responder::{Denial, Rejected};
pub use rules::Rule;
pub use service::{RateLimit, Report, ResponseFuture};
pub use switch::Switch;
pub use waiting::WaitOptions;
pub use who::Who;
