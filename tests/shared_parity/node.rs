//! A node: a limiter, the oracle of its own buckets, and the denials that it may remember.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate::limit::Factor;
use tollgate::shared::{SharedLimit, Store};
use tollgate::{Clock, Limiter, LimiterOptions};

use super::bucket::Key;
use super::oracle::Oracle;
use super::spec::{FIRST_IDS, KNOWN, LARGEST_FACTOR};

/// Returns the result of a future that is ready at its first poll.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a call waits for the store in memory"),
    }
}

/// A denial by the store that the node may remember.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denial {
    pub(crate) key: Key,
    pub(crate) cost: u64,
    pub(crate) until: i128,
    /// When the store would allow the call, as it has said. `None`: the caller was not told.
    pub(crate) retry_at: Option<i128>,
    pub(crate) is_block: bool,
}

impl Denial {
    /// Whether a node may answer with this wait. It is the store's; the part after the end of the kept denial may be shorter by
    /// a thirty-second.
    fn may_tell(&self, retry: i128, now: i128) -> bool {
        let Some(at) = self.retry_at else { return true };
        // Words have steps of 2^18 ns, and at most 205 days of it.
        let longer = (at - self.until).min(63 << 30 << 18);
        let least = (self.until - now) + longer * 31 / 32 - (2 << 18);
        // Some costs have no room for the longer time.
        retry <= at - now && (retry >= least || self.cost > 510)
    }
}

/// The state of a bucket as a node knows it without I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    /// The units of its lease.
    Units(u64),
    Denied {
        is_block: bool,
    },
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
            (Some(_), false) => Known::Denied { is_block: decision.blocked() },
        }
    }

    /// Checks that the store has denied such a call to this node, and that the node forgets it in time.
    pub(crate) fn check_denial(
        &self,
        key: Key,
        cost: u64,
        (is_block, retry): (bool, Option<i128>),
        now: i128,
    ) -> Result<(), String> {
        let is_it = |denial: &&Denial| {
            denial.key == key
                && denial.is_block == is_block
                && (is_block || denial.cost <= cost)
                && now < denial.until
                && retry.is_none_or(|retry| denial.may_tell(retry, now))
        };
        match self.denials.iter().find(is_it) {
            Some(_) => Ok(()),
            None => Err(format!(
                "the store has not denied a call of {cost} for {key:?} to this node, blocked {is_block}, for {retry:?} ns at {now}: {:?}",
                self.denials
            )),
        }
    }

    pub(crate) fn forget_denials(&mut self, is_forgotten: impl Fn(&Denial) -> bool) {
        self.denials.retain(|denial| !is_forgotten(denial));
    }
}

pub(crate) fn node_options(options: LimiterOptions, clock: Clock, store: &Store) -> LimiterOptions {
    options.clock(clock).store(store.clone())
}
