//! Defines the answer to a request whose id is unknown or invalid.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

use crate::error::ErrorKind;
use crate::http::ClientError;
use crate::util::escape::Escaped;

/// The reason why a request is rejected before any limit is asked: a status and a sentence for the client.
///
/// The response has it as an extension, for an outer layer that writes a log.
///
/// # Example
///
/// ```
/// use http::StatusCode;
/// use tollgate::http::Rejection;
///
/// let rejection = Rejection::new(StatusCode::UNAUTHORIZED, "no API key");
/// assert_eq!(rejection.to_string(), "401: no API key");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    status: StatusCode,
    reason: Cow<'static, str>,
    cause: Option<ClientError>,
    /// Whether a call of a local limit met one that a reload has made a shared one.
    needs_store: bool,
}

impl Rejection {
    /// Makes a rejection with a status of 400 to 599; any other status becomes 500. The client sees the reason.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::StatusCode;
    /// # use tollgate::http::Rejection;
    /// let rejection = Rejection::new(StatusCode::OK, "no API key");
    /// assert_eq!(rejection.status(), StatusCode::INTERNAL_SERVER_ERROR);
    /// ```
    pub fn new(status: StatusCode, reason: impl Into<Cow<'static, str>>) -> Rejection {
        let is_error = status.is_client_error() || status.is_server_error();
        let status = if is_error { status } else { StatusCode::INTERNAL_SERVER_ERROR };
        Rejection { status, reason: reason.into(), cause: None, needs_store: false }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the sentence that the client sees.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::StatusCode;
    /// # use tollgate::http::Rejection;
    /// let rejection = Rejection::new(StatusCode::UNAUTHORIZED, "no API key");
    /// assert_eq!(rejection.reason(), "no API key");
    /// ```
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns why the client's address is unknown, if that is the reason. It names the proxy, which the client does not
    /// see.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::http::{ClientError, Rejection};
    /// let rejection = Rejection::from(ClientError::NoPeer);
    /// assert_eq!(rejection.cause(), Some(&ClientError::NoPeer));
    /// ```
    pub fn cause(&self) -> Option<&ClientError> {
        self.cause.as_ref()
    }
}

impl Rejection {
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn needs_store(&self) -> bool {
        self.needs_store
    }
}

impl From<ClientError> for Rejection {
    /// Makes a 500, because the server or its proxies are set up wrong. The reason does not name the proxy.
    fn from(error: ClientError) -> Rejection {
        let rejection = Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, error.for_clients());
        Rejection { cause: Some(error), ..rejection }
    }
}

impl From<crate::error::Error> for Rejection {
    /// Makes a 400 for an id that its limit's format does not allow and for a cost above the burst, which no wait would
    /// help; a 500 for any other error.
    fn from(error: crate::error::Error) -> Rejection {
        if error.is_of_store() {
            let reason = "the store of this limit has failed";
            return Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, reason);
        }
        let status = if error.is_invalid_id() || error.is_cost_above_burst() {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        let needs_store = error.kind() == ErrorKind::NeedsStore;
        Rejection { needs_store, ..Rejection::new(status, error.to_string()) }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.as_str(), Escaped(&self.reason))
    }
}

impl std::error::Error for Rejection {}
