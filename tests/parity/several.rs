//! Calls for several units or ids: partial grants, spends of many ids, and calls that leave units.

use tollgate::limit::Factor;
use tollgate::{Decision, Error, KeyedLimit};

use super::call::OF_FLOOR;
use super::ops::{Call, ONE, call};
use super::oracle::CallKind;
use super::run::{Checks, Machine, is_charged};
use super::spec::{FLOOR, KNOWN, List};

impl Machine {
    pub(crate) fn spend_up_to(&mut self, call: Call) -> Result<(), String> {
        let Some(handle) = &self.handles[call.limit] else { return Ok(()) };
        let (id, most) = (KNOWN[call.limit].id(call.id), call.cost);
        let (units, answer) = match call.factor {
            ONE => handle.spend_up_to(id, most),
            factor => handle.scaled(Factor::from_millionths(factor)).spend_up_to(id, most),
        }
        .map_err(|error| format!("{call:?}: {error}"))?;
        if units > 0 {
            self.note_spend(Call { cost: units, ..call }, is_charged(&answer));
        }
        let (expected, expected_units) = self.oracle.spend_up_to(call);
        let what = || format!("SpendUpTo {} {id}", KNOWN[call.limit].name);
        if units != expected_units && self.checks == Checks::All {
            return Err(format!("{}: {units} units in place of {expected_units}", what()));
        }
        self.same(Ok(answer), Ok(expected), what)
    }

    pub(crate) fn many(
        &mut self,
        limit: usize,
        ids: &List<usize>,
        cost: u64,
    ) -> Result<(), String> {
        let Some(handle) = &self.handles[limit] else { return Ok(()) };
        let mut answer = Vec::new();
        handle.spend_many(ids.0.iter().map(|&id| KNOWN[limit].id(id)), cost, &mut answer);
        if answer.len() != ids.0.len() {
            return Err(format!("{} answers for {} ids", answer.len(), ids.0.len()));
        }
        for (answer, &id) in answer.into_iter().zip(&ids.0) {
            let call = call(limit, id, cost);
            self.note_spend(call, answer.as_ref().is_ok_and(is_charged));
            let expected = self.oracle.call(CallKind::Spend, call);
            self.same(answer, expected, || format!("one of many: {}", KNOWN[limit].id(id)))?;
        }
        Ok(())
    }
}

/// Makes a call that must leave units.
pub(crate) fn leaving(handle: &KeyedLimit, kind: CallKind, call: Call) -> Result<Decision, Error> {
    let id = KNOWN[call.limit].id(call.id);
    let limit = match (call.leave, call.factor) {
        (OF_FLOOR, ONE) => handle.priority(FLOOR)?,
        (leave, ONE) => handle.leaving(leave),
        (leave, factor) => {
            let scaled = handle.scaled(Factor::from_millionths(factor));
            if leave == OF_FLOOR { scaled.priority(FLOOR)? } else { scaled.leaving(leave) }
        }
    };
    match kind {
        CallKind::Spend => limit.spend(id, call.cost),
        CallKind::Check => limit.check(id, call.cost),
        _ => unreachable!("{kind:?} leaves no units"),
    }
}
