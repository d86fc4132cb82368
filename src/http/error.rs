//! Describes an invalid set-up of fields, client addresses or layers.

use std::fmt;

use crate::util::escape::Escaped;

/// The reason why [`Fields`](crate::http::Fields), a [`ClientAddress`](crate::http::ClientAddress), a
/// [`Policy`](crate::http::Policy) or a layer is invalid.
///
/// Only constructors and builders return it, never a request. The text is lower case; it names the invalid value
/// and the allowed ones.
///
/// # Example
///
/// ```
/// use tollgate::http::{Fields, Reset, Style};
///
/// let error = Fields::new([Style::XRateLimit(Reset::Delta), Style::Sharkey]).unwrap_err();
/// assert_eq!(error.to_string(), "two styles write the field x-ratelimit-remaining");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SetupError(Box<str>);

impl SetupError {
    pub(crate) fn new(message: impl Into<Box<str>>) -> SetupError {
        SetupError(message.into())
    }
}

impl From<crate::error::Error> for SetupError {
    fn from(error: crate::error::Error) -> SetupError {
        SetupError::new(error.to_string())
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.0))
    }
}

impl fmt::Debug for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetupError({self})")
    }
}

impl std::error::Error for SetupError {}
