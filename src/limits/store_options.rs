//! The options of the store that limits share: its address, the names of its keys, and how long a call waits for it.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::limits::sharing::out_of_range;
use crate::limits::shown;
use crate::limits::store_address::StoreAddress;

/// The store of the buckets that several nodes share: Valkey or Redis. [`LimitsBuilder::store`] takes it; a limits file has
/// it as the section `store`, with the names in backquotes.
///
/// Its `Debug` text and its errors do not show the password of the URL.
///
/// [`LimitsBuilder::store`]: crate::limits::LimitsBuilder::store
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::limits::StoreOptions;
///
/// let store = StoreOptions::new("rediss://limits:secret@store.example:6380")?
///     .prefix("shop:")?
///     .answer_timeout(Duration::from_millis(20))?;
/// assert_eq!(store.shown_url(), "rediss://***@store.example:6380");
/// assert!(!format!("{store:?}").contains("secret"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct StoreOptions {
    url: Box<str>,
    prefix: Box<str>,
    tag: Option<Box<str>>,
    has_boulder_keys: bool,
    connect_timeout: Duration,
    answer_timeout: Duration,
}

const URL_MAX_BYTES: usize = 4096;
const TEXT_MAX_BYTES: usize = 64;

const TIMEOUT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60));

impl StoreOptions {
    pub(crate) const DEFAULT_PREFIX: &str = "tollgate:";
    pub(crate) const DEFAULT_CONNECT: Duration = Duration::from_millis(250);
    pub(crate) const DEFAULT_ANSWER: Duration = Duration::from_millis(10);

    /// Returns the options of the store at `url`. It is `url` in a file.
    ///
    /// | `url` | the store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | one server; its port is 6379 unless the URL says otherwise |
    /// | `unix:///path`, `redis+unix:///path`, `valkey+unix:///path` | one server, by a Unix socket |
    /// | `redis-cluster://[user:password@]host[:port],host[:port]` | a cluster: one or more of its nodes, which know the others |
    /// | `redis-sentinel://[user:password@]host[:port],host[:port]/service[/database]` | the primary of `service`, which the sentinels at these hosts know; their port is 26379 unless the URL says otherwise. User and password are the server's; `?sentinel_user=` and `?sentinel_pass=` are those of the sentinels |
    ///
    /// `valkey` can stand for `redis`. `rediss` and `valkeys` use TLS: for all servers of a cluster, and for sentinels as well
    /// as their server.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`] if it begins otherwise, has no host, blanks or control characters, or more than 4,096
    /// bytes; if a cluster's has a database; if one with sentinels has no service. The error does not show the URL.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::limits::StoreOptions;
    ///
    /// assert!(StoreOptions::new("valkey://localhost:6379").is_ok());
    /// assert!(StoreOptions::new("redis-cluster://one:7000,two:7000").is_ok());
    /// assert!(StoreOptions::new("redis-sentinel://one,two,three/mymaster").is_ok());
    /// let error = StoreOptions::new("http://localhost").unwrap_err();
    /// assert!(error.is_invalid_config() && error.to_string().starts_with("invalid url with the scheme \"http\": "));
    /// ```
    pub fn new(url: &str) -> Result<StoreOptions, Error> {
        StoreOptions::without_url().with_url(url)
    }

    /// Returns default options, for [`with_url`](Self::with_url): a file may have the URL last.
    pub(crate) fn without_url() -> StoreOptions {
        StoreOptions {
            url: "".into(),
            prefix: StoreOptions::DEFAULT_PREFIX.into(),
            tag: None,
            has_boulder_keys: false,
            connect_timeout: StoreOptions::DEFAULT_CONNECT,
            answer_timeout: StoreOptions::DEFAULT_ANSWER,
        }
    }

    pub(crate) fn with_url(self, url: &str) -> Result<StoreOptions, Error> {
        checked(check_url(url))?;
        Ok(StoreOptions { url: url.into(), ..self })
    }

    /// Sets the text that begins each key in the store: `prefix` in a file. Default: `tollgate:`.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`] if it has more than 64 bytes, or other characters than printable ones of ASCII, or
    /// blanks or braces.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::StoreOptions;
    /// let store = StoreOptions::new("redis://localhost")?;
    /// assert_eq!(store.clone().key_prefix(), "tollgate:");
    /// assert_eq!(store.prefix("shop:")?.key_prefix(), "shop:");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn prefix(self, prefix: &str) -> Result<StoreOptions, Error> {
        checked(check_prefix(prefix))?;
        Ok(StoreOptions { prefix: prefix.into(), ..self })
    }

    /// Sets the hash tag of all keys, which puts them into one slot of a cluster: `tag` in a file. Default: none.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`] if it is empty, has more than 64 bytes, braces or control characters.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::StoreOptions;
    /// let store = StoreOptions::new("redis://localhost")?.tag("limits")?;
    /// assert_eq!(store.hash_tag(), Some("limits"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn tag(self, tag: &str) -> Result<StoreOptions, Error> {
        checked(check_tag(tag))?;
        Ok(StoreOptions { tag: Some(tag.into()), ..self })
    }

    /// Gives the buckets of Boulder's limits the keys under which Boulder keeps them, as
    /// [`boulder_key`](crate::KeyedLimit::boulder_key) returns them: `format: boulder` in a file. [Prefix](Self::prefix) and
    /// [tag](Self::tag) do not apply to these keys. Other limits, and those with another algorithm than gcra, have their keys
    /// as without this option. Default: off.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::StoreOptions;
    /// let store = StoreOptions::new("redis://localhost")?.boulder_keys();
    /// assert!(store.has_boulder_keys());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[cfg(feature = "boulder")]
    pub fn boulder_keys(self) -> StoreOptions {
        StoreOptions { has_boulder_keys: true, ..self }
    }

    /// Sets the names of the keys by a word of a file.
    #[cfg(any(feature = "yaml", feature = "serde"))]
    pub(crate) fn format(self, format: &str) -> Result<StoreOptions, Error> {
        match format {
            "tollgate" => Ok(self),
            #[cfg(feature = "boulder")]
            "boulder" => Ok(self.boulder_keys()),
            #[cfg(not(feature = "boulder"))]
            "boulder" => {
                let text = "invalid format \"boulder\": it needs the feature \"boulder\", which this program was built without";
                Err(Error::new(ErrorKind::Config, text))
            }
            other => {
                let text =
                    format!("invalid format {}: tollgate or boulder is allowed", shown(other));
                Err(Error::new(ErrorKind::Config, text))
            }
        }
    }

    /// Sets how long a connection may take: `connect` in a file. Default: 250 ms.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`] below 1 ms and above 60 s.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::StoreOptions;
    /// let store = StoreOptions::new("redis://localhost")?.connect_timeout(Duration::from_secs(1))?;
    /// assert_eq!(store.connects_within(), Duration::from_secs(1));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn connect_timeout(self, time: Duration) -> Result<StoreOptions, Error> {
        checked(check_timeout("connect", time))?;
        Ok(StoreOptions { connect_timeout: time, ..self })
    }

    /// Sets how long a call waits for an answer: `timeout` in a file. Default: 10 ms.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`] below 1 ms and above 60 s.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::StoreOptions;
    /// let store = StoreOptions::new("redis://localhost")?;
    /// assert_eq!(store.answers_within(), Duration::from_millis(10));
    /// let error = store.answer_timeout(Duration::ZERO).unwrap_err();
    /// assert_eq!(error.to_string(), "invalid timeout 0s: from 1ms to 1m is allowed");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn answer_timeout(self, time: Duration) -> Result<StoreOptions, Error> {
        checked(check_timeout("timeout", time))?;
        Ok(StoreOptions { answer_timeout: time, ..self })
    }

    /// Returns the URL, with its password. [`shown_url`](Self::shown_url) is for logs.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the parts of the URL, which was checked.
    pub(crate) fn address(&self) -> StoreAddress {
        StoreAddress::read(&self.url).unwrap_or_else(|_| StoreAddress::Server(self.url.to_string()))
    }

    /// Returns the URL with `***` in place of its user, its password and its query.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::StoreOptions;
    /// let store = StoreOptions::new("unix:///run/valkey.sock?pass=secret")?;
    /// assert_eq!(store.shown_url(), "unix:///run/valkey.sock?***");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn shown_url(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        format!("{scheme}://{}", without_secrets(rest))
    }

    /// Returns the text that begins each key: see [`prefix`](Self::prefix).
    pub fn key_prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the hash tag of all keys: see [`tag`](Self::tag).
    pub fn hash_tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Whether the buckets of Boulder's limits have Boulder's keys: see `boulder_keys`, with the feature `boulder`.
    pub fn has_boulder_keys(&self) -> bool {
        self.has_boulder_keys
    }

    /// Returns how long a connection may take: see [`connect_timeout`](Self::connect_timeout).
    pub fn connects_within(&self) -> Duration {
        self.connect_timeout
    }

    /// Returns how long a call waits for an answer: see [`answer_timeout`](Self::answer_timeout).
    pub fn answers_within(&self) -> Duration {
        self.answer_timeout
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("url", &self.shown_url())
            .field("prefix", &self.prefix)
            .field("tag", &self.tag)
            .field("has_boulder_keys", &self.has_boulder_keys)
            .field("connect_timeout", &self.connect_timeout)
            .field("answer_timeout", &self.answer_timeout)
            .finish()
    }
}

fn checked(check: Result<(), String>) -> Result<(), Error> {
    check.map_err(|text| Error::new(ErrorKind::Config, text))
}

/// Hides what may be a secret in a URL after its scheme.
fn without_secrets(rest: &str) -> String {
    let user_end = rest.rfind('@');
    let query = rest.find(['?', '#']);
    let shown = |text: &str| text.to_owned();
    match (user_end, query) {
        // An `@` in the query, or a `?` in a password that is not escaped.
        (Some(user_end), Some(query)) if query < user_end => "***".into(),
        (Some(user_end), Some(query)) => format!("***@{}?***", shown(&rest[user_end + 1..query])),
        (Some(user_end), None) => format!("***@{}", shown(&rest[user_end + 1..])),
        // Without an `@`, what follows a colon is a port, or a password whose host is missing.
        (None, query) => {
            let before = &rest[..query.unwrap_or(rest.len())];
            let host = before.split('/').next().unwrap_or_default();
            let is_plain = |host: &str| {
                let (_, port) = host.rsplit_once(':').unwrap_or_default();
                port.bytes().all(|byte| byte.is_ascii_digit()) || host.ends_with(']')
            };
            match (host.split(',').all(is_plain), query) {
                (false, _) => "***".into(),
                (true, None) => shown(before),
                (true, Some(_)) => format!("{before}?***"),
            }
        }
    }
}

/// The errors of these functions say what was given and what is allowed; that of a URL does not show the URL.
fn check_url(url: &str) -> Result<(), String> {
    StoreAddress::read(url)?;
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("invalid url with a blank or a control character: none is allowed".into());
    }
    if url.len() > URL_MAX_BYTES {
        let len = url.len();
        return Err(format!("invalid url of {len} bytes: at most {URL_MAX_BYTES} are allowed"));
    }
    Ok(())
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    if prefix.len() <= TEXT_MAX_BYTES && prefix.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(format!(
        "invalid prefix {}: at most {TEXT_MAX_BYTES} printable characters of ASCII, without blanks and braces, are allowed",
        shown(prefix)
    ))
}

fn check_tag(tag: &str) -> Result<(), String> {
    let is_refused = |c: char| matches!(c, '{' | '}') || c.is_control();
    if (1..=TEXT_MAX_BYTES).contains(&tag.len()) && !tag.contains(is_refused) {
        return Ok(());
    }
    Err(format!(
        "invalid tag {}: text of 1 to {TEXT_MAX_BYTES} bytes, without braces and control characters, is allowed",
        shown(tag)
    ))
}

fn check_timeout(field: &str, time: Duration) -> Result<(), String> {
    out_of_range(field, time, TIMEOUT).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_shows_the_password() {
        for (url, shown) in [
            ("redis://localhost", "redis://localhost"),
            ("redis://localhost:6379/3", "redis://localhost:6379/3"),
            ("redis://[::1]", "redis://[::1]"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
            ("redis://a:1,b:2", "redis://a:1,b:2"),
            ("redis-cluster://u:secret@a:1,b:2", "redis-cluster://***@a:1,b:2"),
            ("redis-sentinel://a,b:2/main", "redis-sentinel://a,b:2/main"),
            ("redis-sentinel://a/main?sentinel_pass=secret", "redis-sentinel://a/main?***"),
            ("redis://user:secret,b:2", "redis://***"),
            ("valkeys://:secret@h", "valkeys://***@h"),
            ("redis://user:secret@h:1/2", "redis://***@h:1/2"),
            ("redis://:sec/ret@h:1", "redis://***@h:1"),
            ("redis://:secret@secret@h", "redis://***@h"),
            ("redis://:sec?ret@h", "redis://***"),
            ("redis://h?pass=sec@ret", "redis://***"),
            ("redis://u:secret@h/0?pass=secret", "redis://***@h/0?***"),
            ("unix:///run/s?db=1&pass=secret", "unix:///run/s?***"),
            ("redis://h#secret", "redis://h?***"),
            // The host is missing.
            ("redis://:secret", "redis://***"),
            ("redis://user:secret/0?db=1", "redis://***"),
        ] {
            // Also those that are refused.
            let store = StoreOptions { url: url.into(), ..StoreOptions::without_url() };
            assert_eq!((store.shown_url().as_str(), store.url()), (shown, url));
            let debug = format!("{store:?}");
            assert!(debug.contains(shown) && !debug.contains("secret"), "{debug}");
        }
    }

    #[test]
    fn an_invalid_url_is_not_shown() {
        let allowed = "redis://, rediss://, valkey://, valkeys://, unix://, redis+unix:// or valkey+unix:// at its start is allowed; the first four also with -cluster or -sentinel, as redis-cluster://";
        for (url, message) in [
            ("", format!("invalid url without a scheme: {allowed}")),
            ("user:secret@h", format!("invalid url without a scheme: {allowed}")),
            ("secret@h/redis://", format!("invalid url without a scheme: {allowed}")),
            ("http://:secret@h", format!("invalid url with the scheme \"http\": {allowed}")),
            ("Redis://:secret@h", format!("invalid url with the scheme \"Redis\": {allowed}")),
            ("unix://", "invalid url: unix:// alone, and a host or a path is wanted".into()),
            (
                "redis://:secret @h",
                "invalid url with a blank or a control character: none is allowed".into(),
            ),
            (
                &format!("redis://:secret@{}", "h".repeat(4080)),
                "invalid url of 4096 bytes: at most 4096 are allowed".into(),
            ),
        ] {
            let Err(error) = StoreOptions::new(url) else {
                assert_eq!(url.len(), 4096);
                continue;
            };
            assert!(error.is_invalid_config());
            assert_eq!(error.to_string(), message);
        }
        let long = StoreOptions::new(&format!("redis://{}", "h".repeat(4089))).unwrap_err();
        assert_eq!(long.to_string(), "invalid url of 4097 bytes: at most 4096 are allowed");
    }

    #[test]
    fn prefix_and_tag_have_no_braces() {
        let store = || StoreOptions::new("redis://h").unwrap();
        assert!(store().prefix("").is_ok() && store().prefix(&"x".repeat(64)).is_ok());
        assert!(store().tag("\u{e9} x").is_ok());
        for prefix in ["a b", "{a", "a}", "\u{e9}", "a\n", &"x".repeat(65)] {
            let error = store().prefix(prefix).unwrap_err();
            assert!(error.is_invalid_config(), "{error}");
            assert!(error.to_string().starts_with(&format!("invalid prefix {}", shown(prefix))));
        }
        for tag in ["", "{a", "a}", "a\n", &"x".repeat(65)] {
            let error = store().tag(tag).unwrap_err();
            assert!(error.to_string().starts_with(&format!("invalid tag {}", shown(tag))));
        }
        let second = Duration::from_secs(1);
        assert!(store().connect_timeout(60 * second).is_ok());
        let error = store().connect_timeout(61 * second).unwrap_err();
        assert_eq!(error.to_string(), "invalid connect 1m1s: from 1ms to 1m is allowed");
    }
}
