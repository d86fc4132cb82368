//! Restores any bytes as a snapshot: unchanged, and with corrected checksums, so that the content is read. A limiter
//! that was restored is called, written and restored again.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use crc::{CRC_64_XZ, Crc};
use libfuzzer_sys::fuzz_target;
use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

static CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);

/// The range of the hash seeds in the header, and the header's length.
const SEEDS: std::ops::Range<usize> = 32..64;
const HEADER_BYTES: usize = 72;
const MAX_KEYS: usize = 50;

/// The path of the files, and the seeds of a real snapshot.
static REAL: LazyLock<(PathBuf, Vec<u8>)> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("tollgate-fuzz-{}", std::process::id()));
    Limiter::new(limits()).snapshot(&path).expect("a file");
    let bytes = fs::read(&path).expect("the same");
    (path, bytes[SEEDS].to_vec())
});

fn limits() -> Limits {
    let decade = Duration::from_secs(10 * 365 * 86_400);
    let gcra = |burst| Limit::new(burst, 1, decade);
    let builder = Limits::builder()
        .limit("Gcra", IdFormat::String, gcra(10).expect("good"))
        .and_then(|it| it.override_id("Gcra", "overridden", gcra(12)?))
        .and_then(|it| it.limit("Ids", IdFormat::RegId, gcra(7)?))
        .and_then(|it| it.limit("Window", IdFormat::String, Limit::fixed_window(10, decade)?))
        .and_then(|it| it.limit("Tokens", IdFormat::String, Limit::token_bucket(5, 9, decade)?))
        .and_then(|it| it.limit("Drips", IdFormat::String, Limit::leaky_bucket(10, 1, decade)?));
    builder.expect("good").build()
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let (path, seeds) = &*REAL;
    let mut bytes = bytes.to_vec();
    if how & 1 == 0 {
        set_right(&mut bytes, seeds);
    }
    fs::write(path, &bytes).expect("a file");
    let engine = if how & 2 == 0 { Engine::LockFree } else { Engine::Exact };
    let debt = [CarryOver::Share, CarryOver::Units, CarryOver::Time, CarryOver::Afresh]
        [usize::from(how >> 2 & 3)];
    let options = || {
        let (clock, hand) = Clock::manual();
        (LimiterOptions::default().engine(engine).max_keys(MAX_KEYS).clock(clock), hand)
    };
    let (first, hand) = options();
    let (limiter, restored) = match Limiter::restore_with(limits(), first, path, debt) {
        Ok(restored) => restored,
        Err(error) => {
            assert!(error.is_invalid_snapshot(), "{error}");
            return;
        }
    };
    assert!(limiter.stats().cells <= MAX_KEYS);
    assert_eq!(limiter.stats().cells as u64, restored.buckets);
    assert_eq!(limiter.blocks().len() as u64, restored.blocks);
    call(&limiter);
    let written = limiter.snapshot(path).expect("a file");
    let (again, second) =
        Limiter::restore(limits(), options().0, path).expect("what was just written");
    assert!(second.buckets + second.full == written.buckets && second.dropped == 0);
    assert!(second.blocks <= written.blocks);
    hand.advance(Duration::from_secs(u64::from(how) << 20));
    call(&limiter);
    call(&again);
});

fn call(limiter: &Limiter) {
    for name in ["Gcra", "Window", "Tokens", "Drips"] {
        let handle = limiter.limit(name).expect("it is there");
        for id in ["short", "overridden", "x"] {
            let decision = handle.spend(id, 1).expect("a good call");
            assert!(decision.remaining() <= Some(12));
        }
        assert!(handle.ids().is_none_or(|ids| ids.len() <= MAX_KEYS));
    }
    limiter.sweep(1_000);
}

/// Writes this program's seeds and correct checksums into the file, as far as it has frames.
fn set_right(bytes: &mut [u8], seeds: &[u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    bytes[SEEDS].copy_from_slice(seeds);
    let sum = |before: u64, part: &[u8]| {
        let mut digest = CRC.digest();
        digest.update(&before.to_le_bytes());
        digest.update(part);
        digest.finalize()
    };
    let mut last = sum(0, &bytes[..HEADER_BYTES - 8]);
    bytes[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&last.to_le_bytes());
    let mut rest = &mut bytes[HEADER_BYTES..];
    while let Some(&[a, b, c, d]) = rest.get(4..8).and_then(|len| len.first_chunk()) {
        let len = 8 + u32::from_le_bytes([a, b, c, d]) as usize;
        if rest.len() < len + 8 {
            return;
        }
        let (frame, after) = rest.split_at_mut(len + 8);
        last = sum(last, &frame[..len]);
        frame[len..].copy_from_slice(&last.to_le_bytes());
        rest = after;
    }
}
