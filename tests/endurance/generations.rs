//! Tells which limits may have decided a call.

/// The times at which a limit was changed.
#[derive(Default)]
pub(crate) struct Generations(Vec<Generation>);

#[derive(Clone, Copy)]
struct Generation {
    /// The begin of the call that changed it, and its end.
    began_ns: u64,
    over_ns: u64,
    /// The bursts of this generation and all before.
    bursts: i128,
}

impl Generations {
    pub(crate) fn add(&mut self, began_ns: u64, over_ns: u64, burst: u64) {
        let before = self.0.last().map_or(0, |last| last.bursts);
        self.0.push(Generation { began_ns, over_ns, bursts: before + i128::from(burst) });
    }

    /// The first generation that may decide a call at this time: until a change is complete, the one before
    /// it.
    pub(crate) fn first_at(&self, at_ns: u64) -> usize {
        self.0.partition_point(|generation| generation.over_ns < at_ns).saturating_sub(1)
    }

    /// The last generation that may decide it.
    pub(crate) fn last_at(&self, at_ns: u64) -> usize {
        self.0.partition_point(|generation| generation.began_ns <= at_ns).saturating_sub(1)
    }

    /// The sum of the bursts of all generations before one.
    pub(crate) fn bursts_before(&self, generation: usize) -> i128 {
        match generation.checked_sub(1) {
            Some(before) => self.0[before.min(self.0.len() - 1)].bursts,
            None => 0,
        }
    }
}
