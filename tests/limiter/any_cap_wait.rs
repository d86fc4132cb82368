//! The wait for room in random full tables: parts, overrides that a reload takes away, factors, all algorithms.

#[path = "../support/random.rs"]
mod random;

use random::Random;
use tollgate::limits::LimitOptions;
use tollgate::options::{AtCap, Engine};
use tollgate::{IdFormat, Limit, Limits};

use super::cap::options;
use super::support::{ENGINES, full_size, limiter_with, limits_of_all, ms, seconds};

const NAMES: [&str; 3] = ["A", "B", "C"];
const ALGORITHMS: usize = 4;

fn any_limit(random: &mut Random, algorithm: usize) -> Limit {
    let (burst, interval) = (random.within(1, 8), ms(random.within(1, 5_000)));
    limits_of_all(burst, interval)[algorithm].clone()
}

/// Limits of these algorithms, some of them with a part of their own, and up to `vips` overrides of "A".
fn any_limits(random: &mut Random, algorithms: &[usize], vips: u64) -> Limits {
    let mut builder = Limits::builder();
    for (name, &algorithm) in NAMES.into_iter().zip(algorithms) {
        let part = random.within(1, 3) as usize;
        let with_part = LimitOptions::default().max_keys(part);
        let options = if random.chance(1, 3) { with_part } else { LimitOptions::default() };
        let limit = any_limit(random, algorithm);
        builder = builder.limit_with(name, IdFormat::String, limit, options).unwrap();
    }
    for id in (0..vips).filter(|_| random.chance(1, 2)).collect::<Vec<_>>() {
        let limit = any_limit(random, algorithms[0]);
        builder = builder.override_id("A", format!("vip{id}").as_str(), limit).unwrap();
    }
    builder.build()
}

/// A new id that lacks room is told when it gets room: not 2 ms earlier (the counting algorithms have a resolution of 1 ms), and
/// not later. `check` says the same.
fn waits_are_right(seed: u64, engine: Engine) -> u64 {
    let random = &mut Random(seed);
    let count = random.within(2, 3) as usize;
    let algorithms: Vec<_> = (0..count).map(|_| random.below(ALGORITHMS as u64) as usize).collect();
    let max_keys = random.within(9, 18) as usize;
    let first = any_limits(random, &algorithms, 6);
    let (limiter, hand) = limiter_with(first, options(engine, max_keys).at_cap(AtCap::Deny));
    hand.advance(seconds(1));
    let handles: Vec<_> = NAMES[..count].iter().map(|name| limiter.limit(name).unwrap()).collect();
    let mut waits = 0;
    for round in 0..3 {
        if round > 0 && random.chance(1, 2) {
            // An invalid sum of parts is refused, and leaves the limits.
            let _ = limiter.reload(any_limits(random, &algorithms, 6));
        }
        for _ in 0..if round == 0 { 60 } else { 20 } {
            let handle = &handles[random.below(count as u64) as usize];
            let kind = if random.chance(1, 4) { "vip" } else { "id" };
            let id = format!("{kind}{}", random.below(if kind == "vip" { 6 } else { 60 }));
            let factor = if random.chance(1, 5) { "0.5" } else { "1" };
            // A cost above the burst is an error.
            let cost = random.within(1, 4);
            let _ = handle.scaled(factor.parse().unwrap()).spend(id.as_str(), cost);
            if random.chance(1, 3) {
                hand.advance(ms(random.below(300)));
            }
        }
        let handle = &handles[random.below(count as u64) as usize];
        let id = format!("new{round}");
        let ask = || (handle.check(id.as_str(), 1).unwrap(), handle.spend(id.as_str(), 1).unwrap());
        let why = format!("seed {seed} {engine:?} round {round}");
        let (checked, spent) = ask();
        assert_eq!(checked.allowed(), spent.allowed(), "{why}: {checked:?} {spent:?}");
        if !spent.out_of_room() {
            continue;
        }
        waits += 1;
        assert_eq!(checked, spent, "{why}");
        let before = spent.retry_in().saturating_sub(ms(2));
        hand.advance(before);
        if !before.is_zero() {
            let early = handle.check(id.as_str(), 1).unwrap();
            assert!(!early.allowed(), "{why}: 2 ms early, {spent:?}");
        }
        hand.advance(spent.retry_in() - before);
        let (checked, then) = ask();
        assert!(
            checked.allowed() && then.allowed(),
            "{why}: after {spent:?}: {checked:?} {then:?}"
        );
    }
    waits
}

#[test]
fn wait_for_room_is_right_in_any_table() {
    for engine in ENGINES {
        let seeds = full_size(200, 12_000);
        let waits: u64 = (0..seeds).map(|seed| waits_are_right(seed, engine)).sum();
        assert!(waits > seeds / 2, "{engine:?}: {waits} waits of {seeds} tables");
    }
}
