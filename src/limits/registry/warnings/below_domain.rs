//! Warns of overrides for a name below a registered domain, where calls count by the domain.

use crate::limits::IdFormat;
use crate::limits::format;
use crate::limits::registry::entries::OverrideEntry;

impl OverrideEntry<'_> {
    /// Returns the warning if the id is a name that each call counts as another one.
    pub(super) fn below_domain(&self) -> Option<String> {
        let (format, id) = (self.limit_entry().format(), self.id_bytes());
        let rest = match format {
            IdFormat::DomainOrCidr => id,
            IdFormat::RegIdDomainOrCidr => id.get(size_of::<u64>()..)?,
            _ => return None,
        };
        if format::address_of(format, rest).is_some() {
            return None;
        }
        let name = format::name_of(format, rest)?;
        let domain = format::registered_domain(name).filter(|domain| *domain != name)?;
        Some(format!("applies to no call, because {name} counts as {domain}: write {domain}"))
    }
}
