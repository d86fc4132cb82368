//! What the README shows is what comes of it: its commands are run again, and their output compared.
#![cfg(all(unix, feature = "boulder", feature = "cli", feature = "tower", feature = "yaml"))]

#[path = "axum_example/server.rs"]
mod server;

use std::process::Command;

use server::Server;
use tollgate::Limits;

const README: &str = include_str!("../README.md");

/// Where the README has its server.
const ADDRESS: &str = "127.0.0.1:3000";
/// How the README runs the command.
const TOLLGATE: &str = "cargo run --release --features cli --";

/// A command, and the lines that came of it.
#[derive(Debug)]
struct Shown {
    command: &'static str,
    output: Vec<&'static str>,
}

/// The blocks of the README in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let after = README.split(fence.as_str()).skip(1);
    after.map(|rest| rest.split_once("```").expect("an end of the block").0).collect()
}

/// The commands of all blocks with output that have this in them.
fn shown(with: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for line in blocks("console").into_iter().flat_map(str::lines) {
        match line.strip_prefix("$ ") {
            Some(command) => all.push(Shown { command, output: Vec::new() }),
            None => all.last_mut().expect("a command comes first").output.push(line),
        }
    }
    all.retain(|shown| shown.command.contains(with));
    assert!(!all.is_empty(), "the README shows no {with}");
    all
}

fn run(command: &str) -> Vec<String> {
    let root = env!("CARGO_MANIFEST_DIR");
    let ran = Command::new("sh").args(["-c", command]).current_dir(root).output().unwrap();
    assert!(ran.status.success(), "{command}: {ran:?}");
    let output = String::from_utf8(ran.stdout).unwrap();
    output.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn replay_of_the_three_algorithms() {
    let shown = shown("algorithms.jsonl");
    assert_eq!(shown.len(), 1);
    for one in shown {
        assert!(one.command.starts_with(TOLLGATE), "{}", one.command);
        let command = one.command.replace(TOLLGATE, env!("CARGO_BIN_EXE_tollgate"));
        assert_eq!(run(&command), one.output);
    }
}

#[test]
fn one_command_from_a_log_to_the_report_of_what_would_change() {
    let shown = shown("--report report.html");
    assert_eq!(shown.len(), 1);
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let command = shown[0].command.replace(TOLLGATE, env!("CARGO_BIN_EXE_tollgate"));
    assert_eq!(run(&command.replace("report.html", report.to_str().unwrap())), shown[0].output);
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("data-table=\"newly-denied\""));
}

#[test]
fn what_the_operators_commands_say() {
    let shown = shown("examples/operator");
    for command in ["cat", "validate", "explain", "diff"] {
        assert!(shown.iter().any(|one| one.command.contains(command)), "{command}");
    }
    for one in shown {
        let command = one.command.replace(TOLLGATE, env!("CARGO_BIN_EXE_tollgate"));
        assert_eq!(run(&command), one.output, "{}", one.command);
    }
}

#[test]
fn the_limits_are_good() {
    let of_readme = blocks("yaml");
    assert_eq!(of_readme.len(), 1);
    for text in of_readme {
        let limits = Limits::from_yaml(text).unwrap();
        assert_eq!(limits.names().count(), 6);
        // Those that are replayed have the numbers of the file that the command reads.
        let replayed = Limits::from_yaml(include_str!("../examples/algorithms.yml")).unwrap();
        for name in replayed.names() {
            let of = |limits: &Limits| limits.numbers(name, "a").unwrap();
            assert!(of(&limits).is_some() && of(&limits) == of(&replayed), "{name}");
        }
    }
}

/// Whether a line is the README's, but for the date, and for times that have gone on since they were
/// given: they may be less, and not 0.
fn is_alike(line: &str, shown: &str) -> bool {
    if line.starts_with("date: ") && shown.starts_with("date: ") {
        return true;
    }
    // A wait of 9 s in the text of a denial is a byte shorter than one of 10 s.
    let of_times = ["retry-after", "-reset", "-clear", "\"detail\"", "content-length"];
    let is_time = of_times.map(|name| shown.contains(name));
    if line == shown || !is_time.contains(&true) {
        return line == shown;
    }
    let is_digit = |char: char| char.is_ascii_digit() || char == '.';
    let (words, shown_words) = (line.split(is_digit), shown.split(is_digit));
    let numbers = |line: &str| -> Vec<f64> {
        line.split(|char| !is_digit(char)).filter_map(|digits| digits.parse().ok()).collect()
    };
    let (now, then) = (numbers(line), numbers(shown));
    words.filter(|word| !word.is_empty()).eq(shown_words.filter(|word| !word.is_empty()))
        && now.len() == then.len()
        && now.iter().zip(&then).all(|(now, then)| *now > 0.0 && *now <= then.ceil())
}

/// The commands one after the other with a server of their own; the first that gives something else.
fn differs(all: &[Shown]) -> Option<String> {
    let server = Server::start(&[]);
    all.iter().find_map(|one| {
        let output = run(&one.command.replace(ADDRESS, &server.address));
        let is_same = output.len() == one.output.len()
            && output.iter().zip(&one.output).all(|(line, shown)| is_alike(line, shown));
        (!is_same).then(|| format!("{}\n{output:#?}\nis not\n{:#?}", one.command, one.output))
    })
}

#[test]
fn curl_gets_the_fields_of_the_three_algorithms() {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    assert!(has_curl, "this test runs the README's commands, which need curl");
    let all = shown("curl");
    for path in ["/api/search", "/api/orders", "/api/notes"] {
        assert!(all.iter().any(|one| one.command.contains(path)), "{path}");
    }
    // The limits are of seconds, because people try them. A machine that stands still for two of them
    // gives other answers, and is asked again.
    let mut last = String::new();
    for _ in 0..3 {
        match differs(&all) {
            Some(difference) => last = difference,
            None => return,
        }
    }
    panic!("{last}");
}

#[test]
fn times_may_be_less_and_nothing_else_may_differ() {
    for (line, shown, alike) in [
        ("HTTP/1.1 200 OK", "HTTP/1.1 200 OK", true),
        ("HTTP/1.1 429 OK", "HTTP/1.1 200 OK", false),
        ("date: today", "date: then", true),
        ("x-ratelimit-reset: 9", "x-ratelimit-reset: 10", true),
        ("x-ratelimit-reset: 11", "x-ratelimit-reset: 10", false),
        ("x-ratelimit-reset: 0", "x-ratelimit-reset: 10", false),
        ("x-ratelimit-clear: 7.990", "x-ratelimit-clear: 7.978", true),
        ("x-ratelimit-remaining: 3", "x-ratelimit-remaining: 4", false),
        ("retry-after: 3", "x-ratelimit-reset: 3", false),
    ] {
        assert_eq!(is_alike(line, shown), alike, "{line} / {shown}");
    }
}
