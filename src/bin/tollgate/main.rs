//! The command `tollgate`: tries limits before they are trusted.
//!
//! Exit status, as of grep and diff: 0 done and nothing found, 1 done and something found, 2 not done.

mod access_log;
mod against;
mod args;
mod comparison;
mod debt;
mod diff;
mod diff_text;
mod engine;
mod explain;
mod input;
mod numbers;
mod output;
mod progress;
mod reorder;
mod replay;
mod replay_log;
mod replay_trace;
mod report;
#[path = "../../shown.rs"]
mod shown;
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

fn main() -> ExitCode {
    let done = match Args::parse().command {
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
        // The same status: clap has it for wrong arguments.
        Err(Failure::Arguments(error)) => error.exit(),
    }
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
