//! The units that nodes hold of a bucket, by the time at which they must have been spent.

/// The most units of one group: so that a product with nanoseconds is exact in the script.
pub(crate) const MAX_GROUP_UNITS: u64 = (1 << 22) - 1;

/// The units of the leases that end at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseGroup {
    /// In ms since 1970.
    pub(crate) until_ms: u64,
    /// 0: there is no such group.
    pub(crate) units: u64,
}

/// The units that nodes hold of a bucket: at most two groups, the one that ends first before the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseGroups([LeaseGroup; 2]);

impl LeaseGroups {
    /// Returns the groups; `None` if they are not in the order of their ends, or have no units, or too many.
    pub(crate) fn new(groups: [LeaseGroup; 2]) -> Option<LeaseGroups> {
        let [first, second] = groups;
        let is_valid = |group: LeaseGroup| (1..=MAX_GROUP_UNITS).contains(&group.units);
        let are_valid = match second.units {
            0 => second == LeaseGroup::default() && (first == second || is_valid(first)),
            _ => is_valid(first) && is_valid(second) && first.until_ms < second.until_ms,
        };
        are_valid.then_some(LeaseGroups(groups))
    }

    /// Returns the groups that have units.
    pub(crate) fn iter(&self) -> impl Iterator<Item = LeaseGroup> {
        self.0.into_iter().filter(|group| group.units > 0)
    }

    pub(crate) fn units(&self) -> u64 {
        self.iter().map(|group| group.units).sum()
    }

    /// Returns the end of the last lease; 0 if there is none.
    pub(crate) fn last_end_ms(&self) -> u64 {
        self.iter().map(|group| group.until_ms).max().unwrap_or(0)
    }

    /// Removes units of the group that ends at `until_ms`. `None`: it has fewer, so the lease is over.
    pub(crate) fn without(self, until_ms: u64, units: u64) -> Option<LeaseGroups> {
        let mut groups = self.0;
        let group =
            groups.iter_mut().find(|group| group.units > 0 && group.until_ms == until_ms)?;
        group.units = group.units.checked_sub(units)?;
        Some(LeaseGroups(groups).in_order())
    }

    /// Adds a lease to the group that ends at `until_ms`, or to one that ends later if both places are taken. Returns the
    /// end of the group as well.
    pub(crate) fn with(self, until_ms: u64, units: u64) -> Option<(LeaseGroups, u64)> {
        let mut groups = self.0;
        let place = groups.iter().position(|group| group.units > 0 && group.until_ms == until_ms);
        let place = place.or_else(|| groups.iter().position(|group| group.units == 0));
        let place = place.or_else(|| groups.iter().position(|group| group.until_ms > until_ms))?;
        let group = &mut groups[place];
        let until_ms = if group.units == 0 { until_ms } else { group.until_ms };
        let units = group.units.checked_add(units).filter(|&units| units <= MAX_GROUP_UNITS)?;
        *group = LeaseGroup { until_ms, units };
        Some((LeaseGroups(groups).in_order(), until_ms))
    }

    /// Puts the groups in the order of their ends, and those without units last.
    fn in_order(self) -> LeaseGroups {
        let mut groups =
            self.0.map(|group| if group.units == 0 { LeaseGroup::default() } else { group });
        groups.sort_unstable_by_key(|group| (group.units == 0, group.until_ms));
        LeaseGroups(groups)
    }
}
