//! An in-process rate limiter.
//!
//! Tollgate decides whether a call of a client, an account or an API key is allowed. Each bucket is one atomic 64-bit word,
//! and a spend is one compare-and-swap on it. Limits come from code or from YAML files, can be reloaded while calls
//! continue, and several of them can be charged as one.
//!
//! # One limit
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{IdFormat, Limit, Limiter, Limits};
//! use tollgate::sweep::SweepOptions;
//!
//! let limit = Limit::new(20, 10, Duration::from_secs(1))?; // 20 at once, then 10 per second
//! let limits = Limits::builder().limit("RequestsPerUser", IdFormat::String, limit)?.build();
//! let limiter = Limiter::new(limits);
//!
//! let requests = limiter.limit("RequestsPerUser")?; // look it up once, and keep the handle
//! let decision = requests.spend("alice", 1)?;
//! assert!(decision.allowed());
//! assert_eq!(decision.remaining(), Some(19));
//! let _sweeper = limiter.start_sweeper(SweepOptions::default())?; // frees buckets that are full again
//! # Ok::<(), tollgate::Error>(())
//! ```
//!
//! A denied [`Decision`] has [`retry_in`](Decision::retry_in): the time after which the same call is allowed. An [`Id`] is
//! text, a number, an address, bytes, a UUID, or two or three of these together.
//!
//! # Limits from YAML
//!
//! ```
//! # #[cfg(feature = "yaml")] {
//! use tollgate::{Limiter, Limits};
//!
//! // From files: `Limits::from_yaml_files("limits.yml", Some("overrides.yml".as_ref()))`.
//! let limits = Limits::from_yaml(
//!     "RequestsPerUser: {burst: 20, count: 10, period: 1s, id: string}\n\
//!      RequestsPerUser:alice: {burst: 200, count: 100, period: 1s}\n", // an override
//! )?;
//! let requests = Limiter::new(limits).limit("RequestsPerUser")?;
//! assert_eq!(requests.spend("alice", 1)?.remaining(), Some(199));
//! assert_eq!(requests.spend("bob", 1)?.remaining(), Some(19));
//! # }
//! # Ok::<(), tollgate::Error>(())
//! ```
//!
//! [Limits files](docs::limits_files) describes the format, and [reload](docs::reload) the change of limits in a running
//! program.
//!
//! # Several limits as one
//!
//! ```
//! use std::{net::Ipv4Addr, time::Duration};
//! use tollgate::{IdFormat, Limit, Limiter, Limits};
//!
//! let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
//! let limits = Limits::builder()
//!     .limit("RequestsPerClient", IdFormat::IpAddress, Limit::new(20, 10, second)?)?
//!     .limit("OrdersPerAccount", IdFormat::RegId, Limit::new(300, 300, 3 * hour)?)?
//!     .build();
//! let limiter = Limiter::new(limits);
//! let (requests, orders) = (limiter.limit("RequestsPerClient")?, limiter.limit("OrdersPerAccount")?);
//!
//! let order = [requests.member(Ipv4Addr::LOCALHOST), orders.member(12345678u64)];
//! let decision = limiter.batch(&order).spend()?; // charges both buckets, or neither
//! assert!(decision.allowed());
//! # Ok::<(), tollgate::Error>(())
//! ```
//!
//! # A layer for axum
//!
//! With the feature `tower`:
//!
//! ```
//! # #[cfg(feature = "tower")] {
//! use std::net::SocketAddr;
//!
//! use axum::{Router, extract::ConnectInfo, routing::get};
//! use tollgate::Limiter;
//! use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
//!
//! fn app(limiter: &Limiter) -> Result<Router, Box<dyn std::error::Error>> {
//!     let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
//!     let rule = Rule::new(limiter.limit("RequestsPerClient")?, extract::client(clients));
//!     let layer = RateLimitLayer::builder(limiter).rule(rule).build()?;
//!     Ok(Router::new().route("/", get(|| async { "hello" })).layer(layer))
//! }
//! # }
//! ```
//!
//! Serve it with `app.into_make_service_with_connect_info::<SocketAddr>()`, so that each request has its peer's address.
//! [HTTP](docs::http) has whole programs for axum, tonic and hyper. [Waiting](docs::waiting) is for callers that wait until
//! they are allowed.
//!
//! # Where to find what
//!
//! | for | start at |
//! |---|---|
//! | a limiter and its calls | [`Limiter`], [`KeyedLimit`], [`Decision`], [`LimiterOptions`]; [`Bucket`] for a limit without keys |
//! | limits and their options | [`Limit`], [`Limits`], [`LimitsBuilder`](crate::limits::LimitsBuilder), [`LimitOptions`](crate::limits::LimitOptions), [`OverrideOptions`](crate::limits::OverrideOptions) |
//! | errors | [`Error`], [`ConfigFault`](crate::error::ConfigFault) |
//! | batches | [`Limiter::batch`], [`Member`](crate::batch::Member), [`MemberMode`](crate::batch::MemberMode), [`KeyedLimit::spend_many`] |
//! | waiting and settling | [`KeyedLimit::until_allowed`], [`KeyedLimit::reserve`], [`KeyedLimit::spend_estimate`], [`Receipt`](crate::reserve::Receipt), [`ReserveError`](crate::reserve::ReserveError) |
//! | blocks | [`KeyedLimit::block`], [`Limiter::blocks`] |
//! | memory | [`Limiter::start_sweeper`], [`AtCap`](crate::options::AtCap), [`Engine`](crate::options::Engine), [`Stats`](crate::metrics::Stats) |
//! | reloads | [`Limiter::reload`], [`CarryOver`](crate::reload::CarryOver), [`KeyedLimit::explain`]; with the feature `watch` `Limiter::watch` |
//! | restarts | with the feature `snapshot` `Limiter::snapshot` and `Limiter::restore` |
//! | metrics | [`Limiter::counters`], [`Limiter::prometheus`], [`Limiter::top_denied`] |
//! | tests without sleeping | [`Clock::manual`] |
//! | custom algorithms and clocks | [`Algorithm`](crate::algorithm::Algorithm), [`Limit::custom`], [`Clock`] |
//! | bandwidths | with the feature `io` the module `io` |
//! | HTTP | the module [`http`], with the features `http` and `tower` |
//!
//! # The guide
//!
//! - [Algorithms](docs::algorithms): gcra, windows, token and leaky buckets, factors, custom algorithms
//! - [Ids](docs::ids): the types that calls take, structs as ids, how ids are told apart
//! - [Limits files](docs::limits_files): YAML, id formats, Boulder's names, overrides, `validate`, `explain`
//! - [Limits in a configuration](docs::serde): sections of TOML, YAML, JSON and figment, by serde
//! - [Batches](docs::batches): several limits as one, many ids in one call, the cap on keys
//! - [Tenants](docs::tenants): limits by tenant, user and key at once
//! - [Reload](docs::reload): new limits in a running program, watched files, `diff`
//! - [Snapshots](docs::snapshots): buckets that survive a restart
//! - [Waiting](docs::waiting): reservations, deadlines, estimates that are settled later
//! - [Bandwidth](docs::bandwidth): readers, writers, bodies and streams under a limit of bytes
//! - [Blocks](docs::blocks): denying an id every call for a time
//! - [Shared limits](docs::shared): the same limits on several nodes, by way of Valkey or Redis
//! - [Metrics](docs::metrics): counters, Prometheus, the ids denied most, shadow limits
//! - [HTTP](docs::http): the tower layer for axum, tonic and hyper
//! - [Frameworks](docs::frameworks): limits in actix-web, poem and Rocket, which have no tower
//! - [The command](docs::replay): `tollgate replay`, traces, logs, reports
//! - [Guarantees](docs::guarantees): the eight promises, and their fine print
//! - [Figures](docs::figures): speed and memory, with machine and commands
//! - [Comparison](docs::comparison): governor, tower_governor, rate-net
//! - [Migration from governor](docs::migration_from_governor): tables of correspondences, programs before and after
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `yaml` | yes | limits from files, warnings of overrides, near names in errors |
//! | `tsc` | yes | the clock that reads the time-stamp counter, on Linux and x86-64: 9 ns in place of 25 |
//! | `boulder` | no | Boulder's names; ids that are domains, prefixes and identifier sets |
//! | `exact` | no | `Engine::Exact`, which keeps whole keys and lists ids; without the feature that variant does not exist |
//! | `http` | no | response fields and the client's address, without a framework |
//! | `tower` | no | the tower layer |
//! | `serde` | no | limits and options in an application's own configuration |
//! | `watch` | no | a reload when the files change |
//! | `snapshot` | no | buckets that survive a restart, in a file |
//! | `uuid` | no | ids of the crate `uuid` |
//! | `metrics` | no | publishing the counters by the crate `metrics` |
//! | `valkey` | no | limits that several nodes share, by way of Valkey or Redis |
//! | `io` | no | readers, writers, bodies and streams that move no more bytes than a limit allows |
//! | `tracing` | no | events: reloads, sweeps, blocks, keys without room, a part of the denials |
//!
//! Without any feature, limits come from code and the time from [`Instant`](std::time::Instant); batches, waiting, blocks, reloads and counters work. The command `tollgate` is
//! the crate `tollgate-cli`.
//!
#![cfg_attr(feature = "http", doc = "[`http`]: mod@crate::http")]
#![cfg_attr(not(feature = "http"), doc = "[`http`]: #features")]
// docs.rs marks each item with the features that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Users copy examples. An example that drops a decision would teach a bug, so it fails.
#![doc(test(attr(deny(unused_must_use))))]

pub mod algorithm;
mod bucket;
pub mod clock;
mod core;
mod decision;
pub mod error;
#[cfg(all(test, not(tollgate_loom)))]
#[path = "../tests/support/full_size.rs"]
mod full_size;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "io")]
pub mod io;
pub mod limit;
mod limiter;
pub mod limits;
#[cfg(all(test, tollgate_loom, not(crossbeam_loom)))]
mod models;
mod observe;
#[cfg(all(test, not(tollgate_loom)))]
#[path = "../tests/support/own_process.rs"]
mod own_process;
#[cfg(all(test, not(tollgate_loom)))]
#[path = "../tests/support/random.rs"]
mod random;
#[cfg(feature = "valkey")]
pub mod shared;
#[cfg(feature = "snapshot")]
pub mod snapshot;
mod store;
mod util;
#[cfg(feature = "watch")]
pub mod watch;

/// The guide, one page per subject.
#[cfg(any(doc, doctest))]
pub mod docs {
    /// Includes a page. Its links to other pages lead to files; the definitions here lead to modules. Markdown uses the
    /// first of two definitions of a link.
    macro_rules! page {
        ($name:ident, $file:literal) => {
            #[doc = concat!(
                "[algorithms]: crate::docs::algorithms\n",
                "[bandwidth]: crate::docs::bandwidth\n",
                "[batches]: crate::docs::batches\n",
                "[blocks]: crate::docs::blocks\n",
                "[calling]: crate::docs::calling\n",
                "[comparison]: crate::docs::comparison\n",
                "[figures]: crate::docs::figures\n",
                "[frameworks]: crate::docs::frameworks\n",
                "[guarantees]: crate::docs::guarantees\n",
                "[http]: crate::docs::http\n",
                "[ids]: crate::docs::ids\n",
                "[in_flight]: crate::docs::in_flight\n",
                "[limits_files]: crate::docs::limits_files\n",
                "[metrics]: crate::docs::metrics\n",
                "[migration_from_governor]: crate::docs::migration_from_governor\n",
                "[reload]: crate::docs::reload\n",
                "[replay]: crate::docs::replay\n",
                "[serde]: crate::docs::serde\n",
                "[shared]: crate::docs::shared\n",
                "[snapshots]: crate::docs::snapshots\n",
                "[tenants]: crate::docs::tenants\n",
                "[waiting]: crate::docs::waiting\n",
                "\n",
                include_str!($file)
            )]
            pub mod $name {}
        };
        ($name:ident, $file:literal, $($feature:literal),+) => {
            #[cfg(all($(feature = $feature),+))]
            page!($name, $file);
            #[cfg(not(all($(feature = $feature),+)))]
            /// This page needs more features: see the documentation of all features.
            pub mod $name {}
        };
    }

    page!(algorithms, "../docs/algorithms.md");
    page!(bandwidth, "../docs/bandwidth.md", "io");
    page!(batches, "../docs/batches.md");
    page!(blocks, "../docs/blocks.md");
    page!(calling, "../docs/calling.md");
    page!(comparison, "../docs/comparison.md");
    page!(figures, "../docs/figures.md");
    page!(frameworks, "../docs/frameworks.md");
    page!(guarantees, "../docs/guarantees.md");
    page!(http, "../docs/http.md", "snapshot", "tower", "watch");
    page!(ids, "../docs/ids.md");
    page!(in_flight, "../docs/in-flight.md", "tower");
    page!(limits_files, "../docs/limits-files.md", "boulder", "yaml");
    page!(metrics, "../docs/metrics.md");
    page!(migration_from_governor, "../docs/migration-from-governor.md", "tower");
    page!(reload, "../docs/reload.md", "watch");
    page!(replay, "../docs/replay.md");
    page!(serde, "../docs/serde.md", "serde");
    page!(shared, "../docs/shared.md", "valkey", "yaml");
    page!(snapshots, "../docs/snapshots.md", "snapshot");
    page!(tenants, "../docs/tenants.md");
    page!(waiting, "../docs/waiting.md", "tower");
}

/// Compiles and runs the README's programs with the documentation tests.
#[cfg(all(doctest, feature = "tower", feature = "yaml"))]
#[doc = include_str!("../README.md")]
mod readme {}

pub use bucket::Bucket;
#[doc(inline)]
pub use clock::Clock;
pub use decision::Decision;
#[doc(inline)]
pub use error::Error;
#[doc(inline)]
pub use limit::Limit;
pub use limiter::Limiter;
pub use limiter::handle::KeyedLimit;
pub use limiter::leaving::LeavingLimit;
pub use limiter::options::LimiterOptions;
pub use limiter::permits::{ConcurrencyLimit, Permit};
pub use limiter::scaled::ScaledLimit;
#[doc(inline)]
pub use limits::{Id, IdFormat, Limits};

/// Charging several buckets together or not at all: [`Limiter::batch`].
pub mod batch {
    pub use crate::limiter::batch::{Batch, Member, MemberMode};
}

/// Denying an id every call for a time: [`KeyedLimit::block`].
pub mod block {
    pub use crate::limiter::blocks::Blocked;
}

/// Counters and statistics: [`Limiter::counters`], [`Limiter::stats`], [`Limiter::top_denied`].
pub mod metrics {
    pub use crate::observe::counters::{Counters, LimitCounters};
    #[cfg(feature = "valkey")]
    pub use crate::observe::shared::SharedCounts;
    pub use crate::observe::stats::Stats;
    #[cfg(feature = "valkey")]
    pub use crate::observe::store_counters::{ClockSteps, StoreCounters, StoreErrors};
    pub use crate::observe::top_denied::DeniedId;
}

/// The engine of a limiter, and the treatment of new keys when its table is full: [`LimiterOptions`].
pub mod options {
    pub use crate::core::at_cap::AtCap;
    pub use crate::store::Engine;
}

/// New limits in a running program: [`Limiter::reload_with`].
pub mod reload {
    pub use crate::core::reloads::Reloaded;
    pub use crate::limit::carry_over::CarryOver;
    pub use crate::limiter::reload::options::ReloadOptions;
}

/// Reservations, waiting for them, and estimates that are settled later: [`KeyedLimit::reserve`],
/// [`KeyedLimit::until_allowed`], [`KeyedLimit::spend_estimate`].
pub mod reserve {
    pub use crate::limiter::reserve::{
        Parking, Receipt, Reservation, ReserveError, Timer, Waiting,
    };
}

/// Dropping buckets that are full again: [`Limiter::start_sweeper`], [`Limiter::sweep`].
pub mod sweep {
    pub use crate::limiter::sweeper::{SweepOptions, Sweeper};
    pub use crate::store::Swept;
}
