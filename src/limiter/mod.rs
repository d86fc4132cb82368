//! The face: a limiter, and a handle for each of its limits.

pub(crate) mod batch;
pub(crate) mod blocks;
pub(crate) mod explain;
pub(crate) mod handle;
pub(crate) mod metrics;
pub(crate) mod options;
pub(crate) mod reload;
pub(crate) mod reserve;
pub(crate) mod scaled;
pub(crate) mod shadow;
pub(crate) mod sweeper;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock::Clock;
use crate::core::at_cap::Overflow;
use crate::core::block_list::BlockList;
use crate::core::cancel::Cancels;
use crate::core::generation::Generation;
use crate::core::ledger::Ledger;
use crate::core::reloads::Reloads;
use crate::core::state::SharedState;
use crate::core::sweep_clock::SweepClock;
use crate::core::sweep_record::SweepRecord;
use crate::error::Error;
use crate::limit::carry_over::CarryOver;
use crate::limiter::batch::{Batch, Member};
use crate::limiter::handle::KeyedLimit;
use crate::limiter::options::LimiterOptions;
use crate::limiter::sweeper::{SweepOptions, Sweeper};
use crate::limits::Limits;
#[cfg(feature = "tracing")]
use crate::observe::events::Denials;
use crate::observe::stats::Stats;
use crate::observe::top_denied::TopDenied;
use crate::store::{Published, Store, Swept, pin};
use crate::util::sync::{AtomicU64, Ordering, Switch};

/// Limits, a clock, and a bucket for every id that has spent.
///
/// Clones share everything. No call waits for a background thread, and none is started unless asked:
/// without [`start_sweeper`](Limiter::start_sweeper) or [`sweep`](Limiter::sweep), buckets that are
/// full again keep their memory.
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
    pub(crate) inner: Arc<SharedState>,
}

impl Limiter {
    /// A limiter on the [system's clock](Clock::system).
    pub fn new(limits: Limits) -> Limiter {
        Limiter::with_clock(limits, Clock::system())
    }

    /// A limiter on a clock of the caller's choice.
    pub fn with_clock(limits: Limits, clock: Clock) -> Limiter {
        Limiter::with_options(limits, LimiterOptions::default().clock(clock))
    }

    /// A limiter with a table, a cap and a clock of the caller's choice.
    pub fn with_options(limits: Limits, options: LimiterOptions) -> Limiter {
        let store = Store::new(options.engine, options.max_keys);
        Limiter::with_store(limits, store, options, CarryOver::default())
    }

    /// By `debt` the ends of overrides carry what is owed, until a reload says otherwise.
    pub(crate) fn with_store(
        limits: Limits,
        store: Store,
        options: LimiterOptions,
        debt: CarryOver,
    ) -> Limiter {
        let overflow = Overflow::new(options.at_cap);
        let is_counting = options.is_counting();
        let clock = options.clock.unwrap_or_default();
        let clocks = (clock.now_ns(), SystemTime::now());
        let generation = Generation::first(limits, clocks, is_counting, &store, debt);
        let inner = SharedState {
            enabled: Switch::new(true),
            sweep_clock: SweepClock::new(&clock),
            clock,
            ended_ns: AtomicU64::new(0),
            store,
            overflow,
            ledger: Ledger::new(),
            cancels: Cancels::new(),
            blocks: BlockList::new(options.max_blocks),
            sweeps: SweepRecord::default(),
            reloads: Reloads::default(),
            top_denied: (options.top_denied > 0).then(|| TopDenied::new(options.top_denied)),
            #[cfg(feature = "tracing")]
            denials: (options.log_denials > 0).then(|| Denials::new(options.log_denials)),
            generation: Published::new(Arc::new(generation)),
        };
        Limiter { inner: Arc::new(inner) }
    }

    /// A handle for the limit `name`. Take it once and keep it: calls on it compare no names.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name that the limiter does not know. It knows
    ///
    /// * the limits that are declared, and with the feature `boulder` Boulder's names;
    /// * limits that a [reload](Limiter::reload) has removed: handles for them stay good. They are no limit, and
    ///   apply again when a later reload declares them;
    /// * after a restore from a file, limits that have blocks in the file, though the new limits lack them: also
    ///   no limit until a reload declares them. Other limits that only the file has are unknown.
    ///
    /// [`Limits::names`] of [`limits`](Limiter::limits) lists the limits that are declared now.
    ///
    /// # Example: a limit that is removed
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// assert!(limiter.limit("PerUsr").unwrap_err().is_invalid_name());
    /// limiter.reload(Limits::builder().build())?;
    /// let users = limiter.limit("PerUser")?; // still known, and no limit
    /// assert_eq!(users.spend("alice", 1)?.remaining(), None);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limit(&self, name: &str) -> Result<KeyedLimit, Error> {
        let guard = pin();
        let generation = self.inner.generation.get(&guard);
        let index = generation.limits.index_of(name)?;
        let entry = generation.limits.entry(index);
        let tally = generation.tallies.of(index).clone();
        Ok(KeyedLimit {
            limiter: self.clone(),
            index,
            name: entry.name.as_ref().into(),
            format: entry.format,
            stripes: tally.stripes.clone(),
            tally,
        })
    }

    /// The limits as they are now: a [reload](Limiter::reload) puts others in their place.
    pub fn limits(&self) -> Arc<Limits> {
        self.inner.generation.get(&pin()).limits.clone()
    }

    /// Several buckets as one: all are charged, or none. See [`Batch`].
    pub fn batch<'a>(&'a self, members: &'a [Member<'a>]) -> Batch<'a> {
        Batch::new(self, members)
    }

    /// Switches the whole limiter off or on, for all its clones, at once. Switched off, no call is limited:
    /// each answers as where no limit applies, whatever the id, and neither reads nor changes a bucket.
    /// What buckets owe stays, and drains as time goes on.
    ///
    /// A tower layer on this limiter still runs: a request of which a rule cannot say whom it counts for is
    /// refused with 400 or 500 as before. The layer's own switch, `http::Switch`, lets all requests pass.
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
        // Relaxed: publishes nothing but itself.
        self.inner.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether the limiter limits. See [`set_enabled`](Limiter::set_enabled).
    pub fn is_enabled(&self) -> bool {
        self.inner.is_enabled()
    }

    /// Looks at the next cells, about `cells` of them, and drops those that are full: one bounded step
    /// of a sweep, for those who want no thread. Room for cells is looked at, too. With
    /// [`Engine::Exact`](crate::options::Engine::Exact) a step ends with the part of the table in which the
    /// number is reached, at most a 32nd of it, and holds a lock over half of one part at a time.
    ///
    /// A bucket that was dropped counts as full at the time of the sweep, and new buckets begin no earlier.
    /// So a sweep by a clock that is wrongly ahead denies new keys until the time that it showed. A reading of
    /// one of the crate's own clocks that is more than an hour ahead of the last sweep's, plus the time that
    /// [`Instant`](std::time::Instant) says has passed since, is therefore not believed: the step does nothing, says that it
    /// has finished, and is [counted](Stats::clock_skips), until a second reading, at least a second later, agrees
    /// with it. A clock [moved by hand](crate::Clock::manual) or of the [caller's own](crate::Clock::custom) is
    /// believed.
    pub fn sweep(&self, cells: usize) -> Swept {
        self.inner.sweep(cells)
    }

    /// Starts a thread, `tollgate-sweep`, that drops full cells. See [`Sweeper`].
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] when the system gives no thread.
    pub fn start_sweeper(&self, options: SweepOptions) -> Result<Sweeper, Error> {
        Sweeper::start(&self.inner, options)
    }

    /// What the table holds and what sweeps have done. Cheap, save with
    /// [`Engine::Exact`](crate::options::Engine::Exact), which looks at each of its parts.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("clock", &self.inner.clock).finish_non_exhaustive()
    }
}
