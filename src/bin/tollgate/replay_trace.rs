//! A trace, line by line.

use smallvec::SmallVec;
use tollgate::{Decision, Mode};

use crate::Failure;
use crate::engine::{Charge, Charges};
use crate::input::{Line, Lines, MAX_LINE_BYTES};
use crate::replay::{LineCounts, Session};
use crate::tally::Keys;
use crate::trace::{self, Op, Operation};

/// Replays a trace. A line that fails changes nothing, and the run goes on.
pub(crate) fn run(lines: &mut Lines, session: &mut Session) -> Result<LineCounts, Failure> {
    let (mut parsed, mut errors) = (0, 0);
    let mut number = 0_u64;
    while let Some(line) = lines.next()? {
        number += 1;
        match replay(line, session) {
            Ok((decision, denied_by)) => {
                parsed += 1;
                let denied_by = denied_by.as_ref().map(|(name, id)| (&**name, &**id));
                session.decisions.write(|out| trace::write_decision(out, &decision, denied_by))?;
            }
            Err(text) => {
                errors += 1;
                session.progress.report(&format!("{}:{number}: {text}", lines.name()));
                session.decisions.write(|out| trace::write_error(out, &text))?;
            }
        }
        session.progress.step();
    }
    Ok(LineCounts { parsed, errors: Some(errors), ..LineCounts::default() })
}

/// A limit's name and an id in normal form.
type DeniedBy = Option<(String, String)>;

fn replay(line: Line<'_>, session: &mut Session) -> Result<(Decision, DeniedBy), String> {
    let Line::Text(line) = line else {
        return Err(format!("the line is too long: at most {MAX_LINE_BYTES} bytes are allowed"));
    };
    let operation = trace::parse(line)?;
    // A line whose time is good moves the clock, whatever becomes of its buckets.
    session.engine.move_to(operation.at_ns)?;
    let charges = charges(&operation, session)?;
    let is_charged = charged(&operation, &charges, session);
    let engine = &session.engine;
    let text = |error: tollgate::Error| error.to_string();
    let decision = engine.call(operation.op, &charges).map_err(text)?;
    if operation.op == Op::Spend {
        let tally = &mut session.tally;
        let keys: Result<Keys, _> =
            charges.iter().map(|charge| tally.key(engine, charge.limit, charge.id)).collect();
        tally.count(&keys.map_err(text)?, &decision, |position| is_charged[position]);
    }
    let denied_by = match decision.denied_by() {
        Some(position) if matches!(operation.op, Op::Spend | Op::Check) => {
            let Charge { limit, id, .. } = charges[position];
            Some((engine.name(limit).to_owned(), engine.normalize(limit, id).map_err(text)?))
        }
        _ => None,
    };
    Ok((decision, denied_by))
}

fn charges<'a>(operation: &'a Operation<'_>, session: &mut Session) -> Result<Charges<'a>, String> {
    let charges = operation.txns.iter().map(|txn| {
        let txn = &txn.0;
        let limit = session.engine.limit(&txn.limit).map_err(|error| error.to_string())?;
        Ok(Charge { limit, id: &txn.id, cost: txn.cost, mode: txn.mode, factor: txn.factor()? })
    });
    charges.collect()
}

/// Which buckets an allowed spend will be charged to. A spend-only one that does not fit is left
/// alone, and only a look beforehand tells.
fn charged(
    operation: &Operation<'_>,
    charges: &[Charge<'_>],
    session: &Session,
) -> SmallVec<[bool; 8]> {
    if operation.op != Op::Spend {
        return SmallVec::new();
    }
    let is_charged = charges.iter().map(|charge| match charge.mode {
        _ if charge.cost == 0 => false,
        Mode::CheckOnly => false,
        Mode::SpendOnly => session.engine.fits(charge),
        _ => true,
    });
    is_charged.collect()
}
