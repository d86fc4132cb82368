//! A naive limiter: unbounded integers, one map, one thread.

use std::collections::HashMap;

/// The numbers of a limit, as `docs/internals/algorithms.md` derives them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) burst: i128,
    pub(crate) emission_interval: i128,
}

impl Numbers {
    pub(crate) fn new(burst: u64, count: u64, period_ns: u64) -> Numbers {
        Numbers { burst: burst.into(), emission_interval: i128::from(period_ns / count) }
    }

    fn burst_offset(self) -> i128 {
        self.burst * self.emission_interval
    }
}

/// allowed, remaining, retry_in and reset_in; `None`: no limit.
pub(crate) type Figures = Option<(bool, i128, i128, i128)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    CheckAndSpend,
    CheckOnly,
    SpendOnly,
}

/// A member of a batch: bucket, numbers, cost and mode.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) bucket: u64,
    pub(crate) numbers: Numbers,
    pub(crate) cost: i128,
    pub(crate) mode: Mode,
}

/// Buckets by number; each value is the time at which the bucket is full.
#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    tats: HashMap<u64, i128>,
    pub(crate) now: i128,
}

impl Oracle {
    /// All buckets are full, and the clock is at its origin.
    pub(crate) fn new() -> Oracle {
        Oracle { tats: HashMap::new(), now: 1 }
    }

    pub(crate) fn ask(&self, member: &Member) -> (Figures, i128) {
        let (ei, bo) = (member.numbers.emission_interval, member.numbers.burst_offset());
        let now = self.now;
        let t = self.tats.get(&member.bucket).copied().unwrap_or(now).max(now);
        let inc = ei * member.cost;
        let n = t + inc;
        let diff = now - (n - bo);
        if diff < 0 {
            (Some((false, ((now - (t - bo)) / ei).max(0), -diff, t - now)), t)
        } else {
            (Some((true, diff / ei, (inc - diff).max(0), n - now)), n)
        }
    }

    pub(crate) fn check(&self, batch: &[Member]) -> Figures {
        let deciding = batch.iter().filter(|member| member.mode != Mode::SpendOnly);
        strictest(deciding.map(|member| self.ask(member).0))
    }

    pub(crate) fn spend(&mut self, batch: &[Member]) -> Figures {
        let decision = self.check(batch);
        if decision.is_none_or(|(allowed, ..)| allowed) {
            for member in batch {
                let (figures, tat) = self.ask(member);
                if member.mode != Mode::CheckOnly && figures.unwrap().0 {
                    self.tats.insert(member.bucket, tat);
                }
            }
        }
        decision
    }

    pub(crate) fn refund(&mut self, batch: &[Member]) -> Figures {
        let each: Vec<Figures> = batch.iter().map(|member| self.refund_one(member)).collect();
        strictest(each.into_iter())
    }

    fn refund_one(&mut self, member: &Member) -> Figures {
        let (ei, bo, now) =
            (member.numbers.emission_interval, member.numbers.burst_offset(), self.now);
        let tat = self.tats.get(&member.bucket).copied().unwrap_or(now).max(now);
        let cost = if member.mode == Mode::CheckOnly { 0 } else { member.cost };
        let given = (tat - ei * cost).max(now);
        self.tats.insert(member.bucket, given);
        Some((given != tat, ((now - (given - bo)) / ei).max(0), 0, given - now))
    }

    pub(crate) fn reset(&mut self, batch: &[Member]) -> Figures {
        let each: Vec<Figures> = batch
            .iter()
            .map(|member| {
                if member.mode == Mode::CheckOnly {
                    return self.ask(&Member { cost: 0, ..member.clone() }).0;
                }
                self.tats.remove(&member.bucket);
                Some((true, member.numbers.burst, 0, 0))
            })
            .collect();
        strictest(each.into_iter())
    }
}

/// Returns the strictest decision: denied before allowed, the longer wait, fewer units left, the later one.
fn strictest(each: impl Iterator<Item = Figures>) -> Figures {
    let rank =
        |(allowed, remaining, retry, _): (bool, i128, i128, i128)| (!allowed, retry, -remaining);
    each.flatten().reduce(|a, b| if rank(a) > rank(b) { a } else { b })
}
