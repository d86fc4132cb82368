//! Reloads that change floors, and reloads that lack one for which the program has asked.

use tollgate::limits::{Floor, LimitOptions};
use tollgate::reload::{CarryOver, ReloadOptions};
use tollgate::{IdFormat, Limit, Limiter, Limits};

use super::support::{ENGINES, hourly, limiter, limits};

fn with(floors: &[(&str, Floor)], limit: Limit) -> Limits {
    let floors = floors.iter();
    let options =
        floors.fold(LimitOptions::default(), |all, (name, floor)| all.floor(name, *floor));
    Limits::builder().limit_with("A", IdFormat::String, limit, options).unwrap().build()
}

fn fault(limiter: &Limiter, limits: Limits) -> String {
    let error = limiter.reload(limits).unwrap_err();
    assert!(error.is_invalid_limit(), "{error:?}");
    error.to_string()
}

#[test]
fn a_changed_floor_applies_at_once() {
    let percent = |percent| with(&[("batch", Floor::Percent(percent))], hourly(10));
    for engine in ENGINES {
        let (limiter, _hand) = limiter(percent(50), engine);
        let a = limiter.limit("A").unwrap();
        let batch = a.priority("batch").unwrap();
        let members = [batch.member("id")];
        assert!(batch.spend("id", 5).unwrap().allowed());
        assert!(!batch.spend("id", 1).unwrap().allowed());
        assert!(!limiter.batch(&members).spend().unwrap().allowed());
        assert!(limiter.reload(percent(30)).unwrap().changed, "{engine:?}");
        assert_eq!(a.check("id", 0).unwrap().remaining(), Some(5), "the bucket is as it was");
        assert!(batch.spend("id", 1).unwrap().allowed());
        assert!(limiter.batch(&members).spend().unwrap().allowed());
        assert!(!batch.spend("id", 1).unwrap().allowed());
        assert!(!limiter.reload(percent(30)).unwrap().changed);
        // Of another burst, and by another kind of floor.
        let units = [("new", Floor::Units(1)), ("batch", Floor::Units(15))];
        let units = || with(&units, hourly(20));
        assert!(limiter.reload_with(units(), CarryOver::Afresh).unwrap().changed);
        assert!(batch.spend("id", 6).unwrap_err().is_cost_above_burst());
        assert!(batch.spend("id", 5).unwrap().allowed());
        assert!(!batch.spend("id", 1).unwrap().allowed());
        assert!(a.priority("new").unwrap().spend("id", 14).unwrap().allowed());
        let zero = [("batch", Floor::Percent(0)), ("new", Floor::Units(0))];
        assert!(limiter.reload(with(&zero, hourly(10))).unwrap().changed);
        assert_eq!(batch.check("id", 0).unwrap().remaining(), Some(0));
    }
}

#[test]
fn a_floor_that_is_asked_for_stays() {
    let (batch, other) = (("batch", Floor::Percent(50)), ("other", Floor::Units(3)));
    let both = || with(&[batch, other], hourly(10));
    for engine in ENGINES {
        let (limiter, _hand) = limiter(both(), engine);
        let a = limiter.limit("A").unwrap();
        // No call asks for `other`.
        let calls = a.priority("batch").unwrap();
        assert!(limiter.reload(with(&[batch], hourly(10))).unwrap().changed);
        for new in [with(&[], hourly(10)), with(&[other], hourly(10)), limits(&[("A", hourly(3))])]
        {
            assert_eq!(
                fault(&limiter, new),
                "the new A lacks the floors batch, for which the program has asked: keep each, or set it to 0%"
            );
        }
        assert!(calls.spend("id", 6).unwrap_err().is_cost_above_burst(), "the old floor stays");
        assert!(limiter.reload(both()).unwrap().changed);
        assert!(a.scaled("2".parse().unwrap()).priority("other").is_ok());
        let neither = fault(&limiter, with(&[], hourly(10)));
        assert!(neither.contains("lacks the floors batch, other, for"), "{neither}");
        // Without a handle no call has a priority.
        let handle = a.clone();
        drop(a);
        let _ = fault(&limiter, with(&[], hourly(10)));
        drop(handle);
        assert!(limiter.reload(with(&[], hourly(10))).unwrap().changed, "{engine:?}");
        let unknown = limiter.limit("A").unwrap();
        assert!(unknown.priority("batch").unwrap_err().is_invalid_name());
    }
}

#[test]
fn a_limit_that_is_off_may_lack_floors() {
    let batch = [("batch", Floor::Units(4))];
    let off =
        || Limits::builder().limit("A", IdFormat::String, None).unwrap().disable("A").unwrap();
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(&batch, hourly(10)), engine);
        let a = limiter.limit("A").unwrap();
        let calls = a.priority("batch").unwrap();
        assert!(limiter.reload(off().build()).unwrap().changed);
        assert_eq!(calls.spend("id", 99).unwrap().remaining(), None);
        assert_eq!(limiter.batch(&[calls.member("id")]).spend().unwrap().remaining(), None);
        assert!(a.priority("late").is_ok(), "the file may have left it out with the rest");
        let error = fault(&limiter, with(&batch, hourly(10)));
        assert!(error.contains("the new A lacks the floors late, for"), "{error}");
        let on = with(&[("late", Floor::Units(0)), batch[0]], hourly(10));
        assert!(limiter.reload(on).unwrap().changed);
        assert!(calls.spend("id", 6).unwrap().allowed());
        assert!(!calls.spend("id", 1).unwrap().allowed());

        // Removed on purpose, and back again.
        let removing = ReloadOptions::default().remove_missing(true);
        assert!(limiter.reload_with(limits(&[]), removing).unwrap().changed);
        assert_eq!(calls.spend("id", 99).unwrap().remaining(), None);
        let error = fault(&limiter, with(&[], hourly(10)));
        assert!(error.contains("lacks the floors batch, late, for"), "{error}");
    }
}

#[test]
fn what_was_charged_returns_after_a_change() {
    let percent = |percent| with(&[("batch", Floor::Percent(percent))], hourly(10));
    for engine in ENGINES {
        let (limiter, _hand) = limiter(percent(50), engine);
        let a = limiter.limit("A").unwrap();
        let receipt = a.spend_estimate("id", 7).unwrap().1.unwrap();
        let members = [a.priority("batch").unwrap().member("other").cost(5)];
        let of_batch = limiter.batch(&members).spend_estimate().unwrap().1.unwrap();
        assert!(limiter.reload(percent(30)).unwrap().changed);
        assert_eq!(receipt.settle(1).remaining(), Some(9), "{engine:?}");
        assert_eq!(of_batch.settle(1).remaining(), Some(9), "{engine:?}");
    }
}
