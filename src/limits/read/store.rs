//! Reads the key `store` of a limits file: the section of the store that limits share.

use super::faults::Path;
use super::walk::{Form, Role, Walk, Walked};
use crate::limits::names;

impl Walk<'_, '_> {
    /// Reads the value of the key `store`, or of `store:id`.
    pub(super) fn store(&mut self, form: Form, has_id: bool, line: u64, at: &Path<'_>) -> Walked {
        if has_id {
            self.fault(line, at, names::STORE_IS_RESERVED);
            return self.skip_value(at);
        }
        if form == Form::List || self.role == Role::Overrides {
            let message = "the name store is reserved for the section of the store that limits share, which is in the map of the defaults, in the file of the limits";
            self.fault(line, at, message);
            return self.skip_value(at);
        }
        self.section(line, at)
    }
}
