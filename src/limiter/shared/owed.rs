//! Charges what this node has admitted while the store did not answer, once it answers again.

use std::sync::Arc;
use std::time::Instant;

use crate::core::shared::owed::OwedBucket;
use crate::core::shared::{Change, Found, Replaced, SharedMember, SharedStore};
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::shared::outage::begin_outage;

/// How often buckets are charged together, if others change some of them meanwhile.
const MAX_TRIES: usize = 8;

/// The most buckets that one call to the store reads or changes.
const A_CALL: usize = 64;

impl Limiter {
    /// Begins to charge the units that this node owes, and waits for nothing.
    pub(super) fn report_owed(&self) {
        let Some(handle) = &self.inner.shared else { return };
        if self.inner.outage.begin_report() {
            handle.store.run(Box::pin(report(self.clone(), handle.store.clone())));
        }
    }
}

/// Charges all that the node owes, in batches, one after the other.
async fn report(limiter: Limiter, store: Arc<dyn SharedStore>) {
    let outage = &limiter.inner.outage;
    while let Some(batch) = outage.take_owed(A_CALL) {
        match charge(&*store, &batch.buckets).await {
            Ok(()) => {}
            // Nothing is charged.
            Err(error) if error.is_store_outage() => {
                let goes_on = outage.put_back_owed(batch);
                // Also if no other call meets it: its end starts the next report.
                begin_outage(&limiter, &error);
                if !goes_on {
                    return;
                }
            }
            // A text that is no bucket, or keys that no call can have together.
            Err(_) => charge_each(&*store, &batch.buckets).await,
        }
    }
}

/// Charges buckets. The error is that of reading them: nothing is charged then. If it is not known whether the store has
/// charged them, their units are lost: to charge them again might charge them twice.
async fn charge(store: &dyn SharedStore, buckets: &[OwedBucket]) -> Result<(), Error> {
    let members: Arc<[SharedMember]> = buckets.iter().map(OwedBucket::member).collect();
    let is_split = store.is_split(&members);
    let Found { mut unix_ns, mut texts, .. } = store.charge(members).await?;
    if is_split {
        // In several slots of a cluster, whose servers have answered.
        charge_each(store, buckets).await;
        return Ok(());
    }
    let mut asked: Vec<&OwedBucket> = buckets.iter().collect();
    for _ in 0..MAX_TRIES {
        let mut changes: Vec<Change> = Vec::with_capacity(asked.len());
        let mut changing = Vec::with_capacity(asked.len());
        for (bucket, text) in asked.into_iter().zip(&texts) {
            if let Some(change) = bucket.change(text.as_deref(), unix_ns)? {
                changes.push(change);
                changing.push(bucket);
            }
        }
        asked = changing;
        if asked.is_empty() {
            return Ok(());
        }
        match store.replace(changes.into()).await {
            Ok(Replaced::Changed { unix_ns: now_ns, texts: now }) => {
                (unix_ns, texts) = (now_ns, now)
            }
            Ok(Replaced::Done) | Err(_) => return Ok(()),
        }
    }
    // Others change some of them all the time: each for itself has more luck.
    for bucket in asked {
        charge_one(store, bucket).await;
    }
    Ok(())
}

async fn charge_each(store: &dyn SharedStore, buckets: &[OwedBucket]) {
    for bucket in buckets {
        charge_one(store, bucket).await;
    }
}

/// Charges one bucket. If it fails, the units are lost.
async fn charge_one(store: &dyn SharedStore, bucket: &OwedBucket) {
    let _turn = store.turn(&bucket.key).await;
    let (began, patience) = (Instant::now(), store.patience());
    let Ok(found) = store.charge([bucket.member()].into()).await else { return };
    let Found { mut unix_ns, mut texts, .. } = found;
    loop {
        let change = bucket
            .change(texts.pop().flatten().as_deref(), unix_ns)
            .inspect_err(|error| store.count_unknown_text(error));
        let Ok(Some(change)) = change else { return };
        match store.replace([change].into()).await {
            Ok(Replaced::Changed { unix_ns: now_ns, texts: now }) if began.elapsed() < patience => {
                (unix_ns, texts) = (now_ns, now);
            }
            _ => return,
        }
    }
}
