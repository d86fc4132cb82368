//! Bounds the calls to the store that a node has under way.
//!
//! A node can be called more often than it can ask its store, or than the store can answer. Then its callers would wait for each
//! other, and the last ones longer than the store's timeout. So a call begins only while few enough are under way; another one is
//! denied at once. One id may have at most a quarter of them under way, so that a flood of its calls leaves room for other ids. A
//! call of an id that was denied within the last second begins only while less than half of them are under way, so that a flood of
//! many such ids leaves room as well.
//!
//! How many a node can ask in time depends on its processors, its server and the network. So the number falls with each call that has
//! no answer in time, and grows again with those that have. It falls as well while a store is away, until the link to it pauses after
//! 250 ms: a store that is slower than its callers looks the same, and answers in time again when fewer calls are under way.

use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use smallvec::SmallVec;

use crate::error::Error;
use crate::util::sync::{FigureUsize, Ordering};

/// The time that a node takes for a call when it has many, with a margin for slower processors: `speed_node.rs` measures 11 us
/// for both threads, and 16 us were measured on others.
const A_CALL: Duration = Duration::from_micros(25);
/// The bounds of the calls that may be under way at most.
const MOST: [usize; 2] = [64, 8_192];
/// The calls that may always be under way.
const FEWEST: usize = 16;
/// The answers in time after which one call more may be under way.
const ANSWERS: usize = 8;
/// The parts into which ids are divided by a hash.
const PARTS: usize = 256;
/// The share of a part: one in this number.
const SHARE: usize = 4;
/// The calls at once from which they may be late because of each other.
const CROWD: usize = 8;

/// The calls to a store that are under way.
pub(crate) struct Gate {
    hasher: RandomState,
    most: usize,
    /// The calls that may be under way now.
    allowed: FigureUsize,
    /// The calls that had begun when that number fell last.
    narrowed: FigureUsize,
    /// The answers in time.
    answers: FigureUsize,
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
    /// The calls that had begun before this one, and the answers in time until then.
    begun: usize,
    answers: usize,
    /// The part of each of the call's buckets, and the same of the part's calls.
    parts: SmallVec<[(u8, usize); 2]>,
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
        let most = in_time.clamp(MOST[0], MOST[1]);
        Gate {
            hasher: RandomState::new(),
            most,
            allowed: FigureUsize::new(most),
            narrowed: FigureUsize::new(0),
            answers: FigureUsize::new(0),
            all: Calls::default(),
            parts: (0..PARTS).map(|_| Calls::default()).collect(),
        }
    }

    /// Lets a call in that names these buckets; `None` if too many are under way. `was_denied`: the store
    /// has denied a call for one of the buckets lately.
    pub(crate) fn pass<'k>(
        self: &Arc<Gate>,
        keys: impl Iterator<Item = &'k str>,
        was_denied: bool,
    ) -> Option<Passed> {
        let allowed = self.allowed.load(Ordering::Relaxed);
        let begun = self.all.begun.load(Ordering::Relaxed);
        let ended = self.all.enter(if was_denied { allowed / 2 } else { allowed })?;
        let answers = self.answers.load(Ordering::Relaxed);
        // If it returns early from here on, the drop of `passed` lowers the counts again.
        let mut passed =
            Counts { gate: self.clone(), parts: SmallVec::new(), ended, begun, answers };
        for key in keys {
            let part = self.hasher.hash_one(key) as u8;
            let ended = self.parts[usize::from(part)].enter(allowed / SHARE)?;
            passed.parts.push((part, ended));
        }
        Some(Passed { counts: Some(passed) })
    }
}

impl Gate {
    /// Notes that a call has its answer in time.
    fn widen(&self) {
        let answers = self.answers.fetch_add(1, Ordering::Relaxed);
        if answers.is_multiple_of(ANSWERS) && self.allowed.load(Ordering::Relaxed) < self.most {
            self.allowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a call had no answer in time. Those that were under way with it say the same, and count as one. A call beside few
    /// others is not late because of them.
    fn narrow(&self, call: &Counts) {
        let beside = self.all.beside(call.ended);
        if beside <= CROWD {
            return;
        }
        let narrowed = self.narrowed.load(Ordering::Relaxed);
        let begun = self.all.begun.load(Ordering::Relaxed);
        let is_new = call.begun.wrapping_sub(narrowed) <= usize::MAX / 2;
        let is_first = || {
            let swap = (Ordering::Relaxed, Ordering::Relaxed);
            self.narrowed.compare_exchange(narrowed, begun, swap.0, swap.1).is_ok()
        };
        if is_new && is_first() {
            let allowed = self.allowed.load(Ordering::Relaxed).min(beside);
            self.allowed.store((allowed * 3 / 4).max(FEWEST), Ordering::Relaxed);
        }
    }
}

impl Passed {
    /// Notes the answer of a call. Says of one without an answer in time that it was one of a crowd, if it was: then it is no outage.
    pub(crate) fn noted<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        let Some(call) = &self.counts else { return answer };
        match answer {
            Ok(answer) => {
                call.gate.widen();
                Ok(answer)
            }
            // A call that was not sent has waited too long in the node.
            Err(error) if error.is_late() || error.is_unsent() => {
                let is_in_crowd = call.is_in_crowd();
                call.gate.narrow(call);
                Err(if is_in_crowd { error.in_a_crowd() } else { error })
            }
            error => error,
        }
    }
}

impl Counts {
    /// Whether many calls of its id were under way with it; or many of any ids, of which the store has answered one in time. Otherwise
    /// a flood could bring about what `on_error: allow` admits. The first call of a crowd begins alone, and the last to end ends
    /// alone, and they may be the same. So it counts the calls that were under way at any time of this one.
    fn is_in_crowd(&self) -> bool {
        let Counts { gate, ended, answers, parts, .. } = self;
        let of = |&(part, ended): &(u8, usize)| gate.parts[usize::from(part)].beside(ended);
        let is_answering = gate.answers.load(Ordering::Relaxed) != *answers;
        (is_answering && gate.all.beside(*ended) > CROWD) || parts.iter().any(|it| of(it) > CROWD)
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

    /// A gate of 400 calls.
    fn wide() -> Arc<Gate> {
        Arc::new(Gate::new(Duration::from_millis(10)))
    }

    fn late() -> Result<(), Error> {
        Err(Error::new(crate::error::ErrorKind::StoreLate, "planted"))
    }

    /// Calls that are late together count once, and each round takes a quarter.
    #[test]
    fn late_calls_narrow_the_gate() {
        let gate = wide();
        let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
        for expected in [300, 225, 168, 126, 94, 70, 52, 39, 29, 21, 16, 16] {
            let calls: Vec<_> = ids.iter().filter_map(|id| pass(&gate, &[id])).collect();
            assert!(calls.iter().all(|call| call.noted(late()).is_err()));
            assert_eq!(gate.allowed.load(Ordering::Relaxed), expected);
        }
        for _ in 0..10 * ANSWERS {
            pass(&gate, &["a"]).unwrap().noted(Ok(())).unwrap();
        }
        assert_eq!(gate.allowed.load(Ordering::Relaxed), 26);
    }

    #[test]
    fn lone_late_call_narrows_nothing() {
        let gate = wide();
        for _ in 0..20 {
            assert!(pass(&gate, &["a"]).unwrap().noted(late()).is_err());
        }
        assert_eq!(gate.allowed.load(Ordering::Relaxed), 400);
    }

    /// Late calls of many ids are a crowd if the store has answered one of them.
    #[test]
    fn store_that_answers_is_not_away() {
        for (ids, answers, is_crowded) in [(9, 1, true), (8, 1, false), (40, 0, false)] {
            let gate = wide();
            let ids: Vec<_> = (0..ids).map(|id| id.to_string()).collect();
            let calls: Vec<_> = ids.iter().map(|id| pass(&gate, &[id]).unwrap()).collect();
            calls[1..=answers].iter().for_each(|call| call.noted(Ok(())).unwrap());
            let error = calls[0].noted(late()).unwrap_err();
            assert_eq!(error.is_store_overload(), is_crowded);
        }
    }

    #[test]
    fn one_id_has_a_quarter_at_most() {
        let gate = wide();
        let mut passed: Vec<_> = (0..100).map(|_| pass(&gate, &["hot"]).unwrap()).collect();
        assert!(pass(&gate, &["hot"]).is_none() && pass(&gate, &["other", "hot"]).is_none());
        let others: Vec<_> = (0..300).filter_map(|id| pass(&gate, &[&id.to_string()])).collect();
        assert!(others.len() > 250, "{} of 300", others.len());
        passed.pop();
        assert!(pass(&gate, &["hot"]).is_some());
    }

    #[test]
    fn ids_that_were_denied_leave_half() {
        let gate = wide();
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
        assert_eq!(passed.len(), MOST[0] / SHARE);
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
