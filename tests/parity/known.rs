//! What fails on the code as it is. Each is one feature of the random runs, which its mending switches on.

/// Overrides end while the limiter is at work. Issue 11, section 1: an override's end renumbers cells with
/// a migration on one engine, and on the other not at all.
pub(crate) const ENDS: bool = true;
