//! A limiter with a clock that the replayed traffic moves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::batch::MemberMode;
use tollgate::clock::ManualClock;
use tollgate::limit::Factor;
use tollgate::limits::{Explanation, Location, OverrideEntry};
use tollgate::{Clock, Decision, Error, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use crate::fields::capacity;
use crate::trace::Op;

/// A limiter, its clock, and the limits that the traffic has named.
pub(crate) struct Engine {
    limiter: Limiter,
    clock: ManualClock,
    limits: Vec<KeyedLimit>,
    by_name: HashMap<Box<str>, LimitNo, ahash::RandomState>,
    /// The first and the latest time of the traffic, since the Unix epoch.
    first_and_latest_ns: Option<(u64, u64)>,
}

/// The index of a limit in its [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitNo(u32);

/// A member of an operation: one bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge<'a> {
    pub(crate) limit: LimitNo,
    pub(crate) id: &'a str,
    pub(crate) cost: u64,
    pub(crate) mode: MemberMode,
    pub(crate) factor: Factor,
}

/// The members of an operation. Most operations have few, which fit on the stack.
pub(crate) type Charges<'a> = SmallVec<[Charge<'a>; 8]>;

impl LimitNo {
    pub(crate) fn new(index: usize) -> LimitNo {
        LimitNo(u32::try_from(index).expect("a file has fewer limits than bytes"))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Engine {
    /// The longest time that a limiter's clock can count.
    const MAX_SPAN_NS: u64 = (1 << 62) - 2;

    /// Starts a limiter, which decides shared limits as one node without others does. `limits` are those of one
    /// [day](Limits::valid_at), so that no override expires during the replay.
    ///
    /// # Errors
    ///
    /// If the limits have a `max_keys` beyond every table.
    pub(crate) fn new(limits: Limits) -> Result<Engine, Error> {
        let (clock, manual_clock) = Clock::manual();
        #[cfg(feature = "valkey")]
        let limits = limits.as_one_node();
        // Without a bound on the keys, decisions are exact for any number of ids.
        let options = LimiterOptions::default().clock(clock).max_keys(usize::MAX);
        Ok(Engine {
            limiter: Limiter::with_options(limits, options)?,
            clock: manual_clock,
            limits: Vec::new(),
            by_name: HashMap::default(),
            first_and_latest_ns: None,
        })
    }

    /// Returns the number of a limit; fails for an unknown name.
    pub(crate) fn limit(&mut self, name: &str) -> Result<LimitNo, Error> {
        if let Some(&known) = self.by_name.get(name) {
            return Ok(known);
        }
        let limit = LimitNo::new(self.limits.len());
        self.limits.push(self.limiter.limit(name)?);
        self.by_name.insert(name.into(), limit);
        Ok(limit)
    }

    /// Returns the number of a limit that [`limit`](Engine::limit) has found before.
    pub(crate) fn known(&self, name: &str) -> Option<LimitNo> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn name(&self, limit: LimitNo) -> &str {
        self.keyed(limit).name()
    }

    /// Returns the names of the limits that the traffic has named, in the order of their numbers.
    #[cfg(feature = "valkey")]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.limits.iter().map(KeyedLimit::name)
    }

    /// Returns the time since the first time of the traffic.
    #[cfg(feature = "valkey")]
    pub(crate) fn since_first(&self) -> Duration {
        let since = |(first_ns, latest_ns): (u64, u64)| latest_ns.saturating_sub(first_ns);
        Duration::from_nanos(self.first_and_latest_ns.map_or(0, since))
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limiter.limits()
    }

    /// Returns an id in normal form.
    pub(crate) fn normalize(&self, limit: LimitNo, id: &str) -> Result<String, Error> {
        self.keyed(limit).normalize(id)
    }

    /// Returns whether a limit applies to the id.
    pub(crate) fn applies(&self, limit: LimitNo, id: &str) -> Result<bool, Error> {
        Ok(self.keyed(limit).check(id, 0)?.remaining().is_some())
    }

    /// Returns whether a charge would be allowed alone. An error counts as no: the call itself reports it.
    pub(crate) fn fits(&self, charge: &Charge<'_>) -> bool {
        let decision = self.keyed(charge.limit).check(charge.id, charge.cost);
        decision.is_ok_and(|decision| decision.allowed())
    }

    /// Returns the used share of a bucket in tenths, rounded down and at most 9; `None` if no limit applies.
    /// `remaining` is the number of units left; if it is `None`, this asks the limiter.
    pub(crate) fn used_tenths(
        &self,
        limit: LimitNo,
        id: &str,
        factor: Factor,
        remaining: Option<u64>,
    ) -> Option<u8> {
        let keyed = self.keyed(limit);
        let capacity = capacity(&keyed.limit_for(id).ok()??.scaled(factor).ok()??);
        let ask = || keyed.scaled(factor).check(id, 0).ok()?.remaining();
        let used = capacity.saturating_sub(remaining.or_else(ask)?);
        let tenths = u128::from(used) * 10 / u128::from(capacity.max(1));
        Some(tenths.min(9) as u8)
    }

    /// Returns the override that applies to an id, that of the id, of its account or of the smallest network around it: the id of the override
    /// and its limit, which is `None` if the override is "no limit", and its place in a file.
    pub(crate) fn override_of(
        &self,
        limit: &str,
        id: &str,
    ) -> Option<(String, Option<Limit>, Option<Location>)> {
        let limits = self.limits();
        let limit = limits.limit(limit).ok()?;
        let of_account = || {
            let (account, _) = id.split_once(':')?;
            limit.override_of(account).ok()?.filter(OverrideEntry::is_of_account)
        };
        let of_network = || limit.overrides_around(id).ok()?.into_iter().next();
        let entry = limit.override_of(id).ok()?.or_else(of_account).or_else(of_network)?;
        Some((entry.id(), entry.limit().cloned(), entry.location()))
    }

    /// Moves the clock to a time of the traffic. Fails, and does not move it, if that time is before the
    /// latest one or too far from the first.
    pub(crate) fn move_to(&mut self, at_ns: u64) -> Result<(), String> {
        let (first_ns, latest_ns) = *self.first_and_latest_ns.get_or_insert((at_ns, at_ns));
        if at_ns < latest_ns {
            return Err(format!(
                "at_ns {at_ns} is before the line above: at least {latest_ns} is allowed"
            ));
        }
        let since_first_ns = at_ns.saturating_sub(first_ns);
        if since_first_ns > Engine::MAX_SPAN_NS {
            return Err(format!(
                "at_ns {at_ns} is too long after the first: at most {} is allowed",
                first_ns.saturating_add(Engine::MAX_SPAN_NS)
            ));
        }
        self.clock.set(Duration::from_nanos(since_first_ns));
        self.first_and_latest_ns = Some((first_ns, at_ns));
        Ok(())
    }

    /// Calls the limiter with all members of an operation, as one batch.
    pub(crate) fn call(&self, op: Op, charges: &[Charge<'_>]) -> Result<Decision, Error> {
        // A single member needs no batch.
        if let [Charge { limit, id, cost, mode: MemberMode::CheckAndSpend, factor }] = *charges {
            let limit = self.keyed(limit).scaled(factor);
            return match op {
                Op::Spend => limit.spend(id, cost),
                Op::Check => limit.check(id, cost),
                Op::Refund => limit.refund(id, cost),
                Op::Reset => limit.reset(id),
            };
        }
        let members = charges.iter().map(|charge| {
            let member = self.keyed(charge.limit).member(charge.id).factor(charge.factor);
            member.cost(charge.cost).mode(charge.mode)
        });
        let members: SmallVec<[_; 8]> = members.collect();
        let batch = self.limiter.batch(&members);
        match op {
            Op::Spend => batch.spend(),
            Op::Check => batch.check(),
            Op::Refund => batch.refund(),
            Op::Reset => batch.reset(),
        }
    }

    /// Explains the decision on a spend at the latest time.
    pub(crate) fn explain(
        &mut self,
        name: &str,
        id: &str,
        cost: u64,
    ) -> Result<Explanation, Error> {
        if let Ok(permits) = self.limiter.concurrency(name) {
            return permits.explain(id, cost);
        }
        let limit = self.limit(name)?;
        self.keyed(limit).explain(id, cost)
    }

    fn keyed(&self, limit: LimitNo) -> &KeyedLimit {
        &self.limits[limit.index()]
    }
}
