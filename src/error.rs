//! What can go wrong, in one opaque type.

use std::fmt;

use crate::util::escape::Escaped;

/// Why a limit, a file, a name, an id or a call was refused.
///
/// A denial is no error: it is a [`Decision`](crate::Decision). After an error nothing has changed.
/// The text is lower case and says what was given, what is allowed and where. Control characters, and
/// characters that are not seen, are escaped in it.
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
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    message: String,
    faults: Vec<ConfigFault>,
    /// Whether a file could not be read, whatever else is wrong.
    is_unread: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    Limit,
    Name,
    Id,
    Cost,
    Batch,
    Block,
    Config,
    Io,
    #[cfg(feature = "snapshot")]
    Snapshot,
}

/// One fault of a file: where it is and what is wrong.
///
/// Its text is one line, in which control characters and characters that are not seen are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigFault {
    /// The file as it was named by the caller.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<u64>,
    /// The way to the value, such as `[2].NewOrdersPerAccount.ids[0]`; empty for the whole file.
    pub path: String,
    /// What was given and what is allowed.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.file))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", Escaped(&self.path))?;
        }
        write!(f, ": {}", Escaped(&self.message))
    }
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let message = message.into();
        Error(Box::new(Repr { kind, message, faults: Vec::new(), is_unread: false }))
    }

    /// An error of files of limits: its message is one line a fault. `unread` of the faults are files that
    /// cannot be read.
    #[cfg(feature = "yaml")]
    #[cold]
    pub(crate) fn config(faults: Vec<ConfigFault>, unread: usize) -> Error {
        debug_assert!(!faults.is_empty());
        let kind = if unread == faults.len() { ErrorKind::Io } else { ErrorKind::Config };
        Error(Box::new(Repr { kind, message: String::new(), faults, is_unread: unread > 0 }))
    }

    /// Whether the numbers of a limit were out of range.
    pub fn is_invalid_limit(&self) -> bool {
        self.0.kind == ErrorKind::Limit
    }

    /// Whether a limit's name was unknown, malformed or given twice.
    pub fn is_invalid_name(&self) -> bool {
        self.0.kind == ErrorKind::Name
    }

    /// Whether an id did not have the format of its limit.
    pub fn is_invalid_id(&self) -> bool {
        self.0.kind == ErrorKind::Id
    }

    /// Whether the cost was more than the bucket can ever hold: waiting will not help.
    pub fn is_cost_above_burst(&self) -> bool {
        self.0.kind == ErrorKind::Cost
    }

    /// Whether a batch named one bucket twice, or a handle of another limiter.
    pub fn is_invalid_batch(&self) -> bool {
        self.0.kind == ErrorKind::Batch
    }

    /// Whether an id could not be [blocked](crate::KeyedLimit::block).
    pub fn is_invalid_block(&self) -> bool {
        self.0.kind == ErrorKind::Block
    }

    /// Whether a file of limits was wrong; [`faults`](Error::faults) has every fault.
    pub fn is_invalid_config(&self) -> bool {
        self.0.kind == ErrorKind::Config
    }

    /// Whether a file could not be read or written. Of two files of limits, one may be unread and the other
    /// wrong: then [`is_config`](Error::is_invalid_config) is true as well.
    pub fn is_io(&self) -> bool {
        self.0.kind == ErrorKind::Io || self.0.is_unread
    }

    /// Whether a file of buckets was damaged or does not go with this program, the limits or the options.
    #[cfg(feature = "snapshot")]
    pub fn is_invalid_snapshot(&self) -> bool {
        self.0.kind == ErrorKind::Snapshot
    }

    /// Every fault of a file of limits, in its order, files that cannot be read included; empty for other
    /// errors.
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

impl std::error::Error for Error {}
