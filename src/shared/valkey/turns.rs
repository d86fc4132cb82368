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
    /// goes on all the same then, because it replaces only the text that it has read.
    pub(super) async fn wait(&self, key: &str, at_most: Duration) -> Option<OwnedMutexGuard<()>> {
        let at = self.hasher.hash_one(key) % TURNS as u64;
        let turn = self.turns.get(usize::try_from(at).ok()?)?.clone();
        timeout(at_most, turn.lock_owned()).await.ok()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const SECOND: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn turns_of_a_bucket_follow_each_other() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let turns = Arc::new(Turns::new());
            let first = turns.wait("a", LONG).await.unwrap();
            let second = timeout(10 * SECOND, turns.wait("a", SHORT)).await;
            assert!(second.expect("it is not waited for without end").is_none());
            let waits = tokio::spawn({
                let turns = turns.clone();
                async move { turns.wait("a", LONG).await.is_some() }
            });
            tokio::time::sleep(SHORT).await;
            assert!(!waits.is_finished());
            drop(first);
            assert!(waits.await.unwrap());
            // Few keys share their turns.
            let all: Vec<String> = (0..64).map(|key| key.to_string()).collect();
            let mut held = Vec::new();
            for key in &all {
                held.extend(turns.wait(key, Duration::ZERO).await);
            }
            assert!(held.len() > 32, "{}", held.len());
        });
    }
}
