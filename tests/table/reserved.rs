//! Tables whose memory was reserved at the start.

use super::*;
use tollgate::reload::CarryOver;

/// Returns the pages that the system has mapped for this process without reading a disk.
#[cfg(target_os = "linux")]
fn minor_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program, in parentheses, may have blanks.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn inserts_touch_no_fresh_page() {
    in_own_process(|| {
        const KEYS: u64 = 200_000;
        let (limiter, _hand) = limiter(LimiterOptions::default().reserve(KEYS as usize));
        let a = limiter.limit("A").unwrap();
        assert!(spend(&a, 0));
        let before = minor_faults();
        (1..KEYS).for_each(|id| assert!(spend(&a, id)));
        let faults = minor_faults() - before;
        let stats = limiter.stats();
        assert_eq!((stats.cells, stats.migrations), (KEYS as usize, 0));
        // Each page of the table once would be 2,000 and more.
        assert!(faults < 20, "{faults} faults, {stats:?}");
        assert!(stats.reserved_bytes as u64 <= 180 * KEYS + (2 << 20), "{stats:?}");
    });
}

/// Keys come, are swept, and others come: the slots of dead cells are cleared in reserved memory.
#[cfg(target_os = "linux")]
#[test]
fn sweeps_keep_reserved_memory() {
    in_own_process(|| {
        const KEYS: u64 = 50_000;
        let (limiter, hand) = limiter(LimiterOptions::default().reserve(KEYS as usize));
        let a = limiter.limit("A").unwrap();
        let mut before = 0;
        for round in 0..support::full_size(8, 20) {
            if round == 2 {
                before = minor_faults();
            }
            // Some stay over a round.
            let first = round * KEYS * 3 / 4;
            (first..first + KEYS).for_each(|id| {
                let _ = spend(&a, id);
            });
            hand.advance(BURST as u32 * SECOND);
            (first + KEYS * 3 / 4..first + KEYS).for_each(|id| assert!(spend(&a, id)));
            sweep_all(&limiter);
            assert_eq!(limiter.stats().cells as u64, KEYS / 4);
        }
        let faults = minor_faults() - before;
        let stats = limiter.stats();
        assert!(stats.migrations > 0 && faults < 100, "{faults} faults, {stats:?}");
        assert!(stats.bytes <= stats.reserved_bytes + (64 << 10), "{stats:?}");
    });
}

/// All keys are swept and others come, so that all shards fill up with dead cells at the same time.
#[test]
fn keys_that_all_change_stay_within_the_reserve() {
    in_own_process(|| {
        let keys: u64 = support::full_size(60_000, 300_000);
        let (limiter, hand) = limiter(LimiterOptions::default().reserve(keys as usize));
        let a = limiter.limit("A").unwrap();
        for round in 0..4 {
            for id in round * keys..(round + 1) * keys {
                assert!(spend(&a, id));
                if id % 1_000 == 0 {
                    let stats = limiter.stats();
                    assert!(stats.bytes <= stats.reserved_bytes + (64 << 10), "{id}: {stats:?}");
                }
            }
            hand.advance(BURST as u32 * SECOND);
            sweep_all(&limiter);
            assert_eq!(limiter.stats().cells, 0);
        }
    });
}

#[test]
fn reloads_keep_debts_in_reserved_memory() {
    const KEYS: u64 = 10_000;
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).reserve(KEYS as usize);
        let (limiter, _hand) = limiter(options);
        let a = limiter.limit("A").unwrap();
        (0..KEYS).for_each(|id| assert!(spend(&a, id)));
        for round in 0..6 {
            let limit = Limit::new(BURST + 1 - round % 2, 1, SECOND).unwrap();
            let limits = Limits::builder().limit("A", IdFormat::RegId, limit).unwrap().build();
            assert!(limiter.reload_with(limits, CarryOver::Units).unwrap().changed);
        }
        let left = |id| a.check(id, 0).unwrap().remaining();
        assert!((0..KEYS).all(|id| left(id) == Some(BURST - 1)), "{engine:?}");
        let stats = limiter.stats();
        assert!(engine != Engine::LockFree || stats.migrations > 6, "{stats:?}");
    }
}

/// The table grows beyond its reserve, and back.
#[test]
fn more_keys_than_reserved_are_kept() {
    const KEYS: u64 = 20_000;
    for reserved in [1, 100, 5_000] {
        let (limiter, hand) = limiter(LimiterOptions::default().reserve(reserved));
        let a = limiter.limit("A").unwrap();
        for _ in 0..3 {
            (0..KEYS).for_each(|id| assert!(spend(&a, id)));
            assert!((0..KEYS).all(|id| drain(&a, id) == BURST - 1), "{reserved}");
            hand.advance(BURST as u32 * SECOND);
            sweep_all(&limiter);
            assert_eq!(limiter.stats().cells, 0);
        }
        let stats = limiter.stats();
        assert!(stats.bytes <= stats.reserved_bytes + (256 << 10), "{reserved}: {stats:?}");
    }
}

#[test]
fn odd_reserves_are_taken_as_they_can_be() {
    // No system has the memory for the last two.
    const HUGE: usize = if usize::BITS == 64 { 1 << (usize::BITS - 14) } else { usize::MAX >> 2 };
    for (max_keys, reserved) in
        [(0, 10), (10, 0), (10, usize::MAX), (usize::MAX, usize::MAX), (HUGE, HUGE)]
    {
        for engine in ENGINES {
            let options = LimiterOptions::default().engine(engine).max_keys(max_keys);
            let (limiter, _hand) = limiter(options.at_cap(AtCap::Deny).reserve(reserved));
            assert_eq!(spend(&limiter.limit("A").unwrap(), 1), max_keys > 0);
            let is_reserved = limiter.stats().reserved_bytes > 0;
            let is_wanted = engine == Engine::LockFree && max_keys == 10 && reserved > 0;
            assert_eq!(is_reserved, is_wanted, "{max_keys} {reserved} {engine:?}");
        }
    }
}
