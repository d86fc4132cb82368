//! Computes when a limit has a place under the cap again, from the times at which buckets become full.

use super::capacity::{Reservations, RoomOfLimit};
use super::key::{LimitIndex, LimitTag, Room};

/// The most buckets that are remembered. No store looks at more. Fewer in models: they are on the stack, and those of loom are small.
const MAX_BUCKETS: usize = if cfg!(tollgate_loom) { 16 } else { 256 };

/// The wait for room if none of the buckets that the call looked at makes room, and the table has other buckets: the sweeper makes
/// a pass over all buckets in about this time.
const OTHERS_IN_NS: u64 = 1_000_000_000;

/// The places that a limit lacks, and the buckets whose end can bring one. After a reload there may be more buckets than
/// places, so that several have to end.
pub(crate) struct NextRoom<'t> {
    reservations: &'t Reservations,
    limit: LimitIndex,
    /// Without the places of the first `ended` buckets.
    room: RoomOfLimit,
    /// In how many nanoseconds each bucket ends, and the limit that has its place.
    buckets: [(u64, LimitIndex); MAX_BUCKETS],
    len: usize,
    ended: usize,
}

impl<'t> NextRoom<'t> {
    /// `None` if a key with this tag needs no place under the cap.
    pub(super) fn new(reservations: &'t Reservations, tag: LimitTag) -> Option<NextRoom<'t>> {
        let Room::UnderCap(limit) = tag.room() else { return None };
        let room = reservations.room_of(limit);
        let buckets = [(0, limit); MAX_BUCKETS];
        Some(NextRoom { reservations, limit, room, buckets, len: 0, ended: 0 })
    }

    /// Adds a bucket, which can be dropped in the time that `full_in_ns` returns if it is known.
    pub(super) fn add(&mut self, tag: LimitTag, full_in_ns: impl FnOnce() -> Option<u64>) {
        let Room::UnderCap(of) = tag.room() else { return };
        if self.len == MAX_BUCKETS {
            return;
        }
        let Some(full_in_ns) = full_in_ns() else { return };
        self.buckets[self.len] = (full_in_ns, of);
        self.len += 1;
        if full_in_ns == 0 {
            self.end(self.len - 1);
        }
    }

    /// Returns whether the buckets that can be dropped now make room.
    pub(super) fn is_now(&self) -> bool {
        self.room.is_any()
    }

    /// Returns the time until enough of the buckets can be dropped. If even all of them make no room, returns `None` if `are_all`, else
    /// the time after which other buckets may have been dropped.
    pub(super) fn in_ns(self, are_all: bool) -> Option<u64> {
        self.of_buckets_in_ns().or(if are_all { None } else { Some(OTHERS_IN_NS) })
    }

    fn of_buckets_in_ns(mut self) -> Option<u64> {
        let mut wait_ns = 0;
        while !self.room.is_any() {
            if self.room.lacks_more_than(self.len - self.ended) {
                return None;
            }
            let left = (self.ended..self.len).filter(|&at| self.helps(self.buckets[at].1));
            let soonest = left.min_by_key(|&at| self.buckets[at].0)?;
            wait_ns = self.buckets[soonest].0;
            self.end(soonest);
        }
        Some(wait_ns)
    }

    /// Whether the end of a bucket whose place this limit has brings a place that is lacking.
    fn helps(&self, of: LimitIndex) -> bool {
        self.room.lacks_more_than(0)
            || of == self.limit
            || (self.room.takes_common() && self.releases_common(of))
    }

    /// Whether the end of one more bucket of a limit releases a common place.
    fn releases_common(&self, of: LimitIndex) -> bool {
        let ended = || self.buckets[..self.ended].iter().filter(|bucket| bucket.1 == of).count();
        self.reservations.common_places_of(of).is_none_or(|common| common > ended())
    }

    /// Counts the place of the bucket at a position as released.
    fn end(&mut self, at: usize) {
        let of = self.buckets[at].1;
        self.room.taken = self.room.taken.saturating_sub(1);
        if of == self.limit {
            self.room.own_taken = self.room.own_taken.saturating_sub(1);
        }
        if self.releases_common(of) {
            self.room.common_taken = self.room.common_taken.saturating_sub(1);
        }
        self.buckets.swap(self.ended, at);
        self.ended += 1;
    }
}
