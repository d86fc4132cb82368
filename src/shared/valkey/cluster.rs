//! A cluster: which node has which slot, and a connection to each node.
//!
//! Each node has its own [`Link`], with its own gate and its own connection that is made again in the background, so
//! a node that stands still delays the calls for its own slots alone. A node's answer that a slot is elsewhere means that the
//! script has not run: the call goes on there. No call is sent again for another reason.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ConnectionInfo, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::address::{client_at, client_of, connect};
use super::fault::{Redirect, failure, overload, store_error};
use super::link::{FIRST_WAIT, LAST_WAIT, Link, TOO_LATE, with_jitter};
use super::script::ScriptCalls;
use super::sentinel::Place;
use super::slots::{SlotRange, host_and_port, slot_of, slot_ranges};
use crate::error::{Error, ErrorKind};
use crate::limits::StoreOptions;
use crate::shared::protocol::gate::{Gate, Passed, PassedReturn};
use crate::shared::store_figures::{StoreFault, StoreFigures};
use crate::util::escape::shown;
use crate::util::lock::Mutex;

/// The time after which the map is read again, if no call finds before that it is old.
const MAP_AGE: Duration = Duration::from_secs(5);
/// How often one call is sent on to another node.
const MAX_REDIRECTS: usize = 3;
/// The most nodes that are kept beside the map.
const MAX_BESIDE: usize = 16;
/// For how long a node that the map does not have is kept, since a call was last sent on to it.
const KEPT_BESIDE: Duration = Duration::from_secs(10);

pub(super) struct Cluster {
    /// The address, without secrets.
    name: String,
    options: StoreOptions,
    /// The nodes that the address names.
    seeds: Vec<Client>,
    state: Mutex<State>,
    /// Lets the first calls in, before there is a map.
    first: Arc<Gate>,
    /// Tells the thread that the map may be old.
    is_old: Notify,
    /// Tells calls that an attempt to read the map has ended.
    attempted: Notify,
    figures: Arc<StoreFigures>,
}

#[derive(Default)]
struct State {
    map: Option<Arc<Map>>,
    /// Nodes that the map does not have, such as those that are getting their first slot, and when each was last named. The
    /// first of them was named before the others.
    beside: Vec<(Arc<Node>, Instant)>,
    /// Why the last attempt to read the map failed.
    why: Option<String>,
    /// How often the map was asked for: each time of another node first, because one may know an old map.
    attempts: usize,
}

impl State {
    /// Drops the nodes beside the map that it has, and those to which no call was sent on for a time.
    fn drop_beside(&mut self, map: &Map) {
        self.beside.retain(|(node, named)| {
            map.node_at(&node.host, node.port).is_none() && named.elapsed() < KEPT_BESIDE
        });
    }
}

/// The nodes that have slots.
struct Map {
    ranges: Vec<SlotRange>,
    nodes: Vec<Arc<Node>>,
}

struct Node {
    host: String,
    port: u16,
    link: Arc<Link>,
    connecting: AbortHandle,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.connecting.abort();
    }
}

impl Node {
    fn is_at(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port == port
    }
}

impl Map {
    fn node_at(&self, host: &str, port: u16) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.is_at(host, port))
    }

    fn node_of(&self, slot: u16) -> Option<&Arc<Node>> {
        let range = self.ranges.iter().find(|range| (range.first..=range.last).contains(&slot))?;
        self.node_at(&range.host, range.port)
    }
}

impl Cluster {
    pub(super) fn new(
        urls: &[String],
        options: &StoreOptions,
        figures: Arc<StoreFigures>,
    ) -> Result<Cluster, Error> {
        let name = options.shown_url();
        let seeds = urls.iter().map(|url| client_of(url, &name)).collect::<Result<_, _>>()?;
        Ok(Cluster {
            name,
            options: options.clone(),
            seeds,
            state: Mutex::default(),
            first: Arc::new(Gate::new(options.answers_within())),
            is_old: Notify::new(),
            attempted: Notify::new(),
            figures,
        })
    }

    /// Reads the map, and reads it again when calls have found that it is old. Never ends.
    pub(super) async fn keep_connected(&self) {
        let mut wait = FIRST_WAIT;
        loop {
            let read = self.read_map().await;
            let is_new = matches!(read, Ok(true));
            if let Err(why) = read {
                self.figures.note_error(&store_error(ErrorKind::StoreOutage, &self.name, &why));
                self.state.lock().why = Some(why);
            }
            self.attempted.notify_waiters();
            wait = if is_new { FIRST_WAIT } else { (2 * wait).min(LAST_WAIT) };
            sleep(with_jitter(wait)).await;
            if self.map().is_some() {
                // Also without a call: a failover may come while the node asks nothing.
                if timeout(MAP_AGE, self.is_old.notified()).await.is_err() {
                    wait = FIRST_WAIT;
                }
            }
        }
    }

    fn map(&self) -> Option<Arc<Map>> {
        self.state.lock().map.clone()
    }

    /// Asks nodes for the map until one answers. Returns whether it is another one.
    async fn read_map(&self) -> Result<bool, String> {
        let (map, attempts) = {
            let mut state = self.state.lock();
            state.attempts = state.attempts.wrapping_add(1);
            (state.map.clone(), state.attempts)
        };
        let nodes = map.as_ref().map_or(&[][..], |map| &map.nodes);
        let (count, within) = (nodes.len(), self.options.connects_within());
        for node in (0..count).map(|at| &nodes[(attempts + at) % count]) {
            let Some(connection) = node.link.connection() else { continue };
            if let Ok(ranges) = ask_slots(connection, &node.host, within).await {
                return Ok(self.take_map(map.as_deref(), ranges).await);
            }
        }
        let mut last = String::new();
        for seed in &self.seeds {
            let host = host_of(seed.get_connection_info());
            let found = match connect(seed, within).await {
                Ok(connection) => ask_slots(connection, &host, within).await,
                Err(why) => Err(why),
            };
            match found {
                Ok(ranges) => return Ok(self.take_map(map.as_deref(), ranges).await),
                Err(why) => last = format!("{}: {why}", shown(&host, 80)),
            }
        }
        Err(last)
    }

    /// Gives calls a new map, once the connections to new nodes were attempted.
    async fn take_map(&self, old: Option<&Map>, ranges: Vec<SlotRange>) -> bool {
        if let Some(old) = old.filter(|old| old.ranges == ranges) {
            self.state.lock().drop_beside(old);
            return false;
        }
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for SlotRange { host, port, .. } in &ranges {
            if !nodes.iter().any(|node| node.is_at(host, *port)) {
                nodes.extend(self.node_at(host, *port));
            }
        }
        let until = Instant::now() + self.options.connects_within();
        for node in &nodes {
            let _ = timeout_at(until, node.link.first_attempt()).await;
        }
        let map = Map { ranges, nodes };
        let mut state = self.state.lock();
        state.drop_beside(&map);
        (state.map, state.why) = (Some(Arc::new(map)), None);
        true
    }

    fn new_node(&self, host: &str, port: u16) -> Option<Arc<Node>> {
        let like = self.seeds.first()?.get_connection_info();
        let client = client_at(like, host.into(), port).ok()?;
        let name = format!("{} at {}:{port}", self.name, shown(host, 80));
        let place = Place::Known(client);
        let mut link = Link::new(place, name, &self.options, self.figures.clone());
        link.is_followed = true;
        let link = Arc::new(link);
        let by = link.clone();
        let connecting = Handle::current().spawn(async move { by.keep_connected().await });
        Some(Arc::new(Node {
            host: host.into(),
            port,
            link,
            connecting: connecting.abort_handle(),
        }))
    }

    /// Waits until the first attempt to read the map has ended, at most for as long as a connection and an answer may take.
    /// Returns whether it has waited.
    pub(super) async fn first_attempt(&self) -> bool {
        let ended = self.attempted.notified();
        let is_first = self.is_first();
        if is_first {
            let within = self.options.connects_within() + self.options.answers_within();
            let _ = timeout(within, ended).await;
        }
        is_first
    }

    /// Whether the first attempt to read the map has not ended.
    fn is_first(&self) -> bool {
        let state = self.state.lock();
        state.map.is_none() && state.why.is_none()
    }

    /// Asks the node that has a key's slot.
    pub(super) async fn ask(
        &self,
        key: &str,
        call: &ScriptCalls<'_>,
        deadline: Instant,
    ) -> Result<Value, Error> {
        let mut node = self.node_of(slot_of(key))?;
        let mut is_asking = false;
        for _ in 0..=MAX_REDIRECTS {
            let Redirect { to, is_ask } = match node.link.ask_one(call, is_asking, deadline).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(redirect)) => redirect,
                Err(error) => {
                    if error.is_undecided() {
                        self.is_old.notify_one();
                    }
                    return Err(error);
                }
            };
            is_asking = is_ask;
            self.is_old.notify_one();
            let address = host_and_port(&to, &node.host);
            let Some(next) = address.and_then(|(host, port)| self.node_at(&host, port)) else {
                let (host, to) = (shown(&node.host, 80), shown(&to, 80));
                return Err(self.error(&format!(
                    "its node {host}:{} sends a call to {to}, which is no address: see cluster-preferred-endpoint-type",
                    node.port
                )));
            };
            // The call may be the first one that is sent there.
            let _ = timeout_at(deadline, next.link.first_attempt()).await;
            if Instant::now() >= deadline {
                return Err(overload(&self.figures, &self.name, TOO_LATE));
            }
            node = next;
        }
        Err(self.error("its nodes send a call to each other: slots are being moved"))
    }

    fn node_of(&self, slot: u16) -> Result<Arc<Node>, Error> {
        let state = self.state.lock();
        let Some(map) = &state.map else {
            let why = state.why.as_deref().unwrap_or("the first connection is being made");
            return Err(self.error(&format!("there is no connection: {why}")));
        };
        map.node_of(slot).cloned().ok_or_else(|| {
            self.is_old.notify_one();
            self.error(&format!("no node of the cluster has slot {slot}"))
        })
    }

    /// Returns a node by its address. One that the map does not have begins to connect, and is kept beside it: the map has
    /// no node that is getting its first slot.
    fn node_at(&self, host: &str, port: u16) -> Option<Arc<Node>> {
        let mut state = self.state.lock();
        if let Some(node) = state.map.as_ref().and_then(|map| map.node_at(host, port)) {
            return Some(node.clone());
        }
        let beside = &mut state.beside;
        let node = match beside.iter().position(|(node, _)| node.is_at(host, port)) {
            Some(at) => beside.remove(at).0,
            None => self.new_node(host, port)?,
        };
        if beside.len() == MAX_BESIDE {
            beside.remove(0);
        }
        beside.push((node.clone(), Instant::now()));
        Some(node)
    }

    /// Whether each node that has slots is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.map().is_some_and(|map| map.nodes.iter().all(|node| node.link.is_connected()))
    }

    /// Whether each node would be asked now.
    pub(super) fn is_whole(&self) -> bool {
        self.map().is_some_and(|map| map.nodes.iter().all(|node| node.link.is_ready()))
    }

    /// Whether the node that has a slot would be asked now.
    pub(super) fn is_ready(&self, slot: u16) -> bool {
        self.map().is_some_and(|map| map.node_of(slot).is_some_and(|node| node.link.is_ready()))
    }

    /// Lets a call for these keys in at each node that it asks, if it would be sent; `None` if one of them has too many calls.
    pub(super) fn admit(
        &self,
        keys: &mut dyn Iterator<Item = &str>,
        was_denied: bool,
    ) -> Result<Option<Passed>, Error> {
        if self.is_first() {
            return Ok(self.first.pass(keys, was_denied));
        }
        let mut nodes: SmallVec<[Arc<Node>; 1]> = SmallVec::new();
        // Each key, with the position of its node.
        let mut of_nodes: SmallVec<[(usize, &str); 4]> = SmallVec::new();
        for key in keys {
            let node = self.node_of(slot_of(key))?;
            let found = nodes.iter().position(|other| Arc::ptr_eq(other, &node));
            of_nodes.push((found.unwrap_or(nodes.len()), key));
            if found.is_none() {
                nodes.push(node);
            }
        }
        let mut passed = Passed::default();
        for (at, node) in nodes.iter().enumerate() {
            let keys = of_nodes.iter().filter(|of| of.0 == at).map(|of| of.1);
            // A node that is not there may have lost its slots.
            let admitted =
                node.link.admit(keys, was_denied).inspect_err(|_| self.is_old.notify_one())?;
            let Some(more) = admitted else { return Ok(None) };
            passed.extend(more);
        }
        Ok(Some(passed))
    }

    /// Waits for a place in the gate of the node that has a slot.
    pub(super) async fn place(
        &self,
        slot: u16,
        until: Instant,
    ) -> Result<Option<PassedReturn>, Error> {
        if self.is_first() {
            return Ok(self.first.place(until, || true).await);
        }
        Ok(self.node_of(slot)?.link.place(until).await)
    }

    /// Returns a warning about the settings of a node.
    pub(super) fn warning(&self) -> Option<String> {
        self.map()?.nodes.iter().find_map(|node| node.link.warning())
    }

    #[cold]
    fn error(&self, what: &str) -> Error {
        self.figures.count_error(StoreFault::NoConnection);
        let error = store_error(ErrorKind::StoreOutage, &self.name, what);
        self.figures.note_error(&error);
        error
    }
}

async fn ask_slots(
    mut connection: MultiplexedConnection,
    host: &str,
    within: Duration,
) -> Result<Vec<SlotRange>, String> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    match timeout(within, question.query_async::<Value>(&mut connection)).await {
        Ok(Ok(answer)) => slot_ranges(answer, host)
            .ok_or_else(|| "its answer has no slots: is the cluster complete?".into()),
        Ok(Err(error)) => Err(failure(&error).text),
        Err(_) => Err(format!("no answer within {within:?}")),
    }
}

fn host_of(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_beside_the_map_are_bounded() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = StoreOptions::new("redis-cluster://127.0.0.1:1").unwrap();
            let url = "redis://127.0.0.1:1".into();
            let cluster = Cluster::new(&[url], &options, Arc::default()).unwrap();
            let node = |port| cluster.node_at("127.0.0.1", port).unwrap();
            let kept = || {
                let state = cluster.state.lock();
                state.beside.iter().map(|(node, _)| node.port).collect::<Vec<_>>()
            };
            let first = node(1);
            (2..=16).for_each(|port| drop(node(port)));
            assert!(Arc::ptr_eq(&first, &node(1)), "it is kept");
            let _ = node(17);
            let wanted: Vec<u16> = (3..=16).chain([1, 17]).collect();
            assert_eq!(kept(), wanted, "the one that was named least lately is not");
            // A new map takes its nodes, and the others stay while calls are sent on to them.
            cluster.state.lock().beside[0].1 -= 2 * KEPT_BESIDE;
            let range = SlotRange { first: 0, last: 9, host: "127.0.0.1".into(), port: 1 };
            assert!(cluster.take_map(None, vec![range]).await);
            assert!(Arc::ptr_eq(&first, &cluster.node_of(5).unwrap()));
            assert!(Arc::ptr_eq(&first, &node(1)));
            assert_eq!(kept(), (4..=17).filter(|&port| port != 1).collect::<Vec<_>>());
            // The same map, read again, drops those as well.
            cluster.state.lock().beside[0].1 -= 2 * KEPT_BESIDE;
            let map = cluster.map();
            let ranges = map.as_ref().unwrap().ranges.clone();
            assert!(!cluster.take_map(map.as_deref(), ranges).await);
            assert_eq!(kept(), (5..=17).collect::<Vec<_>>());
        });
    }
}
