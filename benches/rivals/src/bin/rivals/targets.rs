//! The most that a row may take.

use rivals::work::{Outcome, Work};

use crate::cases::Case;

/// The most nanoseconds that a layer may add to a request.
const LAYER_NS: f64 = 1000.0;

/// Returns the largest share of governor's time that a call on one thread may take; for a layer, the most nanoseconds.
/// Two threads may take the share that one takes.
pub(crate) fn at_most(case: &Case) -> Option<f64> {
    let shares: &[(usize, f64)] = match (case.work, case.outcome) {
        (work, Outcome::Allowed) if work.is_layer() => return Some(LAYER_NS),
        (Work::Text, Outcome::Allowed) => {
            &[(1, 0.65), (100_000, 0.55), (1_000_000, 0.55), (4_000_000, 0.55)]
        }
        (Work::Uuid, Outcome::Allowed) => {
            &[(1, 0.85), (100_000, 0.55), (1_000_000, 0.55), (4_000_000, 0.55)]
        }
        (Work::U64, Outcome::Allowed) => {
            &[(1, 0.75), (100_000, 1.4), (1_000_000, 0.75), (10_000_000, 0.75)]
        }
        (Work::Ipv4, Outcome::Allowed) => &[(1, 0.85), (100_000, 0.85), (1_000_000, 0.75)],
        (Work::Ipv6, Outcome::Allowed) => &[(1, 0.9)],
        (Work::Batch2, Outcome::Allowed) => &[(1, 1.3), (100_000, 0.75), (1_000_000, 0.65)],
        (Work::Bucket, Outcome::Allowed) => &[(1, 0.9)],
        _ => &[],
    };
    shares.iter().find(|(keys, _)| *keys == case.keys).map(|(_, share)| *share)
}
