//! Samples of metrics, and families of them.

/// Samples of one name.
pub(crate) struct Family<'c> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample<'c>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

pub(crate) struct Sample<'c> {
    pub(crate) labels: Vec<(&'static str, &'c str)>,
    pub(crate) value: u64,
}

pub(super) fn one(value: u64) -> Vec<Sample<'static>> {
    vec![Sample { labels: Vec::new(), value }]
}
