//! Describes a limit as header fields do: its name, quota and window.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;

use crate::algorithm::rule::Rule;
use crate::http::SetupError;
use crate::http::structured::{
    INTEGER_MAX, PARTITION, is_string, push_bytes_parameter, push_integer, push_parameter,
    push_string, separate,
};
use crate::http::text::{number, shared, value_of};
use crate::limit::{Limit, Parameters};
use crate::util::escape::quoted;

const QUOTA: &str = ";q=";
const WINDOW: &str = ";w=";
const UNIT: &str = ";qu=";

/// Limits the length of fields.
const NAME_MAX_BYTES: usize = 128;

/// A limit as header fields describe it: its name, quota and window, with the field values that depend on nothing else.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
/// use tollgate::http::Policy;
///
/// // A burst of 20, and 10 every 1.5 s: an empty bucket is full again after 3 s.
/// let policy = Policy::new("PerUser", &Limit::new(20, 10, Duration::from_millis(1500))?)?;
/// assert_eq!((policy.quota(), policy.window_seconds()), (20, Some(3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Policy {
    pub(crate) figures: Figures,
    pub(crate) values: Values,
    /// The algorithm, for the time of the next unit.
    pub(crate) rule: Rule,
}

/// The unit in which a limit counts: `qu` of the current draft's `RateLimit-Policy`. No other style has it.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
/// use tollgate::http::{Policy, QuotaUnit};
///
/// let limit = Limit::new(1_000_000, 100_000, Duration::from_secs(1))?;
/// let policy = Policy::new("Upload", &limit)?.unit(QuotaUnit::ContentBytes);
/// # let _ = policy;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// `requests`, the default, which the field leaves out.
    #[default]
    Requests,
    /// `content-bytes`: bytes of the content of requests or responses.
    ContentBytes,
    /// `concurrent-requests`: requests that are under way, as a rule [in flight](crate::http::Rule::in_flight) counts them.
    ConcurrentRequests,
}

impl QuotaUnit {
    /// Returns the draft's name. `None` for the default.
    fn written(self) -> Option<&'static str> {
        match self {
            QuotaUnit::Requests => None,
            QuotaUnit::ContentBytes => Some("content-bytes"),
            QuotaUnit::ConcurrentRequests => Some("concurrent-requests"),
        }
    }
}

/// A limit's name and numbers as clients see them.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    name: Box<str>,
    /// The name as the string of a structured field: in quotes, escaped.
    pub(crate) name_text: Box<str>,
    /// The largest number of units that can remain.
    quota: u64,
    unit: QuotaUnit,
    /// The seconds in which the quota comes back. `None` for a limit of concurrency and for a custom algorithm.
    window_s: Option<u64>,
    /// The burst of a token bucket, which only PlugLimit's style writes.
    pub(crate) token_burst: Option<u64>,
    /// The units that the client's calls must leave, which are in none of the numbers.
    pub(crate) floor: u64,
}

/// Field values that depend only on the policy. Their clones share the storage.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// `RateLimit-Policy` of the current draft.
    pub(crate) ietf: HeaderValue,
    /// `RateLimit-Policy` of the drafts 04 to 06.
    pub(crate) draft06: HeaderValue,
    /// `RateLimit-Limit` of the drafts 00 to 03.
    pub(crate) draft03: HeaderValue,
    /// The quota, as the limit's field of the other styles.
    pub(crate) quota: HeaderValue,
    /// The limit's field of PlugLimit.
    pub(crate) plug_limit: HeaderValue,
}

/// Returns the whole seconds in which `units` come back at `count` per `period`, rounded up. At least 1.
fn refill_seconds(units: u64, count: u64, period: Duration) -> u64 {
    const NS_PER_S: u128 = 1_000_000_000;
    // A period is below 2^94 ns. Products beyond 128 bits and results beyond 64 bits saturate: no field has as many
    // digits.
    let time_ns = u128::from(units).saturating_mul(period.as_nanos());
    let time_s = time_ns.div_ceil(u128::from(count.max(1)) * NS_PER_S);
    u64::try_from(time_s).unwrap_or(u64::MAX).max(1)
}

impl Policy {
    /// Describes `limit` under the name that clients see.
    ///
    /// # Errors
    ///
    /// The name is empty, longer than 128 bytes, or contains a character other than printable ASCII. Quotes and
    /// backslashes are allowed; fields escape them.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, http::Policy};
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// assert_eq!(Policy::new("PerUser", &limit)?.name(), "PerUser");
    /// assert!(Policy::new("per user, für alle", &limit).is_err(), "not ASCII");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(name: &str, limit: &Limit) -> Result<Policy, SetupError> {
        Policy::leaving(name, limit, 0)
    }

    /// Describes `limit` to clients whose calls must leave `floor` units: their quota is the rest.
    pub(crate) fn leaving(name: &str, limit: &Limit, floor: u64) -> Result<Policy, SetupError> {
        Policy::check_name(name)?;
        let figures = Figures::new(name, limit, floor);
        // A text of printable ASCII and numbers is always a field value.
        let values = figures.values().ok_or_else(|| invalid_name(name))?;
        Ok(Policy { figures, values, rule: limit.rule().clone() })
    }

    /// Sets the unit in which the limit counts, by default requests.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, Policy, QuotaUnit, Style};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(1_000_000, 100_000, Duration::from_secs(1))?;
    /// let policy = Policy::new("Upload", &limit)?.unit(QuotaUnit::ContentBytes);
    /// let decision = Bucket::new(limit, Clock::manual().0).spend(4_096)?;
    /// let mut headers = http::HeaderMap::new();
    /// Fields::new([Style::Ietf])?.write(&mut headers, &Answer::one(&policy, decision), SystemTime::now());
    /// assert_eq!(headers["ratelimit-policy"], r#""Upload";q=1000000;qu="content-bytes";w=10"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unit(mut self, unit: QuotaUnit) -> Policy {
        self.figures.unit = unit;
        // The text stays printable ASCII, so it is a field value.
        if let Some(values) = self.figures.values() {
            self.values = values;
        }
        self
    }

    /// Checks that a string of a structured field can have this name.
    pub(crate) fn check_name(name: &str) -> Result<(), SetupError> {
        let is_valid = (1..=NAME_MAX_BYTES).contains(&name.len()) && is_string(name);
        if is_valid { Ok(()) } else { Err(invalid_name(name)) }
    }

    /// Returns the name that clients see.
    pub fn name(&self) -> &str {
        &self.figures.name
    }

    /// Returns the largest number of units that can remain: the burst of gcra, the limit of a fixed window or of a
    /// token bucket, the size of a leaky bucket, the `max` of concurrency, the largest cost of a custom algorithm. An empty
    /// bucket regains it within the [window](Policy::window_seconds). It is `q` of the current draft and the limit of the other
    /// styles. At most 999,999,999,999,999, the largest integer of a structured field.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, http::Policy};
    /// let policy = Policy::new("PerUser", &Limit::new(20, 10, Duration::from_secs(1))?)?;
    /// assert_eq!(policy.quota(), 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quota(&self) -> u64 {
        self.figures.quota
    }

    /// Returns the time in which the quota comes back, in whole seconds, rounded up, at least 1: for gcra
    /// `burst * period / count`, else the window's length, or the time in which a full leaky bucket runs empty. `None`
    /// for a limit of concurrency and for a custom algorithm.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limit, http::Policy};
    /// let policy = Policy::new("PerUser", &Limit::fixed_window(100, Duration::from_millis(1_500))?)?;
    /// assert_eq!(policy.window_seconds(), Some(2)); // rounded up
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn window_seconds(&self) -> Option<u64> {
        self.figures.window_s
    }
}

fn invalid_name(name: &str) -> SetupError {
    SetupError::new(format!(
        "invalid policy name {}: 1 to {NAME_MAX_BYTES} printable characters of ASCII are allowed",
        quoted(name, 64)
    ))
}

impl Figures {
    /// Derives the quota and the window from the numbers of each algorithm.
    fn new(name: &str, limit: &Limit, floor: u64) -> Figures {
        let mut token_burst = None;
        let rest_of = |units: u64| units.saturating_sub(floor);
        let (quota, window_s) = match limit.parameters() {
            Parameters::Gcra { burst, count, period } => {
                let quota = rest_of(burst);
                (quota, Some(refill_seconds(quota, count, period)))
            }
            Parameters::FixedWindow { limit, window } => {
                (rest_of(limit), Some(refill_seconds(1, 1, window)))
            }
            Parameters::TokenBucket { limit, window, burst } => {
                token_burst = Some(rest_of(burst));
                (rest_of(limit), Some(refill_seconds(1, 1, window)))
            }
            Parameters::LeakyBucket { size, drip_rate, drip_size } => {
                // A drip never takes more than the bucket holds.
                let quota = rest_of(size);
                (quota, Some(refill_seconds(quota, drip_size.min(size), drip_rate)))
            }
            // When a permit comes back is not known.
            Parameters::Concurrency { max, .. } => (rest_of(max), None),
            // A custom algorithm has a largest cost, but no known refill time.
            Parameters::Custom(_) => (rest_of(limit.burst()), None),
        };
        let mut name_text = String::new();
        push_string(&mut name_text, name);
        Figures {
            name: name.into(),
            name_text: name_text.into(),
            quota: quota.min(INTEGER_MAX),
            unit: QuotaUnit::default(),
            window_s,
            token_burst,
            floor,
        }
    }

    fn values(&self) -> Option<Values> {
        let ietf = value_of(|text| self.add_ietf(text, None))?;
        let draft06 = value_of(|text| self.add_unnamed(text))?;
        let draft03 = value_of(|text| {
            push_integer(text, self.quota);
            self.add_unnamed(text);
        })?;
        let quota = number(self.quota)?;
        let plug_limit = self.plug_limit(&quota)?;
        Some(Values {
            ietf: shared(ietf),
            draft06: shared(draft06),
            draft03: shared(draft03),
            quota: shared(quota),
            plug_limit: shared(plug_limit),
        })
    }

    /// Appends the policy to a list of the current draft.
    pub(crate) fn add_ietf(&self, list: &mut String, partition: Option<&[u8]>) {
        separate(list);
        list.push_str(&self.name_text);
        push_parameter(list, QUOTA, self.quota);
        if let Some(unit) = self.unit.written() {
            list.push_str(UNIT);
            push_string(list, unit);
        }
        if let Some(window_s) = self.window_s {
            push_parameter(list, WINDOW, window_s);
        }
        if let Some(key) = partition {
            push_bytes_parameter(list, PARTITION, key);
        }
    }

    /// Appends the policy to a list of the older drafts.
    pub(crate) fn add_unnamed(&self, list: &mut String) {
        separate(list);
        push_integer(list, self.quota);
        if let Some(window_s) = self.window_s {
            push_parameter(list, WINDOW, window_s);
        }
    }

    /// Returns the value of PlugLimit's limit field: the quota, and for a token bucket a list whose items are separated
    /// by a space, as PlugLimit writes it.
    fn plug_limit(&self, number: &HeaderValue) -> Option<HeaderValue> {
        let (Some(burst), Some(window_s), quota) = (self.token_burst, self.window_s, self.quota)
        else {
            return Some(number.clone());
        };
        value_of(|text| {
            text.push_str(&format!(
                "{quota} {quota};w={window_s};burst={burst};policy=token_bucket"
            ));
        })
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name())
            .field("quota", &self.quota())
            .field("window_seconds", &self.window_seconds())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gcra_has_its_burst_and_refill_time() {
        let limit = Limit::new(20, 10, Duration::from_nanos(1_000_000_001)).unwrap();
        let policy = Policy::new("a", &limit).unwrap();
        assert_eq!(policy.values.ietf, r#""a";q=20;w=3"#);
        assert_eq!(policy.values.draft06, "20;w=3");
        assert_eq!(policy.values.draft03, "20, 20;w=3");
        assert_eq!(policy.values.quota, "20");
        assert_eq!(policy.values.plug_limit, "20");
        // A window below a second is written as one second.
        let fast = Limit::new(5, 1_000, Duration::from_secs(1)).unwrap();
        assert_eq!(Policy::new("a", &fast).unwrap().values.ietf, r#""a";q=5;w=1"#);
    }

    #[test]
    fn a_token_bucket_has_pluglimits_own_text() {
        let minute = Duration::from_secs(60);
        let policy = |limit: Limit| Policy::new("n", &limit).unwrap();
        let bucket = policy(Limit::token_bucket(5, 10, minute).unwrap());
        assert_eq!(bucket.values.plug_limit, "10 10;w=60;burst=5;policy=token_bucket");
        assert_eq!(bucket.values.ietf, r#""n";q=10;w=60"#);
        assert_eq!(bucket.quota(), 10, "the window's quota, not the burst");
        let window = policy(Limit::fixed_window(10, minute).unwrap());
        assert_eq!(window.values.plug_limit, "10");
        assert_eq!(window.values.draft06, "10;w=60");
        assert_eq!(window.values.ietf, r#""n";q=10;w=60"#);
        let leaky = policy(Limit::leaky_bucket(10, 2, Duration::from_millis(250)).unwrap());
        assert_eq!(leaky.values.ietf, r#""n";q=10;w=2"#, "5 drips of 2, one each 250 ms");
        let large_drip = policy(Limit::leaky_bucket(4, 10, Duration::from_secs(2)).unwrap());
        assert_eq!(large_drip.values.ietf, r#""n";q=4;w=2"#, "4 every 2 s, not 10");
    }

    #[test]
    fn a_name_is_escaped_or_refused() {
        let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
        let policy = Policy::new(r#"a "b" \c"#, &limit).unwrap();
        assert_eq!(policy.values.ietf, r#""a \"b\" \\c";q=1;w=1"#);
        for name in ["", "a\r\nSet-Cookie: b", "caf\u{e9}", "\u{7f}", &"x".repeat(129)] {
            let error = Policy::new(name, &limit).unwrap_err().to_string();
            assert!(error.starts_with("invalid policy name"), "{error}");
            assert!(error.len() < 300 && !error.chars().any(char::is_control), "{error}");
        }
    }

    #[test]
    fn numbers_beyond_15_digits_saturate() {
        let limit = Limit::new(1 << 62, 1, Duration::from_nanos(1)).unwrap();
        let policy = Policy::new("a", &limit).unwrap();
        assert_eq!(policy.values.ietf, r#""a";q=999999999999999;w=4611686019"#);
        assert_eq!(policy.values.quota, "999999999999999");
        assert_eq!(refill_seconds(u64::MAX, 1, Duration::MAX), u64::MAX);
        assert_eq!(refill_seconds(1, u64::MAX, Duration::from_nanos(1)), 1);
    }
}
