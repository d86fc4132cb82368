//! Decides calls for shared limits in an outage of the store, by each limit's own policy.
//!
//! An outage of a node begins with the first call that fails for it (the store is lost, refuses calls, or has answered nothing for
//! some time), and ends with the first answer that comes some seconds after the last such call while no server is lost. A limit that goes on locally has a local bucket for each id meanwhile: always by gcra, whatever the limit's algorithm,
//! with a part of the limit's rate and burst. It is empty when the outage begins. So up to each instant of the outage a node
//! admits at most its part of the units that the rate has brought since: if the parts of all nodes are at most 1 together, all
//! nodes admit no more than the limit. At its end the node [owes](super::owed) the store's buckets the units that it has admitted.

use std::collections::HashMap;
use std::time::Duration;

use crate::algorithm::factor::Factor;
use crate::algorithm::gcra::Gcra;
use crate::decision::Decision;
use crate::shared::protocol::StoreMember;
use crate::shared::protocol::outage_bucket::{OutageBucket, part};
use crate::shared::protocol::owed::Owed;
use crate::util::lock::Mutex;
use crate::util::sync::{Ordering, Switch};
use crate::util::time::saturating_ns;

/// The wait that a denial names that no bucket has decided.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// The time without a failure after which an answer ends an outage. A store that answers some calls and not others, such as one
/// whose memory is full, is one outage, not one a call with empty buckets each.
const CALM_NS: u64 = 5_000_000_000;
/// The most buckets of an outage. Ids beyond them are denied.
const MAX_BUCKETS: usize = if cfg!(test) { 1 << 14 } else { 1 << 20 };

/// The rule by which a limit decides in an outage of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Deny,
    /// A part of the limit on this node.
    Local(Factor),
    /// All calls are allowed for a time, and then a part of the limit.
    Allow(Duration, Factor),
}

/// Whether the store answers this node, and the node's buckets while it does not.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_on: Switch,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    began_ns: Option<u64>,
    /// The last call that the store did not decide.
    failed_ns: u64,
    /// The outages that have begun.
    count: u64,
    ended_ns: u64,
    /// The time for which limits have allowed all calls. It refills as fast as time passes with the store, so that a store
    /// that fails again and again does not allow them for ever.
    allowed_ns: u64,
    /// The time with the store before this outage.
    answered_ns: u64,
    /// A bucket that is not here was empty at the beginning.
    buckets: HashMap<Box<str>, OutageBucket>,
    /// What this and earlier outages have admitted, and the store does not know yet.
    owed: Owed,
}

impl State {
    /// Returns the time of the outage's beginning, which is now if there was none.
    fn begin(&mut self, now_ns: u64) -> u64 {
        self.failed_ns = self.failed_ns.max(now_ns);
        *self.began_ns.get_or_insert_with(|| {
            self.answered_ns = now_ns.saturating_sub(self.ended_ns);
            self.allowed_ns = self.allowed_ns.saturating_sub(self.answered_ns);
            self.buckets.clear();
            self.count += 1;
            now_ns
        })
    }

    /// Decides a member by its policy. Returns its new bucket as well, if it is to be charged.
    fn decide(
        &self,
        member: &StoreMember,
        policy: Policy,
        (began_ns, now_ns): (u64, u64),
    ) -> (Decision, Option<OutageBucket>) {
        let denied = (Decision::for_spend(false, 0, RETRY, RETRY), None);
        let fraction = match policy {
            Policy::Deny => return denied,
            Policy::Allow(time, _) if self.is_allowing(time, began_ns, now_ns) => {
                return (Decision::UNLIMITED, None);
            }
            Policy::Allow(_, fraction) | Policy::Local(fraction) => fraction,
        };
        let Some(part) = part(&member.limit, fraction) else { return denied };
        let full_at_ns = self.buckets.get(&member.key).map(|bucket| bucket.full_at_ns_under(&part));
        let has_room = full_at_ns.is_some() || self.buckets.len() < MAX_BUCKETS;
        if member.cost > part.burst() || !has_room {
            return denied;
        }
        let empty_ns = began_ns.saturating_add(part.burst_offset_ns());
        let outcome = part.spend(full_at_ns.unwrap_or(empty_ns), now_ns, member.cost);
        let decision = outcome.decision;
        if !decision.allowed() {
            // The wait for this bucket may be days, and the store may be back before. It says how long its own takes.
            let remaining = decision.remaining().unwrap_or(0);
            let retry_in = decision.retry_in().min(RETRY);
            let reset_in = decision.reset_in().min(member.limit.burst_offset()).max(retry_in);
            return (Decision::for_spend(false, remaining, retry_in, reset_in), None);
        }
        let fills_in_ns = part.burst_offset_ns();
        let charged = outcome.word.filter(|_| member.mode.is_charged());
        (decision, charged.map(|full_at_ns| OutageBucket { full_at_ns, fills_in_ns }))
    }

    fn is_allowing(&self, time: Duration, began_ns: u64, now_ns: u64) -> bool {
        let (passed_ns, time_ns) = (now_ns.saturating_sub(began_ns), saturating_ns(time));
        // However long outages were, a limit's time is whole after as long with the store.
        let used_ns = if self.answered_ns >= time_ns { 0 } else { self.allowed_ns };
        used_ns.saturating_add(passed_ns) < time_ns
    }

    /// Forgets buckets that are full, each time the map has doubled. One that is forgotten is full again if it is asked for:
    /// one that was empty at the beginning fills no later. If a reload makes its burst larger after that, it
    /// has that many units too many.
    fn drop_full(&mut self, now_ns: u64) {
        if self.buckets.len() == self.buckets.capacity() {
            self.buckets.retain(|_, bucket| !Gcra::is_full(bucket.full_at_ns, now_ns));
        }
    }
}

impl Outage {
    /// Returns whether there is an outage, and how many have begun.
    pub(crate) fn figures(&self) -> (bool, u64) {
        let state = self.state.lock();
        (state.began_ns.is_some(), state.count)
    }

    /// Whether an outage may have begun. A call that does not see one that has just begun leaves its end to the next answer.
    pub(crate) fn is_on(&self) -> bool {
        // Relaxed: the state has a lock.
        self.is_on.load(Ordering::Relaxed)
    }

    /// Notes that the store has answered, and no server is lost. Returns the length of the outage that this ends: up to its last failure, if that
    /// was long enough ago.
    pub(crate) fn end(&self, now_ns: impl FnOnce() -> u64) -> Option<Duration> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.state.lock();
        let began_ns =
            state.began_ns.filter(|_| now_ns() >= state.failed_ns.saturating_add(CALM_NS))?;
        state.began_ns = None;
        self.is_on.store(false, Ordering::Relaxed);
        let length_ns = state.failed_ns.saturating_sub(began_ns);
        state.allowed_ns = state.allowed_ns.saturating_add(length_ns);
        state.ended_ns = state.failed_ns;
        state.buckets = HashMap::new();
        Some(Duration::from_nanos(length_ns))
    }

    /// Calls `change` with what this node owes.
    pub(crate) fn with_owed<R>(&self, change: impl FnOnce(&mut Owed) -> R) -> R {
        change(&mut self.state.lock().owed)
    }

    /// Notes that the store has not decided a call. Returns whether this begins an outage.
    pub(crate) fn begin(&self, now_ns: u64) -> bool {
        let mut state = self.state.lock();
        let is_new = state.began_ns.is_none();
        state.begin(now_ns);
        self.is_on.store(true, Ordering::Relaxed);
        is_new
    }

    /// Decides each member of a batch without the store, and charges all of them or none. A member that is only checked is
    /// not charged.
    pub(crate) fn decide(
        &self,
        members: &[StoreMember],
        policies: &[Policy],
        now_ns: u64,
    ) -> Vec<Decision> {
        let mut state = self.state.lock();
        // The store may have answered another call since this call began the outage: then a new one begins.
        let times = (state.begin(now_ns), now_ns);
        self.is_on.store(true, Ordering::Relaxed);
        let decided: Vec<_> = members
            .iter()
            .zip(policies)
            .map(|(member, &policy)| state.decide(member, policy, times))
            .collect();
        let mut each = members.iter().zip(&decided);
        let is_denied =
            each.any(|(member, (decision, _))| member.mode.can_deny() && !decision.allowed());
        if !is_denied {
            for (member, (decision, charged)) in members.iter().zip(&decided) {
                if member.mode.is_charged() && member.cost > 0 && decision.allowed() {
                    state.owed.add(member);
                }
                if let Some(bucket) = charged {
                    state.drop_full(now_ns);
                    state.buckets.insert(member.key.clone(), *bucket);
                }
            }
        }
        decided.into_iter().map(|(decision, _)| decision).collect()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::shared::protocol::SharedMode;

    const S: u64 = 1_000_000_000;

    fn limits() -> [Limit; 4] {
        let second = Duration::from_secs(1);
        [
            Limit::new(20, 10, second).unwrap(),
            Limit::fixed_window(20, 2 * second).unwrap(),
            Limit::token_bucket(10, 20, 2 * second).unwrap(),
            Limit::leaky_bucket(20, 1, second / 10).unwrap(),
        ]
    }

    fn member(key: &str, limit: &Limit, cost: u64) -> StoreMember {
        let (limit, mode) = (limit.clone(), SharedMode::CheckAndSpend);
        StoreMember { key: key.into(), limit, unscaled: None, cost, mode, keep_ms: 0, lease: None }
    }

    fn is_allowed(outage: &Outage, member: &StoreMember, policy: Policy, now_ns: u64) -> bool {
        outage.decide(std::slice::from_ref(member), &[policy], now_ns)[0].allowed()
    }

    fn tenth() -> Factor {
        Factor::from_millionths(100_000)
    }

    #[test]
    fn a_part_begins_empty_and_refills() {
        for limit in limits() {
            let outage = Outage::default();
            let one = member("a", &limit, 1);
            let spend = |now_ns| is_allowed(&outage, &one, Policy::Local(tenth()), now_ns);
            // 10 a second in each limit, so a tenth is one a second.
            assert!(!spend(5 * S), "{limit}: empty");
            assert!(!spend(6 * S - 1), "{limit}");
            assert!(spend(6 * S), "{limit}");
            assert!(!spend(6 * S), "{limit}");
            assert!(spend(60 * S), "{limit}");
            let burst = if limit.burst() == 20 { 2 } else { 1 };
            for _ in 1..burst {
                assert!(spend(60 * S), "{limit}");
            }
            assert!(!spend(60 * S), "{limit}: a tenth of the burst");
        }
    }

    #[test]
    fn all_members_are_charged_or_none() {
        let limit = &limits()[0];
        let outage = Outage::default();
        let (a, b) = (member("a", limit, 1), member("b", limit, 1));
        let both = [Policy::Local(tenth()), Policy::Deny];
        outage.begin(S);
        let decided = outage.decide(&[a.clone(), b.clone()], &both, 2 * S);
        assert!(decided[0].allowed() && !decided[1].allowed());
        assert_eq!(decided[1].retry_in(), RETRY);
        assert!(is_allowed(&outage, &a, both[0], 2 * S), "the denied batch charged nothing");
        assert!(!is_allowed(&outage, &a, both[0], 2 * S));
        // A member that cannot deny is charged if it has the units; a check is not charged.
        let soft = StoreMember { mode: SharedMode::SpendOnly, ..a.clone() };
        let check = StoreMember { mode: SharedMode::CheckOnly, ..b };
        for (soft_is_allowed, now_ns) in [(false, 2 * S), (true, 3 * S), (false, 3 * S)] {
            let members = [soft.clone(), check.clone()];
            let decided = outage.decide(&members, &[both[0]; 2], now_ns);
            assert_eq!((decided[0].allowed(), decided[1].allowed()), (soft_is_allowed, true));
        }
    }

    #[test]
    fn denied_batches_owe_nothing() {
        let limit = &limits()[0];
        let outage = Outage::default();
        let allow = Policy::Allow(Duration::from_secs(30), Factor::ZERO);
        let members = [member("a", limit, 1), member("b", limit, 1)];
        let decided = outage.decide(&members, &[allow, Policy::Deny], S);
        assert!(decided[0].allowed() && !decided[1].allowed());
        assert!(!outage.with_owed(Owed::begin_report));
        assert!(outage.decide(&members, &[allow; 2], S).iter().all(Decision::allowed));
        assert!(outage.with_owed(Owed::begin_report));
    }

    #[test]
    fn a_growing_map_forgets_full_buckets_only() {
        let limit = &limits()[0];
        let outage = Outage::default();
        let spend = |key: &str, cost, now_ns| {
            is_allowed(&outage, &member(key, limit, cost), Policy::Local(tenth()), now_ns)
        };
        outage.begin(S);
        assert!(spend("a", 2, 3 * S));
        for id in 0..1_000 {
            assert!(spend(&id.to_string(), 1, 3 * S));
        }
        assert!(!spend("a", 1, 3 * S), "it has 2 units, and both are spent");
        for id in 1_000..10_000 {
            assert!(spend(&id.to_string(), 1, 60 * S));
        }
        let kept = &outage.state.lock().buckets;
        assert!(!kept.contains_key("a") && !kept.contains_key("0"), "full again");
    }

    /// A bucket that a reload makes larger has no more units than have come since the outage began.
    #[test]
    fn a_larger_burst_brings_no_units() {
        let second = Duration::from_secs(1);
        let [small, large] = [20, 40].map(|burst| Limit::new(burst, 10, second).unwrap());
        let outage = Outage::default();
        let half = Policy::Local("0.5".parse().unwrap());
        let spent = |limit: &Limit, now_ns| {
            let one = member("a", limit, 1);
            (0..100).filter(|_| is_allowed(&outage, &one, half, now_ns)).count()
        };
        outage.begin(S);
        assert_eq!((spent(&small, 3 * S), spent(&large, 3 * S)), (10, 0));
        assert_eq!((spent(&large, 4 * S), spent(&small, 5 * S), spent(&large, 9 * S)), (5, 5, 20));
        assert_eq!((spent(&large, 99 * S), spent(&small, 99 * S)), (20, 0));
    }

    #[test]
    fn a_cost_above_the_part_is_denied() {
        let outage = Outage::default();
        outage.begin(S);
        let three = member("a", &limits()[0], 3);
        assert!(!is_allowed(&outage, &three, Policy::Local(tenth()), 1000 * S));
        assert!(is_allowed(&outage, &three, Policy::Local(Factor::ONE), 1000 * S));
    }

    #[test]
    fn all_are_allowed_for_a_time_only() {
        let outage = Outage::default();
        let one = member("a", &limits()[0], 20);
        let allow = Policy::Allow(Duration::from_secs(30), tenth());
        let spend = |now_s: u64| is_allowed(&outage, &one, allow, now_s * S);
        assert!(spend(100) && spend(129) && !spend(130));
        // The time that was used refills with the store, second for second.
        assert_eq!(outage.end(|| 135 * S), Some(Duration::from_secs(30)));
        outage.begin(136 * S);
        outage.end(|| 141 * S);
        assert!(spend(142) && spend(153) && !spend(154));
    }

    /// Of a long outage a short time was used.
    #[test]
    fn time_is_whole_after_as_long() {
        for (answered_s, is_whole) in [(30, true), (29, false)] {
            let outage = Outage::default();
            let one = member("a", &limits()[0], 20);
            let allow = Policy::Allow(Duration::from_secs(30), tenth());
            let spend = |now_s: u64| is_allowed(&outage, &one, allow, now_s * S);
            assert!(spend(100) && !spend(1_000));
            assert!(outage.end(|| (1_000 + answered_s) * S).is_some());
            assert_eq!(spend(1_000 + answered_s), is_whole);
        }
    }

    #[test]
    fn a_decision_after_an_end_begins_another() {
        let outage = Outage::default();
        let one = member("a", &limits()[0], 1);
        let spend = |now_ns| is_allowed(&outage, &one, Policy::Local(tenth()), now_ns);
        outage.begin(S);
        assert!(outage.end(|| 6 * S).is_some());
        assert!(!spend(6 * S), "of a call that failed before the end");
        assert_eq!(outage.end(|| 11 * S), Some(Duration::ZERO), "it has an end too");
    }

    #[test]
    fn a_new_outage_has_new_buckets() {
        let outage = Outage::default();
        let one = member("a", &limits()[0], 1);
        let spend = |now_ns| is_allowed(&outage, &one, Policy::Local(tenth()), now_ns);
        assert!(outage.begin(S));
        assert!(!outage.begin(2 * S));
        assert!(spend(3 * S) && spend(3 * S) && !spend(3 * S));
        assert!(!outage.begin(5 * S));
        assert_eq!(outage.end(|| 10 * S - 1), None, "a failure was less than 5 s ago");
        assert_eq!(outage.end(|| 10 * S), Some(Duration::from_secs(4)));
        assert_eq!(outage.end(|| 10 * S), None);
        assert!(outage.begin(10 * S));
        assert!(!spend(10 * S) && !spend(11 * S - 1) && spend(11 * S), "empty again");
    }

    #[test]
    fn a_store_of_some_answers_is_one_outage() {
        let outage = Outage::default();
        let one = member("a", &limits()[0], 1);
        let mut allowed = 0;
        for tenth_s in 10..200 {
            allowed +=
                u64::from(is_allowed(&outage, &one, Policy::Local(tenth()), tenth_s * S / 10));
            assert_eq!(outage.end(|| tenth_s * S / 10), None);
        }
        assert_eq!((allowed, outage.figures()), (18, (true, 1)), "one a second");
    }

    #[test]
    fn parts_of_all_nodes_keep_the_limit() {
        let mut random = 1_u64;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % end
        };
        for limit in limits() {
            for nodes in [1_u64, 3, 7] {
                let outages: Vec<Outage> = (0..nodes).map(|_| Outage::default()).collect();
                let part = Policy::Local(Factor::from_millionths(1_000_000 / nodes));
                let (mut now_ns, mut admitted) = (S, 0);
                outages.iter().for_each(|outage| assert!(outage.begin(S)));
                for _ in 0..3_000 {
                    now_ns += below(S / 10);
                    let one = member("a", &limit, 1 + below(3));
                    let outage = &outages[below(nodes) as usize];
                    admitted += if is_allowed(outage, &one, part, now_ns) { one.cost } else { 0 };
                    // 10 units a second.
                    assert!(admitted <= (now_ns - S) / (S / 10), "{limit}, {nodes} nodes");
                }
                assert!(admitted > 0, "{limit}, {nodes} nodes");
            }
        }
    }

    #[test]
    fn tiny_and_huge_limits_have_parts() {
        let least = Factor::from_millionths(1);
        let year = Duration::from_secs(365 * 86_400);
        assert_eq!(part(&Limit::new(1, 1, year).unwrap(), least), None);
        let huge = Limit::new(1 << 30, 1_000_000_000, Duration::from_secs(1)).unwrap();
        assert_eq!(part(&huge, least), Some(Gcra::new(1073, 1_000_000, 1_073_000_000)));
        assert_eq!(part(&huge, Factor::ONE), Some(Gcra::new(1 << 30, 1, 1 << 30)));
    }

    /// Its bucket of an outage has its first unit after days, and the store may be back in a second.
    #[test]
    fn denials_of_slow_limits_wait_a_second() {
        let day = Duration::from_secs(86_400);
        let limit = Limit::new(3, 3, day).unwrap();
        let outage = Outage::default();
        let slow = member("a", &limit, 1);
        let tenth = Factor::from_millionths(100_000);
        let allow = Policy::Allow(Duration::ZERO, tenth);
        for policy in [Policy::Deny, Policy::Local(tenth), allow] {
            let denied = outage.decide(std::slice::from_ref(&slow), &[policy], S)[0];
            assert_eq!((denied.allowed(), denied.retry_in()), (false, RETRY), "{policy:?}");
            assert!(denied.reset_in() >= RETRY && denied.reset_in() <= day, "{denied:?}");
        }
        // A wait that is shorter is told.
        let second = member("b", &limits()[0], 1);
        let denied =
            outage.decide(std::slice::from_ref(&second), &[Policy::Local(Factor::ONE)], S)[0];
        assert_eq!((denied.allowed(), denied.retry_in()), (false, RETRY / 10));
    }

    #[test]
    fn buckets_fill_after_they_allow() {
        let tenth_s = Limit::new(1, 10, Duration::from_secs(1)).unwrap();
        let outage = Outage::default();
        let one = member("a", &tenth_s, 1);
        let denied = outage.decide(std::slice::from_ref(&one), &[Policy::Local(tenth())], S)[0];
        assert!(!denied.allowed() && denied.reset_in() >= denied.retry_in(), "{denied:?}");
    }

    #[test]
    fn parts_are_rounded_down() {
        let huge = Limit::new(1 << 30, 1_000_000_000, Duration::from_secs(1)).unwrap();
        let part = part(&huge, Factor::from_millionths(300_000)).unwrap();
        assert_eq!(part.emission_interval_ns(), 4);
    }

    #[test]
    fn ids_beyond_the_most_are_denied() {
        let limit = Limit::new(20, 10, Duration::from_secs(1)).unwrap();
        let outage = Outage::default();
        outage.begin(S);
        let spend = |id: usize| {
            is_allowed(&outage, &member(&id.to_string(), &limit, 1), Policy::Local(tenth()), 3 * S)
        };
        assert!((0..MAX_BUCKETS).all(spend));
        assert!(!spend(MAX_BUCKETS) && spend(0), "2 units each");
    }
}
