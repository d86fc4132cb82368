//! The algorithm: a quota for a day, and a smaller quota for each half of it.

use std::time::Duration;

use tollgate::Decision;
use tollgate::algorithm::{Algorithm, Outcome};

/// Allows at most `whole` units in a day, which its first allowed call starts, and at most `half` in each half of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halves {
    whole: u64,
    half: u64,
    /// The length of half a day.
    half_s: u64,
}

/// The content of a word: the second in which the day started, in 31 bits, and the units used in its first and its second
/// half, 16 bits each.
#[derive(Clone, Copy, Debug)]
struct Day {
    start_s: u64,
    used: [u64; 2],
}

const NS_PER_S: u64 = 1_000_000_000;

/// 68 years after the clock's origin.
const MAX_S: u64 = (1 << 31) - 1;

const MAX_USED: u64 = (1 << 16) - 1;

impl Day {
    fn from_word(word: u64) -> Day {
        Day { start_s: word >> 32, used: [(word >> 16) & MAX_USED, word & MAX_USED] }
    }

    /// Never 0, because the start is at least 1. The top bit is clear, because the start has 31 bits.
    fn word(self) -> u64 {
        (self.start_s << 32) | (self.used[0] << 16) | self.used[1]
    }

    fn total(self) -> u64 {
        self.used[0] + self.used[1]
    }
}

/// The second that contains a time; 1 for the clock's origin, which is 1 ns.
fn second_of(now_ns: u64) -> u64 {
    (now_ns.saturating_sub(1) / NS_PER_S + 1).min(MAX_S)
}

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

impl Halves {
    /// Cuts the counts to 65535, and the day to whole seconds.
    pub(crate) fn new(whole: u64, half: u64, day: Duration) -> Halves {
        let whole = whole.clamp(1, MAX_USED);
        let half_s = (day.as_secs() / 2).clamp(1, MAX_S);
        Halves { whole, half: half.clamp(1, whole), half_s }
    }

    /// The current day and the second of the call, which is not before the day's start. A day that is over, or in which no
    /// unit is used, is replaced by one that starts with the call.
    fn current_day(&self, word: u64, now_ns: u64) -> (Day, u64) {
        let day = Day::from_word(word);
        let now_s = second_of(now_ns).max(day.start_s);
        if day.total() == 0 || now_s - day.start_s >= 2 * self.half_s {
            return (Day { start_s: now_s, used: [0, 0] }, now_s);
        }
        (day, now_s)
    }

    /// The time until `cost` more units can be spent.
    fn wait_s(&self, day: Day, now_s: u64, cost: u64) -> u64 {
        let elapsed_s = now_s - day.start_s;
        let in_second = usize::from(elapsed_s >= self.half_s);
        if day.total() + cost <= self.whole {
            if day.used[in_second] + cost <= self.half {
                return 0;
            }
            if in_second == 0 {
                return self.half_s - elapsed_s;
            }
        }
        2 * self.half_s - elapsed_s
    }

    fn reset_in_s(&self, day: Day, now_s: u64) -> u64 {
        if day.total() == 0 { 0 } else { 2 * self.half_s - (now_s - day.start_s) }
    }
}

impl Algorithm for Halves {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let (mut day, now_s) = self.current_day(word, now_ns);
        let wait_s = self.wait_s(day, now_s, cost);
        let allowed = wait_s == 0;
        if allowed {
            day.used[usize::from(now_s - day.start_s >= self.half_s)] += cost;
        }
        // On an allowed call, the time until the same cost could be spent again.
        let retry_s = if allowed { self.wait_s(day, now_s, cost) } else { wait_s };
        let remaining = self.whole.saturating_sub(day.total());
        let reset_in = seconds(self.reset_in_s(day, now_s));
        let decision = Decision::for_spend(allowed, remaining, seconds(retry_s), reset_in);
        Outcome { word: (allowed && cost > 0).then(|| day.word()), decision }
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let (mut day, now_s) = self.current_day(word, now_ns);
        let before = day.total();
        // The second half first: units that return there can be spent again at once.
        let later = cost.min(day.used[1]);
        day.used = [day.used[0].saturating_sub(cost - later), day.used[1] - later];
        let refunded = day.total() < before;
        if day.total() == 0 {
            day.start_s = now_s;
        }
        let remaining = self.whole.saturating_sub(day.total());
        let reset_in = seconds(self.reset_in_s(day, now_s));
        let decision = Decision::for_refund(refunded, remaining, reset_in);
        Outcome { word: refunded.then(|| day.word()), decision }
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        let (day, now_s) = self.current_day(word, now_ns);
        // Not before the word's own time: a new bucket would start its day sooner.
        day.total() == 0 && now_s <= second_of(now_ns)
    }

    fn full(&self, now_ns: u64) -> u64 {
        Day { start_s: second_of(now_ns), used: [0, 0] }.word()
    }

    fn max_cost(&self) -> u64 {
        self.half
    }

    fn name(&self) -> &'static str {
        "halves"
    }
}
