//! What a field says of a limit.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use sfv::{KeyRef, ListSerializer, StringRef, key_ref};

use crate::http::SetupError;
use crate::http::retry_after::seconds;
use crate::http::text::{integer, number, shared, value_of};
use crate::{Limit, Parameters};

const QUOTA: &KeyRef = key_ref("q");
const WINDOW: &KeyRef = key_ref("w");
const PARTITION: &KeyRef = key_ref("pk");
/// A parameter that the draft does not have is to begin with its maker's name.
const OUR_BURST: &KeyRef = key_ref("tollgate-burst");
/// As the older drafts' own examples have it.
const BURST: &KeyRef = key_ref("burst");

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
/// use tollgate::{Limit, http::Policy};
///
/// let policy = Policy::new("PerUser", &Limit::new(20, 10, Duration::from_millis(1500))?)?;
/// assert_eq!((policy.quota(), policy.window_seconds(), policy.burst()), (10, Some(2), Some(20)));
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
    quota: u64,
    /// `None`: it has none.
    window_s: Option<u64>,
    burst: Option<u64>,
    capacity: u64,
}

/// Values that depend on nothing but the limit. Their clones share them.
#[derive(Clone, Debug)]
struct Values {
    ietf: HeaderValue,
    draft06: HeaderValue,
    draft03: HeaderValue,
    capacity: HeaderValue,
    plug_limit: HeaderValue,
}

/// The one place that knows what a limit is made of.
fn figures(limit: &Limit) -> Figures {
    let of = |kind, quota, window, burst, capacity| {
        let window_s = Some(seconds(window)).filter(|&seconds| seconds > 0);
        Figures { kind, quota, window_s, burst, capacity }
    };
    match limit.parameters() {
        Parameters::Gcra { burst, count, period } => {
            of(Kind::Gcra, count, period, Some(burst), burst)
        }
        Parameters::FixedWindow { limit, window } => {
            of(Kind::FixedWindow, limit, window, None, limit)
        }
        Parameters::TokenBucket { limit, window, burst } => {
            of(Kind::TokenBucket, limit, window, Some(burst), limit)
        }
        Parameters::LeakyBucket { size, drip_rate, drip_size } => {
            of(Kind::LeakyBucket, drip_size, drip_rate, Some(size), size)
        }
        // What it counts by is its own: that it holds so much is all that can be said.
        Parameters::Own(_) => of(Kind::Own, limit.burst(), Duration::ZERO, None, limit.burst()),
    }
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

    /// The units that come back every [window](Policy::window_seconds): the count of gcra, the limit of
    /// a window, the drip of a leaky bucket, the largest cost of a rule of one's own.
    pub fn quota(&self) -> u64 {
        self.figures.quota
    }

    /// The window in seconds, rounded up: the period of gcra, a window, the time between two drips;
    /// `None` for a rule of one's own.
    pub fn window_seconds(&self) -> Option<u64> {
        self.figures.window_s
    }

    /// The most units at one instant, where that is not the quota.
    pub fn burst(&self) -> Option<u64> {
        self.figures.burst
    }

    /// The most that can remain: what the styles that have one number call the limit.
    pub fn capacity(&self) -> u64 {
        self.figures.capacity
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

    pub(crate) fn capacity_value(&self) -> &HeaderValue {
        &self.values.capacity
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
            let _ = list.bare_item(integer(self.capacity));
            self.add_unnamed(&mut list);
        })?;
        let capacity = number(self.capacity)?;
        let plug_limit = self.plug_limit(&capacity)?;
        Some(Values {
            ietf: shared(ietf),
            draft06: shared(draft06),
            draft03: shared(draft03),
            capacity: shared(capacity),
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
        if let Some(burst) = self.burst {
            item = item.parameter(OUR_BURST, integer(burst));
        }
        let _ = item.finish();
    }

    fn add_unnamed(&self, list: &mut ListSerializer<&mut String>) {
        let mut item = list.bare_item(integer(self.quota));
        if let Some(window_s) = self.window_s {
            item = item.parameter(WINDOW, integer(window_s));
        }
        if let Some(burst) = self.burst {
            item = item.parameter(BURST, integer(burst));
        }
        let _ = item.finish();
    }

    /// PlugLimit's own: a number, but for the token bucket a list without its comma.
    fn plug_limit(&self, capacity: &HeaderValue) -> Option<HeaderValue> {
        let (Kind::TokenBucket, Some(burst), Some(window_s)) =
            (self.kind, self.burst, self.window_s)
        else {
            return Some(capacity.clone());
        };
        let quota = self.quota;
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
            .field("burst", &self.burst())
            .field("capacity", &self.capacity())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gcra_has_its_count_its_period_rounded_up_and_its_burst() {
        let limit = Limit::new(20, 10, Duration::from_nanos(1_000_000_001)).unwrap();
        let policy = Policy::new("a", &limit).unwrap();
        assert_eq!(policy.ietf(), r#""a";q=10;w=2;tollgate-burst=20"#);
        assert_eq!(policy.draft06(), "10;w=2;burst=20");
        assert_eq!(policy.draft03(), "20, 10;w=2;burst=20");
        assert_eq!(policy.capacity_value(), "20");
        assert_eq!(policy.plug_limit(), "20");
    }

    #[test]
    fn a_token_buckets_limit_is_pluglimits_own_text() {
        let minute = Duration::from_secs(60);
        let policy = |limit: Limit| Policy::new("n", &limit).unwrap();
        let bucket = policy(Limit::token_bucket(10, minute, 5).unwrap());
        assert_eq!(bucket.plug_limit(), "10 10;w=60;burst=5;policy=token_bucket");
        assert_eq!(bucket.ietf(), r#""n";q=10;w=60;tollgate-burst=5"#);
        assert_eq!(bucket.capacity(), 10, "what remains is of the window's quota");
        let window = policy(Limit::fixed_window(10, minute).unwrap());
        assert_eq!(window.plug_limit(), "10");
        assert_eq!(window.draft06(), "10;w=60");
        assert_eq!(window.ietf(), r#""n";q=10;w=60"#);
        let leaky = policy(Limit::leaky_bucket(10, Duration::from_millis(250), 2).unwrap());
        assert_eq!(leaky.ietf(), r#""n";q=2;w=1;tollgate-burst=10"#);
    }

    #[test]
    fn a_name_is_escaped_or_refused() {
        let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
        let policy = Policy::new(r#"a "b" \c"#, &limit).unwrap();
        assert_eq!(policy.ietf(), r#""a \"b\" \\c";q=1;w=1;tollgate-burst=1"#);
        for name in ["", "a\r\nSet-Cookie: b", "caf\u{e9}", "\u{7f}", &"x".repeat(129)] {
            let error = Policy::new(name, &limit).unwrap_err().to_string();
            assert!(error.starts_with("invalid policy name"), "{error}");
            assert!(error.len() < 300 && !error.chars().any(char::is_control), "{error}");
        }
    }

    #[test]
    fn numbers_beyond_15_digits_are_the_most_that_a_field_has() {
        let limit = Limit::new(1 << 62, 1, Duration::from_nanos(1)).unwrap();
        let policy = Policy::new("a", &limit).unwrap();
        assert_eq!(policy.ietf(), r#""a";q=1;w=1;tollgate-burst=999999999999999"#);
        assert_eq!(policy.capacity_value(), "4611686018427387904");
    }
}
