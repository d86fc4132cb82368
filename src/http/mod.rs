//! Writes decisions into HTTP header fields, finds a client's address behind proxies, and, with the feature
//! `tower`, puts limits in front of a service.
//!
//! [`Fields`] writes the header fields of one [`Style`] or several, from a decision and the [`Policy`] of its
//! limit. [`ClientAddress`] finds the address that a client is limited by. [`HttpLimit`] puts a limit in front of a server
//! without tower.
//!
//! This module rounds waits and resets up to the unit of their field, so that no field gives a
//! time that is too early.
//!
//! # Example: fields without a framework
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use tollgate::http::{Answer, Fields, Policy, Style};
//! use tollgate::{IdFormat, Limit, Limiter, Limits};
//!
//! let limit = Limit::new(20, 10, Duration::from_secs(1))?;
//! let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit.clone())?.build());
//! let policy = Policy::new("PerUser", &limit)?;
//! let fields = Fields::new([Style::Ietf])?;
//!
//! let decision = limiter.limit("PerUser")?.spend("alice", 1)?;
//! let mut headers = http::HeaderMap::new();
//! fields.write(&mut headers, &Answer::one(&policy, decision), SystemTime::now());
//! assert_eq!(headers["ratelimit"], r#""PerUser";r=19;t=1"#);
//! assert_eq!(headers["ratelimit-policy"], r#""PerUser";q=20;w=2"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod error;
mod fields;
mod forwarded;
mod http_limit;
mod jitter;
mod names;
mod peer;
mod policies;
mod policy;
mod retry_after;
mod structured;
mod style;
mod text;
#[cfg(feature = "tower")]
pub(crate) mod tower;

pub use client::{ClientAddress, Forwarding};
pub use error::SetupError;
pub use fields::{Answer, Fields, Item};
pub use forwarded::{parse_forwarded_element, parse_forwarded_for_entry};
pub use http_limit::{HttpDecision, HttpLimit};
pub use jitter::Jitter;
pub use names::PlugLimitNames;
pub use peer::{ClientError, Peer};
pub use policy::{Policy, QuotaUnit};
pub use retry_after::retry_after;
pub use style::{Reset, Style};
#[cfg(feature = "tower")]
pub use tower::{
    AsyncRateLimit, AsyncRateLimitLayer, AsyncResponseFuture, Charge, Denial, Denied, Learn,
    Outcome, RateLimit, RateLimitBuilder, RateLimitLayer, Rejected, Rejection, RejectionKind,
    Report, ResponseBody, ResponseFuture, Rule, Switch, WaitOptions, Who, extract, responder,
};
