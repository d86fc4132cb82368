//! What time it is, in nanoseconds since the clock was made.

use crate::sync::{AtomicU64, Ordering};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::gcra::MAX_NOW_NS;
use crate::ticker::Ticker;

/// Where a limiter gets the time from.
///
/// A clock counts from its first reading, which is 1 ns, to 2^62 - 1 ns, 146 years, where it stops.
/// A clock that goes backwards, or differs from core to core, may deny more but never admit more: no
/// decision relies on it to be monotonic. (The one place that has to know how time went is where a
/// denied batch takes a charge back from beneath another caller's: DESIGN.md, "Batches".)
///
/// Clones read the same clock.
///
/// # Example: time moved by hand
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
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// The processor's counter, where the kernel itself keeps time by it.
    Counter {
        counter: quanta::Clock,
        origin: u64,
    },
    Instant(Instant),
    Coarse(Arc<Coarse>),
    Manual(Arc<AtomicU64>),
    Custom {
        now: Arc<dyn Fn() -> Duration + Send + Sync>,
        origin: Duration,
    },
}

impl Source {
    /// Out of line: what the counter's way need not carry along.
    #[inline(never)]
    fn now_ns(&self) -> u64 {
        match self {
            Source::Counter { counter, origin } => {
                reading(counter.delta_as_nanos(*origin, counter.raw()))
            }
            // Relaxed: the reading publishes nothing but itself.
            Source::Manual(now_ns) => now_ns.load(Ordering::Relaxed),
            Source::Coarse(coarse) => coarse.now_ns.load(Ordering::Relaxed),
            Source::Instant(origin) => reading(saturating_ns(origin.elapsed())),
            Source::Custom { now, origin } => reading(saturating_ns(now().saturating_sub(*origin))),
        }
    }
}

/// The latest reading, and the thread that renews it.
struct Coarse {
    now_ns: Arc<AtomicU64>,
    _ticker: Ticker,
}

impl Clock {
    /// The system's monotonic clock: the default.
    ///
    /// Reads the time-stamp counter (some 9 ns) where the kernel trusts it, which on Linux means that
    /// its current clocksource is `tsc`, and [`Instant`] (some 25 ns) elsewhere. The first counter of
    /// a process is calibrated for up to 200 ms.
    pub fn system() -> Clock {
        if kernel_trusts_counter() {
            let counter = quanta::Clock::new();
            let origin = counter.raw();
            Clock(Source::Counter { counter, origin })
        } else {
            Clock::instant()
        }
    }

    /// The standard library's monotonic clock, [`Instant`], wherever it runs: for machines that are
    /// put to sleep, where the counter may start anew.
    pub fn instant() -> Clock {
        Clock(Source::Instant(Instant::now()))
    }

    /// A clock that a thread of its own renews every `step`: a reading costs one load, and lags by
    /// `step` or as long as the thread does not run. A lag only denies more. The thread ends with the
    /// last clone of the clock.
    ///
    /// # Errors
    ///
    /// The system's, when the thread cannot be started.
    pub fn coarse(step: Duration) -> io::Result<Clock> {
        let now_ns = Arc::new(AtomicU64::new(1));
        let (system, renewed) = (Clock::system(), now_ns.clone());
        let ticker = Ticker::start("tollgate-clock", step, move |_| {
            // Relaxed: the reading publishes nothing but itself.
            renewed.store(system.now_ns(), Ordering::Relaxed);
            ControlFlow::Continue(())
        })?;
        Ok(Clock(Source::Coarse(Arc::new(Coarse { now_ns, _ticker: ticker }))))
    }

    /// A clock that stands still until its [`Hand`] moves it: for tests, and to replay what was.
    pub fn manual() -> (Clock, Hand) {
        let now_ns = Arc::new(AtomicU64::new(1));
        (Clock(Source::Manual(now_ns.clone())), Hand(now_ns))
    }

    /// A clock of the caller's own: `now` returns the time since any fixed point. What it returns
    /// first is the origin; anything before that is read as the origin.
    pub fn custom(now: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
        let origin = now();
        Clock(Source::Custom { now: Arc::new(now), origin })
    }

    /// The time in nanoseconds, from 1 to 2^62 - 1.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match &self.0 {
            Source::Counter { counter, origin } => {
                reading(counter.delta_as_nanos(*origin, counter.raw()))
            }
            other => other.now_ns(),
        }
    }

    /// As [`now_ns`](Clock::now_ns), and not before any load that comes before it: no earlier than
    /// what another thread has read before it wrote what this one has seen. It may take microseconds.
    pub(crate) fn now_after_loads_ns(&self) -> u64 {
        // The counter is read out of order, as far ahead as the processor runs. CPUID is the
        // instruction that stops it and needs no unsafe code; `Instant` has a fence of its own.
        #[cfg(target_arch = "x86_64")]
        if matches!(self.0, Source::Counter { .. }) {
            std::hint::black_box(std::arch::x86_64::__cpuid(0));
        }
        self.now_ns()
    }
}

/// A reading so many nanoseconds after the first.
#[inline]
fn reading(since_origin_ns: u64) -> u64 {
    since_origin_ns.saturating_add(1).min(MAX_NOW_NS)
}

fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the kernel keeps its own time by the time-stamp counter. It watches the counter against
/// other clocks and drops it when it drifts or differs between cores; the processor's own word that
/// the counter is invariant has misled others (governor #299, quanta #111).
fn kernel_trusts_counter() -> bool {
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(all(target_os = "linux", target_arch = "x86_64"))
        && std::fs::read_to_string(CURRENT).is_ok_and(|source| source.trim() == "tsc")
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.0 {
            Source::Counter { .. } => "counter",
            Source::Instant(_) => "instant",
            Source::Coarse(_) => "coarse",
            Source::Manual(_) => "manual",
            Source::Custom { .. } => "custom",
        };
        write!(f, "Clock({source}, {} ns)", self.now_ns())
    }
}

/// Moves a [`Clock::manual`].
#[derive(Clone, Debug)]
pub struct Hand(Arc<AtomicU64>);

impl Hand {
    /// Moves the clock forward; at 146 years it stops.
    pub fn advance(&self, by: Duration) {
        let by_ns = saturating_ns(by);
        // Relaxed: the reading publishes nothing but itself.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now_ns| {
            Some(now_ns.saturating_add(by_ns).min(MAX_NOW_NS))
        });
    }

    /// Sets the clock to a time after its origin, which may be earlier than it shows.
    pub fn set(&self, since_origin: Duration) {
        // Relaxed: the reading publishes nothing but itself.
        self.0.store(reading(saturating_ns(since_origin)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_starts_at_one_and_stops_at_146_years() {
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
    fn a_custom_clock_before_its_origin_reads_the_origin() {
        let time = Arc::new(AtomicU64::new(100));
        let read = time.clone();
        let clock = Clock::custom(move || Duration::from_nanos(read.load(Ordering::Relaxed)));
        assert_eq!(clock.now_ns(), 1);
        time.store(30, Ordering::Relaxed);
        assert_eq!(clock.now_ns(), 1);
        time.store(130, Ordering::Relaxed);
        assert_eq!(clock.now_ns(), 31);
    }

    #[test]
    fn the_clocks_of_the_system_go_forward() {
        let coarse = Clock::coarse(Duration::from_micros(50)).unwrap();
        for clock in [Clock::system(), Clock::instant(), coarse] {
            let first = clock.now_ns();
            assert!(first >= 1);
            // Bounded by the clock itself: it has to move at all.
            while clock.now_ns() == first {
                std::thread::yield_now();
            }
            assert!(clock.now_ns() > first, "{clock:?}");
        }
    }
}
