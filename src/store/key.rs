//! Keys as bytes: a limit's index, and an id in its limit's normal form. Also the tag that names a cell's limit.

use std::hash::{Hash, Hasher};

/// A limit's index in its [`Limits`](crate::Limits). Calls use it in place of the limit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LimitIndex(pub(crate) u32);

impl LimitIndex {
    /// Makes an index.
    ///
    /// # Panics
    ///
    /// If there are more limits than a tag has room for, four million.
    pub(crate) fn new(at: usize) -> LimitIndex {
        assert!(at < Stamp::MAX_LIMITS, "there are at most {} limits", Stamp::MAX_LIMITS);
        LimitIndex(at as u32)
    }
}

/// The count to which a cell belongs: see [`capacity`](crate::store::capacity).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The limit's part of the cap, and the common places.
    UnderCap(LimitIndex),
    /// The places of ids that have their own override.
    BesideCap,
}

/// A limit in one generation: the part that the tags of the limit's cells have in common.
///
/// It has the lowest bits of the generation's number. They suffice, because a table has tags of two generations at
/// most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    const GENERATION_BITS: u32 = 11;
    const LIMIT_SHIFT: u32 = 42;
    const MASK: u64 = !0 << Self::LIMIT_SHIFT | Self::GENERATION_MASK;
    const GENERATION_MASK: u64 = ((1 << Self::GENERATION_BITS) - 1) << LimitTag::LOW_BITS;
    /// The largest number of limits: an index has 22 bits, and one value stands for no limit.
    pub(crate) const MAX_LIMITS: usize = (1 << (u64::BITS - Self::LIMIT_SHIFT)) - 1;

    #[inline]
    pub(crate) const fn new(limit: LimitIndex, generation: u64) -> Stamp {
        let generation = generation << LimitTag::LOW_BITS & Self::GENERATION_MASK;
        Stamp((limit.0 as u64 + 1) << Self::LIMIT_SHIFT | generation)
    }

    /// Makes a tag. `terms` is 0 for the limit's default, else one more than a place among the terms of its overrides.
    #[inline(always)]
    pub(crate) const fn tag(self, terms: u32) -> LimitTag {
        let (low, high) = (terms & LimitTag::LOW_MASK, terms >> LimitTag::LOW_BITS);
        let wide = if high > 0 { LimitTag::WIDE } else { 0 };
        LimitTag(self.0 | low as u64 | wide | (high as u64) << LimitTag::HIGH_SHIFT)
    }

    /// Returns the part that the fast path compares.
    pub(crate) const fn quick(self) -> Quick {
        Quick(self.0 as u32)
    }
}

/// The generation, as in the low half of a tag. The fast path compares nothing else: the limit is part of the key's
/// fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quick(u32);

impl Quick {
    /// Equals no tag's, so that the limit's calls take the slow path.
    pub(crate) const NEVER: Quick = Quick(u32::MAX);
}

/// The tag of a cell: its limit, the generation, and the terms that the cell's word is counted in: the default's or an
/// override's.
///
/// ```text
/// bit   0..20  terms, low bits     20..31  generation     31  whether the terms have high bits
///      32..41  terms, high bits    41  whether the id has an override of its own     42..64  limit, plus one
/// ```
///
/// The fast path reads only the low half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitTag(u64);

impl LimitTag {
    const LOW_BITS: u32 = 20;
    const LOW_MASK: u32 = (1 << Self::LOW_BITS) - 1;
    const WIDE: u64 = 1 << 31;
    const HIGH_SHIFT: u32 = 32;
    const HIGH_BITS: u32 = 9;
    const OF_OWN: u64 = 1 << (Self::HIGH_SHIFT + Self::HIGH_BITS);
    /// The largest number of different terms among the overrides of one limit.
    pub(crate) const MAX_TERMS: usize = (1 << (Self::LOW_BITS + Self::HIGH_BITS)) - 1;

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> LimitTag {
        LimitTag(bits)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the limit; `None` if the tag is not set.
    #[inline]
    pub(crate) fn limit(self) -> Option<LimitIndex> {
        ((self.0 >> Stamp::LIMIT_SHIFT) as u32).checked_sub(1).map(LimitIndex)
    }

    #[inline(always)]
    pub(crate) const fn stamp(self) -> Stamp {
        Stamp(self.0 & Stamp::MASK)
    }

    /// Returns whether the tag is of this generation, or of one with the same lowest bits.
    #[inline]
    pub(crate) const fn is_of_generation(self, number: u64) -> bool {
        self.0 & Stamp::GENERATION_MASK == number << Self::LOW_BITS & Stamp::GENERATION_MASK
    }

    /// Returns the tag for an id that has its own override, not only an override of its account.
    #[inline]
    pub(crate) const fn of_own(self) -> LimitTag {
        LimitTag(self.0 | Self::OF_OWN)
    }

    /// Returns the count to which a cell with this tag belongs.
    #[inline]
    pub(crate) const fn room(self) -> Room {
        if self.0 & Self::OF_OWN != 0 {
            return Room::BesideCap;
        }
        // A tag that is not set has the index of no limit, which is above all.
        Room::UnderCap(LimitIndex(((self.0 >> Stamp::LIMIT_SHIFT) as u32).wrapping_sub(1)))
    }

    /// Returns whether the tag names an override's limit, not the default.
    #[inline]
    pub(crate) const fn is_of_override(self) -> bool {
        self.terms() != 0
    }

    /// Returns [`terms`](Self::terms), if the low half has all of it and its generation is `quick`.
    #[inline(always)]
    pub(crate) const fn quick_terms(self, quick: Quick) -> Option<u32> {
        let low = self.0 as u32;
        if low & !Self::LOW_MASK == quick.0 { Some(low & Self::LOW_MASK) } else { None }
    }

    /// Returns whether the tag is a default's, and its generation is `quick`.
    #[inline(always)]
    pub(crate) const fn is_quick_default(self, quick: Quick) -> bool {
        self.0 as u32 == quick.0
    }

    /// Returns the terms, as [`Stamp::tag`] takes them.
    #[inline(always)]
    pub(crate) const fn terms(self) -> u32 {
        let high = self.0 >> Self::HIGH_SHIFT & ((1 << Self::HIGH_BITS) - 1);
        self.0 as u32 & Self::LOW_MASK | (high as u32) << Self::LOW_BITS
    }
}

/// A borrowed key, made on the stack for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyRef<'a> {
    pub(crate) limit: LimitIndex,
    pub(crate) id: &'a [u8],
}

impl KeyRef<'_> {
    /// Returns whether both are the same key. Most ids have 8 to 16 bytes: they are compared as two overlapping words,
    /// without a call of `memcmp`.
    #[inline]
    #[cfg_attr(not(feature = "exact"), allow(dead_code, reason = "the exact store compares"))]
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

/// An id in normal form that owns its bytes, up to [`ShortId::MAX`] of them inline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedId {
    Short(ShortId),
    Long(Box<[u8]>),
}

/// A few bytes and their number. Its alignment is 1, so that it packs beside other fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShortId {
    len: u8,
    bytes: [u8; ShortId::MAX],
}

impl ShortId {
    /// Room for an IPv6 address, or for a number of 18 digits.
    pub(crate) const MAX: usize = 18;

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        // The length is at most MAX by construction. `get` avoids the code of a panic.
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
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
            OwnedId::Short(short) => short.as_bytes(),
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

/// A key that owns its id.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Key {
    Short(LimitIndex, ShortId),
    Long(LimitIndex, Box<[u8]>),
}

const _: () = assert!(size_of::<Key>() <= 24, "a key and its word make half a cache line");
const _: () = assert!(size_of::<OwnedId>() <= 24);

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
            Key::Short(limit, short) => KeyRef { limit: *limit, id: short.as_bytes() },
            Key::Long(limit, bytes) => KeyRef { limit: *limit, id: bytes },
        }
    }

    /// Returns the number of bytes on the heap.
    #[cfg_attr(
        any(tollgate_loom, not(feature = "exact")),
        allow(dead_code, reason = "a DashMap counts bytes; loom's stand-in counts none")
    )]
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
    fn a_tag_has_limit_generation_and_terms() {
        let most = LimitTag::MAX_TERMS as u32;
        for limit in [0, 1, 77, Stamp::MAX_LIMITS as u32 - 1] {
            for generation in [0, 1, 2047, 2048, 1 << 40] {
                let stamp = Stamp::new(LimitIndex(limit), generation);
                for terms in [0, 1, (1 << 20) - 1, 1 << 20, most] {
                    let tag = stamp.tag(terms);
                    assert_eq!(tag.limit(), Some(LimitIndex(limit)), "{tag:?}");
                    assert_eq!((tag.stamp(), tag.terms()), (stamp, terms));
                    assert_eq!(tag.room(), Room::UnderCap(LimitIndex(limit)));
                    let own = tag.of_own();
                    assert_eq!((own.stamp(), own.terms()), (stamp, terms));
                    assert_eq!((own.limit(), own.room()), (tag.limit(), Room::BesideCap));
                    assert_eq!(own.quick_terms(stamp.quick()), tag.quick_terms(stamp.quick()));
                    assert!(tag.is_of_generation(generation));
                    assert!(!tag.is_of_generation(generation + 1));
                    // The low half has the terms, or says that it does not have all bits.
                    let quick = (terms < 1 << 20).then_some(terms);
                    assert_eq!(tag.quick_terms(stamp.quick()), quick);
                    let later = Stamp::new(LimitIndex(limit), generation + 1).quick();
                    assert_eq!(tag.quick_terms(later), None);
                    assert_eq!(tag.quick_terms(Quick::NEVER), None);
                }
            }
        }
        assert_eq!(LimitTag::from_bits(0).limit(), None, "no tag is set");
    }

    #[test]
    fn keys_are_equal_if_all_bytes_are() {
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
    fn an_owned_key_equals_its_borrowed_one() {
        for len in [0, 1, 16, 17, 18, 19, 32, 1024] {
            let id: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let key = KeyRef { limit: LimitIndex(7), id: &id };
            assert_eq!(Key::new(key).as_ref(), key, "length {len}");
            assert_eq!(OwnedId::new(&id).as_bytes(), id, "length {len}");
            assert_eq!(Key::new(key).heap_bytes(), if len > 18 { len } else { 0 });
        }
    }
}
