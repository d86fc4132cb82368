//! Lists known violations of the bound. `ENDURANCE_WITH=early,blocks` switches some on, `ENDURANCE_ALL=1`
//! all.

pub(crate) struct KnownFault(&'static str, bool);

impl KnownFault {
    pub(crate) fn is_on(&self) -> bool {
        let is_named = |named: String| named.split(',').any(|name| name == self.0);
        self.1
            || std::env::var_os("ENDURANCE_ALL").is_some()
            || std::env::var("ENDURANCE_WITH").is_ok_and(is_named)
    }
}

/// Reservations that are settled before their time. Issue 11, section 3.
pub(crate) const EARLY: KnownFault = KnownFault("early", true);

/// Ids are blocked and unblocked. Issue 11, section 2.
pub(crate) const BLOCKS: KnownFault = KnownFault("blocks", true);

/// Overrides of accounts come and go, and defaults with them. Issue 11, section 1.
pub(crate) const ACCOUNTS: KnownFault = KnownFault("accounts", true);
