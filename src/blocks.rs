//! Ids that an operator has blocked.
//!
//! A block is a word: the bucket is moved so far ahead that nothing is there before the block ends, so that
//! no call has to look anywhere else. The list beside it says who is blocked, and what the word was.

use std::collections::HashMap;
use std::time::Duration;

use ahash::RandomState;

use crate::Limit;
use crate::algorithm::gcra::MAX_NOW_NS;
use crate::algorithm::{Charge, Outcome};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::key::{Key, KeyRef, Meta};
use crate::limiter::Limiter;
use crate::limits::{Id, Scratch, decode, encode};
use crate::store::{Absent, CellKey, Outdated, StoreKey, Undone};
use crate::sync::{Locked, Ordering, Switch};
use crate::turn::{ChargedTo, Spent, Turn};

/// An id that is blocked, as [`Limiter::blocked`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// The limit's name.
    pub limit: String,
    /// The id in normal form.
    pub id: String,
    /// The time until the block ends.
    pub left: Duration,
}

/// Who is blocked.
#[derive(Default)]
pub(crate) struct Blocks {
    /// Whether anybody may be: what is not is not looked for.
    any: Switch,
    list: Locked<HashMap<Key, Block, RandomState>>,
}

/// So many can be blocked at once.
const MOST: usize = 1 << 16;

struct Block {
    until_ns: u64,
    /// The word before the block and the one that it left, as of which time: as if it had been charged.
    charge: Charge,
    /// What the words are under.
    meta: Meta,
}

impl Block {
    fn is_over(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    fn left(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.until_ns.saturating_sub(now_ns))
    }
}

impl Handle {
    /// Denies the id everything for a time, from now on, and returns that time. One unit is there when it is
    /// over, and from then on the bucket fills as always. Costs no call anything.
    ///
    /// The longer block stays: one that would end sooner changes nothing ([`unblock`](Handle::unblock)
    /// first). Refunds and resets leave it, and change what [`unblock`](Handle::unblock) brings back. Who
    /// has a place already keeps it. A limit that counts whole windows or drips cannot end a block before
    /// a window or a drip after the clock's origin: then it is longer. A [reload](Limiter::reload) keeps
    /// blocks, and for a moment some may be let in while it goes on.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`]; and [`Error::is_block`], then nothing has changed: no limit applies to the
    /// id; as many keys have a bucket as [may](crate::LimiterOptions::max_keys), and this one has none; 65,536 ids
    /// are blocked; the limit's rule has [no such word](crate::Algorithm::blocked).
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
    /// let limiter = Limiter::with_clock(limits, Clock::manual().0);
    /// let users = limiter.limit("PerUser")?;
    /// users.block("mallory", Duration::from_secs(3600))?;
    /// let denied = users.spend("mallory", 1)?;
    /// assert!(!denied.allowed());
    /// assert_eq!(denied.retry_in(), Duration::from_secs(3600));
    /// assert_eq!(limiter.blocked()[0].id, "mallory");
    /// assert!(users.unblock("mallory")?);
    /// assert_eq!(users.spend("mallory", 1)?.remaining(), Some(19));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn block<'a>(&self, id: impl Into<Id<'a>>, time: Duration) -> Result<Duration, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let id = encode(self.format, id.into(), &mut scratch)?;
        let key = KeyRef { limit: self.index, id };
        let now_ns = inner.clock.now_ns();
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = now_ns.saturating_add(time_ns).min(MAX_NOW_NS);
        let left = inner.blocks.list.with(|list| {
            let known = list.get(&Key::new(key)).filter(|block| !block.is_over(now_ns));
            if let Some(block) = known
                && block.until_ns >= until_ns
            {
                return Ok(block.left(now_ns));
            }
            let was = known.map(|block| block.charge);
            if list.len() >= MOST && was.is_none() {
                list.retain(|_, block| !block.is_over(now_ns));
            }
            if list.len() >= MOST && was.is_none() {
                return Err(self.not_blocked(id, &format!("{MOST} ids are, which is the most")));
            }
            // Before the word is: whoever gives back in between looks for it, and waits for the list.
            // Relaxed: the list's lock publishes it.
            inner.blocks.any.store(true, Ordering::Relaxed);
            let block = inner
                .with_turn(|turn| turn.block(key, now_ns, until_ns, was))
                .map_err(|why| self.not_blocked(id, why))?;
            let left = block.left(now_ns);
            list.insert(Key::new(key), block);
            Ok(left)
        });
        #[cfg(feature = "tracing")]
        if let Ok(left) = left {
            crate::events::block(self, id, left);
        }
        left
    }

    /// Ends a block: the bucket is what it would have been without it. Returns whether there was one.
    ///
    /// Where others have taken places behind the block, those stay, and newcomers come behind them.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    pub fn unblock<'a>(&self, id: impl Into<Id<'a>>) -> Result<bool, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let id = encode(self.format, id.into(), &mut scratch)?;
        let key = KeyRef { limit: self.index, id };
        let now_ns = inner.clock.now_ns();
        let was_blocked = inner.blocks.list.with(|list| {
            let Some(block) = list.remove(&Key::new(key)).filter(|block| !block.is_over(now_ns))
            else {
                return false;
            };
            inner.with_turn(|turn| turn.unblock(key, &block));
            true
        });
        #[cfg(feature = "tracing")]
        if was_blocked {
            crate::events::unblock(self, id);
        }
        Ok(was_blocked)
    }

    /// The time until the block of an id ends, if it is blocked.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    pub fn blocked<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<Duration>, Error> {
        let inner = &*self.limiter.inner;
        let mut scratch = Scratch::new();
        let id = encode(self.format, id.into(), &mut scratch)?;
        let key = Key::new(KeyRef { limit: self.index, id });
        let now_ns = inner.clock.now_ns();
        let left = |block: &Block| (!block.is_over(now_ns)).then(|| block.left(now_ns));
        Ok(inner.blocks.list.with(|list| list.get(&key).and_then(left)))
    }

    fn not_blocked(&self, id: &[u8], why: &str) -> Error {
        let text = format!("{}:{} cannot be blocked: {why}", self.name, decode(self.format, id));
        Error::new(ErrorKind::Block, text)
    }
}

impl Limiter {
    /// Who is [blocked](Handle::block), in no order. Blocks that are over are forgotten here.
    pub fn blocked(&self) -> Vec<Blocked> {
        let inner = &*self.inner;
        let now_ns = inner.clock.now_ns();
        let limits = self.limits();
        inner.blocks.list.with(|list| {
            list.retain(|_, block| !block.is_over(now_ns));
            let blocked = list.iter().map(|(key, block)| {
                let KeyRef { limit, id } = key.as_ref();
                let entry = limits.entry(limit);
                let id = decode(entry.format, id);
                Blocked { limit: entry.name.to_string(), id, left: block.left(now_ns) }
            });
            blocked.collect()
        })
    }
}

impl Blocks {
    /// Whether anybody may be blocked.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // Relaxed: who finds nobody gives back as if before the block.
        self.any.load(Ordering::Relaxed)
    }

    /// What is given back to a blocked bucket: to the word that the block keeps. `None`: it is not blocked.
    fn give(&self, key: KeyRef<'_>, now_ns: u64, ask: impl Fn(u64) -> Outcome) -> Option<Decision> {
        self.list.with(|list| {
            let block = list.get_mut(&Key::new(key)).filter(|block| !block.is_over(now_ns))?;
            let outcome = ask(block.charge.before);
            block.charge.before = outcome.word.unwrap_or(block.charge.before);
            Some(outcome.decision)
        })
    }
}

impl Turn<'_> {
    /// Moves a key's bucket ahead. `was`: the block that it has, which is shorter.
    fn block(
        self,
        key: KeyRef<'_>,
        now_ns: u64,
        until_ns: u64,
        was: Option<Charge>,
    ) -> Result<Result<Block, &'static str>, Outdated> {
        let Some((limit, meta)) =
            self.generation.limits.entry(key.limit).numbers_of(key.id, self.limits_ns(now_ns))
        else {
            return Ok(Err("no limit applies to it"));
        };
        let rule = limit.rule();
        let Some(blocked) = rule.blocked(now_ns, until_ns) else {
            return Ok(Err("its limit has no word for so long"));
        };
        let key = self.store_key(key, meta);
        let end_ns = |word, now_ns: u64| {
            let denied = rule.spend(word, now_ns, 1).decision;
            let wait_ns = if denied.allowed() { 0 } else { denied.retry_in().as_nanos() as u64 };
            now_ns.saturating_add(wait_ns)
        };
        // Denied for longer, it stays so.
        let ask = |word, now_ns| Outcome {
            word: (end_ns(word, now_ns) < until_ns).then_some(blocked),
            decision: Decision::UNLIMITED,
        };
        let asked = match self.change(&key, Absent::Insert, now_ns, ask) {
            Ok(asked) => asked,
            Err(Undone::Outdated) => return Err(Outdated),
            Err(Undone::AtCap) => return Ok(Err("as many keys have a bucket as may")),
        };
        let after = ask(asked.word, asked.at_ns).word.unwrap_or(asked.word);
        let charge = match was {
            Some(was) if was.after == asked.word => Charge { after, ..was },
            _ => Charge::new(asked.word, after, asked.at_ns),
        };
        let until_ns = end_ns(after, now_ns).max(until_ns);
        Ok(Ok(Block { until_ns, charge, meta }))
    }

    fn unblock(self, key: KeyRef<'_>, block: &Block) -> Result<(), Outdated> {
        let Some((limit, meta)) =
            self.generation.limits.entry(key.limit).numbers_of(key.id, self.limits_now_ns())
        else {
            return Ok(());
        };
        // Where the words are under other numbers, as while a reload goes on, they are brought over.
        let converted = |word| match word {
            0 => Some(0),
            word => {
                self.generation.under(CellKey::Id(key.id), block.meta, word, meta).ok().flatten()
            }
        };
        let (Some(before), Some(after)) =
            (converted(block.charge.before), converted(block.charge.after))
        else {
            return Ok(());
        };
        let key = self.store_key(key, meta);
        let spent = Spent {
            decision: Decision::UNLIMITED,
            charge: Some(Charge { before, after, ..block.charge }),
            to: ChargedTo::OwnCell,
            // Beneath a block nothing is taken back: what lies so far ahead gives nothing.
            lowered: self.inner.lowered.of(&key).sum(),
        };
        self.take_back(&key, limit, &spent)
    }

    /// Blocks anew who is blocked, after a reload has brought the words over.
    pub(crate) fn renew_blocks(self) -> Result<(), Outdated> {
        if !self.inner.blocks.any() {
            return Ok(());
        }
        let now_ns = self.inner.clock.now_ns();
        self.inner.blocks.list.with(|list| {
            for (key, block) in list.iter_mut().filter(|(_, block)| !block.is_over(now_ns)) {
                let key = key.as_ref();
                let entry = self.generation.limits.entry(key.limit);
                let Some((_, meta)) = entry.numbers_of(key.id, self.limits_ns(now_ns)) else {
                    continue;
                };
                let id = CellKey::Id(key.id);
                let before = self.generation.under(id, block.meta, block.charge.before, meta);
                let before = before.ok().flatten();
                if let Ok(again) = self.block(key, now_ns, block.until_ns, None)? {
                    let before = before.unwrap_or(0);
                    let until_ns = block.until_ns.max(again.until_ns);
                    *block = Block { charge: Charge { before, ..again.charge }, until_ns, ..again };
                }
            }
            Ok(())
        })
    }

    /// What is given back to a bucket that is blocked. `None`: it is not.
    pub(crate) fn give_to_blocked(
        self,
        key: &StoreKey<'_>,
        limit: &Limit,
        now_ns: u64,
        ask: impl Fn(u64, u64) -> Outcome,
    ) -> Result<Option<Decision>, Outdated> {
        if !self.inner.blocks.any() {
            return Ok(None);
        }
        let Some(given) = self.inner.blocks.give(key.key, now_ns, |word| ask(word, now_ns)) else {
            return Ok(None);
        };
        // Of the bucket as it is, which has nothing.
        let said = self.look(key, now_ns, |word, now_ns| limit.rule().spend(word, now_ns, 0))?;
        let reset_in_ns = said.reset_in().as_nanos() as u64;
        Ok(Some(Decision::new(given.allowed(), (0, 1), 0, reset_in_ns).of_refund()))
    }
}
