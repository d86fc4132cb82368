//! Charges that callers hold, by the rule of returns: estimates, places, and the vacant places of cancelled ones.

use std::collections::BTreeMap;

use tollgate::batch::MemberMode;

use super::ops::{BatchCall, Call};
use super::oracle::bucket::{Rule, State, ms_of};
use super::oracle::{Answer, CallError, CallKind, Key, Oracle, Terms};
use super::spec::{KNOWN, Numbers, PLACES};

/// The latest time of a limiter's clock.
const MAX_NOW: i128 = 1 << 62;

/// A charge of a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    key: Key,
    /// The limit that applied, and the end of its override.
    numbers: Numbers,
    pub(crate) end: Option<i128>,
    generation: u64,
    /// The rule by which it was charged, with the call's factor.
    rule: Rule,
    /// When it was charged.
    at: i128,
    /// The state that the charge has left.
    after: State,
}

/// What a caller holds of a call at whose time a limit applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) call: Call,
    /// The bucket that was asked.
    pub(crate) key: Key,
    /// `None` if nothing was charged.
    pub(crate) charge: Option<Charge>,
    /// Whether a cancel leaves it vacant also once its time has come: it was vacant before, or is a batch's.
    pub(crate) leaves_vacant: bool,
}

impl Claim {
    fn new(call: Call, key: Key, charge: Option<Charge>) -> Claim {
        Claim { call, key, charge, leaves_vacant: false }
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    NotGcra,
    /// A bucket is named twice.
    Batch,
    Cost,
    Blocked(i128),
    NotInTime(i128),
    TooFarAhead,
}

/// A part of a gcra bucket's time: from the TAT before a charge to the TAT after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    start: i128,
    end: i128,
}

/// The generation of the limits, and the vacant places of each key by its limit, and the generation since which that is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    generation: u64,
    since: [u64; PLACES],
    vacant: BTreeMap<Key, ((Numbers, u64), Vec<Place>)>,
}

impl Charge {
    /// Whether the limit of the charge still applies.
    fn applies(&self, oracle: &Oracle) -> bool {
        let now = oracle.terms.applied(self.key, oracle.now);
        let has_ended = self.end.is_some_and(|end| end <= oracle.now);
        let is_same = |(numbers, end): (Numbers, Option<i128>)| {
            numbers == self.numbers && end.is_some() == self.end.is_some()
        };
        !has_ended && now.is_some_and(is_same)
    }

    /// Returns units by the rule by which they were charged.
    fn give_back(&self, oracle: &mut Oracle, units: i128) {
        if let State::InFlight { epoch, .. } = self.after {
            return oracle.release(self.key, epoch, units);
        }
        let Some(state) = oracle.state(self.key).filter(|_| self.applies(oracle)) else { return };
        let own = Rule::of(self.numbers);
        let is_same_window = match (own, state, self.after) {
            (
                Rule::Fixed { .. },
                State::Counted { at, used },
                State::Counted { at: charged, .. },
            ) => own.current(at, used, ms_of(oracle.now)).at == charged,
            _ => true,
        };
        let by = if let Rule::Gcra { .. } = own { self.rule } else { own };
        let returned = by.refund(Some(state), oracle.now, units).0;
        oracle.store(self.key, returned.filter(|_| is_same_window));
    }
}

/// The part of a place that a caller can take: the part after `now`.
fn present(place: Place, now: i128) -> Option<Place> {
    let place = Place { start: place.start.max(now), ..place };
    (place.start < place.end).then_some(place)
}

impl Held {
    /// Begins the next generation, in which `terms` replace `before`.
    pub(crate) fn reload(&mut self, before: &Terms, terms: &Terms) {
        self.generation += 1;
        let is_same = |place: usize| match place.checked_sub(KNOWN.len()) {
            Some(network) => terms.network(network) == before.network(network),
            None => terms.spec.keeps(&before.spec, place),
        };
        for place in (0..PLACES).filter(|&place| !is_same(place)) {
            self.since[place] = self.generation;
        }
    }

    fn charge_of(&self, oracle: &Oracle, call: Call, before: Option<State>) -> Option<Charge> {
        let key = oracle.key_of(call);
        let (numbers, end) = oracle.terms.applied(key, oracle.now)?;
        let after = oracle.state(key).filter(|_| oracle.state(key) != before)?;
        let rule = oracle.rule(call)?;
        Some(Charge { key, numbers, end, generation: self.generation, rule, at: oracle.now, after })
    }

    /// Spends an estimate. `None` in place of a claim: no limit applies.
    pub(crate) fn spend(
        &self,
        oracle: &mut Oracle,
        call: Call,
    ) -> Result<(Answer, Option<Claim>), CallError> {
        let key = oracle.key_of(call);
        let before = oracle.state(key);
        let answer = oracle.call(CallKind::Spend, call)?;
        let charge = self.charge_of(oracle, call, before);
        Ok((answer, answer.figures.map(|_| Claim::new(call, key, charge))))
    }

    /// Spends a batch of estimates. Returns the claim of each member that can be settled.
    pub(crate) fn spend_batch(
        &self,
        oracle: &mut Oracle,
        calls: &[(Call, MemberMode)],
    ) -> Result<(Answer, Vec<Option<Claim>>), CallError> {
        let states = calls.iter().map(|(call, _)| oracle.state(oracle.key_of(*call)));
        let before: Vec<_> = states.collect();
        let answer = oracle.batch(BatchCall::ChargeAll, calls)?.0;
        let claims = calls.iter().zip(before).map(|(&(call, mode), before)| {
            let rule = oracle.rule(call).filter(|_| oracle.enabled)?;
            let charge = self.charge_of(oracle, call, before);
            let did_not_fit = mode == MemberMode::SpendOnly && call.cost > 0 && charge.is_none();
            let is_above = oracle.with_floor(rule, call).needed() > rule.most();
            let has_none = mode == MemberMode::CheckOnly || did_not_fit || is_above;
            let key = oracle.key_of(call);
            (!has_none).then_some(Claim::new(call, key, charge))
        });
        Ok((answer, claims.collect()))
    }

    /// Gives the permits of a claim back.
    pub(crate) fn release(&self, oracle: &mut Oracle, claim: Option<Claim>) {
        if let Some(Claim { call, charge: Some(charge), .. }) = claim {
            charge.give_back(oracle, call.cost.into());
        }
    }

    /// Reserves with at most this wait. Returns the wait.
    pub(crate) fn reserve(
        &mut self,
        oracle: &mut Oracle,
        call: Call,
        at_most: i128,
    ) -> Result<(i128, Option<Claim>), NoPlace> {
        self.reserve_from(oracle, call, (at_most, oracle.now))
    }

    /// Reserves the members of a batch for one time, the earliest at which all have their units.
    pub(crate) fn reserve_batch(
        &mut self,
        oracle: &mut Oracle,
        calls: &[Call],
        at_most: i128,
    ) -> Result<(i128, Vec<Option<Claim>>), NoPlace> {
        let mut from = oracle.now;
        loop {
            let (mut held, mut after) = (self.clone(), oracle.clone());
            let mut granted = from;
            let mut claims = Vec::new();
            for &call in calls {
                let (wait, claim) = held.reserve_from(&mut after, call, (MAX_NOW, from))?;
                granted = granted.max(oracle.now + wait);
                claims.push(claim.map(|claim| Claim { leaves_vacant: true, ..claim }));
            }
            if granted == from {
                if granted - oracle.now > at_most {
                    return Err(NoPlace::NotInTime(granted - oracle.now));
                }
                (*self, *oracle) = (held, after);
                return Ok((granted - oracle.now, claims));
            }
            from = granted;
        }
    }

    /// Reserves units from a time on, with at most this wait from now.
    fn reserve_from(
        &mut self,
        oracle: &mut Oracle,
        call: Call,
        (at_most, from): (i128, i128),
    ) -> Result<(i128, Option<Claim>), NoPlace> {
        let Some(rule) = oracle.rule(call).filter(|_| oracle.enabled) else { return Ok((0, None)) };
        let Rule::Gcra { burst, interval } = rule else { return Err(NoPlace::NotGcra) };
        if oracle.terms.is_shadow(call.limit) {
            let (_, claim) = self.spend(oracle, call).map_err(|_| NoPlace::Cost)?;
            return Ok((0, claim));
        }
        let (cost, now, key) = (i128::from(call.cost), oracle.now, oracle.key_of(call));
        if cost > rule.most() {
            return Err(NoPlace::Cost);
        }
        if let Some(left) = oracle.blocked_for(call.limit, call.id) {
            return Err(NoPlace::Blocked(left));
        }
        let in_time = |wait| if wait <= at_most { Ok(wait) } else { Err(NoPlace::NotInTime(wait)) };
        let before = oracle.state(key);
        let idle = match before {
            Some(State::Tat(tat)) => tat.max(now),
            _ => now,
        };
        if cost == 0 {
            let wait = in_time((idle - burst * interval).max(from) - now)?;
            return Ok((wait, Some(Claim::new(call, key, None))));
        }
        let after = idle.max(from) + cost * interval;
        let at = (after - burst * interval).max(from);
        let latest = if at <= MAX_NOW { at.min(now + at_most) } else { now + at_most };
        let (numbers, end) = oracle.terms.applied(key, now).expect("a limit applies");
        let of = (numbers, self.since[key.0]);
        let taken = self.change(key, of, |places| {
            take_earliest(places, (burst, interval), now, (cost, latest, from))
        });
        if let Some(place) = taken {
            let wait = (place.end - burst * interval).max(from) - now;
            let (generation, after) = (self.generation, State::Tat(place.end));
            let charge = Charge { key, numbers, end, generation, rule, at: now, after };
            let claim = Claim::new(call, key, Some(charge));
            return Ok((wait, Some(Claim { leaves_vacant: true, ..claim })));
        }
        if at > MAX_NOW {
            return Err(NoPlace::TooFarAhead);
        }
        let wait = in_time(at - now)?;
        oracle.store(key, Some(State::Tat(after)));
        if idle < from {
            self.change(key, of, |places| add(places, Place { start: idle, end: from }));
        }
        let charge = self.charge_of(oracle, call, before);
        Ok((wait, Some(Claim::new(call, key, charge))))
    }

    /// Changes the vacant places of a key. Those of a limit that has changed are no more.
    fn change<R>(
        &mut self,
        key: Key,
        of: (Numbers, u64),
        step: impl FnOnce(&mut Vec<Place>) -> R,
    ) -> R {
        let listed = self.vacant.get(&key).filter(|listed| listed.0 == of);
        let mut places = listed.map_or(Vec::new(), |listed| listed.1.clone());
        let result = step(&mut places);
        self.vacant.insert(key, (of, places));
        result
    }

    /// Drops a key's vacant places: its bucket was refunded or reset by hand.
    pub(crate) fn forget(&mut self, key: Key) {
        self.vacant.remove(&key);
    }

    /// Settles a claim as `actual` units. Returns the bucket's answer.
    pub(crate) fn settle(
        &mut self,
        oracle: &mut Oracle,
        claim: Option<Claim>,
        actual: u64,
    ) -> Answer {
        let Some(Claim { call, key, charge, .. }) = claim else { return Answer::UNLIMITED };
        let (call, cost) = (call.of_nothing(), call.cost);
        let Some(rule) = oracle.rule_of(key, call).filter(|_| oracle.enabled) else {
            return Answer::UNLIMITED;
        };
        let is_shadow = oracle.terms.is_shadow(call.limit);
        if actual < cost {
            if let Some(charge) = charge {
                self.return_units(oracle, charge, cost - actual);
            }
        } else if !is_shadow || cost == 0 || charge.is_some() {
            let owed = rule.owe(oracle.state(key), oracle.now, i128::from(actual - cost));
            oracle.store(key, owed);
        }
        let state = oracle.state(key);
        let mut figures = rule.spend(state, oracle.now, 0).1;
        figures.allowed |= is_shadow;
        let denied_by = (!figures.allowed).then_some(0);
        Answer { figures: Some(figures), denied_by, blocked: false }
    }

    /// Cancels a place that is granted at this time.
    pub(crate) fn cancel(&mut self, oracle: &mut Oracle, claim: Option<Claim>, granted: i128) {
        let Some(claim) = claim.filter(|_| oracle.enabled) else { return };
        let Claim { call, charge: Some(charge), leaves_vacant, .. } = claim else { return };
        let rule = Rule::of(charge.numbers);
        if granted <= oracle.now.max(charge.at) && !leaves_vacant {
            return self.return_units(oracle, charge, call.cost);
        }
        let (Rule::Gcra { interval, .. }, State::Tat(end)) = (rule, charge.after) else { return };
        if !charge.applies(oracle) {
            return;
        }
        let place = Place { start: end - interval * i128::from(call.cost), end };
        // The list has no places from before a reload that has changed the limit.
        let since = self.since[charge.key.0];
        if !return_last(oracle, charge.key, place) && since <= charge.generation {
            self.change(charge.key, (charge.numbers, since), |places| add(places, place));
        }
        self.return_vacant(oracle, charge);
    }

    fn return_units(&mut self, oracle: &mut Oracle, charge: Charge, units: u64) {
        charge.give_back(oracle, units.into());
        if charge.applies(oracle) {
            self.return_vacant(oracle, charge);
        }
    }

    /// Returns the vacant places of the charge's bucket that no charge is behind.
    fn return_vacant(&mut self, oracle: &mut Oracle, charge: Charge) {
        if !matches!(Rule::of(charge.numbers), Rule::Gcra { .. }) {
            return;
        }
        let of = (charge.numbers, self.since[charge.key.0]);
        loop {
            let tat = tat_of(oracle, charge.key);
            let last = self.change(charge.key, of, |places| {
                let now = oracle.now;
                *places = places.iter().filter_map(|&it| present(it, now)).collect();
                let last = (0..places.len()).max_by_key(|&at| places[at].end);
                let at = last.filter(|&at| tat <= places[at].end)?;
                Some(places.swap_remove(at))
            });
            let Some(last) = last else { return };
            assert!(return_last(oracle, charge.key, last));
        }
    }

    /// Charges the members of a batch in their order and returns all of it, by factors as well.
    pub(crate) fn denied(&self, oracle: &mut Oracle, calls: &[Call]) {
        for &call in calls {
            let Some(rule) = oracle.rule(call) else { continue };
            let key = oracle.key_of(call);
            let before = oracle.state(key);
            let charged = rule.spend(before, oracle.now, call.cost.into()).0;
            oracle.store(key, charged);
            if let Some(charge) = self.charge_of(oracle, call, before) {
                charge.give_back(oracle, call.cost.into());
            }
        }
    }
}

/// The TAT of a bucket; that of a full one is long over.
fn tat_of(oracle: &Oracle, key: Key) -> i128 {
    match oracle.state(key) {
        Some(State::Tat(tat)) => tat,
        _ => i128::MIN,
    }
}

/// Returns a place if no charge in the bucket is behind it.
fn return_last(oracle: &mut Oracle, key: Key, place: Place) -> bool {
    let tat = tat_of(oracle, key);
    let is_last = tat <= place.end;
    if is_last && tat > oracle.now {
        let lowered = (tat - (place.end - place.start)).max(oracle.now);
        oracle.store(key, Some(State::Tat(lowered)));
    }
    is_last
}

/// Adds a place. Places that touch become one.
fn add(places: &mut Vec<Place>, mut new: Place) {
    places.retain(|place| {
        let touches = place.end == new.start || place.start == new.end;
        if touches {
            new = Place { start: new.start.min(place.start), end: new.end.max(place.end) };
        }
        !touches
    });
    places.push(new);
}

fn take_earliest(
    places: &mut Vec<Place>,
    (burst, interval): (i128, i128),
    now: i128,
    (units, latest, from): (i128, i128, i128),
) -> Option<Place> {
    *places = places.iter().filter_map(|&it| present(it, now)).collect();
    let part_of = |place: &Place| {
        let start = place.start.max(from);
        let part = Place { start, end: start + units * interval };
        let fits = part.end <= place.end && part.end - burst * interval <= latest;
        fits.then_some(part)
    };
    let parts = (0..places.len()).filter_map(|at| Some((at, part_of(&places[at])?)));
    let (at, taken) = parts.min_by_key(|(_, part)| part.start)?;
    let place = places.swap_remove(at);
    let rests = [Place { end: taken.start, ..place }, Place { start: taken.end, ..place }];
    places.extend(rests.into_iter().filter(|rest| rest.start < rest.end));
    Some(taken)
}
