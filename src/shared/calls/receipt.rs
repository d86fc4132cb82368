//! Receipts and reservations of limits that nodes may share.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::reserve::{Receipt, Reservation};
use crate::shared::calls::answer;
use crate::shared::calls::charged::ChargedInStore;

/// A charged estimate, which [`settle`](SharedReceipt::settle) replaces by the actual cost. A receipt that is dropped leaves
/// its estimate charged.
#[must_use = "the estimate stays charged until it is settled"]
pub struct SharedReceipt(pub(super) Of);

/// Where the charge of a receipt is.
pub(super) enum Of {
    Here(Receipt),
    InStore { charge: Box<ChargedInStore>, cost: u64 },
}

impl SharedReceipt {
    /// A receipt of a call that has charged nothing.
    pub(super) fn of_nothing(cost: u64) -> SharedReceipt {
        SharedReceipt(Of::Here(Receipt { charged: None, cost }))
    }

    pub(super) fn of_local(receipt: Receipt) -> SharedReceipt {
        SharedReceipt(Of::Here(receipt))
    }

    /// Returns the estimate.
    pub fn cost(&self) -> u64 {
        match &self.0 {
            Of::Here(receipt) => receipt.cost(),
            Of::InStore { cost, .. } => *cost,
        }
    }

    /// Replaces the estimate by the actual cost: see [`Receipt::settle`]. It begins when it is called; the future only waits for
    /// the decision, and may be dropped.
    ///
    /// # Errors
    ///
    /// [`Error::is_store_failure`] if the store does not answer in time or has a text that is no bucket. The estimate may stay
    /// charged then.
    ///
    /// # Example
    ///
    /// See [`SharedLimit::spend_estimate`](crate::shared::SharedLimit::spend_estimate).
    pub fn settle(
        self,
        actual: u64,
    ) -> impl Future<Output = Result<Decision, Error>> + Send + use<> {
        let (settling, here) = match self.0 {
            Of::Here(receipt) => (None, Ok(receipt.settle(actual))),
            Of::InStore { charge, cost } => match charge.settle(cost, actual) {
                Ok(settling) => (settling, Ok(Decision::UNLIMITED)),
                Err(error) => (None, Err(error)),
            },
        };
        async move {
            match settling {
                None => here,
                Some((changed, is_shadow)) => {
                    let decision = answer(changed).await?.check();
                    Ok(if is_shadow { decision.in_shadow() } else { decision })
                }
            }
        }
    }
}

impl fmt::Debug for SharedReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceipt").field("cost", &self.cost()).finish_non_exhaustive()
    }
}

/// Units that are charged and may be used after a [wait](SharedReservation::wait).
#[must_use = "the cost is charged, and may be used only after the wait"]
pub struct SharedReservation(pub(super) Place);

/// Where the charge of a reservation is.
pub(super) enum Place {
    Here(Reservation),
    InStore { charge: Box<ChargedInStore>, cost: u64, granted_at_ns: u64 },
}

impl SharedReservation {
    /// A reservation of a call that has charged nothing and waits for nothing.
    pub(super) fn of_nothing(cost: u64) -> SharedReservation {
        let receipt = Receipt { charged: None, cost };
        SharedReservation(Place::Here(Reservation { receipt, granted_at_ns: 0 }))
    }

    /// Returns how long the caller has to wait from now on.
    pub fn wait(&self) -> Duration {
        match &self.0 {
            Place::Here(reservation) => reservation.wait(),
            Place::InStore { charge, granted_at_ns, .. } => {
                Duration::from_nanos(granted_at_ns.saturating_sub(charge.now_ns()))
            }
        }
    }

    /// Returns the units that are charged.
    pub fn cost(&self) -> u64 {
        match &self.0 {
            Place::Here(reservation) => reservation.cost(),
            Place::InStore { cost, .. } => *cost,
        }
    }

    /// Cancels the reservation: see [`Reservation::cancel`]. Of a shared limit its units come back if no later charge is behind
    /// it; else its place stays empty. It begins when it is called, and nobody need wait for it.
    pub fn cancel(self) {
        match self.0 {
            Place::Here(reservation) => reservation.cancel(),
            Place::InStore { charge, .. } => charge.begin_cancel(),
        }
    }

    /// Returns the receipt of the charge, as if the wait were over.
    pub fn into_receipt(self) -> SharedReceipt {
        SharedReceipt(match self.0 {
            Place::Here(reservation) => Of::Here(reservation.into_receipt()),
            Place::InStore { charge, cost, .. } => Of::InStore { charge, cost },
        })
    }
}

impl fmt::Debug for SharedReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReservation")
            .field("cost", &self.cost())
            .field("wait", &self.wait())
            .finish_non_exhaustive()
    }
}
