//! Counts the requests that HTTP layers reject before a limit decides, by reason.

use crate::util::sync::{Figure, Ordering};

/// Why a layer rejects a request before a limit decides. It is the label `reason` of `tollgate_rejected_total`.
///
/// # Example
///
/// ```
/// use http::StatusCode;
/// use tollgate::http::{Rejection, RejectionKind};
///
/// let rejection = Rejection::new(StatusCode::UNAUTHORIZED, "no API key");
/// assert_eq!(rejection.kind(), RejectionKind::Custom);
/// assert_eq!(rejection.kind().name(), "custom");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// `client_address`, 500: the client's address is unknown. [`Rejection::cause`](crate::http::Rejection::cause) has the
    /// reason.
    ClientAddress,
    /// `no_id`: the request has no id. A 400 if the client sends it, a 500 if the server provides it.
    NoId,
    /// `invalid_id`, 400: the id that the client sends is given twice, is not readable, or is not of the limit's format.
    InvalidId,
    /// `no_route`, 404: a rule is for a route, and that of the request is unknown.
    NoRoute,
    /// `cost_above_burst`, 400: the request costs more than the limit ever allows.
    CostAboveBurst,
    /// `store`, 500: the store of a shared limit has failed, and the limit's policy does not decide.
    Store,
    /// `limiter`, 500: another error of a limit, such as a factor that takes its numbers out of their range, or an id of the
    /// server that is not of the limit's format.
    Limiter,
    /// `custom`: a rule's own function has made the rejection.
    Custom,
}

impl RejectionKind {
    pub(crate) const ALL: [RejectionKind; 8] = [
        RejectionKind::ClientAddress,
        RejectionKind::NoId,
        RejectionKind::InvalidId,
        RejectionKind::NoRoute,
        RejectionKind::CostAboveBurst,
        RejectionKind::Store,
        RejectionKind::Limiter,
        RejectionKind::Custom,
    ];

    /// Returns the name in metrics and events.
    pub fn name(self) -> &'static str {
        match self {
            RejectionKind::ClientAddress => "client_address",
            RejectionKind::NoId => "no_id",
            RejectionKind::InvalidId => "invalid_id",
            RejectionKind::NoRoute => "no_route",
            RejectionKind::CostAboveBurst => "cost_above_burst",
            RejectionKind::Store => "store",
            RejectionKind::Limiter => "limiter",
            RejectionKind::Custom => "custom",
        }
    }
}

/// The counts of a limiter's layers. Always counted.
#[derive(Default)]
pub(crate) struct Rejections {
    has_layer: Figure,
    counts: [Figure; RejectionKind::ALL.len()],
    /// The second of the last event of each kind, from 1.
    #[cfg(feature = "tracing")]
    logged: [Figure; RejectionKind::ALL.len()],
}

impl Rejections {
    /// Notes that the limiter has a layer, so that its metrics have these counts.
    pub(crate) fn add_layer(&self) {
        // Relaxed, here and below: figures for operators.
        self.has_layer.store(1, Ordering::Relaxed);
    }

    /// Counts a rejection. Returns the count if an event is due: the first rejection of its kind in each second.
    #[cold]
    pub(crate) fn count(&self, kind: RejectionKind, now_ns: u64) -> Option<u64> {
        let count = self.counts[kind as usize].fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.is_event_due(kind, now_ns).then_some(count)
    }

    #[cfg(feature = "tracing")]
    fn is_event_due(&self, kind: RejectionKind, now_ns: u64) -> bool {
        let (logged, second) = (&self.logged[kind as usize], now_ns / 1_000_000_000 + 1);
        // Of several threads the one that stores the second first logs the event.
        logged.load(Ordering::Relaxed) != second && logged.swap(second, Ordering::Relaxed) != second
    }

    #[cfg(not(feature = "tracing"))]
    fn is_event_due(&self, _: RejectionKind, _: u64) -> bool {
        false
    }

    /// Returns the counts in the order of [`RejectionKind::ALL`]. `None` if the limiter has no layer.
    pub(crate) fn read(&self) -> Option<[u64; RejectionKind::ALL.len()]> {
        let has_layer = self.has_layer.load(Ordering::Relaxed) == 1;
        has_layer.then(|| std::array::from_fn(|kind| self.counts[kind].load(Ordering::Relaxed)))
    }
}
