//! Whether a sweep believes its clock.
//!
//! A sweep raises the table's floor to its reading, for good: a reading that is wrongly ahead would deny all new
//! keys until then. So a reading is compared with the system's monotonic time.

use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::util::sync::{Figure, Ordering, Switch, Tried};

/// How far a reading may be ahead of what is expected.
const MAX_AHEAD_NS: u64 = 3600 * 1_000_000_000;

/// The time after which a second reading settles whether the first was right.
const AGREES_AFTER: Duration = Duration::from_secs(1);

/// What is known of a limiter's clock beside [`Instant`].
pub(crate) struct SweepClock {
    /// `None`: the clock does not follow the machine's time, and is believed.
    began: Option<Instant>,
    /// The most by which a reading that was believed was ahead of the time since `began`.
    ahead_ns: Figure,
    /// A reading that was not believed, and after which none was: by how much it was ahead, and when.
    doubted: Tried<Option<(u64, Duration)>>,
    is_any_doubted: Switch,
}

impl SweepClock {
    pub(crate) fn new(clock: &Clock) -> SweepClock {
        let began = clock.follows_machine().then(Instant::now);
        SweepClock::beginning(began, clock.now_ns())
    }

    fn beginning(began: Option<Instant>, now_ns: u64) -> SweepClock {
        SweepClock {
            began,
            ahead_ns: Figure::new(now_ns),
            doubted: Tried::default(),
            is_any_doubted: Switch::new(false),
        }
    }

    /// Whether a sweep may be made as of this reading, which was made just now.
    pub(crate) fn admits(&self, now_ns: u64) -> bool {
        self.began.is_none_or(|began| self.admits_at(now_ns, began.elapsed()))
    }

    /// As [`admits`](SweepClock::admits), after a time since the clock began.
    fn admits_at(&self, now_ns: u64, since: Duration) -> bool {
        let since_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        // A clock that lags behind the other is ahead by nothing.
        let ahead_ns = now_ns.saturating_sub(since_ns);
        let is_near = |of_ns: u64| ahead_ns <= of_ns.saturating_add(MAX_AHEAD_NS);
        // Relaxed: a number that only rises; a sweep that sees an older one doubts the more.
        if is_near(self.ahead_ns.load(Ordering::Relaxed)) {
            self.ahead_ns.fetch_max(ahead_ns, Ordering::Relaxed);
            // Relaxed: a doubt that is dropped a reading late is settled by the next.
            if self.is_any_doubted.load(Ordering::Relaxed) {
                self.doubted.try_with(|doubted| *doubted = None);
                self.is_any_doubted.store(false, Ordering::Relaxed);
            }
            return true;
        }
        let agrees = |doubted: &mut Option<(u64, Duration)>| match *doubted {
            Some((first_ns, at))
                if is_near(first_ns) && first_ns <= ahead_ns.saturating_add(MAX_AHEAD_NS) =>
            {
                since.saturating_sub(at) >= AGREES_AFTER
            }
            _ => {
                *doubted = Some((ahead_ns, since));
                // Relaxed: as above.
                self.is_any_doubted.store(true, Ordering::Relaxed);
                false
            }
        };
        // A caller that finds it taken sweeps with its next reading.
        let agrees = self.doubted.try_with(agrees) == Some(true);
        if agrees {
            self.ahead_ns.fetch_max(ahead_ns, Ordering::Relaxed);
        }
        agrees
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::core::at_cap::AtCap;
    use crate::limit::Limit;
    use crate::limiter::Limiter;
    use crate::limiter::options::LimiterOptions;
    use crate::limits::{IdFormat, Limits};
    use crate::store::Engine;

    const HOUR: Duration = Duration::from_secs(3600);
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

    /// A clock that showed 1 ns at the beginning, read after some times.
    fn admitted(readings: &[(Duration, Duration)]) -> Vec<bool> {
        let clock = SweepClock::beginning(Some(Instant::now()), 1);
        let admits = |&(now, since): &(Duration, Duration)| {
            clock.admits_at(1 + now.as_nanos() as u64, since)
        };
        readings.iter().map(admits).collect()
    }

    #[test]
    fn one_reading_far_ahead_is_not_believed() {
        let second = Duration::from_secs(1);
        let readings = [(second, second), (YEAR, 2 * second), (3 * second, 3 * second)];
        assert_eq!(admitted(&readings), [true, false, true]);
        // The same error once more, after a reading that was right, is no second reading.
        let readings = [(YEAR, second), (2 * second, 2 * second), (YEAR, 3 * second)];
        assert_eq!(admitted(&readings), [false, true, false]);
        // Another one much later does not agree with it: it is ahead by much less, or by much more.
        let readings = [(YEAR, second), (YEAR / 2, 10 * second), (YEAR, 20 * second)];
        assert_eq!(admitted(&readings), [false, false, false]);
    }

    #[test]
    fn second_agreeing_reading_is_believed_after_a_second() {
        let ms = Duration::from_millis;
        let readings =
            [(0, true), (500, false), (999, false), (1400, false), (1500, true), (1600, true)];
        let clock = SweepClock::beginning(Some(Instant::now()), 1);
        for (at_ms, admits) in readings {
            let jumped = if at_ms >= 500 { YEAR } else { Duration::ZERO };
            let now_ns = 1 + (jumped + ms(at_ms)).as_nanos() as u64;
            assert_eq!(clock.admits_at(now_ns, ms(at_ms)), admits, "at {at_ms} ms");
        }
    }

    #[test]
    fn hour_ahead_and_lagging_clocks_are_believed() {
        let second = Duration::from_secs(1);
        assert_eq!(admitted(&[(HOUR, Duration::ZERO), (HOUR + HOUR, second)]), [true, true]);
        assert_eq!(admitted(&[(HOUR + Duration::from_nanos(1), Duration::ZERO)]), [false]);
        assert_eq!(admitted(&[(second, YEAR), (YEAR, YEAR)]), [true, true]);
    }

    #[test]
    fn a_clock_of_the_callers_own_is_believed() {
        let (clock, _hand) = Clock::manual();
        assert!(SweepClock::new(&clock).admits(u64::MAX));
        assert!(!SweepClock::new(&Clock::instant()).admits(u64::MAX));
    }

    fn limiter(clock: Clock, engine: Engine, max_keys: usize) -> Limiter {
        let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
        let limits = Limits::builder().limit("Own", IdFormat::RegId, limit).unwrap().build();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(max_keys);
        Limiter::with_options(limits, options.at_cap(AtCap::Deny))
    }

    #[test]
    fn wrong_reading_in_sweep_denies_no_later_key() {
        for engine in [Engine::LockFree, Engine::Exact] {
            let (clock, hand) = Clock::machine_by_hand();
            let limiter = limiter(clock, engine, 1000);
            let handle = limiter.limit("Own").unwrap();
            assert!(handle.spend(1, 1).unwrap().allowed());
            hand.set(YEAR);
            assert!(limiter.sweep(1 << 20).finished);
            assert_eq!((limiter.stats().cells, limiter.stats().clock_skips), (1, 1), "{engine:?}");
            hand.set(Duration::from_secs(1));
            assert!(limiter.inner.store.floor_ns() < YEAR.as_nanos() as u64);
            for id in [1, 2] {
                assert!(handle.spend(id, 1).unwrap().allowed(), "{engine:?} {id}");
                assert!(!handle.spend(id, 1).unwrap().allowed(), "{engine:?} {id}");
            }
        }
    }

    #[test]
    fn wrong_reading_at_cap_denies_no_later_key() {
        for engine in [Engine::LockFree, Engine::Exact] {
            let (clock, hand) = Clock::machine_by_hand();
            let limiter = limiter(clock, engine, 4);
            let handle = limiter.limit("Own").unwrap();
            (0..4).for_each(|id| assert!(handle.spend(id, 1).unwrap().allowed()));
            hand.set(YEAR);
            assert!(
                !handle.spend(4, 1).unwrap().allowed(),
                "{engine:?}: no place, and none is made"
            );
            assert!(limiter.stats().clock_skips > 0 && limiter.stats().cells == 4, "{engine:?}");
            hand.set(Duration::from_secs(2));
            assert!(handle.spend(5, 1).unwrap().allowed(), "{engine:?}: others are full by now");
        }
    }

    /// A clock of the caller's own is believed, as far as it is documented.
    #[test]
    fn by_hand_time_may_jump() {
        for engine in [Engine::LockFree, Engine::Exact] {
            let (clock, hand) = Clock::manual();
            let limiter = limiter(clock, engine, 1000);
            let handle = limiter.limit("Own").unwrap();
            assert!(handle.spend(1, 1).unwrap().allowed());
            hand.set(YEAR);
            while limiter.stats().cells > 0 {
                limiter.sweep(1 << 20);
            }
            assert_eq!(limiter.stats().clock_skips, 0);
        }
    }
}
