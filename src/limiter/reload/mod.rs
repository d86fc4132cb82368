//! Changing the limits while calls go on.

use std::sync::Arc;
use std::time::SystemTime;

use crate::core::reloads::Reloaded;
use crate::error::{Error, ErrorKind};
use crate::limit::carry_over::CarryOver;
use crate::limit::{Limit, Parameters};
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::store::pin;

#[cfg(all(test, feature = "boulder", not(tollgate_loom)))]
mod work;

impl Limiter {
    /// Puts other limits in the place of those that apply, while calls go on; buckets keep the
    /// [share](CarryOver::Share) that is used of them.
    ///
    /// See [`reload_with`](Limiter::reload_with).
    ///
    /// # Errors
    ///
    /// As [`reload_with`](Limiter::reload_with).
    pub fn reload(&self, limits: Limits) -> Result<Reloaded, Error> {
        self.reload_with(limits, CarryOver::default())
    }

    /// Puts other limits in the place of those that apply, while calls go on. What buckets owe is carried
    /// over by the rule `debt`.
    ///
    /// A bucket follows its limit's name. A limit that is not among the new ones is no limit from then
    /// on, its handles allow, and its buckets are gone when this returns; if it comes back later, they
    /// start full. Handles stay good, and so does what they have been asked: a call sees the old limits
    /// or the new, all of them; a batch does, too.
    ///
    /// No call waits. This call brings the buckets over, part by part, and returns when none is left behind:
    /// some 0.2 us a bucket. Until it comes to a bucket, calls for that are decided by the old limits. A batch
    /// of several buckets, of which some have been brought over, is decided by the new ones, and helps to bring
    /// the others over. Reloads wait for each other. The table takes about an eighth more memory meanwhile; beside a
    /// thread that stands still in a call it may take twice as much, and the reload up to 0.2 s longer.
    ///
    /// # The bound across the change
    ///
    /// Up to the change the old limit's bound holds, from then on the new one's, and over both the sum of
    /// the two: at most `old burst + new burst` and what the rates bring. With [`CarryOver::Share`] less: who
    /// has used a share of the old burst has that share of the new one used. A call that began before the
    /// change may be decided by the old limits while it goes on.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] when a limit's ids have another format than before, or a rule of one's
    /// own comes or goes for a limit that has buckets to keep (see [`CarryOver::Afresh`]). Nothing has
    /// changed then.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::reload::CarryOver;
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limits = |burst| -> Result<Limits, tollgate::Error> {
    ///     let limit = Limit::new(burst, burst, Duration::from_secs(3600))?;
    ///     Ok(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build())
    /// };
    /// let limiter = Limiter::new(limits(50)?);
    /// let users = limiter.limit("PerUser")?;
    /// assert!(users.spend("alice", 50)?.allowed());
    /// let reloaded = limiter.reload_with(limits(100)?, CarryOver::Units)?;
    /// assert!(reloaded.changed);
    /// assert!(users.check("alice", 50)?.allowed(), "50 of 100 are used");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reload_with(&self, limits: Limits, debt: CarryOver) -> Result<Reloaded, Error> {
        let reloaded = self.put_in_place(limits, debt);
        self.inner.reloads.note(&reloaded);
        reloaded
    }

    fn put_in_place(&self, limits: Limits, debt: CarryOver) -> Result<Reloaded, Error> {
        let inner = &*self.inner;
        let _one_at_a_time = inner.reloads.hold_off();
        let guard = pin();
        let mut now = inner.generation.share(&guard);
        drop(guard);
        if now.before().is_some() {
            // The last one did not end: its thread panicked.
            now = inner.renew(&now);
        }
        let limits = limits.following(&now.limits)?;
        if limits.is_same_as(&now.limits) {
            return Ok(Reloaded { generation: now.number, changed: false });
        }
        check_rules_of_ones_own(&now.limits, &limits, debt)?;
        let clocks = (inner.clock.now_ns(), SystemTime::now());
        let next = Arc::new(now.next(limits, debt, clocks, &inner.store));
        #[cfg(tollgate_loom)]
        next.is_made();
        inner.generation.replace(&pin(), next.clone());
        inner.renew(&next);
        Ok(Reloaded { generation: next.number, changed: true })
    }
}

/// A word of one's own rule means nothing to any other.
fn check_rules_of_ones_own(old: &Limits, new: &Limits, debt: CarryOver) -> Result<(), Error> {
    let is_own = |limit: &Limit| matches!(limit.parameters(), Parameters::Custom(_));
    for (index, entry) in new.by_index().take(old.count()) {
        let before = old.entry(index);
        let (Some(was), Some(is)) = (before.any_limit(), entry.any_limit()) else { continue };
        let (was_called, is_called) = (was.algorithm(), is.algorithm());
        if debt != CarryOver::Afresh && (is_own(was) || is_own(is)) && was_called != is_called {
            let text = format!(
                "{}: what its buckets owe by {was_called} cannot be told to {is_called}; reload with CarryOver::Afresh, or give the limit another name",
                entry.name
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
    }
    Ok(())
}
