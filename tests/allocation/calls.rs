//! Calls for known keys allocate nothing, for every type of id and every decision.
#![cfg(feature = "boulder")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use allocation_counter::measure;
use tollgate::batch::MemberMode;
use tollgate::limits::IdentifierSet;
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};

fn allocations(call: impl FnMut()) -> u64 {
    measure(call).count_total
}

#[test]
fn no_call_for_a_known_key_allocates() {
    let limit = Limit::new(3, 1, Duration::from_secs(3600)).unwrap();
    let limits = Limits::builder()
        .limit("Text", IdFormat::String, limit.clone())
        .unwrap()
        .limit("Number", IdFormat::RegId, limit.clone())
        .unwrap()
        .limit("Address", IdFormat::IpAddress, limit.clone())
        .unwrap()
        .limit("Domain", IdFormat::DomainOrCidr, limit.clone())
        .unwrap()
        .limit("Pair", IdFormat::RegIdIdentValue, limit.clone())
        .unwrap()
        .limit("Set", IdFormat::FqdnSet, limit.clone())
        .unwrap()
        .override_id("Text", "alice", limit)
        .unwrap();
    let (clock, hand) = Clock::manual();
    let limiter = Limiter::with_options(limits.build(), clock).unwrap();
    let handle = |name| limiter.limit(name).unwrap();
    let long = "x".repeat(1024);
    let set = IdentifierSet::new(["example.com", "example.org"]).unwrap();
    let (text, number, address) = (handle("Text"), handle("Number"), handle("Address"));
    let (domain, pair, sets) = (handle("Domain"), handle("Pair"), handle("Set"));
    let call_all = || {
        for cost in [1, 0, 3] {
            let _ = text.spend("alice", cost).unwrap();
            let _ = text.spend(&long, cost).unwrap();
            let _ = text.spend(7u64, cost).unwrap();
            let _ = number.spend(7u64, cost).unwrap();
            let _ = number.spend("8", cost).unwrap();
            let _ = address.spend(Ipv4Addr::LOCALHOST, cost).unwrap();
            let _ = address.spend(Ipv6Addr::LOCALHOST, cost).unwrap();
            let _ = address.spend("192.0.2.1", cost).unwrap();
            let _ = domain.spend("WWW.Example.com", cost).unwrap();
            let _ = domain.spend("2001:db8::1", cost).unwrap();
            let _ = pair.spend((7u64, "www.example.com"), cost).unwrap();
            let _ = sets.spend(&set, cost).unwrap();
        }
    };
    call_all();
    hand.advance(Duration::from_secs(3600));
    assert_eq!(allocations(call_all), 0, "allowed and denied spends");
    let others = || {
        let _ = text.check("alice", 1).unwrap();
        let _ = text.check("nobody yet", 1).unwrap();
        let _ = text.refund("alice", 1).unwrap();
        let _ = pair.reset((7u64, "www.example.com")).unwrap();
    };
    assert_eq!(allocations(others), 0, "check, refund, reset");
    let batch = || {
        let members = [
            text.member("alice"),
            number.member(7u64).mode(MemberMode::CheckOnly),
            address.member(Ipv4Addr::LOCALHOST).cost(3).mode(MemberMode::SpendOnly),
            pair.member((7u64, "www.example.com")),
        ];
        let _ = limiter.batch(&members).spend().unwrap();
        let _ = limiter.batch(&members).check().unwrap();
    };
    assert_eq!(allocations(batch), 0, "a batch");
    let hour = Duration::from_secs(3600);
    text.block(&long, hour).unwrap();
    number.block(7u64, hour).unwrap();
    let beside_blocks = || {
        call_all();
        batch();
        assert!(number.spend(7u64, 1).unwrap().blocked());
    };
    assert_eq!(allocations(beside_blocks), 0, "blocked ids, and other ids beside them");
    assert!(text.unblock(&long).unwrap() && number.unblock(7u64).unwrap());
    let new_keys = || {
        for i in 0..1000_u64 {
            let _ = number.spend(1000 + i, 1).unwrap();
        }
    };
    assert!(allocations(new_keys) > 0, "the counter counts: new keys allocate");
}
