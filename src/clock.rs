//! What time it is, in nanoseconds since the clock was made.

use crate::util::sync::{AtomicU64, Ordering};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::util::background::Ticker;

/// The latest time that a decision is made at: 2^62 - 1 ns, 146 years from the clock's origin.
pub(crate) const MAX_NOW_NS: u64 = (1 << 62) - 1;

/// Where a limiter gets the time from.
///
/// A clock counts from its first reading, which is 1 ns, to 2^62 - 1 ns, 146 years, where it stops.
/// A clock that goes backwards, or differs from core to core, may deny more but never admit more: no
/// decision relies on it to be monotonic. (The one place that has to know how time went is where a
/// denied batch takes a charge back from beneath another caller's: docs/internals/batches.md.)
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
pub struct Clock {
    source: Source,
    /// What it shows at the source's origin.
    first_ns: u64,
}

#[derive(Clone)]
enum Source {
    /// The processor's counter, where the kernel itself keeps time by it.
    Counter(Counter),
    Instant(Instant),
    Coarse {
        coarse: Arc<Coarse>,
        origin_ns: u64,
    },
    Manual {
        now_ns: Arc<AtomicU64>,
        origin_ns: u64,
    },
    Custom {
        now: Arc<dyn Fn() -> Duration + Send + Sync>,
        origin: Duration,
    },
}

impl Source {
    /// The nanoseconds since the origin. Out of line: what the counter's way need not carry along.
    #[inline(never)]
    fn since_origin_ns(&self) -> u64 {
        match self {
            Source::Counter(counter) => counter.since_origin_ns(),
            // Relaxed: the reading publishes nothing but itself.
            Source::Manual { now_ns, origin_ns } => {
                now_ns.load(Ordering::Relaxed).saturating_sub(*origin_ns)
            }
            Source::Coarse { coarse, origin_ns } => {
                coarse.now_ns.load(Ordering::Relaxed).saturating_sub(*origin_ns)
            }
            Source::Instant(origin) => saturating_ns(origin.elapsed()),
            Source::Custom { now, origin } => saturating_ns(now().saturating_sub(*origin)),
        }
    }

    /// The same source, with its origin now.
    #[cfg(feature = "snapshot")]
    fn going_on_from_now(&self) -> Source {
        match self {
            Source::Counter(counter) => Source::Counter(counter.going_on_from_now()),
            // Relaxed: the reading publishes nothing but itself.
            Source::Manual { now_ns, .. } => {
                Source::Manual { now_ns: now_ns.clone(), origin_ns: now_ns.load(Ordering::Relaxed) }
            }
            Source::Coarse { coarse, .. } => Source::Coarse {
                coarse: coarse.clone(),
                origin_ns: coarse.now_ns.load(Ordering::Relaxed),
            },
            Source::Instant(_) => Source::Instant(Instant::now()),
            Source::Custom { now, .. } => Source::Custom { now: now.clone(), origin: now() },
        }
    }
}

/// The processor's counter, and what a tick of it is worth.
#[derive(Clone)]
struct Counter {
    counter: quanta::Clock,
    origin: u64,
    /// The parts of a nanosecond in a tick, 2^64 to one: exact to a nanosecond in 2^63 ticks.
    tick_parts: u64,
}

impl Counter {
    /// `None` where a tick takes a nanosecond or more.
    fn new() -> Option<Counter> {
        const TICKS: u64 = 1 << 63;
        let counter = quanta::Clock::new();
        let origin = counter.raw();
        // As the library has measured it, whose own way is a multiplication and a shift.
        let tick_parts = counter.delta_as_nanos(0, TICKS).checked_mul(2)?;
        Some(Counter { counter, origin, tick_parts })
    }

    #[inline(always)]
    fn since_origin_ns(&self) -> u64 {
        let ticks = self.counter.raw().saturating_sub(self.origin);
        ((u128::from(ticks) * u128::from(self.tick_parts)) >> 64) as u64
    }

    #[cfg(feature = "snapshot")]
    fn going_on_from_now(&self) -> Counter {
        Counter { origin: self.counter.raw(), ..self.clone() }
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
        match kernel_trusts_counter().then(Counter::new).flatten() {
            Some(counter) => Clock::of(Source::Counter(counter)),
            None => Clock::instant(),
        }
    }

    /// The standard library's monotonic clock, [`Instant`], wherever it runs: for machines that are
    /// put to sleep, where the counter may start anew.
    pub fn instant() -> Clock {
        Clock::of(Source::Instant(Instant::now()))
    }

    /// A clock that a thread of its own renews every `step`: a reading costs one load, and lags by
    /// `step` or as long as the thread does not run. A lag only denies more. The thread ends with the
    /// last clone of the clock.
    ///
    /// # Errors
    ///
    /// The system's, when the thread cannot be started.
    pub fn coarse(step: Duration) -> io::Result<Clock> {
        let now_ns = Arc::new(AtomicU64::new(FIRST_NS));
        let (system, renewed) = (Clock::system(), now_ns.clone());
        let ticker = Ticker::start("tollgate-clock", step, move |_| {
            // Relaxed: the reading publishes nothing but itself.
            renewed.store(system.now_ns(), Ordering::Relaxed);
            ControlFlow::Continue(())
        })?;
        let coarse = Arc::new(Coarse { now_ns, _ticker: ticker });
        Ok(Clock::of(Source::Coarse { coarse, origin_ns: FIRST_NS }))
    }

    /// A clock that stands still until its [`ManualClock`] moves it: for tests, and to replay what was.
    pub fn manual() -> (Clock, ManualClock) {
        let now_ns = Arc::new(AtomicU64::new(FIRST_NS));
        let source = Source::Manual { now_ns: now_ns.clone(), origin_ns: FIRST_NS };
        (Clock::of(source), ManualClock(now_ns))
    }

    /// A clock that is taken for one of the machine's, and is moved by hand.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn machine_by_hand() -> (Clock, ManualClock) {
        let now_ns = Arc::new(AtomicU64::new(FIRST_NS));
        let idle = |_: &crate::util::background::Stop| ControlFlow::Continue(());
        let ticker = Ticker::start("tollgate-clock", Duration::from_secs(3600), idle).unwrap();
        let coarse = Arc::new(Coarse { now_ns: now_ns.clone(), _ticker: ticker });
        (Clock::of(Source::Coarse { coarse, origin_ns: FIRST_NS }), ManualClock(now_ns))
    }

    /// A clock of the caller's own: `now` returns the time since any fixed point. What it returns
    /// first is the origin; anything before that is read as the origin.
    ///
    /// It is believed, also by [sweeps](crate::Limiter::sweep). A sweep at a reading that is ahead of the others by some time
    /// drops buckets that are not full yet, and new keys are then denied for up to that time: each new bucket begins
    /// at the sweep's reading.
    pub fn custom(now: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
        let origin = now();
        Clock::of(Source::Custom { now: Arc::new(now), origin })
    }

    fn of(source: Source) -> Clock {
        Clock { source, first_ns: FIRST_NS }
    }

    /// A clock that goes as this one does, and shows `now_ns` now: to go on where another has stopped.
    /// It never shows less.
    #[cfg(feature = "snapshot")]
    pub(crate) fn going_on_at(&self, now_ns: u64) -> Clock {
        Clock {
            source: self.source.going_on_from_now(),
            first_ns: now_ns.clamp(FIRST_NS, MAX_NOW_NS),
        }
    }

    /// The time in nanoseconds, from 1 to 2^62 - 1.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        let since_origin_ns = match &self.source {
            Source::Counter(counter) => counter.since_origin_ns(),
            other => other.since_origin_ns(),
        };
        // The first is at most the last there is.
        since_origin_ns.min(MAX_NOW_NS - self.first_ns) + self.first_ns
    }

    /// Whether it is one of the crate's own that follow the machine's time, so that a reading can be compared
    /// with [`Instant`].
    pub(crate) fn follows_machine(&self) -> bool {
        match self.source {
            Source::Counter(_) | Source::Instant(_) | Source::Coarse { .. } => true,
            Source::Manual { .. } | Source::Custom { .. } => false,
        }
    }

    /// Reads a clock whose reading takes nanoseconds and runs none of the caller's code; `None` for the others. Only
    /// such a clock may be read while the table is pinned.
    #[inline(always)]
    pub(crate) fn quick_now_ns(&self) -> Option<u64> {
        let Source::Counter(counter) = &self.source else { return None };
        Some(counter.since_origin_ns().min(MAX_NOW_NS - self.first_ns) + self.first_ns)
    }

    /// Whether a reading is over in nanoseconds, and runs no code of the caller's: only then may it be made
    /// within a pin.
    #[inline]
    pub(crate) fn is_quick(&self) -> bool {
        matches!(self.source, Source::Counter(_))
    }

    /// As [`now_ns`](Clock::now_ns), and not before any load that comes before it: no earlier than
    /// what another thread has read before it wrote what this one has seen. It may take microseconds.
    pub(crate) fn now_after_loads_ns(&self) -> u64 {
        // The counter is read out of order, as far ahead as the processor runs. CPUID is the
        // instruction that stops it and needs no unsafe code; `Instant` has a fence of its own.
        #[cfg(target_arch = "x86_64")]
        if self.is_quick() {
            std::hint::black_box(std::arch::x86_64::__cpuid(0));
        }
        self.now_ns()
    }
}

/// What a clock shows at first.
const FIRST_NS: u64 = 1;

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
        let source = match &self.source {
            Source::Counter(_) => "counter",
            Source::Instant(_) => "instant",
            Source::Coarse { .. } => "coarse",
            Source::Manual { .. } => "manual",
            Source::Custom { .. } => "custom",
        };
        write!(f, "Clock({source}, {} ns)", self.now_ns())
    }
}

/// Moves a [`Clock::manual`].
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
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
        let now_ns = saturating_ns(since_origin).saturating_add(FIRST_NS).min(MAX_NOW_NS);
        self.0.store(now_ns, Ordering::Relaxed);
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

    #[cfg(feature = "snapshot")]
    #[test]
    fn a_clock_that_goes_on_shows_what_it_is_told_and_never_less() {
        let (clock, hand) = Clock::manual();
        hand.set(Duration::from_nanos(500));
        let on = clock.going_on_at(1_000);
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
            let on = clock.going_on_at(1 << 60);
            assert!((1 << 60..1 << 61).contains(&on.now_ns()), "{on:?}");
        }
        assert_eq!(clock.going_on_at(0).now_ns(), 1);
        assert_eq!(clock.going_on_at(u64::MAX).now_ns(), MAX_NOW_NS);
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
