//! Valkey or Redis as the store: a server, a cluster, or a server that sentinels know.
//!
//! One thread, `tollgate-store`, makes all calls to the servers. So callers may use any runtime or none, and a runtime that
//! stands still delays no caller on another one.
//!
//! Each server has one connection, which carries all calls to that server. Charges that are handed to the thread at the same
//! time are sent to a server as one pipeline: what a message between tasks, a timer and a new task cost is paid once for all
//! of them. (In a cluster each charge is sent alone.) The thread connects in the background, also after
//! a failure: only the first calls of a program wait for a connection.

mod address;
mod answer;
mod cluster;
mod fault;
mod link;
mod script;
mod sentinel;
mod servers;
mod slots;
mod split;
// The nodes of these tests read limits files.
#[cfg(all(test, feature = "yaml", not(tollgate_loom)))]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

use redis::Value;
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::limits::StoreOptions;
use crate::shared::protocol::change::BucketChange;
use crate::shared::protocol::gate::{Passed, PassedReturn};
use crate::shared::protocol::{Changed, Found, Reply, SharedStore, StoreMember, TellFound};
use crate::shared::store_figures::StoreFigures;
use fault::store_error;
use script::{ScriptCalls, Scripts};
use servers::{Kind, Servers};

/// The time for the answer to a call that admits nothing, at least: a caller that gets none does not know whether to return its units
/// again.
pub(super) const CHANGED_WITHIN: Duration = Duration::from_secs(1);

/// The most charges that are sent together.
const MOST_TOGETHER: usize = 16;
/// Charges that are sent together have the deadline of the first. So they were called within this time, and within this share of
/// the timeout.
const TOGETHER: Duration = Duration::from_millis(1);
const SHARE_OF_TIMEOUT: u32 = 10;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What callers hand to the thread.
enum Work {
    Task(Task),
    Charge(Charge),
}

/// A charge of a batch, which has its places in the gates already.
struct Charge {
    members: Arc<[StoreMember]>,
    called: Instant,
    tell: TellFound,
}

/// The servers of a store, and the thread that asks them.
pub(crate) struct ValkeyStore {
    servers: Arc<Servers>,
    #[cfg(feature = "boulder")]
    has_boulder_keys: bool,
    /// Has no clone: the thread ends when it is dropped.
    work: mpsc::UnboundedSender<Work>,
}

impl ValkeyStore {
    /// Starts the thread, which connects in the background. Fails if the address is invalid, or if the system starts no thread.
    pub(crate) fn start(options: &StoreOptions) -> Result<ValkeyStore, Error> {
        ValkeyStore::with_scripts(options, Scripts::new())
    }

    fn with_scripts(options: &StoreOptions, scripts: Scripts) -> Result<ValkeyStore, Error> {
        let servers = Arc::new(Servers::new(options, scripts)?);
        let failed = |error| Error::from_io("the thread tollgate-store cannot be started", error);
        let (work, received) = mpsc::unbounded_channel::<Work>();
        let (tell_fault, fault) = std::sync::mpsc::channel();
        let by = servers.clone();
        let run = move || {
            let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell_fault.send(error)),
            };
            drop(tell_fault);
            runtime.block_on(async {
                // The channel wakes a thread that sleeps; a runtime makes a system call for each task.
                let all_received = tokio::spawn(do_all(by.clone(), received));
                tokio::select! {
                    () = by.keep_connected() => {}
                    _ = all_received => {}
                }
            });
            // Does not wait for a name lookup that is still running.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("tollgate-store".into()).spawn(run).map_err(failed)?;
        // The thread has made its runtime when it drops the sender without a fault.
        if let Ok(error) = fault.recv() {
            return Err(failed(error));
        }
        Ok(ValkeyStore {
            servers,
            #[cfg(feature = "boulder")]
            has_boulder_keys: options.has_boulder_keys(),
            work,
        })
    }
}

/// Begins what callers hand to the thread, in the order in which they do.
async fn do_all(servers: Arc<Servers>, mut received: mpsc::UnboundedReceiver<Work>) {
    let near = TOGETHER.min(servers.answer_timeout / SHARE_OF_TIMEOUT);
    let begin = |charges: Vec<Charge>| {
        if !charges.is_empty() {
            tokio::spawn(servers.clone().charge_together(charges));
        }
    };
    let mut some = Vec::new();
    while received.recv_many(&mut some, MOST_TOGETHER).await > 0 {
        let mut together: Vec<Charge> = Vec::new();
        for work in some.drain(..) {
            let is_near = |charge: &Charge| {
                together.first().is_none_or(|first| charge.called - first.called < near)
            };
            match work {
                Work::Charge(charge) if is_near(&charge) => together.push(charge),
                Work::Charge(charge) => begin(mem::replace(&mut together, vec![charge])),
                Work::Task(task) => {
                    begin(mem::take(&mut together));
                    tokio::spawn(task);
                }
            }
        }
        begin(together);
    }
}

impl Charge {
    /// Tells the answer. If a clock or an algorithm of the caller's panics then, that ends this charge alone.
    fn tell(self, found: Result<Found, Error>) {
        let _ = catch_unwind(AssertUnwindSafe(|| (self.tell)(found)));
    }
}

impl Servers {
    /// Charges batches that were called at the same time. If there is one server, they are sent together, and have the deadline
    /// of the first.
    async fn charge_together(self: Arc<Servers>, charges: Vec<Charge>) {
        let Kind::One(link) = &self.kind else {
            for charge in charges {
                let by = self.clone();
                tokio::spawn(async move {
                    let found = by.charge_now(&charge.members, charge.called, Duration::ZERO).await;
                    charge.tell(found);
                });
            }
            return;
        };
        let deadline = self.begin(charges[0].called, Duration::ZERO).await;
        let sent = std::time::Instant::now();
        let mut calls = ScriptCalls::with_capacity(charges.len());
        charges.iter().for_each(|charge| self.scripts.charge(&mut calls, &charge.members));
        let answers = link.ask(&calls, false, deadline).await;
        let mut is_timed = false;
        for (charge, asked) in charges.into_iter().zip(answers) {
            let found = self.found(charge.members.len(), self.followed(asked));
            if let Ok(found) = &found
                && !is_timed
            {
                self.note_time(sent, found.unix_ns);
                is_timed = true;
            }
            charge.tell(found);
        }
    }

    /// Reads the answer to a charge of so many members.
    fn found(&self, members: usize, value: Result<Value, Error>) -> Result<Found, Error> {
        answer::found(members, value?).ok_or_else(|| self.unknown_answer())
    }

    /// Charges a batch that admits nothing: it waits for a place, as a change.
    async fn charge_return(
        self: &Arc<Servers>,
        members: &[StoreMember],
        called: Instant,
    ) -> Result<Found, Error> {
        let key = members.first().map_or("", |member| &member.key);
        let passed = self.place(key, called).await?;
        let found = self.charge_now(members, Instant::now(), CHANGED_WITHIN).await?;
        passed.note_answer();
        Ok(found)
    }

    /// Charges a batch, which has its places in the gates already. `within`: the least time for the answer.
    async fn charge_now(
        self: &Arc<Servers>,
        members: &[StoreMember],
        called: Instant,
        within: Duration,
    ) -> Result<Found, Error> {
        let deadline = self.begin(called, within).await;
        let sent = std::time::Instant::now();
        match self.is_split(members) {
            false => {
                let found = self.charge_in_slot(members, deadline).await?;
                self.note_time(sent, found.unix_ns);
                Ok(found)
            }
            // In a box, like all that is for clusters: the future of a call to one server stays small.
            true => Box::pin(split::charge(self, members, deadline)).await,
        }
    }

    /// Charges a batch whose buckets are in one slot: by the quick script for plain gcra buckets if it fits the batch.
    async fn charge_in_slot(
        &self,
        members: &[StoreMember],
        deadline: Instant,
    ) -> Result<Found, Error> {
        let key = members.first().map_or("", |member| &member.key);
        let mut call = ScriptCalls::with_capacity(1);
        self.scripts.charge(&mut call, members);
        let value = self.ask(key, &call, deadline).await;
        self.found(members.len(), value)
    }

    /// Changes buckets. A change that spends has a place in the gate already; another one waits for it, and has longer for its
    /// answer.
    async fn change(&self, changes: &[BucketChange], called: Instant) -> Result<Changed, Error> {
        let key = changes.first().map_or("", |change| &change.member.key);
        let (passed, deadline) = match changes.iter().all(|change| change.step.spends()) {
            true => (None, self.begin(called, Duration::ZERO).await),
            false => {
                let passed = self.place(key, called).await?;
                (Some(passed), self.begin(Instant::now(), CHANGED_WITHIN).await)
            }
        };
        if self.are_in_several_slots(changes.iter().map(|change| &*change.member.key)) {
            let text =
                "buckets in several slots of a cluster cannot be changed together: set a tag";
            return Err(store_error(ErrorKind::Store, &self.name, text));
        }
        let mut call = ScriptCalls::with_capacity(1);
        self.scripts.change(&mut call, changes);
        let value = self.ask(key, &call, deadline).await?;
        let changed = answer::changed(changes.len(), value).ok_or_else(|| self.unknown_answer())?;
        passed.iter().for_each(PassedReturn::note_answer);
        Ok(changed)
    }
}

impl SharedStore for ValkeyStore {
    fn admit(
        &self,
        keys: &mut dyn Iterator<Item = &str>,
        was_denied: bool,
    ) -> Result<Passed, Error> {
        self.servers.admit(keys, was_denied)
    }

    fn charge(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        let (servers, called) = (self.servers.clone(), Instant::now());
        Box::pin(async move { servers.charge_now(&members, called, Duration::ZERO).await })
    }

    fn charge_and_tell(&self, members: Arc<[StoreMember]>, tell: TellFound) {
        let _ = self.work.send(Work::Charge(Charge { members, called: Instant::now(), tell }));
    }

    fn charge_return(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        let (servers, called) = (self.servers.clone(), Instant::now());
        Box::pin(async move { servers.charge_return(&members, called).await })
    }

    fn is_split(&self, members: &[StoreMember]) -> bool {
        self.servers.is_split(members)
    }

    fn is_connected(&self) -> bool {
        self.servers.is_connected()
    }

    fn is_ready(&self, key: &str) -> bool {
        self.servers.is_ready(key)
    }

    fn is_whole(&self) -> bool {
        self.servers.is_whole()
    }

    fn change(&self, changes: Arc<[BucketChange]>) -> Reply<Changed> {
        let (servers, called) = (self.servers.clone(), Instant::now());
        Box::pin(async move { servers.change(&changes, called).await })
    }

    fn warning(&self) -> Option<String> {
        self.servers.warning()
    }

    fn figures(&self) -> Option<&StoreFigures> {
        Some(self.servers.figures())
    }

    #[cfg(feature = "boulder")]
    fn has_boulder_keys(&self) -> bool {
        self.has_boulder_keys
    }

    fn sleep(&self, time: Duration) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        // The sleep is made inside the future, so on the store's thread: tokio's timer is there.
        Some(Box::pin(async move { tokio::time::sleep(time).await }))
    }

    fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let _ = self.work.send(Work::Task(task));
    }
}

impl fmt::Debug for ValkeyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.servers.name)
    }
}
