//! Reservations, estimates and partial grants of shared limits, beside those of a local limit.

use std::time::Duration;

use tollgate::Decision;
use tollgate::KeyedLimit;
use tollgate::clock::ManualClock;
use tollgate::limits::{LimitMode, OnError};
use tollgate::reserve::{Receipt, Reservation, ReserveError};
use tollgate::shared::{SharedLimit, SharedReceipt, SharedReservation, block_on};

use super::*;
use crate::full_size::full_size;
use crate::random::Random;

/// More in a build that is optimized.
/// The histories of each limit.
fn histories() -> u64 {
    full_size(100, 10_000)
}

/// One limit of each algorithm, small, so that calls of a history meet.
fn small() -> [Limit; 4] {
    let ms = Duration::from_millis;
    [
        Limit::new(5, 1, ms(100)).unwrap(),
        Limit::fixed_window(5, ms(500)).unwrap(),
        Limit::token_bucket(3, 6, ms(400)).unwrap(),
        Limit::leaky_bucket(5, 2, ms(100)).unwrap(),
    ]
}

/// A local limit, and a shared one of one node or two, with the same numbers and the same time.
struct Pair {
    limiters: [Limiter; 2],
    local: KeyedLimit,
    nodes: [SharedLimit; 2],
    hands: [ManualClock; 2],
}

/// One node keeps denials. Two have a clock that is not the store's, so that each of their calls asks the store.
fn pair(limit: &Limit, mode: LimitMode, is_one: bool) -> Pair {
    let ((clock, hand), (other_clock, other_hand)) = (Clock::manual(), Clock::manual());
    let store = Store::in_memory(if is_one { clock.clone() } else { other_clock });
    let options = LimitOptions::default().max_debt(2).mode(mode);
    let limits = || {
        let local =
            Limits::builder().limit_with("Local", IdFormat::String, limit.clone(), options.clone());
        let exact = options.clone().shared(Shared::Exact);
        local.unwrap().limit_with("All", IdFormat::String, limit.clone(), exact).unwrap().build()
    };
    let one = node(limits(), &store, &clock);
    let other = node(limits(), &store, &clock);
    let nodes = [&one, if is_one { &one } else { &other }].map(|node| node.shared("All").unwrap());
    let hands = [hand, other_hand];
    Pair { local: one.limit("Local").unwrap(), nodes, hands, limiters: [one, other] }
}

fn figures(decision: Decision) -> (bool, Option<u64>, Duration, Duration) {
    (decision.allowed(), decision.remaining(), decision.retry_in(), decision.reset_in())
}

/// The results that a caller holds, of the local limit and of the shared one.
enum Held {
    Receipts(Box<(Receipt, SharedReceipt)>),
    Places(Box<(Reservation, SharedReservation)>),
}

fn error_text(error: &ReserveError) -> String {
    error.to_string().replace("All", "Local")
}

/// One call, for both limits: both must answer alike.
fn step(
    pair: &Pair,
    random: &mut Random,
    held: &mut Vec<Held>,
    (is_shadow, has_factors): (bool, bool),
) -> String {
    let Pair { local, nodes, hands, limiters } = pair;
    let all = &nodes[random.below(2) as usize];
    let cost = random.below(6);
    match random.below(17) {
        15 | 16 if has_factors => {
            let factor = ["0.5", "0.7", "2", "3"][random.below(4) as usize];
            let cost = random.below(4);
            let parsed = factor.parse().unwrap();
            let (mine, theirs) = (local.scaled(parsed), all.scaled(parsed));
            let (name, mine, theirs) = match random.below(8) {
                0 => ("check", mine.check("a", cost), now(theirs.check("a", cost))),
                1 => ("refund", mine.refund("a", cost), now(theirs.refund("a", cost))),
                2 if cost == 0 => ("reset", mine.reset("a"), now(theirs.reset("a"))),
                3 if cost == 0 => ("drain", mine.drain("a", 1), now(theirs.drain("a", 1))),
                4 => {
                    let part = |granted: (u64, Decision)| (granted.0, figures(granted.1));
                    let mine = mine.spend_up_to("a", cost).map(part);
                    let theirs = now(theirs.spend_up_to("a", cost)).map(part);
                    assert_eq!(mine.ok(), theirs.ok());
                    return format!("up to {cost} by factor {factor}");
                }
                _ => ("spend", mine.spend("a", cost), now(theirs.spend("a", cost))),
            };
            match (mine, theirs) {
                (Ok(mine), Ok(theirs)) => assert_eq!(figures(mine), figures(theirs)),
                (Err(mine), Err(theirs)) => {
                    assert_eq!(mine.to_string(), theirs.to_string().replace("All", "Local"));
                }
                other => panic!("{other:?}"),
            }
            format!("{name} {cost} by factor {factor}")
        }
        12 => {
            let time = Duration::from_millis(random.below(150));
            assert_eq!(local.block("a", time).unwrap(), now(all.block("a", time)).unwrap());
            format!("block for {time:?}")
        }
        13 if random.below(2) == 0 => {
            assert_eq!(local.unblock("a").unwrap(), now(all.unblock("a")).unwrap());
            "unblock".into()
        }
        14 if random.below(4) == 0 => {
            let is_on = !limiters[0].is_enabled();
            limiters.iter().for_each(|limiter| limiter.set_enabled(is_on));
            format!("enabled: {is_on}")
        }
        14 if !has_factors => {
            // A sweep drops a window that owes units by a factor's quota only.
            format!("{:?}", limiters[0].sweep(1000))
        }
        0 | 1 => {
            let by = [0, 1, 20, 50, 99, 100, 101, 300][random.below(8) as usize];
            hands.iter().for_each(|hand| hand.advance(Duration::from_millis(by)));
            format!("{by} ms later")
        }
        2 => {
            let (mine, theirs) = (local.spend("a", cost.min(3)), now(all.spend("a", cost.min(3))));
            assert_eq!(figures(mine.unwrap()), figures(theirs.unwrap()));
            format!("spend {cost}")
        }
        3 | 4 => {
            // A limit in shadow mode takes an estimate above its burst.
            let cost = if is_shadow && cost == 5 { 9 } else { cost.min(3) };
            let (mine, receipt) = local.spend_estimate("a", cost).unwrap();
            let (theirs, other) = now(all.spend_estimate("a", cost)).unwrap();
            assert_eq!(figures(mine), figures(theirs));
            held.extend(receipt.zip(other).map(|(a, b)| Held::Receipts(Box::new((a, b)))));
            format!("estimate {cost}: {mine:?}")
        }
        5 => {
            let at_most = Duration::from_millis(100 * random.below(20));
            let cost = cost.min(3);
            match (local.reserve("a", cost, at_most), now(all.reserve("a", cost, at_most))) {
                (Ok(mine), Ok(theirs)) => {
                    assert_eq!(mine.wait(), theirs.wait(), "{mine:?}");
                    held.push(Held::Places(Box::new((mine, theirs))));
                }
                (Err(mine), Err(theirs)) => assert_eq!(error_text(&mine), error_text(&theirs)),
                other => panic!("{other:?}"),
            }
            format!("reserve {cost} within {at_most:?}")
        }
        6..=8 if !held.is_empty() => {
            let at = random.below(held.len() as u64) as usize;
            let (mine, theirs) = match held.swap_remove(at) {
                Held::Receipts(both) => *both,
                Held::Places(both) => (both.0.into_receipt(), both.1.into_receipt()),
            };
            let figures = (figures(mine.settle(cost)), figures(now(theirs.settle(cost)).unwrap()));
            assert_eq!(figures.0, figures.1, "settle to {cost}");
            format!("settle {at} to {cost}")
        }
        9 => {
            let (mine, theirs) =
                (local.refund("a", cost.min(3)), now(all.refund("a", cost.min(3))));
            assert_eq!(figures(mine.unwrap()), figures(theirs.unwrap()));
            format!("refund {cost}")
        }
        10 => {
            let mine = local.spend_up_to("a", cost).unwrap();
            let theirs = now(all.spend_up_to("a", cost)).unwrap();
            assert_eq!((mine.0, figures(mine.1)), (theirs.0, figures(theirs.1)));
            format!("up to {cost}: {mine:?}")
        }
        11 if random.below(8) == 0 => {
            let (mine, theirs) = (local.drain("a", cost), now(all.drain("a", cost)));
            assert_eq!(figures(mine.unwrap()), figures(theirs.unwrap()));
            format!("drain but {cost}")
        }
        _ => {
            assert_eq!(
                figures(local.check("a", 1).unwrap()),
                figures(now(all.check("a", 1)).unwrap())
            );
            "check".into()
        }
    }
}

/// Prints the calls of a history that fails.
struct Calls(u64, Vec<String>);

impl Drop for Calls {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("history {}: {:#?}", self.0, self.1);
        }
    }
}

#[test]
fn shared_charges_settle_as_local_ones() {
    for (limit, seed) in
        small().iter().flat_map(|limit| (0..histories()).map(move |at| (limit, at)))
    {
        let (is_shadow, has_factors) = (seed % 3 == 0, seed % 2 == 0);
        let mode = if is_shadow { LimitMode::Shadow } else { LimitMode::Enforce };
        let pair = pair(limit, mode, seed % 5 < 2);
        let (mut random, mut held) = (Random(seed), Vec::new());
        let mut calls = Calls(seed, vec![limit.to_string(), format!("{mode:?}")]);
        for _ in 0..40 {
            calls.1.push(step(&pair, &mut random, &mut held, (is_shadow, has_factors)));
        }
    }
}

/// A grant: when its call came, its time and its units.
#[derive(Clone, Copy, Debug)]
struct Grant {
    called: usize,
    at_ns: u64,
    cost: u64,
}

/// Whether in no time more units were granted than a bucket of 5, with one each 100 ms, has, and than were returned since the
/// first of these calls.
fn assert_within_bound(grants: &[Grant], returns: &[(usize, u64)], calls: &[String]) {
    let mut grants: Vec<_> = grants.iter().filter(|grant| grant.cost > 0).collect();
    grants.sort_by_key(|grant| grant.at_ns);
    for (first, start) in grants.iter().enumerate() {
        let (mut units, mut called) = (0, start.called);
        for grant in &grants[first..] {
            (units, called) = (units + grant.cost, called.min(grant.called));
            let back: u64 = returns.iter().filter(|it| it.0 > called).map(|it| it.1).sum();
            let most = 5 + (grant.at_ns - start.at_ns) / 100_000_000 + back;
            assert!(units <= most, "{units} from {start:?} to {grant:?}: {grants:?} {calls:#?}");
        }
    }
}

#[test]
fn cancels_in_any_order_keep_the_bound() {
    let limit = &small()[0];
    let mut cancelled = 0;
    for seed in 0..4 * histories() {
        // The clock of the nodes is not the store's, so they keep no denials.
        let ((clock, hand), (of_store, hand_of_store)) = (Clock::manual(), Clock::manual());
        let store = Store::in_memory(of_store);
        let limits = || {
            Limits::builder()
                .limit_with("All", IdFormat::String, limit.clone(), exact())
                .unwrap()
                .build()
        };
        let nodes = [node(limits(), &store, &clock), node(limits(), &store, &clock)];
        let nodes = nodes.each_ref().map(|node| node.shared("All").unwrap());
        let (mut random, mut now_ns) = (Random(seed), 0);
        let (mut grants, mut returns) = (Vec::new(), Vec::new());
        let (mut held, mut calls) = (Vec::new(), Vec::new());
        for called in 0..30 {
            let (all, cost) = (&nodes[random.below(2) as usize], 1 + random.below(4));
            match random.below(8) {
                0 | 1 => {
                    let by_ns = random.below(150) * 1_000_000;
                    hand.advance(Duration::from_nanos(by_ns));
                    hand_of_store.advance(Duration::from_nanos(by_ns));
                    now_ns += by_ns;
                    calls.push(format!("{by_ns} ns later"));
                }
                2 => {
                    let is_allowed = now(all.spend("a", cost)).unwrap().allowed();
                    calls.push(format!("spend {cost}: {is_allowed}"));
                    let spent = Grant { called, at_ns: now_ns, cost };
                    grants.extend(is_allowed.then_some(spent));
                }
                3..=5 => {
                    if let Ok(place) = now(all.reserve("a", cost, Duration::from_secs(3))) {
                        let at_ns = now_ns + place.wait().as_nanos() as u64;
                        calls.push(format!("{} reserved {cost} for {at_ns}", grants.len()));
                        held.push((grants.len(), place));
                        grants.push(Grant { called, at_ns, cost });
                    }
                }
                _ if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let (granted, place) = held.swap_remove(at);
                    let grant: &mut Grant = &mut grants[granted];
                    if random.below(2) == 0 {
                        calls.push(format!("cancel {granted}"));
                        cancelled += 1;
                        let left = || now(all.check("a", 0)).unwrap().reset_in();
                        let (before, units) = (left(), grant.cost);
                        if grant.at_ns > now_ns {
                            grant.cost = 0;
                        }
                        place.cancel();
                        if left() < before {
                            returns.push((called, units));
                        }
                    } else {
                        let actual = random.below(grant.cost);
                        calls.push(format!("settle {granted} to {actual}"));
                        let _ = now(place.into_receipt().settle(actual)).unwrap();
                        returns.push((called, grant.cost - actual));
                    }
                }
                _ => {}
            }
        }
        assert_within_bound(&grants, &returns, &calls);
    }
    assert!(cancelled > histories());
}

/// A node of a shared limit of 5 units, one a minute, and the hand of its clock.
fn exact_node(options: LimitOptions) -> (SharedLimit, ManualClock) {
    let (clock, hand) = Clock::manual();
    let limits = Limits::builder().limit_with("All", IdFormat::String, minutely(5), options);
    let node = node(limits.unwrap().build(), &Store::in_memory(clock.clone()), &clock);
    (node.shared("All").unwrap(), hand)
}

#[test]
fn waiters_of_all_nodes_have_one_queue() {
    let (all, hand) = exact_node(exact());
    assert!(now(all.spend("a", 5)).unwrap().allowed());
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let places: Vec<_> = (1..=3)
        .map(|number| {
            let place = now(all.reserve("a", 1, Duration::MAX)).unwrap();
            assert_eq!(place.wait(), minutes(number));
            place
        })
        .collect();
    let error = now(all.reserve("a", 1, minutes(3))).unwrap_err();
    assert_eq!(error.needed(), Some(minutes(4)));
    assert!(now(all.reserve("a", 6, minutes(9))).unwrap_err().is_never());
    let [one, two, three]: [SharedReservation; 3] = places.try_into().unwrap();
    three.cancel();
    two.cancel();
    assert_eq!(now(all.reserve("a", 1, Duration::MAX)).unwrap().wait(), minutes(2));
    hand.advance(minutes(1));
    assert!(one.wait().is_zero());
    one.cancel(); // Its time has come: it counts as used.
    assert!(!now(all.spend("a", 1)).unwrap().allowed());
}

/// A settlement has lowered the bucket below the end of the last place: the place has no charge behind it all the same.
#[test]
fn places_go_back_after_a_settlement() {
    let (tokens, _hand) = exact_node(LimitOptions::default().shared(Shared::Exact));
    let (_, receipt) = block_on(tokens.spend_estimate("id", 2)).unwrap();
    let places = [(); 5].map(|()| block_on(tokens.reserve("id", 2, Duration::MAX)).unwrap());
    let _ = block_on(receipt.unwrap().settle(1)).unwrap();
    places.into_iter().rev().for_each(SharedReservation::cancel);
    let left = block_on(tokens.check("id", 0)).unwrap();
    assert_eq!(left.remaining(), Some(tokens.limit_for("id").unwrap().unwrap().burst() - 1));
}

#[test]
fn leased_limits_refuse_places_and_estimates() {
    let (all, _) = exact_node(LimitOptions::default().shared(Shared::Leased));
    let error = now(all.spend_estimate("a", 1)).unwrap_err();
    assert!(error.is_leased() && error.to_string().contains("shared: exact"), "{error}");
    let Err(ReserveError::Wrong(error)) = now(all.reserve("a", 1, Duration::ZERO)) else {
        panic!("a leased limit has no places")
    };
    assert!(error.is_leased() && !error.is_store_failure());
    assert_eq!(now(all.spend_up_to("a", 9)).unwrap().0, 5);
}

#[test]
fn blocks_refuse_places_but_keep_them() {
    let (all, hand) = exact_node(exact());
    let before = now(all.reserve("a", 5, Duration::ZERO)).unwrap();
    now(all.block("a", Duration::from_secs(90))).unwrap();
    let error = now(all.reserve("a", 1, Duration::MAX)).unwrap_err();
    assert!(error.is_blocked(), "{error}");
    assert!(now(all.spend_estimate("a", 1)).unwrap().0.blocked());
    assert_eq!(now(all.spend_up_to("a", 1)).unwrap().0, 0);
    assert_eq!(now(before.into_receipt().settle(2)).unwrap().remaining(), Some(3));
    hand.advance(Duration::from_secs(90));
    assert_eq!(now(all.spend_up_to("a", 9)).unwrap().0, 4);
}

#[test]
fn reloads_end_what_receipts_return() {
    let (clock, _hand) = Clock::manual();
    let limits = |burst| {
        let limits =
            Limits::builder().limit_with("All", IdFormat::String, minutely(burst), exact());
        limits.unwrap().build()
    };
    let limiter = node(limits(5), &Store::in_memory(clock.clone()), &clock);
    let all = limiter.shared("All").unwrap();
    let (_, receipt) = now(all.spend_estimate("a", 4)).unwrap();
    limiter.reload(limits(10)).unwrap();
    assert_eq!(now(receipt.unwrap().settle(0)).unwrap().remaining(), Some(6));
    let (_, receipt) = now(all.spend_estimate("a", 4)).unwrap();
    limiter.set_enabled(false);
    assert_eq!(now(receipt.unwrap().settle(0)).unwrap().remaining(), None);
    limiter.set_enabled(true);
    assert_eq!(now(all.check("a", 0)).unwrap().remaining(), Some(2));
}

#[test]
fn leases_of_other_nodes_hold_places_back() {
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let node_of = |shared| {
        let options = LimitOptions::default().shared(shared);
        let limits = Limits::builder().limit_with("All", IdFormat::String, minutely(20), options);
        let limiter = node(limits.unwrap().build(), &store, &clock);
        limiter.shared("All").unwrap()
    };
    let (exact, leased) = (node_of(Shared::Exact), node_of(Shared::Leased));
    let (_, receipt) = now(exact.spend_estimate("a", 2)).unwrap();
    for _ in 0..2 {
        hand.advance(Duration::from_millis(1));
        assert!(now(leased.spend("a", 1)).unwrap().allowed());
    }
    assert!(block_on(leased.spend("a", 1)).unwrap().allowed(), "from its lease");
    let left = now(exact.check("a", 0)).unwrap().remaining().unwrap();
    let after = now(receipt.unwrap().settle(0)).unwrap();
    assert_eq!(after.remaining(), Some(left + 2), "also while there are leases");
    assert!(now(exact.reserve("a", left + 2, Duration::ZERO)).is_ok());
    let error = now(exact.reserve("a", 1, Duration::MAX)).unwrap_err();
    assert!(error.needed() >= Some(Duration::from_secs(59)), "{error}");
    hand.advance(Duration::from_secs(3));
    assert!(now(exact.reserve("a", 1, Duration::MAX)).is_ok(), "the leases have ended");
}

#[test]
fn shadow_mode_reserves_at_once() {
    let (all, _) = exact_node(exact().mode(LimitMode::Shadow).on_error(OnError::Deny));
    for _ in 0..3 {
        assert!(now(all.reserve("a", 4, Duration::ZERO)).unwrap().wait().is_zero());
        assert_eq!(now(all.spend_up_to("a", 4)).unwrap().0, 4);
    }
}

/// A limit in shadow mode would have denied them.
#[test]
fn estimates_above_the_burst_owe_nothing() {
    for limit in small() {
        let Pair { local, nodes: [all, _], limiters: [limiter, _], .. } =
            pair(&limit, LimitMode::Shadow, true);
        let mine = local.spend_estimate("a", 9).unwrap().1.unwrap().settle(10);
        let theirs = now(all.spend_estimate("a", 9)).unwrap().1.unwrap();
        assert_eq!(figures(mine), figures(now(theirs.settle(10)).unwrap()), "{limit}");
        // As members of batches, which have nothing to settle of them.
        let members = [local.member("b").cost(9)];
        let mut mine = limiter.batch(&members).spend_estimate().unwrap().1.unwrap();
        let members = [all.member("b").cost(9)];
        let theirs = now(limiter.shared_batch(&members).spend_estimate());
        let mut theirs = theirs.unwrap().1.unwrap();
        drop((mine.settle_member(0, 3), now(theirs.settle_member(0, 3))));
        let theirs = figures(now(all.check("b", 0)).unwrap());
        assert_eq!(figures(local.check("b", 0).unwrap()), theirs, "{limit}");
    }
}

#[test]
fn batches_tell_each_members_decision() {
    let (clock, _hand) = Clock::manual();
    let limiter = node(limits(2, 4), &Store::in_memory(clock.clone()), &clock);
    let (own, all) = (limiter.shared("Own").unwrap(), limiter.shared("All").unwrap());
    let members = [own.member("a"), all.member("a").cost(2)];
    let left_after =
        [(true, [Some(1), Some(2)]), (true, [Some(0), Some(0)]), (false, [Some(0), None])];
    for (allowed, left) in left_after {
        let mut each = Vec::new();
        let decision = now(limiter.shared_batch(&members).spend_into(&mut each)).unwrap();
        assert_eq!(decision.allowed(), allowed);
        assert_eq!(each.iter().map(Decision::remaining).collect::<Vec<_>>(), left);
    }
}

#[test]
fn cancel_at_its_time_returns() {
    let (all, hand) = exact_node(LimitOptions::default().shared(Shared::Exact));
    let place = |cost| now(all.reserve("a", cost, Duration::MAX)).unwrap();
    let _burst = place(5);
    let [first, _last] = [place(1), place(1)];
    hand.advance(first.wait());
    let reset_in = || now(all.check("a", 0)).unwrap().reset_in();
    let before = reset_in();
    first.cancel();
    assert_eq!(before - reset_in(), Duration::from_secs(60));
}
