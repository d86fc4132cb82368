//! Counts the bytes of one stream, and waits for their places.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::core::waiters::Entry;
use crate::io::slice::{Slice, Want};
use crate::io::throttle::{Sleeper, Throttle};
use crate::limiter::reserve::ReserveError;

/// Counts the bytes of one stream. Dropping it returns the places of the bytes that have not moved.
pub(super) struct Meter<T: Sleeper> {
    throttle: Throttle<T>,
    slice: Option<Slice>,
    /// Made for the first wait, and used again for the later ones.
    sleep: Option<Pin<Box<T::Sleep>>>,
    is_asleep: bool,
    /// Where other streams find this one while it waits.
    entry: Entry,
    /// The least size of the next slice. It falls if a slice was not used in time, so that a stream that is read slowly takes
    /// little from the others.
    ahead: Option<u64>,
    /// Whether no bytes come after those at hand. They need no places of later ones.
    is_last: bool,
}

/// How many times as large as the last slice the next one may be.
const GROWTH: u64 = 2;

impl<T: Sleeper> Meter<T> {
    pub(super) fn new(throttle: Throttle<T>) -> Meter<T> {
        let (slice, sleep, is_asleep, is_last) = (None, None, false, false);
        Meter { throttle, slice, sleep, is_asleep, entry: Entry::default(), ahead: None, is_last }
    }

    /// Returns how many of `want` bytes may move now, at least one.
    pub(super) fn poll_bytes(
        &mut self,
        context: &mut Context<'_>,
        want: u64,
    ) -> Poll<Result<u64, ReserveError>> {
        loop {
            let now_ns = self.throttle.now_ns();
            let ahead = if self.is_last { Some(0) } else { self.ahead };
            let wanted = Want { now: want, ahead };
            let slice = match &mut self.slice {
                Some(slice) => slice,
                none => match self.throttle.take(wanted, now_ns)? {
                    Some(slice) => {
                        self.is_asleep = false;
                        none.insert(slice)
                    }
                    None => return Poll::Ready(Ok(want)),
                },
            };
            let wait = slice.wait(now_ns);
            if wait.is_zero() {
                if self.entry.leave() {
                    // It has a place of its own by now, so another stream takes the one that was left.
                    self.throttle.offer_vacant();
                }
                let bytes = slice.bytes(now_ns);
                if bytes > 0 {
                    return Poll::Ready(Ok(bytes.min(want)));
                }
                if slice.has_begun() {
                    self.ahead = Some(1);
                }
                self.give_back();
                continue;
            }
            if !self.is_asleep {
                let sleep = self.throttle.sleep(wait);
                match &mut self.sleep {
                    Some(before) => before.as_mut().set(sleep),
                    none => *none = Some(Box::pin(sleep)),
                }
                self.is_asleep = true;
            }
            if let Some(sleep) = &mut self.sleep
                && sleep.as_mut().poll(context).is_pending()
            {
                // Another stream may leave a place before the own one. It finds the entry, or this stream finds the place.
                let at_ns = slice.granted_at_ns();
                self.entry.enter(self.throttle.bucket(), at_ns, context.waker());
                let Some(earlier) = self.throttle.take_earlier(wanted, at_ns, now_ns) else {
                    return Poll::Pending;
                };
                self.give_back();
                self.slice = Some(earlier);
            }
            self.is_asleep = false;
        }
    }

    /// Splits the bytes off that may move now. `is_last`: the inner stream has none after them.
    pub(super) fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        held: &mut Bytes,
        is_last: bool,
    ) -> Poll<Result<Bytes, ReserveError>> {
        self.is_last = is_last;
        let bytes = ready!(self.poll_bytes(context, held.len() as u64))?;
        self.spend(bytes);
        Poll::Ready(Ok(held.split_to(bytes as usize)))
    }

    /// Notes that `bytes` bytes have moved, of those that might.
    pub(super) fn spend(&mut self, bytes: u64) {
        let Some(slice) = &mut self.slice else { return };
        slice.spend(bytes);
        if slice.is_used_up() {
            self.ahead = self.ahead.max(Some(slice.size().saturating_mul(GROWTH)));
            self.slice = None;
        }
    }

    /// Returns the places of the bytes that have not moved, as the inner stream has none at present. Another stream that waits
    /// takes them.
    pub(super) fn give_back(&mut self) {
        self.entry.leave();
        if self.slice.take().is_some() {
            self.throttle.offer_vacant();
        }
    }
}

impl<T: Sleeper> Drop for Meter<T> {
    fn drop(&mut self) {
        self.entry.leave();
        self.slice = None;
        // Also if it has no place: it may have been woken for one that it does not take any more.
        self.throttle.offer_vacant();
    }
}
