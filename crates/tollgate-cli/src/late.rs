//! Warns of a log of which many lines are late.

use crate::escape::Escaped;
use crate::text::{grouped, time};

/// Fewer late lines are not warned of: busy servers write a few.
const MIN_WARNED: u64 = 10;

/// The time of a line since the Unix epoch, and the line's number.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    at_ns: u64,
    line: u64,
}

/// The first late line of a log, and the line with the latest time before it.
#[derive(Debug, Default)]
pub(crate) struct FirstLate {
    latest: At,
    late: Option<At>,
}

impl FirstLate {
    /// Adds the next line of the log. The window has decided whether it is late.
    pub(crate) fn add(&mut self, line: u64, at_ns: u64, is_late: bool) {
        if self.late.is_some() {
            return;
        }
        if is_late {
            self.late = Some(At { at_ns, line });
        } else if at_ns > self.latest.at_ns {
            self.latest = At { at_ns, line };
        }
    }

    /// Formats the warning of a log of which more than 1 % of the parsed lines are late. The counts of such a log say little
    /// about its traffic.
    pub(crate) fn warning(&self, log: &str, late: u64, parsed: u64) -> Option<String> {
        let first =
            self.late.filter(|_| late >= MIN_WARNED && late.saturating_mul(100) > parsed)?;
        let (log, latest) = (Escaped(log), self.latest);
        Some(format!(
            "warning: {log}:{}: {} of {} lines are late; the first, of {}, follows line {} of {}: they are decided at the time of an earlier line, so the counts are not those of the recorded traffic; sort the log by time, give rotated files oldest first, or pass a larger --reorder",
            first.line,
            grouped(late),
            grouped(parsed),
            time(first.at_ns),
            latest.line,
            time(latest.at_ns),
        ))
    }
}
