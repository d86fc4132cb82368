//! A restore refuses a file that is cut, has a flipped bit, or whose frames are missing, repeated or in another order.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use tollgate::options::Engine;
use tollgate::{Error, Limiter};

use super::{ENGINES, full_size, limiter, limits, options, slow};

/// Writes a snapshot of about 10 KB to `path`, and returns its bytes.
fn ten_kilobytes(engine: Engine, path: &Path) -> Vec<u8> {
    let (limiter, _manual) = limiter(limits(&[("A", slow(100)), ("B", slow(50))]), engine);
    for (name, ids) in [("A", 0..250), ("B", 0..70)] {
        let handle = limiter.limit(name).unwrap();
        for id in ids {
            assert!(handle.spend(format!("id {id:07}").as_str(), 1 + id % 40).unwrap().allowed());
        }
    }
    let written = limiter.snapshot(path).unwrap();
    let bytes = fs::read(path).unwrap();
    assert_eq!((written.buckets, written.bytes), (320, bytes.len() as u64));
    assert!((8_000..12_000).contains(&bytes.len()), "{} bytes", bytes.len());
    bytes
}

fn restore(engine: Engine, path: &Path) -> Result<u64, Error> {
    let (options, _manual) = options(engine);
    // A small table is allocated fast.
    let limits = limits(&[("A", slow(100)), ("B", slow(50))]);
    let restored = Limiter::restore(limits, options.max_keys(1_000), path);
    restored.map(|(limiter, restored)| {
        assert_eq!(limiter.stats().cells as u64, restored.buckets);
        restored.buckets
    })
}

/// Checks that the error for a damaged file names the file and the byte.
fn assert_refused(path: &Path, restored: Result<u64, Error>, what: &str) {
    let error = restored.expect_err(what);
    let text = error.to_string();
    assert!(error.is_invalid_snapshot(), "{what}: {text}");
    assert!(text.starts_with(&format!("{}: at byte ", path.display())), "{what}: {text}");
}

#[test]
fn every_cut_is_found() {
    for &engine in full_size(&ENGINES[..1], &ENGINES) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("buckets");
        let whole = ten_kilobytes(engine, &path);
        assert_eq!(restore(engine, &path).unwrap(), 320);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(whole.len() as u64 + 1).unwrap();
        assert_refused(&path, restore(engine, &path), "one byte more");
        for len in (0..whole.len()).rev().step_by(full_size(3, 1)) {
            file.set_len(len as u64).unwrap();
            assert_refused(&path, restore(engine, &path), &format!("{len} bytes"));
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for &engine in full_size(&ENGINES[..1], &ENGINES) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("buckets");
        let whole = ten_kilobytes(engine, &path);
        let mut file = File::options().write(true).open(&path).unwrap();
        let mut put = |at: usize, byte: u8| {
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&[byte]).unwrap();
        };
        for (at, &byte) in whole.iter().enumerate().step_by(full_size(3, 1)) {
            // One of each third byte, or all at full size.
            for bit in full_size(at % 8..at % 8 + 1, 0..8) {
                put(at, byte ^ (1 << bit));
                assert_refused(&path, restore(engine, &path), &format!("bit {bit} of byte {at}"));
            }
            put(at, byte);
        }
        assert_eq!(restore(engine, &path).unwrap(), 320);
    }
}

#[test]
fn parts_that_change_places_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    // Three frames of records, after the header and the frames of limits and parameters.
    let (limiter, _manual) = limiter(limits(&[("A", slow(100))]), Engine::LockFree);
    let handle = limiter.limit("A").unwrap();
    for id in 0..6_000 {
        assert!(handle.spend(format!("id {id}").as_str(), 1).unwrap().allowed());
    }
    limiter.snapshot(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    let frames = frames(&whole);
    assert_eq!(frames.len(), 6, "limits, parameters, three of records, the end");
    let with = |order: &[usize]| -> Vec<u8> {
        let frames = order.iter().flat_map(|&at| &whole[frames[at].clone()]);
        whole[..72].iter().chain(frames).copied().collect()
    };
    let limits = || limits(&[("A", slow(100))]);
    let restore = |bytes: Vec<u8>| {
        fs::write(&path, bytes).unwrap();
        let (options, _manual) = options(Engine::LockFree);
        Limiter::restore(limits(), options, &path).map(|(_, restored)| restored.buckets)
    };
    assert_eq!(restore(with(&[0, 1, 2, 3, 4, 5])).unwrap(), 6_000);
    for order in [&[0, 1, 3, 2, 4, 5][..], &[0, 1, 2, 4, 5], &[0, 1, 2, 2, 3, 4, 5], &[0, 1, 5]] {
        assert_refused(&path, restore(with(order)), &format!("{order:?}"));
    }
}

/// Returns the byte range of each frame.
fn frames(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut frames, mut at) = (Vec::new(), 72);
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        frames.push(at..at + 16 + len);
        at += 16 + len;
    }
    assert_eq!(at, bytes.len());
    frames
}
