//! The face: a limiter, and a handle for each of its limits.

use std::fmt;
use std::sync::Arc;

use crate::algorithm::{Charge, Outcome};
use crate::batch::{Batch, Member};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::key::{KeyRef, LimitIndex, Meta};
use crate::limits::Limits;
use crate::options::{AtCap, LimiterOptions};
use crate::overflow::{Overflow, OverflowCounts};
use crate::probe::{Fault, Place, broken, reached};
use crate::scaled::LargestFactors;
use crate::store::{self, Absent, Change, Rules, Store, StoreKey, Swept};
use crate::sweeper::{Stats, SweepOptions, SweepRecord, Sweeper};
use crate::sync::{Ordering, Switch};
use crate::{Decision, Factor, Limit};

/// Limits, a clock, and a bucket for every id that has spent.
///
/// Clones share everything. No call waits for a background thread, and none is started unless asked:
/// without [`start_sweeper`](Limiter::start_sweeper) or [`sweep`](Limiter::sweep), buckets that are
/// full again keep their memory.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?; // 20 at once, then 10 a second
/// let limits = Limits::builder().limit("RequestsPerUser", IdFormat::String, limit)?.build();
/// let limiter = Limiter::new(limits);
///
/// let requests = limiter.limit("RequestsPerUser")?;
/// let decision = requests.spend("alice", 1)?;
/// assert!(decision.allowed());
/// assert_eq!(decision.remaining(), Some(19));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    enabled: Switch,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    overflow: Overflow,
    pub(crate) largest_factors: LargestFactors,
    pub(crate) sweeps: SweepRecord,
}

impl Limiter {
    /// A limiter on the [system's clock](Clock::system).
    pub fn new(limits: Limits) -> Limiter {
        Limiter::with_clock(limits, Clock::system())
    }

    /// A limiter on a clock of the caller's choice.
    pub fn with_clock(limits: Limits, clock: Clock) -> Limiter {
        Limiter::with_options(limits, LimiterOptions::default().clock(clock))
    }

    /// A limiter with a table, a cap and a clock of the caller's choice.
    pub fn with_options(limits: Limits, options: LimiterOptions) -> Limiter {
        let store = Store::new(&options);
        let overflow = Overflow::new(options.at_cap, limits.count());
        let clock = options.clock.unwrap_or_default();
        let inner = Inner {
            enabled: Switch::new(true),
            clock,
            store,
            overflow,
            largest_factors: LargestFactors::new(limits.count()),
            sweeps: SweepRecord::default(),
            limits,
        };
        Limiter { inner: Arc::new(inner) }
    }

    /// A handle for the limit `name`. Take it once and keep it: calls on it compare no names.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name that is neither declared nor Boulder's.
    pub fn limit(&self, name: &str) -> Result<Handle, Error> {
        let index = self.inner.limits.index_of(name)?;
        Ok(Handle { limiter: self.clone(), index })
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Several buckets as one: all are charged, or none. See [`Batch`].
    pub fn batch<'a>(&'a self, members: &'a [Member<'a>]) -> Batch<'a> {
        Batch::new(self, members)
    }

    /// Switches the whole limiter off or on, for all its clones, at once. Switched off, no call is limited:
    /// each answers as where no limit applies, whatever the id, and neither reads nor changes a bucket.
    /// What buckets owe stays, and drains as time goes on.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// assert!(users.spend("alice", 1)?.allowed());
    /// limiter.set_enabled(false);
    /// assert!(users.spend("alice", 1)?.allowed());
    /// limiter.set_enabled(true);
    /// assert!(!users.spend("alice", 1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn set_enabled(&self, enabled: bool) {
        // Relaxed: publishes nothing but itself.
        self.inner.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether the limiter limits. See [`set_enabled`](Limiter::set_enabled).
    pub fn is_enabled(&self) -> bool {
        self.inner.is_enabled()
    }

    /// Looks at the next cells, about `cells` of them, and drops those that are full: one bounded step
    /// of a sweep, for those who want no thread. Room for cells is looked at, too. With
    /// [`Engine::Exact`](crate::Engine::Exact) a step ends with the part of the table in which the
    /// number is reached, at most a 32nd of it, and holds a lock over half of one part at a time.
    pub fn sweep(&self, cells: usize) -> Swept {
        self.inner.sweep(cells)
    }

    /// Starts a thread, `tollgate-sweep`, that drops full cells. See [`Sweeper`].
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] when the system gives no thread.
    pub fn start_sweeper(&self, options: SweepOptions) -> Result<Sweeper, Error> {
        Sweeper::start(&self.inner, options)
    }

    /// What the table holds and what sweeps have done. Cheap, save with
    /// [`Engine::Exact`](crate::Engine::Exact), which looks at each of its parts.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl Rules for Inner {
    fn is_full(&self, meta: Meta, word: u64, at_ns: u64) -> bool {
        let at_ns = if broken(Fault::FullEarly) { at_ns + 1_000_000 } else { at_ns };
        self.limits.is_full(meta, word, at_ns, |limit| self.largest_factors.of(limit))
    }

    fn meta_of(&self, key: KeyRef<'_>) -> Meta {
        self.limits.meta_of(key)
    }
}

impl Inner {
    #[inline(always)]
    pub(crate) fn is_enabled(&self) -> bool {
        // Relaxed: as in `set_enabled`.
        self.enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn sweep(&self, cells: usize) -> Swept {
        let swept = self.store.sweep(cells, self.clock.now_ns(), self);
        self.sweeps.record();
        swept
    }

    pub(crate) fn stats(&self) -> Stats {
        let (size, counts) = (self.store.size(), &self.overflow.counts);
        Stats {
            cells: size.cells,
            bytes: size.bytes,
            mapped_bytes: size.mapped_bytes,
            swept: size.dropped,
            migrations: size.migrations,
            retired: size.retired,
            put_off: size.put_off,
            // Relaxed: figures for people.
            shared: counts.shared.load(Ordering::Relaxed),
            denied_at_cap: counts.denied.load(Ordering::Relaxed),
            allowed_at_cap: counts.allowed.load(Ordering::Relaxed),
            ..self.sweeps.stats()
        }
    }

    /// What a factor makes of a limit's numbers; `None` is no limit.
    pub(crate) fn scaled(
        &self,
        index: LimitIndex,
        limit: &Limit,
        factor: Factor,
    ) -> Result<Option<Limit>, Error> {
        let scaled = limit.scaled(factor).map_err(|error| {
            Error::new(ErrorKind::Limit, format!("{}: {error}", self.limits.entry(index).name))
        })?;
        if scaled.is_some() && !broken(Fault::FactorNotedLate) {
            self.largest_factors.note(index, factor);
        }
        Ok(scaled)
    }

    /// A key with what the store tells it by.
    pub(crate) fn store_key<'a>(&self, key: KeyRef<'a>, meta: Meta) -> StoreKey<'a> {
        StoreKey { key, print: self.store.fingerprint(key), meta }
    }

    /// The word that a decision is made on, and when. A cell that was never charged starts with what
    /// its key may owe as a newcomer, and no earlier than anything was dropped: it may have been its
    /// own cell.
    #[inline]
    pub(crate) fn standing(&self, limit: LimitIndex, word: u64, now_ns: u64) -> (u64, u64) {
        if word != 0 {
            return (word, now_ns);
        }
        let debt = self.overflow.debt(limit);
        if broken(Fault::NoFloor) {
            return (debt, now_ns);
        }
        let floor_ns = self.store.floor_ns();
        if floor_ns > now_ns {
            reached(Place::FloorUsed);
        }
        (debt, now_ns.max(floor_ns))
    }

    /// What `ask` says of the word of `key`; writes nothing.
    pub(crate) fn look(
        &self,
        key: &StoreKey<'_>,
        now_ns: u64,
        ask: impl FnOnce(u64, u64) -> Outcome,
    ) -> Decision {
        let word = self.store.look(key).unwrap_or(0);
        let (word, at_ns) = self.standing(key.key.limit, word, now_ns);
        ask(word, at_ns).decision
    }

    /// Asks for `cost` units and charges them; says what was charged, and where.
    pub(crate) fn spend(&self, key: &StoreKey<'_>, limit: &Limit, cost: u64, now_ns: u64) -> Spent {
        let ask = |word, now_ns| limit.rule().spend(word, now_ns, cost);
        // Repeats only when the key has got a cell between two looks at the cap.
        loop {
            let absent = Absent::Insert;
            if let Ok(Asked { word, at_ns, is_new }) = self.change(key, absent, now_ns, ask) {
                let spent = Spent::of(ask(word, at_ns), word, at_ns, ChargedTo::OwnCell);
                if spent.charge.is_none() && is_new && word != 0 {
                    // Denied by what newcomers owe: a new bucket alone would have allowed it.
                    OverflowCounts::count(&self.overflow.counts.shared);
                }
                return spent;
            }
            if let Some(spent) = self.spend_at_cap(key, limit, cost, now_ns) {
                return spent;
            }
        }
    }

    /// Changes the word of `key` if there is a cell; a bucket that does not exist is full.
    fn give(&self, key: &StoreKey<'_>, now_ns: u64, ask: impl Fn(u64, u64) -> Outcome) -> Decision {
        match self.change(key, Absent::Leave, now_ns, &ask) {
            Ok(Asked { word, at_ns, .. }) => ask(word, at_ns).decision,
            Err(store::AtCap) => self.look(key, now_ns, ask),
        }
    }

    /// Stores what `ask` makes of the word; returns what it was asked about last.
    ///
    /// The decision is made of this once more, after the cell was let go: the arithmetic costs
    /// less than to carry its figures out through memory.
    fn change(
        &self,
        key: &StoreKey<'_>,
        absent: Absent,
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<Asked, store::AtCap> {
        let mut asked = Asked { word: 0, at_ns: now_ns, is_new: true };
        self.store.update(Change { key, absent, now_ns }, self, |before| {
            let (word, at_ns) = self.standing(key.key.limit, before, now_ns);
            asked = Asked { word, at_ns, is_new: before == 0 };
            ask(word, at_ns).word
        })?;
        Ok(asked)
    }

    /// Decides for a new key that finds no room. `None`: it has a cell by now.
    #[cold]
    fn spend_at_cap(
        &self,
        key: &StoreKey<'_>,
        limit: &Limit,
        cost: u64,
        now_ns: u64,
    ) -> Option<Spent> {
        let counts = &self.overflow.counts;
        match self.overflow.at_cap {
            AtCap::Deny => {
                OverflowCounts::count(&counts.denied);
                let wait_ns = limit.rule().wait_for_room_ns();
                let decision = Decision::new(false, (0, 1), wait_ns, wait_ns);
                Some(Spent { decision, charge: None, to: ChargedTo::Nothing })
            }
            AtCap::Allow => {
                OverflowCounts::count(&counts.allowed);
                let decision = limit.rule().spend(0, now_ns, cost).decision;
                Some(Spent { decision, charge: None, to: ChargedTo::Nothing })
            }
            AtCap::Share => {
                let shared = self.overflow.shared(key.key.limit);
                let floor_ns = self.store.floor_ns();
                let at_ns = now_ns.max(floor_ns);
                let ask = |word| limit.rule().spend(word, at_ns, cost);
                let (word, ()) = shared.update(|word| (ask(word).word, ()));
                let spent = Spent::of(ask(word), word, at_ns, ChargedTo::Shared);
                self.overflow.fence();
                // It may have a cell by now; or have had one that was charged after `at_ns`, and is full
                // and dropped since: not before a unit could come back.
                let unit_ns = limit.rule().unit_ns();
                let had_cell = || {
                    let dropped_ns = self.store.floor_ns();
                    dropped_ns > at_ns && dropped_ns - floor_ns >= unit_ns
                };
                if !broken(Fault::NoSecondLook) && (self.store.look(key).is_some() || had_cell()) {
                    reached(Place::SharedTakenBack);
                    self.take_back(key, limit, &spent);
                    return None;
                }
                OverflowCounts::count(&counts.shared);
                Some(spent)
            }
        }
    }

    /// Takes back what a call of this caller's own was charged.
    pub(crate) fn take_back(&self, key: &StoreKey<'_>, limit: &Limit, spent: &Spent) {
        let Some(charge) = spent.charge else { return };
        let step = |word| {
            reached(if word == charge.after { Place::TakenBack } else { Place::TakenBackBeneath });
            // The one reading that is made late: after all charges that are in the word. No earlier
            // than a sweep that may have been before the cell's other charges.
            let now_ns = || self.clock.now_after_loads_ns().max(self.store.floor_ns());
            limit.rule().take_back(word, charge, now_ns)
        };
        match spent.to {
            ChargedTo::Nothing => {}
            ChargedTo::Shared => {
                self.overflow.shared(key.key.limit).update(|word| (step(word), ()));
            }
            ChargedTo::OwnCell => {
                // A cell that was swept since was full: its charge had drained.
                let step = |word| if word == 0 { None } else { step(word) };
                let change = Change { key, absent: Absent::Leave, now_ns: charge.now_ns };
                let _ = self.store.update(change, self, step);
            }
        }
    }

    pub(crate) fn refund(
        &self,
        key: &StoreKey<'_>,
        limit: &Limit,
        cost: u64,
        now_ns: u64,
    ) -> Decision {
        self.give(key, now_ns, |word, now_ns| limit.rule().refund(word, now_ns, cost))
    }

    pub(crate) fn reset(&self, key: &StoreKey<'_>, limit: &Limit, now_ns: u64) -> Decision {
        self.give(key, now_ns, |word, now_ns| limit.rule().reset(word, now_ns))
    }
}

/// What a rule was asked about.
#[derive(Clone, Copy)]
struct Asked {
    word: u64,
    at_ns: u64,
    /// The key had no cell, or one that was never charged.
    is_new: bool,
}

/// What a spend did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) decision: Decision,
    pub(crate) charge: Option<Charge>,
    to: ChargedTo,
}

/// Which bucket was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChargedTo {
    OwnCell,
    /// The one that newcomers share.
    Shared,
    Nothing,
}

impl Spent {
    fn of(outcome: Outcome, before: u64, now_ns: u64, to: ChargedTo) -> Spent {
        let charge = outcome.word.map(|after| Charge { before, after, now_ns });
        Spent { decision: outcome.decision, charge, to }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("clock", &self.inner.clock).finish_non_exhaustive()
    }
}
