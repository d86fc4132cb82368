//! Waiting until it is allowed, and settling what was charged by an estimate.
//!
//! Who waits takes its place by moving the word beyond what the bucket holds, and sleeps until its time
//! has come. The word is the queue: places are served in the order in which they were taken, and nobody
//! is woken to find that another was faster.

mod claim;
mod receipt;
mod refusal;
mod reservation;
mod until;

#[cfg(feature = "tower")]
pub(crate) use claim::Claim;
pub use receipt::Receipt;
pub use refusal::ReserveError;
pub use reservation::Reservation;
pub use until::{Parking, Timer, Waiting};
