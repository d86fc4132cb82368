//! Warns of a log of which many lines are late.

use std::time::Duration;

use crate::escape::Escaped;
use crate::text::{grouped, span, time};

/// Fewer late lines are not warned of: busy servers write a few.
const MIN_WARNED: u64 = 10;

/// The time of a line since the Unix epoch, and the line's number.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    at_ns: u64,
    line: u64,
}

/// The first late line of a log, the line with the latest time before it, and how late the latest line is.
#[derive(Debug, Default)]
pub(crate) struct FirstLate {
    latest: At,
    /// The first late line, and `latest` then.
    late: Option<(At, At)>,
    most_ns: u64,
}

impl FirstLate {
    /// Adds the next line of the log. The window has decided whether it is late.
    pub(crate) fn add(&mut self, line: u64, at_ns: u64, is_late: bool) {
        let this = At { at_ns, line };
        if is_late {
            self.late.get_or_insert((this, self.latest));
            self.most_ns = self.most_ns.max(self.latest.at_ns.saturating_sub(at_ns));
        }
        if at_ns > self.latest.at_ns {
            self.latest = this;
        }
    }

    /// Formats the warning of a log of which more than 1 % of the parsed lines are late. The counts of such a log say little
    /// about its traffic.
    pub(crate) fn warning(&self, log: &str, late: u64, parsed: u64) -> Option<String> {
        let is_warned = late >= MIN_WARNED && late.saturating_mul(100) > parsed;
        let (first, latest) = self.late.filter(|_| is_warned)?;
        let (log, most) =
            (Escaped(log), span(Duration::from_secs(self.most_ns.div_ceil(1_000_000_000))));
        Some(format!(
            "warning: {log}:{}: {} of {} lines are late; the first, of {}, follows line {} of {}: they are decided at the time of an earlier line, so the counts are not those of the recorded traffic; sort the log by time, remove lines with a wrong clock, give rotated files oldest first, or pass --reorder {most}",
            first.line,
            grouped(late),
            grouped(parsed),
            time(first.at_ns),
            latest.line,
            time(latest.at_ns),
        ))
    }
}
