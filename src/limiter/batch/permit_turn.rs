//! The turn of a batch that waits for a permit: it sleeps until one comes back, or until its timer fires.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::thread::panicking;
use std::time::Duration;

use crate::core::waiters::{Bucket, Entry};
use crate::limiter::Limiter;
use crate::limiter::batch::{Batch, Member};
use crate::limits::Scratch;
use crate::store::key::KeyRef;

/// The turn of a batch that waits for a permit. The batch that has waited longest is woken first, even if an earlier wake was
/// in vain because the batch wants more permits than are free. The batches behind it then look when their own timers fire. Between the
/// wake and the attempt of the woken batch, other waiting batches leave the permit alone, for [`PATIENCE`](PermitTurn::PATIENCE); a call
/// that does not wait may take it.
#[derive(Default)]
pub(super) struct PermitTurn<'b> {
    entry: Entry,
    /// The bucket, the batch and the member's position of the caller's last wait.
    of: Option<(Bucket, &'b Batch<'b>, usize)>,
    /// Whether the last wait ended because its time was over.
    is_over: bool,
}

impl<'b> PermitTurn<'b> {
    /// Sleeps until the member at `position` may have a permit, and at most as long as `sleep`.
    pub(super) async fn wait(
        &mut self,
        batch: &'b Batch<'b>,
        position: usize,
        since_ns: u64,
        sleep: impl Future<Output = ()>,
    ) {
        let mut sleep = pin!(sleep);
        let Some(bucket) = bucket_of(&batch.members[position]) else { return sleep.await };
        if self.of.is_some_and(|(before, ..)| before != bucket) {
            self.end();
        }
        self.of = Some((bucket, batch, position));
        self.is_over = false;
        let mut has_entered = false;
        poll_fn(|context| {
            if sleep.as_mut().poll(context).is_ready() {
                self.is_over = true;
                return Poll::Ready(());
            }
            if has_entered && self.entry.is_woken() {
                return Poll::Ready(());
            }
            self.entry.enter(bucket, since_ns, context.waker());
            // A permit that came back while this caller was not in the list has not woken it. If another one was woken for it, that
            // one passes the wake on.
            let is_first = !std::mem::replace(&mut has_entered, true);
            let is_free = || is_free(batch.limiter, batch.members[position]);
            if is_first && !bucket.has_woken() && is_free() {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    /// How long a caller leaves the permits to another caller that was woken, but does not run.
    pub(super) const PATIENCE: Duration = Duration::from_millis(20);

    /// Whether another caller was woken for a permit of this member, and this one was not.
    pub(super) fn is_of_another(&self, member: &Member<'_>) -> bool {
        member.handle.counts_in_flight()
            && !self.is_over
            && !self.entry.is_woken()
            && bucket_of(member).is_some_and(Bucket::has_woken)
    }

    /// Leaves the list. If the caller was woken and a permit is still free, wakes the next caller, which may want fewer permits.
    pub(super) fn end(&mut self) {
        let Some((bucket, batch, position)) = self.of.take() else { return };
        let Member { handle, id, .. } = batch.members[position];
        // While the thread unwinds no clock is read: a custom one may panic again, which would end the process.
        let is_any_free = || panicking() || is_free(batch.limiter, handle.member(id));
        if self.entry.leave() && is_any_free() {
            bucket.wake_first();
        }
    }
}

impl Batch<'_> {
    /// Whether a caller that waits was woken for a permit of a member, and has not acted yet.
    #[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "only a layer waits so"))]
    pub(crate) fn is_for_woken(&self) -> bool {
        let turn = PermitTurn::default();
        self.members.iter().any(|member| turn.is_of_another(member))
    }
}

impl Drop for PermitTurn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn bucket_of(member: &Member<'_>) -> Option<Bucket> {
    let mut scratch = Scratch::new();
    let handle = member.handle;
    let key = KeyRef { limit: handle.index, id: handle.encoded(member.id, &mut scratch).ok()? };
    Some(Bucket::new(&handle.limiter.inner, key))
}

fn is_free(limiter: &Limiter, member: Member<'_>) -> bool {
    Batch::new(limiter, &[member]).check().is_ok_and(|decision| decision.allowed())
}
