//! Describes the command's own arguments: errors, completions for shells, manual pages.

use std::env;

use clap::{CommandFactory, Parser};
use clap_mangen::Man;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::escape::Escaped;
use crate::output::{Destination, print};
use crate::{Failure, Outcome};

/// Formats an error about the arguments, with styles, and with escapes in place of invisible characters.
pub(crate) fn argument_error(error: clap::Error) -> String {
    // Escapes in the rendered error would also replace its styles. So the error is made again, of escaped arguments.
    let args = env::args_os().map(|arg| Escaped(&arg.to_string_lossy()).to_string());
    match Args::try_parse_from(args) {
        Err(again) if again.kind() == error.kind() => again.render().ansi().to_string(),
        // A conflict that `check` has found, whose text is escaped.
        Ok(_) if Args::try_parse().is_ok() => error.render().ansi().to_string(),
        _ => {
            let text = error.render().to_string();
            text.lines().map(|line| format!("{}\n", Escaped(line))).collect()
        }
    }
}

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "tollgate", &mut script);
    print(Destination::Stdout, &String::from_utf8_lossy(&script))?;
    Ok(Outcome::NothingFound)
}

/// Prints a manual page.
pub(crate) fn man(args: &ManArgs) -> Result<Outcome, Failure> {
    // The subcommand `help` has no page, so the page of the command must not name one.
    let mut command = Args::command().disable_help_subcommand(true);
    // This gives subcommands their whole names.
    command.build();
    let command = match &args.subcommand {
        Some(name) => {
            command.find_subcommand(name).expect("the argument is one of the names").clone()
        }
        None => command,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).expect("memory can be written");
    print(Destination::Stdout, &String::from_utf8_lossy(&page))?;
    Ok(Outcome::NothingFound)
}
