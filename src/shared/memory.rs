//! A store in memory, for tests and simulations of several nodes in one process.

use std::collections::HashMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::clock::Clock;
use crate::error::Error;
use crate::shared::protocol::change::BucketChange;
use crate::shared::protocol::decide::{DecidedMember, decide, denied_by, written};
use crate::shared::protocol::text::ORIGIN_NS;
use crate::shared::protocol::{Changed, Found, Reply, SharedStore, StoreMember};
use crate::shared::store_figures::{StoreFault, StoreFigures};
use crate::util::lock::Mutex;

/// Texts by key. Each call is done when it returns.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Clock,
    texts: Mutex<HashMap<Box<str>, Kept>>,
    figures: StoreFigures,
}

#[derive(Clone, Debug)]
struct Kept {
    text: Box<[u8]>,
    until_ns: u64,
}

impl MemoryStore {
    /// Makes an empty store whose rules compute with the clock's own readings: they are those of a local limiter on the
    /// same clock.
    pub(crate) fn new(clock: Clock) -> MemoryStore {
        MemoryStore { clock, texts: Mutex::default(), figures: StoreFigures::default() }
    }

    /// The clock's first reading, which is 1, is the origin of the words of shared limits.
    fn unix_ns(&self) -> u64 {
        (ORIGIN_NS - 1).saturating_add(self.clock.now_ns())
    }

    fn charge_now(&self, members: &[StoreMember]) -> Result<Found, Error> {
        let mut kept = self.texts.lock();
        // Read under the lock, so that the store's time is that of its order of calls.
        let unix_ns = self.unix_ns();
        drop_ended(&mut kept, unix_ns);
        let texts: Vec<_> =
            members.iter().map(|member| text_of(&kept, &member.key, unix_ns)).collect();
        let decided = decide(members, &texts, unix_ns)?;
        let denied = denied_by(members, &decided);
        if denied.is_none() {
            for (member, decided) in members.iter().zip(&decided) {
                if let Some((text, keep_ms)) = written(member, decided, unix_ns) {
                    keep(&mut kept, &member.key, &text, keep_ms, unix_ns);
                }
            }
        }
        let units = |decided: &DecidedMember| decided.granted.map_or(0, |granted| granted.units);
        let leased = decided.iter().map(|member| denied.map_or_else(|| units(member), |_| 0));
        Ok(Found { unix_ns, denied, texts, leased: leased.collect(), times: Vec::new() })
    }

    fn change_now(&self, changes: &[BucketChange]) -> Result<Changed, Error> {
        let mut kept = self.texts.lock();
        let unix_ns = self.unix_ns();
        drop_ended(&mut kept, unix_ns);
        let text_of = |change: &BucketChange| text_of(&kept, &change.member.key, unix_ns);
        let texts: Vec<_> = changes.iter().map(text_of).collect();
        let step = |(change, text): (&BucketChange, &Option<Box<[u8]>>)| {
            change.stepped(text.as_deref(), unix_ns)
        };
        let stepped = changes.iter().zip(&texts).map(step).collect::<Result<Vec<_>, _>>()?;
        for (change, stepped) in changes.iter().zip(&stepped) {
            match change.written(stepped) {
                Some((text, Some(keep_ms))) => {
                    keep(&mut kept, &change.member.key, &text, keep_ms, unix_ns);
                }
                Some((_, None)) => {
                    kept.remove(&change.member.key);
                }
                None => {}
            }
        }
        Ok(Changed { unix_ns, texts })
    }
}

/// Forgets texts whose time is over, as a server does: all of them each time the map has doubled, so that a call takes
/// constant time on average.
fn drop_ended(kept: &mut HashMap<Box<str>, Kept>, unix_ns: u64) {
    if kept.len() == kept.capacity() {
        kept.retain(|_, kept| kept.until_ns > unix_ns);
    }
}

/// Returns the text of a key whose time is not over.
fn text_of(kept: &HashMap<Box<str>, Kept>, key: &str, unix_ns: u64) -> Option<Box<[u8]>> {
    kept.get(key).filter(|kept| kept.until_ns > unix_ns).map(|kept| kept.text.clone())
}

fn keep(kept: &mut HashMap<Box<str>, Kept>, key: &str, text: &str, keep_ms: u64, unix_ns: u64) {
    let until_ns = unix_ns.saturating_add(keep_ms.saturating_mul(1_000_000));
    kept.insert(key.into(), Kept { text: text.as_bytes().into(), until_ns });
}

impl SharedStore for MemoryStore {
    fn charge(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        self.figures.count_calls(1);
        let charged = self.charge_now(&members);
        if let Err(error) = &charged {
            self.figures.count_unusable(StoreFault::UnknownText, error);
        }
        Box::pin(ready(charged))
    }

    fn change(&self, changes: Arc<[BucketChange]>) -> Reply<Changed> {
        self.figures.count_calls(1);
        let changed = self.change_now(&changes);
        if let Err(error) = &changed {
            self.figures.count_unusable(StoreFault::UnknownText, error);
        }
        Box::pin(ready(changed))
    }

    #[cfg(test)]
    fn put(&self, key: &str, text: &str) {
        keep(&mut self.texts.lock(), key, text, 1_000_000, self.unix_ns());
    }

    fn figures(&self) -> Option<&StoreFigures> {
        Some(&self.figures)
    }

    fn is_on(&self, clock: &Clock) -> bool {
        self.clock.has_source_of(clock)
    }

    fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        run_now(task);
    }
}

/// Runs a task that does not wait.
pub(super) fn run_now(mut task: Pin<Box<dyn Future<Output = ()> + Send>>) {
    let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    debug_assert_eq!(polled, Poll::Ready(()), "this store answers at once");
}
