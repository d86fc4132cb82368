//! Reservations of shared limits: `tests/parity` has those of other limits.

use std::time::Duration;

use tollgate::reserve::ReserveError;

use super::bucket::{Algorithm, with_units};
use super::call::{Call, ONE};
use super::node::ready;
use super::oracle::{CallError, CallKind};
use super::spec::KNOWN;
use super::world::World;

impl World {
    /// Reserves, and cancels at once if it says so.
    pub(crate) fn reserved(
        &mut self,
        at: usize,
        call: Call,
        at_most: u64,
        cancels: bool,
    ) -> Result<(), String> {
        let Some(handle) = self.nodes[at].handles[call.limit].clone() else { return Ok(()) };
        let call = Call { factor: ONE, ..call };
        if self.nodes[at].oracle.terms.is_shadow(call.limit) {
            // A reservation of such a limit is a spend, and does not say whether it has charged.
            return Ok(());
        }
        let Some((place, leased)) = self.place(at, call)? else { return Ok(()) };
        let mut oracle = self.nodes[at].oracle.clone();
        self.lend(&mut oracle, &[(place, leased, true)]);
        let id = KNOWN[call.limit].id(call.id);
        let reserved = ready(handle.reserve(id, call.cost, Duration::from_nanos(at_most)));
        let expected = oracle.call(CallKind::Check, call);
        if let Err(ReserveError::NoPlaces { .. }) = reserved {
            return match place.key.1 {
                Algorithm::Gcra => Err(format!("node {at}: reserve {call:?}: no places of gcra")),
                _ => Ok(()),
            };
        }
        let told = |text: &dyn std::fmt::Debug| {
            Err(format!("node {at}: reserve {call:?} within {at_most}: {text:?}, {expected:?}"))
        };
        if self.lease_ns(at, call.limit) > 0 {
            return match reserved {
                Err(ReserveError::Wrong(error)) if error.is_leased() => Ok(()),
                reserved => told(&reserved),
            };
        }
        let answer = match (&expected, &reserved) {
            (Ok(answer), _) => answer,
            (Err(CallError::Cost), Err(error)) if error.is_never() => return Ok(()),
            _ => return told(&reserved),
        };
        let Some(figures) = answer.figures else { return told(&reserved) };
        let (bucket, now) = (self.bucket(place.key), self.now);
        if answer.blocked {
            let until = bucket.blocked_until;
            let is_left = |left: Duration| until == Some(now + left.as_nanos() as i128);
            return match reserved {
                Err(ReserveError::Blocked { left }) if is_left(left) => Ok(()),
                reserved => told(&reserved),
            };
        }
        let (is_sure, is_bound) = (bucket.is_sure && leased == 0, bucket.is_bound(place.key));
        if place.key.1 != Algorithm::Gcra {
            return told(&reserved);
        }
        let least = if figures.allowed { 0 } else { figures.retry };
        let (wait, reservation) = match reserved {
            Ok(reservation) => (reservation.wait(), Some(reservation)),
            Err(ReserveError::NotInTime { needed }) => (needed, None),
            Err(error) => return told(&error),
        };
        let wait = wait.as_nanos() as i128;
        let is_in_time = wait <= i128::from(at_most);
        let fits = if is_sure { wait == least } else { !is_bound || wait >= least };
        if !fits || is_in_time != reservation.is_some() {
            return told(&(wait, is_sure, self.bucket(place.key)));
        }
        let Some(reservation) = reservation.filter(|_| call.cost > 0) else { return Ok(()) };
        self.nodes[at].forget_denials(place.key);
        self.buckets.bucket(place.key).is_sure &= is_sure;
        if cancels {
            reservation.cancel();
            // The text may be full, and no later call may have an earlier time.
            self.floor = self.floor.max(now);
            return Ok(());
        }
        let cost = i128::from(call.cost);
        let bucket = self.buckets.bucket(place.key);
        bucket.touch(place.rule, now + wait);
        let state = with_units(place.rule, bucket.state, now, cost);
        bucket.put(state, place.rule, now, false);
        self.ledger.note_rule(now, (call.limit, call.id), Some(place.rule));
        let _ = self.ledger.grant((call.limit, call.id), now + wait, now, cost);
        Ok(())
    }
}
