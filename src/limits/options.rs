//! The options of a limit and of an override.

use std::fmt;
use std::time::SystemTime;

use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::floors::{Floor, Floors};
use crate::limits::sharing::Sharing;

/// Whether a limit denies calls. In YAML it has the name in backquotes. See [`LimitOptions::mode`].
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// use tollgate::limits::{LimitMode, LimitOptions};
///
/// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// let tried = LimitOptions::default().mode(LimitMode::Shadow);
/// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, tried)?.build();
/// let limiter = Limiter::new(limits);
/// let users = limiter.limit("PerUser")?;
/// assert!(users.spend("alice", 1)?.allowed() && users.spend("alice", 1)?.allowed());
/// assert_eq!(limiter.counters().limits[0].shadow_denied, 1);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitMode {
    /// `enforce`: the limit denies calls.
    #[default]
    Enforce,
    /// `shadow`: the limit charges buckets and counts the calls that it would deny. No call is denied or waits.
    Shadow,
}

impl fmt::Display for LimitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitMode::Enforce => "enforce",
            LimitMode::Shadow => "shadow",
        })
    }
}

/// The options of a limit, for [`LimitsBuilder::limit_with`](crate::limits::LimitsBuilder::limit_with).
///
/// # Example: an enforced limit with a stricter shadow
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limits};
/// use tollgate::limits::LimitOptions;
///
/// let second = Duration::from_secs(1);
/// let options = LimitOptions::default().shadow(Limit::new(10, 5, second)?).max_debt(40);
/// let limits = Limits::builder()
///     .limit_with("PerUser", IdFormat::String, Limit::new(20, 10, second)?, options)?
///     .build();
/// let per_user = limits.limit("PerUser")?;
/// assert_eq!(per_user.shadow().map(Limit::burst), Some(10));
/// assert_eq!(per_user.max_debt(), 40);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LimitOptions {
    pub(crate) mode: LimitMode,
    pub(crate) shadow: Option<Limit>,
    pub(crate) max_debt: u64,
    pub(crate) max_keys: Option<usize>,
    pub(crate) floors: Floors,
    pub(crate) sharing: Sharing,
}

impl LimitOptions {
    /// Whether both are the same but for their floors, which no charge depends on: what was charged can be returned after a
    /// reload that changes them.
    pub(crate) fn charge_as(&self, other: &LimitOptions) -> bool {
        let LimitOptions { mode, shadow, max_debt, max_keys, floors: _, sharing } = self;
        (mode, shadow, max_debt) == (&other.mode, &other.shadow, &other.max_debt)
            && (max_keys, sharing) == (&other.max_keys, &other.sharing)
    }

    /// Sets the mode. Default: [`LimitMode::Enforce`].
    ///
    /// ```
    /// use tollgate::limits::{LimitMode, LimitOptions};
    /// let tried = LimitOptions::default().mode(LimitMode::Shadow); // counts denials, denies no call
    /// ```
    pub fn mode(self, mode: LimitMode) -> LimitOptions {
        LimitOptions { mode, ..self }
    }

    /// Sets a shadow limit, which counts the calls that it would deny, beside the enforced limit. It has the same
    /// algorithm, and applies to ids without an override. Default: none.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::LimitOptions;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = |burst| Limit::new(burst, 1, Duration::from_secs(60));
    /// let options = LimitOptions::default().shadow(limit(1)?);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit(5)?, options)?.build();
    /// let limiter = Limiter::new(limits);
    /// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
    /// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
    /// assert_eq!(limiter.counters().limits[0].shadow_denied, 1);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn shadow(self, limit: Limit) -> LimitOptions {
        LimitOptions { shadow: Some(limit), ..self }
    }

    /// Sets the units that a bucket may owe beyond its burst when a call
    /// [settles](crate::reserve::Receipt::settle) its real cost. Cost beyond that is forgiven. Default: 0, so that a
    /// settlement leaves no debt.
    ///
    /// The bound grows by the debt: in any interval of length `t` the cost, admitted and settled, is at most
    /// `burst + max_debt + t / emission_interval`. [Reservations](crate::KeyedLimit::reserve) also lie beyond the
    /// burst: while callers wait for a bucket, it can owe that much less.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::LimitOptions;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// let options = LimitOptions::default().max_debt(2);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, options)?.build();
    /// let users = Limiter::new(limits).limit("PerUser")?;
    /// let (_, receipt) = users.spend_estimate("alice", 5)?;
    /// let owes = receipt.expect("allowed").settle(9); // 4 more, of which it owes 2
    /// assert!(owes.retry_in() > Duration::from_secs(110) && owes.retry_in() <= Duration::from_secs(180));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn max_debt(self, units: u64) -> LimitOptions {
        LimitOptions { max_debt: units, ..self }
    }

    /// Gives the limit buckets of its own, from 1: it has this number of the limiter's
    /// [`max_keys`](crate::LimiterOptions::max_keys) for itself, and takes no others. A shadow limit beside it has as many.
    /// Default: none; the limit has its [equal part](crate::LimiterOptions::max_keys) and takes common
    /// ones.
    ///
    /// Ids with an override of their own are not counted. If the numbers of all limits are more than the limiter's
    /// `max_keys`, or leave no place for a limit without a number, [`Limiter::with_options`](crate::Limiter::with_options) and
    /// a reload return an error.
    ///
    /// # Example: unknown API keys fill their own buckets only
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::LimitOptions;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// let limits = Limits::builder()
    ///     .limit_with("PerKey", IdFormat::String, limit.clone(), LimitOptions::default().max_keys(100))?
    ///     .limit("PerClient", IdFormat::IpAddress, limit)?
    ///     .build();
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().max_keys(1_000))?;
    /// let keys = limiter.limit("PerKey")?;
    /// for key in 0..2_000_u64 {
    ///     let _ = keys.spend(key, 1)?;
    /// }
    /// assert_eq!(limiter.stats().cells, 100);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn max_keys(self, keys: usize) -> LimitOptions {
        LimitOptions { max_keys: Some(keys), ..self }
    }

    /// Adds a floor by its name, or replaces the one with this name: calls with the
    /// [priority](crate::KeyedLimit::priority) of this name must leave its units in the bucket. A name is a letter, then
    /// letters, digits, `_`, `.` or `-`. Default: none. A limit has 16 at most.
    ///
    /// # Example: batch work leaves half of the units to users
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// use tollgate::limits::{Floor, LimitOptions};
    ///
    /// let limit = Limit::new(10, 10, Duration::from_secs(60))?;
    /// let options = LimitOptions::default().floor("batch", Floor::Percent(50));
    /// let limits = Limits::builder().limit_with("Tokens", IdFormat::String, limit, options)?.build();
    /// let tokens = Limiter::new(limits).limit("Tokens")?;
    /// let batch = tokens.priority("batch")?;
    /// assert!(batch.spend("acme", 5)?.allowed());
    /// assert!(!batch.spend("acme", 1)?.allowed());
    /// assert!(tokens.spend("acme", 5)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn floor(mut self, name: &str, floor: Floor) -> LimitOptions {
        self.floors.set(name, floor);
        self
    }
}

/// The options of an override, for [`LimitsBuilder::override_with`](crate::limits::LimitsBuilder::override_with).
///
/// # Example: an override that ends
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use tollgate::{IdFormat, Limit, Limits};
/// use tollgate::limits::OverrideOptions;
///
/// let second = Duration::from_secs(1);
/// let end = UNIX_EPOCH + Duration::from_secs(1_798_761_600); // 2027-01-01T00:00:00Z
/// let options = OverrideOptions::default().comment("a trial").owner("sales").expires(end);
/// let limits = Limits::builder()
///     .limit("PerUser", IdFormat::String, Limit::new(20, 10, second)?)?
///     .override_with("PerUser", "alice", Limit::new(200, 100, second)?, options)?
///     .build();
/// let alice = limits.limit("PerUser")?.override_of("alice")?.expect("it was given");
/// assert_eq!((alice.owner(), alice.expires()), (Some("sales"), Some(end)));
/// assert!(alice.is_expired(end) && !alice.is_expired(end - second));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct OverrideOptions {
    pub(crate) note: Note,
    pub(crate) expires: Expiry,
    pub(crate) max_debt: Option<u64>,
}

/// The comment and the owner of an override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Note {
    pub(crate) comment: Option<Box<str>>,
    pub(crate) owner: Option<Box<str>>,
}

impl Note {
    pub(crate) fn is_empty(&self) -> bool {
        self.comment.is_none() && self.owner.is_none()
    }
}

impl Default for OverrideOptions {
    fn default() -> OverrideOptions {
        OverrideOptions { note: Note::default(), expires: Expiry::NEVER, max_debt: None }
    }
}

impl OverrideOptions {
    /// Sets a comment: why the override is there. Default: none.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::OverrideOptions;
    /// # use tollgate::{IdFormat, Limits};
    /// let options = OverrideOptions::default().comment("a trial");
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, None)?
    ///     .override_with("PerUser", "alice", None, options)?
    ///     .build();
    /// let alice = limits.limit("PerUser")?.override_of("alice")?;
    /// assert_eq!(alice.and_then(|given| given.comment()), Some("a trial"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn comment(self, text: impl Into<String>) -> OverrideOptions {
        let comment = Some(text.into().into());
        OverrideOptions { note: Note { comment, ..self.note }, ..self }
    }

    /// Sets an owner: whom to ask about the override. Default: none.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::OverrideOptions;
    /// # use tollgate::{IdFormat, Limits};
    /// let options = OverrideOptions::default().owner("sales");
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, None)?
    ///     .override_with("PerUser", "alice", None, options)?
    ///     .build();
    /// let alice = limits.limit("PerUser")?.override_of("alice")?;
    /// assert_eq!(alice.and_then(|given| given.owner()), Some("sales"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn owner(self, text: impl Into<String>) -> OverrideOptions {
        let owner = Some(text.into().into());
        OverrideOptions { note: Note { owner, ..self.note }, ..self }
    }

    /// Ends the override at `time`, in whole seconds, rounded down. From then on it counts as absent. Default: it does
    /// not end.
    ///
    /// The bucket's debt at that time is carried over to the limit that applies since, by the
    /// [`CarryOver`](crate::reload::CarryOver) of the reload that put these limits in place
    /// ([`Limiter::reload_with`](crate::Limiter::reload_with)) or of the restore. For the limits of a new limiter it is
    /// [`CarryOver::Share`](crate::reload::CarryOver::Share).
    ///
    /// # Example: half of the bucket is used before and after the end
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// use tollgate::limits::OverrideOptions;
    ///
    /// let day = Duration::from_secs(86_400);
    /// let slow = |burst| Limit::new(burst, 1, day * 100);
    /// let in_an_hour = OverrideOptions::default().expires(SystemTime::now() + Duration::from_secs(3600));
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, slow(10)?)?
    ///     .override_with("PerUser", "alice", slow(100)?, in_an_hour)?
    ///     .build();
    /// let (clock, hand) = Clock::manual();
    /// let users = Limiter::with_options(limits, clock)?.limit("PerUser")?;
    /// assert_eq!(users.spend("alice", 50)?.remaining(), Some(50)); // of 100
    /// hand.advance(Duration::from_secs(7200));
    /// assert_eq!(users.check("alice", 0)?.remaining(), Some(5)); // of 10
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn expires(self, time: SystemTime) -> OverrideOptions {
        OverrideOptions { expires: Expiry::at(time), ..self }
    }

    /// Sets the debt: see [`LimitOptions::max_debt`]. Default: the limit's.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::OverrideOptions;
    /// # use tollgate::{IdFormat, Limit, Limits};
    /// # let limit = |burst| Limit::new(burst, 1, Duration::from_secs(60));
    /// let options = OverrideOptions::default().max_debt(50);
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, limit(5)?)?
    ///     .override_with("PerUser", "alice", limit(100)?, options)?
    ///     .build();
    /// let alice = limits.limit("PerUser")?.override_of("alice")?;
    /// assert_eq!(alice.map(|given| given.max_debt()), Some(50));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn max_debt(self, units: u64) -> OverrideOptions {
        OverrideOptions { max_debt: Some(units), ..self }
    }
}
