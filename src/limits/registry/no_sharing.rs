//! What a build without the feature for shared limits has in their place: each limit is local.

use super::{Entry, Limits};
use crate::error::Error;
use crate::limit::{Limit, LimitFault};
use crate::limits::{LimitOptions, StoreOptions};

impl Entry {
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        false
    }

    pub(super) fn check_can_be_shared(&self, _: &LimitOptions) -> Result<(), String> {
        Ok(())
    }
}

impl Limits {
    pub(crate) fn store(&self) -> Option<&StoreOptions> {
        self.store.as_ref()
    }

    pub(crate) fn check_store_stays(&self, _: &Limits) -> Result<(), Error> {
        Ok(())
    }

    #[cfg(any(feature = "yaml", feature = "serde"))]
    pub(super) fn warnings_of_sharing(&self) -> impl Iterator<Item = super::Warning> + use<> {
        std::iter::empty()
    }
}

pub(crate) fn sharing_faults(_: &LimitOptions, _: Option<&Limit>) -> Vec<LimitFault> {
    Vec::new()
}

pub(super) fn unshareable(_: &str, _: &LimitOptions) -> Option<String> {
    None
}
