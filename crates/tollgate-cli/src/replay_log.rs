//! Replays an access log in the order of time.

use smallvec::SmallVec;
use tollgate::Error;

use crate::Failure;
use crate::access_log::{self, Entry, Field};
use crate::args::{Rule, Traffic};
use crate::client::network_of;
use crate::engine::LimitNo;
use crate::escape::{Escaped, shortened};
use crate::input::{Line, Lines, MAX_LINE_BYTES};
#[cfg(feature = "valkey")]
use crate::nodes::number_of;
use crate::reorder::Reorder;
use crate::replay::{LineCounts, Session};
use crate::report::Request;
use crate::side::Side;
use crate::tally::Keys;

/// Lines that wait in the time window at most.
const MAX_WAITING: usize = 1_000_000;
/// Skipped lines that are printed.
const MAX_PRINTED: usize = 5;
/// Characters of a skipped line that are printed.
const MAX_LINE_CHARS: usize = 100;

/// A line that waits in the time window.
struct Waiting {
    line: u64,
    keys: Keys,
    /// The keys of the candidate; `None` if it skips the line, or if there is no candidate.
    candidate_keys: Option<Keys>,
    /// The fields that the report counts.
    request: Option<Request>,
    /// A number that is the same for all lines of a client.
    #[cfg(feature = "valkey")]
    client: u64,
}

/// The number of skipped lines, and messages about the first.
#[derive(Default)]
struct Skipped {
    count: u64,
    messages: Vec<String>,
}

/// The rules with the limits of each file.
struct Rules {
    in_force: LimitFields,
    candidate: LimitFields,
}

type LimitFields = SmallVec<[(LimitNo, Field); 4]>;

/// Replays all lines. Returns the counts, and messages about the first lines that were skipped.
pub(crate) fn run(
    lines: &mut Lines,
    session: &mut Session,
    traffic: &Traffic,
) -> Result<(LineCounts, Vec<String>), Failure> {
    let rules = resolve(&traffic.rules, session, lines)?;
    #[cfg(feature = "valkey")]
    if let Some(nodes) = &mut session.nodes {
        let failure = |error: Error| Failure::NotDone(error.to_string());
        nodes.find_limits(&session.side.engine).map_err(failure)?;
    }
    let mut reorder = Reorder::new(traffic.window_ns(), MAX_WAITING);
    let mut skipped = Skipped::default();
    let (mut parsed, mut number) = (0, 0);
    while let Some(line) = lines.next()? {
        number += 1;
        match read(line, number, &rules, traffic.ipv6_prefix, session, &mut parsed) {
            Ok((at_ns, waiting)) => reorder.push(at_ns, waiting),
            Err((reason, text)) => skipped.add(number, &reason, text),
        }
        spend_due(&mut reorder, session, &mut skipped)?;
    }
    reorder.end();
    spend_due(&mut reorder, session, &mut skipped)?;
    let late = reorder.late();
    Ok((LineCounts { parsed, skipped: skipped.count, late, errors: None }, skipped.messages))
}

/// Finds the limits of the rules, and reports every unknown one. With a candidate, one of the two files may
/// lack a limit: then no limit applies there.
fn resolve(rules: &[Rule], session: &mut Session, lines: &Lines) -> Result<Rules, Failure> {
    let Session { side, candidate, file, .. } = session;
    let mut resolved = Rules { in_force: LimitFields::new(), candidate: LimitFields::new() };
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    for Rule { limit, field } in rules {
        let in_force = side.limit(limit);
        let in_candidate = candidate.as_mut().map(|candidate| candidate.side.limit(limit));
        let option = format!("--rule {}={}", Escaped(limit), field.name());
        let note = |file: &str, error: &Error| {
            format!("{option}: {}: {error}; no limit there", Escaped(file))
        };
        match (&in_force, &in_candidate, &candidate) {
            (Err(error), None | Some(Err(_)), _) => faults.push(format!("{option}: {error}")),
            (Err(error), Some(Ok(_)), _) => notes.push(note(file, error)),
            (Ok(_), Some(Err(error)), Some(candidate)) => {
                notes.push(note(&candidate.file, error));
            }
            (Ok(_), _, _) => {}
        }
        resolved.in_force.extend(in_force.ok().map(|limit| (limit, *field)));
        resolved.candidate.extend(in_candidate.and_then(Result::ok).map(|limit| (limit, *field)));
    }
    if !faults.is_empty() {
        return Err(Failure::NotDone(faults.join("\n")));
    }
    notes.iter().for_each(|note| lines.report(note));
    Ok(resolved)
}

/// Reads a line's time and keys. The error is the reason for skipping it, with the line's text.
fn read<'a>(
    line: Line<'a>,
    number: u64,
    rules: &Rules,
    ipv6_prefix: Option<u8>,
    session: &mut Session,
    parsed: &mut u64,
) -> Result<(u64, Waiting), (String, &'a [u8])> {
    let Line::Text(line) = line else {
        return Err((format!("longer than {MAX_LINE_BYTES} bytes"), b""));
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let entry = access_log::parse(line).map_err(|error| (error.to_owned(), line))?;
    *parsed += 1;
    let network = ipv6_prefix.and_then(|prefix| network_of(entry.client(), prefix));
    let entry = match &network {
        Some(network) => entry.with_client(network.as_bytes()),
        None => entry,
    };
    let keys = keys(&entry, &rules.in_force, &mut session.side).map_err(|error| (error, line))?;
    let candidate = session.candidate.as_mut();
    let candidate_keys = candidate
        .and_then(|candidate| self::keys(&entry, &rules.candidate, &mut candidate.side).ok());
    let request = session.collected.as_ref().map(|_| Request::new(&entry));
    let waiting = Waiting {
        line: number,
        keys,
        candidate_keys,
        request,
        #[cfg(feature = "valkey")]
        client: session.nodes.as_ref().map_or(0, |_| number_of(entry.client())),
    };
    Ok((entry.at_ns, waiting))
}

fn keys(entry: &Entry<'_>, rules: &LimitFields, side: &mut Side) -> Result<Keys, String> {
    let key = |&(limit, field): &(LimitNo, Field)| {
        let id = entry.field(field).ok_or_else(|| format!("no {}", field.name()))?;
        let id = std::str::from_utf8(id).map_err(|_| format!("{} is not UTF-8", field.name()))?;
        let key = side.tally.key(&side.engine, limit, id);
        key.map_err(|error| format!("{}: {error}", field.name()))
    };
    rules.iter().map(key).collect()
}

/// Charges the lines that leave the time window.
fn spend_due(
    reorder: &mut Reorder<Waiting>,
    session: &mut Session,
    skipped: &mut Skipped,
) -> Result<(), Failure> {
    while let Some((at_ns, waiting)) = reorder.pop() {
        let old = match session.side.spend(at_ns, &waiting.keys) {
            Ok(answer) => answer,
            Err(error) => {
                skipped.add(waiting.line, &error, b"");
                continue;
            }
        };
        session.write_decision(&old)?;
        #[cfg(feature = "valkey")]
        if let Some(nodes) = &mut session.nodes {
            nodes.spend(&session.side, &waiting.keys, waiting.client)?;
        }
        let new = session.candidate.as_mut().zip(waiting.candidate_keys);
        let new = new.and_then(|(candidate, keys)| candidate.side.spend(at_ns, &keys).ok());
        session.count(at_ns, Some(&old), new.as_ref());
        if let (Some(collected), Some(request)) = (&mut session.collected, &waiting.request) {
            collected.request(request, &old, new.as_ref());
        }
    }
    Ok(())
}

impl Skipped {
    fn add(&mut self, line: u64, reason: &str, text: &[u8]) {
        self.count += 1;
        if self.messages.len() == MAX_PRINTED {
            return;
        }
        let text = shortened(&String::from_utf8_lossy(text), MAX_LINE_CHARS);
        let colon = if text.is_empty() { "" } else { ": " };
        let reason = shortened(reason, MAX_LINE_CHARS);
        self.messages.push(format!("skipped line {line}: {reason}{colon}{text}"));
    }
}
