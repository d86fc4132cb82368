//! The scripts on real servers decide and write as `decide.rs` does, on a clock that is moved by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Commands, Connection};

use super::server::{Server, with_all};
use super::{charge, options, run, secondly, wait_until_connected};
use crate::limit::{Factor, Limit};
use crate::random::Random;
use crate::shared::protocol::change::{BucketChange, Step};
use crate::shared::protocol::decide::{charge_mark, decide, denied_by, written};
use crate::shared::protocol::lease::{Granted, LeaseEnd, LeaseRequest};
use crate::shared::protocol::text::{ORIGIN_NS, SharedBucket};
use crate::shared::protocol::{SharedMode, SharedStore, StoreMember};
use crate::shared::valkey::ValkeyStore;
use crate::shared::valkey::script::Scripts;

const MS: u64 = 1_000_000;

/// Batches on each server if `TOLLGATE_STORE_BATCHES` is not set.
const FEW_BATCHES: u64 = 2_000;

/// The place in [`limits`] of a leaky bucket that drips between calls.
const DRIPPING: usize = 11;

/// The number of limits of gcra, which are the first of [`limits`].
const GCRA_LIMITS: usize = 6;

/// Limits of all algorithms, small and at the ends of their ranges.
fn limits() -> Vec<Limit> {
    let ms = Duration::from_millis;
    let day = Duration::from_secs(86_400);
    vec![
        secondly(5, 3),
        secondly(5, 1),
        Limit::new(3, 1, Duration::from_nanos(999_999_999)).unwrap(),
        Limit::new(1 << 20, 1_000_000, Duration::from_secs(1)).unwrap(),
        Limit::new(400, 1, 100 * day).unwrap(),
        Limit::new(1, 1, 53_000 * day).unwrap(),
        Limit::fixed_window(5, ms(1_700)).unwrap(),
        Limit::fixed_window(16_777_215, day).unwrap(),
        Limit::token_bucket(4, 6, ms(1_300)).unwrap(),
        Limit::token_bucket(1, 7, ms(3)).unwrap(),
        Limit::token_bucket(3, 16_777_215, 6_000 * day).unwrap(),
        Limit::leaky_bucket(5, 2, ms(700)).unwrap(),
        Limit::leaky_bucket(16_777_215, 16_777_215, ms(1)).unwrap(),
        Limit::leaky_bucket(9, 4, 300 * day).unwrap(),
    ]
}

/// The text of a bucket in the store, if there is one.
type Stored = Option<Box<[u8]>>;

/// Texts that are no buckets, of one form or of both.
const ODD: &[&str] = &[
    "",
    "|",
    "|0",
    "x",
    "-1",
    "+1",
    " 1",
    "1 ",
    "01",
    "1.5",
    "1e9",
    "0x10",
    "1|",
    "1|2|3",
    "1:2",
    "1:",
    ":1",
    "12",
    "12|0",
    "1:2:3",
    "99999999999999999999",
    "18446744073709551616",
    "10801208836854775807",
    "10801208836854775806",
    "1577836800004:16777216",
    "1577836800004:16777215",
    "9577836800004:1",
    "2127592613887:1",
    "2127592613886:1",
    "nan",
    "1790000000000000000|0|1790000001000|5",
    "1790000000000000000|0|1790000001000|5|1790000002000|9",
    "1790000000000000000|0|1790000001000|5|1790000002000|9|1790000003000|1",
    "1790000000000000000|0|1790000002000|5|1790000001000|9",
    "1790000000000000000|0|1790000001000|0",
    "1790000000000000000|0|1790000001000|4194304",
    "1790000000000000000|0|1790000001000|",
    "1790000000000000000|0|1790000001000",
    "1790000000000000000||1790000001000|5",
    "1790000000000000000|0|1577836799999|5",
    "1790000000000000000|0|2127592613887|5",
    "1790000000000000000|0|",
    "1790000000000000000~1790000000000000000:1790000001000:1:5:0:0:0",
    "|0|1790000001000|5",
    "1790000000000:3|0|1790000001000|5",
    "1790000000000:3|1790000009000|1790000001000|5|1790000002000|4194303",
    "inf",
    "1790000000000000001\n",
    "\u{661}",
    "1790000000000000000|18446744073709551615",
    "1790000000000000000|18446744073709551616",
    "1790000000000:3|1",
    "0",
    "0:0",
    "00:1",
    // Of 19 bytes.
    "0790000000000000001",
    " 790000000000000001",
    "+790000000000000001",
    "179000000000000000x",
    "17900000000000000e1",
    "1.79e9    000000001",
    "0x6ab15200000000001",
    "1790000000 00000001",
    "1790000000.00000001",
    "179000000000000001\n",
];

struct World {
    store: ValkeyStore,
    connection: Connection,
    scripts: Scripts,
    random: Random,
    limits: Vec<Limit>,
    unix_ns: u64,
    /// Leases that were granted, by key.
    granted: Vec<(Box<str>, Granted)>,
    seen: Seen,
}

/// Counts the cases that the run has met, so that a run that tests nothing fails.
#[derive(Debug, Default)]
struct Seen {
    charged: u64,
    denied: u64,
    unreadable: u64,
    blocked: u64,
    leased: u64,
    /// Steps that have changed a bucket, by the step's name.
    steps: BTreeMap<&'static str, u64>,
    /// Batches for the script that has only plain gcra.
    plain: u64,
    /// Those of them of which a text had a block or a lease.
    plain_with_block: u64,
}

impl World {
    fn new(server: &Server, seed: u64) -> World {
        let by_hand =
            |text: &str| text.replace("redis.call('TIME')", "redis.call('LRANGE', 'clock', 0, -1)");
        let store = ValkeyStore::with_scripts(&options(server), Scripts::from(by_hand)).unwrap();
        let mut world = World {
            store,
            connection: server.connection(),
            scripts: Scripts::new(),
            random: Random(seed),
            limits: limits(),
            unix_ns: 1_790_000_000_000_000_000,
            granted: Vec::new(),
            seen: Seen::default(),
        };
        world.set_clock();
        wait_until_connected(&world.store);
        world
    }

    fn set_clock(&mut self) {
        let (s, us) = (self.unix_ns / 1_000_000_000, self.unix_ns / 1_000 % MS);
        let () = redis::pipe()
            .atomic()
            .del("clock")
            .rpush("clock", &[s, us])
            .exec(&mut self.connection)
            .unwrap();
    }

    /// Moves the clock: mostly forward, by times that meet the limits' boundaries, sometimes back.
    fn move_clock(&mut self) {
        let steps = [0, 1, 400, 999, 1_000, 333_333, 700_000, 1_300_000, 1_700_000, 86_400_000_000];
        let by_ns = self.random.pick(&steps) * 1_000 * self.random.below(4);
        self.unix_ns = match self.random.below(8) {
            0 => self.unix_ns - by_ns.min(1 << 40),
            _ => self.unix_ns + by_ns,
        };
        if self.unix_ns > 1_900_000_000_000_000_000 {
            self.unix_ns = 1_790_000_000_000_000_000 + self.random.below(MS) * 1_000;
        }
        self.set_clock();
    }

    fn members(&mut self) -> Vec<StoreMember> {
        let mut members: Vec<StoreMember> = Vec::new();
        let is_plain = self.random.below(4) == 0;
        for _ in 0..=self.random.below(3) {
            let of = if is_plain { GCRA_LIMITS } else { self.limits.len() };
            let mut limit = self.limits[self.random.below(of as u64) as usize].clone();
            let mut unscaled = None;
            if self.random.below(4) == 0 {
                if !is_plain && self.random.below(2) == 0 {
                    limit = self.limits[DRIPPING].clone();
                }
                let millionths = self.random.pick(&[1_000, 250_000, 500_000, 2_000_000, 3_000_000]);
                let factor = Factor::from_millionths(millionths);
                unscaled = (self.random.below(3) > 0).then(|| Box::new(limit.clone()));
                limit = limit.scaled(factor).ok().flatten().unwrap_or(limit);
            }
            let kind = limit.algorithm();
            // Limits of other sizes meet at one key.
            let key = format!("{kind}:{}", self.random.below(4));
            // A call with a factor takes no leases.
            let lease = self.lease(&key).filter(|_| unscaled.is_none() && !is_plain);
            if members.iter().any(|member| *member.key == *key) {
                continue;
            }
            let most = limit.burst();
            let cost = self.random.pick(&[0, 1, 1, 1, 2, most / 2, most]);
            let modes = [SharedMode::CheckOnly, SharedMode::SpendOnly, SharedMode::LookOnly];
            let all = SharedMode::CheckAndSpend;
            let mode = self.random.pick(&[all, all, all, modes[0], modes[1], modes[2]]);
            let keep_ms = self.random.pick(&[0, 0, 0, 5_000_000]);
            let (mode, keep_ms) = if is_plain { (all, 0) } else { (mode, keep_ms) };
            members.push(StoreMember {
                lease,
                key: key.into(),
                limit,
                unscaled,
                cost: cost.min(most),
                mode,
                keep_ms,
            });
        }
        members
    }

    /// Asks for a lease at half of the calls, and gives an old one up, or one that never was.
    fn lease(&mut self, key: &str) -> Option<LeaseRequest> {
        let want = self.random.pick(&[0, 1, 2, 3, 7, 64, 1 << 20, 1 << 40]);
        let length_ms = self.random.pick(&[1_000, 1_000, 1_000, 200, 777, 10_000]);
        let at = self.granted.iter().position(|(of, _)| **of == *key);
        let end = match self.random.below(4) {
            0 => at.map(|at| self.granted.swap_remove(at).1),
            1 => at.map(|at| self.granted[at].1),
            _ => None,
        };
        let end = end.map(|Granted { units, tag_ms, .. }| LeaseEnd {
            tag_ms: tag_ms + self.random.below(8) / 7,
            granted: units + self.random.below(8) / 7,
            unspent: self.random.below(units + 2),
        });
        (self.random.below(2) == 0).then_some(LeaseRequest { want, length_ms, end })
    }

    fn text(&mut self, key: &str) -> Option<Box<[u8]>> {
        let text: Option<Vec<u8>> = self.connection.get(key).unwrap();
        text.map(Into::into)
    }

    /// Writes an odd text or a block at a member's key.
    fn disturb(&mut self, member: &StoreMember) {
        let key = &*member.key;
        match self.random.below(12) {
            0 => {
                let odd = self.random.pick(ODD);
                let () = self.connection.set(key, odd).unwrap();
            }
            1 | 2 => {
                let text = self.text(key);
                let Ok(bucket) = SharedBucket::read(&member.limit, text.as_deref()) else {
                    return self.connection.del(key).unwrap();
                };
                let around = self.unix_ns / MS + self.random.pick(&[0, 1_000, 2_000, 900_000]);
                let blocked = SharedBucket { blocked_until_ms: around.saturating_sub(1), ..bucket };
                let () = self.connection.set(key, blocked.text(&member.limit)).unwrap();
            }
            3 => {
                // A word of any time near the present, and any count.
                let at_ms = (self.unix_ns - ORIGIN_NS) / MS - 2_000 + self.random.below(4_000);
                let counts = self.random.pick(&[8, 1 << 24]);
                let word = match member.limit.rule().gcra() {
                    Some(_) if self.random.below(2) == 0 => at_ms / 1_000 * 1_000 * MS,
                    Some(_) => at_ms * MS + self.random.below(MS),
                    None => (at_ms << 24) | self.random.below(counts),
                };
                let bucket = SharedBucket { word, ..SharedBucket::default() };
                let () = self.connection.set(key, bucket.text(&member.limit)).unwrap();
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        self.move_clock();
        let members = self.members();
        for member in &members {
            self.disturb(member);
        }
        let before: Vec<_> = members.iter().map(|member| self.text(&member.key)).collect();
        let is_plain = self.scripts.charge_gcra(&members).is_some();
        self.seen.plain += u64::from(is_plain);
        let has_block = |text: &Stored| text.as_ref().is_some_and(|text| text.contains(&b'|'));
        self.seen.plain_with_block += u64::from(is_plain && before.iter().any(has_block));
        let found = charge(&self.store, &members).unwrap();
        let after: Vec<_> = members.iter().map(|member| self.text(&member.key)).collect();
        let unix_ns = self.unix_ns / 1_000 * 1_000;
        assert_eq!((found.unix_ns, &found.texts), (unix_ns, &before), "{members:?}");
        let Ok(decided) = decide(&members, &before, unix_ns) else {
            assert_eq!(found.denied, Some(usize::MAX), "{members:?} {:?}", shown(&before));
            assert_eq!(before, after, "nothing is written");
            self.seen.unreadable += 1;
            let keys: Vec<&str> = members.iter().map(|member| &*member.key).collect();
            return self.connection.del(keys).unwrap();
        };
        let denied = denied_by(&members, &decided);
        assert_eq!(found.denied, denied, "at {unix_ns} {members:?} {:?}", shown(&before));
        self.seen.blocked +=
            decided.iter().filter(|member| member.decision.blocked()).count() as u64;
        self.seen.denied += u64::from(denied.is_some());
        let units = |granted: Option<Granted>| granted.map_or(0, |granted| granted.units);
        let leased =
            decided.iter().map(|decided| units(decided.granted.filter(|_| denied.is_none())));
        assert_eq!(
            found.leased.to_vec(),
            leased.collect::<Vec<_>>(),
            "at {unix_ns} {members:?} {:?}",
            shown(&before)
        );
        for (at, member) in members.iter().enumerate() {
            if let Some(granted) = decided[at].granted.filter(|_| denied.is_none()) {
                self.seen.leased += 1;
                self.granted.push((member.key.clone(), granted));
            }
            let new = denied.is_none().then(|| written(member, &decided[at], unix_ns)).flatten();
            let Some((text, keep_ms)) = new else {
                assert_eq!(after[at], before[at], "{member:?} is not written");
                continue;
            };
            self.seen.charged += 1;
            self.check_written(member, (&before[at], &after[at]), (text, Some(keep_ms)));
        }
    }

    /// Checks the text that a script has written, and the time for which it is kept.
    fn check_written(
        &mut self,
        member: &StoreMember,
        (before, after): (&Stored, &Stored),
        (text, keep_ms): (String, Option<u64>),
    ) {
        let [before, after] = [before, after].map(|text| shown(std::slice::from_ref(text)));
        let unix_ns = self.unix_ns;
        let Some(keep_ms) = keep_ms else {
            return assert_eq!(after, ["none"], "at {unix_ns} {member:?} {before:?}");
        };
        assert_eq!(after, [text], "at {unix_ns} {member:?} {before:?}");
        let left_ms: i64 = self.connection.pttl(&*member.key).unwrap();
        let most_ms = keep_ms as i64 + 2;
        assert!(
            (most_ms - 3_000..=most_ms).contains(&left_ms),
            "{left_ms} of {keep_ms}, at {unix_ns} {after:?} after {before:?}: {member:?}"
        );
    }

    /// A step of a member, and its name.
    fn random_step(
        &mut self,
        member: &StoreMember,
        text: &Option<Box<[u8]>>,
        unix_ns: u64,
    ) -> (&'static str, Step) {
        let burst = member.limit.burst();
        let units = self.random.pick(&[0, 1, 2, burst / 2, burst]).min(burst);
        let any = self.random.pick(&[0, 1, 7, 1 << 24, u64::MAX]);
        let charged = StoreMember { mode: SharedMode::CheckAndSpend, cost: 1, ..member.clone() };
        let charge = charge_mark(&charged, text.as_deref(), unix_ns)
            .filter(|_| self.random.below(8) > 0)
            .unwrap_or_else(|| member.limit.rule().charge_mark(1 << 24));
        let is_gcra = member.limit.rule().gcra().is_some();
        let own_burst = member.own_limit().burst();
        let at_most_ns = self.random.pick(&[0, 1_000_000_000, 1 << 40, u64::MAX]);
        match self.random.below(11) {
            0 => ("refund", Step::Refund { units }),
            1 => ("return", Step::Return { units, charge }),
            2 => ("owe", Step::Owe { units: any, max_debt: self.random.pick(&[0, 3, 1 << 20]) }),
            3 => ("reset", Step::Reset),
            // Blocks have no factor.
            4 | 5 if member.unscaled.is_some() => ("look", Step::Look),
            4 => {
                let time = self.random.pick(&[0, 1, 1_000_000, 2_000_000_001, u64::MAX]);
                ("block", Step::Block { time: Duration::from_nanos(time) })
            }
            5 => ("unblock", Step::Unblock),
            6 | 7 if is_gcra => ("reserve", Step::Reserve { units: units.max(1), at_most_ns }),
            8 if is_gcra => {
                let bucket = SharedBucket::read(&member.limit, text.as_deref()).unwrap_or_default();
                let bucket = bucket.guarded(member.own_limit(), unix_ns);
                let word = bucket.word.max(1) + self.random.below(8) / 7;
                ("cancel", Step::Cancel { units: units.min(own_burst), word })
            }
            9 => ("spend_up_to", Step::SpendUpTo { most: any.min(burst) }),
            10 => ("drain", Step::Drain { leave: self.random.pick(&[0, 1, 3, burst]) }),
            _ => ("look", Step::Look),
        }
    }

    /// Changes buckets by steps.
    fn change(&mut self) {
        self.move_clock();
        let members = self.members();
        for member in &members {
            self.disturb(member);
        }
        let before: Vec<_> = members.iter().map(|member| self.text(&member.key)).collect();
        let unix_ns = self.unix_ns / 1_000 * 1_000;
        let (mut names, mut changes) = (Vec::new(), Vec::new());
        for (member, text) in members.iter().zip(&before) {
            let (name, step) = self.random_step(member, text, unix_ns);
            names.push(name);
            changes.push(BucketChange { member: member.clone(), step });
        }
        let changed = run(&self.store, self.store.change(changes.clone().into())).unwrap();
        assert_eq!((changed.unix_ns, &changed.texts), (unix_ns, &before), "{changes:?}");
        let after: Vec<_> = members.iter().map(|member| self.text(&member.key)).collect();
        let stepped = changes.iter().zip(&before);
        let stepped = stepped.map(|(change, text)| change.stepped(text.as_deref(), unix_ns));
        let Ok(stepped) = stepped.collect::<Result<Vec<_>, _>>() else {
            assert_eq!(before, after, "nothing is written: {changes:?} {:?}", shown(&before));
            self.seen.unreadable += 1;
            let keys: Vec<&str> = members.iter().map(|member| &*member.key).collect();
            return self.connection.del(keys).unwrap();
        };
        for at in 0..members.len() {
            let texts = (&before[at], &after[at]);
            match changes[at].written(&stepped[at]) {
                Some(written) => {
                    *self.seen.steps.entry(names[at]).or_default() += 1;
                    self.check_written(&members[at], texts, written);
                }
                None => assert_eq!(texts.0, texts.1, "{:?} changes nothing", changes[at]),
            }
        }
    }
}

fn shown(texts: &[Option<Box<[u8]>>]) -> Vec<String> {
    let text = |text: &Option<Box<[u8]>>| {
        text.as_ref().map_or("none".into(), |text| String::from_utf8_lossy(text).into_owned())
    };
    texts.iter().map(text).collect()
}

#[test]
fn scripts_decide_and_write_as_the_rules() {
    let batches = std::env::var("TOLLGATE_STORE_BATCHES").ok().and_then(|text| text.parse().ok());
    with_all(|binary| {
        let server = Server::start(binary);
        let mut world = World::new(&server, 0x7011_6a7e);
        for _ in 0..batches.unwrap_or(FEW_BATCHES) {
            world.step();
            world.change();
        }
        let seen = &world.seen;
        let is_met = seen.steps.len() == 10
            && seen.steps.values().all(|&count| count > 5)
            && seen.charged > 300
            && seen.denied > 300
            && seen.leased > 40
            && seen.unreadable > 20
            && seen.blocked > 20
            && seen.plain > 150
            && seen.plain_with_block > 20;
        assert!(is_met, "{seen:?}");
        println!("{:?}", world.seen);
    });
}
