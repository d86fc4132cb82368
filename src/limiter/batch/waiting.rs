//! Waits until all limits of a batch allow it.
//!
//! Members under gcra take places, all for the same time: the first at which all of them have their units. The other members have no
//! place: they are charged at that time, and if one of them is denied, all places go back and the batch waits again.

use std::time::Duration;

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limiter::batch::permit_turn::PermitTurn;
use crate::limiter::batch::places::{Refusal, TakenPlaces};
use crate::limiter::batch::prepared::INLINE_MEMBERS;
use crate::limiter::batch::{Batch, Member};
use crate::limiter::reserve::pending::{Next, random_below};
use crate::limiter::reserve::until::RETRY_JITTER;
use crate::limiter::reserve::{Receipt, Reservation, ReserveError, Timer};
use crate::util::time::saturating_ns;

impl Batch<'_> {
    /// Reserves the units of all members for one time, the earliest at which all of them have theirs, if that is within
    /// `at_most`. The caller does its own waiting, and may act once [`Reservation::wait`] is zero.
    ///
    /// Each bucket reserves the member's units until then. Units that come before that time can be used by other waiting calls,
    /// not by spends: while a batch waits for one limit, plain spends of the others are denied. [`retry`](Batch::retry)
    /// waits without places.
    ///
    /// All members must be of gcra and have the default mode, no factor and no units to leave.
    ///
    /// # Errors
    ///
    /// A [`ReserveError`], at once, and nothing is charged. [`ReserveError::NoPlaces`] if a member's algorithm has no places.
    /// [`ReserveError::NoRoom`] also if a member's id shares the bucket of ids without room, and other members are due later: the
    /// bucket would stand idle until then. [`until_allowed`](Batch::until_allowed) charges such a member at that time.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    ///
    /// let second = Duration::from_secs(1);
    /// let limits = Limits::builder()
    ///     .limit("Requests", IdFormat::String, Limit::new(1, 1, second)?)?
    ///     .limit("Tokens", IdFormat::String, Limit::new(100, 10, second)?)?
    ///     .build();
    /// let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// let (requests, tokens) = (limiter.limit("Requests")?, limiter.limit("Tokens")?);
    /// let call = [requests.member("acme"), tokens.member("acme").cost(70)];
    /// assert!(limiter.batch(&call).reserve(Duration::MAX)?.wait().is_zero());
    /// let second = limiter.batch(&call).reserve(Duration::MAX)?;
    /// assert_eq!(second.wait(), Duration::from_secs(4)); // 40 tokens are missing
    /// second.cancel();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, at_most: Duration) -> Result<Reservation, ReserveError> {
        self.validate()?;
        if let Some(member) = self.members.iter().find(|member| !member.is_plain()) {
            let name = member.handle.name();
            let text = format!(
                "the member of {name} has a mode, a factor or units to leave: it has no place"
            );
            return Err(Error::new(ErrorKind::Batch, text).into());
        }
        let positions: SmallVec<[usize; INLINE_MEMBERS]> = (0..self.members.len()).collect();
        let taken = self.take_places(&positions, saturating_ns(at_most), false);
        Ok(taken.map_err(|refused| self.refused(refused))?.into_reservation())
    }

    /// Waits until all limits allow the batch, for at most `at_most`, and charges it. The result is a receipt of all charges, as
    /// of [`spend_estimate`](Batch::spend_estimate).
    ///
    /// Members of gcra take places, as by [`reserve`](Batch::reserve), and are served in the order of the calls. Members without
    /// places (of other algorithms, of permits, with a mode, a factor or units to leave, and ids without room in the table while
    /// other members wait) are charged at the time of the places;
    /// if one is denied, the places go back, and the batch waits again. A permit that comes back wakes the batch that has waited
    /// for it longest.
    ///
    /// If the future is dropped, nothing stays charged, except a place in front of another charge: see
    /// [`Reservation::cancel`].
    ///
    /// # Errors
    ///
    /// A [`ReserveError`], and nothing is charged: at once if the wait would be too long, and for permits, which may come back at
    /// any time, at the end of `at_most`.
    ///
    /// # Example: a request and its tokens, at most four at once
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let second = Duration::from_secs(1);
    /// let limits = Limits::builder()
    ///     .limit("Requests", IdFormat::String, Limit::new(1, 500, second)?)?
    ///     .limit("Tokens", IdFormat::String, Limit::new(1_000, 90_000, second)?)?
    ///     .limit("InFlight", IdFormat::String, Limit::concurrency(4)?)?
    ///     .build();
    /// let limiter = Limiter::new(limits);
    /// let (requests, tokens) = (limiter.limit("Requests")?, limiter.limit("Tokens")?);
    /// let in_flight = limiter.concurrency("InFlight")?;
    /// let call = async || {
    ///     let call = [requests.member("acme"), tokens.member("acme").cost(700), in_flight.member("acme")];
    ///     let at_most = Duration::from_secs(10);
    ///     let mut receipt = limiter.batch(&call).until_allowed(at_most, tokio::time::sleep).await?;
    ///     // ... the provider has used 400 tokens ...
    ///     receipt.settle_member(1, 400);
    ///     Ok::<(), tollgate::reserve::ReserveError>(())
    /// };
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// call().await?;
    /// call().await
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_allowed(
        &self,
        at_most: Duration,
        timer: impl Timer,
    ) -> Result<Receipt, ReserveError> {
        BatchWait::begin(self, at_most)?.run(timer).await
    }

    /// Waits like [`until_allowed`](Batch::until_allowed), and for the end of the members' blocks. Places in the time of a block
    /// are cancelled, and new places are taken from the block's end on.
    #[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "only a layer waits for blocks"))]
    pub(crate) async fn until_allowed_and_unblocked(
        &self,
        at_most: Duration,
        timer: impl Timer,
    ) -> Result<Receipt, ReserveError> {
        let wait = BatchWait::begin(self, at_most)?;
        BatchWait { waits_for_blocks: true, ..wait }.run(timer).await
    }

    /// Waits until all limits allow the batch, for at most `at_most`, and charges it, without places: it spends, sleeps
    /// [`retry_in`](Decision::retry_in), and spends again. No unit is idle while it sleeps, and a faster caller may come first.
    ///
    /// # Errors
    ///
    /// A [`ReserveError`], at once if the wait would be too long, and nothing is charged.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(1, 500, Duration::from_secs(1))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("Requests", IdFormat::String, limit)?.build());
    /// # let requests = limiter.limit("Requests")?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let members = [requests.member("acme")];
    /// for _ in 0..3 {
    ///     limiter.batch(&members).retry(Duration::from_secs(5), tokio::time::sleep).await?;
    /// }
    /// # Ok::<(), tollgate::reserve::ReserveError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn retry(
        &self,
        at_most: Duration,
        timer: impl Timer,
    ) -> Result<Receipt, ReserveError> {
        let wait = BatchWait::begin(self, at_most)?;
        BatchWait { with_places: false, ..wait }.run(timer).await
    }
}

/// The wait of one call for a batch.
struct BatchWait<'b> {
    batch: &'b Batch<'b>,
    with_places: bool,
    waits_for_blocks: bool,
    /// The caller's deadline by the limiter's clock.
    until_ns: u64,
    taken: Option<Taken<'b>>,
    /// The time since which the caller waits, and its turn among the callers that wait for permits.
    since_ns: u64,
    turn: PermitTurn<'b>,
    /// The position of the member whose permits have denied the last attempt.
    lacks: Option<usize>,
}

/// The places for which a caller sleeps, and the positions of the members without one.
type Taken<'b> = (TakenPlaces<'b>, SmallVec<[usize; INLINE_MEMBERS]>);

impl<'b> BatchWait<'b> {
    fn begin(batch: &'b Batch<'b>, at_most: Duration) -> Result<BatchWait<'b>, Error> {
        batch.validate()?;
        let now_ns = batch.limiter.inner.clock.now_ns();
        let until_ns = now_ns.saturating_add(saturating_ns(at_most));
        Ok(BatchWait {
            batch,
            with_places: true,
            waits_for_blocks: false,
            until_ns,
            taken: None,
            since_ns: now_ns,
            turn: PermitTurn::default(),
            lacks: None,
        })
    }

    async fn run(mut self, timer: impl Timer) -> Result<Receipt, ReserveError> {
        loop {
            match self.next()? {
                Next::Sleep(time) => match self.lacks.take() {
                    None => {
                        // It waits for something else than permits, so the next caller tries to use those that are free.
                        self.turn.end();
                        timer.sleep(time).await;
                    }
                    Some(position) => {
                        let BatchWait { batch, since_ns, .. } = self;
                        self.turn.wait(batch, position, since_ns, timer.sleep(time)).await;
                    }
                },
                Next::Allowed(receipt) => return Ok(receipt),
            }
        }
    }

    fn left_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.batch.limiter.inner.clock.now_ns())
    }

    /// Returns the caller's next step: it sleeps and asks again, or has all charges.
    fn next(&mut self) -> Result<Next, ReserveError> {
        let (taken, others) = match self.taken.take() {
            Some(taken) => taken,
            None => self.take_places()?,
        };
        let wait = taken.places.wait();
        if !wait.is_zero() {
            self.taken = Some((taken, others));
            return Ok(Next::Sleep(wait));
        }
        if self.waits_for_blocks && taken.is_blocked(self.batch) {
            drop(taken);
            return self.next();
        }
        if others.is_empty() {
            return Ok(Next::Allowed(taken.into_reservation().into_receipt()));
        }
        let members: SmallVec<[Member<'_>; INLINE_MEMBERS]> =
            others.iter().map(|&position| self.batch.members[position]).collect();
        let rest = Batch::new(self.batch.limiter, &members);
        // Before the decision, whose wait counts from its own reading of the clock: a caller that stands still in between is not
        // refused for it.
        let left_ns = self.left_ns();
        let mut decision = rest.check()?;
        // The member that lacks permits, which may come back at any time.
        let lacks_permits = |decision: &Decision| {
            let position = decision.denied_by().filter(|_| !decision.blocked());
            position.filter(|&at| members[at].handle.counts_in_flight())
        };
        let is_last = |decision: &Decision| {
            (decision.blocked() && !self.waits_for_blocks)
                || decision.out_of_room()
                || match lacks_permits(decision) {
                    Some(_) => left_ns == 0,
                    None => saturating_ns(decision.retry_in()) > left_ns,
                }
        };
        if decision.allowed()
            && left_ns > 0
            && let Some(at) = members.iter().position(|member| self.turn.is_of_another(member))
        {
            self.lacks = Some(others[at]);
            self.taken = Some((taken, others));
            return Ok(Next::Sleep(PermitTurn::PATIENCE.min(Duration::from_nanos(left_ns))));
        }
        // The attempt that refuses the caller counts as a denial.
        if decision.allowed() || is_last(&decision) {
            let (decided, charged) = rest.spend_estimate()?;
            if let Some(charged) = charged {
                let charged = charged.of_positions(|at| others[at]);
                let placed = taken.into_reservation().into_receipt();
                return Ok(Next::Allowed(placed.joined(charged)));
            }
            decision = decided;
        }
        // The places are cancelled.
        drop(taken);
        if is_last(&decision) {
            return Err(ReserveError::of_batch(decision));
        }
        self.lacks = lacks_permits(&decision).map(|at| others[at]);
        let left = Duration::from_nanos(self.left_ns());
        // A permit has no time, and its callers have turns.
        let jitter = if self.lacks.is_none() { random_below(RETRY_JITTER) } else { Duration::ZERO };
        Ok(Next::Sleep((decision.retry_in() + jitter).min(left)))
    }

    /// Takes places for the members that can have one, and returns the positions of the others.
    fn take_places(&self) -> Result<Taken<'b>, ReserveError> {
        let BatchWait { batch, with_places, waits_for_blocks, .. } = *self;
        let (mut placed, mut others) =
            (SmallVec::<[usize; INLINE_MEMBERS]>::new(), SmallVec::new());
        for (position, member) in batch.members.iter().enumerate() {
            let has_place =
                with_places && member.is_plain() && member.handle.has_places(member.id)?;
            if has_place { placed.push(position) } else { others.push(position) }
        }
        // Repeats for each member that has no place after all: a reload has changed its algorithm, or its bucket would stand idle.
        loop {
            match batch.take_places(&placed, self.left_ns(), waits_for_blocks) {
                Ok(taken) => return Ok((taken, others)),
                Err(Refusal { position, is_of_place: true, .. }) => {
                    placed.retain(|&mut it| it != position);
                    others.push(position);
                }
                Err(refused) => return Err(batch.refused(refused)),
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::task::{Context, Waker};
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::clock::Clock;
    use crate::core::places::steps;
    use crate::core::view::LimitsView;
    use crate::limit::Limit;
    use crate::limit::carry_over::CarryOver;
    use crate::limiter::Limiter;
    use crate::limits::{IdFormat, Limits};
    use crate::store::pin;

    /// The steps in the trees of vacant places, for each waiter of a herd: each place of B leaves a free time in front of it.
    /// Every second waiter goes away.
    fn steps_of_a_waiter(waiters: u64) -> u64 {
        let limit =
            |burst, every_ms| Limit::new(burst, 1, Duration::from_millis(every_ms)).unwrap();
        let limits = Limits::builder().limit("A", IdFormat::String, limit(1, 10)).unwrap();
        let limits = limits.limit("B", IdFormat::String, limit(4, 3)).unwrap().build();
        let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        let members = [a.member("id"), b.member("id").cost(2)];
        let batch = limiter.batch(&members);
        steps::take();
        let places: Vec<Reservation> =
            (0..waiters).map(|_| batch.reserve(Duration::MAX).unwrap()).collect();
        assert_eq!(places.last().unwrap().wait(), Duration::from_millis(10 * (waiters - 1)));
        places.into_iter().step_by(2).for_each(Reservation::cancel);
        steps::take() / waiters
    }

    /// A reload has moved the bucket of a batch that waits, and stands still before its end.
    #[test]
    fn wait_beside_a_standing_reload_goes_on() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let second = Duration::from_secs(1);
            let limits_of =
                |limit| Limits::builder().limit("A", IdFormat::String, limit).unwrap().build();
            let limits = limits_of(Limit::new(1, 1, second).unwrap());
            let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
            let a = limiter.limit("A").unwrap();
            assert!(a.spend("id", 1).unwrap().allowed());
            let inner = &*limiter.inner;
            let now = inner.generation.share(&pin());
            let limits = limits_of(Limit::fixed_window(1, second).unwrap());
            let limits = limits.following(&now.limits, now.number + 1, &HashSet::new());
            let next = now.next(limits, CarryOver::Share, (1, UNIX_EPOCH), &inner.store);
            let next = Arc::new(next);
            inner.generation.replace(&pin(), next.clone());
            inner.store.renew(&LimitsView { inner, generation: &next });
            let members = [a.member("id")];
            let batch = limiter.batch(&members);
            let timer = |_: Duration| std::future::pending();
            let mut wait = std::pin::pin!(batch.until_allowed(Duration::MAX, timer));
            let mut context = Context::from_waker(Waker::noop());
            done.send(wait.as_mut().poll(&mut context).is_pending()).unwrap();
        });
        let is_pending = is_done.recv_timeout(Duration::from_secs(20)).expect("the poll returns");
        assert!(is_pending, "the window has no unit");
    }

    #[test]
    fn herd_of_batches_takes_linear_time() {
        let [few, many] = [250, 2_000].map(steps_of_a_waiter);
        println!("{few} steps each of 250 waiters, {many} each of 2,000");
        assert!(few > 20, "the places are in the trees");
        assert!(many < 2 * few, "{few} {many}");
    }
}
