//! Makes the waits of denials longer at random.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::util::sync::{Figure, Ordering};
use crate::util::time::share_of;

/// A random time that is added to the wait of each denial, so that clients which were denied together do not come again
/// together. A wait is never shorter than without it.
///
/// The longer wait is in `Retry-After`, in `t` and the resets of the limits that deny, in the problem document, and in the
/// decision that a responder sees.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::http::{Fields, HttpLimit, Jitter};
/// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
/// let limiter = Limiter::with_options(limits, Clock::manual().0)?;
/// let jitter = Jitter::up_to(Duration::from_secs(10));
/// let per_user = HttpLimit::new(limiter.limit("PerUser")?, Fields::none()).retry_jitter(jitter);
/// assert!(per_user.spend("alice", 1)?.allowed());
/// let wait: u64 = per_user.spend("alice", 1)?.headers()["retry-after"].to_str()?.parse()?;
/// assert!((60..=70).contains(&wait));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Jitter {
    max: Duration,
    /// The state of splitmix64.
    state: Figure,
}

impl Jitter {
    /// The step of splitmix64's state.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Makes a jitter whose times are from 0 to `max`, at most 584 years. With 0 no wait changes.
    pub fn up_to(max: Duration) -> Jitter {
        let seed = RandomState::new().hash_one(0_u64);
        Jitter { max, state: Figure::new(seed) }
    }

    /// Sets the seed, so that the times repeat, for tests. Without it the seed is random.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::http::Jitter;
    /// let repeated = Jitter::up_to(Duration::from_secs(10)).seed(1);
    /// # let _ = repeated;
    /// ```
    pub fn seed(self, seed: u64) -> Jitter {
        Jitter { state: Figure::new(seed), ..self }
    }

    /// Returns the next time.
    pub(crate) fn next(&self) -> Duration {
        // Relaxed: each call gets another state, in any order.
        let state = self.state.fetch_add(Jitter::STEP, Ordering::Relaxed);
        let z = state.wrapping_add(Jitter::STEP);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        share_of(self.max, z ^ (z >> 31))
    }
}
