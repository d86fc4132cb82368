//! What settlements, cancels and rollbacks may give back, and what not: one history each.

use super::*;

/// Three at once, one more every 50 ms.
fn three() -> Limit {
    Limit::new(3, 1, ms(50)).unwrap()
}

/// The last place is settled before its time, from 3 to 2. It keeps its time, so what came before it may not
/// give back what another would then have at that time.
#[test]
fn a_place_that_is_settled_early_keeps_its_time() {
    for engine in [Engine::LockFree, Engine::Exact] {
        let (clock, hand) = Clock::manual();
        let handle = limiter_on(&three(), clock, engine).limit("Own").unwrap();
        assert!(handle.spend("id", 2).unwrap().allowed());
        hand.set(ms(8));
        let first = place(&handle, 1).into_receipt();
        hand.set(ms(48));
        let second = place(&handle, 3);
        assert_eq!(second.wait(), ms(150 - 48));
        let _ = second.into_receipt().settle(2);
        hand.set(ms(56));
        let _ = first.settle(0);
        assert_eq!(place(&handle, 3).wait(), ms(250 - 56), "{engine:?}");
    }
}

/// Ten charges, a reset, ten more: the first ten have come back by the reset.
#[test]
fn a_reset_ends_what_earlier_receipts_give_back() {
    for engine in [Engine::LockFree, Engine::Exact] {
        for limit in limits_of_all(10) {
            for settles in [true, false] {
                let (clock, _hand) = Clock::manual();
                let handle = limiter_on(&limit, clock, engine).limit("Own").unwrap();
                let receipts = [(); 10].map(|()| handle.charge("id", 1).unwrap().1.unwrap());
                assert!(handle.reset("id").unwrap().allowed());
                assert!(handle.spend("id", if settles { 10 } else { 3 }).unwrap().allowed());
                let before = standing(&handle);
                for receipt in receipts {
                    let _ = receipt.settle(0);
                }
                assert_eq!(standing(&handle), before, "{engine:?} {limit:?}");
            }
        }
    }
}

/// The reset of a key that is not known to the fast way: by a batch.
#[test]
fn a_reset_in_a_batch_ends_what_earlier_receipts_give_back() {
    for limit in limits_of_all(10) {
        let (clock, _hand) = Clock::manual();
        let limiter = limiter_on(&limit, clock, Engine::LockFree);
        let handle = limiter.limit("Own").unwrap();
        let receipt = handle.charge("id", 10).unwrap().1.unwrap();
        assert!(limiter.batch(&[handle.member("id")]).reset().unwrap().allowed());
        assert!(handle.spend("id", 10).unwrap().allowed());
        let before = standing(&handle);
        let _ = receipt.settle(0);
        assert_eq!(standing(&handle), before, "{limit:?}");
    }
}

/// A place from before a reset: the bucket is full without it.
#[test]
fn a_reset_ends_what_earlier_places_give_back() {
    for limit in limits_of_all(4) {
        let (handle, _hand) = by_hand(&limit);
        assert!(handle.spend("id", 4).unwrap().allowed());
        let places = [(); 3].map(|()| place(&handle, 1));
        assert!(handle.reset("id").unwrap().allowed());
        assert!(handle.spend("id", 4).unwrap().allowed());
        let again = [(); 3].map(|()| place(&handle, 1));
        let before = standing(&handle);
        places.into_iter().rev().for_each(Reservation::cancel);
        assert_eq!(standing(&handle), before, "{limit:?}");
        drop(again);
    }
}

/// Of two units that were spent at first a refund gives back all but what has come back by itself; then
/// another has two. The word is again what the receipt's charge had left.
#[test]
fn a_refund_and_a_spend_that_leave_the_same_word_are_seen() {
    let (handle, hand) = by_hand(&three());
    assert!(handle.spend("id", 2).unwrap().allowed());
    hand.set(ms(8));
    let receipt = handle.charge("id", 1).unwrap().1.unwrap();
    hand.set(ms(50));
    assert!(handle.refund("id", 2).unwrap().allowed());
    assert!(handle.spend("id", 2).unwrap().allowed());
    let _ = receipt.settle(0);
    assert!(!handle.spend("id", 2).unwrap().allowed(), "two of three were spent at this instant");
}
