//! Shared limits in the registry: which limits are shared, how, and through which store.

use std::time::Duration;

use super::networks::NOT_SHARED;
use super::{Entry, LimitEntry, Limits, LimitsBuilder, is_hidden};
use crate::algorithm::factor::Factor;
use crate::algorithm::rule::Rule;
use crate::error::{Error, ErrorKind};
use crate::limit::{Limit, LimitFault};
use crate::limits::explanation::Explanation;
use crate::limits::sharing::Sharing;
use crate::limits::{LimitOptions, OnError, Shared, StoreOptions};

impl Entry {
    /// Whether the buckets are in a store.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared() != Shared::Local
    }

    /// Returns where the buckets are.
    pub(crate) fn shared(&self) -> Shared {
        self.options.sharing.shared
    }

    /// How the limit is shared.
    pub(crate) fn sharing(&self) -> &Sharing {
        &self.options.sharing
    }

    /// Checks that a limit with these options can have the algorithm and the networks that its overrides have.
    pub(super) fn check_can_be_shared(&self, options: &LimitOptions) -> Result<(), String> {
        if options.sharing.shared != Shared::Local && self.network_ids().next().is_some() {
            return Err(NOT_SHARED.into());
        }
        let fault = self.algorithm.and_then(|algorithm| unshareable(algorithm, options));
        fault.map_or(Ok(()), Err)
    }
}

impl Limits {
    /// Returns the limits with all of them local, and without a store, as for a single node. For a simulation or a replay.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tollgate::limits::{LimitOptions, Shared};
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// let exact = LimitOptions::default().shared(Shared::Exact);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, exact)?.build();
    /// let users = Limiter::new(limits.as_one_node()).limit("PerUser")?;
    /// assert_eq!(users.spend("alice", 1)?.remaining(), Some(4));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn as_one_node(mut self) -> Limits {
        for entry in &mut self.entries {
            entry.options.sharing = Sharing::default();
        }
        self.store = None;
        self
    }

    /// Returns the limits as if each of them was shared in this way. Their other options of sharing stay as they are. For a
    /// simulation of several nodes.
    ///
    /// Limits with a custom algorithm, concurrency limits and limits with overrides of networks cannot be shared, and stay
    /// local. Under [`Shared::Leased`], limits of other algorithms than gcra become [`Shared::Exact`].
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tollgate::limits::Shared;
    /// use tollgate::{IdFormat, Limit, Limits};
    ///
    /// let limit = Limit::new(5, 1, Duration::from_secs(60))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// assert_eq!(limits.share_all(Shared::Leased).limit("PerUser")?.shared(), Shared::Leased);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn share_all(mut self, shared: Shared) -> Limits {
        for entry in &mut self.entries {
            // The buckets of hidden limits are always on the node.
            let is_custom = entry.algorithm.is_some_and(|name| !Rule::BUILT_IN.contains(&name));
            let is_local = is_hidden(&entry.name) || entry.has_networks();
            if !is_custom && !entry.counts_in_flight() && !is_local {
                let is_gcra = entry.algorithm.is_none_or(|name| name == Rule::GCRA);
                let can_lease = is_gcra || shared != Shared::Leased;
                entry.options.sharing.shared = if can_lease { shared } else { Shared::Exact };
            }
        }
        self
    }

    /// Returns the store of the shared limits, if a file or code gives one.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::Limits;
    /// use tollgate::limits::StoreOptions;
    ///
    /// let store = StoreOptions::new("redis://localhost:6379")?;
    /// let limits = Limits::builder().store(store)?.build();
    /// assert_eq!(limits.store().map(StoreOptions::url), Some("redis://localhost:6379"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn store(&self) -> Option<&StoreOptions> {
        self.store.as_ref()
    }

    /// Fails if these limits have another store than `old`, those of a running limiter.
    pub(crate) fn check_store_stays(&self, old: &Limits) -> Result<(), Error> {
        if old.store() == self.store() {
            return Ok(());
        }
        let shown =
            |limits: &Limits| limits.store().map_or("none".into(), |store| store.shown_url());
        let text = format!(
            "the store of a running limiter cannot change: its address, the names of its keys and its timeouts stay as they are (it is {}, and the new limits have {}); restart the program",
            shown(old),
            shown(self),
        );
        Err(Error::new(ErrorKind::Config, text))
    }
}

impl LimitsBuilder {
    /// Sets the store of the shared limits. A limits file has it as the section `store`.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`] if a store was given before, in code or in a file.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::Limits;
    /// # use tollgate::limits::StoreOptions;
    /// let builder = Limits::builder().store(StoreOptions::new("redis://localhost")?)?;
    /// let error = builder.store(StoreOptions::new("redis://localhost")?).unwrap_err();
    /// assert_eq!(error.to_string(), "the store was given twice");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn store(mut self, store: StoreOptions) -> Result<LimitsBuilder, Error> {
        self.set_store(store).map_err(|text| Error::new(ErrorKind::Config, text))?;
        Ok(self)
    }

    /// Sets the store. It can be set once only. An error is the text of a fault.
    pub(crate) fn set_store(&mut self, store: StoreOptions) -> Result<(), String> {
        if self.limits.store.is_some() {
            return Err("the store was given twice".into());
        }
        self.limits.store = Some(store);
        Ok(())
    }
}

impl LimitEntry<'_> {
    /// Returns where the buckets of the limit are: see [`LimitOptions::shared`](crate::limits::LimitOptions::shared).
    pub fn shared(&self) -> Shared {
        self.entry().shared()
    }

    /// Returns the decision in an outage of the store; `None` for a local limit.
    pub fn on_error(&self) -> Option<OnError> {
        self.entry().options.sharing.on_error()
    }

    /// Returns the part of the limit that a node gives out by itself in an outage of the store; `None` for a local
    /// limit, and under [`OnError::Deny`].
    pub fn fraction(&self) -> Option<Factor> {
        self.entry().options.sharing.fraction()
    }

    /// Returns how long calls are allowed in an outage of the store; `None` without [`OnError::Allow`].
    pub fn allow_for(&self) -> Option<Duration> {
        self.entry().options.sharing.allow_for()
    }

    /// Returns the length of a lease; `None` without [`Shared::Leased`].
    pub fn lease(&self) -> Option<Duration> {
        self.entry().options.sharing.lease()
    }
}

impl LimitOptions {
    /// Sets where the buckets are: in each node, or in a [store](crate::limits::StoreOptions) that several nodes share.
    /// [`on_error`](Self::on_error), [`fraction`](Self::fraction), [`allow_for`](Self::allow_for) and [`lease`](Self::lease)
    /// need a shared limit. A shared limit has a built-in algorithm other than concurrency, and no [shadow
    /// limit](Self::shadow), floors, `max_keys` or overrides of networks. Default: [`Shared::Local`].
    ///
    /// ```
    /// use tollgate::limits::{LimitOptions, Shared};
    /// let leased = LimitOptions::default().shared(Shared::Leased);
    /// ```
    pub fn shared(self, shared: Shared) -> LimitOptions {
        LimitOptions { sharing: Sharing { shared, ..self.sharing }, ..self }
    }

    /// Sets the decision in an outage of the store. Default: [`OnError::Local`].
    ///
    /// ```
    /// use tollgate::limits::{LimitOptions, OnError, Shared};
    /// let strict = LimitOptions::default().shared(Shared::Exact).on_error(OnError::Deny);
    /// ```
    pub fn on_error(self, on_error: OnError) -> LimitOptions {
        LimitOptions { sharing: Sharing { on_error: Some(on_error), ..self.sharing }, ..self }
    }

    /// Sets the part of the limit that a node gives out by itself in an outage of the store: more than 0, at most
    /// 1. Under [`OnError::Deny`] there is none. Default: 0.1.
    ///
    /// ```
    /// use tollgate::limits::{LimitOptions, Shared};
    /// let of_four_nodes = LimitOptions::default().shared(Shared::Leased).fraction("0.25".parse()?);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn fraction(self, fraction: Factor) -> LimitOptions {
        LimitOptions { sharing: Sharing { fraction: Some(fraction), ..self.sharing }, ..self }
    }

    /// Sets how long [`OnError::Allow`] allows calls: from 1 ms to 1 h. In a file it is `for`. Default: 30 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::limits::{LimitOptions, OnError, Shared};
    /// let lenient = LimitOptions::default().shared(Shared::Exact).on_error(OnError::Allow);
    /// let lenient = lenient.allow_for(Duration::from_secs(5));
    /// ```
    pub fn allow_for(self, time: Duration) -> LimitOptions {
        LimitOptions { sharing: Sharing { allow_for: Some(time), ..self.sharing }, ..self }
    }

    /// Sets the length of a lease under [`Shared::Leased`]: from 200 ms to 10 s, the same on all nodes. Default: 1 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::limits::{LimitOptions, Shared};
    /// let leased = LimitOptions::default().shared(Shared::Leased).lease(Duration::from_secs(2));
    /// ```
    pub fn lease(self, time: Duration) -> LimitOptions {
        LimitOptions { sharing: Sharing { lease: Some(time), ..self.sharing }, ..self }
    }
}

impl Explanation {
    /// Returns where the buckets of the limit are.
    pub fn shared(&self) -> Shared {
        self.sharing.shared
    }
}

/// Returns the faults of the options of a shared limit. `limit` is `None` if it is not known.
pub(crate) fn sharing_faults(options: &LimitOptions, limit: Option<&Limit>) -> Vec<LimitFault> {
    let mut faults = options.sharing.faults();
    if options.sharing.shared != Shared::Local {
        let mut fault = |field, message| faults.push(LimitFault { field, message });
        if options.shadow.is_some() {
            fault("shadow", "a shared limit has no shadow limit".into());
        }
        if !options.floors.is_empty() {
            fault(
                "floors",
                "a shared limit has no floors: a store decides no spend that must leave units"
                    .into(),
            );
        }
        if options.max_keys.is_some() {
            fault("max_keys", "a shared limit has its buckets in the store".into());
        }
        if let Some(text) = limit.and_then(|limit| unshareable(limit.algorithm(), options)) {
            fault("shared", text);
        }
    }
    faults
}

/// Says why limits of an algorithm cannot be shared as these options say, if they cannot.
pub(super) fn unshareable(algorithm: &str, options: &LimitOptions) -> Option<String> {
    let shared = options.sharing.shared;
    if shared == Shared::Local {
        return None;
    }
    if !Rule::BUILT_IN.contains(&algorithm) {
        return Some(format!(
            "a shared limit has no custom algorithm such as {algorithm}: a store has the built-in ones"
        ));
    }
    if algorithm == Rule::CONCURRENCY {
        return Some(
            "permits are of one process, so a limit of concurrency is not shared: write shared: local, or leave it out".into(),
        );
    }
    (shared == Shared::Leased && algorithm != Rule::GCRA).then(|| {
        format!("leased is for gcra alone, and this limit is a {algorithm}: write shared: exact")
    })
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::limits::IdFormat;

    #[test]
    fn no_limit_is_named_store() {
        let error = Limits::builder().limit("store", IdFormat::String, None).unwrap_err();
        assert!(error.is_invalid_name(), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the name store is reserved for the section of the store that limits share: give the limit another name"
        );
        assert!(Limits::builder().limit("Store", IdFormat::String, None).is_ok());
    }

    #[test]
    fn a_reload_cannot_change_its_store() {
        let with = |url: &str, prefix: &str| {
            let store = StoreOptions::new(url).unwrap().prefix(prefix).unwrap();
            Limits::builder().store(store).unwrap().build()
        };
        let none = Limits::builder().build();
        let first = with("redis://a", "x:");
        for other in [&none, &with("redis://b", "x:"), &with("redis://a", "y:")] {
            let error = other.check_store_stays(&first).unwrap_err();
            assert!(error.to_string().contains("restart the program"), "{error}");
            assert!(first.check_store_stays(other).is_err());
        }
        assert!(with("redis://a", "x:").check_store_stays(&first).is_ok());
    }

    #[test]
    fn calls_of_shared_limits_take_the_slow_path() {
        use crate::limit::Limit;
        use crate::store::key::Quick;

        let limit = || Limit::new(2, 1, Duration::from_secs(1)).unwrap();
        let limits = |shared| {
            let options = LimitOptions::default().shared(shared);
            let builder = Limits::builder().limit_with("A", IdFormat::String, limit(), options);
            builder.unwrap().build().in_generation(3, None)
        };
        for shared in [Shared::Local, Shared::Leased, Shared::Exact] {
            let limits = limits(shared);
            let entry = limits.entry(limits.index_of("A").unwrap());
            assert_eq!(entry.shared(), shared);
            let is_local = shared == Shared::Local;
            assert_eq!(entry.quick != Quick::NEVER, is_local, "{shared}");
            assert_eq!(entry.quick_default.tag != Quick::NEVER, is_local, "{shared}");
        }
        for (from, to) in [(Shared::Local, Shared::Exact), (Shared::Exact, Shared::Local)] {
            let limits = limits(from).share_all(to);
            assert_eq!(limits.entry(limits.index_of("A").unwrap()).shared(), to, "from {from}");
        }
        // A reload that changes where the buckets are, or the store, changes the limits.
        let exact = limits(Shared::Exact);
        assert!(exact.is_same_as(&limits(Shared::Exact)));
        assert!(!exact.is_same_as(&limits(Shared::Leased)));
        let mut with_store = exact.clone();
        with_store.store = Some(StoreOptions::new("redis://h").unwrap());
        assert!(!exact.is_same_as(&with_store));
    }
}
