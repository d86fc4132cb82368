//! What a limiter's table holds, and what has been done to it.

use std::time::Instant;

/// What a limiter's table holds, and what has been done to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Cells that there are.
    pub cells: usize,
    /// Bytes that the cells and their keys take, room for more and what is not freed yet included.
    pub bytes: usize,
    /// Of these, the bytes that came from the system directly, past the program's allocator. Large
    /// parts of the lock-free table do, so that neither a call that gets one nor a call that frees one
    /// has to wait for an allocator's housekeeping.
    pub mapped_bytes: usize,
    /// Cells that were dropped because they were full, since the limiter was made.
    pub swept: u64,
    /// Steps of sweeps that were made.
    pub steps: u64,
    /// Passes of the thread that panicked.
    pub panics: u64,
    /// Panics of rules of the caller's own that were caught: in `is_full`, where the sweep leaves the cell and goes
    /// on, and where a place is given up that another call takes back, which then stays taken.
    pub rule_panics: u64,
    /// Steps of sweeps, of calls at the cap too, that were skipped because the clock was not believed: see
    /// [`Limiter::sweep`](crate::Limiter::sweep).
    pub clock_skips: u64,
    /// When the last step ended.
    pub last_run: Option<Instant>,
    /// Times that a part of the table was moved to a larger or smaller one.
    pub migrations: u64,
    /// Parts that were left and are not freed yet: a thread might read them, or they go back to the
    /// system piece by piece, with the next calls and sweeps. A thread that stands still in the middle
    /// of a call, of this limiter or another, holds back all that are left after it came. Past as many
    /// bytes as the table has in use, or 16 MiB if that is more, a part is left only to make room for
    /// buckets that are not full. So [`bytes`](Stats::bytes) is at most three times what the table has in
    /// use, and 16 MiB; a reload beside such a thread leaves the whole table once more.
    pub retired: usize,
    /// Times that a part was not left because of that. Where its places are used up by buckets that were
    /// dropped, new ids are treated as beyond the cap ([`AtCap`](crate::options::AtCap)) until the thread goes on.
    pub put_off: u64,
    /// Calls for new keys at the cap that were decided by the shared bucket.
    pub shared: u64,
    /// Calls for new keys that were denied because of the cap.
    pub denied_at_cap: u64,
    /// Calls for new keys that were allowed and not counted because of the cap.
    pub allowed_at_cap: u64,
}
