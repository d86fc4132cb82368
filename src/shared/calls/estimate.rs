//! Batches of estimates, of which nodes may share some members.

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::reserve::Receipt;
use crate::shared::calls::answer;
use crate::shared::calls::asked::SharedCall;
use crate::shared::calls::batch::{Begun, SharedBatch};
use crate::shared::calls::kept::{DecidedBatch, MemberCharge};
use crate::shared::calls::member::SharedMember;
use crate::shared::calls::receipt::{SharedReceipt, StoredEstimate};

impl SharedBatch<'_> {
    /// Like [`spend`](SharedBatch::spend), and returns a receipt of all charges if the batch is allowed: see
    /// [`Batch::spend_estimate`](crate::batch::Batch::spend_estimate). A leased limit has no estimates.
    ///
    /// # Errors
    ///
    /// See [`SharedBatch`].
    ///
    /// # Example: a team's tokens are shared by all nodes, a user's requests are counted here
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::{LimitOptions, Shared};
    /// # use tollgate::shared::{Store, block_on};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    /// # let limit = |most| Limit::new(most, most, Duration::from_secs(60));
    /// # let exact = LimitOptions::default().shared(Shared::Exact);
    /// # let limits = Limits::builder()
    /// #     .limit("Requests", IdFormat::String, limit(10)?)?
    /// #     .limit_with("TokensPerTeam", IdFormat::String, limit(1000)?, exact)?
    /// #     .build();
    /// # let options = LimiterOptions::default().store(Store::in_memory(Clock::system()));
    /// # let limiter = Limiter::with_options(limits, options)?;
    /// let (requests, tokens) = (limiter.limit("Requests")?, limiter.shared("TokensPerTeam")?);
    /// let members = [requests.member("alice").into(), tokens.member("a-team").cost(600)];
    /// let (_, receipt) = block_on(limiter.shared_batch(&members).spend_estimate())?;
    /// let mut receipt = receipt.expect("allowed");
    /// let after = block_on(receipt.settle_member(1, 250))?;
    /// assert_eq!(after.expect("charged").remaining(), Some(750));
    /// assert_eq!(requests.check("alice", 0)?.remaining(), Some(9));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub async fn spend_estimate(&self) -> Result<(Decision, Option<SharedReceipt>), Error> {
        loop {
            for SharedMember(member) in self.members {
                member.handle.terms_unleased(member.id)?;
            }
            let decided = match self.begin(SharedCall::SPEND.holding())? {
                Begun::Local => match self.here(|batch| batch.spend_estimate()) {
                    // A reload has come between, and has made a member a shared one.
                    Err(error) if error.needs_store() => continue,
                    Err(error) => return Err(error),
                    Ok((decision, receipt)) => {
                        return Ok((decision, receipt.map(SharedReceipt::of_local)));
                    }
                },
                Begun::Decided(decided) => decided,
                Begun::Asks(asked) => answer(asked.ask()).await?,
            };
            let decision = decided.decision;
            return Ok((decision, decision.allowed().then(|| receipt_of(decided))));
        }
    }
}

/// Makes the receipt of an allowed batch.
fn receipt_of(decided: DecidedBatch) -> SharedReceipt {
    let (mut here, mut in_store) = (Receipt::of_nothing(), Vec::new());
    for member in decided.members {
        match member.charge {
            Some(MemberCharge::Here(receipt)) => here = here.joined(*receipt),
            Some(MemberCharge::InStore(charge)) => {
                in_store.push(StoredEstimate { charge, position: Some(member.position) });
            }
            // A reload has leased a limit since the batch was looked at. Its units stay charged.
            Some(MemberCharge::FromLease(_)) | None => {}
        }
    }
    SharedReceipt::new(here, in_store)
}
