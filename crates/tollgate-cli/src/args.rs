//! The command's arguments.

mod traffic;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::error::ErrorKind;
use clap::{ArgGroup, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::Failure;
use crate::carry_over::CarryOver;
use crate::escape::Escaped;

pub(crate) use traffic::Traffic;

/// Formats the exit statuses for the help.
macro_rules! statuses {
    ($nothing_found:literal, $found:literal, $not_done:literal $(,)?) => {
        concat!("Exit status:\n  0  ", $nothing_found, "\n  1  ", $found, "\n  2  ", $not_done)
    };
}

/// Checks rate limits, and tries them on recorded traffic before they limit live traffic.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = statuses!(
    "done, and nothing was found",
    "done, and something was found: faults, differences, lines of a trace with errors, or a log of which less than half could be read, or all of it was skipped",
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
        "the files have no faults; there may be warnings",
        "the files have faults",
        "not done: a file cannot be read, or an argument is wrong",
    ))]
    Validate(ValidateArgs),
    /// Replays a trace or an access log against limits and counts the denials
    #[command(after_help = statuses!(
        "replayed; a log may be empty or have skipped lines, and denials are a result",
        "replayed, and lines of the trace had errors, less than half of the log could be read, or all of it was skipped, or --against skips lines that --limits decides",
        "not done: a file cannot be read or written, limits have faults, or an argument is wrong",
    ), override_usage = "\
tollgate replay [OPTIONS] --limits <FILE> --trace <FILE>
       tollgate replay [OPTIONS] --limits <FILE> --log <FILE> --rule <LIMIT=FIELD[,WORD=VALUE]>...")]
    Replay(ReplayArgs),
    /// Shows which entry applies to an id, what its bucket holds, and why other entries do not apply
    #[command(after_help = statuses!(
        "explained",
        "explained, and lines of the trace that was replayed first had errors, less than half of the log could be read, or all of it was skipped",
        "not done: a file cannot be read, limits have faults, or an argument is wrong",
    ), override_usage = "\
tollgate explain [OPTIONS] --limits <FILE> <LIMIT> <ID>
       tollgate explain [OPTIONS] --limits <FILE> <LIMIT> <ID> --trace <FILE>
       tollgate explain [OPTIONS] --limits <FILE> <LIMIT> <ID> --log <FILE> --rule <LIMIT=FIELD[,WORD=VALUE]>...")]
    Explain(ExplainArgs),
    /// Lists what changes between two sets of limits, for which ids, and for live buckets
    #[command(after_help = statuses!(
        "compared; with --exit-code also: there are no differences",
        "compared with --exit-code, and there are differences",
        "not done: a file cannot be read, limits have faults, or an argument is wrong",
    ))]
    Diff(DiffArgs),
    /// Prints the script by which a shell completes the arguments
    #[command(after_help = statuses!(
        "printed",
        "does not occur",
        "not done: standard output cannot be written, or an argument is wrong",
    ))]
    Completions(CompletionsArgs),
    /// Prints a manual page, for `man`
    #[command(after_help = statuses!(
        "printed",
        "does not occur",
        "not done: standard output cannot be written, or an argument is wrong",
    ))]
    Man(ManArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The subcommand that the page is of [default: the command itself]
    #[arg(value_parser = ["validate", "replay", "explain", "diff", "completions", "man"])]
    pub(crate) subcommand: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LimitFiles {
    /// Limits in YAML; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: PathBuf,
    /// Overrides in YAML; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) overrides: Option<PathBuf>,
    /// Accept private, reserved and documentation addresses in overrides of Boulder's limits, in all files
    #[arg(long)]
    pub(crate) allow_reserved: bool,
}

/// The date that decides which overrides have expired. The dates of the traffic do not matter.
#[derive(Debug, clap::Args)]
pub(crate) struct Today {
    /// The date, in UTC, that decides which overrides have expired [default: today]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = start_of_day)]
    today: Option<SystemTime>,
}

impl Today {
    pub(crate) fn now(&self) -> SystemTime {
        self.today.unwrap_or_else(SystemTime::now)
    }
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("limits_file").required(true).args(["file", "limits"]))]
pub(crate) struct ValidateArgs {
    /// Limits in YAML; `-` is standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Limits in YAML, named as for the other subcommands; `-` is standard input
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Overrides in YAML; `-` is standard input
    #[arg(long, value_name = "FILE")]
    overrides: Option<PathBuf>,
    /// Accept private, reserved and documentation addresses in overrides of Boulder's limits, in all files
    #[arg(long)]
    allow_reserved: bool,
    #[command(flatten)]
    pub(crate) today: Today,
    /// Print one JSON object: the counts and the warnings, or every fault
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("traffic").required(true).args(["trace", "log"]))]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) files: LimitFiles,
    /// Candidate limits in YAML: also show which lines they would decide differently from --limits; `-` is
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Overrides of the candidate limits in YAML; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "against")]
    pub(crate) against_overrides: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
    /// Also simulate this number of nodes, 1 to 64, on the log, with a store in memory: how much they admit above the
    /// limits, and how often they ask the store
    #[arg(
        long,
        value_name = "NODES",
        value_parser = clap::value_parser!(u8).range(1..=64),
        requires = "log",
        conflicts_with = "trace"
    )]
    pub(crate) nodes: Option<u8>,
    /// The way in which the nodes share each limit, whatever its file says [default: all ways, side by side]
    #[arg(long, value_name = "WAY", value_enum, requires = "nodes")]
    pub(crate) shared: Option<SharedWay>,
    /// How requests are spread over the nodes [default: turn]
    #[arg(long, value_name = "SPREAD", value_enum, requires = "nodes")]
    pub(crate) spread: Option<Spread>,
    /// Write one JSON object for each decision; with `-`, to standard output, and the summary to standard
    /// error
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// Write an HTML page with charts and tables; with `-`, to standard output, and the summary to standard
    /// error
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
    /// The name of the limit
    pub(crate) limit: String,
    /// An id in the format of the limit
    pub(crate) id: String,
    /// The units that the call spends
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    pub(crate) cost: u64,
    /// The traffic that the command replays first. Without traffic, the bucket is full.
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
    /// The old limits in YAML; `-` is standard input
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The new limits in YAML; `-` is standard input
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Overrides of the old limits
    #[arg(long, value_name = "FILE")]
    old_overrides: Option<PathBuf>,
    /// Overrides of the new limits
    #[arg(long, value_name = "FILE")]
    new_overrides: Option<PathBuf>,
    /// The part of a bucket's used units that a reload carries over
    #[arg(long, value_name = "RULE", value_enum, default_value_t = CarryOver::Share)]
    pub(crate) debt: CarryOver,
    /// Show all overrides that change, not only the first 20 of each limit
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit with 1 if there are differences
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Accept private, reserved and documentation addresses in overrides of Boulder's limits, in all files
    #[arg(long)]
    allow_reserved: bool,
    #[command(flatten)]
    pub(crate) today: Today,
    /// Print the differences as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A way to share limits between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SharedWay {
    /// Each node has its own buckets
    Local,
    /// Nodes take units ahead from the buckets in the store
    Leased,
    /// The store decides each call
    Exact,
}

/// The rule by which requests go to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spread {
    /// Each request goes to the next node
    Turn,
    /// All requests of a client go to one node
    Client,
}

/// Returns whether a path is `-`, which means standard input or output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

impl LimitFiles {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&*self.limits).chain(self.overrides.as_deref())
    }
}

// Each `check` is for conflicts that clap cannot express.

impl ValidateArgs {
    /// Returns the files. The group `limits_file` requires one with limits.
    pub(crate) fn files(&self) -> LimitFiles {
        let limits = self.file.as_ref().or(self.limits.as_ref());
        LimitFiles {
            limits: limits.cloned().unwrap_or_else(|| "-".into()),
            overrides: self.overrides.clone(),
            allow_reserved: self.allow_reserved,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        check_standard_input("validate", self.files().paths())
    }
}

impl DiffArgs {
    pub(crate) fn old_files(&self) -> LimitFiles {
        self.files(&self.old, self.old_overrides.as_ref())
    }

    pub(crate) fn new_files(&self) -> LimitFiles {
        self.files(&self.new, self.new_overrides.as_ref())
    }

    fn files(&self, limits: &Path, overrides: Option<&PathBuf>) -> LimitFiles {
        LimitFiles {
            limits: limits.to_owned(),
            overrides: overrides.cloned(),
            allow_reserved: self.allow_reserved,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        let (old, new) = (self.old_files(), self.new_files());
        check_standard_input("diff", old.paths().chain(new.paths()))
    }
}

impl ExplainArgs {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check_standard_input("explain", self.files.paths().chain(self.traffic.path()))?;
        self.traffic.check("explain")
    }
}

impl ReplayArgs {
    /// Returns the file of the trace or of the log. The group `traffic` requires one of them.
    pub(crate) fn traffic(&self) -> &Path {
        self.traffic.path().unwrap_or(Path::new("-"))
    }

    /// Returns the limits of `--against`.
    pub(crate) fn candidate(&self) -> Option<LimitFiles> {
        let limits = self.against.clone()?;
        let overrides = self.against_overrides.clone();
        Some(LimitFiles { limits, overrides, allow_reserved: self.files.allow_reserved })
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        let candidate = self.candidate();
        let candidate = candidate.iter().flat_map(LimitFiles::paths);
        let inputs: Vec<&Path> =
            self.files.paths().chain(candidate).chain([self.traffic()]).collect();
        check_standard_input("replay", inputs.iter().copied())?;
        self.traffic.check("replay")?;
        let fault = |text| Err(conflict("replay", text));
        if self.nodes.is_some() && cfg!(not(feature = "valkey")) {
            return fault(
                "--nodes needs the feature `valkey`, and this command was built without it".into(),
            );
        }
        if let (Some(decisions), Some(report)) = (&self.decisions, &self.report)
            && (decisions == report
                || is_same_file(decisions, report)
                || is_same_place(decisions, report))
        {
            let report = match is_standard(report) {
                true => "standard output".to_owned(),
                false => report.display().to_string(),
            };
            return fault(format!(
                "--decisions and --report are both {}: one of them is allowed",
                Escaped(&report)
            ));
        }
        for (name, output) in [("--decisions", &self.decisions), ("--report", &self.report)] {
            let Some(output) = output.as_ref().filter(|path| !is_standard(path)) else { continue };
            if inputs.iter().any(|input| is_same_file(input, output)) {
                let output = output.display().to_string();
                return fault(format!("{name} {} would replace an input file", Escaped(&output)));
            }
        }
        Ok(())
    }

    /// Returns whether decisions or the report go to standard output. The summary then goes to standard error.
    pub(crate) fn is_output_taken(&self) -> bool {
        [&self.decisions, &self.report].into_iter().flatten().any(|path| is_standard(path))
    }
}

fn check_standard_input<'a>(
    subcommand: &str,
    inputs: impl Iterator<Item = &'a Path>,
) -> Result<(), Failure> {
    match inputs.filter(|path| is_standard(path)).count() {
        0 | 1 => Ok(()),
        _ => Err(conflict(
            subcommand,
            "standard input, `-`, is given for two files: one is allowed".into(),
        )),
    }
}

fn conflict(subcommand: &str, text: String) -> Failure {
    let mut command = Args::command();
    // Without `build`, the usage has the subcommand's name without `tollgate` before it.
    command.build();
    let command = command.find_subcommand_mut(subcommand).expect("the subcommand exists");
    Failure::Arguments(command.error(ErrorKind::ArgumentConflict, text))
}

/// Returns whether two paths are of one file that exists. `-` is no file.
fn is_same_file(a: &Path, b: &Path) -> bool {
    // Only regular files count: a device such as /dev/null may be input and output at once.
    let canonical = |path: &Path| {
        let path = (!is_standard(path)).then(|| path.canonicalize().ok());
        path.flatten().filter(|path| path.is_file())
    };
    canonical(a).is_some_and(|a| canonical(b) == Some(a))
}

/// Returns whether two paths have the same name in the same folder. The file may be one that the run creates.
fn is_same_place(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        let name = path.file_name().filter(|_| !is_standard(path))?.to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some((folder.unwrap_or(Path::new(".")).canonicalize().ok()?, name))
    };
    place(a).is_some_and(|a| place(b) == Some(a))
}

fn start_of_day(text: &str) -> Result<SystemTime, String> {
    let date: jiff::civil::Date = text.parse().map_err(|error| format!("{error}"))?;
    let start = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|error| format!("{error}"))?;
    Ok(start.timestamp().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
