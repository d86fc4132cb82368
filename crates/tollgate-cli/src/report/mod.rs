//! Writes the report of a replay: one HTML page with charts, and a table of the numbers of each chart.

mod chart;
mod closeness;
mod denied;
mod figure;
mod overrides;
mod page;
mod requests;
mod sections;
mod tables;
mod timeline;
mod words;

use crate::candidate::Change;
use crate::engine::LimitNo;
use crate::side::{Answer, Side};

pub(crate) use page::{Run, page};
pub(crate) use requests::{Refused, Request};

use closeness::Closeness;
use requests::Requests;
use timeline::{Bin, Timeline};

/// The data that a report needs in addition to the counts of a run: for each limit a bounded number of bins,
/// for each key a byte, the clients, and a bounded number of values of denied requests.
#[derive(Debug)]
pub(crate) struct Collected {
    timeline: Timeline,
    in_force: Closeness,
    candidate: Closeness,
    /// Empty for a trace.
    requests: Requests,
    /// The times of the first and the last spend.
    span_ns: Option<(u64, u64)>,
}

/// A row of the timeline.
#[derive(Clone, Copy, Debug)]
enum Row {
    /// All lines.
    Lines,
    /// The lines that count at a limit in force.
    InForce(LimitNo),
    /// The lines that count at a limit of the candidate.
    Candidate(LimitNo),
}

impl Row {
    fn index(self) -> usize {
        match self {
            Row::Lines => 0,
            Row::InForce(limit) => 1 + 2 * limit.index(),
            Row::Candidate(limit) => 2 + 2 * limit.index(),
        }
    }
}

impl Collected {
    /// Starts without data. The times of a log are whole seconds, those of a trace are not.
    pub(crate) fn new(is_log: bool) -> Collected {
        Collected {
            timeline: if is_log { Timeline::of_seconds() } else { Timeline::of_nanoseconds() },
            in_force: Closeness::default(),
            candidate: Closeness::default(),
            requests: Requests::default(),
            span_ns: None,
        }
    }

    /// Counts a spend under the limits in force. Times do not decrease.
    pub(crate) fn count(&mut self, at_ns: u64, side: &Side, answer: &Answer) {
        self.timeline.move_to(at_ns);
        let (first_ns, _) = self.span_ns.unwrap_or((at_ns, at_ns));
        self.span_ns = Some((first_ns, at_ns));
        let limits = side.tally.counted_limits(answer).map(Row::InForce);
        for row in std::iter::once(Row::Lines).chain(limits) {
            let bin = self.bin(row);
            *(if answer.decision.allowed() { &mut bin.allowed } else { &mut bin.denied }) += 1;
        }
        self.in_force.count(side, answer);
    }

    /// Counts a spend under the candidate, after [`count`](Collected::count).
    pub(crate) fn count_candidate(&mut self, side: &Side, answer: &Answer, change: Option<Change>) {
        self.candidate.count(side, answer);
        match change {
            Some(Change::NewlyDenied(limit)) => {
                self.bin(Row::Lines).newly_denied += 1;
                self.bin(Row::Candidate(limit)).newly_denied += 1;
            }
            Some(Change::NewlyAllowed(limit)) => {
                self.bin(Row::Lines).newly_allowed += 1;
                self.bin(Row::InForce(limit)).newly_allowed += 1;
            }
            None => {}
        }
    }

    /// Counts the request of a log's line. `new` is the candidate's answer, if there is one.
    pub(crate) fn request(
        &mut self,
        request: &Request,
        old: &Answer,
        new: Option<Result<&Answer, Refused>>,
    ) {
        let is_denied = |answer: &Answer| !answer.decision.allowed();
        self.requests.count(request, is_denied(old), new.map(|new| new.map(is_denied)));
    }

    fn bin(&mut self, row: Row) -> &mut Bin {
        self.timeline.bin(row.index())
    }
}
