//! The command `tollgate`: tries limits before they are trusted.
//!
//! Exit status, as of grep and diff: 0 done and nothing found, 1 done and something found, 2 not done.

mod access_log;
mod against;
mod args;
mod client;
mod comparison;
mod debt;
mod diff;
mod diff_text;
mod engine;
mod escape;
mod explain;
mod input;
mod json;
mod numbers;
mod output;
mod progress;
mod reorder;
mod replay;
mod replay_log;
mod replay_trace;
mod report;
mod side;
mod summary;
mod tally;
mod text;
mod trace;
mod validate;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use text::Escaped;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    let done = match args.command {
        Command::Validate(args) => args.check().and_then(|()| validate::run(&args)),
        Command::Diff(args) => args.check().and_then(|()| diff::run(&args)),
        Command::Explain(args) => args.check().and_then(|()| explain::run(&args)),
        Command::Replay(args) => args.check().and_then(|()| replay::run(&args)),
    };
    match done {
        Ok(Outcome::NothingFound) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(FOUND),
        Err(Failure::NotDone(text)) => {
            // There is nowhere to report that standard error is gone.
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(NOT_DONE)
        }
        Err(Failure::Arguments(error)) => refuse(&error),
    }
}

/// Says what is wrong with the arguments, which may be names of files; or prints the help, if that is asked for.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.render().to_string();
    let lines: String = text.lines().map(|line| format!("{}\n", Escaped(line))).collect();
    // There is nowhere to report that standard error is gone.
    let _ = std::io::stderr().write_all(lines.as_bytes());
    ExitCode::from(NOT_DONE)
}

const FOUND: u8 = 1;
const NOT_DONE: u8 = 2;

/// How a run ended that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Outcome {
    NothingFound,
    /// Faults in the files that `validate` was given, lines of a trace with errors, or differences that
    /// `diff --exit-code` tells of. Each was reported when it was found.
    Found,
}

/// Why a run was not done.
#[derive(Debug)]
enum Failure {
    /// Files that cannot be read or written, limits with faults, and names and ids that do not exist: the
    /// text has a line for every fault, each escaped.
    NotDone(String),
    Arguments(clap::Error),
    /// The reader of the results has seen enough, as `head` has.
    BrokenPipe,
}
