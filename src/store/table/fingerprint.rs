//! What the table keeps of a key: 128 bits that only this table's seeds tell.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;

use crate::store::key::KeyRef;
#[cfg(feature = "snapshot")]
use crate::store::key::LimitIndex;

/// 126 keyed bits of a key. Two of 100 million keys are alike with a probability of 6e-23: n^2 / 2^127.
///
/// Of a composite id, 50 of the bits are a hash of its account alone, so that a cell tells its account without
/// its id. Two of n ids of one account are alike with a probability of n^2 / 2^77: 1e-10 for 4 million. Two
/// accounts have the same bits with a probability of 2^-50.
///
/// Bit 1 of each half is set, so that neither is 0 or 1, which mark slots without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    pub(super) lo: u64,
    pub(super) hi: u64,
}

impl Fingerprint {
    /// Bits that are evenly spread, to pick one of a few by.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.lo >> 24
    }

    /// The bits that the ids of one account have in common.
    #[inline]
    pub(crate) fn account(self) -> AccountBits {
        AccountBits { lo: (self.lo & Self::ACCOUNT_LO) as u16, hi: self.hi & Self::ACCOUNT_HI }
    }

    /// The bits of each half that are the account's, in a composite id: neither those that find the shard
    /// and the slot, nor bit 1.
    const ACCOUNT_LO: u64 = 0xffff & !SET;
    const ACCOUNT_HI: u64 = ((1 << 36) - 1) & !SET;

    /// The bits of an account in those of one of its ids.
    fn with_account(self, account: Fingerprint) -> Fingerprint {
        let mixed = |own: u64, account: u64, mask: u64| own & !mask | account & mask;
        Fingerprint {
            lo: mixed(self.lo, account.lo, Self::ACCOUNT_LO),
            hi: mixed(self.hi, account.hi, Self::ACCOUNT_HI),
        }
    }
}

/// What a fingerprint tells of the account that a composite id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccountBits {
    lo: u16,
    hi: u64,
}

/// Never in a slot's mark, always in a fingerprint's half.
const SET: u64 = 0b10;
const _: () = assert!(super::slot::CLOSED & SET == 0 && super::slot::POISONED & SET == 0);

/// The random seeds of one table: two hash functions that know nothing of each other.
pub(super) struct Seeds {
    lo: RandomState,
    hi: RandomState,
    /// What both were made of, for a file of the table's fingerprints. Away from what every call reads.
    #[cfg_attr(not(feature = "snapshot"), expect(dead_code, reason = "only files have it"))]
    bits: Box<SeedBits>,
}

/// What seeds are made of.
pub(crate) type SeedBits = [u64; 8];

impl Seeds {
    pub(super) fn new() -> Seeds {
        if cfg!(tollgate_loom) {
            // Every execution of a model has to be the same.
            return Seeds::of_bits([1, 2, 3, 4, 5, 2, 3, 4]);
        }
        // The system's randomness, by way of a hash with keys of its own.
        let random = std::hash::RandomState::new();
        Seeds::of_bits(std::array::from_fn(|at| random.hash_one(at)))
    }

    pub(super) fn of_bits(bits: SeedBits) -> Seeds {
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

    /// What known keys are told by: another program has the same fingerprints if it has this for the same
    /// seeds. ahash may compute others in another version, or with other instructions of the processor.
    #[cfg(feature = "snapshot")]
    pub(super) fn check(&self) -> [u64; 2] {
        /// Of each way to hash an id: ahash's own change at 8, 16 and 64 bytes.
        const LENGTHS: [usize; 7] = [0, 3, 8, 12, 16, 40, 100];
        let id: [u8; 100] = std::array::from_fn(|at| at as u8);
        LENGTHS.iter().fold([0; 2], |[lo, hi], &len| {
            let key = KeyRef { limit: LimitIndex(7), id: &id[..len] };
            // Mixed as composite ids are: a program that mixes them in another way has other ones.
            let fingerprint = self.composite(key, &id[..len / 2]);
            [lo.rotate_left(9) ^ fingerprint.lo, hi.rotate_left(9) ^ fingerprint.hi]
        })
    }

    /// Both hashes of a composite key, with some bits of its account in the place of their own.
    pub(super) fn composite(&self, key: KeyRef<'_>, account: &[u8]) -> Fingerprint {
        let account = self.fingerprint(KeyRef { id: account, ..key });
        self.fingerprint(key).with_account(account)
    }

    /// Both hashes of a key. What is hashed tells limit, length and every byte.
    #[inline(always)]
    pub(super) fn fingerprint(&self, key: KeyRef<'_>) -> Fingerprint {
        let (lo, hi) = match Packed::of(key) {
            Some(packed) => (of_packed(&self.lo, packed), of_packed(&self.hi, packed)),
            None => (of_long(&self.lo, key), of_long(&self.hi, key)),
        };
        Fingerprint { lo: lo | SET, hi: hi | SET }
    }
}

#[inline(always)]
#[allow(clippy::manual_hash_one, reason = "ahash's own is a call that is not put in line")]
fn of_packed(seeds: &RandomState, packed: Packed) -> u64 {
    let mut hasher = seeds.build_hasher();
    hasher.write_u128(packed.0);
    hasher.finish()
}

fn of_long(seeds: &RandomState, key: KeyRef<'_>) -> u64 {
    let mut hasher = seeds.build_hasher();
    hasher.write(key.id);
    hasher.write_u128((key.id.len() as u128) << 32 | u128::from(key.limit.0));
    hasher.finish()
}

/// A key with an id of at most 12 bytes in one number: from the lowest byte on twelve with the id's, of
/// which some may be there twice, three of the limit, and one of the id's length.
#[derive(Clone, Copy)]
struct Packed(u128);

impl Packed {
    const MAX_LEN: usize = 12;
    const LIMIT_BITS: u32 = 24;

    /// `None` if the id is longer, or the limit one of more than there are.
    #[inline(always)]
    fn of(key: KeyRef<'_>) -> Option<Packed> {
        let id = key.id;
        if id.len() > Packed::MAX_LEN || key.limit.0 >> Packed::LIMIT_BITS != 0 {
            return None;
        }
        // The last bytes overlap the first, or not: the length says.
        let bytes = if let (Some(first), Some(last)) = (id.first_chunk(), id.last_chunk()) {
            u128::from(u64::from_le_bytes(*first)) | u128::from(u32::from_le_bytes(*last)) << 64
        } else if let (Some(first), Some(last)) = (id.first_chunk(), id.last_chunk()) {
            u128::from(u32::from_le_bytes(*first)) | u128::from(u32::from_le_bytes(*last)) << 32
        } else {
            id.iter().rev().fold(0, |bytes, &byte| bytes << 8 | u128::from(byte))
        };
        Some(Packed(bytes | u128::from(key.limit.0) << 96 | (id.len() as u128) << 120))
    }
}

impl Fingerprint {
    /// Of a store that asks for none.
    pub(crate) const NONE: Fingerprint = Fingerprint { lo: SET, hi: SET };

    /// Both halves.
    #[cfg(feature = "snapshot")]
    pub(crate) fn halves(self) -> [u64; 2] {
        [self.lo, self.hi]
    }

    /// The fingerprint with these halves; `None` if none has.
    #[cfg(feature = "snapshot")]
    pub(crate) fn of_halves([lo, hi]: [u64; 2]) -> Option<Fingerprint> {
        (lo & SET != 0 && hi & SET != 0).then_some(Fingerprint { lo, hi })
    }

    /// One of so many shards: by other bits than those that find the slot.
    #[inline(always)]
    pub(super) fn shard(self, shards: usize) -> usize {
        (((self.lo >> 32) * shards as u64) >> 32) as usize
    }

    /// The slot that the search begins with, of 2^`log2`: the first of a cache line. `log2` is at least 1.
    #[inline(always)]
    pub(super) fn home(self, log2: u32) -> usize {
        const LINE: usize = super::slot::A_LINE - 1;
        // The highest bits: a segment's cells are where they were in it, or are about to be in the next.
        (self.hi >> (u64::BITS - log2)) as usize & !LINE
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::store::key::LimitIndex;

    #[test]
    fn fingerprints_differ_by_byte_length_and_limit() {
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
    fn only_ids_of_one_account_share_its_bits() {
        let seeds = Seeds::new();
        let fingerprint = |account: u64, rest: &[u8]| {
            let id = [&account.to_be_bytes(), rest].concat();
            let key = KeyRef { limit: LimitIndex(3), id: &id };
            seeds.composite(key, &account.to_be_bytes())
        };
        let (mut accounts, mut prints) = (HashSet::new(), HashSet::new());
        for account in 0..1_000 {
            let bits = fingerprint(account, b"a.example").account();
            assert!(accounts.insert(bits), "account {account}");
            for rest in [&b"b.example"[..], b"c.example", b"d"] {
                let fingerprint = fingerprint(account, rest);
                assert_eq!(fingerprint.account(), bits, "account {account}");
                assert!(prints.insert(fingerprint), "account {account}");
                assert!(fingerprint.lo & SET != 0 && fingerprint.hi & SET != 0);
            }
        }
        // Bits that find the shard and the slot are spread within an account.
        let homes: HashSet<usize> =
            (0..1_000_u16).map(|at| fingerprint(7, &at.to_be_bytes()).home(10)).collect();
        assert!(homes.len() > 250, "{} of 512 homes", homes.len());
    }

    // Under loom they are the same each time.
    #[cfg(all(feature = "snapshot", not(tollgate_loom)))]
    #[test]
    fn seeds_are_new_each_time_and_reproducible() {
        let (one, other) = (Seeds::new(), Seeds::new());
        let again = Seeds::of_bits(one.bits());
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
        fn pack(limit: u32, id: &[u8]) -> Option<Packed> {
            Packed::of(KeyRef { limit: LimitIndex(limit), id })
        }
        for len in 0..=12_usize {
            let id: Vec<u8> = (1..=len as u8).collect();
            let bytes = pack(0x00a1_b2c3, &id).unwrap().0.to_le_bytes();
            // The first eight or four, and the last four where they are not all.
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
        assert!(pack(1 << 24, &[0; 8]).is_none());
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
