//! Defines [`Error`], the one error type of the crate.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::util::escape::Escaped;

/// Says why the crate refused a limit, a file, a name, an id or a call.
///
/// A denial is no error: it is a [`Decision`](crate::Decision). After an error nothing has changed.
/// The message is lower case. It says which value was given and which values are allowed; control characters and
/// invisible characters are escaped in it. Clones share one message. Where the operating system reported the error,
/// [`source`](std::error::Error::source) is its [`io::Error`], whose text also ends the message. (An unreadable limits
/// file is one of the [`faults`](Error::faults), which have text only.)
///
/// # Example: asking for more than a bucket can ever hold
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Bucket, Clock, Limit};
///
/// let bucket = Bucket::new(Limit::new(20, 10, Duration::from_secs(1))?, Clock::system());
/// let error = bucket.spend(21).unwrap_err();
/// assert!(error.is_cost_above_burst());
/// assert_eq!(error.to_string(), "cost 21 is above the burst 20");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Error(Arc<Repr>);

struct Repr {
    kind: ErrorKind,
    message: String,
    faults: Vec<ConfigFault>,
    /// Whether a limits file could not be read. The kind may be `Config` then, because of faults in another file.
    has_unread_file: bool,
    source: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "some kinds are of optional parts")]
pub(crate) enum ErrorKind {
    Limit,
    Name,
    Id,
    Cost,
    Batch,
    Block,
    Config,
    Io,
    Snapshot,
    /// A handle of local limits was asked for a limit that is shared.
    NeedsStore,
    Leased,
    /// Of one bucket, or of the address of the store: other calls may succeed, or none ever will.
    Store,
    /// The store refused the call, or was lost before its answer.
    StoreOutage,
    /// There is no store, or it has answered nothing for some time: the call was not sent.
    StoreGone,
    /// The call was sent, and had no answer in time.
    StoreLate,
    /// This node has more calls for the store than it can make: the call was not sent.
    StoreOverload,
}

/// Describes one fault in a limits file. [`Error::faults`] lists them.
///
/// [`Display`](fmt::Display) writes one line, with control characters and invisible characters escaped.
///
/// # Example
///
/// ```
/// # #[cfg(feature = "yaml")] {
/// use tollgate::Limits;
///
/// let error = Limits::from_yaml("PerUser: {burst: 0, count: 1, period: 1s, id: string}").unwrap_err();
/// assert!(error.is_invalid_config());
/// assert_eq!(error.faults()[0].path, "PerUser.burst");
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigFault {
    /// The file, as the caller named it; empty for a section of a configuration.
    pub file: String,
    /// The line, counted from 1, where it is known.
    pub line: Option<u64>,
    /// The path to the value, such as `[2].NewOrdersPerAccount.ids[0]`; empty if the fault is the whole file's.
    pub path: String,
    /// The value that was given and the values that are allowed.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if !self.file.is_empty() {
            write!(f, "{}", Escaped(&self.file))?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            separator = ": ";
        }
        if !self.path.is_empty() {
            write!(f, "{separator}{}", Escaped(&self.path))?;
            separator = ": ";
        }
        write!(f, "{separator}{}", Escaped(&self.message))
    }
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let (message, faults) = (message.into(), Vec::new());
        Error(Arc::new(Repr { kind, message, faults, has_unread_file: false, source: None }))
    }

    /// Makes an error from an error of the operating system. `what` names the file or thread and the failure.
    #[cold]
    pub(crate) fn from_io(what: impl fmt::Display, source: io::Error) -> Error {
        let (kind, message) = (ErrorKind::Io, format!("{what}: {source}"));
        let source = Some(source);
        Error(Arc::new(Repr { kind, message, faults: Vec::new(), has_unread_file: false, source }))
    }

    /// Makes an error from the faults of limits files; `unread` of the faults are files that cannot be read.
    #[cfg(any(feature = "yaml", feature = "serde"))]
    #[cold]
    pub(crate) fn from_faults(faults: Vec<ConfigFault>, unread: usize) -> Error {
        debug_assert!(!faults.is_empty());
        let kind = if unread == faults.len() { ErrorKind::Io } else { ErrorKind::Config };
        let (message, has_unread_file) = (String::new(), unread > 0);
        Error(Arc::new(Repr { kind, message, faults, has_unread_file, source: None }))
    }

    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the error is of the store of shared limits. Its text has the store's address and a key.
    #[allow(dead_code, reason = "for optional parts")]
    pub(crate) fn is_of_store(&self) -> bool {
        use ErrorKind::{Store, StoreGone, StoreLate, StoreOutage, StoreOverload};
        matches!(self.0.kind, Store | StoreGone | StoreLate | StoreOutage | StoreOverload)
    }

    /// Whether the numbers of a limit are out of range, the limits' `max_keys` are more than the limiter has for them, or a reload would
    /// take away a limit in use.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limit;
    /// let error = Limit::new(20, 0, Duration::from_secs(1)).unwrap_err();
    /// assert!(error.is_invalid_limit());
    /// assert_eq!(error.to_string(), "invalid count 0: at least 1 is allowed");
    /// ```
    pub fn is_invalid_limit(&self) -> bool {
        self.0.kind == ErrorKind::Limit
    }

    /// Whether the name of a limit is unknown, malformed or given twice.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Limiter, Limits};
    /// let limiter = Limiter::new(Limits::builder().build());
    /// let error = limiter.limit("PerUsr").unwrap_err(); // misspelled
    /// assert!(error.is_invalid_name());
    /// ```
    pub fn is_invalid_name(&self) -> bool {
        self.0.kind == ErrorKind::Name
    }

    /// Whether an id does not have the format of its limit.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    /// let clients = Limiter::new(limits).limit("PerClient")?;
    /// assert!(clients.spend("192.0.2.300", 1).unwrap_err().is_invalid_id());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_invalid_id(&self) -> bool {
        self.0.kind == ErrorKind::Id
    }

    /// Whether the cost is above the burst, so that waiting does not help. (Not called `is_invalid_cost`: the same cost
    /// is valid for an id whose override has a larger burst.)
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{KeyedLimit, Limit};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let users = KeyedLimit::new("PerUser", limit)?;
    /// assert!(users.spend("alice", 6).unwrap_err().is_cost_above_burst()); // the burst is 5
    /// assert!(users.spend("alice", 5)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_cost_above_burst(&self) -> bool {
        self.0.kind == ErrorKind::Cost
    }

    /// Whether a batch names one bucket twice, or has a handle of another limiter.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let twice = [users.member("alice"), users.member("alice")];
    /// assert!(limiter.batch(&twice).spend().unwrap_err().is_invalid_batch());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_invalid_batch(&self) -> bool {
        self.0.kind == ErrorKind::Batch
    }

    /// Whether an id cannot be [blocked](crate::KeyedLimit::block).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limiter, Limits};
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?.build();
    /// let users = Limiter::new(limits).limit("PerUser")?;
    /// let error = users.block("alice", Duration::from_secs(60)).unwrap_err();
    /// assert!(error.is_invalid_block(), "no limit applies to alice");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_invalid_block(&self) -> bool {
        self.0.kind == ErrorKind::Block
    }

    /// Whether a limits file is invalid, of which [`faults`](Error::faults) lists every fault, or the options of a store.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "yaml")] {
    /// # use tollgate::Limits;
    /// let error = Limits::from_yaml("PerUser: {burst: 20}").unwrap_err();
    /// assert!(error.is_invalid_config() && !error.is_invalid_limit());
    /// # }
    /// ```
    pub fn is_invalid_config(&self) -> bool {
        self.0.kind == ErrorKind::Config
    }

    /// Whether a snapshot is damaged, or does not fit this program, the limits or the options.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Limiter, LimiterOptions, Limits};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("buckets");
    /// std::fs::write(&path, "no snapshot")?;
    /// let error = Limiter::restore(Limits::builder().build(), LimiterOptions::default(), &path).unwrap_err();
    /// assert!(error.is_invalid_snapshot());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "snapshot")]
    pub fn is_invalid_snapshot(&self) -> bool {
        self.0.kind == ErrorKind::Snapshot
    }

    /// Whether a file could not be read or written, or a thread not be started. If one of two limits files cannot be
    /// read and the other is invalid, [`is_invalid_config`](Error::is_invalid_config) is true as well.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "yaml")] {
    /// # use tollgate::Limits;
    /// let error = Limits::from_yaml_files("/missing/limits.yml", None).unwrap_err();
    /// assert!(error.is_io() && !error.is_invalid_config());
    /// # }
    /// ```
    pub fn is_io(&self) -> bool {
        self.0.kind == ErrorKind::Io || self.0.has_unread_file
    }

    /// Lists every fault of the limits files, in the order of the files; files that cannot be read are faults. Empty
    /// for other errors.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "yaml")] {
    /// # use tollgate::Limits;
    /// let text = "PerUser: {burst: 0, count: 0, period: 1s, id: string}";
    /// let error = Limits::from_yaml(text).unwrap_err();
    /// let paths: Vec<&str> = error.faults().iter().map(|fault| &*fault.path).collect();
    /// assert_eq!(paths, ["PerUser.burst", "PerUser.count"]);
    /// # }
    /// ```
    pub fn faults(&self) -> &[ConfigFault] {
        &self.0.faults
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.0.message))?;
        for (i, fault) in self.0.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {self})", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn io_errors_are_sources_and_clones_share_them() {
        let error = Error::from_io("a.yml: cannot be read", io::ErrorKind::NotFound.into());
        let clone = error.clone();
        drop(error);
        assert!(clone.is_io() && !clone.is_invalid_config());
        assert_eq!(clone.to_string(), "a.yml: cannot be read: entity not found");
        let source = clone.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound));
        assert!(Error::new(ErrorKind::Id, "no id").source().is_none());
    }
}
