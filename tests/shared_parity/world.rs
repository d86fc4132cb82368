//! Several nodes on one store in memory with one clock, and the oracle beside them.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::reload::{CarryOver, ReloadOptions};
use tollgate::shared::Store;
use tollgate::{Clock, Limiter, LimiterOptions};

use super::answers::{folder, ns, options};
use super::bucket::{Algorithm, Bucket, Buckets, Key};
use super::call::call;
use super::ends::{PutInPlace, terms_of};
use super::ledger::Ledger;
use super::node::{Known, Node, node_options, ready};
use super::ops::Op;
use super::oracle::bucket::Rule;
use super::oracle::{Oracle, Terms};
use super::run::{On, Start};
use super::spec::{KNOWN, Sharing, Spec};

/// The latest time of the clock: 800 days.
const LATEST_NS: i128 = 800 * 86_400 * 1_000_000_000;
pub(crate) const NS_PER_MS: i128 = 1_000_000;

pub(crate) struct World {
    on: On,
    began_s: i64,
    clock: Clock,
    hand: ManualClock,
    pub(crate) store: Store,
    /// The time of the store.
    pub(crate) now: i128,
    pub(crate) floor: i128,
    pub(crate) nodes: Vec<Node>,
    pub(crate) buckets: Buckets,
    /// The units that calls of shared limits have used.
    pub(crate) ledger: Ledger,
    /// Whether the ledger has all calls: it knows no factors, and no clock that goes back.
    pub(crate) is_in_ledger: bool,
    folder: Option<tempfile::TempDir>,
    saved: Option<Oracle>,
}

/// A shared bucket of a call: its key, and the rule that applies without the call's factor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InStore {
    pub(crate) key: Key,
    pub(crate) rule: Rule,
}

impl World {
    pub(crate) fn new(on: On, start: &Start) -> World {
        let (clock, hand) = Clock::manual();
        let now = i128::from(start.now);
        hand.set(ns(now - 1));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let store = Store::in_memory(clock.clone());
        let mut world = World {
            on,
            began_s: since.as_secs() as i64,
            clock,
            hand,
            store,
            now,
            floor: now,
            nodes: Vec::new(),
            buckets: Buckets::default(),
            ledger: Ledger::default(),
            is_in_ledger: true,
            folder: None,
            saved: None,
        };
        for _ in 0..start.nodes {
            let before = SystemTime::now();
            let limiter =
                Limiter::with_options(start.spec.build(world.began_s), world.options()).unwrap();
            let terms = Terms::new(start.spec.clone());
            let mut node = Node::new(limiter, Oracle::new(terms, now), 0);
            node.oracle.store_now = Some(now);
            node.oracle.terms = world.terms(&node, &start.spec, now, (before, SystemTime::now()));
            node.use_largest_factor();
            world.nodes.push(node);
        }
        world
    }

    fn options(&self) -> LimiterOptions {
        let engine = if self.on == On::LockFree { Engine::LockFree } else { Engine::Exact };
        node_options(options(None, self.clock.clone(), engine), self.clock.clone(), &self.store)
    }

    /// The terms of limits that a node has put in place at `at` of its clock.
    fn terms(
        &self,
        node: &Node,
        spec: &Spec,
        at: i128,
        between: (SystemTime, SystemTime),
    ) -> Terms {
        let (began_s, ahead) = (self.began_s, node.ahead);
        let applies = &|limit: usize, id: &str| {
            node.handles[limit].as_ref().map(|handle| handle.limit_for(id).unwrap())
        };
        let terms = terms_of(spec, PutInPlace { began_s, applies, at, between }, |at| {
            self.hand.set(ns((at - ahead - 1).max(0)));
        });
        self.hand.set(ns(self.now - 1));
        terms
    }

    pub(crate) fn at(&self, node: usize) -> usize {
        node % self.nodes.len()
    }

    fn set_now(&mut self, now: i128) {
        let floor = self.nodes.iter().map(|node| node.oracle.floor - node.ahead).max();
        let now = now.clamp(self.floor.max(floor.unwrap_or(0)), LATEST_NS);
        let before = self.now;
        for at in 0..self.nodes.len() {
            let rules = self.rules(at);
            let node = &mut self.nodes[at];
            node.oracle.set_now(now + node.ahead);
            node.oracle.store_now = Some(now);
            self.limits_changed(at, &rules);
        }
        self.floor = self.floor.max(self.buckets.last_end(now));
        self.buckets.set_now(before, now);
        self.now = now;
        self.hand.set(ns(now - 1));
    }

    /// The rules of a node's shared limits, by limit and id.
    fn rules(&self, at: usize) -> Vec<Option<InStore>> {
        let each = KNOWN.iter().enumerate().flat_map(|(limit, known)| {
            (0..known.ids.len()).map(move |id| self.in_store(at, limit, id))
        });
        each.collect()
    }

    /// The shared bucket of an id, if its limit is shared on a node and applies to it.
    pub(crate) fn in_store(&self, at: usize, limit: usize, id: usize) -> Option<InStore> {
        let oracle = &self.nodes[at].oracle;
        let rule = oracle.rule(call(limit, id, 0)).filter(|_| oracle.terms.is_shared(limit))?;
        Some(InStore { key: (limit, Algorithm::of(rule), id), rule })
    }

    /// Records that other limits apply to ids of a node: its leases of them are lost.
    fn limits_changed(&mut self, at: usize, before: &[Option<InStore>]) {
        for (old, new) in before.iter().zip(self.rules(at)) {
            let is_same =
                |new: InStore| old.is_some_and(|old| (old.key, old.rule) == (new.key, new.rule));
            if new.is_some_and(is_same) {
                continue;
            }
            if let Some(new) = new {
                let now = self.now;
                self.buckets.bucket(new.key).touch(new.rule, now);
            }
            let Some(old) = old else { continue };
            // Units in leases take another time by other numbers.
            let of_bucket = self.nodes[at].denials.iter_mut().filter(|it| it.key == old.key);
            of_bucket.for_each(|denial| denial.found.is_sure &= denial.leased == 0);
            let now = self.now;
            let bucket = self.buckets.bucket(old.key);
            bucket.lose_lease(at, now);
            // Other nodes hold units by other numbers.
            bucket.is_sure &= !bucket.has_leases(now);
        }
    }

    pub(crate) fn sharing(&self, at: usize, limit: usize) -> Sharing {
        let spec = self.nodes[at].oracle.terms.spec.limit(limit);
        spec.map_or(Sharing::Local, |limit| limit.sharing)
    }

    /// The length of the leases of a limit on a node, in ns; 0 if it takes none.
    pub(crate) fn lease_ns(&self, at: usize, limit: usize) -> i128 {
        match self.sharing(at, limit) {
            Sharing::Leased { lease_ms } => i128::from(lease_ms) * NS_PER_MS,
            _ => 0,
        }
    }

    /// The longest lease of a limit on any node.
    pub(crate) fn longest_lease_ns(&self, limit: usize) -> i128 {
        (0..self.nodes.len()).map(|at| self.lease_ns(at, limit)).max().unwrap_or(0)
    }

    /// Asks all nodes for their state of a bucket, and records the leases that they hold. Returns the units of each node.
    pub(crate) fn look(&mut self, key: Key) -> Result<Vec<u64>, String> {
        let (limit, _, id) = key;
        let mut held = Vec::new();
        for at in 0..self.nodes.len() {
            let place = self.in_store(at, limit, id).filter(|it| it.key == key);
            if let Some(place) = place {
                let now = self.now;
                self.buckets.bucket(key).find(place.rule, now);
                self.buckets.bucket(key).keep_longer(place.rule, now);
            }
            let is_its = place.is_some();
            let known = if is_its { self.nodes[at].known(limit, id) } else { Known::Nothing };
            let units = match known {
                Known::Units(units) if self.lease_ns(at, limit) > 0 => units,
                Known::Units(units) => {
                    return Err(format!("node {at} knows {units} units of {key:?}"));
                }
                Known::Denied => {
                    if self.nodes[at].kept(key, self.now).is_empty() {
                        return Err(format!("node {at} denies {key:?} by itself"));
                    }
                    0
                }
                Known::Nothing | Known::Unlimited => 0,
            };
            held.push(units);
            if units > 0 {
                let (now, length) = (self.now, self.lease_ns(at, limit));
                self.buckets.bucket(key).lease(at, now + 2 * length);
            }
        }
        if held.iter().any(|&units| units > 0) && !self.is_of_one_rule(key) {
            // Units by the numbers of one node are others by those of another.
            self.buckets.bucket(key).is_sure = false;
        }
        Ok(held)
    }

    /// Records a call for a bucket of which nodes have different numbers. The ledger knows the numbers of one node.
    pub(crate) fn note_mixed(&mut self, key: Key) {
        if !self.is_of_one_rule(key) {
            self.buckets.bucket(key).is_mixed = true;
            self.is_in_ledger = false;
        }
    }

    fn is_of_one_rule(&self, (limit, algorithm, id): Key) -> bool {
        let rules = (0..self.nodes.len()).filter_map(|at| self.in_store(at, limit, id));
        let rules: Vec<Rule> = rules.filter(|it| it.key.1 == algorithm).map(|it| it.rule).collect();
        rules.windows(2).all(|two| two[0] == two[1])
    }

    pub(crate) fn bucket(&mut self, key: Key) -> Bucket {
        *self.buckets.bucket(key)
    }

    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Advance(by) => self.set_now(self.now + i128::from(*by)),
            Op::Back(by) => {
                self.is_in_ledger = false;
                let has_leases = |at| (0..KNOWN.len()).any(|limit| self.lease_ns(at, limit) > 0);
                if !(0..self.nodes.len()).any(has_leases) {
                    self.set_now(self.now - i128::from(*by));
                }
            }
            Op::ToEnd(by) => {
                let node = &self.nodes[0];
                if let Some(end) = node.oracle.next_end() {
                    self.set_now((end - node.ahead + i128::from(*by)).max(self.now));
                }
            }
            Op::One(node, way, kind, call) => self.one(self.at(*node), *way, *kind, *call)?,
            Op::Batch(node, way, what, members) => {
                self.batch(self.at(*node), *way, *what, &members.0)?;
            }
            Op::Explain(node, call) => self.explain(self.at(*node), *call)?,
            Op::UpTo(node, call) => self.up_to(self.at(*node), *call)?,
            Op::Drain(node, call) => self.drain(self.at(*node), *call)?,
            Op::Settled(node, call, actual) => self.settled(self.at(*node), *call, *actual)?,
            Op::Reserved(node, call, at_most, cancels) => {
                self.reserved(self.at(*node), *call, *at_most, *cancels)?;
            }
            Op::Block(node, limit, id, time) => {
                self.block(self.at(*node), *limit, *id, (*time).into())?;
            }
            Op::Unblock(node, limit, id) => self.unblock(self.at(*node), *limit, *id)?,
            Op::Reload(spec, (debt, None)) => {
                for at in 0..self.nodes.len() {
                    self.reload(at, spec, *debt)?;
                }
            }
            Op::Reload(spec, (debt, Some(node))) => self.reload(self.at(*node), spec, *debt)?,
            Op::Sweep(node, cells) => {
                let at = self.at(*node);
                let _ = self.nodes[at].limiter.sweep(*cells);
                self.nodes[at].oracle.swept();
            }
            Op::Enable(node, enabled) => self.enable(self.at(*node), *enabled)?,
            Op::GiveBack(None) => {
                for at in 0..self.nodes.len() {
                    self.give_back(at)?;
                }
            }
            Op::GiveBack(Some(node)) => {
                let at = self.at(*node);
                self.give_back(at)?;
            }
            Op::Snapshot(node) => self.snapshot(self.at(*node))?,
            Op::Restore(spec, (debt, node)) => self.restore(self.at(*node), spec, *debt)?,
        }
        Ok(())
    }

    pub(crate) fn enable(&mut self, at: usize, enabled: bool) -> Result<(), String> {
        // A node that is switched off does not show its leases.
        for key in self.keys() {
            let _ = self.look(key)?;
            let now = self.now;
            self.buckets.bucket(key).lose_lease(at, now);
        }
        self.nodes[at].limiter.set_enabled(enabled);
        self.nodes[at].oracle.enabled = enabled;
        Ok(())
    }

    /// The keys of all buckets that were used.
    pub(crate) fn keys(&mut self) -> Vec<Key> {
        self.buckets.iter_mut().map(|(key, _)| key).collect()
    }

    /// Gives the leases of a node back.
    pub(crate) fn give_back(&mut self, at: usize) -> Result<(), String> {
        let mut held = 0;
        for key in self.keys() {
            held += usize::from(self.look(key)?[at] > 0);
        }
        let count = ready(self.nodes[at].limiter.give_leases_back())
            .map_err(|error| format!("give back: {error}"))?;
        if count < held {
            return Err(format!("{count} leases were given back, and the node held {held}"));
        }
        self.have_given_back(at)
    }

    /// Records that a node has given its leases back, and checks that it holds none.
    fn have_given_back(&mut self, at: usize) -> Result<(), String> {
        self.buckets.iter_mut().for_each(|(_, bucket)| bucket.give_back(at));
        for key in self.keys() {
            let held = self.look(key)?[at];
            if held > 0 {
                return Err(format!("{key:?}: node {at} holds {held} units that it gave back"));
            }
        }
        Ok(())
    }

    fn reload(&mut self, at: usize, spec: &Spec, debt: CarryOver) -> Result<(), String> {
        let rules = self.rules(at);
        for key in self.keys() {
            let _ = self.look(key)?;
        }
        let before = SystemTime::now();
        let reloaded = self.nodes[at].limiter.reload_with(spec.build(self.began_s), removing(debt));
        let between = (before, SystemTime::now());
        let reloaded = reloaded.map_err(|error| format!("reload: {error}"))?;
        let now = self.now + self.nodes[at].ahead;
        if !reloaded.changed {
            return self.unchanged(at, spec);
        }
        self.nodes[at].find_handles();
        self.nodes[at].use_largest_factor();
        let terms = self.terms(&self.nodes[at], spec, now, between);
        let node = &mut self.nodes[at];
        node.oracle.reload(terms, debt);
        // A reload gives the node's leases back before other limits apply.
        self.have_given_back(at)?;
        self.limits_changed(at, &rules);
        Ok(())
    }

    /// Checks that limits are the same as a node's.
    fn unchanged(&self, at: usize, spec: &Spec) -> Result<(), String> {
        for (limit, known) in KNOWN.iter().enumerate() {
            let of = |spec: &Spec| spec.limit(limit).cloned();
            let (old, new) = (of(&self.nodes[at].oracle.terms.spec), of(spec));
            let has_numbers = |spec: &super::spec::LimitSpec| {
                spec.default.is_some() || !spec.overrides.0.is_empty()
            };
            if old.filter(has_numbers) != new.filter(has_numbers) {
                return Err(format!("the reload says that nothing has changed of {}", known.name));
            }
        }
        Ok(())
    }

    fn file(&mut self) -> PathBuf {
        self.folder.get_or_insert_with(folder).path().join("buckets")
    }

    fn snapshot(&mut self, at: usize) -> Result<(), String> {
        let file = self.file();
        self.nodes[at].limiter.snapshot(file).map_err(|error| format!("snapshot: {error}"))?;
        self.saved = Some(self.nodes[at].oracle.clone());
        Ok(())
    }

    fn restore(&mut self, at: usize, spec: &Spec, debt: CarryOver) -> Result<(), String> {
        // No document defines the fate of a block whose limit was removed.
        let saved = self.saved.clone().filter(|saved| !saved.blocks_more_than(spec));
        let Some(saved) = saved else { return Ok(()) };
        for key in self.keys() {
            let _ = self.look(key)?;
        }
        let rules = self.rules(at);
        let file = self.file();
        let before = SystemTime::now();
        let restored = Limiter::restore_with(spec.build(self.began_s), self.options(), file, debt);
        let between = (before, SystemTime::now());
        let (limiter, restored) = restored.map_err(|error| format!("restore: {error}"))?;
        let node_now = saved.now + restored.elapsed.as_nanos() as i128;
        let mut node = Node::new(limiter, saved, node_now - self.now);
        let terms = self.terms(&node, spec, node_now, between);
        node.oracle.restore(terms, debt, node_now);
        // Drops blocks that are over by now.
        node.oracle.set_now(node_now);
        node.oracle.store_now = Some(self.now);
        node.use_largest_factor();
        self.nodes[at] = node;
        // The old node's leases are lost.
        let now = self.now;
        self.buckets.iter_mut().for_each(|(_, bucket)| bucket.lose_lease(at, now));
        self.limits_changed(at, &rules);
        Ok(())
    }
}

/// The run's handles live as long as its limiter, so each reload that removes a limit does it on purpose.
fn removing(debt: CarryOver) -> ReloadOptions {
    ReloadOptions::from(debt).remove_missing(true)
}
