//! Counts the spends of a run.

use std::collections::HashMap;
use std::rc::Rc;

use smallvec::SmallVec;
use tollgate::Error;

use crate::engine::{Engine, LimitNo};
use crate::side::Answer;
use crate::summary::{Denied, LimitCounts};

/// The counts of all spends, of each limit and of each key.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    keys: Vec<Key>,
    limits: PerLimit<LimitTally>,
}

/// The index of a key in its [`Tally`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyNo(u32);

/// The keys of one line.
pub(crate) type Keys = SmallVec<[KeyNo; 4]>;

/// A bucket that a line of a log charges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineCharge {
    pub(crate) key: KeyNo,
    pub(crate) cost: u64,
}

/// The buckets that one line of a log charges.
pub(crate) type LineCharges = SmallVec<[LineCharge; 2]>;

impl KeyNo {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) limit: LimitNo,
    /// The id as the traffic first wrote it.
    pub(crate) id: Rc<str>,
    pub(crate) normalized: Rc<str>,
    /// Whether a limit applies to the id.
    applies: bool,
    /// Whether a spend has named the key.
    is_seen: bool,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
}

#[derive(Debug, Default)]
struct LimitTally {
    counts: LimitCounts,
    is_shown: bool,
    /// Keys by the ids as written, so that a known id is not parsed again.
    by_id: Map,
    by_normalized: Map,
}

type Map = HashMap<Rc<str>, KeyNo, ahash::RandomState>;

/// A value for each limit. A limit that was never changed has the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerLimit<T>(Vec<T>);

impl<T: Default> PerLimit<T> {
    pub(crate) fn get(&self, limit: LimitNo) -> Option<&T> {
        self.0.get(limit.index())
    }

    pub(crate) fn get_mut(&mut self, limit: LimitNo) -> &mut T {
        grown(&mut self.0, limit.index())
    }
}

/// Returns the value at an index of a vector that grows with default values.
pub(crate) fn grown<T: Default>(values: &mut Vec<T>, index: usize) -> &mut T {
    if values.len() <= index {
        values.resize_with(index + 1, T::default);
    }
    &mut values[index]
}

impl Tally {
    /// Returns the key of an id; fails if the format of the limit refuses the id.
    pub(crate) fn key(
        &mut self,
        engine: &Engine,
        limit: LimitNo,
        id: &str,
    ) -> Result<KeyNo, Error> {
        if let Some(known) = self.limits.get(limit).and_then(|limit| limit.by_id.get(id)) {
            return Ok(*known);
        }
        let normalized = engine.normalize(limit, id)?;
        let applies = engine.applies(limit, id)?;
        let id: Rc<str> = id.into();
        let next = KeyNo(u32::try_from(self.keys.len()).expect("more keys do not fit in memory"));
        let tally = self.limits.get_mut(limit);
        if let Some(&known) = tally.by_normalized.get(&*normalized) {
            tally.by_id.insert(id, known);
            return Ok(known);
        }
        let normalized: Rc<str> = if *normalized == *id { id.clone() } else { normalized.into() };
        tally.by_id.insert(id.clone(), next);
        tally.by_normalized.insert(normalized.clone(), next);
        self.keys.push(Key {
            limit,
            id,
            normalized,
            applies,
            is_seen: false,
            allowed: 0,
            denied: 0,
        });
        Ok(next)
    }

    pub(crate) fn get(&self, key: KeyNo) -> &Key {
        &self.keys[key.index()]
    }

    /// Shows a limit in the summary even if no spend names it.
    pub(crate) fn show(&mut self, limit: LimitNo) {
        self.limits.get_mut(limit).is_shown = true;
    }

    /// Returns the positions of the keys at which a spend counts: of a denied one, the key that denied; of an
    /// allowed one, each key that was charged.
    fn counted(&self, answer: &Answer) -> impl Iterator<Item = usize> {
        let denied_by = answer.decision.denied_by();
        let is_counted = move |position: &usize| match denied_by {
            Some(denied_by) => *position == denied_by,
            None => answer.charged[*position].is_some(),
        };
        (0..answer.keys.len())
            .filter(is_counted)
            .filter(|position| self.get(answer.keys[*position]).applies)
    }

    /// Returns the limits at which a spend counts.
    pub(crate) fn counted_limits(&self, answer: &Answer) -> impl Iterator<Item = LimitNo> {
        self.counted(answer).map(|position| self.get(answer.keys[position]).limit)
    }

    /// Counts a spend.
    #[inline]
    pub(crate) fn count(&mut self, answer: &Answer) {
        let is_allowed = answer.decision.allowed();
        *(if is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
        for key in &answer.keys {
            let key = &mut self.keys[key.index()];
            if key.applies && !key.is_seen {
                key.is_seen = true;
                let limit = self.limits.get_mut(key.limit);
                limit.is_shown = true;
                limit.counts.keys += 1;
            }
        }
        let counted: SmallVec<[usize; 4]> = self.counted(answer).collect();
        for position in counted {
            let key = &mut self.keys[answer.keys[position].index()];
            let counts = &mut self.limits.get_mut(key.limit).counts;
            if is_allowed {
                counts.allowed += 1;
                key.allowed += 1;
            } else {
                counts.denied += 1;
                counts.keys_denied += u64::from(key.denied == 0);
                key.denied += 1;
            }
        }
    }

    /// Returns how many spends a key has denied.
    pub(crate) fn denied(&self, limit: LimitNo, normalized: &str) -> u64 {
        let limit = self.limits.get(limit);
        let key = limit.and_then(|limit| limit.by_normalized.get(normalized));
        key.map_or(0, |key| self.get(*key).denied)
    }

    /// Returns the keys that spends have named.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (KeyNo, &Key)> {
        (0..).map(KeyNo).zip(&self.keys).filter(|(_, key)| key.is_seen)
    }

    /// Returns the counts of each limit in the order of their numbers.
    pub(crate) fn by_limit(&self) -> impl Iterator<Item = (LimitNo, LimitCounts)> {
        let shown = self.limits.0.iter().enumerate().filter(|(_, limit)| limit.is_shown);
        shown.map(|(i, limit)| (LimitNo::new(i), limit.counts))
    }

    /// Returns the keys with the most denials, in descending order; ties by id, then by limit.
    pub(crate) fn most_denied(&self, engine: &Engine, max: usize) -> Vec<Denied> {
        let mut denied: Vec<&Key> = self.keys.iter().filter(|key| key.denied > 0).collect();
        denied.sort_unstable_by_key(|key| {
            (std::cmp::Reverse(key.denied), &key.normalized, engine.name(key.limit))
        });
        let denied = denied.into_iter().take(max).map(|key| Denied {
            limit: engine.name(key.limit).to_owned(),
            id: key.normalized.to_string(),
            denied: key.denied,
        });
        denied.collect()
    }
}
