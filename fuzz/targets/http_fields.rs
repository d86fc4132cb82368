//! Writes the header fields of a limit with any name and any parameters: each field parses again, or the policy is
//! refused.
//!
//! The bytes up to the first zero are the name; the rest are the parameters.
#![no_main]

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;
use libfuzzer_sys::fuzz_target;
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::http::{Answer, Fields, Item, Policy, Reset, Style, retry_after};
use tollgate::{Bucket, Clock, Limit};

fuzz_target!(|data: &[u8]| {
    let mut halves = data.splitn(2, |&byte| byte == 0);
    let name = String::from_utf8_lossy(halves.next().unwrap_or_default());
    let rest = halves.next().unwrap_or_default();
    let mut numbers = rest
        .chunks(8)
        .map(|chunk| chunk.iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte)));
    let mut number = || numbers.next().unwrap_or(1);
    let (burst, count, period) = (number(), number(), Duration::from_nanos(number()));
    let Ok(limit) = Limit::new(burst, count, period) else { return };
    let policy = match Policy::new(&name, &limit) {
        Ok(policy) => policy,
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() < 1000 && !text.chars().any(char::is_control), "{text:?}");
            return;
        }
    };
    let (clock, hand) = Clock::manual();
    let bucket = Bucket::new(limit, clock);
    let Ok(mut decision) = bucket.spend(number() % (burst + 1)) else { return };
    hand.advance(Duration::from_nanos(number() >> 8));
    if let Ok(next) = bucket.spend(number() % (burst + 1)) {
        decision = next;
    }
    let key = rest;
    let items = [Item::new(&policy, decision), Item::new(&policy, decision).partition(key)];
    let mut headers = HeaderMap::new();
    let styles = [Style::Ietf, Style::Draft03, Style::XRateLimit(Reset::Epoch)];
    let fields = Fields::new(styles).expect("no two write one field");
    fields.write(&mut headers, &Answer::new(decision, &items), UNIX_EPOCH + period);

    let waits = headers.get("retry-after").map(|value| value.to_str().expect("digits").parse());
    assert_eq!(waits, retry_after(&decision).map(Ok));
    for field in ["ratelimit", "ratelimit-policy"] {
        let list: List = Parser::new(headers[field].as_bytes()).parse().expect("a list");
        assert_eq!(list.len(), 2);
        for entry in list {
            let ListEntry::Item(item) = entry else { panic!("{entry:?}") };
            assert_eq!(item.bare_item.as_string().map(|name| name.as_str()), Some(&*name));
        }
    }
    let limits: List = Parser::new(headers["ratelimit-limit"].as_bytes()).parse().expect("a list");
    assert!(limits.iter().all(|entry| {
        matches!(entry, ListEntry::Item(item) if matches!(item.bare_item, BareItem::Integer(_)))
    }));
});
