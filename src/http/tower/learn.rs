//! Learns from a provider's response fields how much a caller may still send.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, StatusCode};
use sfv::visitor::{
    EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ListVisitor, ParameterVisitor,
};
use sfv::{BareItemFromInput, KeyRef, Parser};

use crate::http::Rule;
use crate::http::style;
use crate::http::tower::matched::MatchedRule;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::util::lock::Mutex;
use crate::util::time::saturating_ns;

/// The response field in which the provider that a client calls tells how many units are left.
///
/// # Example
///
/// See [`Rule::learn`].
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
    fn read(&self, headers: &HeaderMap) -> (Option<u64>, Option<Duration>) {
        match &self.0 {
            Source::Number { remaining, reset_at } => {
                let left = number_in(headers, remaining);
                let reset_at = reset_at.as_ref().filter(|_| left == Some(0));
                let reset_at = reset_at.and_then(|name| number_in(headers, name));
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
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

impl Rule {
    /// Lowers the rule's bucket to what the provider's responses say is left, in a layer of
    /// [`build_waiting`](crate::http::RateLimitBuilder::build_waiting) around a client. Nothing is ever raised: the limit is what
    /// the caller may send at most.
    ///
    /// A response of 429 or 503 with `Retry-After` in seconds holds the id's requests back for as long. Requests that are under way
    /// are taken off what a response says is left, because the provider has not counted them in it.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::http::{Learn, RateLimitLayer, Rule, WaitOptions, extract};
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(500, 500, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("Requests", IdFormat::String, limit)?.build());
    /// let rule = Rule::new(limiter.limit("Requests")?, extract::everyone("my-key"));
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(rule.learn(Learn::openai_requests()))
    ///     .build_waiting(WaitOptions::at_most(Duration::from_secs(60)), tokio::time::sleep)?;
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn learn(mut self, fields: Learn) -> Rule {
        self.learn = Some(fields);
        self
    }
}

/// What a layer has learned, for each rule that learns and each id. Ids without requests under way and without a pause have no
/// entry.
#[derive(Default)]
pub(crate) struct Learner {
    known: Mutex<HashMap<Learned, Known>>,
}

/// A rule's position, and an id.
type Learned = (usize, String);

#[derive(Clone, Copy, Default)]
struct Known {
    /// The units of requests that are under way.
    under_way: u64,
    /// The time of the limiter's clock until which no request goes on.
    paused_until_ns: u64,
}

/// A request under way whose response is learned from.
pub(crate) struct LearningRequest {
    learner: Arc<Learner>,
    limiter: Limiter,
    of: Vec<LearnedCharge>,
}

pub(super) struct LearnedCharge {
    key: Learned,
    limit: KeyedLimit,
    fields: Learn,
    cost: u64,
}

impl Learner {
    /// Returns what a request is charged by the rules that learn.
    pub(super) fn charges(matched: &[MatchedRule<'_, '_>]) -> Vec<LearnedCharge> {
        let learning = matched.iter().filter_map(|one| {
            let (limit, fields) = (one.rule.limit(), one.rule.learn()?.clone());
            let key = (one.position, limit.normalize(one.id()).ok()?);
            Some(LearnedCharge { key, limit: limit.clone(), fields, cost: one.cost })
        });
        learning.collect()
    }

    /// Returns the time for which the request is held back.
    pub(super) fn pause(&self, of: &[LearnedCharge], now_ns: u64) -> Option<Duration> {
        if of.is_empty() {
            return None;
        }
        let known = self.known.lock();
        let until_ns = of.iter().filter_map(|one| Some(known.get(&one.key)?.paused_until_ns)).max();
        let left_ns = until_ns?.checked_sub(now_ns).filter(|&left_ns| left_ns > 0)?;
        Some(Duration::from_nanos(left_ns))
    }

    /// Notes that a request goes on.
    pub(super) fn begin(
        self: &Arc<Learner>,
        limiter: &Limiter,
        of: Vec<LearnedCharge>,
    ) -> Option<LearningRequest> {
        if of.is_empty() {
            return None;
        }
        let mut known = self.known.lock();
        for one in &of {
            let entry = known.entry(one.key.clone()).or_default();
            entry.under_way = entry.under_way.saturating_add(one.cost);
        }
        Some(LearningRequest { learner: Arc::clone(self), limiter: limiter.clone(), of })
    }
}

impl LearningRequest {
    /// Learns from the response's head.
    pub(super) fn learn(mut self, status: StatusCode, headers: &HeaderMap) {
        let is_refusal =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let retry_after = number_in(headers, &RETRY_AFTER).filter(|_| is_refusal);
        let now_ns = self.limiter.inner.clock.now_ns();
        for one in self.end() {
            let (left, pause) = one.fields.read(headers);
            let pause = pause.max(retry_after.map(Duration::from_secs));
            let others = {
                let mut known = self.learner.known.lock();
                if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
                    let entry = known.entry(one.key.clone()).or_default();
                    let until_ns = now_ns.saturating_add(saturating_ns(pause));
                    entry.paused_until_ns = entry.paused_until_ns.max(until_ns);
                }
                known.get(&one.key).map_or(0, |known| known.under_way)
            };
            if let Some(left) = left {
                // The only error is that of a limit that was shared or lifted meanwhile: it learns nothing.
                let _ = one.limit.drain(&*one.key.1, left.saturating_sub(others));
            }
        }
    }

    /// Notes that the request is not under way any more.
    fn end(&mut self) -> Vec<LearnedCharge> {
        let of = std::mem::take(&mut self.of);
        if of.is_empty() {
            return of;
        }
        let now_ns = self.limiter.inner.clock.now_ns();
        let mut known = self.learner.known.lock();
        for one in &of {
            if let Some(entry) = known.get_mut(&one.key) {
                entry.under_way = entry.under_way.saturating_sub(one.cost);
                if entry.under_way == 0 && entry.paused_until_ns <= now_ns {
                    known.remove(&one.key);
                }
            }
        }
        of
    }
}

/// A request that gets no response is not under way any more.
impl Drop for LearningRequest {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads a field that is one whole number.
fn number_in(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
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

    fn left_in(fields: &Learn, lines: &[(&'static str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        fields.read(&headers).0
    }

    #[test]
    fn fields_of_providers_are_read() {
        let tokens = Learn::openai_tokens();
        assert_eq!(left_in(&tokens, &[("x-ratelimit-remaining-tokens", "149984")]), Some(149_984));
        assert_eq!(left_in(&tokens, &[("x-ratelimit-remaining-requests", "1")]), None);
        assert_eq!(left_in(&tokens, &[("x-ratelimit-remaining-tokens", "-1")]), None);
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
}
