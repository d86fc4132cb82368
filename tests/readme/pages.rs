//! The README and the pages of the guide: their blocks, and the commands that they show with their output.
#![allow(dead_code, reason = "two tests share this, and neither uses all of it")]

use std::path::Path;
use std::process::Command;

pub(crate) const README: &str = include_str!("../../README.md");

/// All pages that show commands or files: their names and their texts.
pub(crate) const PAGES: [(&str, &str); 23] = [
    ("README.md", README),
    ("docs/algorithms.md", include_str!("../../docs/algorithms.md")),
    ("docs/bandwidth.md", include_str!("../../docs/bandwidth.md")),
    ("docs/batches.md", include_str!("../../docs/batches.md")),
    ("docs/blocks.md", include_str!("../../docs/blocks.md")),
    ("docs/calling.md", include_str!("../../docs/calling.md")),
    ("docs/comparison.md", include_str!("../../docs/comparison.md")),
    ("docs/figures.md", include_str!("../../docs/figures.md")),
    ("docs/frameworks.md", include_str!("../../docs/frameworks.md")),
    ("docs/guarantees.md", include_str!("../../docs/guarantees.md")),
    ("docs/http.md", include_str!("../../docs/http.md")),
    ("docs/ids.md", include_str!("../../docs/ids.md")),
    ("docs/in-flight.md", include_str!("../../docs/in-flight.md")),
    ("docs/limits-files.md", include_str!("../../docs/limits-files.md")),
    ("docs/metrics.md", include_str!("../../docs/metrics.md")),
    ("docs/migration-from-governor.md", include_str!("../../docs/migration-from-governor.md")),
    ("docs/reload.md", include_str!("../../docs/reload.md")),
    ("docs/replay.md", include_str!("../../docs/replay.md")),
    ("docs/serde.md", include_str!("../../docs/serde.md")),
    ("docs/shared.md", include_str!("../../docs/shared.md")),
    ("docs/snapshots.md", include_str!("../../docs/snapshots.md")),
    ("docs/tenants.md", include_str!("../../docs/tenants.md")),
    ("docs/waiting.md", include_str!("../../docs/waiting.md")),
];

/// Parts of the commands that a test runs: `crates/tollgate-cli/tests/readme.rs` has the first three and `RULES`.
pub(crate) const TRACE: &str = "algorithms.jsonl";
pub(crate) const REPORT: &str = "--report report.html";
pub(crate) const OPERATOR: &str = "examples/operator";
pub(crate) const API: &str = "/api/";
pub(crate) const NODES: &str = "--nodes 3";
pub(crate) const RULES: &str = "path=/search";

/// A command, and the lines of its output.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) command: &'static str,
    pub(crate) output: Vec<&'static str>,
}

/// The blocks of a page in this language.
pub(crate) fn blocks(page: &'static str, language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let after = page.split(fence.as_str()).skip(1);
    after.map(|rest| rest.split_once("```").expect("an end of the block").0).collect()
}

/// The commands on all pages that are shown with their output.
pub(crate) fn all_shown() -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for block in PAGES.into_iter().flat_map(|(_, page)| blocks(page, "console")) {
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => all.push(Shown { command, output: Vec::new() }),
                None => all.last_mut().expect("a command comes first").output.push(line),
            }
        }
    }
    all
}

/// The commands that contain this text.
pub(crate) fn shown(with: &str) -> Vec<Shown> {
    let mut all = all_shown();
    all.retain(|shown| shown.command.contains(with));
    assert!(!all.is_empty(), "no page shows {with}");
    all
}

/// Runs a shell command in the workspace's root; returns the lines that it prints.
pub(crate) fn run(command: &str) -> Vec<String> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = folders.find(|folder| folder.join("Cargo.lock").is_file()).expect("a workspace");
    let ran = Command::new("sh").args(["-c", command]).current_dir(root).output().unwrap();
    assert!(ran.status.success(), "{command}: {ran:?}");
    let output = String::from_utf8(ran.stdout).unwrap();
    output.lines().map(|line| line.trim_end().to_owned()).collect()
}
