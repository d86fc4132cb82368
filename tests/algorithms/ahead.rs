//! Words beyond what a bucket holds: reservations in the future, and debt.

use super::laws::{self, ByHand, Step, steps};
use super::*;
use tollgate::algorithm::{Algorithm, Charge, Grant};

/// Cuts a call's time to its tick: the first ns of its ms, or the time itself.
fn cut(ns: u64, tick_ns: u64) -> u64 {
    (ns - 1) / tick_ns * tick_ns + 1
}

/// Reserves and spends as a history says, and calls `then` at each of its steps.
fn with_places(
    rule: &Limit,
    history: &[(Step, u64)],
    mut then: impl FnMut(&ByHand<'_, Limit>, u64),
) -> Vec<(u64, u64)> {
    let mut bucket = ByHand::new(rule, 1);
    let mut granted = Vec::new();
    for &(step, part) in history {
        let cost = bucket.cost(part).max(1);
        then(&bucket, cost);
        match step {
            Step::Forward(_) => {
                bucket.step(step, part);
            }
            Step::Spend if bucket.spend(cost).allowed() => granted.push((bucket.now_ns, cost)),
            Step::Check | Step::Refund | Step::Reset => {
                // Not so far ahead that it leaves the range of the word's time.
                if let Some(grant) = rule.reserve(bucket.word, bucket.now_ns, cost)
                    && grant.at_ns < 1 << 58
                {
                    bucket.word = grant.word;
                    granted.push((grant.at_ns, cost));
                }
            }
            Step::Spend | Step::Back(_) => {}
        }
    }
    granted
}

/// Checks that a reservation's time is the earliest at which a spend of the same cost would be allowed.
fn is_exact(bucket: &ByHand<'_, Limit>, cost: u64, tick_ns: u64) {
    let (rule, word, now_ns) = (bucket.rule, bucket.word, bucket.now_ns);
    let said = rule.spend(word, now_ns, cost);
    let Some(Grant { word: placed, at_ns }) = rule.reserve(word, now_ns, cost) else { return };
    assert!(placed != 0 && placed >> 63 == 0, "{bucket:?} {cost}");
    if said.decision.allowed() {
        assert_eq!((Some(placed), at_ns), (said.word, now_ns), "{bucket:?} {cost}");
        return;
    }
    let retry_ns = said.decision.retry_in().as_nanos() as u64;
    assert_eq!(at_ns, cut(now_ns, tick_ns) + retry_ns, "{bucket:?} {cost}");
    let allowed = |ns| rule.spend(word, ns, cost).decision.allowed();
    assert!(allowed(at_ns) && !allowed(at_ns - 1), "{bucket:?} {cost} at {at_ns}");
    // A call behind it waits until the reservation's time, and finds nothing that was not there before.
    let behind = rule.spend(placed, now_ns, cost).decision;
    assert!(!behind.allowed(), "{bucket:?} {cost}");
    if rule.algorithm() != "token_bucket" {
        // This counts the window's quota.
        assert_eq!(behind.remaining(), Some(0), "{bucket:?} {cost}");
    }
    let (there, with) = (rule.spend(word, at_ns, cost), rule.spend(placed, at_ns, 0));
    assert_eq!(there.decision.remaining(), with.decision.remaining(), "{bucket:?} {cost}");
    // A denial by debt or by a reservation ends exactly when it says.
    let wait_ns = behind.retry_in().as_nanos() as u64;
    let later = |ns| rule.spend(placed, cut(now_ns, tick_ns) + ns, cost).decision.allowed();
    assert!(later(wait_ns) && !later(wait_ns - 1), "{bucket:?} {cost} behind");
    let full_ns = behind.reset_in().as_nanos() as u64;
    let full = |ns| rule.is_full(placed, cut(now_ns, tick_ns) + ns);
    assert!(full(full_ns) && !full(full_ns - 1), "{bucket:?} {cost} full");
}

/// Checks that a fresh bucket would have allowed plain spends at the granted times.
fn replayed(rule: &Limit, granted: &mut [(u64, u64)]) {
    granted.sort_by_key(|&(at_ns, _)| at_ns);
    let mut bucket = ByHand::new(rule, 1);
    for &(at_ns, cost) in granted.iter() {
        bucket.now_ns = at_ns;
        assert!(bucket.spend(cost).allowed(), "{bucket:?}: {cost} of {granted:?}");
    }
}

fn keeps_all(rule: &Limit, tick_ns: u64, history: &[(Step, u64)]) {
    let mut granted = with_places(rule, history, |bucket, cost| {
        is_exact(bucket, cost, tick_ns);
        goes_back_in_order(bucket, cost);
        laws::of_any_word(bucket, cost, Some(tick_ns), history);
    });
    replayed(rule, &mut granted);
}

/// Checks that two reservations, cancelled last first, leave the bucket as it was.
fn goes_back_in_order(bucket: &ByHand<'_, Limit>, cost: u64) {
    let (rule, before, now_ns) = (bucket.rule, bucket.word, bucket.now_ns);
    let Some(first) = rule.reserve(before, now_ns, cost) else { return };
    let Some(second) = rule.reserve(first.word, now_ns, cost) else { return };
    let [one, two] = [(before, first.word), (first.word, second.word)]
        .map(|(before, after)| Charge::new(before, after, now_ns));
    let now = || now_ns;
    assert_eq!(rule.roll_back(second.word, two, &now), Some(first.word), "{bucket:?} {cost}");
    let left = rule.roll_back(first.word, one, &now).expect("it was the last");
    for cost in [1, rule.max_cost()] {
        let said = |word| rule.spend(word, now_ns, cost).decision;
        assert_eq!(said(left), said(before), "{bucket:?} {cost}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn counting_rules_reserve_in_order(
        (limit, history) in any_limit().prop_flat_map(|(limit, unit_ns)| (Just(limit), steps(unit_ns))),
    ) {
        keeps_all(&limit, MS, &history);
    }

    #[test]
    fn gcra_reservations_are_in_order(
        burst in 1..20u64, interval_ns in 1..5 * MS, history in steps(2 * MS),
    ) {
        let limit = Limit::new(burst, 1, Duration::from_nanos(interval_ns)).unwrap();
        keeps_all(&limit, 1, &history);
    }

    #[test]
    fn no_word_makes_reservation_or_debt_panic(
        (limit, _) in any_limit(), gcra in any::<bool>(), word in 0..1u64 << 63, now_ns in any::<u64>(),
        cost in any::<u64>(), more in any::<u64>(),
    ) {
        let limit = if gcra { Limit::new(limit.burst(), 1, ms(1)).unwrap() } else { limit };
        let written = [
            limit.reserve(word, now_ns, cost).map(|grant| grant.word),
            limit.owe(word, now_ns, cost, more),
            limit.roll_back(word, Charge::new(cost >> 1, more >> 1, now_ns), &|| now_ns),
        ];
        for word in written.into_iter().flatten() {
            prop_assert!(word != 0 && word >> 63 == 0, "{:?} {:#x}", limit, word);
        }
    }

    #[test]
    fn debt_is_at_most_its_limit_beyond_empty(
        (limit, _) in any_limit(), spent in any::<u64>(), more in 0..40u64, max_debt in 0..20u64, wait in 0..30 * MS,
    ) {
        let mut bucket = ByHand::new(&limit, 1);
        let _ = bucket.spend(bucket.cost(spent));
        bucket.now_ns += wait;
        let there = |word| {
            // Search for the largest cost that a spend could have at once.
            let (mut low, mut high) = (0, limit.max_cost());
            while low < high {
                let cost = low + (high - low).div_ceil(2);
                let allowed = limit.spend(word, bucket.now_ns, cost).decision.allowed();
                (low, high) = if allowed { (cost, high) } else { (low, cost - 1) };
            }
            low
        };
        let before = there(bucket.word);
        let owed = limit.owe(bucket.word, bucket.now_ns, more, max_debt);
        let after = owed.unwrap_or(bucket.word);
        prop_assert!(there(after) >= before.saturating_sub(more));
        if limit.algorithm() == "token_bucket" {
            // These are more tokens than a call may ask for.
            return Ok(());
        }
        prop_assert_eq!(there(after), before.saturating_sub(more));
        // The rest of the debt is asked of the same rule with that much less room.
        let beyond = more.saturating_sub(before).min(max_debt);
        let again = limit.owe(after, bucket.now_ns, 1, beyond);
        prop_assert!(beyond < more.saturating_sub(before) || more <= before || again.is_none(), "{:?}", limit);
    }
}

/// Go's rule returns a reservation's cost less what is behind it. If two reservations below a third are
/// cancelled one after the other, that is more than the third leaves: three units and one at one instant.
#[test]
fn cancelled_reservations_leave_later_ones_alone() {
    let limit = Limit::new(3, 1, Duration::from_nanos(10)).unwrap();
    let spent = limit.spend(0, 1, 3).word.unwrap();
    let place = |word, cost| limit.reserve(word, 1, cost).unwrap();
    let first = place(spent, 3);
    let second = place(first.word, 3);
    let third = place(second.word, 1);
    let two = Charge::new(first.word, second.word, 1);
    let after_two = limit.roll_back(third.word, two, &|| 1).unwrap();
    let mut one = Charge::new(spent, first.word, 1);
    one.lowered = third.word - after_two;
    let after_one = limit.roll_back(after_two, one, &|| 1).unwrap_or(after_two);
    let mut bucket = ByHand::new(&limit, third.at_ns);
    bucket.word = after_one;
    let at_once = (1..=3).rev().find(|&cost| bucket.spend(cost).allowed()).unwrap_or(0);
    assert_eq!(at_once, 2, "beside the third's one, of a burst of 3");
}

#[test]
fn no_reservation_after_the_clocks_end() {
    let end = (1 << 62) - 1;
    let gcra = Limit::new(2, 1, Duration::from_secs(1)).unwrap();
    let last = gcra.spend(0, end, 2).word.unwrap();
    assert_eq!(gcra.reserve(last, end, 1), None);
    let word = gcra.spend(0, end - 1_000_000_000, 2).word.unwrap();
    let at_end = gcra.reserve(word, end - 1_000_000_000, 1).unwrap();
    assert_eq!(at_end.at_ns, end);
    assert_eq!(at_end.word >> 63, 0);
    for limit in [fixed(2, 1000), tokens(2, 1000, 1), leaky(2, 1000, 1)] {
        let word = limit.spend(0, end, limit.max_cost()).word.unwrap();
        assert_eq!(limit.reserve(word, end, limit.max_cost()), None, "{limit:?}");
    }
    // 24 bits of count: reservations for at most 16,777,215 units.
    let mut word = 0;
    for _ in 0..15 {
        word = fixed(1 << 20, 1).reserve(word, 1, 1 << 20).unwrap().word;
    }
    assert_eq!(fixed(1 << 20, 1).reserve(word, 1, 1 << 20), None);
}

#[test]
fn a_cost_is_never_parted_between_two_windows() {
    let limit = fixed(10, 100);
    let mut bucket = ByHand::new(&limit, 1);
    assert!(bucket.spend(8).allowed());
    let grant = limit.reserve(bucket.word, 1, 5).unwrap();
    assert_eq!(grant.at_ns, 1 + 100 * MS);
    bucket.word = grant.word;
    bucket.now_ns = grant.at_ns;
    assert!(!bucket.spend(6).allowed() && bucket.spend(5).allowed(), "10 in the second window");
}
