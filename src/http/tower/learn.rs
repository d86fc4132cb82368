//! Reads from a provider's response fields how much a caller may still send.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName};
use sfv::visitor::{
    EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ListVisitor, ParameterVisitor,
};
use sfv::{BareItemFromInput, KeyRef, Parser};

use crate::http::style;

/// The response field in which the provider that a client calls tells how many units are left.
///
/// # Example
///
/// See [`Rule::learn`](crate::http::Rule::learn).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Learn(Source);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// A field with a number, and one with the time in seconds since 1970 at which there are units again.
    Number { remaining: HeaderName, reset_at: Option<HeaderName> },
    /// The field `RateLimit` of the current draft.
    RateLimit { policy: Option<Arc<str>> },
}

impl Learn {
    /// Reads a field that is a whole number.
    pub fn number(remaining: HeaderName) -> Learn {
        Learn(Source::Number { remaining, reset_at: None })
    }

    /// Reads `r` of the field `RateLimit` (the current IETF draft), of the policy with this name; `None`: the least of all.
    pub fn rate_limit(policy: Option<&str>) -> Learn {
        Learn(Source::RateLimit { policy: policy.map(Arc::from) })
    }

    /// Reads `x-ratelimit-remaining-requests`, as OpenAI sends it.
    pub fn openai_requests() -> Learn {
        Learn::number(HeaderName::from_static("x-ratelimit-remaining-requests"))
    }

    /// Reads `x-ratelimit-remaining-tokens`, as OpenAI sends it.
    pub fn openai_tokens() -> Learn {
        Learn::number(HeaderName::from_static("x-ratelimit-remaining-tokens"))
    }

    /// Reads `anthropic-ratelimit-requests-remaining`.
    pub fn anthropic_requests() -> Learn {
        Learn::number(HeaderName::from_static("anthropic-ratelimit-requests-remaining"))
    }

    /// Reads `anthropic-ratelimit-tokens-remaining`.
    pub fn anthropic_tokens() -> Learn {
        Learn::number(HeaderName::from_static("anthropic-ratelimit-tokens-remaining"))
    }

    /// Reads `x-ratelimit-remaining`, and at 0 waits until `x-ratelimit-reset`, as GitHub sends them.
    pub fn github() -> Learn {
        Learn(Source::Number { remaining: style::X_REMAINING, reset_at: Some(style::X_RESET) })
    }

    /// Returns the units that are left, and the time for which there are none.
    pub(super) fn read(&self, headers: &HeaderMap) -> (Option<u64>, Option<Duration>) {
        match &self.0 {
            Source::Number { remaining, reset_at } => {
                let left = numbers_in(headers, remaining).min();
                let reset_at = reset_at.as_ref().filter(|_| left == Some(0));
                let reset_at = reset_at.and_then(|name| numbers_in(headers, name).max());
                let now = sent_at(headers).duration_since(UNIX_EPOCH).unwrap_or_default();
                let pause = reset_at.map(|at| Duration::from_secs(at).saturating_sub(now));
                (left, pause)
            }
            Source::RateLimit { policy } => {
                let mut least = Least { policy: policy.as_deref(), remaining: None };
                for line in headers.get_all(style::RATELIMIT) {
                    // A line that is no list is ignored, as the draft says.
                    let before = least.remaining;
                    if Parser::new(line.as_bytes()).parse_list_with_visitor(&mut least).is_err() {
                        least.remaining = before;
                    }
                }
                (least.remaining, None)
            }
        }
    }
}

/// Reads the lines of a field that are whole numbers.
fn numbers_in(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = u64> {
    let digits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number above the largest is as good as the largest.
    texts_in(headers, name).filter(digits).map(|text| text.parse().unwrap_or(u64::MAX))
}

fn texts_in<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    headers.get_all(name).iter().filter_map(|line| Some(line.to_str().ok()?.trim()))
}

/// Reads for how long `Retry-After` asks the client to wait: whole seconds, or a date; of several lines, the longest.
pub(super) fn retry_after_in(headers: &HeaderMap) -> Option<Duration> {
    let until = dates_in(headers, &RETRY_AFTER).max();
    let until = until.map(|at| at.duration_since(sent_at(headers)).unwrap_or_default());
    numbers_in(headers, &RETRY_AFTER).max().map(Duration::from_secs).max(until)
}

/// Returns when the provider has sent the response, by the provider's own clock: this node's may be wrong.
fn sent_at(headers: &HeaderMap) -> SystemTime {
    dates_in(headers, &DATE).next().unwrap_or_else(SystemTime::now)
}

fn dates_in(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = SystemTime> {
    texts_in(headers, name).filter_map(|text| httpdate::parse_http_date(text).ok())
}

/// Finds the least `r` of the members of a list.
struct Least<'p> {
    policy: Option<&'p str>,
    remaining: Option<u64>,
}

impl<'de> ListVisitor<'de> for &mut Least<'_> {
    type Out = ();
    type Error = Infallible;

    fn entry(&mut self) -> Result<impl EntryVisitor<'de>, Infallible> {
        Ok(Member(self))
    }

    fn finish(self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// One member of the list.
struct Member<'l, 'p>(&'l mut Least<'p>);

impl<'de> EntryVisitor<'de> for Member<'_, '_> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'de>, Infallible> {
        Ok(self)
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Infallible> {
        Ok(Ignored)
    }
}

impl<'de> ItemVisitor<'de> for Member<'_, '_> {
    type Out = Option<()>;
    type Error = Infallible;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = Option<()>>, Infallible> {
        let is_wanted = match (self.0.policy, &item) {
            (None, _) => true,
            (Some(wanted), BareItemFromInput::String(name)) => name.as_str() == wanted,
            (Some(_), _) => false,
        };
        Ok(is_wanted.then_some(Parameters { least: self.0, remaining: None }))
    }
}

struct Parameters<'l, 'p> {
    least: &'l mut Least<'p>,
    remaining: Option<u64>,
}

impl<'de> ParameterVisitor<'de> for Parameters<'_, '_> {
    type Out = ();
    type Error = Infallible;

    fn parameter(
        &mut self,
        key: &'de KeyRef,
        value: BareItemFromInput<'de>,
    ) -> Result<(), Infallible> {
        if key.as_str() == "r" {
            self.remaining = match value {
                BareItemFromInput::Integer(left) => u64::try_from(i64::from(left)).ok(),
                _ => None,
            };
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Infallible> {
        let all = [self.least.remaining, self.remaining];
        self.least.remaining = all.into_iter().flatten().min();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in(fields: &Learn, lines: &[(&'static str, &str)]) -> (Option<u64>, Option<Duration>) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        fields.read(&headers)
    }

    fn left_in(fields: &Learn, lines: &[(&'static str, &str)]) -> Option<u64> {
        read_in(fields, lines).0
    }

    /// A reset was compared with this node's clock: one hour slow, it held the requests for an hour.
    #[test]
    fn reset_counts_by_the_providers_clock() {
        let lines = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "784111787"),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ];
        let ten = Some(Duration::from_secs(10));
        assert_eq!(read_in(&Learn::github(), &lines), (Some(0), ten));
    }

    #[test]
    fn fields_of_providers_are_read() {
        let tokens = Learn::openai_tokens();
        assert_eq!(left_in(&tokens, &[("x-ratelimit-remaining-tokens", "149984")]), Some(149_984));
        assert_eq!(left_in(&tokens, &[("x-ratelimit-remaining-requests", "1")]), None);
        assert_eq!(left_in(&tokens, &[("x-ratelimit-remaining-tokens", "-1")]), None);
        let lines = ["90", "junk", "3"].map(|value| ("x-ratelimit-remaining-tokens", value));
        assert_eq!(left_in(&tokens, &lines), Some(3), "the least of several lines");
        let requests = Learn::anthropic_requests();
        let field = ("anthropic-ratelimit-requests-remaining", "999");
        assert_eq!(left_in(&requests, &[field]), Some(999));
        let of = |policy| Learn::rate_limit(policy);
        let lists = [("ratelimit", r#""day";r=70;t=9, "hour";r=5"#), ("ratelimit", r#""b";r=6"#)];
        assert_eq!(left_in(&of(None), &lists), Some(5));
        assert_eq!(left_in(&of(Some("day")), &lists), Some(70));
        assert_eq!(left_in(&of(Some("week")), &lists), None);
        let broken = [("ratelimit", r#""a";r=3, ;;"#), ("ratelimit", r#""a";r=8"#)];
        assert_eq!(left_in(&of(None), &broken), Some(8), "a line that is no list is ignored");
    }

    #[test]
    fn github_tells_until_when_nothing_is_left() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-reset", (now + 100).into());
        headers.insert("x-ratelimit-remaining", 1.into());
        assert_eq!(Learn::github().read(&headers), (Some(1), None));
        headers.insert("x-ratelimit-remaining", 0.into());
        let (left, pause) = Learn::github().read(&headers);
        assert_eq!(left, Some(0));
        assert!((98..=100).contains(&pause.unwrap().as_secs()), "{pause:?}");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let read = |lines: &[(HeaderName, &str)]| {
            let lines = lines.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
            retry_after_in(&lines.collect())
        };
        assert_eq!(read(&[(RETRY_AFTER, "120")]), Some(Duration::from_secs(120)));
        assert_eq!(read(&[(RETRY_AFTER, "soon")]), None);
        assert_eq!(read(&[]), None);
        let huge = [(RETRY_AFTER, "99999999999999999999999")];
        assert_eq!(read(&huge), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(read(&[(RETRY_AFTER, "+5")]), None);
        assert_eq!(
            read(&[(RETRY_AFTER, "junk"), (RETRY_AFTER, "30"), (RETRY_AFTER, "3")]),
            Some(Duration::from_secs(30))
        );
        let date = (DATE, "Fri, 31 Dec 1999 23:59:00 GMT");
        let at = (RETRY_AFTER, "Fri, 31 Dec 1999 23:59:59 GMT");
        assert_eq!(read(&[at.clone(), date.clone()]), Some(Duration::from_secs(59)));
        assert_eq!(read(&[at]), Some(Duration::ZERO), "it is over");
        let before = (RETRY_AFTER, "Friday, 31-Dec-99 23:58:00 GMT");
        assert_eq!(read(&[before, date]), Some(Duration::ZERO));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        let pause = read(&[(RETRY_AFTER, &soon)]).unwrap();
        assert!((98..=100).contains(&pause.as_secs()), "{pause:?}");
    }
}
