//! Writes into the rollback ledger of a bucket in the store, and drops it when it is not needed any more.

use crate::algorithm::rule::Rule;
use crate::algorithm::timed_count::TimedCount;
use crate::core::shared::decide::full_in_ms;
use crate::core::shared::ledger::{BucketLedger, LedgerEntry, MAX_DRAINED};
use crate::core::shared::text::{LAST_UNIX_MS, SharedBucket, rule_time_ns, start_unix_ms, unix_ms};
use crate::limit::Limit;

impl SharedBucket {
    /// Returns the bucket with another word, and with the entry in its ledger that says so. The bucket is
    /// [guarded](SharedBucket::guarded). `own`: the limit without a factor, by which charges are rolled back.
    pub(crate) fn with_entry(
        self,
        own: &Limit,
        unix_ns: u64,
        word: u64,
        entry: LedgerEntry,
    ) -> SharedBucket {
        let mut ledger = self.ledger.unwrap_or_else(|| BucketLedger::new(unix_ns));
        ledger.entries = ledger.entries.saturating_add(1);
        match entry {
            LedgerEntry::Undo => {}
            LedgerEntry::Lowered(by) => ledger.lowered = ledger.lowered.wrapping_add(by),
            LedgerEntry::Refund => ledger.refunds = ledger.refunds.saturating_add(1),
            LedgerEntry::Grant(at_ns) => ledger.last_grant_ns = ledger.last_grant_ns.max(at_ns),
        }
        let new = SharedBucket { word, ..self };
        // Both: a call that lowers the bucket leaves it full earlier than the charges from before have drained.
        let full_in_ms = full_in_ms(own, self, unix_ns).max(full_in_ms(own, new, unix_ns));
        let until_ms = unix_ms(unix_ns).saturating_add(full_in_ms).saturating_add(1);
        ledger.needed_until_ms = ledger.needed_until_ms.max(until_ms.min(LAST_UNIX_MS));
        SharedBucket { ledger: Some(ledger), ..new }
    }

    /// Returns the bucket, whose word is that of a charge by `limit`. If the charge had a factor below 1, and has let more
    /// units drip out of a leaky bucket than the limit itself, the ledger says so. `found`: the bucket as the text has it.
    pub(crate) fn with_drain(
        self,
        (limit, own): (&Limit, &Limit),
        found: SharedBucket,
        unix_ns: u64,
    ) -> SharedBucket {
        let (Rule::LeakyBucket(scaled), Rule::LeakyBucket(leaky)) = (limit.rule(), own.rule())
        else {
            return self;
        };
        if scaled.drip_rate_ms >= leaky.drip_rate_ms {
            return self;
        }
        let TimedCount { at_ms, count } = TimedCount::from_word(found.word);
        let drained = match found.leases.units() {
            0 => own.drained_early(limit, found.word, rule_time_ns(unix_ns)),
            // Leases that have ended hide what has dripped out.
            _ => count,
        };
        // The charges from before have drained when the bucket would have been full by the limit itself. After that no rollback
        // needs to know.
        let drips = count.div_ceil(leaky.drip_size.into());
        let full_ms = start_unix_ms(at_ms).saturating_add(drips.saturating_mul(leaky.drip_rate_ms));
        let needed_until_ms = full_ms.saturating_add(1).min(LAST_UNIX_MS);
        if drained == 0 || needed_until_ms <= unix_ms(unix_ns) {
            return self;
        }
        let mut ledger = self.ledger.unwrap_or_else(|| BucketLedger::new(unix_ns));
        ledger.drained_early = ledger.drained_early.saturating_add(drained).min(MAX_DRAINED);
        ledger.needed_until_ms = ledger.needed_until_ms.max(needed_until_ms);
        SharedBucket { ledger: Some(ledger), ..self }
    }

    /// Drops a ledger that no rollback needs any more.
    pub(super) fn without_old_ledger(self, limit: &Limit, unix_ns: u64) -> SharedBucket {
        let is_needed = |ledger: &BucketLedger| {
            // A window that owes units keeps its beginning, and a rollback finds the charges of the word's window. And after
            // a word from before, the clock may go back behind the time until which the ledger is needed.
            let at_ms = start_unix_ms(TimedCount::from_word(self.word).at_ms);
            let has_old_word =
                limit.rule().gcra().is_none() && self.word != 0 && at_ms < ledger.needed_until_ms;
            has_old_word || ledger.needed_until_ms > unix_ms(unix_ns)
        };
        SharedBucket { ledger: self.ledger.filter(is_needed), ..self }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::algorithm::timed_count::NS_PER_MS;
    use crate::core::shared::reversible::ReversibleCharge;

    const AT_NS: u64 = 1_790_000_000_000_000_000;

    fn limits() -> [Limit; 4] {
        let tenth = Duration::from_millis(100);
        [
            Limit::new(20, 10, Duration::from_nanos(999_999_937)).unwrap(),
            Limit::fixed_window(20, 20 * tenth).unwrap(),
            Limit::token_bucket(20, 20 * tenth, 10).unwrap(),
            Limit::leaky_bucket(20, tenth, 1).unwrap(),
        ]
    }

    fn charged(limit: &Limit, bucket: SharedBucket, unix_ns: u64) -> SharedBucket {
        let word = limit.rule().spend(bucket.word, rule_time_ns(unix_ns), 2).word.unwrap();
        SharedBucket { word, ..bucket }
    }

    #[test]
    fn ledgers_outlive_the_charges_before_them() {
        for limit in limits() {
            for unix_ns in (0..50).map(|at| AT_NS + at * 333_337) {
                let bucket = charged(&limit, SharedBucket::default(), unix_ns);
                let new = bucket.with_entry(&limit, unix_ns, 0, LedgerEntry::Refund);
                let needed_until_ns = new.ledger.unwrap().needed_until_ms * NS_PER_MS;
                let rule = limit.rule();
                assert!(rule.is_full(bucket.word, rule_time_ns(needed_until_ns)), "{limit}");
            }
        }
    }

    #[test]
    fn no_text_comes_back_after_an_entry() {
        for limit in limits() {
            let mut bucket = SharedBucket::default();
            let mut texts = HashSet::new();
            for _ in 0..5 {
                let before = bucket;
                bucket = charged(&limit, bucket, AT_NS);
                assert!(texts.insert(bucket.text(&limit)), "{limit}: {texts:?}");
                let charge =
                    ReversibleCharge::new((&limit, &limit), before, bucket, AT_NS).unwrap();
                bucket = charge.rolled_back((&limit, &limit), bucket, AT_NS, (2, 0)).unwrap();
                assert!(texts.insert(bucket.text(&limit)), "{limit}: {texts:?}");
            }
        }
    }
}
