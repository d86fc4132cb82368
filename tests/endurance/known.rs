//! What breaks the bound on the code as it is; `ENDURANCE_WITH=early,blocks` switches some on, and
//! `ENDURANCE_ALL=1` all of them.

pub(crate) struct Known(&'static str, bool);

impl Known {
    pub(crate) fn is_on(&self) -> bool {
        let is_named = |named: String| named.split(',').any(|name| name == self.0);
        self.1
            || std::env::var_os("ENDURANCE_ALL").is_some()
            || std::env::var("ENDURANCE_WITH").is_ok_and(is_named)
    }
}

/// Places that are settled before their time. Issue 11, section 3.
pub(crate) const EARLY: Known = Known("early", true);

/// Ids are blocked and unblocked. Issue 11, section 2.
pub(crate) const BLOCKS: Known = Known("blocks", true);

/// Accounts' overrides come and go, and defaults with them. Issue 11, section 1.
pub(crate) const ACCOUNTS: Known = Known("accounts", true);
