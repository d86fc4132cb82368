//! Callers that go away while they wait.

use std::collections::BTreeMap;

use super::*;

/// A call every 50 ms asks for one unit of ten a second, with at most `at_most` to wait, and leaves after a second. Returns
/// the number of callers served in each second.
fn served_in_each_second(at_most: Duration) -> Vec<u64> {
    const STEP: u64 = 50;
    let (handle, hand) = by_hand(&Limit::new(1, 10, Duration::from_secs(1)).unwrap());
    let mut waiting: BTreeMap<u64, Reservation> = BTreeMap::new();
    let mut served = vec![0; 60];
    for now_ms in (0..60_000).step_by(STEP as usize) {
        hand.set(ms(now_ms));
        let due: Vec<u64> =
            waiting.iter().filter(|(_, place)| place.wait().is_zero()).map(|(&at, _)| at).collect();
        for began_ms in due {
            let _ = waiting.remove(&began_ms);
            served[now_ms as usize / 1000] += 1;
        }
        if let Some(left) = now_ms.checked_sub(1000).and_then(|began_ms| waiting.remove(&began_ms))
        {
            left.cancel();
        }
        if let Ok(place) = handle.reserve("id", 1, at_most) {
            waiting.insert(now_ms, place);
        }
    }
    served
}

#[test]
fn overload_of_impatient_callers_serves_the_limit() {
    for at_most in [Duration::MAX, Duration::from_secs(1)] {
        let served = served_in_each_second(at_most);
        assert!(served[4..].iter().all(|&number| number >= 9), "{at_most:?}: {served:?}");
        assert!(served[1..].iter().all(|&number| number <= 11), "{at_most:?}: {served:?}");
    }
}

/// As many callers as the limit allows, and as many again that leave at a random time.
#[test]
fn those_who_stay_get_what_others_leave() {
    const CALLERS: u64 = 2000;
    let (handle, hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    let mut random = Random(38);
    let mut waiting: Vec<(u64, Reservation)> = Vec::new();
    let (mut served, mut given_up): (Vec<u64>, u64) = (Vec::new(), 0);
    for now_ms in 0..CALLERS * 5 {
        hand.set(ms(now_ms));
        let mut still = Vec::new();
        for (leaves_ms, place) in waiting.drain(..) {
            if place.wait().is_zero() {
                served.push(now_ms);
            } else if now_ms >= leaves_ms {
                place.cancel();
                given_up += 1;
            } else {
                still.push((leaves_ms, place));
            }
        }
        waiting = still;
        if now_ms % 5 == 0 {
            let leaves_ms = match now_ms / 5 % 2 {
                0 => u64::MAX,
                _ => now_ms + random.below(200),
            };
            waiting.push((leaves_ms, place(&handle, 1)));
        }
    }
    let most = CALLERS * 5 / 10;
    assert!(served.len() as u64 * 100 >= most * 95, "{} of {most}, {given_up} left", served.len());
    for pair in served.windows(2) {
        // The first, whose place was free, is seen a step late.
        assert!(pair[1] - pair[0] >= 9, "{pair:?}: one in 10 ms");
    }
}
