//! Checks that recorded calls are one history of each bucket, and that the bound holds over it.
//!
//! A decision tells when its bucket is full again, and the clock's reading is recorded. So each call tells
//! the word that it left, to the nanosecond, and, unless the bucket was full, the word that it found:
//!
//! * **The chain.** Each word that a call found was left by another call, and no two calls found the same
//!   one. The word of a spend that was lost, or decided on a stale word, is found twice or never. A denial
//!   found a word that another call left.
//! * **The bound.** Over all windows, by one scan: the units admitted in `[a, b]`, less refunds that may
//!   have happened in between, are at most `burst + (b - a) / interval`.
//! * **Sweeps.** A spend on a dropped bucket is decided at the time of the sweep, if that is later than the
//!   caller's reading. Its word tells that time, and no call left it. Its windows begin there.
//!
//! The check sorts: n log n.

use std::collections::HashMap;

/// The numbers of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) burst: u64,
    pub(crate) interval_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Admitted,
    Denied,
    /// A refund that returned units.
    Refunded,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) key: u32,
    pub(crate) kind: CallKind,
    pub(crate) cost: u8,
    /// The clock's reading that decided the call.
    pub(crate) now_ns: u64,
    /// The time after `now_ns` until the bucket is full, with this call included.
    pub(crate) full_in_ns: u64,
    /// A time after the call.
    pub(crate) end_ns: u64,
    /// No sweep that the call can have seen has a later time.
    pub(crate) swept_ns: u64,
}

/// Calls that are not one history, or exceed the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

/// Counts of the calls checked so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    pub(crate) refunded: u64,
    /// Spends that found a word of another call; the others found a full bucket.
    pub(crate) linked: u64,
    /// Spends that were decided at the time of a sweep.
    pub(crate) late: u64,
    /// The least room of any window, in ns of its limit.
    pub(crate) least_left_ns: Option<u64>,
}

/// A bucket's state between rounds.
#[derive(Clone, Copy, Default)]
struct Carried {
    /// The bucket's word; 0: full.
    word_ns: u64,
    scan: Scan,
}

/// The running minimum over the beginnings of all windows.
#[derive(Clone, Copy, Default)]
struct Scan {
    spent_ns: i128,
    /// The latest end of a spend so far.
    latest_end_ns: u64,
    /// Given back by refunds that began by then, and by those that ended before the spend.
    begun_ns: i128,
    ended_ns: i128,
    least_start_ns: Option<i128>,
}

pub(crate) struct Checker {
    rule: Rule,
    buckets: HashMap<u32, Carried>,
    pub(crate) counts: Counts,
}

impl Checker {
    pub(crate) fn new(rule: Rule) -> Checker {
        Checker { rule, buckets: HashMap::new(), counts: Counts::default() }
    }

    /// Checks a round: all calls of all threads since the last one, in any order. `word_of` returns the
    /// time at which a bucket is full, now that no thread calls; 0 if it is full.
    pub(crate) fn round(
        &mut self,
        records: &mut [Record],
        word_of: impl Fn(u32) -> u64,
    ) -> Result<(), Violation> {
        records.sort_unstable_by_key(|record| (record.key, record.now_ns));
        for calls in records.chunk_by_mut(|a, b| a.key == b.key) {
            let key = calls[0].key;
            let mut carried = self.buckets.get(&key).copied().unwrap_or_default();
            let late = self.chain(calls, carried.word_ns, word_of(key))?;
            self.scan(calls, &late, &mut carried.scan)?;
            carried.word_ns = word_of(key);
            self.buckets.insert(key, carried);
        }
        Ok(())
    }

    fn cost_ns(&self, call: &Record) -> u64 {
        self.rule.interval_ns * u64::from(call.cost)
    }

    /// The word that a call found, if its record tells: not if the bucket was full, or is full by a refund.
    fn met_ns(&self, call: &Record) -> Option<u64> {
        let word_ns = call.now_ns + call.full_in_ns;
        match call.kind {
            CallKind::Admitted => {
                (call.full_in_ns > self.cost_ns(call)).then(|| word_ns - self.cost_ns(call))
            }
            CallKind::Denied => Some(word_ns),
            CallKind::Refunded => (call.full_in_ns > 0).then(|| word_ns + self.cost_ns(call)),
        }
    }

    /// Matches the words that calls found with the words that others left. Returns, by index in `calls`,
    /// the later time at which a spend was decided, because a sweep had dropped its bucket.
    fn chain(
        &mut self,
        calls: &[Record],
        first_ns: u64,
        last_ns: u64,
    ) -> Result<HashMap<usize, u64>, Violation> {
        let key = calls[0].key;
        // How often each word was left and not yet found, for every word that was ever left.
        let mut left: HashMap<u64, i64> = HashMap::with_capacity(calls.len());
        left.insert(first_ns, 1);
        for call in calls.iter().filter(|call| call.kind != CallKind::Denied) {
            // A refund may bring a word back, so that a word is left twice.
            *left.entry(call.now_ns + call.full_in_ns).or_default() += 1;
        }
        let mut unmet = left.clone();
        let mut late = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            match call.kind {
                CallKind::Denied => self.counts.denied += 1,
                CallKind::Admitted => self.counts.admitted += 1,
                CallKind::Refunded => self.counts.refunded += 1,
            }
            let Some(met_ns) = self.met_ns(call) else { continue };
            let was_left = left.contains_key(&met_ns);
            if call.kind == CallKind::Denied {
                // A denial leaves the word that it found.
                if !was_left {
                    return Err(Violation(format!("key {key}: no call left {met_ns}: {call:?}")));
                }
                continue;
            }
            let unmet = unmet.entry(met_ns).or_default();
            if *unmet > 0 {
                *unmet -= 1;
                self.counts.linked += 1;
            } else if call.kind == CallKind::Admitted && met_ns <= call.swept_ns {
                late.insert(at, met_ns);
            } else if was_left {
                return Err(Violation(format!("key {key}: {met_ns} was met twice: {call:?}")));
            } else {
                return Err(Violation(format!("key {key}: no call left {met_ns}: {call:?}")));
            }
            // (A refund by a clock that is behind may leave more.)
            let decided_ns = late.get(&at).copied().unwrap_or(call.now_ns);
            let owed_ns = call.now_ns + call.full_in_ns - decided_ns;
            if call.kind == CallKind::Admitted && owed_ns > self.rule.burst * self.rule.interval_ns
            {
                return Err(Violation(format!("key {key}: more than a burst is owed: {call:?}")));
            }
        }
        self.counts.late += late.len() as u64;
        match (last_ns, unmet.get(&last_ns)) {
            (0, _) | (_, Some(1..)) => Ok(late),
            (_, Some(_)) => Err(Violation(format!("key {key}: {last_ns} is there, and was met"))),
            (_, None) => Err(Violation(format!("key {key}: no call left {last_ns}"))),
        }
    }

    /// Checks the bound. A thread that stalled after it read the clock spends later than its stamp tells.
    /// So a refund counts as in between if it began before the end of any spend of the window, or of a
    /// spend with an earlier stamp.
    fn scan(
        &mut self,
        calls: &[Record],
        late: &HashMap<usize, u64>,
        scan: &mut Scan,
    ) -> Result<(), Violation> {
        let mut spends = Vec::new();
        let (mut begins, mut ends) = (Vec::new(), Vec::new());
        for (at, call) in calls.iter().enumerate() {
            let ns = self.cost_ns(call);
            match (call.kind, late.get(&at)) {
                (CallKind::Denied, _) => {}
                (CallKind::Admitted, at_ns) => {
                    spends.push((at_ns.copied().unwrap_or(call.now_ns), call.end_ns, ns));
                }
                (CallKind::Refunded, _) => {
                    begins.push((call.now_ns, ns));
                    ends.push((call.end_ns, ns));
                }
            }
        }
        spends.sort_unstable();
        begins.sort_unstable();
        ends.sort_unstable();
        let (mut begins, mut ends) = (begins.into_iter().peekable(), ends.into_iter().peekable());
        let burst_ns = i128::from(self.rule.burst * self.rule.interval_ns);
        for (at_ns, end_ns, ns) in spends {
            scan.latest_end_ns = scan.latest_end_ns.max(end_ns);
            while let Some((_, ns)) = ends.next_if(|&(end_ns, _)| end_ns < at_ns) {
                scan.ended_ns += i128::from(ns);
            }
            while let Some((_, ns)) =
                begins.next_if(|&(begin_ns, _)| begin_ns <= scan.latest_end_ns)
            {
                scan.begun_ns += i128::from(ns);
            }
            let start_ns = scan.spent_ns - i128::from(at_ns) - scan.ended_ns;
            let least_ns = scan.least_start_ns.map_or(start_ns, |least| least.min(start_ns));
            scan.least_start_ns = Some(least_ns);
            scan.spent_ns += i128::from(ns);
            let most_ns = scan.spent_ns - i128::from(at_ns) - scan.begun_ns - least_ns;
            let Ok(left_ns) = u64::try_from(burst_ns - most_ns) else {
                let (key, over) = (calls[0].key, most_ns - burst_ns);
                return Err(Violation(format!("key {key}: {over} ns above the bound at {at_ns}")));
            };
            let least = self.counts.least_left_ns.get_or_insert(left_ns);
            *least = left_ns.min(*least);
        }
        scan.ended_ns += ends.map(|(_, ns)| i128::from(ns)).sum::<i128>();
        scan.begun_ns += begins.map(|(_, ns)| i128::from(ns)).sum::<i128>();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { burst: 4, interval_ns: 100 };

    fn record(kind: CallKind, cost: u8, now_ns: u64, full_in_ns: u64, swept_ns: u64) -> Record {
        Record { key: 1, kind, cost, now_ns, full_in_ns, end_ns: now_ns + 1, swept_ns }
    }

    fn checked(records: &mut [Record], last_ns: u64) -> Result<Counts, String> {
        let mut checker = Checker::new(RULE);
        checker.round(records, |_| last_ns).map_err(|found| found.0)?;
        Ok(checker.counts)
    }

    /// A spend leaves a word, which a refund brings back. Two calls find it.
    #[test]
    fn word_brought_back_by_refund_is_left_twice() {
        let mut records = [
            record(CallKind::Admitted, 2, 1_000, 200, 0),
            record(CallKind::Admitted, 1, 1_010, 290, 0),
            record(CallKind::Refunded, 1, 1_020, 180, 0),
            record(CallKind::Admitted, 1, 1_030, 270, 0),
        ];
        assert_eq!(checked(&mut records, 1_300).unwrap().linked, 3);
        // Without the refund, one of the two is lost.
        let found = checked(&mut [records[0], records[1], records[3]], 1_300).unwrap_err();
        assert!(found.contains("met twice"), "{found:?}");
    }

    /// A spend finds a word that no call left: a sweep dropped the bucket, or the word was changed.
    #[test]
    fn word_without_call_is_time_of_sweep() {
        let late = |swept_ns| [record(CallKind::Admitted, 2, 1_000, 250, swept_ns)];
        assert_eq!(checked(&mut late(1_050), 1_250).unwrap().late, 1);
        let found = checked(&mut late(1_049), 1_250).unwrap_err();
        assert!(found.contains("no call left 1050"), "{found:?}");
        // A burst is owed since the sweep, or a nanosecond more.
        assert!(checked(&mut [record(CallKind::Admitted, 4, 1_000, 450, 1_050)], 1_450).is_ok());
        let mut records = [
            record(CallKind::Admitted, 4, 1_000, 450, 1_050),
            record(CallKind::Admitted, 1, 1_149, 401, 1_050),
        ];
        let found = checked(&mut records, 1_550).unwrap_err();
        assert!(found.contains("more than a burst"), "{found:?}");
    }
}
