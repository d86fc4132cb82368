//! Tests help, colours, completion scripts and manual pages.

use std::process::{Command, Stdio};

use crate::support::Sandbox;

/// Runs a command with colours forced or refused, without those variables of the test's own environment.
fn stderr(dir: &Sandbox, line: &str, variable: Option<(&str, &str)>) -> String {
    let mut command = dir.command(line);
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.envs(variable);
    String::from_utf8(command.output().unwrap().stderr).unwrap()
}

#[test]
fn errors_have_colours_on_terminals_only() {
    let dir = Sandbox::new();
    dir.put("faults.yml", "A: {burst: 0, count: 1, period: 1s, id: string}\n");
    dir.put("o.yml", "A:x: {burst: 9, count: 9, period: 1s, expires: 2020-01-01}\n");
    dir.put("bad.log", "garbage: x\n");
    dir.put("t.jsonl", "garbage: x\n");
    let red = "\u{1b}[1m\u{1b}[31m";
    for (line, start) in [
        ("validate faults.yml", format!("{red}faults.yml:1:\u{1b}[0m A.burst: ")),
        ("validate limits.yml --overrides o.yml", "\u{1b}[1m\u{1b}[33mwarning:\u{1b}[0m ".into()),
        ("validate missing.yml", format!("{red}missing.yml:\u{1b}[0m cannot be read: ")),
        ("diff limits.yml faults.yml", format!("{red}faults.yml:1:\u{1b}[0m ")),
        ("validate --fly", format!("{red}error:\u{1b}[0m unexpected argument ")),
        (
            "replay --limits limits.yml --log bad.log --rule A=client",
            format!("{red}skipped line 1:\u{1b}[0m no [time]: "),
        ),
        (
            "replay --limits limits.yml --trace t.jsonl",
            format!("{red}t.jsonl:1:\u{1b}[0m expected value"),
        ),
        (
            "replay --limits limits.yml --log bad.log --rule A=client --rule A=path",
            format!("{red}error:\u{1b}[0m two rules charge A"),
        ),
    ] {
        let coloured = stderr(&dir, line, Some(("CLICOLOR_FORCE", "1")));
        assert!(coloured.starts_with(&start), "{line}: {coloured:?}");
        let plain = stderr(&dir, line, None);
        assert!(!plain.contains('\u{1b}'), "{line}: {plain:?}");
        assert_eq!(stderr(&dir, line, Some(("NO_COLOR", "1"))), plain, "{line}");
    }
    // Text from outside has no styles, even if the output has.
    let hostile = "validate --fl\u{1b}[31my\u{202e}";
    let coloured = stderr(&dir, hostile, Some(("CLICOLOR_FORCE", "1")));
    assert!(coloured.contains("--fl\\u{1b}[31my\\u{202e}"), "{coloured:?}");
}

#[test]
fn help_says_that_a_log_needs_a_rule() {
    let dir = Sandbox::new();
    for (subcommand, usage) in [
        ("replay", "tollgate replay [OPTIONS] --limits <FILE> --log <FILE> --rule <LIMIT=FIELD"),
        (
            "explain",
            "tollgate explain [OPTIONS] --limits <FILE> <LIMIT> <ID> --log <FILE> --rule <LIMIT=FIELD",
        ),
    ] {
        for help in ["-h", "--help"] {
            let help = dir.run(&format!("{subcommand} {help}")).stdout;
            assert!(help.contains(usage), "{help}");
        }
    }
    let help = dir.run("validate --help").stdout;
    assert!(help.contains("Usage: tollgate validate [OPTIONS] <FILE|--limits <FILE>>"), "{help}");
}

/// Runs a program on the input, if it is installed.
fn check(program: &[&str], input: &str) {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{program:?}: {output:?}");
}

#[test]
fn shells_read_their_completion_scripts() {
    let dir = Sandbox::new();
    for (shell, program) in [
        ("bash", &["bash", "-n"][..]),
        ("zsh", &["zsh", "-n"]),
        ("fish", &["fish", "--no-execute"]),
        ("powershell", &[]),
        ("elvish", &[]),
    ] {
        let ran = dir.run(&format!("completions {shell}"));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{shell}");
        for word in ["validate", "replay", "trusted-hops", "completions"] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
        if !program.is_empty() {
            check(program, &ran.stdout);
        }
    }
}

#[test]
fn manual_pages_have_the_options() {
    let dir = Sandbox::new();
    for (line, name, word) in [
        ("man", "tollgate", "tollgate\\-replay(1)"),
        ("man replay", "tollgate\\-replay", "\\-\\-trusted\\-hops"),
        ("man validate", "tollgate\\-validate", "\\-\\-overrides"),
    ] {
        let ran = dir.run(line);
        assert!(ran.stdout.contains(&format!(".SH NAME\n{name} ")), "{line}: {}", ran.stdout);
        assert!(ran.stdout.contains(word), "{line}: {}", ran.stdout);
        check(&["groff", "-man", "-ww", "-z"], &ran.stdout);
    }
}

#[test]
fn manual_pages_name_only_pages_that_exist() {
    let dir = Sandbox::new();
    let page = dir.run("man").stdout;
    let named: Vec<&str> = page
        .split("tollgate\\-")
        .skip(1)
        .filter_map(|rest| rest.split_once("(1)"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(named, ["validate", "replay", "explain", "diff", "completions", "man"]);
    for name in named {
        let ran = dir.run(&format!("man {name}"));
        assert_eq!(ran.status, Some(0), "{name}: {ran:?}");
    }
}
