//! The kinds of calls that are measured.

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// One allowed call.
    SpendString,
    SpendU64,
    /// Allowed calls, 16 keys at a time where a limiter has a call for that.
    Many16String,
    /// One call of a key without units.
    DeniedString,
}

/// The answer of a limiter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    Denied,
}

impl Answer {
    #[inline]
    pub(crate) fn of(allowed: bool) -> Answer {
        if allowed { Answer::Allowed } else { Answer::Denied }
    }
}

impl Work {
    pub(crate) const ALL: [Work; 4] =
        [Work::SpendString, Work::SpendU64, Work::Many16String, Work::DeniedString];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::SpendString => "spend string",
            Work::SpendU64 => "spend u64",
            Work::Many16String => "many16 string",
            Work::DeniedString => "denied string",
        }
    }

    /// The numbers of keys; each has a group of rows.
    pub(crate) fn key_counts(self) -> &'static [usize] {
        match self {
            Work::SpendString => &[1, 100_000, 4_000_000],
            Work::SpendU64 => &[1, 100_000, 4_000_000, 10_000_000],
            Work::Many16String => &[100_000, 4_000_000],
            Work::DeniedString => &[1, 4_000_000],
        }
    }

    pub(crate) fn threads(self) -> &'static [usize] {
        if self == Work::Many16String { &[1] } else { &[1, 2] }
    }

    pub(crate) fn is_denied(self) -> bool {
        self == Work::DeniedString
    }

    /// The expected answer of every timed call.
    pub(crate) fn wanted(self) -> Answer {
        Answer::of(!self.is_denied())
    }
}
