//! An access log, line by line, in the order of time.

use smallvec::SmallVec;
use tollgate::{Decision, Factor, Mode};

use crate::Failure;
use crate::access_log::{self, Entry, Field};
use crate::args::Rule;
use crate::engine::{Charge, Charges, LimitNo};
use crate::input::{Line, Lines, MAX_LINE_BYTES};
use crate::reorder::Reorder;
use crate::replay::{LineCounts, Session};
use crate::tally::Keys;
use crate::text::shown;
use crate::trace::{self, Op};

/// Lines that are held at most to put them in order.
const MAX_HELD: usize = 1_000_000;
/// Skipped lines that are shown.
const MAX_SHOWN: usize = 5;
/// Characters of a skipped line that are shown.
const MAX_SHOWN_CHARS: usize = 100;

/// What is kept of a line until it is its turn.
struct Held {
    line: u64,
    keys: Keys,
}

/// The lines that were skipped: how many, and the first few.
#[derive(Default)]
struct Skipped {
    count: u64,
    shown: Vec<String>,
}

/// Replays a log. Returns the counts, and the texts for the first lines that were skipped.
pub(crate) fn run(
    lines: &mut Lines,
    session: &mut Session,
    rules: &[Rule],
    window_ns: u64,
) -> Result<(LineCounts, Vec<String>), Failure> {
    let rules = resolve(rules, session)?;
    let mut reorder = Reorder::new(window_ns, MAX_HELD);
    let mut skipped = Skipped::default();
    let mut parsed = 0;
    let mut number = 0;
    while let Some(line) = lines.next()? {
        number += 1;
        match read(line, &rules, session, &mut parsed) {
            Ok((at_ns, keys)) => reorder.push(at_ns, Held { line: number, keys }),
            Err((why, text)) => skipped.add(number, &why, text),
        }
        take_due(&mut reorder, session, &mut skipped)?;
        session.progress.step();
    }
    reorder.end();
    take_due(&mut reorder, session, &mut skipped)?;
    let late = reorder.late();
    Ok((LineCounts { parsed, skipped: skipped.count, late, errors: None }, skipped.shown))
}

type Rules = SmallVec<[(LimitNo, Field); 4]>;

/// Finds the rules' limits; reports every one that is unknown.
fn resolve(rules: &[Rule], session: &mut Session) -> Result<Rules, Failure> {
    let mut resolved = Rules::new();
    let mut faults = Vec::new();
    for rule in rules {
        match session.engine.limit(&rule.limit) {
            Ok(limit) => resolved.push((limit, rule.field)),
            Err(error) => {
                faults.push(format!("--rule {}={}: {error}", rule.limit, rule.field.name()))
            }
        }
    }
    if !faults.is_empty() {
        return Err(Failure::Input(faults.join("\n")));
    }
    for (limit, _) in &resolved {
        let name = session.engine.name(*limit);
        if session.engine.limits().names().any(|known| known == name) {
            session.tally.show(*limit);
        }
    }
    Ok(resolved)
}

/// Reads a line's time and keys; else says why not, with the line's text.
fn read<'a>(
    line: Line<'a>,
    rules: &Rules,
    session: &mut Session,
    parsed: &mut u64,
) -> Result<(u64, Keys), (String, &'a [u8])> {
    let Line::Text(line) = line else {
        return Err((format!("longer than {MAX_LINE_BYTES} bytes"), b""));
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let entry = access_log::parse(line).map_err(|why| (why.to_string(), line))?;
    *parsed += 1;
    let keys = keys(&entry, rules, session).map_err(|why| (why, line))?;
    Ok((entry.at_ns, keys))
}

fn keys(entry: &Entry<'_>, rules: &Rules, session: &mut Session) -> Result<Keys, String> {
    let mut keys = Keys::new();
    for &(limit, field) in rules {
        let id = entry.field(field).ok_or_else(|| format!("no {}", field.name()))?;
        let id = std::str::from_utf8(id).map_err(|_| format!("{} is not UTF-8", field.name()))?;
        let key = session.tally.key(&session.engine, limit, id);
        keys.push(key.map_err(|error| format!("{}: {error}", field.name()))?);
    }
    Ok(keys)
}

/// Charges the lines whose turn it is.
fn take_due(
    reorder: &mut Reorder<Held>,
    session: &mut Session,
    skipped: &mut Skipped,
) -> Result<(), Failure> {
    while let Some((at_ns, held)) = reorder.pop() {
        match charge(at_ns, &held, session) {
            Ok(decision) => record(&decision, &held, session)?,
            Err(why) => skipped.add(held.line, &why, b""),
        }
    }
    Ok(())
}

/// Charges a line; else says why not, and nothing was charged.
fn charge(at_ns: u64, held: &Held, session: &mut Session) -> Result<Decision, String> {
    session.engine.move_to(at_ns)?;
    let keys = held.keys.iter().map(|key| session.tally.get(*key));
    let charges: Charges<'_> = keys
        .map(|key| {
            let (mode, factor) = (Mode::CheckAndSpend, Factor::ONE);
            Charge { limit: key.limit, id: &key.id, cost: 1, mode, factor }
        })
        .collect();
    session.engine.call(Op::Spend, &charges).map_err(|error| error.to_string())
}

fn record(decision: &Decision, held: &Held, session: &mut Session) -> Result<(), Failure> {
    let Session { engine, tally, decisions, .. } = session;
    let denied_by = decision.denied_by().map(|position| tally.get(held.keys[position]));
    let denied_by = denied_by.map(|key| (engine.name(key.limit), &*key.normalized));
    decisions.write(|out| trace::write_decision(out, decision, denied_by))?;
    tally.count(&held.keys, decision, |_| true);
    Ok(())
}

impl Skipped {
    fn add(&mut self, line: u64, why: &str, text: &[u8]) {
        self.count += 1;
        if self.shown.len() == MAX_SHOWN {
            return;
        }
        let text = shown(&String::from_utf8_lossy(text), MAX_SHOWN_CHARS);
        let colon = if text.is_empty() { "" } else { ": " };
        let why = shown(why, MAX_SHOWN_CHARS);
        self.shown.push(format!("skipped line {line}: {why}{colon}{text}"));
    }
}
