//! One file's limits at work, and what came of them.

use smallvec::SmallVec;
use tollgate::batch::MemberMode;
use tollgate::limit::Factor;
use tollgate::{Decision, Error, Limits};

use crate::engine::{Charge, Charges, Engine, LimitNo};
use crate::tally::{KeyNo, Keys, Tally};
use crate::trace::{Op, Operation};

/// The limits of one file, and the counts of what they said. A run has one, and a second if it compares.
pub(crate) struct Side {
    pub(crate) engine: Engine,
    pub(crate) tally: Tally,
}

/// What a side said to a line of a trace.
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    /// The line's keys; none unless it is a spend.
    pub(crate) keys: Keys,
    /// Which of them an allowed spend was charged to.
    pub(crate) is_charged: SmallVec<[bool; 8]>,
    pub(crate) denied_by: DeniedBy,
}

/// A limit's name and an id in normal form.
pub(crate) type DeniedBy = Option<(String, String)>;

impl Answer {
    /// The factor of each key, if an allowed spend was charged to it.
    pub(crate) fn factors(&self, operation: &Operation<'_>) -> impl Fn(usize) -> Option<Factor> {
        move |position| {
            let factor = self.is_charged[position].then(|| operation.txns[position].0.factor());
            // A line with a bad factor is not read.
            factor.and_then(Result::ok)
        }
    }
}

impl Side {
    pub(crate) fn new(limits: Limits) -> Side {
        Side { engine: Engine::new(limits), tally: Tally::default() }
    }

    /// The limit of that name, which the summary will show if the file has it; an unknown one is the
    /// library's error.
    pub(crate) fn find(&mut self, name: &str) -> Result<LimitNo, Error> {
        let limit = self.engine.limit(name)?;
        if self.engine.limits().names().any(|known| known == name) {
            self.tally.show(limit);
        }
        Ok(limit)
    }

    /// Charges all of a line's keys 1, or none; else says why not, and nothing was charged.
    #[inline]
    pub(crate) fn spend(&mut self, at_ns: u64, keys: &[KeyNo]) -> Result<Decision, String> {
        self.engine.move_to(at_ns)?;
        let keys = keys.iter().map(|key| self.tally.get(*key));
        let charges: Charges<'_> = keys
            .map(|key| {
                let (mode, factor) = (MemberMode::CheckAndSpend, Factor::ONE);
                Charge { limit: key.limit, id: &key.id, cost: 1, mode, factor }
            })
            .collect();
        self.engine.call(Op::Spend, &charges).map_err(|error| error.to_string())
    }

    /// Does what a line of a trace says; else says why not, and nothing was charged. Counts nothing.
    pub(crate) fn carry_out(&mut self, operation: &Operation<'_>) -> Result<Answer, String> {
        // A line whose time is good moves the clock, whatever becomes of its buckets.
        self.engine.move_to(operation.at_ns)?;
        let charges = self.charges(operation)?;
        let is_charged = self.charged(operation, &charges);
        let Side { engine, tally } = self;
        let text = |error: Error| error.to_string();
        let decision = engine.call(operation.op, &charges).map_err(text)?;
        let mut keys = Keys::new();
        if operation.op == Op::Spend {
            for charge in &charges {
                keys.push(tally.key(engine, charge.limit, charge.id).map_err(text)?);
            }
        }
        let denied_by = match decision.denied_by() {
            Some(position) if matches!(operation.op, Op::Spend | Op::Check) => {
                let Charge { limit, id, .. } = charges[position];
                Some((engine.name(limit).to_owned(), engine.normalize(limit, id).map_err(text)?))
            }
            _ => None,
        };
        Ok(Answer { decision, keys, is_charged, denied_by })
    }

    /// The name of a key's limit, and its id in normal form.
    pub(crate) fn key(&self, key: KeyNo) -> (&str, &str) {
        let key = self.tally.get(key);
        (self.engine.name(key.limit), &key.normalized)
    }

    /// How often a key was the one that denied.
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

    /// Which buckets an allowed spend will be charged to. A spend-only one that does not fit is left
    /// alone, and only a look beforehand tells.
    fn charged(&self, operation: &Operation<'_>, charges: &[Charge<'_>]) -> SmallVec<[bool; 8]> {
        if operation.op != Op::Spend {
            return SmallVec::new();
        }
        let is_charged = charges.iter().map(|charge| match charge.mode {
            _ if charge.cost == 0 => false,
            MemberMode::CheckOnly => false,
            MemberMode::SpendOnly => self.engine.fits(charge),
            _ => true,
        });
        is_charged.collect()
    }
}
