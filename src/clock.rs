//! Reads the time, in nanoseconds since the clock was made.

#[cfg_attr(
    not(all(feature = "tsc", target_os = "linux", target_arch = "x86_64", not(miri))),
    path = "clock/no_counter.rs"
)]
mod counter;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use counter::Counter;

use crate::error::Error;
use crate::util::background::{Stop, Ticker};
use crate::util::sync::{AtomicU64, Ordering};
use crate::util::time::saturating_ns;

/// The latest reading of a clock: 2^62 - 1 ns, 146 years after its origin.
pub(crate) const MAX_NOW_NS: u64 = (1 << 62) - 1;

/// The reading at a clock's origin.
const FIRST_NS: u64 = 1;

/// Gives a limiter the time.
///
/// A clock starts at 1 ns when it is made and stops at 2^62 - 1 ns, after 146 years. If it goes backwards, or
/// differs between cores, it may deny more but never admits more: no decision needs a monotonic clock.
///
/// Clones read the same clock.
///
/// # Example: a clock that a test moves
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Bucket, Clock, Limit};
///
/// let (clock, hand) = Clock::manual();
/// let bucket = Bucket::new(Limit::new(1, 1, Duration::from_secs(1))?, clock);
/// assert!(bucket.spend(1)?.allowed());
/// assert!(!bucket.spend(1)?.allowed());
/// hand.advance(Duration::from_secs(1));
/// assert!(bucket.spend(1)?.allowed());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Clock {
    pub(crate) source: Source,
    /// The reading at the source's origin.
    first_ns: u64,
    /// The most that the source adds to it: up to [`MAX_NOW_NS`].
    max_since_origin_ns: u64,
}

#[derive(Clone)]
pub(crate) enum Source {
    /// The processor's time-stamp counter, where the kernel itself keeps time by it.
    Counter(Counter),
    Instant(Instant),
    /// A reading that is stored in memory: by a ticker's thread (a coarse clock), or by a [`ManualClock`].
    Stored {
        now_ns: Arc<AtomicU64>,
        origin_ns: u64,
        ticker: Option<Arc<Ticker>>,
    },
    Custom {
        now: Arc<dyn Fn() -> Duration + Send + Sync>,
        origin: Duration,
    },
}

impl Source {
    /// The nanoseconds since the origin. Out of line, so that the counter's path stays short.
    #[inline(never)]
    fn since_origin_ns(&self) -> u64 {
        match self {
            Source::Counter(counter) => counter.since_origin_ns(),
            // Relaxed: the reading publishes nothing but itself.
            Source::Stored { now_ns, origin_ns, .. } => {
                now_ns.load(Ordering::Relaxed).saturating_sub(*origin_ns)
            }
            Source::Instant(origin) => saturating_ns(origin.elapsed()),
            Source::Custom { now, origin } => saturating_ns(now().saturating_sub(*origin)),
        }
    }

    /// The same source with its origin at the present.
    #[cfg(feature = "snapshot")]
    fn restarted(&self) -> Source {
        match self {
            Source::Counter(counter) => counter.restarted(),
            Source::Stored { now_ns, ticker, .. } => Source::Stored {
                now_ns: now_ns.clone(),
                // Relaxed: the reading publishes nothing but itself.
                origin_ns: now_ns.load(Ordering::Relaxed),
                ticker: ticker.clone(),
            },
            Source::Instant(_) => Source::Instant(Instant::now()),
            Source::Custom { now, .. } => Source::Custom { now: now.clone(), origin: now() },
        }
    }
}

impl Clock {
    /// Makes the system's monotonic clock: the default.
    ///
    /// It reads the time-stamp counter (about 9 ns) if the kernel trusts the counter, which on Linux means that the
    /// current clocksource is `tsc`; otherwise, and without the feature `tsc` of this crate, [`Instant`] (about 25 ns).
    /// The first counter of a process is calibrated, which takes up to 200 ms.
    ///
    /// # Example: one clock for several limiters
    ///
    /// ```
    /// use tollgate::{Clock, Limiter, Limits};
    ///
    /// let clock = Clock::system();
    /// let first = Limiter::with_options(Limits::builder().build(), clock.clone())?;
    /// let second = Limiter::with_options(Limits::builder().build(), clock)?;
    /// # let _ = (first, second);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn system() -> Clock {
        match Counter::new() {
            Some(counter) => Clock::new(Source::Counter(counter)),
            None => Clock::instant(),
        }
    }

    /// Makes a clock that always reads the standard library's [`Instant`]: for machines that are put to sleep, where
    /// the counter may restart.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let bucket = Bucket::new(Limit::new(1, 1, Duration::from_millis(2))?, Clock::instant());
    /// let begun = Instant::now();
    /// assert!(bucket.spend(1)?.allowed());
    /// while !bucket.spend(1)?.allowed() {}
    /// assert!(begun.elapsed() >= Duration::from_millis(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn instant() -> Clock {
        Clock::new(Source::Instant(Instant::now()))
    }

    /// Makes a clock whose reading a background thread renews every `step`. A reading costs one load. It lags by
    /// `step`, or by as long as the thread does not run; a lag only denies more. The thread ends with the last clone
    /// of the clock.
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] when the system cannot start the thread.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Bucket, Clock, Limit};
    ///
    /// let clock = Clock::coarse(Duration::from_millis(1))?;
    /// let bucket = Bucket::new(Limit::new(20, 10, Duration::from_secs(1))?, clock);
    /// assert!(bucket.spend(1)?.allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn coarse(step: Duration) -> Result<Clock, Error> {
        let now_ns = Arc::new(AtomicU64::new(FIRST_NS));
        let (system, renewed) = (Clock::system(), now_ns.clone());
        let renew = move |_: &Stop| {
            // Relaxed: the reading publishes nothing but itself.
            renewed.store(system.now_ns(), Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        let ticker = Ticker::start("tollgate-clock", step, renew)
            .map_err(|error| Error::from_io("cannot start the thread tollgate-clock", error))?;
        Ok(Clock::stored(now_ns, Some(ticker)))
    }

    /// Makes a clock that stands still until its [`ManualClock`] moves it: for tests, and to replay recorded traffic.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let (clock, _hand) = Clock::manual();
    /// let bucket = Bucket::new(Limit::new(1, 1, Duration::from_nanos(1))?, clock);
    /// assert!(bucket.spend(1)?.allowed());
    /// assert!(!bucket.spend(1)?.allowed(), "no time passes by itself");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn manual() -> (Clock, ManualClock) {
        let now_ns = Arc::new(AtomicU64::new(FIRST_NS));
        (Clock::stored(now_ns.clone(), None), ManualClock(now_ns))
    }

    /// Makes a clock that the crate treats as the machine's, and that a test moves.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn manual_machine() -> (Clock, ManualClock) {
        let now_ns = Arc::new(AtomicU64::new(FIRST_NS));
        let idle = |_: &Stop| ControlFlow::Continue(());
        let ticker = Ticker::start("tollgate-clock", Duration::from_secs(3600), idle).unwrap();
        (Clock::stored(now_ns.clone(), Some(ticker)), ManualClock(now_ns))
    }

    /// Makes a clock from a function that returns the time since any fixed point. Its first result is the origin;
    /// earlier results read as the origin.
    ///
    /// The limiter trusts a custom clock, also in [sweeps](crate::Limiter::sweep). If a sweep reads a time that is too
    /// far ahead, it drops buckets that are not full yet. New keys are then denied until the other readings have
    /// caught up, because each new bucket begins at the sweep's reading. If the readings step back, ids that owe units wait
    /// until the readings are where they were, and the units have come: take a clock without steps.
    ///
    /// The function must not call the limiter.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Instant;
    /// use tollgate::Clock;
    ///
    /// let start = Instant::now();
    /// let clock = Clock::custom(move || start.elapsed());
    /// ```
    pub fn custom(now: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
        let origin = now();
        Clock::new(Source::Custom { now: Arc::new(now), origin })
    }

    fn new(source: Source) -> Clock {
        Clock::starting_at(source, FIRST_NS)
    }

    /// `first_ns` is at most [`MAX_NOW_NS`], so that no reading wraps.
    fn starting_at(source: Source, first_ns: u64) -> Clock {
        Clock { source, first_ns, max_since_origin_ns: MAX_NOW_NS - first_ns }
    }

    fn stored(now_ns: Arc<AtomicU64>, ticker: Option<Ticker>) -> Clock {
        Clock::new(Source::Stored { now_ns, origin_ns: FIRST_NS, ticker: ticker.map(Arc::new) })
    }

    /// Makes a clock on the same source that reads `now_ns` now, to continue a snapshot's clock. It never reads less
    /// than `now_ns`.
    #[cfg(feature = "snapshot")]
    pub(crate) fn resumed_at(&self, now_ns: u64) -> Clock {
        Clock::starting_at(self.source.restarted(), now_ns.clamp(FIRST_NS, MAX_NOW_NS))
    }

    /// Reads the time in nanoseconds, from 1 to 2^62 - 1.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        let since_origin_ns = match &self.source {
            Source::Counter(counter) => counter.since_origin_ns(),
            other => other.since_origin_ns(),
        };
        self.reading_ns(since_origin_ns)
    }

    #[inline(always)]
    fn reading_ns(&self, since_origin_ns: u64) -> u64 {
        since_origin_ns.min(self.max_since_origin_ns) + self.first_ns
    }

    /// Whether this is a built-in clock that follows the machine's time, so that its readings can be compared with
    /// [`Instant`].
    pub(crate) fn follows_machine(&self) -> bool {
        match &self.source {
            Source::Counter(_) | Source::Instant(_) => true,
            Source::Stored { ticker, .. } => ticker.is_some(),
            Source::Custom { .. } => false,
        }
    }

    /// Whether a reading runs the caller's code.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.source, Source::Custom { .. })
    }

    /// Reads a clock whose reading takes nanoseconds and runs none of the caller's code; `None` for the others. Only
    /// such a clock may be read while the table is pinned.
    #[inline(always)]
    pub(crate) fn quick_now_ns(&self) -> Option<u64> {
        let Source::Counter(counter) = &self.source else { return None };
        Some(self.reading_ns(counter.since_origin_ns()))
    }

    /// Whether a reading takes nanoseconds and runs no caller's code. Only such a clock may be read while the thread
    /// is pinned.
    #[inline]
    pub(crate) fn is_quick(&self) -> bool {
        matches!(self.source, Source::Counter(_))
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            Source::Counter(_) => "counter",
            Source::Instant(_) => "instant",
            Source::Stored { ticker: Some(_), .. } => "coarse",
            Source::Stored { ticker: None, .. } => "manual",
            Source::Custom { .. } => "custom",
        };
        write!(f, "Clock({source}, {} ns)", self.now_ns())
    }
}

/// Moves a manual clock. Made by [`Clock::manual`].
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Bucket, Clock, Limit};
///
/// let (clock, hand) = Clock::manual();
/// let bucket = Bucket::new(Limit::new(1, 1, Duration::from_secs(60))?, clock);
/// assert!(bucket.spend(1)?.allowed());
/// hand.advance(Duration::from_secs(59));
/// assert_eq!(bucket.spend(1)?.retry_in(), Duration::from_secs(1));
/// hand.set(Duration::from_secs(10)); // a clock may go back: that admits nothing more
/// assert_eq!(bucket.spend(1)?.retry_in(), Duration::from_secs(50));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Moves the clock forward. It stops at 146 years.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let (clock, hand) = Clock::manual();
    /// let bucket = Bucket::new(Limit::new(5, 1, Duration::from_secs(1))?, clock);
    /// assert_eq!(bucket.spend(5)?.remaining(), Some(0));
    /// hand.advance(Duration::from_secs(3));
    /// assert_eq!(bucket.check(0)?.remaining(), Some(3));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn advance(&self, by: Duration) {
        let by_ns = saturating_ns(by);
        // Relaxed: the reading publishes nothing but itself.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now_ns| {
            Some(now_ns.saturating_add(by_ns).min(MAX_NOW_NS))
        });
    }

    /// Sets the clock to a time since its origin, which may be earlier than the present reading.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let (clock, hand) = Clock::manual();
    /// let bucket = Bucket::new(Limit::new(5, 1, Duration::from_secs(1))?, clock);
    /// hand.set(Duration::from_secs(100));
    /// assert_eq!(bucket.spend(5)?.remaining(), Some(0));
    /// hand.set(Duration::from_secs(102)); // two seconds later, not 102
    /// assert_eq!(bucket.check(0)?.remaining(), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn set(&self, since_origin: Duration) {
        let now_ns = saturating_ns(since_origin).saturating_add(FIRST_NS).min(MAX_NOW_NS);
        // Relaxed: the reading publishes nothing but itself.
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_runs_from_one_to_146_years() {
        let (clock, hand) = Clock::manual();
        assert_eq!(clock.now_ns(), 1);
        hand.advance(Duration::from_nanos(5));
        assert_eq!(clock.now_ns(), 6);
        hand.set(Duration::from_nanos(2));
        assert_eq!(clock.now_ns(), 3);
        hand.advance(Duration::MAX);
        assert_eq!(clock.now_ns(), MAX_NOW_NS);
        hand.set(Duration::MAX);
        assert_eq!(clock.now_ns(), MAX_NOW_NS);
    }

    #[test]
    fn a_custom_clock_never_reads_before_its_origin() {
        let time = Arc::new(AtomicU64::new(100));
        let read = time.clone();
        let clock = Clock::custom(move || Duration::from_nanos(read.load(Ordering::Relaxed)));
        assert_eq!(clock.now_ns(), 1);
        time.store(30, Ordering::Relaxed);
        assert_eq!(clock.now_ns(), 1);
        time.store(130, Ordering::Relaxed);
        assert_eq!(clock.now_ns(), 31);
    }

    #[cfg(feature = "snapshot")]
    #[test]
    fn a_resumed_clock_never_reads_less() {
        let (clock, hand) = Clock::manual();
        hand.set(Duration::from_nanos(500));
        let on = clock.resumed_at(1_000);
        assert_eq!(on.now_ns(), 1_000);
        hand.advance(Duration::from_nanos(7));
        assert_eq!((clock.now_ns(), on.now_ns()), (508, 1_007));
        hand.set(Duration::ZERO);
        assert_eq!(on.now_ns(), 1_000, "its source went back");
        hand.set(Duration::MAX);
        assert_eq!(on.now_ns(), MAX_NOW_NS);
        let coarse = Clock::coarse(Duration::from_micros(50)).unwrap();
        let custom = Clock::custom(|| Duration::from_secs(9));
        for clock in [Clock::system(), Clock::instant(), coarse, custom] {
            let on = clock.resumed_at(1 << 60);
            assert!((1 << 60..1 << 61).contains(&on.now_ns()), "{on:?}");
        }
        assert_eq!(clock.resumed_at(0).now_ns(), 1);
        assert_eq!(clock.resumed_at(u64::MAX).now_ns(), MAX_NOW_NS);
    }

    #[test]
    fn system_clocks_go_forward() {
        let coarse = Clock::coarse(Duration::from_micros(50)).unwrap();
        for clock in [Clock::system(), Clock::instant(), coarse] {
            let first = clock.now_ns();
            assert!(first >= 1);
            // Ends as soon as the clock moves.
            while clock.now_ns() == first {
                std::thread::yield_now();
            }
            assert!(clock.now_ns() > first, "{clock:?}");
        }
    }
}
