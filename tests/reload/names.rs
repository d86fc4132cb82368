//! A bucket follows its limit's name.

use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::{IdFormat, Limits};

use super::support::{ENGINES, hourly, limiter, limits};

#[test]
fn bucket_follows_limit_name_in_any_order() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(limits(&[("A", hourly(10)), ("B", hourly(20))]), engine);
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        assert!(a.spend("x", 4).unwrap().allowed());
        assert!(b.spend("x", 6).unwrap().allowed());
        let new = limits(&[("C", hourly(30)), ("B", hourly(20)), ("A", hourly(10))]);
        assert_eq!(limiter.reload(new).unwrap().generation, 1);
        let left = |name: &str| limiter.limit(name).unwrap().check("x", 0).unwrap().remaining();
        assert_eq!([left("A"), left("B"), left("C")], [Some(6), Some(14), Some(30)]);
        assert_eq!(a.check("x", 0).unwrap().remaining(), Some(6), "handles stay good");
        assert_eq!(b.check("x", 0).unwrap().remaining(), Some(14));
    }
}

#[test]
fn removed_limit_admits_all_and_drops_cells() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(limits(&[("A", hourly(10)), ("B", hourly(20))]), engine);
        let a = limiter.limit("A").unwrap();
        for i in 0..1000 {
            assert!(a.spend(format!("id {i}").as_str(), 10).unwrap().allowed());
        }
        assert!(limiter.limit("B").unwrap().spend("kept", 1).unwrap().allowed());
        limiter.reload(limits(&[("B", hourly(20))])).unwrap();
        assert_eq!(limiter.stats().cells, 1, "{engine:?}: that of B");
        assert_eq!(a.spend("id 1", 10).unwrap().remaining(), None, "no limit");
        limiter.reload(limits(&[("A", hourly(10)), ("B", hourly(20))])).unwrap();
        assert_eq!(a.check("id 1", 0).unwrap().remaining(), Some(10), "it starts full");
        let b = limiter.limit("B").unwrap();
        assert_eq!(b.check("kept", 0).unwrap().remaining(), Some(19));
    }
}

#[test]
fn the_same_limits_once_more_change_nothing() {
    let (limiter, _hand) = limiter(limits(&[("A", hourly(10))]), Engine::LockFree);
    let again = limiter.reload_with(limits(&[("A", hourly(10))]), CarryOver::Afresh).unwrap();
    assert!(!again.changed && again.generation == 0);
}

#[test]
fn other_id_format_is_refused_without_effect() {
    let (limiter, _hand) = limiter(limits(&[("A", hourly(10))]), Engine::LockFree);
    let other = Limits::builder().limit("A", IdFormat::IpAddress, hourly(5)).unwrap().build();
    let error = limiter.reload(other).unwrap_err();
    assert!(error.is_invalid_limit(), "{error}");
    assert!(
        error.to_string().contains("string") && error.to_string().contains("ipAddress"),
        "{error}"
    );
    let a = limiter.limit("A").unwrap();
    assert_eq!(a.check("x", 0).unwrap().remaining(), Some(10));
}

/// As documented at `Limiter::limit`.
#[test]
fn a_removed_limits_name_stays_known() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(limits(&[("A", hourly(10)), ("B", hourly(20))]), engine);
        limiter.reload(limits(&[("B", hourly(20))])).unwrap();
        let a = limiter.limit("A").unwrap();
        assert_eq!(a.check("x", 1).unwrap().remaining(), None, "no limit");
        assert_eq!(limiter.limits().names().collect::<Vec<_>>(), ["B"]);
        assert!(limiter.limit("C").unwrap_err().is_invalid_name());
        limiter.reload(limits(&[("A", hourly(5))])).unwrap();
        assert_eq!(a.check("x", 1).unwrap().remaining(), Some(4), "{engine:?}");
    }
}
