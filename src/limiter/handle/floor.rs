//! Calls with a priority: each looks up its floor, and how many units that is of the limit that applies to the id.

use std::cell::Cell;

use super::{Call, KeyedLimit};
use crate::algorithm::demand::Demand;
use crate::algorithm::factor::Factor;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limits::{Applying, Floor, FloorName, Id, Scratch};
use crate::store::key::KeyRef;
use crate::store::pin;

/// A spend or a check that must leave the units of a floor.
#[derive(Clone, Copy)]
pub(crate) struct FloorCall<'n> {
    pub(crate) floor: &'n FloorName,
    pub(crate) cost: u64,
    pub(crate) spends: bool,
}

impl KeyedLimit {
    /// Notes that the program asks for a floor, so that no reload takes it away unseen.
    ///
    /// # Errors
    ///
    /// The limit is on, and has no such floor; or the program has asked for many names while it was off.
    pub(crate) fn ask_for_floor(&self, name: &str) -> Result<&FloorName, Error> {
        let guard = pin();
        let entry = self.limiter.inner.view(&guard).generation.limits.entry(self.index);
        if entry.is_on() {
            entry.floor(name)?;
        }
        self.tally.floors.add(name).ok_or_else(|| {
            let text = format!("{}: too many names of floors were asked for", self.name());
            Error::new(ErrorKind::Name, text)
        })
    }

    /// Returns the units of a floor under a limit of this burst; 0 if there is no such floor, because the limit is off.
    #[cfg(feature = "tower")]
    pub(crate) fn units_of_floor(&self, floor: &FloorName, burst: u64) -> u64 {
        let guard = pin();
        let entry = self.limiter.inner.view(&guard).generation.limits.entry(self.index);
        entry.floor(floor.text()).map_or(0, |floor| floor.units_of(burst))
    }

    /// Decides a call with a priority. The limit and its floor are those of one view.
    pub(crate) fn call_with_floor(
        &self,
        id: Id<'_>,
        factor: Factor,
        call: FloorCall<'_>,
    ) -> Result<Decision, Error> {
        let inner = &*self.limiter.inner;
        if !inner.is_enabled() {
            return Ok(Decision::UNLIMITED);
        }
        let now_ns = inner.clock.now_ns();
        let mut scratch = Scratch::new();
        let id = self.encoded(id, &mut scratch)?;
        let fingerprint = self.fingerprint_of_any(id);
        let made = Cell::new((Demand::NOTHING, 0));
        let decided = inner.with_view(|view| {
            let (demand, percent) = match self.demand_under(view, id, factor, call, now_ns) {
                Ok(demand) => demand,
                Err(error) => return Ok(Err(error)),
            };
            made.set((demand, percent));
            let call = Call::leaving(&demand, call.spends);
            self.decide_under(view, id, fingerprint, factor, call, now_ns)
        });
        let decided = decided.inspect_err(|_| self.tally.count_error())?;
        if decided.has_shadow && call.spends {
            let key = KeyRef { limit: self.index, id };
            self.note_shadow(inner.in_shadow_leaving(key, factor, made.get(), true, now_ns));
        }
        Ok(decided.ran.decision)
    }

    /// Returns the units that the call charges and leaves, and the percentage that the floor is, or 0.
    fn demand_under(
        &self,
        view: LimitsView<'_>,
        id: &[u8],
        factor: Factor,
        FloorCall { floor, cost, .. }: FloorCall<'_>,
        now_ns: u64,
    ) -> Result<(Demand, u8), Error> {
        let limits = &view.generation.limits;
        let key = KeyRef { limit: self.index, id };
        let Some(Applying { key, limit, .. }) = limits.applying(key, view.limits_ns(now_ns)) else {
            return Ok((cost.into(), 0));
        };
        let floor = limits.entry(self.index).floor(floor.text())?;
        let burst = match factor {
            Factor::ONE => limit.burst(),
            // The call itself has the error of a factor.
            factor => match view.scaled(key.limit, limit, factor, false) {
                Ok(Some(scaled)) => scaled.burst(),
                Ok(None) | Err(_) => return Ok((cost.into(), 0)),
            },
        };
        Ok((Demand { cost, leave: floor.units_of(burst) }, floor.percent()))
    }
}

impl Floor {
    /// Returns the percentage; 0 for a number of units.
    pub(crate) fn percent(self) -> u8 {
        match self {
            Floor::Units(_) => 0,
            Floor::Percent(percent) => percent,
        }
    }
}
