//! Replays an access log in the order of time.

use smallvec::SmallVec;
use tollgate::Error;

use crate::Failure;
use crate::access_log::BAD_TIME;
use crate::args::Traffic;
use crate::engine::LimitNo;
use crate::escape::Escaped;
use crate::input::{Line, Lines, MAX_LINE_BYTES};
use crate::json_log::{Keys, is_missing_part};
use crate::late::FirstLate;
use crate::log_line::{Clients, Entry, Format};
#[cfg(feature = "valkey")]
use crate::nodes::number_of;
use crate::reorder::Reorder;
use crate::replay::{LineCounts, Session};
use crate::report::{Refused, Request};
use crate::rules::Rule;
use crate::side::Side;
use crate::skipped::Skipped;
use crate::tally::{LineCharge, LineCharges};
use crate::text::grouped;

/// Lines that wait in the time window at most.
const MAX_WAITING: usize = 1_000_000;

/// A line that waits in the time window.
struct Waiting {
    line: u64,
    charges: LineCharges,
    /// The charges of the candidate, or its reason to skip the line; `None` if there is no candidate.
    candidate_charges: Option<Result<LineCharges, String>>,
    /// The fields that the report counts.
    request: Option<Request>,
    /// A number that is the same for all lines of a client.
    #[cfg(feature = "valkey")]
    client: u64,
}

/// The format, the keys and the rules of all lines.
struct Reader<'a> {
    /// The format of all lines; `None` before the first line that is not empty.
    format: Option<Format>,
    keys: Keys,
    clients: Clients,
    in_force: LimitRules<'a>,
    candidate: LimitRules<'a>,
    /// The rules that have applied to no line so far.
    unused: Vec<&'a Rule>,
}

/// The rules with the limits of one file.
type LimitRules<'a> = SmallVec<[(LimitNo, &'a Rule); 4]>;

/// Replays all lines. Returns the counts, and messages about the first lines that were skipped and about late ones.
pub(crate) fn run(
    lines: &mut Lines,
    session: &mut Session,
    traffic: &Traffic,
) -> Result<(LineCounts, Vec<String>), Failure> {
    let mut reader = Reader {
        format: None,
        keys: traffic.keys(),
        clients: traffic.clients(),
        in_force: LimitRules::new(),
        candidate: LimitRules::new(),
        unused: traffic.rules.iter().collect(),
    };
    resolve(&traffic.rules, &mut reader, session, lines)?;
    #[cfg(feature = "valkey")]
    if let Some(nodes) = &mut session.nodes {
        let failure = |error: Error| Failure::NotDone(error.to_string());
        nodes.find_limits(&session.side.engine).map_err(failure)?;
    }
    let mut reorder = Reorder::new(traffic.window_ns(), MAX_WAITING);
    let (mut skipped, mut skipped_then) = (Skipped::default(), Skipped::default());
    if let Some(candidate) = &session.candidate {
        skipped_then.under = format!(" under {}", Escaped(&candidate.file));
    }
    let mut first_late = FirstLate::default();
    let (mut parsed, mut number) = (0, 0);
    let name = lines.name().to_owned();
    while let Some(line) = lines.next()? {
        number += 1;
        if reader.format.is_none() {
            reader.format = traffic.log_format.or_else(|| format_of(&line));
            if reader.format == Some(Format::Text) {
                check_keys(traffic, &name)?;
            }
        }
        match read(line, number, &mut reader, session, &mut parsed) {
            Ok((at_ns, waiting)) => {
                let is_late = reorder.push(at_ns, waiting);
                first_late.add(number, at_ns, is_late);
            }
            Err((reason, text)) => skipped.add(number, &reason, text),
        }
        spend_due(&mut reorder, session, &mut skipped, &mut skipped_then)?;
    }
    reorder.end();
    spend_due(&mut reorder, session, &mut skipped, &mut skipped_then)?;
    if skipped.count < number {
        session.unused_rules = reader.unused.iter().map(|rule| rule.to_string()).collect();
    }
    if let Some(candidate) = &mut session.candidate {
        candidate.newly_skipped = skipped_then.count;
    }
    let mut messages = std::mem::take(&mut skipped.messages);
    messages.extend(skipped_then.messages);
    // A result of few lines says nothing about the rest: their format or a rule is wrong.
    let is_unread = number > 0 && (!is_half(parsed, number) || skipped.count == number);
    if is_unread {
        messages.push(unread(lines, &reader, parsed, &skipped));
    }
    let late = reorder.late();
    messages.extend(first_late.warning(&name, late, parsed));
    let counts = LineCounts { parsed, skipped: skipped.count, late, errors: None, is_unread };
    Ok((counts, messages))
}

fn format_of(line: &Line<'_>) -> Option<Format> {
    match line {
        Line::Text(line) => Format::of(line),
        Line::TooLong => None,
    }
}

/// Fails if the arguments name keys of JSON objects. `log` is the name of a log without objects.
fn check_keys(traffic: &Traffic, log: &str) -> Result<(), Failure> {
    let fields = traffic.has_fields().then(|| "--field".to_owned());
    let rules = traffic.rules.iter().filter(|rule| rule.has_key());
    let options = fields.into_iter().chain(rules.map(|rule| format!("--rule {rule}")));
    let faults = options.map(|option| {
        let log = Escaped(log);
        format!(
            "{option} is for JSON, and {log} is read as text: --log-format json reads JSON objects"
        )
    });
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() { Ok(()) } else { Err(Failure::NotDone(faults.join("\n"))) }
}

/// Formats the message about a log of which too few lines were read.
fn unread(lines: &Lines, reader: &Reader<'_>, parsed: u64, skipped: &Skipped) -> String {
    let (name, all) = (Escaped(lines.name()), lines.count());
    let most_frequent = skipped.most_frequent();
    let reason = most_frequent.map(|reason| reason.to_text(all)).unwrap_or_default();
    if is_half(parsed, all) {
        return format!("{name}: all lines were skipped; {reason}");
    }
    let is_of = |has: fn(&str) -> bool| most_frequent.is_some_and(|reason| has(&reason.text));
    let (format, hint) = match reader.format {
        Some(Format::Json) => {
            let hint = "--field names the keys of other members";
            let format = "are JSON objects with a client, a time and a request";
            (format, is_of(is_missing_part).then_some(hint))
        }
        _ => {
            let hint = "--log-format json reads JSON objects";
            (
                "have the common or combined format",
                (!is_of(|reason| reason == BAD_TIME)).then_some(hint),
            )
        }
    };
    let (parsed, all) = (grouped(parsed), grouped(all));
    let hint = hint.unwrap_or(&reason);
    format!("{name}: less than half of the lines {format}, {parsed} of {all}: {hint}")
}

fn is_half(part: u64, whole: u64) -> bool {
    part >= whole.div_ceil(2)
}

/// Finds the limits of the rules, and reports every unknown one. With a candidate, one of the two files may
/// lack a limit: then no limit applies there.
fn resolve<'a>(
    rules: &'a [Rule],
    reader: &mut Reader<'a>,
    session: &mut Session,
    lines: &Lines,
) -> Result<(), Failure> {
    let Session { side, candidate, file, .. } = session;
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    for rule in rules {
        let in_force = side.limit(&rule.limit);
        let in_candidate = candidate.as_mut().map(|candidate| candidate.side.limit(&rule.limit));
        let option = format!("--rule {rule}");
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
        reader.in_force.extend(in_force.ok().map(|limit| (limit, rule)));
        reader.candidate.extend(in_candidate.and_then(Result::ok).map(|limit| (limit, rule)));
    }
    if !faults.is_empty() {
        return Err(Failure::NotDone(faults.join("\n")));
    }
    notes.iter().for_each(|note| lines.report(note));
    Ok(())
}

/// Reads a line's time and charges. The error is the reason for skipping it, with the line's text.
fn read<'a>(
    line: Line<'a>,
    number: u64,
    reader: &mut Reader<'_>,
    session: &mut Session,
    parsed: &mut u64,
) -> Result<(u64, Waiting), (String, &'a [u8])> {
    let Line::Text(line) = line else {
        return Err((format!("longer than {MAX_LINE_BYTES} bytes"), b""));
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let skip = |reason| (reason, line);
    let format = reader.format.unwrap_or(Format::Text);
    let mut entry = format.parse(line, &reader.keys).map_err(skip)?;
    *parsed += 1;
    reader.clients.find(&mut entry).map_err(skip)?;
    reader.unused.retain(|rule| !rule.applies(&entry));
    let charges = charges(&entry, &reader.in_force, &mut session.side).map_err(skip)?;
    let candidate = session.candidate.as_mut();
    let candidate_charges =
        candidate.map(|candidate| self::charges(&entry, &reader.candidate, &mut candidate.side));
    let request = session.collected.as_ref().map(|_| Request::new(&entry));
    let waiting = Waiting {
        line: number,
        charges,
        candidate_charges,
        request,
        #[cfg(feature = "valkey")]
        client: session.nodes.as_ref().map_or(0, |_| number_of(&entry.client())),
    };
    Ok((entry.at_ns, waiting))
}

/// Returns the charges of the rules that apply to a line.
fn charges(
    entry: &Entry<'_>,
    rules: &LimitRules<'_>,
    side: &mut Side,
) -> Result<LineCharges, String> {
    let charge = |(limit, rule): &(LimitNo, &Rule)| {
        let (id, cost) = rule.charge(entry)?;
        let key = side.tally.key(&side.engine, *limit, &id);
        let key = key.map_err(|error| format!("{}: {error}", rule.id_name()))?;
        Ok(LineCharge { key, cost })
    };
    rules.iter().filter(|(_, rule)| rule.applies(entry)).map(charge).collect()
}

/// Charges the lines that leave the time window. `skipped_then` is for lines that only the candidate skips.
fn spend_due(
    reorder: &mut Reorder<Waiting>,
    session: &mut Session,
    skipped: &mut Skipped,
    skipped_then: &mut Skipped,
) -> Result<(), Failure> {
    while let Some((at_ns, waiting)) = reorder.pop() {
        let old = session.side.spend(at_ns, &waiting.charges);
        let new = session.candidate.as_mut().zip(waiting.candidate_charges);
        let new = new.map(|(candidate, charges)| candidate.side.spend(at_ns, &charges?));
        let new_answer = new.as_ref().and_then(|new| new.as_ref().ok());
        session.count(at_ns, old.as_ref().ok(), new_answer);
        let old = match old {
            Ok(answer) => answer,
            Err(error) => {
                skipped.add(waiting.line, &error, b"");
                continue;
            }
        };
        session.write_decision(&old)?;
        #[cfg(feature = "valkey")]
        if let Some(nodes) = &mut session.nodes {
            nodes.spend(&session.side, &waiting.charges, waiting.client)?;
        }
        if let Some(Err(error)) = &new {
            skipped_then.add(waiting.line, error, b"");
        }
        if let (Some(collected), Some(request)) = (&mut session.collected, &waiting.request) {
            let new = new.as_ref().map(|new| new.as_ref().map_err(|_| Refused));
            collected.request(request, &old, new);
        }
    }
    Ok(())
}
