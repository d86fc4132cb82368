//! Each of six small programs is no longer with Tollgate than with governor.

/// Pairs of programs that do the same: with Tollgate, in the project's `examples/`, and with governor.
const PROGRAMS: [(&str, &str, &str); 6] = [
    (
        "one key",
        include_str!("../../../examples/one_key.rs"),
        include_str!("../examples/governor_one_key.rs"),
    ),
    (
        "strings",
        include_str!("../../../examples/strings.rs"),
        include_str!("../examples/governor_strings.rs"),
    ),
    ("ids", include_str!("../../../examples/ids.rs"), include_str!("../examples/governor_ids.rs")),
    (
        "waiting",
        include_str!("../../../examples/waiting.rs"),
        include_str!("../examples/governor_waiting.rs"),
    ),
    (
        "own time",
        include_str!("../../../examples/own_time.rs"),
        include_str!("../examples/governor_own_time.rs"),
    ),
    (
        "axum",
        include_str!("../../../examples/http_axum.rs"),
        include_str!("../examples/tower_governor_axum.rs"),
    ),
];

/// Returns the number of lines that are neither blank nor only a comment.
fn lines_of_code(program: &str) -> usize {
    let lines = program.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn programs_are_no_longer_than_governors() {
    for (name, ours, theirs) in PROGRAMS {
        let (ours, theirs) = (lines_of_code(ours), lines_of_code(theirs));
        println!("{name}: {ours} lines, governor {theirs}");
        assert!((10..=30).contains(&ours), "{name}: {ours} lines");
        assert!(ours <= theirs, "{name}: {ours} lines, governor {theirs}");
    }
}

/// The throttled copies of docs/bandwidth.md, which has these figures.
#[test]
fn bandwidth_programs_have_documented_lengths() {
    let programs = [
        ("tollgate", include_str!("../examples/bandwidth_tollgate.rs"), 13),
        ("rama", include_str!("../rama/examples/bandwidth.rs"), 11),
        ("governor", include_str!("../examples/bandwidth_governor.rs"), 18),
        ("async-speed-limit", include_str!("../examples/bandwidth_async_speed_limit.rs"), 9),
    ];
    for (name, program, lines) in programs {
        assert_eq!(lines_of_code(program), lines, "{name}");
    }
}
