//! Tests that `docs/replay.md` shows real results.

use crate::support::{Ran, Sandbox, real_log};

const GUIDE: &str = include_str!("../../../../docs/replay.md");

fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let after = GUIDE.split(fence.as_str()).skip(1);
    after.map(|rest| rest.split_once("```").expect("an end of the block").0).collect()
}

#[test]
fn the_guides_trace_gets_the_guides_decisions() {
    let dir = Sandbox::new();
    let ([limits], [trace, decisions]) = (&*blocks("yaml"), &*blocks("jsonl")) else {
        panic!("limits, a trace and its decisions")
    };
    dir.put("limits.yml", limits);
    let (found, Ran { status, .. }) = dir.decide(trace);
    assert_eq!((&*found, status), (*decisions, Some(1)), "the last line is an error");
    for op in ["spend", "check", "refund", "reset"] {
        assert!(trace.contains(&format!("\"op\":\"{op}\"")), "{op}");
    }
}

/// The guide's log is a conversion of this one.
#[test]
fn the_guides_rules_get_the_guides_result() {
    let Some(log) = real_log() else { return };
    let dir = Sandbox::new();
    let [limits, result] = *blocks("text") else { panic!("limits and a command with its result") };
    dir.put("limits.yml", limits);
    dir.put("caddy.log", log);
    let (command, output) = result.split_once('\n').unwrap();
    let ran = dir.run(command.strip_prefix("$ tollgate ").unwrap());
    assert_eq!((ran.status, &*ran.stdout), (Some(0), output));
}

/// The fields of a trace and of the summary, and the options that affect them.
#[test]
fn the_guide_names_all_fields() {
    for word in [
        "`at_ns`",
        "`op`",
        "`txns`",
        "`limit`",
        "`id`",
        "`cost`",
        "`mode`",
        "`factor`",
        "`check_and_spend`",
        "`check_only`",
        "`spend_only`",
        "`parsed`",
        "`skipped`",
        "`late`",
        "--reorder",
        "--log-format",
        "--field ",
        "--trusted-hops",
        "`bytes`",
        "`forwarded_for`",
        "--ipv6-prefix 64",
        "--today",
        "`faults`",
    ] {
        assert!(GUIDE.contains(word), "{word}");
    }
}

/// The guide's example: all lines are parsed, and all are skipped.
#[test]
fn lines_without_a_valid_id_are_skipped() {
    let dir = Sandbox::new();
    let line = "192.0.2.7 - - [17/May/2015:10:00:05 +0000] \"GET / HTTP/1.1\" 200 1\n";
    dir.put("access.log", line.repeat(3));
    let rule = "--rule NewOrdersPerAccount=client --json";
    let ran = dir.run(&format!("replay --limits limits.yml --log access.log {rule}"));
    let counts = "{\"lines\":3,\"parsed\":3,\"skipped\":3,\"late\":0,\"allowed\":0,\"denied\":0,";
    assert!(ran.stdout.starts_with(counts), "{ran:?}");
    assert_eq!(ran.status, Some(1), "a result without a single line is none: {ran:?}");
}
