//! Returns and publishes a limiter's counters, and the ids denied most.

use crate::limiter::Limiter;
use crate::observe::counters::{Counters, LimitCounters};
use crate::observe::shared::SharedCounts;
use crate::observe::top_denied::{DeniedId, TopDenied};
use crate::store::pin;
use crate::util::sync::Ordering;

impl Limiter {
    /// Returns the limiter's counters, to show or publish them in a custom way. The call adds up the counts of all
    /// threads, which takes about 0.2 us per limit. No other call waits for it.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// let limit = Limit::new(2, 1, Duration::from_secs(60))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().counting(true))?;
    /// let users = limiter.limit("PerUser")?;
    /// for _ in 0..3 {
    ///     let _ = users.spend("alice", 1)?;
    /// }
    /// let of_users = &limiter.counters().limits[0];
    /// assert_eq!((of_users.allowed, of_users.denied, of_users.cost), (2, 1, 2));
    /// assert_eq!(of_users.near, 1, "the second spend left nothing");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn counters(&self) -> Counters {
        let inner = &*self.inner;
        let guard = pin();
        let generation = inner.generation.get(&guard);
        let given = generation.limits.by_index().filter(|(_, entry)| entry.is_given());
        let limits = given
            .map(|(index, entry)| {
                let tally = generation.tallies.of(index);
                let counted = tally.counted();
                LimitCounters {
                    name: entry.name.to_string(),
                    mode: entry.options.mode,
                    enabled: !entry.is_disabled,
                    limit: entry.default.clone(),
                    shadow: entry.options.shadow.clone(),
                    allowed: counted.allowed,
                    denied: counted.denied,
                    near: counted.near,
                    cost: counted.cost,
                    shadow_denied: tally.shadow_denied(),
                    errors: tally.errors(),
                    in_flight: entry.counts_in_flight().then(|| tally.in_flight()),
                    shared: entry
                        .is_shared()
                        .then(|| SharedCounts::new(counted.by_lease, tally.without_store())),
                }
            })
            .collect();
        Counters {
            limits,
            is_counting: generation.tallies.is_counting(),
            stats: inner.stats(),
            generation: generation.number,
            store: inner.shared.as_ref().map(|part| part.counters(inner)),
            // Relaxed, both: figures for operators.
            reload_errors: inner.reloads.refused.load(Ordering::Relaxed),
            limits_removed: inner.reloads.removed.load(Ordering::Relaxed),
            last_reload: inner.reloads.last(),
            #[cfg(feature = "tower")]
            rejected: inner.rejections.read(),
        }
    }

    /// Returns the ids denied most since the limiter was made, over all limits, the id with the most denials first. The
    /// list has at most `n` entries, the number given to
    /// [`LimiterOptions::top_denied`](crate::LimiterOptions::top_denied). An id with more than `1/n` of all recorded
    /// denials is always in the list.
    ///
    /// Two denials at the same time do not wait for each other: the list records one of them, and
    /// [`top_denied_missed`](Limiter::top_denied_missed) counts the other.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().top_denied(20))?;
    /// let users = limiter.limit("PerUser")?;
    /// for id in ["alice", "bob", "bob", "bob", "alice"] {
    ///     let _ = users.spend(id, 1)?;
    /// }
    /// let top = limiter.top_denied();
    /// assert_eq!((top[0].id.as_str(), top[0].denied, top[0].error), ("bob", 2, 0));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn top_denied(&self) -> Vec<DeniedId> {
        let Some(top) = &self.inner.top_denied else { return Vec::new() };
        self.under_same_limits(|limits| top.list(limits))
    }

    /// Returns the number of denials that the list of [`top_denied`](Limiter::top_denied) lacks, because another thread
    /// used the list at the same time.
    pub fn top_denied_missed(&self) -> u64 {
        self.inner.top_denied.as_ref().map_or(0, TopDenied::missed)
    }

    /// Writes the [counters](Limiter::counters) in Prometheus' text format, version 0.0.4; serve it as
    /// `text/plain; version=0.0.4`. A sample may have a limit's name as a label, never an id.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// let limit = Limit::new(2, 1, Duration::from_secs(60))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_options(limits, LimiterOptions::default().counting(true))?;
    /// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
    /// let text = limiter.prometheus();
    /// assert!(text.contains("tollgate_decisions_total{limit=\"PerUser\",outcome=\"allowed\"} 1\n"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn prometheus(&self) -> String {
        self.counters().prometheus()
    }

    /// Publishes the [counters](Limiter::counters) to the installed recorder of the crate `metrics`. Call it as often
    /// as the recorder should get new values; it starts no thread. The metrics have the names of
    /// [`prometheus`](Limiter::prometheus).
    ///
    /// # Example
    ///
    /// ```no_run
    /// # let limiter = tollgate::Limiter::new(tollgate::Limits::builder().build());
    /// loop {
    ///     limiter.publish_metrics();
    ///     std::thread::sleep(std::time::Duration::from_secs(10));
    /// }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self) {
        self.counters().publish();
    }
}
