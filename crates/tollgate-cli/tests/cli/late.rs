//! Tests the warning about late lines.

use crate::support::{EXAMPLE_LIMITS, EXAMPLE_LOG, Sandbox, log_line, real_log};

const REPLAY: &str = "replay --limits limits.yml --rule A=path --json --log";

/// Makes a log with one line a second.
fn by_second(seconds: std::ops::Range<u32>) -> String {
    let line = |s: u32| {
        let time = format!("10:{:02}:{:02}", s / 60, s % 60);
        log_line("1.1.1.1", &time, "GET / HTTP/1.1", " 200 1")
    };
    seconds.map(line).collect()
}

const MEANING: &str = "they are decided at the time of an earlier line, so the counts are not those of the recorded traffic; sort the log by time, remove lines with a wrong clock, give rotated files oldest first, or pass --reorder ";

#[test]
fn a_wrong_clock_is_warned_of() {
    let dir = Sandbox::new();
    let wrong = log_line("1.1.1.1", "11:00:00", "GET / HTTP/1.1", " 200 1");
    dir.put("a.log", by_second(0..100) + &wrong + &by_second(100..1_001));
    let warning = format!(
        "warning: a.log:102: 901 of 1,002 lines are late; the first, of 2015-05-17 10:01:40 UTC, follows line 101 of 2015-05-17 11:00:00 UTC: {MEANING}58m20s\n"
    );
    let ran = dir.run(&format!("{REPLAY} a.log"));
    assert_eq!((ran.status, &*ran.stderr), (Some(0), &*warning));
    assert_eq!(ran.json()["late"], 901);
    let ran = dir.run("explain --limits limits.yml A / --log a.log --rule A=path");
    assert_eq!((ran.status, &*ran.stderr), (Some(0), &*warning));
    // With the window that it names, no line is late.
    assert_eq!(dir.run(&format!("{REPLAY} a.log --reorder 58m20s")).stderr, "");
}

/// The line before the late ones is not the one with the latest time.
#[test]
fn latest_line_is_named_not_the_last() {
    let dir = Sandbox::new();
    let log = by_second(500..600) + &by_second(550..551) + &by_second(0..100);
    let ran = dir.run_with(&format!("{REPLAY} -"), log);
    let warning = format!(
        "warning: standard input:102: 100 of 201 lines are late; the first, of 2015-05-17 10:00:00 UTC, follows line 100 of 2015-05-17 10:09:59 UTC: {MEANING}9m59s\n"
    );
    assert_eq!((ran.status, &*ran.stderr), (Some(0), &*warning));
}

#[test]
fn rotated_files_in_glob_order_are_warned_of() {
    let dir = Sandbox::new();
    let ran = dir.run_with(&format!("{REPLAY} -"), by_second(500..1_001) + &by_second(0..500));
    let warning = format!(
        "warning: standard input:502: 500 of 1,001 lines are late; the first, of 2015-05-17 10:00:00 UTC, follows line 501 of 2015-05-17 10:16:40 UTC: {MEANING}16m40s\n"
    );
    assert_eq!((ran.status, &*ran.stderr), (Some(0), &*warning));
}

/// Ten late lines that are more than one in a hundred are warned of.
#[test]
fn few_late_lines_are_not_warned_of() {
    let dir = Sandbox::new();
    for (on_time, late, is_warned) in
        [(300, 9, false), (300, 10, true), (990, 10, false), (989, 10, true)]
    {
        let ran = dir
            .run_with(&format!("{REPLAY} -"), by_second(600..600 + on_time) + &by_second(0..late));
        assert_eq!(ran.json()["late"], late);
        assert_eq!(!ran.stderr.is_empty(), is_warned, "{late} of {}: {ran:?}", on_time + late);
    }
}

#[test]
fn recorded_logs_have_no_warning_of_lateness() {
    let dir = Sandbox::new();
    dir.put("limits.yml", EXAMPLE_LIMITS);
    dir.put("example.log", EXAMPLE_LOG);
    dir.put("real.log", real_log().unwrap_or_default());
    for log in ["example.log", "real.log"] {
        let line = "replay --limits limits.yml --rule RequestsPerClient=client --log";
        let ran = dir.run(&format!("{line} {log}"));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{log}");
    }
}
