//! A charge that its caller may roll back or increase later.

use crate::decision::Decision;
use crate::limiter::reserve::claim::Claim;
#[cfg(feature = "valkey")]
use crate::limiter::shared::charged::ChargedInStore;

/// A charge of a bucket on this node, or in the store of shared limits.
pub(crate) enum Charged {
    Here(Claim),
    #[cfg(feature = "valkey")]
    InStore(ChargedInStore),
}

impl Charged {
    /// Reads the limiter's clock.
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Charged::Here(claim) => claim.now_ns(),
            #[cfg(feature = "valkey")]
            Charged::InStore(charge) => charge.now_ns(),
        }
    }

    /// Rolls the charge back. In the store it is refunded, and the refund only begins.
    #[cfg(feature = "tower")]
    pub(crate) fn give_back(&self) {
        match self {
            Charged::Here(claim) => claim.roll_back_to(0),
            #[cfg(feature = "valkey")]
            Charged::InStore(charge) => charge.give_back(),
        }
    }

    /// Decides a check of the bucket at a cost of 0; `None` if only the store can tell.
    #[cfg(feature = "tower")]
    pub(crate) fn look(&self) -> Option<Decision> {
        match self {
            Charged::Here(claim) => Some(claim.look()),
            #[cfg(feature = "valkey")]
            Charged::InStore(_) => None,
        }
    }

    /// Cancels a reservation that is granted at `granted_at_ns`. In the store the cancel only begins.
    pub(super) fn cancel(&self, granted_at_ns: u64) {
        match self {
            Charged::Here(claim) => claim.cancel(granted_at_ns),
            #[cfg(feature = "valkey")]
            Charged::InStore(charge) => charge.begin_cancel(),
        }
    }

    /// Settles a charge of `cost` units. In the store the settlement only begins, and the decision has no figures.
    pub(super) fn settle(&self, cost: u64, actual: u64) -> Decision {
        match self {
            Charged::Here(claim) => {
                if actual < cost {
                    claim.roll_back_to(actual);
                } else if actual > cost {
                    claim.owe(actual - cost);
                }
                claim.look()
            }
            #[cfg(feature = "valkey")]
            Charged::InStore(charge) => {
                charge.begin_settle(actual);
                Decision::UNLIMITED
            }
        }
    }
}
