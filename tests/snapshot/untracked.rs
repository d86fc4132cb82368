//! Debts of ids without a bucket, which the table had no room for, over a snapshot.

use tollgate::options::AtCap;
use tollgate::reload::CarryOver;
use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::ENGINES;
use super::{options, slow};

/// A default of 10, and overrides of these bursts for "vip" and "other".
fn limits(bursts: [Option<u64>; 2]) -> Limits {
    let builder = Limits::builder().limit("Own", IdFormat::String, slow(10)).unwrap();
    let given = ["vip", "other"].into_iter().zip(bursts);
    let given = given.filter_map(|(id, burst)| Some((id, burst?)));
    given
        .fold(builder, |builder, (id, burst)| {
            // Another interval as well, so that units and times differ.
            let limit = Limit::new(burst, 1, super::seconds(60 * burst)).unwrap();
            builder.override_id("Own", id, limit).unwrap()
        })
        .build()
}

/// Returns what is left to each id.
fn left(limiter: &Limiter) -> Vec<u64> {
    let own = limiter.limit("Own").unwrap();
    let ids = ["inside", "vip", "other", "another"];
    ids.map(|id| own.check(id, 0).unwrap().remaining().unwrap()).to_vec()
}

/// Spends 7 of 10 as "vip" from the shared bucket; the limits change to each of `changes`.
fn spent(
    options: LimiterOptions,
    at_first: [Option<u64>; 2],
    changes: &[[Option<u64>; 2]],
) -> Limiter {
    let options = options.max_keys(1).at_cap(AtCap::Share);
    let limiter = Limiter::with_options(limits(at_first), options);
    let own = limiter.limit("Own").unwrap();
    assert!(own.spend("inside", 1).unwrap().allowed());
    // With an override it is denied.
    let _ = own.spend("vip", 7).unwrap();
    for bursts in changes {
        limiter.reload_with(limits(*bursts), CarryOver::Share).unwrap();
    }
    limiter
}

/// With the limits of the file, and with others, a restore keeps the debts that a reload keeps.
#[test]
fn restore_keeps_untracked_debts_like_reload() {
    let some = [[None, None], [Some(100), None], [None, Some(50)], [Some(8), Some(50)]];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        for (at_first, in_file, then) in triples(&some) {
            let changes = if at_first == in_file { vec![] } else { vec![in_file] };
            let (options, _hand) = options(engine);
            let limiter = spent(options.clone(), at_first, &changes);
            limiter.snapshot(&path).unwrap();
            let options = options.max_keys(10);
            let restored = Limiter::restore(limits(then), options, &path).unwrap().0;
            limiter.reload_with(limits(then), CarryOver::Share).unwrap();
            let (after_reload, after_restore) = (left(&limiter), left(&restored));
            let case = format!("{engine:?} {at_first:?} {in_file:?} {then:?}");
            // An override that ends with the restore leaves its debt to the shared bucket as well.
            for (reload, restore) in after_reload.iter().zip(&after_restore) {
                assert!(restore <= reload, "{case}: {after_reload:?} {after_restore:?}");
            }
            if then == in_file {
                assert_eq!(after_reload, after_restore, "{case}");
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
    for engine in ENGINES {
        for changes in [vec![], vec![[Some(100), None]]] {
            let (options, _hand) = options(engine);
            spent(options.clone(), [None, None], &changes).snapshot(&path).unwrap();
            let limits = limits([Some(100), None]);
            let restored = Limiter::restore(limits, options.max_keys(10), &path).unwrap().0;
            let own = restored.limit("Own").unwrap();
            assert!(!own.spend("vip", 31).unwrap().allowed(), "{engine:?} {changes:?}");
            assert!(own.spend("vip", 30).unwrap().allowed(), "{engine:?} {changes:?}");
        }
    }
}
