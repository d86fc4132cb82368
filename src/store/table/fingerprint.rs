//! Fingerprints: the 126-bit keyed hashes that the table stores in place of keys.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;

#[cfg(feature = "snapshot")]
use crate::store::key::LimitIndex;
use crate::store::key::{KeyRef, Stamp};

/// 126 keyed hash bits of a key. Two of n keys have the same fingerprint with a probability of n^2
/// / 2^127: 6e-23 for 100 million keys.
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

/// The random seeds of one table, for two independent hash functions.
pub(super) struct Seeds {
    lo: RandomState,
    hi: RandomState,
    /// The bits of both seeds, for snapshots. Boxed, to stay off the cache lines that every call
    /// reads.
    #[cfg_attr(not(feature = "snapshot"), expect(dead_code, reason = "only snapshots have it"))]
    bits: Box<SeedBits>,
}

/// The random bits from which [`Seeds`] are made.
pub(crate) type SeedBits = [u64; 8];

impl Seeds {
    pub(super) fn new() -> Seeds {
        if cfg!(tollgate_loom) {
            // All executions of a model must be the same.
            return Seeds::from_bits([1, 2, 3, 4, 5, 2, 3, 4]);
        }
        // std's hasher has random keys from the system.
        let random = std::hash::RandomState::new();
        Seeds::from_bits(std::array::from_fn(|at| random.hash_one(at)))
    }

    pub(super) fn from_bits(bits: SeedBits) -> Seeds {
        let [a, b, c, d, e, f, g, h] = bits;
        Seeds {
            lo: RandomState::with_seeds(a, b, c, d),
            hi: RandomState::with_seeds(e, f, g, h),
            bits: Box::new(bits),
        }
    }

    #[cfg(feature = "snapshot")]
    pub(super) fn bits(&self) -> SeedBits {
        *self.bits
    }

    /// Returns a check value: two programs with the same seeds and the same value compute the same
    /// fingerprints. ahash may compute others in another version, or with other instructions of the
    /// processor.
    #[cfg(feature = "snapshot")]
    pub(super) fn check(&self) -> [u64; 2] {
        /// Lengths for each way to hash an id. ahash changes its way at 8, 16 and 64 bytes.
        const LENGTHS: [usize; 7] = [0, 3, 8, 12, 16, 40, 100];
        let id: [u8; 100] = std::array::from_fn(|at| at as u8);
        LENGTHS.iter().fold([0; 2], |[lo, hi], &len| {
            let key = KeyRef { limit: LimitIndex(7), id: &id[..len] };
            // Composite, so that the value also covers how a program mixes in the account.
            let fingerprint = self.composite(key, &id[..len / 2]);
            [lo.rotate_left(9) ^ fingerprint.lo, hi.rotate_left(9) ^ fingerprint.hi]
        })
    }

    /// Returns the fingerprint of a composite key, with the bits of its account.
    pub(super) fn composite(&self, key: KeyRef<'_>, account: &[u8]) -> Fingerprint {
        let account = self.fingerprint(KeyRef { id: account, ..key });
        self.fingerprint(key).with_account(account)
    }

    /// Hashes the limit, the length and all bytes of a key with both functions.
    #[inline(always)]
    pub(super) fn fingerprint(&self, key: KeyRef<'_>) -> Fingerprint {
        match PackedKey::new(key) {
            Some(packed) => {
                Fingerprint::new(hash_packed(&self.lo, packed), hash_packed(&self.hi, packed))
            }
            None => match key.id.first_chunk() {
                Some(octets) if key.id.len() == ADDRESS_BYTES => {
                    self.of_address(key.limit.0, octets)
                }
                _ => self.of_long(key.limit.0, key.id),
            },
        }
    }

    /// Does what [`of_long`](Self::of_long) does, without a loop and a call.
    #[inline(always)]
    fn of_address(&self, limit: u32, id: &[u8; ADDRESS_BYTES]) -> Fingerprint {
        Fingerprint::new(hash_bytes(&self.lo, limit, id), hash_bytes(&self.hi, limit, id))
    }

    #[inline(never)]
    fn of_long(&self, limit: u32, id: &[u8]) -> Fingerprint {
        Fingerprint::new(hash_bytes(&self.lo, limit, id), hash_bytes(&self.hi, limit, id))
    }
}

#[inline(always)]
#[allow(clippy::manual_hash_one, reason = "ahash does not inline its own")]
fn hash_packed(seeds: &RandomState, packed: PackedKey) -> u64 {
    let mut hasher = seeds.build_hasher();
    hasher.write_u128(packed.0);
    hasher.finish()
}

/// The bytes of an IPv6 address.
const ADDRESS_BYTES: usize = 16;

#[inline(always)]
fn hash_bytes(seeds: &RandomState, limit: u32, id: &[u8]) -> u64 {
    let mut hasher = seeds.build_hasher();
    hasher.write(id);
    hasher.write_u128((id.len() as u128) << 32 | u128::from(limit));
    hasher.finish()
}

/// A key with an id of at most 12 bytes as one number. From the lowest byte on: twelve bytes for
/// the id, of which some may be there twice, three for the limit, and one for the id's length.
#[derive(Clone, Copy)]
struct PackedKey(u128);

const _: () = assert!(Stamp::MAX_LIMITS <= 1 << 24, "a limit's index has three bytes");

impl PackedKey {
    const MAX_LEN: usize = 12;

    /// Packs a key. `None` if the id is too long.
    #[inline(always)]
    fn new(key: KeyRef<'_>) -> Option<PackedKey> {
        let id = key.id;
        if id.len() > PackedKey::MAX_LEN {
            return None;
        }
        // The last bytes may overlap the first. The length tells how far.
        let bytes = if let (Some(first), Some(last)) = (id.first_chunk(), id.last_chunk()) {
            u128::from(u64::from_le_bytes(*first)) | u128::from(u32::from_le_bytes(*last)) << 64
        } else if let (Some(first), Some(last)) = (id.first_chunk(), id.last_chunk()) {
            u128::from(u32::from_le_bytes(*first)) | u128::from(u32::from_le_bytes(*last)) << 32
        } else {
            id.iter().rev().fold(0, |bytes, &byte| bytes << 8 | u128::from(byte))
        };
        Some(PackedKey(bytes | u128::from(key.limit.0) << 96 | (id.len() as u128) << 120))
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
    use crate::store::key::LimitIndex;

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
        assert_eq!(again.check(), one.check());
        assert_ne!(other.check(), one.check());
        for len in 0..200 {
            let key = KeyRef { limit: LimitIndex(3), id: &[9; 200][..len] };
            assert_eq!(again.fingerprint(key), one.fingerprint(key), "length {len}");
        }
        let distinct: HashSet<u64> = one.bits().into_iter().chain(other.bits()).collect();
        assert_eq!(distinct.len(), 16);
    }

    #[test]
    fn packing_loses_nothing() {
        fn pack(limit: u32, id: &[u8]) -> Option<PackedKey> {
            PackedKey::new(KeyRef { limit: LimitIndex(limit), id })
        }
        for len in 0..=12_usize {
            let id: Vec<u8> = (1..=len as u8).collect();
            let bytes = pack(0x00a1_b2c3, &id).unwrap().0.to_le_bytes();
            // The first eight or four bytes, then the last four if there are more.
            let (first, end) = match len {
                8.. => (8, 12),
                4.. => (4, 8),
                _ => (len, len),
            };
            assert_eq!(bytes[..first], id[..first], "length {len}");
            assert_eq!(bytes[first..end], id[len - (end - first)..], "length {len}");
            assert!(bytes[end..12].iter().all(|&byte| byte == 0), "length {len}");
            assert_eq!(bytes[12..15], [0xc3, 0xb2, 0xa1]);
            assert_eq!(usize::from(bytes[15]), len);
        }
        assert!(pack(0, &[0; 13]).is_none());
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
}
