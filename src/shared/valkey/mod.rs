//! Valkey or Redis as the store.
//!
//! One thread, `tollgate-store`, runs all that asks the server, so that callers may be on any runtime or on none, and a
//! runtime that stands still stops no other. One connection carries all calls. It is made, and made again after a failure,
//! in the background: only the first calls of a program wait for one.

mod answer;
mod fault;
mod link;
mod script;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;

use crate::core::shared::{Change, Found, Replaced, Reply, SharedMember, SharedStore};
use crate::error::Error;
use crate::limits::StoreOptions;
use crate::observe::store_figures::StoreFigures;
use link::Link;
use script::{ScriptCall, Scripts};

/// A server, asked by a thread of its own, which ends with the last share of the store.
pub(crate) struct ValkeyStore {
    link: Arc<Link>,
    scripts: Arc<Scripts>,
    has_boulder_keys: bool,
    runtime: Handle,
    end: Arc<Notify>,
}

impl ValkeyStore {
    /// Starts the thread, which begins to connect. The error is that of an address that is none, or of the thread.
    pub(crate) fn start(options: &StoreOptions) -> Result<ValkeyStore, Error> {
        ValkeyStore::with_scripts(options, Scripts::new())
    }

    fn with_scripts(options: &StoreOptions, scripts: Scripts) -> Result<ValkeyStore, Error> {
        let link = Arc::new(Link::new(options)?);
        let failed = |error| Error::from_io("the thread tollgate-store cannot be started", error);
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (handle, end) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let (by, ended) = (link.clone(), end.clone());
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = by.keep_connected() => {}
                    () = ended.notified() => {}
                }
            });
            // Does not wait for a lookup of a name that is under way.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("tollgate-store".into()).spawn(run).map_err(failed)?;
        let has_boulder_keys = options.has_boulder_keys();
        Ok(ValkeyStore { link, scripts: Arc::new(scripts), has_boulder_keys, runtime: handle, end })
    }
}

impl Drop for ValkeyStore {
    fn drop(&mut self) {
        self.end.notify_one();
    }
}

/// Asks a script.
async fn ask(link: &Link, call: &ScriptCall<'_>) -> Result<Value, Error> {
    link.with_connection(async |connection| call.ask(connection, link.figures()).await).await
}

/// Charges a batch by the script for one gcra bucket, or by the general one.
async fn charge(link: &Link, scripts: &Scripts, members: &[SharedMember]) -> Result<Found, Error> {
    if let Some(call) = scripts.charge_gcra(members)
        && let Some(found) = answer::found(link, members.len(), ask(link, &call).await?)?
    {
        return Ok(found);
    }
    let value = ask(link, &scripts.charge(members)).await?;
    let found = answer::found(link, members.len(), value)?;
    found.ok_or_else(|| link.unknown_answer())
}

impl SharedStore for ValkeyStore {
    fn charge(&self, members: Arc<[SharedMember]>) -> Reply<Found> {
        let (link, scripts) = (self.link.clone(), self.scripts.clone());
        Box::pin(async move {
            let sent = Instant::now();
            let found = charge(&link, &scripts, &members).await?;
            link.figures().note_time(sent, found.unix_ns);
            Ok(found)
        })
    }

    fn replace(&self, changes: Arc<[Change]>) -> Reply<Replaced> {
        let (link, scripts) = (self.link.clone(), self.scripts.clone());
        Box::pin(async move {
            let value = ask(&link, &scripts.replace(&changes)).await?;
            answer::replaced(&link, changes.len(), value)
        })
    }

    fn warning(&self) -> Option<String> {
        self.link.warning()
    }

    fn figures(&self) -> Option<&StoreFigures> {
        Some(self.link.figures())
    }

    fn has_boulder_keys(&self) -> bool {
        self.has_boulder_keys
    }

    fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.runtime.spawn(task);
    }
}

impl fmt::Debug for ValkeyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.link.name())
    }
}
