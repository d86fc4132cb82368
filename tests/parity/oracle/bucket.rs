//! Computes one bucket's answers in plain integers, by `docs/internals/algorithms.md`. It searches for waits
//! instead of computing them: the first time at which the bucket holds the cost.

use super::super::spec::Numbers;

pub(crate) const NS_PER_MS: i128 = 1_000_000;

/// The longest wait that a decision can tell: 584 years.
const MAX_WAIT: i128 = u64::MAX as i128;

/// The numbers of a limit. Times of gcra are in ns, of the other algorithms in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Gcra {
        burst: i128,
        interval: i128,
    },
    Fixed {
        limit: i128,
        window: i128,
    },
    Tokens {
        limit: i128,
        window: i128,
        burst: i128,
    },
    Leaky {
        size: i128,
        rate: i128,
        drip: i128,
    },
    /// `most`: the largest cost of a call.
    Permits {
        max: i128,
        most: i128,
    },
}

/// What a denial of permits tells the caller to wait, in ns.
const RETRY: i128 = 1_000_000_000;

/// The state of a bucket. A bucket that was never charged has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// gcra: the time in ns at which the bucket is full.
    Tat(i128),
    /// The other algorithms: the time in ms at which the window opened or the last drip fell, and the units
    /// used. If no unit is used, no later call has a time before `at`.
    Counted { at: i128, used: i128 },
    /// Permits that are out. The first one of a count begins its epoch; 0: none has begun.
    InFlight { used: i128, epoch: u64 },
}

/// The figures of a decision. Waits are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) allowed: bool,
    pub(crate) remaining: i128,
    pub(crate) retry: i128,
    pub(crate) reset: i128,
}

/// A state brought up to the time of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentCount {
    pub(crate) at: i128,
    pub(crate) used: i128,
    /// The time of the call, at least the state's own.
    pub(crate) now: i128,
}

/// The millisecond that contains a time in ns. The origin, 1 ns, is in the first one.
pub(crate) fn ms_of(now: i128) -> i128 {
    (now - 1).max(0) / NS_PER_MS + 1
}

impl Rule {
    pub(crate) fn of(numbers: Numbers) -> Rule {
        let of = i128::from;
        match numbers {
            Numbers::Gcra { burst, count, period_ms } => {
                Rule::Gcra { burst: of(burst), interval: of(period_ms) * NS_PER_MS / of(count) }
            }
            Numbers::Fixed { limit, window_ms } => {
                Rule::Fixed { limit: of(limit), window: of(window_ms) }
            }
            Numbers::Tokens { limit, window_ms, burst } => {
                Rule::Tokens { limit: of(limit), window: of(window_ms), burst: of(burst) }
            }
            Numbers::Leaky { size, rate_ms, drip } => {
                Rule::Leaky { size: of(size), rate: of(rate_ms), drip: of(drip) }
            }
            Numbers::Permits { max } => Rule::Permits { max: of(max), most: of(max) },
        }
    }

    /// The rule for a caller with a factor, in millionths and not 0.
    pub(crate) fn scaled(self, factor: u64) -> Rule {
        let factor = i128::from(factor);
        let less = |number: i128| ceil(number * 1_000_000, factor).max(1);
        let more = |number: i128| ceil(number * factor, 1_000_000).max(1);
        match self {
            Rule::Gcra { burst, interval } => {
                Rule::Gcra { burst: less(burst), interval: more(interval) }
            }
            Rule::Fixed { limit, window } => Rule::Fixed { limit: less(limit), window },
            Rule::Tokens { limit, window, burst } => {
                Rule::Tokens { limit: less(limit), window, burst: less(burst) }
            }
            Rule::Leaky { size, rate, drip } => {
                Rule::Leaky { size: less(size), rate: more(rate), drip }
            }
            Rule::Permits { .. } => unreachable!("permits have no factors"),
        }
    }

    /// The largest cost of a call.
    pub(crate) fn most(self) -> i128 {
        match self {
            Rule::Gcra { burst, .. } | Rule::Tokens { burst, .. } => burst,
            Rule::Fixed { limit, .. } => limit,
            Rule::Leaky { size, .. } => size,
            Rule::Permits { most, .. } => most,
        }
    }

    /// The room of the bucket, in ns for gcra, else in units. Shares are parts of it.
    pub(crate) fn capacity(self) -> i128 {
        match self {
            Rule::Gcra { burst, interval } => burst * interval,
            Rule::Fixed { limit, .. } | Rule::Tokens { limit, .. } => limit,
            Rule::Leaky { size, .. } => size,
            Rule::Permits { max, .. } => max,
        }
    }

    /// The state of a bucket that was never charged, at a time.
    fn new_state(self, now: i128) -> State {
        match self {
            Rule::Gcra { .. } => State::Tat(now),
            Rule::Permits { .. } => State::InFlight { used: 0, epoch: 0 },
            _ => State::Counted { at: ms_of(now), used: 0 },
        }
    }

    /// Brings a state up to a call's millisecond: removes windows that are over and drips that have fallen.
    pub(crate) fn current(self, at: i128, used: i128, now_ms: i128) -> CurrentCount {
        let now = now_ms.max(at);
        let (left, begins) = match self {
            Rule::Gcra { .. } | Rule::Permits { .. } => unreachable!("its state is no count"),
            Rule::Fixed { limit, window } | Rule::Tokens { limit, window, .. } => {
                let passed = (now - at) / window;
                // A window takes its limit; the next windows take the rest.
                ((used - passed * limit).max(0), at + passed * window)
            }
            Rule::Leaky { rate, drip, .. } => {
                let drips = (now - at) / rate;
                ((used - drips * drip).max(0), at + drips * rate)
            }
        };
        CurrentCount { at: if left == 0 { now } else { begins }, used: left, now }
    }

    /// Whether the bucket holds a cost at this ms.
    fn holds(self, at: i128, used: i128, now_ms: i128, cost: i128) -> bool {
        let current = self.current(at, used, now_ms);
        match self {
            Rule::Gcra { .. } | Rule::Permits { .. } => unreachable!("its state is no count"),
            Rule::Fixed { limit, .. } => current.used + cost <= limit,
            Rule::Leaky { size, .. } => current.used + cost <= size,
            Rule::Tokens { limit, window, burst } => {
                let gained = (limit - burst) * (current.now - current.at);
                (burst - current.used) * window + gained >= cost * window
            }
        }
    }

    /// The ms from now until `is_so` holds of a state.
    fn until(self, at: i128, used: i128, from: i128, is_so: impl Fn(i128) -> bool) -> i128 {
        let step = match self {
            Rule::Gcra { .. } | Rule::Permits { .. } => unreachable!("its state is no count"),
            Rule::Fixed { limit, window } | Rule::Tokens { limit, window, .. } => {
                (used / limit + 2) * window
            }
            Rule::Leaky { size, rate, drip } => ((used + 2 * size) / drip + 2) * rate,
        };
        let (mut low, mut high) = (0, step + (at - from).max(0));
        assert!(is_so(from + high), "{self:?}: {used} since {at} at {from}");
        while low < high {
            let middle = (low + high) / 2;
            if is_so(from + middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// The most units that calls may spend at a time.
    pub(crate) fn available(self, state: Option<State>, now: i128) -> i128 {
        match (self, state.unwrap_or(self.new_state(now))) {
            (Rule::Gcra { burst, interval }, State::Tat(tat)) => {
                ((now + burst * interval - now.max(tat)) / interval).max(0)
            }
            (_, State::Counted { at, used }) => {
                let holds = |units: &i128| self.holds(at, used, ms_of(now), *units);
                (0..=self.capacity()).rev().find(holds).unwrap_or(0)
            }
            _ => unreachable!("{self:?} {state:?}"),
        }
    }

    fn figures(self, allowed: bool, at: i128, used: i128, now_ms: i128, cost: i128) -> Figures {
        let current = self.current(at, used, now_ms);
        let until_there = self.until(at, used, now_ms, |ms| self.holds(at, used, ms, cost));
        let until_full = self.until(at, used, now_ms, |ms| self.current(at, used, ms).used == 0);
        Figures {
            allowed,
            remaining: (self.capacity() - current.used).max(0),
            retry: (until_there * NS_PER_MS).min(MAX_WAIT),
            reset: (until_full * NS_PER_MS).min(MAX_WAIT),
        }
    }

    /// Charges a cost if the bucket holds it. If the returned state is `None`, the bucket is unchanged.
    pub(crate) fn spend(
        self,
        state: Option<State>,
        now: i128,
        cost: i128,
    ) -> (Option<State>, Figures) {
        let state = state.unwrap_or(self.new_state(now));
        match (self, state) {
            (Rule::Gcra { burst, interval }, State::Tat(tat)) => {
                let from = now.max(tat);
                let charged = from + interval * cost;
                let diff = now - (charged - interval * burst);
                if diff < 0 {
                    let remaining = ((now - (from - interval * burst)) / interval).max(0);
                    let (retry, reset) = (-diff, from - now);
                    return (None, Figures { allowed: false, remaining, retry, reset });
                }
                let retry = (interval * cost - diff).max(0);
                let (remaining, reset) = (diff / interval, charged - now);
                let state = (cost > 0).then_some(State::Tat(charged));
                (state, Figures { allowed: true, remaining, retry, reset })
            }
            (Rule::Permits { max, .. }, State::InFlight { used, epoch }) => {
                let allowed = used + cost <= max;
                let after = if allowed { used + cost } else { used };
                let remaining = (max - after).max(0);
                let waits = |is_waiting| if is_waiting { RETRY } else { 0 };
                let (retry, reset) = (waits(!allowed || cost > remaining), waits(after > 0));
                // The first permit of a count begins its epoch.
                let epoch = if used > 0 { epoch } else { 0 };
                let state = (after > used).then_some(State::InFlight { used: after, epoch });
                (state, Figures { allowed, remaining, retry, reset })
            }
            (_, State::Counted { at, used }) => {
                let now_ms = ms_of(now);
                if !self.holds(at, used, now_ms, cost) {
                    return (None, self.figures(false, at, used, now_ms, cost));
                }
                let current = self.current(at, used, now_ms);
                let after = (current.at, current.used + cost);
                let figures = self.figures(true, after.0, after.1, now_ms, cost);
                let state = State::Counted { at: after.0, used: after.1 };
                ((cost > 0).then_some(state), figures)
            }
            _ => unreachable!("{self:?} {state:?}"),
        }
    }

    /// Refunds up to a cost; `allowed` says whether there was anything to refund.
    pub(crate) fn refund(
        self,
        state: Option<State>,
        now: i128,
        cost: i128,
    ) -> (Option<State>, Figures) {
        let state = state.unwrap_or(self.new_state(now));
        match (self, state) {
            (Rule::Gcra { burst, interval }, State::Tat(tat)) => {
                let from = now.max(tat);
                let given = (from - interval * cost).max(now);
                let remaining = ((now + interval * burst - given) / interval).max(0);
                let allowed = given != from;
                let figures = Figures { allowed, remaining, retry: 0, reset: given - now };
                (allowed.then_some(State::Tat(given)), figures)
            }
            (_, State::Counted { at, used }) => {
                let current = self.current(at, used, ms_of(now));
                let left = (current.used - cost).max(0);
                let allowed = left != current.used;
                let at = if left == 0 { current.now } else { current.at };
                let answer = self.figures(allowed, at, left, ms_of(now), 0);
                let state = State::Counted { at, used: left };
                (allowed.then_some(state), Figures { retry: 0, ..answer })
            }
            _ => unreachable!("{self:?} {state:?}"),
        }
    }

    /// Makes the bucket full.
    pub(crate) fn reset(self, state: Option<State>, now: i128) -> (Option<State>, Figures) {
        let remaining = match self {
            Rule::Gcra { burst, .. } => burst,
            _ => self.capacity(),
        };
        let figures = Figures { allowed: true, remaining, retry: 0, reset: 0 };
        let full = match state {
            Some(State::Tat(tat)) => (tat > now).then_some(State::Tat(now)),
            Some(State::Counted { at, used }) => {
                let current = self.current(at, used, ms_of(now));
                (current.used > 0).then_some(State::Counted { at: current.now, used: 0 })
            }
            Some(State::InFlight { .. }) => unreachable!("permits are not reset"),
            None => None,
        };
        (full, figures)
    }

    /// Charges a cost whether or not the bucket holds it, down to an empty bucket.
    pub(crate) fn owe(self, state: Option<State>, now: i128, cost: i128) -> Option<State> {
        let state = state.unwrap_or(self.new_state(now));
        match (self, state) {
            (Rule::Gcra { .. }, State::Tat(tat)) => {
                let Rule::Gcra { interval, .. } = self else { unreachable!() };
                let from = now.max(tat);
                let owed = (from + interval * cost).min(now + self.capacity());
                (owed > from).then_some(State::Tat(owed))
            }
            (_, State::Counted { at, used }) => {
                let current = self.current(at, used, ms_of(now));
                let most = match self {
                    Rule::Tokens { limit, window, burst } => {
                        let gained = (limit - burst) * (current.now - current.at) / window;
                        (burst + gained).min(limit)
                    }
                    _ => self.capacity(),
                };
                let owed = (current.used + cost).min(most);
                (owed > current.used).then_some(State::Counted { at: current.at, used: owed })
            }
            _ => unreachable!("{self:?} {state:?}"),
        }
    }

    /// Whether the bucket is full at a time.
    pub(crate) fn is_full(self, state: State, now: i128) -> bool {
        match state {
            State::Tat(tat) => tat <= now,
            State::InFlight { used, .. } => used == 0,
            State::Counted { at, used } => {
                let current = self.current(at, used, ms_of(now));
                current.used == 0 && current.now <= ms_of(now)
            }
        }
    }
}

/// `number / by`, rounded up.
pub(crate) fn ceil(number: i128, by: i128) -> i128 {
    (number + by - 1).div_euclid(by)
}
