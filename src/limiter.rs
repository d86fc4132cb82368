//! The face: a limiter, and a handle for each of its limits.

use std::fmt;
use std::sync::Arc;

use crate::algorithm::Outcome;
use crate::batch::{Batch, Member};
use crate::cell::Cell;
use crate::clock::Clock;
use crate::error::Error;
use crate::key::{KeyRef, LimitIndex};
use crate::limits::{Entry, Id, IdFormat, Limits, STRING_MAX_BYTES, Scratch, decode, encode};
use crate::probe::{Fault, Place, broken, reached};
use crate::store::{Exact, Store, Swept};
use crate::sweeper::{Stats, SweepOptions, SweepRecord, Sweeper};
use crate::{Decision, Limit, LimiterOptions};

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
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) store: Exact,
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
        let clock = options.clock.unwrap_or_default();
        let inner = Inner { limits, clock, store: Exact::new(), sweeps: SweepRecord::default() };
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

    /// Looks at the next cells, about `cells` of them, and drops those that are full: one bounded step
    /// of a sweep, for those who want no thread. A step ends with the part of the table in which
    /// the number is reached, at most a 32nd of it; it holds a lock over half of one part at a time.
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

    /// What the table holds and what sweeps have done. Looks at every part of the table: not for a
    /// request's way.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl Inner {
    pub(crate) fn sweep(&self, cells: usize) -> Swept {
        let now_ns = self.clock.now_ns();
        let swept = self
            .store
            .sweep(cells, now_ns, |key, word| self.limits.is_full(key.limit, word, now_ns));
        self.sweeps.record(swept);
        swept
    }

    pub(crate) fn stats(&self) -> Stats {
        self.sweeps.stats(self.store.size())
    }

    /// The time at which a decision on `word` is made: on a cell that was never charged, no earlier
    /// than the last sweep, which may have dropped the cell that was there before.
    #[inline]
    pub(crate) fn decided_at(&self, word: u64, now_ns: u64) -> u64 {
        if word != 0 || broken(Fault::NoFloor) {
            return now_ns;
        }
        let floor_ns = self.store.floor_ns();
        if floor_ns > now_ns {
            reached(Place::FloorUsed);
        }
        now_ns.max(floor_ns)
    }

    /// What `ask` says of the word of `key`; writes nothing.
    #[inline]
    pub(crate) fn look(&self, key: KeyRef<'_>, ask: impl FnOnce(u64, u64) -> Outcome) -> Decision {
        let word = self.store.find(key, |cell| cell.load()).unwrap_or(0);
        let now_ns = self.decided_at(word, self.clock.now_ns());
        ask(word, now_ns).decision
    }

    #[inline(always)]
    fn spend(&self, key: KeyRef<'_>, limit: &Limit, cost: u64) -> Decision {
        let ask = |word, now_ns| limit.rule().spend(word, now_ns, cost);
        let (word, at_ns) = self.store.find_or_insert(key, |cell| self.change(cell, ask));
        ask(word, at_ns).decision
    }

    /// Changes the word of `key` if there is a cell; a bucket that does not exist is full.
    fn give(&self, key: KeyRef<'_>, ask: impl Fn(u64, u64) -> Outcome) -> Decision {
        let given = self.store.find(key, |cell| self.change(cell, &ask));
        let (word, at_ns) = given.unwrap_or_else(|| (0, self.decided_at(0, self.clock.now_ns())));
        ask(word, at_ns).decision
    }

    /// Stores what `ask` makes of the cell's word; returns the word that it was asked about, and when.
    ///
    /// The decision is made of these two once more, after the cell was let go: the arithmetic costs
    /// less than to carry its figures out through memory with a lock held.
    #[inline(always)]
    fn change(&self, cell: &Cell, ask: impl Fn(u64, u64) -> Outcome) -> (u64, u64) {
        // Read with the cell in hand: as late as can be, so that fewer swaps fail.
        let now_ns = self.clock.now_ns();
        cell.update(|word| {
            let at_ns = self.decided_at(word, now_ns);
            (ask(word, at_ns).word, at_ns)
        })
    }

    pub(crate) fn refund(&self, key: KeyRef<'_>, limit: &Limit, cost: u64) -> Decision {
        self.give(key, |word, now_ns| limit.rule().refund(word, now_ns, cost))
    }

    pub(crate) fn reset(&self, key: KeyRef<'_>, limit: &Limit) -> Decision {
        self.give(key, |word, now_ns| limit.rule().reset(word, now_ns))
    }
}

/// A call for one bucket, with its cost.
trait Call {
    fn run(self, inner: &Inner, key: KeyRef<'_>, limit: &Limit) -> Decision;
}

struct Spend(u64);
struct Check(u64);
struct Refund(u64);
struct Reset;

impl Call for Spend {
    #[inline(always)]
    fn run(self, inner: &Inner, key: KeyRef<'_>, limit: &Limit) -> Decision {
        if self.0 == 0 {
            // Asks without charging: no cell is made for it.
            return Check(0).run(inner, key, limit);
        }
        inner.spend(key, limit, self.0)
    }
}

impl Call for Check {
    #[inline]
    fn run(self, inner: &Inner, key: KeyRef<'_>, limit: &Limit) -> Decision {
        inner.look(key, |word, now_ns| limit.rule().spend(word, now_ns, self.0))
    }
}

impl Call for Refund {
    fn run(self, inner: &Inner, key: KeyRef<'_>, limit: &Limit) -> Decision {
        inner.refund(key, limit, self.0)
    }
}

impl Call for Reset {
    fn run(self, inner: &Inner, key: KeyRef<'_>, limit: &Limit) -> Decision {
        inner.reset(key, limit)
    }
}

/// One limit of a [`Limiter`], by its name.
///
/// Calls take an id in its natural type: `&str`, `u64`, an address, `(u64, &str)`, an identifier set.
/// For a key that is known they format and allocate nothing.
///
/// An allowed spend writes one word, once; a check, a denial, an error and a cost of 0 write nothing.
///
/// Every call with an id can fail with [`Error::is_invalid_id`], and every call with a cost with
/// [`Error::is_cost_above_burst`]; then nothing has changed.
#[derive(Clone)]
pub struct Handle {
    pub(crate) limiter: Limiter,
    pub(crate) index: LimitIndex,
}

impl Handle {
    /// Asks for `cost` units of the id's bucket and charges them if they are there.
    ///
    /// # Errors
    ///
    /// See [`Handle`].
    #[inline]
    pub fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.with(id.into(), cost, Spend(cost))
    }

    /// As [`spend`](Handle::spend) for many ids that have nothing to do with each other: their answers
    /// are added to `decisions`, in order. The waits for memory overlap.
    pub fn spend_many<'a, I: Into<Id<'a>>>(
        &self,
        ids: impl IntoIterator<Item = I>,
        cost: u64,
        decisions: &mut Vec<Result<Decision, Error>>,
    ) {
        decisions.extend(ids.into_iter().map(|id| self.spend(id, cost)));
    }

    /// Asks what a [`spend`](Handle::spend) would say, all four figures, and charges nothing. (In
    /// governor, `check` charges.)
    ///
    /// # Errors
    ///
    /// See [`Handle`].
    #[inline]
    pub fn check<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.with(id.into(), cost, Check(cost))
    }

    /// Gives back up to `cost` units, never past full. `allowed` says whether anything was given
    /// back; the other figures are the bucket's after it.
    ///
    /// # Errors
    ///
    /// See [`Handle`].
    pub fn refund<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<Decision, Error> {
        self.with(id.into(), cost, Refund(cost))
    }

    /// Makes the id's bucket full.
    ///
    /// # Errors
    ///
    /// See [`Handle`].
    pub fn reset<'a>(&self, id: impl Into<Id<'a>>) -> Result<Decision, Error> {
        self.with(id.into(), 0, Reset)
    }

    /// A member of a [batch](Limiter::batch): check-and-spend, at a cost of 1.
    pub fn member<'a>(&'a self, id: impl Into<Id<'a>>) -> Member<'a> {
        Member::new(self, id.into())
    }

    /// The limit's name.
    pub fn name(&self) -> &str {
        &self.limiter.inner.limits.entry(self.index).name
    }

    /// How the limit's ids look.
    pub fn format(&self) -> IdFormat {
        self.limiter.inner.limits.entry(self.index).format
    }

    /// The id as its bucket's key has it, such as `8.8.8.8/32` for an address under `domainOrCIDR`.
    ///
    /// # Errors
    ///
    /// See [`Handle`].
    pub fn normalize<'a>(&self, id: impl Into<Id<'a>>) -> Result<String, Error> {
        let mut scratch = Scratch::new();
        let id = encode(self.format(), id.into(), &mut scratch)?;
        Ok(decode(self.format(), id))
    }

    /// The ids that have a bucket, in no order. Looks at every cell: not for a request's way.
    pub fn ids(&self) -> Vec<String> {
        let mut ids = Vec::new();
        self.limiter.inner.store.for_each_key(|key| {
            let key = key.as_ref();
            if key.limit == self.index {
                ids.push(decode(self.format(), key.id));
            }
        });
        ids
    }

    /// Finds the key and the numbers for `id`; without numbers there is no limit.
    ///
    /// Numbers and text as they are go straight on. A caller's type of id is known where this is
    /// compiled, so that of the three ways one is left.
    #[inline(always)]
    fn with(&self, id: Id<'_>, cost: u64, call: impl Call) -> Result<Decision, Error> {
        let entry = self.limiter.inner.limits.entry(self.index);
        match (entry.format, id) {
            (IdFormat::RegId, Id::Number(number)) => {
                self.with_key(entry, &number.to_be_bytes(), cost, call)
            }
            (IdFormat::String, Id::Text(text)) if (1..=STRING_MAX_BYTES).contains(&text.len()) => {
                self.with_key(entry, text.as_bytes(), cost, call)
            }
            _ => self.with_encoded(entry, id, cost, call),
        }
    }

    #[inline(never)]
    fn with_encoded(
        &self,
        entry: &Entry,
        id: Id<'_>,
        cost: u64,
        call: impl Call,
    ) -> Result<Decision, Error> {
        let mut scratch = Scratch::new();
        let id = encode(entry.format, id, &mut scratch)?;
        self.with_key(entry, id, cost, call)
    }

    #[inline(always)]
    fn with_key(
        &self,
        entry: &Entry,
        id: &[u8],
        cost: u64,
        call: impl Call,
    ) -> Result<Decision, Error> {
        let Some(limit) = entry.numbers_of(id) else {
            return Ok(Decision::UNLIMITED);
        };
        if cost > limit.burst() {
            return Err(Error::cost_above_burst(cost, limit.burst(), Some(&entry.name)));
        }
        Ok(call.run(&self.limiter.inner, KeyRef { limit: self.index, id }, limit))
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("clock", &self.inner.clock).finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.name())
    }
}
