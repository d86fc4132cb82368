//! Gives the leases of a node up: at a reload, and before the program ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;

use crate::algorithm::factor::Factor;
use crate::core::state::LimiterState;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::shared::calls::answer;
use crate::shared::part::Part;
use crate::shared::protocol::decide::read;
use crate::shared::protocol::lease::{LeaseEnd, LeaseRequest};
use crate::shared::protocol::leases::Leases;
use crate::shared::protocol::{SharedMode, SharedStore, StoreMember};
use crate::store::key::Key;
use crate::store::pin;

/// The most leases that one call to the store gives up.
const A_CALL: usize = 64;

impl Limiter {
    /// Gives the unspent units of all leases of this limiter back to the store, and returns the number of leases. Call it
    /// before the program ends: the store takes a lease that is not given back for spent, and other nodes cannot spend
    /// its units. Calls that come later take new leases.
    ///
    /// # Errors
    ///
    /// [`Error::is_store_failure`] if the store does not answer. The leases that it has not taken back are lost: the store
    /// takes them for spent when they end.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::limits::{LimitOptions, Shared};
    /// use tollgate::shared::Store;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let limit = Limit::new(100, 1, Duration::from_secs(60))?;
    /// let leased = LimitOptions::default().shared(Shared::Leased);
    /// let limits = Limits::builder().limit_with("PerTeam", IdFormat::String, limit, leased)?.build();
    /// let (clock, hand) = Clock::manual();
    /// let options = LimiterOptions::default().store(Store::in_memory(clock.clone())).clock(clock);
    /// let limiter = Limiter::with_options(limits, options)?;
    /// let teams = limiter.shared("PerTeam")?;
    /// assert!(teams.spend("red", 1).await?.allowed());
    /// hand.advance(Duration::from_millis(1));
    /// assert!(teams.spend("red", 1).await?.allowed()); // takes a lease
    /// assert!(teams.spend("red", 1).await?.allowed()); // from the lease, without the store
    /// assert_eq!(limiter.give_leases_back().await?, 1);
    /// # Ok::<(), tollgate::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn give_leases_back(&self) -> Result<usize, Error> {
        let Some(Part { handle, .. }) = self.inner.part() else { return Ok(0) };
        let (members, store) = (self.take_leases(), handle.store.clone());
        let (count, by) = (members.len(), store.clone());
        let (tell, answered) = oneshot::channel();
        store.run(Box::pin(async move {
            let _ = tell.send(give_back(&*by, members).await);
        }));
        answer(answered).await?;
        Ok(count)
    }

    /// Begins to give all leases back before a reload, and waits for nothing. New leases get no word until the reload ends.
    pub(crate) fn give_leases_up(&self) {
        self.begin_to_give_back(self.take_leases());
    }

    /// Takes all leases out of their words; returns the members of a batch that gives them up.
    fn take_leases(&self) -> Vec<StoreMember> {
        let Some(leases) = self.inner.leases() else { return Vec::new() };
        let (now_ns, generation) = (self.inner.clock.now_ns(), self.generation());
        let ends = leases.give_up_all(|key| self.take_word(leases, key, now_ns));
        self.giving_back_all(ends, now_ns, generation)
    }

    /// Begins to return the leases that end soon. Returns their number, and when the next ones are to be returned.
    pub(super) fn return_ending_leases(&self) -> (usize, Option<u64>) {
        let Some(leases) = self.inner.leases() else { return (0, None) };
        let (now_ns, generation) = (self.inner.clock.now_ns(), self.generation());
        let (ends, next_ns) = leases.take_ending(now_ns, |key| self.take_word(leases, key, now_ns));
        (self.begin_to_give_back(self.giving_back_all(ends, now_ns, generation)), next_ns)
    }

    /// Begins to give one lease back, which was taken in `generation` or later, and waits for nothing.
    pub(super) fn begin_to_give_back_lease(&self, key: Key, end: LeaseEnd, generation: u64) {
        let now_ns = self.inner.clock.now_ns();
        self.begin_to_give_back(self.giving_back_all(vec![(key, end)], now_ns, generation));
    }

    /// Begins to give leases back, and waits for nothing. Returns their number.
    fn begin_to_give_back(&self, members: Vec<StoreMember>) -> usize {
        let count = members.len();
        if let Some(part) = self.inner.part().filter(|_| count > 0) {
            let store = part.handle.store.clone();
            part.handle.store.run(Box::pin(async move {
                // Leases that the store does not take back end there by themselves.
                let _ = give_back(&*store, members).await;
            }));
        }
        count
    }

    /// Takes the units of a lease out of its word.
    fn take_word(&self, leases: &Leases, key: &Key, now_ns: u64) -> u64 {
        self.inner.with_view(|view| {
            let Some(key) = leases.place(view, key.as_ref(), now_ns) else { return Ok(0) };
            Ok(leases.words.take(view, &key, now_ns)?.units())
        })
    }

    /// Returns the number of the limits' generation.
    pub(super) fn generation(&self) -> u64 {
        self.inner.generation.get(&pin()).number
    }

    /// Makes the members that give back leases, which were taken in `generation` or later.
    fn giving_back_all(
        &self,
        ends: Vec<(Key, LeaseEnd)>,
        now_ns: u64,
        generation: u64,
    ) -> Vec<StoreMember> {
        let giving_back = |(key, end)| self.giving_back(&key, end, now_ns, generation);
        let members: Vec<_> = ends.into_iter().filter_map(giving_back).collect();
        if let Some(Part { denials: Some(denials), .. }) = self.inner.part() {
            members.iter().for_each(|member| denials.forget(&member.key));
        }
        members
    }

    /// Sees to it that leases are returned before they end, as long as there are any.
    pub(super) fn watch_leases(&self) {
        if let Some(Part { handle, leases: Some(leases), .. }) = self.inner.part()
            && handle.store.sleep(Duration::ZERO).is_some()
            && leases.begin_watch()
        {
            handle.store.run(Box::pin(watch(Arc::downgrade(&self.inner))));
        }
    }

    fn giving_back(
        &self,
        key: &Key,
        end: LeaseEnd,
        now_ns: u64,
        generation: u64,
    ) -> Option<StoreMember> {
        let inner = &*self.inner;
        let handle = &inner.part()?.handle;
        inner.with_view(|view| {
            let key = key.as_ref();
            let entry = view.generation.limits.entry_of(key.limit, generation);
            let applies = entry.limit_for(key.id, view.limits_ns(now_ns));
            let (Some((limit, tag)), Some(length)) = (applies, entry.sharing().lease()) else {
                return Ok(None);
            };
            let length_ms = length.as_millis() as u64;
            let lease = LeaseRequest { want: 0, length_ms, end: Some(end) };
            let member = handle.member(view, entry, key, (limit.clone(), tag), Factor::ONE);
            Ok(Some(StoreMember { mode: SharedMode::SpendOnly, lease: Some(lease), ..member }))
        })
    }
}

/// Returns leases that end soon, until there are none, or the limiter is gone.
async fn watch(inner: Weak<LimiterState>) {
    /// The longest sleep: a lease that is taken meanwhile may be shorter than those before it.
    const SLEEP: Duration = Duration::from_millis(100);
    while let Some(limiter) = inner.upgrade().map(|inner| Limiter { inner })
        && let Some(Part { handle, .. }) = limiter.inner.part()
    {
        let (_, Some(next_ns)) = limiter.return_ending_leases() else { return };
        let left_ns = next_ns.saturating_sub(limiter.inner.clock.now_ns());
        let sleep = handle.store.sleep(Duration::from_nanos(left_ns).min(SLEEP));
        // While it sleeps, the task keeps neither the limiter nor its store.
        drop(limiter);
        let Some(sleep) = sleep else { return };
        sleep.await;
    }
}

/// Gives leases back, as far as their servers answer. Returns the first error.
async fn give_back(store: &dyn SharedStore, members: Vec<StoreMember>) -> Result<(), Error> {
    let calls = members.chunks(A_CALL).map(|members| give_back_chunk(store, members));
    first_error(calls.collect()).await
}

async fn give_back_chunk(store: &dyn SharedStore, members: &[StoreMember]) -> Result<(), Error> {
    // A call that fails in one slot of a cluster may have taken leases back in another one. A lease must not go back twice.
    if !store.is_split(members) {
        match store.charge_return(members.into()).await {
            // None of the members can deny.
            Ok(found) if found.denied.is_none() => return Ok(()),
            Err(error) if error.is_undecided() => return Err(error),
            // A text of one bucket is none, and nothing is written: the others go back by themselves.
            _ => {}
        }
    }
    first_error(members.iter().map(|member| give_back_one(store, member)).collect()).await
}

async fn give_back_one(store: &dyn SharedStore, member: &StoreMember) -> Result<(), Error> {
    let found = store.charge_return([member.clone()].into()).await?;
    if found.denied.is_some() {
        // Its text is no bucket: the error says so.
        let text = found.texts.first().and_then(Option::as_deref);
        read(&member.key, &member.limit, text)
            .inspect_err(|error| store.count_unknown_text(error))?;
    }
    Ok(())
}

/// Waits for all calls. Returns the first error.
async fn first_error(
    mut calls: FuturesUnordered<impl Future<Output = Result<(), Error>>>,
) -> Result<(), Error> {
    let mut first = Ok(());
    while let Some(answer) = calls.next().await {
        first = first.and(answer);
    }
    first
}
