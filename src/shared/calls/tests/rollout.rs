//! Nodes with two versions of a limit on one store, while a roll-out goes on, and is rolled back.

use super::one_bucket::beyond_one_bucket;
use super::*;
use crate::full_size::full_size;
use crate::random::Random;
use crate::shared::block_on;
use crate::shared::protocol::text::ORIGIN_NS;

const NODES: usize = 4;
const MS: u64 = 1_000_000;
/// Calls of a run.
const CALLS: usize = 8_000;

/// A limit of `burst` units, one each `interval_ms`.
fn each(interval_ms: u64, burst: u64) -> Limit {
    Limit::new(burst, 1, Duration::from_millis(interval_ms)).unwrap()
}

fn version(limit: &Limit, shared: Shared) -> Limits {
    let options = LimitOptions::default().shared(shared).on_error(OnError::Deny);
    let options = match shared {
        Shared::Leased => options.lease(Duration::from_millis(200)),
        _ => options,
    };
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit.clone(), options);
    limits.unwrap().build()
}

/// Calls of nodes that change from one version to the other at random. Returns the uses: the time since 1970 in ns, and units.
fn uses_of(versions: &[Limit; 2], shared: Shared, seed: u64) -> Vec<(u64, u64)> {
    let (clock, hand) = Clock::manual();
    hand.advance(Duration::from_secs(1));
    let store = Store::in_memory(clock.clone());
    let mut random = Random(seed);
    let [old, _] = versions;
    let nodes: Vec<(Limiter, SharedLimit)> = (0..NODES)
        .map(|_| {
            let options = LimiterOptions::default().clock(clock.clone()).store(store.clone());
            let limiter = Limiter::with_options(version(old, shared), options).unwrap();
            let bucket = limiter.shared("All").unwrap();
            (limiter, bucket)
        })
        .collect();
    let (mut uses, mut pause_ns) = (Vec::new(), MS);
    for _ in 0..CALLS {
        if random.chance(1, 50) {
            pause_ns = [100_000, 2 * MS, 40 * MS][random.below(3) as usize];
        }
        hand.advance(Duration::from_nanos(random.below(pause_ns)));
        let (limiter, bucket) = &nodes[random.below(NODES as u64) as usize];
        match random.below(200) {
            0 => {
                let to = &versions[random.below(2) as usize];
                let _ = limiter.reload(version(to, shared)).unwrap();
            }
            1 => {
                let _ = block_on(limiter.give_leases_back()).unwrap();
            }
            _ => {
                let cost = 1 + random.below(2);
                let decision = block_on(bucket.spend("a", cost)).unwrap();
                if decision.allowed() {
                    uses.push((ORIGIN_NS - 1 + clock.now_ns(), cost));
                }
            }
        }
    }
    uses
}

/// The bucket of the bound: the shorter interval, and the burst that fills in the longer of both times.
fn bound(versions: &[Limit; 2]) -> Limit {
    let gcra = versions.each_ref().map(|limit| *limit.rule().gcra().unwrap());
    let interval_ns = gcra[0].emission_interval_ns().min(gcra[1].emission_interval_ns());
    let offset_ns = gcra[0].burst_offset_ns().max(gcra[1].burst_offset_ns());
    Limit::new(offset_ns.div_ceil(interval_ns), 1, Duration::from_nanos(interval_ns)).unwrap()
}

#[test]
fn two_versions_keep_the_bound_of_both() {
    let all = [
        [each(10, 20), each(10, 60)],
        [each(10, 60), each(10, 20)],
        [each(10, 20), each(5, 20)],
        [each(10, 20), each(5, 60)],
        [each(10, 60), each(30, 20)],
        [each(10, 100), each(100, 10)],
    ];
    for versions in all.into_iter().step_by(full_size(2, 1)) {
        let bound = bound(&versions);
        for shared in [Shared::Exact, Shared::Leased] {
            let mut beyond_either = [0, 0];
            for seed in 0..full_size(1, 5) {
                let uses = uses_of(&versions, shared, seed);
                let (beyond, units) = (
                    beyond_one_bucket(&bound, &uses, &[]),
                    uses.iter().map(|(_, cost)| cost).sum::<u64>(),
                );
                assert_eq!(beyond, 0, "{versions:?} {shared:?} {seed}: {units} units");
                for (beyond, limit) in beyond_either.iter_mut().zip(&versions) {
                    *beyond += beyond_one_bucket(limit, &uses, &[]);
                }
            }
            println!("{versions:?} {shared:?}: beyond one version alone {beyond_either:?}");
            assert!(beyond_either.iter().any(|&beyond| beyond > 0), "both versions had calls");
        }
    }
}
