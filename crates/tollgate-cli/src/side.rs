//! The limits of one file at work: a limiter and its counts.

use smallvec::SmallVec;
use tollgate::batch::MemberMode;
use tollgate::limit::Factor;
use tollgate::{Decision, Error, Limits};

use crate::engine::{Charge, Charges, Engine, LimitNo};
use crate::tally::{KeyNo, Keys, LineCharge, Tally};
use crate::trace::{Op, Operation};

/// A limiter and the counts of its decisions. A run has one, and with `--against` a second one.
pub(crate) struct Side {
    pub(crate) engine: Engine,
    pub(crate) tally: Tally,
}

/// The decision of a side on one operation.
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    /// The keys of the members of a spend or a check; empty for other operations.
    pub(crate) keys: Keys,
    /// For each member of a spend its factor, if the spend charges it when it is allowed.
    pub(crate) charged: SmallVec<[Option<Factor>; 4]>,
}

impl Answer {
    /// Makes the answer to a line of a log.
    pub(crate) fn of_line(decision: Decision, charges: &[LineCharge]) -> Answer {
        let charged = charges.iter().map(|charge| (charge.cost > 0).then_some(Factor::ONE));
        let keys = charges.iter().map(|charge| charge.key);
        Answer { decision, keys: keys.collect(), charged: charged.collect() }
    }

    /// Returns the key that denied a spend or a check.
    pub(crate) fn denied_by(&self) -> Option<KeyNo> {
        self.decision.denied_by().and_then(|position| self.keys.get(position).copied())
    }
}

impl Side {
    pub(crate) fn new(limits: Limits) -> Result<Side, Error> {
        Ok(Side { engine: Engine::new(limits)?, tally: Tally::default() })
    }

    /// Returns the number of a limit, and shows it in the summary if the file declares it. Fails for an
    /// unknown name.
    pub(crate) fn limit(&mut self, name: &str) -> Result<LimitNo, Error> {
        let limit = self.engine.limit(name)?;
        if self.engine.limits().names().any(|declared| declared == name) {
            self.tally.show(limit);
        }
        Ok(limit)
    }

    /// Charges the buckets of a log's line, or nothing if the spend is denied or fails.
    #[inline]
    pub(crate) fn spend(&mut self, at_ns: u64, charges: &[LineCharge]) -> Result<Answer, String> {
        self.engine.move_to(at_ns)?;
        let charge = |&LineCharge { key, cost }: &LineCharge| {
            let key = self.tally.get(key);
            let (mode, factor) = (MemberMode::CheckAndSpend, Factor::ONE);
            Charge { limit: key.limit, id: &key.id, cost, mode, factor }
        };
        let members: Charges<'_> = charges.iter().map(charge).collect();
        let decision = self.engine.call(Op::Spend, &members).map_err(|error| error.to_string())?;
        Ok(Answer::of_line(decision, charges))
    }

    /// Carries out a line of a trace, and counts nothing. A line that fails changes nothing but the clock,
    /// which moves if the line's time is valid.
    pub(crate) fn carry_out(&mut self, operation: &Operation<'_>) -> Result<Answer, String> {
        self.engine.move_to(operation.at_ns)?;
        let charges = self.charges(operation)?;
        let op = operation.op;
        let charged = charges.iter().filter(|_| op == Op::Spend);
        let charged =
            charged.map(|charge| self.is_charged(charge).then_some(charge.factor)).collect();
        let text = |error: Error| error.to_string();
        let decision = self.engine.call(op, &charges).map_err(text)?;
        let mut keys = Keys::new();
        if matches!(op, Op::Spend | Op::Check) {
            for charge in &charges {
                keys.push(self.tally.key(&self.engine, charge.limit, charge.id).map_err(text)?);
            }
        }
        Ok(Answer { decision, keys, charged })
    }

    /// Returns the name of a key's limit and its id in normal form.
    pub(crate) fn key(&self, key: KeyNo) -> (&str, &str) {
        let key = self.tally.get(key);
        (self.engine.name(key.limit), &key.normalized)
    }

    /// Returns how many spends a key has denied.
    pub(crate) fn denied(&self, limit: &str, normalized: &str) -> u64 {
        let limit = self.engine.known(limit);
        limit.map_or(0, |limit| self.tally.denied(limit, normalized))
    }

    fn charges<'a>(&mut self, operation: &'a Operation<'_>) -> Result<Charges<'a>, String> {
        let charges = operation.txns.iter().map(|txn| {
            let txn = &txn.0;
            let limit = self.engine.limit(&txn.limit).map_err(|error| error.to_string())?;
            Ok(Charge { limit, id: &txn.id, cost: txn.cost, mode: txn.mode, factor: txn.factor()? })
        });
        charges.collect()
    }

    /// Returns whether an allowed spend will charge this member. A spend-only member that does not fit is
    /// not charged, and the decision does not say so: only a check before the spend does.
    fn is_charged(&self, charge: &Charge<'_>) -> bool {
        charge.cost > 0
            && match charge.mode {
                MemberMode::CheckOnly => false,
                MemberMode::SpendOnly => self.engine.fits(charge),
                _ => true,
            }
    }
}
