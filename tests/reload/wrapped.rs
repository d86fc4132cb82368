//! Calls and charges from before 2,048 reloads: a bucket's tag then has the same bits of the generation again.

use std::sync::{Arc, Mutex};

use tollgate::options::{AtCap, Engine};
use tollgate::{Clock, Limit, Limiter, LimiterOptions};

use super::support::rules::hooked;
use super::support::{ENGINES, hourly, limits, seconds};

/// The generations that the bits of a tag can tell apart.
const GENERATIONS: u64 = 2_048;

/// A call finds the table full, and sweeps by the limits from before 2,048 reloads. By these the only bucket would be full.
#[test]
fn sweep_from_before_2048_reloads_drops_nothing() {
    for engine in ENGINES {
        type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;
        let hook: Hook = Arc::default();
        let of_rule = hook.clone();
        let rule = hooked(hourly(5), move |_| {
            let call = of_rule.lock().unwrap().take();
            if let Some(call) = call {
                call();
            }
        });
        let limits = move |window: u64, other| {
            let own = Limit::fixed_window(10, seconds(window)).unwrap();
            limits(&[("Own", own), ("Rule", rule.clone()), ("Other", hourly(other))])
        };
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(1);
        let limiter = Limiter::with_options(limits(10, 1), options.at_cap(AtCap::Deny)).unwrap();
        let [own, with_rule] = ["Own", "Rule"].map(|name| limiter.limit(name).unwrap());
        hand.set(seconds(95));
        assert!(own.spend("id", 10).unwrap().allowed());
        hand.set(seconds(100));
        let inner = limiter.clone();
        // Each reload beside a call of the lock-free table waits for that call.
        let reloads = if engine != Engine::LockFree { GENERATIONS } else { 1 };
        *hook.lock().unwrap() = Some(Box::new(move || {
            for reload in 1..=reloads {
                assert!(inner.reload(limits(3600, 1 + reload)).unwrap().changed);
            }
        }));
        let _ = with_rule.spend("new", 1).unwrap();
        assert!(hook.lock().unwrap().is_none());
        assert_eq!(own.check("id", 0).unwrap().remaining(), Some(0), "{engine:?}");
    }
}
