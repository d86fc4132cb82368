//! Who asked, who was denied: the counts of a run.

use std::collections::HashMap;
use std::rc::Rc;

use smallvec::SmallVec;
use tollgate::{Decision, Error};

use crate::engine::{Engine, LimitNo};
use crate::summary::{Denied, LimitCounts};

/// The counts of spends: of all, of each limit, of each key.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    keys: Vec<Key>,
    /// By [`LimitNo`].
    limits: Vec<LimitTally>,
}

/// A key's place in its [`Tally`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyNo(u32);

/// The keys of one line.
pub(crate) type Keys = SmallVec<[KeyNo; 4]>;

impl KeyNo {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) limit: LimitNo,
    /// As it was first written.
    pub(crate) id: Rc<str>,
    pub(crate) normalized: Rc<str>,
    /// Whether the limit has numbers for it.
    applies: bool,
    seen: bool,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
}

#[derive(Debug, Default)]
struct LimitTally {
    counts: LimitCounts,
    is_shown: bool,
    /// By the id as written, so that a known one is not parsed again.
    by_id: Map,
    by_normalized: Map,
}

type Map = HashMap<Rc<str>, KeyNo, ahash::RandomState>;

impl Tally {
    /// The key of an id; an id that the limit's format refuses is the library's error.
    pub(crate) fn key(
        &mut self,
        engine: &Engine,
        limit: LimitNo,
        id: &str,
    ) -> Result<KeyNo, Error> {
        if let Some(known) = self.limits.get(limit.index()).and_then(|limit| limit.by_id.get(id)) {
            return Ok(*known);
        }
        let normalized = engine.normalize(limit, id)?;
        let applies = engine.applies(limit, id)?;
        let id: Rc<str> = id.into();
        let next = KeyNo(u32::try_from(self.keys.len()).expect("fewer keys than fit in memory"));
        let tally = self.limit(limit);
        if let Some(&known) = tally.by_normalized.get(&*normalized) {
            tally.by_id.insert(id, known);
            return Ok(known);
        }
        let normalized: Rc<str> = if *normalized == *id { id.clone() } else { normalized.into() };
        tally.by_id.insert(id.clone(), next);
        tally.by_normalized.insert(normalized.clone(), next);
        self.keys.push(Key { limit, id, normalized, applies, seen: false, allowed: 0, denied: 0 });
        Ok(next)
    }

    pub(crate) fn get(&self, key: KeyNo) -> &Key {
        &self.keys[key.index()]
    }

    /// Shows a limit in the summary even if nothing came for it.
    pub(crate) fn show(&mut self, limit: LimitNo) {
        self.limit(limit).is_shown = true;
    }

    /// Counts a spend on `keys`; `is_charged` says which of them an allowed one was charged to. `tell`
    /// hears of each limit at which the line counts, and whether as allowed.
    #[inline]
    pub(crate) fn count(
        &mut self,
        keys: &[KeyNo],
        decision: &Decision,
        is_charged: impl Fn(usize) -> bool,
        mut tell: impl FnMut(LimitNo, bool),
    ) {
        if decision.allowed() {
            self.allowed += 1;
        } else {
            self.denied += 1;
        }
        for (position, key) in keys.iter().enumerate() {
            let key = &mut self.keys[key.index()];
            if !key.applies {
                continue;
            }
            let limit = &mut self.limits[key.limit.index()];
            limit.is_shown = true;
            if !key.seen {
                key.seen = true;
                limit.counts.keys += 1;
            }
            if decision.allowed() && is_charged(position) {
                limit.counts.allowed += 1;
                key.allowed += 1;
                tell(key.limit, true);
            }
            if decision.denied_by() == Some(position) {
                limit.counts.denied += 1;
                limit.counts.keys_denied += u64::from(key.denied == 0);
                key.denied += 1;
                tell(key.limit, false);
            }
        }
    }

    /// How often the key was the one that denied.
    pub(crate) fn denied(&self, limit: LimitNo, normalized: &str) -> u64 {
        let limit = self.limits.get(limit.index());
        let key = limit.and_then(|limit| limit.by_normalized.get(normalized));
        key.map_or(0, |key| self.get(*key).denied)
    }

    /// The keys that a spend was about, their limits, and how often each was denied.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (KeyNo, LimitNo, u64)> {
        let seen = (0..).map(KeyNo).zip(&self.keys).filter(|(_, key)| key.seen);
        seen.map(|(number, key)| (number, key.limit, key.denied))
    }

    /// The counts of each limit, in the order of their numbers.
    pub(crate) fn by_limit(&self) -> impl Iterator<Item = (LimitNo, LimitCounts)> {
        let all = self.limits.iter().enumerate();
        all.filter(|(_, limit)| limit.is_shown).map(|(i, limit)| (LimitNo::new(i), limit.counts))
    }

    /// The keys that were denied most, the most first; ties by id, then by limit.
    pub(crate) fn most_denied(&self, engine: &Engine, max: usize) -> Vec<Denied> {
        let mut denied: Vec<&Key> = self.keys.iter().filter(|key| key.denied > 0).collect();
        denied.sort_unstable_by(|a, b| {
            let by_count = b.denied.cmp(&a.denied);
            by_count
                .then_with(|| a.normalized.cmp(&b.normalized))
                .then_with(|| engine.name(a.limit).cmp(engine.name(b.limit)))
        });
        denied.truncate(max);
        let denied = denied.into_iter().map(|key| Denied {
            limit: engine.name(key.limit).to_owned(),
            id: key.normalized.to_string(),
            denied: key.denied,
        });
        denied.collect()
    }

    fn limit(&mut self, limit: LimitNo) -> &mut LimitTally {
        if self.limits.len() <= limit.index() {
            self.limits.resize_with(limit.index() + 1, LimitTally::default);
        }
        &mut self.limits[limit.index()]
    }
}
