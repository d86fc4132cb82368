//! The interface between the calls for shared limits and their store: Valkey, or a map in memory.
//!
//! A limit that several nodes share has its buckets in a store. A store keeps one [text](text) a bucket, has one clock, and
//! does two things, each of them whole or not at all: it [charges](SharedStore::charge) a batch, and it
//! [changes](SharedStore::change) buckets by [steps](change). The figures of a decision are computed here, by the
//! [same rules](decide) as those of a local limit, from the texts that the store found.

pub(crate) mod change;
pub(crate) mod decide;
pub(crate) mod denials;
pub(crate) mod gate;
pub(crate) mod groups;
pub(crate) mod held;
pub(crate) mod lease;
pub(crate) mod leases;
pub(crate) mod outage;
mod outage_bucket;
pub(crate) mod owed;
mod rule;
pub(crate) mod text;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::Clock;
use crate::error::Error;
use crate::limit::Limit;
use crate::shared::protocol::change::BucketChange;
use crate::shared::protocol::gate::Passed;
use crate::shared::protocol::lease::LeaseRequest;
use crate::shared::store_figures::{StoreFault, StoreFigures};
use crate::store::hash::{HashKeys, hash};
use crate::store::key::{KeyRef, LimitIndex};

/// A call to the store that is under way. Its time counts from when it is made, not from its first poll. It has no borrowed parts, so that it can go on when its caller has gone.
pub(crate) type Reply<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The function that is told the store's answer to a charge. If it is dropped instead, the store has ended.
pub(crate) type TellFound = Box<dyn FnOnce(Result<Found, Error>) + Send>;

/// A store of buckets that several nodes share.
pub(crate) trait SharedStore: fmt::Debug + Send + Sync {
    /// Lets a call in whose callers have a deadline, before anything is done for it. A call that is not let in would have no
    /// answer: the store is not there, or is paused
    /// ([`Error::is_store_outage`]); or this node has too many calls under way ([`Error::is_store_overload`]). `was_denied`:
    /// whether the store has denied a call for one of these buckets lately.
    fn admit(&self, _: &mut dyn Iterator<Item = &str>, _was_denied: bool) -> Result<Passed, Error> {
        Ok(Passed::default())
    }

    /// Decides a batch at the store's own time, and charges all of its members or none. A denied batch writes nothing.
    fn charge(&self, members: Arc<[StoreMember]>) -> Reply<Found>;

    /// Charges as `charge` does, also if the caller goes away. A store may send charges together that come at the same time.
    fn charge_and_tell(&self, members: Arc<[StoreMember]>, tell: TellFound) {
        let reply = self.charge(members);
        self.run(Box::pin(async move { tell(reply.await) }));
    }

    /// Whether these members are in several slots of a cluster. A batch of them is charged by a script a slot: all or none
    /// all the same, but what one slot has charged is given back only after another has denied. Its members ask for no
    /// leases, and end none: a lease that has ended in one slot cannot be given back.
    fn is_split(&self, _: &[StoreMember]) -> bool {
        false
    }

    /// Like `charge`, for a batch that admits nothing: it waits for a place, and longer for its answer.
    fn charge_return(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        self.charge(members)
    }

    /// Whether it has all its connections.
    fn is_connected(&self) -> bool {
        true
    }

    /// Whether a call for a key would be sent now. A node does not give up its lease for a call that would not be, because the
    /// store would grant no other one.
    fn is_ready(&self, _key: &str) -> bool {
        true
    }

    /// Whether calls for all keys would be sent now. An answer tells that of a store that is one server.
    fn is_whole(&self) -> bool {
        true
    }

    /// Changes each bucket by its step, at the store's own time. In a cluster all of them are in one slot: an error if they are
    /// not.
    fn change(&self, changes: Arc<[BucketChange]>) -> Reply<Changed>;

    /// Returns a warning about the settings of the store, if there is one.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Returns the figures of the calls to the store; `None` if it counts none.
    fn figures(&self) -> Option<&StoreFigures> {
        None
    }

    /// Whether the buckets of Boulder's limits have the keys that Boulder gives them.
    #[cfg(feature = "boulder")]
    fn has_boulder_keys(&self) -> bool {
        false
    }

    /// Whether the store's time is read from this clock.
    fn is_on(&self, _: &Clock) -> bool {
        false
    }

    /// Stores a text as it is.
    #[cfg(test)]
    fn put(&self, _key: &str, _text: &str) {}

    /// Returns a future that is ready after a time, for tasks of this store; `None` if the store has no clock of the machine.
    fn sleep(&self, _: Duration) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        None
    }

    /// Runs a task to its end, also if no caller waits for it.
    fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);
}

impl dyn SharedStore + '_ {
    /// Counts a bucket whose text this version does not know.
    #[cold]
    pub(crate) fn count_unknown_text(&self, error: &Error) {
        if let Some(figures) = self.figures() {
            figures.count_unusable(StoreFault::UnknownText, error);
        }
    }
}

/// A store, and the prefix of the keys of its buckets.
#[derive(Clone, Debug)]
pub(crate) struct StoreHandle {
    pub(crate) store: Arc<dyn SharedStore>,
    pub(crate) prefix: Box<str>,
}

/// Whether a member of a batch can deny it, and whether it is charged. charge.lua has the modes by their numbers here, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedMode {
    /// It can deny the batch, and is charged.
    CheckAndSpend,
    /// It can deny the batch, and is not charged.
    CheckOnly,
    /// It cannot deny the batch, and is charged if its bucket has the units.
    SpendOnly,
    /// It cannot deny the batch, and is not charged: a member in shadow mode that is only checked.
    LookOnly,
}

impl SharedMode {
    pub(crate) fn can_deny(self) -> bool {
        matches!(self, SharedMode::CheckAndSpend | SharedMode::CheckOnly)
    }

    pub(crate) fn is_charged(self) -> bool {
        matches!(self, SharedMode::CheckAndSpend | SharedMode::SpendOnly)
    }
}

/// One bucket of a batch.
#[derive(Clone, Debug)]
pub(crate) struct StoreMember {
    /// The bucket's name in the store.
    pub(crate) key: Box<str>,
    pub(crate) limit: Limit,
    /// The limit without the call's factor. `None`: the call has no factor.
    pub(crate) unscaled: Option<Box<Limit>>,
    /// At most the limit's burst, but for what a node [owes](owed): that is sent as a step, at a cost of 0.
    pub(crate) cost: u64,
    pub(crate) mode: SharedMode,
    /// The least time for which a text that is written is kept, in ms. A factor can make a bucket fill faster than by its
    /// limit, and the store must not forget it earlier than the limit would.
    pub(crate) keep_ms: u64,
    /// The lease that the node asks for, for later calls.
    pub(crate) lease: Option<LeaseRequest>,
}

impl StoreMember {
    /// Returns the limit without the call's factor.
    pub(crate) fn own_limit(&self) -> &Limit {
        self.unscaled.as_deref().unwrap_or(&self.limit)
    }
}

/// The answer of a store that has decided a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The store's time, in ns since 1970.
    pub(crate) unix_ns: u64,
    /// The first member that denied the batch. `None`: the batch is allowed, and charged.
    pub(crate) denied: Option<usize>,
    /// The members' texts before the charge. `None`: the store had none.
    pub(crate) texts: Vec<Option<Box<[u8]>>>,
    /// The units that each member's node has taken ahead; 0 for most.
    pub(crate) leased: SmallVec<[u64; 2]>,
    /// The time at which each member was decided, if servers of a cluster have decided them by their own clocks; else empty.
    pub(crate) times: Vec<u64>,
}

impl Found {
    /// Returns the store's time when it decided a member, in ns since 1970.
    pub(crate) fn unix_ns_of(&self, at: usize) -> u64 {
        self.times.get(at).copied().unwrap_or(self.unix_ns)
    }
}

/// The answer of a store that has changed buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The store's time, in ns since 1970.
    pub(crate) unix_ns: u64,
    /// The buckets' texts before the change. `None`: the store had none.
    pub(crate) texts: Vec<Option<Box<[u8]>>>,
}

/// Hashes a bucket's name in the store. The high bits depend on all of its bytes.
fn hash_of_key(keys: &HashKeys, key: &str) -> u64 {
    hash(keys, KeyRef { limit: LimitIndex(0), id: key.as_bytes() })[0]
}

/// The time that a text is kept in the store beyond the time at which it says nothing any more, in ms. So a clock that is
/// put back by less forgets no bucket.
pub(crate) const SLACK_MS: u64 = 60_000;
