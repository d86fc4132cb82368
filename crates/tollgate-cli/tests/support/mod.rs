//! Provides what the tests of the command share: a folder to run the command in, and lines of traces and logs.
#![allow(dead_code, reason = "each test uses a part of this")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

/// A temporary folder, in which the command runs.
pub(crate) struct Sandbox(tempfile::TempDir);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) const LIMITS: &str = "\
NewOrdersPerAccount: {burst: 20, count: 20, period: 1s}
PerClient: {burst: 1, count: 1, period: 10s, id: ipAddress}
PerPath: {burst: 2, count: 1, period: 10s, id: string}
A: {burst: 5, count: 1, period: 1s, id: string}
B: {burst: 2, count: 1, period: 1s, id: string}
";

impl Ran {
    /// Parses standard output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Sandbox {
    /// Creates a folder with `limits.yml`.
    pub(crate) fn new() -> Sandbox {
        let dir = Sandbox(tempfile::tempdir().unwrap());
        dir.put("limits.yml", LIMITS);
        dir
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs `tollgate` with the words of `line`.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_with(line, "")
    }

    pub(crate) fn run_with(&self, line: &str, stdin: impl AsRef<[u8]>) -> Ran {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        // A run that fails early does not read its input.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_ref());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let ran = Ran {
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(!ran.stderr.contains("panicked"), "{line}: {ran:?}");
        ran
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(line.split_whitespace()).current_dir(self.0.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Replays a trace; returns the decisions and the output.
    pub(crate) fn decide(&self, trace: &str) -> (String, Ran) {
        let ran = self.run_with(
            "replay --limits limits.yml --trace - --decisions decisions.jsonl --json",
            trace,
        );
        (self.get("decisions.jsonl"), ran)
    }
}

/// Formats a spend as a line of a trace.
pub(crate) fn spend(at_ns: u64, txns: &str) -> String {
    operation(at_ns, "spend", txns)
}

/// Formats a line of a trace.
pub(crate) fn operation(at_ns: u64, op: &str, txns: &str) -> String {
    format!("{{\"at_ns\":{at_ns},\"op\":\"{op}\",\"txns\":[{txns}]}}\n")
}

/// Formats a line of an access log. All lines have the same day.
pub(crate) fn log_line(client: &str, time: &str, request: &str, tail: &str) -> String {
    format!("{client} - - [17/May/2015:{time} +0000] \"{request}\"{tail}\n")
}

/// Compresses a text with gzip.
pub(crate) fn gzip(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_ref()).unwrap();
    encoder.finish().unwrap()
}

/// The log of `examples/`, and the limits that it was recorded under.
pub(crate) const EXAMPLE_LOG: &str = include_str!("../../../../examples/access.log");
pub(crate) const EXAMPLE_LIMITS: &str = include_str!("../../../../examples/limits.yml");

/// Reads a recorded log that is not part of the repository. If the file is missing, prints that the test did not run,
/// and returns `None`.
pub(crate) fn real_log() -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/access.log");
    let log = fs::read_to_string(&path).ok();
    if log.is_none() {
        // The test runner hides the output of `println!` in a test that passes.
        let text = format!("NOT TESTED: {} does not exist\n", path.display());
        std::io::stderr().write_all(text.as_bytes()).unwrap();
    }
    log
}
