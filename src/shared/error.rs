//! The errors of calls for limits that nodes share.

use crate::error::{Error, ErrorKind};
use crate::limiter::reserve::ReserveError;

impl Error {
    /// Whether a handle of local limits was asked for a limit that is shared.
    pub(crate) fn needs_store(&self) -> bool {
        self.kind() == ErrorKind::NeedsStore
    }

    /// Whether a reservation or an estimate was asked of a [leased](crate::limits::Shared::Leased) limit, which has none:
    /// only [exact](crate::limits::Shared::Exact) ones have. Nothing was charged.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// let leased = LimitOptions::default().shared(Shared::Leased);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, leased)?.build();
    /// let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options)?.shared("PerUser")?;
    /// assert!(block_on(users.spend_estimate("alice", 1)).unwrap_err().is_leased());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_leased(&self) -> bool {
        self.kind() == ErrorKind::Leased
    }

    /// Whether the store of the shared limits refused a call, did not answer in time, or has a text that is no bucket.
    /// Spends, checks, partial grants and estimates fail so only for the last reason: otherwise the limit's
    /// [policy](crate::limits::LimitOptions::on_error) decides them in an outage, and a late call is denied. A reservation that
    /// is denied so fails with this error.
    /// After a call that did not answer in time the buckets may be charged or not.
    pub fn is_store_failure(&self) -> bool {
        self.is_of_store()
    }

    /// Whether the store has not decided the call: see [`is_store_outage`](Self::is_store_outage) and
    /// [`is_store_overload`](Self::is_store_overload).
    pub(crate) fn is_undecided(&self) -> bool {
        self.is_store_outage() || self.is_store_overload()
    }

    /// Whether the store did not answer in time, or was not asked because this node has more calls than it can make. That says
    /// nothing about the store: it may be slower than its callers.
    pub(crate) fn is_store_overload(&self) -> bool {
        matches!(self.kind(), ErrorKind::StoreLate | ErrorKind::StoreOverload)
    }

    /// Whether it is sure that the store never has the call.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self.kind(), ErrorKind::StoreOverload | ErrorKind::StoreGone)
    }

    /// Whether the store decides no call at present, so that the policy of each limit decides.
    pub(crate) fn is_store_outage(&self) -> bool {
        matches!(self.kind(), ErrorKind::StoreOutage | ErrorKind::StoreGone)
    }
}

impl ReserveError {
    /// Whether the limit is [`Leased`](crate::limits::Shared::Leased): such a limit has no reservations.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let leased = LimitOptions::default().shared(Shared::Leased);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, leased)?.build();
    /// let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// let users = Limiter::with_options(limits, options)?.shared("PerUser")?;
    /// let error = block_on(users.reserve("alice", 1, Duration::MAX)).unwrap_err();
    /// assert!(error.is_leased() && !error.is_store_failure());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_leased(&self) -> bool {
        matches!(self, ReserveError::Wrong(error) if error.is_leased())
    }

    /// Whether the store of the shared limits did not answer in time, or has an outage in which the limit's
    /// [policy](crate::limits::LimitOptions::on_error) denies; or has a text that is no bucket: see [`Error::is_store_failure`]. A caller that can wait tries again.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, OnError, Shared, StoreOptions};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// let exact = LimitOptions::default().shared(Shared::Exact).on_error(OnError::Deny);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// let nobody = Store::connect(&StoreOptions::new("redis://127.0.0.1:1")?)?;
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().store(nobody))?;
    /// let error = block_on(limiter.shared("PerUser")?.reserve("alice", 1, Duration::MAX)).unwrap_err();
    /// assert!(error.is_store_failure() && !error.is_never());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_store_failure(&self) -> bool {
        matches!(self, ReserveError::Wrong(error) if error.is_store_failure())
    }
}
