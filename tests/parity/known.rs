//! What fails on the code as it is. Each is a feature of the random runs that its mending switches on;
//! `PARITY_ALL=1` switches on all of them, and `PARITY_WITH=ends,accounts` those that it names.

pub(crate) struct Known(&'static str, bool);

impl Known {
    /// Whether runs have the feature.
    pub(crate) fn is_on(&self) -> bool {
        let is_named = |named: String| named.split(',').any(|name| name == self.0);
        self.1
            || std::env::var_os("PARITY_ALL").is_some()
            || std::env::var("PARITY_WITH").is_ok_and(is_named)
    }
}

/// Overrides end while the limiter is at work. Issue 11, section 1: one engine carries an ended override's
/// buckets at the next call or reload by the rule of that, the other one not at all.
pub(crate) const ENDS: Known = Known("ends", true);

/// Whole accounts have overrides. Issue 11, section 1: a bucket whose numbers the table cannot tell is
/// carried by the default's first.
pub(crate) const ACCOUNTS: Known = Known("accounts", true);

/// Windows are carried by `CarryOver::Time`. A window that is made shorter begins in the future then, and its
/// waits count from that time: too early ones, for a bucket that owes for longer than an empty one takes.
pub(crate) const TIME_OF_WINDOWS: Known = Known("time_of_windows", true);

/// Settlements upward and refunds in batches of limits that have numbers tried beside theirs. The shadow is
/// charged or given the whole difference, which may be above its burst: a debug assertion fails, and without
/// it a product may wrap.
pub(crate) const TRIED_ABOVE_BURST: Known = Known("tried_above_burst", true);

/// Ids are blocked. Issue 11, section 2: a block is written into the bucket's word.
pub(crate) const BLOCKS: Known = Known("blocks", true);

/// A blocked call's `reset_in` is the bucket's as it is: a denial changes nothing. The list of blocks says
/// what a spend that is not made would leave.
pub(crate) const RESET_OF_BLOCKED: Known = Known("reset_of_blocked", true);

/// Places in the future, and receipts that are settled later. Issue 11, section 3.
pub(crate) const PLACES: Known = Known("places", true);

/// Ids with overrides in a full table where newcomers share a bucket: that has the default's numbers, so that a
/// reload of these forgot what an id owed whose own numbers had not changed.
pub(crate) const OVERRIDES_AT_CAP: Known = Known("overrides_at_cap", true);

/// Resets and refunds beside places and receipts. Issue 11, section 3: a charge from before a reset that is
/// settled after it gives the same units back twice.
pub(crate) const RESETS_AND_RECEIPTS: Known = Known("resets_and_receipts", true);

/// Places that are settled before their time. Issue 11, section 3: a later place may come too early then.
pub(crate) const EARLY_SETTLEMENTS: Known = Known("early_settlements", true);
