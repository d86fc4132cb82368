//! Batches of known keys, which the lock-free table decides on a path of their own, beside the same batches on the other
//! engine: the same decisions, errors, counters and buckets.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::batch::Member;
use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{Clock, Decision, Id, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

const NAMES: [&str; 5] = ["Text", "Number", "Address", "Window", "Override"];
const BURST: u64 = 6;

struct Side {
    limiter: Limiter,
    handles: Vec<KeyedLimit>,
    hand: ManualClock,
}

impl Side {
    fn new(engine: Engine) -> Side {
        let (clock, hand) = Clock::manual();
        let limit = || Limit::new(BURST, 1, Duration::from_secs(1)).unwrap();
        let window = Limit::fixed_window(BURST, Duration::from_secs(5)).unwrap();
        let formats = [IdFormat::String, IdFormat::RegId, IdFormat::IpAddress];
        let mut limits = Limits::builder();
        for (name, format) in NAMES.iter().zip(formats) {
            limits = limits.limit(name, format, limit()).unwrap();
        }
        let limits = limits.limit("Window", IdFormat::String, window).unwrap();
        let limits = limits.limit("Override", IdFormat::String, limit()).unwrap();
        let own = Limit::new(2, 1, Duration::from_secs(3)).unwrap();
        let limits = limits.override_id("Override", "id1", own).unwrap();
        let options = LimiterOptions::default().clock(clock).engine(engine).counting(true);
        let limiter = Limiter::with_options(limits.build(), options).unwrap();
        let handles = NAMES.iter().map(|name| limiter.limit(name).unwrap()).collect();
        Side { limiter, handles, hand }
    }

    fn members<'a>(&'a self, ids: &'a [String], of: &[(usize, usize, u64)]) -> Vec<Member<'a>> {
        let member = |&(limit, id, cost): &(usize, usize, u64)| {
            let number = id as u64;
            let id = match NAMES[limit] {
                "Number" => Id::from(number),
                // The second is an IPv4-mapped address: the first one's bucket.
                "Address" => Id::from(if id == 0 {
                    std::net::IpAddr::from([10, 0, 0, 1])
                } else if id == 1 {
                    std::net::IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 1])
                } else {
                    std::net::IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, id as u16])
                }),
                _ => Id::from(&ids[id]),
            };
            self.handles[limit].member(id).cost(cost)
        };
        of.iter().map(member).collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Batch(Vec<(usize, usize, u64)>),
    Each(Vec<(usize, usize, u64)>),
    Single(usize, usize, u64),
    Advance(u64),
    Sweep,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Costs of 0 and above the burst are among them, and ids that are in a batch twice.
    let member = || (0..NAMES.len(), 0..3_usize, prop_oneof![6 => 1..4_u64, 1 => 0..8_u64]);
    let members = move || prop::collection::vec(member(), 1..6);
    let op = prop_oneof![
        6 => members().prop_map(Op::Batch),
        3 => members().prop_map(Op::Each),
        2 => member().prop_map(|(limit, id, cost)| Op::Single(limit, id, cost)),
        2 => (0..4_000_u64).prop_map(Op::Advance),
        1 => Just(Op::Sweep),
    ];
    prop::collection::vec(op, 1..60)
}

/// The decisions, or the error's text.
type Answer = Result<(Decision, Vec<Decision>), String>;

fn run(side: &Side, ids: &[String], op: &Op) -> Answer {
    let error = |error: tollgate::Error| error.to_string();
    match op {
        Op::Batch(of) => {
            let members = side.members(ids, of);
            side.limiter.batch(&members).spend().map(|it| (it, Vec::new())).map_err(error)
        }
        Op::Each(of) => {
            let (members, mut each) = (side.members(ids, of), Vec::new());
            let decision = side.limiter.batch(&members).spend_into(&mut each).map_err(error)?;
            Ok((decision, each))
        }
        Op::Single(limit, id, cost) => {
            let members = side.members(ids, &[(*limit, *id, *cost)]);
            side.limiter.batch(&members).check().map(|it| (it, Vec::new())).map_err(error)
        }
        Op::Advance(ms) => {
            side.hand.advance(Duration::from_millis(*ms));
            Ok((side.handles[0].check("none", 0).map_err(error)?, Vec::new()))
        }
        Op::Sweep => {
            while !side.limiter.sweep(64).finished {}
            Ok((side.handles[0].check("none", 0).map_err(error)?, Vec::new()))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn known_batches_answer_as_the_other_engine(ops in ops()) {
        let [table, exact] = [Engine::LockFree, Engine::Exact].map(Side::new);
        // A short text, one of 12 bytes, and a long one.
        let ids = ["a".to_owned(), "id1".to_owned(), "long".repeat(12)];
        for op in &ops {
            prop_assert_eq!(run(&table, &ids, op), run(&exact, &ids, op), "{:?}", op);
        }
        let [counted, expected] = [&table, &exact].map(|side| format!("{:?}", side.limiter.counters().limits));
        prop_assert_eq!(counted, expected);
    }
}
