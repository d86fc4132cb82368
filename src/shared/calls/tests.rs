//! Calls whose callers go away, and stores that fail or end, beside local members.

mod changes;
mod denials;
mod figures;
#[cfg(feature = "tower")]
mod kept;
mod known;
mod late;
mod leases;
mod one_bucket;
mod overload;
mod owed;
mod places;
mod rollout;
mod simulation;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::algorithm::factor::Factor;
use crate::clock::{Clock, ManualClock};
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::options::LimiterOptions;
use crate::limiter::reload::options::ReloadOptions;
use crate::limits::{IdFormat, LimitMode, LimitOptions, Limits, OnError, Shared};
use crate::shared::SharedLimit;
use crate::shared::Store;
use crate::shared::block_on;
use crate::shared::protocol::change::BucketChange;
use crate::shared::protocol::gate::Passed;
use crate::shared::protocol::{Changed, Found, Reply, SharedStore, StoreHandle, StoreMember};
use crate::shared::store_figures::StoreFigures;
use crate::util::lock::Mutex;

const MS: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When the answers of a store come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Answers {
    #[default]
    AtOnce,
    /// The store has made the change, and does not answer yet.
    Late,
    /// Changes are made, and their answers are lost.
    NoneToChanges,
    /// The next change is not sent, for this reason.
    UnsentOnce(ErrorKind),
}

/// A store in memory whose tasks wait until the test runs them.
#[derive(Clone)]
struct SlowStore {
    inner: Arc<dyn SharedStore>,
    tasks: Arc<Mutex<Vec<Task>>>,
    fails: Arc<Mutex<Option<Error>>>,
    answers: Arc<Mutex<Answers>>,
    /// Whether each key is in another slot, as in a cluster.
    is_split: Arc<Mutex<bool>>,
    is_unready: Arc<Mutex<bool>>,
    /// Whether the node has too many calls under way.
    is_overloaded: Arc<Mutex<bool>>,
    /// Whether one of the last call's buckets has denied a call lately, by the node.
    was_denied: Arc<Mutex<bool>>,
    /// The charges that were made as returns.
    returns: Arc<Mutex<usize>>,
}

impl std::fmt::Debug for SlowStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlowStore")
    }
}

impl SlowStore {
    fn new(clock: Clock) -> SlowStore {
        let inner = Store::in_memory(clock).0.store;
        SlowStore {
            inner,
            tasks: Arc::default(),
            fails: Arc::default(),
            answers: Arc::default(),
            is_split: Arc::default(),
            is_unready: Arc::default(),
            is_overloaded: Arc::default(),
            was_denied: Arc::default(),
            returns: Arc::default(),
        }
    }

    /// Runs the tasks that wait; returns their number.
    fn run_all(&self) -> usize {
        let tasks: Vec<Task> = std::mem::take(&mut *self.tasks.lock());
        let count = tasks.len();
        for mut task in tasks {
            if poll(task.as_mut()).is_pending() {
                assert_eq!(*self.answers.lock(), Answers::Late);
                self.tasks.lock().push(task);
            }
        }
        count
    }

    fn set_answers(&self, answers: Answers) {
        *self.answers.lock() = answers;
    }

    /// The answer to a call that the store makes when its task asks first.
    fn answer<T: Send + 'static>(
        &self,
        call: impl Fn(&dyn SharedStore) -> Reply<T> + Send + 'static,
        is_change: bool,
    ) -> Reply<T> {
        let (inner, answers, mut reply) = (self.inner.clone(), self.answers.clone(), None);
        Box::pin(std::future::poll_fn(move |context| {
            let reply = reply.get_or_insert_with(|| call(&*inner));
            match *answers.lock() {
                Answers::Late => Poll::Pending,
                Answers::NoneToChanges if is_change => {
                    Poll::Ready(Err(Error::new(ErrorKind::StoreOutage, "lost")))
                }
                _ => reply.as_mut().poll(context),
            }
        }))
    }

    fn failure<T: Send + 'static>(&self) -> Option<Reply<T>> {
        let error = self.fails.lock().clone()?;
        Some(Box::pin(std::future::ready(Err(error))))
    }
}

impl SharedStore for SlowStore {
    fn admit(&self, _: &mut dyn Iterator<Item = &str>, was_denied: bool) -> Result<Passed, Error> {
        *self.was_denied.lock() = was_denied;
        match *self.is_overloaded.lock() {
            true => Err(Error::new(ErrorKind::StoreOverload, "planted")),
            false => Ok(Passed::default()),
        }
    }

    fn charge(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        if self.is_split(&members) && members.iter().all(|it| it.lease.is_some()) {
            // Each slot by itself. After a failure the leases of the slots before have ended.
            let mut each =
                members.iter().map(|it| block_on(self.inner.charge([it.clone()].into())));
            if let Some(Err(error)) = each.find(Result::is_err) {
                return Box::pin(std::future::ready(Err(error)));
            }
            panic!("a call that ends leases of several slots");
        }
        let charge = move |inner: &dyn SharedStore| inner.charge(members.clone());
        self.failure().unwrap_or_else(|| self.answer(charge, false))
    }

    fn charge_return(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        *self.returns.lock() += 1;
        self.charge(members)
    }

    fn is_split(&self, members: &[StoreMember]) -> bool {
        *self.is_split.lock() && members.len() > 1
    }

    fn is_ready(&self, _: &str) -> bool {
        !*self.is_unready.lock()
    }

    fn change(&self, changes: Arc<[BucketChange]>) -> Reply<Changed> {
        if *self.is_split.lock() && changes.len() > 1 {
            return Box::pin(std::future::ready(Err(Error::new(ErrorKind::Store, "two slots"))));
        }
        let answers = *self.answers.lock();
        if let Answers::UnsentOnce(kind) = answers {
            self.set_answers(Answers::AtOnce);
            let error = Error::new(kind, "planted");
            return Box::pin(std::future::ready(Err(error)));
        }
        let change = move |inner: &dyn SharedStore| inner.change(changes.clone());
        self.failure().unwrap_or_else(|| self.answer(change, true))
    }

    fn is_on(&self, clock: &Clock) -> bool {
        self.inner.is_on(clock)
    }

    fn figures(&self) -> Option<&StoreFigures> {
        self.inner.figures()
    }

    fn run(&self, task: Task) {
        self.tasks.lock().push(task);
    }
}

struct Node {
    limiter: Limiter,
    store: SlowStore,
    own: KeyedLimit,
    all: SharedLimit,
    hand: ManualClock,
}

fn exact() -> LimitOptions {
    LimitOptions::default().shared(Shared::Exact)
}

/// A limit of this node, and one of all nodes, each of one unit a minute.
fn limits(all: LimitOptions) -> Limits {
    limits_of((10, 5), all)
}

fn limits_of((own_burst, burst): (u64, u64), all: LimitOptions) -> Limits {
    let limit = |burst| Limit::new(burst, 1, MINUTE).unwrap();
    let limits = Limits::builder().limit("Own", IdFormat::String, limit(own_burst)).unwrap();
    limits.limit_with("All", IdFormat::String, limit(burst), all).unwrap().build()
}

fn node() -> Node {
    node_of(exact())
}

fn node_of(all: LimitOptions) -> Node {
    node_with(limits(all))
}

fn node_with(limits: Limits) -> Node {
    let (clock, hand) = Clock::manual();
    let store = SlowStore::new(clock.clone());
    let handle = StoreHandle { store: Arc::new(store.clone()), prefix: Box::default() };
    let options = LimiterOptions::default().clock(clock).counting(true).store(Store(handle));
    let limiter = Limiter::with_options(limits, options).unwrap();
    let (own, all) = (limiter.limit("Own").unwrap(), limiter.shared("All").unwrap());
    Node { limiter, store, own, all, hand }
}

/// A node that has a lease.
fn node_with_lease() -> Node {
    let limit = Limit::new(20, 1, MINUTE).unwrap();
    let leased = LimitOptions::default().shared(Shared::Leased).on_error(OnError::Deny);
    let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
    let node =
        node_with(limits.limit_with("All", IdFormat::String, limit, leased).unwrap().build());
    for _ in 0..2 {
        node.hand.advance(MS);
        assert!(node.is_allowed(1));
    }
    assert_eq!(node.limiter.counters().store().unwrap().held_units, 8);
    node
}

/// The answer of a call that does not ask the store in memory.
fn here<T>(limit: &SharedLimit, call: impl Future<Output = T>) -> T {
    let calls = || limit.limit.limiter.store().map(|store| store.calls());
    let before = calls();
    let answer = now(call);
    assert_eq!(calls(), before, "it asks the store");
    answer
}

/// The answer of a call that asks no store.
fn now<T>(call: impl Future<Output = T>) -> T {
    let Poll::Ready(answer) = poll(std::pin::pin!(call)) else { panic!("a lease decides") };
    answer
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The answer of a call that has it.
fn answered<T>(call: Pin<&mut impl Future<Output = T>>) -> T {
    let Poll::Ready(answer) = poll(call) else { panic!("answered") };
    answer
}

impl Node {
    /// The units left of this node's bucket, and of that of all nodes.
    fn left(&self) -> (Option<u64>, Option<u64>) {
        let own = self.own.check("a", 0).unwrap().remaining();
        (own, self.answer(self.all.check("a", 0)).unwrap().remaining())
    }

    /// The answer of one call, which the store's thread makes at once.
    fn answer<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = Box::pin(call);
        match poll(call.as_mut()) {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                self.store.run_all();
                answered(call.as_mut())
            }
        }
    }

    /// Whether a spend of the shared bucket is allowed.
    fn is_allowed(&self, cost: u64) -> bool {
        self.answer(self.all.spend("a", cost)).unwrap().allowed()
    }

    /// Whether a batch of both buckets is allowed.
    fn are_allowed(&self, cost: u64) -> bool {
        let members = [self.own.member("a").cost(cost).into(), self.all.member("a").cost(cost)];
        self.answer(self.limiter.shared_batch(&members).spend()).unwrap().allowed()
    }

    /// Makes the store fail from now on, or answer again. Then its first answer ends the outage.
    fn set_outage(&self, is_on: bool) {
        if !is_on {
            self.hand.advance(Duration::from_secs(5));
        }
        let error = || Error::new(ErrorKind::StoreOutage, "planted");
        *self.store.fails.lock() = is_on.then(error);
    }

    /// Counts of allowed and denied calls, of both limits.
    fn counts(&self) -> Vec<(u64, u64)> {
        let counters = self.limiter.counters();
        counters.limits.iter().map(|limit| (limit.allowed, limit.denied)).collect()
    }
}

#[test]
fn an_abandoned_call_charges_all_or_nothing() {
    for (cost, before_poll) in [(1, true), (1, false), (4, false)] {
        let node = node();
        assert_eq!(node.left(), (Some(10), Some(5)));
        let members = [node.own.member("a").cost(cost).into(), node.all.member("a").cost(cost)];
        let spend = |times| {
            for _ in 0..times {
                let batch = node.limiter.shared_batch(&members);
                let mut spent = Box::pin(batch.spend());
                if !before_poll {
                    assert!(poll(spent.as_mut()).is_pending());
                }
            }
        };
        spend(2);
        let charged = if before_poll { 0 } else { 2 * cost };
        assert_eq!(node.own.check("a", 0).unwrap().remaining(), Some(10 - charged), "held");
        assert_eq!(node.store.run_all(), if before_poll { 0 } else { 2 });
        // Of two batches of 4, the store denies the second, and the node takes its part back.
        let kept = if cost == 4 { 4 } else { charged };
        assert_eq!(node.left(), (Some(10 - kept), Some(5 - kept)));
        let counted = match (before_poll, cost) {
            (true, _) => vec![(0, 0), (0, 0)],
            (_, 1) => vec![(2, 0), (2, 0)],
            _ => vec![(1, 0), (1, 1)],
        };
        assert_eq!(node.counts(), counted);
    }
}

#[test]
fn a_failing_store_leaves_local_buckets_alone() {
    let node = node();
    let members = [node.own.member("a").cost(3).into(), node.all.member("a").cost(3)];
    let batch = node.limiter.shared_batch(&members);
    let mut spent = Box::pin(batch.spend());
    *node.store.fails.lock() = Some(Error::new(ErrorKind::Store, "planted"));
    assert!(poll(spent.as_mut()).is_pending());
    node.store.run_all();
    assert_eq!(answered(spent.as_mut()).unwrap_err().to_string(), "planted");
    *node.store.fails.lock() = None;
    assert_eq!(node.left(), (Some(10), Some(5)));
    // The store's thread ends with a task that has not begun.
    let mut spent = Box::pin(batch.spend());
    assert!(poll(spent.as_mut()).is_pending());
    node.store.tasks.lock().clear();
    let Poll::Ready(Err(error)) = poll(spent.as_mut()) else { panic!("it ended") };
    assert!(error.is_store_failure(), "{error}");
    assert_eq!(node.left(), (Some(10), Some(5)), "a task that is dropped gives its charges back");
}

#[test]
fn a_reload_meanwhile_keeps_the_decision() {
    let node = node();
    let members = [node.own.member("a").into(), node.all.member("a")];
    let batch = node.limiter.shared_batch(&members);
    let mut spent = Box::pin(batch.spend());
    assert!(poll(spent.as_mut()).is_pending());
    let none = Limits::builder().limit("Own", IdFormat::String, None).unwrap();
    let none = none.build();
    let error = node.limiter.reload(none.clone()).unwrap_err().to_string();
    assert!(error.starts_with("the new limits lack All, of which handles"), "{error}");
    node.limiter.reload_with(none, ReloadOptions::default().remove_missing(true)).unwrap();
    node.store.run_all();
    let decision = answered(spent.as_mut()).unwrap();
    assert_eq!((decision.allowed(), decision.remaining()), (true, Some(4)));
}

#[test]
fn a_denied_local_member_asks_no_store() {
    let node = node();
    assert!(node.own.spend("a", 10).unwrap().allowed());
    let members = [node.all.member("a"), node.own.member("a").into()];
    let batch = node.limiter.shared_batch(&members);
    assert_eq!(now(batch.spend()).unwrap().denied_by(), Some(1));
    assert_eq!(node.store.run_all(), 0);
    assert_eq!(node.left().1, Some(5));
}

#[test]
fn an_outage_denies_where_the_limit_says_so() {
    let node = node_of(exact().on_error(OnError::Deny));
    node.set_outage(true);
    assert!(!node.are_allowed(1));
    assert_eq!(node.own.check("a", 0).unwrap().remaining(), Some(10), "given back");
    let denied = node.answer(node.all.spend("a", 1)).unwrap();
    assert_eq!((denied.allowed(), denied.retry_in()), (false, Duration::from_secs(1)));
    assert_eq!(node.counts(), [(0, 0), (0, 2)], "they are decisions, and counted as such");
    assert_eq!(node.limiter.counters().limits[1].errors, 0);
    // Calls that change the bucket by hand have no policy.
    let error = node.answer(node.all.refund("a", 1)).unwrap_err();
    assert!(error.is_store_failure(), "{error}");
    node.set_outage(false);
    assert!(node.are_allowed(1));
    assert_eq!(node.left(), (Some(9), Some(4)));
}

#[test]
fn an_outage_gives_out_a_part() {
    let node = node_of(exact().fraction(Factor::ONE));
    let time = node.hand.clone();
    node.set_outage(true);
    assert!(!node.are_allowed(1), "a part begins empty");
    time.advance(MINUTE);
    assert!(node.answer(node.all.check("a", 1)).unwrap().allowed());
    assert!(!node.are_allowed(2));
    assert!(node.are_allowed(1), "neither the check nor the denied batch charged");
    assert!(!node.are_allowed(1));
    assert_eq!(node.left(), (Some(9), Some(0)));
    time.advance(2 * MINUTE);
    assert!(node.is_allowed(2));
    // A new end and a new beginning: a part that is empty again.
    node.set_outage(false);
    assert_eq!(node.left().1, Some(5));
    node.set_outage(true);
    assert!(!node.is_allowed(1));
    time.advance(MINUTE);
    assert!(node.is_allowed(1));
}

#[test]
fn an_outage_allows_for_a_time() {
    let allow = exact().on_error(OnError::Allow).allow_for(MINUTE);
    let node = node_of(allow.fraction(Factor::ONE));
    let time = node.hand.clone();
    node.set_outage(true);
    assert!((0..100).all(|_| node.is_allowed(5)));
    let decision = node.answer(node.all.spend("a", 5)).unwrap();
    assert_eq!(decision.remaining(), None, "no bucket has decided it");
    // The own members of a batch count as ever.
    assert!(node.are_allowed(4) && node.are_allowed(4) && !node.are_allowed(4));
    time.advance(MINUTE);
    assert!(node.is_allowed(1) && !node.is_allowed(1));
}

#[test]
fn a_reload_in_an_outage_changes_the_policy() {
    let node = node_of(exact().on_error(OnError::Deny));
    node.set_outage(true);
    assert!(!node.is_allowed(1));
    node.limiter.reload(limits(exact().on_error(OnError::Allow))).unwrap();
    assert!(node.is_allowed(1));
    node.limiter.reload(limits(LimitOptions::default())).unwrap();
    assert_eq!(node.answer(node.all.spend("a", 1)).unwrap().remaining(), Some(4));
    node.limiter.reload(limits(exact().on_error(OnError::Deny))).unwrap();
    assert!(!node.is_allowed(1));
}

#[test]
fn an_outage_denies_nothing_in_shadow_mode() {
    let shadow = exact().on_error(OnError::Deny).mode(LimitMode::Shadow);
    let node = node_of(shadow);
    node.set_outage(true);
    assert!(node.is_allowed(1) && node.are_allowed(1));
}

#[test]
fn an_explanation_is_never_a_policys() {
    let node = node_of(exact().on_error(OnError::Allow));
    node.set_outage(true);
    assert!(node.is_allowed(1), "a spend is");
    let error = node.answer(node.all.explain("a", 1)).unwrap_err();
    assert!(error.is_store_failure() && error.to_string() == "planted", "{error}");
    node.set_outage(false);
    let call = node.answer(node.all.explain("a", 1)).unwrap().call.unwrap();
    assert_eq!(call.state.remaining(), Some(5));
}
