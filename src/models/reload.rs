//! Models of calls beside a reload, on the exact engine.

use super::*;
use crate::core::at_cap::AtCap;

const SOME: Option<usize> = Some(2);

/// Reloads limits under which each unit takes ten times as long.
fn slow_down(limiter: &Limiter) {
    let limit = |burst| Limit::new(burst, 1, Duration::from_nanos(100)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, limit(2)).unwrap();
    let limits = limits.limit("B", IdFormat::String, limit(1)).unwrap().build();
    assert!(limiter.reload(limits).unwrap().changed);
}

/// Excluded: a spend beside a reload is lost, or is counted in the units of the other limits.
fn spend_vs_reload_on_locks_model() {
    let (clock, _hand) = Clock::manual();
    // `Deny`, because an overflow bucket would stop a call with old limits before it does harm.
    let options = LimiterOptions::default().clock(clock).engine(Engine::Exact).at_cap(AtCap::Deny);
    let limiter = Limiter::with_options(limits(2, 1), options).unwrap();
    assert!(spend(&limiter, "A", 1));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let reloader = spawn(&limiter, |limiter| slow_down(&limiter));
    assert!(spender.join().unwrap(), "the second unit was there");
    reloader.join().unwrap();
    assert_eq!(reset_in_ns(&limiter, "A"), 200, "two units, in the new units");
}

#[test]
fn spend_vs_reload_on_locks() {
    explore_bounded(SOME, spend_vs_reload_on_locks_model);
    assert!(coverage::count(Race::ShardRenewed) > 0, "no word was migrated");
    assert!(coverage::count(Race::Outdated) > 0, "no call began again");
    for (fault, because) in [
        // The old word is read in the units of the new limits, in which it is a smaller debt.
        (Fault::ChargeBeforeRenewal, "the second unit was there"),
        (Fault::PublishedRelaxed, "Causality violation"),
    ] {
        fails_bounded(SOME, fault, because, spend_vs_reload_on_locks_model);
    }
}

/// Excluded: a denied batch returns a charge that it made under the old limits in the units of the new ones. The charge goes
/// back as a whole, before the reload has come to the bucket, or stays. A batch that begins again because of the reload may
/// leave its first charge as well.
fn denied_batch_vs_reload_model() {
    let (limiter, _hand) = limiter(2, 1);
    let batch = spawn(&limiter, |limiter| {
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        limiter.batch(&[a.member("k"), b.member("k")]).spend().unwrap().allowed()
    });
    let reloader = spawn(&limiter, |limiter| slow_down(&limiter));
    let other = spend(&limiter, "B", 1);
    let allowed = batch.join().unwrap();
    reloader.join().unwrap();
    assert!(other != allowed, "B has one unit");
    let owed_ns = reset_in_ns(&limiter, "A");
    match (allowed, owed_ns) {
        (true, 100 | 200) => count("allowed"),
        (false, 0) => count("returned"),
        (false, 100) => count("stayed"),
        _ => panic!("A is charged with a whole unit or not at all: {owed_ns}"),
    }
    assert_eq!(reset_in_ns(&limiter, "B"), 100);
}

#[test]
fn denied_batch_vs_reload() {
    explore_bounded(SOME, denied_batch_vs_reload_model);
    assert_happened(&["allowed", "returned", "stayed"]);
    assert!(coverage::count(Race::Outdated) > 0, "no call began again");
    let because = "A is charged with a whole unit";
    fails_bounded(SOME, Fault::ReturnByOldLimit, because, denied_batch_vs_reload_model);
}

/// Excluded: a sweep with new limits finds a cell that the reload has not migrated yet, reads its word in the new
/// units, and drops its debt.
fn sweep_vs_reload_on_locks_model() {
    let (clock, hand) = Clock::manual();
    hand.advance(Duration::from_nanos(50));
    let options = LimiterOptions::default().clock(clock).engine(Engine::Exact).at_cap(AtCap::Deny);
    let limiter = Limiter::with_options(with_override(false), options).unwrap();
    assert!(spend(&limiter, "A", 5));
    let sweeper = spawn(&limiter, |limiter| limiter.sweep(1 << 20).dropped);
    let reloader = spawn(&limiter, |limiter| {
        assert!(limiter.reload(with_override(true)).unwrap().changed);
    });
    sweeper.join().unwrap();
    reloader.join().unwrap();
    assert_eq!(reset_in_ns(&limiter, "A"), 20, "all of the default's two units are used");
}

/// Two units by default, and five for `k`. The override has ended, or has no end.
fn with_override(is_over: bool) -> Limits {
    let of = |burst| Limit::new(burst, 1, Duration::from_nanos(10)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, of(2)).unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3 * 86_400);
    let options = crate::limits::OverrideOptions::default();
    let options = if is_over { options.expires(long_ago) } else { options };
    limits.override_with("A", "k", of(5), options).unwrap().build()
}

#[test]
fn sweep_vs_reload_on_locks() {
    explore_bounded(SOME, sweep_vs_reload_on_locks_model);
    assert!(coverage::count(Race::ShardRenewed) > 0, "no word was migrated");
    let because = "all of the default's two units";
    fails_bounded(SOME, Fault::SweepByOldLimits, because, sweep_vs_reload_on_locks_model);
}
