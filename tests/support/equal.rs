//! Compares limits entry by entry.

use std::collections::BTreeMap;
use std::fmt::Debug;

use tollgate::Limits;

/// Asserts that two sets of limits have the same names, in one order, with the same defaults, options and overrides.
#[track_caller]
pub(crate) fn assert_equal(one: &Limits, other: &Limits, context: &dyn Debug) {
    #[cfg(feature = "valkey")]
    assert_eq!(one.store(), other.store(), "{context:?}");
    let (one, other) = (described(one), described(other));
    assert_eq!(one, other, "{context:?}");
}

type Described = Vec<(String, String, BTreeMap<String, String>)>;

/// Returns the name of each limit, its default with its options, and its overrides by id.
pub(crate) fn described(limits: &Limits) -> Described {
    let describe = |limit: tollgate::limits::LimitEntry<'_>| {
        let default = format!(
            "{} {:?} {:?} disabled {} {} shadow {:?} debt {} floors {:?}",
            limit.format(),
            // A limit that is switched off is written without its parameters.
            limit.algorithm().filter(|_| !limit.is_disabled()),
            limit.default_limit(),
            limit.is_disabled(),
            limit.mode(),
            limit.shadow(),
            limit.max_debt(),
            limit.floors().collect::<Vec<_>>(),
        );
        #[cfg(feature = "valkey")]
        let default = {
            let (part, time, lease) = (limit.fraction(), limit.allow_for(), limit.lease());
            format!(
                "{default} {} {:?} {part:?} {time:?} {lease:?}",
                limit.shared(),
                limit.on_error()
            )
        };
        let overrides = limit.overrides().map(|given| {
            let text = format!(
                "{:?} debt {:?} {:?} {:?} {:?} {}",
                given.limit(),
                given.own_max_debt(),
                given.comment(),
                given.owner(),
                given.expires(),
                given.is_of_account(),
            );
            (given.id(), text)
        });
        (limit.name().to_owned(), default, overrides.collect())
    };
    limits.entries().map(describe).collect()
}
