//! A limiter whose clock is moved by what is replayed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::batch::MemberMode;
use tollgate::clock::ManualClock;
use tollgate::limit::{Factor, Parameters};
use tollgate::limits::Explanation;
use tollgate::limits::OverrideEntry;
use tollgate::{Clock, Decision, Error, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use crate::trace::Op;

/// The limits at work.
pub(crate) struct Engine {
    limiter: Limiter,
    hand: ManualClock,
    handles: Vec<KeyedLimit>,
    by_name: HashMap<Box<str>, LimitNo, ahash::RandomState>,
    /// The first time, and the latest: both since the Unix epoch.
    first_and_reached_ns: Option<(u64, u64)>,
}

/// A limit's place in its [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitNo(u32);

/// One bucket of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge<'a> {
    pub(crate) limit: LimitNo,
    pub(crate) id: &'a str,
    pub(crate) cost: u64,
    pub(crate) mode: MemberMode,
    pub(crate) factor: Factor,
}

/// Few enough for the stack, as a rule.
pub(crate) type Charges<'a> = SmallVec<[Charge<'a>; 8]>;

impl LimitNo {
    /// The limit at that place.
    pub(crate) fn new(index: usize) -> LimitNo {
        LimitNo(u32::try_from(index).expect("fewer limits than a file has bytes"))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Engine {
    /// The furthest that a limiter's clock goes from its origin.
    const MAX_SPAN_NS: u64 = (1 << 62) - 2;

    /// `limits` are those of one [day](Limits::as_of): no override ends while traffic is replayed.
    pub(crate) fn new(limits: Limits) -> Engine {
        let (clock, hand) = Clock::manual();
        // A replay is to be exact, however many ids there are.
        let options = LimiterOptions::default().clock(clock).max_keys(usize::MAX);
        Engine {
            limiter: Limiter::with_options(limits, options),
            hand,
            handles: Vec::new(),
            by_name: HashMap::default(),
            first_and_reached_ns: None,
        }
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limiter.limits()
    }

    /// The limit of that name; an unknown one is the library's error.
    pub(crate) fn limit(&mut self, name: &str) -> Result<LimitNo, Error> {
        if let Some(&known) = self.by_name.get(name) {
            return Ok(known);
        }
        let handle = self.limiter.limit(name)?;
        let limit = LimitNo::new(self.handles.len());
        self.handles.push(handle);
        self.by_name.insert(name.into(), limit);
        Ok(limit)
    }

    /// The limit of that name, if anything has asked for it.
    pub(crate) fn known(&self, name: &str) -> Option<LimitNo> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn name(&self, limit: LimitNo) -> &str {
        self.handle(limit).name()
    }

    /// An id as its bucket's key has it.
    pub(crate) fn normalize(&self, limit: LimitNo, id: &str) -> Result<String, Error> {
        self.handle(limit).normalize(id)
    }

    /// Whether the limit has numbers for the id.
    pub(crate) fn applies(&self, limit: LimitNo, id: &str) -> Result<bool, Error> {
        Ok(self.handle(limit).check(id, 0)?.remaining().is_some())
    }

    /// Whether the charge would be allowed by itself; an error will show in the call proper.
    pub(crate) fn fits(&self, charge: &Charge<'_>) -> bool {
        let decision = self.handle(charge.limit).check(charge.id, charge.cost);
        decision.is_ok_and(|decision| decision.allowed())
    }

    /// How many tenths of what a key may have at most are in use, rounded down and at most 9: `remaining`
    /// is what is left of it, and is asked for if it is not known. `None` where no limit applies.
    pub(crate) fn used_tenths(
        &self,
        limit: LimitNo,
        id: &str,
        factor: Factor,
        remaining: Option<u64>,
    ) -> Option<u8> {
        let handle = self.handle(limit);
        let numbers = handle.limit_for(id).ok()??.scaled(factor).ok()??;
        let most = match numbers.parameters() {
            // What remains is of the window; the burst is what is there at its start.
            Parameters::TokenBucket { limit, .. } => limit,
            _ => numbers.burst(),
        };
        let look = || handle.scaled(factor).check(id, 0).ok()?.remaining();
        let used = most.saturating_sub(remaining.or_else(look)?);
        let tenths = u128::from(used) * 10 / u128::from(most.max(1));
        Some(tenths.min(9) as u8)
    }

    /// The id of the override that applies to an id, which may be its account, and its numbers: `None` is no
    /// limit. `None` where none applies.
    pub(crate) fn override_of(&self, limit: &str, id: &str) -> Option<(String, Option<Limit>)> {
        let limits = self.limits();
        let limit = limits.limit(limit).ok()?;
        let own = limit.override_of(id).ok()?;
        let of_account = || {
            let (account, _) = id.split_once(':')?;
            limit.override_of(account).ok()?.filter(OverrideEntry::is_of_account)
        };
        let given = own.or_else(of_account)?;
        Some((given.id(), given.numbers().cloned()))
    }

    /// Moves the clock; a time that it cannot show is refused, and nothing has moved.
    pub(crate) fn move_to(&mut self, at_ns: u64) -> Result<(), String> {
        let (first_ns, reached_ns) = *self.first_and_reached_ns.get_or_insert((at_ns, at_ns));
        if at_ns < reached_ns {
            return Err(format!(
                "at_ns {at_ns} is before the line above: at least {reached_ns} is allowed"
            ));
        }
        let since_first_ns = at_ns.saturating_sub(first_ns);
        if since_first_ns > Engine::MAX_SPAN_NS {
            return Err(format!(
                "at_ns {at_ns} is too long after the first: at most {} is allowed",
                first_ns.saturating_add(Engine::MAX_SPAN_NS)
            ));
        }
        self.hand.set(Duration::from_nanos(since_first_ns));
        self.first_and_reached_ns = Some((first_ns, at_ns));
        Ok(())
    }

    /// Does `op` to all buckets as one.
    pub(crate) fn call(&self, op: Op, charges: &[Charge<'_>]) -> Result<Decision, Error> {
        if let [Charge { limit, id, cost, mode: MemberMode::CheckAndSpend, factor }] = *charges {
            let handle = self.handle(limit).scaled(factor);
            return match op {
                Op::Spend => handle.spend(id, cost),
                Op::Check => handle.check(id, cost),
                Op::Refund => handle.refund(id, cost),
                Op::Reset => handle.reset(id),
            };
        }
        let members: SmallVec<[_; 8]> = charges
            .iter()
            .map(|charge| {
                let member = self.handle(charge.limit).member(charge.id).factor(charge.factor);
                member.cost(charge.cost).mode(charge.mode)
            })
            .collect();
        let batch = self.limiter.batch(&members);
        match op {
            Op::Spend => batch.spend(),
            Op::Check => batch.check(),
            Op::Refund => batch.refund(),
            Op::Reset => batch.reset(),
        }
    }

    /// Why a spend would be answered as it would, at the time that was reached.
    pub(crate) fn explain(
        &mut self,
        name: &str,
        id: &str,
        cost: u64,
    ) -> Result<Explanation, Error> {
        let limit = self.limit(name)?;
        self.handle(limit).explain(id, cost)
    }

    fn handle(&self, limit: LimitNo) -> &KeyedLimit {
        &self.handles[limit.index()]
    }
}
