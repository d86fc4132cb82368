//! Bounds the calls to the store that a node has under way.
//!
//! A node can be called more often than it can ask its store. Then its callers would wait for each other, and the last ones
//! longer than the store's timeout. So a call begins only while few enough are under way; another one is denied at once. One
//! id may have at most a quarter of them under way, so that a flood of its calls leaves room for other ids. A call of an id that
//! was denied last begins only while less than half of them are under way, so that a flood of many ids leaves room as well.

use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use smallvec::SmallVec;

use crate::error::Error;
use crate::util::sync::{FigureUsize, Ordering};

/// The time that a node takes for a call when it has many, with a margin for slower processors: `speed_node.rs` measures 11 us
/// for both threads, and 16 us were measured on others.
const A_CALL: Duration = Duration::from_micros(25);
/// The fewest and the most calls under way.
const FEWEST: usize = 64;
const MOST: usize = 8_192;
/// The parts into which ids are divided by a hash.
const PARTS: usize = 256;
/// The share of a part: one in this number.
const SHARE: usize = 4;
/// The calls of one part from which they may be late because of each other.
const CROWD: usize = 8;

/// The calls to a store that are under way.
pub(crate) struct Gate {
    hasher: RandomState,
    most: usize,
    all: Calls,
    parts: Box<[Calls]>,
}

/// The calls of the node, or of a part of its ids.
#[derive(Default)]
struct Calls {
    under_way: FigureUsize,
    /// The calls that have ever begun.
    begun: FigureUsize,
}

/// A call that is under way until this is dropped.
#[derive(Default)]
pub(crate) struct Passed {
    counts: Option<Counts>,
}

struct Counts {
    gate: Arc<Gate>,
    /// The calls that had begun before this one and had ended.
    ended: usize,
    /// The part of each of the call's buckets, and the same of the part's calls.
    parts: SmallVec<[(u8, usize); 4]>,
}

impl Calls {
    /// Lets a call in, and returns the number of those that have ended; `None` if too many are under way.
    fn enter(&self, most: usize) -> Option<usize> {
        // Relaxed, here and below: the counts guard no other memory.
        let beside = self.under_way.fetch_add(1, Ordering::Relaxed);
        if beside >= most {
            self.leave();
            return None;
        }
        Some(self.begun.fetch_add(1, Ordering::Relaxed).wrapping_sub(beside))
    }

    fn leave(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the calls that have been under way together with the one that got `ended`, itself among them.
    fn beside(&self, ended: usize) -> usize {
        self.begun.load(Ordering::Relaxed).wrapping_sub(ended)
    }
}

impl Gate {
    /// Makes the gate of a store whose answers may take this long: it lets as many calls in as a node can make meanwhile.
    pub(crate) fn new(answer_timeout: Duration) -> Gate {
        let in_time = (answer_timeout.as_nanos() / A_CALL.as_nanos()) as usize;
        Gate {
            hasher: RandomState::new(),
            most: in_time.clamp(FEWEST, MOST),
            all: Calls::default(),
            parts: (0..PARTS).map(|_| Calls::default()).collect(),
        }
    }

    /// Lets a call in that names these buckets; `None` if too many are under way. `was_denied`: the last answer for one of the
    /// buckets was a denial.
    pub(crate) fn pass<'k>(
        self: &Arc<Gate>,
        keys: impl Iterator<Item = &'k str>,
        was_denied: bool,
    ) -> Option<Passed> {
        let ended = self.all.enter(if was_denied { self.most / 2 } else { self.most })?;
        // If it returns early from here on, the drop of `passed` lowers the counts again.
        let mut passed = Counts { gate: self.clone(), parts: SmallVec::new(), ended };
        for key in keys {
            let part = self.hasher.hash_one(key) as u8;
            let ended = self.parts[usize::from(part)].enter(self.most / SHARE)?;
            passed.parts.push((part, ended));
        }
        Some(Passed { counts: Some(passed) })
    }
}

impl Passed {
    /// Says of a call without an answer in time that it was one of a crowd, if it was: many calls of its id, or half of what the
    /// node can make, were under way before it ended. Otherwise a flood of one id could bring about what `on_error: allow` admits.
    pub(crate) fn blamed(&self, error: Error) -> Error {
        let is_crowded = self.counts.as_ref().is_some_and(Counts::is_in_crowd);
        if is_crowded { error.in_a_crowd() } else { error }
    }
}

impl Counts {
    /// The first call of a crowd begins alone, and the last to end ends alone, and they may be the same. So it counts the calls that
    /// were under way at any time of this one.
    fn is_in_crowd(&self) -> bool {
        let Counts { gate, ended, parts } = self;
        let of = |&(part, ended): &(u8, usize)| gate.parts[usize::from(part)].beside(ended);
        gate.all.beside(*ended) > gate.most / 2 || parts.iter().any(|part| of(part) > CROWD)
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        for &(part, _) in &self.parts {
            self.gate.parts[usize::from(part)].leave();
        }
        self.gate.all.leave();
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn pass(gate: &Arc<Gate>, keys: &[&str]) -> Option<Passed> {
        gate.pass(keys.iter().copied(), false)
    }

    #[test]
    fn one_id_has_a_quarter_at_most() {
        let gate = Arc::new(Gate::new(Duration::from_millis(10)));
        let mut passed: Vec<_> = (0..100).map(|_| pass(&gate, &["hot"]).unwrap()).collect();
        assert!(pass(&gate, &["hot"]).is_none() && pass(&gate, &["other", "hot"]).is_none());
        let others: Vec<_> = (0..300).filter_map(|id| pass(&gate, &[&id.to_string()])).collect();
        assert!(others.len() > 250, "{} of 300", others.len());
        passed.pop();
        assert!(pass(&gate, &["hot"]).is_some());
    }

    #[test]
    fn ids_that_were_denied_leave_half() {
        let gate = Arc::new(Gate::new(Duration::from_millis(10)));
        let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
        let pass = |was_denied| {
            let of = |id: &String| gate.pass(std::iter::once(&**id), was_denied);
            ids.iter().filter_map(of).collect::<Vec<_>>()
        };
        let denied = pass(true);
        assert_eq!(denied.len(), 200);
        assert_eq!(pass(false).len(), 200);
        drop(denied);
        assert_eq!(pass(true).len(), 200);
    }

    #[test]
    fn counts_come_back_to_zero() {
        let gate = Arc::new(Gate::new(Duration::ZERO));
        // An id of the same part would count twice there.
        let part = |id: &str| gate.hasher.hash_one(id) as u8;
        let ids = (0..1_000).map(|id| id.to_string()).filter(|id| part(id) != part("a"));
        let passed: Vec<_> = ids.filter_map(|id| pass(&gate, &[&id, "a"])).collect();
        assert_eq!(passed.len(), FEWEST / SHARE);
        drop(passed);
        let under_way = |calls: &Calls| calls.under_way.load(Ordering::Relaxed);
        assert_eq!(under_way(&gate.all), 0);
        assert!(gate.parts.iter().all(|part| under_way(part) == 0));
    }

    /// The first call of a crowd began alone, and ends when all others have ended.
    #[test]
    fn first_and_last_call_is_of_crowd() {
        for (beside, is_crowded) in [(CROWD, true), (CROWD - 1, false)] {
            let gate = Arc::new(Gate::new(Duration::from_millis(10)));
            let first = pass(&gate, &["hot"]).unwrap();
            let others: Vec<_> = (0..beside).map(|_| pass(&gate, &["hot"]).unwrap()).collect();
            drop(others);
            assert_eq!(first.counts.as_ref().unwrap().is_in_crowd(), is_crowded);
            drop(first);
            assert!(!pass(&gate, &["hot"]).unwrap().counts.unwrap().is_in_crowd());
        }
    }
}
