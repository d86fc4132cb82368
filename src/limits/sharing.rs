//! How several nodes share a limit: the words of limits files, and their values.

use std::fmt;
use std::time::Duration;

use crate::algorithm::factor::Factor;
use crate::limit::LimitFault;
use crate::limit::display::Go;

/// Where the buckets of a limit are. In YAML it has the name in backquotes. See
/// [`LimitOptions::shared`](crate::limits::LimitOptions::shared).
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limits};
/// use tollgate::limits::{LimitOptions, Shared};
///
/// let limit = Limit::new(10_000, 1_000, Duration::from_secs(1))?;
/// let leased = LimitOptions::default().shared(Shared::Leased);
/// let limits = Limits::builder().limit_with("PerTenant", IdFormat::String, limit, leased)?.build();
/// assert_eq!(limits.limit("PerTenant")?.shared().to_string(), "leased");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shared {
    /// `local`: each node has its own buckets.
    #[default]
    Local,
    /// `leased`: the buckets are in a store. A node takes units ahead from a bucket, for a time, and gives them out itself.
    Leased,
    /// `exact`: the buckets are in a store, which decides each call.
    Exact,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shared::Local => "local",
            Shared::Leased => "leased",
            Shared::Exact => "exact",
        })
    }
}

/// The decision of a shared limit in an outage of its store. In YAML it has the name in backquotes. See
/// [`LimitOptions::on_error`](crate::limits::LimitOptions::on_error).
///
/// In an outage the connection is lost, or the server refuses calls or has answered nothing in time for two seconds. A call
/// without an answer in time before that is denied.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limits};
/// use tollgate::limits::{LimitOptions, OnError, Shared};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let exact = LimitOptions::default().shared(Shared::Exact).on_error(OnError::Deny);
/// let limits = Limits::builder().limit_with("Logins", IdFormat::String, limit, exact)?.build();
/// assert_eq!(limits.limit("Logins")?.on_error(), Some(OnError::Deny));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnError {
    /// `deny`: calls are denied.
    Deny,
    /// `allow`: calls are allowed for a [time](crate::limits::LimitOptions::allow_for). From then on it is like `local`.
    Allow,
    /// `local`: the node gives out a [fraction](crate::limits::LimitOptions::fraction) of the limit by itself.
    #[default]
    Local,
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnError::Deny => "deny",
            OnError::Allow => "allow",
            OnError::Local => "local",
        })
    }
}

/// The options of a shared limit, as they were given: `None` is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sharing {
    pub(crate) shared: Shared,
    pub(crate) on_error: Option<OnError>,
    pub(crate) fraction: Option<Factor>,
    pub(crate) allow_for: Option<Duration>,
    pub(crate) lease: Option<Duration>,
}

const DEFAULT_FRACTION: Factor = Factor::from_millionths(100_000);
const DEFAULT_ALLOW_FOR: Duration = Duration::from_secs(30);
/// The units that a node takes with its first lease of a bucket, unless half of the burst is less.
pub(crate) const FIRST_LEASE: u64 = 8;
const DEFAULT_LEASE: Duration = Duration::from_secs(1);

const ALLOW_FOR: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));
const LEASE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

impl Sharing {
    /// Returns the decision in an outage of the store; `None` for a local limit.
    pub(crate) fn on_error(&self) -> Option<OnError> {
        (self.shared != Shared::Local).then(|| self.on_error.unwrap_or_default())
    }

    /// Returns the part of the limit that a node gives out in an outage of the store; `None` if it gives out none.
    pub(crate) fn fraction(&self) -> Option<Factor> {
        let gives = self.on_error()? != OnError::Deny;
        gives.then(|| self.fraction.unwrap_or(DEFAULT_FRACTION))
    }

    /// Returns how long calls are allowed in an outage of the store; `None` without [`OnError::Allow`].
    pub(crate) fn allow_for(&self) -> Option<Duration> {
        let allows = self.on_error()? == OnError::Allow;
        allows.then(|| self.allow_for.unwrap_or(DEFAULT_ALLOW_FOR))
    }

    /// Returns the length of a lease; `None` without [`Shared::Leased`].
    pub(crate) fn lease(&self) -> Option<Duration> {
        (self.shared == Shared::Leased).then(|| self.lease.unwrap_or(DEFAULT_LEASE))
    }

    /// Returns the fault of each option that is out of range or does not fit the others.
    pub(crate) fn faults(&self) -> Vec<LimitFault> {
        let on_error = self.on_error.unwrap_or_default();
        let (mut faults, is_local) = (Vec::new(), self.shared == Shared::Local);
        let mut check = |field: &'static str, misplaced: Option<&str>, range: Option<String>| {
            let misplaced = match is_local {
                true => Some("without shared: leased or exact: a local limit asks no store"),
                false => misplaced,
            };
            let message = misplaced.map(|why| format!("{field} {why}")).or(range);
            faults.extend(message.map(|message| LimitFault { field, message }));
        };
        if self.on_error.is_some() {
            check("on_error", None, None);
        }
        if let Some(fraction) = self.fraction {
            let misplaced = (on_error == OnError::Deny)
                .then_some("beside on_error: deny, under which a node gives out nothing");
            check("fraction", misplaced, out_of_part(fraction));
        }
        if let Some(time) = self.allow_for {
            let misplaced = (on_error != OnError::Allow)
                .then_some("without on_error: allow: it is the time for which calls are allowed");
            check("for", misplaced, out_of_range("for", time, ALLOW_FOR));
        }
        if let Some(time) = self.lease {
            let misplaced = (self.shared == Shared::Exact)
                .then_some("beside shared: exact, under which a node takes no leases");
            check("lease", misplaced, out_of_range("lease", time, LEASE));
        }
        faults
    }
}

fn out_of_part(fraction: Factor) -> Option<String> {
    let is_part = fraction > Factor::ZERO && fraction <= Factor::ONE;
    (!is_part).then(|| format!("invalid fraction {fraction}: more than 0 and at most 1 is allowed"))
}

/// Says that a time is out of a range.
pub(crate) fn out_of_range(
    field: &str,
    time: Duration,
    (least, most): (Duration, Duration),
) -> Option<String> {
    let is_within = least <= time && time <= most;
    let text =
        || format!("invalid {field} {}: from {} to {} is allowed", Go(time), Go(least), Go(most));
    (!is_within).then(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sharing: Sharing) -> Vec<String> {
        sharing.faults().into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn defaults_depend_on_the_other_words() {
        let of = |shared, on_error| {
            let sharing = Sharing { shared, on_error, ..Sharing::default() };
            assert_eq!(sharing.faults(), []);
            (sharing.on_error(), sharing.fraction(), sharing.allow_for(), sharing.lease())
        };
        let tenth = Some("0.1".parse().unwrap());
        let second = Duration::from_secs(1);
        assert_eq!(of(Shared::Local, None), (None, None, None, None));
        assert_eq!(of(Shared::Exact, None), (Some(OnError::Local), tenth, None, None));
        let deny = Some(OnError::Deny);
        assert_eq!(of(Shared::Leased, deny), (deny, None, None, Some(second)));
        let allow = Some(OnError::Allow);
        assert_eq!(of(Shared::Exact, allow), (allow, tenth, Some(30 * second), None));
    }

    #[test]
    fn ends_of_the_ranges_are_allowed() {
        let given = |millionths, allow_for, lease| Sharing {
            shared: Shared::Leased,
            on_error: Some(OnError::Allow),
            fraction: Some(Factor::from_millionths(millionths)),
            allow_for: Some(allow_for),
            lease: Some(lease),
        };
        let (ns, ms) = (Duration::from_nanos(1), Duration::from_millis(1));
        let (second, hour) = (1000 * ms, 3_600_000 * ms);
        assert_eq!(given(1, ms, 200 * ms).faults(), []);
        assert_eq!(given(1_000_000, hour, 10 * second).faults(), []);
        assert_eq!(
            messages(given(0, ms - ns, 200 * ms - ns)),
            [
                "invalid fraction 0: more than 0 and at most 1 is allowed",
                "invalid for 999us999ns: from 1ms to 1h is allowed",
                "invalid lease 199ms999us999ns: from 200ms to 10s is allowed",
            ]
        );
        assert_eq!(
            messages(given(1_000_001, hour + ns, 10 * second + ns)),
            [
                "invalid fraction 1.000001: more than 0 and at most 1 is allowed",
                "invalid for 1h1ns: from 1ms to 1h is allowed",
                "invalid lease 10s1ns: from 200ms to 10s is allowed",
            ]
        );
    }
}
