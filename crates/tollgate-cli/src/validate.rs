//! `tollgate validate`: are the files good?

use std::path::Path;

use serde::Serialize;
use tollgate::error::ConfigFault;
use tollgate::limits::{Warning, YamlLoader};
use tollgate::{Error, Limits};

use crate::args::{LimitFiles, ValidateArgs, is_standard};
use crate::output::{Destination, print, to_json};
use crate::text::{counted, grouped, shortened};
use crate::{Failure, Outcome};

/// Characters of a warning that are shown: an id may be as long as 1024.
const MAX_SHOWN_CHARS: usize = 4096;

pub(crate) fn run(args: &ValidateArgs) -> Result<Outcome, Failure> {
    let limits = match read(&args.files) {
        Ok(limits) => limits,
        // Faults were looked for, and these are they: unless a file was not looked at.
        Err(error) if !error.is_io() => {
            print(Destination::Stderr, &format!("{error}\n"))?;
            if args.json {
                let faults = error.faults().iter().map(FaultJson::from).collect();
                print(Destination::Stdout, &to_json(&Refused { valid: false, faults }))?;
            }
            return Ok(Outcome::Found);
        }
        Err(error) => return Err(Failure::NotDone(error.to_string())),
    };
    let warnings = limits.warnings(args.today.now());
    let (names, overrides) = (limits.names().count() as u64, limits.overrides() as u64);
    if args.json {
        let more_warnings = warnings.more;
        let warnings = warnings.iter().map(WarningJson::of).collect();
        let found = Found { valid: true, limits: names, overrides, warnings, more_warnings };
        print(Destination::Stdout, &to_json(&found))?;
        return Ok(Outcome::NothingFound);
    }
    let line =
        |warning: &Warning| shortened(&format!("warning: {warning}"), MAX_SHOWN_CHARS) + "\n";
    let mut lines: String = warnings.iter().map(line).collect();
    if warnings.more > 0 {
        lines += &format!("warning: and {} more\n", grouped(warnings.more));
    }
    print(Destination::Stderr, &lines)?;
    let text = format!("ok: {}, {}\n", counted(names, "limit"), counted(overrides, "override"));
    print(Destination::Stdout, &text)?;
    Ok(Outcome::NothingFound)
}

/// What is in the files. Its field order is that of the JSON.
#[derive(Serialize)]
struct Found {
    valid: bool,
    limits: u64,
    overrides: u64,
    warnings: Vec<WarningJson>,
    /// Those that are not listed.
    #[serde(skip_serializing_if = "is_none")]
    more_warnings: u64,
}

/// What is wrong with the files. Its field order is that of the JSON.
#[derive(Serialize)]
struct Refused {
    valid: bool,
    faults: Vec<FaultJson>,
}

#[derive(Serialize)]
struct FaultJson {
    file: String,
    line: Option<u64>,
    path: String,
    message: String,
}

impl From<&ConfigFault> for FaultJson {
    fn from(fault: &ConfigFault) -> FaultJson {
        let ConfigFault { file, line, path, message, .. } = fault.clone();
        FaultJson { file, line, path, message }
    }
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

#[derive(Serialize)]
struct WarningJson {
    kind: String,
    file: Option<String>,
    line: Option<u32>,
    path: String,
    limit: String,
    id: String,
    message: String,
}

impl WarningJson {
    fn of(warning: &Warning) -> WarningJson {
        WarningJson {
            kind: warning.kind.to_string(),
            file: warning.location.as_ref().map(|location| location.file.clone()),
            line: warning.location.as_ref().map(|location| location.line),
            path: warning.path.clone(),
            limit: warning.limit.clone(),
            id: warning.id.clone(),
            message: warning.message.clone(),
        }
    }
}

/// What the system has for `-`.
fn standard_input_as_file(path: &Path) -> &Path {
    if is_standard(path) { Path::new("/dev/stdin") } else { path }
}

/// Reads the limits; a failure has every fault.
pub(crate) fn load(files: &LimitFiles) -> Result<Limits, Failure> {
    read(files).map_err(|error| Failure::NotDone(error.to_string()))
}

fn read(files: &LimitFiles) -> Result<Limits, Error> {
    let limits = standard_input_as_file(&files.limits);
    let overrides = files.overrides.as_deref().map(standard_input_as_file);
    YamlLoader::new().allow_reserved(files.allow_reserved).files(limits, overrides)
}
