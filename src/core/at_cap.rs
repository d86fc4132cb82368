//! The policy for a full table, the overflow buckets, and their counters. `charge_at_cap` decides the calls.

use std::sync::OnceLock;

use crate::store::Outdated;
use crate::store::cell::{Cell, Word};
use crate::store::key::LimitIndex;
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Figure, Ordering, Switch, fence};

/// How calls for untracked keys are decided while the table is full.
///
/// A key is untracked if it has no bucket. The table is full for a limit if the limit's [part of
/// `max_keys`](crate::LimiterOptions::max_keys) and the common places are taken, and the call found no
/// bucket that is full and can be dropped. A bucket that is not full is never dropped.
///
/// An id with its own override always gets a bucket, which does not count under `max_keys`.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits, options::AtCap};
///
/// let limit = Limit::new(2, 1, Duration::from_secs(60))?;
/// let limits = Limits::builder().limit("Requests", IdFormat::String, limit)?.build();
/// let options = LimiterOptions::default().max_keys(1).at_cap(AtCap::Deny);
/// let requests = Limiter::with_options(limits, options)?.limit("Requests")?;
/// assert!(requests.spend("alice", 1)?.allowed());
/// assert!(!requests.spend("bob", 1)?.allowed()); // alice has the only bucket
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtCap {
    /// The untracked keys of a limit share one bucket, which keeps the limit's bound. So a key may be denied because
    /// other keys have used the units. When a key that has used the overflow bucket gets its own bucket, that bucket starts
    /// with the debt that the key has in the overflow bucket.
    ///
    /// The overflow bucket counts in units of the limit's default. A call with a factor, and a call for an id without
    /// an override whose account has one, cannot use the overflow bucket. They are denied for
    /// [lack of room](crate::Decision::out_of_room). A batch in which several untracked ids of one
    /// limit share the bucket needs the sum of their units. If that is more than the burst, the batch is denied until
    /// the table has room.
    ///
    /// Under a limit of [concurrency](crate::Limit::concurrency) no bucket is shared: calls for untracked keys are denied
    /// for lack of room, as under `Deny`. A bucket whose permits are all back is full, so it can be dropped and makes room.
    #[default]
    Share,
    /// Calls for untracked keys are denied for [lack of room](crate::Decision::out_of_room).
    Deny,
    /// Calls for untracked keys are allowed, and charged to no bucket.
    Allow,
}

/// What a key owes of the overflow bucket's debt after a charge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owes {
    /// The units of its charges, under gcra.
    OwnUnits,
    /// The whole debt: the charge is a reservation, whose units are used later, or a settlement of more units than the bucket had.
    WholeDebt,
}

/// The policy for a full table, and counters of the calls that it decided.
pub(crate) struct Overflow {
    pub(crate) at_cap: AtCap,
    /// Whether a restore read debts of untracked keys: of overflow buckets, or of ids that have an override now.
    has_restored: Switch,
    charged: ChargedKeys,
    pub(crate) counts: OverflowCounts,
}

/// For each key, the time until which it owes the units that it was charged in overflow buckets. Without these times, each new cell
/// would start with the debt of all untracked keys, and keep its place until that debt is over. So later keys would find the table full.
///
/// A count-min sketch of times: a key's hash chooses a few parts, and a charge of the key raises the time of each part. The earliest
/// of these times is at least the key's own. It is later only if other keys share all of these parts, which is rare.
struct ChargedKeys {
    parts: OnceLock<Box<[AtomicU64]>>,
}

/// The number of parts, a power of two: 512 KiB. Usually it is far larger than the number of parts of keys that owe units, so that
/// few other keys seem to owe units.
const PARTS: usize = if cfg!(tollgate_loom) { 1 } else { 1 << 16 };

/// Odd multipliers that choose the parts of a key.
const PARTS_OF_KEY: &[u64] = if cfg!(tollgate_loom) {
    &[1]
} else {
    &[0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93]
};

/// The bucket of each limit that its untracked keys share.
pub(crate) struct OverflowBuckets(Box<[OwnLine]>);

/// A cell on its own cache line.
#[repr(align(64))]
struct OwnLine {
    cell: Cell,
    /// The time until which all keys may owe the bucket's debt: it is from a snapshot, or from limits before, by which a key's
    /// debt may have ended earlier.
    all_owe_until_ns: AtomicU64,
}

/// The numbers of calls for untracked keys that found the table full, by how they were decided.
#[derive(Default)]
pub(crate) struct OverflowCounts {
    pub(crate) overflowed: Figure,
    pub(crate) denied: Figure,
    pub(crate) allowed: Figure,
}

impl Overflow {
    pub(crate) fn new(at_cap: AtCap) -> Overflow {
        let (has_restored, charged) = (Switch::new(false), ChargedKeys::new());
        Overflow { at_cap, has_restored, charged, counts: OverflowCounts::default() }
    }

    /// Records, before the [fence](Self::fence), that a key was charged to an overflow bucket: `owes_until` returns the new
    /// time until which it owes something.
    pub(crate) fn note_charged(&self, hash: u64, owes_until: impl Fn(u64) -> u64) {
        if fault::active(Fault::ChargeUnnoted) {
            return;
        }
        for part in parts_of(self.charged.parts(), hash) {
            // Relaxed: the fence orders it.
            let order = Ordering::Relaxed;
            let _ = part.fetch_update(order, order, |until_ns| Some(owes_until(until_ns)));
        }
    }

    /// Returns the time until which a key may owe units that it was charged in an overflow bucket, or 0 if it owes none. Called after
    /// the [fence](Self::fence).
    pub(crate) fn owes_until_ns(&self, hash: u64) -> u64 {
        let Some(parts) = self.charged.parts.get() else { return 0 };
        // Relaxed: the fence orders it.
        parts_of(parts, hash).map(|part| part.load(Ordering::Relaxed)).min().unwrap_or(0)
    }

    /// Returns whether overflow buckets can have debts, with which a new cell has to start.
    #[inline]
    pub(crate) fn has_overflow(&self) -> bool {
        // Relaxed: set before any other thread has the limiter.
        let is_any = self.at_cap == AtCap::Share || self.has_restored.load(Ordering::Relaxed);
        is_any && !fault::active(Fault::ForgetShared)
    }

    /// Records that a restore brought debts of untracked keys. They count under any policy.
    #[cfg(feature = "snapshot")]
    pub(crate) fn note_restored(&self) {
        // Relaxed: as in `has_overflow`.
        self.has_restored.store(true, Ordering::Relaxed);
    }

    /// Orders a call's store before its next load, on both sides of the overflow bucket.
    ///
    /// One side charges the overflow bucket, fences, and looks whether the key has a cell by now. The other side inserts
    /// a cell, fences, and reads the overflow bucket's word. At least one side sees the write of the other. So a key
    /// that was charged to the overflow bucket never gets a cell without its debt.
    pub(crate) fn fence(&self) {
        if !fault::active(Fault::NoFence) {
            // SeqCst: on both sides a store must come before a load of another location (model
            // `overflow_vs_eviction`).
            fence(Ordering::SeqCst);
        }
    }
}

impl ChargedKeys {
    fn new() -> ChargedKeys {
        let keys = ChargedKeys { parts: OnceLock::new() };
        if cfg!(tollgate_loom) {
            // Loom does not see that the first charge publishes them.
            let _ = keys.parts();
        }
        keys
    }

    /// Returns all parts. The first call allocates them.
    fn parts(&self) -> &[AtomicU64] {
        self.parts.get_or_init(|| (0..PARTS).map(|_| AtomicU64::new(0)).collect())
    }
}

/// Returns the parts of a key.
fn parts_of(parts: &[AtomicU64], hash: u64) -> impl Iterator<Item = &AtomicU64> {
    let bits = PARTS.trailing_zeros();
    // The high bits of the product depend on all bits of the hash.
    let at = move |by: &u64| (hash.wrapping_mul(*by) >> (u64::BITS - 1 - bits) >> 1) as usize;
    PARTS_OF_KEY.iter().map(move |by| &parts[at(by)])
}

impl OverflowBuckets {
    pub(crate) fn new(limits: usize) -> OverflowBuckets {
        let line = |_| OwnLine { cell: Cell::new(), all_owe_until_ns: AtomicU64::new(0) };
        OverflowBuckets((0..limits).map(line).collect())
    }

    fn cell(&self, limit: LimitIndex) -> Option<&Cell> {
        self.0.get(limit.0 as usize).map(|line| &line.cell)
    }

    /// Records, before the word of a limit's bucket is set, that all keys may owe its debt until this time.
    pub(crate) fn note_all_owe(&self, limit: LimitIndex, until_ns: u64) {
        if let Some(line) = self.0.get(limit.0 as usize) {
            // Relaxed: the word publishes it.
            line.all_owe_until_ns.fetch_max(until_ns, Ordering::Relaxed);
        }
    }

    /// Returns the time until which all keys may owe the debt of a limit's bucket. Called after the word is read.
    pub(crate) fn all_owe_until_ns(&self, limit: LimitIndex) -> u64 {
        let line = self.0.get(limit.0 as usize);
        // Relaxed: the word has published it.
        line.map_or(0, |line| line.all_owe_until_ns.load(Ordering::Relaxed))
    }

    /// Returns the word of a limit's bucket. `Outdated`: newer limits have replaced the bucket.
    #[inline]
    pub(crate) fn word(&self, limit: LimitIndex) -> Result<u64, Outdated> {
        match self.cell(limit).map_or(Word::Live(0), Cell::word) {
            Word::Live(word) => Ok(word),
            Word::Frozen(_) => Err(Outdated),
        }
    }

    /// Returns the word of a limit's bucket, the last one if the bucket was replaced.
    pub(crate) fn last_word(&self, limit: LimitIndex) -> u64 {
        match self.cell(limit).map_or(Word::Live(0), Cell::word) {
            Word::Live(word) | Word::Frozen(word) => word,
        }
    }

    /// Calls `step` with the current word until the new word of `step` is stored, or `step` returns `None`.
    pub(crate) fn update(
        &self,
        limit: LimitIndex,
        step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        let is_live = self.cell(limit).is_some_and(|cell| cell.update_live(step));
        if is_live { Ok(()) } else { Err(Outdated) }
    }

    /// Freezes a limit's bucket in `before`, and seeds the limit's bucket here with the converted word. Of several
    /// calls the first has an effect.
    pub(crate) fn migrate(
        &self,
        limit: LimitIndex,
        before: &OverflowBuckets,
        converted: impl FnOnce(u64) -> Option<u64>,
    ) {
        let Some(cell) = self.cell(limit) else { return };
        if cell.load() != 0 {
            return;
        }
        let word = before.cell(limit).map_or(0, |cell| cell.freeze().0);
        if word != 0
            && let Some(word) = converted(word)
        {
            cell.seed(word);
        }
    }
}

impl OverflowCounts {
    pub(crate) fn count_overflowed(&self) {
        count(&self.overflowed, "overflowed");
    }

    pub(crate) fn count_denied(&self) {
        count(&self.denied, "denied");
    }

    pub(crate) fn count_allowed(&self) {
        count(&self.allowed, "allowed");
    }
}

fn count(counter: &Figure, outcome: &'static str) {
    // Relaxed: a figure for people.
    let before = counter.fetch_add(1, Ordering::Relaxed);
    #[cfg(feature = "tracing")]
    crate::observe::events::overflow(outcome, before + 1);
    #[cfg(not(feature = "tracing"))]
    let _ = (before, outcome);
}
