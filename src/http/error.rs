//! What can be wrong with a set-up, said when it is made.

use std::fmt;

use crate::util::escape::Escaped;

/// Why fields, a client's address or a layer cannot be set up as asked.
///
/// It is found when they are made, never in the way of a request. The text is lower case and says what
/// was given and what is allowed.
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
