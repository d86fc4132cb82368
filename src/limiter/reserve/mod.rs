//! Waits until calls are allowed, and settles charges that were estimates.
//!
//! Under gcra a waiter reserves its units by moving the bucket's word beyond what the bucket holds, and sleeps once, until its
//! time has come: the word is the queue. Under the other algorithms it sleeps `retry_in` and spends again.

pub(crate) mod claim;
mod error;
pub(crate) mod pending;
mod receipt;
mod reservation;
pub(crate) mod until;
pub(crate) mod wanted;
#[cfg(all(test, not(tollgate_loom)))]
mod wrapped_tests;

pub use error::ReserveError;
pub use receipt::Receipt;
pub use reservation::Reservation;
pub(crate) use reservation::TakenPlace;
pub use until::{Parking, Timer, Waiting};
