//! Tests the command against an oracle: a naive count in signed 128-bit integers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use serde_json::{Value, json};

use crate::support::{Sandbox, operation, real_log};

/// A gcra limit, and the theoretical arrival times of its buckets.
struct Naive {
    name: &'static str,
    burst: i128,
    interval_ns: i128,
    tats: HashMap<String, i128>,
}

#[derive(Clone, Copy)]
struct Answer {
    allowed: bool,
    remaining: i128,
    retry_in_ns: i128,
    reset_in_ns: i128,
}

impl Naive {
    fn new(name: &'static str, burst: i128, interval_ns: i128) -> Naive {
        Naive { name, burst, interval_ns, tats: HashMap::new() }
    }

    fn offset_ns(&self) -> i128 {
        self.burst * self.interval_ns
    }

    /// Returns the answer to a spend, and the theoretical arrival time after it.
    fn ask(&self, id: &str, now: i128, cost: i128) -> (Answer, i128) {
        let base = now.max(self.tats.get(id).copied().unwrap_or(0));
        let increment = cost * self.interval_ns;
        let diff = now - (base + increment - self.offset_ns());
        let answer = if diff < 0 {
            let remaining = (now - (base - self.offset_ns())).max(0) / self.interval_ns;
            Answer { allowed: false, remaining, retry_in_ns: -diff, reset_in_ns: base - now }
        } else {
            let (remaining, retry_in_ns) = (diff / self.interval_ns, (increment - diff).max(0));
            Answer { allowed: true, remaining, retry_in_ns, reset_in_ns: base + increment - now }
        };
        (answer, base + increment)
    }

    fn refund(&mut self, id: &str, now: i128, cost: i128) -> Answer {
        let base = now.max(self.tats.get(id).copied().unwrap_or(0));
        let after = now.max(base - cost * self.interval_ns);
        self.tats.insert(id.into(), after);
        let remaining = (now - (after - self.offset_ns())) / self.interval_ns;
        Answer { allowed: after < base, remaining, retry_in_ns: 0, reset_in_ns: after - now }
    }

    fn reset(&mut self, id: &str) -> Answer {
        self.tats.remove(id);
        Answer { allowed: true, remaining: self.burst, retry_in_ns: 0, reset_in_ns: 0 }
    }
}

/// Returns the strictest answer of a batch and its position: a denial before an admission, then the longer
/// wait, then fewer units left, then the later position.
fn strictest(answers: &[(usize, Answer)]) -> Option<(usize, Answer)> {
    answers.iter().copied().max_by_key(|(position, answer)| {
        (!answer.allowed, answer.retry_in_ns, -answer.remaining, *position)
    })
}

/// A line of the real log, parsed by splitting it.
struct Request {
    second: i64,
    client: String,
    path: String,
}

fn requests(log: &str) -> Vec<Request> {
    let read = |line: &str| {
        let time = line.split(['[', ']']).nth(1).unwrap();
        let time = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).unwrap();
        Request {
            second: time.to_timestamp().unwrap().as_second(),
            client: line.split(' ').next().unwrap().into(),
            path: line.split('"').nth(1).unwrap().split(' ').nth(1).unwrap().into(),
        }
    };
    log.lines().map(read).collect()
}

/// Computes the summary of the real log under two limits, first by client, then by path. A request charges
/// both or none.
fn count(requests: &[Request], mut limits: [Naive; 2]) -> Value {
    let mut counts: BTreeMap<&str, [u64; 2]> =
        limits.iter().map(|limit| (limit.name, [0, 0])).collect();
    let mut keys: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut denied_keys: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let (mut allowed, mut denied) = (0, 0);
    for request in requests {
        let now = i128::from(request.second) * 1_000_000_000;
        let ids = [&*request.client, &*request.path];
        let asked = [0, 1].map(|i| limits[i].ask(ids[i], now, 1));
        let (by, answer) = strictest(&[(0, asked[0].0), (1, asked[1].0)]).unwrap();
        keys.extend([0, 1].map(|i| (limits[i].name, ids[i])));
        if answer.allowed {
            allowed += 1;
            for i in [0, 1] {
                limits[i].tats.insert(ids[i].into(), asked[i].1);
                counts.get_mut(limits[i].name).unwrap()[0] += 1;
            }
        } else {
            denied += 1;
            counts.get_mut(limits[by].name).unwrap()[1] += 1;
            *denied_keys.entry((limits[by].name, ids[by])).or_default() += 1;
        }
    }
    let limits = counts.iter().map(|(name, [allowed, denied])| {
        let keys = keys.iter().filter(|(limit, _)| limit == name).count();
        let keys_denied = denied_keys.keys().filter(|(limit, _)| limit == name).count();
        let counts =
            json!({"allowed": allowed, "denied": denied, "keys": keys, "keys_denied": keys_denied});
        (name.to_string(), counts)
    });
    let limits: serde_json::Map<_, _> = limits.collect();
    let mut top: Vec<_> = denied_keys.iter().collect();
    top.sort_by_key(|((limit, id), denied)| (std::cmp::Reverse(**denied), *id, *limit));
    let top: Vec<_> = top
        .iter()
        .take(10)
        .map(|((limit, id), denied)| json!({"limit": limit, "id": id, "denied": denied}))
        .collect();
    let lines = requests.len();
    json!({"lines": lines, "parsed": lines, "skipped": 0, "late": 0, "allowed": allowed,
        "denied": denied, "limits": limits, "top_denied": top})
}

#[test]
fn a_real_log_agrees_with_the_oracle() {
    let Some(log) = real_log() else { return };
    let dir = Sandbox::new();
    dir.put(
        "limits.yml",
        "PerClient: {burst: 3, count: 1, period: 20s, id: ipAddress}\n\
         PerPath: {burst: 4, count: 7, period: 60s, id: string}\n",
    );
    dir.put("access.log", &log);
    let ran = dir.run("replay --limits limits.yml --log access.log --rule PerClient=client --rule PerPath=path --json --decisions d.jsonl");
    assert_eq!((ran.status, &*ran.stderr), (Some(0), ""));

    let mut requests = requests(&log);
    requests.sort_by_key(|request| request.second);
    let limits =
        [Naive::new("PerClient", 3, 20_000_000_000), Naive::new("PerPath", 4, 60_000_000_000 / 7)];
    let expected = count(&requests, limits);
    assert_eq!(ran.json(), expected);
    assert!(expected["denied"].as_u64() > Some(1000), "the limits bite: {expected}");
    let decisions = dir.get("d.jsonl");
    let denied = decisions.lines().filter(|line| line.contains("denied_by")).count();
    assert_eq!(
        (decisions.lines().count(), denied as u64),
        (10_000, expected["denied"].as_u64().unwrap())
    );
}

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    /// Returns a number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A member of an operation: the index of the limit, an id, a cost and a mode.
type Member = (usize, String, i128, &'static str);

/// Computes the decision on an operation in the command's format.
fn decide(limits: &mut [Naive], op: &str, now: i128, members: &[Member]) -> String {
    let mut answers = Vec::new();
    let mut charges = Vec::new();
    for (position, (limit, id, cost, mode)) in members.iter().enumerate() {
        let limit_no = *limit;
        // The last limit is one of Boulder's, and the file does not declare it.
        let Some(limit) = limits.get_mut(limit_no) else { continue };
        if *cost > limit.burst {
            let (burst, name) = (limit.burst, limit.name);
            return format!("{{\"error\":\"cost {cost} is above the burst {burst} of {name}\"}}");
        }
        let (answer, tat) = limit.ask(id, now, *cost);
        if *mode != "check_only" && answer.allowed && *cost > 0 {
            charges.push((limit_no, id, tat));
        }
        answers.push((position, answer));
    }
    match op {
        "refund" | "reset" => answers.iter_mut().for_each(|(position, answer)| {
            let (limit, id, cost, mode) = &members[*position];
            let limit = &mut limits[*limit];
            *answer = match (op, *mode) {
                ("refund", "check_only") => limit.refund(id, now, 0),
                ("refund", _) => limit.refund(id, now, *cost),
                (_, "check_only") => limit.ask(id, now, 0).0,
                _ => limit.reset(id),
            };
        }),
        _ => answers.retain(|(position, _)| members[*position].3 != "spend_only"),
    }
    let Some((position, answer)) = strictest(&answers) else {
        // No member can deny; spend-only members are charged.
        charges.into_iter().filter(|_| op == "spend").for_each(|(limit, id, tat)| {
            limits[limit].tats.insert(id.clone(), tat);
        });
        return r#"{"allowed":true,"remaining":null,"retry_in_ns":0,"reset_in_ns":0}"#.into();
    };
    if op == "spend" && answer.allowed {
        for (limit, id, tat) in charges {
            limits[limit].tats.insert(id.clone(), tat);
        }
    }
    let Answer { allowed, remaining, retry_in_ns, reset_in_ns } = answer;
    let mut text = format!(
        "{{\"allowed\":{allowed},\"remaining\":{remaining},\"retry_in_ns\":{retry_in_ns},\"reset_in_ns\":{reset_in_ns}"
    );
    if !allowed && op != "refund" {
        let (limit, id, ..) = &members[position];
        write!(text, ",\"denied_by\":\"{}:{id}\"", limits[*limit].name).unwrap();
    }
    text + "}"
}

fn random_members(dice: &mut Dice) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for _ in 0..=dice.roll(4) * dice.roll(2) {
        let (limit, id) = (dice.roll(4) as usize, dice.roll(3).to_string());
        if members.iter().any(|member| (member.0, &member.1) == (limit, &id)) {
            continue;
        }
        let mode = ["check_and_spend", "check_and_spend", "check_only", "spend_only"]
            [dice.roll(4) as usize];
        members.push((limit, id, i128::from(dice.roll(5)), mode));
    }
    members
}

#[test]
fn random_operations_agree_with_the_oracle() {
    let names = ["A", "B", "C", "NewOrdersPerAccount"];
    let mut limits = [
        Naive::new("A", 5, 1_000_000_000),
        Naive::new("B", 3, 500_000_000),
        Naive::new("C", 10, 1_000_000_000 / 3),
    ];
    let dir = Sandbox::new();
    dir.put(
        "limits.yml",
        "A: {burst: 5, count: 1, period: 1s, id: string}\n\
         B: {burst: 3, count: 2, period: 1s, id: string}\n\
         C: {burst: 10, count: 3, period: 1s, id: string}\n",
    );
    let mut dice = Dice(1);
    let (mut trace, mut expected) = (String::new(), String::new());
    let mut at_ns = 1_700_000_000_000_000_000;
    for _ in 0..10_000 {
        at_ns += dice.roll(3) * dice.roll(150_000_000);
        let op = ["spend", "spend", "spend", "check", "refund", "reset"][dice.roll(6) as usize];
        let mut members = random_members(&mut dice);
        if op == "reset" {
            // A reset ignores costs, but a batch and a single call check them differently.
            members.iter_mut().for_each(|member| member.2 = 1);
        }
        let txns: Vec<String> = members
            .iter()
            .map(|(limit, id, cost, mode)| {
                format!(
                    r#"{{"limit":"{}","id":"{id}","cost":{cost},"mode":"{mode}"}}"#,
                    names[*limit]
                )
            })
            .collect();
        trace += &operation(at_ns, op, &txns.join(","));
        writeln!(expected, "{}", decide(&mut limits, op, i128::from(at_ns), &members)).unwrap();
    }
    let (decisions, _) = dir.decide(&trace);
    for (i, (decided, expected)) in decisions.lines().zip(expected.lines()).enumerate() {
        assert_eq!(decided, expected, "line {}: {}", i + 1, trace.lines().nth(i).unwrap());
    }
    assert_eq!(decisions.lines().count(), 10_000);
    for part in ["\"denied_by\":\"C:", "is above the burst", "null", "\"allowed\":false"] {
        assert!(decisions.contains(part), "the trace has every form: {part}");
    }
}
