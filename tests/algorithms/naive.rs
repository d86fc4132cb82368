//! A second implementation of the counting algorithms: a plain state instead of a word, advanced one
//! millisecond at a time. The rate of a token bucket adds up fractions of a token.

use tollgate::limit::Parameters;
use tollgate::{Decision, Limit};

/// The four figures, waits in ms. For a refund the first one is whether anything was refunded.
pub(crate) type Figures = (bool, u64, u64, u64);

pub(crate) fn figures(decision: Decision) -> Figures {
    let ms = |time: std::time::Duration| {
        assert_eq!(time.subsec_nanos() % 1_000_000, 0, "{decision:?}");
        time.as_millis() as u64
    };
    let remaining = decision.remaining().unwrap();
    (decision.allowed(), remaining, ms(decision.retry_in()), ms(decision.reset_in()))
}

/// A bucket of any of the three algorithms. Without a charge there is no state.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    numbers: Numbers,
    /// The last write: the time at which the window opened, of the last drip, or at which the last charge
    /// was refunded; and the units used.
    written: (i64, i64),
    /// The time of the call, reached from the last write one millisecond after the other, and the state
    /// then.
    now: i64,
    /// The milliseconds from the call's own time to `now`, if the clock went back behind the last write.
    ahead: u64,
    charged: Option<State>,
}

#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// limit, window, burst. A fixed window's burst is its limit.
    Window {
        limit: i64,
        window: i64,
        burst: i64,
        is_fixed: bool,
    },
    Leaky {
        size: i64,
        drip_rate: i64,
        drip_size: i64,
    },
}

#[derive(Clone, Copy, Debug)]
struct State {
    used: i64,
    /// Milliseconds since the window opened, or since the last drip.
    age: i64,
    /// The units that the rate has brought, in parts of which `window` are a token.
    gained: i64,
}

impl Naive {
    pub(crate) fn new(limit: &Limit) -> Naive {
        let of = |number: u64| number as i64;
        let ms = |time: std::time::Duration| time.as_millis() as i64;
        let numbers = match limit.parameters() {
            Parameters::FixedWindow { limit, window } => {
                let (limit, window) = (of(limit), ms(window));
                Numbers::Window { limit, window, burst: limit, is_fixed: true }
            }
            Parameters::TokenBucket { limit, window, burst } => Numbers::Window {
                limit: of(limit),
                window: ms(window),
                burst: of(burst),
                is_fixed: false,
            },
            Parameters::LeakyBucket { size, drip_rate, drip_size } => Numbers::Leaky {
                size: of(size),
                drip_rate: ms(drip_rate),
                drip_size: of(drip_size),
            },
            other => panic!("{other:?}"),
        };
        Naive { numbers, written: (0, 0), now: 0, ahead: 0, charged: None }
    }

    /// Brings the bucket up to a call's millisecond. A later write counts as now, and waits count from the call.
    pub(crate) fn at(&mut self, now: u64) {
        let (time, used) = self.written;
        self.now = time;
        self.charged = (used > 0).then_some(State { used, age: 0, gained: 0 });
        while self.now < now as i64 {
            self.now += 1;
            self.tick();
        }
        self.ahead = (self.now - now as i64) as u64;
    }

    fn write(&mut self) {
        self.written = match self.charged {
            Some(state) => (self.now - state.age, state.used),
            None => (self.now, 0),
        };
    }

    fn tick(&mut self) {
        let Some(state) = &mut self.charged else { return };
        state.age += 1;
        match self.numbers {
            Numbers::Window { limit, window, burst, .. } => {
                state.gained += limit - burst;
                if state.age == window {
                    self.charged = None;
                }
            }
            Numbers::Leaky { drip_rate, drip_size, .. } => {
                if state.age == drip_rate {
                    state.age = 0;
                    state.used -= drip_size;
                    if state.used <= 0 {
                        self.charged = None;
                    }
                }
            }
        }
    }

    fn used(&self) -> i64 {
        self.charged.map_or(0, |state| state.used)
    }

    fn fits(&self, cost: i64) -> bool {
        let used = self.used() + cost;
        match self.numbers {
            Numbers::Window { limit, is_fixed: true, .. } => used <= limit,
            Numbers::Window { window, burst, .. } => {
                let gained = self.charged.map_or(0, |state| state.gained);
                // In fractions of a token, of which `window` make one.
                i128::from(used - burst) * i128::from(window) <= i128::from(gained)
            }
            Numbers::Leaky { size, .. } => used <= size,
        }
    }

    /// The milliseconds from the call until a condition holds; 0 if it holds.
    fn until(&self, holds: impl Fn(&Naive) -> bool) -> u64 {
        let mut later = self.clone();
        let mut ticks = 0;
        while !holds(&later) {
            later.tick();
            ticks += 1;
        }
        if ticks == 0 { 0 } else { ticks + self.ahead }
    }

    fn remaining(&self) -> u64 {
        let most = match self.numbers {
            Numbers::Window { limit, .. } => limit,
            Numbers::Leaky { size, .. } => size,
        };
        (most - self.used()) as u64
    }

    fn said(&self, allowed: bool, cost: i64) -> Figures {
        let wait = self.until(|later| later.fits(cost));
        (allowed, self.remaining(), wait, self.until(|later| later.charged.is_none()))
    }

    pub(crate) fn spend(&mut self, cost: u64) -> Figures {
        let cost = cost as i64;
        if !self.fits(cost) {
            return self.said(false, cost);
        }
        if cost > 0 {
            let state = self.charged.get_or_insert(State { used: 0, age: 0, gained: 0 });
            state.used += cost;
            self.write();
        }
        self.said(true, cost)
    }

    pub(crate) fn check(&self, cost: u64) -> Figures {
        self.clone().spend(cost)
    }

    pub(crate) fn refund(&mut self, cost: u64) -> Figures {
        let before = self.used();
        if let Some(state) = &mut self.charged {
            state.used -= cost.min(before as u64) as i64;
            if state.used == 0 {
                self.charged = None;
            }
        }
        if self.used() < before {
            self.write();
        }
        let (_, remaining, _, reset) = self.said(true, 0);
        (self.used() < before, remaining, 0, reset)
    }

    pub(crate) fn reset(&mut self) -> Figures {
        if self.charged.take().is_some() {
            self.write();
        }
        self.said(true, 0)
    }
}
