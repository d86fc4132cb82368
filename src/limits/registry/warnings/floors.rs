//! Warns of overrides whose bursts are no more than a floor, so that calls with that priority have no units.

use crate::limits::Floor;
use crate::limits::registry::entries::OverrideEntry;

impl OverrideEntry<'_> {
    /// Returns the warning. A floor that is all of the default's burst as well is meant.
    pub(super) fn above_burst(&self) -> Option<String> {
        let limit = self.limit_entry();
        let (own, default) = (self.limit()?.burst(), limit.default_limit()?.burst());
        let is_above =
            |floor| matches!(floor, Floor::Units(units) if (own..default).contains(&units));
        let floors: Vec<String> = limit
            .floors()
            .filter(|(_, floor)| is_above(*floor))
            .map(|(name, floor)| format!("{name}: {floor}"))
            .collect();
        (!floors.is_empty()).then(|| {
            format!(
                "has no units for calls with these priorities, because their floors are not below its burst {own}: {}",
                floors.join(", ")
            )
        })
    }
}
