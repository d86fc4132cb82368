//! The constructor of a limit that counts what is in flight.

use std::time::Duration;

use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::rule::Rule;
use crate::error::Error;
use crate::limit::{Limit, LimitFault, duration_ns, to_error};

impl Limit {
    /// What a denial tells the caller to wait if the limit does not say: 1 s.
    pub(crate) const RETRY_AFTER_NS: u64 = 1_000_000_000;

    /// Makes a concurrency limit: at most `max` permits of an id are out at once. A permit goes back when its holder
    /// drops it, and can be had again at once. Nothing refills by time.
    ///
    /// Its handle is [`Limiter::concurrency`](crate::Limiter::concurrency). A denial says that a permit may be there in 1 s,
    /// or in the time of [`retry_after`](Limit::retry_after).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if `max` is not from 1 to 16777215.
    ///
    /// # Example: two streams at once
    ///
    /// ```
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limits = Limits::builder().limit("Streams", IdFormat::String, Limit::concurrency(2)?)?.build();
    /// let streams = Limiter::new(limits).concurrency("Streams")?;
    /// let (_, first) = streams.acquire("alice", 1)?;
    /// let (_, second) = streams.acquire("alice", 1)?;
    /// let (denied, none) = streams.acquire("alice", 1)?;
    /// assert!(!denied.allowed() && none.is_none());
    /// drop(first);
    /// assert!(streams.acquire("alice", 1)?.0.allowed());
    /// # drop(second);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn concurrency(max: u64) -> Result<Limit, Error> {
        to_error(Limit::validate_concurrency(max, Limit::RETRY_AFTER_NS))
    }

    /// Sets what a denial of a [`concurrency`](Limit::concurrency) limit tells the caller to wait. When a permit comes back is not
    /// known, so this is a guess: about the time that a call takes.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if the limit is of another algorithm, or if `time` is not from 1 ns to 2^62 ns.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Limit;
    ///
    /// let limit = Limit::concurrency(4)?.retry_after(Duration::from_millis(250))?;
    /// assert_eq!(limit.to_string(), "concurrency: max 4, retry_after 250ms");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn retry_after(self, time: Duration) -> Result<Limit, Error> {
        let retry_after_ns = duration_ns("retry_after", time)?;
        to_error(match self.rule {
            Rule::Concurrency(rule) => Limit::validate_concurrency(rule.max.into(), retry_after_ns),
            other => Err(LimitFault {
                field: "retry_after",
                message: format!("invalid retry_after: {} knows when units come", other.name()),
            }),
        })
    }

    pub(crate) fn validate_concurrency(max: u64, retry_after_ns: u64) -> Result<Limit, LimitFault> {
        let fault = |field, why: String| {
            Err(LimitFault { field, message: format!("invalid {field} {why}") })
        };
        if max == 0 || max > Concurrency::MOST {
            let most = Concurrency::MOST;
            return fault("max", format!("{max}: 1 to {most} is allowed"));
        }
        if retry_after_ns == 0 || u128::from(retry_after_ns) > Limit::MAX_BURST_OFFSET_NS {
            let given = Duration::from_nanos(retry_after_ns);
            return fault(
                "retry_after",
                format!("{given:?}: 1ns to 2^62 ns (146 years) is allowed"),
            );
        }
        Ok(Limit {
            max_cost: max,
            count: max,
            period_ns: retry_after_ns,
            rule: Rule::Concurrency(Concurrency { max: max as u32, retry_after_ns }),
        })
    }

    /// The same limit with another `max`, from 0 to the most permits that a bucket counts. The largest cost of a call stays.
    pub(crate) fn with_max(&self, max: u64) -> Limit {
        let rule = match self.rule {
            Rule::Concurrency(rule) => {
                Rule::Concurrency(Concurrency { max: max.min(Concurrency::MOST) as u32, ..rule })
            }
            ref other => other.clone(),
        };
        Limit { rule, ..*self }
    }
}
