//! Finds the ends of overrides on a limiter's clock.

use std::time::SystemTime;

use tollgate::Limit;

use super::answers::{between, ns};
use super::oracle::Terms;
use super::spec::{KNOWN, Spec};

/// Limits that were put in place.
pub(crate) struct PutInPlace<'a> {
    /// The start of the run in seconds since 1970.
    pub(crate) began_s: i64,
    /// The limit that applies to an id now, by the limit's place in [`KNOWN`]. `None`: the limiter does not know the limit.
    pub(crate) applies: &'a dyn Fn(usize, &str) -> Option<Option<Limit>>,
    /// The time on the limiter's clock.
    pub(crate) at: i128,
    /// The times of the system's clock before and after.
    pub(crate) between: (SystemTime, SystemTime),
}

/// Builds the terms of limits that were put in place. To find the ends of overrides on the limiter's clock, it searches
/// for the time at which an end changes an id's limit: `set_hand` moves that clock. Without such an id the exact time does
/// not matter.
pub(crate) fn terms_of(spec: &Spec, put: PutInPlace<'_>, set_hand: impl Fn(i128)) -> Terms {
    let PutInPlace { began_s, applies, at, between: (before, after) } = put;
    let limit_for = |limit: usize, id: &str, at: i128| -> Option<Limit> {
        set_hand(at);
        applies(limit, id).flatten()
    };
    let mut read = after;
    let all =
        spec.limits().flat_map(|(limit, of)| of.overrides.0.iter().map(move |over| (limit, over)));
    for (limit, over) in all {
        let Some(end) = over.ends(began_s).filter(|&end| end > after) else { continue };
        if applies(limit, KNOWN[limit].ids[0]).is_none() {
            continue;
        }
        let (first, last) = (at + between(after, end), at + between(before, end));
        let known = &KNOWN[limit];
        let observable = known.ids.iter().enumerate().find(|(id, text)| {
            over.is_for(known, *id)
                && limit_for(limit, text, first - 1) != limit_for(limit, text, last)
        });
        let Some((_, id)) = observable else { continue };
        // Search for the first time at which the other limit applies.
        let (mut low, mut high) = (first, last);
        let later = limit_for(limit, id, last);
        while low < high {
            let middle = (low + high) / 2;
            if limit_for(limit, id, middle) == later { high = middle } else { low = middle + 1 }
        }
        read = end - ns(low - at);
        break;
    }
    let end_of = |end: Option<SystemTime>| Some(at + between(read, end?).max(0));
    let ends = spec.0.0.iter().map(|limit| {
        let overrides = limit.iter().flat_map(|limit| limit.overrides.0.iter());
        overrides.map(|over| end_of(over.ends(began_s))).collect()
    });
    Terms { ends: ends.collect(), ..Terms::new(spec.clone()) }
}
