//! Denials that a node keeps.

use super::*;
use crate::decision::Decision;
use crate::random::Random;

/// Another node of the same store, which answers it at once. Its clock is not the store's, so it keeps no denial.
fn other(node: &Node) -> SharedLimit {
    let store = StoreHandle { store: node.store.inner.clone(), prefix: Box::default() };
    let options = LimiterOptions::default().clock(Clock::manual().0);
    let limits = (*node.limiter.limits()).clone();
    Limiter::with_options(limits, options.store(Store(store))).unwrap().shared("All").unwrap()
}

/// The decision of a call, if the node asks no store for it.
fn kept(node: &Node, call: impl Future<Output = Result<Decision, Error>>) -> Option<Decision> {
    let mut call = Box::pin(call);
    match poll(call.as_mut()) {
        Poll::Ready(decision) => Some(decision.unwrap()),
        Poll::Pending => {
            node.store.run_all();
            None
        }
    }
}

/// A kept denial has the figures that the store would compute at that time, for any cost and factor; and a call that the store
/// would allow asks it.
#[test]
fn kept_denials_have_figures_of_store() {
    let second = Duration::from_secs(1);
    let limits = [
        Limit::new(10, 20, second),
        Limit::new(10, 1, MINUTE),
        Limit::fixed_window(10, 130 * MS),
        Limit::token_bucket(10, 16, 130 * MS),
        Limit::leaky_bucket(10, 2, 70 * MS),
    ];
    let (mut random, mut seen) = (Random(39), [0; 2]);
    for limit in limits.map(Result::unwrap) {
        let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
        let limits = limits.limit_with("All", IdFormat::String, limit, exact()).unwrap();
        let node = node_with(limits.build());
        let other = other(&node);
        for _ in 0..300 {
            node.hand.advance(MS * random.below(40) as u32);
            let _ = node.answer(node.all.spend("a", random.below(11))).unwrap();
            let (asked, sent) = (1 + random.below(10), node.limiter.inner.clock.now_ns());
            if node.answer(node.all.check("a", asked)).unwrap().allowed() {
                continue;
            }
            while node.limiter.inner.clock.now_ns() - sent < 100_000_000 {
                let (cost, factor) = (random.below(11), [1_000_000, 500_000, 2_000_000]);
                let factor = Factor::from_millionths(factor[random.below(3) as usize]);
                let by_store = block_on(other.scaled(factor).check("a", cost));
                let Ok(by_store) = by_store else { continue };
                let by_node = kept(&node, node.all.scaled(factor).check("a", cost));
                // One call asks after some time.
                assert!(
                    by_node.is_none_or(|by_node| by_node == by_store),
                    "{by_node:?} {by_store:?}"
                );
                seen[usize::from(by_node.is_none())] += 1;
                if by_store.allowed() {
                    break;
                }
                node.hand.advance(Duration::from_micros(random.below(30_000)));
            }
        }
    }
    assert!(seen.iter().all(|&calls| calls > 500), "{seen:?}");
}

/// What this node does to a bucket ends its denial.
#[test]
fn changes_of_the_node_end_denials() {
    type Step = fn(&Node);
    let steps: [(&str, Step); 7] = [
        ("refund", |node| drop(node.answer(node.all.refund("a", 2)))),
        ("reset", |node| drop(node.answer(node.all.reset("a")))),
        ("drain", |node| drop(node.answer(node.all.drain("a", 0)))),
        ("grant", |node| drop(node.answer(node.all.spend_up_to("a", 1)))),
        ("block", |node| drop(node.answer(node.all.block("a", MINUTE)))),
        ("unblock", |node| drop(node.answer(node.all.unblock("a")))),
        ("reservation", |node| drop(node.answer(node.all.reserve("a", 1, MINUTE)))),
    ];
    for (name, step) in steps {
        let node = node();
        let (_, receipt) = node.answer(node.all.spend_estimate("a", 3)).unwrap();
        assert!(!node.is_allowed(4), "{name}");
        assert!(node.all.spend_here("a", 4).is_some(), "{name}");
        step(&node);
        assert!(node.all.spend_here("a", 5).is_none(), "{name}");
        assert!(!node.is_allowed(5) || name == "reset", "{name}");
        // The settlement returns units.
        drop(receipt.unwrap().settle(1));
        node.store.run_all();
        assert!(node.all.spend_here("a", 5).is_none(), "{name}, and a settlement");
    }
}

/// A charge of this node leaves another text, by which the next call is denied.
#[test]
fn charges_of_the_node_replace_the_text() {
    let node = node();
    assert!(node.is_allowed(2) && !node.is_allowed(4), "3 are left");
    assert!(node.is_allowed(2));
    let denied = now(node.all.spend("a", 2)).unwrap();
    assert_eq!((denied.remaining(), denied.retry_in()), (Some(1), MINUTE));
    // An id that was not denied has none.
    assert!(node.answer(node.all.spend("b", 4)).unwrap().allowed());
    assert_eq!(kept(&node, node.all.spend("b", 4)), None);
    // A charge whose answer is lost changes nothing here.
    *node.store.fails.lock() = Some(Error::new(ErrorKind::Store, "planted"));
    assert!(node.answer(node.all.spend("a", 1)).is_err());
    *node.store.fails.lock() = None;
    assert!(!now(node.all.spend("a", 2)).unwrap().allowed());
}

/// When units may have come, as many callers ask as the kept text has units for, and one more. The others are denied meanwhile.
#[test]
fn as_many_callers_ask_as_units_have_come() {
    let limit = Limit::new(5, 1, 10 * MS).unwrap();
    let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
    let limits = limits.limit_with("All", IdFormat::String, limit, exact()).unwrap();
    let node = node_with(limits.build());
    assert!(node.is_allowed(5) && !node.is_allowed(1));
    for (after, units) in [(10, 1), (10, 1), (30, 3)] {
        node.hand.advance(after * MS);
        let mut calls: Vec<_> = (0..64).map(|_| Box::pin(node.all.spend("a", 1))).collect();
        calls.retain_mut(|call| match poll(call.as_mut()) {
            Poll::Ready(decision) => decision.unwrap().allowed(),
            Poll::Pending => true,
        });
        assert_eq!(calls.len(), units + 1, "one more asks whether the denial still holds");
        node.store.run_all();
        calls.retain_mut(|call| match poll(call.as_mut()) {
            Poll::Ready(decision) => decision.unwrap().allowed(),
            Poll::Pending => panic!("answered"),
        });
        assert_eq!(calls.len(), units);
        assert!(!now(node.all.spend("a", 1)).unwrap().allowed());
    }
}

/// The store may deny a call that asks: for its cost, if another node has taken units, or for another bucket of its batch. Calls
/// for which it has the units ask as well.
#[test]
fn calls_that_ask_deny_none_that_fit() {
    let node = node();
    let batch = [node.all.member("a").cost(3), node.all.member("b")];
    for id in ["a", "b"] {
        assert!(node.answer(node.all.spend(id, 5)).unwrap().allowed());
        assert!(!node.answer(node.all.spend(id, 1)).unwrap().allowed());
    }
    node.hand.advance(3 * MINUTE);
    // The texts of both are kept, and have 3 units each.
    for id in ["a", "b"] {
        assert!(!node.answer(node.all.spend(id, 4)).unwrap().allowed());
    }
    assert!(block_on(other(&node).spend("a", 1)).unwrap().allowed());
    assert!(block_on(other(&node).spend("b", 3)).unwrap().allowed());
    let batch = node.limiter.shared_batch(&batch);
    let mut asks = [Box::pin(batch.spend()), Box::pin(batch.spend()), Box::pin(batch.spend())];
    assert!(asks.iter_mut().all(|call| poll(call.as_mut()).is_pending()));
    let mut large = Box::pin(node.all.spend("a", 3));
    let mut small = Box::pin(node.all.spend("a", 2));
    assert!(poll(large.as_mut()).is_pending() && poll(small.as_mut()).is_pending());
    node.store.run_all();
    let Poll::Ready(Ok(denied)) = poll(large.as_mut()) else { panic!("answered") };
    let Poll::Ready(Ok(allowed)) = poll(small.as_mut()) else { panic!("answered") };
    assert!(!denied.allowed() && allowed.allowed());
}

/// The text denies a call that asks whether the denial still holds.
#[test]
fn renewals_take_no_unit() {
    let node = node();
    assert!(node.is_allowed(2) && !node.is_allowed(4), "3 units are kept");
    node.hand.advance(2 * MS);
    let mut renews = Box::pin(node.all.spend("a", 4));
    assert!(poll(renews.as_mut()).is_pending());
    assert!(poll(Box::pin(node.all.spend("a", 3)).as_mut()).is_pending());
}

/// The store may deny a call with a factor that others do not have.
#[test]
fn calls_with_factors_take_no_unit_ahead() {
    for (factor, units) in [(1_000_000, 2), (2_000_000, 3)] {
        let node = node();
        assert!(node.is_allowed(5));
        node.hand.advance(3 * MINUTE);
        assert!(!node.is_allowed(4), "3 units are kept");
        let scaled = node.all.scaled(Factor::from_millionths(factor));
        let mut asks = Box::pin(scaled.spend("a", 1));
        assert!(poll(asks.as_mut()).is_pending());
        assert!(poll(Box::pin(node.all.spend("a", units)).as_mut()).is_pending());
        assert_eq!(node.all.spend_here("a", units + 1).map(|it| it.allowed()), Some(false));
    }
}

/// After 2 ms one call asks, and the others are denied meanwhile.
#[test]
fn one_call_renews_a_denial() {
    let node = node();
    assert!(node.is_allowed(5) && !node.is_allowed(1));
    node.hand.advance(2 * MS);
    let mut renews = Box::pin(node.all.spend("a", 1));
    assert!(poll(renews.as_mut()).is_pending());
    assert!((0..20).all(|_| !now(node.all.spend("a", 1)).unwrap().allowed()));
    node.store.run_all();
    assert!(poll(renews.as_mut()).is_ready());
    node.hand.advance(3 * MS);
    assert!(!now(node.all.spend("a", 1)).unwrap().allowed(), "by the new text");
}

/// Threads that read a text do not keep each other from it.
#[test]
fn floods_by_threads_ask_rarely() {
    let limit = Limit::new(5, 1, MINUTE).unwrap();
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit, exact()).unwrap();
    let store = Store::in_memory(Clock::system());
    let options = LimiterOptions::default().store(store.clone());
    let all = Limiter::with_options(limits.build(), options).unwrap().shared("All").unwrap();
    assert!(block_on(all.spend("a", 5)).unwrap().allowed());
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while began.elapsed() < 300 * MS {
                    assert!(!block_on(all.spend("a", 1)).unwrap().allowed());
                }
            });
        }
    });
    // Six times one call asks, and each thread before the first denial; while a text is replaced, others may ask as well.
    assert!(store.calls() < 60, "{} calls to the store", store.calls());
}

#[test]
fn changes_of_other_nodes_are_seen_later() {
    let node = node();
    assert!(node.is_allowed(5) && !node.is_allowed(1));
    assert!(block_on(other(&node).reset("a")).unwrap().allowed());
    node.hand.advance(MS);
    assert!(!now(node.all.spend("a", 1)).unwrap().allowed(), "kept");
    assert_eq!(node.limiter.counters().limits[1].shared().unwrap().denied_by_lease, 1);
    assert_eq!(node.limiter.counters().limits[1].denied, 2);
    node.hand.advance(MS);
    assert!(node.is_allowed(1), "it asks");
}

/// All members of a batch are kept, and each shows its bucket.
#[test]
fn denied_batches_are_kept_whole() {
    let node = node();
    assert!(node.answer(node.all.spend("b", 4)).unwrap().allowed());
    let members = [node.own.member("a").into(), node.all.member("a"), node.all.member("b").cost(2)];
    let spend = || async {
        let mut each = Vec::new();
        let decision = node.limiter.shared_batch(&members).spend_into(&mut each).await?;
        Ok::<_, Error>((decision, each))
    };
    let asked = node.answer(spend()).unwrap();
    assert_eq!((asked.0.denied_by(), asked.0.remaining()), (Some(2), Some(1)));
    assert_eq!(now(spend()).unwrap(), asked);
    assert_eq!(node.own.check("a", 0).unwrap().remaining(), Some(10), "given back");
    // A batch with another member asks.
    let members = [node.all.member("b").cost(2), node.all.member("c")];
    assert_eq!(kept(&node, node.limiter.shared_batch(&members).spend()), None);
    // A charge of one member ends its part, and so the batch's denial.
    assert!(node.answer(node.all.spend("a", 1)).unwrap().allowed());
    assert_eq!(node.answer(spend()).unwrap().1[1].remaining(), Some(4));
}

#[test]
fn batches_over_several_slots_ask() {
    let node = node();
    *node.store.is_split.lock() = true;
    for id in ["a", "b"] {
        assert!(node.answer(node.all.spend(id, 5)).unwrap().allowed());
        assert!(!node.answer(node.all.spend(id, 1)).unwrap().allowed());
    }
    let members = [node.all.member("a"), node.all.member("b")];
    let batch = node.limiter.shared_batch(&members);
    assert_eq!(kept(&node, batch.spend()), None);
    // Its slots may have been charged, and may have got their units back.
    assert_eq!(node.all.spend_here("a", 1), None);
}

fn leased_node(each: Duration) -> Node {
    let limit = |burst| Limit::new(burst, 1, each).unwrap();
    let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
    let limits = Limits::builder().limit("Own", IdFormat::String, limit(5)).unwrap();
    let limits = limits.limit_with("All", IdFormat::String, limit(20), leased).unwrap();
    let limits = limits.limit_with("Other", IdFormat::String, limit(1), exact()).unwrap();
    let node = node_with(limits.build());
    for _ in 0..2 {
        node.hand.advance(MS);
        assert!(node.is_allowed(1));
    }
    assert_eq!(node.limiter.counters().store().unwrap().held_units, 8);
    node
}

/// A lease without units holds its bucket back until it ends, also in the store's decisions.
#[test]
fn kept_denials_count_a_lease_without_units() {
    let node = leased_node(100 * MS);
    assert!(now(node.all.spend("a", 8)).unwrap().allowed());
    node.hand.advance(400 * MS);
    for _ in 0..3 {
        let asked = node.answer(node.all.spend("a", 15)).unwrap();
        assert_eq!((asked.allowed(), asked.remaining()), (false, Some(12)));
        assert_eq!(now(node.all.spend("a", 15)).unwrap(), asked);
        node.hand.advance(10 * MS);
    }
}

/// A batch holds the units of a lease while another call is denied, and gives them back.
#[test]
fn returned_leases_end_denials() {
    let node = leased_node(MINUTE);
    let other = node.limiter.shared("Other").unwrap();
    assert!(node.answer(other.spend("a", 1)).unwrap().allowed());
    let members = [node.all.member("a").cost(8), other.member("a")];
    let batch = node.limiter.shared_batch(&members);
    let mut spent = Box::pin(batch.spend());
    assert!(poll(spent.as_mut()).is_pending());
    let tasks = std::mem::take(&mut *node.store.tasks.lock());
    assert!(!node.is_allowed(15));
    assert!(node.all.spend_here("a", 15).is_some(), "kept");
    node.store.tasks.lock().extend(tasks);
    node.store.run_all();
    let Poll::Ready(Ok(denied)) = poll(spent.as_mut()) else { panic!("answered") };
    assert!(!denied.allowed());
    assert_eq!(kept(&node, node.all.check("a", 15)), None, "the node holds units");
    assert_eq!(node.answer(node.limiter.give_leases_back()).unwrap(), 1);
    assert!(node.all.spend_here("a", 15).is_none());
    assert!(node.is_allowed(15));
}

/// Two calls ask at once, and only the first of them may take a lease. The answer of the second leaves the denial.
#[test]
fn calls_without_lease_leave_denials() {
    let node = leased_node(MINUTE);
    assert!(node.is_allowed(18));
    let mut calls = [(); 2].map(|()| Box::pin(node.all.spend("a", 1)));
    assert!(calls.iter_mut().all(|call| poll(call.as_mut()).is_pending()));
    node.store.run_all();
    assert!(calls.iter_mut().all(|call| poll(call.as_mut()).is_ready()));
    assert!(!now(node.all.spend("a", 1)).unwrap().allowed());
}

/// A call with a factor gives up no lease, so the node may deny it beside units that it holds.
#[test]
fn calls_with_factors_are_denied_beside_leases() {
    let node = leased_node(MINUTE);
    let factor = Factor::from_millionths(2_000_000);
    let spend = || async { node.all.scaled(factor).spend("a", 10).await };
    let asked = node.answer(spend()).unwrap();
    assert!(!asked.allowed());
    assert_eq!(now(spend()).unwrap(), asked);
    assert_eq!(node.limiter.counters().store().unwrap().held_units, 8);
}

/// The gate leaves room for ids that were not denied.
#[test]
fn gate_is_told_of_denials() {
    let node = node();
    let told = || *node.store.was_denied.lock();
    assert!(node.is_allowed(5) && !told() && !node.is_allowed(1) && !told());
    node.hand.advance(MINUTE / 600);
    assert!(!node.is_allowed(1) && told());
    node.hand.advance(Duration::from_secs(1));
    assert!(!node.is_allowed(1) && !told(), "a second later");
}

/// A shadow limit does not deny, and asks the store each time.
#[test]
fn limits_in_shadow_mode_keep_no_denial() {
    let node = node_of(exact().mode(LimitMode::Shadow));
    for _ in 0..4 {
        assert_eq!(kept(&node, node.all.spend("a", 4)), None);
    }
}

/// One step of a call: it is sent, the store does it, and its answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Spend,
    Refund,
}

/// A denied spend beside a refund of the same node, in each order of their parts: the node keeps no denial from before the
/// refund.
#[test]
fn denial_vs_refund_in_each_order() {
    let (mut orders, mut seen) = (0, [0; 2]);
    for bits in 0..1_u32 << 6 {
        let order: Vec<Part> =
            (0..6).map(|at| if bits >> at & 1 == 0 { Part::Spend } else { Part::Refund }).collect();
        if bits.count_ones() != 3 {
            continue;
        }
        orders += 1;
        let node = node();
        assert!(node.is_allowed(4));
        let mut spend: Pin<Box<dyn Future<Output = _> + '_>> = Box::pin(node.all.spend("a", 3));
        let mut refund: Pin<Box<dyn Future<Output = _> + '_>> = Box::pin(node.all.refund("a", 3));
        let mut tasks: Vec<(Part, Task)> = Vec::new();
        let mut done = [0; 2];
        for &part in &order {
            let call = if part == Part::Spend { &mut spend } else { &mut refund };
            let count = &mut done[part as usize];
            *count += 1;
            if *count == 1 {
                assert!(poll(call.as_mut()).is_pending());
                tasks.push((part, node.store.tasks.lock().pop().unwrap()));
                continue;
            }
            node.store.set_answers(if *count == 2 { Answers::Late } else { Answers::AtOnce });
            let task = tasks.iter_mut().find(|(of, _)| *of == part).unwrap();
            let _ = poll(task.1.as_mut());
        }
        node.store.set_answers(Answers::AtOnce);
        let Poll::Ready(Ok(spent)) = poll(spend.as_mut()) else { panic!("{order:?}") };
        let by_node = node.all.spend_here("a", 3);
        seen[usize::from(spent.allowed())] += 1;
        let is_denied = !block_on(other(&node).check("a", 3)).unwrap().allowed();
        assert!(by_node.is_none() || is_denied, "{order:?}: {by_node:?} is from before the refund");
    }
    assert_eq!(orders, 20);
    assert!(seen.iter().all(|&orders| orders > 5), "{seen:?}");
}
