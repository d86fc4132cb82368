//! Tests `--allow-reserved` with the overrides that Boulder's READMEs print.

use crate::support::{Ran, Sandbox, spend};

const DEFAULTS: &str = include_str!("../../../../tests/seeds/defaults.yml");
const LIST: &str = include_str!("../../../../tests/seeds/list.yml");
const MAP: &str = include_str!("../../../../tests/seeds/map.yml");

fn sandbox() -> Sandbox {
    let dir = Sandbox::new();
    dir.put("defaults.yml", DEFAULTS);
    dir.put("list.yml", LIST);
    dir.put("map.yml", MAP);
    dir
}

#[test]
fn the_printed_overrides_load() {
    let dir = sandbox();
    for (overrides, count) in [("list.yml", "5 overrides"), ("map.yml", "3 overrides")] {
        let line = format!("validate --limits defaults.yml --overrides {overrides}");
        let ran = dir.run(&line);
        assert_eq!((ran.status, &*ran.stdout), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains("reserved address block"), "{ran:?}");
        let ran = dir.run(&format!("{line} --allow-reserved"));
        let stdout = format!("ok: 3 limits, {count}\n");
        assert_eq!((ran.status, ran.stdout), (Some(0), stdout), "{}", ran.stderr);
    }
}

#[test]
fn every_subcommand_takes_the_option() {
    let dir = sandbox();
    let id = r#"{"limit":"NewRegistrationsPerIPAddress","id":"10.0.0.2","cost":20}"#;
    dir.put("t.jsonl", spend(1, id));
    for line in [
        "replay --limits defaults.yml --overrides list.yml --trace t.jsonl",
        "replay --limits defaults.yml --trace t.jsonl --against defaults.yml --against-overrides map.yml",
        "explain --limits defaults.yml --overrides map.yml NewRegistrationsPerIPAddress 10.0.0.2",
        "diff defaults.yml defaults.yml --old-overrides map.yml --new-overrides list.yml",
    ] {
        let ran = dir.run(line);
        assert_eq!(
            (ran.status, ran.stderr.contains("reserved")),
            (Some(2), true),
            "{line}: {ran:?}"
        );
        let ran = dir.run(&format!("{line} --allow-reserved"));
        assert_eq!(ran.status, Some(0), "{line}: {ran:?}");
    }
    let line = "explain --limits defaults.yml --overrides map.yml --allow-reserved NewRegistrationsPerIPAddress 10.0.0.2";
    let Ran { stdout, .. } = dir.run(line);
    assert!(stdout.contains("applies: the override of this id at map.yml:1: "), "{stdout}");
}
