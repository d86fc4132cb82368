//! Compares a limiter with Boulder, on sequences of calls that were recorded from Boulder.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use tollgate::batch::MemberMode;
use tollgate::{Clock, Decision, Error, IdFormat, KeyedLimit, Limit, Limiter, Limits};

#[derive(Deserialize)]
struct Sequence {
    name: String,
    limits: HashMap<String, Numbers>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Numbers {
    burst: u64,
    count: u64,
    period_ns: u64,
}

#[derive(Deserialize)]
struct Step {
    op: String,
    #[serde(default)]
    txns: Vec<Txn>,
    #[serde(default)]
    key: String,
    #[serde(default)]
    ns: u64,
    #[serde(default)]
    rel_ns: u64,
    expect: Option<Expected>,
    expect_error: Option<String>,
    #[serde(default)]
    stored_tat_minus_now_ns: HashMap<String, i64>,
}

#[derive(Deserialize)]
struct Txn {
    key: String,
    limit: String,
    cost: u64,
    mode: String,
}

#[derive(Deserialize)]
struct Expected {
    allowed: bool,
    remaining: i64,
    retry_in_ns: u64,
    reset_in_ns: u64,
}

struct Replay {
    limiter: Limiter,
    hand: tollgate::clock::ManualClock,
    now: Duration,
    handles: HashMap<String, KeyedLimit>,
    /// The limit that each key was used with.
    limit_of: HashMap<String, String>,
}

impl Replay {
    fn new(limits: &HashMap<String, Numbers>) -> Replay {
        let mut builder = Limits::builder();
        for (name, n) in limits {
            let limit = Limit::new(n.burst, n.count, Duration::from_nanos(n.period_ns)).unwrap();
            builder = builder.limit(name, IdFormat::String, limit).unwrap();
        }
        let (clock, hand) = Clock::manual();
        let limiter = Limiter::with_options(builder.build(), clock).unwrap();
        let handles =
            limits.keys().map(|name| (name.clone(), limiter.limit(name).unwrap())).collect();
        Replay { limiter, hand, now: Duration::ZERO, handles, limit_of: HashMap::new() }
    }

    fn call(&mut self, step: &Step) -> Result<Decision, Error> {
        let mut members = Vec::new();
        for txn in step.txns.iter().filter(|txn| txn.mode != "allow-only") {
            self.limit_of.insert(txn.key.clone(), txn.limit.clone());
            let mode = match txn.mode.as_str() {
                "check-and-spend" | "reset-only" => MemberMode::CheckAndSpend,
                "check-only" if step.op == "check" => MemberMode::CheckAndSpend,
                "check-only" => MemberMode::CheckOnly,
                "spend-only" if step.op == "check" => MemberMode::CheckAndSpend,
                "spend-only" => MemberMode::SpendOnly,
                other => panic!("{other}"),
            };
            members.push(self.handles[&txn.limit].member(&txn.key).cost(txn.cost).mode(mode));
        }
        let batch = self.limiter.batch(&members);
        match step.op.as_str() {
            "batch_spend" => batch.spend(),
            "check" => batch.check(),
            "batch_refund" => batch.refund(),
            "batch_reset" => batch.reset(),
            other => panic!("{other}"),
        }
    }

    fn advance(&mut self, by_ns: u64) {
        self.now += Duration::from_nanos(by_ns);
        self.hand.set(self.now);
    }

    /// Gives a key the TAT that Boulder's tests write into their store, by a spend of whole units. Where the TAT is
    /// further away than the burst offset, the spend happens at a later time.
    fn put(&self, step: &Step, limit: &str) {
        let handle = &self.handles[limit];
        let numbers = self.limiter.limits().limit_for(limit, step.key.as_str()).unwrap().unwrap();
        let tat = Duration::from_nanos(step.rel_ns);
        let ahead = tat.saturating_sub(numbers.burst_offset());
        let (units, rest) = (
            (tat - ahead).as_nanos() / numbers.emission_interval().as_nanos(),
            (tat - ahead).as_nanos() % numbers.emission_interval().as_nanos(),
        );
        assert_eq!(rest, 0, "whole units");
        self.hand.set(self.now + ahead);
        assert!(handle.spend(&step.key, units as u64).unwrap().allowed());
        self.hand.set(self.now);
    }
}

#[test]
fn equals_boulders_recorded_sequences() {
    let text = include_str!("../vectors/boulder_limiter_sequences.json");
    let sequences: Vec<Sequence> = serde_json::from_str(text).unwrap();
    let mut checked = 0;
    for sequence in &sequences {
        let mut replay = Replay::new(&sequence.limits);
        for (at, step) in sequence.steps.iter().enumerate() {
            let place = format!("{}, step {at} ({})", sequence.name, step.op);
            match step.op.as_str() {
                "advance" => replay.advance(step.ns),
                "put_tat" => {
                    let later = sequence.steps[at..].iter().flat_map(|step| &step.txns);
                    let limit = later.into_iter().find(|txn| txn.key == step.key).unwrap();
                    replay.put(step, &limit.limit.clone());
                }
                _ => {
                    let said = replay.call(step);
                    if step.expect_error.is_some() {
                        assert!(said.unwrap_err().is_invalid_batch(), "{place}");
                    } else if let Some(expected) = &step.expect {
                        let said = said.unwrap();
                        check(&place, said, expected);
                    } else {
                        assert!(said.unwrap().allowed(), "{place}");
                    }
                    checked += 1;
                }
            }
            for (key, &rel_ns) in &step.stored_tat_minus_now_ns {
                let Some(limit) = replay.limit_of.get(key) else { continue };
                let reset_in = replay.handles[limit].check(key, 0).unwrap().reset_in();
                assert_eq!(
                    reset_in.as_nanos(),
                    rel_ns.max(0) as u128,
                    "stored tat of {key}: {place}"
                );
            }
        }
    }
    assert_eq!(checked, 114, "calls checked");
}

fn check(place: &str, said: Decision, expected: &Expected) {
    let remaining = said.remaining().map_or(i64::MAX, |remaining| remaining as i64);
    assert_eq!(said.allowed(), expected.allowed, "allowed: {place}");
    assert_eq!(remaining, expected.remaining.max(0), "remaining: {place}");
    assert_eq!(said.retry_in().as_nanos(), expected.retry_in_ns.into(), "retry_in: {place}");
    assert_eq!(said.reset_in().as_nanos(), expected.reset_in_ns.into(), "reset_in: {place}");
}
