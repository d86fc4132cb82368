//! `tollgate validate`: checks limits files.

use std::path::Path;

use serde::Serialize;
use tollgate::error::ConfigFault;
use tollgate::limits::{Loader, Warning};
use tollgate::{Error, Limiter, LimiterOptions, Limits};

use crate::args::{LimitFiles, ValidateArgs, is_standard};
use crate::escape::shortened;
use crate::output::{Destination, print, print_messages, to_json};
use crate::text::{counted, grouped};
use crate::{Failure, Outcome};

/// Characters of a warning that are printed. An id in it may have 1024.
const MAX_WARNING_CHARS: usize = 4096;

pub(crate) fn run(args: &ValidateArgs) -> Result<Outcome, Failure> {
    let limits = match read(&args.files()) {
        Ok(limits) => limits,
        // If a file could not be read, its faults are not known.
        Err(error) if error.is_io() => return Err(Failure::NotDone(error.to_string())),
        Err(error) => {
            print_messages(&format!("{error}\n"))?;
            if args.json {
                let faults = error.faults().iter().map(Message::from_fault).collect();
                print(Destination::Stdout, &to_json(&Invalid { valid: false, faults }))?;
            }
            return Ok(Outcome::Found);
        }
    };
    let warnings = limits.warnings(args.today.now());
    let refused = refused_by_default(&limits);
    let (names, overrides) = (limits.names().count() as u64, limits.overrides() as u64);
    if args.json {
        let valid = Valid {
            valid: true,
            limits: names,
            overrides,
            warnings: refused
                .as_deref()
                .map(Message::from_refusal)
                .into_iter()
                .chain(warnings.iter().map(Message::from_warning))
                .collect(),
            more_warnings: Some(warnings.more).filter(|more| *more > 0),
        };
        print(Destination::Stdout, &to_json(&valid))?;
        return Ok(Outcome::NothingFound);
    }
    let line =
        |warning: String| shortened(&format!("warning: {warning}"), MAX_WARNING_CHARS) + "\n";
    let listed = warnings.iter().map(Warning::to_string);
    let mut lines: String = refused.into_iter().chain(listed).map(line).collect();
    if warnings.more > 0 {
        lines += &format!("warning: and {} more\n", grouped(warnings.more));
    }
    print_messages(&lines)?;
    let text = format!("ok: {}, {}\n", counted(names, "limit"), counted(overrides, "override"));
    print(Destination::Stdout, &text)?;
    Ok(Outcome::NothingFound)
}

/// Returns why a limiter with default options refuses the limits, such as `max_keys` that are more than it has. A program may set more.
fn refused_by_default(limits: &Limits) -> Option<String> {
    let error = Limiter::with_options(limits.clone(), LimiterOptions::default()).err()?;
    Some(format!(
        "a limiter with default options refuses these limits, and Limiter::new panics: {error}"
    ))
}

/// The JSON for valid files, with its fields in order.
#[derive(Serialize)]
struct Valid<'a> {
    valid: bool,
    limits: u64,
    overrides: u64,
    warnings: Vec<Message<'a>>,
    /// The number of warnings that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_warnings: Option<u64>,
}

/// The JSON for files with faults, with its fields in order.
#[derive(Serialize)]
struct Invalid<'a> {
    valid: bool,
    faults: Vec<Message<'a>>,
}

/// The JSON for a warning or a fault, with its fields in order. A fault has no kind, limit and id, the refusal by a limiter with default
/// options no limit and id.
#[derive(Serialize)]
struct Message<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    file: Option<&'a str>,
    line: Option<u64>,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    message: &'a str,
}

impl<'a> Message<'a> {
    fn from_fault(fault: &'a ConfigFault) -> Message<'a> {
        let ConfigFault { file, line, path, message, .. } = fault;
        Message { kind: None, file: Some(file), line: *line, path, limit: None, id: None, message }
    }

    fn from_refusal(message: &'a str) -> Message<'a> {
        let kind = Some("max-keys".to_owned());
        Message { kind, file: None, line: None, path: "", limit: None, id: None, message }
    }

    fn from_warning(warning: &'a Warning) -> Message<'a> {
        let location = warning.location.as_ref();
        Message {
            kind: Some(warning.kind.to_string()),
            file: location.map(|location| &*location.file),
            line: location.map(|location| location.line.into()),
            path: &warning.path,
            limit: Some(&warning.limit),
            id: Some(&warning.id),
            message: &warning.message,
        }
    }
}

/// Reads the limits. The failure lists every fault.
pub(crate) fn load(files: &LimitFiles) -> Result<Limits, Failure> {
    read(files).map_err(|error| Failure::NotDone(error.to_string()))
}

fn read(files: &LimitFiles) -> Result<Limits, Error> {
    let path = |path| if is_standard(path) { Path::new("/dev/stdin") } else { path };
    let overrides = files.overrides.as_deref().map(path);
    Loader::new().allow_reserved(files.allow_reserved).files(path(&files.limits), overrides)
}
