//! The command `tollgate`: tries limits before they are trusted.
//!
//! Exit status: 0 all well; 1 the input was wrong; 2 wrong arguments.

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
        Ok(Outcome::Well) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Ok(Outcome::LinesFailed) => ExitCode::from(WRONG_INPUT),
        Ok(Outcome::Differs) => ExitCode::from(DIFFERS),
        Err(Failure::Input(text)) => {
            // There is nowhere to report that standard error is gone.
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(WRONG_INPUT)
        }
        Err(Failure::Arguments(error)) => error.exit(),
    }
}

const WRONG_INPUT: u8 = 1;
/// As of `git diff --exit-code`.
const DIFFERS: u8 = 1;

/// How a run ended that got to the end of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Outcome {
    Well,
    /// Some lines of a trace failed; each was reported when it was read.
    LinesFailed,
    /// A diff found differences, and was asked to say so by its status.
    Differs,
}

/// Why a run stopped.
#[derive(Debug)]
enum Failure {
    /// Files that cannot be read or written or are wrong: the text has a line for every fault.
    Input(String),
    Arguments(clap::Error),
    /// The reader of the results has seen enough, as `head` has.
    BrokenPipe,
}
