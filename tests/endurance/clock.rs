//! A clock that remembers each thread's readings, which tell exactly when a call was decided.

use std::cell::Cell;
use std::time::Instant;

use tollgate::Clock;

thread_local! {
    static FIRST: Cell<u64> = const { Cell::new(0) };
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// The time since an origin, in ns.
#[derive(Clone, Copy)]
pub(crate) struct Origin(Instant);

impl Origin {
    pub(crate) fn new() -> Origin {
        Origin(Instant::now())
    }

    pub(crate) fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64 + 1
    }

    pub(crate) fn clock(self) -> Clock {
        Clock::custom(move || {
            let now = self.now();
            if FIRST.get() == 0 {
                FIRST.set(now);
            }
            LAST.set(now);
            std::time::Duration::from_nanos(now)
        })
    }
}

/// Makes a call. Also returns the clock's first reading in it.
pub(crate) fn first_reading<R>(call: impl FnOnce() -> R) -> (R, u64) {
    FIRST.set(0);
    let result = call();
    (result, FIRST.get())
}

/// The clock's last reading.
pub(crate) fn last_reading() -> u64 {
    LAST.get()
}
