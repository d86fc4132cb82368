//! Who is limited, as bytes: a limit's index and an id in its limit's normal form.

use std::hash::{Hash, Hasher};

/// A limit's place in its [`Limits`](crate::Limits): what stands for its name on a request's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LimitIndex(pub(crate) u32);

impl LimitIndex {
    /// # Panics
    ///
    /// When there are more limits than a note has room for, four million.
    pub(crate) fn of(at: usize) -> LimitIndex {
        assert!(at < Stamp::MOST_LIMITS, "there are at most {} limits", Stamp::MOST_LIMITS);
        LimitIndex(at as u32)
    }
}

/// Which limit a note is of, in which of the generations of limits that reloads make.
///
/// A generation is told by its number's lowest bits: a table never holds notes of more than two at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    const GENERATION_BITS: u32 = 12;
    /// The most limits that there can be: their indices have 22 bits, less one value for no limit.
    pub(crate) const MOST_LIMITS: usize =
        (1 << (64 - Meta::NUMBERS_BITS - Self::GENERATION_BITS)) - 1;

    /// That of no note.
    pub(crate) const NEVER: Stamp = Stamp(1 << Meta::NUMBERS_BITS);

    #[inline]
    pub(crate) const fn new(limit: LimitIndex, generation: u64) -> Stamp {
        let generation = generation & ((1 << Self::GENERATION_BITS) - 1);
        Stamp(((limit.0 as u64 + 1) << Self::GENERATION_BITS | generation) << Meta::NUMBERS_BITS)
    }

    /// `numbers` is 0 for the limit's default, else one more than the place among its overrides'.
    #[inline(always)]
    pub(crate) const fn meta(self, numbers: u32) -> Meta {
        Meta(self.0 | numbers as u64)
    }
}

/// Which of a limit's numbers apply to a key: a note that a store keeps beside the key's word, and in
/// whose units the word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta(u64);

impl Meta {
    /// Nothing is noted.
    pub(crate) const NONE: Meta = Meta(0);

    const NUMBERS_BITS: u32 = 30;
    /// The most numbers that a limit's overrides can have.
    pub(crate) const MOST_NUMBERS: usize = (1 << Self::NUMBERS_BITS) - 2;
    /// In place of numbers: the default's, as far as that could be told without the id.
    pub(crate) const UNSURE: u32 = (1 << Self::NUMBERS_BITS) - 1;

    #[inline(always)]
    pub(crate) const fn of_bits(bits: u64) -> Meta {
        Meta(bits)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The limit; `None` if nothing is noted.
    #[inline]
    pub(crate) fn limit(self) -> Option<LimitIndex> {
        let above = Self::NUMBERS_BITS + Stamp::GENERATION_BITS;
        ((self.0 >> above) as u32).checked_sub(1).map(LimitIndex)
    }

    #[inline(always)]
    pub(crate) const fn stamp(self) -> Stamp {
        Stamp(self.0 & !(Self::UNSURE as u64))
    }

    #[inline(always)]
    pub(crate) const fn numbers(self) -> u32 {
        (self.0 & Self::UNSURE as u64) as u32
    }
}

/// A borrowed key, made on the stack for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyRef<'a> {
    pub(crate) limit: LimitIndex,
    pub(crate) id: &'a [u8],
}

impl KeyRef<'_> {
    /// Whether both are the same key. Most ids have 8 to 16 bytes: two words that overlap, without a
    /// call.
    #[inline]
    pub(crate) fn is(self, other: KeyRef<'_>) -> bool {
        let (a, b) = (self.id, other.id);
        if self.limit != other.limit || a.len() != b.len() {
            return false;
        }
        match (a.first_chunk::<8>(), b.first_chunk::<8>(), a.last_chunk::<8>(), b.last_chunk::<8>())
        {
            (Some(a_first), Some(b_first), Some(a_last), Some(b_last)) if a.len() <= 16 => {
                a_first == b_first && a_last == b_last
            }
            _ => a == b,
        }
    }
}

impl Hash for KeyRef<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The table compares whole keys: here two may be alike if they are of different limits or
        // lengths. A number is one word, and up to 16 bytes are two that may overlap.
        let limit = u64::from(self.limit.0).rotate_left(32);
        match (self.id.first_chunk::<8>(), self.id.last_chunk::<8>()) {
            (Some(number), _) if self.id.len() == 8 => {
                state.write_u64(u64::from_ne_bytes(*number) ^ limit);
            }
            (Some(first), Some(last)) if self.id.len() <= 16 => {
                state.write_u64(u64::from_ne_bytes(*first));
                state.write_u64(u64::from_ne_bytes(*last) ^ limit);
            }
            _ => {
                state.write(self.id);
                state.write_u64(limit);
            }
        }
    }
}

/// An id in normal form that owns its bytes: up to [`ShortId::MAX`] of them in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedId {
    Short(ShortId),
    Long(Box<[u8]>),
}

/// A few bytes and their number. Alignment 1, so that it packs beside what it is stored with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShortId {
    len: u8,
    bytes: [u8; ShortId::MAX],
}

impl ShortId {
    /// An IPv6 address, or a u64 in decimal less two digits, fits.
    pub(crate) const MAX: usize = 18;
}

impl OwnedId {
    pub(crate) fn new(id: &[u8]) -> OwnedId {
        if id.len() > ShortId::MAX {
            return OwnedId::Long(id.into());
        }
        let mut bytes = [0; ShortId::MAX];
        bytes[..id.len()].copy_from_slice(id);
        OwnedId::Short(ShortId { len: id.len() as u8, bytes })
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            // The length is below MAX by construction; `get` says so without a panic's code.
            OwnedId::Short(short) => short.bytes.get(..usize::from(short.len)).unwrap_or_default(),
            OwnedId::Long(bytes) => bytes,
        }
    }
}

impl Hash for OwnedId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl std::borrow::Borrow<[u8]> for OwnedId {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// A key that a store keeps.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Key {
    Short(LimitIndex, ShortId),
    Long(LimitIndex, Box<[u8]>),
}

const _: () = assert!(size_of::<Key>() == 24, "a key and its word make half a cache line");
const _: () = assert!(size_of::<OwnedId>() == 24);

impl Key {
    pub(crate) fn new(key: KeyRef<'_>) -> Key {
        match OwnedId::new(key.id) {
            OwnedId::Short(short) => Key::Short(key.limit, short),
            OwnedId::Long(bytes) => Key::Long(key.limit, bytes),
        }
    }

    #[inline]
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Key::Short(limit, short) => {
                let id = short.bytes.get(..usize::from(short.len)).unwrap_or_default();
                KeyRef { limit: *limit, id }
            }
            Key::Long(limit, bytes) => KeyRef { limit: *limit, id: bytes },
        }
    }

    /// Bytes on the heap.
    #[cfg_attr(tollgate_loom, allow(dead_code, reason = "what stands for a table counts none"))]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Key::Short(..) => 0,
            Key::Long(_, bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_when_every_byte_is() {
        for len in 0..40_u8 {
            let id: Vec<u8> = (0..len).collect();
            let key = KeyRef { limit: LimitIndex(7), id: &id };
            assert!(key.is(key), "length {len}");
            assert!(!key.is(KeyRef { limit: LimitIndex(8), id: &id }), "length {len}");
            for at in 0..usize::from(len) {
                let mut other = id.clone();
                other[at] ^= 1;
                assert!(!key.is(KeyRef { limit: LimitIndex(7), id: &other }), "byte {at} of {len}");
                assert!(
                    !key.is(KeyRef { limit: LimitIndex(7), id: &id[..at] }),
                    "{at} bytes of {len}"
                );
            }
        }
    }

    #[test]
    fn an_owned_key_equals_its_borrowed_one_whatever_its_length() {
        for len in [0, 1, 16, 17, 18, 19, 32, 1024] {
            let id: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let key = KeyRef { limit: LimitIndex(7), id: &id };
            assert_eq!(Key::new(key).as_ref(), key, "length {len}");
            assert_eq!(OwnedId::new(&id).as_bytes(), id, "length {len}");
            assert_eq!(Key::new(key).heap_bytes(), if len > 18 { len } else { 0 });
        }
    }
}
