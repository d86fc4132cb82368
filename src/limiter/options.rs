//! Defines [`LimiterOptions`]: how a limiter keeps its buckets.

use std::sync::Arc;

use crate::clock::Clock;
use crate::core::at_cap::AtCap;
use crate::core::shared_part::StartShared;
use crate::observe::top_denied::TopDenied;
use crate::store::{Engine, StoreSize};

/// Sets a limiter's clock, its table, the number of its buckets, and what it counts.
///
/// # Example
///
/// ```
/// use tollgate::options::AtCap;
/// use tollgate::{Limiter, LimiterOptions, Limits};
///
/// let options = LimiterOptions::default().max_keys(1_000_000).at_cap(AtCap::Deny);
/// let limiter = Limiter::with_options(Limits::builder().build(), options)?;
/// assert_eq!(limiter.stats().cells, 0);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterOptions {
    /// `None`: the system's clock, which is made when the limiter is.
    pub(crate) clock: Option<Clock>,
    pub(crate) engine: Engine,
    pub(crate) max_keys: usize,
    reserved: usize,
    pub(crate) max_blocks: usize,
    pub(crate) max_vacant_places: usize,
    pub(crate) at_cap: AtCap,
    pub(crate) counting: bool,
    pub(crate) top_denied: usize,
    pub(crate) shared_by: Option<Arc<dyn StartShared>>,
    #[cfg(feature = "tracing")]
    pub(crate) log_denials: u32,
}

impl Default for LimiterOptions {
    fn default() -> LimiterOptions {
        LimiterOptions {
            clock: None,
            engine: Engine::default(),
            max_keys: 1 << 24,
            reserved: 0,
            max_blocks: 1 << 16,
            max_vacant_places: 1 << 12,
            at_cap: AtCap::default(),
            counting: false,
            top_denied: 0,
            shared_by: None,
            #[cfg(feature = "tracing")]
            log_denials: 0,
        }
    }
}

/// The default options, with this clock.
impl From<Clock> for LimiterOptions {
    fn from(clock: Clock) -> LimiterOptions {
        LimiterOptions::default().clock(clock)
    }
}

impl LimiterOptions {
    /// Sets the clock. Default: [`Clock::system`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let (clock, hand) = Clock::manual();
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().clock(clock))?;
    /// let users = limiter.limit("PerUser")?;
    /// assert!(users.spend("alice", 1)?.allowed());
    /// hand.advance(Duration::from_secs(60));
    /// assert!(users.spend("alice", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn clock(self, clock: Clock) -> LimiterOptions {
        LimiterOptions { clock: Some(clock), ..self }
    }

    /// Sets the table that keeps the buckets. Default: [`Engine::LockFree`]. `Engine::Exact` needs the feature
    /// `exact`.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::options::Engine;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// # #[cfg(feature = "exact")] {
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().engine(Engine::Exact))?;
    /// assert_eq!(limiter.limit("PerUser")?.ids(), Some(vec![])); // it stores keys
    /// # }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn engine(self, engine: Engine) -> LimiterOptions {
        LimiterOptions { engine, ..self }
    }

    /// Sets the cap: the most buckets that the limiter keeps at once, for all its limits together. A number above
    /// 4,000,000,000 counts as that; with 0 the table is always full ([`at_cap`](LimiterOptions::at_cap)). Default:
    /// 16,777,216.
    ///
    /// # The parts of limits
    ///
    /// Half of `max_keys` is divided equally among the limits, and each limit's part is its own; the other half goes to the
    /// keys that come first. So the invented ids of one limit cannot take the buckets that another needs: of two limits each
    /// has a quarter for itself, and can have at most three quarters in all. A single limit can have all. A limit with its own
    /// [`max_keys`](crate::limits::LimitOptions::max_keys) has that number, and the rest is divided among the
    /// others. A shadow limit counts as a limit. A limit that limits no id, and a limit that nodes share, have no
    /// part.
    ///
    /// A reload divides `max_keys` among the new limits. A limit that is above its part by then keeps its buckets, and gets
    /// no new ones until it is below.
    ///
    /// # Overrides
    ///
    /// The bucket of an id with its own override does not count: the limiter has at most `max_keys` buckets, and one more
    /// for each such id. (An override of an account in a composite format is for any number of ids, whose buckets
    /// count.) If the override ends or a reload removes it, its bucket stays and counts from then on. If there are `max_keys`
    /// other buckets by then, no new bucket is made until there are fewer.
    ///
    /// # Memory
    ///
    /// The default number of buckets takes up to about 1.8 GiB, and up to three times that while a thread is stalled in a call (see
    /// [`Stats::retired`](crate::metrics::Stats::retired)). The table grows and shrinks with the number of buckets.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::options::AtCap;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let none = LimiterOptions::default().max_keys(0).at_cap(AtCap::Deny);
    /// let users = Limiter::with_options(limits, none)?.limit("PerUser")?;
    /// assert!(!users.spend("alice", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn max_keys(self, max_keys: usize) -> LimiterOptions {
        LimiterOptions { max_keys, ..self }
    }

    /// Reserves the memory for this number of keys when the limiter is made, for servers in which no call may pause.
    /// Default: 0. At most [`max_keys`](LimiterOptions::max_keys) counts.
    ///
    /// All pages of the memory are touched at the start, which takes about 0.3 s for each GiB; on Linux they are huge
    /// pages where the system has these. While the table has at most `keys` buckets, no insert asks the system for
    /// memory and none moves a part of the table to a larger one. Sweeps keep the memory, and reloads use it. Only while
    /// a call of another thread stands still, and so keeps memory in use that was replaced, the system may have to give
    /// more. A sweep that drops many buckets also clears their places, which it else leaves to later calls.
    ///
    /// It takes between 60 and 180 bytes a key, and up to 6 MiB more:
    /// [`Stats::reserved_bytes`](crate::metrics::Stats::reserved_bytes) has the number. If the system does not have the
    /// memory, that is 0, and the table grows as without this option. (A system that promises more memory than it has
    /// may end the program instead, when the pages are touched.) With `Engine::Exact` room for the keys is
    /// allocated at the start, without their ids, and is not touched; `reserved_bytes` is 0.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::{Limiter, LimiterOptions, Limits};
    ///
    /// let options = LimiterOptions::default().reserve(100_000);
    /// let limiter = Limiter::with_options(Limits::builder().build(), options)?;
    /// assert!(limiter.stats().reserved_bytes > 100_000 * 32);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reserve(self, keys: usize) -> LimiterOptions {
        LimiterOptions { reserved: keys, ..self }
    }

    /// Sets the most ids that can be [blocked](crate::KeyedLimit::block) at once, for all limits together. One more
    /// block is an error ([`Error::is_invalid_block`](crate::Error::is_invalid_block)). Any number; with 0 every block
    /// is an error. Default: 65,536.
    ///
    /// A block takes about 100 bytes, plus the id if that is longer than 18 bytes, plus the reason.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let minute = Duration::from_secs(60);
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, Limit::new(1, 1, minute)?)?.build();
    /// let users = Limiter::with_options(limits, LimiterOptions::default().max_blocks(1))?.limit("PerUser")?;
    /// users.block("mallory", minute)?;
    /// assert!(users.block("trudy", minute).unwrap_err().is_invalid_block());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn max_blocks(self, max_blocks: usize) -> LimiterOptions {
        LimiterOptions { max_blocks, ..self }
    }

    /// Sets the most vacant places that are kept at once, for all limits together: places of cancelled
    /// [reservations](crate::reserve::Reservation::cancel) that later reservations may take. Beyond this number a
    /// cancelled place stays empty, unless its limit has fewer places than its equal part of the number; so there are at most about
    /// twice as many in all. Places of one id that follow each other count as one. Any number; with 0 no reservation takes a vacant place.
    /// Default: 4,096.
    ///
    /// A place takes 64 bytes; an id with places takes about 100 bytes, plus the id if that is longer than 18 bytes.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let second = Duration::from_secs(1);
    /// # let limits = Limits::builder().limit("Mail", IdFormat::String, Limit::new(1, 1, second)?)?.build();
    /// let options = LimiterOptions::default().max_vacant_places(0);
    /// let mail = Limiter::with_options(limits, options)?.limit("Mail")?;
    /// assert!(mail.spend("alice", 1)?.allowed());
    /// let (first, _second) = (mail.reserve("alice", 1, 2 * second)?, mail.reserve("alice", 1, 2 * second)?);
    /// first.cancel();
    /// assert!(mail.reserve("alice", 1, 2 * second).is_err(), "the first place stays empty");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_vacant_places(self, max_vacant_places: usize) -> LimiterOptions {
        LimiterOptions { max_vacant_places, ..self }
    }

    /// Sets how calls for ids without a bucket are decided while the limiter has
    /// [`max_keys`](LimiterOptions::max_keys) buckets. Default: [`AtCap::Share`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::options::AtCap;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let share = LimiterOptions::default().max_keys(0).at_cap(AtCap::Share);
    /// let users = Limiter::with_options(limits, share)?.limit("PerUser")?;
    /// assert!(users.spend("alice", 1)?.allowed());
    /// assert!(!users.spend("bob", 1)?.allowed(), "both use the overflow bucket");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn at_cap(self, at_cap: AtCap) -> LimiterOptions {
        LimiterOptions { at_cap, ..self }
    }

    /// Enables the counters of allowed and denied calls, which [`Limiter::counters`](crate::Limiter::counters) reads.
    /// Default: off, which costs a call nothing. Counting costs a call a few nanoseconds, and 2 KiB of memory per
    /// limit.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().counting(true))?;
    /// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
    /// assert_eq!(limiter.counters().limits[0].allowed, 1);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn counting(self, counting: bool) -> LimiterOptions {
        LimiterOptions { counting, ..self }
    }

    /// Sets the length of the list of ids that are denied most, which
    /// [`Limiter::top_denied`](crate::Limiter::top_denied) returns: 0 to 1,024; a larger number counts as 1,024.
    /// Default: 0, no list.
    ///
    /// An entry takes about 100 bytes, and a denial searches all entries. A list also enables
    /// [`counting`](LimiterOptions::counting).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().top_denied(20))?;
    /// let users = limiter.limit("PerUser")?;
    /// assert!(users.spend("alice", 1)?.allowed() && !users.spend("alice", 1)?.allowed());
    /// assert_eq!(limiter.top_denied()[0].id, "alice");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn top_denied(self, entries: usize) -> LimiterOptions {
        LimiterOptions { top_denied: entries.min(TopDenied::MAX_ENTRIES), ..self }
    }

    /// Logs denials as events (feature `tracing`): the first denial of a key in each hour, and one in `one_in` of the
    /// other denials. Default: 0, no events.
    ///
    /// The first denials of up to 65,536 keys are logged in an hour; those of further keys count as other denials, so
    /// that a flood of keys does not flood the log. This takes 1 MiB, and also enables
    /// [`counting`](LimiterOptions::counting).
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Limiter, LimiterOptions, Limits};
    /// let options = LimiterOptions::default().log_denials(1_000);
    /// let limiter = Limiter::with_options(Limits::builder().build(), options)?;
    /// assert!(limiter.counters().is_counting);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[cfg(feature = "tracing")]
    pub fn log_denials(self, one_in: u32) -> LimiterOptions {
        LimiterOptions { log_denials: one_in, ..self }
    }

    pub(crate) fn size(&self) -> StoreSize {
        StoreSize { max_keys: self.max_keys, reserved: self.reserved }
    }

    /// Whether calls are counted. The list of denied ids and the events of denials are fed where denials are counted.
    pub(crate) fn is_counting(&self) -> bool {
        #[cfg(feature = "tracing")]
        if self.log_denials > 0 {
            return true;
        }
        self.counting || self.top_denied > 0
    }
}
