//! The fast path: calls for keys that the lock-free table knows.

use super::{Call, KeyedLimit};
use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::limits::{Id, IdFormat, STRING_MAX_BYTES, Scratch, account_of};
use crate::store::key::KeyRef;
use crate::store::{Fingerprint, Guard, Known, Store, pin_briefly};

impl KeyedLimit {
    /// Decides a call for one bucket: by the fast path if it can, else by the slow path.
    ///
    /// The caller's type of id and the kind of call are known where this is compiled, so one arm is left.
    #[inline(always)]
    pub(super) fn call(&self, id: Id<'_>, call: Call) -> Result<Decision, Error> {
        let shared = &*self.limiter.inner;
        if !shared.is_enabled() || (call.can_be_denied() && shared.blocks.is_any()) {
            return self.call_with_checks(id, call, None);
        }
        match (self.format, id) {
            (IdFormat::RegId, Id::Number(number)) => {
                let bytes = number.to_be_bytes();
                // The bucket of a number is prefetched. A text's is not: its own bytes have to be loaded first.
                self.call_for_key(&bytes, self.fetch(&bytes), call, None)
            }
            (IdFormat::String, Id::Text(text)) if (1..=STRING_MAX_BYTES).contains(&text.len()) => {
                let bytes = text.as_bytes();
                self.call_for_key(bytes, self.fingerprint(bytes), call, None)
            }
            _ => self.call_encoding(id, call, None),
        }
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
        let shared = &*self.limiter.inner;
        if !shared.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        let now_ns = read_ns.unwrap_or_else(|| shared.clock.now_ns());
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        let key = KeyRef { limit: self.index, id };
        let fingerprint = self.fingerprint_of_any(id);
        if call.can_be_denied()
            && shared.blocks.is_any()
            && shared.blocks.end_ns(shared.store.hash(key, fingerprint), key, now_ns).is_some()
        {
            // Whether a limit applies to the blocked key is decided there.
            return self.slow_path(id, fingerprint, Factor::ONE, call, now_ns);
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
        // Mark this thread as a reader of the table: no thread frees memory that it reads until the guard drops.
        let guard = pin_briefly();
        if let Some((limit, word, now_ns)) = self.fast_path(&guard, id, fingerprint, call, read_ns)
        {
            // Compute the decision again from the word before the swap: returning it from the loop would pass it
            // through memory, which takes longer.
            if call.is_spend() && self.stripes.is_some() {
                return Ok(self.counted_decision(id, limit, call, word, now_ns));
            }
            // Two returns, so that each writes its decision straight into the caller's memory.
            if let Some(decision) = call.decision_by_gcra(limit, word, now_ns) {
                return Ok(decision);
            }
            return Ok(call.decision(limit, word, now_ns));
        }
        drop(guard);
        self.call_off_fast_path(id, fingerprint, call, read_ns)
    }

    /// Decides a call for a key that the lock-free table knows and that needs nothing but its bucket. Returns the limit,
    /// the word before the swap, and the time; or `None`, with nothing changed, if the slow path has to decide.
    #[inline(always)]
    fn fast_path<'g>(
        &'g self,
        guard: &'g Guard,
        id: &[u8],
        fingerprint: Fingerprint,
        call: Call,
        read_ns: Option<u64>,
    ) -> Option<(&'g Limit, u64, u64)> {
        let shared = &*self.limiter.inner;
        let Store::LockFree(table) = &shared.store else { return None };
        // Read the shard's pointer. A shard that migrates is left to the slow path.
        let home = table.home(guard, fingerprint)?;
        // Read the pointer to the newest limits.
        let entry = shared.view(guard).generation.limits.entry(self.index);
        // Read the clock between the two groups of loads. Reading it waits for all loads before it: here those are
        // short, and the load of the bucket, which comes after it, can overlap with the next call.
        let now_ns = match read_ns {
            Some(now_ns) => now_ns,
            None => shared.clock.quick_now_ns()?,
        };
        // Find the key's slot.
        let known = home.known()?;
        // Find the limit by the tag beside the word. The slow path decides if the tag is of older limits, if its
        // override has ended and if the limit has a shadow.
        let limit = entry.quick_limit_at(known.tag(), now_ns)?;
        if call.cost() > limit.burst() {
            return None;
        }
        // Compute the new word and store it by compare-and-swap, until no other call comes in between.
        let mut word = known.word()?;
        if let (Call::Spend(cost), Some(gcra)) = (call, limit.rule().gcra()) {
            while let Some(after) = gcra.spend(word, now_ns, cost).word {
                if known.swap(word, after) {
                    break;
                }
                word = known.word()?;
            }
        } else if !matches!(call, Call::Check(_)) {
            // Any other rule, and what gives back.
            word = self.change_known(known, id, fingerprint, limit, call, now_ns)?;
        }
        Some((limit, word, now_ns))
    }

    /// Changes a known key's word as the call's rule says and returns the word before it; `None` if the cell has died
    /// or moved.
    #[inline(never)]
    fn change_known(
        &self,
        known: Known<'_>,
        id: &[u8],
        fingerprint: Fingerprint,
        limit: &Limit,
        call: Call,
        now_ns: u64,
    ) -> Option<u64> {
        let mut met = 0;
        let is_live = known.update(|word| {
            met = word;
            let after = call.outcome(limit, word, now_ns).word;
            if !call.can_be_denied() && after.is_some() {
                let key = KeyRef { limit: self.index, id };
                self.limiter.inner.ledger.entry_by_fingerprint(fingerprint, key).count_refund();
            }
            after
        });
        is_live.then_some(met)
    }

    /// Decides a call for which `fast_path` returned `None`. A clock that may take long is read here, after the guard
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
                self.slow_path(id, fingerprint, Factor::ONE, call, now_ns)
            }
        }
    }

    #[inline(never)]
    fn counted_decision(
        &self,
        id: &[u8],
        limit: &Limit,
        call: Call,
        word: u64,
        now_ns: u64,
    ) -> Decision {
        let decision = call.decision(limit, word, now_ns);
        self.count(id, limit, call.cost(), &decision, now_ns);
        decision
    }

    /// Computes the fingerprint of an id that is not composite, in normal form.
    #[inline(always)]
    fn fingerprint(&self, id: &[u8]) -> Fingerprint {
        self.limiter.inner.store.fingerprint(KeyRef { limit: self.index, id })
    }

    /// Computes the fingerprint of any id in normal form.
    pub(super) fn fingerprint_of_any(&self, id: &[u8]) -> Fingerprint {
        let key = KeyRef { limit: self.index, id };
        self.limiter.inner.store.fingerprint_with(key, account_of(self.format, id))
    }

    /// Computes the fingerprint of an id that is not composite and prefetches the cache line of its bucket.
    #[inline(always)]
    pub(super) fn fetch(&self, id: &[u8]) -> Fingerprint {
        let fingerprint = self.fingerprint(id);
        self.limiter.inner.store.prefetch(fingerprint);
        fingerprint
    }
}
