//! The README and the guide show real output: this runs the commands of the server again and compares. The
//! test of the same name in `crates/tollgate-cli` runs those of the command.
#![cfg(all(unix, feature = "boulder", feature = "tower", feature = "yaml"))]

#[path = "readme/pages.rs"]
mod pages;
#[path = "axum_example/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use pages::{
    API, NODES, OPERATOR, PAGES, README, REPORT, RULES, Shown, TRACE, all_shown, blocks, run, shown,
};
use server::Server;
use tollgate::Limits;

const LIB: &str = include_str!("../src/lib.rs");

/// The address of the server on the pages.
const ADDRESS: &str = "127.0.0.1:3000";
/// The ends of the commands of `docs/http.md` and `docs/in-flight.md` that `tests/http_api` runs, in `guide.rs` and `gateway.rs`.
const DENIAL: [&str; 3] = [
    "http://127.0.0.1:3000/",
    "http://127.0.0.1:3000/?[1-40]'",
    "http://127.0.0.1:3000/v1/answers",
];

#[test]
fn readme_is_short_and_begins_with_both_commands() {
    assert!(README.lines().count() <= 150);
    let first_80: String = README.lines().take(80).map(|line| format!("{line}\n")).collect();
    let commands: Vec<&str> =
        README.split("```sh\n").skip(1).map(|rest| rest.lines().next().unwrap()).collect();
    assert_eq!(commands.len(), 2);
    for command in &commands {
        assert!(first_80.contains(command), "{command}");
    }
    // The first is the command of ci/report.sh, and the one whose output docs/replay.md shows.
    let script = include_str!("../ci/report.sh").replace("\\\n", " ").replace("$(mktemp -d)/", "");
    let words: Vec<&str> = script.split_whitespace().collect();
    let plain = words.join(" ").replace("\"report.html\"", "report.html");
    assert!(plain.ends_with(commands[0]), "{plain}");
    assert_eq!(shown(REPORT)[0].command, commands[0]);
    assert_eq!(commands[1], "cargo test --all-features");
    assert!(include_str!("../ci/test.sh").contains(&format!("\n{}\n", commands[1])));
}

#[test]
fn every_page_is_tested_and_in_rustdoc() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: BTreeSet<String> = BTreeSet::from(["README.md".to_owned()]);
    for entry in std::fs::read_dir(root.join("docs")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            files.insert(format!("docs/{}", entry.file_name().into_string().unwrap()));
        }
    }
    assert_eq!(files, PAGES.map(|(name, _)| name.to_owned()).into());
    for (name, page) in PAGES {
        assert!(LIB.contains(&format!("\"../{name}\"")), "{name}");
        // A link to another page has its file on the page, and its module in rustdoc.
        for (label, target) in
            page.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
        {
            assert!(files.contains(&format!("docs/{target}")), "{name}: {target}");
            assert!(
                LIB.contains(&format!("\"[{label}]: crate::docs::{label}\\n\"")),
                "{name}: {label}"
            );
            assert_eq!(format!("{}.md", label.replace('_', "-")), target, "{name}");
        }
    }
    for (path, _) in README.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
        assert!(path.starts_with("https://") || root.join(path).is_file(), "{path}");
    }
}

#[test]
fn governors_programs_are_compiled_with_the_rivals() {
    let page = include_str!("../docs/migration-from-governor.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/rivals/examples");
    let mut programs = blocks(page, "rust,ignore");
    for name in ["governor_direct", "governor_keyed", "tower_governor_axum"] {
        let program = std::fs::read_to_string(folder.join(name).with_extension("rs")).unwrap();
        programs.retain(|shown| *shown != program);
    }
    assert!(programs.is_empty(), "not in {}: {programs:#?}", folder.display());
}

#[test]
fn framework_programs_are_those_of_the_package() {
    let page = include_str!("../docs/frameworks.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/frameworks/src/bin");
    let programs = ["actix_web", "poem", "rocket"].map(|name| {
        let program = std::fs::read_to_string(folder.join(name).with_extension("rs")).unwrap();
        program.split_once("\n\n").expect("a first comment").1.to_owned()
    });
    assert_eq!(blocks(page, "rust,ignore"), programs);
}

#[test]
fn every_command_is_run_by_a_test() {
    for one in all_shown() {
        let run_here = [TRACE, REPORT, OPERATOR, API, NODES, RULES];
        let is_run = run_here.iter().any(|with| one.command.contains(with));
        assert!(
            is_run || DENIAL.iter().any(|end| one.command.ends_with(end)),
            "{} is run by no test",
            one.command
        );
    }
}

#[test]
fn yaml_blocks_are_good_limits() {
    let of_pages: Vec<&str> =
        PAGES.into_iter().flat_map(|(_, page)| blocks(page, "yaml")).collect();
    let mut found = 0;
    for text in of_pages {
        let limits = Limits::from_yaml(text).unwrap();
        if limits.names().count() != 7 {
            continue;
        }
        found += 1;
        // The limits that are replayed have the numbers of the file that the command reads.
        let replayed = Limits::from_yaml(include_str!("../examples/algorithms.yml")).unwrap();
        for name in replayed.names() {
            let of = |limits: &Limits| limits.limit_for(name, "a").unwrap();
            assert!(of(&limits).is_some() && of(&limits) == of(&replayed), "{name}");
        }
    }
    assert_eq!(found, 1, "the limits of docs/algorithms.md");
}

/// Whether a line equals the page's, except for the date, and for times, which may be less, and not 0.
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

/// Runs the commands in order against a server; returns the first whose output differs.
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
    assert!(has_curl, "this test runs the guide's commands, which need curl");
    let all = shown(API);
    for path in ["/api/search", "/api/orders", "/api/notes"] {
        assert!(all.iter().any(|one| one.command.contains(path)), "{path}");
    }
    // The limits are of seconds, because people try them. A machine that is suspended for two of them
    // gives other answers; the test tries again.
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
fn only_times_may_differ_and_only_downward() {
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
