//! A node's record of a bucket from which it takes leases: the lease that it holds, and the units that it wants next.

use crate::core::lease_words::word::TICK_NS;
use crate::shared::protocol::lease::{Granted, LeaseEnd, LeaseRequest, MAX_LEASE_UNITS};

use crate::limits::sharing::FIRST_LEASE;

const NS_PER_MS: u64 = 1_000_000;
/// A lease is returned this part of its time before its end: time enough for the call.
const RETURN_PART: u64 = 8;

/// A node's record of a bucket. Times are readings of the node's clock, in ns.
#[derive(Default)]
pub(crate) struct Held {
    lease: Option<HeldLease>,
    /// When the last lease was granted.
    granted_ns: u64,
    /// The units that the last call that asked for a lease wanted.
    want: u64,
    /// When a call last asked the store, and the length of the limit's leases at that time.
    asked_ns: u64,
    length_ns: u64,
    /// Whether a call that asks for a lease is under way: the next one asks for none.
    is_asking: bool,
    /// How often the id was blocked by this node. A lease of a call that was under way then gets no word.
    pub(crate) blocks: u64,
    /// When the last lease is returned, unless the next call ends it before.
    return_ns: u64,
    /// Whether the node's list of returns has the bucket.
    is_listed: bool,
    /// All leases of the bucket ended from the first to the second of these times.
    ends_ns: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldLease {
    /// Its end if no call spends from it: its `unspent` units are those that the lease's word had at first.
    end: LeaseEnd,
    /// Whether the table has a place for the word. Without it no call can spend the units.
    has_word: bool,
}

impl HeldLease {
    /// Returns the end of the lease now; `take` takes the unspent units out of the word.
    fn end(self, take: impl FnOnce() -> u64) -> LeaseEnd {
        let unspent = if self.has_word { take() } else { self.end.unspent };
        LeaseEnd { unspent: unspent.min(self.end.granted), ..self.end }
    }
}

impl Held {
    /// Begins a call to the store; `take` takes the unspent units of the lease. `None`: another call that asks for a lease is
    /// under way, so this one asks for none.
    pub(crate) fn begin(
        &mut self,
        now_ns: u64,
        length_ns: u64,
        burst: u64,
        take: impl FnOnce() -> u64,
    ) -> Option<LeaseRequest> {
        if self.is_asking {
            return None;
        }
        self.is_asking = true;
        let within =
            |since_ns: u64, time_ns| since_ns != 0 && now_ns.saturating_sub(since_ns) < time_ns;
        let lease = self.lease.take();
        let has_no_word = lease.is_some_and(|lease| !lease.has_word);
        let end = lease.map(|lease| lease.end(take));
        self.want = match end {
            // A lease ends within two lengths. A lease without a word is of no use.
            _ if has_no_word || !within(self.asked_ns.max(self.granted_ns), 2 * length_ns) => 0,
            Some(end) if end.unspent >= end.granted.div_ceil(2) => (self.want / 2).max(1),
            Some(_) if within(self.granted_ns, length_ns / 2) => self.want * 2,
            Some(_) => self.want,
            None if within(self.asked_ns, length_ns) => self.want.max(FIRST_LEASE),
            None => 0,
        };
        self.want = self.want.min(MAX_LEASE_UNITS).min(burst / 2);
        (self.asked_ns, self.length_ns) = (now_ns, length_ns);
        Some(LeaseRequest { want: self.want, length_ms: length_ns / NS_PER_MS, end })
    }

    /// Ends the call to the store. `kept`: the lease that the node holds as before.
    pub(crate) fn end(&mut self, kept: Option<LeaseEnd>) {
        self.is_asking = false;
        self.lease = kept.map(|end| HeldLease { end, has_word: true });
    }

    /// Records a new lease, and returns its end for the node: at `until_ns` or earlier, and at another time than all leases
    /// of this bucket before it. So units that come back late never come to another lease than theirs.
    pub(crate) fn grant(&mut self, granted: Granted, now_ns: u64, until_ns: u64) -> u64 {
        let until_ns = until_ns / TICK_NS * TICK_NS;
        let (first_ns, last_ns) = self.ends_ns;
        let until_ns = match until_ns > last_ns {
            true => until_ns,
            false => until_ns.min(first_ns.saturating_sub(TICK_NS)),
        };
        self.ends_ns = match until_ns > last_ns {
            true => (until_ns, until_ns),
            false => (until_ns, last_ns),
        };
        let Granted { units, tag_ms, .. } = granted;
        let end = LeaseEnd { tag_ms, granted: units, unspent: units };
        self.lease = Some(HeldLease { end, has_word: true });
        self.granted_ns = now_ns;
        self.return_ns = until_ns - until_ns.saturating_sub(now_ns) / RETURN_PART;
        self.is_asking = false;
        until_ns
    }

    /// Records that the table has no place for the word of the lease.
    pub(crate) fn has_no_word(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.has_word = false;
        }
    }

    /// Returns the lease as if the node gave it up now, with `in_word` units in its word; `None` if it holds none.
    pub(crate) fn end_now(&self, in_word: u64) -> Option<LeaseEnd> {
        self.lease.map(|lease| lease.end(|| in_word))
    }

    pub(crate) fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Takes the lease to give it up, unless a call to the store is under way, which ends it.
    pub(crate) fn give_up(&mut self, take: impl FnOnce() -> u64) -> Option<LeaseEnd> {
        if self.is_asking {
            return None;
        }
        self.lease.take().map(|lease| lease.end(take))
    }

    /// Returns when the lease is returned, if there is one whose bucket is not in the list of returns. Now it is.
    pub(crate) fn list(&mut self) -> Option<u64> {
        let is_new = self.lease.is_some() && !std::mem::replace(&mut self.is_listed, true);
        is_new.then_some(self.return_ns)
    }

    /// Takes the lease to return it, if it ends soon. The next one is smaller if half of it is left. The bucket is not in the list
    /// any more.
    pub(crate) fn give_up_early(
        &mut self,
        now_ns: u64,
        take: impl FnOnce() -> u64,
    ) -> Option<LeaseEnd> {
        self.is_listed = false;
        if now_ns < self.return_ns {
            return None;
        }
        let end = self.give_up(take)?;
        if end.unspent >= end.granted.div_ceil(2) {
            self.want = (self.want / 2).max(1);
        }
        Some(end)
    }

    /// Whether the node may forget the bucket.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        let over_ns = self.ends_ns.1.max(self.asked_ns.saturating_add(self.length_ns));
        !self.is_asking && over_ns < now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn held() -> Held {
        Held::default()
    }

    fn begin(held: &mut Held, now_ns: u64, unspent: u64) -> LeaseRequest {
        held.begin(now_ns, SECOND_NS, 1000, || unspent).unwrap()
    }

    fn grant(held: &mut Held, units: u64, now_ns: u64) -> u64 {
        held.grant(Granted { units, tag_ms: 7, until_ms: 9 }, now_ns, now_ns + SECOND_NS)
    }

    #[test]
    fn cold_bucket_has_no_lease() {
        let mut held = held();
        for call in 1..5 {
            assert_eq!(begin(&mut held, call * SECOND_NS, 0).want, 0);
            held.end(None);
        }
        assert_eq!(begin(&mut held, 4 * SECOND_NS + 1, 0).want, FIRST_LEASE, "within a length");
    }

    #[test]
    fn want_follows_the_use() {
        let mut held = held();
        let _ = begin(&mut held, 1, 0);
        held.end(None);
        assert_eq!(begin(&mut held, 2, 0), LeaseRequest { want: 8, length_ms: 1000, end: None });
        grant(&mut held, 8, 2);
        let end = |unspent| Some(LeaseEnd { tag_ms: 7, granted: 8, unspent });
        assert_eq!(begin(&mut held, 3, 1), LeaseRequest { want: 16, length_ms: 1000, end: end(1) });
        grant(&mut held, 8, 3);
        assert_eq!(begin(&mut held, SECOND_NS, 0).want, 16, "it lasted long enough");
        grant(&mut held, 8, SECOND_NS);
        let request = begin(&mut held, SECOND_NS + 1, 4);
        assert_eq!((request.want, request.end), (8, end(4)), "half came back");
        for at in 0..20 {
            grant(&mut held, 8, SECOND_NS + at);
            let _ = begin(&mut held, SECOND_NS + at, 0);
        }
        grant(&mut held, 8, SECOND_NS);
        assert_eq!(begin(&mut held, SECOND_NS, 0).want, 500, "half of the burst");
    }

    #[test]
    fn idle_bucket_wants_no_lease() {
        for (idle_ns, want) in [(2 * SECOND_NS - 1, FIRST_LEASE), (2 * SECOND_NS, 0)] {
            let mut held = held();
            let _ = begin(&mut held, 1, 0);
            held.end(None);
            let _ = begin(&mut held, 2, 0);
            grant(&mut held, 8, 2);
            assert_eq!(begin(&mut held, 2 + idle_ns, 0).want, want, "after {idle_ns} ns");
        }
    }

    #[test]
    fn one_call_asks_at_a_time() {
        let mut held = held();
        let _ = begin(&mut held, 1, 0);
        assert_eq!(held.begin(2, SECOND_NS, 1000, || unreachable!()), None);
        assert_eq!(held.give_up(|| unreachable!()), None);
        assert!(!held.is_over(u64::MAX));
        held.end(Some(LeaseEnd { tag_ms: 7, granted: 8, unspent: 3 }));
        let end = LeaseEnd { tag_ms: 7, granted: 8, unspent: 3 };
        assert_eq!(held.give_up(|| 3), Some(end));
        assert_eq!(held.give_up(|| 3), None);
        assert!(!held.is_over(SECOND_NS) && held.is_over(SECOND_NS + 2));
    }

    #[test]
    fn lease_without_a_word_goes_back_whole() {
        let mut held = held();
        let _ = begin(&mut held, 1, 0);
        held.end(None);
        let _ = begin(&mut held, 2, 0);
        grant(&mut held, 8, 2);
        held.has_no_word();
        let request = held.begin(3, SECOND_NS, 1000, || unreachable!()).unwrap();
        let end = LeaseEnd { tag_ms: 7, granted: 8, unspent: 8 };
        assert_eq!((request.want, request.end), (0, Some(end)));
        held.end(Some(end));
        held.has_no_word();
        assert_eq!(held.give_up(|| unreachable!()), Some(end));
    }

    #[test]
    fn no_two_leases_end_at_the_same_time() {
        let mut held = held();
        let mut ends = Vec::new();
        for until_ns in [9, 9, 8, 9, 20, 20, 3, 20, 19, 40].map(|at| at * TICK_NS + 1) {
            let granted = Granted { units: 1, tag_ms: 1, until_ms: 1 };
            let end = held.grant(granted, 1, until_ns);
            assert!(end <= until_ns && !ends.contains(&end), "{end} of {ends:?}");
            ends.push(end);
        }
    }
}
