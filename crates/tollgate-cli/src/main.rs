//! The command `tollgate`: checks limits and tries them on recorded traffic.
//!
//! Exit statuses follow grep and diff: 0 done and nothing found, 1 done and something found, 2 not done.

mod about;
mod access_log;
mod args;
mod candidate;
mod carry_over;
mod client;
mod comparison;
mod diff;
mod diff_text;
mod engine;
mod escape;
mod explain;
mod fields;
mod input;
mod json;
mod json_log;
mod late;
mod log_line;
#[cfg(feature = "valkey")]
mod nodes;
mod output;
mod reorder;
mod replay;
mod replay_log;
mod replay_trace;
mod report;
mod rules;
mod side;
mod skipped;
mod summary;
mod tally;
mod text;
mod trace;
mod validate;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

fn main() -> ExitCode {
    let result =
        Args::try_parse().map_err(Failure::Arguments).and_then(|args| match args.command {
            Command::Validate(args) => args.check().and_then(|()| validate::run(&args)),
            Command::Diff(args) => args.check().and_then(|()| diff::run(&args)),
            Command::Explain(args) => args.check().and_then(|()| explain::run(&args)),
            Command::Replay(args) => args.check().and_then(|()| replay::run(&args)),
            Command::Completions(args) => about::completions(&args),
            Command::Man(args) => about::man(&args),
        });
    // If standard error is closed, there is no place to report that.
    let _ = match result {
        Ok(Outcome::NothingFound) => return ExitCode::SUCCESS,
        Ok(Outcome::Found) => return ExitCode::from(FOUND),
        // Help and version go to standard output, with status 0.
        Err(Failure::Arguments(error)) if !error.use_stderr() => error.exit(),
        Err(Failure::Arguments(error)) => output::print_styled(&about::argument_error(error)),
        Err(Failure::NotDone(text)) => {
            let _ = output::print_messages(&(text + "\n"));
            Ok(())
        }
    };
    ExitCode::from(NOT_DONE)
}

const FOUND: u8 = 1;
const NOT_DONE: u8 = 2;

/// The outcome of a run that got to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Outcome {
    NothingFound,
    /// `validate` found faults, lines of a trace had errors, or `diff --exit-code` found differences. The
    /// run has already reported each of them.
    Found,
}

/// The reason why a run did not get to its end.
#[derive(Debug)]
enum Failure {
    /// A file cannot be read or written, limits have faults, or a name or an id does not exist. The text has
    /// one escaped line for each fault.
    NotDone(String),
    Arguments(clap::Error),
}
