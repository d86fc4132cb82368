//! Classifies errors of the server and of the connection.

use redis::{ErrorKind, RedisError};

use crate::error::{self, Error};
use crate::shared::store_figures::{StoreFault, StoreFigures};
use crate::util::escape::shown;

/// A call that failed.
pub(super) struct Failure {
    pub(super) text: String,
    /// Whether the server has answered, so that it is there.
    pub(super) is_answer: bool,
    /// Whether the answer is about the bucket's key alone, so that calls for others may succeed.
    pub(super) is_of_key: bool,
    /// Whether the connection cannot be used any more.
    pub(super) is_lost: bool,
    /// Where the node of a cluster sends the call: it has not run.
    pub(super) redirect: Option<Redirect>,
}

/// The node of a cluster to which another node sends a call.
pub(super) struct Redirect {
    /// Its host and port.
    pub(super) to: String,
    /// Whether it gets the slot, and has the key already. Else it has the slot.
    pub(super) is_ask: bool,
}

/// Makes an error that names the store.
#[cold]
pub(super) fn store_error(kind: error::ErrorKind, name: &str, what: &str) -> Error {
    Error::new(kind, format!("the store {name}: {what}"))
}

/// Makes the error of a call that was not sent, and counts it.
#[cold]
pub(super) fn overload(figures: &StoreFigures, name: &str, what: &str) -> Error {
    figures.count_error(StoreFault::Overload);
    let text = format!("this node has more calls than it can ask in time: {what}");
    store_error(error::ErrorKind::StoreOverload, name, &text)
}

/// Describes an error.
pub(super) fn failure(error: &RedisError) -> Failure {
    /// The most of a server's text that a message shows.
    const MAX_CHARS: usize = 200;
    let said = shown(error.detail().unwrap_or_default(), MAX_CHARS);
    let is_answer = error.code().is_some();
    let is_refused_user = error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        // A server that wants a password answers a long call so.
        || said.contains("unauthenticated");
    let help = match error.code() {
        _ if is_refused_user => {
            "it refuses the user or the password of the URL (redis://:PASSWORD@host), or what the user may do"
        }
        Some("WRONGTYPE") => {
            "a key of a bucket holds no text: something else writes under this prefix"
        }
        Some("READONLY") => {
            "it is a replica, which cannot be written: give the address of the primary"
        }
        Some("OOM") => {
            "its memory is full: raise maxmemory, or set maxmemory-policy to volatile-ttl"
        }
        Some("LOADING") => "it is loading its data",
        Some("BUSY") => "a script runs too long",
        Some("MISCONF") => "it refuses writes, because it cannot save its data",
        Some("NOREPLICAS") => "it refuses writes, because too few replicas are in sync",
        Some("MOVED" | "ASK" | "CROSSSLOT") => {
            "it is a node of a cluster: begin the URL with redis-cluster://"
        }
        Some("CLUSTERDOWN") => "the cluster is not ready, or has lost servers of some slots",
        Some("TRYAGAIN") => "a slot of the cluster is being moved",
        Some(_) => "it has refused the call",
        None if error.is_io_error() => "the connection failed",
        None => "the connection or its answer is faulty",
    };
    let code = error.code().map(|code| format!("{code} ")).unwrap_or_default();
    let text = match said.is_empty() && code.is_empty() {
        true => format!("{help}: {}", shown(&error.to_string(), MAX_CHARS)),
        false => format!("{help}: {code}{said}"),
    };
    let is_of_key = matches!(error.code(), Some("WRONGTYPE" | "CROSSSLOT"));
    let is_ask = error.code() == Some("ASK");
    let redirect = error.redirect_node().map(|(to, _)| Redirect { to: to.into(), is_ask });
    // From a replica a new connection may lead to the primary.
    let is_lost = !is_answer || error.code() == Some("READONLY");
    Failure { text, is_answer, is_of_key, is_lost, redirect }
}
