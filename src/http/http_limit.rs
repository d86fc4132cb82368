//! Puts a limit in front of a server that is not built on tower.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue};

use crate::decision::Decision;
use crate::error::Error;
use crate::http::policies::PolicyCache;
use crate::http::{Answer, Fields, Jitter, QuotaUnit, SetupError};
use crate::limiter::handle::KeyedLimit;
use crate::limits::Id;

/// No cache may store a denial (RFC 6585, 4; RFC 9111, 5.2.2.5) or a rejection, because both concern one client.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A limit whose decisions come with the header fields of the response, for a server that is not built on tower.
///
/// The fields tell the limit that applies to the id now: its override if it has one, the new limit after a reload. A limit in
/// shadow mode writes no field. A server with tower takes [`RateLimitLayer`] in place of this.
///
#[cfg_attr(feature = "tower", doc = "[`RateLimitLayer`]: crate::http::RateLimitLayer")]
#[cfg_attr(not(feature = "tower"), doc = "[`RateLimitLayer`]: crate#features")]
///
/// # Example: a denial without a framework
///
/// ```
/// use std::net::IpAddr;
/// use std::time::Duration;
/// use tollgate::http::{ClientAddress, Fields, HttpLimit, Style};
/// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
/// let limiter = Limiter::with_options(limits, Clock::manual().0)?;
/// let per_client = HttpLimit::new(limiter.limit("PerClient")?, Fields::new([Style::Ietf])?);
/// let clients = ClientAddress::new();
///
/// let peer = IpAddr::from([192, 0, 2, 7]);
/// let client = clients.find_by(Some(peer), |_field| ["of the request"])?;
/// assert!(per_client.spend(client, 1)?.allowed());
/// let denied = per_client.spend(client, 1)?;
/// assert!(!denied.allowed());
/// let mut fields: Vec<_> = denied.fields().collect();
/// fields.sort_unstable();
/// assert_eq!(fields, [
///     ("cache-control", "no-store"),
///     ("ratelimit", r#""PerClient";r=0;t=60"#),
///     ("ratelimit-policy", r#""PerClient";q=1;w=60"#),
///     ("retry-after", "60"),
/// ]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HttpLimit {
    limit: KeyedLimit,
    fields: Fields,
    policies: PolicyCache,
    unit: QuotaUnit,
    jitter: Option<Jitter>,
}

impl HttpLimit {
    /// Makes the limit, whose responses get these fields.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::http::{Fields, HttpLimit, Style};
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::new(limits);
    /// let per_user = HttpLimit::new(limiter.limit("PerUser")?, Fields::new([Style::Ietf])?);
    /// # assert!(format!("{per_user:?}").contains("PerUser"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(limit: KeyedLimit, fields: Fields) -> HttpLimit {
        let policies = PolicyCache::with_limits_name(limit.name());
        HttpLimit { limit, fields, policies, unit: QuotaUnit::default(), jitter: None }
    }

    /// Sets the name that clients see. The default is the limit's name.
    ///
    /// # Errors
    ///
    /// The name is empty, longer than 128 bytes, or contains a character other than printable ASCII.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::http::{Fields, HttpLimit, Style};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let fields = Fields::new([Style::Ietf])?;
    /// let per_user = HttpLimit::new(limiter.limit("PerUser")?, fields).shown_as("requests")?;
    /// assert_eq!(per_user.spend("alice", 1)?.headers()["ratelimit"], r#""requests";r=19;t=1"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shown_as(self, name: &str) -> Result<HttpLimit, SetupError> {
        Ok(HttpLimit { policies: PolicyCache::new(name)?.counting_in(self.unit), ..self })
    }

    /// Sets the unit in which the limit counts, by default requests.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::http::{Fields, HttpLimit, QuotaUnit, Style};
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(2_000, 1_000, Duration::from_secs(1))?;
    /// # let limits = Limits::builder().limit("Upload", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::new(limits);
    /// # let fields = Fields::new([Style::Ietf])?;
    /// let upload = HttpLimit::new(limiter.limit("Upload")?, fields).unit(QuotaUnit::ContentBytes);
    /// let policy = r#""Upload";q=2000;qu="content-bytes";w=2"#;
    /// assert_eq!(upload.spend("alice", 512)?.headers()["ratelimit-policy"], policy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unit(self, unit: QuotaUnit) -> HttpLimit {
        HttpLimit { policies: self.policies.counting_in(unit), unit, ..self }
    }

    /// Makes the wait of each denial longer by a random time. [`Jitter`] has an example.
    pub fn retry_jitter(self, jitter: Jitter) -> HttpLimit {
        HttpLimit { jitter: Some(jitter), ..self }
    }

    /// Spends `cost` units if the bucket has them, and writes the fields of the response.
    ///
    /// # Errors
    ///
    /// Those of [`KeyedLimit::spend`]. None of them charges the bucket. Answer 400 if the client has chosen the id, and 500
    /// otherwise.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::http::{Fields, HttpLimit, Style};
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::new(limits);
    /// # let per_user = HttpLimit::new(limiter.limit("PerUser")?, Fields::new([Style::Ietf])?);
    /// assert!(per_user.spend("alice", 1)?.allowed());
    /// assert!(per_user.spend("alice", 21).is_err(), "above the burst");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spend<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Result<HttpDecision, Error> {
        let id = id.into();
        let mut decision = self.limit.spend(id, cost)?;
        if let Some(jitter) = self.jitter.as_ref().filter(|_| !decision.allowed()) {
            decision = decision.waiting_longer(jitter.next());
        }
        let mut headers = HeaderMap::new();
        if !decision.allowed() {
            headers.insert(CACHE_CONTROL, NO_STORE);
        }
        let now = if self.fields.needs_time() { SystemTime::now() } else { UNIX_EPOCH };
        let written = self.limit.with_enforced(id, |limit| {
            let policy = self.policies.find(limit)?;
            let answer = Answer::one(self.policies.get(&policy)?, decision);
            self.fields.write(&mut headers, &answer, now);
            Some(())
        })?;
        if written.is_none() {
            // No limit is enforced for the id. If a reload has switched it off since a denial, the client waits as the decision
            // says.
            Fields::none().write(&mut headers, &Answer::new(decision, &[]), now);
        }
        Ok(HttpDecision { decision, headers })
    }
}

impl fmt::Debug for HttpLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLimit")
            .field("limit", &self.policies.name())
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// The decision of an [`HttpLimit`], with the header fields of the response.
///
/// # Example: the fields of an allowed request
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::http::{Fields, HttpLimit, Reset, Style};
/// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
/// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
/// let style = Style::XRateLimit(Reset::Delta);
/// let per_user = HttpLimit::new(limiter.limit("PerUser")?, Fields::new([style])?);
/// let decision = per_user.spend("alice", 5)?;
/// assert_eq!(decision.decision().remaining(), Some(15));
/// assert!(decision.fields().any(|field| field == ("x-ratelimit-remaining", "15")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct HttpDecision {
    decision: Decision,
    headers: HeaderMap,
}

impl HttpDecision {
    /// Returns whether the limit allows the request. A denied one gets the status 429.
    pub fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// Returns the decision.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns the names and values of the fields, for the header types of any framework. A denial has `Retry-After`
    /// and `Cache-Control: no-store` among them. Each name occurs once, and replaces a field of that name.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        // All values are printable ASCII, and therefore text.
        self.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }

    /// Returns the [fields](HttpDecision::fields) in the type of the crate `http`, version 1.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::http::{Fields, HttpLimit, Style};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let per_user = HttpLimit::new(limiter.limit("PerUser")?, Fields::new([Style::Ietf])?);
    /// let decision = per_user.spend("alice", 1)?;
    /// let mut response = http::Response::new("hello");
    /// response.headers_mut().extend(decision.headers().clone());
    /// assert_eq!(response.headers()["ratelimit"], r#""PerUser";r=19;t=1"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}
