//! Compares a limiter that has blocks with a simple oracle: a map of the blocks, and a twin of the limiter without
//! blocks. A call for a blocked id is not made to the twin. Every other call is, and must get the same decision from
//! both. Both start with the same seeds and read the same time, so that their tables behave alike.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tempfile::TempDir;

use crate::clock::{Clock, ManualClock};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limiter::batch::MemberMode;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::options::LimiterOptions;
use crate::limiter::reload::options::ReloadOptions;
use crate::limiter::reserve::{Receipt, Reservation, ReserveError};
use crate::limits::{IdFormat, LimitOptions, Limits, LimitsBuilder, OverrideOptions};
use crate::store::Engine;

/// The engine that keeps keys, if this build has it.
const LAST: Engine = Engine::ALL[Engine::ALL.len() - 1];
const NAMES: [&str; 2] = ["A", "B"];
/// The second has an override, which ends.
const IDS: [&str; 3] = ["a", "ends", "an id that is longer than eighteen bytes"];
const S: u64 = 1_000_000_000;

/// A limit's name, and an id.
type Key = (&'static str, &'static str);

#[derive(Clone, Copy, Debug)]
struct Setting {
    engine: Engine,
    /// Whether the cap is lower than the number of ids; only with the lock-free engine.
    is_capped: bool,
    /// When the override ends.
    ends_at: SystemTime,
}

impl Setting {
    /// The limits of a step. The override has the numbers of the default, so that its end changes no figure: it is not
    /// the same nanosecond in both limiters.
    fn limits(self, numbers: usize) -> Limits {
        let s = Duration::from_secs;
        let gcra = |burst| Limit::new(burst, 1, s(3)).unwrap();
        let window = Limit::fixed_window(5, s(40)).unwrap();
        let drips = Limit::leaky_bucket(4, 1, s(2)).unwrap();
        let tokens = Limit::token_bucket(4, 9, s(60)).unwrap();
        // Limit A may be missing, except at the cap, where the slots of its buckets matter.
        let numbers = if self.is_capped { numbers % 3 } else { numbers % 4 };
        let [a, b] = match numbers {
            0 => [Some(gcra(5)), Some(window)],
            1 => [Some(drips), Some(gcra(4))],
            2 => [Some(tokens), Some(gcra(7))],
            _ => [None, Some(gcra(7))],
        };
        let add = |builder: LimitsBuilder, (name, limit): (&str, Option<Limit>)| {
            let Some(limit) = limit else { return builder };
            let owing = LimitOptions::default().max_debt(3);
            let ends = OverrideOptions::default().expires(self.ends_at).max_debt(3);
            builder
                .limit_with(name, IdFormat::String, limit.clone(), owing)
                .and_then(|it| it.override_with(name, "ends", limit, ends))
                .unwrap()
        };
        NAMES.into_iter().zip([a, b]).fold(Limits::builder(), add).build()
    }

    fn options(self, clock: Clock) -> LimiterOptions {
        let max_keys = if self.is_capped { 3 } else { 1000 };
        LimiterOptions::default().engine(self.engine).max_keys(max_keys).clock(clock)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Spend(u64),
    Check(u64),
    Refund(u64),
    Reset,
    Block(u64, Option<&'static str>),
    Unblock,
    Charge(u64),
    /// The receipt, counted from the last one, and the actual cost.
    Settle(usize, u64),
    Reserve(u64),
    Cancel(usize),
    Batch([(usize, u64, MemberMode); 2]),
    Forward(u64),
    Sweep,
    Reload(usize),
    Restart {
        down_ns: u64,
        numbers: usize,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(vec![
        MemberMode::CheckAndSpend,
        MemberMode::CheckOnly,
        MemberMode::SpendOnly,
    ]);
    let member = || (0..6usize, 0..4u64, mode.clone());
    let time = || prop_oneof![Just(0), 1..5 * S, 1..50 * S];
    let reason = prop::sample::select(vec![None, Some("ticket 4711"), Some("")]);
    prop_oneof![
        6 => (0..5u64).prop_map(Step::Spend),
        1 => (0..5u64).prop_map(Step::Check),
        2 => (0..5u64).prop_map(Step::Refund),
        1 => Just(Step::Reset),
        5 => (time(), reason).prop_map(|(ns, reason)| Step::Block(ns, reason)),
        2 => Just(Step::Unblock),
        2 => (1..4u64).prop_map(Step::Charge),
        2 => (0..4usize, 0..7u64).prop_map(|(back, actual)| Step::Settle(back, actual)),
        2 => (0..5u64).prop_map(Step::Reserve),
        2 => (0..4usize).prop_map(Step::Cancel),
        4 => [member(), member()].prop_map(Step::Batch),
        5 => time().prop_map(Step::Forward),
        1 => Just(Step::Sweep),
        1 => (0..4usize).prop_map(Step::Reload),
        1 => (time(), 0..4usize).prop_map(|(down_ns, numbers)| Step::Restart { down_ns, numbers }),
    ]
}

/// The limiter, and the twin without blocks.
struct Pair {
    setting: Setting,
    subject: Limiter,
    twin: Limiter,
    hands: [ManualClock; 2],
    now_ns: u64,
    blocks: HashMap<Key, (u64, Option<&'static str>)>,
    receipts: Vec<[Receipt; 2]>,
    places: Vec<[Reservation; 2]>,
    folder: TempDir,
}

impl Pair {
    fn new(setting: Setting) -> Pair {
        let (clock, hand) = Clock::manual();
        let subject = Limiter::with_options(setting.limits(0), setting.options(clock)).unwrap();
        let (blocks, folder) = (HashMap::new(), tempfile::tempdir().unwrap());
        let (receipts, places) = (Vec::new(), Vec::new());
        let (twin, hands) = (subject.clone(), [hand.clone(), hand]);
        let mut pair =
            Pair { setting, subject, twin, hands, now_ns: 1, blocks, receipts, places, folder };
        // The restart gives both the same seeds.
        pair.restart(S, 0);
        pair
    }

    fn path(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("buckets-{at}"))
    }

    fn restart(&mut self, down_ns: u64, numbers: usize) {
        self.receipts.clear();
        self.places.clear();
        let restored = |limiter: &Limiter, path: &Path| {
            limiter.snapshot_at(path, || 7).unwrap();
            let (clock, hand) = Clock::manual();
            let limits = self.setting.limits(numbers);
            let options = self.setting.options(clock);
            let new = Limiter::restore_at(limits, options, path, CarryOver::Share, 7 + down_ns);
            let (limiter, restored) = new.unwrap();
            (limiter, hand, restored)
        };
        let (subject, hand, read) = restored(&self.subject, &self.path(0));
        let (twin, twin_hand, of_twin) = restored(&self.twin, &self.path(1));
        self.now_ns += down_ns;
        let live = self.blocks.values().filter(|(until_ns, _)| *until_ns > self.now_ns).count();
        assert_eq!((read.blocks, of_twin.blocks), (live as u64, 0));
        assert_eq!(
            (read.buckets, read.full, read.dropped),
            (of_twin.buckets, of_twin.full, of_twin.dropped)
        );
        (self.subject, self.twin, self.hands) = (subject, twin, [hand, twin_hand]);
    }

    /// The handles of both, if the twin knows the limit.
    fn handles(&self, name: &str) -> Option<[KeyedLimit; 2]> {
        let twin = self.twin.limit(name).ok()?;
        Some([self.subject.limit(name).unwrap(), twin])
    }

    /// The time until the id's block ends, if the id is blocked and its limit applies.
    fn left_ns(&self, (name, id): Key) -> Option<u64> {
        let applies = self.twin.limit(name).is_ok_and(|it| it.limit_for(id).unwrap().is_some());
        let (until_ns, _) = self.blocks.get(&(name, id))?;
        until_ns.checked_sub(self.now_ns).filter(|&left_ns| applies && left_ns > 0)
    }

    /// The figures of a bucket that a blocked call leaves uncharged, from its decision `own` without the block.
    fn unspent(own: Decision, twin: &KeyedLimit, id: &str) -> Decision {
        if own.allowed() { twin.check(id, 0).unwrap() } else { own }
    }

    /// The expected figures of a call of a blocked id.
    fn denied(own: Decision, left_ns: u64) -> (bool, bool, Option<u64>, Duration, Duration) {
        let wait = if own.allowed() { Duration::ZERO } else { own.retry_in() };
        let retry_in = wait.max(Duration::from_nanos(left_ns));
        (false, true, Some(0), retry_in, own.reset_in())
    }

    fn figures(said: Decision) -> (bool, bool, Option<u64>, Duration, Duration) {
        (said.allowed(), said.blocked(), said.remaining(), said.retry_in(), said.reset_in())
    }

    fn step(&mut self, key: Key, step: &Step) {
        match *step {
            Step::Forward(by_ns) => {
                self.hands.iter().for_each(|hand| hand.advance(Duration::from_nanos(by_ns)));
                self.now_ns += by_ns;
            }
            Step::Sweep => {
                let [one, other] = [&self.subject, &self.twin].map(|it| it.sweep(10_000));
                assert!(one.finished && other.finished && one.dropped == other.dropped);
            }
            Step::Reload(numbers) => {
                // A reload forgets no name that has a handle. A block keeps the subject's.
                let _handles = NAMES.map(|name| self.handles(name));
                for limiter in [&self.subject, &self.twin] {
                    let removing = ReloadOptions::default().remove_missing(true);
                    limiter.reload_with(self.setting.limits(numbers), removing).unwrap();
                }
            }
            Step::Restart { down_ns, numbers } => self.restart(down_ns, numbers),
            Step::Settle(back, actual) => {
                if let Some(at) = self.receipts.len().checked_sub(back + 1) {
                    let settled = self.receipts.remove(at).map(|receipt| receipt.settle(actual));
                    assert_eq!(settled[0], settled[1], "{key:?}");
                }
            }
            Step::Cancel(back) => {
                if let Some(at) = self.places.len().checked_sub(back + 1) {
                    self.places.remove(at).into_iter().for_each(Reservation::cancel);
                }
            }
            Step::Batch(members) => self.batch(members),
            _ => {
                if let Some(handles) = self.handles(key.0) {
                    self.call(handles, key, step);
                }
            }
        }
        self.compare();
    }

    fn call(&mut self, [subject, twin]: [KeyedLimit; 2], key: Key, step: &Step) {
        let (_, id) = key;
        let numbers = twin.limit_for(id).unwrap();
        let cost = |cost: u64| numbers.as_ref().map_or(cost, |limit| cost.min(limit.burst()));
        let left_ns = self.left_ns(key);
        let both = [&subject, &twin];
        match *step {
            Step::Spend(units) | Step::Check(units) => {
                let units = cost(units);
                let is_spend = matches!(step, Step::Spend(_));
                let ask = |handle: &KeyedLimit| match is_spend {
                    true => handle.spend(id, units).unwrap(),
                    false => handle.check(id, units).unwrap(),
                };
                let Some(left_ns) = left_ns else {
                    return assert_eq!(ask(&subject), ask(&twin), "{key:?}");
                };
                let own = Pair::unspent(twin.check(id, units).unwrap(), &twin, id);
                assert_eq!(Pair::figures(ask(&subject)), Pair::denied(own, left_ns), "{key:?}");
            }
            Step::Refund(units) => {
                let [one, other] = both.map(|it| it.refund(id, cost(units)).unwrap());
                assert_eq!(one, other, "{key:?}");
            }
            Step::Reset => {
                let [one, other] = both.map(|it| it.reset(id).unwrap());
                assert_eq!(one, other, "{key:?}");
            }
            Step::Block(time_ns, reason) => self.block(&subject, key, time_ns, reason),
            Step::Unblock => {
                let until_ns = self.blocks.remove(&key).map_or(0, |(until_ns, _)| until_ns);
                assert_eq!(subject.unblock(id).unwrap(), until_ns > self.now_ns, "{key:?}");
            }
            Step::Charge(units) => {
                let (said, receipt) = subject.spend_estimate(id, cost(units)).unwrap();
                if let Some(left_ns) = left_ns {
                    let own = Pair::unspent(twin.check(id, cost(units)).unwrap(), &twin, id);
                    assert_eq!(Pair::figures(said), Pair::denied(own, left_ns), "{key:?}");
                    return assert!(receipt.is_none());
                }
                let (of_twin, twin_receipt) = twin.spend_estimate(id, cost(units)).unwrap();
                assert_eq!(said, of_twin, "{key:?}");
                self.receipts.extend(receipt.zip(twin_receipt).map(<[Receipt; 2]>::from));
            }
            Step::Reserve(units) => {
                let reserve =
                    |it: &KeyedLimit| it.reserve(id, cost(units), Duration::from_secs(60));
                let taken = reserve(&subject);
                if numbers.as_ref().is_some_and(|limit| limit.algorithm() != "gcra") {
                    return assert!(taken.unwrap_err().is_without_places(), "{key:?}");
                }
                if let Some(left_ns) = left_ns {
                    let left = Duration::from_nanos(left_ns);
                    let refused = taken.unwrap_err();
                    let is_expected =
                        matches!(refused, ReserveError::Blocked { left: it } if it == left);
                    return assert!(is_expected, "{key:?}: {refused:?}, and not for {left:?}");
                }
                match (taken, reserve(&twin)) {
                    (Ok(one), Ok(other)) => {
                        assert_eq!(one.wait(), other.wait(), "{key:?}");
                        self.places.push([one, other]);
                    }
                    (one, other) => assert_eq!(format!("{one:?}"), format!("{other:?}"), "{key:?}"),
                }
            }
            _ => unreachable!("not a call of one key: {step:?}"),
        }
    }

    fn block(&mut self, handle: &KeyedLimit, key: Key, time_ns: u64, reason: Option<&'static str>) {
        let (_, id) = key;
        let time = Duration::from_nanos(time_ns);
        let told = match reason {
            Some(reason) => handle.block_with_reason(id, time, reason),
            None => handle.block(id, time),
        };
        if handle.limit_for(id).unwrap().is_none() {
            return assert!(told.unwrap_err().is_invalid_block(), "{key:?}: no limit applies");
        }
        let listed = self.blocks.entry(key).or_insert((0, None));
        if listed.0 <= self.now_ns || listed.0 < self.now_ns + time_ns {
            *listed = (self.now_ns + time_ns, reason);
        }
        let left = Duration::from_nanos(listed.0 - self.now_ns);
        assert_eq!(told.unwrap(), left, "{key:?}");
    }

    fn batch(&mut self, members: [(usize, u64, MemberMode); 2]) {
        let keys = members.map(|(at, ..)| (NAMES[at % 2], IDS[at / 2]));
        let [Some(first), Some(second)] = keys.map(|(name, _)| self.handles(name)) else { return };
        if keys[0] == keys[1] {
            return;
        }
        let handles = [first, second];
        let lefts = keys.map(|key| self.left_ns(key));
        let costs = [0, 1].map(|at| {
            let numbers = handles[at][1].limit_for(keys[at].1).unwrap();
            numbers.map_or(0, |limit| members[at].1.min(limit.burst()))
        });
        // Spends by one of the two limiters, with some of the members.
        let spend = |of: usize, wanted: [bool; 2]| {
            let member =
                |at: usize| handles[at][of].member(keys[at].1).cost(costs[at]).mode(members[at].2);
            let members: Vec<_> = (0..2).filter(|&at| wanted[at]).map(member).collect();
            let limiter = [&self.subject, &self.twin][of];
            limiter.batch(&members).spend().unwrap()
        };
        let said = spend(0, [true; 2]);
        let denies = |at: usize| lefts[at].is_some() && members[at].2 != MemberMode::SpendOnly;
        if !denies(0) && !denies(1) {
            let of_twin = spend(1, lefts.map(|left| left.is_none()));
            return assert_eq!(Pair::figures(said), Pair::figures(of_twin), "{keys:?}");
        }
        let of_member = |at: usize| {
            let own = handles[at][1].check(keys[at].1, costs[at]).unwrap();
            let blocked =
                |left_ns| Pair::unspent(own, &handles[at][1], keys[at].1).under_block(left_ns);
            lefts[at].map_or(own, blocked).for_member(at)
        };
        let deniers = (0..2).filter(|&at| members[at].2 != MemberMode::SpendOnly).map(of_member);
        let expected = deniers.fold(Decision::UNLIMITED, Decision::stricter);
        assert_eq!(said, expected, "{keys:?}");
    }

    /// Checks that the buckets are those of the twin, and that the list of blocks is the map.
    fn compare(&self) {
        for name in NAMES {
            let Some([subject, twin]) = self.handles(name) else { continue };
            for id in IDS {
                let own = twin.check(id, 1).unwrap();
                let said = subject.check(id, 1).unwrap();
                match self.left_ns((name, id)) {
                    Some(left_ns) => {
                        let own = Pair::unspent(own, &twin, id);
                        assert_eq!(Pair::figures(said), Pair::denied(own, left_ns));
                    }
                    None => assert_eq!(said, own, "{name} {id}"),
                }
                let state = subject.explain(id, 0).unwrap().call.unwrap().state;
                assert_eq!(state, twin.check(id, 0).unwrap(), "{name} {id}");
            }
        }
        let mut listed: Vec<_> = self.subject.blocks();
        listed.sort_by(|a, b| (&a.limit, &a.id).cmp(&(&b.limit, &b.id)));
        let listed: Vec<_> = listed
            .iter()
            .map(|it| (&*it.limit, &*it.id, it.left.as_nanos() as u64, it.reason.as_deref()))
            .collect();
        let mut expected: Vec<_> = self
            .blocks
            .iter()
            .filter(|(_, (until_ns, _))| *until_ns > self.now_ns)
            .map(|(&(name, id), &(until_ns, reason))| (name, id, until_ns - self.now_ns, reason))
            .collect();
        expected.sort();
        assert_eq!(listed, expected);
        assert_eq!(self.subject.inner.blocks.count(), expected.len(), "the count");
        assert_eq!(self.subject.stats().cells, self.twin.stats().cells, "a block has no bucket");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::full_size::full_size(40, 400)))]

    #[test]
    fn blocks_change_decisions_and_no_bucket(
        (engine, is_capped) in prop_oneof![
            Just((Engine::LockFree, false)), Just((Engine::LockFree, true)), Just((LAST, false)),
        ],
        steps in prop::collection::vec(((0..2usize, 0..IDS.len()), any_step()), 1..60),
    ) {
        let ends_at = SystemTime::now() + Duration::from_secs(100);
        let mut pair = Pair::new(Setting { engine, is_capped, ends_at });
        for ((name, id), step) in &steps {
            pair.step((NAMES[*name], IDS[*id]), step);
        }
    }
}
