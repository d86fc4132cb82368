//! How a limiter keeps its buckets.

use crate::clock::Clock;
use crate::core::at_cap::AtCap;
use crate::observe::top_denied::TopDenied;
use crate::store::Engine;

/// Where a limiter gets its time from, how it keeps its buckets, and how many.
///
/// # Example
///
/// ```
/// use tollgate::options::AtCap;
/// use tollgate::{Limiter, LimiterOptions, Limits};
///
/// let options = LimiterOptions::default().max_keys(1_000_000).at_cap(AtCap::Deny);
/// let limiter = Limiter::with_options(Limits::builder().build(), options);
/// assert_eq!(limiter.stats().cells, 0);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterOptions {
    /// `None`: the system's, made when it is needed.
    pub(crate) clock: Option<Clock>,
    pub(crate) engine: Engine,
    pub(crate) max_keys: usize,
    pub(crate) max_blocks: usize,
    pub(crate) at_cap: AtCap,
    pub(crate) counting: bool,
    pub(crate) top_denied: usize,
    #[cfg(feature = "tracing")]
    pub(crate) log_denials: u32,
}

impl Default for LimiterOptions {
    fn default() -> LimiterOptions {
        LimiterOptions {
            clock: None,
            engine: Engine::default(),
            max_keys: 1 << 24,
            max_blocks: 1 << 16,
            at_cap: AtCap::default(),
            counting: false,
            top_denied: 0,
            #[cfg(feature = "tracing")]
            log_denials: 0,
        }
    }
}

impl LimiterOptions {
    /// The same with another clock. Default: [`Clock::system`].
    pub fn clock(self, clock: Clock) -> LimiterOptions {
        LimiterOptions { clock: Some(clock), ..self }
    }

    /// The same with another table. Default: [`Engine::LockFree`].
    pub fn engine(self, engine: Engine) -> LimiterOptions {
        LimiterOptions { engine, ..self }
    }

    /// The same with another cap: the most buckets that are kept at once. Default: 16,777,216, which
    /// take up to some 1.5 GiB; up to three times that while a thread stands still in a call (see
    /// [`Stats::retired`](crate::metrics::Stats::retired)).
    pub fn max_keys(self, max_keys: usize) -> LimiterOptions {
        LimiterOptions { max_keys, ..self }
    }

    /// The same with another bound on the ids that are [blocked](crate::KeyedLimit::block) at once, of all limits
    /// together. Default: 65,536. One more is an error ([`Error::is_invalid_block`](crate::Error::is_invalid_block)). A
    /// block takes some 100 bytes, and an id of more than 18 bytes and the reason their length.
    pub fn max_blocks(self, max_blocks: usize) -> LimiterOptions {
        LimiterOptions { max_blocks, ..self }
    }

    /// The same with another policy at the cap. Default: [`AtCap::Share`].
    pub fn at_cap(self, at_cap: AtCap) -> LimiterOptions {
        LimiterOptions { at_cap, ..self }
    }

    /// The same with calls counted, for [`Limiter::counters`](crate::Limiter::counters), or not. Default:
    /// not, which costs a call nothing; counting costs it a few nanoseconds, and 2 KiB a limit.
    pub fn counting(self, counting: bool) -> LimiterOptions {
        LimiterOptions { counting, ..self }
    }

    /// The same with a list of the ids denied most, of so many places, for
    /// [`Limiter::top_denied`](crate::Limiter::top_denied); calls are [counted](LimiterOptions::counting),
    /// too. Each place takes some 100 bytes, and a denial looks at all of them: at most 1,024. Default: 0,
    /// which is none.
    pub fn top_denied(self, places: usize) -> LimiterOptions {
        LimiterOptions { top_denied: places.min(TopDenied::MAX_PLACES), ..self }
    }

    /// The same with events of denials (feature `tracing`): the first of a key in each hour, and of the
    /// others one in so many; calls are [counted](LimiterOptions::counting), too. Default: 0, which is none.
    ///
    /// It takes 1 MiB, for 65,536 keys in an hour; further ones are among the others, so that a flood of
    /// keys does not flood the log.
    #[cfg(feature = "tracing")]
    pub fn log_denials(self, one_in: u32) -> LimiterOptions {
        LimiterOptions { log_denials: one_in, ..self }
    }

    /// Whether calls are counted: whoever keeps an eye on denials looks where they are.
    pub(crate) fn is_counting(&self) -> bool {
        #[cfg(feature = "tracing")]
        if self.log_denials > 0 {
            return true;
        }
        self.counting || self.top_denied > 0
    }
}
