//! The figures of a limiter's store.

use super::*;
use crate::observe::store_counters::StoreCounters;
use crate::shared::block_on;
#[cfg(feature = "tracing")]
use crate::util::sync::Ordering;

fn store_counters(limiter: &Limiter) -> StoreCounters {
    limiter.counters().store().unwrap()
}

/// Decisions from leases and kept denials, and by a policy, each allowed and denied, of the limit `All`.
fn beside_the_store(limiter: &Limiter) -> [(u64, u64); 2] {
    let counters = limiter.counters();
    let all = counters.limits.iter().find(|limit| limit.name == "All").unwrap();
    let all = all.shared().unwrap();
    [
        (all.allowed_by_lease, all.denied_by_lease),
        (all.allowed_without_store, all.denied_without_store),
    ]
}

#[test]
fn leases_and_kept_denials_are_counted() {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock.clone()).counting(true);
    let limit = Limit::new(40, 1, MINUTE).unwrap();
    let leased = LimitOptions::default().shared(Shared::Leased);
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit, leased).unwrap();
    let limiter =
        Limiter::with_options(limits.build(), options.store(Store::in_memory(clock))).unwrap();
    let all = limiter.shared("All").unwrap();
    for _ in 0..2 {
        hand.advance(MS);
        assert!(block_on(all.spend("a", 1)).unwrap().allowed());
    }
    let counters = store_counters(&limiter);
    assert_eq!((counters.calls, counters.leases), (2, 1));
    assert_eq!((counters.leased_units, counters.held_units), (8, 8));
    assert_eq!(beside_the_store(&limiter), [(0, 0), (0, 0)]);
    assert!(here(&all, all.spend("a", 2)).unwrap().allowed());
    assert!(here(&all, all.check("a", 1)).unwrap().allowed(), "not counted");
    assert!(now(limiter.shared_batch(&[all.member("a")]).spend()).unwrap().allowed());
    assert_eq!(beside_the_store(&limiter), [(2, 0), (0, 0)]);
    assert_eq!(store_counters(&limiter).held_units, 5);
    block_on(limiter.give_leases_back()).unwrap();
    let counters = store_counters(&limiter);
    assert_eq!((counters.calls, counters.leased_units, counters.held_units), (3, 8, 0));
    // A denial that the node keeps, asked for by each kind of call.
    assert!(block_on(all.spend("b", 40)).unwrap().allowed());
    assert!(!block_on(all.spend("b", 2)).unwrap().allowed());
    assert_eq!(beside_the_store(&limiter), [(2, 0), (0, 0)]);
    assert!(!here(&all, all.spend("b", 2)).unwrap().allowed());
    assert!(!now(limiter.shared_batch(&[all.member("b").cost(2)]).spend()).unwrap().allowed());
    assert_eq!(beside_the_store(&limiter), [(2, 2), (0, 0)]);
    let counters = store_counters(&limiter);
    assert_eq!((counters.calls, counters.errors), (5, Default::default()));
    for _ in 0..2 {
        hand.advance(MS);
        assert!(block_on(all.spend("c", 1)).unwrap().allowed());
    }
    assert_eq!(store_counters(&limiter).held_units, 8);
    hand.advance(MINUTE);
    assert_eq!(store_counters(&limiter).held_units, 0, "the lease is over");
}

#[test]
fn decisions_of_policies_are_counted() {
    let node = node_of(exact().on_error(OnError::Deny));
    assert!(!store_counters(&node.limiter).is_outage);
    node.set_outage(true);
    assert!(!node.is_allowed(1) && !node.are_allowed(1));
    assert!(!node.answer(node.all.check("a", 1)).unwrap().allowed(), "not counted");
    let counters = store_counters(&node.limiter);
    assert_eq!((counters.is_outage, counters.outages), (true, 1));
    node.set_outage(false);
    assert!(node.is_allowed(1));
    assert_eq!(beside_the_store(&node.limiter), [(0, 0), (0, 2)]);
    let counters = store_counters(&node.limiter);
    assert_eq!((counters.is_outage, counters.outages), (false, 1));
    let node = node_of(exact().on_error(OnError::Allow));
    node.set_outage(true);
    assert!(node.is_allowed(1) && node.are_allowed(1));
    assert_eq!(beside_the_store(&node.limiter), [(0, 0), (2, 0)]);
    let granted = node.answer(node.all.spend_up_to("a", 2)).unwrap();
    assert_eq!((granted.0, beside_the_store(&node.limiter)[1]), (2, (3, 0)));
    assert!(node.answer(node.all.reserve("a", 1, MINUTE)).is_ok());
    assert_eq!(beside_the_store(&node.limiter)[1], (4, 0));
}

/// Counts the warnings about the key `All:logged`.
#[cfg(feature = "tracing")]
mod warnings {
    use std::sync::Arc;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use crate::util::sync::{Figure, Ordering};

    #[derive(Clone, Default)]
    pub(super) struct Warnings(pub(super) Arc<Figure>);

    impl Visit for &Warnings {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "error" && format!("{value:?}").contains("All:logged") {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "tollgate" && *metadata.level() == Level::WARN
        }

        fn event(&self, event: &Event<'_>) {
            event.record(&mut &*self);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }
}

/// The first, second, fourth and so on are logged.
#[test]
#[cfg(feature = "tracing")]
fn unknown_texts_are_logged() {
    let node = node();
    node.store.inner.put("All:logged", "12 apples");
    // For all threads: tracing decides once for an event whether anybody wants it, and asks the thread that comes first.
    let warnings = warnings::Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let count = || warnings.0.load(Ordering::Relaxed);
    assert!(node.answer(node.all.spend("logged", 1)).is_err());
    assert_eq!(count(), 1);
    assert!(node.answer(node.all.refund("logged", 1)).is_err());
    assert_eq!(count(), 2);
    assert!(node.answer(node.all.explain("logged", 1)).is_err());
    assert_eq!(count(), 2);
}

#[test]
fn unknown_texts_are_counted() {
    let node = node();
    node.store.inner.put("All:a", "12 apples");
    assert!(node.answer(node.all.spend("a", 1)).is_err());
    assert!(node.answer(node.all.refund("a", 1)).is_err());
    assert!(node.answer(node.all.explain("a", 1)).is_err());
    let counters = store_counters(&node.limiter);
    assert_eq!((counters.errors.unknown_text, counters.is_outage), (3, false));
}

#[test]
fn pages_show_the_store_if_there_is_one() {
    let node = node_of(exact().on_error(OnError::Deny));
    assert!(node.is_allowed(1));
    node.set_outage(true);
    assert!(!node.is_allowed(1));
    let page = node.limiter.prometheus();
    for line in [
        "tollgate_lease_decisions_total{limit=\"All\",outcome=\"allowed\"} 0",
        "tollgate_policy_decisions_total{limit=\"All\",outcome=\"denied\"} 1",
        "tollgate_store_calls_total 1",
        "tollgate_store_errors_total{kind=\"timeout\"} 0",
        "tollgate_store_scripts_sent_total 0",
        "tollgate_store_paused 0",
        "tollgate_store_outage 1",
        "tollgate_store_outages_total 1",
        "tollgate_store_clock_steps_total{direction=\"back\"} 0",
        "tollgate_store_last_clock_step_milliseconds{direction=\"ahead\"} 0",
        "tollgate_leases_total 0",
        "tollgate_leased_units_total 0",
        "tollgate_held_units 0",
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line}\n{page}");
    }
    assert!(!page.contains("decisions_total{limit=\"Own\",outcome=\"denied\"} 1"), "{page}");
    assert!(
        !page.contains("lease_decisions_total{limit=\"Own\""),
        "a local limit has none: {page}"
    );
    let local = Limiter::new(Limits::builder().build());
    assert!(local.counters().store().is_none() && !local.prometheus().contains("store"));
}

#[test]
fn unknown_texts_are_errors_of_their_limit() {
    let node = node();
    node.store.inner.put("All:a", "12 apples");
    assert!(node.answer(node.all.spend("a", 1)).is_err());
    assert_eq!(node.limiter.counters().limits[1].errors, 1);
}

#[test]
fn only_the_denier_is_counted_in_an_outage() {
    let of = |on_error| exact().on_error(on_error);
    let limit = || Limit::new(5, 1, MINUTE).unwrap();
    let limits = Limits::builder().limit("Own", IdFormat::String, limit()).unwrap();
    let limits = limits.limit_with("All", IdFormat::String, limit(), of(OnError::Allow)).unwrap();
    let limits = limits.limit_with("Strict", IdFormat::String, limit(), of(OnError::Deny)).unwrap();
    let node = node_with(limits.build());
    let strict = node.limiter.shared("Strict").unwrap();
    node.set_outage(true);
    let members = [node.all.member("a"), strict.member("a")];
    assert!(!node.answer(node.limiter.shared_batch(&members).spend()).unwrap().allowed());
    assert_eq!(beside_the_store(&node.limiter)[1], (0, 0), "another member has denied");
}

#[test]
fn members_that_cannot_deny_are_not_counted_denied() {
    use crate::limiter::batch::MemberMode;
    let leased = LimitOptions::default().shared(Shared::Leased);
    let node = node_with(limits_of((10, 20), leased));
    assert!(node.is_allowed(20) && !node.is_allowed(2));
    let members =
        [node.own.member("a").into(), node.all.member("a").cost(2).mode(MemberMode::SpendOnly)];
    assert!(node.answer(node.limiter.shared_batch(&members).spend()).unwrap().allowed());
    assert_eq!(beside_the_store(&node.limiter)[0], (0, 0));
}

#[test]
fn each_answer_ends_an_outage() {
    type Step = fn(&Node) -> bool;
    let steps: [(&str, Step); 8] = [
        ("reservation", |node| node.answer(node.all.reserve("a", 1, MS)).is_err()),
        ("grant", |node| node.answer(node.all.spend_up_to("a", 1)).is_ok()),
        ("refund", |node| node.answer(node.all.refund("a", 1)).is_ok()),
        ("reset", |node| node.answer(node.all.reset("a")).is_ok()),
        ("drain", |node| node.answer(node.all.drain("a", 0)).is_ok()),
        ("block", |node| node.answer(node.all.block("a", MINUTE)).is_ok()),
        ("explanation", |node| node.answer(node.all.explain("a", 1)).is_ok()),
        ("look", |node| node.answer(node.all.blocked_for("a")).is_ok()),
    ];
    for (name, step) in steps {
        let node = node_of(exact().on_error(OnError::Deny));
        assert!(node.is_allowed(5));
        node.set_outage(true);
        assert!(!node.is_allowed(1));
        node.set_outage(false);
        assert!(store_counters(&node.limiter).is_outage, "{name}");
        assert!(step(&node), "{name}");
        assert!(!store_counters(&node.limiter).is_outage, "{name}");
    }
}

/// A member in shadow mode that would deny the batch as well shows the figures of a call at cost 0, as a local one does.
#[test]
fn denied_batches_show_shadow_members_alike() {
    let shown = |is_shared: bool| {
        let of = |options: LimitOptions| match is_shared {
            true => options.shared(Shared::Exact),
            false => options,
        };
        let limit = || Limit::new(5, 1, MINUTE).unwrap();
        let shadow = LimitOptions::default().mode(LimitMode::Shadow);
        let limits = Limits::builder()
            .limit("Own", IdFormat::String, limit())
            .unwrap()
            .limit_with("One", IdFormat::String, limit(), of(LimitOptions::default()))
            .unwrap()
            .limit_with("All", IdFormat::String, limit(), of(shadow));
        let node = node_with(limits.unwrap().build());
        let one = node.limiter.shared("One").unwrap();
        let members = [one.member("a").cost(4), node.all.member("a").cost(4)];
        let batch = node.limiter.shared_batch(&members);
        let mut decisions = Vec::new();
        for _ in 0..2 {
            let _ = node.answer(batch.spend_into(&mut decisions)).unwrap();
        }
        format!("{decisions:?}")
    };
    assert_eq!(shown(true), shown(false));
}

/// A block denies nothing in shadow mode, and the member's figures are its bucket's.
#[test]
fn denied_batches_show_blocked_shadow_members() {
    let limit = || Limit::new(5, 1, MINUTE).unwrap();
    let shadow = exact().mode(LimitMode::Shadow);
    let limits = Limits::builder().limit("Own", IdFormat::String, limit()).unwrap();
    let limits = limits.limit_with("One", IdFormat::String, limit(), exact()).unwrap();
    let limits = limits.limit_with("All", IdFormat::String, limit(), shadow).unwrap();
    let node = node_with(limits.build());
    let one = node.limiter.shared("One").unwrap();
    let _ = node.answer(node.all.spend("a", 2)).unwrap();
    let _ = node.answer(node.all.block("a", MINUTE)).unwrap();
    assert!(node.answer(one.spend("a", 5)).unwrap().allowed());
    let members = [one.member("a"), node.all.member("a")];
    let mut each = Vec::new();
    let batch = node.limiter.shared_batch(&members);
    assert!(!node.answer(batch.spend_into(&mut each)).unwrap().allowed());
    assert_eq!((each[1].remaining(), each[1].retry_in()), (Some(3), Duration::ZERO));
}
