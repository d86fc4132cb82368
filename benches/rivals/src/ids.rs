//! Keys in the types that servers have them in.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tollgate::Id;

use crate::limiters::{ADDRESS, NUMBER, PAIR, TEXT, UUID};

/// A key as its owner keeps it. governor's keyed limiters take it by reference.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {
    /// The name of Tollgate's limit for these keys.
    const LIMIT: &'static str;

    /// Makes one of 2^32 different keys.
    fn nth(nth: u32) -> Self;

    fn id(&self) -> Id<'_>;

    /// Passes on the key's bytes, for limiters that have no keys of this type.
    fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R;

    /// Charges one unit to rate-net's limiter.
    fn is_allowed_by(&self, limiter: &rate_net::RateLimiter) -> bool;
}

/// The number of the first account.
const FIRST: u64 = 3_141_592_653;
/// An odd number: its products with different numbers differ, and spread over all of 32 or 64 bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// 12 bytes: a prefix and an account's number.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(String);

impl Text {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl Key for Text {
    const LIMIT: &'static str = TEXT;

    fn nth(nth: u32) -> Text {
        Text(format!("6:{:010}", FIRST + u64::from(nth)))
    }

    #[inline]
    fn id(&self) -> Id<'_> {
        Id::Text(&self.0)
    }

    #[inline]
    fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        then(self.0.as_bytes())
    }

    #[inline]
    fn is_allowed_by(&self, limiter: &rate_net::RateLimiter) -> bool {
        limiter.check_bytes(&self.0).is_allow()
    }
}

/// 36 bytes: a UUID as text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uuid(String);

impl Key for Uuid {
    const LIMIT: &'static str = UUID;

    fn nth(nth: u32) -> Uuid {
        let bits = (u64::from(nth) + 1).wrapping_mul(SPREAD);
        let [a, b, c, d] = [bits >> 32, bits >> 16, bits, bits.rotate_left(24)];
        let (b, c, d) = (b & 0xffff, c & 0x0fff, d >> 48 & 0x3fff | 0x8000);
        Uuid(format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{:012x}", bits & 0xffff_ffff_ffff))
    }

    #[inline]
    fn id(&self) -> Id<'_> {
        Id::Text(&self.0)
    }

    #[inline]
    fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        then(self.0.as_bytes())
    }

    #[inline]
    fn is_allowed_by(&self, limiter: &rate_net::RateLimiter) -> bool {
        limiter.check_bytes(&self.0).is_allow()
    }
}

impl Key for u64 {
    const LIMIT: &'static str = NUMBER;

    fn nth(nth: u32) -> u64 {
        FIRST + u64::from(nth)
    }

    #[inline]
    fn id(&self) -> Id<'_> {
        Id::Number(*self)
    }

    #[inline]
    fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        then(&self.to_le_bytes())
    }

    #[inline]
    fn is_allowed_by(&self, limiter: &rate_net::RateLimiter) -> bool {
        limiter.check(rate_net::Key::id(*self)).is_allow()
    }
}

/// An address.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address<const IS_V6: bool>(pub(crate) IpAddr);

pub type V4 = Address<false>;
/// An IPv6 network of 64 bits, the unit that one client has.
pub type V6 = Address<true>;

impl<const IS_V6: bool> Key for Address<IS_V6> {
    const LIMIT: &'static str = ADDRESS;

    fn nth(nth: u32) -> Address<IS_V6> {
        let number = nth.wrapping_mul(SPREAD as u32);
        Address(if IS_V6 {
            Ipv6Addr::from((0x2001_0db8_u128 << 32 | u128::from(number)) << 64).into()
        } else {
            Ipv4Addr::from(number).into()
        })
    }

    #[inline]
    fn id(&self) -> Id<'_> {
        Id::Address(self.0)
    }

    #[inline]
    fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        match self.0 {
            IpAddr::V4(address) => then(&address.octets()),
            IpAddr::V6(address) => then(&address.octets()),
        }
    }

    #[inline]
    fn is_allowed_by(&self, limiter: &rate_net::RateLimiter) -> bool {
        limiter.check(rate_net::Key::ip(self.0)).is_allow()
    }
}

/// An account's number and a domain of 16 bytes. Four domains have one account.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pair(u64, String);

impl Key for Pair {
    const LIMIT: &'static str = PAIR;

    fn nth(nth: u32) -> Pair {
        Pair(FIRST + u64::from(nth / 4), format!("{nth:08x}.example"))
    }

    #[inline]
    fn id(&self) -> Id<'_> {
        Id::NumberAndText(self.0, &self.1)
    }

    #[inline]
    fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = [0; 32];
        let len = 8 + self.1.len();
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..len].copy_from_slice(self.1.as_bytes());
        then(&bytes[..len])
    }

    /// rate-net has no keys of two parts: its users put the bytes together.
    #[inline]
    fn is_allowed_by(&self, limiter: &rate_net::RateLimiter) -> bool {
        self.with_bytes(|bytes| limiter.check_bytes(bytes).is_allow())
    }
}
