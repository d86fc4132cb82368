//! Reads the processor's time-stamp counter.

/// The processor's time-stamp counter, and the length of its tick.
#[derive(Clone)]
pub(crate) struct Counter {
    counter: quanta::Clock,
    origin: u64,
    /// The length of a tick, in 2^-64 ns: exact to a nanosecond in 2^63 ticks.
    tick_parts: u64,
}

impl Counter {
    /// Calibrates the counter. `None` if the kernel does not trust it, or a tick takes a nanosecond or more.
    pub(super) fn new() -> Option<Counter> {
        const TICKS: u64 = 1 << 63;
        if !kernel_trusts_counter() {
            return None;
        }
        let counter = quanta::Clock::new();
        let origin = counter.raw();
        // quanta has measured the tick; its own conversion is also a multiplication and a shift.
        let tick_parts = counter.delta_as_nanos(0, TICKS).checked_mul(2)?;
        Some(Counter { counter, origin, tick_parts })
    }

    /// The same counter with its origin at the present.
    #[cfg(feature = "snapshot")]
    pub(super) fn restarted(&self) -> super::Source {
        super::Source::Counter(Counter { origin: self.counter.raw(), ..self.clone() })
    }

    #[inline(always)]
    pub(super) fn since_origin_ns(&self) -> u64 {
        let ticks = self.counter.raw().saturating_sub(self.origin);
        ((u128::from(ticks) * u128::from(self.tick_parts)) >> 64) as u64
    }
}

/// Whether the kernel keeps its own time by the time-stamp counter. The kernel compares the counter with other clocks
/// and stops using it when it drifts or differs between cores. The processor's flag that says that the counter is
/// invariant is not reliable (governor #299, quanta #111).
fn kernel_trusts_counter() -> bool {
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(CURRENT).is_ok_and(|source| source.trim() == "tsc")
}
