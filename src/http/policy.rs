//! What a field says of a limit.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use sfv::{KeyRef, ListSerializer, StringRef, key_ref};

use crate::http::SetupError;
use crate::http::text::{INTEGER_MAX, integer, number, shared, value_of};
use crate::limit::{Limit, Parameters};

const QUOTA: &KeyRef = key_ref("q");
const WINDOW: &KeyRef = key_ref("w");
const PARTITION: &KeyRef = key_ref("pk");

/// The longest name: a field stays short.
const NAME_MAX_BYTES: usize = 128;

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The generic cell rate algorithm: a burst, and a steady rate.
    Gcra,
    /// PlugLimit's fixed window: a quota in each window.
    FixedWindow,
    /// PlugLimit's token bucket: a burst, a steady rate, and a quota in each window.
    TokenBucket,
    /// Sharkey's leaky bucket: a size, and drips.
    LeakyBucket,
    /// A rule of the user's own.
    Own,
}

/// A limit as fields describe it: its name and numbers, and the values that never change, made once.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
/// use tollgate::http::Policy;
///
/// // 20 at once, then 10 every 1.5 s: 20 come back in 3 s.
/// let policy = Policy::new("PerUser", &Limit::new(20, 10, Duration::from_millis(1500))?)?;
/// assert_eq!((policy.quota(), policy.window_seconds()), (20, Some(3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Policy {
    name: sfv::String,
    figures: Figures,
    values: Values,
}

/// What a limit's numbers are to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    kind: Kind,
    /// The most that can remain.
    quota: u64,
    /// In how many seconds the quota comes back. `None`: not known.
    window_s: Option<u64>,
    /// PlugLimit's token bucket alone says it, in its own style.
    burst: u64,
}

/// Values that depend on nothing but the limit. Their clones share them.
#[derive(Clone, Debug)]
struct Values {
    ietf: HeaderValue,
    draft06: HeaderValue,
    draft03: HeaderValue,
    quota: HeaderValue,
    plug_limit: HeaderValue,
}

/// The one place that knows what a limit is made of.
fn figures(limit: &Limit) -> Figures {
    let (kind, quota, window_s) = match limit.parameters() {
        Parameters::Gcra { burst, count, period } => {
            (Kind::Gcra, burst, Some(refill_seconds(burst, count, period)))
        }
        Parameters::FixedWindow { limit, window } => {
            (Kind::FixedWindow, limit, Some(refill_seconds(1, 1, window)))
        }
        Parameters::TokenBucket { limit, window, burst: _ } => {
            (Kind::TokenBucket, limit, Some(refill_seconds(1, 1, window)))
        }
        Parameters::LeakyBucket { size, drip_rate, drip_size } => {
            // What drips beyond the size is lost: a larger drip is one of the size.
            let window_s = refill_seconds(size, drip_size.min(size), drip_rate);
            (Kind::LeakyBucket, size, Some(window_s))
        }
        // How it refills is its own: the largest cost is all that is known.
        Parameters::Custom(_) => (Kind::Own, limit.burst(), None),
    };
    Figures { kind, quota: quota.min(INTEGER_MAX), window_s, burst: limit.burst() }
}

/// The whole seconds in which `units` come back at `count` per `period`, rounded up: at least 1, as none of the
/// three is 0.
fn refill_seconds(units: u64, count: u64, period: Duration) -> u64 {
    const NS_PER_S: u128 = 1_000_000_000;
    // A period has less than 2^94 ns. What is beyond 128 bits, or beyond a word, is more than any field has.
    let time_ns = u128::from(units).saturating_mul(period.as_nanos());
    let time_s = time_ns.div_ceil(u128::from(count.max(1)) * NS_PER_S);
    u64::try_from(time_s).unwrap_or(u64::MAX)
}

impl Policy {
    /// The policy of `limit` under the name that clients see.
    ///
    /// # Errors
    ///
    /// The name is empty, longer than 128 bytes, or has others than the printable characters of ASCII.
    /// Quotes and backslashes are escaped where they are written.
    pub fn new(name: &str, limit: &Limit) -> Result<Policy, SetupError> {
        let structured = Policy::check_name(name)?;
        let figures = figures(limit);
        // Of printable ASCII and numbers: always a value.
        let values = figures.values(&structured).ok_or_else(|| invalid_name(name))?;
        Ok(Policy { name: structured, figures, values })
    }

    /// The name as a field has it, if it can have it.
    pub(crate) fn check_name(name: &str) -> Result<sfv::String, SetupError> {
        if name.is_empty() || name.len() > NAME_MAX_BYTES {
            return Err(invalid_name(name));
        }
        sfv::String::from_string(name.to_owned()).map_err(|_| invalid_name(name))
    }

    /// The name that clients see.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// How the limit counts.
    pub fn kind(&self) -> Kind {
        self.figures.kind
    }

    /// The most that can remain, which comes back within the [window](Policy::window_seconds): the burst
    /// of gcra, the limit of a window or of a token bucket, the size of a leaky bucket, the largest cost of
    /// a custom rule. `q` of the current draft, and what the styles with one number call the limit. At most
    /// 999,999,999,999,999, which is the largest number of a structured field.
    pub fn quota(&self) -> u64 {
        self.figures.quota
    }

    /// The time in which the quota comes back, in whole seconds, rounded up, at least 1: for gcra
    /// `burst * period / count`, a window's length, the time in which a full leaky bucket runs empty.
    /// `None` for a custom rule.
    pub fn window_seconds(&self) -> Option<u64> {
        self.figures.window_s
    }

    pub(crate) fn structured_name(&self) -> &StringRef {
        &self.name
    }

    /// `RateLimit-Policy` of the current draft, of this policy alone.
    pub(crate) fn ietf(&self) -> &HeaderValue {
        &self.values.ietf
    }

    /// `RateLimit-Policy` of the drafts 04 to 06, of this policy alone.
    pub(crate) fn draft06(&self) -> &HeaderValue {
        &self.values.draft06
    }

    /// `RateLimit-Limit` of the drafts 00 to 03, of this policy alone.
    pub(crate) fn draft03(&self) -> &HeaderValue {
        &self.values.draft03
    }

    pub(crate) fn quota_value(&self) -> &HeaderValue {
        &self.values.quota
    }

    pub(crate) fn plug_limit(&self) -> &HeaderValue {
        &self.values.plug_limit
    }

    /// Adds this policy to the list of the current draft.
    pub(crate) fn add_ietf(
        &self,
        list: &mut ListSerializer<&mut String>,
        partition: Option<&[u8]>,
    ) {
        self.figures.add_ietf(&self.name, list, partition);
    }

    /// Adds this policy to the list of the older drafts.
    pub(crate) fn add_unnamed(&self, list: &mut ListSerializer<&mut String>) {
        self.figures.add_unnamed(list);
    }
}

fn invalid_name(name: &str) -> SetupError {
    let shown: String = name.chars().take(64).flat_map(char::escape_default).collect();
    SetupError::new(format!(
        "invalid policy name \"{shown}\": 1 to {NAME_MAX_BYTES} printable characters of ASCII are allowed"
    ))
}

impl Figures {
    fn values(&self, name: &StringRef) -> Option<Values> {
        let ietf = value_of(|text| {
            self.add_ietf(name, &mut ListSerializer::with_buffer(text), None);
        })?;
        let draft06 = value_of(|text| self.add_unnamed(&mut ListSerializer::with_buffer(text)))?;
        let draft03 = value_of(|text| {
            let mut list = ListSerializer::with_buffer(text);
            let _ = list.bare_item(integer(self.quota));
            self.add_unnamed(&mut list);
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

    fn add_ietf(
        &self,
        name: &StringRef,
        list: &mut ListSerializer<&mut String>,
        partition: Option<&[u8]>,
    ) {
        let mut item = list.bare_item(name).parameter(QUOTA, integer(self.quota));
        if let Some(window_s) = self.window_s {
            item = item.parameter(WINDOW, integer(window_s));
        }
        if let Some(key) = partition {
            item = item.parameter(PARTITION, key);
        }
        let _ = item.finish();
    }

    fn add_unnamed(&self, list: &mut ListSerializer<&mut String>) {
        let mut item = list.bare_item(integer(self.quota));
        if let Some(window_s) = self.window_s {
            item = item.parameter(WINDOW, integer(window_s));
        }
        let _ = item.finish();
    }

    /// PlugLimit's own: a number, but for the token bucket a list without its comma.
    fn plug_limit(&self, number: &HeaderValue) -> Option<HeaderValue> {
        let (Kind::TokenBucket, Some(window_s)) = (self.kind, self.window_s) else {
            return Some(number.clone());
        };
        let (quota, burst) = (self.quota, self.burst);
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
            .field("kind", &self.kind())
            .field("quota", &self.quota())
            .field("window_seconds", &self.window_seconds())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gcra_policy_has_burst_and_refill_time() {
        let limit = Limit::new(20, 10, Duration::from_nanos(1_000_000_001)).unwrap();
        let policy = Policy::new("a", &limit).unwrap();
        assert_eq!(policy.ietf(), r#""a";q=20;w=3"#);
        assert_eq!(policy.draft06(), "20;w=3");
        assert_eq!(policy.draft03(), "20, 20;w=3");
        assert_eq!(policy.quota_value(), "20");
        assert_eq!(policy.plug_limit(), "20");
        // A burst that comes back in less than a second is said to do so in one.
        let fast = Limit::new(5, 1_000, Duration::from_secs(1)).unwrap();
        assert_eq!(Policy::new("a", &fast).unwrap().ietf(), r#""a";q=5;w=1"#);
    }

    #[test]
    fn a_token_buckets_limit_is_pluglimits_own_text() {
        let minute = Duration::from_secs(60);
        let policy = |limit: Limit| Policy::new("n", &limit).unwrap();
        let bucket = policy(Limit::token_bucket(10, minute, 5).unwrap());
        assert_eq!(bucket.plug_limit(), "10 10;w=60;burst=5;policy=token_bucket");
        assert_eq!(bucket.ietf(), r#""n";q=10;w=60"#);
        assert_eq!(bucket.quota(), 10, "what remains is of the window's quota");
        let window = policy(Limit::fixed_window(10, minute).unwrap());
        assert_eq!(window.plug_limit(), "10");
        assert_eq!(window.draft06(), "10;w=60");
        assert_eq!(window.ietf(), r#""n";q=10;w=60"#);
        let leaky = policy(Limit::leaky_bucket(10, Duration::from_millis(250), 2).unwrap());
        assert_eq!(leaky.ietf(), r#""n";q=10;w=2"#, "5 drips of 2, one each 250 ms");
        let large_drip = policy(Limit::leaky_bucket(4, Duration::from_secs(2), 10).unwrap());
        assert_eq!(large_drip.ietf(), r#""n";q=4;w=2"#, "4 every 2 s, not 10");
    }

    #[test]
    fn a_name_is_escaped_or_refused() {
        let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
        let policy = Policy::new(r#"a "b" \c"#, &limit).unwrap();
        assert_eq!(policy.ietf(), r#""a \"b\" \\c";q=1;w=1"#);
        for name in ["", "a\r\nSet-Cookie: b", "caf\u{e9}", "\u{7f}", &"x".repeat(129)] {
            let error = Policy::new(name, &limit).unwrap_err().to_string();
            assert!(error.starts_with("invalid policy name"), "{error}");
            assert!(error.len() < 300 && !error.chars().any(char::is_control), "{error}");
        }
    }

    #[test]
    fn numbers_beyond_15_digits_become_the_fields_maximum() {
        let limit = Limit::new(1 << 62, 1, Duration::from_nanos(1)).unwrap();
        let policy = Policy::new("a", &limit).unwrap();
        assert_eq!(policy.ietf(), r#""a";q=999999999999999;w=4611686019"#);
        assert_eq!(policy.quota_value(), "999999999999999");
        assert_eq!(refill_seconds(u64::MAX, 1, Duration::MAX), u64::MAX);
        assert_eq!(refill_seconds(1, u64::MAX, Duration::from_nanos(1)), 1);
    }
}
