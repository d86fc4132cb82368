//! Denials of the store that a node keeps, so that a flood of calls for one id costs little I/O.
//!
//! When the store denies a batch, the node keeps the texts that the store has found, for a tenth of a second. It decides a later
//! batch by these texts, at the store's time now. If they deny it, it is denied, with the figures that the store would compute.
//! If they allow it, the store is asked. So a kept text admits nothing. After a while one call asks all the same, and the others
//! are denied until its answer is there: after 2 ms, and after twice as long each time that the store denies, up to 50 ms. So the
//! first callers that come again learn soon of units that another node has returned, and a flood asks rarely.
//!
//! A spend that asks for one bucket, because the kept text allows it, takes one unit from that text, whatever its cost, until an
//! answer replaces the text. So
//! of a crowd that comes when units do, about as many ask as there are units. No call is denied for it that the store would allow: it
//! comes to the store after the calls that ask, and if the store denies one of these, it has no unit for a call of the same cost.
//! One that asks for several buckets takes nothing, because the store may deny it for another bucket, nor does a call with a
//! factor, whose units are others.
//!
//! An answer to a charge of this node replaces the text that it has kept by the text after the charge. An answer to any other
//! change ends it. A change by another node is seen when the kept time is over.

use std::sync::{Arc, RwLock};

use smallvec::{SmallVec, smallvec};

use crate::shared::protocol::decide::{decide, decide_found, decide_found_one, denied_by, written};
use crate::shared::protocol::{Found, StoreMember, hash_of_key};
use crate::store::hash::HashKeys;
use crate::util::sync::{Ordering, Switch};

/// The time for which a denial is kept, in ns.
pub(crate) const KEPT_NS: u64 = 100_000_000;
/// The times after which one call asks whether a denial still holds, at first and at last.
const FIRST_NS: u64 = 2_000_000;
const RENEWED_NS: u64 = KEPT_NS / 2;
/// The time for which an id counts as denied lately.
const LAST_NS: u64 = 1_000_000_000;

/// The places for texts. Buckets whose keys have the same place take it from each other.
const PLACES: usize = 1 << 14;

/// The denials that a node keeps.
pub(crate) struct Denials {
    hash_keys: HashKeys,
    places: Box<[Place]>,
}

#[derive(Default)]
struct Place(RwLock<State>);

#[derive(Default)]
struct State {
    /// The answers to changes of a bucket of this place that may return units.
    changes: u64,
    kept: Option<Arc<Kept>>,
}

/// The text of a bucket, as a call has found it or left it.
struct Kept {
    key: Box<str>,
    text: Option<Box<[u8]>>,
    /// The store's time then.
    unix_ns: u64,
    /// When the call was sent and its answer came, on the node's clock.
    sent_ns: u64,
    answered_ns: u64,
    /// When the last call was sent that the store has denied, and the last one that this bucket has denied.
    denied_ns: u64,
    denied_by_it_ns: Option<u64>,
    /// The time after which one call asks for a newer text.
    renewed_ns: u64,
    /// Whether a call asks for a newer text.
    is_renewed: Switch,
}

/// The changes of its members' places that a call knows of when it is sent.
pub(crate) type Marks = SmallVec<[u64; 2]>;

impl Kept {
    fn was_denied_lately(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.denied_ns) < LAST_NS
    }

    /// Whether the bucket itself has denied a call lately, not that of another member of its batch.
    fn has_denied_lately(&self, now_ns: u64) -> bool {
        self.denied_by_it_ns.is_some_and(|denied_ns| now_ns.saturating_sub(denied_ns) < LAST_NS)
    }

    /// Returns this with another text.
    fn with_text(&self, text: String) -> Kept {
        // Relaxed: it guards no other memory.
        let is_renewed = Switch::new(self.is_renewed.load(Ordering::Relaxed));
        Kept { key: self.key.clone(), text: Some(text.into_bytes().into()), is_renewed, ..*self }
    }
}

impl State {
    fn kept_of(&self, key: &str) -> Option<&Arc<Kept>> {
        self.kept.as_ref().filter(|kept| *kept.key == *key)
    }
}

impl Place {
    // No thread panics while it holds a lock.

    fn read<R>(&self, then: impl FnOnce(&State) -> R) -> Option<R> {
        self.0.read().ok().map(|state| then(&state))
    }

    /// Replaces a text if it is still kept. If another thread has the place, this does nothing, and more callers ask.
    fn replace(&self, kept: &Arc<Kept>, by: Kept) {
        if let Ok(mut state) = self.0.try_write()
            && state.kept.as_ref().is_some_and(|now| Arc::ptr_eq(now, kept))
        {
            state.kept = Some(Arc::new(by));
        }
    }

    fn change(&self, then: impl FnOnce(&mut State)) {
        if let Ok(mut state) = self.0.write() {
            then(&mut state);
        }
    }
}

impl Denials {
    /// `hash_keys` say which keys share a place: random ones, unless runs are to repeat each other.
    pub(crate) fn new(hash_keys: HashKeys) -> Denials {
        let places = (0..PLACES).map(|_| Place::default()).collect();
        Denials { hash_keys, places }
    }

    fn place(&self, key: &str) -> &Place {
        // The high bits depend on all bytes.
        let place = hash_of_key(&self.hash_keys, key) >> (u64::BITS - PLACES.ilog2());
        &self.places[place as usize]
    }

    /// Decides a batch by the kept texts of all its members. `None`: the store is asked. They do not deny it, the node does not
    /// have all of them, or this call asks for newer ones.
    pub(crate) fn find(&self, members: &[StoreMember], now_ns: u64) -> Option<Found> {
        let mut texts: SmallVec<[(Arc<Kept>, u64); 2]> = SmallVec::new();
        for member in members {
            // No call waits for a thread that stands still: it asks the store.
            let state = self.place(&member.key).0.try_read().ok()?;
            let kept = state.kept_of(&member.key)?.clone();
            let for_ns = now_ns.checked_sub(kept.sent_ns).filter(|&for_ns| for_ns < KEPT_NS)?;
            texts.push((kept, for_ns));
        }
        // The store decided after the call was sent, so its time is not later than this: no denial is kept too long.
        let times: Vec<u64> = texts.iter().map(|(kept, for_ns)| kept.unix_ns + for_ns).collect();
        let mut found = Found {
            unix_ns: times.iter().copied().max()?,
            denied: None,
            texts: texts.iter().map(|(kept, _)| kept.text.clone()).collect(),
            leased: smallvec![0; members.len()],
            times,
        };
        let denier = |found: &Found| denied_by(members, &decide_found(members, found).ok()?);
        let _ = denier(&found)?;
        // It decided before the answer came, so its time is not earlier than this: no wait that is told is too short.
        for (time, (kept, _)) in found.times.iter_mut().zip(&texts) {
            *time = kept.unix_ns + now_ns.saturating_sub(kept.answered_ns);
        }
        found.denied = Some(denier(&found)?);
        // Relaxed: it guards no other memory.
        let renews = |(kept, for_ns): &(Arc<Kept>, u64)| {
            *for_ns >= kept.renewed_ns && !kept.is_renewed.swap(true, Ordering::Relaxed)
        };
        if texts.iter().any(renews) {
            return None;
        }
        Some(found)
    }

    /// Takes a unit from the kept text of the bucket of a call that is sent now, if there is one, and it allows the call.
    pub(crate) fn charge(&self, member: &StoreMember, now_ns: u64) {
        let place = self.place(&member.key);
        let kept = place.read(|state| state.kept_of(&member.key).cloned()).flatten();
        let is_plain = member.cost > 0 && member.unscaled.is_none();
        let Some(kept) = kept.filter(|_| is_plain) else { return };
        let Some(for_ns) = now_ns.checked_sub(kept.sent_ns) else { return };
        let (unix_ns, text) = (kept.unix_ns + for_ns, [kept.text.as_deref()]);
        let is_allowed = |members: &[StoreMember]| {
            decide(members, &text, unix_ns).is_ok_and(|decided| decided[0].decision.allowed())
        };
        if !is_allowed(std::slice::from_ref(member)) {
            return;
        }
        let one = [StoreMember { cost: 1, ..member.clone() }];
        let decided = decide(&one, &text, unix_ns);
        let left = decided.ok().and_then(|decided| written(&one[0], &decided[0], unix_ns));
        if let Some((text, _)) = left {
            place.replace(&kept, kept.with_text(text));
        }
    }

    /// Returns the marks of a call that is sent now, and whether one of its buckets has denied a call lately.
    pub(crate) fn marks(&self, members: &[StoreMember], now_ns: u64) -> (Marks, bool) {
        let (mut marks, mut was_denied) = (Marks::new(), false);
        for member in members {
            let changes = self.place(&member.key).read(|state| {
                let kept = state.kept_of(&member.key);
                was_denied |= kept.is_some_and(|it| it.has_denied_lately(now_ns));
                state.changes
            });
            marks.push(changes.unwrap_or(0));
        }
        (marks, was_denied)
    }

    /// Keeps the texts of a batch that the store has denied, or those that an allowed one has left of buckets that have denied a call
    /// lately. A text is not kept if its bucket may have got units back since the call was sent.
    pub(crate) fn keep(
        &self,
        members: &[StoreMember],
        found: &Found,
        marks: &Marks,
        (sent_ns, answered_ns): (u64, u64),
    ) {
        for (at, (member, &changes)) in members.iter().zip(marks).enumerate() {
            let place = self.place(&member.key);
            let before = place.read(|state| state.kept_of(&member.key).cloned()).flatten();
            let before = before.filter(|kept| kept.was_denied_lately(sent_ns));
            let denied_before = before.as_ref().and_then(|kept| kept.denied_by_it_ns);
            let denied_by_it_ns =
                if found.denied == Some(at) { Some(sent_ns) } else { denied_before };
            let (denied_ns, renewed_ns) = match (found.denied, before) {
                (None, None) => continue,
                (None, Some(kept)) => (kept.denied_ns, FIRST_NS),
                (Some(_), None) => (sent_ns, FIRST_NS),
                (Some(_), Some(kept)) => (sent_ns, (2 * kept.renewed_ns).min(RENEWED_NS)),
            };
            let unix_ns = found.unix_ns_of(at);
            let left = found.denied.is_none().then(|| decide_found_one(member, found, at));
            let left = left.and_then(|decided| written(member, &decided.ok()?, unix_ns));
            let left = left.map(|(text, _)| Some(text.into_bytes().into()));
            let kept = Arc::new(Kept {
                key: member.key.clone(),
                text: left.unwrap_or_else(|| found.texts.get(at).cloned().flatten()),
                unix_ns,
                sent_ns,
                answered_ns,
                denied_ns,
                denied_by_it_ns,
                renewed_ns,
                is_renewed: Switch::new(false),
            });
            place.change(|state| {
                let is_newer = |it: &Arc<Kept>| it.sent_ns > sent_ns;
                if state.changes == changes && !state.kept_of(&member.key).is_some_and(is_newer) {
                    state.kept = Some(kept);
                }
            });
        }
    }

    /// Notes that a bucket may have got units back, or a lease.
    pub(crate) fn forget(&self, key: &str) {
        self.place(key).change(|state| {
            state.changes = state.changes.wrapping_add(1);
            if state.kept_of(key).is_some() {
                state.kept = None;
            }
        });
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Limit;
    use crate::shared::protocol::SharedMode;

    const UNIX_NS: u64 = 1_790_000_000_000_000_000;
    const SENT_NS: u64 = 5_000_000_000;
    const KEYS: HashKeys = [1, 2, 3, 4];

    fn member(key: &str) -> StoreMember {
        let limit = Limit::new(1, 1, Duration::from_secs(60)).unwrap();
        let mode = SharedMode::CheckAndSpend;
        StoreMember {
            key: key.into(),
            limit,
            unscaled: None,
            cost: 1,
            mode,
            keep_ms: 0,
            lease: None,
        }
    }

    /// Keeps a denial of these buckets, which are full again half a minute after `times`.
    fn keep(denials: &Denials, members: &[StoreMember], times: &[u64]) {
        let text = |at: &u64| Some(Box::from((at + 30_000_000_000).to_string().as_bytes()));
        let found = Found {
            unix_ns: UNIX_NS,
            denied: Some(0),
            texts: times.iter().map(text).collect(),
            leased: smallvec![0; times.len()],
            times: times.to_vec(),
        };
        let marks = denials.marks(members, SENT_NS).0;
        denials.keep(members, &found, &marks, (SENT_NS, SENT_NS));
    }

    #[test]
    fn buckets_of_one_place_are_told_apart() {
        let denials = Denials::new(KEYS);
        let is_beside = |key: &String| std::ptr::eq(denials.place(key), denials.place("a"));
        let other = (0..).map(|id| id.to_string()).find(is_beside).unwrap();
        let [one, other] = ["a", &other].map(|key| [member(key)]);
        keep(&denials, &one, &[UNIX_NS]);
        assert!(denials.find(&one, SENT_NS).is_some() && denials.find(&other, SENT_NS).is_none());
        assert!(denials.marks(&one, SENT_NS).1 && !denials.marks(&other, SENT_NS).1);
        denials.forget(&other[0].key);
        assert!(denials.find(&one, SENT_NS).is_some());
        keep(&denials, &other, &[UNIX_NS]);
        assert!(denials.find(&one, SENT_NS).is_none() && denials.find(&other, SENT_NS).is_some());
        denials.forget(&other[0].key);
        assert!(denials.find(&other, SENT_NS).is_none());
    }

    /// One denied user took places from all users, because each batch has the limit of all.
    #[test]
    fn only_the_bucket_that_denied_counts_as_denied() {
        let denials = Denials::new(KEYS);
        let [denied, other, of_all] = ["denied", "other", "all"].map(member);
        let batch = |user: &StoreMember| [user.clone(), of_all.clone()];
        keep(&denials, &batch(&denied), &[UNIX_NS; 2]);
        assert!(denials.marks(&batch(&denied), SENT_NS).1);
        assert!(!denials.marks(&batch(&other), SENT_NS).1);
        assert!(denials.find(&batch(&denied), SENT_NS).is_some(), "the denial is kept");
    }

    /// Members of a cluster were decided by the clocks of their servers.
    #[test]
    fn members_have_their_own_times() {
        let (denials, members) = (Denials::new(KEYS), ["a", "b"].map(member));
        let times = [UNIX_NS, UNIX_NS + 7_000_000_000];
        keep(&denials, &members, &times);
        let found = denials.find(&members, SENT_NS + 1_000).unwrap();
        assert_eq!(found.times, times.map(|at| at + 1_000));
        let decided = decide_found(&members, &found).unwrap();
        let waits = [0, 1].map(|at: usize| decided[at].decision.retry_in());
        assert_eq!(waits, [Duration::from_nanos(30_000_000_000 - 1_000); 2]);
    }

    #[test]
    fn denials_end_with_their_time() {
        let (denials, one) = (Denials::new(KEYS), [member("a")]);
        // One call asks after 2 ms, and each time that it is denied twice as late.
        for after_ms in [2, 4, 8, 16, 32, 50, 50] {
            keep(&denials, &one, &[UNIX_NS]);
            let after_ns = SENT_NS + after_ms * 1_000_000;
            assert!(denials.find(&one, after_ns - 1).is_some());
            assert!(denials.find(&one, after_ns).is_none(), "one call asks");
            assert!(denials.find(&one, after_ns).is_some(), "while the others do not");
        }
        assert!(denials.find(&one, SENT_NS + KEPT_NS - 1).is_some());
        assert!(denials.find(&one, SENT_NS + KEPT_NS).is_none());
        // The node's clock has gone back.
        assert!(denials.find(&one, SENT_NS - 1).is_none());
    }

    /// Answers may come in another order than their calls were sent.
    #[test]
    fn older_answers_leave_the_newer_text() {
        let (denials, one) = (Denials::new(KEYS), [member("a")]);
        let marks = denials.marks(&one, SENT_NS).0;
        for (sent_ns, full_in_ns) in [(SENT_NS + 9, 30_000_000_000_u64), (SENT_NS, 7)] {
            let text = Some(Box::from((UNIX_NS + full_in_ns).to_string().as_bytes()));
            let (denied, leased, times) = (Some(0), smallvec![0], Vec::new());
            let found = Found { unix_ns: UNIX_NS, denied, texts: vec![text], leased, times };
            denials.keep(&one, &found, &marks, (sent_ns, sent_ns));
        }
        assert!(denials.find(&one, SENT_NS + 100).is_some(), "by the newer text");
    }

    /// A call that asks charges the text by which it has decided, and no newer one.
    #[test]
    fn charges_leave_the_newer_text() {
        let (denials, one) = (Denials::new(KEYS), [member("a")]);
        keep(&denials, &one, &[UNIX_NS]);
        let kept = || denials.place("a").read(|state| state.kept.clone()).flatten().unwrap();
        let older = kept();
        keep(&denials, &one, &[UNIX_NS + 7]);
        let newer = kept();
        denials.place("a").replace(&older, older.with_text("charged".to_owned()));
        assert!(Arc::ptr_eq(&kept(), &newer));
        denials.place("a").replace(&newer, newer.with_text("charged".to_owned()));
        assert_eq!(kept().text.as_deref(), Some(&b"charged"[..]));
    }

    /// A bucket that has allowed calls for a second is as one that has denied none.
    #[test]
    fn denials_are_forgotten_by_allowed_calls() {
        let (denials, one) = (Denials::new(KEYS), [member("a")]);
        keep(&denials, &one, &[UNIX_NS]);
        let full = |at_ns: u64| {
            let (texts, leased, times) = (vec![None], smallvec![0], Vec::new());
            let found = Found { unix_ns: UNIX_NS, denied: None, texts, leased, times };
            let (marks, was_denied) = denials.marks(&one, at_ns);
            denials.keep(&one, &found, &marks, (at_ns, at_ns));
            was_denied
        };
        let each_ns = LAST_NS / 2;
        assert_eq!([1, 2, 3].map(|half| full(SENT_NS + half * each_ns)), [true, false, false]);
        assert!(denials.find(&one, SENT_NS + 3 * each_ns).is_none(), "no text is kept");
    }

    /// The first member has its unit at one of the times between which the store's may be, and not at the other.
    #[test]
    fn first_denier_is_that_of_the_figures() {
        let (denials, members) = (Denials::new(KEYS), ["a", "b"].map(member));
        let text = |after_ns: u64| Some(Box::from((UNIX_NS + after_ns).to_string().as_bytes()));
        let texts = vec![text(1_200_000), text(30_000_000_000)];
        let (leased, times) = (smallvec![0; 2], Vec::new());
        let found = Found { unix_ns: UNIX_NS, denied: Some(0), texts, leased, times };
        let marks = denials.marks(&members, SENT_NS).0;
        denials.keep(&members, &found, &marks, (SENT_NS, SENT_NS + 1_000_000));
        let found = denials.find(&members, SENT_NS + 1_500_000).unwrap();
        assert_eq!(found.denied, Some(0));
        assert_eq!(denied_by(&members, &decide_found(&members, &found).unwrap()), Some(0));
    }

    /// The store may have decided at any time between.
    #[test]
    fn slow_answers_shorten_no_wait() {
        let (denials, one) = (Denials::new(KEYS), [member("a")]);
        let text = Some(Box::from((UNIX_NS + 30_000_000_000).to_string().as_bytes()));
        let (denied, leased, times) = (Some(0), smallvec![0], Vec::new());
        let found = Found { unix_ns: UNIX_NS, denied, texts: vec![text], leased, times };
        let marks = denials.marks(&one, SENT_NS).0;
        denials.keep(&one, &found, &marks, (SENT_NS, SENT_NS + 9_000_000));
        let found = denials.find(&one, SENT_NS + 1_500_000).unwrap();
        assert_eq!(found.times, [UNIX_NS], "not before the answer");
        let _ = denials.find(&one, SENT_NS + 10_000_000);
        let found = denials.find(&one, SENT_NS + 10_000_000).unwrap();
        assert_eq!(found.times, [UNIX_NS + 1_000_000]);
    }
}
