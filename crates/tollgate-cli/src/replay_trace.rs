//! Replays a trace.

use crate::Failure;
use crate::escape::Escaped;
use crate::input::{Line, Lines, MAX_LINE_BYTES};
use crate::replay::{LineCounts, Session};
use crate::side::Answer;
use crate::text::grouped;
use crate::trace::{self, Op};

/// Errors that are printed for each of the two limits files.
const MAX_PRINTED: u64 = 5;

/// Replays all lines. A line with an error changes nothing, and the run goes on.
pub(crate) fn run(lines: &mut Lines, session: &mut Session) -> Result<LineCounts, Failure> {
    let (mut parsed, mut errors, mut candidate_errors) = (0, 0, 0);
    while let Some(line) = lines.next()? {
        let Decided { answer, candidate_error } = replay(line, session);
        match answer {
            Ok(answer) => {
                parsed += 1;
                session.write_decision(&answer)?;
            }
            Err(error) => {
                report(lines, &mut errors, &error);
                session.decisions.write(|out| trace::write_error(out, &error))?;
            }
        }
        if let Some(error) = candidate_error {
            report(lines, &mut candidate_errors, &error);
        }
    }
    let name = Escaped(lines.name());
    report_rest(lines, errors, &format!("{name}: "));
    if let Some(candidate) = &session.candidate {
        let place = format!("{name}: under {}: ", Escaped(&candidate.file));
        report_rest(lines, candidate_errors, &place);
    }
    Ok(LineCounts { parsed, errors: Some(errors), ..LineCounts::default() })
}

/// Counts an error, and prints the first few. `--decisions` has all of them.
fn report(lines: &Lines, count: &mut u64, error: &str) {
    *count += 1;
    if *count <= MAX_PRINTED {
        lines.report(&format!("{}:{}: {error}", Escaped(lines.name()), lines.count()));
    }
}

fn report_rest(lines: &Lines, count: u64, place: &str) {
    match count.saturating_sub(MAX_PRINTED) {
        0 => {}
        1 => lines.report(&format!("{place}and 1 more line with errors")),
        rest => lines.report(&format!("{place}and {} more lines with errors", grouped(rest))),
    }
}

/// The results for one line.
struct Decided {
    /// The answer or the error of the limits in force.
    answer: Result<Answer, String>,
    /// The error of the candidate, unless it is the same.
    candidate_error: Option<String>,
}

fn replay(line: Line<'_>, session: &mut Session) -> Decided {
    let operation = match &line {
        Line::Text(line) => trace::parse(line),
        Line::TooLong => {
            Err(format!("the line is too long: at most {MAX_LINE_BYTES} bytes are allowed"))
        }
    };
    let operation = match operation {
        Ok(operation) => operation,
        Err(error) => {
            if let Some(candidate) = &mut session.candidate {
                candidate.errors += 1;
            }
            return Decided { answer: Err(error), candidate_error: None };
        }
    };
    let answer = session.side.carry_out(&operation);
    let mut candidate_error = None;
    let candidate_answer = session.candidate.as_mut().and_then(|candidate| {
        let result = candidate.side.carry_out(&operation);
        if let Err(error) = &result {
            candidate.errors += 1;
            let is_same = answer.as_ref().is_err_and(|answer| answer == error);
            candidate_error =
                (!is_same).then(|| format!("under {}: {error}", Escaped(&candidate.file)));
        }
        result.ok()
    });
    if operation.op == Op::Spend {
        session.count(operation.at_ns, answer.as_ref().ok(), candidate_answer.as_ref());
    }
    Decided { answer, candidate_error }
}
