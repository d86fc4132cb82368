//! Measures how close keys came to their limits.

use crate::side::{Answer, Side};
use crate::tally::{PerLimit, grown};

/// For each key the largest share of its limit that was in use at once, in tenths.
#[derive(Debug, Default)]
pub(crate) struct Closeness {
    /// By [`KeyNo`](crate::tally::KeyNo). A key that is missing used nothing.
    tenths: Vec<u8>,
}

/// The number of keys for each share of the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Keys that were never denied, by the largest share in tenths, rounded down. Those that used the whole
    /// limit are in the last one.
    pub(crate) keys: [u64; TENTHS],
    /// Keys that were denied at least once.
    pub(crate) denied: u64,
}

pub(crate) const TENTHS: usize = 10;

impl Closeness {
    /// Counts a spend if it was allowed.
    pub(crate) fn count(&mut self, side: &Side, answer: &Answer) {
        if !answer.decision.allowed() {
            return;
        }
        // With several keys, the decision has the units left for the strictest one.
        let remaining = answer.decision.remaining().filter(|_| answer.keys.len() == 1);
        for (key_no, factor) in answer.keys.iter().zip(&answer.charged) {
            let key = side.tally.get(*key_no);
            let tenths = factor
                .and_then(|factor| side.engine.used_tenths(key.limit, &key.id, factor, remaining));
            if let Some(tenths) = tenths {
                let largest = grown(&mut self.tenths, key_no.index());
                *largest = tenths.max(*largest);
            }
        }
    }

    /// Counts the keys of each limit.
    pub(crate) fn shares(&self, side: &Side) -> PerLimit<Shares> {
        let mut by_limit: PerLimit<Shares> = PerLimit::default();
        for (key_no, key) in side.tally.seen() {
            let shares = by_limit.get_mut(key.limit);
            if key.denied > 0 {
                shares.denied += 1;
            } else {
                let tenths = self.tenths.get(key_no.index()).copied().unwrap_or_default();
                shares.keys[usize::from(tenths).min(TENTHS - 1)] += 1;
            }
        }
        by_limit
    }
}
