//! Tests `replay --nodes`: several nodes on one log, by each way to share limits.

use crate::support::{EXAMPLE_LIMITS, EXAMPLE_LOG, Sandbox, real_log};

const REPLAY: &str =
    "replay --limits limits.yml --log access.log --rule RequestsPerClient=client --json --nodes";

/// Replays a log for a number of nodes; returns the result of each way, in their order.
fn ways(dir: &Sandbox, arguments: &str) -> Vec<serde_json::Value> {
    let ran = dir.run(&format!("{REPLAY} {arguments}"));
    assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{arguments}");
    ran.json()["nodes"]["ways"].as_array().unwrap().clone()
}

fn example() -> Sandbox {
    let dir = Sandbox::new();
    dir.put("limits.yml", EXAMPLE_LIMITS);
    dir.put("access.log", EXAMPLE_LOG);
    dir
}

#[test]
fn only_local_nodes_exceed_the_limits() {
    let dir = example();
    let all = ways(&dir, "3");
    let names: Vec<_> = all.iter().map(|way| way["shared"].as_str().unwrap()).collect();
    assert_eq!(names, ["local", "leased", "exact"]);
    let (local, exact) = (&all[0], &all[2]);
    assert!(local["over_admission"].as_u64() > Some(0), "{local}");
    assert_eq!((&local["store_calls"], &local["store_calls_saved"]), (&0.into(), &3744.into()));
    assert_eq!(all[1]["over_admission"], 0);
    // On one clock, exact nodes decide as one node does.
    let limit = &exact["limits"]["RequestsPerClient"];
    assert_eq!((&limit["allowed"], &limit["denied"]), (&2619.into(), &1125.into()));
    assert_eq!(exact["over_admission"], 0);
    // Each allowed call asks the store, and a part of the denied ones.
    assert!((2_619..3_744).contains(&exact["store_calls"].as_u64().unwrap()), "{exact}");
    assert!(limit["mean_wait_ns"].as_u64() > Some(0));
    // One node by itself keeps its limits, and so do nodes to which their clients are loyal.
    for arguments in ["1 --shared local", "3 --shared local --spread client"] {
        let one = ways(&dir, arguments);
        assert_eq!((one.len(), &one[0]["over_admission"]), (1, &0.into()), "{arguments}");
        assert_eq!(one[0]["denied"], 1125, "{arguments}");
    }
}

#[test]
fn the_files_own_sharing_does_not_matter() {
    let dir = example();
    let expected = ways(&dir, "3");
    let shared = EXAMPLE_LIMITS.replacen('}', ", shared: exact}", 1);
    dir.put("limits.yml", shared + "\nstore: {url: 'redis://127.0.0.1:1'}\n");
    assert_eq!(ways(&dir, "3"), expected);
}

#[test]
fn several_limits_of_a_line_are_one_call() {
    let dir = Sandbox::new();
    dir.put("access.log", EXAMPLE_LOG);
    let line = "replay --limits limits.yml --log access.log --rule PerClient=client --rule PerPath=path --nodes 4 --json";
    let found = dir.run(line).json();
    let exact = &found["nodes"]["ways"][2];
    for limit in ["PerClient", "PerPath"] {
        for count in ["allowed", "denied"] {
            assert_eq!(exact["limits"][limit][count], found["limits"][limit][count], "{limit}");
        }
    }
    assert_eq!(exact["over_admission"], 0);
    assert!(exact["store_calls"].as_u64() < Some(3_744), "{exact}");
}

#[test]
fn a_real_log_stays_within_its_limits() {
    let Some(log) = real_log() else { return };
    let dir = Sandbox::new();
    dir.put("limits.yml", "RequestsPerClient: {burst: 5, count: 1, period: 1m, id: string}\n");
    dir.put("access.log", log);
    let all = ways(&dir, "4");
    assert!(all[0]["over_admission"].as_u64() > Some(0), "{}", all[0]);
    assert_eq!((&all[1]["over_admission"], &all[2]["over_admission"]), (&0.into(), &0.into()));
}

#[test]
fn arguments_of_nodes_are_checked() {
    let dir = example();
    let log = "replay --limits limits.yml --log access.log --rule RequestsPerClient=client";
    for (line, part) in [
        (format!("{log} --shared local"), "--nodes"),
        (format!("{log} --spread client"), "--nodes"),
        (format!("{log} --nodes 0"), "1..=64"),
        (format!("{log} --nodes 65"), "1..=64"),
        (format!("{log} --nodes 2 --shared twice"), "local, leased, exact"),
        ("replay --limits limits.yml --trace t --nodes 2".into(), "--log"),
    ] {
        let ran = dir.run(&line);
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{line}: {ran:?}");
        assert!(ran.stderr.contains(part), "{line}: {}", ran.stderr);
    }
}
