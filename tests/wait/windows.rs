//! Windows of which charges are rolled back: the units left in them, and when they begin.

use tollgate::algorithm::{Algorithm, Charge};

use super::random::Random;
use super::*;

const WINDOW_MS: u64 = 50;

/// A charge that is in the bucket.
#[derive(Clone, Copy)]
struct Held {
    charge: Charge,
    cost: u64,
    /// The sum by which rollbacks had lowered the word when it was charged.
    lowered: u64,
}

/// Random spends and rollbacks of one window at a time. Its count is the sum of the costs in it, and it begins no earlier than
/// the first of these charges: else it would end too early for them.
#[test]
fn rolled_back_windows_hold_what_is_charged() {
    const NS: u64 = 1_000_000;
    let limits = [
        Limit::fixed_window(1_000, ms(WINDOW_MS)).unwrap(),
        Limit::token_bucket(1_000, ms(WINDOW_MS), 900).unwrap(),
    ];
    let (mut moved, mut lost, mut random) = (0, 0, Random(15));
    for limit in limits {
        let (mut word, mut now_ms, mut lowered) = (0, 1, 0);
        // A window ends where a spend finds it over: its charges are in it no more.
        let mut held: Vec<Held> = Vec::new();
        let mut start_ms = 0;
        let remaining =
            |word, now_ms| limit.spend(word, now_ms * NS, 0).decision.remaining().unwrap();
        for _ in 0..200_000 {
            now_ms += random.below(4) * random.below(4);
            let now_ns = now_ms * NS;
            let is_over = now_ms >= start_ms + WINDOW_MS;
            if is_over {
                held.clear();
            }
            if held.is_empty() || random.below(2) == 0 {
                let cost = 1 + random.below(9);
                let Some(after) = limit.spend(word, now_ns, cost).word else { continue };
                let mut charge = Charge::new(word, after, now_ns);
                charge.last_grant_ns = 0;
                held.push(Held { charge, cost, lowered });
                word = after;
            } else {
                let which = random.below(held.len() as u64) as usize;
                let Held { mut charge, cost, lowered: mark } = held[which];
                charge.lowered = lowered - mark;
                let is_undo = word == charge.after && charge.lowered == 0;
                match limit.roll_back(word, charge, &|| now_ns) {
                    Some(new) => {
                        word = new;
                        lowered += if is_undo { 0 } else { cost };
                        held.remove(which);
                    }
                    // It might be in a window before this one.
                    None => {
                        let opened_ms = charge.after >> 24;
                        assert!(start_ms >= opened_ms + WINDOW_MS, "{charge:?} at {now_ms}");
                        lost += 1;
                    }
                }
            }
            let charged: u64 = held.iter().map(|one| one.cost).sum();
            assert_eq!(remaining(word, now_ms), 1_000 - charged, "{limit:?} at {now_ms}");
            if charged == 0 {
                (word, start_ms) = (0, now_ms);
                continue;
            }
            // It is full again one window after it began.
            let end_ms =
                now_ms + limit.spend(word, now_ns, 0).decision.reset_in().as_millis() as u64;
            moved += u64::from(!is_over && end_ms - WINDOW_MS > start_ms);
            start_ms = end_ms - WINDOW_MS;
            let first_ns = held.iter().map(|one| one.charge.now_ns).min().unwrap();
            assert!(first_ns <= start_ms * NS && start_ms <= now_ms, "{limit:?} at {now_ms}");
        }
    }
    assert!(
        moved > 1_000 && lost < moved / 2,
        "{moved} windows began later by a rollback, {lost} charges stayed"
    );
}
