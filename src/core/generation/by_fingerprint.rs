//! Finds overrides by the fingerprint of a cell's key, for the store that keeps no ids.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::limits::{Limits, OverrideById, OverrideScope, account_of};
use crate::store::key::{KeyRef, LimitIndex, LimitTag, OwnedId};
use crate::store::{AccountBits, Fingerprint, Store};

/// The overrides of whole accounts, by the account's bits of a fingerprint.
#[derive(Default)]
pub(crate) struct ByAccount(HashMap<(LimitIndex, AccountBits), LimitTag, HashedKeys>);

/// The overrides of single ids.
#[derive(Default)]
pub(crate) struct ById(HashMap<Fingerprint, LimitTag, HashedKeys>);

/// The addresses whose own override ends, of limits with overrides of networks: at its end that of a network may apply.
#[derive(Default)]
pub(crate) struct EndingAddresses(HashMap<Fingerprint, OwnedId, HashedKeys>);

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
        ByAccount(overrides(limits, store, OverrideScope::Account).map(entry).collect())
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
        let entry = |given: OverrideById<'_>| (fingerprint(&given, store), given.tag);
        ById(overrides(limits, store, OverrideScope::Id).map(entry).collect())
    }

    /// Adds the addresses that had an override of their own in the limits `before`, and have none in `limits`, where the
    /// override of a network may apply to them.
    pub(super) fn with_former(
        mut self,
        before: &Limits,
        limits: &Limits,
        store: &Store,
        at_ns: u64,
    ) -> ById {
        if !limits.has_any_networks() {
            return self;
        }
        for given in overrides(before, store, OverrideScope::Id) {
            let key = KeyRef { limit: given.limit, id: given.id };
            if limits.has_networks(given.limit)
                && let Some(tag) = limits.tag_of(key, at_ns)
            {
                self.0.entry(fingerprint(&given, store)).or_insert(tag);
            }
        }
        self
    }

    pub(super) fn tag(&self, fingerprint: Fingerprint) -> Option<LimitTag> {
        self.0.get(&fingerprint).copied()
    }
}

impl EndingAddresses {
    pub(crate) fn new(limits: &Limits, store: &Store) -> EndingAddresses {
        let ends = |given: &OverrideById<'_>| {
            limits.has_networks(given.limit) && limits.end_ns(given.tag).is_some()
        };
        if !limits.has_ends() || !limits.has_any_networks() {
            return EndingAddresses::default();
        }
        let own = overrides(limits, store, OverrideScope::Id);
        let entry = |given| (fingerprint(&given, store), OwnedId::new(given.id));
        EndingAddresses(own.filter(ends).map(entry).collect())
    }

    pub(super) fn get(&self, fingerprint: Fingerprint) -> Option<&[u8]> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&fingerprint).map(OwnedId::as_bytes)
    }
}

fn fingerprint(given: &OverrideById<'_>, store: &Store) -> Fingerprint {
    let key = KeyRef { limit: given.limit, id: given.id };
    store.fingerprint_with(key, account_of(given.format, given.id))
}

/// Returns the overrides with this scope; none if the store keeps ids.
fn overrides<'l>(
    limits: &'l Limits,
    store: &Store,
    scope: OverrideScope,
) -> impl Iterator<Item = OverrideById<'l>> {
    let limits = store.has_fingerprints().then_some(limits);
    let all = limits.into_iter().flat_map(Limits::overrides_by_id);
    all.filter(move |given| given.scope == scope)
}
