//! Random histories of all calls of two nodes on real servers, beside a [model](super::model) in plain integers. Each answer is
//! the model's, and in any time no more is admitted than one node would, and what was returned since the first of these charges.

use std::sync::Arc;
use std::time::Duration;

use redis::Connection;

use super::model::{Model, Numbers};
use super::server::{Server, with_all};
use super::{options, wait_until};
use crate::clock::{Clock, ManualClock};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::{IdFormat, LimitOptions, Limits, OnError, Shared};
use crate::random::Random;
use crate::shared::SharedLimit;
use crate::shared::Store;
use crate::shared::block_on;
use crate::shared::protocol::StoreHandle;
use crate::shared::valkey::ValkeyStore;
use crate::shared::valkey::script::Scripts;
use crate::shared::{SharedReceipt, SharedReservation};

/// Calls on each server if `TOLLGATE_STORE_BATCHES` is not set.
const FEW_CALLS: u64 = 4_000;
/// The calls for one id of each limit.
const ROUND: u64 = 200;
const MAX_DEBT: u64 = 3;
const NAMES: [&str; 4] = ["Gcra", "Fixed", "Tokens", "Leaky"];

fn limits() -> [(Limit, Numbers); 4] {
    let ms = Duration::from_millis;
    [
        (Limit::new(5, 1, ms(7)).unwrap(), Numbers::Gcra { burst: 5, interval: 7_000_000 }),
        (
            Limit::fixed_window(5, ms(40)).unwrap(),
            Numbers::Window { quota: 5, length: 40, burst: 5, is_fixed: true },
        ),
        (
            Limit::token_bucket(3, 8, ms(50)).unwrap(),
            Numbers::Window { quota: 8, length: 50, burst: 3, is_fixed: false },
        ),
        (Limit::leaky_bucket(5, 2, ms(7)).unwrap(), Numbers::Leaky { size: 5, rate: 7, drip: 2 }),
    ]
}

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// Each settlement below its estimate returns one unit twice.
    Twice,
    /// The same, and no answer is compared: only the bound can tell.
    TwiceUnseen,
}

/// A charge: its position among all calls, the time from which its units are used, and their number.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    order: u64,
    at: i128,
    units: i128,
}

/// A charge that its caller may still return: its place in `admitted`, and its mark.
enum Open {
    Receipt(Box<SharedReceipt>, usize, i128),
    Place(SharedReservation, usize, i128),
}

/// One id's bucket of a limit.
struct Bucket {
    limit: usize,
    id: String,
    model: Model,
    blocked_until: i128,
    admitted: Vec<Admitted>,
    /// Positions and units of what was returned.
    returned: Vec<(u64, i128)>,
    open: Vec<Open>,
}

impl Bucket {
    fn new(limit: usize, round: u64) -> Bucket {
        let model = Model::new(limits()[limit].1);
        let (admitted, returned, open) = (Vec::new(), Vec::new(), Vec::new());
        let id = round.to_string();
        Bucket { limit, id, model, blocked_until: 0, admitted, returned, open }
    }

    fn admit(&mut self, order: u64, at: i128, units: u64) -> usize {
        self.admitted.push(Admitted { order, at, units: units.into() });
        self.admitted.len() - 1
    }

    /// The bound.
    fn check(&self) -> Result<(), String> {
        for first in &self.admitted {
            for last in self.admitted.iter().filter(|last| last.at >= first.at) {
                let among = |it: &&Admitted| (first.at..=last.at).contains(&it.at) && it.units > 0;
                let sum: i128 = self.admitted.iter().filter(among).map(|it| it.units).sum();
                let since = self.admitted.iter().filter(among).map(|it| it.order).min();
                let is_since = |it: &&(u64, i128)| Some(it.0) > since;
                let back: i128 = self.returned.iter().filter(is_since).map(|it| it.1).sum();
                let most = self.model.most_within(last.at - first.at) + back;
                if sum > most {
                    let name = NAMES[self.limit];
                    return Err(format!("{name}: {sum} in {} ns of {most}", last.at - first.at));
                }
            }
        }
        Ok(())
    }
}

struct World {
    connection: Connection,
    nodes: [Limiter; 2],
    hand: ManualClock,
    random: Random,
    now: i128,
    order: u64,
    planted: Planted,
    buckets: Vec<Bucket>,
    /// Cancels, returns and waits that had an effect.
    seen: [u64; 3],
}

impl World {
    fn new(server: &Server, planted: Planted) -> World {
        let by_hand =
            |text: &str| text.replace("redis.call('TIME')", "redis.call('LRANGE', 'clock', 0, -1)");
        let store = ValkeyStore::with_scripts(&options(server), Scripts::from(by_hand)).unwrap();
        let store = Store(StoreHandle { store: Arc::new(store), prefix: Box::default() });
        let (clock, hand) = Clock::manual();
        let nodes = [(); 2].map(|()| {
            let exact = LimitOptions::default().shared(Shared::Exact).on_error(OnError::Deny);
            let with = exact.max_debt(MAX_DEBT);
            let all = limits().into_iter().zip(NAMES);
            let all = all.fold(Limits::builder(), |builder, ((limit, _), name)| {
                builder.limit_with(name, IdFormat::String, limit, with.clone()).unwrap()
            });
            let options = LimiterOptions::default().clock(clock.clone()).store(store.clone());
            Limiter::with_options(all.build(), options).unwrap()
        });
        let (now, random, buckets) = (1_790_000_000_000_000_000, Random(38), Vec::new());
        let connection = server.connection();
        let mut world = World {
            connection,
            nodes,
            hand,
            random,
            now,
            order: 0,
            planted,
            buckets,
            seen: [0; 3],
        };
        world.move_clock(0);
        let first = world.nodes[0].shared("Gcra").unwrap();
        // This also sends the script of changes: later ones that no caller waits for are made before the calls after them.
        wait_until("connected", || block_on(first.blocked_for("none")).is_ok());
        world
    }

    fn move_clock(&mut self, by_us: u64) {
        self.now += i128::from(by_us) * 1_000;
        self.hand.advance(Duration::from_micros(by_us));
        let (s, us) = (self.now / 1_000_000_000, self.now / 1_000 % 1_000_000);
        let () = redis::pipe()
            .atomic()
            .del("clock")
            .rpush("clock", &[s as u64, us as u64])
            .exec(&mut self.connection)
            .unwrap();
    }

    /// Compares a decision with the model: whether it is allowed, and the units that are left after it.
    fn same(
        &self,
        bucket: usize,
        decision: &Decision,
        allowed: Option<bool>,
    ) -> Result<(), String> {
        let Bucket { model, blocked_until, limit, .. } = &self.buckets[bucket];
        let is_blocked = *blocked_until > self.now && allowed.is_some();
        let allowed = allowed.map(|allowed| allowed && !is_blocked);
        let left = (!is_blocked).then(|| model.remaining(self.now) as u64);
        let is_same = allowed.is_none_or(|allowed| allowed == decision.allowed())
            && decision.blocked() == is_blocked
            && left.is_none_or(|left| decision.remaining() == Some(left));
        if is_same || self.planted == Planted::TwiceUnseen {
            return Ok(());
        }
        Err(format!("{}: {decision:?}, expected {allowed:?} {left:?}", NAMES[*limit]))
    }

    fn handle(&mut self, bucket: usize) -> (SharedLimit, String) {
        let node = self.random.below(2) as usize;
        let Bucket { limit, id, .. } = &self.buckets[bucket];
        (self.nodes[node].shared(NAMES[*limit]).unwrap(), id.clone())
    }

    /// Whether a spend of a bucket that may be blocked is allowed. Charges the model.
    fn spends(&mut self, bucket: usize, units: u64) -> bool {
        let now = self.now;
        let Bucket { model, blocked_until, .. } = &mut self.buckets[bucket];
        *blocked_until <= now && model.spend(now, units.into())
    }

    fn step(&mut self) -> Result<(), String> {
        self.order += 1;
        let bucket = self.random.below(self.buckets.len() as u64) as usize;
        let units = self.random.within(1, 3);
        match self.random.below(24) {
            0..=3 => self.spend(bucket, units),
            4..=7 => self.estimate(bucket, units),
            8..=13 => self.end(bucket),
            14 | 15 => self.reserve(bucket, units),
            16 => self.batch(units),
            17 => self.by_hand(bucket, units),
            18 => self.part(bucket, units),
            19 => self.block(bucket),
            _ => {
                let by_us = self.random.pick(&[0, 1, 500, 1_000, 3_000, 7_000, 20_000]);
                self.move_clock(by_us);
                Ok(())
            }
        }
    }

    fn spend(&mut self, bucket: usize, units: u64) -> Result<(), String> {
        let (handle, id) = self.handle(bucket);
        let decision = block_on(handle.spend(&*id, units)).unwrap();
        let allowed = self.spends(bucket, units);
        if decision.allowed() {
            let (order, now) = (self.order, self.now);
            self.buckets[bucket].admit(order, now, units);
        }
        self.same(bucket, &decision, Some(allowed))
    }

    fn estimate(&mut self, bucket: usize, units: u64) -> Result<(), String> {
        let (handle, id) = self.handle(bucket);
        let (decision, receipt) = block_on(handle.spend_estimate(&*id, units)).unwrap();
        let allowed = self.spends(bucket, units);
        if let Some(receipt) = receipt {
            let (order, now) = (self.order, self.now);
            let bucket = &mut self.buckets[bucket];
            let (at, mark) = (bucket.admit(order, now, units), bucket.model.mark(now));
            bucket.open.push(Open::Receipt(Box::new(receipt), at, mark));
        }
        self.same(bucket, &decision, Some(allowed))
    }

    /// Settles or cancels one of the open charges.
    fn end(&mut self, bucket: usize) -> Result<(), String> {
        let open = self.buckets[bucket].open.len() as u64;
        if open == 0 {
            return Ok(());
        }
        let at = self.random.below(open) as usize;
        match self.buckets[bucket].open.swap_remove(at) {
            Open::Receipt(receipt, charged, mark) => self.settle(bucket, *receipt, (charged, mark)),
            Open::Place(place, charged, mark) => self.cancel(bucket, place, (charged, mark)),
        }
    }

    fn settle(
        &mut self,
        bucket: usize,
        receipt: SharedReceipt,
        (_, mark): (usize, i128),
    ) -> Result<(), String> {
        let (cost, now, order) = (receipt.cost(), self.now, self.order);
        let actual = self.random.below(cost + 3);
        let after = block_on(receipt.settle(actual)).unwrap();
        let it = &mut self.buckets[bucket];
        match cost.checked_sub(actual) {
            Some(less) => {
                let lowered = it.model.give(now, less.into(), Some(mark));
                it.returned.push((order, lowered));
                self.seen[1] += u64::from(lowered > 0);
            }
            None => it.model.owe(now, (actual - cost).into(), MAX_DEBT.into()),
        }
        if self.planted != Planted::Nothing && actual < cost {
            let (handle, id) = self.handle(bucket);
            let _ = block_on(handle.refund(&*id, 1)).unwrap();
        }
        // The decision is a check, which a block does not change.
        let left = self.buckets[bucket].model.remaining(now) as u64;
        if self.planted == Planted::TwiceUnseen || after.remaining() == Some(left) {
            return Ok(());
        }
        Err(format!("{}: settled {after:?}, expected {left}", NAMES[self.buckets[bucket].limit]))
    }

    fn cancel(
        &mut self,
        bucket: usize,
        place: SharedReservation,
        (charged, mark): (usize, i128),
    ) -> Result<(), String> {
        let (handle, id) = self.handle(bucket);
        place.cancel();
        // No caller waits for a cancel: the server makes it before the next call.
        let _ = block_on(handle.blocked_for(&*id)).unwrap();
        let (now, order, it) = (self.now, self.order, &mut self.buckets[bucket]);
        let Admitted { at, units, .. } = it.admitted[charged];
        if at <= now || it.model.is_within(mark) {
            let lowered = it.model.give(now, units, None);
            it.returned.push((order, lowered));
            self.seen[0] += u64::from(lowered > 0);
        }
        if at > now {
            it.admitted[charged].units = 0;
        }
        Ok(())
    }

    fn reserve(&mut self, bucket: usize, units: u64) -> Result<(), String> {
        if self.buckets[bucket].limit > 0 {
            return Ok(());
        }
        let (handle, id) = self.handle(bucket);
        let (now, order) = (self.now, self.order);
        let at_most = Duration::from_millis(self.random.pick(&[0, 7, 30, 100]));
        let place = block_on(handle.reserve(&*id, units, at_most));
        let it = &mut self.buckets[bucket];
        if it.blocked_until > now {
            let is_blocked = place.is_err_and(|error| error.is_blocked());
            return if is_blocked { Ok(()) } else { Err("a place of a blocked id".into()) };
        }
        let (wait, is_placed) = it.model.reserve(now, units.into(), at_most.as_nanos() as i128);
        let told = match &place {
            Ok(place) => (place.wait().as_nanos() as i128, true),
            Err(error) => (error.needed().unwrap_or_default().as_nanos() as i128, false),
        };
        if let Ok(place) = place {
            let (at, mark) = (it.admit(order, now + told.0, units), it.model.mark(now));
            it.open.push(Open::Place(place, at, mark));
        }
        self.seen[2] += u64::from(is_placed && wait > 0);
        match told == (wait, is_placed) || self.planted == Planted::TwiceUnseen {
            true => Ok(()),
            false => Err(format!("a place: {told:?}, expected {wait} {is_placed}")),
        }
    }

    /// Spends from two buckets, or from none.
    fn batch(&mut self, units: u64) -> Result<(), String> {
        let costs = [(0, units), (self.random.within(1, 3) as usize, 1)];
        let handles = costs.map(|(bucket, _)| self.handle(bucket).0);
        let id = self.buckets[0].id.clone();
        let members = [0, 1].map(|at| handles[at].member(&*id).cost(costs[at].1));
        let node = self.random.below(2) as usize;
        let batch = self.nodes[node].shared_batch(&members);
        let Ok(decision) = block_on(batch.spend()) else { return Ok(()) };
        let fits = costs.map(|(bucket, units)| {
            let Bucket { mut model, blocked_until, .. } = self.buckets[bucket];
            blocked_until <= self.now && model.spend(self.now, units.into())
        });
        let allowed = fits == [true; 2];
        for (bucket, units) in costs.into_iter().filter(|_| decision.allowed()) {
            let (order, now) = (self.order, self.now);
            let _ = self.spends(bucket, units);
            self.buckets[bucket].admit(order, now, units);
        }
        match decision.allowed() == allowed || self.planted == Planted::TwiceUnseen {
            true => Ok(()),
            false => Err(format!("a batch: {decision:?}, expected {allowed}")),
        }
    }

    /// Refunds or resets.
    fn by_hand(&mut self, bucket: usize, units: u64) -> Result<(), String> {
        let (handle, id) = self.handle(bucket);
        let (now, order, resets) = (self.now, self.order, self.random.below(4) == 0);
        let decision = match resets {
            true => block_on(handle.reset(&*id)).unwrap(),
            false => block_on(handle.refund(&*id, units)).unwrap(),
        };
        let it = &mut self.buckets[bucket];
        let lowered =
            if resets { it.model.reset(now) } else { it.model.give(now, units.into(), None) };
        it.returned.push((order, lowered));
        self.same(bucket, &decision, None)
    }

    /// Spends as many units as there are, or all but some.
    fn part(&mut self, bucket: usize, units: u64) -> Result<(), String> {
        let (handle, id) = self.handle(bucket);
        let (now, order) = (self.now, self.order);
        let is_blocked = self.buckets[bucket].blocked_until > now;
        let there = self.buckets[bucket].model.available(now) as u64;
        if self.random.below(2) == 0 {
            let decision = block_on(handle.drain(&*id, units)).unwrap();
            let drained = there.saturating_sub(units);
            self.buckets[bucket].model.owe(now, drained.into(), 0);
            return self.same(bucket, &decision, None);
        }
        let (granted, decision) = block_on(handle.spend_up_to(&*id, units)).unwrap();
        let expected = if is_blocked { 0 } else { there.min(units) };
        let _ = expected > 0 && self.spends(bucket, expected);
        if granted > 0 {
            self.buckets[bucket].admit(order, now, granted);
        }
        if granted != expected && self.planted != Planted::TwiceUnseen {
            return Err(format!("a part: {granted}, expected {expected}"));
        }
        self.same(bucket, &decision, Some(there > 0))
    }

    fn block(&mut self, bucket: usize) -> Result<(), String> {
        let (handle, id) = self.handle(bucket);
        let it = &mut self.buckets[bucket];
        if self.random.below(3) == 0 {
            let left = block_on(handle.block(&*id, Duration::from_millis(2))).unwrap();
            let until_ms = (self.now + 2_000_000 + 999_999) / 1_000_000;
            it.blocked_until = it.blocked_until.max(until_ms * 1_000_000);
            let expected = it.blocked_until - self.now;
            return match left.as_nanos() as i128 == expected {
                true => Ok(()),
                false => Err(format!("blocked for {left:?}, expected {expected}")),
            };
        }
        let was_blocked = block_on(handle.unblock(&*id)).unwrap();
        let expected = it.blocked_until > self.now;
        it.blocked_until = 0;
        if was_blocked == expected { Ok(()) } else { Err(format!("was blocked: {was_blocked}")) }
    }
}

/// Runs histories, and returns what has had an effect. The error is the first answer that is not the model's, or time that
/// admits too much.
fn histories(server: &Server, calls: u64, planted: Planted) -> Result<[u64; 3], String> {
    let mut world = World::new(server, planted);
    for round in 0..calls / ROUND {
        world.buckets = (0..NAMES.len()).map(|limit| Bucket::new(limit, round)).collect();
        for call in 0..ROUND {
            world.step().map_err(|text| format!("round {round}, call {call}: {text}"))?;
        }
        world.buckets.iter().try_for_each(Bucket::check)?;
    }
    Ok(world.seen)
}

fn calls() -> u64 {
    let calls = std::env::var("TOLLGATE_STORE_BATCHES").ok().and_then(|text| text.parse().ok());
    calls.unwrap_or(FEW_CALLS)
}

#[test]
fn histories_keep_the_bound_of_one_node() {
    with_all(|binary| {
        let seen = histories(&Server::start(binary), calls(), Planted::Nothing).unwrap();
        println!("{} calls: {seen:?} cancels, returns and waits", calls());
        assert!(seen.iter().all(|&count| count > calls() / 400), "{seen:?}");
    });
}

/// The checks themselves: both of them see a unit that is returned twice.
#[test]
fn units_returned_twice_are_seen() {
    with_all(|binary| {
        let server = Server::start(binary);
        for planted in [Planted::Twice, Planted::TwiceUnseen] {
            let seen = histories(&server, FEW_CALLS, planted);
            println!("{planted:?}: {seen:?}");
            assert!(seen.is_err(), "{planted:?}");
        }
    });
}
