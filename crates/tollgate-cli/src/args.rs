//! The arguments.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::error::ErrorKind;
use clap::{ArgGroup, CommandFactory, Parser, Subcommand};

use crate::Failure;
use crate::access_log::Field;
use crate::debt::DebtRule;
use crate::text::{Escaped, quoted};

/// The exit statuses as the helps have them.
macro_rules! statuses {
    ($nothing_found:literal, $found:literal, $not_done:literal $(,)?) => {
        concat!("Exit status:\n  0  ", $nothing_found, "\n  1  ", $found, "\n  2  ", $not_done)
    };
}

/// Tries rate limits on recorded traffic, before they are trusted with live traffic.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = statuses!(
    "done, and nothing was found",
    "done, and something was found: faults, lines of a trace with errors, differences",
    "not done: a file cannot be read or written, limits have faults, or an argument is wrong",
))]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Reads limits and overrides and reports every fault
    #[command(after_help = statuses!(
        "the files have no faults; warnings are none",
        "the files have faults",
        "not done: a file cannot be read, or an argument is wrong",
    ))]
    Validate(ValidateArgs),
    /// Replays a trace or an access log against limits, and says what they would have denied
    #[command(after_help = statuses!(
        "replayed; denials, skipped lines of a log and no lines at all are a result",
        "replayed, and lines of the trace had errors",
        "not done: a file cannot be read or written, limits have faults, or an argument is wrong",
    ))]
    Replay(ReplayArgs),
    /// Says which entry applies to an id, what its bucket holds, and why others do not apply
    #[command(after_help = statuses!(
        "explained, whatever the answer is",
        "explained, and lines of the trace that was replayed first had errors",
        "not done: a file cannot be read, limits have faults, or an argument is wrong",
    ))]
    Explain(ExplainArgs),
    /// Says what changes between two sets of limits, for whom, and for live buckets
    #[command(after_help = statuses!(
        "compared; with --exit-code also: there are no differences",
        "compared with --exit-code, and there are differences",
        "not done: a file cannot be read, limits have faults, or an argument is wrong",
    ))]
    Diff(DiffArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct LimitFiles {
    /// The limits, in YAML; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: PathBuf,
    /// Overrides of the limits for some ids, in YAML; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) overrides: Option<PathBuf>,
    /// Accept private, reserved and documentation addresses and networks as ids of overrides of Boulder's
    /// limits, in all files
    #[arg(long)]
    pub(crate) allow_reserved: bool,
}

/// The day by which overrides have expired or not, whenever the traffic was.
#[derive(Debug, clap::Args)]
pub(crate) struct Today {
    /// The day, in UTC, by which overrides have expired or not [default: today]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = start_of_day)]
    today: Option<SystemTime>,
}

impl Today {
    pub(crate) fn now(&self) -> SystemTime {
        self.today.unwrap_or_else(SystemTime::now)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    pub(crate) files: LimitFiles,
    #[command(flatten)]
    pub(crate) today: Today,
    /// Print the result as one JSON object: the counts and the warnings, or every fault
    #[arg(long)]
    pub(crate) json: bool,
}

/// A trace, or an access log and what its lines are charged to.
#[derive(Debug, clap::Args)]
pub(crate) struct Traffic {
    /// A trace: one JSON object a line, in the order of time, packed by gzip or not; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// An access log in the common or combined format, packed by gzip or not; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "rules")]
    pub(crate) log: Option<PathBuf>,
    /// What each line of the log is charged to: FIELD is client, user, method, path, host,
    /// user_agent or status
    #[arg(
        long = "rule",
        id = "rules",
        value_name = "LIMIT=FIELD",
        value_parser = rule,
        requires = "log",
        conflicts_with = "trace"
    )]
    pub(crate) rules: Vec<Rule>,
    /// How far out of order the log's lines may be, such as 90s or 1m30s [default: 60s]
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration_ns,
        requires = "log",
        conflicts_with = "trace"
    )]
    reorder: Option<u64>,
    /// The bits by which IPv6 clients of the log are told apart, 1 to 128; IPv4 clients are whole addresses.
    /// The tower layer's default is 64: give 64 to count as it does [default: 128]
    #[arg(
        long,
        value_name = "BITS",
        value_parser = clap::value_parser!(u8).range(1..=128),
        requires = "log",
        conflicts_with = "trace"
    )]
    pub(crate) ipv6_prefix: Option<u8>,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("traffic").required(true).args(["trace", "log"]))]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) files: LimitFiles,
    /// Other limits, in YAML: who would newly be denied, and who newly let through, if they took the
    /// place of --limits; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Overrides of the limits of --against, in YAML; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "against")]
    pub(crate) against_overrides: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
    /// Write a JSON object for every decision; `-` is standard output, and the summary goes to
    /// standard error then
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// Write a page with charts and their numbers, for a browser; `-` is standard output, and the
    /// summary goes to standard error then
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) today: Today,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("traffic").args(["trace", "log"]))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) files: LimitFiles,
    /// The limit's name
    pub(crate) limit: String,
    /// Who is limited, in the format of the limit's ids
    pub(crate) id: String,
    /// The units that a call would ask for
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    pub(crate) cost: u64,
    /// Traffic that is replayed first: without it, the bucket is full
    #[command(flatten)]
    pub(crate) traffic: Traffic,
    #[command(flatten)]
    pub(crate) today: Today,
    /// Print the explanation as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The limits as they are, in YAML; `-` is standard input
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The limits as they will be
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Overrides of the old limits
    #[arg(long, value_name = "FILE")]
    old_overrides: Option<PathBuf>,
    /// Overrides of the new limits
    #[arg(long, value_name = "FILE")]
    new_overrides: Option<PathBuf>,
    /// What a reload keeps of what buckets owe
    #[arg(long, value_name = "RULE", value_enum, default_value_t = DebtRule::Share)]
    pub(crate) debt: DebtRule,
    /// Show all overrides that change, and not the first 20 of a limit
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit with 1 if there are differences
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Accept private, reserved and documentation addresses and networks as ids of overrides of Boulder's
    /// limits, in all files
    #[arg(long)]
    allow_reserved: bool,
    #[command(flatten)]
    pub(crate) today: Today,
    /// Print the differences as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Charges a limit by a field of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) limit: String,
    pub(crate) field: Field,
}

/// Whether a path stands for standard input or output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

impl LimitFiles {
    /// The files.
    fn paths(&self) -> Vec<&Path> {
        [Some(&*self.limits), self.overrides.as_deref()].into_iter().flatten().collect()
    }

    /// How many of the files are standard input.
    fn standard_inputs(&self) -> usize {
        let overrides = self.overrides.as_deref().is_some_and(is_standard);
        usize::from(is_standard(&self.limits)) + usize::from(overrides)
    }
}

const ONE_STANDARD_INPUT: &str = "standard input, `-`, is given for two files: one is allowed";

impl ValidateArgs {
    /// Whether the arguments go together, as far as their types do not say it.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.files.standard_inputs() > 1 {
            return Err(conflict("validate", ONE_STANDARD_INPUT.into()));
        }
        Ok(())
    }
}

impl Traffic {
    const DEFAULT_WINDOW_NS: u64 = 60 * 1_000_000_000;

    /// The time window of a log.
    pub(crate) fn window_ns(&self) -> u64 {
        self.reorder.unwrap_or(Traffic::DEFAULT_WINDOW_NS)
    }

    /// The trace or the log.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.trace.as_deref().or(self.log.as_deref())
    }

    /// Checks what clap cannot: arguments against each other, and against the other files that are read.
    fn check(&self, subcommand: &str, others: &[&Path]) -> Result<(), Failure> {
        let inputs = others.iter().copied().chain(self.path());
        if inputs.filter(|path| is_standard(path)).count() > 1 {
            return Err(conflict(subcommand, ONE_STANDARD_INPUT.into()));
        }
        for (i, rule) in self.rules.iter().enumerate() {
            if self.rules[..i].iter().any(|before| before.limit == rule.limit) {
                return Err(conflict(
                    subcommand,
                    format!(
                        "two rules charge {}: one rule a limit is allowed, or a line could name one bucket twice",
                        Escaped(&rule.limit)
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl DiffArgs {
    pub(crate) fn old_files(&self) -> LimitFiles {
        self.files(&self.old, self.old_overrides.as_deref())
    }

    pub(crate) fn new_files(&self) -> LimitFiles {
        self.files(&self.new, self.new_overrides.as_deref())
    }

    fn files(&self, limits: &Path, overrides: Option<&Path>) -> LimitFiles {
        LimitFiles {
            limits: limits.to_owned(),
            overrides: overrides.map(Path::to_owned),
            allow_reserved: self.allow_reserved,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        let inputs = self.old_files().standard_inputs() + self.new_files().standard_inputs();
        if inputs > 1 {
            return Err(conflict("diff", ONE_STANDARD_INPUT.into()));
        }
        Ok(())
    }
}

impl ExplainArgs {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.traffic.check("explain", &self.files.paths())
    }
}

impl ReplayArgs {
    /// The trace or the log.
    pub(crate) fn traffic(&self) -> &Path {
        // The group requires one of them.
        self.traffic.path().unwrap_or(Path::new("-"))
    }

    /// The files of `--against`.
    pub(crate) fn candidate(&self) -> Option<LimitFiles> {
        let limits = self.against.clone()?;
        let overrides = self.against_overrides.clone();
        Some(LimitFiles { limits, overrides, allow_reserved: self.files.allow_reserved })
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        let candidate = self.candidate();
        let candidate = candidate.as_ref().map(LimitFiles::paths).unwrap_or_default();
        let others = [self.files.paths(), candidate].concat();
        self.traffic.check("replay", &others)?;
        let outputs = [("--decisions", &self.decisions), ("--report", &self.report)];
        let outputs = outputs.map(|(name, path)| (name, path.as_deref()));
        if let [(_, Some(decisions)), (_, Some(report))] = outputs
            && (decisions == report || is_same_file(decisions, report))
        {
            let name = match is_standard(report) {
                true => "standard output".to_owned(),
                false => crate::input::name(report),
            };
            let text = format!(
                "--decisions and --report are both {}: one of them is allowed",
                Escaped(&name)
            );
            return Err(conflict("replay", text));
        }
        for (name, output) in outputs {
            let Some(output) = output.filter(|path| !is_standard(path)) else { continue };
            let mut inputs = others.iter().copied().chain([self.traffic()]);
            if inputs.any(|input| is_same_file(input, output)) {
                let output = crate::input::name(output);
                let text = format!("{name} {} would replace an input file", Escaped(&output));
                return Err(conflict("replay", text));
            }
        }
        Ok(())
    }

    /// Whether standard output is taken by something else than the summary.
    pub(crate) fn is_output_taken(&self) -> bool {
        [&self.decisions, &self.report].into_iter().flatten().any(|path| is_standard(path))
    }
}

fn conflict(subcommand: &str, text: String) -> Failure {
    let mut command = Args::command();
    // Built, so that the usage of the subcommand has its whole name.
    command.build();
    let error = match command.find_subcommand_mut(subcommand) {
        Some(subcommand) => subcommand.error(ErrorKind::ArgumentConflict, text),
        None => command.error(ErrorKind::ArgumentConflict, text),
    };
    Failure::Arguments(error)
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    // A device such as /dev/null may well be both.
    let canonical = |path: &Path| path.canonicalize().ok().filter(|path| path.is_file());
    canonical(a).is_some_and(|a| canonical(b) == Some(a))
}

fn rule(text: &str) -> Result<Rule, String> {
    let (limit, field) = text.split_once('=').ok_or("LIMIT=FIELD is allowed")?;
    if limit.is_empty() {
        return Err("no limit: LIMIT=FIELD is allowed".into());
    }
    let known = Field::ALL.iter().find(|(name, _)| *name == field);
    let (_, field) = known.ok_or_else(|| {
        let names = Field::ALL.map(|(name, _)| name).join(", ");
        format!("unknown field {}: one of {names} is allowed", quoted(field, MAX_FIELD_CHARS))
    })?;
    Ok(Rule { limit: limit.to_owned(), field: *field })
}

fn start_of_day(text: &str) -> Result<SystemTime, String> {
    let date: jiff::civil::Date = text.parse().map_err(|error| format!("{error}"))?;
    let start = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|error| format!("{error}"))?;
    Ok(start.timestamp().into())
}

/// Characters of a field that are shown.
const MAX_FIELD_CHARS: usize = 64;

const UNITS_NS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// Reads a duration as Go writes it, in whole numbers: `1m30s`.
fn duration_ns(text: &str) -> Result<u64, String> {
    let fault = || "whole numbers with a unit are allowed, such as 90s, 1m30s or 250ms".to_owned();
    if text == "0" {
        return Ok(0);
    }
    let mut total_ns = 0_u64;
    let mut rest = text;
    loop {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
        let (digits, after) = rest.split_at(unit_at);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let (_, unit_ns) = UNITS_NS.iter().find(|(name, _)| *name == unit).ok_or_else(fault)?;
        if digits.is_empty() {
            return Err(fault());
        }
        let part_ns = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit_ns));
        total_ns = part_ns
            .and_then(|part_ns| total_ns.checked_add(part_ns))
            .ok_or_else(|| format!("too long: at most {} ns are allowed", u64::MAX))?;
        if after.is_empty() {
            return Ok(total_ns);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_are_gos_in_whole_numbers() {
        assert_eq!(duration_ns("60s"), Ok(60_000_000_000));
        assert_eq!(duration_ns("1h1m1s1ms1us1ns"), Ok(3_661_001_001_001));
        assert_eq!(duration_ns("0"), Ok(0));
        assert_eq!(duration_ns("0s"), Ok(0));
        for bad in ["", "60", "s", "1.5s", "-1s", "1 s", "1d", "1s1", "99999999999h", "\u{661}s"] {
            assert!(duration_ns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rule_is_a_limit_and_a_field() {
        let expected = Rule { limit: "A".into(), field: Field::UserAgent };
        assert_eq!(rule("A=user_agent"), Ok(expected));
        for bad in ["A", "=client", "A=", "A=Client", "A=a=client"] {
            assert!(rule(bad).is_err(), "{bad}");
        }
    }
}
