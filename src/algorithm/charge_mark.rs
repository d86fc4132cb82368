//! What a return of units needs to know of their charge.

/// What a return of units needs to know of their charge: of gcra the interval in ns by which they were charged, of a fixed
/// window its start in ms, of permits their epoch, else 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChargeMark(pub(crate) u64);
