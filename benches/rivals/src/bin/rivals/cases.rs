//! The rows: which calls are measured, for how many keys, by how many threads.

use std::thread::available_parallelism;

use rivals::random::Spread::{self, Uniform, Zipf};
use rivals::work::Outcome::{self, Allowed, Check, Denied, New};
use rivals::work::Work::{
    self, Batch2, Batch4, Bucket, Counting, Ipv4, Ipv6, Layer, LayerFields, LayerTwo, LayerX,
    Many16, Overrides, Pair, Sweeping, Text, U64, Uuid,
};

/// Rows that share their limiters and keys.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) work: Work,
    pub(crate) outcome: Outcome,
    pub(crate) keys: usize,
    /// How often each key is called, and by how many threads.
    pub(crate) rows: Vec<(Spread, usize)>,
}

const ONE: &[(Spread, usize)] = &[(Uniform, 1)];
const BOTH: &[(Spread, usize)] = &[(Uniform, 1), (Uniform, 2)];
const ALL: &[(Spread, usize)] = &[(Uniform, 1), (Uniform, 2), (Zipf, 1), (Zipf, 2)];

const SINGLE: [Work; 6] = [Text, Uuid, U64, Ipv4, Ipv6, Pair];
const BATCHES: [Work; 3] = [Batch2, Batch4, Overrides];
const LAYERS: [Work; 4] = [Layer, LayerFields, LayerX, LayerTwo];
const KEYS: [usize; 6] = [1, 1_000, 100_000, 1_000_000, 4_000_000, 10_000_000];
/// The clients of a layer.
const CLIENTS: usize = 1_000;

/// Returns the rows of a run without `--all`.
pub(crate) fn common() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |works: &[Work], outcome, keys, rows: &[_]| {
        let case = |&work: &Work| Case { work, outcome, keys, rows: rows.to_vec() };
        cases.extend(works.iter().map(case));
    };
    add(&SINGLE, Allowed, 1, ONE);
    add(&BATCHES, Allowed, 1, ONE);
    add(&[Counting, Bucket], Allowed, 1, ONE);
    add(&[Text], Denied, 1, BOTH);
    add(&[Text], Check, 1, ONE);
    add(&LAYERS, Allowed, CLIENTS, ONE);
    add(&[LayerFields], Denied, CLIENTS, ONE);
    add(&SINGLE, Allowed, 100_000, BOTH);
    add(&[Batch2], Allowed, 100_000, BOTH);
    add(&[Text], Allowed, 1_000_000, ALL);
    add(&[U64, Ipv4, Batch2], Allowed, 1_000_000, BOTH);
    add(&[Uuid, Sweeping, Many16], Allowed, 1_000_000, ONE);
    add(&[Text], Denied, 1_000_000, ONE);
    add(&[Text], New, 1_000_000, ONE);
    add(&[Text], Allowed, 4_000_000, BOTH);
    add(&[Uuid], Allowed, 4_000_000, ONE);
    add(&[U64], Allowed, 10_000_000, ONE);
    cases
}

/// Returns the rows for one key that all threads call, and for 1,000,000 keys, for 1, 2, 4 and more threads, as many as the
/// machine has.
pub(crate) fn curves() -> Vec<Case> {
    let most = available_parallelism().map_or(1, usize::from);
    let threads = (0..usize::BITS).map(|log2| 1 << log2).take_while(|&threads| threads <= most);
    let rows: Vec<_> = threads.map(|threads| (Uniform, threads)).collect();
    let case = |outcome, keys| Case { work: Text, outcome, keys, rows: rows.clone() };
    vec![case(Allowed, 1), case(Denied, 1), case(Check, 1), case(Allowed, 1_000_000)]
}

/// Returns all rows. They take hours.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |work: Work, outcome, keys, rows: &[_]| {
        cases.push(Case { work, outcome, keys, rows: rows.to_vec() });
    };
    for keys in KEYS {
        for work in SINGLE {
            add(work, Allowed, keys, if keys == 1 { BOTH } else { ALL });
            add(work, Denied, keys, BOTH);
            add(work, Check, keys, BOTH);
            add(work, New, keys.max(CLIENTS), ONE);
        }
        add(Counting, Allowed, keys, BOTH);
        add(Sweeping, Allowed, keys, BOTH);
        add(Many16, Allowed, keys, ONE);
    }
    for keys in KEYS.into_iter().filter(|&keys| keys <= 4_000_000) {
        for work in BATCHES {
            add(work, Allowed, keys, BOTH);
            add(work, Denied, keys, BOTH);
        }
    }
    add(Bucket, Allowed, 1, BOTH);
    add(Bucket, Denied, 1, BOTH);
    for work in LAYERS {
        add(work, Allowed, CLIENTS, ONE);
        add(work, Denied, CLIENTS, ONE);
    }
    cases
}

impl Case {
    /// Reduces the keys, for a run that checks answers only.
    pub(crate) fn with_at_most(self, keys: usize) -> Case {
        Case { keys: self.keys.min(keys), ..self }
    }

    /// Returns the first part of a row's name.
    pub(crate) fn name(&self) -> String {
        match self.outcome {
            Allowed => self.work.name(),
            outcome => format!("{} {}", self.work.name(), outcome.name()),
        }
    }
}
