// Examples are copied: one that drops a decision would warn in the copy.
#![doc(test(attr(deny(unused_must_use))))]
#![cfg_attr(all(feature = "yaml", feature = "boulder"), doc = include_str!("../README.md"))]
#![cfg_attr(
    not(all(feature = "yaml", feature = "boulder")),
    doc = "A rate limiter inside the process that it protects."
)]

mod algorithm;
mod batch;
mod blocks;
mod bucket;
mod cell;
mod clock;
mod counters;
mod debt;
mod decision;
mod error;
#[cfg(feature = "tracing")]
mod events;
mod explain;
mod generation;
mod handle;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "snapshot")]
mod keep;
mod key;
mod ledger;
mod limit;
mod limiter;
mod limits;
#[cfg(all(test, tollgate_loom, not(crossbeam_loom)))]
mod models;
#[cfg(any(feature = "snapshot", feature = "watch"))]
mod open;
mod options;
mod overflow;
#[cfg(all(test, not(tollgate_loom)))]
#[path = "../tests/own_process/mod.rs"]
mod own_process;
mod probe;
mod reload;
mod rollback;
mod scaled;
mod shadow;
mod shown;
mod store;
mod sweep_clock;
mod sweeper;
mod sync;
mod ticker;
mod top_denied;
mod turn;
mod wait;
#[cfg(feature = "watch")]
mod watch;

/// The guide: pages with whole programs.
#[cfg(all(any(doc, doctest), feature = "tower"))]
pub mod docs {
    #[doc = include_str!("../docs/http.md")]
    pub mod http {}
}

pub use algorithm::{Algorithm, Charge, Grant, Outcome};
pub use batch::{Batch, Member, Mode};
pub use blocks::Blocked;
pub use bucket::Bucket;
pub use clock::{Clock, Hand};
pub use counters::{Counters, LimitCounters};
pub use debt::Debt;
pub use decision::Decision;
pub use error::{Error, Fault};
pub use handle::Handle;
#[cfg(feature = "snapshot")]
pub use keep::{Restored, Snapshot};
pub use limit::{Factor, Limit, Parameters};
pub use limiter::Limiter;
#[cfg(feature = "boulder")]
pub use limits::IdentifierSet;
#[cfg(feature = "yaml")]
pub use limits::YamlLoader;
pub use limits::{Applies, ExplainedCall, Explanation, NearEntry, WhyNot};
pub use limits::{
    Id, IdFormat, LimitEntry, LimitMode, LimitOptions, Limits, LimitsBuilder, Location,
    OverrideEntry, OverrideOptions, Warning, WarningKind, Warnings,
};
pub use options::{AtCap, Engine, LimiterOptions};
pub use reload::Reloaded;
pub use scaled::Scaled;
pub use store::Swept;
pub use sweeper::{Stats, SweepOptions, Sweeper};
pub use top_denied::DeniedId;
pub use wait::{Parking, Receipt, Refusal, Reservation, Timer, Waiting};
#[cfg(feature = "watch")]
pub use watch::{WatchOptions, WatchStatus, Watcher};
