//! Limits for each caller (a struct), each device (a UUID) and each client's address.

use std::net::Ipv4Addr;

use tollgate::{Limiter, Limits};
use uuid::Uuid;

const LIMITS: &str = "PerCaller: {burst: 20, count: 20, period: 1h, id: integer:string}
PerDevice: {burst: 20, count: 20, period: 1h, id: uuid}
PerClient: {burst: 20, count: 20, period: 1h, id: ipAddress}";

struct Caller {
    tenant: u32,
    user: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(Limits::from_yaml(LIMITS)?);
    let caller = Caller { tenant: 7, user: "alice".into() };
    let callers = limiter.limit("PerCaller")?;
    assert!(callers.spend((caller.tenant, &caller.user), 1)?.allowed());
    assert!(limiter.limit("PerDevice")?.spend(Uuid::from_u128(1), 1)?.allowed());
    assert!(limiter.limit("PerClient")?.spend(Ipv4Addr::LOCALHOST, 1)?.allowed());
    Ok(())
}
