//! Defines [`StoreCounters`], the figures of the store of shared limits for operators.

use std::time::Duration;

/// Holds the figures of a limiter's store, in [`Counters`](crate::metrics::Counters). Those of calls, errors, scripts and
/// clocks are of all limiters of this process that use the store; the others are the limiter's own.
///
/// All counts start when the store or the limiter is made, and wrap at 2^64. They are always counted.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::limits::{LimitOptions, Shared};
/// use tollgate::shared::{Store, block_on};
/// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
///
/// let limit = Limit::new(5, 1, Duration::from_secs(60))?;
/// let exact = LimitOptions::default().shared(Shared::Exact);
/// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
/// let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
/// let limiter = Limiter::with_options(limits, options)?;
/// assert!(block_on(limiter.shared("PerUser")?.spend("alice", 1))?.allowed());
/// let store = limiter.counters().store().expect("the limiter has a store");
/// assert_eq!((store.calls, store.errors.timeout, store.is_outage), (1, 0, false));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCounters {
    /// Calls to the store: see [`Store::calls`](crate::shared::Store::calls).
    pub calls: u64,
    /// Calls that the store has not decided, by the reason.
    pub errors: StoreErrors,
    /// Calls that sent a script's text, because the server did not know the script: the first call of each script, and
    /// those after a restart, a failover or `SCRIPT FLUSH`.
    pub scripts_sent: u64,
    /// Whether calls are refused because a server has answered nothing in time for 2 s, until it does.
    pub is_paused: bool,
    /// Steps ahead of the server's clock. A failover to a server with another time is one.
    pub clock_steps_ahead: ClockSteps,
    /// Steps back of the server's clock.
    pub clock_steps_back: ClockSteps,
    /// Whether this limiter is in an outage of its store: see [`OnError`](crate::limits::OnError).
    pub is_outage: bool,
    /// Outages of this limiter that have begun.
    pub outages: u64,
    /// Leases that the store has granted to this limiter.
    pub leases: u64,
    /// The units of those leases.
    pub leased_units: u64,
    /// The units of leases that this limiter holds: neither spent nor given back, and not ended. The call takes about
    /// 0.1 us for each lease to add them up.
    pub held_units: u64,
    /// Ids of which the node has a record because of leases: about 120 bytes each, and at most
    /// [`max_keys`](crate::LimiterOptions::max_keys).
    pub leased_ids: u64,
}

/// Counts the calls that the store has not decided, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreErrors {
    /// No answer came in time. The call was denied: see [`Decision::overloaded`](crate::Decision::overloaded).
    pub timeout: u64,
    /// There was no connection, or it was lost before the answer.
    pub no_connection: u64,
    /// The call was not sent, because the server had answered nothing in time for 2 s.
    pub paused: u64,
    /// The server refused the call: its memory is full, it is a replica, a key holds no text, or it is a node of a cluster
    /// without the key's slot, and the call was not sent on.
    pub refused: u64,
    /// The text of a bucket, or the answer of a script, has a form that this version does not know.
    pub unknown_text: u64,
    /// The call was denied, or its answer was not waited for, because this node had more calls for the store than it could
    /// make in time: see [`Decision::overloaded`](crate::Decision::overloaded). No outage of the store.
    pub overload: u64,
}

/// Counts steps of the server's clock in one direction, found by comparing the times of two answers with the monotonic clock
/// of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockSteps {
    /// Steps of more than 100 ms and a thousandth of the time between the two answers.
    pub count: u64,
    /// The least size of the last step: the time for which answers were under way is subtracted. 0 before the first step.
    pub last: Duration,
}
