//! Debts of ids without a bucket, which the table had no room for, over a snapshot.

use tollgate::options::AtCap;
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, full_size, seconds};

/// Limits of a burst that refill in some hours.
const ALGORITHMS: [fn(u64) -> Limit; 4] = [
    // Another interval for each burst, so that units and times differ.
    |burst| Limit::new(burst, 1, seconds(60 * burst)).unwrap(),
    |burst| Limit::fixed_window(burst, seconds(7200)).unwrap(),
    |burst| Limit::token_bucket(burst, burst, seconds(7200)).unwrap(),
    |burst| Limit::leaky_bucket(burst, 1, seconds(3600)).unwrap(),
];

/// A default of 10, and overrides of these bursts for "vip" and "other". A burst of 0 stands for no limit.
fn limits(make: fn(u64) -> Limit, bursts: [Option<u64>; 2]) -> Limits {
    let builder = Limits::builder().limit("Own", IdFormat::String, make(10)).unwrap();
    let given = ["vip", "other"].into_iter().zip(bursts);
    let given = given.filter_map(|(id, burst)| Some((id, burst?)));
    given
        .fold(builder, |builder, (id, burst)| {
            builder.override_id("Own", id, (burst > 0).then(|| make(burst))).unwrap()
        })
        .build()
}

/// Returns the remaining units of each id.
fn left(limiter: &Limiter) -> Vec<u64> {
    let own = limiter.limit("Own").unwrap();
    let ids = ["inside", "vip", "other", "another"];
    ids.map(|id| own.check(id, 0).unwrap().remaining().unwrap_or(u64::MAX)).to_vec()
}

/// The bursts of the overrides.
type Bursts = [Option<u64>; 2];

/// Spends 7 of 10 as "vip" from the overflow bucket, and later 2 as "another"; then the overrides change to `in_file`.
fn spent(
    make: fn(u64) -> Limit,
    options: LimiterOptions,
    [at_first, in_file]: [Bursts; 2],
) -> Limiter {
    let (clock, hand) = Clock::manual();
    let options = options.max_keys(1).at_cap(AtCap::Share).clock(clock);
    let limiter = Limiter::with_options(limits(make, at_first), options).unwrap();
    let own = limiter.limit("Own").unwrap();
    assert!(own.spend("inside", 1).unwrap().allowed());
    // With an override it is denied.
    if at_first[0].is_none_or(|burst| burst >= 7) {
        let _ = own.spend("vip", 7).unwrap();
    }
    if at_first != in_file {
        limiter.reload_with(limits(make, in_file), CarryOver::Share).unwrap();
    }
    hand.advance(seconds(10));
    assert!(own.spend("another", 2).unwrap().allowed());
    limiter
}

/// With the limits of the file, and with others, a restore keeps the debts that a reload keeps.
#[test]
fn restore_keeps_untracked_debts_like_reload() {
    let some = [
        [None, None],
        [Some(100), None],
        [None, Some(50)],
        [Some(8), Some(50)],
        [Some(0), Some(50)],
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        for make in ALGORITHMS {
            for (at_first, in_file, then) in triples(&some).step_by(full_size(2, 1)) {
                let options = LimiterOptions::default().engine(engine);
                let limiter = spent(make, options.clone(), [at_first, in_file]);
                limiter.snapshot(&path).unwrap();
                let options = options.max_keys(10);
                let restored = Limiter::restore(limits(make, then), options, &path).unwrap().0;
                limiter.reload_with(limits(make, then), CarryOver::Share).unwrap();
                let case = format!("{engine:?} {:?} {at_first:?} {in_file:?} {then:?}", make(10));
                assert_eq!(left(&limiter), left(&restored), "{case}");
            }
        }
    }
}

fn triples<T: Copy>(all: &[T]) -> impl Iterator<Item = (T, T, T)> {
    all.iter()
        .flat_map(move |&a| all.iter().flat_map(move |&b| all.iter().map(move |&c| (a, b, c))))
}

/// An override's debt from the time before it is in the file. It is spent once.
#[test]
fn restored_override_begins_with_its_debt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let with_override = [Some(100), None];
    for engine in ENGINES {
        for in_file in [[None, None], with_override] {
            let options = LimiterOptions::default().engine(engine);
            let limiter = spent(ALGORITHMS[1], options.clone(), [[None, None], in_file]);
            limiter.snapshot(&path).unwrap();
            let limits = limits(ALGORITHMS[1], with_override);
            let restored = Limiter::restore(limits, options.max_keys(10), &path).unwrap().0;
            let own = restored.limit("Own").unwrap();
            // The overflow bucket has what "another" has spent as well.
            let most = if in_file == with_override { 30 } else { 10 };
            assert!(!own.spend("vip", most + 1).unwrap().allowed(), "{engine:?} {in_file:?}");
            assert!(own.spend("vip", most).unwrap().allowed(), "{engine:?} {in_file:?}");
        }
    }
}
