//! Gives this node's changes of a bucket their turns: so only other nodes come between a change's two calls.

use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

/// Buckets whose keys have the same hash share their turns.
const TURNS: usize = 1024;

/// The turns of all buckets.
pub(super) struct Turns {
    turns: Box<[Arc<Mutex<()>>]>,
    hasher: RandomState,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { turns: (0..TURNS).map(|_| Arc::default()).collect(), hasher: RandomState::new() }
    }

    /// Waits for a turn of a bucket, which lasts until the result is dropped. `None`: it did not come in time. The change
    /// goes on all the same then, because it replaces only what it has read.
    pub(super) async fn wait(&self, key: &str, at_most: Duration) -> Option<OwnedMutexGuard<()>> {
        let at = self.hasher.hash_one(key) % TURNS as u64;
        let turn = self.turns.get(usize::try_from(at).ok()?)?.clone();
        timeout(at_most, turn.lock_owned()).await.ok()
    }
}
