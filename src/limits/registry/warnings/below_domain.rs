//! Warns of overrides for a name below a registered domain, where calls count by the domain.

use crate::limits::Id;
use crate::limits::format::{self, Scratch};
use crate::limits::registry::entries::OverrideEntry;

impl OverrideEntry<'_> {
    /// Returns the warning if each call with the id counts as another id.
    pub(super) fn below_domain(&self) -> Option<String> {
        let format = self.limit_entry().format();
        if !format.has_domain() {
            return None;
        }
        let (id, mut scratch) = (self.id(), Scratch::new());
        // An account alone is no id of a call.
        let of_call = format::encode(format, Id::Text(&id), &mut scratch).ok()?;
        if of_call == self.id_bytes() {
            return None;
        }
        let other = format::decode(format, of_call);
        Some(format!("applies to no call, because {id} counts as {other}: write {other}"))
    }
}
