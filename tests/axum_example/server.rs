//! Starts an example program that cargo has built, such as `examples/axum.rs`, on a free port.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running example program. Dropping it kills the program.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The address at which the program listens, such as `127.0.0.1:41023`.
    pub(crate) address: String,
}

impl Server {
    /// Starts `examples/axum.rs` on a free port, with more arguments.
    #[allow(dead_code, reason = "a test that starts only other examples includes this file")]
    pub(crate) fn start(args: &[&str]) -> Server {
        Server::run(command().args(["--listen", "127.0.0.1:0"]).args(args))
    }

    /// Starts any example whose first line of output is `listening on http://` and its address.
    pub(crate) fn run(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the example starts");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("{line:?} has no address")).to_owned();
        Server { child, stdout, address }
    }

    /// Starts an example that listens at two addresses. Returns the second as well.
    #[allow(dead_code, reason = "only one of the files that include this one calls it")]
    pub(crate) fn run_two(command: &mut Command) -> (Server, String) {
        let mut server = Server::run(command);
        let mut line = String::new();
        server.stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect("an address");
        (server, address.to_owned())
    }

    /// Ends the program as Ctrl-C does. Returns the rest of its output.
    #[cfg(unix)]
    #[allow(dead_code, reason = "only one of the files that include this one calls it")]
    pub(crate) fn interrupt(mut self) -> (std::process::ExitStatus, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command of `examples/axum.rs`.
#[allow(dead_code, reason = "as `Server::start`")]
pub(crate) fn command() -> Command {
    program("axum")
}

/// Returns the command of an example program. `cargo test` builds the examples into a folder beside the tests, but
/// `cargo test --test NAME` does not.
pub(crate) fn program(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let target = tests.parent().and_then(|deps| deps.parent()).expect("a test is in target/*/deps");
    let program: PathBuf =
        target.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.is_file(),
        "{} does not exist: run cargo build --example {name} --all-features",
        program.display()
    );
    Command::new(program)
}
