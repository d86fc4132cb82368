//! A node: a limiter, the oracle of its own buckets, and the denials that it may remember.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate::limit::Factor;
use tollgate::shared::{SharedLimit, Store};
use tollgate::{Clock, Limiter, LimiterOptions};

use super::bucket::{Bucket, Key};
use super::oracle::Oracle;
use super::spec::{FIRST_IDS, KNOWN, LARGEST_FACTOR};

/// Returns the result of a future that is ready at its first poll.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a call waits for the store in memory"),
    }
}

/// A bucket as a denied call has found it: the node may deny calls by it until a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denial {
    pub(crate) key: Key,
    pub(crate) until: i128,
    pub(crate) found: Bucket,
    /// The units that were out of the bucket.
    pub(crate) leased: u64,
}

/// The time for which a node may keep a denial, in ns.
pub(crate) const KEPT_NS: i128 = 100_000_000;

/// The state of a bucket as a node knows it without I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    /// The units of its lease.
    Units(u64),
    Denied,
    /// The limiter is off, or no limit applies.
    Unlimited,
}

pub(crate) struct Node {
    pub(crate) limiter: Limiter,
    pub(crate) handles: Vec<Option<SharedLimit>>,
    /// Its own buckets, on its own clock.
    pub(crate) oracle: Oracle,
    /// The node's clock less the store's.
    pub(crate) ahead: i128,
    pub(crate) denials: Vec<Denial>,
}

impl Node {
    pub(crate) fn new(limiter: Limiter, oracle: Oracle, ahead: i128) -> Node {
        let mut node = Node { limiter, handles: Vec::new(), oracle, ahead, denials: Vec::new() };
        node.find_handles();
        node
    }

    pub(crate) fn find_handles(&mut self) {
        let handle = |at: usize| self.limiter.shared(KNOWN[at].name).ok();
        self.handles = (0..KNOWN.len()).map(handle).collect();
    }

    /// Uses the largest factor, so that no sweep drops a bucket that owes units by it.
    pub(crate) fn use_largest_factor(&self) {
        for (handle, id) in self.handles.iter().zip(FIRST_IDS) {
            if let Some(handle) = handle {
                let largest = Factor::from_millionths(LARGEST_FACTOR);
                // Only a local limit has a bucket here.
                if self.limiter.limit(handle.name()).is_ok() {
                    let _ = ready(handle.scaled(largest).check(id, 0));
                }
            }
        }
    }

    /// What the node knows of an id without I/O.
    pub(crate) fn known(&self, limit: usize, id: usize) -> Known {
        let Some(handle) = &self.handles[limit] else { return Known::Unlimited };
        let Some(decision) = handle.known_here(KNOWN[limit].id(id)) else { return Known::Nothing };
        match (decision.remaining(), decision.allowed()) {
            (None, _) => Known::Unlimited,
            (Some(units), true) => Known::Units(units),
            // A bucket can owe more than it holds, after a reload.
            (Some(_), false) => Known::Denied,
        }
    }

    /// The denials of a bucket that the node may still keep.
    pub(crate) fn kept(&self, key: Key, now: i128) -> Vec<Denial> {
        let is_kept = |it: &&Denial| it.key == key && now < it.until;
        let mut kept: Vec<Denial> = self.denials.iter().filter(is_kept).copied().collect();
        for Denial { found, .. } in &mut kept {
            // A block may have ended since.
            found.blocked_until = found.blocked_until.filter(|&until| until > now);
        }
        kept
    }

    /// A call of this node may have changed a bucket.
    pub(crate) fn forget_denials(&mut self, key: Key) {
        self.denials.retain(|denial| denial.key != key);
    }
}

pub(crate) fn node_options(options: LimiterOptions, clock: Clock, store: &Store) -> LimiterOptions {
    options.clock(clock).store(store.clone())
}
