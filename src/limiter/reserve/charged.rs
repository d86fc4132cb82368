//! A charge of which its caller may return units or charge more later.

use crate::decision::Decision;
use crate::limiter::reserve::claim::Claim;
#[cfg(feature = "valkey")]
use crate::limiter::shared::charged::ChargedInStore;
#[cfg(feature = "valkey")]
use crate::limiter::shared::taken::TakenFromLease;

/// A charge of a bucket on this node, of one in the store of shared limits, or of a lease of one.
pub(crate) enum Charged {
    Here(Claim),
    #[cfg(feature = "valkey")]
    InStore(Box<ChargedInStore>),
    #[cfg(feature = "valkey")]
    FromLease(Box<TakenFromLease>),
}

impl Charged {
    /// Reads the limiter's clock.
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Charged::Here(claim) => claim.now_ns(),
            #[cfg(feature = "valkey")]
            Charged::InStore(charge) => charge.now_ns(),
            #[cfg(feature = "valkey")]
            Charged::FromLease(taken) => taken.now_ns(),
        }
    }

    /// Returns the charge's units. In the store the return only begins.
    #[cfg(feature = "tower")]
    pub(crate) fn give_back(&self) {
        match self {
            Charged::Here(claim) => claim.give_back_all(),
            #[cfg(feature = "valkey")]
            Charged::InStore(charge) => charge.begin_return(),
            #[cfg(feature = "valkey")]
            Charged::FromLease(taken) => taken.give_back(),
        }
    }

    /// Decides a check of the bucket at a cost of 0; `None` if only the store can tell.
    #[cfg(feature = "tower")]
    pub(crate) fn look(&self) -> Option<Decision> {
        match self {
            Charged::Here(claim) => Some(claim.look()),
            #[cfg(feature = "valkey")]
            Charged::InStore(_) | Charged::FromLease(_) => None,
        }
    }

    /// Cancels a reservation that is granted at `granted_at_ns`. In the store the cancel only begins.
    pub(super) fn cancel(&self, granted_at_ns: u64) {
        match self {
            Charged::Here(claim) => claim.cancel(granted_at_ns),
            #[cfg(feature = "valkey")]
            Charged::InStore(charge) => charge.begin_cancel(),
            // Leased limits have no reservations and no estimates.
            #[cfg(feature = "valkey")]
            Charged::FromLease(_) => {}
        }
    }

    /// Settles a charge of `cost` units. In the store the settlement only begins, and the decision has no figures.
    pub(super) fn settle(&self, cost: u64, actual: u64) -> Decision {
        match self {
            Charged::Here(claim) => {
                match actual.checked_sub(cost) {
                    None => claim.give_back(cost - actual),
                    Some(0) => {}
                    Some(more) => claim.owe(more),
                }
                claim.look()
            }
            #[cfg(feature = "valkey")]
            Charged::InStore(charge) => {
                charge.begin_settle(cost, actual);
                Decision::UNLIMITED
            }
            #[cfg(feature = "valkey")]
            Charged::FromLease(_) => Decision::UNLIMITED,
        }
    }
}
