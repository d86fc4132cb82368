//! Checks one behaviour of a limiter in each test, on either engine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::batch::MemberMode;
use tollgate::clock::ManualClock;
use tollgate::limits::{IdentifierSet, LimitOptions};
use tollgate::options::Engine;
use tollgate::sweep::SweepOptions;
use tollgate::{Clock, Id, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, in_own_process, ms, sweep_all};

const SECOND: Duration = Duration::from_secs(1);

/// The engine: this file is the module `exact` and the module `lock_free`.
fn engine() -> Engine {
    ENGINES[usize::from(module_path!().ends_with("::exact"))]
}

fn limit(burst: u64, count: u64) -> Limit {
    Limit::new(burst, count, SECOND).unwrap()
}

fn limiter() -> (Limiter, ManualClock) {
    let limits = Limits::builder()
        .limit("PerUser", IdFormat::String, limit(20, 20))
        .unwrap()
        .limit("PerAddress", IdFormat::IpAddress, limit(2, 2))
        .unwrap()
        .limit("NewOrdersPerAccount", IdFormat::RegId, limit(3, 1))
        .unwrap()
        .limit("FailedAuthorizationsPerDomainPerAccount", IdFormat::RegIdIdentValue, limit(5, 1))
        .unwrap()
        .limit("CertificatesPerFQDNSet", IdFormat::FqdnSet, limit(1, 1))
        .unwrap()
        .override_id("PerUser", "vip", limit(40, 40))
        .unwrap()
        .override_id("FailedAuthorizationsPerDomainPerAccount", 12345678u64, limit(6, 1))
        .unwrap()
        .override_id(
            "FailedAuthorizationsPerDomainPerAccount",
            (12345678u64, "example.com"),
            limit(7, 1),
        )
        .unwrap()
        .build();
    let (clock, hand) = Clock::manual();
    (with_clock(limits, clock), hand)
}

fn with_clock(limits: Limits, clock: Clock) -> Limiter {
    Limiter::with_options(limits, LimiterOptions::default().clock(clock).engine(engine())).unwrap()
}

#[test]
fn unknown_name_is_an_immediate_error() {
    let error = limiter().0.limit("PerUsr").unwrap_err();
    assert!(error.is_invalid_name());
    assert_eq!(error.to_string(), "unknown limit \"PerUsr\"; did you mean PerUser?");
}

#[test]
fn a_name_near_none_gets_a_list() {
    // A shadow limit has an internal name, which callers do not see.
    let options = LimitOptions::default().shadow(limit(1, 1));
    let limits = Limits::builder().limit_with("A", IdFormat::String, limit(2, 2), options).unwrap();
    let limits = limits.limit("Bytes", IdFormat::String, limit(2, 2)).unwrap();
    let error = with_clock(limits.build(), Clock::manual().0).limit("PerUser").unwrap_err();
    assert_eq!(error.to_string(), "unknown limit \"PerUser\"; the limits are A, Bytes");
    let none = with_clock(Limits::builder().build(), Clock::manual().0).limit("A").unwrap_err();
    assert_eq!(none.to_string(), "unknown limit \"A\"");
}

#[test]
fn boulder_name_without_numbers_is_no_limit() {
    let (limiter, _hand) = limiter();
    let orders = limiter.limit("CertificatesPerDomain").unwrap();
    let decision = orders.spend("example.com", 1_000_000).unwrap();
    assert!(decision.allowed());
    assert_eq!(decision.remaining(), None);
    assert_eq!(limiter.stats().cells, 0, "nothing is kept for it");
}

#[test]
fn each_type_of_id_names_one_bucket() {
    let (limiter, _hand) = limiter();
    let accounts = limiter.limit("NewOrdersPerAccount").unwrap();
    for (id, left) in [(Id::from("7"), 2), (Id::from(7u64), 1), (Id::from("007"), 0)] {
        assert_eq!(accounts.spend(id, 1).unwrap().remaining(), Some(left), "{id:?}");
    }
    let addresses = limiter.limit("PerAddress").unwrap();
    let mapped: Ipv6Addr = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!(addresses.spend(Ipv4Addr::new(10, 0, 0, 1), 1).unwrap().remaining(), Some(1));
    assert_eq!(addresses.spend(IpAddr::V6(mapped), 1).unwrap().remaining(), Some(0));
    assert!(!addresses.spend("10.0.0.1", 1).unwrap().allowed());
    let set = IdentifierSet::new(["Example.org", "example.com", "example.org"]).unwrap();
    let sets = limiter.limit("CertificatesPerFQDNSet").unwrap();
    assert!(sets.spend(&set, 1).unwrap().allowed());
    assert!(!sets.spend("example.com,example.org", 1).unwrap().allowed());
    let kept = ["36b9d2294255745d0f491b3f04f6490de45cc7241f650ba58c3e4e61a2344efc".to_owned()];
    assert_eq!(sets.ids(), (engine() != Engine::LockFree).then_some(kept.into()));
}

#[test]
fn the_most_specific_override_wins() {
    let (limiter, _hand) = limiter();
    let failed = limiter.limit("FailedAuthorizationsPerDomainPerAccount").unwrap();
    let first = |id: (u64, &str)| failed.check(id, 1).unwrap().remaining();
    assert_eq!(first((12345678, "example.com")), Some(6), "the whole id");
    assert_eq!(first((12345678, "example.org")), Some(5), "the account");
    assert_eq!(first((87654321, "example.com")), Some(4), "the default");
}

#[test]
fn an_override_shares_numbers_and_not_a_bucket() {
    let (limiter, _hand) = limiter();
    let failed = limiter.limit("FailedAuthorizationsPerDomainPerAccount").unwrap();
    assert!(failed.spend((12345678u64, "a.example.com"), 6).unwrap().allowed());
    assert!(failed.spend((12345678u64, "b.example.com"), 6).unwrap().allowed());
    assert!(!failed.spend((12345678u64, "a.example.com"), 1).unwrap().allowed());
}

#[test]
fn cost_above_burst_error_names_both_changes_nothing() {
    let (limiter, _hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    for error in [users.spend("a", 21), users.check("a", 21), users.refund("a", 21)] {
        let error = error.unwrap_err();
        assert!(error.is_cost_above_burst());
        assert_eq!(error.to_string(), "cost 21 is above the burst 20 of PerUser");
    }
    assert!(users.spend("vip", 40).unwrap().allowed(), "the id's own numbers count");
    let members = [users.member("b"), users.member("c").cost(21)];
    assert!(limiter.batch(&members).spend().unwrap_err().is_cost_above_burst());
    assert_eq!(
        users.check("b", 0).unwrap().remaining(),
        Some(20),
        "a failed batch charges no bucket"
    );
}

#[test]
fn checks_and_costs_of_0_keep_no_cell() {
    let (limiter, _hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    for i in 0..1000 {
        let id = i.to_string();
        assert!(users.check(&id, 1).unwrap().allowed());
        assert!(users.spend(&id, 0).unwrap().allowed());
        assert!(!users.refund(&id, 1).unwrap().allowed());
        assert!(users.reset(&id).unwrap().allowed());
        let members = [users.member(&id).mode(MemberMode::CheckOnly)];
        assert!(limiter.batch(&members).spend().unwrap().allowed());
    }
    assert_eq!(limiter.stats().cells, 0);
}

#[test]
fn denied_batch_names_the_denying_members_index() {
    let (limiter, _hand) = limiter();
    let (users, addresses) =
        (limiter.limit("PerUser").unwrap(), limiter.limit("PerAddress").unwrap());
    assert!(addresses.spend(Ipv4Addr::LOCALHOST, 2).unwrap().allowed());
    let members = [users.member("a"), addresses.member(Ipv4Addr::LOCALHOST)];
    let denied = limiter.batch(&members).spend().unwrap();
    assert_eq!((denied.allowed(), denied.denied_by()), (false, Some(1)));
    assert_eq!(users.check("a", 0).unwrap().remaining(), Some(20), "all or nothing");
    let members = [members[1], members[0]];
    assert_eq!(limiter.batch(&members).spend().unwrap().denied_by(), Some(0));
    assert_eq!(limiter.batch(&members).check().unwrap().denied_by(), Some(0));
}

#[test]
fn spend_only_member_is_dropped_instead_of_denying() {
    let (limiter, _hand) = limiter();
    let (users, addresses) =
        (limiter.limit("PerUser").unwrap(), limiter.limit("PerAddress").unwrap());
    let address = Ipv4Addr::LOCALHOST;
    let both = |cost| {
        [users.member("a"), addresses.member(address).cost(cost).mode(MemberMode::SpendOnly)]
    };
    let decision = limiter.batch(&both(1)).spend().unwrap();
    assert_eq!(decision.remaining(), Some(19), "the spend-only member does not decide");
    assert!(limiter.batch(&both(2)).spend().unwrap().allowed());
    assert_eq!(addresses.check(address, 0).unwrap().remaining(), Some(1), "2 did not fit into 1");
    let alone = [addresses.member(address).mode(MemberMode::SpendOnly)];
    let decision = limiter.batch(&alone).spend().unwrap();
    assert_eq!((decision.allowed(), decision.remaining()), (true, None), "none can deny");
    assert_eq!(addresses.check(address, 0).unwrap().remaining(), Some(0), "charged all the same");
}

#[test]
fn bucket_named_twice_in_batch_is_error() {
    let (limiter, _hand) = limiter();
    let accounts = limiter.limit("NewOrdersPerAccount").unwrap();
    let members = [accounts.member("07"), accounts.member(8u64), accounts.member(7u64)];
    let error = limiter.batch(&members).spend().unwrap_err();
    assert!(error.is_invalid_batch());
    assert_eq!(error.to_string(), "the bucket NewOrdersPerAccount:7 is named twice in the batch");
}

#[test]
fn a_reset_asks_for_no_cost() {
    let (limiter, _hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    assert!(users.spend("a", 20).unwrap().allowed());
    let members =
        [users.member("a").cost(21), users.member("b").cost(21).mode(MemberMode::CheckOnly)];
    let full = limiter.batch(&members).reset().unwrap();
    assert_eq!((full.allowed(), full.remaining()), (true, Some(20)));
}

#[test]
fn a_handle_of_another_limiter_is_an_error() {
    let (one, other) = (limiter().0, limiter().0);
    let handle = other.limit("PerUser").unwrap();
    let error = one.batch(&[handle.member("a")]).spend().unwrap_err();
    assert!(error.is_invalid_batch());
    assert_eq!(error.to_string(), "the handle of PerUser is of another limiter");
}

#[test]
fn a_batch_of_many_members_is_one() {
    let (limiter, _hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    let ids: Vec<String> = (0..100).map(|i| i.to_string()).collect();
    let members: Vec<_> = ids.iter().map(|id| users.member(id).cost(20)).collect();
    assert!(limiter.batch(&members).spend().unwrap().allowed());
    assert_eq!(
        limiter.batch(&members[40..]).spend().unwrap().denied_by(),
        Some(59),
        "the later of a tie"
    );
    assert!(limiter.batch(&members).refund().unwrap().allowed());
    assert!(limiter.batch(&members).spend().unwrap().allowed());
    assert!(limiter.batch(&members).reset().unwrap().allowed());
    assert!(limiter.batch(&members).spend().unwrap().allowed());
}

#[test]
fn a_sweep_drops_full_buckets_and_nothing_else() {
    in_own_process(|| {
        fill_and_sweep();
    });
}

fn fill_and_sweep() {
    let (limiter, hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    for i in 0..10_000 {
        assert!(users.spend(&i.to_string(), 1 + i % 2).unwrap().allowed());
    }
    let grown = limiter.stats();
    assert_eq!((grown.cells, grown.swept), (10_000, 0));
    assert!(grown.bytes >= 10_000 * 32, "{grown:?}");
    // A unit comes back every 50 ms: half are full.
    hand.advance(ms(50));
    let mut steps = 0;
    loop {
        let swept = limiter.sweep(100);
        assert!(swept.looked_at <= 100 + 10_000 / 16, "a step is bounded: {swept:?}");
        steps += 1;
        if swept.finished {
            break;
        }
    }
    let swept = limiter.stats();
    assert_eq!((swept.cells, swept.swept, swept.steps), (5_000, 5_000, steps));
    let ids = users.ids();
    assert_eq!(ids.is_some(), engine() != Engine::LockFree);
    assert!(ids.iter().flatten().all(|id| id.parse::<u64>().unwrap() % 2 == 1));
    hand.advance(ms(50));
    sweep_all(&limiter);
    let empty = limiter.stats();
    assert_eq!((empty.cells, empty.swept), (0, 10_000));
    assert!(
        empty.bytes < grown.bytes / 5,
        "memory is given back: {} of {}",
        empty.bytes,
        grown.bytes
    );
}

#[test]
fn the_sweeper_works_until_its_handle_drops() {
    let (limiter, hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    let sweeper =
        limiter.start_sweeper(SweepOptions::default().interval(Duration::ZERO).step(1)).unwrap();
    for i in 0..100 {
        assert!(users.spend(&i.to_string(), 1).unwrap().allowed());
    }
    hand.advance(SECOND);
    // Ends when the sweeper has done its work; the test harness bounds it.
    while limiter.stats().swept < 100 {
        std::thread::yield_now();
    }
    assert!(limiter.stats().last_run.is_some());
    drop(sweeper);
    let stopped = limiter.stats().steps;
    assert!(users.spend("a", 1).unwrap().allowed());
    assert_eq!(limiter.stats().steps, stopped, "joined");
}

/// A call that has read the clock a moment before a pass finds all units in its new bucket.
#[test]
fn the_sweeper_sweeps_a_millisecond_ago() {
    let (limiter, hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    hand.set(100 * SECOND);
    assert!(users.spend("old", 1).unwrap().allowed());
    let all = users.check("old", 0).unwrap().remaining().unwrap() + 1;
    hand.set(102 * SECOND);
    let often = SweepOptions::default().interval(Duration::ZERO);
    let sweeper = limiter.start_sweeper(often).unwrap();
    while limiter.stats().swept == 0 {
        std::thread::yield_now();
    }
    drop(sweeper);
    hand.set(102 * SECOND - Duration::from_micros(999));
    assert_eq!(users.spend("new", 1).unwrap().remaining(), Some(all - 1));
}

#[test]
fn sweeper_survives_panic_and_joins_at_once() {
    let broken = Arc::new(AtomicBool::new(false));
    let breaks = broken.clone();
    let clock = Clock::custom(move || {
        if breaks.load(Ordering::Relaxed) && std::thread::current().name() == Some("tollgate-sweep")
        {
            panic!("a clock of the caller's own");
        }
        Duration::from_secs(5)
    });
    let limiter = with_clock(Limits::builder().build(), clock);
    let hourly = SweepOptions::default().interval(Duration::from_secs(3600));
    let sweeper = limiter.start_sweeper(SweepOptions::default().interval(Duration::ZERO)).unwrap();
    broken.store(true, Ordering::Relaxed);
    while limiter.stats().panics < 2 {
        std::thread::yield_now();
    }
    broken.store(false, Ordering::Relaxed);
    let steps = limiter.stats().steps;
    while limiter.stats().steps == steps {
        std::thread::yield_now();
    }
    drop(sweeper);
    // Dropping wakes a thread that would sleep for an hour; the test harness would notice.
    drop(limiter.start_sweeper(hourly).unwrap());
}

#[test]
fn the_sweeper_keeps_no_limiter_alive() {
    let held = Arc::new(());
    let in_clock = held.clone();
    let clock = Clock::custom(move || {
        let _ = &in_clock;
        SECOND
    });
    let limiter = with_clock(Limits::builder().build(), clock);
    let sweeper = limiter.start_sweeper(SweepOptions::default().interval(Duration::ZERO)).unwrap();
    drop(limiter);
    while Arc::strong_count(&held) > 1 {
        std::thread::yield_now();
    }
    drop(sweeper);
}

#[test]
fn spend_many_charges_each_ids_own_bucket() {
    let (limiter, _hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    // An invalid id in front of others, in the first group and in the second.
    let ids: Vec<String> =
        (0..24).map(|i| if i % 7 == 1 { String::new() } else { format!("user{i}") }).collect();
    for round in 1..=2 {
        let mut decisions = Vec::new();
        users.spend_many(&ids, 1, &mut decisions);
        for (id, decision) in ids.iter().zip(&decisions) {
            assert_eq!(decision.is_err(), id.is_empty());
            if !id.is_empty() {
                let left = users.check(id, 0).unwrap().remaining();
                assert_eq!(left, Some(20 - round), "{id}, round {round}");
            }
        }
    }
}

#[test]
fn spend_many_reads_the_clock_once_a_group() {
    let readings = Arc::new(AtomicUsize::new(0));
    let counter = readings.clone();
    let clock = Clock::custom(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        SECOND
    });
    let limits = Limits::builder()
        .limit("Text", IdFormat::String, limit(9, 9))
        .unwrap()
        .limit("Address", IdFormat::IpAddress, limit(9, 9))
        .unwrap();
    let limiter = with_clock(limits.build(), clock);
    // New ids, known ids, and ids under a block of another one.
    for round in 0..3 {
        for name in ["Text", "Address"] {
            let handle = limiter.limit(name).unwrap();
            if round == 2 {
                handle.block("8.8.8.8", SECOND).unwrap();
            }
            let ids: Vec<String> = (0..20).map(|i| format!("9.9.9.{i}")).collect();
            let before = readings.load(Ordering::Relaxed);
            let mut decisions = Vec::new();
            handle.spend_many(&ids, 1, &mut decisions);
            assert!(decisions.iter().all(|it| it.as_ref().unwrap().allowed()));
            let read = readings.load(Ordering::Relaxed) - before;
            assert_eq!(read, 2, "{name}, round {round}: 16 ids and 4");
        }
    }
}

#[test]
fn walk_through_of_boulder_readme() {
    let limits =
        Limits::builder().limit("NewFoosPerIPAddress", IdFormat::IpAddress, limit(20, 20)).unwrap();
    let (clock, hand) = Clock::manual();
    let limiter = with_clock(limits.build(), clock);
    let foos = limiter.limit("NewFoosPerIPAddress").unwrap();
    let address = Ipv4Addr::new(172, 23, 45, 22);

    let first = foos.spend(address, 1).unwrap();
    assert!(first.allowed());
    assert_eq!(first.remaining(), Some(19), "step 2: initialised with 19");
    assert_eq!(first.reset_in(), ms(50), "step 3: full in 50 ms");
    assert_eq!(first.retry_in(), Duration::ZERO, "step 3: another at once");

    hand.set(ms(5));
    assert!(foos.spend(address, 1).unwrap().allowed(), "step 4: 5 ms later");
    for i in 0..18_u64 {
        hand.set(ms(5) + ms(44) * (i as u32 + 1) / 18);
        assert!(foos.spend(address, 1).unwrap().allowed(), "the {i}th of the next 18");
    }
    hand.set(ms(49));
    let denied = foos.spend(address, 1).unwrap();
    assert!(!denied.allowed(), "step 6: rejected");
    assert_eq!(denied.retry_in(), ms(1));
    assert_eq!(denied.remaining(), Some(0));
    hand.set(ms(50));
    for i in 1..100 {
        assert!(foos.spend(address, 1).unwrap().allowed(), "step 3: one every 50 ms, indefinitely");
        assert!(!foos.spend(address, 1).unwrap().allowed());
        hand.set(ms(50) + ms(50) * i);
    }
}

#[test]
fn switched_off_it_limits_nothing_and_forgets_nothing() {
    let (limiter, _hand) = limiter();
    let users = limiter.limit("PerUser").unwrap();
    assert!(users.spend("a", 20).unwrap().allowed());
    limiter.clone().set_enabled(false);
    assert!(!limiter.is_enabled());
    for cost in [1, 20, 21] {
        assert_eq!(users.spend("a", cost).unwrap().remaining(), None);
        assert_eq!(users.spend("", cost).unwrap().remaining(), None, "whatever the id");
    }
    assert_eq!(users.reset("a").unwrap().remaining(), None);
    let batch = [users.member("a").cost(20), users.member("b")];
    assert_eq!(limiter.batch(&batch).spend().unwrap().remaining(), None);
    let mut said = Vec::new();
    users.spend_many(["a", "b"], 1, &mut said);
    assert!(said.iter().all(|said| said.as_ref().unwrap().remaining().is_none()));
    limiter.set_enabled(true);
    assert_eq!(limiter.stats().cells, 1);
    assert!(!users.spend("a", 1).unwrap().allowed());
}
