//! Simulates several nodes: each request of a log goes to one of them, and each way to share limits decides it.

mod results;

use std::collections::BTreeMap;
use std::iter::repeat_with;

use smallvec::SmallVec;
use tollgate::clock::ManualClock;
use tollgate::limits::Shared;
use tollgate::shared::{SharedLimit, Store, block_on};
use tollgate::{Clock, Decision, Error, Limiter, LimiterOptions, Limits};

use crate::Failure;
use crate::args::{ReplayArgs, SharedWay, Spread};
use crate::engine::Engine;
use crate::side::{Answer, Side};
use crate::tally::{LineCharge, PerLimit, Tally};
pub(crate) use results::NodesResult;
use results::{LimitResult, WayResult};

/// Several nodes, once for each way to share the limits.
pub(crate) struct Nodes {
    count: usize,
    spread: Spread,
    /// The requests that were decided.
    requests: usize,
    ways: Vec<Way>,
}

/// The nodes under one way to share the limits, all on one clock and one store.
struct Way {
    shared: Shared,
    clock: ManualClock,
    store: Store,
    nodes: Vec<Node>,
    /// A node by itself with the whole limits, which gets the spends that the nodes have allowed.
    single: Node,
    allowed: u64,
    denied: u64,
    by_limit: PerLimit<LimitCounts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LimitCounts {
    allowed: u64,
    denied: u64,
    over_admission: u64,
    /// The sum of the waits that denials named.
    wait_ns: u128,
}

struct Node {
    limiter: Limiter,
    /// By the numbers of the limits in force.
    limits: Vec<SharedLimit>,
}

/// Returns a number for a client, the same in each run.
pub(crate) fn number_of(client: &[u8]) -> u64 {
    // FNV-1a, with its upper half mixed into the lower one, of which the node is chosen.
    let hash = client.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

impl Nodes {
    /// Starts `count` nodes for each way to share limits that the arguments ask for.
    pub(crate) fn new(limits: &Limits, count: u8, args: &ReplayArgs) -> Result<Nodes, Error> {
        let ways = match args.shared {
            None => vec![Shared::Local, Shared::Leased, Shared::Exact],
            Some(SharedWay::Local) => vec![Shared::Local],
            Some(SharedWay::Leased) => vec![Shared::Leased],
            Some(SharedWay::Exact) => vec![Shared::Exact],
        };
        let count = usize::from(count);
        let start = |way| Way::new(limits, count, way);
        Ok(Nodes {
            count,
            spread: args.spread.unwrap_or(Spread::Turn),
            requests: 0,
            ways: ways.into_iter().map(start).collect::<Result<_, Error>>()?,
        })
    }

    /// Finds the limits of the traffic on all nodes. Called before the first request.
    pub(crate) fn find_limits(&mut self, engine: &Engine) -> Result<(), Error> {
        for way in &mut self.ways {
            for node in way.nodes.iter_mut().chain([&mut way.single]) {
                let limits = engine.names().map(|name| node.limiter.shared(name));
                node.limits = limits.collect::<Result<_, _>>()?;
            }
        }
        Ok(())
    }

    /// Decides a request on the node that gets it. `side` has decided it at the same time as one node does. `client` is a number that is the same for all requests of a client.
    pub(crate) fn spend(
        &mut self,
        side: &Side,
        charges: &[LineCharge],
        client: u64,
    ) -> Result<(), Failure> {
        let node = match self.spread {
            Spread::Turn => self.requests % self.count,
            Spread::Client => (client % self.count as u64) as usize,
        };
        self.requests += 1;
        for way in &mut self.ways {
            let failure = |error: Error| Failure::NotDone(error.to_string());
            way.spend(node, side, charges).map_err(failure)?;
        }
        Ok(())
    }

    /// Returns the results for the limits that the summary shows.
    pub(crate) fn result(&self, side: &Side) -> NodesResult {
        let by = match self.spread {
            Spread::Turn => "turn",
            Spread::Client => "client",
        };
        let ways = self.ways.iter().map(|way| way.result(side)).collect();
        NodesResult { count: self.count as u64, by, ways }
    }
}

impl Way {
    fn new(limits: &Limits, count: usize, shared: Shared) -> Result<Way, Error> {
        let (clock, manual_clock) = Clock::manual();
        let store = Store::in_memory(clock.clone());
        // The store in memory takes the place of the file's, which is not asked.
        let start = |shared| {
            let options = LimiterOptions::default().clock(clock.clone()).store(store.clone());
            let limits = limits.clone().share_all(shared);
            let limiter = Limiter::with_options(limits, options.max_keys(usize::MAX))?;
            Ok::<_, Error>(Node { limiter, limits: Vec::new() })
        };
        Ok(Way {
            shared,
            clock: manual_clock,
            nodes: repeat_with(|| start(shared)).take(count).collect::<Result<_, Error>>()?,
            single: start(Shared::Local)?,
            store,
            allowed: 0,
            denied: 0,
            by_limit: PerLimit::default(),
        })
    }

    fn spend(&mut self, node: usize, side: &Side, charges: &[LineCharge]) -> Result<(), Error> {
        self.clock.set(side.engine.since_first());
        let decision = self.nodes[node].spend(&side.tally, charges)?;
        let answer = Answer::of_line(decision, charges);
        let is_allowed = decision.allowed();
        *(if is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
        for limit in side.tally.counted_limits(&answer) {
            let counts = self.by_limit.get_mut(limit);
            if is_allowed {
                counts.allowed += 1;
            } else {
                counts.denied += 1;
                counts.wait_ns += decision.retry_in().as_nanos();
            }
        }
        for LineCharge { key, cost } in charges.iter().filter(|_| is_allowed) {
            let key = side.tally.get(*key);
            let limit = &self.single.limits[key.limit.index()];
            let (granted, _) = block_on(limit.spend_up_to(&*key.id, *cost))?;
            self.by_limit.get_mut(key.limit).over_admission += cost - granted;
        }
        Ok(())
    }

    fn result(&self, side: &Side) -> WayResult {
        let shown = side.tally.by_limit().map(|(limit, _)| {
            let counts = self.by_limit.get(limit).copied().unwrap_or_default();
            (side.engine.name(limit).to_owned(), counts.result())
        });
        let limits: BTreeMap<_, _> = shown.collect();
        let store_calls = self.store.calls();
        WayResult {
            shared: self.shared.to_string(),
            allowed: self.allowed,
            denied: self.denied,
            over_admission: limits.values().map(|limit| limit.over_admission).sum(),
            store_calls,
            store_calls_saved: (self.allowed + self.denied).saturating_sub(store_calls),
            limits,
        }
    }
}

impl LimitCounts {
    fn result(self) -> LimitResult {
        let LimitCounts { allowed, denied, over_admission, wait_ns } = self;
        let mean_wait_ns = wait_ns.checked_div(denied.into()).unwrap_or(0);
        let mean_wait_ns = u64::try_from(mean_wait_ns).unwrap_or(u64::MAX);
        LimitResult { allowed, denied, over_admission, mean_wait_ns }
    }
}

impl Node {
    fn spend(&self, tally: &Tally, charges: &[LineCharge]) -> Result<Decision, Error> {
        let place = |charge: &LineCharge| {
            let key = tally.get(charge.key);
            (&self.limits[key.limit.index()], &*key.id)
        };
        if let [charge] = charges {
            let (limit, id) = place(charge);
            return block_on(limit.spend(id, charge.cost));
        }
        let members = charges.iter().map(|charge| {
            let (limit, id) = place(charge);
            limit.member(id).cost(charge.cost)
        });
        let members: SmallVec<[_; 4]> = members.collect();
        block_on(self.limiter.shared_batch(&members).spend())
    }
}
