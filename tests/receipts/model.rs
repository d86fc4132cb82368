//! A bucket of each algorithm in plain integers. Times pass window by window and drip by drip, and waits are searched.
//!
//! `i128` stands for unbounded integers: no time is above 2^64 and no count above 2^10, so no product comes near 2^127.

use std::cmp::Ordering;

pub(crate) const NS_PER_MS: i128 = 1_000_000;

/// What a denial of permits tells the caller to wait, in ns.
const RETRY: i128 = 1_000_000_000;

/// A limit. Times of gcra are in ns, of the others in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Gcra {
        burst: i128,
        interval: i128,
        debt: i128,
    },
    /// A fixed window's burst is its quota.
    Window {
        quota: i128,
        burst: i128,
        window: i128,
        debt: i128,
        is_fixed: bool,
    },
    Leaky {
        size: i128,
        drip: i128,
        rate: i128,
        debt: i128,
    },
    /// `most`: the largest cost of a call.
    Permits {
        max: i128,
        most: i128,
    },
}

/// `at`: of gcra the ns at which it is full, else the ms at which the window opened or the last drip fell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    at: i128,
    pub(crate) used: i128,
}

/// The figures of a decision, waits in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) remaining: i128,
    pub(crate) retry: i128,
    pub(crate) reset: i128,
}

/// What a later settlement needs to know of a charge: of a fixed window, when it opened.
pub(crate) type Mark = i128;

impl Answer {
    /// The stricter of two; the later one if both are as strict.
    pub(crate) fn stricter(self, later: Answer) -> Answer {
        let rank = |answer: &Answer| (!answer.allowed, answer.retry, -answer.remaining);
        if rank(&self).cmp(&rank(&later)) == Ordering::Greater { self } else { later }
    }
}

fn ms_of(now: i128) -> i128 {
    (now - 1) / NS_PER_MS + 1
}

fn ceil(number: i128, by: i128) -> i128 {
    (number + by - 1).div_euclid(by)
}

impl Rule {
    pub(crate) fn most(self) -> i128 {
        match self {
            Rule::Gcra { burst, .. } | Rule::Window { burst, .. } => burst,
            Rule::Leaky { size, .. } => size,
            Rule::Permits { most, .. } => most,
        }
    }

    /// What a period takes away, and its length in ms.
    fn period(self) -> (i128, i128) {
        match self {
            Rule::Window { quota, window, .. } => (quota, window),
            Rule::Leaky { drip, rate, .. } => (drip, rate),
            _ => unreachable!("{self:?} has no periods"),
        }
    }

    /// The bucket when its periods until a call have passed, and the call's ms, at least the bucket's own.
    fn passed(self, mut bucket: Bucket, ms: i128) -> (Bucket, i128) {
        let ((takes, length), now) = (self.period(), ms.max(bucket.at));
        while bucket.used > 0 && now - bucket.at >= length {
            bucket = Bucket { at: bucket.at + length, used: (bucket.used - takes).max(0) };
        }
        if bucket.used == 0 {
            bucket.at = now;
        }
        (bucket, now)
    }

    fn holds(self, bucket: Bucket, ms: i128, needed: i128) -> bool {
        let (bucket, now) = self.passed(bucket, ms);
        match self {
            Rule::Window { quota, burst, window, .. } => {
                let gained = (quota - burst) * (now - bucket.at);
                (burst - bucket.used - needed) * window + gained >= 0
            }
            Rule::Leaky { size, .. } => bucket.used + needed <= size,
            _ => unreachable!("{self:?} has no periods"),
        }
    }

    /// The ms until the bucket holds units.
    fn wait(self, bucket: Bucket, ms: i128, needed: i128) -> i128 {
        let (takes, length) = self.period();
        let periods = (bucket.used + needed) / takes + 2;
        let (mut low, mut high) = (0, periods * length + (bucket.at - ms).max(0));
        assert!(self.holds(bucket, ms + high, needed), "{self:?} {bucket:?} {needed}");
        while low < high {
            let middle = (low + high) / 2;
            match self.holds(bucket, ms + middle, needed) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }

    /// The answer about a bucket that is charged already, or that denies.
    fn answer(self, bucket: Bucket, now: i128, needed: i128, allowed: bool) -> Answer {
        let (remaining, retry, reset) = match self {
            Rule::Gcra { burst, interval, .. } => {
                let from = now.max(bucket.at);
                let left = now + burst * interval - from;
                let remaining = left.div_euclid(interval).max(0);
                (remaining, (needed * interval - left).max(0), from - now)
            }
            Rule::Permits { max, .. } => {
                let left = (max - bucket.used).max(0);
                let waits = |is_waiting| if is_waiting { RETRY } else { 0 };
                (left, waits(!allowed || needed > left), waits(bucket.used > 0))
            }
            Rule::Window { .. } | Rule::Leaky { .. } => {
                let (ms, (takes, length)) = (ms_of(now), self.period());
                let retry = self.wait(bucket, ms, needed);
                let bucket = self.passed(bucket, ms).0;
                let most = if let Rule::Window { quota, .. } = self { quota } else { self.most() };
                let full_at = bucket.at + ceil(bucket.used, takes) * length;
                let reset = if bucket.used == 0 { 0 } else { full_at - ms };
                ((most - bucket.used).max(0), retry * NS_PER_MS, reset * NS_PER_MS)
            }
        };
        Answer { allowed, remaining, retry, reset }
    }

    /// Charges a cost if the bucket then has `leave` more.
    pub(crate) fn spend(
        self,
        bucket: Bucket,
        now: i128,
        (cost, leave): (i128, i128),
    ) -> (Bucket, Answer) {
        let needed = cost + leave;
        let allowed = match self {
            Rule::Gcra { burst, interval, .. } => {
                now.max(bucket.at) + needed * interval <= now + burst * interval
            }
            Rule::Permits { max, .. } => bucket.used + needed <= max,
            _ => self.holds(bucket, ms_of(now), needed),
        };
        let after = match self {
            _ if !allowed || cost == 0 => bucket,
            Rule::Gcra { interval, .. } => {
                Bucket { at: now.max(bucket.at) + cost * interval, ..bucket }
            }
            Rule::Permits { .. } => Bucket { used: bucket.used + cost, ..bucket },
            _ => {
                let bucket = self.passed(bucket, ms_of(now)).0;
                Bucket { used: bucket.used + cost, ..bucket }
            }
        };
        (after, self.answer(after, now, needed, allowed))
    }

    pub(crate) fn check(self, bucket: Bucket, now: i128) -> Answer {
        self.spend(bucket, now, (0, 0)).1
    }

    pub(crate) fn mark(self, charged: Bucket) -> Mark {
        charged.at
    }

    /// Replaces an estimate by the actual cost.
    pub(crate) fn settle(
        self,
        bucket: Bucket,
        now: i128,
        (estimate, actual): (i128, i128),
        mark: Mark,
    ) -> Bucket {
        let (less, more) = ((estimate - actual).max(0), (actual - estimate).max(0));
        if let Rule::Gcra { burst, interval, debt } = self {
            let from = now.max(bucket.at);
            let lowered = (from - less * interval).max(now);
            let raised = (from + more * interval).min(now + (burst + debt) * interval);
            // A bucket that is full takes nothing back, and one that owes more than its debt owes no more.
            let at = match actual.cmp(&estimate) {
                Ordering::Less if lowered < bucket.at => lowered,
                Ordering::Greater if raised > from => raised,
                _ => bucket.at,
            };
            return Bucket { at, ..bucket };
        }
        let (passed, at) = self.passed(bucket, ms_of(now));
        if actual < estimate {
            let is_other = matches!(self, Rule::Window { is_fixed: true, .. } if passed.at != mark);
            let used = (passed.used - less).max(0);
            return match (is_other || used == passed.used, used) {
                (true, _) => bucket,
                (false, 0) => Bucket { at, used },
                (false, _) => Bucket { used, ..passed },
            };
        }
        let most = match self {
            Rule::Window { quota, burst, window, debt, .. } => {
                let gained = (quota - burst) * (at - passed.at) / window;
                (burst + gained).min(quota) + debt
            }
            Rule::Leaky { size, debt, .. } => size + debt,
            _ => unreachable!("permits are not settled"),
        };
        let used = (passed.used + more).min(most);
        if used > passed.used { Bucket { used, ..passed } } else { bucket }
    }
}
