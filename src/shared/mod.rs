//! Limits that several nodes share: their handle, and their store: Valkey or Redis, or a map in memory.
//!
//! The [guide](crate::docs::shared) begins with a program.

// `calls` has the handle and its calls, `protocol` what calls and stores have between them, `valkey` and `memory` the stores,
// `tower` the layer. The core knows `part` by the trait `SharedPart` of `core/shared_part.rs`, and nothing else of it.

mod block_on;
mod calls;
mod clock;
mod counts;
mod decision;
mod error;
#[cfg(feature = "tracing")]
mod events;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod memory;
mod part;
mod protocol;
mod store_figures;
#[cfg(feature = "tower")]
mod tower;
mod valkey;

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::shared::protocol::change::{BucketChange, Step};
use crate::shared::protocol::{
    Changed, Found, Reply, SharedMode, SharedStore, StoreHandle, StoreMember,
};

use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limits::StoreOptions;
use crate::shared::store_figures::{StoreFault, StoreFigures};
pub use block_on::block_on;
use calls::answer;
pub use calls::batch::SharedBatch;
pub use calls::handle::{ScaledSharedLimit, SharedLimit};
pub use calls::member::SharedMember;
pub use calls::receipt::{SharedReceipt, SharedReservation};
pub use calls::wait::SharedWaiting;
use memory::{MemoryStore, run_now};
use valkey::ValkeyStore;

/// A store of the buckets of [shared](crate::limits::Shared) limits. Clones are the same store.
///
/// # Example
///
/// ```
/// use tollgate::shared::Store;
/// use tollgate::{Clock, Limiter, LimiterOptions, Limits};
///
/// let store = Store::in_memory(Clock::system());
/// let node = |store: &Store| {
///     Limiter::with_options(Limits::builder().build(), LimiterOptions::default().store(store.clone()))
/// };
/// let nodes = [node(&store)?, node(&store)?]; // share their limits
/// # let _ = nodes;
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Store(pub(crate) StoreHandle);

impl Store {
    /// Makes a store of a Valkey or Redis server, of a cluster, or of a server that sentinels know. It connects in the
    /// background, and again after a failure: until it has connected, calls have no answer from it: see
    /// [`Error::is_store_failure`].
    ///
    /// # Errors
    ///
    /// [`Error::is_store_failure`] for an address that is none, [`Error::is_io`] if the thread `tollgate-store` cannot be
    /// started.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::limits::StoreOptions;
    /// use tollgate::shared::Store;
    /// use tollgate::{LimiterOptions, Limiter, Limits};
    ///
    /// let store = Store::connect(&StoreOptions::new("redis://127.0.0.1:6379")?)?;
    /// let limiter = Limiter::with_options(Limits::builder().build(), LimiterOptions::default().store(store))?;
    /// # let _ = limiter;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn connect(options: &StoreOptions) -> Result<Store, Error> {
        let store = Arc::new(ValkeyStore::start(options)?);
        let prefix = match options.hash_tag() {
            Some(tag) => format!("{}{{{tag}}}:", options.key_prefix()),
            None => options.key_prefix().into(),
        };
        Ok(Store(StoreHandle { store, prefix: prefix.into() }))
    }

    /// Makes the store of a limits file. If it cannot be started, each call fails with that error.
    pub(crate) fn of_section(options: &StoreOptions) -> Store {
        Store::connect(options).unwrap_or_else(|error| {
            let failed = Failed { error, figures: StoreFigures::default() };
            Store(StoreHandle { store: Arc::new(failed), prefix: Box::default() })
        })
    }

    /// Makes an empty store in this process, for tests and simulations of several nodes. Its time is the clock's.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Clock, shared::Store};
    /// let (clock, hand) = Clock::manual();
    /// let store = Store::in_memory(clock);
    /// hand.advance(std::time::Duration::from_secs(1)); // one second later for all nodes
    /// # let _ = store;
    /// ```
    pub fn in_memory(clock: Clock) -> Store {
        let store = Arc::new(MemoryStore::new(clock));
        Store(StoreHandle { store, prefix: Box::default() })
    }

    /// Waits for the connections, and writes a few keys (`/ready:0` and so on, below the prefix, for a minute), again until that
    /// has worked or the time is over. For the start of a program: a wrong address, password, certificate or right, a replica, and
    /// a node of a cluster in place of the cluster are then known before the first client comes. The keys are in several slots, so
    /// that each node of a small cluster has one. A future that is dropped ends the questions.
    ///
    /// # Errors
    ///
    /// [`Error::is_store_failure`], with the reason.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tollgate::shared::{Store, block_on};
    ///
    /// # use tollgate::Clock;
    /// let store = Store::in_memory(Clock::system()); // or Store::connect(..)?, or limiter.store()
    /// block_on(store.ready(Duration::from_secs(5)))?;
    /// assert!(store.is_connected());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub async fn ready(&self, within: Duration) -> Result<(), Error> {
        let (tell, answered) = oneshot::channel();
        let (store, prefix) = (self.0.store.clone(), self.0.prefix.clone());
        self.0.store.run(Box::pin(async move {
            let is_over = Deadline { began: Instant::now(), within };
            if let Some(result) = ready_within(&*store, &prefix, is_over, || tell.is_closed()).await
            {
                let _ = tell.send(result);
            }
        }));
        answer(answered).await
    }

    /// Whether there is a connection to the server; in a cluster, to each node. For a health check: it asks nothing. A server
    /// that stands still is not connected after some seconds, also without calls. One that is connected may still refuse calls:
    /// see [`last_error`](Store::last_error) and
    /// [`StoreCounters::is_outage`](crate::metrics::StoreCounters::is_outage).
    pub fn is_connected(&self) -> bool {
        self.0.store.is_connected()
    }

    /// Returns the text of the last error, of a connection or of a call, since the store was made; `None` if there was none. It
    /// has no password.
    pub fn last_error(&self) -> Option<String> {
        self.0.store.figures().and_then(StoreFigures::last_error)
    }

    /// Returns a warning if the server may forget buckets before they are full again, because its `maxmemory-policy` evicts
    /// them: a forgotten bucket is full. Known once the store has connected. `None` as well if the server does not tell its
    /// settings, as some managed ones do not. With the feature `tracing` each new connection logs the warning.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{Clock, shared::Store};
    /// let store = Store::in_memory(Clock::system());
    /// assert_eq!(store.warning(), None);
    /// ```
    pub fn warning(&self) -> Option<String> {
        self.0.store.warning()
    }

    /// Returns how many questions the limiters of this process have asked the store: charges, checks, and each step of a
    /// refund, a reset or a block. A batch is one question, or several if its members are in several slots of a cluster.
    /// Those that had no answer in time are counted; those that were not sent, because there was no connection or after
    /// failures, are not.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// let store = Store::in_memory(Clock::system());
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().store(store.clone()))?;
    /// assert!(block_on(limiter.shared("PerUser")?.spend("alice", 1))?.allowed());
    /// assert_eq!(store.calls(), 1);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn calls(&self) -> u64 {
        self.0.store.figures().map_or(0, StoreFigures::calls)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({:?})", self.0.store)
    }
}

/// The time that a start may take.
struct Deadline {
    began: Instant,
    within: Duration,
}

/// Writes keys of a store, until that has worked or the time is over. `None`: the caller has dropped its future.
async fn ready_within(
    store: &dyn SharedStore,
    prefix: &str,
    Deadline { began, within }: Deadline,
    is_dropped: impl Fn() -> bool,
) -> Option<Result<(), Error>> {
    /// The time between two attempts.
    const AGAIN: Duration = Duration::from_millis(10);
    loop {
        let (is_over, sleep) = (began.elapsed() >= within, store.sleep(AGAIN));
        // Each question without a connection would count as an error. A store without a timer has answered already.
        if store.is_connected() || is_over || sleep.is_none() {
            match write_keys(store, prefix).await {
                Ok(()) if store.is_connected() => return Some(Ok(())),
                Ok(()) if is_over || sleep.is_none() => {
                    let text = store.figures().and_then(StoreFigures::last_error);
                    let text =
                        text.unwrap_or_else(|| "a node of the cluster is not connected".into());
                    return Some(Err(Error::new(ErrorKind::StoreOutage, text)));
                }
                Err(error) if is_over || sleep.is_none() || !error.is_undecided() => {
                    return Some(Err(error));
                }
                _ => {}
            }
        }
        if let Some(sleep) = sleep {
            sleep.await;
        }
        if is_dropped() {
            return None;
        }
    }
}

/// Reads, writes and removes keys in several slots. No bucket has such a key.
async fn write_keys(store: &dyn SharedStore, prefix: &str) -> Result<(), Error> {
    const KEYS: usize = 8;
    for key in 0..KEYS {
        let member = StoreMember {
            key: format!("{prefix}/ready:{key}").into(),
            limit: Limit::new(1, 1, Duration::from_secs(1))?,
            unscaled: None,
            cost: 0,
            mode: SharedMode::CheckAndSpend,
            keep_ms: 0,
            lease: None,
        };
        store.charge([member.clone()].into()).await?;
        for step in [Step::Block { time: Duration::from_secs(1) }, Step::Unblock] {
            let change = BucketChange { member: member.clone(), step };
            store.change([change].into()).await?;
        }
    }
    Ok(())
}

/// A store that could not be started.
#[derive(Debug)]
struct Failed {
    error: Error,
    figures: StoreFigures,
}

impl Failed {
    fn fail<T: Send + 'static>(&self) -> Reply<T> {
        self.figures.count_error(StoreFault::NoConnection);
        self.figures.note_error(&self.error);
        Box::pin(ready(Err(self.error.clone())))
    }
}

impl SharedStore for Failed {
    fn charge(&self, _: Arc<[StoreMember]>) -> Reply<Found> {
        self.fail()
    }

    fn change(&self, _: Arc<[BucketChange]>) -> Reply<Changed> {
        self.fail()
    }

    fn is_connected(&self) -> bool {
        false
    }

    fn figures(&self) -> Option<&StoreFigures> {
        Some(&self.figures)
    }

    fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        run_now(task);
    }
}
