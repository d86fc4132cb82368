//! What every test of the command needs: a folder, and the command to run in it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A folder of its own, and the command to run in it.
pub(crate) struct Desk(tempfile::TempDir);

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

impl Desk {
    pub(crate) fn new() -> Desk {
        let desk = Desk(tempfile::tempdir().unwrap());
        desk.put("limits.yml", LIMITS);
        desk
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
        // A run that fails early does not read it.
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

    /// The decisions on a trace, and what was said about it.
    pub(crate) fn decide(&self, trace: &str) -> (String, Ran) {
        let ran = self.run_with(
            "replay --limits limits.yml --trace - --decisions decisions.jsonl --json",
            trace,
        );
        (self.get("decisions.jsonl"), ran)
    }
}

/// A line of a trace.
pub(crate) fn spend(at_ns: u64, txns: &str) -> String {
    operation(at_ns, "spend", txns)
}

/// A line of a trace.
pub(crate) fn operation(at_ns: u64, op: &str, txns: &str) -> String {
    format!("{{\"at_ns\":{at_ns},\"op\":\"{op}\",\"txns\":[{txns}]}}\n")
}
