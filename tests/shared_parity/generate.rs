//! Generates random runs of several nodes.

use super::bucket::MAX_NODES;
use super::ops::{Call, Kind, ONE, Op, Way};
use super::random::Random;
use super::run::Start;
use super::spec::{KNOWN, List, Sharing, Spec};
use super::worlds::{DAY_S, Features, Generator, NS_PER_S};

const LEASED: Sharing = Sharing::Leased { lease_ms: 1000 };
const LONG_LEASED: Sharing = Sharing::Leased { lease_ms: 10_000 };
const SHORT_LEASED: Sharing = Sharing::Leased { lease_ms: 200 };
/// The ways in which the limits of a run may be shared.
const SHARINGS: &[&[Sharing]] = &[
    &[Sharing::Exact],
    &[Sharing::Local, Sharing::Exact],
    &[LEASED],
    &[LONG_LEASED],
    &[Sharing::Local, Sharing::Exact, LEASED, SHORT_LEASED],
    &[Sharing::Local, LONG_LEASED],
];

/// Generates a run of at most 300 operations.
pub(crate) fn any(seed: u64) -> (Start, Vec<Op>) {
    let mut random = Random(seed);
    // A store decides no spend that must leave units.
    let mut features = Features { leaves: false, networks: false, ..Features::any(&mut random) };
    features.sharing = random.pick(SHARINGS);
    let has_leases = features.sharing.iter().any(|it| matches!(it, Sharing::Leased { .. }));
    // Clocks of nodes with leases do not go back.
    features.back &= !has_leases;
    let nodes = random.within(1, MAX_NODES as u64) as usize;
    let few = has_leases && random.chance(2, 3);
    let now = if random.chance(1, 3) { 1 } else { random.within(1, 150 * DAY_S * NS_PER_S) };
    let length = random.within(10, 300);
    let mut generator = Generator { algorithms: [0; KNOWN.len()], features, random };
    generator.algorithms = std::array::from_fn(|_| generator.algorithm());
    let spec = generator.first_spec();
    let mut run = NodesRun { generator, nodes, few, spec: spec.clone() };
    let ops = (0..length).map(|_| run.op()).collect();
    (Start { spec, now, nodes }, ops)
}

struct NodesRun {
    generator: Generator,
    nodes: usize,
    /// Most calls are for few ids and come at short intervals, so that nodes hold leases.
    few: bool,
    /// The limits of the last reload.
    spec: Spec,
}

impl NodesRun {
    fn op(&mut self) -> Op {
        let features = self.generator.features;
        let node = self.below(self.nodes);
        match self.below(100) {
            0..14 => Op::Advance(self.time_step()),
            14..18 if features.back => Op::Back(self.below(5_000_000_000) as u64),
            18..22 if features.ends => {
                Op::ToEnd(self.generator.random.pick(&[-1, 0, 1, 1_000_000, 7_000_000_000]))
            }
            22..26 if features.reloads => self.reload(node),
            26..28 if features.sweeps => Op::Sweep(node, self.below(400)),
            28..29 if features.files => Op::Snapshot(node),
            29..30 if features.files => {
                let spec = match self.generator.random.chance(1, 2) {
                    true => self.generator.next_spec(),
                    false => self.spec.clone(),
                };
                Op::Restore(spec, (self.generator.debt(), node))
            }
            30..31 if features.switch => Op::Enable(node, self.below(3) > 0),
            31..36 => Op::GiveBack((self.below(3) == 0).then_some(node)),
            36..50 if features.batches => self.batch(node),
            50..54 if features.blocks => self.block(node),
            54..57 => Op::Explain(node, self.call(false)),
            57..61 => self.one(node, Kind::Check),
            61..65 => self.one(node, Kind::Refund),
            65..67 => self.one(node, Kind::Reset),
            67..70 => Op::UpTo(node, self.call(true)),
            70..71 => Op::Drain(node, self.call(true)),
            71..75 => {
                let call = self.call(false);
                Op::Settled(node, call, self.below(call.cost as usize + 3) as u64)
            }
            75..80 => {
                let call = self.call(false);
                let at_most =
                    self.generator.random.pick(&[0, NS_PER_S, 60 * NS_PER_S, DAY_S * NS_PER_S]);
                Op::Reserved(node, call, at_most, self.below(2) == 0)
            }
            _ => self.one(node, Kind::Spend),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.generator.random.below(end as u64) as usize
    }

    fn time_step(&mut self) -> u64 {
        match self.few && self.generator.random.chance(3, 4) {
            true => {
                let most = self.generator.random.pick(&[3, 1_000_000, 300_000_000, 3_000_000_000]);
                self.generator.random.within(1, most)
            }
            false => self.generator.time_step(),
        }
    }

    fn call(&mut self, with_factor: bool) -> Call {
        let mut call = self.generator.call();
        if self.few && self.generator.random.chance(3, 4) {
            (call.limit, call.id) = (call.limit % 2, 0);
            call.cost = call.cost.min(2);
        }
        if !with_factor {
            call.factor = ONE;
        }
        call
    }

    fn one(&mut self, node: usize, kind: Kind) -> Op {
        let random = &mut self.generator.random;
        let way = match kind {
            Kind::Spend | Kind::Check => {
                random.pick(&[Way::Async, Way::Async, Way::Blocking, Way::Dropped])
            }
            Kind::Refund | Kind::Reset => Way::Async,
        };
        // Others have no form with a factor.
        let call = self.call(way == Way::Async);
        Op::One(node, way, kind, call)
    }

    fn batch(&mut self, node: usize) -> Op {
        let (what, members) = self.generator.any_batch();
        let way = self.generator.random.pick(&[Way::Async, Way::Async, Way::Blocking]);
        Op::Batch(node, way, what, List(members))
    }

    fn block(&mut self, node: usize) -> Op {
        let Call { limit, id, .. } = self.call(false);
        match self.generator.block_time() {
            Some(time) => Op::Block(node, limit, id, time),
            None => Op::Unblock(node, limit, id),
        }
    }

    fn reload(&mut self, node: usize) -> Op {
        let (spec, debt) = (self.generator.next_spec(), self.generator.debt());
        let who = self.generator.random.chance(1, 4).then_some(node);
        if who.is_none() {
            self.spec = spec.clone();
        }
        Op::Reload(spec, (debt, who))
    }
}
