//! Valkey or Redis as the store: a server, a cluster, or a server that sentinels know.
//!
//! One thread, `tollgate-store`, makes all calls to the servers. So callers may use any runtime or none, and a runtime that
//! stands still delays no caller on another one.
//!
//! Each server has one connection, which carries all calls to that server. The thread connects in the background, also after
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

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::error::Error;
use crate::limits::StoreOptions;
use crate::shared::protocol::change::BucketChange;
use crate::shared::protocol::gate::Passed;
use crate::shared::protocol::{Changed, Found, Reply, SharedStore, StoreMember};
use crate::shared::store_figures::StoreFigures;
use script::Scripts;
use servers::Servers;

/// The time for the answer to a call that admits nothing, at least: a caller that gets none does not know whether to return its units
/// again.
pub(super) const CHANGED_WITHIN: Duration = Duration::from_secs(1);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The servers of a store, and the thread that asks them. The thread ends when this value is dropped.
pub(crate) struct ValkeyStore {
    asker: Asker,
    #[cfg(feature = "boulder")]
    has_boulder_keys: bool,
    /// The thread ends with this value, which has no clone.
    tasks: mpsc::UnboundedSender<Task>,
}

impl ValkeyStore {
    /// Starts the thread, which connects in the background. Fails if the address is invalid, or if the system starts no thread.
    pub(crate) fn start(options: &StoreOptions) -> Result<ValkeyStore, Error> {
        ValkeyStore::with_scripts(options, Scripts::new())
    }

    fn with_scripts(options: &StoreOptions, scripts: Scripts) -> Result<ValkeyStore, Error> {
        let servers = Arc::new(Servers::new(options)?);
        let failed = |error| Error::from_io("the thread tollgate-store cannot be started", error);
        let (tasks, mut received) = mpsc::unbounded_channel::<Task>();
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
                let all_received = tokio::spawn(async move {
                    while let Some(task) = received.recv().await {
                        tokio::spawn(task);
                    }
                });
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
        let asker = Asker { servers, scripts: Arc::new(scripts) };
        Ok(ValkeyStore {
            asker,
            #[cfg(feature = "boulder")]
            has_boulder_keys: options.has_boulder_keys(),
            tasks,
        })
    }
}

/// The servers and the scripts. Clones ask the same servers.
#[derive(Clone)]
struct Asker {
    servers: Arc<Servers>,
    scripts: Arc<Scripts>,
}

impl Asker {
    /// Charges a batch that admits nothing: it waits for a place, as a change.
    async fn charge_return(
        &self,
        members: &[StoreMember],
        called: Instant,
    ) -> Result<Found, Error> {
        let key = members.first().map_or("", |member| &member.key);
        let passed = self.servers.place(key, called).await?;
        let found = self.charge_now(members, Instant::now(), CHANGED_WITHIN).await?;
        passed.note_answer();
        Ok(found)
    }

    /// Charges a batch, which has its places in the gates already. `within`: the least time for the answer.
    async fn charge_now(
        &self,
        members: &[StoreMember],
        called: Instant,
        within: Duration,
    ) -> Result<Found, Error> {
        let deadline = self.servers.begin(called, within).await;
        let sent = std::time::Instant::now();
        match self.servers.is_split(members) {
            false => {
                let found = self.charge_in_slot(members, deadline).await?;
                self.servers.note_time(sent, found.unix_ns);
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
        let Asker { servers, scripts, .. } = self;
        let key = members.first().map_or("", |member| &member.key);
        let call = scripts.charge_gcra(members).unwrap_or_else(|| scripts.charge(members));
        answer::found(servers, members.len(), servers.ask(key, &call, deadline).await?)
    }

    /// Changes buckets. A change that spends has a place in the gate already; another one waits for it.
    async fn change(&self, changes: &[BucketChange], called: Instant) -> Result<Changed, Error> {
        if changes.iter().all(|change| change.step.spends()) {
            return self.change_now(changes, called, Duration::ZERO).await;
        }
        let key = changes.first().map_or("", |change| &change.member.key);
        let passed = self.servers.place(key, called).await?;
        let changed = self.change_now(changes, Instant::now(), CHANGED_WITHIN).await?;
        passed.note_answer();
        Ok(changed)
    }

    /// `within`: the least time for the answer.
    async fn change_now(
        &self,
        changes: &[BucketChange],
        called: Instant,
        within: Duration,
    ) -> Result<Changed, Error> {
        let servers = &self.servers;
        let deadline = servers.begin(called, within).await;
        if servers.are_in_several_slots(changes.iter().map(|change| &*change.member.key)) {
            return Err(servers.several_slots());
        }
        self.change_in_slot(changes, deadline).await
    }

    /// Changes buckets in one slot.
    async fn change_in_slot(
        &self,
        changes: &[BucketChange],
        deadline: Instant,
    ) -> Result<Changed, Error> {
        let Asker { servers, scripts, .. } = self;
        let key = changes.first().map_or("", |change| &change.member.key);
        let value = servers.ask(key, &scripts.change(changes), deadline).await?;
        answer::changed(servers, changes.len(), value)
    }
}

impl SharedStore for ValkeyStore {
    fn admit(
        &self,
        keys: &mut dyn Iterator<Item = &str>,
        was_denied: bool,
    ) -> Result<Passed, Error> {
        self.asker.servers.admit(keys, was_denied)
    }

    fn charge(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        let (asker, called) = (self.asker.clone(), Instant::now());
        Box::pin(async move { asker.charge_now(&members, called, Duration::ZERO).await })
    }

    fn charge_return(&self, members: Arc<[StoreMember]>) -> Reply<Found> {
        let (asker, called) = (self.asker.clone(), Instant::now());
        Box::pin(async move { asker.charge_return(&members, called).await })
    }

    fn is_split(&self, members: &[StoreMember]) -> bool {
        self.asker.servers.is_split(members)
    }

    fn is_connected(&self) -> bool {
        self.asker.servers.is_connected()
    }

    fn is_ready(&self, key: &str) -> bool {
        self.asker.servers.is_ready(key)
    }

    fn change(&self, changes: Arc<[BucketChange]>) -> Reply<Changed> {
        let (asker, called) = (self.asker.clone(), Instant::now());
        Box::pin(async move { asker.change(&changes, called).await })
    }

    fn warning(&self) -> Option<String> {
        self.asker.servers.warning()
    }

    fn figures(&self) -> Option<&StoreFigures> {
        Some(self.asker.servers.figures())
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
        let _ = self.tasks.send(task);
    }
}

impl fmt::Debug for ValkeyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.asker.servers.name())
    }
}
