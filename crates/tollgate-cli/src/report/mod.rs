//! The report of a run: one page with charts, and every chart's numbers beside it.

mod chart;
mod closeness;
mod denied;
mod overrides;
mod page;
mod requests;
mod sections;
mod tables;
mod timeline;
mod words;

use tollgate::Decision;
use tollgate::limit::Factor;

use crate::against::Change;
use crate::engine::LimitNo;
use crate::side::Side;
use crate::tally::KeyNo;

pub(crate) use page::{Replayed, page};
pub(crate) use requests::Request;

use closeness::Closeness;
use requests::Requests;
use timeline::{Bin, Timeline};

/// What a report needs beyond the counts of a run, collected while it goes on: for each limit a bounded
/// number of bins, a byte for each key, the clients, and a bounded number of values of what was denied.
#[derive(Debug)]
pub(crate) struct Collected {
    timeline: Timeline,
    in_force: Closeness,
    candidate: Closeness,
    /// Of a log.
    requests: Requests,
    /// The first time of a spend, and the last.
    span_ns: Option<(u64, u64)>,
}

/// The rows of the timeline.
#[derive(Clone, Copy, Debug)]
enum Row {
    /// Lines, wherever they count.
    Lines,
    /// Lines at a limit in force.
    InForce(LimitNo),
    /// Lines at a limit of the candidate.
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
    /// Nothing yet. The times of a log are whole seconds, those of a trace are not.
    pub(crate) fn new(is_log: bool) -> Collected {
        Collected {
            timeline: if is_log { Timeline::of_seconds() } else { Timeline::of_nanoseconds() },
            in_force: Closeness::default(),
            candidate: Closeness::default(),
            requests: Requests::default(),
            span_ns: None,
        }
    }

    /// A spend comes; times never go back.
    pub(crate) fn move_to(&mut self, at_ns: u64) {
        self.timeline.move_to(at_ns);
        let (first_ns, _) = self.span_ns.unwrap_or((at_ns, at_ns));
        self.span_ns = Some((first_ns, at_ns));
    }

    /// The spend counts at a limit in force.
    pub(crate) fn count(&mut self, limit: LimitNo, is_allowed: bool) {
        count(self.bin(Row::InForce(limit)), is_allowed);
    }

    /// What the limits in force said to the spend. `factor` is that with which a key was asked for, if
    /// the spend was charged to it when it was allowed.
    pub(crate) fn see(
        &mut self,
        side: &Side,
        keys: &[KeyNo],
        decision: &Decision,
        factor: impl Fn(usize) -> Option<Factor>,
    ) {
        count(self.bin(Row::Lines), decision.allowed());
        if decision.allowed() {
            self.in_force.see(side, keys, decision, factor);
        }
    }

    /// What the candidate said to the spend, as [`see`](Collected::see).
    pub(crate) fn see_candidate(
        &mut self,
        side: &Side,
        keys: &[KeyNo],
        decision: &Decision,
        factor: impl Fn(usize) -> Option<Factor>,
    ) {
        if decision.allowed() {
            self.candidate.see(side, keys, decision, factor);
        }
    }

    /// The request of a log's line, and whether it was denied; by the candidate too, if that has an answer.
    pub(crate) fn request(&mut self, request: &Request, is_denied: bool, then: Option<bool>) {
        self.requests.see(request, is_denied, then);
    }

    /// What the candidate changed of the spend.
    pub(crate) fn change(&mut self, change: Change) {
        let limit = match change {
            Change::None => return,
            Change::NewlyDenied(limit) => Row::Candidate(limit),
            Change::NewlyAllowed(limit) => Row::InForce(limit),
        };
        for row in [Row::Lines, limit] {
            let bin = self.bin(row);
            match change {
                Change::NewlyDenied(_) => bin.newly_denied += 1,
                _ => bin.newly_allowed += 1,
            }
        }
    }

    fn bin(&mut self, row: Row) -> &mut Bin {
        self.timeline.bin(row.index())
    }
}

fn count(bin: &mut Bin, is_allowed: bool) {
    if is_allowed {
        bin.allowed += 1;
    } else {
        bin.denied += 1;
    }
}
