//! Batches that wait, beside reloads, blocks, full tables, snapshots, sweeps, and threads that stand still.

use std::sync::mpsc::channel;
use std::task::Poll;

use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::options::AtCap;
use tollgate::reserve::ReserveError;

use super::support::rules::{RuleCall, hooked, stop_point};
use super::support::{hourly, seconds, sweep_all};
use super::virtual_time::{Task, World};
use super::*;

fn rate(burst: u64, every_s: u64) -> Limit {
    Limit::new(burst, 1, seconds(every_s)).unwrap()
}

/// The time until each bucket of the id is full.
fn left<const N: usize>(handles: &[KeyedLimit; N]) -> [Duration; N] {
    handles.each_ref().map(|handle| handle.check("id", 0).unwrap().reset_in())
}

/// A limiter of A and B, a unit a second and one in ten, whose units of B are spent.
fn a_and_b(engine: Engine) -> (Limiter, ManualClock, [KeyedLimit; 2]) {
    let limits = support::limits(&[("A", rate(1, 1)), ("B", rate(1, 10))]);
    let (limiter, hand) = support::limiter(limits, engine);
    let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
    assert!(handles[1].spend("id", 1).unwrap().allowed());
    (limiter, hand, handles)
}

/// A batch names a bucket twice while no limit applies to it. A reload sets one during the wait, and ends the wait.
#[test]
fn bucket_named_twice_ends_the_wait() {
    for engine in ENGINES {
        let (done, waits) = channel();
        std::thread::spawn(move || {
            let limits = |limit| {
                let builder = Limits::builder();
                let builder = builder.limit("A", IdFormat::String, rate(1, 1)).unwrap();
                let once = Limit::fixed_window(1, seconds(5)).unwrap();
                let builder = builder.limit("B", IdFormat::String, once).unwrap();
                builder.override_id("A", "id", limit).unwrap().build()
            };
            let (limiter, hand) = support::limiter(limits(None), engine);
            let world = World::new(hand);
            let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
            assert!(b.spend("id", 1).unwrap().allowed());
            let members = [a.member("id"), a.member("id"), b.member("id")];
            let batch = limiter.batch(&members);
            let mut task = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
            assert!(task.poll().is_pending(), "until the next window");
            limiter.reload(limits(Some(rate(1, 2)))).unwrap();
            world.advance_and_wake(seconds(5) + ms(1));
            let Poll::Ready(ended) = task.poll() else { panic!("it waits") };
            assert_eq!(a.check("id", 0).unwrap().remaining(), Some(1), "nothing is charged");
            done.send(ended.map(|_| ()).unwrap_err()).unwrap();
        });
        let error = waits.recv_timeout(seconds(60)).expect("the call returns");
        let is_twice = matches!(&error, ReserveError::Wrong(error) if error.is_invalid_batch());
        assert!(is_twice, "{engine:?}: {error}");
    }
}

/// A member without room in the table refuses the batch, and the other member's place goes back.
#[test]
fn full_table_refuses_and_charges_nothing() {
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).max_keys(1).at_cap(AtCap::Deny);
        let (clock, hand) = Clock::manual();
        let limits = support::limits(&[("A", rate(1, 1)), ("B", rate(4, 1))]);
        let limiter = Limiter::with_options(limits, options.clock(clock)).unwrap();
        let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        assert!(handles[0].spend("id", 1).unwrap().allowed());
        let world = World::new(hand.clone());
        for reversed in [false, true] {
            let mut members = [handles[0].member("id"), handles[1].member("new")];
            if reversed {
                members.reverse();
            }
            let batch = limiter.batch(&members);
            let refused = batch.reserve(Duration::MAX).unwrap_err();
            assert!(matches!(refused, ReserveError::NoRoom), "{engine:?}: {refused}");
            let mut task = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
            let Poll::Ready(Err(ReserveError::NoRoom)) = task.poll() else { panic!("{engine:?}") };
            assert_eq!(left(&handles), [seconds(1), seconds(0)], "{engine:?}");
        }
        // Once the first bucket is full, a sweep makes room. The place then keeps its bucket over the next sweep.
        hand.advance(seconds(1));
        sweep_all(&limiter);
        let four = [handles[1].member("new").cost(4)];
        let batch = limiter.batch(&four);
        let _now = batch.reserve(Duration::MAX).unwrap();
        let place = batch.reserve(Duration::MAX).unwrap();
        sweep_all(&limiter);
        hand.advance(seconds(4));
        sweep_all(&limiter);
        assert!(place.wait().is_zero() && !handles[1].spend("new", 1).unwrap().allowed());
        place.cancel();
    }
}

/// No batch keeps the bucket that untracked ids share idle: while it waits for another member, new ids use the bucket.
#[test]
fn shared_bucket_at_the_cap_stays_in_use() {
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).max_keys(1).at_cap(AtCap::Share);
        let (clock, hand) = Clock::manual();
        let world = World::new(hand);
        let limits = support::limits(&[("A", rate(1, 10)), ("B", rate(1, 1))]);
        let limiter = Limiter::with_options(limits, options.clock(clock)).unwrap();
        let [a, b] = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        assert!(a.spend("id", 1).unwrap().allowed());
        let is_free = |id: &str| b.check(id, 1).unwrap().allowed();
        let members = [a.member("id"), b.member("new"), b.member("other")];
        for members in [&members[..2], &members] {
            let batch = limiter.batch(members);
            let refused = batch.reserve(Duration::MAX).unwrap_err();
            assert!(matches!(refused, ReserveError::NoRoom), "{engine:?}: {refused}");
            assert!(is_free("x"), "{engine:?}: nothing is charged");
        }
        // Both of B together need more than the bucket ever holds.
        let batch = limiter.batch(&members);
        let mut never = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        let mut polled = never.poll();
        for _ in 0..12 {
            if polled.is_pending() {
                world.advance_and_wake(seconds(1));
                polled = never.poll();
            }
        }
        let Poll::Ready(Err(ReserveError::NoRoom)) = polled else { panic!("{engine:?}") };
        assert!(a.spend("id", 1).unwrap().allowed(), "{engine:?}: its place is back");
        let batch = limiter.batch(&members[..2]);
        let mut leaves = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        assert!(leaves.poll().is_pending());
        drop(leaves);
        let mut task = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        assert!(task.poll().is_pending());
        for second in 0..9 {
            assert!(b.spend("x", 1).unwrap().allowed(), "{engine:?}: in second {second}");
            world.advance_and_wake(seconds(1));
            assert!(task.poll().is_pending());
        }
        world.advance_and_wake(seconds(1));
        let Poll::Ready(Ok(receipt)) = task.poll() else { panic!("{engine:?}: after 10 s") };
        drop(receipt);
        assert!(!is_free("x"), "{engine:?}: it has the unit of B");
    }
}

/// The places of a batch go back, the last one first: a shared bucket lists none as vacant.
#[test]
fn cancelled_batch_of_shared_bucket_returns_all() {
    for engine in ENGINES {
        let (done, waits) = channel();
        std::thread::spawn(move || {
            let options = LimiterOptions::default().engine(engine).max_keys(1);
            let limits = support::limits(&[("A", rate(3, 1))]);
            let options = options.at_cap(AtCap::Share).clock(Clock::manual().0);
            let a = Limiter::with_options(limits, options).unwrap().limit("A").unwrap();
            assert!(a.spend("id", 1).unwrap().allowed());
            assert!(a.spend("other", 3).unwrap().allowed());
            let members = ["new", "old", "third"].map(|id| a.member(id));
            let places = a.limiter().batch(&members).reserve(Duration::MAX).unwrap();
            let wait = places.wait();
            places.cancel();
            done.send([wait, a.check("new", 1).unwrap().retry_in()]).unwrap();
        });
        let waits = waits.recv_timeout(seconds(20)).expect("the calls return");
        assert_eq!(waits, [seconds(3), seconds(1)], "{engine:?}");
    }
}

/// Two ids of one limit have no room in the table, and so share a bucket. Their batch has a time at which both have units, or none.
#[test]
fn batch_of_ids_in_one_shared_bucket() {
    for engine in ENGINES {
        for burst in [1, 2] {
            let (done, waits) = channel();
            std::thread::spawn(move || {
                let options = LimiterOptions::default().engine(engine).max_keys(1);
                let (clock, hand) = Clock::manual();
                let limits = support::limits(&[("A", rate(burst, 1))]);
                let options = options.at_cap(AtCap::Share).clock(clock);
                let limiter = Limiter::with_options(limits, options).unwrap();
                let a = limiter.limit("A").unwrap();
                assert!(a.spend("id", burst).unwrap().allowed());
                let members = [a.member("new"), a.member("other")];
                let batch = limiter.batch(&members);
                let places = [(); 2].map(|()| batch.reserve(Duration::MAX));
                done.send(places.map(|place| place.map(|place| place.wait()))).unwrap();
                drop(hand);
            });
            let waits = waits.recv_timeout(seconds(20)).expect("the calls return");
            match (burst, &waits) {
                (1, [Err(ReserveError::NoRoom), Err(ReserveError::NoRoom)]) => {}
                (2, [Ok(first), Ok(second)]) => {
                    assert_eq!(*second - *first, seconds(2), "{engine:?}");
                }
                _ => panic!("{engine:?}: {waits:?}"),
            }
        }
    }
}

/// A snapshot has the units of places as charged. A reservation from before the restore does not return them to the new limiter.
#[cfg(feature = "snapshot")]
#[test]
fn restored_buckets_keep_the_places_charged() {
    for engine in ENGINES {
        let (limiter, hand, handles) = a_and_b(engine);
        let members = handles.each_ref().map(|handle| handle.member("id"));
        let [first, second] =
            [(); 2].map(|()| limiter.batch(&members).reserve(Duration::MAX).unwrap());
        assert_eq!(second.wait(), seconds(20));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("buckets");
        limiter.snapshot(&file).unwrap();
        let limits = support::limits(&[("A", rate(1, 1)), ("B", rate(1, 10))]);
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let (restored, _) = Limiter::restore(limits, options, &file).unwrap();
        let copies = ["A", "B"].map(|name| restored.limit(name).unwrap());
        first.cancel();
        let of_copies = copies.each_ref().map(|handle| handle.member("id"));
        let wait = restored.batch(&of_copies).reserve(Duration::MAX).unwrap().wait();
        assert!(wait > seconds(25) && wait <= seconds(30), "{engine:?}: behind both: {wait:?}");
        // In the limiter before, the first place is vacant.
        let again = limiter.batch(&members).reserve(Duration::MAX).unwrap();
        assert_eq!(again.wait(), seconds(10), "{engine:?}");
        hand.advance(seconds(10));
        assert!(again.wait().is_zero());
    }
}

/// A thread stops at a member without places, and holds the places of the others. Other calls go on behind it, and it has its
/// charges once it goes on.
#[test]
fn stalled_thread_holds_its_places_alone() {
    const STOP: u64 = 7;
    for engine in ENGINES {
        let (point, stopped) = stop_point();
        let rule = hooked(hourly(100), move |call| {
            if let RuleCall::Spend { cost: STOP, .. } = call {
                point.stop();
            }
        });
        let limits = support::limits(&[("A", rate(2, 1)), ("B", rate(2, 10)), ("Own", rule)]);
        let (limiter, hand) = support::limiter(limits, engine);
        let handles = ["A", "B"].map(|name| limiter.limit(name).unwrap());
        let own = limiter.limit("Own").unwrap();
        let stalled = std::thread::spawn({
            let (limiter, own, [a, b]) = (limiter.clone(), own.clone(), handles.clone());
            move || {
                let members = [a.member("id"), b.member("id").cost(2), own.member("id").cost(STOP)];
                let batch = limiter.batch(&members);
                let never = |_| std::future::pending::<()>();
                let Poll::Ready(receipt) = Task::new(batch.until_allowed(seconds(0), never)).poll()
                else {
                    panic!("it waits")
                };
                receipt.unwrap().settle(0)
            }
        });
        stopped.wait();
        assert_eq!(left(&handles), [seconds(1), seconds(20)], "{engine:?}: it holds its places");
        let members = [handles[1].member("id"), handles[0].member("id"), own.member("id")];
        let batch = limiter.batch(&members[..2]);
        let [second, third] = [(); 2].map(|()| batch.reserve(Duration::MAX).unwrap());
        assert_eq!([second.wait(), third.wait()], [seconds(10), seconds(20)], "{engine:?}");
        second.cancel();
        assert_eq!(batch.reserve(Duration::MAX).unwrap().wait(), seconds(10), "{engine:?}");
        hand.advance(seconds(10));
        sweep_all(&limiter);
        assert!(own.spend("id", 1).unwrap().allowed(), "{engine:?}: another call goes on");
        drop(stopped);
        let _ = stalled.join().unwrap();
        third.cancel();
        hand.advance(seconds(60));
        assert_eq!(left(&handles), [seconds(0); 2], "{engine:?}: nothing stays");
    }
}

/// A reload changes the limit of one member while the batch waits: it keeps its time, and only the other member's units go back.
#[test]
fn reload_of_one_member_leaves_the_other() {
    for engine in ENGINES {
        for lifts in [false, true] {
            let (limiter, hand, handles) = a_and_b(engine);
            let members = handles.each_ref().map(|handle| handle.member("id"));
            let batch = limiter.batch(&members);
            let [first, second] = [(); 2].map(|()| batch.reserve(Duration::MAX).unwrap());
            let slower = if lifts { None } else { Some(rate(1, 20)) };
            let builder = Limits::builder().limit("A", IdFormat::String, rate(1, 1)).unwrap();
            let builder = builder.limit("B", IdFormat::String, rate(1, 10)).unwrap();
            limiter.reload(builder.override_id("B", "id", slower).unwrap().build()).unwrap();
            assert_eq!([first.wait(), second.wait()], [seconds(10), seconds(20)], "{engine:?}");
            let of_b = handles[1].check("id", 0).unwrap();
            second.cancel();
            assert_eq!(handles[0].check("id", 0).unwrap().reset_in(), seconds(11), "{engine:?}");
            assert_eq!(handles[1].check("id", 0).unwrap(), of_b, "{engine:?}: B returns nothing");
            first.cancel();
            assert_eq!(handles[0].check("id", 0).unwrap().reset_in(), seconds(0), "{engine:?}");
            // A batch after the reload waits for the limits of now.
            let wait = batch.reserve(Duration::MAX).unwrap().wait();
            assert_eq!(wait, of_b.retry_in().max(of_b.reset_in()), "{engine:?} {lifts}");
            hand.advance(wait);
        }
    }
}

/// A reload changes a member's algorithm while the batch sleeps. The places keep their time; the next batch charges the member
/// at the grant.
#[test]
fn reload_to_another_algorithm_during_the_wait() {
    for engine in ENGINES {
        let (limiter, hand, handles) = a_and_b(engine);
        let world = World::new(hand);
        let members = handles.each_ref().map(|handle| handle.member("id"));
        let batch = limiter.batch(&members);
        let mut before = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        assert!(before.poll().is_pending());
        let window = Limit::fixed_window(1, seconds(100)).unwrap();
        limiter.reload(support::limits(&[("A", window), ("B", rate(1, 10))])).unwrap();
        let mut after = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        assert!(after.poll().is_pending());
        assert!(batch.reserve(Duration::MAX).unwrap_err().is_without_places(), "{engine:?}");
        world.advance_and_wake(seconds(10));
        assert!(matches!(before.poll(), Poll::Ready(Ok(_))), "{engine:?}");
        world.advance_and_wake(seconds(10));
        assert!(after.poll().is_pending(), "{engine:?}: the window has the charge of the place");
        assert_eq!(
            handles[1].check("id", 0).unwrap().remaining(),
            Some(1),
            "{engine:?}: it went back"
        );
        // The reload has carried over the debt of A's places, which later windows pay.
        let is_allowed = (0..20).any(|_| {
            world.advance_and_wake(seconds(100));
            matches!(after.poll(), Poll::Ready(Ok(_)))
        });
        assert!(is_allowed, "{engine:?}");
        let remaining = handles.each_ref().map(|it| it.check("id", 0).unwrap().remaining());
        assert_eq!(remaining, [Some(0); 2], "{engine:?}: charged");
    }
}

/// A block during the wait: a place keeps its time, as it does for one limit. A member without a place is denied by it, and the
/// places go back.
#[test]
fn block_during_the_wait() {
    for engine in ENGINES {
        let (limiter, hand, handles) = a_and_b(engine);
        let members = handles.each_ref().map(|handle| handle.member("id"));
        let batch = limiter.batch(&members);
        let place = batch.reserve(Duration::MAX).unwrap();
        handles[0].block("id", seconds(100)).unwrap();
        assert!(batch.reserve(Duration::MAX).unwrap_err().is_blocked(), "{engine:?}");
        assert_eq!(place.wait(), seconds(10), "{engine:?}");
        hand.advance(seconds(5));
        place.cancel();
        handles[0].unblock("id").unwrap();
        assert_eq!(left(&handles), [seconds(0), seconds(5)], "{engine:?}: both went back");

        let named = [("A", rate(1, 1)), ("Window", Limit::fixed_window(5, seconds(60)).unwrap())];
        let (limiter, hand) = support::limiter(support::limits(&named), engine);
        let world = World::new(hand);
        let [a, window] = ["A", "Window"].map(|name| limiter.limit(name).unwrap());
        assert!(a.spend("id", 1).unwrap().allowed());
        let members = [window.member("id"), a.member("id")];
        let batch = limiter.batch(&members);
        let mut task = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        assert!(task.poll().is_pending());
        window.block("id", seconds(9)).unwrap();
        world.advance_and_wake(seconds(1));
        let Poll::Ready(Err(ReserveError::Blocked { left })) = task.poll() else {
            panic!("{engine:?}")
        };
        assert_eq!(left, seconds(8), "{engine:?}");
        assert_eq!(a.check("id", 0).unwrap().remaining(), Some(1), "{engine:?}: it went back");
    }
}

/// Of a wait that takes places again and again, each member counts once, and only if a limit applies to it.
#[test]
fn a_wait_counts_each_member_once() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let world = World::new(hand);
        let options = LimiterOptions::default().clock(clock).engine(engine).counting(true);
        let string = IdFormat::String;
        let at_once = Limit::concurrency(1).unwrap().retry_after(seconds(1)).unwrap();
        let (shadow, mode) = (LimitOptions::default(), LimitOptions::default());
        let limits = Limits::builder()
            .limit_with("Beside", string, rate(100, 1), shadow.shadow(rate(1, 3600)))
            .unwrap()
            .limit_with("Mode", string, rate(1, 3600), mode.mode(LimitMode::Shadow))
            .unwrap()
            .limit("None", string, None)
            .unwrap()
            .limit("AtOnce", string, at_once)
            .unwrap();
        let limiter = Limiter::with_options(limits.build(), options).unwrap();
        let [beside, mode, none] = ["Beside", "Mode", "None"].map(|it| limiter.limit(it).unwrap());
        let at_once = limiter.concurrency("AtOnce").unwrap();
        for handle in [&beside, &mode] {
            assert!(handle.spend("id", 1).unwrap().allowed());
        }
        let held = at_once.acquire("id", 1).unwrap().1;
        let counts = |name: &str| {
            let counters = limiter.counters();
            let of = counters.limits.iter().find(|it| &*it.name == name).unwrap();
            [of.allowed, of.cost, of.denied, of.shadow_denied]
        };
        let all = || ["Beside", "Mode", "None"].map(counts);
        let members =
            [beside.member("id"), mode.member("id"), none.member("id"), at_once.member("id")];
        let batch = limiter.batch(&members);
        let mut task = Task::new(batch.until_allowed(Duration::MAX, world.clone()));
        assert_eq!(all(), [[1, 1, 0, 0], [1, 1, 0, 0], [0; 4]], "{engine:?}");
        for _ in 0..10 {
            assert!(task.poll().is_pending());
            world.advance_and_wake(seconds(1));
        }
        drop(held);
        let Poll::Ready(Ok(_)) = task.poll() else { panic!("{engine:?}: a permit is free") };
        // Without the cost that the limit in shadow mode would deny.
        let once = [[2, 2, 0, 1], [2, 1, 0, 1], [0; 4]];
        assert_eq!(all(), once, "{engine:?}");
        limiter.set_enabled(false);
        limiter.batch(&members[..1]).reserve(Duration::MAX).unwrap().cancel();
        assert_eq!(all(), once, "{engine:?}: the limiter is off");
    }
}

#[test]
fn batch_without_room_counts_as_denied() {
    for engine in ENGINES {
        let (clock, _hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(1);
        let options = options.at_cap(AtCap::Deny).counting(true);
        let limits = support::limits(&[("A", rate(1, 3600))]);
        let limiter = Limiter::with_options(limits, options).unwrap();
        let a = limiter.limit("A").unwrap();
        let ids: Vec<String> = (0..1000).map(|id| id.to_string()).collect();
        let new = ids.iter().find(|id| a.spend(&***id, 1).unwrap().out_of_room()).unwrap();
        let denied = || limiter.counters().limits[0].denied;
        let before = denied();
        let members = [a.member(&**new)];
        let refused = limiter.batch(&members).reserve(Duration::MAX).unwrap_err();
        assert!(matches!(refused, ReserveError::NoRoom), "{engine:?}: {refused}");
        assert_eq!(denied() - before, 1, "{engine:?}");
    }
}
