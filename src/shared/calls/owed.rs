//! Charges what this node has admitted while the store did not answer, once it answers again.

use std::sync::Arc;

use crate::error::Error;
use crate::limiter::Limiter;
use crate::shared::calls::outage::begin_outage;
use crate::shared::part::Part;
use crate::shared::protocol::owed::{Owed, owed_change, owed_read};
use crate::shared::protocol::{SharedStore, StoreMember};

/// The most buckets that one call to the store reads or changes.
const A_CALL: usize = 64;

impl Limiter {
    /// Begins to charge the units that this node owes, and waits for nothing.
    pub(super) fn report_owed(&self) {
        let Some(part) = self.inner.part() else { return };
        if part.outage.with_owed(Owed::begin_report) {
            part.handle.store.run(Box::pin(report(self.clone(), part.handle.store.clone())));
        }
    }
}

/// Charges all that the node owes, in batches, one after the other.
async fn report(limiter: Limiter, store: Arc<dyn SharedStore>) {
    let Some(Part { outage, .. }) = limiter.inner.part() else { return };
    while let Some(batch) = outage.with_owed(|owed| owed.take(A_CALL)) {
        match charge(&*store, &batch.buckets).await {
            Ok(()) => {}
            // Nothing is charged.
            Err(error) if error.is_undecided() => {
                let is_outage = error.is_store_outage();
                let goes_on = outage.with_owed(|owed| owed.put_back(batch, is_outage));
                if is_outage {
                    // Also if no other call meets it: its end starts the next report.
                    begin_outage(&limiter, &error);
                }
                if !goes_on {
                    return;
                }
            }
            // A text that is no bucket, or keys that no call can have together.
            Err(_) => charge_each(&*store, &batch.buckets).await,
        }
    }
}

/// Charges buckets. The error is that of reading them, or of a call that was not sent: nothing is charged then. If it is not known whether the store has
/// charged them, their units are lost: to charge them again might charge them twice.
async fn charge(store: &dyn SharedStore, buckets: &[StoreMember]) -> Result<(), Error> {
    let members: Arc<[StoreMember]> = buckets.iter().map(owed_read).collect();
    let is_split = store.is_split(&members);
    let found = store.charge_return(members).await?;
    if is_split || found.denied.is_some() {
        // In several slots of a cluster, whose servers have answered; or a text is no bucket.
        charge_each(store, buckets).await;
        return Ok(());
    }
    match store.change(buckets.iter().map(owed_change).collect()).await {
        Err(error) if error.is_unsent() => Err(error),
        _ => Ok(()),
    }
}

/// Charges buckets one after the other. The units of one that fails are lost.
async fn charge_each(store: &dyn SharedStore, buckets: &[StoreMember]) {
    for bucket in buckets {
        if let Ok(changed) = store.change([owed_change(bucket)].into()).await
            && let Some(text) = changed.texts.first()
        {
            let stepped = owed_change(bucket).stepped(text.as_deref(), changed.unix_ns);
            let _ = stepped.inspect_err(|error| store.count_unknown_text(error));
        }
    }
}
