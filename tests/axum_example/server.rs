//! Starts an example that cargo has built, such as `examples/axum.rs`, on its own port.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The address, such as `127.0.0.1:41023`.
    pub(crate) address: String,
}

impl Server {
    #[allow(dead_code, reason = "one of the files that share this starts others")]
    pub(crate) fn start(args: &[&str]) -> Server {
        Server::run(command().args(["--listen", "127.0.0.1:0"]).args(args))
    }

    /// Of any example, which prints where it listens.
    pub(crate) fn run(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the example starts");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("{line:?} is no address")).to_owned();
        Server { child, stdout, address }
    }

    /// Ends the program as Ctrl-C does. Returns the rest of its output.
    #[cfg(unix)]
    #[allow(dead_code, reason = "one of the files that share this does")]
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

#[allow(dead_code, reason = "as `Server::start`")]
pub(crate) fn command() -> Command {
    program("axum")
}

/// Cargo builds examples with the tests, into a folder beside them, but not for a single test target.
pub(crate) fn program(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let target = tests.parent().and_then(|deps| deps.parent()).expect("a test is in target/*/deps");
    let program: PathBuf =
        target.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.is_file(),
        "{} is not there: cargo build --example {name} --all-features",
        program.display()
    );
    Command::new(program)
}
