//! Fingerprints: the 126-bit keyed hashes that the table stores in place of keys.

use crate::store::hash::{HashKeys, hash, hash_joined, new_keys};
use crate::store::key::{KeyRef, LimitIndex};

/// 126 keyed hash bits of a key. Two of n keys have the same fingerprint with a probability of n^2
/// / 2^127: 6e-23 for 100 million keys; if an attacker chooses them, about n^2 / 2^124 (`store/hash.rs`).
///
/// In the fingerprint of a composite id, 50 bits are a hash of the account alone, so that a cell
/// tells its account. Two of n ids of one account collide with a probability of n^2 / 2^77: 1e-10
/// for 4 million. Two accounts have the same bits with a probability of 2^-50.
///
/// Bit 1 of each half is set, so that no half is 0 or 1, the marks of slots without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    pub(super) lo: u64,
    pub(super) hi: u64,
}

impl Fingerprint {
    #[inline(always)]
    fn new(lo: u64, hi: u64) -> Fingerprint {
        Fingerprint { lo: lo | SET, hi: hi | SET }
    }

    /// Returns evenly spread bits, for callers that choose one of a few bins.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.lo >> 24
    }

    /// Returns the bits that all ids of one account share.
    #[inline]
    pub(crate) fn account(self) -> AccountBits {
        AccountBits { lo: (self.lo & Self::ACCOUNT_LO) as u16, hi: self.hi & Self::ACCOUNT_HI }
    }

    /// The bits of each half that a composite id takes from its account: not those that select the
    /// shard and the slot, and not bit 1.
    const ACCOUNT_LO: u64 = 0xffff & !SET;
    const ACCOUNT_HI: u64 = ((1 << 36) - 1) & !SET;

    /// Returns this fingerprint with the account bits of `account`.
    fn with_account(self, account: Fingerprint) -> Fingerprint {
        let mixed = |own: u64, account: u64, mask: u64| own & !mask | account & mask;
        Fingerprint {
            lo: mixed(self.lo, account.lo, Self::ACCOUNT_LO),
            hi: mixed(self.hi, account.hi, Self::ACCOUNT_HI),
        }
    }
}

/// The bits of a fingerprint that identify the account of a composite id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccountBits {
    lo: u16,
    hi: u64,
}

/// The bit that is set in both halves of every fingerprint, and in no mark of a slot.
const SET: u64 = 0b10;
const _: () = assert!(super::slot::CLOSED & SET == 0 && super::slot::POISONED & SET == 0);

/// The random seeds of one table: the keys of its hash function.
pub(super) struct Seeds(HashKeys);

impl Seeds {
    pub(super) fn new() -> Seeds {
        Seeds(new_keys())
    }

    #[cfg(any(feature = "snapshot", test))]
    pub(super) fn from_bits(bits: HashKeys) -> Seeds {
        Seeds(bits)
    }

    #[cfg(feature = "snapshot")]
    pub(super) fn bits(&self) -> HashKeys {
        self.0
    }

    /// Returns the fingerprint of a composite key, with the bits of its account.
    pub(super) fn composite(&self, key: KeyRef<'_>, account: &[u8]) -> Fingerprint {
        let account = self.fingerprint(KeyRef { id: account, ..key });
        self.fingerprint(key).with_account(account)
    }

    /// Hashes the limit, the length and all bytes of a key.
    #[inline(always)]
    pub(super) fn fingerprint(&self, key: KeyRef<'_>) -> Fingerprint {
        let [lo, hi] = hash(&self.0, key);
        Fingerprint::new(lo, hi)
    }

    /// Returns the fingerprint of a key whose id is that of `head` and `text`: see [`hash_joined`].
    #[inline(always)]
    pub(super) fn joined(
        &self,
        limit: LimitIndex,
        head: (u128, usize),
        text: &[u8],
    ) -> Fingerprint {
        let [lo, hi] = hash_joined(&self.0, limit, head, text);
        Fingerprint::new(lo, hi)
    }
}

impl Fingerprint {
    /// The fingerprint of all keys in a store that uses none.
    pub(crate) const NONE: Fingerprint = Fingerprint { lo: SET, hi: SET };

    /// Returns both halves.
    #[cfg(feature = "snapshot")]
    pub(crate) fn halves(self) -> [u64; 2] {
        [self.lo, self.hi]
    }

    /// Returns the fingerprint with these halves; `None` if no fingerprint has them.
    #[cfg(feature = "snapshot")]
    pub(crate) fn from_halves([lo, hi]: [u64; 2]) -> Option<Fingerprint> {
        (lo & SET != 0 && hi & SET != 0).then_some(Fingerprint { lo, hi })
    }

    /// Returns the index of the key's shard among `shards`, by other bits than those that select
    /// the slot.
    #[inline(always)]
    pub(super) fn shard(self, shards: usize) -> usize {
        (((self.lo >> 32) * shards as u64) >> 32) as usize
    }

    /// Returns the index of the first slot of a search among 2^`log2`: the first slot of a cache
    /// line. `log2` is at least 1.
    #[inline(always)]
    pub(super) fn home(self, log2: u32) -> usize {
        const LINE_LOG2: u32 = super::slot::A_LINE.ilog2();
        // The highest bits, so that cells keep their order when a segment grows or shrinks.
        ((self.hi >> (u64::BITS - log2) >> LINE_LOG2) as usize) << LINE_LOG2
    }

    /// Returns the index of the cache line of [`home`](Self::home) among 2^(32 - `shift`). `shift`
    /// is at most 31.
    #[inline(always)]
    pub(super) fn line(self, shift: u32) -> usize {
        ((self.hi >> 32) as u32).wrapping_shr(shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::shard::SegmentPointer;
    use super::super::slot::A_LINE;
    use super::*;

    #[test]
    fn different_keys_have_different_halves() {
        let seeds = Seeds::new();
        let mut seen = HashSet::new();
        let mut count = 0;
        for limit in 0..3 {
            for len in 0..40_usize {
                for at in 0..=len {
                    let mut id = vec![0_u8; len];
                    if let Some(byte) = id.get_mut(at) {
                        *byte = 1;
                    }
                    let fingerprint =
                        seeds.fingerprint(KeyRef { limit: LimitIndex(limit), id: &id });
                    assert!(
                        seen.insert(fingerprint.lo) && seen.insert(fingerprint.hi),
                        "{limit} {id:?}"
                    );
                    count += 1;
                }
            }
        }
        assert_eq!(seen.len(), 2 * count);
    }

    #[test]
    fn ids_of_one_account_share_its_bits() {
        let seeds = Seeds::new();
        let fingerprint = |account: u64, rest: &[u8]| {
            let id = [&account.to_be_bytes(), rest].concat();
            let key = KeyRef { limit: LimitIndex(3), id: &id };
            seeds.composite(key, &account.to_be_bytes())
        };
        let (mut accounts, mut fingerprints) = (HashSet::new(), HashSet::new());
        for account in 0..1_000 {
            let bits = fingerprint(account, b"a.example").account();
            assert!(accounts.insert(bits), "account {account}");
            for rest in [&b"b.example"[..], b"c.example", b"d"] {
                let fingerprint = fingerprint(account, rest);
                assert_eq!(fingerprint.account(), bits, "account {account}");
                assert!(fingerprints.insert(fingerprint), "account {account}");
                assert!(fingerprint.lo & SET != 0 && fingerprint.hi & SET != 0);
            }
        }
        // Bits that find the shard and the slot are spread within an account.
        let homes: HashSet<usize> =
            (0..1_000_u16).map(|at| fingerprint(7, &at.to_be_bytes()).home(10)).collect();
        assert!(homes.len() > 250, "{} of 512 homes", homes.len());
    }

    // Under loom all seeds are the same.
    #[cfg(all(feature = "snapshot", not(tollgate_loom)))]
    #[test]
    fn seeds_are_random_and_can_be_restored() {
        let (one, other) = (Seeds::new(), Seeds::new());
        let again = Seeds::from_bits(one.bits());
        assert_eq!(again.bits(), one.bits());
        for len in 0..200 {
            let key = KeyRef { limit: LimitIndex(3), id: &[9; 200][..len] };
            assert_eq!(again.fingerprint(key), one.fingerprint(key), "length {len}");
        }
        let distinct: HashSet<u64> = one.bits().into_iter().chain(other.bits()).collect();
        assert_eq!(distinct.len(), 8);
    }

    #[test]
    fn line_by_shift_is_that_of_the_home() {
        for (log2, hi) in (2..32).flat_map(|log2| {
            [0, u64::MAX, 0x8000_0000_0000_0000, 0x0123_4567_89ab_cdef].map(|hi| (log2, hi))
        }) {
            let fingerprint = Fingerprint { lo: SET, hi: hi | SET };
            let line = fingerprint.line(SegmentPointer::shift_of(log2));
            assert_eq!(line * A_LINE, fingerprint.home(log2), "log2 {log2}, {hi:x}");
            assert!(SegmentPointer::shift_of(SegmentPointer::shift_of(log2)) == log2);
        }
    }

    #[test]
    fn shards_and_homes_are_in_range() {
        for bits in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let fingerprint = Fingerprint { lo: bits | SET, hi: bits | SET };
            assert_eq!(fingerprint.shard(1), 0);
            assert!(fingerprint.shard(768) < 768);
            assert_eq!(fingerprint.home(1), 0);
            assert!(fingerprint.home(3) < 8 && fingerprint.home(3).is_multiple_of(2));
        }
    }

    // A hash that is not even makes long searches in few lines of the table.
    #[test]
    fn ids_that_are_alike_are_spread_evenly() {
        const IDS: usize = 1 << 14;
        type Make = fn(u64) -> Vec<u8>;
        let kinds: [(&str, Make); 7] = [
            ("numbers", |n| n.to_be_bytes().to_vec()),
            ("far numbers", |n| (n << 40).to_be_bytes().to_vec()),
            ("texts", |n| format!("client-{n}").into_bytes()),
            ("long texts", |n| format!("/a/path/of/more/than/two/blocks/{n:06}/end").into_bytes()),
            ("IPv4", |n| (0x0a00_0000 + n as u32).to_be_bytes().to_vec()),
            ("IPv6 networks", |n| {
                ((0x2001_0db8 << 96) | u128::from(n) << 64).to_be_bytes().to_vec()
            }),
            ("UUIDs", |n| format!("018f3c1e-{n:04x}-7cc0-98c4-dc0c0c07398f").into_bytes()),
        ];
        for (kind, make) in kinds {
            for seed in 0..8_u64 {
                let keys = [1, 2, 3, 4]
                    .map(|at| (seed * 4 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
                let seeds = Seeds::from_bits(keys);
                let all: Vec<Fingerprint> = (0..IDS as u64)
                    .map(|n| seeds.fingerprint(KeyRef { limit: LimitIndex(3), id: &make(n) }))
                    .collect();
                let distinct: HashSet<_> = all.iter().collect();
                assert_eq!(distinct.len(), IDS, "{kind}");
                let pairs_in_one = |bin: &dyn Fn(&Fingerprint) -> usize, bins: usize| {
                    let mut counts = vec![0_u64; bins];
                    all.iter().for_each(|fingerprint| counts[bin(fingerprint)] += 1);
                    counts.iter().map(|count| count * count.saturating_sub(1) / 2).sum::<u64>()
                };
                for (part, pairs, bins) in [
                    ("home", pairs_in_one(&|it| it.home(14) / 2, 1 << 13), 1 << 13),
                    ("shard", pairs_in_one(&|it| it.shard(768), 768), 768),
                    ("bits", pairs_in_one(&|it| it.bits() as usize % 4_096, 4_096), 4_096),
                ] {
                    let random = IDS as u64 * (IDS as u64 - 1) / 2 / bins;
                    assert!(
                        pairs < random * 11 / 10,
                        "{kind}, seed {seed}: {pairs} pairs of ids have one {part}, {random} by chance"
                    );
                }
            }
        }
    }
}
