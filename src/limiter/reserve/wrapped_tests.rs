//! Tests a settlement that stands still during 2,048 reloads: a tag then has the same bits of the generation again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::Clock;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::{IdFormat, Limits, OverrideOptions};
use crate::util::lock::Mutex;

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn hourly(burst: u64) -> Limit {
    Limit::new(burst, burst, Duration::from_secs(3600)).unwrap()
}

/// An override has an end, so that a settlement reads the clock when it has taken its view of the limits.
fn limits(own: u64, other: u64, end: SystemTime) -> Limits {
    let ending = OverrideOptions::default().expires(end);
    let builder = Limits::builder().limit("Own", IdFormat::String, hourly(own)).unwrap();
    let builder = builder.override_with("Own", "other", hourly(1), ending).unwrap();
    builder.limit("Other", IdFormat::String, hourly(other)).unwrap().build()
}

#[test]
fn settlement_beside_2048_reloads_returns_nothing() {
    let end = SystemTime::now() + Duration::from_secs(36_000);
    for reloads in [0, 1, 2, 2_047, 2_048, 2_049] {
        let hook = Hook::default();
        let of_clock = hook.clone();
        let clock = Clock::custom(move || {
            let call = of_clock.lock().take();
            if let Some(call) = call {
                call();
            }
            Duration::from_secs(1000)
        });
        let options = LimiterOptions::default().clock(clock).max_keys(8);
        let limiter = Limiter::with_options(limits(100, 1, end), options).unwrap();
        let own = limiter.limit("Own").unwrap();
        assert!(own.spend("id", 20).unwrap().allowed());
        let (_, receipt) = own.spend_estimate("id", 10).unwrap();
        let inner = limiter.clone();
        *hook.lock() = Some(Box::new(move || {
            for reload in 0..reloads {
                let limits = limits(3600, 2 + reload, end);
                assert!(inner.reload_with(limits, CarryOver::Units).unwrap().changed);
            }
            if reloads > 0 {
                assert!(inner.limit("Own").unwrap().spend("id", 3000).unwrap().allowed());
            }
        }));
        let _ = receipt.unwrap().settle(0);
        assert!(hook.lock().is_none());
        let left = own.check("id", 0).unwrap().remaining();
        // Without a reload all of the estimate comes back.
        let wanted = if reloads == 0 { 80 } else { 3600 - 20 - 10 - 3000 };
        assert_eq!(left, Some(wanted), "{reloads} reloads");
    }
}
