//! The program of `examples/ids.rs` with governor.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;

use governor::{Quota, RateLimiter};
use uuid::Uuid;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Caller {
    tenant: u32,
    user: String,
}

fn main() {
    let quota = Quota::per_hour(NonZeroU32::new(20).unwrap());
    let callers = RateLimiter::keyed(quota);
    let devices = RateLimiter::keyed(quota);
    let clients = RateLimiter::keyed(quota);
    let caller = Caller { tenant: 7, user: "alice".into() };
    assert!(callers.check_key(&caller).is_ok());
    assert!(devices.check_key(&Uuid::from_u128(1)).is_ok());
    assert!(clients.check_key(&Ipv4Addr::LOCALHOST).is_ok());
}
