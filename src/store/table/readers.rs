//! Readers: the calls that are over in a few nanoseconds, and say that they are here without a fence.
//!
//! A pin of crossbeam-epoch is a store and a fence, so that the pointers that are read next are not from
//! before the store was seen. That takes some 3 ns of a call's 29. Here the one who frees fences in
//! everyone's place, by a system call (`membarrier`): it is rare, and calls are not. Two cases:
//!
//! - A reader's store comes before the call's interrupt of its processor: who frees sees it, and waits.
//! - It comes after: all that it reads then comes after, too, so that it finds what was unlinked gone.
//!
//! This comes on top of crossbeam-epoch, not in its place: what is retired waits for its pins, too.

use std::ptr;

use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicPtr, AtomicU64, Ordering};

/// The threads that may be reading.
pub(super) struct Readers {
    first: AtomicPtr<Reader>,
}

/// What one thread says of itself: alone on its pair of cache lines.
#[repr(align(128))]
pub(super) struct Reader {
    /// In the lower half how many calls the thread is in, one within the other; in the upper how often it
    /// has come out of all of them. Written by the thread alone.
    state: AtomicU64,
    /// 1 while a thread has it.
    taken: AtomicU64,
    /// The one that was made before it.
    next: Option<&'static Reader>,
}

const INSIDE: u64 = 0xffff_ffff;
const ONCE_OUT: u64 = 1 << 32;

/// Readers that were in a call, and the state in which they were.
pub(super) struct InCalls(Vec<(&'static Reader, u64)>);

impl Readers {
    #[cfg(not(tollgate_loom))]
    pub(super) const fn new() -> Readers {
        Readers { first: AtomicPtr::new(ptr::null_mut()) }
    }

    #[cfg(tollgate_loom)]
    pub(super) fn new() -> Readers {
        Readers { first: AtomicPtr::new(ptr::null_mut()) }
    }

    #[expect(unsafe_code, reason = "a list whose members stay")]
    fn first(&self) -> Option<&'static Reader> {
        // Acquire: pairs with `join`: the reader is made.
        let first = self.first.load(Ordering::Acquire);
        // SAFETY: null, or what `join` has put there, which is never freed.
        unsafe { first.as_ref() }
    }

    fn all(&self) -> impl Iterator<Item = &'static Reader> {
        std::iter::successors(self.first(), |reader| reader.next)
    }

    /// A record for this thread: one that another has left, or a new one, which stays for ever. So there
    /// are as many as there were threads at once.
    #[expect(unsafe_code, reason = "a list whose members stay")]
    pub(super) fn join(&self) -> &'static Reader {
        if let Some(left) = self.all().find(|reader| reader.take()) {
            debug_assert_eq!(
                left.state.load(Ordering::Relaxed) & INSIDE,
                0,
                "it was left in a call"
            );
            return left;
        }
        let (state, taken) = (AtomicU64::new(0), AtomicU64::new(1));
        let reader = Box::leak(Box::new(Reader { state, taken, next: None }));
        // Repeats only when another has joined.
        loop {
            reader.next = self.first();
            let next = reader.next.map_or(ptr::null(), ptr::from_ref).cast_mut();
            let this = ptr::from_mut(reader);
            // Release: pairs with `first`. Relaxed on failure: it is read anew.
            let joined =
                self.first.compare_exchange(next, this, Ordering::Release, Ordering::Relaxed);
            if joined.is_ok() {
                // SAFETY: as in `first`. By the pointer that all others have, too.
                return unsafe { &*this };
            }
        }
    }

    /// How many records there are.
    #[cfg(all(test, tollgate_loom))]
    pub(super) fn count(&self) -> usize {
        self.all().count()
    }

    /// The readers that are in a call, all that may have seen what was unlinked before this; `None` if that
    /// cannot be said.
    pub(super) fn in_calls(&self) -> Option<InCalls> {
        if !fence_of_all() && !fault::active(Fault::NoBarrier) {
            return None;
        }
        let in_calls = self.all().filter_map(|reader| {
            // Acquire: pairs with `leave`: what the reader read there comes before it is freed.
            let state = reader.state.load(Ordering::Acquire);
            (state & INSIDE != 0).then_some((reader, state))
        });
        Some(InCalls(in_calls.collect()))
    }
}

impl InCalls {
    /// No readers: where there are pins alone.
    #[allow(dead_code, reason = "for models and tests of pins alone")]
    pub(super) fn none() -> InCalls {
        InCalls(Vec::new())
    }

    /// Whether all of them have come out since.
    pub(super) fn are_over(&mut self) -> bool {
        // Acquire: as in `in_calls`. A call within a call changes the lower half alone.
        self.0.retain(|(reader, seen)| {
            let state = reader.state.load(Ordering::Acquire);
            state & INSIDE != 0 && (state ^ seen) & !INSIDE == 0
        });
        self.0.is_empty()
    }
}

impl Reader {
    fn take(&self) -> bool {
        // Acquire: pairs with `part`: the state is the last that the thread before has left. Relaxed on
        // failure: it is another's.
        let taken =
            if fault::active(Fault::RecordRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        self.taken.compare_exchange(0, 1, taken, Ordering::Relaxed).is_ok()
    }

    /// Leaves the record for another thread. Not from within a call.
    pub(super) fn part(&self) {
        // Release: pairs with `take`.
        self.taken.store(0, Ordering::Release);
    }

    /// Goes into a call. What is read from here on is there until [`leave`](Reader::leave).
    #[inline(always)]
    pub(super) fn enter(&self) {
        // Relaxed: nobody else writes it.
        let state = self.state.load(Ordering::Relaxed);
        // Release: as in `leave`: who finds that a new call has begun takes the last for over. What is read
        // in the new one comes after it by the fence.
        let order =
            if fault::active(Fault::EnterRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.state.store(state + 1, order);
        fence_of_one();
    }

    #[inline(always)]
    pub(super) fn leave(&self) {
        let inside = self.state.load(Ordering::Relaxed) - 1;
        let state = if inside & INSIDE == 0 { inside.wrapping_add(ONCE_OUT) } else { inside };
        // Release: pairs with `in_calls` and `are_over`.
        self.state.store(state, Ordering::Release);
    }
}

/// The light half of the fence: the compiler's part alone.
#[cfg(not(tollgate_loom))]
#[inline(always)]
fn fence_of_one() {
    crate::util::sync::compiler_fence(Ordering::SeqCst);
}

/// loom has no fence that one thread makes for another: here each makes its own.
#[cfg(tollgate_loom)]
fn fence_of_one() {
    if !fault::active(Fault::ReaderUnfenced) {
        crate::util::sync::fence(Ordering::SeqCst);
    }
}

#[cfg(tollgate_loom)]
fn fence_of_all() -> bool {
    if fault::active(Fault::NoBarrier) {
        return false;
    }
    crate::util::sync::fence(Ordering::SeqCst);
    true
}

/// The heavy half: a fence of every thread of this process, somewhere between this call's begin and its
/// end. Returns whether that was done; it need not be where there are no readers.
#[cfg(not(tollgate_loom))]
fn fence_of_all() -> bool {
    !system::has_fence() || system::fence()
}

#[cfg(not(tollgate_loom))]
pub(super) use system::prepare;

/// What the system does for it.
#[cfg(all(not(tollgate_loom), target_os = "linux"))]
mod system {
    use std::sync::OnceLock;

    /// Whether this process has the fence: decided before there is anything to read.
    static HAS_FENCE: OnceLock<bool> = OnceLock::new();

    /// Asks for the fence, which may take milliseconds the first time: not on the way of a call.
    pub(in super::super) fn prepare() {
        HAS_FENCE.get_or_init(register);
    }

    pub(super) fn has_fence() -> bool {
        HAS_FENCE.get() == Some(&true)
    }

    pub(super) fn fence() -> bool {
        let fence = || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        // A process that was forked may have to ask again.
        fence() || (register() && fence())
    }

    fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    #[expect(unsafe_code, reason = "a system call that the standard library does not have")]
    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: it takes three numbers, and no memory. Systems that do not have it (Linux before 4.14), or
        // forbid it, say so.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(any(tollgate_loom, target_os = "linux")))]
mod system {
    pub(in super::super) fn prepare() {}

    pub(super) fn has_fence() -> bool {
        false
    }

    pub(super) fn fence() -> bool {
        false
    }
}

#[cfg(not(tollgate_loom))]
pub(super) use threads::READERS;
#[cfg(not(tollgate_loom))]
pub(crate) use threads::Reading;

/// Whose reader is whose.
#[cfg(not(tollgate_loom))]
mod threads {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::{Reader, Readers, system};

    /// The process's readers.
    pub(in super::super) static READERS: Readers = Readers::new();

    thread_local! {
        static OWN: Cell<Option<&'static Reader>> = const { Cell::new(None) };
        static END: End = const { End(Cell::new(None)) };
    }

    /// Leaves a thread's reader to others when the thread ends.
    struct End(Cell<Option<&'static Reader>>);

    impl Drop for End {
        fn drop(&mut self) {
            // What other destructors of the thread call after this has no reader any more.
            OWN.set(None);
            self.0.take().into_iter().for_each(Reader::part);
        }
    }

    /// A call of this thread. What is read while it lives is there.
    pub(crate) struct Reading {
        reader: &'static Reader,
        /// It ends on the thread on which it began.
        of_thread: PhantomData<*const ()>,
    }

    impl Reading {
        /// `None` in a thread's first call, and where there are no readers.
        #[inline(always)]
        pub(in super::super) fn begin() -> Option<Reading> {
            let Some(reader) = OWN.get() else {
                join();
                return None;
            };
            reader.enter();
            Some(Reading { reader, of_thread: PhantomData })
        }
    }

    impl Drop for Reading {
        #[inline(always)]
        fn drop(&mut self) {
            self.reader.leave();
        }
    }

    #[cold]
    #[inline(never)]
    fn join() {
        // Fails in the destructors of a thread that ends.
        let _ = END.try_with(|end| {
            if system::has_fence() {
                let reader = READERS.join();
                end.0.set(Some(reader));
                OWN.set(Some(reader));
            }
        });
    }
}
