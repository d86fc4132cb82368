//! `tollgate replay`: replays recorded traffic against limits.

use std::io::Write;

use tollgate::{Error, Limits};

use crate::args::{LimitFiles, ReplayArgs, Traffic};
use crate::candidate::Candidate;
use crate::input::{Lines, name};
#[cfg(feature = "valkey")]
use crate::nodes::Nodes;
use crate::output::{Destination, Results, print, to_json};
use crate::report::{Collected, Run, page};
use crate::side::{Answer, Side};
use crate::summary::Summary;
use crate::{Failure, Outcome, replay_log, replay_trace, trace, validate};

/// The state of a run.
pub(crate) struct Session {
    /// The limits in force: those of `--limits`.
    pub(crate) side: Side,
    /// The path of `--limits`.
    pub(crate) file: String,
    pub(crate) candidate: Option<Candidate>,
    #[cfg(feature = "valkey")]
    pub(crate) nodes: Option<Nodes>,
    pub(crate) decisions: Results,
    /// The data for the report, if there is one.
    pub(crate) collected: Option<Collected>,
    /// The rules that apply to no line of the log, as the arguments have them.
    pub(crate) unused_rules: Vec<String>,
}

/// The numbers of lines by their outcome. A [`Tally`](crate::tally::Tally) counts spends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineCounts {
    pub(crate) parsed: u64,
    pub(crate) skipped: u64,
    pub(crate) late: u64,
    /// The lines of a trace with an error under the limits in force; `None` for a log.
    pub(crate) errors: Option<u64>,
    /// Whether a log had lines, and too few of them were read for a result.
    pub(crate) is_unread: bool,
}

/// The most ids in each list of the summary.
const MAX_TOP: usize = 10;

pub(crate) fn run(args: &ReplayArgs) -> Result<Outcome, Failure> {
    // Files are opened before the limits are loaded, which may take seconds: a missing file is reported at once.
    let mut lines = Lines::open(args.traffic())?;
    let decisions = Results::open(args.decisions.as_deref())?;
    let mut report = Results::open(args.report.as_deref())?;
    let mut session = load(args)?;
    session.decisions = decisions;
    session.collected = args.report.as_ref().map(|_| Collected::new(args.traffic.log.is_some()));

    let (counts, messages) = replay(&mut lines, &mut session, &args.traffic)?;
    let summary = session.summary(lines.count(), counts);
    if let Some(collected) = &session.collected {
        let run = Run {
            traffic: lines.name(),
            rules: &args.traffic.rules,
            summary: &summary,
            side: &session.side,
            candidate: session.candidate.as_ref(),
            collected,
        };
        report.write(|out| out.write_all(page(&run).as_bytes()))?;
    }
    report.finish()?;
    session.decisions.finish()?;
    lines.finish();
    let destination =
        if args.is_output_taken() { Destination::Stderr } else { Destination::Stdout };
    print(destination, &if args.json { to_json(&summary) } else { summary.to_text() })?;
    for text in messages {
        lines.report(&text);
    }
    match session.candidate {
        Some(Candidate { errors: 1.., .. } | Candidate { newly_skipped: 1.., .. }) => {
            Ok(Outcome::Found)
        }
        _ => Ok(counts.outcome()),
    }
}

/// Replays all lines. Returns the counts, and messages about the first lines that were skipped and about late ones.
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
        match self.errors {
            None | Some(0) if !self.is_unread => Outcome::NothingFound,
            _ => Outcome::Found,
        }
    }
}

/// Reads the limits and the candidate. The failure lists the faults of both.
fn load(args: &ReplayArgs) -> Result<Session, Failure> {
    let load = |files| Ok(validate::load(files)?.valid_at(args.today.now()));
    let in_force = load(&args.files);
    let candidate_files = args.candidate();
    let candidate = candidate_files.as_ref().map(load).transpose();
    match (in_force, candidate) {
        (Ok(in_force), Ok(candidate)) => {
            #[cfg(feature = "valkey")]
            let nodes = args
                .nodes
                .map(|count| Nodes::new(&in_force, count, args))
                .transpose()
                .map_err(not_started)?;
            let mut session = Session::new(in_force, &args.files)?;
            #[cfg(feature = "valkey")]
            {
                session.nodes = nodes;
            }
            let candidate = candidate.zip(candidate_files);
            if let Some((limits, files)) = candidate {
                let started = Candidate::new(limits, name(&files.limits)).map_err(not_started)?;
                session.candidate = Some(started);
            }
            Ok(session)
        }
        (Err(Failure::NotDone(text)), Err(Failure::NotDone(more))) => {
            Err(Failure::NotDone(format!("{text}\n{more}")))
        }
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}

/// The failure of limits for which no table has room.
fn not_started(error: Error) -> Failure {
    Failure::NotDone(error.to_string())
}

impl Session {
    /// Starts a session without candidate, nodes, decisions and report.
    pub(crate) fn new(limits: Limits, files: &LimitFiles) -> Result<Session, Failure> {
        Ok(Session {
            side: Side::new(limits).map_err(not_started)?,
            file: name(&files.limits),
            candidate: None,
            #[cfg(feature = "valkey")]
            nodes: None,
            decisions: Results::default(),
            collected: None,
            unused_rules: Vec::new(),
        })
    }

    /// Writes a decision of the limits in force to `--decisions`.
    pub(crate) fn write_decision(&mut self, answer: &Answer) -> Result<(), Failure> {
        let denied_by = answer.denied_by().map(|key| self.side.key(key));
        self.decisions.write(|out| trace::write_decision(out, &answer.decision, denied_by))
    }

    /// Counts a spend. `old` is the answer of the limits in force and `new` that of the candidate; `None` if
    /// the spend failed there.
    pub(crate) fn count(&mut self, at_ns: u64, old: Option<&Answer>, new: Option<&Answer>) {
        let Session { side, candidate, collected, .. } = self;
        if let Some(old) = old {
            side.tally.count(old);
            if let Some(collected) = collected {
                collected.count(at_ns, side, old);
            }
        }
        let Some(candidate) = candidate else { return };
        if let Some(new) = new {
            candidate.side.tally.count(new);
        }
        match (old, new) {
            (Some(old), Some(new)) => {
                let change = candidate.compare(at_ns, side, old, new);
                if let Some(collected) = collected {
                    collected.count_candidate(&candidate.side, new, change);
                }
            }
            (None, None) => {}
            _ => candidate.not_compared += 1,
        }
    }

    fn summary(&self, lines: u64, counts: LineCounts) -> Summary {
        let Side { engine, tally } = &self.side;
        let is_trace = counts.errors.is_some();
        let comparison =
            |candidate: &Candidate| candidate.comparison(&self.side, is_trace, MAX_TOP);
        Summary {
            lines,
            parsed: counts.parsed,
            skipped: counts.skipped,
            late: counts.late,
            errors: counts.errors,
            allowed: tally.allowed,
            denied: tally.denied,
            unused_rules: self.unused_rules.clone(),
            limits: tally
                .by_limit()
                .map(|(limit, counts)| (engine.name(limit).to_owned(), counts))
                .collect(),
            top_denied: tally.most_denied(engine, MAX_TOP),
            against: self.candidate.as_ref().map(comparison),
            #[cfg(feature = "valkey")]
            nodes: self.nodes.as_ref().map(|nodes| nodes.result(&self.side)),
            file: self.file.clone(),
        }
    }
}
