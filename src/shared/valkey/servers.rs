//! The server or the servers of a store.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::address::client_of;
use super::cluster::Cluster;
use super::fault::{overload, store_error};
use super::link::{Asked, Link};
use super::script::{ScriptCalls, Scripts};
use super::sentinel::{Place, Sentinels};
use super::slots::slot_of;
use crate::error::{Error, ErrorKind};
use crate::limits::StoreOptions;
use crate::limits::store_address::StoreAddress;
use crate::shared::protocol::StoreMember;
use crate::shared::protocol::gate::{Passed, PassedReturn};
use crate::shared::store_figures::{StoreFault, StoreFigures};

/// The longest time for which a call that admits nothing waits for a place in a gate.
pub(super) const PLACE_WITHIN: Duration = Duration::from_secs(5);
const NOT_SENT: &str = "the call was not sent";

/// The servers of a store.
pub(super) struct Servers {
    pub(super) kind: Kind,
    /// The address, without secrets.
    pub(super) name: String,
    pub(super) scripts: Scripts,
    pub(super) answer_timeout: Duration,
    figures: Arc<StoreFigures>,
}

pub(super) enum Kind {
    /// One server, which may be another one after a failover.
    One(Box<Link>),
    Cluster(Box<Cluster>),
}

impl Servers {
    pub(super) fn new(options: &StoreOptions, scripts: Scripts) -> Result<Servers, Error> {
        // Without one, a connection by TLS would panic. An error says that the program has chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (name, figures) = (options.shown_url(), Arc::new(StoreFigures::default()));
        let one =
            |place| Kind::One(Box::new(Link::new(place, name.clone(), options, figures.clone())));
        let kind = match options.address() {
            StoreAddress::Server(url) => one(Place::Known(client_of(&url, &name)?)),
            StoreAddress::Sentinels { sentinels, service, server } => {
                one(Place::BySentinels(Sentinels::new(&sentinels, service, &server, &name)?))
            }
            StoreAddress::Cluster(urls) => {
                Kind::Cluster(Box::new(Cluster::new(&urls, options, figures.clone())?))
            }
        };
        Ok(Servers { kind, name, scripts, answer_timeout: options.answers_within(), figures })
    }

    /// Connects, and connects again when a connection is lost. Never ends.
    pub(super) async fn keep_connected(&self) {
        match &self.kind {
            Kind::One(link) => link.keep_connected().await,
            Kind::Cluster(cluster) => cluster.keep_connected().await,
        }
    }

    /// Returns the time until which a call of `called` may wait for answers, `within` at least. The first calls of a program wait
    /// for a connection before, which takes none of that time.
    pub(super) async fn begin(&self, called: Instant, within: Duration) -> Instant {
        let has_waited = match &self.kind {
            Kind::One(link) => link.first_attempt().await,
            Kind::Cluster(cluster) => cluster.first_attempt().await,
        };
        let from = if has_waited { Instant::now() } else { called };
        from + self.answer_timeout.max(within)
    }

    /// Lets a call for these keys in, if it would be sent.
    pub(super) fn admit(
        &self,
        keys: &mut dyn Iterator<Item = &str>,
        was_denied: bool,
    ) -> Result<Passed, Error> {
        let passed = match &self.kind {
            Kind::One(link) => link.admit(keys, was_denied)?,
            Kind::Cluster(cluster) => cluster.admit(keys, was_denied)?,
        };
        passed.ok_or_else(|| self.overload(NOT_SENT))
    }

    /// Waits for a place in the gate of the server that has a key, for a call of `called` that admits nothing.
    pub(super) async fn place(&self, key: &str, called: Instant) -> Result<PassedReturn, Error> {
        let until = called + PLACE_WITHIN;
        let passed = match &self.kind {
            Kind::One(link) => link.place(until).await,
            Kind::Cluster(cluster) => cluster.place(slot_of(key), until).await?,
        };
        passed.ok_or_else(|| self.overload(NOT_SENT))
    }

    #[cold]
    pub(super) fn overload(&self, what: &str) -> Error {
        overload(&self.figures, &self.name, what)
    }

    /// Asks one script. `key`: one of its keys, which are all in the same slot.
    pub(super) async fn ask(
        &self,
        key: &str,
        call: &ScriptCalls<'_>,
        deadline: Instant,
    ) -> Result<Value, Error> {
        match &self.kind {
            Kind::One(link) => self.followed(link.ask_one(call, false, deadline).await),
            Kind::Cluster(cluster) => Box::pin(cluster.ask(key, call, deadline)).await,
        }
    }

    /// Returns the answer of one server, whose redirects are not followed, and are errors already.
    pub(super) fn followed(&self, asked: Asked) -> Result<Value, Error> {
        asked?.map_err(|_| self.unknown_answer())
    }

    /// Whether keys are in several slots of a cluster.
    pub(super) fn are_in_several_slots<'k>(&self, keys: impl Iterator<Item = &'k str>) -> bool {
        let mut slots = keys.map(slot_of);
        match self.kind {
            Kind::One(_) => false,
            Kind::Cluster(_) => slots.next().is_some_and(|first| slots.any(|slot| slot != first)),
        }
    }

    pub(super) fn is_split(&self, members: &[StoreMember]) -> bool {
        self.are_in_several_slots(members.iter().map(|member| &*member.key))
    }

    /// Whether there is a connection; in a cluster, one to each node.
    pub(super) fn is_connected(&self) -> bool {
        match &self.kind {
            Kind::One(link) => link.is_connected(),
            Kind::Cluster(cluster) => cluster.is_connected(),
        }
    }

    /// Whether calls for all keys would be sent now; true for one server, whose answers tell it.
    pub(super) fn is_whole(&self) -> bool {
        match &self.kind {
            Kind::One(_) => true,
            Kind::Cluster(cluster) => cluster.is_whole(),
        }
    }

    /// Whether a call for a key would be sent now.
    pub(super) fn is_ready(&self, key: &str) -> bool {
        match &self.kind {
            Kind::One(link) => link.is_ready(),
            Kind::Cluster(cluster) => cluster.is_ready(slot_of(key)),
        }
    }

    /// Returns a warning about a server's settings.
    pub(super) fn warning(&self) -> Option<String> {
        match &self.kind {
            Kind::One(link) => link.warning(),
            Kind::Cluster(cluster) => cluster.warning(),
        }
    }

    pub(super) fn figures(&self) -> &StoreFigures {
        &self.figures
    }

    /// Compares a server's time with this node's clock, if there is one server: several have different clocks.
    pub(super) fn note_time(&self, sent: std::time::Instant, unix_ns: u64) {
        if let Kind::One(_) = self.kind {
            self.figures.note_time(sent, unix_ns);
        }
    }

    #[cold]
    pub(super) fn unknown_answer(&self) -> Error {
        let text = "its answer is none that the script gives: is it Valkey or Redis?";
        let error = store_error(ErrorKind::Store, &self.name, text);
        self.figures.count_unusable(StoreFault::UnknownText, &error);
        error
    }
}
