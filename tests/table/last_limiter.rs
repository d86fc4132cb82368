//! A dropped limiter leaves no memory, whatever held memory back while it lived.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::{IdFormat, Limiter, LimiterOptions, Limits};

use super::support::rules::{RuleCall, hooked, stop_point};
use super::support::{full_size, hourly, in_own_process, limiter_with, sweep_all};

/// Counts the allocated bytes.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

#[expect(unsafe_code, reason = "an allocator")]
// SAFETY: each call goes to the system's allocator; the count changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocated bytes, and the bytes that are mapped without a file, except the heap, which the allocator
/// keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    allocated: isize,
    mapped: usize,
}

fn memory() -> Memory {
    Memory { mapped: mapped(), allocated: LIVE.load(Ordering::Relaxed) }
}

#[cfg(target_os = "linux")]
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let anonymous = maps.lines().filter(|line| line.split_whitespace().count() == 5);
    let bytes = anonymous.map(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        address(to) - address(from)
    });
    let mapped: usize = bytes.sum();
    // A sanitizer maps terabytes, and more for each thread. Then the allocated bytes alone are compared.
    if mapped > 1 << 40 { 0 } else { mapped }
}

#[cfg(not(target_os = "linux"))]
fn mapped() -> usize {
    0
}

/// The cost at which the rule stops the thread.
const STOP: u64 = 7;

fn limiter() -> (Limiter, ManualClock) {
    let limits = Limits::builder().limit("A", IdFormat::RegId, hourly(3)).unwrap().build();
    limiter_with(limits, LimiterOptions::default().max_keys(1 << 20))
}

/// Grows a table and empties it, at full size to 10 MB and three times, with a reload after each.
fn use_up(limiter: &Limiter, hand: &ManualClock) {
    let a = limiter.limit("A").unwrap();
    for round in 0..full_size(1, 3) {
        (0..full_size(6_000, 100_000_u64)).for_each(|id| assert!(a.spend(id, 1).is_ok()));
        hand.advance(Duration::from_secs(7200));
        sweep_all(limiter);
        let others = Limits::builder().limit("A", IdFormat::RegId, hourly(4 + round)).unwrap();
        limiter.reload(others.build()).unwrap();
    }
}

/// Holds memory back while a limiter is used, until it is released.
struct Held {
    let_go: Sender<()>,
    thread: JoinHandle<()>,
}

impl Held {
    fn new(hold: impl FnOnce(&dyn Fn()) + Send + 'static) -> Held {
        let (is_held, held) = channel();
        let (let_go, wait) = channel::<()>();
        let thread = thread::spawn(move || {
            hold(&|| {
                is_held.send(()).unwrap();
                let _ = wait.recv();
            });
        });
        held.recv().unwrap();
        Held { let_go, thread }
    }

    fn end(self) {
        drop(self.let_go);
        self.thread.join().unwrap();
    }
}

/// Stalls in a call of another limiter, for a new or a known key.
fn stalled_call(is_known: bool) -> Held {
    Held::new(move |wait| {
        let (point, stopped) = stop_point();
        let own = hooked(hourly(10), move |call| {
            if let RuleCall::Spend { cost: STOP, .. } = call {
                point.stop();
            }
        });
        let limits = Limits::builder().limit("B", IdFormat::String, own).unwrap().build();
        let limiter = Limiter::new(limits);
        let b = limiter.limit("B").unwrap();
        let stalled = thread::spawn(move || {
            let costs = if is_known { &[1, 1, STOP][..] } else { &[STOP] };
            costs.iter().for_each(|&cost| assert!(b.spend("b", cost).unwrap().allowed()));
        });
        stopped.wait();
        wait();
        drop(stopped);
        stalled.join().unwrap();
    })
}

/// Another user of crossbeam-epoch: a thread that pins and unpins its default collector, which keeps a
/// record of the thread. The thread calls nothing else.
struct OtherUser {
    orders: Sender<Sender<Sender<()>>>,
}

impl OtherUser {
    fn new() -> OtherUser {
        let (orders, ordered) = channel::<Sender<Sender<()>>>();
        thread::spawn(move || {
            for is_held in ordered {
                let (let_go, wait) = channel();
                let pinned = crossbeam_epoch::pin();
                is_held.send(let_go).unwrap();
                let _ = wait.recv();
                drop(pinned);
            }
        });
        OtherUser { orders }
    }

    fn pinned(&self) -> Held {
        let (is_held, held) = channel();
        self.orders.send(is_held).unwrap();
        let let_go = held.recv().unwrap();
        Held { let_go, thread: thread::spawn(|| ()) }
    }
}

/// A thread that has called the limiter and lives on.
fn thread_that_called(limiter: &Limiter) -> Held {
    let limiter = limiter.clone();
    Held::new(move |wait| {
        let a = limiter.limit("A").unwrap();
        (0..1000_u64).for_each(|id| assert!(a.spend(id, 1).is_ok()));
        drop((a, limiter));
        wait();
    })
}

/// Uses a limiter while something is held, which ends before or after the limiter.
fn use_while(hold: &dyn Fn() -> Held, ends_before: bool) {
    let held = hold();
    let (limiter, hand) = limiter();
    use_up(&limiter, &hand);
    if ends_before {
        held.end();
        drop(limiter);
    } else {
        drop(limiter);
        held.end();
    }
}

/// Uses a limiter from threads that end before or after it.
fn use_by_threads(end_before: bool) {
    let (limiter, hand) = limiter();
    let threads: Vec<Held> = (0..8).map(|_| thread_that_called(&limiter)).collect();
    use_up(&limiter, &hand);
    if end_before {
        threads.into_iter().for_each(Held::end);
        drop(limiter);
    } else {
        drop(limiter);
        threads.into_iter().for_each(Held::end);
    }
}

/// The size of two of the collector's records. Of threads that end at the same time, more than one record
/// may be left for the next thread to free. A leak of one record in each case would exceed this after three
/// cases.
const RECORDS_BYTES: isize = 2 * 2304;

/// In a process of its own, because it measures the memory of the whole process.
#[test]
fn dropped_limiter_leaves_nothing() {
    in_own_process(|| {
        every_case_leaves_nothing();
    });
}

fn every_case_leaves_nothing() {
    let other_user = OtherUser::new();
    let other_users_pin = || other_user.pinned();
    let (inserting, knowing) = (|| stalled_call(false), || stalled_call(true));
    let holds: [(&str, &dyn Fn() -> Held); 3] = [
        ("another user's pin", &other_users_pin),
        ("a call for a new key", &inserting),
        ("a call for a known key", &knowing),
    ];
    let every_case = |orders: &[bool], then: &dyn Fn(&str, bool)| {
        for &ends_before in orders {
            for (what, hold) in holds {
                use_while(hold, ends_before);
                then(what, ends_before);
            }
            use_by_threads(ends_before);
            then("threads", ends_before);
        }
    };
    // The first round allocates what stays: the system library's memory, the collector, and its records of
    // threads that live on or have ended last. The cases in which the limiter ends first allocate all of it.
    let at_start = memory();
    every_case(full_size(&[false], &[true, false]), &|_, _| ());
    let before = memory();
    let once = before.allocated - at_start.allocated;
    assert!(once < 64 << 10, "{once} bytes stay");
    every_case(&[true, false], &|what, ends_before| {
        let now = memory();
        let is_all =
            now.allocated <= before.allocated + RECORDS_BYTES && now.mapped <= before.mapped;
        assert!(is_all, "{what}, which ends first: {ends_before}: {before:?}, then {now:?}");
    });
    println!("{before:?}, of which {once} bytes were allocated by the first limiters");
}
