//! Starts the servers that this machine has.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::Connection;

use crate::full_size::full_size;

/// A server in its own folder, on a port of loopback. Killed when it is dropped.
pub(super) struct Server {
    binary: PathBuf,
    port: u16,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    folder: tempfile::TempDir,
    child: Child,
}

/// Calls `test` with the first server program of those that `TOLLGATE_STORES` lists, else of those in `PATH`; at full size with
/// each of them.
pub(super) fn with_each(test: impl Fn(&Path)) {
    with(full_size(1, usize::MAX), test);
}

/// Calls `test` with each of them: for what versions of the servers may do in different ways.
pub(super) fn with_all(test: impl Fn(&Path)) {
    with(usize::MAX, test);
}

fn with(most: usize, test: impl Fn(&Path)) {
    let binaries = binaries();
    if binaries.is_empty() {
        left_out(
            "a test against Valkey or Redis: there is no server in PATH, and none in TOLLGATE_STORES",
        );
    }
    for binary in binaries.into_iter().take(most) {
        println!("with {}", binary.display());
        test(&binary);
    }
}

/// Says that a test did not run, past the test runner, which shows a test's lines only if it fails.
pub(super) fn left_out(what: &str) {
    let _ = std::io::stderr().write_all(format!("LEFT OUT: {what} (ci/stores.sh)\n").as_bytes());
}

/// # Panics
///
/// Panics if one of `TOLLGATE_STORES` is no file.
fn binaries() -> Vec<PathBuf> {
    match std::env::var("TOLLGATE_STORES") {
        Ok(list) => {
            let found: Vec<PathBuf> = list.split(':').map(PathBuf::from).collect();
            let missing: Vec<_> = found.iter().filter(|file| !file.is_file()).collect();
            assert!(missing.is_empty(), "of TOLLGATE_STORES are no files: {missing:?}");
            found
        }
        Err(_) => {
            let path = std::env::var("PATH").unwrap_or_default();
            let in_path = |name: &str| {
                let mut all = path.split(':').map(|folder| Path::new(folder).join(name));
                all.find(|file| file.is_file())
            };
            ["valkey-server", "redis-server"].iter().filter_map(|name| in_path(name)).collect()
        }
    }
}

impl Server {
    pub(super) fn start(binary: &Path) -> Server {
        Server::start_with(binary, &[])
    }

    pub(super) fn start_with(binary: &Path, arguments: &[&str]) -> Server {
        Server::start_in(binary, arguments, Vec::new())
    }

    /// Starts a server with variables of its environment.
    pub(super) fn start_in(
        binary: &Path,
        arguments: &[&str],
        variables: Vec<(String, String)>,
    ) -> Server {
        let port = free_port();
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut command = launch(binary, port, &arguments, folder.path());
        let child = command.envs(variables.clone()).spawn().unwrap();
        let server = Server { binary: binary.into(), port, arguments, variables, folder, child };
        server.wait();
        server
    }

    pub(super) fn url(&self, user: &str) -> String {
        format!("redis://{user}127.0.0.1:{}", self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of connections that the server has ever had.
    pub(super) fn connections_made(control: &mut Connection) -> u64 {
        let info: String = redis::cmd("INFO").arg("stats").query(control).unwrap();
        let line = info.lines().find(|line| line.starts_with("total_connections")).unwrap();
        line.split(':').nth(1).unwrap().parse().unwrap()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server at once.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, empty, on the same port.
    pub(super) fn restart(&mut self) {
        let mut command = launch(&self.binary, self.port, &self.arguments, self.folder.path());
        self.child = command.envs(self.variables.clone()).spawn().unwrap();
        self.wait();
    }

    pub(super) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn wait(&self) {
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "{} starts", self.binary.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn connection(&self) -> Connection {
        redis::Client::open(self.url("")).unwrap().get_connection().unwrap()
    }
}

/// Returns a port that no program listens at, each time another one. It is below those that systems give to connections: such a
/// port might be a connection's before the server has it.
pub(super) fn free_port() -> u16 {
    const PORTS: std::ops::Range<u16> = 12_000..22_000;
    static LAST: Mutex<Option<u16>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    // Other test programs that run at the same time begin elsewhere.
    let mut port = last.unwrap_or(PORTS.start + (std::process::id() % 1_000) as u16 * 10);
    loop {
        port = if port + 1 < PORTS.end { port + 1 } else { PORTS.start };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            *last = Some(port);
            return port;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(binary: &Path, port: u16, arguments: &[String], folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
