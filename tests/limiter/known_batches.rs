//! Batches and calls for known keys, which the lock-free table decides by its fast paths, beside the same calls on the other
//! engine: the same decisions, errors, counters and buckets.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::batch::{Member, MemberMode};
use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{Clock, Decision, Id, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::full_size;

const NAMES: [&str; 6] = ["Text", "Number", "Address", "Pair", "Window", "Override"];
const BURST: u64 = 6;

fn limits() -> Limits {
    let limit = || Limit::new(BURST, 1, Duration::from_secs(1)).unwrap();
    let window = Limit::fixed_window(BURST, Duration::from_secs(5)).unwrap();
    let own = || Limit::new(2, 1, Duration::from_secs(3)).unwrap();
    let pair = IdFormat::tuple(&[IdFormat::RegId, IdFormat::String]).unwrap();
    let formats = [IdFormat::String, IdFormat::RegId, IdFormat::IpAddress, pair];
    let mut limits = Limits::builder();
    for (name, format) in NAMES.iter().zip(formats) {
        limits = limits.limit(name, format, limit()).unwrap();
    }
    let limits = limits.limit("Window", IdFormat::String, window).unwrap();
    let limits = limits.limit("Override", IdFormat::String, limit()).unwrap();
    let limits = limits.override_id("Override", "id1", own()).unwrap();
    limits.override_id("Pair", (1_u64, "id1"), own()).unwrap().build()
}

struct Side {
    limiter: Limiter,
    handles: Vec<KeyedLimit>,
    hand: ManualClock,
}

impl Side {
    fn new(engine: Engine, is_counting: bool) -> Side {
        let (clock, hand) = Clock::manual();
        let limiter = Limiter::with_options(
            limits(),
            LimiterOptions::default().clock(clock).engine(engine).counting(is_counting),
        );
        let limiter = limiter.unwrap();
        let handles = NAMES.iter().map(|name| limiter.limit(name).unwrap()).collect();
        Side { limiter, handles, hand }
    }

    fn members<'a>(&'a self, ids: &'a [String], of: &[Asked]) -> Vec<Member<'a>> {
        let member = |&Asked { limit, id, cost, terms }: &Asked| {
            let member = self.handles[limit].member(id_of(ids, limit, id)).cost(cost);
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

fn id_of(ids: &[String], limit: usize, id: usize) -> Id<'_> {
    match NAMES[limit] {
        "Number" => Id::from(id as u64),
        "Pair" => Id::from((id as u64, ids[id].as_str())),
        // The second is an IPv4-mapped address: the first one's bucket.
        "Address" => Id::from(match id {
            0 => std::net::IpAddr::from([10, 0, 0, 1]),
            1 => std::net::IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 1]),
            _ => std::net::IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, id as u16]),
        }),
        _ => Id::from(&ids[id]),
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
    /// A call of a handle, for the member's limit, id and cost.
    Call(Verb, Asked),
    Advance(u64),
    Sweep,
    Reload,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Spend,
    Check,
    Refund,
    Reset,
    /// For half a second.
    Block,
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
    let (one, called) = (member(), member());
    let verb = prop_oneof![
        6 => Just(Verb::Spend),
        2 => Just(Verb::Check),
        1 => Just(Verb::Refund),
        1 => Just(Verb::Reset),
        1 => Just(Verb::Block),
    ];
    let members = move || prop::collection::vec(member(), 1..6);
    let op = prop_oneof![
        6 => members().prop_map(Op::Batch),
        3 => members().prop_map(Op::Each),
        2 => one.prop_map(Op::Single),
        6 => (verb, called).prop_map(|(verb, asked)| Op::Call(verb, asked)),
        2 => (0..4_000_u64).prop_map(Op::Advance),
        1 => Just(Op::Sweep),
        1 => Just(Op::Reload),
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
        &Op::Call(verb, Asked { limit, id, cost, .. }) => {
            let (handle, id) = (&side.handles[limit], id_of(ids, limit, id));
            let decision = match verb {
                Verb::Spend => handle.spend(id, cost),
                Verb::Check => handle.check(id, cost),
                Verb::Refund => handle.refund(id, cost),
                Verb::Reset => handle.reset(id),
                Verb::Block => {
                    handle.block(id, Duration::from_millis(500)).and_then(|_| handle.check(id, 0))
                }
            };
            decision.map(|it| (it, Vec::new())).map_err(error)
        }
        Op::Advance(ms) => {
            side.hand.advance(Duration::from_millis(*ms));
            Ok((side.handles[0].check("none", 0).map_err(error)?, Vec::new()))
        }
        Op::Reload => {
            side.limiter.reload(limits()).map_err(error)?;
            Ok((side.handles[0].check("none", 0).map_err(error)?, Vec::new()))
        }
        Op::Sweep => {
            while !side.limiter.sweep(64).finished {}
            Ok((side.handles[0].check("none", 0).map_err(error)?, Vec::new()))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: full_size(500, 5_000), ..ProptestConfig::default() })]

    #[test]
    fn known_keys_answer_as_on_the_other_engine(is_counting in any::<bool>(), ops in ops()) {
        let engines = [Engine::LockFree, Engine::Exact];
        let [table, exact] = engines.map(|engine| Side::new(engine, is_counting));
        // Two short texts, and the longest of a pair that is hashed as it lies.
        let ids = ["a".to_owned(), "id1".to_owned(), "long".repeat(16)];
        for op in &ops {
            prop_assert_eq!(run(&table, &ids, op), run(&exact, &ids, op), "{:?}", op);
        }
        let [counted, expected] = [&table, &exact].map(|side| format!("{:?}", side.limiter.counters().limits));
        prop_assert_eq!(counted, expected);
    }
}
