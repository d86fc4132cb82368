//! Replaces the exact store in a build without the feature `exact`. The type has no value, so the compiler removes each
//! branch of `Store` that would call it.

use crate::store::capacity::Reservations;
use crate::store::key::{Key, KeyRef, LimitTag};
use crate::store::{Change, Outdated, Rules, Size, StoreKey, Swept, UpdateError};

/// The exact store of a build that has none.
pub(crate) enum Boxed {}

impl Boxed {
    pub(crate) fn hash(&self, _: KeyRef<'_>) -> u64 {
        match *self {}
    }

    pub(crate) fn look(&self, _: &StoreKey<'_>, _: &impl Rules) -> Result<Option<u64>, Outdated> {
        match *self {}
    }

    pub(crate) fn update(
        &self,
        _: Change<'_>,
        _: &impl Rules,
        _: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        match *self {}
    }

    pub(crate) fn renew(&self, _: &impl Rules) {
        match *self {}
    }

    pub(crate) fn floor_ns(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn sweep(&self, _: usize, _: u64, _: &impl Rules) -> Swept {
        match *self {}
    }

    pub(crate) fn reservations(&self) -> &Reservations {
        match *self {}
    }

    pub(crate) fn room_in_ns(&self, _: LimitTag, _: u64, _: &impl Rules) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn size(&self) -> Size {
        match *self {}
    }

    pub(crate) fn for_each_key(&self, _: impl FnMut(&Key)) {
        match *self {}
    }
}

#[cfg(feature = "snapshot")]
impl Boxed {
    pub(crate) fn parts(&self) -> usize {
        match *self {}
    }

    pub(crate) fn scan(&self, _: usize, _: &mut dyn FnMut(&Key, LimitTag, u64)) {
        match *self {}
    }

    pub(crate) fn set_floor(&self, _: u64) {
        match *self {}
    }
}
