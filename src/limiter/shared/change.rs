//! Changes one bucket in the store: reads its text, computes the new one here, and replaces it if it has not changed.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::algorithm::factor::Factor;
use crate::core::shared::decide::read;
use crate::core::shared::ledger::LedgerEntry;
use crate::core::shared::text::SharedBucket;
use crate::core::shared::{Change, Found, Replaced, SharedMember, SharedMode, SharedStore};
use crate::error::{Error, ErrorKind};
use crate::limiter::handle::KeyedLimit;
use crate::limiter::shared::answered::answer;
use crate::limiter::shared::outage::end_outage;
use crate::limiter::shared::{keep_ms, no_store};
use crate::limits::{Id, Scratch};
use crate::store::key::{Key, KeyRef};

/// A bucket in the store, by the limit that applies to its id. `None`: the limit is not shared, no limit applies, or the
/// limiter is off.
pub(super) type Placed = Option<(Arc<dyn SharedStore>, SharedMember)>;

/// Where a call for a bucket is made.
pub(super) enum Where<R> {
    /// On this node: its result.
    Here(R),
    InStore(Arc<dyn SharedStore>, SharedMember),
}

/// Finds the bucket of a call, and makes the call if it is not in the store.
pub(super) fn find_or_call<R>(
    place: impl Fn() -> Result<Placed, Error>,
    call: impl Fn() -> Result<R, Error>,
) -> Result<Where<R>, Error> {
    loop {
        if let Some((store, member)) = place()? {
            return Ok(Where::InStore(store, member));
        }
        match call() {
            // A reload has come between, and has made the limit a shared one.
            Err(error) if error.needs_store() => {}
            result => return result.map(Where::Here),
        }
    }
}

/// The result of a change: the new bucket, if it changes it, and the caller's answer.
pub(super) type Changed<R> = (Option<SharedBucket>, R);

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
            let unscaled = limit.clone();
            let limit = match view.scaled(self.index, limit, factor) {
                Ok(Some(limit)) => limit,
                Ok(None) => return Ok(Ok(None)),
                Err(error) => return Ok(Err(error)),
            };
            if cost > limit.burst() && !entry.is_shadow() {
                return Ok(Err(limit.cost_error(cost, Some(&entry.name))));
            }
            let Some(handle) = &inner.shared else {
                return Ok(Err(no_store(&entry.name)));
            };
            let key = KeyRef { limit: self.index, id };
            let member = SharedMember {
                key: handle.key(entry, &limit, key.id),
                keeps_ledger: !handle.has_boulders_key(entry, &limit),
                unscaled: (factor != Factor::ONE).then(|| Box::new(unscaled)),
                cost: 0,
                mode: SharedMode::CheckOnly,
                keep_ms: keep_ms(view, self.index, tag, &limit),
                limit,
                lease: None,
            };
            Ok(Ok(Some((handle.store.clone(), member))))
        });
        place.inspect_err(|_| self.tally.count_error())
    }

    /// Returns the key of an id, for a task.
    pub(super) fn key_of(&self, id: Id<'_>) -> Result<Key, Error> {
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        Ok(Key::new(KeyRef { limit: self.index, id }))
    }

    /// Changes a bucket by a task of the store, which goes on if the caller drops the future. The task calls `then` on
    /// this node with the store's answer.
    pub(super) async fn change<R: Send + 'static, T: Send + 'static>(
        &self,
        (store, member): (Arc<dyn SharedStore>, SharedMember),
        ask: impl Fn(&SharedMember, SharedBucket, u64) -> Changed<R> + Send + Sync + 'static,
        then: impl FnOnce(&KeyedLimit, Result<R, Error>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (tell, changed) = oneshot::channel();
        let (handle, by) = (self.clone(), store.clone());
        store.run(Box::pin(async move {
            let changed = handle.change_now(&*by, member, ask).await;
            let _ = tell.send(then(&handle, changed));
        }));
        answer(changed).await
    }

    /// Changes a bucket. The store's answer may end an outage.
    pub(super) async fn change_now<R>(
        &self,
        store: &dyn SharedStore,
        member: SharedMember,
        ask: impl Fn(&SharedMember, SharedBucket, u64) -> Changed<R>,
    ) -> Result<R, Error> {
        let changed = change_bucket(store, member, ask).await?;
        end_outage(self);
        Ok(changed)
    }
}

pub(super) async fn change_bucket<R>(
    store: &dyn SharedStore,
    member: SharedMember,
    ask: impl Fn(&SharedMember, SharedBucket, u64) -> Changed<R>,
) -> Result<R, Error> {
    let SharedMember { key, limit, keep_ms: at_least_ms, .. } = &member;
    let _turn = store.turn(key).await;
    let (began, patience) = (Instant::now(), store.patience());
    let Found { mut unix_ns, mut texts, .. } = store.charge([member.clone()].into()).await?;
    loop {
        let before = texts.pop().flatten();
        let bucket = read(key, limit, before.as_deref())
            .inspect_err(|error| store.count_unknown_text(error))?
            .guarded(member.limits(), unix_ns);
        let (new, result) = ask(&member, bucket, unix_ns);
        let Some(new) = new else { return Ok(result) };
        let mut new = new.with_fill_time(limit, *at_least_ms);
        new.ledger = new.ledger.filter(|_| member.keeps_ledger);
        let is_needed = new.blocked_ns(unix_ns).is_some()
            || new.leases.units() > 0
            || new.ledger.is_some()
            // A bucket that is full by this limit may owe units by that of a call with a factor.
            || new.word != 0;
        let after =
            is_needed.then(|| (new.text(limit).into_boxed_str(), member.kept_ms(new, unix_ns)));
        let change = Change { key: key.clone(), before, after };
        match store.replace([change].into()).await? {
            Replaced::Done => return Ok(result),
            Replaced::Changed { unix_ns: now_ns, texts: now } => (unix_ns, texts) = (now_ns, now),
        }
        if began.elapsed() >= patience {
            let text = format!(
                "{key:?} in the store was changed by other calls again and again within {patience:?}: a longer timeout of the store gives more time"
            );
            return Err(Error::new(ErrorKind::StoreContended, text));
        }
    }
}

/// Returns the bucket after a refund or a reset, if there is another word: its ledger says so.
pub(super) fn lowered(
    member: &SharedMember,
    bucket: SharedBucket,
    unix_ns: u64,
    word: Option<u64>,
) -> Option<SharedBucket> {
    word.map(|word| bucket.with_entry(member.own_limit(), unix_ns, word, LedgerEntry::Refund))
}
