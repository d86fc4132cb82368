//! The public calls of a limiter, of its handles and of its batches.

pub(crate) mod batch;
pub(crate) mod blocks;
#[cfg(feature = "serde")]
mod config;
pub(crate) mod explain;
pub(crate) mod handle;
pub(crate) mod leaving;
pub(crate) mod metrics;
pub(crate) mod options;
pub(crate) mod other_handles;
pub(crate) mod permits;
pub(crate) mod reload;
pub(crate) mod reserve;
pub(crate) mod scaled;
pub(crate) mod shadow;
pub(crate) mod sweeper;

use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::core::at_cap::Overflow;
use crate::core::block_list::BlockList;
use crate::core::generation::Generation;
use crate::core::places::VacantPlaces;
use crate::core::reloads::Reloads;
use crate::core::shared_part::StartShared;
use crate::core::state::LimiterState;
use crate::core::sweep_clock::SweepClock;
use crate::core::sweep_record::SweepRecord;
use crate::error::{Error, ErrorKind};
use crate::limit::carry_over::CarryOver;
use crate::limiter::batch::{Batch, Member};
use crate::limiter::handle::KeyedLimit;
use crate::limiter::options::LimiterOptions;
use crate::limiter::other_handles::{needs_permits, needs_store};
use crate::limiter::sweeper::{SweepOptions, Sweeper};
use crate::limits::Limits;
#[cfg(feature = "tracing")]
use crate::observe::events::Denials;
use crate::observe::stats::Stats;
use crate::observe::tally::HandleTally;
use crate::observe::top_denied::TopDenied;
use crate::store::{Published, Store, Swept, pin};
use crate::util::sync::{AtomicU64, Ordering, Switch};
use crate::util::time::system_now;

/// Limits calls per id: holds the limits, a clock, and a bucket for every id that has spent.
///
/// Clones share everything. No call waits for a background thread, and the limiter starts none by itself, except that of a store
/// that its limits name. Without
/// [`start_sweeper`](Limiter::start_sweeper) or [`sweep`](Limiter::sweep), buckets that are full again keep their
/// memory.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?; // 20 at once, then 10 a second
/// let limits = Limits::builder().limit("RequestsPerUser", IdFormat::String, limit)?.build();
/// let limiter = Limiter::new(limits);
///
/// let requests = limiter.limit("RequestsPerUser")?;
/// let decision = requests.spend("alice", 1)?;
/// assert!(decision.allowed());
/// assert_eq!(decision.remaining(), Some(19));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(crate) inner: Arc<LimiterState>,
}

impl Limiter {
    /// Makes a limiter on the [system's clock](crate::Clock::system).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// assert!(limiter.limit("PerUser")?.spend("alice", 20)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Where [`with_options`](Limiter::with_options) returns an error.
    #[track_caller]
    pub fn new(limits: Limits) -> Limiter {
        Limiter::with_options(limits, LimiterOptions::default())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes a limiter with the given [options](LimiterOptions), or on the given [clock](crate::Clock).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if the limits have [`max_keys`](crate::limits::LimitOptions::max_keys) that are more in
    /// all than the limiter's [`max_keys`](LimiterOptions::max_keys).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::LimitOptions;
    /// # use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// let own = LimitOptions::default().max_keys(2_000);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, own)?.build();
    /// let error = Limiter::with_options(limits, LimiterOptions::default().max_keys(1_000)).unwrap_err();
    /// assert!(error.is_invalid_limit());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn with_options(
        limits: Limits,
        options: impl Into<LimiterOptions>,
    ) -> Result<Limiter, Error> {
        let options = options.into();
        let store = Store::new(options.engine, options.size());
        Limiter::with_store(limits, store, options, CarryOver::default())
    }

    /// Makes a limiter on a table that may already have buckets. `debt` is how the end of an override carries the debts
    /// of its ids over; a reload replaces it.
    pub(crate) fn with_store(
        limits: Limits,
        store: Store,
        options: LimiterOptions,
        debt: CarryOver,
    ) -> Result<Limiter, Error> {
        store.divide(&limits.parts(store.max_keys())?);
        let overflow = Overflow::new(options.at_cap);
        let is_counting = options.is_counting();
        let max_keys = options.size().max_keys;
        let clock = options.clock.unwrap_or_default();
        let given = options.shared_by.as_deref();
        let shared_by = given.or_else(|| limits.store().map(|store| store as &dyn StartShared));
        let shared = shared_by.map(|store| store.start(&clock, max_keys));
        let clocks = (clock.now_ns(), system_now().unwrap_or(UNIX_EPOCH));
        let generation = Generation::first(limits, clocks, is_counting, &store, debt);
        let inner = LimiterState {
            enabled: Switch::new(true),
            sweep_clock: SweepClock::new(&clock),
            clock,
            ended_ns: AtomicU64::new(0),
            store,
            overflow,
            blocks: BlockList::new(options.max_blocks),
            places: VacantPlaces::new(options.max_vacant_places),
            sweeps: SweepRecord::new(),
            reloads: Reloads::default(),
            top_denied: (options.top_denied > 0).then(|| TopDenied::new(options.top_denied)),
            #[cfg(feature = "tower")]
            rejections: Default::default(),
            shared,
            #[cfg(feature = "tracing")]
            denials: (options.log_denials > 0).then(|| Denials::new(options.log_denials)),
            generation: Published::new(Arc::new(generation)),
        };
        Ok(Limiter { inner: Arc::new(inner) })
    }

    /// Returns a handle for the limit `name`. Take it once and keep it: calls on a handle look up no name.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name that the limiter does not know. It knows
    ///
    /// * the declared limits, and with the feature `boulder` Boulder's names;
    /// * limits that a [reload](Limiter::reload) has removed, while another handle of them is alive. Handles for them
    ///   allow every call, and limit again when a later reload declares the limit;
    /// * after a restore from a snapshot, limits that have blocks in the snapshot and are not declared. They too allow
    ///   every call until a reload declares them. Other limits that only the snapshot has are unknown.
    ///
    /// [`Limits::names`] of [`limits`](Limiter::limits) lists the declared limits.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
    /// assert!(limiter.limit("PerUsr").unwrap_err().is_invalid_name());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limit(&self, name: &str) -> Result<KeyedLimit, Error> {
        let limit = self.handle_of(name)?;
        if limit.is_shared() {
            return Err(needs_store(name));
        }
        if limit.counts_in_flight() {
            return Err(needs_permits(name));
        }
        Ok(limit)
    }

    /// Returns a handle for a limit, local or shared.
    pub(crate) fn handle_of(&self, name: &str) -> Result<KeyedLimit, Error> {
        let guard = pin();
        let generation = self.inner.generation.get(&guard);
        let index = generation.limits.index_of(name)?;
        let entry = generation.limits.entry(index);
        let tally = HandleTally::new(generation.tallies.of(index)).ok_or_else(|| {
            Error::new(ErrorKind::Name, format!("unknown limit {name:?}: a reload takes it away"))
        })?;
        Ok(KeyedLimit {
            limiter: self.clone(),
            index,
            name: entry.name.as_ref().into(),
            format: entry.format,
            stripes: tally.stripes.clone(),
            tally,
        })
    }

    /// Returns the newest limits. A [reload](Limiter::reload) replaces them; while it moves the buckets, calls for those that it
    /// has not moved are decided by the limits before.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let limits = limiter.limits();
    /// assert_eq!(limits.limit_for("PerUser", "alice")?.map(|limit| limit.burst()), Some(5));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limits(&self) -> Arc<Limits> {
        self.inner.generation.get(&pin()).limits.clone()
    }

    /// Calls `read` with the limits, and again if a reload came in between: then it may have read the index of a limit
    /// that another name has in these limits.
    fn under_same_limits<R>(&self, read: impl Fn(&Limits) -> R) -> R {
        loop {
            let limits = self.limits();
            let result = read(&limits);
            if Arc::ptr_eq(&limits, &self.limits()) {
                return result;
            }
        }
    }

    /// Joins several buckets to one call, which charges all of them or none. [`Batch`] has an example.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// let members = [users.member("alice").cost(2), users.member("bob").cost(3)];
    /// assert!(limiter.batch(&members).spend()?.allowed());
    /// assert_eq!(users.check("bob", 0)?.remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn batch<'a>(&'a self, members: &'a [Member<'a>]) -> Batch<'a> {
        Batch::new(self, members)
    }

    /// Switches the limiter off or on, at once and for all its clones. A limiter that is off allows every call as if no
    /// limit applied, whatever the id, and neither reads nor changes a bucket. Buckets keep their state, and refill as
    /// time passes. Only permits that are out still go back.
    ///
    /// A tower layer on this limiter still runs: it still refuses a request with 400 or 500 if a rule cannot find the
    /// request's id. The layer's own switch, `http::Switch`, lets all requests pass.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// assert!(users.spend("alice", 1)?.allowed());
    /// limiter.set_enabled(false);
    /// assert!(users.spend("alice", 1)?.allowed());
    /// limiter.set_enabled(true);
    /// assert!(!users.spend("alice", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn set_enabled(&self, enabled: bool) {
        // Relaxed: the switch publishes nothing but itself.
        self.inner.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether the limiter is switched on. See [`set_enabled`](Limiter::set_enabled).
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Limiter, Limits};
    /// let limiter = Limiter::new(Limits::builder().build());
    /// limiter.set_enabled(false);
    /// assert!(!limiter.clone().is_enabled(), "clones share the switch");
    /// ```
    pub fn is_enabled(&self) -> bool {
        self.inner.is_enabled()
    }

    /// Sweeps one step: looks at the next cells, about `cells` of them, and drops the full ones. For programs that want
    /// no sweeper thread. Empty cells are counted in `cells`. With `Engine::Exact` a
    /// step ends at the end of the part of the table in which it reaches `cells`. A part is at most a 32nd of the
    /// table, and the step locks half of a part at a time.
    ///
    /// # A clock that is wrongly ahead
    ///
    /// A dropped bucket was full at the time of the sweep, so new buckets begin no earlier than that time. A sweep at a
    /// reading that is too late would therefore deny new keys until that time has come. So a step checks the readings
    /// of the built-in clocks against [`Instant`](std::time::Instant): if the clock has advanced by over an hour more
    /// than `Instant` since the last sweep, the step drops nothing, returns `finished`, and is
    /// [counted](Stats::clock_skips). The reading is accepted once a second one, at least a second later, agrees with
    /// it. Readings of a [manual](crate::Clock::manual) or a [custom](crate::Clock::custom) clock are always accepted.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let (clock, hand) = Clock::manual();
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_options(limits, clock)?;
    /// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
    /// hand.advance(Duration::from_secs(60)); // the bucket is full again
    /// while !limiter.sweep(1024).finished {}
    /// assert_eq!(limiter.stats().cells, 0);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn sweep(&self, cells: usize) -> Swept {
        self.inner.sweep(cells, 0)
    }

    /// Starts the thread `tollgate-sweep`, which drops full buckets. [`Sweeper`] has an example.
    ///
    /// The thread drops the buckets that were full a millisecond before its reading of the clock, so that a call that has read
    /// the clock a moment earlier finds all units in its new bucket.
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] when the system cannot start the thread.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Limiter, Limits};
    /// use tollgate::sweep::SweepOptions;
    ///
    /// let limiter = Limiter::new(Limits::builder().build());
    /// let _sweeper = limiter.start_sweeper(SweepOptions::default())?; // keep it: a drop ends the thread
    /// while limiter.stats().steps == 0 {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn start_sweeper(&self, options: SweepOptions) -> Result<Sweeper, Error> {
        Sweeper::start(&self.inner, options)
    }

    /// Returns figures about the table and the sweeps. Cheap, except with
    /// `Engine::Exact`, which reads every part of its table.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// for id in ["alice", "bob", "alice"] {
    ///     let _ = users.spend(id, 1)?;
    /// }
    /// let stats = limiter.stats();
    /// assert_eq!((stats.cells, stats.swept), (2, 0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("clock", &self.inner.clock).finish_non_exhaustive()
    }
}
