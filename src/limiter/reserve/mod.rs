//! Waits until calls are allowed, and settles charges that were estimates.
//!
//! A waiter takes its place by moving the bucket's word beyond what the bucket holds, and sleeps until its time has
//! come. The word is the queue: places are granted in the order in which they were taken, and no waiter wakes only to
//! find that another caller was faster.

mod claim;
mod error;
mod receipt;
mod reservation;
mod until;

#[cfg(feature = "tower")]
pub(crate) use claim::Claim;
pub use error::ReserveError;
pub use receipt::Receipt;
pub use reservation::Reservation;
pub use until::{Parking, Timer, Waiting};
