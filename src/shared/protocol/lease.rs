//! Leases: units that a node takes from a bucket ahead of its calls, and gives out itself until the lease ends.
//!
//! The store keeps the units of all leases that have not ended, in at most two groups by the time of their
//! end. While units are leased, the bucket does not refill past them: it has at most the units that a full
//! bucket has left after the leased units are taken from it. This is the guard. Without it a unit that is spent late is spent beside those that came meanwhile.
//! Only gcra has leases, for calls without a factor.
//!
//! docs/internals/leases.md has the rules and the proof of the bound; charge.lua has the same steps.

#[cfg(test)]
mod tests;

use crate::algorithm::gcra::Gcra;
use crate::algorithm::timed_count::NS_PER_MS;
use crate::limit::Limit;
use crate::shared::protocol::text::{LAST_UNIX_MS, ORIGIN_MS, SharedBucket, rule_time_ns, unix_ms};

/// The most units that one call takes ahead.
pub(crate) const MAX_LEASE_UNITS: u64 = (1 << 20) - 1;

/// The part of a call that asks for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    /// The units to take ahead. They are halved until they are at most half of the units that the bucket has left.
    pub(crate) want: u64,
    /// A lease ends after this time at the earliest, and after twice this time at the latest.
    pub(crate) length_ms: u64,
    /// The node's last lease, which it has given up.
    pub(crate) end: Option<LeaseEnd>,
}

/// A lease that a node gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseEnd {
    /// See [`Granted::tag_ms`].
    pub(crate) tag_ms: u64,
    pub(crate) granted: u64,
    /// Units that no call has spent.
    pub(crate) unspent: u64,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) units: u64,
    /// Its group's end.
    pub(crate) tag_ms: u64,
    /// The time until which the node may spend it, on the store's clock, in ms since 1970.
    pub(crate) until_ms: u64,
}

impl SharedBucket {
    /// Returns the bucket as calls of this time find it: leases that have ended are taken for spent at their last moment, and the
    /// others hold their units. `own`: the limit without a factor.
    pub(crate) fn guarded(self, own: &Limit, unix_ns: u64) -> SharedBucket {
        let (leases, mut this) = (self.leases, self);
        for group in leases.iter().filter(|group| group.until_ms <= unix_ms(unix_ns)) {
            // The later group is still leased when the earlier one ends.
            let units = this.leases.units();
            this.word = guarded_word(own, this.word, group.until_ms * NS_PER_MS, units);
            this.leases = this.leases.without(group.until_ms, group.units).unwrap_or_default();
        }
        this.with_guard(own, unix_ns)
    }

    /// Returns the bucket with the guard: with at most the units of a full bucket less the leased ones.
    pub(crate) fn with_guard(self, own: &Limit, unix_ns: u64) -> SharedBucket {
        match self.leases.units() {
            0 => self,
            units => SharedBucket { word: guarded_word(own, self.word, unix_ns, units), ..self },
        }
    }

    /// Gives the unspent units of a lease back, and takes it out of the groups. `None` if it has ended already: then nothing
    /// comes back. The bucket is [guarded](Self::guarded).
    pub(crate) fn without_lease(
        self,
        own: &Limit,
        unix_ns: u64,
        end: LeaseEnd,
    ) -> Option<SharedBucket> {
        let LeaseEnd { tag_ms, granted, .. } = end;
        // A limit may have become smaller since the lease.
        let unspent = end.unspent.min(granted).min(own.burst());
        // The guard holds at least the unspent units, so the word does not go below the present.
        let word = self.word.checked_sub(own.rule().gcra()?.emission_interval_ns() * unspent)?;
        let leases = self.leases.without(tag_ms, granted)?;
        Some(SharedBucket { word, leases, ..self }.with_guard(own, unix_ns))
    }

    /// Takes units ahead for a node. `None` if there are too few. The bucket is [guarded](Self::guarded).
    pub(crate) fn with_lease(
        self,
        own: &Limit,
        unix_ns: u64,
        request: LeaseRequest,
    ) -> Option<(SharedBucket, Granted)> {
        let (gcra, now_ns) = (own.rule().gcra()?, rule_time_ns(unix_ns));
        let mut units = request.want.min(MAX_LEASE_UNITS).min(gcra.burst() / 2);
        while units > 0 && !gcra.spend(self.word, now_ns, 2 * units).decision.allowed() {
            units /= 2;
        }
        if units == 0 {
            return None;
        }
        let length_ms = request.length_ms;
        let until_ms = (unix_ms(unix_ns) / length_ms + 2) * length_ms;
        if !(ORIGIN_MS..=LAST_UNIX_MS).contains(&until_ms) {
            return None;
        }
        let word = gcra.spend(self.word, now_ns, units).word?;
        let (leases, tag_ms) = self.leases.with(until_ms, units)?;
        Some((SharedBucket { word, leases, ..self }, Granted { units, tag_ms, until_ms }))
    }
}

/// Returns the word of the bucket, with at most the units that are left after `units` are taken from a full one at this time.
/// `units` may be more than the burst, if the limit has become smaller since: then the bucket owes units.
fn guarded_word(own: &Limit, word: u64, unix_ns: u64, units: u64) -> u64 {
    own.rule().gcra().map_or(word, |gcra| word.max(held_until_ns(gcra, unix_ns, units)))
}

/// Returns the TAT of a full bucket after `units` are taken from it.
fn held_until_ns(gcra: &Gcra, unix_ns: u64, units: u64) -> u64 {
    /// About 136 years, in s. Units that take longer are cut to as many, or to the burst if that is more, so that the word stays
    /// in its range. More units never take less time.
    const MAX_S: u64 = 1 << 32;
    let interval_ns = gcra.emission_interval_ns();
    let longest = MAX_S / (interval_ns / 1_000_000_000 + 1);
    rule_time_ns(unix_ns) + interval_ns * units.min(longest.max(gcra.burst()))
}
