//! Parses a line of an access log. Its fields are parts of the line, its time survives a round trip, and cutting off
//! the tail changes no field before the cut.
//!
//! The first byte chooses the cut; the rest is the line.
#![no_main]

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tollgate-cli/src/access_log.rs"]
#[allow(dead_code, reason = "the command uses all of it; this target what reads a line")]
mod access_log;

use access_log::{Entry, Field, MAX_AT_NS};

/// The fields that end before the request's closing quote.
const BEFORE_TAIL: [Field; 5] =
    [Field::Client, Field::User, Field::Method, Field::Path, Field::Host];

fuzz_target!(|data: &[u8]| {
    let Some((&cut, line)) = data.split_first() else { return };
    let entry = match access_log::parse(line) {
        Ok(entry) => entry,
        Err(why) => return assert!(!why.to_string().is_empty()),
    };
    for (name, field) in Field::ALL {
        let Some(value) = entry.field(field) else { continue };
        assert!(!value.is_empty() && value != b"-", "{name}");
        // The bytes of a response without a body, which the line has as `-`.
        if value == b"0" && field == Field::Bytes {
            continue;
        }
        let range = line.as_ptr_range();
        let value_range = value.as_ptr_range();
        assert!(range.start <= value_range.start && value_range.end <= range.end, "{name}");
    }
    let client = entry.field(Field::Client);
    assert!(client.is_none_or(|client| !client.contains(&b' ')));
    let status = entry.field(Field::Status);
    assert!(status.is_none_or(|status| status.len() == 3 && status.iter().all(u8::is_ascii_digit)));

    assert!(entry.at_ns <= MAX_AT_NS && entry.at_ns % 1_000_000_000 == 0, "{}", entry.at_ns);
    let time = Timestamp::from_second((entry.at_ns / 1_000_000_000) as i64).expect("in range");
    let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
    let again = format!("c - - [{time}] \"\"");
    assert_eq!(access_log::parse(again.as_bytes()).map(|again| again.at_ns), Ok(entry.at_ns));

    let cut = line.len() * usize::from(cut) / 256;
    if let Ok(shorter) = access_log::parse(&line[..cut]) {
        let figures = |entry: Entry<'_>| {
            (entry.at_ns, BEFORE_TAIL.map(|field| entry.field(field).map(<[u8]>::to_vec)))
        };
        assert_eq!(figures(shorter), figures(entry), "cut at {cut}");
    }
});
