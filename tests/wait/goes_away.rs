//! Callers that go away while they wait.

use std::task::Poll;

use super::virtual_time::{Task, World};
use super::*;

const SECONDS: u64 = 60;

/// A call every 50 ms asks for one unit of ten a second, and goes away after a second. Returns the number of callers that are
/// served in each second.
fn served_in_each_second(at_most: Duration, engine: Engine) -> Vec<u64> {
    let (clock, hand) = Clock::manual();
    let limit = Limit::new(1, 10, Duration::from_secs(1)).unwrap();
    let handle = limiter_on(&limit, clock, engine).limit("Own").unwrap();
    let world = World::new(hand);
    let mut waiting = Vec::new();
    let mut served = vec![0; SECONDS as usize];
    for now_ms in 0..SECONDS * 1000 {
        if now_ms % 50 == 0 {
            let call = handle.until_allowed("id", 1, at_most, world.clone());
            waiting.push((now_ms + 1000, Task::new(call)));
        }
        waiting.retain_mut(|(leaves_ms, task)| match task.poll() {
            Poll::Ready(result) => {
                served[now_ms as usize / 1000] += u64::from(result.is_ok());
                false
            }
            // Dropped: the caller goes away.
            Poll::Pending => now_ms < *leaves_ms,
        });
        world.advance_and_wake(ms(1));
    }
    served
}

#[test]
fn overload_of_impatient_callers_serves_the_limit() {
    for engine in ENGINES {
        for at_most in [Duration::MAX, Duration::from_secs(1)] {
            let served = served_in_each_second(at_most, engine);
            println!("{engine:?} at_most {at_most:?}: {served:?}");
            assert!(served[4..].iter().all(|&number| (9..=11).contains(&number)));
        }
    }
}

/// A caller that waits for its place.
struct Caller {
    cost: u64,
    granted_ms: u64,
    leaves_ms: u64,
    place: Reservation,
}

/// Checks that at most `burst` units and one per 10 ms are used in any interval. A place that is cancelled before its time adds
/// nothing: it is the last one, or another caller takes it.
fn keeps_the_bound(burst: u64, used: &[(u64, u64)]) {
    for (first, &(from_ms, _)) in used.iter().enumerate() {
        let mut sum = 0;
        for &(to_ms, cost) in &used[first..] {
            sum += cost;
            let most = burst + (to_ms - from_ms) / 10;
            assert!(sum <= most, "{sum} of {most} from {from_ms} to {to_ms}");
        }
    }
}

/// Callers come at random times, for more than the limit, and each second one goes away at a random moment before its time.
/// Returns the used share of the rate.
fn half_of_them_leave(burst: u64, seed: u64, engine: Engine) -> f64 {
    const RUN_MS: u64 = 20_000;
    let (clock, hand) = Clock::manual();
    let limit = Limit::new(burst, 1, ms(10)).unwrap();
    let handle = limiter_on(&limit, clock, engine).limit("Own").unwrap();
    let (mut random, mut used) = (Random(seed), Vec::new());
    let mut callers: Vec<Caller> = Vec::new();
    for now_ms in 0..RUN_MS {
        hand.set(ms(now_ms));
        let mut waiting: Vec<Caller> = Vec::new();
        for caller in callers.drain(..) {
            if caller.place.wait().is_zero() {
                used.push((caller.granted_ms, caller.cost));
            } else if caller.leaves_ms <= now_ms {
                caller.place.cancel();
            } else {
                waiting.push(caller);
            }
        }
        callers = waiting;
        // Those who stay ask for 1.2 units each 10 ms.
        let cost = random.within(1, burst.min(3));
        if random.chance(24, 100 * (1 + burst.min(3)) / 2) {
            let place = handle.reserve("id", cost, Duration::MAX).unwrap();
            let stays = random.chance(1, 2);
            let leaves_ms = if stays { u64::MAX } else { now_ms + random.below(400) };
            let granted_ms = now_ms + place.wait().as_millis() as u64;
            callers.push(Caller { cost, granted_ms, leaves_ms, place });
        }
    }
    used.sort_unstable();
    keeps_the_bound(burst, &used);
    let sum: u64 = used.iter().map(|it| it.1).sum();
    sum as f64 / (RUN_MS / 10) as f64
}

#[test]
fn those_who_stay_get_what_others_leave() {
    for engine in ENGINES {
        for burst in [1, 5] {
            for seed in 0..super::support::full_size(1, 5) {
                let share = half_of_them_leave(burst, seed, engine);
                println!("{engine:?} burst {burst} seed {seed}: {share:.3} of the rate");
                assert!(share >= 0.95, "{engine:?} {burst} {seed}: {share}");
            }
        }
    }
}
