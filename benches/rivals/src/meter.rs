//! Measures single calls: the processor time of the calling thread, and the fresh pages that the call touches.

use std::fmt;
use std::hint::black_box;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// The measured calls.
#[derive(Default)]
pub struct Meter {
    calls: Vec<Call>,
}

/// One call. The time includes one reading of the clock.
#[derive(Clone, Copy)]
struct Call {
    cpu_ns: u32,
    faults: u32,
}

/// The cost of the first touch of a page; times are reduced by the median.
#[derive(Clone, Copy)]
pub struct FaultCost {
    pub median_ns: u32,
    pub p9999_ns: u32,
    pub max_ns: u32,
}

/// The distribution of calls. Times without `raw` in their name are reduced by the cost of fresh pages.
pub struct Figures {
    pub calls: usize,
    pub p50_ns: u32,
    pub p999_ns: u32,
    pub p9999_ns: u32,
    pub max_ns: u32,
    /// Calls of more than [`Figures::LONG_NS`].
    pub long: usize,
    /// For the calls that touched no fresh page: the 99.99th percentile, the longest, and the number of long ones.
    pub unfaulted_p9999_ns: u32,
    pub unfaulted_max_ns: u32,
    pub unfaulted_long: usize,
    pub raw_max_ns: u32,
    pub faults: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} calls, p50 {} ns, p99.9 {} ns, p99.99 {} ns, longest {} ns, {} above 200 us",
            self.calls, self.p50_ns, self.p999_ns, self.p9999_ns, self.max_ns, self.long
        )
    }
}

impl Meter {
    pub fn with_room(calls: usize) -> Meter {
        Meter { calls: Vec::with_capacity(calls) }
    }

    /// Makes a call and records its figures.
    #[inline]
    pub fn time<R>(&mut self, call: impl FnOnce() -> R) -> R {
        // The faults are read outside the measured time, which reading them would double.
        let faults_before = minor_faults();
        let started_ns = cpu_ns();
        let result = call();
        let cpu_ns = clamped(cpu_ns() - started_ns);
        let faults = clamped(minor_faults() - faults_before);
        self.calls.push(Call { cpu_ns, faults });
        result
    }

    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    fn sorted_ns(&self) -> Vec<u32> {
        let mut times: Vec<u32> = self.calls.iter().map(|call| call.cpu_ns).collect();
        times.sort_unstable();
        times
    }

    /// Computes the distribution of all calls of these meters.
    pub fn figures(meters: Vec<Meter>, fault: FaultCost) -> Figures {
        let calls: Vec<Call> = meters.into_iter().flat_map(|meter| meter.calls).collect();
        let unfaulted = calls.iter().filter(|call| call.faults == 0).map(|call| call.cpu_ns);
        let mut unfaulted: Vec<u32> = unfaulted.collect();
        unfaulted.sort_unstable();
        let is_long = |ns: &u32| *ns > Figures::LONG_NS;
        let mut times: Vec<u32> = calls.iter().map(|call| fault.taken_off(*call)).collect();
        times.sort_unstable();
        Figures {
            calls: times.len(),
            p50_ns: quantile(&times, 0.5),
            p999_ns: quantile(&times, 0.999),
            p9999_ns: quantile(&times, 0.9999),
            max_ns: quantile(&times, 1.0),
            long: times.iter().filter(|ns| is_long(ns)).count(),
            unfaulted_p9999_ns: quantile(&unfaulted, 0.9999),
            unfaulted_max_ns: quantile(&unfaulted, 1.0),
            unfaulted_long: unfaulted.iter().filter(|ns| is_long(ns)).count(),
            raw_max_ns: calls.iter().map(|call| call.cpu_ns).max().unwrap_or(0),
            faults: calls.iter().map(|call| u64::from(call.faults)).sum(),
        }
    }
}

impl Figures {
    /// The longest time that a single call may take.
    pub const LONG_NS: u32 = 200_000;
}

impl FaultCost {
    /// Measures the cost: the first touch of many pages, less the median of a second touch.
    ///
    /// Touches and frees `bytes` of memory first. By then the host of a virtual machine has found the pages behind this
    /// process's pages, which costs many times a fault and is not part of this measurement. The host may take them
    /// back, so that some faults cost much more: see `max_ns`.
    pub fn calibrate(bytes: usize) -> FaultCost {
        drop(black_box(touched(bytes)));
        let mut fresh = Meter::default();
        let mut known = Meter::default();
        let mut pages = black_box(vec![0_u8; CALIBRATION_BYTES.max(bytes / 4)]);
        for at in (0..pages.len()).step_by(PAGE_BYTES) {
            fresh.time(|| *black_box(&mut pages[at]) = 1);
            known.time(|| *black_box(&mut pages[at]) = 2);
        }
        // The system may map several pages at once; the first touch of the others is no fault.
        fresh.calls.retain(|call| call.faults == 1);
        assert!(!fresh.calls.is_empty(), "fresh pages cost faults");
        let (fresh, known) = (fresh.sorted_ns(), known.sorted_ns());
        let measuring_ns = quantile(&known, 0.5);
        let cost = |share| quantile(&fresh, share).saturating_sub(measuring_ns);
        FaultCost { median_ns: cost(0.5), p9999_ns: cost(0.9999), max_ns: cost(1.0) }
    }

    fn taken_off(self, call: Call) -> u32 {
        call.cpu_ns.saturating_sub(self.median_ns.saturating_mul(call.faults))
    }
}

const PAGE_BYTES: usize = 4096;
/// More than the 32 MiB up to which an allocator may reuse pages.
const CALIBRATION_BYTES: usize = 64 << 20;

/// Allocates memory and writes a byte into each page.
fn touched(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    for at in (0..bytes).step_by(PAGE_BYTES) {
        memory[at] = 1;
    }
    memory
}

/// The smallest time that at least this share of the calls did not exceed.
fn quantile(sorted: &[u32], share: f64) -> u32 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The processor time of this thread, without that of other threads.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux counts it");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// The pages that the system has mapped for this thread without reading a disk.
fn minor_faults() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("Linux counts them");
    usage.minor_page_faults() as u64
}

/// Cuts a figure to 32 bits: 4 seconds or more for a call are equally bad.
fn clamped(figure: u64) -> u32 {
    u32::try_from(figure).unwrap_or(u32::MAX)
}
