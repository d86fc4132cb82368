//! Snapshots during calls, growth, sweeps and reloads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tollgate::options::Engine;
use tollgate::{Clock, Limiter, LimiterOptions};

use super::{ENGINES, full_size, limiter, limits, options, slow, used};

const BURST: u64 = 1 << 20;
const KEYS: usize = 3_000;

/// A snapshot has at least the debt that each bucket had when it began.
#[test]
fn snapshot_has_all_earlier_spends() {
    for engine in ENGINES {
        let (clock, _manual) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(1 << 20);
        let limiter =
            &Limiter::with_options(limits(&[("A", slow(BURST))]), options.clone()).unwrap();
        let spent: &[AtomicU64] = &(0..KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let is_done = &AtomicBool::new(false);
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("buckets");
        thread::scope(|scope| {
            scope.spawn(|| {
                let a = limiter.limit("A").unwrap();
                let ids: Vec<String> = (0..KEYS).map(|id| format!("id {id}")).collect();
                for round in 0_usize.. {
                    // Other keys come and go, so that the table grows, is swept, and shrinks.
                    for other in 0..200 {
                        // At most 400,000 other keys, so the table is never full.
                        let id = format!("other {}", round % 2000 * 200 + other);
                        assert!(a.spend(id.as_str(), 1).unwrap().allowed());
                        if other % 2 == 0 {
                            assert!(a.reset(id.as_str()).unwrap().allowed());
                        }
                    }
                    for at in (round % 7..KEYS).step_by(7) {
                        assert!(a.spend(&ids[at], 1).unwrap().allowed());
                        spent[at].fetch_add(1, Ordering::Release);
                    }
                    limiter.sweep(10_000);
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for snapshot in 0..full_size(8, 30) {
                let before: Vec<u64> = spent.iter().map(|it| it.load(Ordering::Acquire)).collect();
                limiter.snapshot(path).unwrap();
                if snapshot % 5 == 0 {
                    // A reload changes the units of words. No bucket may owe less after it.
                    let burst = BURST + 1 + snapshot;
                    let reloaded = limiter.reload_with(
                        limits(&[("A", slow(burst))]),
                        tollgate::reload::CarryOver::Units,
                    );
                    assert!(reloaded.unwrap().changed);
                }
                let after: Vec<u64> = spent.iter().map(|it| it.load(Ordering::Acquire)).collect();
                let burst = limiter.limit("A").unwrap().limit_for("x").unwrap().unwrap().burst();
                let (options, limits) = (options.clone(), limits(&[("A", slow(burst))]));
                let restored = Limiter::restore_with(
                    limits,
                    options,
                    path,
                    tollgate::reload::CarryOver::Units,
                );
                let (restored, _) = restored.unwrap();
                for at in 0..KEYS {
                    let used = used(&restored, "A", &format!("id {at}"), burst);
                    // A call may have charged and not yet counted its spend, and each reload rounds up by less
                    // than one unit.
                    let max = after[at] + 1 + snapshot / 5 + 1;
                    assert!((before[at]..=max).contains(&used), "{engine:?}: {used}, id {at}");
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        if engine == Engine::LockFree {
            assert!(limiter.stats().migrations > 0, "the table has not migrated");
        }
    }
}

/// A limiter and its restored twin have the keys of one hash function, so each finds the other's ids.
#[test]
fn restored_limiters_refuse_handles_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let (old, _manual) = limiter(limits(&[("A", slow(10))]), engine);
        assert!(old.limit("A").unwrap().spend("x", 3).unwrap().allowed());
        old.snapshot(&path).unwrap();
        let (new, _) =
            Limiter::restore(limits(&[("A", slow(10))]), options(engine).0, &path).unwrap();
        let (of_old, of_new) = (old.limit("A").unwrap(), new.limit("A").unwrap());
        assert_eq!(new.batch(&[of_new.member("x")]).spend().unwrap().remaining(), Some(6));
        let error = new.batch(&[of_old.member("x")]).spend().unwrap_err();
        assert!(error.is_invalid_batch(), "{engine:?}: {error}");
        assert_eq!(of_new.check("x", 0).unwrap().remaining(), Some(6));
    }
}
