//! The fast path: calls for keys that the lock-free table knows.

use super::{Call, KeyedLimit};
use crate::algorithm::factor::Factor;
use crate::algorithm::gcra::{Gcra, GcraCharge};
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limits::{Id, NumberedText, Scratch, WithBytes, account_of, visit_plain_bytes};
use crate::store::key::KeyRef;
use crate::store::{Fingerprint, Guard, Known, Store, Table, pin, read};

/// A known key's slot, the limit that its word is counted in, and the call's time.
struct Found<'g> {
    known: Known<'g>,
    rule: FoundRule<'g>,
    now_ns: u64,
}

enum FoundRule<'g> {
    /// A charge or a check by gcra.
    Gcra(&'g Gcra),
    /// Any other call, and any other algorithm.
    Other(&'g Limit),
}

/// Decides a call for the bucket of an id. Inlined for each type of id: the length of a number or an address is known, so
/// that its hash has no branches.
struct Decide<'c> {
    handle: &'c KeyedLimit,
    id: Id<'c>,
    call: Call<'c>,
}

impl WithBytes<Result<Decision, Error>> for Decide<'_> {
    #[inline(always)]
    fn with(self, id: &[u8]) -> Result<Decision, Error> {
        self.handle.call_for_key(id, self.handle.fingerprint(id), self.call, None)
    }

    #[inline(always)]
    fn with_pair(self, pair: NumberedText<'_>) -> Result<Decision, Error> {
        if !self.handle.limiter.inner.clock.is_quick() {
            return self.handle.call_for_pair_as_read(pair.number, pair.text, self.call);
        }
        match self.handle.call_for_known_pair(&pair, self.call, None) {
            Some(decision) => Ok(decision),
            None => self.without(),
        }
    }

    #[inline(always)]
    fn without(self) -> Result<Decision, Error> {
        self.handle.call_encoding(self.id, self.call, None)
    }
}

impl KeyedLimit {
    /// Decides a call for one bucket: by the fast path if it can, else by the slow path.
    ///
    /// The caller's type of id and the kind of call are known where this is compiled, so one arm is left.
    #[inline(always)]
    pub(super) fn call(&self, id: Id<'_>, call: Call) -> Result<Decision, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() || (call.can_be_denied() && inner.blocks.is_any()) {
            return self.call_with_checks(id, call, None);
        }
        visit_plain_bytes(self.format, &id, Decide { handle: self, id, call })
    }

    /// Decides a call for an id that has to be converted to its normal form.
    #[inline(never)]
    pub(super) fn call_encoding(
        &self,
        id: Id<'_>,
        call: Call,
        read_ns: Option<u64>,
    ) -> Result<Decision, Error> {
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        self.call_for_key(id, self.fingerprint_of_any(id), call, read_ns)
    }

    /// Decides a call while the limiter may be switched off or the key blocked. The clock may be the caller's own code,
    /// so it is read before anything is pinned or locked.
    #[cold]
    #[inline(never)]
    pub(super) fn call_with_checks(
        &self,
        id: Id<'_>,
        call: Call,
        read_ns: Option<u64>,
    ) -> Result<Decision, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        let now_ns = read_ns.unwrap_or_else(|| inner.clock.now_ns());
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        let key = KeyRef { limit: self.index, id };
        let fingerprint = self.fingerprint_of_any(id);
        if call.can_be_denied()
            && inner.blocks.is_any()
            && inner.blocks.end_ns(inner.store.hash(key, fingerprint), key, now_ns).is_some()
        {
            // Whether a limit applies to the blocked key is decided there.
            return Ok(self.slow_path(id, fingerprint, Factor::ONE, call, now_ns)?.decision);
        }
        self.call_for_key(id, fingerprint, call, Some(now_ns))
    }

    /// Decides a call for an id in normal form that is not blocked. `read_ns` is a reading of the clock that the caller
    /// has made, if it has.
    #[inline(always)]
    pub(super) fn call_for_key(
        &self,
        id: &[u8],
        fingerprint: Fingerprint,
        call: Call,
        read_ns: Option<u64>,
    ) -> Result<Decision, Error> {
        if let Store::LockFree(table) = &self.limiter.inner.store {
            // Mark this thread as a reader of the table: no thread frees memory that it reads until the guard drops.
            let Some(guard) = read() else {
                return self.call_pinned(table, id, fingerprint, call, read_ns);
            };
            return self.call_with_guard(guard, table, id, fingerprint, call, read_ns);
        }
        self.call_off_fast_path(id, fingerprint, call, read_ns)
    }

    /// Decides a call under a pin, if the thread cannot be marked as a reader: see [`read`].
    #[cold]
    #[inline(never)]
    fn call_pinned(
        &self,
        table: &Table,
        id: &[u8],
        fingerprint: Fingerprint,
        call: Call,
        read_ns: Option<u64>,
    ) -> Result<Decision, Error> {
        self.call_with_guard(pin(), table, id, fingerprint, call, read_ns)
    }

    /// Decides a call for a key that the lock-free table knows, else by the slow path. Each exit writes the result where
    /// the caller wants it.
    #[inline(always)]
    fn call_with_guard(
        &self,
        guard: Guard,
        table: &Table,
        id: &[u8],
        fingerprint: Fingerprint,
        call: Call,
        read_ns: Option<u64>,
    ) -> Result<Decision, Error> {
        let found = self.find(&guard, table, fingerprint, call, read_ns);
        match found {
            Some(Found { mut known, rule: FoundRule::Gcra(gcra), now_ns }) => {
                if let Some(charge) = charge_known(&mut known, gcra, call, now_ns) {
                    let decision = gcra.decision(charge);
                    if call.is_spend() {
                        self.count_known(gcra, id, call.cost(), &decision, now_ns);
                    }
                    return Ok(decision);
                }
            }
            Some(Found { known, rule: FoundRule::Other(limit), now_ns }) => {
                let changed = self.change_known(known, limit, now_ns, id, fingerprint, call);
                if let Some(decision) = changed {
                    return Ok(decision);
                }
            }
            None => {}
        }
        drop(guard);
        self.call_off_fast_path(id, fingerprint, call, read_ns)
    }

    /// Reads a clock that may take long, before the table is pinned, and decides a call for a pair.
    #[inline(never)]
    fn call_for_pair_as_read(
        &self,
        number: u64,
        text: &str,
        call: Call,
    ) -> Result<Decision, Error> {
        let read_ns = Some(self.limiter.inner.clock.now_ns());
        match self.call_for_known_pair(&NumberedText { number, text }, call, read_ns) {
            Some(decision) => Ok(decision),
            None => self.call_encoding(Id::NumberAndText(number, text), call, read_ns),
        }
    }

    /// Decides a spend or a check for a pair's known bucket of gcra, without the bytes of its id. `None`: nothing has changed, and
    /// the call needs the bytes, as it always does if calls are counted.
    #[inline(always)]
    fn call_for_known_pair(
        &self,
        pair: &NumberedText<'_>,
        call: Call,
        read_ns: Option<u64>,
    ) -> Option<Decision> {
        let Store::LockFree(table) = &self.limiter.inner.store else { return None };
        if self.is_counting() || !call.can_be_denied() {
            return None;
        }
        let fingerprint = table.joined(self.index, pair.head(), pair.text.as_bytes());
        let guard = read()?;
        let Found { mut known, rule: FoundRule::Gcra(gcra), now_ns } =
            self.find(&guard, table, fingerprint, call, read_ns)?
        else {
            return None;
        };
        Some(gcra.decision(charge_known(&mut known, gcra, call, now_ns)?))
    }

    /// Spends units of a known bucket of gcra, and calls `tell` with the decision and the limit that has made it. `None`:
    /// nothing has changed, and another call has to decide.
    #[cfg(feature = "tower")]
    pub(crate) fn spend_telling<R>(
        &self,
        id: &Id<'_>,
        cost: u64,
        tell: impl FnOnce(Decision, &Limit) -> R,
    ) -> Option<(Decision, R)> {
        let inner = &*self.limiter.inner;
        let Store::LockFree(table) = &inner.store else { return None };
        if !inner.is_enabled() || inner.blocks.is_any() {
            return None;
        }
        let fingerprint =
            crate::limits::with_plain_bytes(self.format, id, |id| self.fingerprint(id))?;
        let guard = read()?;
        let call = Call::Spend(cost);
        let found = self.find(&guard, table, fingerprint, call, None)?;
        let Found { mut known, rule: FoundRule::Gcra(gcra), now_ns } = found else { return None };
        let entry = inner.view(&guard).generation.limits.entry(self.index);
        let limit = entry.quick_limit_at(known.tag(), now_ns)?;
        let decision = gcra.decision(charge_known(&mut known, gcra, call, now_ns)?);
        if self.is_counting() {
            crate::limits::with_plain_bytes(self.format, id, |id| {
                self.count_known(gcra, id, cost, &decision, now_ns);
            });
        }
        Some((decision, tell(decision, limit)))
    }

    /// Counts a spend from a known bucket of gcra, if calls are counted.
    #[inline(always)]
    fn count_known(&self, gcra: &Gcra, id: &[u8], cost: u64, decision: &Decision, now_ns: u64) {
        let Some(stripes) = &self.stripes else { return };
        if decision.allowed() {
            stripes.count_allowed(decision, gcra.burst(), cost);
        } else {
            self.count_denied(stripes, id, decision, now_ns);
        }
    }

    /// Finds a key that the lock-free table knows, if the call needs nothing but the key's bucket. `None`: the slow path
    /// has to decide.
    #[inline(always)]
    fn find<'g>(
        &'g self,
        guard: &'g Guard,
        table: &'g Table,
        fingerprint: Fingerprint,
        call: Call,
        read_ns: Option<u64>,
    ) -> Option<Found<'g>> {
        let inner = &*self.limiter.inner;
        // Read the shard's pointer. A shard that migrates is left to the slow path.
        let home = table.home(guard, fingerprint)?;
        // Read the pointer to the newest limits.
        let entry = inner.view(guard).generation.limits.entry(self.index);
        // Read the clock between the two groups of loads. Reading it waits for all loads before it: here those are
        // short, and the load of the bucket, which comes after it, can overlap with the next call.
        let now_ns = match read_ns {
            Some(now_ns) => now_ns,
            None => inner.clock.quick_now_ns()?,
        };
        // Find the key's slot.
        let known = home.known()?;
        // Find the limit by the tag beside the word. The slow path decides if the tag is of older limits, if its
        // override has ended and if the limit has a shadow.
        let (cost, tag) = (call.cost(), known.tag());
        if call.can_be_denied()
            && let Some(gcra) = entry.quick_default(tag)
        {
            let rule = FoundRule::Gcra(gcra);
            return (cost <= gcra.burst()).then_some(Found { known, rule, now_ns });
        }
        let limit = entry.quick_limit_at(tag, now_ns)?;
        let rule = match limit.rule().gcra() {
            Some(gcra) if call.can_be_denied() => FoundRule::Gcra(gcra),
            _ => FoundRule::Other(limit),
        };
        (cost <= limit.burst()).then_some(Found { known, rule, now_ns })
    }

    /// Decides any other call for a known key: those of other algorithms, refunds and resets. `None` if the cell has died
    /// or moved.
    #[inline(never)]
    fn change_known(
        &self,
        known: Known<'_>,
        limit: &Limit,
        now_ns: u64,
        id: &[u8],
        fingerprint: Fingerprint,
        call: Call,
    ) -> Option<Decision> {
        let mut decision = Decision::UNLIMITED;
        let is_live = known.update(|word| {
            let outcome = call.outcome(limit, word, now_ns);
            decision = outcome.decision;
            outcome.word
        });
        if is_live && call.is_by_hand() {
            self.limiter.inner.forget_places(KeyRef { limit: self.index, id }, fingerprint);
        }
        if is_live && call.is_spend() {
            self.count(id, limit, call.cost(), &decision, now_ns);
        }
        is_live.then_some(decision)
    }

    /// Decides a call that `find` leaves to the slow path. A clock that may take long is read here, after the guard
    /// has dropped; then the fast path is tried again with the reading.
    #[inline(never)]
    fn call_off_fast_path(
        &self,
        id: &[u8],
        fingerprint: Fingerprint,
        call: Call,
        read_ns: Option<u64>,
    ) -> Result<Decision, Error> {
        let clock = &self.limiter.inner.clock;
        match read_ns {
            None if !clock.is_quick() => {
                self.call_for_key(id, fingerprint, call, Some(clock.now_ns()))
            }
            read_ns => {
                let now_ns = read_ns.unwrap_or_else(|| clock.now_ns());
                Ok(self.slow_path(id, fingerprint, Factor::ONE, call, now_ns)?.decision)
            }
        }
    }

    /// Computes the fingerprint of an id that is not composite, in normal form.
    #[inline(always)]
    pub(crate) fn fingerprint(&self, id: &[u8]) -> Fingerprint {
        self.limiter.inner.store.fingerprint(KeyRef { limit: self.index, id })
    }

    /// Computes the fingerprint of any id in normal form.
    pub(super) fn fingerprint_of_any(&self, id: &[u8]) -> Fingerprint {
        let key = KeyRef { limit: self.index, id };
        self.limiter.inner.store.fingerprint_with(key, account_of(self.format, id))
    }

    /// Computes the fingerprint of an id that is not composite and prefetches the cache line of its bucket.
    #[inline(always)]
    pub(crate) fn fetch(&self, id: &[u8]) -> Fingerprint {
        let fingerprint = self.fingerprint(id);
        self.limiter.inner.store.prefetch(fingerprint);
        fingerprint
    }
}

/// Computes the new word of a known bucket and stores it by compare-and-swap, until no other call comes in between. `None`
/// if the cell has died or moved.
#[inline(always)]
fn charge_known(
    known: &mut Known<'_>,
    gcra: &Gcra,
    call: Call<'_>,
    now_ns: u64,
) -> Option<GcraCharge> {
    let cost = call.cost();
    loop {
        let charge = gcra.charge(known.word(), now_ns, cost);
        let writes = call.is_spend() && cost > 0 && charge.is_allowed();
        if !writes || known.swap(charge.spent_ns) {
            return Some(charge);
        }
        if !known.read_again() {
            return None;
        }
    }
}
