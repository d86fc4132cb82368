//! Overrides that come, change and go.

use tollgate::limits::LimitsBuilder;
use tollgate::{IdFormat, KeyedLimit, Limits};

use super::support::{ENGINES, hourly, limiter};

fn with_overrides(overrides: &[(&str, u64)]) -> Limits {
    let builder = Limits::builder().limit("A", IdFormat::String, hourly(10)).unwrap();
    let add = |builder: LimitsBuilder, (id, burst): &(&str, u64)| {
        builder.override_id("A", *id, hourly(*burst)).unwrap()
    };
    overrides.iter().fold(builder, add).build()
}

fn left(handle: &KeyedLimit, id: &str) -> u64 {
    handle.check(id, 0).unwrap().remaining().unwrap()
}

#[test]
fn an_override_comes_changes_and_goes() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with_overrides(&[]), engine);
        let a = limiter.limit("A").unwrap();
        for id in ["x", "y"] {
            assert!(a.spend(id, 5).unwrap().allowed());
        }
        for (overrides, of_x, of_y) in [
            (&[("x", 100)][..], 50, 5),
            (&[("x", 1000), ("y", 20)], 500, 10),
            (&[("y", 20)], 5, 10),
            // Including the last one.
            (&[], 5, 5),
        ] {
            limiter.reload(with_overrides(overrides)).unwrap();
            assert_eq!(left(&a, "x"), of_x, "{engine:?} {overrides:?}");
            assert_eq!(left(&a, "y"), of_y, "{engine:?} {overrides:?}");
            assert_eq!(limiter.stats().cells, 2, "looked at, no more");
        }
    }
}

#[cfg(feature = "boulder")]
mod accounts {
    use tollgate::Limit;
    use tollgate::options::Engine;

    use super::*;

    const NAME: &str = "CertificatesPerDomainPerAccount";

    /// Overrides of whole accounts, and of ids.
    fn limits(accounts: &[(&str, u64)]) -> Limits {
        let format = IdFormat::RegIdDomainOrCidr;
        let builder = Limits::builder().limit(NAME, format, hourly(10)).unwrap();
        let add = |builder: LimitsBuilder, (id, burst): &(&str, u64)| {
            builder.override_id(NAME, *id, hourly(*burst)).unwrap()
        };
        accounts.iter().fold(builder, add).build()
    }

    fn left(handle: &KeyedLimit, id: &str) -> u64 {
        handle.check(id, 0).unwrap().remaining().unwrap()
    }

    #[test]
    fn an_accounts_override_comes_changes_and_goes() {
        for engine in ENGINES {
            let (limiter, _hand) = limiter(limits(&[]), engine);
            let handle = limiter.limit(NAME).unwrap();
            let ids = ["12:a.com", "12:b.com", "13:a.com"];
            for id in ids {
                assert!(handle.spend(id, 4).unwrap().allowed());
            }
            for (overrides, expected) in [
                // An id that the table cannot tell: it does not know the accounts of ids with the default.
                (&[("12", 100)][..], [60, 60, 6]),
                (&[("12", 1000)], [600, 600, 6]),
                (&[("12", 1000), ("12:a.com", 50)], [30, 600, 6]),
                (&[("12", 100), ("13", 20)], [60, 60, 12]),
                (&[("13:a.com", 30)], [6, 6, 18]),
                (&[], [6, 6, 6]),
            ] {
                limiter.reload(limits(overrides)).unwrap();
                for read_only in [true, false] {
                    if !read_only {
                        // Charged and refunded, so that the word is under the new limit.
                        for id in ids {
                            assert!(handle.spend(id, 1).unwrap().allowed());
                            assert!(handle.refund(id, 1).unwrap().allowed());
                        }
                    }
                    let left = ids.map(|id| left(&handle, id));
                    assert_eq!(left, expected, "{engine:?} {overrides:?} {read_only}");
                }
            }
            assert_eq!(limiter.stats().cells, 3);
        }
    }

    #[test]
    fn ids_of_one_account_migrate_one_by_one() {
        let (limiter, _hand) = limiter(limits(&[]), Engine::LockFree);
        let handle = limiter.limit(NAME).unwrap();
        let ids: Vec<String> = (0..2000).map(|i| format!("{}:d{i}.com", 10 + i % 4)).collect();
        for id in &ids {
            assert!(handle.spend(id.as_str(), 5).unwrap().allowed());
        }
        limiter.reload(limits(&[("11", 100), ("12", 20)])).unwrap();
        for id in &ids {
            let expected = match &id[..2] {
                "11" => 50 - 1,
                "12" => 10 - 1,
                _ => 5 - 1,
            };
            let said = handle.spend(id.as_str(), 1).unwrap();
            assert_eq!(said.remaining(), Some(expected), "{id}");
        }
        assert_eq!(limiter.stats().cells, ids.len());
        let numbers: Option<Limit> = handle.limit_for("11:d1.com").unwrap();
        assert_eq!(numbers.unwrap().burst(), 100);
    }
}
