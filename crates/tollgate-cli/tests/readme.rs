//! The README and the guide show real output: this runs the commands of `tollgate` again and compares.
#![cfg(unix)]

#[path = "../../../tests/readme/pages.rs"]
mod pages;

use pages::{NODES, OPERATOR, README, REPORT, RULES, TRACE, run, shown};

/// The part of a command that a test replaces by [`BINARY`].
const TOLLGATE: &str = "cargo run -- ";
const BINARY: &str = concat!(env!("CARGO_BIN_EXE_tollgate"), " ");

#[test]
fn replay_of_the_three_algorithms() {
    let shown = shown(TRACE);
    assert_eq!(shown.len(), 1);
    for one in shown {
        assert!(one.command.starts_with(TOLLGATE), "{}", one.command);
        let command = one.command.replace(TOLLGATE, BINARY);
        assert_eq!(run(&command), one.output);
    }
}

#[test]
fn one_command_from_a_log_to_the_report() {
    let shown = shown(REPORT);
    assert_eq!(shown.len(), 1);
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let command = shown[0].command.replace(TOLLGATE, BINARY);
    let output = run(&command.replace("report.html", report.to_str().unwrap()));
    assert_eq!(output, shown[0].output);
    assert!(README.contains(&format!("`{}`", output[1])), "{}", output[1]);
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("data-table=\"newly-denied\""));
}

#[test]
fn the_operators_commands_give_their_output() {
    for one in shown(RULES) {
        let command = one.command.replace(TOLLGATE, BINARY);
        assert_eq!(run(&command), one.output, "{}", one.command);
    }
    let shown = shown(OPERATOR);
    for command in ["cat", "validate", "explain", "diff"] {
        assert!(shown.iter().any(|one| one.command.contains(command)), "{command}");
    }
    for one in shown {
        let command = one.command.replace(TOLLGATE, BINARY);
        assert_eq!(run(&command), one.output, "{}", one.command);
    }
}

#[test]
fn replay_over_nodes_gives_its_output() {
    for one in shown(NODES) {
        assert_eq!(run(&one.command.replace(TOLLGATE, BINARY)), one.output, "{}", one.command);
    }
}
