//! An access log, line by line, in the order of time.

use smallvec::SmallVec;
use tollgate::limit::Factor;
use tollgate::{Decision, Error};

use crate::Failure;
use crate::access_log::{self, Entry, Field};
use crate::against::Said;
use crate::args::{Rule, Traffic};
use crate::client::network_of;
use crate::engine::LimitNo;
use crate::input::{Line, Lines, MAX_LINE_BYTES};
use crate::reorder::Reorder;
use crate::replay::{LineCounts, Session};
use crate::report::Request;
use crate::side::Side;
use crate::tally::{KeyNo, Keys};
use crate::text::{Escaped, shortened};
use crate::trace;

/// Lines that are held at most to put them in order.
const MAX_HELD: usize = 1_000_000;
/// Skipped lines that are shown.
const MAX_SHOWN: usize = 5;
/// Characters of a skipped line that are shown.
const MAX_SHOWN_CHARS: usize = 100;

/// What is kept of a line until it is its turn.
struct Held {
    line: u64,
    /// Those of the limits in force, then those of the candidate's.
    keys: Keys,
    /// For the report, if one was asked for.
    request: Option<Request>,
}

/// The lines that were skipped: how many, and the first few.
#[derive(Default)]
struct Skipped {
    count: u64,
    shown: Vec<String>,
}

/// The rules, under the limits in force and under the candidate's.
struct Rules {
    in_force: LimitFields,
    candidate: LimitFields,
}

type LimitFields = SmallVec<[(LimitNo, Field); 4]>;

/// Replays a log. Returns the counts, and the texts for the first lines that were skipped.
pub(crate) fn run(
    lines: &mut Lines,
    session: &mut Session,
    traffic: &Traffic,
) -> Result<(LineCounts, Vec<String>), Failure> {
    let rules = resolve(&traffic.rules, session)?;
    let mut reorder = Reorder::new(traffic.window_ns(), MAX_HELD);
    let mut skipped = Skipped::default();
    let mut parsed = 0;
    let mut number = 0;
    while let Some(line) = lines.next()? {
        number += 1;
        match read(line, number, &rules, traffic.ipv6_prefix, session, &mut parsed) {
            Ok((at_ns, held)) => reorder.push(at_ns, held),
            Err((why, text)) => skipped.add(number, &why, text),
        }
        take_due(&mut reorder, &rules, session, &mut skipped)?;
        session.progress.step();
    }
    reorder.end();
    take_due(&mut reorder, &rules, session, &mut skipped)?;
    let late = reorder.late();
    Ok((LineCounts { parsed, skipped: skipped.count, late, errors: None }, skipped.shown))
}

/// Finds the rules' limits; reports every one that is unknown. Where two files are compared, one of
/// them may lack a limit: it is no limit there.
fn resolve(rules: &[Rule], session: &mut Session) -> Result<Rules, Failure> {
    let Session { side, against, file, progress, .. } = session;
    let mut resolved = Rules { in_force: LimitFields::new(), candidate: LimitFields::new() };
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    for rule in rules {
        let in_force = side.find(&rule.limit);
        let candidate = against.as_mut().map(|against| against.side.find(&rule.limit));
        let given = format!("--rule {}={}", Escaped(&rule.limit), rule.field.name());
        let note = |file: &str, error: &Error| {
            format!("{given}: {}: {error}; no limit there", Escaped(file))
        };
        match (&in_force, &candidate, &against) {
            (Err(error), None | Some(Err(_)), _) => faults.push(format!("{given}: {error}")),
            (Err(error), Some(Ok(_)), _) => notes.push(note(file, error)),
            (Ok(_), Some(Err(error)), Some(against)) => notes.push(note(&against.file, error)),
            (Ok(_), _, _) => {}
        }
        resolved.in_force.extend(in_force.ok().map(|limit| (limit, rule.field)));
        let candidate = candidate.and_then(Result::ok);
        resolved.candidate.extend(candidate.map(|limit| (limit, rule.field)));
    }
    if !faults.is_empty() {
        return Err(Failure::NotDone(faults.join("\n")));
    }
    notes.iter().for_each(|note| progress.report(note));
    Ok(resolved)
}

/// Reads a line's time, and what is kept of it until its turn; else says why not, with the line's text.
fn read<'a>(
    line: Line<'a>,
    number: u64,
    rules: &Rules,
    ipv6_prefix: Option<u8>,
    session: &mut Session,
    parsed: &mut u64,
) -> Result<(u64, Held), (String, &'a [u8])> {
    let Line::Text(line) = line else {
        return Err((format!("longer than {MAX_LINE_BYTES} bytes"), b""));
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let entry = access_log::parse(line).map_err(|why| (why.to_string(), line))?;
    *parsed += 1;
    let network = ipv6_prefix.and_then(|prefix| network_of(entry.client(), prefix));
    let entry = match &network {
        Some(network) => entry.with_client(network.as_bytes()),
        None => entry,
    };
    let mut keys = Keys::new();
    add_keys(&entry, &rules.in_force, &mut session.side, &mut keys).map_err(|why| (why, line))?;
    if let Some(against) = &mut session.against {
        let in_force = keys.len();
        if add_keys(&entry, &rules.candidate, &mut against.side, &mut keys).is_err() {
            // It is not compared then.
            keys.truncate(in_force);
        }
    }
    let request = session.collected.as_ref().map(|_| Request::new(&entry));
    Ok((entry.at_ns, Held { line: number, keys, request }))
}

fn add_keys(
    entry: &Entry<'_>,
    rules: &LimitFields,
    side: &mut Side,
    keys: &mut Keys,
) -> Result<(), String> {
    for &(limit, field) in rules {
        let id = entry.field(field).ok_or_else(|| format!("no {}", field.name()))?;
        let id = std::str::from_utf8(id).map_err(|_| format!("{} is not UTF-8", field.name()))?;
        let key = side.tally.key(&side.engine, limit, id);
        keys.push(key.map_err(|error| format!("{}: {error}", field.name()))?);
    }
    Ok(())
}

/// Charges the lines whose turn it is.
fn take_due(
    reorder: &mut Reorder<Held>,
    rules: &Rules,
    session: &mut Session,
    skipped: &mut Skipped,
) -> Result<(), Failure> {
    while let Some((at_ns, held)) = reorder.pop() {
        let (keys, of_candidate) = held.keys.split_at(rules.in_force.len());
        match session.side.spend(at_ns, keys) {
            Ok(decision) => {
                record(at_ns, &decision, keys, session)?;
                let old = Said { keys, decision: &decision };
                let is_compared = of_candidate.len() == rules.candidate.len();
                let then = compare(at_ns, old, is_compared.then_some(of_candidate), session);
                if let (Some(collected), Some(request)) = (&mut session.collected, &held.request) {
                    collected.request(request, !decision.allowed(), then);
                }
            }
            Err(why) => skipped.add(held.line, &why, b""),
        }
    }
    Ok(())
}

fn record(
    at_ns: u64,
    decision: &Decision,
    keys: &[KeyNo],
    session: &mut Session,
) -> Result<(), Failure> {
    let Session { side, decisions, collected, .. } = session;
    let denied_by = decision.denied_by().map(|position| side.tally.get(keys[position]));
    let denied_by = denied_by.map(|key| (side.engine.name(key.limit), &*key.normalized));
    decisions.write(|out| trace::write_decision(out, decision, denied_by))?;
    let Some(collected) = collected else {
        side.tally.count(keys, decision, |_| true, |_, _| ());
        return Ok(());
    };
    collected.move_to(at_ns);
    side.tally.count(keys, decision, |_| true, |limit, allowed| collected.count(limit, allowed));
    collected.see(side, keys, decision, |_| Some(Factor::ONE));
    Ok(())
}

/// Charges the line under the candidate, and returns whether that denies it; without keys, it is a line that
/// the candidate would skip.
fn compare(
    at_ns: u64,
    old: Said<'_>,
    keys: Option<&[KeyNo]>,
    session: &mut Session,
) -> Option<bool> {
    let Session { side, against: Some(against), collected, .. } = session else { return None };
    // A line's costs are 1, which is no more than any burst: keys that were read have an answer.
    let said = keys.and_then(|keys| Some((keys, against.side.spend(at_ns, keys).ok()?)));
    let Some((keys, decision)) = said else {
        against.not_compared += 1;
        return None;
    };
    let new = Said { keys, decision: &decision };
    let change = against.count(at_ns, &side.tally, old, new, |_| true);
    if let Some(collected) = collected {
        collected.change(change);
        collected.see_candidate(&against.side, keys, &decision, |_| Some(Factor::ONE));
    }
    Some(!decision.allowed())
}

impl Skipped {
    fn add(&mut self, line: u64, why: &str, text: &[u8]) {
        self.count += 1;
        if self.shown.len() == MAX_SHOWN {
            return;
        }
        let text = shortened(&String::from_utf8_lossy(text), MAX_SHOWN_CHARS);
        let colon = if text.is_empty() { "" } else { ": " };
        let why = shortened(why, MAX_SHOWN_CHARS);
        self.shown.push(format!("skipped line {line}: {why}{colon}{text}"));
    }
}
