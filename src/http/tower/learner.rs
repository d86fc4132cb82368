//! Learns from a provider's responses how much a caller may still send.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::http::tower::learn::{Learn, retry_after_in};
use crate::http::tower::matched::MatchedRule;
use crate::limiter::handle::KeyedLimit;
use crate::limits::Scratch;
use crate::store::key::KeyRef;
use crate::util::lock::Mutex;

/// The longest time for which a response blocks an id. A provider that means more says it again to the next request.
const LONGEST_BLOCK: Duration = Duration::from_secs(86_400);

/// The reason of the blocks.
const REASON: &str = "the provider asked to wait";

/// The units of a layer's requests that are under way, for each rule that learns and each id. Ids without such requests have no
/// entry.
#[derive(Default)]
pub(crate) struct Learner {
    under_way: Mutex<HashMap<Learned, u64>>,
}

/// A rule's position, and an id in normal form.
type Learned = (usize, Box<[u8]>);

/// A request under way whose response is learned from.
pub(crate) struct LearningRequest {
    learner: Arc<Learner>,
    of: Vec<LearnedCharge>,
}

pub(super) struct LearnedCharge {
    key: Learned,
    limit: KeyedLimit,
    fields: Learn,
    cost: u64,
}

impl Learner {
    /// Notes that a request goes on. `None` if no rule learns from it.
    pub(super) fn begin(
        self: &Arc<Learner>,
        matched: &[MatchedRule<'_, '_>],
    ) -> Option<LearningRequest> {
        let learning = matched.iter().filter_map(|one| {
            let (limit, fields) = (one.rule.limit(), one.rule.learn()?.clone());
            let mut scratch = Scratch::new();
            let key = (one.position, limit.encoded(one.id(), &mut scratch).ok()?.into());
            Some(LearnedCharge { key, limit: limit.clone(), fields, cost: one.cost })
        });
        let of: Vec<LearnedCharge> = learning.collect();
        if of.is_empty() {
            return None;
        }
        let mut under_way = self.under_way.lock();
        for one in &of {
            let units = under_way.entry(one.key.clone()).or_default();
            *units = units.saturating_add(one.cost);
        }
        drop(under_way);
        Some(LearningRequest { learner: Arc::clone(self), of })
    }
}

impl LearningRequest {
    /// Learns from the response's head.
    pub(super) fn learn(mut self, status: StatusCode, headers: &HeaderMap) {
        // GitHub denies with a 403 as well.
        let is_refusal = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN
        );
        let retry_after = is_refusal.then(|| retry_after_in(headers)).flatten();
        for one in self.end() {
            let ((limit, id), (left, wait)) = ((&one.limit, &*one.key.1), one.fields.read(headers));
            let key = KeyRef { limit: limit.index, id };
            // An id without a limit has neither a bucket nor a block: it learns nothing. Nor does one beyond `max_blocks`.
            if let Some(wait) = wait.max(retry_after).filter(|wait| !wait.is_zero()) {
                let _ = limit.block_key(key, wait.min(LONGEST_BLOCK), Some(REASON.into()));
            }
            if let Some(left) = left {
                let others = self.learner.under_way.lock().get(&one.key).copied().unwrap_or(0);
                let _ = limit.drain_encoded(id, left.saturating_sub(others));
            }
        }
    }

    /// Notes that the request is not under way any more.
    fn end(&mut self) -> Vec<LearnedCharge> {
        let of = std::mem::take(&mut self.of);
        let mut under_way = self.learner.under_way.lock();
        for one in &of {
            if let Some(units) = under_way.get_mut(&one.key) {
                *units = units.saturating_sub(one.cost);
                if *units == 0 {
                    under_way.remove(&one.key);
                }
            }
        }
        drop(under_way);
        of
    }
}

/// A request that gets no response is not under way any more.
impl Drop for LearningRequest {
    fn drop(&mut self) {
        self.end();
    }
}
