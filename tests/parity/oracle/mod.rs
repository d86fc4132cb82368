//! Computes what every call must answer, from a map of limit and id to a bucket in plain integers. No sweep
//! touches the map.

mod batch;
pub(crate) mod bucket;
mod debt;

use std::collections::BTreeMap;

use tollgate::limits::Floor;
use tollgate::reload::CarryOver;

use super::call::OF_FLOOR;
use super::ops::{Call, ONE};
use super::spec::{ADDRESSES, KNOWN, NETWORKS, Numbers, Over, Sharing, Spec, Target};
use bucket::{Figures, Rule, State};

/// An answer. `figures` is `None` if no limit applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) figures: Option<Figures>,
    pub(crate) denied_by: Option<usize>,
    /// Whether a block denied the call.
    pub(crate) blocked: bool,
}

impl Answer {
    pub(crate) const UNLIMITED: Answer = Answer { figures: None, denied_by: None, blocked: false };
}

/// Why a call is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    Cost,
    Batch,
}

#[allow(dead_code, reason = "no call for a shared limit takes what there is")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Spend,
    Check,
    Refund,
    Reset,
    SpendUpTo,
    /// Leaves the cost in the bucket.
    Drain,
}

/// The limits of a generation, and the ends of their overrides on the limiter's clock, in ns, by limit and
/// override.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) spec: Spec,
    pub(crate) ends: Vec<Vec<Option<i128>>>,
    /// The last numbers, and the mode, of networks that their limit has no more.
    pub(crate) former: [Option<(Numbers, bool)>; NETWORKS.len()],
}

/// The place of a bucket and its id: the place is that of a limit in [`KNOWN`], or behind those that of a network.
pub(crate) type Key = (usize, usize);

impl Terms {
    /// Makes terms without ends.
    pub(crate) fn new(spec: Spec) -> Terms {
        Terms { spec, ends: Vec::new(), former: [None; NETWORKS.len()] }
    }

    /// The bucket of an id at a time: that of the smallest network around it, unless it has an override of its own.
    pub(crate) fn key_of(&self, limit: usize, id: usize, now: i128) -> Key {
        let network = || {
            let mut around = (0..NETWORKS.len()).filter(|&at| NETWORKS[at].ids.contains(&id));
            around.find(|&at| {
                self.given(limit, now, |over| over.target == Target::Network(at)).is_some()
            })
        };
        match limit == ADDRESSES && self.own_override(limit, id, now).is_none() {
            true => (network().map_or(limit, |at| KNOWN.len() + at), id),
            false => (limit, id),
        }
    }

    /// The numbers of a bucket at a time, and the end of their override: of a limit's bucket its id's override's, else its
    /// account's, else the default's. A network's have no end.
    pub(crate) fn applied(&self, (place, id): Key, now: i128) -> Option<(Numbers, Option<i128>)> {
        if let Some(at) = place.checked_sub(KNOWN.len()) {
            return self.network(at).map(|(numbers, _)| (numbers, None));
        }
        let spec = self.spec.limit(place)?;
        match self.override_of(place, id, now) {
            Some((at, over)) => Some((over.numbers?, self.ends[place][at])),
            None => Some((spec.default?, None)),
        }
    }

    /// The numbers and the mode of a network's buckets.
    pub(crate) fn network(&self, at: usize) -> Option<(Numbers, bool)> {
        let spec = self.spec.limit(ADDRESSES)?;
        let given = spec.overrides.0.iter().find(|over| over.target == Target::Network(at));
        let numbers = given.and_then(|over| over.numbers);
        numbers.map(|numbers| (numbers, spec.shadow)).or(self.former[at])
    }

    /// Whether the place is that of a network which the limit does not have, or for which it is lifted.
    #[allow(dead_code, reason = "shared limits have no networks")]
    pub(crate) fn is_former(&self, place: usize) -> bool {
        let network = place.checked_sub(KNOWN.len());
        network.is_some_and(|at| self.network(at).is_none() || self.former[at].is_some())
    }

    /// Keeps the numbers of the networks that `before` has and these terms do not.
    fn follow(&mut self, before: &Terms) {
        if self.spec.limit(ADDRESSES).is_some() {
            self.former = std::array::from_fn(|at| {
                if self.network(at).is_some() { None } else { before.network(at) }
            });
        }
    }

    /// The first override that a condition holds for and that has not ended, and its place in the list.
    fn given(&self, limit: usize, now: i128, is: impl Fn(&Over) -> bool) -> Option<(usize, &Over)> {
        let spec = self.spec.limit(limit)?;
        let mut all = spec.overrides.0.iter().enumerate();
        all.find(|(at, over)| self.ends[limit][*at].is_none_or(|end| end > now) && is(over))
    }

    fn own_override(&self, limit: usize, id: usize, now: i128) -> Option<(usize, &Over)> {
        self.given(limit, now, |over| over.target == Target::Id(id))
    }

    /// The override that applies to a limit's bucket at a time, and its place in the list.
    fn override_of(&self, limit: usize, id: usize, now: i128) -> Option<(usize, &Over)> {
        let of_account = |over: &Over| {
            matches!(over.target, Target::Account(_)) && over.is_for(&KNOWN[limit], id)
        };
        self.own_override(limit, id, now).or_else(|| self.given(limit, now, of_account))
    }

    /// The rule of a bucket at a time.
    pub(crate) fn rule_of(&self, key: Key, now: i128) -> Option<Rule> {
        self.applied(key, now).map(|(numbers, _)| Rule::of(numbers))
    }

    /// The rule that applies to an id at a time.
    pub(crate) fn rule(&self, limit: usize, id: usize, now: i128) -> Option<Rule> {
        let key = self.key_of(limit, id, now);
        let is_lifted = key.0 >= KNOWN.len() && {
            let network = Target::Network(key.0 - KNOWN.len());
            self.given(limit, now, |over| over.target == network && over.numbers.is_none())
                .is_some()
        };
        self.rule_of(key, now).filter(|_| !is_lifted)
    }

    pub(crate) fn is_shadow(&self, limit: usize) -> bool {
        self.spec.limit(limit).is_some_and(|limit| limit.shadow)
    }

    pub(crate) fn is_shared(&self, limit: usize) -> bool {
        self.spec.limit(limit).is_some_and(|limit| limit.sharing != Sharing::Local)
    }

    /// The ends of overrides after one time, up to another.
    pub(crate) fn ends_within(&self, after: i128, until: i128) -> Vec<i128> {
        let all = self.ends.iter().flatten().flatten().copied();
        let mut ends: Vec<i128> = all.filter(|&end| after < end && end <= until).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    pub(crate) now: i128,
    /// The clock never goes back behind this.
    pub(crate) floor: i128,
    pub(crate) enabled: bool,
    pub(crate) terms: Terms,
    /// The time of the store of shared limits. Their buckets are lent for each call.
    pub(crate) store_now: Option<i128>,
    /// The carry-over of the last reload.
    debt: CarryOver,
    buckets: BTreeMap<(usize, usize), State>,
    /// The end of each id's block.
    blocks: BTreeMap<(usize, usize), i128>,
    /// The most permits by default that a caller has set.
    pub(crate) max_set: BTreeMap<usize, u64>,
    /// The number of epochs of permits that have begun.
    epochs: u64,
}

impl Oracle {
    pub(crate) fn new(terms: Terms, now: i128) -> Oracle {
        let debt = CarryOver::default();
        let (buckets, blocks) = (BTreeMap::new(), BTreeMap::new());
        let store_now = None;
        let (max_set, epochs) = (BTreeMap::new(), 0);
        let enabled = true;
        Oracle {
            now,
            floor: now,
            enabled,
            terms,
            store_now,
            debt,
            buckets,
            blocks,
            max_set,
            epochs,
        }
    }

    /// Moves the clock. The end of an override is a reload at that instant, with the last reload's
    /// carry-over.
    pub(crate) fn set_now(&mut self, now: i128) {
        for end in self.terms.ends_within(self.now, now) {
            let terms = self.terms.clone();
            self.carry(self.debt, end, |limit, id| {
                (terms.rule_of((limit, id), end - 1), terms.rule_of((limit, id), end))
            });
            self.floor = end;
        }
        // Blocks that are over are dropped.
        let over = self.blocks.values().copied().filter(|&until| until <= now).max();
        self.blocks.retain(|_, until| *until > now);
        self.floor = self.floor.max(over.unwrap_or(0));
        self.now = now;
    }

    /// Blocks an id, and returns the time for which it is then blocked; `None` if no limit applies.
    pub(crate) fn block(&mut self, limit: usize, id: usize, time: i128) -> Option<i128> {
        self.terms.rule(limit, id, self.now)?;
        let now = self.time_of(limit);
        let until = self.blocks.entry((limit, id)).or_insert(now);
        *until = (*until).max(now + time);
        let left = *until - now;
        self.blocks.retain(|_, until| *until > now);
        Some(left)
    }

    pub(crate) fn unblock(&mut self, limit: usize, id: usize) -> bool {
        self.blocks.remove(&(limit, id)).is_some()
    }

    /// The time until an id's block ends.
    pub(crate) fn blocked_for(&self, limit: usize, id: usize) -> Option<i128> {
        self.blocks.get(&(limit, id)).map(|until| until - self.time_of(limit))
    }

    /// Whether an id is blocked whose limit is not among these.
    pub(crate) fn blocks_more_than(&self, spec: &Spec) -> bool {
        self.blocks.keys().any(|&(limit, _)| spec.limit(limit).is_none())
    }

    /// The denial of a blocked id: no unit is left until the block is over and the bucket holds the cost.
    /// The bucket stays unchanged.
    fn under_block(&self, rule: Rule, call: Call, answer: Figures) -> Option<Figures> {
        let left = self.blocked_for(call.limit, call.id)?;
        let own = if answer.allowed { 0 } else { answer.retry };
        let bucket = self.ask(CallKind::Check, rule, call.of_nothing()).1;
        Some(Figures { allowed: false, remaining: 0, retry: left.max(own), reset: bucket.reset })
    }

    /// The time by which a limit's buckets count: the limiter's, or the store's.
    fn time_of(&self, limit: usize) -> i128 {
        self.store_now.filter(|_| self.terms.is_shared(limit)).unwrap_or(self.now)
    }

    /// Swaps the state of an id's bucket and the end of its block for others.
    #[allow(dead_code, reason = "for shared limits")]
    pub(crate) fn swap(
        &mut self,
        key: (usize, usize),
        (state, until): (Option<State>, Option<i128>),
    ) -> (Option<State>, Option<i128>) {
        let state_before = match state {
            Some(state) => self.buckets.insert(key, state),
            None => self.buckets.remove(&key),
        };
        let until_before = match until {
            Some(until) => self.blocks.insert(key, until),
            None => self.blocks.remove(&key),
        };
        (state_before, until_before)
    }

    /// The next end of an override.
    pub(crate) fn next_end(&self) -> Option<i128> {
        self.terms.ends_within(self.now, i128::MAX).first().copied()
    }

    /// Carries every bucket from its old rule to its new one. A bucket without a new rule is dropped.
    fn carry(
        &mut self,
        debt: CarryOver,
        at: i128,
        rules: impl Fn(usize, usize) -> (Option<Rule>, Option<Rule>),
    ) {
        self.buckets = std::mem::take(&mut self.buckets)
            .into_iter()
            .filter_map(|((limit, id), state)| {
                let (Some(old), Some(new)) = rules(limit, id) else { return None };
                Some(((limit, id), debt::carried(debt, old, new, state, at)?))
            })
            .collect();
    }

    /// Applies a reload that changed something.
    pub(crate) fn reload(&mut self, mut terms: Terms, debt: CarryOver) {
        terms.follow(&self.terms);
        self.put_in_place(terms, debt, self.now);
        self.debt = debt;
    }

    /// Continues as a limiter that was restored at `at`. Buckets are carried as of the snapshot's time.
    pub(crate) fn restore(&mut self, terms: Terms, debt: CarryOver, at: i128) {
        self.buckets.retain(|_, state| !matches!(state, State::InFlight { .. }));
        self.put_in_place(terms, debt, at);
        self.max_set.clear();
        self.debt = debt;
        self.enabled = true;
        self.now = at;
    }

    /// Puts limits in place as they apply at `at`.
    fn put_in_place(&mut self, terms: Terms, debt: CarryOver, at: i128) {
        let now = self.now;
        let before = std::mem::replace(&mut self.terms, terms);
        let after = self.terms.clone();
        let default = |terms: &Terms, limit| terms.spec.limit(limit).and_then(|it| it.default);
        self.max_set.retain(|limit, _| default(&before, *limit) == default(&after, *limit));
        self.carry(debt, now, |limit, id| {
            (before.rule_of((limit, id), now), after.rule_of((limit, id), at))
        });
        self.floor = at;
    }

    pub(crate) fn swept(&mut self) {
        self.floor = self.now;
    }

    pub(crate) fn store(&mut self, key: (usize, usize), state: Option<State>) {
        let state = match state {
            Some(State::InFlight { used, epoch: 0 }) => {
                self.epochs += 1;
                Some(State::InFlight { used, epoch: self.epochs })
            }
            other => other,
        };
        if let Some(state) = state {
            self.buckets.insert(key, state);
        }
    }

    pub(crate) fn state(&self, key: (usize, usize)) -> Option<State> {
        self.buckets.get(&key).copied()
    }

    /// Gives permits back that were counted in this epoch.
    #[allow(dead_code, reason = "calls of several nodes take no permits")]
    pub(crate) fn release(&mut self, key: (usize, usize), epoch: u64, permits: i128) {
        if let Some(State::InFlight { used, epoch: now }) = self.state(key)
            && now == epoch
        {
            assert!(used >= permits, "{used} are out, {permits} came back");
            self.buckets.insert(key, State::InFlight { used: used - permits, epoch });
        }
    }

    /// The number of permits that are out of an id's bucket.
    #[allow(dead_code, reason = "calls of several nodes take no permits")]
    pub(crate) fn in_flight(&self, key: (usize, usize)) -> u64 {
        let applies = self.terms.rule(key.0, key.1, self.now).is_some();
        match self.state(key) {
            Some(State::InFlight { used, .. }) if applies => used as u64,
            _ => 0,
        }
    }

    /// The bucket that a call asks.
    pub(crate) fn key_of(&self, call: Call) -> Key {
        self.terms.key_of(call.limit, call.id, self.now)
    }

    /// The rule for a call, scaled by its factor; `None`: no limit.
    pub(crate) fn rule(&self, call: Call) -> Option<Rule> {
        let rule = self.terms.rule(call.limit, call.id, self.now)?;
        self.scaled(rule, call)
    }

    /// The rule of a bucket that a call has charged, scaled by the call's factor.
    #[allow(dead_code, reason = "calls of several nodes hold no charges")]
    pub(crate) fn rule_of(&self, key: Key, call: Call) -> Option<Rule> {
        self.scaled(self.terms.rule_of(key, self.now)?, call)
    }

    fn scaled(&self, mut rule: Rule, call: Call) -> Option<Rule> {
        if let Rule::Permits { max, .. } = &mut rule
            && let Some(set) = self.max_set.get(&call.limit)
            && self.terms.override_of(call.limit, call.id, self.now).is_none()
        {
            *max = (*set).into();
        }
        match call.factor {
            0 => None,
            ONE => Some(rule),
            factor => Some(rule.scaled(factor)),
        }
    }

    fn ask(&self, kind: CallKind, rule: Rule, call: Call) -> (Option<State>, Figures) {
        let (state, now) = (self.state(self.key_of(call)), self.time_of(call.limit));
        let (cost, leave) = (i128::from(call.cost), i128::from(call.leave));
        match kind {
            CallKind::Spend => rule.spend_leaving(state, now, cost, leave),
            CallKind::Check => (None, rule.spend_leaving(state, now, cost, leave).1),
            CallKind::Refund => rule.refund(state, now, cost),
            CallKind::Reset => rule.reset(state, now),
            CallKind::SpendUpTo => rule.spend(state, now, self.units(rule, call)),
            CallKind::Drain => {
                let units = (rule.available(state, now) - cost).max(0);
                let drained = rule.owe(state, now, units);
                (drained, rule.spend(drained.or(state), now, 0).1)
            }
        }
    }

    /// The units that a call which takes as many as there are asks the bucket for.
    fn units(&self, rule: Rule, call: Call) -> i128 {
        let most = i128::from(call.cost).min(rule.most());
        rule.available(self.state(self.key_of(call)), self.time_of(call.limit)).max(1).min(most)
    }

    /// Answers a spend of as many units as there are, and returns their number.
    pub(crate) fn spend_up_to(&mut self, call: Call) -> (Answer, u64) {
        let is_enforced = !self.terms.is_shadow(call.limit);
        let rule = self.rule(call).filter(|_| self.enabled && is_enforced);
        let units = rule.map(|rule| self.units(rule, call));
        let answer = self.call(CallKind::SpendUpTo, call).expect("no cost is an error");
        let is_denied = answer.figures.is_some_and(|figures| !figures.allowed);
        let units = match units {
            _ if is_denied => 0,
            Some(units) => u64::try_from(units).expect("at most the cost"),
            None => call.cost,
        };
        (answer, units)
    }

    /// The call with the units that its priority leaves of a rule.
    pub(crate) fn with_floor(&self, rule: Rule, call: Call) -> Call {
        let floor = self.terms.spec.limit(call.limit).map(|limit| limit.floor);
        match floor.filter(|_| call.leave == OF_FLOOR) {
            None => call,
            Some(Floor::Units(units)) => Call { leave: units, ..call },
            Some(Floor::Percent(percent)) => {
                let hundredths = rule.most() * i128::from(percent);
                Call { leave: ((hundredths + 99) / 100) as u64, ..call }
            }
            Some(other) => unreachable!("{other:?}"),
        }
    }

    /// Answers a call for one bucket.
    pub(crate) fn call(&mut self, kind: CallKind, call: Call) -> Result<Answer, CallError> {
        let Some(rule) = self.rule(call).filter(|_| self.enabled) else {
            return Ok(Answer::UNLIMITED);
        };
        let call = self.with_floor(rule, call);
        let is_shadow = self.terms.is_shadow(call.limit);
        let takes_any = matches!(kind, CallKind::Reset | CallKind::SpendUpTo | CallKind::Drain);
        let is_above = !takes_any && call.needed() > rule.most();
        if is_above && !is_shadow {
            return Err(CallError::Cost);
        }
        let call = if is_above { call.of_nothing() } else { call };
        let (state, mut figures) = self.ask(kind, rule, call);
        let can_be_denial = matches!(kind, CallKind::Spend | CallKind::Check | CallKind::SpendUpTo);
        let denied = if can_be_denial { self.under_block(rule, call, figures) } else { None };
        match denied {
            Some(denied) => figures = denied,
            None => self.store(self.key_of(call), state),
        }
        // A limit in shadow mode denies no call.
        figures.allowed |= can_be_denial && is_shadow;
        let denied_by = (can_be_denial && !figures.allowed).then_some(0);
        let blocked = denied.is_some() && !is_shadow;
        Ok(Answer { figures: Some(figures), denied_by, blocked })
    }
}
