//! The places that a batch takes for its members, all of them for one time.

use std::time::Duration;

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::batch::prepared::{INLINE_MEMBERS, OF_SPEND};
use crate::limiter::batch::{Batch, Member};
use crate::limiter::reserve::claim::{Claim, CountedCall};
use crate::limiter::reserve::pending::PendingPlace;
use crate::limiter::reserve::wanted::Wanted;
use crate::limiter::reserve::{Receipt, Reservation, ReserveError, TakenPlace};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::time::saturating_ns;

impl Batch<'_> {
    /// Returns the error of a batch that could never be charged.
    pub(super) fn validate(&self) -> Result<(), Error> {
        self.with_members(OF_SPEND, true, &mut |_, _| Ok(Decision::UNLIMITED)).map(|_| ())
    }

    /// Counts a call that was refused for the member at this position.
    pub(super) fn refused(&self, Refusal { error, position, .. }: Refusal) -> ReserveError {
        let denial = match error {
            ReserveError::Blocked { left: wait } | ReserveError::NotInTime { needed: wait } => {
                Decision::new(false, (0, 1), saturating_ns(wait), 0)
            }
            ReserveError::TooFarAhead => Decision::new(false, (0, 1), 0, 0),
            ReserveError::NoRoom => Decision::without_room(0),
            ReserveError::NoPlaces { .. } | ReserveError::Wrong(_) => return error,
        };
        let Member { handle, id, .. } = self.members[position];
        handle.count_refusal(id, &denial, self.limiter.inner.clock.now_ns());
        error
    }

    /// Takes places for the members at these positions, all of them for one time, which may be `after_blocks`.
    pub(super) fn take_places(
        &self,
        positions: &[usize],
        at_most_ns: u64,
        after_blocks: bool,
    ) -> Result<TakenPlaces<'_>, Refusal> {
        let now_ns = self.limiter.inner.clock.now_ns();
        let mut from_ns = now_ns;
        // Repeats only if another call has taken a place or blocked an id meanwhile.
        'again: loop {
            let found = self.find_grant(positions, now_ns, from_ns, after_blocks);
            let (granted_ns, latest) = match found {
                Ok(found) => found,
                Err(Refusal { error: ReserveError::Blocked { left }, .. })
                    if after_blocks && saturating_ns(left) <= at_most_ns =>
                {
                    from_ns = now_ns.saturating_add(saturating_ns(left));
                    continue;
                }
                Err(refused) => return Err(refused),
            };
            let needed_ns = granted_ns - now_ns;
            if needed_ns > at_most_ns {
                let needed = Duration::from_nanos(needed_ns);
                return Err(Refusal::new(ReserveError::NotInTime { needed }, latest));
            }
            let mut taken = TakenPlaces::default();
            for &position in positions {
                let member = &self.members[position];
                let wanted = Wanted::PlaceOfBatch {
                    at_most_ns: u64::MAX,
                    from_ns: granted_ns,
                    after_blocks,
                };
                let mut place =
                    match member.handle.reserve_as(member.id, member.cost, now_ns, wanted) {
                        Ok(place) => place,
                        // It is looked for again, and then waited for or refused.
                        Err(ReserveError::Blocked { .. }) if after_blocks => continue 'again,
                        // There was room when the place was looked for: the shared bucket would stand idle in front of it.
                        Err(error @ ReserveError::NoRoom) => {
                            return Err(Refusal { error, position, is_of_place: true });
                        }
                        Err(error) => return Err(Refusal::new(error, position)),
                    };
                from_ns = place.reservation.granted_at_ns.max(granted_ns);
                place.reservation.granted_at_ns = from_ns;
                taken.push(member, position, place);
                if from_ns > granted_ns && !fault::active(Fault::BatchPlacesApart) {
                    coverage::hit(Race::PlaceTakenFirst);
                    // A bucket that is named twice, and has had no limit before, would repeat this for ever.
                    self.validate().map_err(|error| Refusal::new(error.into(), position))?;
                    if taken.is_above_shared_bucket() {
                        let error = ReserveError::NoRoom;
                        return Err(Refusal { error, position, is_of_place: false });
                    }
                    continue 'again;
                }
            }
            return Ok(taken);
        }
    }

    /// Returns the earliest time from `from_ns` on at which all members have their units, and the position of a member that has
    /// none before. Nothing is charged.
    fn find_grant(
        &self,
        positions: &[usize],
        now_ns: u64,
        mut from_ns: u64,
        after_blocks: bool,
    ) -> Result<(u64, usize), Refusal> {
        let mut latest = positions.first().copied().unwrap_or(0);
        // The number of members in a row that have their units at `from_ns`.
        let mut agreed = 0;
        for &position in positions.iter().cycle() {
            let member = &self.members[position];
            let wanted = Wanted::LookForPlace { from_ns, after_blocks };
            let looked = member.handle.reserve_as(member.id, member.cost, now_ns, wanted);
            let looked = looked.map_err(|error| Refusal::new(error, position))?;
            let granted_ns = looked.reservation.granted_at_ns;
            if granted_ns > from_ns {
                (from_ns, latest, agreed) = (granted_ns, position, 0);
            }
            agreed += 1;
            if agreed == positions.len() {
                break;
            }
        }
        Ok((from_ns, latest))
    }
}

/// Why a batch gets no places.
pub(super) struct Refusal {
    error: ReserveError,
    /// The position of the member that gets none.
    pub(super) position: usize,
    /// Whether a batch that waits may charge the member without a place.
    pub(super) is_of_place: bool,
}

impl Refusal {
    fn new(error: ReserveError, position: usize) -> Refusal {
        let is_of_place = matches!(error, ReserveError::NoPlaces { .. });
        Refusal { error, position, is_of_place }
    }
}

/// The places that a batch has taken. They are cancelled when it is dropped, and counted once the batch has all its charges.
#[derive(Default)]
pub(super) struct TakenPlaces<'m> {
    pub(super) places: PendingPlace,
    /// For each place its member, and how its call is counted.
    counted: SmallVec<[(&'m Member<'m>, Option<CountedCall>); INLINE_MEMBERS]>,
}

impl<'m> TakenPlaces<'m> {
    fn push(&mut self, member: &'m Member<'m>, position: usize, taken: TakenPlace) {
        let TakenPlace { mut reservation, counted } = taken;
        if let Some((_, claim)) = &mut reservation.charged {
            claim.set_position(position);
        }
        self.places.push(reservation);
        self.counted.push((member, counted));
    }

    /// Whether the last member's bucket is shared by ids without room, and the members that use it together need more
    /// units than the bucket ever holds. Such members have no common time.
    fn is_above_shared_bucket(&self) -> bool {
        let shared = self.places.claims().last().and_then(Claim::shared_bucket);
        let counted = self.counted.last().and_then(|&(_, counted)| counted);
        let Some((shared, CountedCall { burst, .. })) = shared.zip(counted) else { return false };
        let others = self.places.claims().filter(|claim| claim.shared_bucket() == Some(shared));
        others.map(Claim::cost).fold(0, u64::saturating_add) > burst
    }

    /// Whether the id of a place is blocked now, and a limit applies to it.
    pub(super) fn is_blocked(&self, batch: &Batch<'_>) -> bool {
        let inner = &*batch.limiter.inner;
        let from_ns = inner.clock.now_ns();
        let wanted = Wanted::LookForPlace { from_ns, after_blocks: true };
        inner.blocks.is_any()
            && self.counted.iter().any(|(member, _)| {
                // Whatever else has changed does not concern a place that is due.
                let looked = member.handle.reserve_as(member.id, member.cost, from_ns, wanted);
                looked.is_err_and(|error| error.is_blocked())
            })
    }

    pub(super) fn into_reservation(mut self) -> Reservation {
        for (member, counted) in &self.counted {
            let Some(CountedCall { decision, burst, cost, would_deny }) = counted else { continue };
            if let Some(stripes) = &member.handle.stripes {
                stripes.count_allowed(decision, *burst, *cost);
            }
            member.handle.note_shadow(*would_deny);
        }
        self.places.take().unwrap_or_else(|| Reservation::granted(Receipt::of_nothing()))
    }
}
