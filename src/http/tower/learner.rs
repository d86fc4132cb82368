//! Learns from a provider's responses how much a caller may still send.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::http::tower::learn::{Learn, retry_after_in};
use crate::http::tower::matched::MatchedRule;
use crate::limiter::Limiter;
use crate::limiter::handle::KeyedLimit;
use crate::util::lock::Mutex;
use crate::util::time::saturating_ns;

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
        let retry_after = is_refusal.then(|| retry_after_in(headers)).flatten();
        let now_ns = self.limiter.inner.clock.now_ns();
        for one in self.end() {
            let (left, pause) = one.fields.read(headers);
            let pause = pause.max(retry_after);
            let others = {
                let mut known = self.learner.known.lock();
                if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
                    // Ids that were held back once and never came again have no entry for ever.
                    known.retain(|_, it| it.under_way > 0 || it.paused_until_ns > now_ns);
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
