//! What can be asked of one bucket.

use super::decide::Kind;
use crate::algorithm::Outcome;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::{Outdated, StoreKey};

/// A call for one bucket.
pub(crate) trait Call: Copy {
    const KIND: Kind;

    /// The units that the call is for; 0 for a reset.
    fn cost(self) -> u64;

    /// The same for so many units.
    fn at_cost(self, cost: u64) -> Self;

    /// The same at a cost of 0.
    fn at_no_cost(self) -> Self {
        self.at_cost(0)
    }

    /// What the call makes of a word.
    fn ask(self, limit: &Limit, word: u64, now_ns: u64) -> Outcome;

    /// What it makes of a word of a gcra, which most are. `None`: to be asked like any other.
    #[inline(always)]
    fn ask_gcra(self, limit: &Limit, word: u64, now_ns: u64) -> Option<Decision> {
        let _ = (limit, word, now_ns);
        None
    }

    /// What a caller is told of a word.
    #[inline(never)]
    fn tell(self, limit: &Limit, word: u64, now_ns: u64) -> Decision {
        self.ask(limit, word, now_ns).decision
    }

    /// Decides for any key.
    fn run(
        self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Decision, Outdated>;
}

#[derive(Clone, Copy)]
pub(crate) struct Spend(pub(crate) u64);

#[derive(Clone, Copy)]
pub(crate) struct Check(pub(crate) u64);

#[derive(Clone, Copy)]
pub(crate) struct Refund(pub(crate) u64);

#[derive(Clone, Copy)]
pub(crate) struct Reset;

impl Call for Spend {
    const KIND: Kind = Kind::Spend;

    #[inline(always)]
    fn cost(self) -> u64 {
        self.0
    }

    fn at_cost(self, cost: u64) -> Spend {
        Spend(cost)
    }

    #[inline(always)]
    fn ask(self, limit: &Limit, word: u64, now_ns: u64) -> Outcome {
        limit.rule().spend(word, now_ns, self.0)
    }

    #[inline(always)]
    fn ask_gcra(self, limit: &Limit, word: u64, now_ns: u64) -> Option<Decision> {
        limit.rule().gcra().map(|gcra| gcra.spend(word, now_ns, self.0).decision)
    }

    fn run(
        self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        if self.0 == 0 {
            // Asks without charging: no cell is made for it.
            return Check(0).run(view, key, limit, now_ns);
        }
        Ok(view.spend(key, limit, self.0, now_ns)?.decision)
    }
}

impl Call for Check {
    const KIND: Kind = Kind::Check;

    #[inline(always)]
    fn cost(self) -> u64 {
        self.0
    }

    fn at_cost(self, cost: u64) -> Check {
        Check(cost)
    }

    #[inline(always)]
    fn ask(self, limit: &Limit, word: u64, now_ns: u64) -> Outcome {
        Outcome { word: None, ..limit.rule().spend(word, now_ns, self.0) }
    }

    #[inline(always)]
    fn ask_gcra(self, limit: &Limit, word: u64, now_ns: u64) -> Option<Decision> {
        Spend(self.0).ask_gcra(limit, word, now_ns)
    }

    fn run(
        self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        view.look(key, now_ns, |word, now_ns| self.ask(limit, word, now_ns))
    }
}

impl Call for Refund {
    const KIND: Kind = Kind::Give;

    #[inline(always)]
    fn cost(self) -> u64 {
        self.0
    }

    fn at_cost(self, cost: u64) -> Refund {
        Refund(cost)
    }

    #[inline(always)]
    fn ask(self, limit: &Limit, word: u64, now_ns: u64) -> Outcome {
        limit.rule().refund(word, now_ns, self.0)
    }

    fn run(
        self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        view.refund(key, limit, self.0, now_ns)
    }
}

impl Call for Reset {
    const KIND: Kind = Kind::Give;

    fn cost(self) -> u64 {
        0
    }

    fn at_cost(self, _: u64) -> Reset {
        Reset
    }

    #[inline(always)]
    fn ask(self, limit: &Limit, word: u64, now_ns: u64) -> Outcome {
        limit.rule().reset(word, now_ns)
    }

    fn run(
        self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
    ) -> Result<Decision, Outdated> {
        view.reset(key, limit, now_ns)
    }
}
