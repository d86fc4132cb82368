//! In a build without the feature for shared limits no limits have a store.

use crate::clock::Clock;
use crate::core::shared_part::{SharedPart, StartShared};
use crate::limits::StoreOptions;

impl StartShared for StoreOptions {
    fn start(&self, _: &Clock, _: usize) -> Box<dyn SharedPart> {
        match *self {}
    }
}
