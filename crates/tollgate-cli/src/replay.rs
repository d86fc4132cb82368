//! `tollgate replay`: what would these limits have done?

use std::io::Write;

use crate::against::Against;
use crate::args::{ReplayArgs, Traffic};
use crate::input::{Lines, name};
use crate::output::{Destination, Results, print, to_json};
use crate::progress::Progress;
use crate::report::{Collected, Replayed, page};
use crate::side::Side;
use crate::summary::Summary;
use crate::{Failure, Outcome, replay_log, replay_trace, validate};

/// What a run works with.
pub(crate) struct Session {
    /// The limits in force: those of `--limits`.
    pub(crate) side: Side,
    /// The file of `--limits`, as it was given.
    pub(crate) file: String,
    pub(crate) against: Option<Against>,
    pub(crate) decisions: Results,
    /// For the report, if one was asked for.
    pub(crate) collected: Option<Collected>,
    pub(crate) progress: Progress,
}

/// Counts of lines; those of spends are in the [`Tally`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineCounts {
    pub(crate) parsed: u64,
    pub(crate) skipped: u64,
    pub(crate) late: u64,
    /// Of a trace only.
    pub(crate) errors: Option<u64>,
}

const MAX_TOP_DENIED: usize = 10;

pub(crate) fn run(args: &ReplayArgs) -> Result<Outcome, Failure> {
    // What can fail at once goes first: the limits may take seconds.
    let mut lines = Lines::open(args.traffic())?;
    let decisions = Results::open(args.decisions.as_deref())?;
    let report = Results::open(args.report.as_deref())?;
    let (side, against) = load(args)?;
    let progress = Progress::new(&lines);
    let file = name(&args.files.limits);
    let collected = args.report.as_ref().map(|_| Collected::new(args.traffic.log.is_some()));
    let mut session = Session { side, file, against, decisions, collected, progress };

    let (counts, skipped) = replay(&mut lines, &mut session, &args.traffic)?;
    let summary = session.summary(lines.count(), counts);
    write_report(report, args, &lines, &session, &summary)?;
    session.decisions.finish()?;
    session.progress.finish();
    let destination =
        if args.is_output_taken() { Destination::Stderr } else { Destination::Stdout };
    print(destination, &if args.json { to_json(&summary) } else { summary.to_text() })?;
    for text in skipped {
        session.progress.report(&text);
    }
    match session.against {
        Some(Against { errors: 1.., .. }) => Ok(Outcome::Found),
        _ => Ok(counts.outcome()),
    }
}

/// Replays all lines. Returns the counts, and the texts for the first that were skipped.
pub(crate) fn replay(
    lines: &mut Lines,
    session: &mut Session,
    traffic: &Traffic,
) -> Result<(LineCounts, Vec<String>), Failure> {
    match traffic.trace {
        Some(_) => Ok((replay_trace::run(lines, session)?, Vec::new())),
        None => replay_log::run(lines, session, traffic),
    }
}

impl LineCounts {
    pub(crate) fn outcome(&self) -> Outcome {
        if self.errors.is_some_and(|errors| errors > 0) {
            Outcome::Found
        } else {
            Outcome::NothingFound
        }
    }
}

/// Writes the report, if one was asked for.
fn write_report(
    mut report: Results,
    args: &ReplayArgs,
    lines: &Lines,
    session: &Session,
    summary: &Summary,
) -> Result<(), Failure> {
    let Some(collected) = &session.collected else { return Ok(()) };
    let Session { side, against, .. } = session;
    let replayed = Replayed {
        traffic: lines.name(),
        rules: &args.traffic.rules,
        summary,
        side,
        candidate: against.as_ref().map(|against| &against.side),
        against: against.as_ref(),
        collected,
    };
    report.write(|out| out.write_all(page(&replayed).as_bytes()))?;
    report.finish()
}

/// Reads the limits, and those to compare them with; a failure has every fault of both.
fn load(args: &ReplayArgs) -> Result<(Side, Option<Against>), Failure> {
    let load = |files| Ok(validate::load(files)?.as_of(args.today.now()));
    let in_force = load(&args.files);
    let Some(files) = args.candidate() else { return Ok((Side::new(in_force?), None)) };
    match (in_force, load(&files)) {
        (Ok(in_force), Ok(candidate)) => {
            let against = Against::new(candidate, name(&files.limits));
            Ok((Side::new(in_force), Some(against)))
        }
        (Err(Failure::NotDone(text)), Err(Failure::NotDone(more))) => {
            Err(Failure::NotDone(format!("{text}\n{more}")))
        }
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}

impl Session {
    fn summary(&self, lines: u64, counts: LineCounts) -> Summary {
        let Side { engine, tally } = &self.side;
        let name = |limit| engine.name(limit).to_owned();
        let is_trace = counts.errors.is_some();
        let compare = |against: &Against| against.comparison(&self.side, is_trace, MAX_TOP_DENIED);
        Summary {
            lines,
            parsed: counts.parsed,
            skipped: counts.skipped,
            late: counts.late,
            errors: counts.errors,
            allowed: tally.allowed,
            denied: tally.denied,
            limits: tally.by_limit().map(|(limit, counts)| (name(limit), counts)).collect(),
            top_denied: tally.most_denied(engine, MAX_TOP_DENIED),
            against: self.against.as_ref().map(compare),
            file: self.file.clone(),
        }
    }
}
