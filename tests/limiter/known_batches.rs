//! Batches of known keys, which the lock-free table decides by its fast path, beside the same batches on the other
//! engine: the same decisions, errors, counters and buckets.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::batch::{Member, MemberMode};
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

    fn members<'a>(&'a self, ids: &'a [String], of: &[Asked]) -> Vec<Member<'a>> {
        let member = |&Asked { limit, id, cost, terms }: &Asked| {
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
            let member = self.handles[limit].member(id).cost(cost);
            match terms {
                Terms::None => member,
                Terms::Factor => member.factor("0.5".parse().unwrap()),
                Terms::Leaving(units) => member.leaving(units),
                Terms::Mode(mode) => member.mode(mode),
            }
        };
        of.iter().map(member).collect()
    }
}

/// A member: positions of its limit and id, its cost, and what else it says.
#[derive(Clone, Copy, Debug)]
struct Asked {
    limit: usize,
    id: usize,
    cost: u64,
    terms: Terms,
}

/// The options of a member beside its cost. The fast path leaves all but `None` to the general way.
#[derive(Clone, Copy, Debug)]
enum Terms {
    None,
    Factor,
    Leaving(u64),
    Mode(MemberMode),
}

#[derive(Clone, Debug)]
enum Op {
    Batch(Vec<Asked>),
    Each(Vec<Asked>),
    Single(Asked),
    Advance(u64),
    Sweep,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Costs of 0 and above the burst are among them, and ids that are in a batch twice.
    let terms = prop_oneof![
        24 => Just(Terms::None),
        1 => Just(Terms::Factor),
        1 => (0..5_u64).prop_map(Terms::Leaving),
        1 => Just(Terms::Mode(MemberMode::CheckOnly)),
        1 => Just(Terms::Mode(MemberMode::SpendOnly)),
    ];
    let cost = prop_oneof![6 => 1..4_u64, 1 => 0..8_u64];
    let asked = (0..NAMES.len(), 0..3_usize, cost, terms)
        .prop_map(|(limit, id, cost, terms)| Asked { limit, id, cost, terms })
        .boxed();
    let member = move || asked.clone();
    let one = member();
    let members = move || prop::collection::vec(member(), 1..6);
    let op = prop_oneof![
        6 => members().prop_map(Op::Batch),
        3 => members().prop_map(Op::Each),
        2 => one.prop_map(Op::Single),
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
        Op::Single(asked) => {
            let members = side.members(ids, &[*asked]);
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
