//! Charges from before so many reloads that the generation's bits in a bucket's tag are the same again.

use std::time::Duration;

use tollgate::reload::CarryOver;
use tollgate::{Clock, Limiter, LimiterOptions};

use super::support::{ENGINES, hourly, limits};

/// The generations that the bits of a tag can tell apart.
const GENERATIONS: u64 = 2_048;

/// Makes the bucket full by a reload. After `GENERATIONS` reloads it spends 5 of 10, so that the word and its tag are those
/// of a charge of 5 from before.
fn reload_until_wrapped(limiter: &Limiter) {
    for reload in 1..=GENERATIONS {
        let carry_over = if reload == 1 { CarryOver::Afresh } else { CarryOver::Share };
        let limits = limits(&[("Own", hourly(10 + reload % 2))]);
        limiter.reload_with(limits, carry_over).unwrap();
    }
    assert!(limiter.limit("Own").unwrap().spend("id", 5).unwrap().allowed());
}

#[test]
fn receipts_from_before_2048_reloads_return_nothing() {
    for engine in ENGINES {
        for is_settled in [true, false] {
            let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
            let limiter = Limiter::with_options(limits(&[("Own", hourly(10))]), options);
            let own = limiter.limit("Own").unwrap();
            let place = own.reserve("id", 5, Duration::MAX).unwrap();
            if is_settled {
                let receipt = place.into_receipt();
                reload_until_wrapped(&limiter);
                assert_eq!(receipt.settle(0).remaining(), Some(5), "{engine:?}");
            } else {
                reload_until_wrapped(&limiter);
                place.cancel();
            }
            assert_eq!(own.check("id", 0).unwrap().remaining(), Some(5), "{engine:?}");
        }
    }
}
