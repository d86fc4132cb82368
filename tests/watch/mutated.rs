//! Ten thousand mutated files under a live limiter: each is loaded completely or not at all.

use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::{Clock, LimiterOptions};

use super::*;

const GOOD: &str = "\
PerUser: {burst: 20, count: 10, period: 1s, id: string}
PerUser:alice: {burst: 200, count: 100, period: 1s}
SearchPerUser: {algorithm: fixed_window, limit: 10, window: 60s, id: string}
ApiPerKey: {algorithm: token_bucket, limit: 15, window: 60s, burst: 3, id: string}
NotesPerUser: {algorithm: leaky_bucket, size: 10, drip_rate: 250ms, drip_size: 1, id: string}
PerKey:
  burst: 40
  count: 40
  period: 1s
  id: string
";

/// Texts that have a meaning in YAML or in limits files.
const NOISE: &[u8] = b" :{}[],-#\n0x\xff";

/// Limits and ids that are checked after each file. `carol` has spent, the others have not.
const PROBES: [(&str, &str); 7] = [
    ("PerUser", "alice"),
    ("PerUser", "bob"),
    ("PerUser", "carol"),
    ("SearchPerUser", "alice"),
    ("ApiPerKey", "key"),
    ("NotesPerUser", "alice"),
    ("PerKey", "key"),
];

/// Pseudorandom numbers, the same on each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// Returns the good text with one to three mutations.
fn spoilt(seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut text = GOOD.as_bytes().to_vec();
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(text.len());
        match numbers.below(7) {
            0 => text.truncate(at),
            1 => text.insert(at, NOISE[numbers.below(NOISE.len())]),
            2 => drop(text.splice(at..(at + 1 + numbers.below(8)).min(text.len()), [])),
            3 if !text.is_empty() => text[at] ^= 1 << numbers.below(8),
            4 => {
                // Remove a line.
                let begin =
                    text[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
                let end = text[at..]
                    .iter()
                    .position(|&byte| byte == b'\n')
                    .map_or(text.len(), |to| at + to + 1);
                drop(text.splice(begin..end, []));
            }
            // Change a digit.
            _ => {
                let digits: Vec<usize> =
                    (0..text.len()).filter(|&at| text[at].is_ascii_digit()).collect();
                if let Some(&digit) = digits.get(numbers.below(digits.len())) {
                    text[digit] = b'0' + numbers.below(10) as u8;
                }
            }
        }
    }
    text
}

/// Returns the remaining units and the limit of each probe, if its limit exists.
fn answers(limiter: &Limiter) -> Vec<(Option<u64>, Option<tollgate::Limit>)> {
    let limits = limiter.limits();
    let answer = |(name, id)| {
        let Ok(handle) = limiter.limit(name) else { return (None, None) };
        (handle.check(id, 0).unwrap().remaining(), limits.limit_for(name, id).unwrap())
    };
    PROBES.into_iter().map(answer).collect()
}

/// Makes a limiter with a small table, so that a reload is quick.
fn limiter_of(limits: Limits) -> Limiter {
    let (clock, _manual) = Clock::manual();
    Limiter::with_options(limits, LimiterOptions::default().clock(clock).max_keys(1024)).unwrap()
}

/// Ends the other thread's calls when it is dropped, also by a panic.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn files_load_completely_or_not_at_all() {
    let limiter = limiter_of(Limits::from_yaml(GOOD).unwrap());
    let handle = limiter.limit("PerUser").unwrap();
    assert!(handle.spend("carol", 5).unwrap().allowed());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limits.yml");
    let is_over = AtomicBool::new(false);
    let files = support::full_size(1_500, 10_000);
    let (mut taken, mut refused) = (0, 0);
    thread::scope(|scope| {
        let _ending = Ending(&is_over);
        // Another thread calls for other ids.
        scope.spawn(|| {
            for user in (0..300).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let _ = handle.spend(format!("user {user}").as_str(), 1).unwrap();
            }
        });
        for seed in 0..files {
            let before = answers(&limiter);
            let text = spoilt(seed);
            fs::write(&file, &text).unwrap();
            let told = String::from_utf8_lossy(&text).into_owned();
            let files = || Limits::from_yaml_files(&file, None);
            match files().and_then(|limits| limiter.reload(limits)) {
                Ok(_) => {
                    taken += 1;
                    // The limiter is like one that never had other limits, except for carol's bucket.
                    let wanted = answers(&limiter_of(files().unwrap()));
                    for (at, (answer, wanted)) in
                        answers(&limiter).into_iter().zip(wanted).enumerate()
                    {
                        let probe = PROBES[at];
                        assert_eq!(answer.1, wanted.1, "{seed}: {probe:?} after\n{told}");
                        assert!(
                            probe.1 == "carol" || answer.0 == wanted.0,
                            "{seed}: {probe:?} has {answer:?} of {wanted:?} after\n{told}"
                        );
                    }
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                    assert_eq!(answers(&limiter), before, "{seed}: refused\n{told}");
                }
            }
            let is_empty = limiter.limits().names().next().is_none();
            assert!(!is_empty, "{seed}: no limits after\n{told}");
        }
    });
    assert!(taken > files / 20 && refused > files / 20, "{taken} taken, {refused} refused");
}

/// A file that is cut anywhere is loaded if its rest is valid, but never as a file without limits.
#[test]
fn truncated_files_never_mean_no_limits() {
    for end in 0..GOOD.len() {
        if let Ok(limits) = Limits::from_yaml(&GOOD[..end]) {
            assert!(limits.names().next().is_some(), "{:?}", &GOOD[..end]);
        }
    }
}
