//! `tollgate replay`: what would these limits have done?

use crate::args::{ReplayArgs, Traffic, is_standard};
use crate::engine::Engine;
use crate::input::Lines;
use crate::output::{Decisions, Destination, print, to_json};
use crate::progress::Progress;
use crate::summary::Summary;
use crate::tally::Tally;
use crate::{Failure, Outcome, replay_log, replay_trace, validate};

/// What a run works with.
pub(crate) struct Session {
    pub(crate) engine: Engine,
    pub(crate) tally: Tally,
    pub(crate) decisions: Decisions,
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
    let decisions = Decisions::open(args.decisions.as_deref())?;
    let engine = Engine::new(validate::load(&args.files)?);
    let progress = Progress::new(&lines);
    let mut session = Session { engine, tally: Tally::default(), decisions, progress };

    let (counts, skipped) = replay(&mut lines, &mut session, &args.traffic)?;
    let summary = session.summary(lines.count(), counts);
    session.decisions.finish()?;
    session.progress.finish();
    let is_taken = args.decisions.as_deref().is_some_and(is_standard);
    let destination = if is_taken { Destination::Stderr } else { Destination::Stdout };
    print(destination, &if args.json { to_json(&summary) } else { summary.to_text() })?;
    for text in skipped {
        session.progress.report(&text);
    }
    Ok(counts.outcome())
}

/// Replays all lines. Returns the counts, and the texts for the first that were skipped.
pub(crate) fn replay(
    lines: &mut Lines,
    session: &mut Session,
    traffic: &Traffic,
) -> Result<(LineCounts, Vec<String>), Failure> {
    let (counts, skipped) = match traffic.trace {
        Some(_) => (replay_trace::run(lines, session)?, Vec::new()),
        None => replay_log::run(lines, session, &traffic.rules, traffic.window_ns())?,
    };
    if lines.count() == 0 {
        return Err(Failure::Input(format!(
            "{}: is empty: at least one line is needed",
            lines.name()
        )));
    }
    Ok((counts, skipped))
}

impl LineCounts {
    pub(crate) fn outcome(&self) -> Outcome {
        if self.errors.is_some_and(|errors| errors > 0) {
            Outcome::LinesFailed
        } else {
            Outcome::Well
        }
    }
}

impl Session {
    fn summary(&self, lines: u64, counts: LineCounts) -> Summary {
        let name = |limit| self.engine.name(limit).to_owned();
        Summary {
            lines,
            parsed: counts.parsed,
            skipped: counts.skipped,
            late: counts.late,
            errors: counts.errors,
            allowed: self.tally.allowed,
            denied: self.tally.denied,
            limits: self.tally.by_limit().map(|(limit, counts)| (name(limit), counts)).collect(),
            top_denied: self.tally.most_denied(&self.engine, MAX_TOP_DENIED),
        }
    }
}
