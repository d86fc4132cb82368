//! The keyed hash function of both engines: 128 bits in one pass.
//!
//! An id is read as blocks of two 64-bit words. A block changes the state by two products of 128 bits:
//!
//! ```text
//! p = (first word + lo) * (second word + key 2)        the sums wrap at 64 bits
//! q = (first word + hi) * (second word + key 3)
//! lo, hi = low half of p ^ high half of q, low half of q ^ high half of p
//! ```
//!
//! At the beginning `lo` and `hi` are the keys 0 and 1. Last, the limit and the id's length are added to both halves, and
//! the halves are multiplied by an odd number, so that their high bits, which select shards and slots, depend on all others.
//! Words are little-endian, so that a snapshot's fingerprints are the same on every processor.
//!
//! **Collisions.** A caller that chooses ids does not know the keys, so the operands of the products are evenly spread. How
//! probable it is that two ids of at most 16 bytes have one hash then depends on the differences of their words alone. With
//! words of n bits and all keys it is on average 1.0 to 1.3 / 2^2n, and for no difference more than 7.5 / 2^2n: counted for
//! all differences for n = 3 to 9, and for regular ones for n = 10 and 11 (`no_difference_of_words_is_weak` counts n = 4).
//! Each further block of a longer id adds as much. Two hashes of 64 bits, each the folded halves of one product, have
//! differences that collide 100 times as often as on average at n = 8, and 760 times if words and keys are combined by
//! exclusive or.

use std::hash::{BuildHasher, RandomState};

use crate::store::key::{KeyRef, LimitIndex};

/// The random keys of a hash function.
pub(crate) type HashKeys = [u64; 4];

/// Draws keys. Under loom they are always the same, because all executions of a model must be.
pub(crate) fn new_keys() -> HashKeys {
    if cfg!(tollgate_loom) {
        return [1, 2, 3, 4].map(|number: u64| number.wrapping_mul(SPREAD));
    }
    // std's hasher has random keys from the system.
    let random = RandomState::new();
    std::array::from_fn(|at| random.hash_one(at))
}

/// An odd number with evenly spread bits: the golden ratio's.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes the limit, the length and all bytes of a key.
#[inline(always)]
pub(crate) fn hash(keys: &HashKeys, key: KeyRef<'_>) -> [u64; 2] {
    let id = key.id;
    let start = [keys[0], keys[1]];
    // Words of a short id may overlap, and bytes be read twice. The length tells how far.
    let state = if let (Some(first), Some(last)) = (id.first_chunk(), id.last_chunk()) {
        if id.len() <= 16 {
            block(keys, start, u64::from_le_bytes(*first), u64::from_le_bytes(*last))
        } else {
            long(keys, id)
        }
    } else if let (Some(first), Some(last)) = (id.first_chunk(), id.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        block(keys, start, first.into(), last.into())
    } else {
        block(keys, start, few_bytes(id), 0)
    };
    finish(state, key.limit, id.len())
}

/// Returns the hash of an id whose first bytes are in `head` and whose others are `text`, as [`hash`] would, without a copy of
/// both in one place. `head_len` is the number of the first bytes, from 8 to 15; the lowest of `head` is the first, and those
/// above the last are 0.
#[inline(always)]
pub(crate) fn hash_joined(
    keys: &HashKeys,
    limit: LimitIndex,
    (head, head_len): (u128, usize),
    text: &[u8],
) -> [u64; 2] {
    let len = head_len + text.len();
    let start_of_text = first_bytes(text);
    let first = head | start_of_text << (8 * head_len);
    let start = [keys[0], keys[1]];
    let state = if len > 16 {
        let (state, rest) = blocks(keys, block_of(keys, start, first), &text[16 - head_len..]);
        match text.last_chunk::<16>() {
            _ if rest.is_empty() => state,
            Some(bytes) => block_of(keys, state, u128::from_le_bytes(*bytes)),
            // The last 16 bytes begin in the head.
            None => {
                let last = head >> (8 * (len - 16)) | start_of_text << (8 * (16 - text.len()));
                block_of(keys, state, last)
            }
        }
    } else {
        block(keys, start, first as u64, (first >> (8 * (len - 8))) as u64)
    };
    finish(state, limit, len)
}

/// Returns the first 16 bytes, or all if there are fewer. The lowest is the first.
#[inline(always)]
fn first_bytes(id: &[u8]) -> u128 {
    // If there are fewer than 16, the two words may overlap: they agree where they do.
    let at = |word: u64, bytes: usize| u128::from(word) << (8 * (id.len() - bytes));
    if let Some(bytes) = id.first_chunk() {
        u128::from_le_bytes(*bytes)
    } else if let (Some(first), Some(last)) = (id.first_chunk(), id.last_chunk()) {
        u128::from(u64::from_le_bytes(*first)) | at(u64::from_le_bytes(*last), 8)
    } else if let (Some(first), Some(last)) = (id.first_chunk(), id.last_chunk()) {
        u128::from(u32::from_le_bytes(*first)) | at(u32::from_le_bytes(*last).into(), 4)
    } else {
        few_bytes(id).into()
    }
}

/// Returns at most 8 bytes. The lowest is the first.
#[inline(always)]
fn few_bytes(id: &[u8]) -> u64 {
    id.iter().rev().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte))
}

/// Adds the limit and the id's length, and spreads the halves.
#[inline(always)]
fn finish(state: [u64; 2], limit: LimitIndex, len: usize) -> [u64; 2] {
    let other = u64::from(limit.0) << 32 | len as u64;
    state.map(|half| half.wrapping_add(other).wrapping_mul(SPREAD))
}

/// Hashes an id of more than 16 bytes. The last block is its last 16 bytes, of which the block before may have some.
#[inline(never)]
fn long(keys: &HashKeys, id: &[u8]) -> [u64; 2] {
    let (state, rest) = blocks(keys, [keys[0], keys[1]], id);
    match id.last_chunk::<16>() {
        Some(bytes) if !rest.is_empty() => block_of(keys, state, u128::from_le_bytes(*bytes)),
        _ => state,
    }
}

/// Returns the state after all whole blocks, and the bytes behind them.
#[inline(always)]
fn blocks<'i>(keys: &HashKeys, mut state: [u64; 2], id: &'i [u8]) -> ([u64; 2], &'i [u8]) {
    let mut rest = id;
    while let Some((bytes, after)) = rest.split_first_chunk::<16>() {
        state = block_of(keys, state, u128::from_le_bytes(*bytes));
        rest = after;
    }
    (state, rest)
}

#[inline(always)]
fn block_of(keys: &HashKeys, state: [u64; 2], words: u128) -> [u64; 2] {
    block(keys, state, words as u64, (words >> 64) as u64)
}

/// Returns the state after one block.
#[inline(always)]
fn block(keys: &HashKeys, [lo, hi]: [u64; 2], first: u64, second: u64) -> [u64; 2] {
    let product = |state: u64, key: u64| {
        u128::from(first.wrapping_add(state)) * u128::from(second.wrapping_add(key))
    };
    let (p, q) = (product(lo, keys[2]), product(hi, keys[3]));
    [p as u64 ^ (q >> 64) as u64, q as u64 ^ (p >> 64) as u64]
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const KEYS: HashKeys = [
        0x0123_4567_89ab_cdef,
        0xfedc_ba98_7654_3210,
        0x5851_f42d_4c95_7f2d,
        0x1405_7b7e_f767_814f,
    ];

    fn key(limit: u32, id: &[u8]) -> KeyRef<'_> {
        KeyRef { limit: LimitIndex(limit), id }
    }

    // Computed by a program in Python from the text at the top of this file. Snapshots depend on these values: a change is a
    // new version of their format.
    #[test]
    fn hashes_are_those_of_the_snapshot_format() {
        let expected = [
            (0, [0xa69c_f044_08ab_4369, 0xa73e_807d_0d7c_f3c4]),
            (3, [0x0040_2025_b951_6d5d, 0x9b03_edb4_acca_abaf]),
            (4, [0x94dd_55aa_8060_0b13, 0xae08_2649_1070_1368]),
            (7, [0xfa05_1307_e69d_2fe1, 0xbdf9_df97_d214_4b4d]),
            (8, [0x3bf8_bd99_a863_73b6, 0xbf86_5746_0356_4e73]),
            (13, [0xbe5c_501f_d592_7ab5, 0x73f9_63e0_5da9_27f0]),
            (16, [0xd11a_2949_cb60_3597, 0x7a72_1e1c_7429_b40e]),
            (17, [0x78c7_c207_3e67_504d, 0x9b63_d100_8952_5c2c]),
            (32, [0xae1a_b4c3_eaa6_3ab6, 0xb04e_76ea_a154_d440]),
            (40, [0x9ae5_1f95_9ff2_1790, 0x6c73_dd69_53e2_d671]),
            (100, [0x9b62_3a70_2c99_5521, 0x8153_1a01_5cd4_48a5]),
        ];
        let id: Vec<u8> = (0..100).collect();
        for (len, hashed) in expected {
            assert_eq!(hash(&KEYS, key(7, &id[..len])), hashed, "length {len}");
        }
        // All bytes of the limit and of the length count.
        assert_eq!(
            hash(&KEYS, key(0x0102_0304, &id[..13])),
            [0x2d1b_1ae0_d592_7ab5, 0xe2b8_2ea1_5da9_27f0]
        );
        let long: Vec<u8> = (0..300).map(|at: u32| at as u8).collect();
        assert_eq!(hash(&KEYS, key(7, &long)), [0x1705_73df_ff10_01d5, 0x19ed_b458_fa92_4bfa]);
    }

    #[test]
    fn joined_ids_have_the_hash_of_their_bytes() {
        let id: Vec<u8> = (1..=255).collect();
        for head_len in 8..16 {
            let head =
                id[..head_len].iter().rev().fold(0, |head, &byte| head << 8 | u128::from(byte));
            for len in head_len..id.len() {
                let joined =
                    hash_joined(&KEYS, LimitIndex(7), (head, head_len), &id[head_len..len]);
                assert_eq!(joined, hash(&KEYS, key(7, &id[..len])), "{head_len} of {len}");
            }
        }
    }

    /// Does what [`block`] does, with words and keys of `bits` bits.
    fn small_block(bits: u32, keys: &HashKeys, [lo, hi]: [u64; 2], words: [u64; 2]) -> [u64; 2] {
        let mask = u64::MAX >> (64 - bits);
        let product = |state: u64, key: u64| {
            let operands = [words[0].wrapping_add(state), words[1].wrapping_add(key)];
            u128::from(operands[0] & mask) * u128::from(operands[1] & mask)
        };
        let halves = |product: u128| [product as u64 & mask, (product >> bits) as u64];
        let ([p, p_high], [q, q_high]) =
            (halves(product(lo, keys[2])), halves(product(hi, keys[3])));
        [p ^ q_high, q ^ p_high]
    }

    #[test]
    fn small_block_of_64_bits_is_the_block() {
        for at in 0..1_000_u64 {
            let [a, b, c, d] = [1, 2, 3, 4].map(|n| (at * 4 + n).wrapping_mul(SPREAD));
            assert_eq!(small_block(64, &KEYS, [a, b], [c, d]), block(&KEYS, [a, b], c, d));
        }
    }

    #[test]
    fn no_difference_of_words_is_weak() {
        const BITS: u32 = 4;
        const WORDS: u64 = 1 << BITS;
        let minus = |a: u64, b: u64| a.wrapping_sub(b) % WORDS;
        let keys = WORDS.pow(4) as usize;
        // With each of the keys. These are all there are, so one of the two pairs of words may be 0.
        let hashes_of = |words: u64| -> Vec<[u64; 2]> {
            let digit = |number: u64, at: u32| number >> (BITS * at) & (WORDS - 1);
            (0..keys as u64)
                .map(|number| {
                    let keys = [0, 1, 2, 3].map(|at| digit(number, at));
                    let words = [digit(words, 0), digit(words, 1)];
                    small_block(BITS, &keys, [keys[0], keys[1]], words)
                })
                .collect()
        };
        let (without, mut total) = (hashes_of(0), 0);
        let step = crate::full_size::full_size(5, 1);
        for words in (1..WORDS * WORDS).step_by(step) {
            let others = hashes_of(words);
            // How often the halves differ by each pair of numbers. Limits and lengths may make up for one.
            let mut counts = [[0_u32; WORDS as usize]; WORDS as usize];
            for ([lo, hi], [other_lo, other_hi]) in without.iter().zip(&others) {
                counts[minus(*lo, *other_lo) as usize][minus(*hi, *other_hi) as usize] += 1;
            }
            let even = (keys as u64 / (WORDS * WORDS)) as u32;
            let most = counts.iter().flatten().max().unwrap();
            assert!(most * 10 < even * 44, "{most} of {keys}: evenly spread are {even}");
            total += counts[0][0];
        }
        // The average is over all differences.
        let average = f64::from(total) / 255.0 / 256.0;
        assert!(step > 1 || average < 1.3, "{average}");
    }
}
