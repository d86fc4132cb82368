//! The kinds of calls that are measured, and their keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::ids::{Pair, Text, Uuid, V4, V6};
use crate::limiters::TableArgs;
use crate::rule::Rule;
use crate::{contenders, layers};

/// A kind of call, by its keys and limits.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Work {
    /// A text of 12 bytes.
    Text,
    /// A UUID as text: 36 bytes.
    Uuid,
    U64,
    Ipv4,
    /// An IPv6 network of 64 bits.
    Ipv6,
    /// An account's number and a text of 16 bytes.
    Pair,
    /// `Text`, with Tollgate's counters on.
    Counting,
    /// `Text`, with the threads that drop full buckets.
    Sweeping,
    /// `Text`, 16 keys at a time where a limiter has a call for that.
    Many16,
    /// A batch of a text and a number, each under its own limit. For the others, a call for each.
    Batch2,
    /// `Batch2` with a receipt, which is dropped. For the others, `Batch2`.
    Receipt,
    /// A batch of a text, a UUID, a number and an IPv4 address.
    Batch4,
    /// `Batch2`, if both ids have overrides.
    Overrides,
    /// A bucket without a key.
    Bucket,
    /// A request through the tower layer: one limit by the client's address, no fields.
    Layer,
    /// `Layer`, with fields: `RateLimit`, or those of tower_governor.
    LayerFields,
    /// `Layer`, with `X-RateLimit` fields.
    LayerX,
    /// `LayerFields`, with two limits.
    LayerTwo,
}

/// How the calls are answered.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Outcome {
    Allowed,
    Denied,
    /// `check`, which charges nothing.
    Check,
    /// The first call of each key.
    New,
}

/// The limiter that is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Debug)]
pub enum Who {
    Tollgate,
    /// For a layer it is tower_governor.
    GovernorDefault,
    GovernorAhash,
    RateNet,
    /// runlimit-memory: gcra, behind locks.
    Runlimit,
    /// pingora-limits: an estimate, in constant memory.
    Pingora,
    /// ratelimit: a token bucket without keys.
    Ratelimit,
    /// The least work that a call consists of. For a layer it is the service without a layer.
    Floor,
}

/// A kind of call for a number of keys.
#[derive(Clone, Copy)]
pub struct Setup {
    pub work: Work,
    pub outcome: Outcome,
    pub keys: usize,
    /// The most calls that one key may get.
    pub most_calls: usize,
    /// Whether the floor reads the clock after the cell's word.
    pub late_clock: bool,
    pub table: TableArgs,
}

/// The calls of a round: how many were allowed, and the time that they took.
pub struct Round {
    pub allowed: usize,
    pub time: Duration,
}

type Calls = Box<dyn Fn(&[u32]) -> Round + Sync>;

/// A limiter and its calls.
pub struct Contender {
    pub who: Who,
    calls: Calls,
    /// The thread that drops full buckets, if there is one.
    _sweeper: Option<Box<dyn Send + Sync>>,
}

impl Contender {
    /// Makes the contender that calls `is_allowed` for each key of a round.
    pub(crate) fn new<K: Send + Sync + 'static>(
        who: Who,
        keys: &Arc<[K]>,
        is_allowed: impl Fn(&K) -> bool + Sync + 'static,
    ) -> Contender {
        Contender::of_orders(who, keys, move |keys, order| {
            order.iter().filter(|&&i| is_allowed(&keys[i as usize])).count()
        })
    }

    /// Makes the contender that makes all calls of a round by itself, and returns how many were allowed.
    pub(crate) fn of_orders<K: Send + Sync + 'static>(
        who: Who,
        keys: &Arc<[K]>,
        allowed: impl Fn(&[K], &[u32]) -> usize + Sync + 'static,
    ) -> Contender {
        let keys = keys.clone();
        Contender::timed(who, move |order| {
            let started = Instant::now();
            let allowed = allowed(&keys, order);
            Round { allowed, time: started.elapsed() }
        })
    }

    /// Makes the contender that measures its calls itself.
    pub(crate) fn timed(who: Who, calls: impl Fn(&[u32]) -> Round + Sync + 'static) -> Contender {
        Contender { who, calls: Box::new(calls), _sweeper: None }
    }

    pub(crate) fn with_sweeper(self, sweeper: impl Send + Sync + 'static) -> Contender {
        Contender { _sweeper: Some(Box::new(sweeper)), ..self }
    }

    /// Makes a call for the key of each number.
    #[inline]
    pub fn call(&self, order: &[u32]) -> Round {
        (self.calls)(order)
    }
}

/// Makes new limiters each time. The keys are made once.
pub type Contenders = Box<dyn Fn() -> Vec<Contender>>;

impl Setup {
    pub fn contenders(self) -> Contenders {
        match self.work {
            Work::Text | Work::Counting | Work::Sweeping | Work::Many16 => {
                contenders::single::<Text>(self)
            }
            Work::Uuid => contenders::single::<Uuid>(self),
            Work::U64 => contenders::single::<u64>(self),
            Work::Ipv4 => contenders::single::<V4>(self),
            Work::Ipv6 => contenders::single::<V6>(self),
            Work::Pair => contenders::single::<Pair>(self),
            Work::Batch2 | Work::Receipt | Work::Overrides => contenders::batch_of_2(self),
            Work::Batch4 => contenders::batch_of_4(self),
            Work::Bucket => contenders::bucket(self),
            Work::Layer | Work::LayerFields | Work::LayerX | Work::LayerTwo => {
                layers::contenders(self)
            }
        }
    }

    pub(crate) fn rule(self) -> Rule {
        match self.outcome {
            Outcome::Denied => Rule::scarce(),
            _ => Rule::ample(self.most_calls),
        }
    }

    /// Whether a call changes a bucket.
    pub(crate) fn writes(self) -> bool {
        matches!(self.outcome, Outcome::Allowed | Outcome::New)
    }

    /// Whether calls of known keys are to be allowed.
    pub fn is_allowed(self) -> bool {
        self.outcome != Outcome::Denied
    }
}

impl Work {
    pub fn is_layer(self) -> bool {
        matches!(self, Work::Layer | Work::LayerFields | Work::LayerX | Work::LayerTwo)
    }

    pub fn name(self) -> String {
        self.to_possible_value().expect("no work is skipped").get_name().to_string()
    }
}

impl Outcome {
    pub fn name(self) -> String {
        self.to_possible_value().expect("no outcome is skipped").get_name().to_string()
    }
}
