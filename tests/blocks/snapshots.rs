//! Blocks in snapshots.

use std::path::Path;
use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::snapshot::Restored;
use tollgate::{Clock, Error, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, ms};
use super::{limits, limits_of_all, on};

const HOUR: Duration = Duration::from_secs(3600);

fn restored(
    limits: Limits,
    options: LimiterOptions,
    path: &Path,
) -> Result<(Limiter, Restored, ManualClock), Error> {
    let (clock, hand) = Clock::manual();
    let (limiter, restored) = Limiter::restore(limits, options.clock(clock), path)?;
    Ok((limiter, restored, hand))
}

/// Limit, id and reason of each block, sorted.
fn listed(limiter: &Limiter) -> Vec<(String, String, Option<String>)> {
    let mut listed: Vec<_> =
        limiter.blocks().into_iter().map(|it| (it.limit, it.id, it.reason)).collect();
    listed.sort();
    listed
}

#[test]
fn blocks_and_reasons_restore_into_either_engine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for [from, to] in [[0, 0], [1, 1], [1, 0]].map(|pair| pair.map(|at: usize| ENGINES.get(at))) {
        let (Some(&from), Some(&to)) = (from, to) else { continue };
        let (old, handle, hand) = on(&limits_of_all()[0], from);
        // Longer than a frame.
        let long = "x".repeat(900);
        for at in 0..200 {
            handle.block_with_reason(&*format!("{at}{long}"), HOUR, &*long).unwrap();
        }
        old.limit("Other").unwrap().block_with_reason("mallory", HOUR, "").unwrap();
        handle.block("short", ms(5)).unwrap();
        hand.advance(ms(5));
        let written = old.snapshot(&path).unwrap();
        assert_eq!((written.blocks, written.buckets), (201, 0), "one is over");
        let other_order = Limits::builder()
            .limit("More", IdFormat::String, limits_of_all()[0].clone())
            .and_then(|it| it.limit("Other", IdFormat::String, limits_of_all()[1].clone()))
            .and_then(|it| it.limit("Own", IdFormat::String, limits_of_all()[2].clone()));
        let options = LimiterOptions::default().engine(to);
        let (new, read, _hand) = restored(other_order.unwrap().build(), options, &path).unwrap();
        assert_eq!((read.blocks, read.gone.len()), (201, 0), "{from:?} {to:?}");
        assert_eq!(listed(&new), listed(&old), "{from:?} {to:?}");
        let denied = new.limit("Other").unwrap().spend("mallory", 1).unwrap();
        assert!(denied.blocked() && denied.retry_in() < HOUR && denied.retry_in() > HOUR / 2);
        assert!(new.limit("More").unwrap().spend("mallory", 1).unwrap().allowed());
    }
}

#[test]
fn blocks_survive_their_limits_absence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let (old, handle, _hand) = on(&limits_of_all()[0], engine);
        handle.block("id", HOUR).unwrap();
        assert!(handle.spend("other", 1).unwrap().allowed());
        old.snapshot(&path).unwrap();
        let only = Limits::builder().limit("Other", IdFormat::String, limits_of_all()[0].clone());
        let options = LimiterOptions::default().engine(engine);
        let (new, read, _hand) = restored(only.unwrap().build(), options.clone(), &path).unwrap();
        assert_eq!((read.blocks, read.dropped, &*read.gone), (1, 1, &["Own".to_owned()][..]));
        assert!(new.limit("Own").is_ok_and(|it| it.spend("id", 1).unwrap().allowed()));
        // Again through a file and back.
        new.snapshot(&path).unwrap();
        let only = Limits::builder().limit("Other", IdFormat::String, limits_of_all()[0].clone());
        let (new, read, _hand) = restored(only.unwrap().build(), options, &path).unwrap();
        assert_eq!(read.blocks, 1);
        assert!(new.reload(limits(&limits_of_all()[1])).unwrap().changed);
        assert!(new.limit("Own").unwrap().spend("id", 1).unwrap().blocked(), "{engine:?}");
    }
}

#[test]
fn mismatched_limits_or_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let refused = |limits: Limits, options: LimiterOptions| {
        let error = restored(limits, options, &path).map(drop).unwrap_err();
        assert!(error.is_invalid_snapshot());
        error.to_string()
    };
    for engine in ENGINES {
        let (old, handle, _hand) = on(&limits_of_all()[0], engine);
        handle.block("a", HOUR).unwrap();
        handle.block("b", HOUR).unwrap();
        old.snapshot(&path).unwrap();
        let options = || LimiterOptions::default().engine(engine);
        let text = refused(limits(&limits_of_all()[0]), options().max_blocks(1));
        assert!(text.ends_with("it has more blocks than max_blocks 1 allows"), "{text}");
        let of_addresses = Limits::builder().limit("Own", IdFormat::IpAddress, None::<Limit>);
        let text = refused(of_addresses.unwrap().build(), options());
        assert!(text.ends_with("the ids of Own are string there, not ipAddress"), "{text}");
        let kept = restored(limits(&limits_of_all()[0]), options().max_blocks(2), &path);
        assert_eq!(kept.unwrap().1.blocks, 2);
    }
}

/// As documented at `Limiter::limit`.
#[test]
fn unknown_limits_are_kept_if_they_have_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let (old, handle, _hand) = on(&limits_of_all()[0], engine);
        handle.block("id", HOUR).unwrap();
        assert!(old.limit("Other").unwrap().spend("id", 1).unwrap().allowed());
        old.snapshot(&path).unwrap();
        let options = LimiterOptions::default().engine(engine);
        let (new, _, _hand) = restored(Limits::builder().build(), options, &path).unwrap();
        assert_eq!(new.limit("Own").unwrap().check("id", 1).unwrap().remaining(), None);
        assert!(new.limit("Other").unwrap_err().is_invalid_name(), "{engine:?}");
    }
}

/// A block ends by the wall clock, even if the process was down.
#[test]
fn ended_block_is_not_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let (old, handle, _hand) = on(&limits_of_all()[0], Engine::LockFree);
    handle.block("id", ms(1)).unwrap();
    handle.block("it", HOUR).unwrap();
    old.snapshot(&path).unwrap();
    std::thread::sleep(ms(2));
    let options = LimiterOptions::default().max_blocks(1);
    let (new, read, _hand) = restored(limits(&limits_of_all()[0]), options, &path).unwrap();
    assert_eq!(read.blocks, 1, "one, for which there is room");
    assert!(new.limit("Own").unwrap().spend("id", 1).unwrap().allowed());
}
