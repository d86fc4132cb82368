//! Finds overrides by the fingerprint of a cell's key, for the store that keeps no ids.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::limits::{Limits, OverrideById, account_of};
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::store::{AccountBits, Fingerprint, Store};

/// The overrides of whole accounts, by the account's bits of a fingerprint.
#[derive(Default)]
pub(crate) struct ByAccount(HashMap<(LimitIndex, AccountBits), LimitTag, HashedKeys>);

/// The overrides of single ids.
#[derive(Default)]
pub(crate) struct ById(HashMap<Fingerprint, LimitTag, HashedKeys>);

type HashedKeys = BuildHasherDefault<FoldHashes>;

/// A hasher for keys that are hashes already: it folds their bits.
#[derive(Default)]
pub(crate) struct FoldHashes(u64);

impl Hasher for FoldHashes {
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
    pub(crate) fn new(limits: &Limits, store: &Store) -> ByAccount {
        let entry = |given: OverrideById<'_>| {
            let key = KeyRef { limit: given.limit, id: given.id };
            ((given.limit, store.fingerprint(key).account()), given.tag)
        };
        ByAccount(overrides(limits, store, true).map(entry).collect())
    }

    pub(super) fn tag(&self, limit: LimitIndex, fingerprint: Fingerprint) -> Option<LimitTag> {
        // Saves the hash: most limits have no overrides of accounts.
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(limit, fingerprint.account())).copied()
    }
}

impl ById {
    pub(crate) fn new(limits: &Limits, store: &Store) -> ById {
        let entry = |given: OverrideById<'_>| {
            let key = KeyRef { limit: given.limit, id: given.id };
            let account = account_of(given.format, given.id);
            (store.fingerprint_with(key, account), given.tag)
        };
        ById(overrides(limits, store, false).map(entry).collect())
    }

    pub(super) fn tag(&self, fingerprint: Fingerprint) -> Option<LimitTag> {
        self.0.get(&fingerprint).copied()
    }
}

/// Returns the overrides of accounts or those of single ids; none if the store keeps ids.
fn overrides<'l>(
    limits: &'l Limits,
    store: &Store,
    of_accounts: bool,
) -> impl Iterator<Item = OverrideById<'l>> {
    let limits = store.has_fingerprints().then_some(limits);
    let all = limits.into_iter().flat_map(Limits::overrides_by_id);
    all.filter(move |given| given.is_of_account == of_accounts)
}
