//! Receipts and reservations of limits that nodes may share.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::reserve::{Receipt, Reservation};
use crate::shared::calls::answer;
use crate::shared::calls::charged::ChargedInStore;

/// Charged estimates, of one limit or of the members of a batch, which [`settle`](SharedReceipt::settle) replaces by the actual
/// costs. A receipt that is dropped leaves its estimates charged.
#[must_use = "the estimate stays charged until it is settled"]
pub struct SharedReceipt {
    /// The charges on this node.
    here: Receipt,
    in_store: Vec<StoredEstimate>,
    cost: u64,
}

/// An estimate that is charged to a bucket in the store.
pub(super) struct StoredEstimate {
    pub(super) charge: Box<ChargedInStore>,
    /// The member's position in its batch.
    pub(super) position: Option<usize>,
}

impl SharedReceipt {
    pub(super) fn new(here: Receipt, in_store: Vec<StoredEstimate>) -> SharedReceipt {
        let stored = in_store.iter().map(|estimate| estimate.charge.cost);
        let cost = stored.fold(here.cost(), u64::saturating_add);
        SharedReceipt { here, in_store, cost }
    }

    /// A receipt of a call that has charged nothing.
    pub(super) fn of_nothing(cost: u64) -> SharedReceipt {
        SharedReceipt::of_local(Receipt::of_one(None, cost))
    }

    pub(super) fn of_local(receipt: Receipt) -> SharedReceipt {
        SharedReceipt::new(receipt, Vec::new())
    }

    /// Makes a place that is granted already of the charge of a call for one limit.
    pub(super) fn into_place(mut self) -> Place {
        match self.in_store.pop() {
            Some(StoredEstimate { charge, .. }) => Place::InStore { charge, granted_at_ns: 0 },
            None => Place::Here(Reservation::granted(self.here)),
        }
    }

    /// Returns the estimate, of all members of a batch together. Members that are settled count as well.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Replaces the estimate by the actual cost: see [`Receipt::settle`]. Of a batch it settles each member that is not settled
    /// yet, and returns the strictest decision. It begins when it is called; the future only waits for the decision, and may be
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Error::is_store_failure`] if the store does not answer in time or has a text that is no bucket. The estimate may stay
    /// charged then. Of a batch the other members are settled.
    ///
    /// # Example
    ///
    /// See [`SharedLimit::spend_estimate`](crate::shared::SharedLimit::spend_estimate).
    pub fn settle(
        self,
        actual: u64,
    ) -> impl Future<Output = Result<Decision, Error>> + Send + use<> {
        let here = self.here.settle(actual);
        let begun: Vec<_> = self.in_store.iter().map(|it| it.settle(actual)).collect();
        async move {
            let mut strictest = Ok(here);
            for settling in begun {
                let decision = settling.await;
                strictest = strictest.and_then(|before| Ok(before.stricter(decision?)));
            }
            strictest
        }
    }

    /// Settles one member of a batch: see [`Receipt::settle_member`]. It begins when it is called.
    ///
    /// # Errors
    ///
    /// See [`settle`](SharedReceipt::settle).
    ///
    /// # Example
    ///
    /// See [`SharedBatch::spend_estimate`](crate::shared::SharedBatch::spend_estimate).
    pub fn settle_member(
        &mut self,
        position: usize,
        actual: u64,
    ) -> impl Future<Output = Result<Option<Decision>, Error>> + Send + use<> {
        let is_of = |it: &StoredEstimate| it.position.unwrap_or(0) == position;
        let stored = self.in_store.iter().position(is_of);
        let stored = stored.map(|at| self.in_store.remove(at).settle(actual));
        let here = match &stored {
            Some(_) => None,
            None => self.here.settle_member(position, actual),
        };
        async move {
            match stored {
                Some(settling) => settling.await.map(Some),
                None => Ok(here),
            }
        }
    }
}

impl StoredEstimate {
    /// Begins to settle the estimate; the future only waits for the decision.
    fn settle(&self, actual: u64) -> impl Future<Output = Result<Decision, Error>> + Send + use<> {
        let (begun, position) = (self.charge.settle(actual), self.position);
        async move {
            let Some(settled) = begun? else { return Ok(Decision::UNLIMITED) };
            let decision = answer(settled).await?;
            Ok(position.map_or(decision, |position| decision.for_member(position)))
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
    InStore { charge: Box<ChargedInStore>, granted_at_ns: u64 },
}

impl SharedReservation {
    /// A reservation of a call that has charged nothing and waits for nothing.
    pub(super) fn of_nothing(cost: u64) -> SharedReservation {
        SharedReservation(SharedReceipt::of_nothing(cost).into_place())
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
            Place::InStore { charge, .. } => charge.cost,
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
        match self.0 {
            Place::Here(reservation) => SharedReceipt::of_local(reservation.into_receipt()),
            Place::InStore { charge, .. } => {
                let stored = StoredEstimate { charge, position: None };
                SharedReceipt::new(Receipt::of_nothing(), vec![stored])
            }
        }
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
