//! Defines the answer to a request whose id is unknown or invalid.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

use crate::error::ErrorKind;
use crate::http::ClientError;
use crate::http::peer::SERVER_ERROR;
use crate::observe::rejections::RejectionKind;
use crate::util::escape::Escaped;

/// The reason why a request is rejected before any limit is asked: a status and a sentence for the client.
///
/// The response has it as an extension, for an outer layer that writes a log. The layer counts it by its
/// [kind](Rejection::kind). Its text (`Display`) has the [detail](Rejection::detail).
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
    kind: RejectionKind,
    reason: Cow<'static, str>,
    /// The text for operators, if it differs from the reason.
    detail: Option<String>,
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
        let (kind, reason) = (RejectionKind::Custom, reason.into());
        Rejection { status, kind, reason, detail: None, cause: None, needs_store: false }
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

    /// Returns the kind, by which the rejection is counted.
    pub fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// Returns the text for operators. Of an error of the server, such as a proxy that names no client, it tells what is
    /// wrong with the set-up, while the [reason](Rejection::reason) is a general sentence. Else it is the reason.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::http::{ClientError, Rejection};
    /// let rejection = Rejection::from(ClientError::NoPeer);
    /// assert_eq!(rejection.reason(), "the server could not handle this request");
    /// assert!(rejection.detail().contains("no peer address"));
    /// ```
    pub fn detail(&self) -> &str {
        self.detail.as_deref().unwrap_or(&self.reason)
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
    /// Makes a 400.
    pub(crate) fn of_client(
        kind: RejectionKind,
        reason: impl Into<Cow<'static, str>>,
    ) -> Rejection {
        Rejection { kind, ..Rejection::new(StatusCode::BAD_REQUEST, reason) }
    }

    /// Makes a 500 that tells the client nothing of the set-up.
    pub(crate) fn of_server(kind: RejectionKind, detail: impl Into<String>) -> Rejection {
        let rejection = Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR);
        Rejection { kind, detail: Some(detail.into()), ..rejection }
    }

    pub(crate) fn of_kind(self, kind: RejectionKind) -> Rejection {
        Rejection { kind, ..self }
    }

    pub(crate) fn with_reason(self, reason: String) -> Rejection {
        Rejection { reason: reason.into(), ..self }
    }

    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn needs_store(&self) -> bool {
        self.needs_store
    }
}

impl From<ClientError> for Rejection {
    /// Makes a 500, because the server or its proxies are set up wrong. The reason does not tell what is wrong.
    fn from(error: ClientError) -> Rejection {
        let rejection = Rejection::of_server(RejectionKind::ClientAddress, error.to_string());
        Rejection { cause: Some(error), ..rejection }
    }
}

impl From<crate::error::Error> for Rejection {
    /// Makes a 400 for an id that its limit's format does not allow and for a cost above the burst, which no wait would
    /// help; a 500 for any other error.
    fn from(error: crate::error::Error) -> Rejection {
        let text = error.to_string();
        if error.is_invalid_id() {
            return Rejection::of_client(RejectionKind::InvalidId, of_id(&text));
        }
        if error.is_cost_above_burst() {
            return Rejection::of_client(RejectionKind::CostAboveBurst, text);
        }
        let kind = match error.is_of_store() {
            true => RejectionKind::Store,
            false => RejectionKind::Limiter,
        };
        let needs_store = error.kind() == ErrorKind::NeedsStore;
        Rejection { needs_store, ..Rejection::of_server(kind, text) }
    }
}

/// Returns the text about an invalid id without the words of limits files and of ACME: the format's name after `invalid`, and
/// what `regId` is.
fn of_id(text: &str) -> String {
    let rest = text.strip_prefix("invalid ").and_then(|rest| rest.split_once(' '));
    let text = rest.map_or(text.into(), |(_, rest)| format!("invalid id {rest}"));
    text.replace("an ACME registration Id, a number", "a number")
        .replace("must be a regId,", "must be a number,")
        .replace("regId \"", "number \"")
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.as_str(), Escaped(self.detail()))
    }
}

impl std::error::Error for Rejection {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn faults_of_the_store_are_told_apart() {
        for (of, kind) in [
            (ErrorKind::Store, RejectionKind::Store),
            (ErrorKind::StoreOutage, RejectionKind::Store),
            (ErrorKind::NeedsStore, RejectionKind::Limiter),
            (ErrorKind::Limit, RejectionKind::Limiter),
        ] {
            let rejection = Rejection::from(Error::new(of, "text".to_owned()));
            assert_eq!((rejection.kind(), rejection.status().as_u16()), (kind, 500));
            assert_eq!(rejection.needs_store(), of == ErrorKind::NeedsStore);
        }
    }
}
