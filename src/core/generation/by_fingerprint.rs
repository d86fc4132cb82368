//! Overrides by what a fingerprint tells of an id: a store that keeps no ids finds the limit of a cell here.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::limits::{Limits, account_of};
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::store::{AccountBits, Fingerprint, Store};

/// The overrides of whole accounts.
#[derive(Default)]
pub(crate) struct ByAccount(
    HashMap<(LimitIndex, AccountBits), LimitTag, BuildHasherDefault<OfHash>>,
);

/// The overrides of single ids.
#[derive(Default)]
pub(crate) struct ById(HashMap<Fingerprint, LimitTag, BuildHasherDefault<OfHash>>);

/// Mixes what is hashed already.
#[derive(Default)]
pub(crate) struct OfHash(u64);

impl Hasher for OfHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u16(&mut self, bits: u16) {
        self.write_u64(u64::from(bits) << 48);
    }

    fn write_u32(&mut self, bits: u32) {
        self.write_u64(u64::from(bits));
    }

    fn write_u64(&mut self, bits: u64) {
        self.0 = self.0.rotate_left(32) ^ bits;
    }
}

impl ByAccount {
    pub(crate) fn of(limits: &Limits, store: &Store) -> ByAccount {
        if !store.tells_by_fingerprint() {
            return ByAccount::default();
        }
        let overrides = limits.overrides_by_id().filter(|given| given.is_of_account);
        let entry = |given: crate::limits::OverrideById<'_>| {
            let key = KeyRef { limit: given.limit, id: given.id };
            let account = store.fingerprint(key).account();
            ((given.limit, account), given.tag)
        };
        ByAccount(overrides.map(entry).collect())
    }

    pub(super) fn of_cell(&self, limit: LimitIndex, fingerprint: Fingerprint) -> Option<LimitTag> {
        // Most limits have none.
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(limit, fingerprint.account())).copied()
    }
}

impl ById {
    pub(crate) fn of(limits: &Limits, store: &Store) -> ById {
        if !store.tells_by_fingerprint() {
            return ById::default();
        }
        let overrides = limits.overrides_by_id().filter(|given| !given.is_of_account);
        let entry = |given: crate::limits::OverrideById<'_>| {
            let key = KeyRef { limit: given.limit, id: given.id };
            let account = account_of(given.format, given.id);
            (store.fingerprint_with(key, account), given.tag)
        };
        ById(overrides.map(entry).collect())
    }

    pub(super) fn of_cell(&self, fingerprint: Fingerprint) -> Option<LimitTag> {
        self.0.get(&fingerprint).copied()
    }
}
