//! Programs of their own, which share a limit on a real server through a proxy that delays and cuts connections.

use std::io::{BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::cmd;

use super::server::{Server, with_each};
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::block_on;

pub(super) const BURST: u64 = 300;
/// Ns between two units.
pub(super) const INTERVAL_NS: u64 = 1_000_000;
/// The time for which each node waits for an answer.
const TIMEOUT: Duration = Duration::from_millis(100);
const NODES: usize = 4;

pub(super) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A node: spends from one bucket as fast as it can, and writes the times before and after each allowed spend, its cost,
/// and whether the store was asked.
#[test]
#[ignore = "the program of the tests below"]
fn node_program() {
    let Ok(file) = std::env::var("TOLLGATE_TEST_NODE") else { return };
    let limits = std::fs::read_to_string(&file).unwrap();
    let log = format!("{file}.{}", std::process::id());
    let mut log = BufWriter::with_capacity(256, std::fs::File::create(log).unwrap());
    let limiter = Limiter::new(Limits::from_yaml(&limits).unwrap());
    let bucket = limiter.shared("All").unwrap();
    for call in 0_u64.. {
        // Pauses, in which the bucket fills while the node holds a lease.
        if call % 1000 == 0 {
            std::thread::sleep(Duration::from_millis(call % 7 * 40));
        }
        let (cost, before_ns) = (1 + call % 3, unix_ns());
        let (decision, is_asked) = match bucket.spend_here("one", cost) {
            Some(decision) => (decision, 0),
            None => {
                let began = Instant::now();
                let decision = block_on(bucket.spend("one", cost)).unwrap();
                let took = began.elapsed();
                assert!(took < 4 * TIMEOUT + Duration::from_secs(2), "{took:?}");
                (decision, 1)
            }
        };
        if decision.allowed() {
            writeln!(log, "{before_ns} {} {cost} {is_asked}", unix_ns()).unwrap();
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Passes bytes between nodes and a server. Each piece waits for up to 3 ms, one in 500 cuts its connection.
fn proxy(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            for (at, (from, to)) in [(&client, &server), (&server, &client)].into_iter().enumerate()
            {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || pass(from, to, 2 * number + at));
            }
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream, seed: usize) {
    let mut random = seed as u64 + 1;
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (random >> 33).is_multiple_of(500) {
            break;
        }
        std::thread::sleep(Duration::from_micros((random >> 33) % 3000));
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The nodes of one test. They are killed when this is dropped.
pub(super) struct Nodes {
    folder: tempfile::TempDir,
    running: Vec<Child>,
}

/// A use: the times before and after it, and its units.
pub(super) type Use = (u64, u64, u64);

impl Nodes {
    fn start(shared: &str, port: u16) -> Nodes {
        Nodes::start_with(shared, &format!("redis://127.0.0.1:{port}"))
    }

    pub(super) fn start_with(shared: &str, url: &str) -> Nodes {
        let folder = tempfile::tempdir().unwrap();
        let limits = format!(
            "store: {{url: \"{url}\", timeout: {}ms}}\n\
             All: {{burst: {BURST}, count: 1000, period: 1s, id: string, shared: {shared}, on_error: deny}}\n",
            TIMEOUT.as_millis()
        );
        std::fs::write(folder.path().join("limits.yaml"), limits).unwrap();
        let mut nodes = Nodes { folder, running: Vec::new() };
        (0..NODES).for_each(|_| nodes.add());
        nodes
    }

    fn add(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["shared::valkey::tests::processes::node_program", "--ignored", "--exact"]);
        command.env("TOLLGATE_TEST_NODE", self.folder.path().join("limits.yaml"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.running.push(child.spawn().unwrap());
    }

    /// Kills the oldest node, and starts another.
    pub(super) fn replace_one(&mut self) {
        let mut node = self.running.remove(0);
        node.kill().unwrap();
        node.wait().unwrap();
        self.add();
    }

    /// Kills all nodes, which must have run until then. Returns all uses by their first time, and the units that were spent
    /// without the store.
    pub(super) fn end(mut self) -> (Vec<Use>, u64) {
        for node in &mut self.running {
            assert_eq!(node.try_wait().unwrap(), None, "a node has ended by itself");
        }
        self.kill_all();
        let (mut uses, mut from_leases) = (Vec::new(), 0);
        for file in std::fs::read_dir(self.folder.path()).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            // The last line of a node that was killed may not be whole.
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let fields: Vec<_> = line.split_whitespace().map(str::parse).collect();
                if let [Ok(before_ns), Ok(after_ns), Ok(cost), Ok(is_asked)] = fields[..] {
                    uses.push((before_ns, after_ns, cost));
                    from_leases += if is_asked == 0 { cost } else { 0 };
                }
            }
        }
        uses.sort_unstable();
        (uses, from_leases)
    }

    fn kill_all(&mut self) {
        for node in &mut self.running {
            let _ = (node.kill(), node.wait());
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Returns how many units beyond `burst + t / interval` were used in some time, at most. The store decides between the two
/// times of a use, so only uses that began and ended in a time are counted in it.
pub(super) fn units_above_the_bound(uses: &[Use]) -> u64 {
    /// A bucket is full again after less.
    const LOOK_NS: u64 = 2_000_000_000;
    let mut worst = 0;
    // A sixteenth of the starts is enough: a time above the bound stays above it when it begins a little earlier.
    for (first, &(start_ns, ..)) in uses.iter().enumerate().step_by(16) {
        let mut within: Vec<_> = uses[first..]
            .iter()
            .take_while(|(before_ns, ..)| *before_ns < start_ns + LOOK_NS)
            .map(|&(_, after_ns, cost)| (after_ns, cost))
            .collect();
        within.sort_unstable();
        let mut used = 0;
        for (after_ns, cost) in within {
            used += cost;
            let most = BURST + (after_ns - start_ns) / INTERVAL_NS + 1;
            worst = worst.max(used.saturating_sub(most));
        }
    }
    worst
}

/// Calls `test` with each way to share that takes units, beside each other: their processes pause most of the time.
pub(super) fn for_each_way(test: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        let test = &test;
        for shared in ["leased, lease: 300ms", "exact"] {
            scope.spawn(move || test(shared));
        }
    });
}

pub(super) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
fn processes_keep_the_bound_of_one_node() {
    with_each(|binary| {
        for_each_way(|shared| {
            let server = Server::start(binary);
            let mut nodes = Nodes::start(shared, proxy(server.port()));
            pause(1000);
            nodes.replace_one();
            let mut control = server.connection();
            let () = cmd("SCRIPT").arg("FLUSH").query(&mut control).unwrap();
            pause(500);
            let () = cmd("CLIENT").arg("PAUSE").arg(300).arg("WRITE").query(&mut control).unwrap();
            pause(700);
            server.signal("-STOP");
            pause(300);
            server.signal("-CONT");
            pause(2500);
            nodes.replace_one();
            pause(500);
            let (uses, from_leases) = nodes.end();
            let units: u64 = uses.iter().map(|(.., cost)| cost).sum();
            println!("{shared}: {units} units in {} spends, {from_leases} from leases", uses.len());
            assert!(units > 1000, "the nodes have spent: {units}");
            assert_eq!(shared == "exact", from_leases == 0, "{from_leases} from leases");
            assert_eq!(units_above_the_bound(&uses), 0, "{shared}");
        });
    });
}

#[test]
fn a_server_that_loses_all_adds_two_bursts() {
    with_each(|binary| {
        let mut server = Server::start(binary);
        let nodes = Nodes::start("leased, lease: 300ms", proxy(server.port()));
        pause(1500);
        server.kill();
        server.restart();
        pause(4000);
        let (uses, from_leases) = nodes.end();
        let last_ns = uses.iter().map(|(_, after_ns, _)| *after_ns).max().unwrap();
        println!("{} spends, {from_leases} units from leases", uses.len());
        assert!(last_ns > unix_ns() - 2_000_000_000, "nodes go on with the new server");
        // One for the full bucket, and one for the leases that nodes still hold.
        assert!(units_above_the_bound(&uses) <= 2 * BURST);
    });
}
