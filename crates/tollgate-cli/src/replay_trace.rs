//! A trace, line by line.

use crate::Failure;
use crate::against::{Against, Said};
use crate::input::{Line, Lines, MAX_LINE_BYTES};
use crate::progress::Progress;
use crate::replay::{LineCounts, Session};
use crate::report::Collected;
use crate::side::{Answer, Side};
use crate::text::{Escaped, grouped};
use crate::trace::{self, Op, Operation};

/// Messages about lines that fail that are shown, of each of the two files of limits.
const MAX_SHOWN: u64 = 5;

/// Replays a trace. A line that fails changes nothing, and the run goes on.
pub(crate) fn run(lines: &mut Lines, session: &mut Session) -> Result<LineCounts, Failure> {
    let (mut parsed, mut errors) = (0, 0);
    let mut number = 0_u64;
    let (mut shown, mut shown_of_candidate) = (Shown::default(), Shown::default());
    while let Some(line) = lines.next()? {
        number += 1;
        let Replayed { answer, candidate_fault } = replay(line, session);
        let message = |text: &str| format!("{}:{number}: {text}", Escaped(lines.name()));
        match answer {
            Ok(Answer { decision, denied_by, .. }) => {
                parsed += 1;
                let denied_by = denied_by.as_ref().map(|(name, id)| (&**name, &**id));
                session.decisions.write(|out| trace::write_decision(out, &decision, denied_by))?;
            }
            Err(text) => {
                errors += 1;
                shown.report(&session.progress, || message(&text));
                session.decisions.write(|out| trace::write_error(out, &text))?;
            }
        }
        if let Some(text) = candidate_fault {
            shown_of_candidate.report(&session.progress, || message(&text));
        }
        session.progress.step();
    }
    let name = Escaped(lines.name());
    shown.report_rest(&session.progress, &format!("{name}: "));
    if let Some(against) = &session.against {
        let under = format!("{name}: under {}: ", Escaped(&against.file));
        shown_of_candidate.report_rest(&session.progress, &under);
    }
    Ok(LineCounts { parsed, errors: Some(errors), ..LineCounts::default() })
}

/// Messages about lines that fail: the first few are shown, the others counted. `--decisions` has an error for
/// each.
#[derive(Default)]
struct Shown {
    count: u64,
}

impl Shown {
    fn report(&mut self, progress: &Progress, message: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= MAX_SHOWN {
            progress.report(&message());
        }
    }

    fn report_rest(&self, progress: &Progress, place: &str) {
        let rest = self.count.saturating_sub(MAX_SHOWN);
        if rest > 0 {
            let s = if rest == 1 { "" } else { "s" };
            progress.report(&format!("{place}and {} more line{s} with errors", grouped(rest)));
        }
    }
}

/// What became of a line.
struct Replayed {
    /// By the limits in force.
    answer: Result<Answer, String>,
    /// Why the candidate has no answer, where that is a reason of its own.
    candidate_fault: Option<String>,
}

fn replay(line: Line<'_>, session: &mut Session) -> Replayed {
    let Session { side, against, collected, .. } = session;
    let operation = match read(&line) {
        Ok(operation) => operation,
        Err(text) => {
            if let Some(against) = against {
                against.errors += 1;
            }
            return Replayed { answer: Err(text), candidate_fault: None };
        }
    };
    let answer = side.carry_out(&operation);
    if operation.op == Op::Spend
        && let Ok(answer) = &answer
    {
        let Answer { decision, keys, .. } = answer;
        let is_charged = |position: usize| answer.is_charged[position];
        match collected {
            None => side.tally.count(keys, decision, is_charged, |_, _| ()),
            Some(collected) => {
                collected.move_to(operation.at_ns);
                let tell = |limit, allowed| collected.count(limit, allowed);
                side.tally.count(keys, decision, is_charged, tell);
                collected.see(side, keys, decision, answer.factors(&operation));
            }
        }
    }
    let compare =
        |against: &mut Against| compare(&operation, side, &answer, against, collected.as_mut());
    let candidate_fault = against.as_mut().and_then(compare);
    Replayed { answer, candidate_fault }
}

fn read<'a>(line: &Line<'a>) -> Result<Operation<'a>, String> {
    match line {
        Line::Text(line) => trace::parse(line),
        Line::TooLong => {
            Err(format!("the line is too long: at most {MAX_LINE_BYTES} bytes are allowed"))
        }
    }
}

/// Does the same under the candidate. Returns why that failed, unless the line failed alike before.
fn compare(
    operation: &Operation<'_>,
    in_force: &Side,
    answer: &Result<Answer, String>,
    against: &mut Against,
    collected: Option<&mut Collected>,
) -> Option<String> {
    let is_spend = operation.op == Op::Spend;
    let new = match against.side.carry_out(operation) {
        Ok(new) => new,
        Err(text) => {
            against.errors += 1;
            against.not_compared += u64::from(is_spend && answer.is_ok());
            let is_said = answer.as_ref().is_err_and(|said| *said == text);
            return (!is_said).then(|| format!("under {}: {text}", Escaped(&against.file)));
        }
    };
    if is_spend {
        let is_charged = |position: usize| new.is_charged[position];
        let said = Said { keys: &new.keys, decision: &new.decision };
        match answer {
            Ok(old) => {
                let old = Said { keys: &old.keys, decision: &old.decision };
                let tally = &in_force.tally;
                let change = against.count(operation.at_ns, tally, old, said, is_charged);
                if let Some(collected) = collected {
                    let Answer { keys, decision, .. } = &new;
                    collected.change(change);
                    let factors = new.factors(operation);
                    collected.see_candidate(&against.side, keys, decision, factors);
                }
            }
            Err(_) => against.count_alone(said, is_charged),
        }
    }
    None
}
