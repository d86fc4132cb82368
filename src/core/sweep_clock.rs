//! Checks a sweep's clock reading against the system's monotonic time.
//!
//! A sweep raises the [eviction time floor](crate::store::Store#the-eviction-time-floor) to its reading, for good. If
//! the reading is wrongly ahead, each new cell is charged as of the floor: its key is admitted one burst, and then denied
//! until the time of the floor. docs/internals/clocks.md has the rest.
//!
//! The lead of a reading is its distance ahead of the system's monotonic time. A reading is trusted if its lead is at most
//! an hour above the largest lead of a trusted reading, or if a second reading confirms the lead a second later.

use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::util::sync::{Figure, Ordering, Switch, TryLock};

/// How far a reading's lead may be above the largest lead of a trusted reading.
const MAX_AHEAD_NS: u64 = 3600 * 1_000_000_000;

/// The time after which a second reading may confirm one that was not trusted.
const AGREES_AFTER: Duration = Duration::from_secs(1);

/// A limiter's clock, compared with [`Instant`].
pub(crate) struct SweepClock {
    /// `None`: the clock does not follow the machine's time, and every reading is trusted.
    began: Option<Instant>,
    /// The largest lead of a trusted reading over the time since `began`.
    ahead_ns: Figure,
    /// The doubted reading that a later one may confirm: its lead, and the time since `began`. `None` after a reading
    /// that was trusted by its lead.
    doubted: TryLock<Option<(u64, Duration)>>,
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
            doubted: TryLock::default(),
            is_any_doubted: Switch::new(false),
        }
    }

    /// Returns whether a sweep may use this reading, made just now.
    pub(crate) fn admits(&self, now_ns: u64) -> bool {
        self.began.is_none_or(|began| self.admits_at(now_ns, began.elapsed()))
    }

    /// Like [`admits`](SweepClock::admits), at the time `since` after the clock began.
    fn admits_at(&self, now_ns: u64, since: Duration) -> bool {
        let since_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        // The lead of a clock that lags is 0.
        let ahead_ns = now_ns.saturating_sub(since_ns);
        let is_near = |of_ns: u64| ahead_ns <= of_ns.saturating_add(MAX_AHEAD_NS);
        // Relaxed: the number only rises. A sweep that reads an older number trusts fewer readings.
        if is_near(self.ahead_ns.load(Ordering::Relaxed)) {
            self.ahead_ns.fetch_max(ahead_ns, Ordering::Relaxed);
            // Relaxed: written under the lock alone, so that it agrees with `doubted`. A call that misses a doubt, or finds
            // the lock taken, leaves it to the next trusted reading.
            if self.is_any_doubted.load(Ordering::Relaxed) {
                self.doubted.try_with(|doubted| {
                    *doubted = None;
                    self.is_any_doubted.store(false, Ordering::Relaxed);
                });
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
        // A call that finds the lock taken does not sweep. A later call may.
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

    /// Admits readings of a clock that showed 1 ns at the beginning: pairs of a reading, and the time since then.
    fn admitted(readings: &[(Duration, Duration)]) -> Vec<bool> {
        let clock = SweepClock::beginning(Some(Instant::now()), 1);
        let admits = |&(now, since): &(Duration, Duration)| {
            clock.admits_at(1 + now.as_nanos() as u64, since)
        };
        readings.iter().map(admits).collect()
    }

    #[test]
    fn one_reading_far_ahead_is_not_trusted() {
        let second = Duration::from_secs(1);
        let readings = [(second, second), (YEAR, 2 * second), (3 * second, 3 * second)];
        assert_eq!(admitted(&readings), [true, false, true]);
        // After a right reading, the same wrong reading counts as a first one again.
        let readings = [(YEAR, second), (2 * second, 2 * second), (YEAR, 3 * second)];
        assert_eq!(admitted(&readings), [false, true, false]);
        // A second reading that is ahead by much less or much more does not confirm the first.
        let readings = [(YEAR, second), (YEAR / 2, 10 * second), (YEAR, 20 * second)];
        assert_eq!(admitted(&readings), [false, false, false]);
    }

    #[test]
    fn a_doubt_beside_a_taken_lock_is_cleared() {
        let ms = Duration::from_millis;
        let clock = SweepClock::beginning(Some(Instant::now()), 1);
        let admits = |now: Duration, since| clock.admits_at(1 + now.as_nanos() as u64, since);
        assert!(!admits(YEAR, ms(1)));
        // Another thread has the lock.
        assert_eq!(clock.doubted.try_with(|_| admits(ms(2), ms(2))), Some(true));
        assert!(admits(ms(3), ms(3)));
        assert!(!admits(YEAR, ms(1100)), "no reading has confirmed the first");
    }

    #[test]
    fn a_second_reading_that_agrees_is_trusted() {
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
    fn an_hour_ahead_or_a_lag_is_trusted() {
        let second = Duration::from_secs(1);
        assert_eq!(admitted(&[(HOUR, Duration::ZERO), (HOUR + HOUR, second)]), [true, true]);
        assert_eq!(admitted(&[(HOUR + Duration::from_nanos(1), Duration::ZERO)]), [false]);
        assert_eq!(admitted(&[(second, YEAR), (YEAR, YEAR)]), [true, true]);
    }

    #[test]
    fn a_custom_clock_is_trusted() {
        let (clock, _hand) = Clock::manual();
        assert!(SweepClock::new(&clock).admits(u64::MAX));
        assert!(!SweepClock::new(&Clock::instant()).admits(u64::MAX));
    }

    fn limiter(clock: Clock, engine: Engine, max_keys: usize) -> Limiter {
        let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
        let limits = Limits::builder().limit("Own", IdFormat::RegId, limit).unwrap().build();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(max_keys);
        Limiter::with_options(limits, options.at_cap(AtCap::Deny)).unwrap()
    }

    #[test]
    fn wrong_reading_in_sweep_denies_no_later_key() {
        for &engine in Engine::ALL {
            let (clock, hand) = Clock::manual_machine();
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
    fn wrong_reading_when_full_denies_no_later_key() {
        for &engine in Engine::ALL {
            let (clock, hand) = Clock::manual_machine();
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

    /// A custom clock is trusted, as `Clock` documents.
    #[test]
    fn a_manual_clock_may_jump() {
        for &engine in Engine::ALL {
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
