//! Several nodes take leases from one store, whose calls are slow and get lost, while nodes crash, reload and give leases
//! back. All units that they used must fit one local bucket. So must the units that a batch has taken from leases and given back, because the
//! store denied it or did not answer: that is a charge, and a return (docs/guarantees.md). The bucket may have been full in between.

use std::collections::{BTreeMap, HashMap};

use super::one_bucket::beyond_one_bucket;
use super::*;
use crate::clock::ManualClock;
use crate::random::Random;
use crate::shared::protocol::change::BucketChange;
use crate::shared::protocol::text::ORIGIN_NS;
use crate::shared::protocol::{Changed, SharedMode, lease::LeaseRequest};
use crate::util::sync::{Ordering, Switch};

const NODES: usize = 4;
const KEYS: [&str; 2] = ["a", "b"];
const MS: u64 = 1_000_000;
/// The most by which a node's clock is slower than the store's, in millionths: the proof allows a thousandth.
const MAX_SLOW_MILLIONTHS: u64 = 990;

/// The store that all nodes share, and all uses of its units.
struct World {
    store: Arc<dyn SharedStore>,
    clock: Clock,
    random: Random,
    is_guarded: bool,
    /// Calls that reach the store after their node has given them up.
    late: Vec<(u64, Arc<[StoreMember]>)>,
    /// The buckets of the last call.
    asked: Vec<Box<str>>,
    /// Whether the store has denied the last call.
    denied: Arc<Switch>,
    /// The charges and the returns of each bucket, by the store's time.
    uses: HashMap<Box<str>, Uses>,
    seen: BTreeMap<&'static str, u64>,
}

/// Times since 1970 in ns, and units.
#[derive(Clone, Default)]
struct Uses {
    charges: Vec<(u64, u64)>,
    returns: Vec<(u64, u64)>,
}

impl World {
    fn now_ns(&self) -> u64 {
        ORIGIN_NS - 1 + self.clock.now_ns()
    }

    fn see(&mut self, event: &'static str, units: u64) {
        *self.seen.entry(event).or_default() += units;
    }

    fn used(&mut self, key: &str, at_ns: u64, cost: u64) {
        self.uses.entry(key.into()).or_default().charges.push((at_ns, cost));
        self.see("units", cost);
    }

    /// Records units that were taken at `at_ns`, and come back now.
    fn returned(&mut self, key: &str, at_ns: u64, cost: u64) {
        let now_ns = self.now_ns();
        self.see("units back to leases", cost);
        // A batch that is denied at once may have taken none.
        if at_ns < now_ns {
            let uses = self.uses.entry(key.into()).or_default();
            uses.charges.push((at_ns, cost));
            uses.returns.push((now_ns, cost));
        }
    }

    /// Charges a batch at the store.
    fn charge(&mut self, members: &Arc<[StoreMember]>) -> Result<Found, Error> {
        let found = now(self.store.charge(members.clone()))?;
        if found.denied.is_none() {
            for member in members.iter() {
                if member.mode == SharedMode::CheckAndSpend {
                    self.used(&member.key, found.unix_ns, member.cost);
                    self.see("units charged at the store", member.cost);
                }
            }
            self.see(
                "leases granted",
                found.leased.iter().filter(|&&units| units > 0).count() as u64,
            );
        }
        if !self.is_guarded {
            members.iter().for_each(|member| self.forget_leases(member));
        }
        Ok(found)
    }

    /// Removes the leased units from a text: then the store knows of no lease, and the bucket refills past them.
    fn forget_leases(&mut self, member: &StoreMember) {
        let read =
            StoreMember { cost: 0, lease: None, mode: SharedMode::CheckOnly, ..member.clone() };
        let before = now(self.store.charge([read].into())).unwrap().texts.pop().flatten();
        let Some(text) = &before else { return };
        let text = String::from_utf8(text.to_vec()).unwrap();
        let without: Vec<_> = text.split('|').take(2).collect();
        self.store.put(&member.key, &without.join("|"));
    }
}

/// The result of a call of the store in memory, which answers at once.
fn now<T>(mut reply: Reply<T>) -> Result<T, Error> {
    let Poll::Ready(answer) = poll(reply.as_mut()) else {
        panic!("the store in memory answers at once")
    };
    answer
}

/// A node's way to the store.
#[derive(Clone)]
struct Wire {
    world: Arc<Mutex<World>>,
    tasks: Arc<Mutex<Vec<Task>>>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

/// A call on its way.
struct Sent {
    world: Arc<Mutex<World>>,
    members: Arc<[StoreMember]>,
    arrives_ns: u64,
    answered_ns: u64,
    gives_up_ns: u64,
    found: Option<Result<Found, Error>>,
    denied: Arc<Switch>,
}

impl Future for Sent {
    type Output = Result<Found, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let world = self.world.clone();
        let mut world = world.lock();
        let now_ns = world.now_ns();
        if self.found.is_none() && now_ns >= self.arrives_ns {
            self.found = Some(world.charge(&self.members));
        }
        if let Some(found) = self.found.as_ref().filter(|_| now_ns >= self.answered_ns) {
            let is_denied = found.as_ref().is_ok_and(|found| found.denied.is_some());
            self.denied.store(is_denied, Ordering::Relaxed);
            return Poll::Ready(found.clone());
        }
        if now_ns < self.gives_up_ns {
            // Several calls that are waited for together are polled when they are woken.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        world.see("calls without an answer", 1);
        Poll::Ready(Err(Error::new(ErrorKind::StoreOutage, "no answer")))
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if self.found.is_none() {
            let late = (self.arrives_ns, self.members.clone());
            self.world.lock().late.push(late);
        }
    }
}

impl SharedStore for Wire {
    fn charge(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        let mut world = self.world.lock();
        let denied = Arc::<Switch>::default();
        world.denied = denied.clone();
        world.asked = members.iter().map(|member| member.key.clone()).collect();
        let ends = |member: &StoreMember| {
            member.lease.is_some_and(|LeaseRequest { end, .. }| end.is_some())
        };
        let ends = members.iter().filter(|member| ends(member)).count();
        world.see("leases given back", ends as u64);
        let now_ns = world.now_ns();
        let is_slow = world.random.chance(1, 20);
        let arrives_ns = now_ns + world.random.below(if is_slow { 100 * MS } else { 3 * MS });
        let is_lost = world.random.chance(1, 30);
        let back_ns = if is_lost { 1000 * MS } else { world.random.below(3 * MS) };
        drop(world);
        Box::pin(Sent {
            world: self.world.clone(),
            members,
            arrives_ns,
            answered_ns: arrives_ns + back_ns,
            gives_up_ns: now_ns + 50 * MS,
            found: None,
            denied,
        })
    }

    fn change(&self, changes: Arc<[BucketChange]>) -> Reply<Changed> {
        self.world.lock().store.change(changes)
    }

    fn is_on(&self, _: &Clock) -> bool {
        true
    }

    fn run(&self, mut task: Task) {
        if poll(task.as_mut()).is_pending() {
            self.tasks.lock().push(task);
        }
    }
}

type Spend = Pin<Box<dyn Future<Output = Result<crate::Decision, Error>>>>;

/// A spend whose answer has not come, and the units that it has taken from leases.
struct Waiting {
    spend: Spend,
    from_leases: Vec<(u64, &'static str, u64)>,
    /// The buckets and the cost, and whether the store has denied the call.
    asked: (Vec<&'static str>, u64, Arc<Switch>),
}

struct SimulatedNode {
    limiter: Limiter,
    bucket: SharedLimit,
    algorithm: &'static str,
    wire: Wire,
    hand: ManualClock,
    slow_millionths: u64,
    waiting: Vec<Waiting>,
    reloads: u64,
}

fn leased_limits(limit: &Limit, other: u64) -> Limits {
    let leased = LimitOptions::default()
        .shared(Shared::Leased)
        .lease(Duration::from_millis(200))
        .on_error(OnError::Deny);
    let other = Limit::new(other + 1, 1, MINUTE).unwrap();
    let limits =
        Limits::builder().limit_with("All", IdFormat::String, limit.clone(), leased).unwrap();
    limits.limit("Other", IdFormat::String, other).unwrap().build()
}

impl SimulatedNode {
    fn start(world: &Arc<Mutex<World>>, limit: &Limit) -> SimulatedNode {
        let wire = Wire { world: world.clone(), tasks: Arc::default() };
        let (clock, hand) = Clock::manual();
        let slow_millionths = world.lock().random.below(2 * MAX_SLOW_MILLIONTHS);
        hand.advance(Duration::from_millis(1 + world.lock().random.below(1000)));
        let handle = StoreHandle { store: Arc::new(wire.clone()), prefix: Box::default() };
        let options = LimiterOptions::default().clock(clock).store(Store(handle));
        let limiter = Limiter::with_options(leased_limits(limit, 0), options).unwrap();
        let bucket = limiter.shared("All").unwrap();
        let (waiting, algorithm) = (Vec::new(), limit.algorithm());
        SimulatedNode {
            limiter,
            bucket,
            algorithm,
            wire,
            hand,
            slow_millionths,
            waiting,
            reloads: 0,
        }
    }

    fn advance(&self, step_ns: u64) {
        // From as fast as the store's clock to slower by a thousandth, or faster by as much.
        let slower = step_ns * self.slow_millionths / 1_000_000;
        self.hand.advance(Duration::from_nanos(
            step_ns + step_ns * MAX_SLOW_MILLIONTHS / 1_000_000 - slower,
        ));
    }

    /// The name of a bucket in the store.
    fn name(&self, key: &str) -> String {
        match self.algorithm {
            "gcra" => format!("All:{key}"),
            other => format!("All/{other}:{key}"),
        }
    }

    /// Spends from a lease, or by the store if there is none.
    fn spend(&mut self, keys: &[&'static str], cost: u64) {
        if let ([key], Some(decision)) = (keys, self.bucket.spend_here(keys[0], cost)) {
            if decision.allowed() {
                let mut world = self.wire.world.lock();
                let now_ns = world.now_ns();
                world.used(&self.name(key), now_ns, cost);
                world.see("units spent from leases", cost);
            } else {
                self.wire.world.lock().see("denials from the cache", 1);
            }
            return;
        }
        {
            let mut world = self.wire.world.lock();
            world.asked.clear();
            world.denied = Arc::default();
        }
        let (limiter, bucket, owned) = (self.limiter.clone(), self.bucket.clone(), keys.to_vec());
        let mut spend: Spend = Box::pin(async move {
            let members: Vec<_> = owned.iter().map(|key| bucket.member(*key).cost(cost)).collect();
            limiter.shared_batch(&members).spend().await
        });
        let polled = poll(spend.as_mut());
        let world = self.wire.world.lock();
        let is_asked = |key: &str| world.asked.iter().any(|asked| **asked == *self.name(key));
        let from_leases = keys.iter().filter(|key| !is_asked(key));
        let from_leases = from_leases.map(|key| (world.now_ns(), *key, cost)).collect();
        let asked = (keys.to_vec(), cost, world.denied.clone());
        drop(world);
        let mut waiting = Waiting { spend, from_leases, asked };
        match polled {
            Poll::Ready(decision) => self.done(&mut waiting, decision),
            Poll::Pending => self.waiting.push(waiting),
        }
    }

    fn done(&self, waiting: &mut Waiting, decision: Result<crate::Decision, Error>) {
        let is_allowed = decision.is_ok_and(|decision| decision.allowed());
        let mut world = self.wire.world.lock();
        for (at_ns, key, cost) in waiting.from_leases.drain(..) {
            if is_allowed {
                world.used(&self.name(key), at_ns, cost);
                world.see("units of batches from leases", cost);
            } else {
                world.returned(&self.name(key), at_ns, cost);
            }
        }
        // A call that the store has denied took the units of a lease that another call has got meanwhile.
        let (keys, cost, denied) = &waiting.asked;
        if let ([key], true) = (&**keys, is_allowed && denied.load(Ordering::Relaxed)) {
            let now_ns = world.now_ns();
            world.used(&self.name(key), now_ns, *cost);
            world.see("units of denied calls from leases", *cost);
        }
    }

    fn run(&mut self) {
        let tasks = std::mem::take(&mut *self.wire.tasks.lock());
        let waiting = tasks
            .into_iter()
            .filter_map(|mut task| poll(task.as_mut()).is_pending().then_some(task));
        let waiting: Vec<_> = waiting.collect();
        self.wire.tasks.lock().extend(waiting);
        for mut waiting in std::mem::take(&mut self.waiting) {
            match poll(waiting.spend.as_mut()) {
                Poll::Ready(decision) => self.done(&mut waiting, decision),
                Poll::Pending => self.waiting.push(waiting),
            }
        }
    }
}

/// Runs the nodes until they have used `units`. Returns the counts of events, and of uses that do not fit one local bucket.
fn simulate(
    limit: &Limit,
    seed: u64,
    units: u64,
    is_guarded: bool,
) -> (BTreeMap<&'static str, u64>, usize) {
    let (clock, hand) = Clock::manual();
    hand.advance(Duration::from_secs(1));
    let world = Arc::new(Mutex::new(World {
        store: Store::in_memory(clock.clone()).0.store,
        clock,
        random: Random(seed),
        is_guarded,
        late: Vec::new(),
        asked: Vec::new(),
        denied: Arc::default(),
        uses: HashMap::new(),
        seen: BTreeMap::from([("units", 0)]),
    }));
    let mut nodes: Vec<_> = (0..NODES).map(|_| SimulatedNode::start(&world, limit)).collect();
    let below = |bound| world.lock().random.below(bound);
    let (mut phase_ns, mut busy, mut pause_ns) = (MS, None, 0);
    loop {
        // Times in which one node is busy or all of them are, and pauses in which buckets fill.
        if below(80) == 0 {
            phase_ns = [50_000, MS, 4 * MS][below(3) as usize];
            busy = if below(2) == 0 { Some(below(NODES as u64)) } else { None };
            pause_ns = if below(2) == 0 { below(300 * MS) } else { 0 };
        }
        let step_ns = below(phase_ns) + std::mem::take(&mut pause_ns);
        hand.advance(Duration::from_nanos(step_ns));
        nodes.iter().for_each(|node| node.advance(step_ns));
        let now_ns = world.lock().now_ns();
        let late = std::mem::take(&mut world.lock().late);
        for (arrives_ns, members) in late {
            if arrives_ns > now_ns {
                world.lock().late.push((arrives_ns, members));
            } else {
                let mut world = world.lock();
                let _ = world.charge(&members).unwrap();
                world.see("late calls", 1);
            }
        }
        nodes.iter_mut().for_each(SimulatedNode::run);
        let node = &mut nodes[busy.unwrap_or_else(|| below(NODES as u64)) as usize];
        match below(1000) {
            0 => {
                *node = SimulatedNode::start(&world, limit);
                world.lock().see("crashes", 1);
            }
            1 => {
                node.reloads += 1;
                let _ = node.limiter.reload(leased_limits(limit, node.reloads)).unwrap();
                world.lock().see("reloads", 1);
            }
            2 => {
                let (limiter, world) = (node.limiter.clone(), world.clone());
                let mut given = Box::pin(async move { limiter.give_leases_back().await });
                let _ = poll(given.as_mut());
                world.lock().see("returns", 1);
            }
            3..20 => while !node.limiter.sweep(100).finished {},
            20..100 => node.spend(&KEYS, 1 + below(2)),
            100..140 => {
                let mut checked = Box::pin(node.bucket.check("a", 1));
                let _ = poll(checked.as_mut());
            }
            // Without the guard the violations need leases that last.
            140..180 if is_guarded => {
                let (returned, _) = node.limiter.return_ending_leases();
                if returned > 0 {
                    world.lock().see("leases returned before their end", returned as u64);
                }
            }
            _ => {
                // One bucket is hot, the other is not.
                let key = if below(20) == 0 { KEYS[1] } else { KEYS[0] };
                let cost = if below(10) == 0 { 1 + below(5) } else { 1 };
                node.spend(&[key], cost);
            }
        }
        if world.lock().seen["units"] >= units {
            break;
        }
    }
    drop(nodes);
    let world = world.lock();
    let all = world.uses.values();
    let violations = all.map(|uses| beyond_one_bucket(limit, &uses.charges, &uses.returns)).sum();
    (world.seen.clone(), violations)
}

fn simulated() -> [Limit; 2] {
    let second = Duration::from_secs(1);
    [Limit::new(100, 200, second).unwrap(), Limit::new(30, 400, second).unwrap()]
}

/// The number of units: `TOLLGATE_LEASE_UNITS=1000000` for the long run.
fn units() -> u64 {
    std::env::var("TOLLGATE_LEASE_UNITS").map_or(10_000, |units| units.parse().unwrap())
}

#[test]
fn leases_keep_the_bound_of_one_bucket() {
    for limit in simulated() {
        let (seen, violations) = simulate(&limit, 7, units() / 4, true);
        println!("{limit}: {violations} violations, {seen:?}");
        assert_eq!(violations, 0, "{limit}: {seen:?}");
        for event in [
            "units spent from leases",
            "units of batches from leases",
            "units back to leases",
            "units of denied calls from leases",
            "denials from the cache",
            "leases given back",
            "calls without an answer",
            "late calls",
            "crashes",
            "reloads",
            "returns",
            "leases returned before their end",
        ] {
            assert!(seen.contains_key(event), "{limit}: no {event}: {seen:?}");
        }
    }
}

/// The same nodes, with a store that forgets which units are leased.
#[test]
fn leases_without_guard_exceed_the_bound() {
    for limit in &simulated() {
        // Seed 9 exceeded the bound when this was written; it is tried first because each seed takes seconds.
        let seed = (9..20).chain(0..9).find(|&seed| simulate(limit, seed, 5_000, false).1 > 0);
        println!("{limit}: seed {seed:?}");
        assert!(seed.is_some(), "{limit}");
    }
}
