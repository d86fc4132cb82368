//! A bucket follows its limit's name.

use super::support::{ENGINES, hourly, limiter, limits};
use tollgate::options::Engine;
use tollgate::reload::CarryOver;

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
fn the_same_limits_once_more_change_nothing() {
    let (limiter, _hand) = limiter(limits(&[("A", hourly(10))]), Engine::LockFree);
    let again = limiter.reload_with(limits(&[("A", hourly(10))]), CarryOver::Afresh).unwrap();
    assert!(!again.changed && again.generation == 0);
}
