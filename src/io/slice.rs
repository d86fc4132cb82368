//! Takes the places of bytes in a bucket.

use std::time::Duration;

use crate::algorithm::demand::Demand;
use crate::algorithm::gcra::Gcra;
use crate::core::spent::Charge;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::{Reservation, ReserveError};
use crate::store::key::Key;

/// A place in a bucket for some bytes. Each byte has its own part of the bucket's time, in the order of the bytes, and no two
/// slices of a bucket overlap. So the streams stay within the limit if no byte moves after its own part has begun. Dropping
/// a slice vacates the parts of the bytes that have not moved.
pub(super) struct Slice {
    place: Reservation,
    /// The charge of the place, and the time at which the part of the last byte ends.
    charge: Charge,
    end_ns: u64,
    /// The bytes that have not moved.
    left: u64,
    has_begun: bool,
}

/// How long after its time a place may still be used: timers are late.
const LATE_NS: u64 = 100_000_000;
/// The time in which the limit grants a slice.
const SLICE_NS: u64 = 4_000_000;
const MIN_BYTES: u64 = 512;
const MAX_BYTES: u64 = 1024 * 1024;

/// The largest slice. All streams have equal ones, so that each gets as much as the others.
fn max_bytes(gcra: &Gcra) -> u64 {
    let in_time = SLICE_NS / gcra.emission_interval_ns();
    in_time.clamp(MIN_BYTES, MAX_BYTES).min(gcra.burst())
}

/// What a stream asks for.
#[derive(Clone, Copy)]
pub(super) struct Want {
    /// The bytes that it could move now.
    pub(super) now: u64,
    /// The bytes for which it takes places at least, for its later chunks; at first those of 4 ms.
    pub(super) ahead: Option<u64>,
}

/// Returns the size of the next slice; `None` if no limit applies to the key.
fn size_of_next(
    limit: &KeyedLimit,
    key: &Key,
    want: Want,
    now_ns: u64,
) -> Result<Option<u64>, ReserveError> {
    let inner = &*limit.limiter.inner;
    if !inner.is_enabled() {
        return Ok(None);
    }
    inner.with_view(|view| {
        let limits = &view.generation.limits;
        let Some(applying) = limits.applying(key.as_ref(), view.limits_ns(now_ns)) else {
            return Ok(Ok(None));
        };
        let Some(gcra) = applying.limit.rule().gcra() else {
            let algorithm = applying.limit.rule().name();
            return Ok(Err(ReserveError::NoPlaces { algorithm }));
        };
        let ahead = want.ahead.unwrap_or(SLICE_NS / gcra.emission_interval_ns());
        let mut size = want.now.max(ahead).min(max_bytes(gcra));
        let key = view.store_key(applying.key, applying.tag);
        if want.now < size {
            // A stream's last bytes do not wait for places of later ones.
            let demanded = (applying.limit, Demand::NOTHING);
            let ask = |word, at_ns| applying.limit.rule().spend(word, at_ns, 0);
            let left = view.look(&key, demanded, now_ns, ask)?.remaining().unwrap_or(u64::MAX);
            if left >= want.now {
                size = size.min(left);
            }
        }
        if !inner.places.is_any() {
            return Ok(Ok(Some(size)));
        }
        // The rest of a slice that another stream has left is used up first, also if it is smaller.
        let vacant = view.vacant_units(&key, gcra, now_ns);
        Ok(Ok(Some(vacant.map_or(size, |vacant| size.min(vacant)))))
    })
}

impl Slice {
    /// Whether the limit can grant slices.
    pub(super) fn check(limit: &KeyedLimit, key: &Key, now_ns: u64) -> Result<(), ReserveError> {
        size_of_next(limit, key, Want { now: 1, ahead: None }, now_ns).map(drop)
    }

    /// Takes a place; `None` if the bytes may move freely.
    pub(super) fn take(
        limit: &KeyedLimit,
        key: &Key,
        want: Want,
        now_ns: u64,
    ) -> Result<Option<Slice>, ReserveError> {
        loop {
            let Some(size) = size_of_next(limit, key, want, now_ns)? else { return Ok(None) };
            let place = match limit.reserve_key(key.as_ref(), size, now_ns) {
                // A reload has lowered the burst in between.
                Err(error) if error.is_never() => continue,
                place => place?,
            };
            // In shadow mode the limit may have charged nothing.
            let Some(charge) = place.charge else { return Ok(None) };
            let (end_ns, left) = (charge.word, size);
            return Ok(Some(Slice { place, charge, end_ns, left, has_begun: false }));
        }
    }

    /// Whether another stream has left a place of the bucket that has a byte.
    pub(super) fn is_any_vacant(limit: &KeyedLimit, key: &Key) -> bool {
        let inner = &*limit.limiter.inner;
        if !inner.places.is_any() {
            return false;
        }
        let now_ns = inner.clock.now_ns();
        inner.with_view(|view| {
            let applying = view.generation.limits.applying(key.as_ref(), view.limits_ns(now_ns));
            Ok(applying.is_some_and(|applying| {
                let key = view.store_key(applying.key, applying.tag);
                let gcra = applying.limit.rule().gcra();
                gcra.is_some_and(|gcra| view.vacant_units(&key, gcra, now_ns).is_some())
            }))
        })
    }

    /// The time at which the place is granted.
    pub(super) fn granted_at_ns(&self) -> u64 {
        self.place.granted_at_ns
    }

    /// The time until the place is granted.
    pub(super) fn wait(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.place.granted_at_ns.saturating_sub(now_ns))
    }

    /// The bytes that may move now, once the place is granted. The first ones may be late, as their timer was.
    pub(super) fn bytes(&mut self, now_ns: u64) -> u64 {
        let interval_ns = self.charge.mark.0.max(1);
        let left_ns = interval_ns.saturating_mul(self.left);
        if !self.has_begun {
            if now_ns > self.end_ns.saturating_add(LATE_NS) {
                return 0;
            }
            self.has_begun = true;
            self.end_ns = self.end_ns.max(now_ns.saturating_add(left_ns));
        }
        let until_ns = self.end_ns.saturating_sub(now_ns);
        if until_ns < left_ns {
            self.left = until_ns / interval_ns;
        }
        self.left
    }

    /// Notes that `bytes` bytes have moved.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.left == 0
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The bytes of the whole place.
    pub(super) fn size(&self) -> u64 {
        self.place.cost
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        if self.left > 0
            && let Some((by, claim)) = &self.place.charged
        {
            claim.vacate(by, self.charge, self.left);
        }
    }
}
