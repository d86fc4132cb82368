//! Checks recorded calls: that they are one history of each bucket, and that the bound holds over it.
//!
//! A decision tells when its bucket is full again, and the clock's reading is known, so each call tells
//! the word that it left, to the nanosecond; and if the bucket was not full, the word that it met:
//!
//! - **The chain.** What a call met is what another left, and no two calls met the same. A spend that was
//!   lost, or decided on a stale word, is met twice or never. What a denial met was left by somebody.
//! - **The bound.** Over all windows, by one scan: what was admitted in `[a, b]`, less what was given back
//!   by refunds that may have been in between, is at most `burst + (b - a) / interval`.
//!
//! Sorting is all it takes: n log n. One thing is not told: a spend of a bucket that was dropped may have
//! been decided at the time of the sweep, which is later than the caller's. Such a stamp is found by who
//! met what the spend left; if nobody did, the spend stands in no window, and is counted.

use std::collections::HashMap;

/// The numbers of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) burst: u64,
    pub(crate) interval_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Admitted,
    Denied,
    /// A refund that gave something back.
    Refunded,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) key: u32,
    pub(crate) kind: Kind,
    pub(crate) cost: u8,
    /// The reading of the clock that the call decided by.
    pub(crate) now_ns: u64,
    /// In how long the bucket is full again, the call included.
    pub(crate) full_in_ns: u64,
    /// A time after the call.
    pub(crate) end_ns: u64,
    /// No sweep that the call can have met was made at a later time.
    pub(crate) swept_ns: u64,
}

/// A bucket's history is none, or breaks the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

/// What has been checked so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    pub(crate) refunded: u64,
    /// Spends that met what another call left; the others met a full bucket.
    pub(crate) linked: u64,
    /// Stamps of sweeps, found by who came next.
    pub(crate) late_found: u64,
    /// Spends in no window.
    pub(crate) late_unknown: u64,
    /// The least that any window had left, in ns of its limit.
    pub(crate) least_left_ns: Option<u64>,
}

/// What is carried from round to round of one bucket.
#[derive(Clone, Copy, Default)]
struct Carried {
    /// What the bucket's word is; 0: full.
    word_ns: u64,
    scan: Scan,
}

/// The running minimum over all windows' beginnings.
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

    /// Checks a round: all calls since the last one, of all threads, in any order. `word_of` tells when a
    /// bucket is full, now that nobody calls; 0 if it is.
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

    /// The word that a call met, if it tells: not if the bucket was full, or is by a refund.
    fn met_ns(&self, call: &Record) -> Option<u64> {
        let word_ns = call.now_ns + call.full_in_ns;
        match call.kind {
            Kind::Admitted => {
                (call.full_in_ns > self.cost_ns(call)).then(|| word_ns - self.cost_ns(call))
            }
            Kind::Denied => Some(word_ns),
            Kind::Refunded => (call.full_in_ns > 0).then(|| word_ns + self.cost_ns(call)),
        }
    }

    /// Matches what calls met with what others left. Returns the times of those spends, by their places
    /// in `calls`, that a sweep made later; 0: not known.
    fn chain(
        &mut self,
        calls: &[Record],
        first_ns: u64,
        last_ns: u64,
    ) -> Result<HashMap<usize, u64>, Violation> {
        let key = calls[0].key;
        // How often each word was left and not met, and whether it was ever.
        let mut left: HashMap<u64, i64> = HashMap::with_capacity(calls.len());
        left.insert(first_ns, 1);
        let mut may_be_late = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            if call.kind == Kind::Denied {
                continue;
            }
            // (A refund by a clock that is behind may leave more.)
            let burst_ns = self.rule.burst * self.rule.interval_ns;
            if call.kind == Kind::Admitted && call.full_in_ns > burst_ns {
                return Err(Violation(format!("key {key}: more than a burst is owed: {call:?}")));
            }
            let met_full = call.kind == Kind::Admitted && call.full_in_ns == self.cost_ns(call);
            if met_full && call.swept_ns > call.now_ns {
                may_be_late.push(at);
                continue;
            }
            *left.entry(call.now_ns + call.full_in_ns).or_default() += 1;
        }
        let mut late = HashMap::new();
        let mut missing: Vec<u64> = calls.iter().filter_map(|call| self.met_ns(call)).collect();
        missing.extend((last_ns > 0).then_some(last_ns));
        missing.retain(|word_ns| !left.contains_key(word_ns));
        missing.sort_unstable();
        missing.dedup();
        for word_ns in missing {
            // The spend that left it: its decision is later than its reading, and no later than the sweep.
            let is_it = |&at: &usize| {
                let at_ns = word_ns.checked_sub(self.cost_ns(&calls[at]));
                at_ns.is_some_and(|at_ns| (calls[at].now_ns..=calls[at].swept_ns).contains(&at_ns))
            };
            let mut fitting: Vec<usize> = may_be_late.iter().copied().filter(is_it).collect();
            // The one that has the least choice.
            fitting.sort_unstable_by_key(|&at| calls[at].swept_ns);
            let Some(&at) = fitting.first() else {
                let who: Vec<_> =
                    calls.iter().filter(|call| self.met_ns(call) == Some(word_ns)).collect();
                return Err(Violation(format!("key {key}: nobody left {word_ns}: {who:?}")));
            };
            may_be_late.retain(|&other| other != at);
            late.insert(at, word_ns - self.cost_ns(&calls[at]));
            left.insert(word_ns, 1);
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

    /// Takes what calls met from what was left; and counts.
    fn meet(&mut self, calls: &[Record], left: &mut HashMap<u64, i64>) -> Result<(), Violation> {
        for call in calls {
            match call.kind {
                Kind::Denied => {
                    self.counts.denied += 1;
                    continue;
                }
                Kind::Admitted => self.counts.admitted += 1,
                Kind::Refunded => self.counts.refunded += 1,
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

    /// The bound. Who stood still after reading the clock spends later than its stamp tells; so a refund
    /// counts as in between if it began before the end of any spend of the window, or of an earlier stamp.
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
                (Kind::Denied, _) | (Kind::Admitted, Some(0)) => {}
                (Kind::Admitted, at_ns) => {
                    spends.push((at_ns.copied().unwrap_or(call.now_ns), call.end_ns, ns));
                }
                (Kind::Refunded, _) => {
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
