//! Changes one bucket in the store by a step, and computes the figures of the answer here.

use std::iter;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limiter::handle::KeyedLimit;
use crate::limits::{Entry, Id, Scratch};
use crate::shared::calls::outage::end_outage;
use crate::shared::calls::{answer, no_store, policy};
use crate::shared::part::Part;
use crate::shared::protocol::change::{BucketChange, Step, Stepped};
use crate::shared::protocol::gate::Passed;
use crate::shared::protocol::outage::Policy;
use crate::shared::protocol::text::rule_time_ns;
use crate::shared::protocol::{Changed, Reply, SharedStore, StoreMember};
use crate::store::key::{Key, KeyRef, LimitTag};

/// A bucket in the store, by the limit that applies to its id, and the terms of that limit.
pub(super) struct InStore {
    pub(super) store: Arc<dyn SharedStore>,
    pub(super) member: StoreMember,
    pub(super) terms: Terms,
}

/// The terms of a shared limit for an id.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) is_leased: bool,
    pub(super) is_shadow: bool,
    pub(super) policy: Policy,
    /// The most units that a settlement may make the bucket owe.
    pub(super) max_debt: u64,
}

impl Terms {
    fn new(entry: &Entry, tag: LimitTag) -> Terms {
        Terms {
            is_leased: entry.sharing().lease().is_some(),
            is_shadow: entry.is_shadow(),
            policy: policy(entry),
            max_debt: entry.max_debt_at(tag),
        }
    }
}

/// `None`: the limit is not shared, no limit applies, or the limiter is off.
pub(super) type Placed = Option<InStore>;

/// Where the answer of a call to the store will come.
pub(crate) type Answer<T> = oneshot::Receiver<Result<T, Error>>;

/// Finds the bucket of a call. Makes the call on this node by `call`, or asks the store by `ask` if the bucket is there.
pub(super) async fn here_or_in_store<T>(
    place: impl Fn() -> Result<Placed, Error>,
    call: impl Fn() -> Result<T, Error>,
    ask: impl FnOnce(InStore) -> Result<Answer<T>, Error>,
) -> Result<T, Error> {
    loop {
        if let Some(found) = place()? {
            return answer(ask(found)?).await;
        }
        match call() {
            // A reload has come between, and has made the limit a shared one.
            Err(error) if error.needs_store() => {}
            result => return result,
        }
    }
}

/// A bucket that a step has changed.
pub(super) struct ChangedBucket {
    pub(super) member: StoreMember,
    pub(super) stepped: Stepped,
}

impl KeyedLimit {
    /// Finds an id's bucket. `cost`: an error if it is above the limit's burst, except in shadow mode.
    pub(super) fn place(&self, id: Id<'_>, cost: u64) -> Result<Placed, Error> {
        self.place_scaled(id, cost, Factor::ONE)
    }

    /// Finds an id's bucket by the limit multiplied by a factor.
    pub(super) fn place_scaled(
        &self,
        id: Id<'_>,
        cost: u64,
        factor: Factor,
    ) -> Result<Placed, Error> {
        if !self.limiter.inner.is_enabled() {
            return Ok(None);
        }
        let mut scratch = Scratch::new();
        self.place_of(self.encoded(id, &mut scratch)?, cost, factor)
    }

    /// Finds an id's bucket also while the limiter is off: blocks do not depend on it.
    pub(super) fn place_while_off(&self, id: Id<'_>) -> Result<Placed, Error> {
        let mut scratch = Scratch::new();
        self.place_of(self.encoded(id, &mut scratch)?, 0, Factor::ONE)
    }

    /// Finds the bucket of an id in normal form.
    pub(super) fn place_of(&self, id: &[u8], cost: u64, factor: Factor) -> Result<Placed, Error> {
        let inner = &*self.limiter.inner;
        let place = inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            let applies = entry.limit_for(id, view.limits_now_ns());
            let Some((limit, tag)) = applies.filter(|_| entry.is_shared()) else {
                return Ok(Ok(None));
            };
            let limit = match view.scaled(self.index, limit, factor, true) {
                Ok(Some(limit)) => limit,
                Ok(None) => return Ok(Ok(None)),
                Err(error) => return Ok(Err(error)),
            };
            if cost > limit.burst() && !entry.is_shadow() {
                return Ok(Err(limit.cost_error(cost.into(), Some(&entry.name))));
            }
            let Some(Part { handle, .. }) = inner.part() else {
                return Ok(Err(no_store(&entry.name)));
            };
            let key = KeyRef { limit: self.index, id };
            let member = handle.member(view, entry, key, (limit, tag), factor);
            let (store, terms) = (handle.store.clone(), Terms::new(entry, tag));
            Ok(Ok(Some(InStore { store, member, terms })))
        });
        place.inspect_err(|_| self.tally.count_error())
    }

    /// Returns the key of an id, for a task.
    pub(super) fn key_of(&self, id: Id<'_>) -> Result<Key, Error> {
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        Ok(Key::new(KeyRef { limit: self.index, id }))
    }

    /// Returns the terms of a shared limit; `None` if no shared limit applies to the id. An error if the limit is leased.
    pub(super) fn terms_unleased(&self, id: Id<'_>) -> Result<Option<Terms>, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(None);
        }
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        let terms = inner.with_view(|view| {
            let entry = view.generation.limits.entry(self.index);
            let applies = entry.limit_for(id, view.limits_now_ns()).filter(|_| entry.is_shared());
            Ok(applies.map(|(_, tag)| Terms::new(entry, tag)))
        });
        match terms {
            Some(Terms { is_leased: true, .. }) => {
                self.tally.count_error();
                Err(leased(self.name()))
            }
            terms => Ok(terms),
        }
    }

    /// Begins to change a bucket by a task of the store, and returns where its answer will come. The task calls `then` on this
    /// node with the store's answer, also if nobody waits for it.
    pub(super) fn change<T: Send + 'static>(
        &self,
        InStore { store, member, .. }: InStore,
        step: Step,
        then: impl FnOnce(&KeyedLimit, Result<ChangedBucket, Error>) -> Result<T, Error>
        + Send
        + 'static,
    ) -> Answer<T> {
        let (tell, answer) = oneshot::channel();
        // Steps that return units, or are made by hand, are never too many.
        let passed = match step.spends() {
            true => store.admit(&mut iter::once(&*member.key), false),
            false => Ok(Passed::default()),
        };
        let passed = match passed {
            Ok(passed) => passed,
            Err(error) => {
                let _ = tell.send(then(self, Err(error)));
                return answer;
            }
        };
        let (handle, by) = (self.clone(), store.clone());
        let change = BucketChange { member, step };
        let reply = store.change([change.clone()].into());
        store.run(Box::pin(async move {
            let changed = handle.changed(&*by, change, reply).await;
            drop(passed);
            // The caller may have dropped its future.
            let _ = tell.send(then(&handle, changed));
        }));
        answer
    }

    /// Waits for the store's answer, which may end an outage.
    pub(super) async fn changed(
        &self,
        store: &dyn SharedStore,
        change: BucketChange,
        reply: Reply<Changed>,
    ) -> Result<ChangedBucket, Error> {
        let answer = reply.await;
        if let Some(Part { denials: Some(denials), .. }) = self.limiter.inner.part() {
            denials.forget(&change.member.key);
        }
        let Changed { unix_ns, texts } = answer?;
        let text = texts.first().and_then(Option::as_deref);
        let stepped = change.stepped(text, unix_ns);
        let stepped = stepped.inspect_err(|error| store.count_unknown_text(error))?;
        end_outage(self);
        Ok(ChangedBucket { member: change.member, stepped })
    }
}

#[cold]
fn leased(name: &str) -> Error {
    let text = format!(
        "{name} is leased, and units in leases have no order: reservations and estimates need a limit with shared: exact"
    );
    Error::new(ErrorKind::Leased, text)
}

impl ChangedBucket {
    /// Decides a check of the bucket at a cost of 0, as the next call finds it.
    pub(super) fn check(&self) -> Decision {
        let now_ns = rule_time_ns(self.stepped.unix_ns);
        self.member.limit.rule().spend(self.stepped.after().word, now_ns, 0).decision
    }

    /// Returns the step's decision of a refund or a reset with the figures that the next call finds: the units that nodes
    /// hold are not in the bucket.
    pub(super) fn returned(&self) -> Decision {
        let now_ns = rule_time_ns(self.stepped.unix_ns);
        let found = self.member.limit.rule().refund(self.stepped.after().word, now_ns, 0);
        self.stepped.decision.with_figures_of(found.decision)
    }
}
