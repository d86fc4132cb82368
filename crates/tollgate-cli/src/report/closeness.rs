//! How close keys came to their limits.

use tollgate::Decision;
use tollgate::limit::Factor;

use crate::side::Side;
use crate::tally::KeyNo;

/// Of each key the largest share of its limit that was in use at once, in tenths: one byte a key.
#[derive(Debug, Default)]
pub(crate) struct Closeness {
    /// By [`KeyNo`]; a key that is not there used nothing.
    tenths: Vec<u8>,
}

/// How many keys came how close.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Keys that were never denied: those that used less than a tenth, less than two, and so on. Those
    /// that used all of it are with the last.
    pub(crate) keys: [u64; TENTHS],
    /// Keys that were denied at least once.
    pub(crate) denied: u64,
}

pub(crate) const TENTHS: usize = 10;

impl Closeness {
    /// Sees a spend that was allowed. `factor` is that with which a key was asked for, if the spend was
    /// charged to it.
    pub(crate) fn see(
        &mut self,
        side: &Side,
        keys: &[KeyNo],
        decision: &Decision,
        factor: impl Fn(usize) -> Option<Factor>,
    ) {
        // Of several keys, the decision says the strictest one's.
        let remaining = decision.remaining().filter(|_| keys.len() == 1);
        for (position, key) in keys.iter().enumerate() {
            let Some(factor) = factor(position) else { continue };
            let asked = side.tally.get(*key);
            let used = side.engine.used_tenths(asked.limit, &asked.id, factor, remaining);
            let Some(used) = used else { continue };
            if self.tenths.len() <= key.index() {
                self.tenths.resize(key.index() + 1, 0);
            }
            let most = &mut self.tenths[key.index()];
            *most = used.max(*most);
        }
    }

    /// Counts the keys of each limit that were seen, by its number.
    pub(crate) fn shares(&self, side: &Side) -> Vec<Shares> {
        let mut by_limit: Vec<Shares> = Vec::new();
        for (key, limit, denied) in side.tally.seen() {
            if by_limit.len() <= limit.index() {
                by_limit.resize(limit.index() + 1, Shares::default());
            }
            let shares = &mut by_limit[limit.index()];
            if denied > 0 {
                shares.denied += 1;
            } else {
                let tenths = self.tenths.get(key.index()).copied().unwrap_or_default();
                shares.keys[usize::from(tenths).min(TENTHS - 1)] += 1;
            }
        }
        by_limit
    }
}
