//! Batches whose caller keeps the members' decisions and charges.

use crate::error::Error;
use crate::limiter::batch::Batch;
use crate::limiter::shared::answered::answer;
use crate::limiter::shared::asked::SharedCall;
use crate::limiter::shared::batch::{AnswerOfBatch, Begun};
use crate::limiter::shared::kept::DecidedBatch;

/// How far a call that keeps its charges came without the store.
pub(crate) enum BegunKeeping {
    /// No member is shared.
    Local,
    Decided(DecidedBatch),
    Asks(AnswerOfBatch),
}

impl Batch<'_> {
    /// Spends the batch, as far as it can be decided without the store. It owns all that it needs: the caller may wait for
    /// the answer without the batch.
    pub(crate) fn begin_keeping(&self) -> Result<BegunKeeping, Error> {
        let call = SharedCall { keeps: true, ..SharedCall::SPEND };
        Ok(match self.begin(call)? {
            Begun::Local => BegunKeeping::Local,
            Begun::Decided(decided) => BegunKeeping::Decided(decided),
            Begun::Asks(asked) => BegunKeeping::Asks(self.ask(asked)?),
        })
    }
}

/// Waits for the store's decision.
pub(crate) async fn kept(asked: AnswerOfBatch) -> Result<DecidedBatch, Error> {
    answer(asked).await
}
