//! Replaces the limits while calls go on.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::algorithm::rule::Rule;
use crate::core::reloads::Reloaded;
use crate::error::{Error, ErrorKind};
use crate::limit::carry_over::CarryOver;
use crate::limit::{Limit, Parameters};
use crate::limiter::Limiter;
use crate::limits::{Entry, LimitUse, Limits};
use crate::store::pin;
use crate::util::time::system_now;

mod forget;
pub(crate) mod options;
#[cfg(all(test, feature = "boulder", not(tollgate_loom)))]
mod work_tests;

use forget::Closed;
use options::ReloadOptions;

impl Limiter {
    /// Replaces the limits while calls go on; each bucket keeps the [share](CarryOver::Share) of it that is used.
    ///
    /// Like [`reload_with`](Limiter::reload_with), which has an example, with [`CarryOver::Share`].
    ///
    /// # Errors
    ///
    /// Those of [`reload_with`](Limiter::reload_with).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// let users = limiter.limit("PerUser")?;
    /// assert!(users.spend("alice", 4)?.allowed()); // 4 of 5
    /// let larger = Limit::new(50, 100, Duration::from_secs(60))?;
    /// limiter.reload(Limits::builder().limit("PerUser", IdFormat::String, larger)?.build())?;
    /// assert_eq!(users.check("alice", 0)?.remaining(), Some(10)); // of 50
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reload(&self, limits: Limits) -> Result<Reloaded, Error> {
        self.reload_with(limits, ReloadOptions::default())
    }

    /// Replaces the limits while calls go on. A [`CarryOver`] in place of options says how the buckets' debts are carried
    /// over.
    ///
    /// A bucket belongs to the name of its limit, so it stays with the name. Handles stay valid. Each call, also a batch, is
    /// decided by the old limits alone or by the new ones alone.
    ///
    /// # Limits that go
    ///
    /// A limit is in use while a handle of it is alive. Layers and batches have handles; receipts, reservations and names
    /// that a program looks up later do not count. If the new limits do not declare a limit in use, such as after a typo
    /// in its name, the reload is an error and the old limits stay. There are two ways to do without a limit:
    ///
    /// * Switch it off, by `enabled: false` in a file or by [`disable`](crate::limits::LimitsBuilder::disable). Its calls
    ///   are allowed and charge nothing, and its layers send no fields, until a later reload switches it on. A limit that
    ///   is off can be left out by the next reload.
    /// * Allow it with [`ReloadOptions::remove_missing`].
    ///
    /// A limit without a handle goes without being asked about. [`Reloaded::removed`] names all limits that went. Their
    /// buckets are dropped when this returns; if a later reload declares the limit again, its buckets start full. The name
    /// of a limit with neither a handle nor a block is forgotten with its counters; then it may also return with another
    /// format of ids.
    ///
    /// No call waits. The reload moves the buckets part by part, about 0.2 us per bucket, and returns when it has moved
    /// all. Until a bucket is moved, the old limits decide its calls. A batch with buckets of both kinds is decided by
    /// the new limits, and helps to move the others. Concurrent reloads wait for each other. Meanwhile the table takes
    /// about an eighth more memory; if a thread is stalled in a call, it may take twice the memory, and the reload up
    /// to 1 s longer.
    ///
    /// # The bound across the change
    ///
    /// Until the change the old limit's bound holds, after it the new one's, and across it the sum of both: at most
    /// `old burst + new burst` plus the units of the rates. With [`CarryOver::Share`] it is less: a key that has used a
    /// share of the old burst has used the same share of the new one. A call that began before the change may still be
    /// decided by the old limits.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if a limit in use is not among the new ones, or if its ids get another format, also
    /// while only blocks of its ids are left; if a limit with buckets to carry over changes from or to a custom
    /// algorithm (see [`CarryOver::Afresh`]); or if the [`max_keys`](crate::limits::LimitOptions::max_keys) of the limits
    /// are more in all than the limiter's. Nothing has changed then.
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
    /// assert!(users.check("alice", 50)?.allowed(), "50 of 100 units are used");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn reload_with(
        &self,
        limits: Limits,
        options: impl Into<ReloadOptions>,
    ) -> Result<Reloaded, Error> {
        let reloaded = self.replace_limits(limits, &options.into());
        self.inner.reloads.record(&reloaded);
        reloaded
    }

    fn replace_limits(&self, limits: Limits, options: &ReloadOptions) -> Result<Reloaded, Error> {
        let (inner, debt) = (&self.inner, options.carry_over);
        let _one_at_a_time = inner.reloads.hold_off();
        let guard = pin();
        let mut now = inner.generation.share(&guard);
        drop(guard);
        if now.before().is_some() {
            // The last reload did not finish, because its thread panicked.
            now = inner.renew(&now);
        }
        check_rules(&now.limits, &limits, debt)?;
        let in_use = now.limits.by_index().filter(|(at, _)| now.tallies.of(*at).handles.is_used());
        let asked = in_use.map(|(at, entry)| (entry, now.tallies.of(at).floors.names()));
        limits.check_floors(asked)?;
        limits.parts(inner.store.max_keys())?;
        limits.check_store_stays(&now.limits)?;
        // A first look, so that a reload that is refused closes no limit to new handles, unless the handle or the block that it
        // is refused for comes between this look and the next.
        let blocked = forget::limits_with_blocks(inner);
        now.limits.check_removals(&limits, options.remove_missing, |index| {
            if now.tallies.of(index).handles.is_used() {
                LimitUse::Handles
            } else if blocked.contains(&index) {
                LimitUse::Blocks
            } else {
                LimitUse::Nothing
            }
        })?;
        let closed = Closed::new(inner, &now, &limits);
        now.limits.check_removals(&limits, options.remove_missing, |index| closed.use_of(index))?;
        let removed = now.limits.removed_by(&limits);
        let limits = limits.following(&now.limits, now.number + 1, closed.forgotten());
        if limits.is_same_as(&now.limits) {
            return Ok(Reloaded { generation: now.number, changed: false, removed: Vec::new() });
        }
        let parts = limits.parts(inner.store.max_keys())?;
        let clocks = (inner.clock.now_ns(), system_now().unwrap_or(UNIX_EPOCH));
        let changed = forget::changed_permits(&now, &limits);
        let next = Arc::new(now.next(limits, debt, clocks, &inner.store));
        let _until_renewed = inner.begin_reload();
        #[cfg(tollgate_loom)]
        next.mark_made();
        if let Some(top) = &inner.top_denied {
            top.forget(closed.forgotten());
        }
        inner.store.divide(&parts);
        changed.into_iter().for_each(|limit| next.tallies.of(limit).set_max(None));
        inner.generation.replace(&pin(), next.clone());
        closed.forget();
        inner.renew(&next);
        inner.places.drop_changed(|limit| next.limits.entry(limit).unchanged_since);
        Ok(Reloaded { generation: next.number, changed: true, removed })
    }
}

/// Fails if a limit changes from or to a custom algorithm, because no other rule can read a custom algorithm's words; or from
/// or to counting what is in flight, because its handles are of another type.
fn check_rules(old: &Limits, new: &Limits, debt: CarryOver) -> Result<(), Error> {
    let is_custom = |limit: &Limit| matches!(limit.parameters(), Parameters::Custom(_));
    for (_, entry) in new.by_index() {
        // Buckets of ids in another format are not carried over.
        let before = old.by_name_of(entry).filter(|before| before.format == entry.format);
        // A limit that is lifted has the algorithm of permits if its handles take permits.
        let algorithms = (before.and_then(|before| before.algorithm), entry.algorithm);
        if let (Some(from), Some(to)) = algorithms
            && (from == Rule::CONCURRENCY) != (to == Rule::CONCURRENCY)
        {
            let text = format!(
                "{}: {from} cannot become {to}, because permits are no units; give the limit another name",
                entry.public_name()
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
        let (before, after) = (before.and_then(Entry::any_limit), entry.any_limit());
        let (Some(before), Some(after)) = (before, after) else { continue };
        let (from, to) = (before.algorithm(), after.algorithm());
        if debt != CarryOver::Afresh && (is_custom(before) || is_custom(after)) && from != to {
            let text = format!(
                "{}: {to} cannot read the debts that its buckets have by {from}; reload with CarryOver::Afresh, or give the limit another name",
                entry.public_name()
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
    }
    Ok(())
}
