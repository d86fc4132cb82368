//! A bucket in plain integers of any size, by docs/algorithms.md: what the scripts write is not its business.

const NS_PER_MS: i128 = 1_000_000;

/// The numbers of a limit: of gcra in ns, of the others in ms.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers {
    Gcra {
        burst: i128,
        interval: i128,
    },
    /// The burst of a fixed window is its quota.
    Window {
        quota: i128,
        length: i128,
        burst: i128,
        is_fixed: bool,
    },
    Leaky {
        size: i128,
        rate: i128,
        drip: i128,
    },
}

/// A bucket: of gcra the time at which it is full; of a window its start and the units used in it; of a leaky bucket the last drip
/// and the units in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) numbers: Numbers,
    at: i128,
    used: i128,
}

impl Model {
    pub(super) fn new(numbers: Numbers) -> Model {
        Model { numbers, at: 0, used: 0 }
    }

    /// The bucket as a call at `now` finds it.
    fn found(self, now: i128) -> Model {
        let Model { numbers, mut at, mut used } = self;
        let now_ms = (now / NS_PER_MS).max(at);
        match numbers {
            Numbers::Gcra { .. } => return Model { at: at.max(now), ..self },
            Numbers::Window { quota, length, .. } => {
                while used > 0 && now_ms >= at + length {
                    (at, used) = (at + length, (used - quota).max(0));
                }
            }
            Numbers::Leaky { rate, drip, .. } => {
                while used > 0 && now_ms >= at + rate {
                    (at, used) = (at + rate, (used - drip).max(0));
                }
            }
        }
        Model { at: if used == 0 { now_ms } else { at }, used, ..self }
    }

    /// Whether a found bucket has these units.
    fn has(self, now: i128, units: i128) -> bool {
        let Model { at, used, .. } = self;
        match self.numbers {
            Numbers::Gcra { burst, interval } => at + interval * units <= now + interval * burst,
            Numbers::Leaky { size, .. } => used + units <= size,
            Numbers::Window { quota, length, burst, .. } => {
                let come = burst * length + (quota - burst) * ((now / NS_PER_MS).max(at) - at);
                used + units <= quota && (used + units) * length <= come
            }
        }
    }

    /// The bucket with units more, or less, in it.
    fn with(self, now: i128, units: i128) -> Model {
        match self.numbers {
            Numbers::Gcra { interval, .. } => {
                Model { at: (self.at + interval * units).max(now), ..self }
            }
            _ => Model { used: (self.used + units).max(0), ..self }.found(now),
        }
    }

    pub(super) fn available(self, now: i128) -> i128 {
        let found = self.found(now);
        (0..100).take_while(|&units| found.has(now, units)).last().unwrap_or(0)
    }

    /// The `remaining` of a decision.
    pub(super) fn remaining(self, now: i128) -> i128 {
        let found = self.found(now);
        match self.numbers {
            Numbers::Gcra { .. } => self.available(now),
            Numbers::Window { quota, .. } => (quota - found.used).max(0),
            Numbers::Leaky { size, .. } => (size - found.used).max(0),
        }
    }

    pub(super) fn spend(&mut self, now: i128, units: i128) -> bool {
        let found = self.found(now);
        let has = found.has(now, units);
        if has && units > 0 {
            *self = found.with(now, units);
        }
        has
    }

    /// What a charge now tells a later return: the start of its window.
    pub(super) fn mark(self, now: i128) -> i128 {
        self.found(now).at
    }

    /// Returns units; of a charge to a fixed window only in the window of that mark. Returns the units by which the bucket is lower.
    pub(super) fn give(&mut self, now: i128, units: i128, mark: Option<i128>) -> i128 {
        let (numbers, found) = (self.numbers, self.found(now));
        if let (Numbers::Window { is_fixed: true, .. }, Some(mark)) = (numbers, mark)
            && mark != found.at
        {
            return 0;
        }
        let lower = found.with(now, -units);
        let lowered = match numbers {
            Numbers::Gcra { interval, .. } => (found.at - lower.at + interval - 1) / interval,
            _ => found.used - lower.used,
        };
        if lowered > 0 {
            *self = lower;
        }
        lowered
    }

    /// Charges units that the bucket may not have, down to a debt.
    pub(super) fn owe(&mut self, now: i128, units: i128, max_debt: i128) {
        let found = self.found(now);
        let owed = found.with(now, units);
        let most = match self.numbers {
            Numbers::Gcra { burst, interval } => {
                Model { at: now + interval * (burst + max_debt), ..found }
            }
            Numbers::Leaky { size, .. } => Model { used: size + max_debt, ..found },
            Numbers::Window { .. } => {
                let empty = Model { used: 0, ..found };
                let come = (0..100).take_while(|&units| empty.has(now, units)).last();
                Model { used: come.unwrap_or(0) + max_debt, ..found }
            }
        };
        let (owed, most) = ((owed.at, owed.used), (most.at, most.used));
        let new = owed.min(most);
        if new > (found.at, found.used) {
            (self.at, self.used) = new;
        }
    }

    pub(super) fn reset(&mut self, now: i128) -> i128 {
        self.give(now, 1 << 40, None)
    }

    /// Charges units of gcra behind all others, if they are there within `at_most` ns. Returns the wait, and whether they are
    /// charged.
    pub(super) fn reserve(&mut self, now: i128, units: i128, at_most: i128) -> (i128, bool) {
        let Numbers::Gcra { burst, interval } = self.numbers else { panic!("{self:?}") };
        let placed = self.found(now).with(now, units);
        let wait = (placed.at - interval * burst - now).max(0);
        if wait <= at_most {
            *self = placed;
        }
        (wait, wait <= at_most)
    }

    /// Whether no charge in the bucket is behind one that left it at this mark.
    pub(super) fn is_within(self, mark: i128) -> bool {
        self.at <= mark
    }

    /// The most units that calls may use within a time, without returns.
    pub(super) fn most_within(self, time: i128) -> i128 {
        match self.numbers {
            Numbers::Gcra { burst, interval } => burst + time / interval,
            Numbers::Window { quota, length, .. } => (time / NS_PER_MS / length + 2) * quota,
            Numbers::Leaky { size, rate, drip } => size + (time / NS_PER_MS / rate + 1) * drip,
        }
    }
}
