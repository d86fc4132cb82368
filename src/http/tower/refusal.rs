//! A request of which it cannot be said whom it counts for.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

use crate::http::ClientError;
use crate::util::escape::Escaped;

/// Why a request is refused without asking any limit: a status and a sentence for the client.
///
/// The response has it as an extension, for a layer further out that writes a log.
///
/// # Example
///
/// ```
/// use http::StatusCode;
/// use tollgate::http::Rejection;
///
/// let refusal = Rejection::new(StatusCode::UNAUTHORIZED, "no API key");
/// assert_eq!(refusal.to_string(), "401: no API key");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    status: StatusCode,
    reason: Cow<'static, str>,
    cause: Option<ClientError>,
}

impl Rejection {
    /// A refusal with this status, which is a client's or a server's error, or else 500. The reason is
    /// shown to the client.
    pub fn new(status: StatusCode, reason: impl Into<Cow<'static, str>>) -> Rejection {
        let is_error = status.is_client_error() || status.is_server_error();
        let status = if is_error { status } else { StatusCode::INTERNAL_SERVER_ERROR };
        Rejection { status, reason: reason.into(), cause: None }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Why, in a sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Why the client's address is not known, if that is the reason. It names the proxy, which the client
    /// is not told.
    pub fn cause(&self) -> Option<&ClientError> {
        self.cause.as_ref()
    }
}

impl From<ClientError> for Rejection {
    /// A 500: whatever is missing, the server or its proxies were set up without it. The reason leaves out
    /// where the proxy is.
    fn from(error: ClientError) -> Rejection {
        let refusal = Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, error.for_clients());
        Rejection { cause: Some(error), ..refusal }
    }
}

impl From<crate::error::Error> for Rejection {
    /// A 400 for an id that its limit's format does not allow, and for a cost above the burst, which
    /// no wait would help; a 500 for anything else.
    fn from(error: crate::error::Error) -> Rejection {
        Rejection::from(&error)
    }
}

impl From<&crate::error::Error> for Rejection {
    /// As for the error itself.
    fn from(error: &crate::error::Error) -> Rejection {
        let status = if error.is_invalid_id() || error.is_cost_above_burst() {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Rejection::new(status, error.to_string())
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.as_str(), Escaped(&self.reason))
    }
}

impl std::error::Error for Rejection {}
