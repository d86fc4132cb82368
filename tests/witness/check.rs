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
//!
//! The check sorts: n log n. One fact is not recorded: a spend on a dropped bucket may have been decided at
//! the time of the sweep, which is later than the caller's. The call that found the spend's word tells that
//! time. If no call found it, the spend is in no window, and is counted.

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
    /// Spends whose sweep time a later call revealed.
    pub(crate) late_found: u64,
    /// Spends that are in no window.
    pub(crate) late_unknown: u64,
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
    /// the later time at which a sweep let a spend be decided; 0: not known.
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
        let mut may_be_late = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            if call.kind == CallKind::Denied {
                continue;
            }
            // (A refund by a clock that is behind may leave more.)
            let burst_ns = self.rule.burst * self.rule.interval_ns;
            if call.kind == CallKind::Admitted && call.full_in_ns > burst_ns {
                return Err(Violation(format!("key {key}: more than a burst is owed: {call:?}")));
            }
            let met_full = call.kind == CallKind::Admitted && call.full_in_ns == self.cost_ns(call);
            if met_full && call.swept_ns > call.now_ns {
                may_be_late.push(at);
                continue;
            }
            *left.entry(call.now_ns + call.full_in_ns).or_default() += 1;
        }
        let mut late = HashMap::new();
        for word_ns in self.missing(calls, last_ns, &left) {
            // The spend that left the word: it was decided later than its reading, and no later than the
            // sweep.
            let is_it = |&at: &usize| {
                let at_ns = word_ns.checked_sub(self.cost_ns(&calls[at]));
                at_ns.is_some_and(|at_ns| (calls[at].now_ns..=calls[at].swept_ns).contains(&at_ns))
            };
            let mut fitting: Vec<usize> = may_be_late.iter().copied().filter(is_it).collect();
            // Of the spends that fit, the one with the least choice.
            fitting.sort_unstable_by_key(|&at| calls[at].swept_ns);
            let Some(&at) = fitting.first() else {
                if left.contains_key(&word_ns) {
                    // `meet` finds that it was met too often.
                    continue;
                }
                let who: Vec<_> =
                    calls.iter().filter(|call| self.met_ns(call) == Some(word_ns)).collect();
                return Err(Violation(format!("key {key}: no call left {word_ns}: {who:?}")));
            };
            may_be_late.retain(|&other| other != at);
            late.insert(at, word_ns - self.cost_ns(&calls[at]));
            *left.entry(word_ns).or_default() += 1;
        }
        self.counts.late_found += late.len() as u64;
        self.counts.late_unknown += may_be_late.len() as u64;
        late.extend(may_be_late.into_iter().map(|at| (at, 0)));
        self.meet(calls, &mut left)?;
        match left.get(&last_ns) {
            Some(..1) => Err(Violation(format!("key {key}: {last_ns} is there, and was met"))),
            _ => Ok(late),
        }
    }

    /// Returns the words that were found more often than left, as often as that, in order. A refund may bring a word back,
    /// so that a word is left twice.
    fn missing(&self, calls: &[Record], last_ns: u64, left: &HashMap<u64, i64>) -> Vec<u64> {
        let mut needed: HashMap<u64, i64> = HashMap::new();
        if last_ns > 0 {
            needed.insert(last_ns, 1);
        }
        for call in calls.iter().filter(|call| call.kind != CallKind::Denied) {
            if let Some(met_ns) = self.met_ns(call) {
                *needed.entry(met_ns).or_default() += 1;
            }
        }
        // A denial leaves the word that it found.
        for call in calls.iter().filter(|call| call.kind == CallKind::Denied) {
            needed.entry(call.now_ns + call.full_in_ns).or_insert(1);
        }
        let mut missing = Vec::new();
        for (word_ns, needed) in needed {
            let found = left.get(&word_ns).copied().unwrap_or_default();
            missing.extend((found..needed).map(|_| word_ns));
        }
        missing.sort_unstable();
        missing
    }

    /// Removes the words that calls found from those that were left, and counts.
    fn meet(&mut self, calls: &[Record], left: &mut HashMap<u64, i64>) -> Result<(), Violation> {
        for call in calls {
            match call.kind {
                CallKind::Denied => {
                    self.counts.denied += 1;
                    continue;
                }
                CallKind::Admitted => self.counts.admitted += 1,
                CallKind::Refunded => self.counts.refunded += 1,
            }
            let Some(met_ns) = self.met_ns(call) else { continue };
            self.counts.linked += 1;
            let left = left.entry(met_ns).or_default();
            *left -= 1;
            if *left < 0 {
                let key = call.key;
                return Err(Violation(format!("key {key}: {met_ns} was met twice: {call:?}")));
            }
        }
        Ok(())
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
                (CallKind::Denied, _) | (CallKind::Admitted, Some(0)) => {}
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

    /// A spend that may have been decided at a sweep's time leaves a word, which a refund brings back. Two calls find it.
    #[test]
    fn word_brought_back_by_refund_is_left_twice() {
        const RULE: Rule = Rule { burst: 4, interval_ns: 100 };
        let record = |kind, cost, now_ns, full_in_ns, swept_ns| Record {
            key: 1,
            kind,
            cost,
            now_ns,
            full_in_ns,
            end_ns: now_ns + 1,
            swept_ns,
        };
        let history = |swept_ns| {
            [
                record(CallKind::Admitted, 2, 1_000, 200, swept_ns),
                record(CallKind::Admitted, 1, 1_010, 290, swept_ns),
                record(CallKind::Refunded, 1, 1_020, 180, swept_ns),
                record(CallKind::Admitted, 1, 1_030, 270, swept_ns),
            ]
        };
        for swept_ns in [0, 1_005] {
            let mut records = history(swept_ns);
            assert_eq!(Checker::new(RULE).round(&mut records, |_| 1_300), Ok(()), "{swept_ns}");
            // Without the refund, one of the two is lost.
            let mut records = [records[0], records[1], records[3]];
            let found = Checker::new(RULE).round(&mut records, |_| 1_300).unwrap_err();
            assert!(found.0.contains("met twice"), "{found:?}");
        }
    }
}
