//! The result of a batch of which the store was asked: its decision, and for callers that keep them the members' own
//! decisions and charges.

use std::sync::Arc;

use crate::core::shared::text::rule_time_ns;
use crate::core::shared::{SharedMember, SharedStore};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::Claim;
use crate::limiter::shared::change::{change_now, with_word};
use crate::store::key::Key;

/// A decided batch. It has members only if the call keeps them.
pub(crate) struct DecidedBatch {
    pub(crate) decision: Decision,
    pub(crate) members: Vec<DecidedMember>,
}

impl DecidedBatch {
    /// The result while the limiter is off.
    pub(super) const UNLIMITED: DecidedBatch =
        DecidedBatch { decision: Decision::UNLIMITED, members: Vec::new() };
}

/// One member of a batch, to which a limit applies.
pub(crate) struct DecidedMember {
    pub(crate) position: usize,
    /// The limit and the member's own decision; `None` for a limit in shadow mode.
    pub(crate) shown: Option<(Decision, Limit)>,
    pub(crate) charge: Option<Charged>,
}

/// A charge that the caller may give back.
pub(crate) enum Charged {
    Here(Claim),
    InStore(ChargedInStore),
}

/// A charge of a bucket in the store.
pub(crate) struct ChargedInStore {
    pub(super) handle: KeyedLimit,
    pub(super) key: Key,
    pub(super) store: Arc<dyn SharedStore>,
    pub(super) member: SharedMember,
    pub(super) cost: u64,
}

impl ChargedInStore {
    /// Begins to give the units back, and waits for nothing.
    pub(crate) fn give_back(&self) {
        let (store, by, cost) = (self.store.clone(), self.store.clone(), self.cost);
        let (handle, member, key) = (self.handle.clone(), self.member.clone(), self.key.clone());
        store.run(Box::pin(async move {
            let refunded = change_now(&*by, member, move |limit, bucket, unix_ns| {
                let outcome = limit.rule().refund(bucket.word, rule_time_ns(unix_ns), cost);
                (with_word(bucket, outcome.word), ())
            });
            match refunded.await {
                Ok(()) => handle.forget_denial_of(key.as_ref().id),
                Err(_) => handle.tally.count_error(),
            }
        }));
    }
}
