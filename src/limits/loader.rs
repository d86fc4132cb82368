//! The options with which limits are read, and what code adds to them.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::algorithm::Algorithm;
use crate::error::Error;
use crate::limits::read::{AlgorithmFields, Names, ReadOptions};
use crate::limits::{Limits, LimitsBuilder};

type AddCode = dyn Fn(LimitsBuilder) -> Result<LimitsBuilder, Error> + Send + Sync;

/// Reads limits from files of YAML or from sections of a configuration with options, and joins them with limits that are
/// made in code. Without options it does the same as [`Limits::from_yaml_files`] and its siblings.
///
/// A load has three steps: the limits of [`before`](Loader::before), then the files or the section, then
/// [`after`](Loader::after). Each step may give overrides of the limits of those before it. A limit's default is given
/// once in all, and so is each override. The result is one [`Limits`], so that a batch may take limits of all three
/// steps.
///
/// # Example: limits of a file and of code in one batch
///
/// ```
/// # #[cfg(feature = "yaml")] {
/// use std::time::Duration;
/// use tollgate::limits::Loader;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let second = Duration::from_secs(1);
/// let in_code = Limits::builder().limit("PerTenant", IdFormat::Integer, Limit::new(50, 50, second)?)?.build();
/// let loader = Loader::new()
///     .before(in_code) // the file may have overrides for tenants
///     .after(move |limits| limits.override_id("PerUser", "probe", Limit::new(1000, 1000, second)?));
///
/// let limits = loader.text(
///     "PerUser: {burst: 20, count: 10, period: 1s, id: string}\n\
///      PerTenant:7: {burst: 500, count: 500, period: 1s}\n",
/// )?;
/// let limiter = Limiter::new(limits);
/// let (tenants, users) = (limiter.limit("PerTenant")?, limiter.limit("PerUser")?);
/// let both = [tenants.member(7).cost(400), users.member("probe").cost(400)];
/// assert!(limiter.batch(&both).spend()?.allowed());
/// # }
/// # Ok::<(), tollgate::Error>(())
/// ```
#[cfg_attr(not(feature = "yaml"), doc = "", doc = "[`Limits::from_yaml_files`]: crate#features")]
#[derive(Clone, Default)]
#[must_use]
pub struct Loader {
    options: ReadOptions,
    valid_at: Option<SystemTime>,
    before: Option<Arc<Limits>>,
    after: Option<Arc<AddCode>>,
}

impl Loader {
    /// Returns a loader without options.
    pub fn new() -> Loader {
        Loader::default()
    }

    /// Sets whether overrides of Boulder's limits may have addresses and networks in private, reserved and
    /// documentation blocks, such as `10.0.0.2` and `2001:db8::/48`. All other rules for ids stay, such as that for the
    /// canonical form. Custom limits always accept such ids. Default: no, as in Boulder.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(all(feature = "boulder", feature = "yaml"))] {
    /// # use tollgate::limits::Loader;
    /// let text = "NewRegistrationsPerIPAddress: {burst: 20, count: 20, period: 1s}\n\
    ///             NewRegistrationsPerIPAddress:10.0.0.2: {burst: 40, count: 20, period: 1s}\n";
    /// assert!(Loader::new().text(text).unwrap_err().to_string().contains("reserved address block"));
    /// assert!(Loader::new().allow_reserved(true).text(text).is_ok());
    /// # }
    /// ```
    pub fn allow_reserved(mut self, allow: bool) -> Loader {
        self.options.allow_reserved = allow;
        self
    }

    /// Reads the limits as of a time: overrides that have ended by then are left out, and the others do not end. Default:
    /// each override ends at its time. See [`Limits::valid_at`].
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "yaml")] {
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tollgate::limits::Loader;
    ///
    /// let text = "PerUser: {burst: 20, count: 10, period: 1s, id: string}\n\
    ///             PerUser:alice: {burst: 40, count: 10, period: 1s, expires: 2026-12-31}\n";
    /// let new_year = UNIX_EPOCH + Duration::from_secs(1_798_761_600); // 2027-01-01T00:00:00Z
    /// let overrides = |time| Loader::new().valid_at(time).text(text).map(|limits| limits.overrides());
    /// assert_eq!(overrides(new_year - Duration::from_secs(1))?, 1);
    /// assert_eq!(overrides(new_year)?, 0);
    /// # }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn valid_at(self, time: SystemTime) -> Loader {
        Loader { valid_at: Some(time), ..self }
    }

    /// Registers a custom algorithm: a limit with `algorithm: <name>` gets the algorithm that `make` makes of the
    /// entry's other fields. Overrides and the shadow of such a limit have the same fields.
    ///
    /// The [name](Algorithm::name) of the algorithm itself must be `name`. `make` runs once for equal fields, as long as
    /// some limits have what it made: a reload of such a limit changes nothing. It must depend on the fields alone. The
    /// command `tollgate` knows no custom algorithms.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] if the name is a built-in algorithm's, was registered before, or does not match
    /// `[A-Za-z][A-Za-z0-9_.-]*` in at most 128 characters.
    ///
    /// # Example: one unit, then none until a gap has passed
    ///
    /// ```
    /// # #[cfg(feature = "yaml")] {
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tollgate::algorithm::{Algorithm, Outcome};
    /// use tollgate::limits::Loader;
    /// use tollgate::{Decision, Limiter};
    ///
    /// /// The word is the time at which the next unit may be spent.
    /// #[derive(Debug)]
    /// struct Spaced {
    ///     gap: Duration,
    /// }
    ///
    /// impl Algorithm for Spaced {
    ///     fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
    ///         let wait = Duration::from_nanos(word.saturating_sub(now_ns));
    ///         let allowed = cost == 0 || wait.is_zero();
    ///         if cost == 0 || !allowed {
    ///             let remaining = u64::from(wait.is_zero());
    ///             return Outcome { word: None, decision: Decision::for_spend(allowed, remaining, wait, wait) };
    ///         }
    ///         let word = now_ns + self.gap.as_nanos() as u64;
    ///         Outcome { word: Some(word), decision: Decision::for_spend(true, 0, self.gap, self.gap) }
    ///     }
    ///     fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
    ///         // ...
    /// #       let refunded = cost > 0 && word > now_ns;
    /// #       let left_ns = if refunded { 0 } else { word.saturating_sub(now_ns) };
    /// #       let decision = Decision::for_refund(refunded, u64::from(left_ns == 0), Duration::from_nanos(left_ns));
    /// #       Outcome { word: refunded.then_some(now_ns), decision }
    ///     }
    ///     fn is_full(&self, word: u64, now_ns: u64) -> bool {
    ///         word <= now_ns
    ///     }
    ///     fn full(&self, now_ns: u64) -> u64 {
    ///         now_ns
    ///     }
    ///     fn max_cost(&self) -> u64 {
    ///         1
    ///     }
    ///     fn name(&self) -> &'static str {
    ///         "spaced"
    ///     }
    /// }
    ///
    /// let loader = Loader::new()
    ///     .algorithm("spaced", |fields| Ok(Arc::new(Spaced { gap: fields.duration("gap")? })))?;
    /// let limits = loader.text(
    ///     "Mails: {algorithm: spaced, gap: 10s, id: string}\n\
    ///      Mails:alice: {gap: 1s}\n",
    /// )?;
    /// let mails = Limiter::new(limits).limit("Mails")?;
    /// assert_eq!(mails.spend("alice", 1)?.reset_in(), Duration::from_secs(1));
    /// assert_eq!(mails.spend("bob", 1)?.reset_in(), Duration::from_secs(10));
    ///
    /// let error = loader.text("Mails: {algorithm: spaced, gap: 10, id: string}").unwrap_err();
    /// assert!(error.to_string().starts_with("<text>:1: Mails.gap: invalid gap \"10\": missing unit"));
    /// # }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn algorithm<F>(mut self, name: &str, make: F) -> Result<Loader, Error>
    where
        F: Fn(&mut AlgorithmFields<'_>) -> Result<Arc<dyn Algorithm>, Error>
            + Send
            + Sync
            + 'static,
    {
        self.options.algorithms.register(name, Box::new(make))?;
        Ok(self)
    }

    /// Sets limits that come before those that are read, which may have overrides for them. Default: none.
    ///
    /// See the [example](Loader#example-limits-of-a-file-and-of-code-in-one-batch).
    pub fn before(self, limits: Limits) -> Loader {
        Loader { before: Some(Arc::new(limits)), ..self }
    }

    /// Sets a function that adds limits and overrides to those that were read. It runs in every load, also in those of a
    /// watcher, unless the files have faults. Default: none.
    ///
    /// See the [example](Loader#example-limits-of-a-file-and-of-code-in-one-batch).
    pub fn after(
        self,
        add: impl Fn(LimitsBuilder) -> Result<LimitsBuilder, Error> + Send + Sync + 'static,
    ) -> Loader {
        Loader { after: Some(Arc::new(add)), ..self }
    }

    /// Returns the limits that a load begins with.
    pub(super) fn begin(&self) -> LimitsBuilder {
        let before = self.before.as_deref().cloned();
        before.map_or_else(Limits::builder, LimitsBuilder::from_limits)
    }

    /// Returns the names that the files of a load know at its begin.
    pub(super) fn names(&self, builder: &LimitsBuilder) -> Names {
        Names::new(builder, &self.options)
    }

    /// Returns the limits of a load that has read everything.
    pub(super) fn finish(&self, builder: LimitsBuilder) -> Result<Limits, Error> {
        let builder = match &self.after {
            Some(add) => add(builder)?,
            None => builder,
        };
        let limits = builder.build();
        Ok(match self.valid_at {
            Some(time) => limits.valid_at(time),
            None => limits,
        })
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("allow_reserved", &self.options.allow_reserved)
            .field("algorithms", &self.options.algorithms)
            .field("valid_at", &self.valid_at)
            .field("before", &self.before.is_some())
            .field("after", &self.after.is_some())
            .finish()
    }
}
