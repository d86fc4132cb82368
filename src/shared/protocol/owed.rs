//! The units that this node has admitted while the store did not answer, until they are charged to the store's buckets.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::shared::protocol::change::{BucketChange, Step};
use crate::shared::protocol::{SharedMode, StoreMember};

/// The most buckets to which a node owes units. Units that it admits for others are not charged afterwards.
const MAX_BUCKETS: usize = if cfg!(test) { 1 << 14 } else { 1 << 20 };

/// The most limits by which a bucket owes units. Units that others admit for it are not charged afterwards.
const MAX_LIMITS: usize = 16;

/// The units that this node owes, by bucket. At most one report is under way.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// What a bucket owes by each limit that admitted units of it: those of other factors, or from before a reload. The `cost` of
    /// such a member is the units that are owed.
    buckets: HashMap<Box<str>, SmallVec<[StoreMember; 1]>>,
    is_reporting: bool,
    /// The outages that have ended.
    ends: u64,
}

/// A part of a report. The `cost` of a member is the units that the node owes to its bucket.
pub(crate) struct OwedBatch {
    pub(crate) buckets: Vec<StoreMember>,
    ends: u64,
}

impl Owed {
    /// Records a charge that the store does not know.
    pub(crate) fn add(&mut self, member: &StoreMember) {
        let mut new = StoreMember { mode: SharedMode::LookOnly, lease: None, ..member.clone() };
        // The map has the key.
        let key = std::mem::take(&mut new.key);
        if !self.buckets.contains_key(&key) && self.buckets.len() >= MAX_BUCKETS {
            return;
        }
        let all = self.buckets.entry(key).or_default();
        let is_full = all.len() >= MAX_LIMITS;
        let is_same =
            |owed: &&mut StoreMember| owed.limit == new.limit && owed.unscaled == new.unscaled;
        match all.iter_mut().find(is_same) {
            Some(owed) => {
                owed.cost = owed.cost.saturating_add(new.cost);
                owed.keep_ms = owed.keep_ms.max(new.keep_ms);
            }
            None if is_full => {}
            None => all.push(new),
        }
    }

    /// Notes the end of an outage. Returns whether the caller has to start a report.
    pub(crate) fn begin_report(&mut self) -> bool {
        self.ends += 1;
        let starts = !self.is_reporting && !self.buckets.is_empty();
        self.is_reporting |= starts;
        starts
    }

    /// Takes buckets to report, at most `count`. `None`: the report is at its end.
    pub(crate) fn take(&mut self, count: usize) -> Option<OwedBatch> {
        let keys: Vec<Box<str>> = self.buckets.keys().take(count).cloned().collect();
        if keys.is_empty() {
            *self = Owed { ends: self.ends, ..Owed::default() };
            return None;
        }
        let buckets = keys.into_iter().filter_map(|key| {
            // One of each bucket: a call changes it once.
            let all = self.buckets.get_mut(&key)?;
            let owed = all.pop();
            if all.is_empty() {
                self.buckets.remove(&key);
            }
            Some(StoreMember { key, ..owed? })
        });
        Some(OwedBatch { buckets: buckets.collect(), ends: self.ends })
    }

    /// Takes a batch back that the store has not charged. `is_outage`: because of an outage. Returns whether the report goes on:
    /// if not, the end of the next outage starts another.
    pub(crate) fn put_back(&mut self, batch: OwedBatch, is_outage: bool) -> bool {
        let OwedBatch { buckets, ends } = batch;
        // Units that were admitted meanwhile are in the map already: both are owed.
        buckets.iter().for_each(|bucket| self.add(bucket));
        self.is_reporting = !is_outage || self.ends != ends;
        self.is_reporting
    }
}

/// Returns the member that reads a bucket of a report.
pub(crate) fn owed_read(bucket: &StoreMember) -> StoreMember {
    StoreMember { cost: 0, ..bucket.clone() }
}

/// Returns the change of a bucket of a report that charges the units, down to empty.
pub(crate) fn owed_change(bucket: &StoreMember) -> BucketChange {
    let step = Step::Owe { units: bucket.cost, max_debt: 0 };
    BucketChange { member: owed_read(bucket), step }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Limit;

    fn admitted(key: &str, cost: u64) -> StoreMember {
        let limit = Limit::new(20, 1, Duration::from_secs(1)).unwrap();
        let mode = SharedMode::CheckAndSpend;
        StoreMember { key: key.into(), limit, unscaled: None, cost, mode, keep_ms: 0, lease: None }
    }

    fn taken(owed: &mut Owed, count: usize) -> Option<OwedBatch> {
        let mut batch = owed.take(count)?;
        batch.buckets.sort_by(|a, b| a.key.cmp(&b.key));
        Some(batch)
    }

    fn units(batch: &OwedBatch) -> Vec<(&str, u64)> {
        batch.buckets.iter().map(|bucket| (&*bucket.key, bucket.cost)).collect()
    }

    #[test]
    fn one_report_takes_all() {
        let mut owed = Owed::default();
        assert!(!owed.begin_report(), "nothing is owed");
        for (key, cost) in [("a", 1), ("b", 2), ("a", 3)] {
            owed.add(&admitted(key, cost));
        }
        assert!(owed.begin_report());
        assert_eq!(owed.take(1).unwrap().buckets.len(), 1);
        owed.add(&admitted("c", 5));
        assert!(!owed.begin_report(), "one is under way");
        assert_eq!(owed.take(9).unwrap().buckets.len(), 2);
        assert!(owed.take(9).is_none());
        assert!(!owed.begin_report());
        owed.add(&admitted("a", 1));
        assert!(owed.begin_report(), "the last one is at its end");
    }

    #[test]
    fn a_failed_report_loses_and_doubles_nothing() {
        let mut owed = Owed::default();
        owed.add(&admitted("a", 1));
        owed.add(&admitted("b", 2));
        assert!(owed.begin_report());
        let batch = taken(&mut owed, 9).unwrap();
        assert_eq!(units(&batch), [("a", 1), ("b", 2)]);
        owed.add(&admitted("a", 4));
        assert!(!owed.put_back(batch, true), "the outage goes on");
        assert!(owed.begin_report());
        let batch = taken(&mut owed, 9).unwrap();
        assert_eq!(units(&batch), [("a", 5), ("b", 2)]);
        // An outage has begun and ended before the report has failed: no other caller starts one.
        assert!(!owed.begin_report());
        assert!(owed.put_back(batch, true));
        let batch = taken(&mut owed, 9).unwrap();
        assert!(owed.put_back(batch, false), "the node has too many calls");
        assert!(!owed.begin_report(), "the same report goes on");
        assert_eq!(units(&taken(&mut owed, 9).unwrap()), [("a", 5), ("b", 2)]);
        assert!(owed.take(9).is_none());
    }

    #[test]
    fn units_together_keep_the_longer_time() {
        for times_ms in [[0, 90_000], [90_000, 0]] {
            let mut owed = Owed::default();
            for keep_ms in times_ms {
                owed.add(&StoreMember { keep_ms, ..admitted("a", 1) });
            }
            let batch = owed.take(9).unwrap();
            assert_eq!(units(&batch), [("a", 2)]);
            assert_eq!(owed_read(&batch.buckets[0]).keep_ms, 90_000);
        }
    }

    #[test]
    fn units_of_other_factors_are_owed_apart() {
        let mut owed = Owed::default();
        let scaled = Limit::new(2, 10, Duration::from_secs(1)).unwrap();
        let unscaled = Some(Box::new(admitted("a", 1).limit));
        owed.add(&admitted("a", 5));
        owed.add(&StoreMember { limit: scaled.clone(), unscaled, ..admitted("a", 1) });
        owed.add(&admitted("a", 2));
        assert!(owed.begin_report());
        let mut each = [(); 2].map(|()| owed.take(9).unwrap().buckets.remove(0));
        each.sort_by_key(|bucket| bucket.cost);
        assert_eq!(each.each_ref().map(|bucket| bucket.cost), [1, 7]);
        assert_eq!((&each[0].limit, &each[1].limit), (&scaled, &admitted("a", 1).limit));
        assert!(owed.take(9).is_none());
    }

    #[test]
    fn buckets_beyond_the_most_are_left_out() {
        let mut owed = Owed::default();
        for key in 0..=MAX_BUCKETS {
            owed.add(&admitted(&key.to_string(), 1));
        }
        assert_eq!(owed.buckets.len(), MAX_BUCKETS);
        owed.add(&admitted("0", 1));
        assert_eq!(owed.buckets["0"][0].cost, 2);
    }

    #[test]
    fn reports_note_the_fill_time() {
        let limit = Limit::leaky_bucket(20, 1, Duration::from_secs(1)).unwrap();
        let mut owed = Owed::default();
        owed.add(&StoreMember { limit, keep_ms: 90_000, ..admitted("a", 3) });
        let change = owed_change(&owed.take(1).unwrap().buckets[0]);
        let stepped = change.stepped(None, 1_790_000_000_000_000_000).unwrap();
        assert!(change.written(&stepped).unwrap().0.ends_with(":3:90000"));
    }
}
