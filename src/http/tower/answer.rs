//! Asking the limits about a request, and telling its response what they said.

use std::time::{SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;

use crate::algorithm::factor::Factor;
use crate::decision::Decision;
use crate::http::tower::policies::{Found, Lists, Places};
use crate::http::tower::refusal::Rejection;
use crate::http::tower::rules::{RuleInUse, Who};
use crate::http::{Answer, Fields, Item};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limiter::batch::Member;
use crate::limiter::reserve::Claim;
use crate::limits::Id;

/// Rules that are handled without an allocation; a layer with more allocates for each request.
const INLINE_RULES: usize = 4;

/// The same of rules that give back.
const INLINE_REFUNDS: usize = 1;

/// The rules, and what to tell of them.
pub(crate) struct Rules {
    pub(crate) limiter: Limiter,
    pub(crate) rules: Box<[RuleInUse]>,
    pub(crate) fields: Fields,
    pub(crate) lists: Lists,
}

/// A rule that applies to a request.
struct Asked<'r, 'a> {
    rule: &'r RuleInUse,
    position: usize,
    who: Who<'a>,
    cost: u64,
    factor: Factor,
}

/// What a request was told, until its response comes.
pub(crate) struct Told {
    pub(crate) decision: Decision,
    said: SmallVec<[Said; INLINE_RULES]>,
    charged: SmallVec<[Charged; INLINE_REFUNDS]>,
    at: SystemTime,
}

/// What one limit said.
struct Said {
    position: usize,
    policy: Found,
    decision: Decision,
    partition: Option<Box<[u8]>>,
}

/// What may have to be given back.
struct Charged {
    position: usize,
    claim: Claim,
}

/// How a response stands when the fields are written into it.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    /// Whether a denial is one, or only reported.
    pub(crate) enforced: bool,
    /// Whether the response is a denial by a layer further in, or by the service.
    pub(crate) over_denial: bool,
}

type AllAsked<'r, 'a> = SmallVec<[Asked<'r, 'a>; INLINE_RULES]>;

impl Asked<'_, '_> {
    /// What its limit says, by these numbers.
    fn says(&self, decision: Decision, limit: &Limit, parts: &Parts) -> Option<Said> {
        let policy = self.rule.policies.find(limit)?;
        let partition = self.rule.partition(parts).map(Vec::into_boxed_slice);
        Some(Said { position: self.position, policy, decision, partition })
    }

    fn id(&self) -> Id<'_> {
        // A rule that says no id does not apply: the empty text, which no format allows, never comes up.
        self.who.id().unwrap_or(Id::Text(""))
    }
}

/// Of several rules of one limit that name the same bucket, the first counts. So two rules may count a client by
/// networks of two sizes, which for an address of IPv4 are the same.
fn keep_first_of_each_bucket(asked: &mut AllAsked<'_, '_>) {
    let mut buckets = Vec::with_capacity(asked.len());
    asked.retain(|one| {
        let handle = one.rule.handle();
        // An id that is none is the batch's to refuse.
        let bucket = (handle.name().to_owned(), handle.normalize(one.id()).ok());
        let is_first = bucket.1.is_none() || !buckets.contains(&bucket);
        buckets.push(bucket);
        is_first
    });
}

impl Rules {
    /// Asks the rules that apply to a request, as one batch, and charges their limits.
    pub(crate) fn ask(&self, parts: &Parts) -> Result<Told, Rejection> {
        let mut asked: AllAsked<'_, '_> = SmallVec::new();
        for (position, rule) in self.rules.iter().enumerate() {
            if let Some(who) = rule.who(parts)? {
                let (cost, factor) = (rule.cost(parts), rule.factor(parts));
                asked.push(Asked { rule, position, who, cost, factor });
            }
        }
        let needs_time = self.fields.needs_time();
        let mut told = Told {
            decision: Decision::UNLIMITED,
            said: SmallVec::new(),
            charged: SmallVec::new(),
            at: if needs_time { SystemTime::now() } else { UNIX_EPOCH },
        };
        match asked.as_slice() {
            [] => {}
            [one] if !one.rule.can_refund() => self.ask_one(one, parts, &mut told)?,
            _ => self.ask_all(&mut asked, parts, &mut told)?,
        }
        Ok(told)
    }

    fn ask_one(
        &self,
        one: &Asked<'_, '_>,
        parts: &Parts,
        told: &mut Told,
    ) -> Result<(), Rejection> {
        let (handle, id) = (one.rule.handle(), one.id());
        let decision = handle.scaled(one.factor).spend(id, one.cost);
        told.decision = decision.map_err(|error| self.refusal_for(&error))?;
        if self.is_told(&told.decision) {
            let said = handle.with_enforced(id, |limit| match one.factor == Factor::ONE {
                true => one.says(told.decision, limit, parts),
                false => {
                    let scaled = limit.scaled(one.factor).ok().flatten();
                    scaled.and_then(|limit| one.says(told.decision, &limit, parts))
                }
            })?;
            if said.is_none() {
                // Clients are not told of a limit that is only tried.
                told.decision = Decision::UNLIMITED;
            }
            told.said.extend(said);
        }
        Ok(())
    }

    fn ask_all(
        &self,
        asked: &mut AllAsked<'_, '_>,
        parts: &Parts,
        told: &mut Told,
    ) -> Result<(), Rejection> {
        let mut outcome = self.charge_all(asked, parts, told);
        if outcome.as_ref().is_err_and(crate::error::Error::is_invalid_batch) {
            keep_first_of_each_bucket(asked);
            outcome = self.charge_all(asked, parts, told);
        }
        told.decision = outcome.map_err(|error| self.refusal_for(&error))?;
        if self.is_told(&told.decision) {
            told.said.sort_unstable_by_key(|said| said.position);
        } else {
            told.said.clear();
        }
        Ok(())
    }

    fn charge_all(
        &self,
        asked: &[Asked<'_, '_>],
        parts: &Parts,
        told: &mut Told,
    ) -> Result<Decision, crate::error::Error> {
        let mut members: SmallVec<[Member<'_>; INLINE_RULES]> = SmallVec::new();
        for one in asked {
            members.push(one.rule.handle().member(one.id()).cost(one.cost).factor(one.factor));
        }
        let Told { said, charged, .. } = told;
        self.limiter.batch(&members).spend_keeping(
            |at, decision, limit| said.extend(asked[at].says(decision, limit, parts)),
            |at| asked[at].rule.can_refund(),
            |at, claim| charged.push(Charged { position: asked[at].position, claim }),
        )
    }

    /// The refusal for a call that failed, in which limits have the names that clients see.
    fn refusal_for(&self, error: &crate::error::Error) -> Rejection {
        let refusal = Rejection::from(error);
        let shown = self.rules.iter().find_map(|rule| {
            let (name, reason) = (rule.handle().name(), refusal.reason());
            // A cost above the burst ends with the name, a factor out of range begins with it.
            let cost = reason.strip_suffix(name).filter(|text| text.ends_with(" of "));
            let factor = || reason.strip_prefix(name).filter(|text| text.starts_with(": "));
            let of_cost = cost.map(|text| format!("{text}{}", rule.name()));
            of_cost.or_else(|| factor().map(|text| format!("{}{text}", rule.name())))
        });
        shown.map_or(refusal.clone(), |reason| Rejection::new(refusal.status(), reason))
    }

    /// Whether a field, or the body of a denial, has room for what each limit says.
    fn is_told(&self, decision: &Decision) -> bool {
        decision.remaining().is_some() && (!decision.allowed() || self.fields.have_styles())
    }

    /// The names of all rules, as clients see them.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.rules.iter().map(RuleInUse::name).collect()
    }

    /// The names of the limits that deny, as clients see them.
    pub(crate) fn violated(&self, told: &Told) -> SmallVec<[&str; INLINE_RULES]> {
        let denied = told.said.iter().filter(|said| !said.decision.allowed());
        denied.map(|said| self.rules[said.position].name()).collect()
    }

    /// Gives back the costs of the rules that say so of a response with this status, or of one with which
    /// a layer further in denied the request.
    pub(crate) fn refund(&self, told: &mut Told, status: StatusCode, denied_within: bool) {
        let mut given_back = false;
        for charged in &told.charged {
            if self.rules[charged.position].refunds(status, denied_within) {
                charged.claim.roll_back_to(0);
                given_back = true;
            }
        }
        if !given_back {
            return;
        }
        // What is said is what is there now. The request has gone on: that its id was blocked since, or that others
        // wait, is no denial of this one.
        for charged in &told.charged {
            let said = told.said.iter_mut().find(|said| said.position == charged.position);
            if let Some(said) = said {
                said.decision = charged.claim.look().in_shadow();
            }
        }
        let all = told.said.iter().map(|said| said.decision);
        told.decision = all.fold(Decision::UNLIMITED, Decision::stricter);
    }
}

impl Told {
    pub(crate) fn write(&self, rules: &Rules, headers: &mut HeaderMap, standing: Standing) {
        let mut items: SmallVec<[Item<'_>; INLINE_RULES]> = SmallVec::new();
        // Where all policies are, if all are kept and none has a partition key.
        let mut places = Some(Places::new());
        for said in &self.said {
            let Some(policy) = rules.rules[said.position].policies.get(&said.policy) else {
                continue;
            };
            let item = Item::new(policy, said.decision);
            items.push(said.partition.as_deref().map_or(item, |key| item.partition(key)));
            match (&said.policy, &said.partition, &mut places) {
                (Found::Kept(place), None, Some(places)) => places.push((said.position, *place)),
                _ => places = None,
            }
        }
        let answer = Answer::new(self.decision, &items).over_denial(standing.over_denial);
        let answer = if standing.enforced { answer } else { answer.only_reported() };
        let places = places.filter(|places| places.len() > 1);
        let lists = places.and_then(|places| rules.lists.of(&places, &answer));
        rules.fields.write(headers, &answer.with_lists(lists), self.at);
    }
}
