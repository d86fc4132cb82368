//! Warnings of limits that several nodes share.

use super::{Warning, WarningKind};
use crate::limits::Shared;
use crate::limits::registry::Limits;
use crate::limits::registry::entries::LimitEntry;
use crate::limits::sharing::FIRST_LEASE;

impl Limits {
    /// Warns of the first limit that is shared, if there is no store, and of leased limits that do not go with their options.
    pub(super) fn warnings_of_sharing(&self) -> impl Iterator<Item = Warning> + use<'_> {
        let mut without = self.entries().filter(|_| self.store().is_none());
        let without = without.find(|limit| limit.shared() != Shared::Local).map(|limit| {
            let text = "is shared, and there is no section `store`: each call fails unless the program gives one by \
                        LimiterOptions::store";
            limit.warning(WarningKind::NoStore, text)
        });
        let leased = self.entries().filter(|limit| limit.shared() == Shared::Leased);
        let leased = leased.flat_map(|limit| {
            let texts =
                [self.debt_of_leased(limit), self.boulders_leased(limit), slow_leased(limit)];
            texts.into_iter().flatten().map(move |text| limit.warning(WarningKind::Leased, text))
        });
        without.into_iter().chain(leased)
    }

    fn debt_of_leased(&self, limit: LimitEntry<'_>) -> Option<&'static str> {
        let owes = limit.max_debt() > 0 || limit.overrides().any(|given| given.max_debt() > 0);
        owes.then_some(
            "is leased, and has a `max_debt`, which has no effect: only estimates use it, and a leased limit has none. Use \
             `shared: exact`",
        )
    }

    #[cfg(feature = "boulder")]
    fn boulders_leased(&self, limit: LimitEntry<'_>) -> Option<&'static str> {
        let has_boulder_keys = self.store().is_some_and(|store| store.has_boulder_keys());
        let is_boulders = has_boulder_keys && crate::limits::boulder_number(limit.name()).is_some();
        is_boulders.then_some(
            "is leased, and has Boulder's keys: Boulder cannot read a bucket while nodes hold leases of it. Use \
             `shared: exact` as long as a Boulder writes",
        )
    }

    #[cfg(not(feature = "boulder"))]
    fn boulders_leased(&self, _: LimitEntry<'_>) -> Option<&'static str> {
        None
    }
}

/// The most time in which the units of a first lease come back, as a multiple of its length.
const MAX_LENGTHS: u32 = 60;

fn slow_leased(limit: LimitEntry<'_>) -> Option<&'static str> {
    let (of, length) = (limit.default_limit()?, limit.lease()?);
    let units = FIRST_LEASE.min(of.burst() / 2) as u32;
    let refills = of.emission_interval().saturating_mul(units);
    (refills > length.saturating_mul(MAX_LENGTHS)).then_some(
        "is leased, and refills slowly: what one lease takes comes back in more than sixty times its length, and a node that \
         crashes, or has no answer from its store, loses it. Use `shared: exact`",
    )
}

impl LimitEntry<'_> {
    fn warning(&self, kind: WarningKind, text: &str) -> Warning {
        let name = self.name();
        Warning {
            kind,
            location: self.location(),
            path: name.into(),
            limit: name.into(),
            id: String::new(),
            message: text.into(),
        }
    }
}

#[cfg(all(test, feature = "yaml", not(tollgate_loom)))]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const TERMS: &str = "burst: 5, count: 1, period: 1s, id: string";

    fn kinds(text: &str) -> Vec<(WarningKind, String)> {
        let limits = Limits::from_yaml(text).unwrap();
        let warnings = limits.warnings(SystemTime::now());
        warnings.listed.into_iter().map(|it| (it.kind, it.path)).collect()
    }

    #[test]
    fn only_the_first_limit_without_store_is_named() {
        let file = format!(
            "A: {{{TERMS}}}\nB: {{{TERMS}, shared: exact}}\nC: {{{TERMS}, shared: leased}}\n"
        );
        assert_eq!(kinds(&file), [(WarningKind::NoStore, "B".into())]);
        assert_eq!(kinds(&format!("store: {{url: redis://store}}\n{file}")), []);
    }

    #[test]
    fn leased_limits_have_no_debt() {
        let file = format!(
            "store: {{url: redis://store}}\n\
             A: {{{TERMS}, shared: exact, max_debt: 1}}\n\
             B: {{{TERMS}, shared: leased, max_debt: 1}}\n\
             C: {{{TERMS}, shared: leased}}\n\
             C:alice: {{burst: 6, count: 2, period: 1s, max_debt: 1}}\n"
        );
        let leased = |path: &str| (WarningKind::Leased, path.to_owned());
        assert_eq!(kinds(&file), [leased("B"), leased("C")]);
    }

    #[test]
    fn slow_limits_are_not_for_leases() {
        let file = |terms: &str| {
            let limit = format!("A: {{{terms}, id: string, shared: leased}}\n");
            kinds(&format!("store: {{url: redis://store}}\n{limit}"))
        };
        let leased = [(WarningKind::Leased, "A".to_owned())];
        assert_eq!(file("burst: 300, count: 300, period: 24h"), leased);
        assert_eq!(file("burst: 16, count: 1, period: 7501ms"), leased);
        assert_eq!(file("burst: 16, count: 1, period: 7500ms"), []);
        assert_eq!(file("burst: 16, count: 1, period: 70s, lease: 10s"), []);
    }

    #[cfg(feature = "boulder")]
    #[test]
    fn boulder_reads_no_leases() {
        let file = |format: &str| {
            format!(
                "store: {{url: redis://store, format: {format}}}\n\
                 NewOrdersPerAccount: {{burst: 5, count: 1, period: 1s, shared: leased}}\n"
            )
        };
        let leased = (WarningKind::Leased, "NewOrdersPerAccount".to_owned());
        assert_eq!((kinds(&file("boulder")), kinds(&file("tollgate"))), (vec![leased], vec![]));
    }

    #[test]
    fn a_leased_limit_without_store_is_named() {
        let file = format!("A: {{{TERMS}}}\nB: {{{TERMS}, shared: leased}}\n");
        assert_eq!(kinds(&file), [(WarningKind::NoStore, "B".into())]);
    }

    #[cfg(feature = "boulder")]
    #[test]
    fn each_mistake_of_a_leased_limit_is_named() {
        let file = format!(
            "store: {{url: redis://store, format: boulder}}\n\
             A: {{{TERMS}, shared: leased}}\n\
             NewOrdersPerAccount: {{burst: 5, count: 1, period: 1s, shared: leased, max_debt: 1}}\n"
        );
        let leased = (WarningKind::Leased, "NewOrdersPerAccount".to_owned());
        assert_eq!(kinds(&file), [leased.clone(), leased]);
    }
}
