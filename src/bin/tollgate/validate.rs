//! `tollgate validate`: are the files good?

use std::path::Path;

use tollgate::Limits;

use crate::args::{LimitFiles, ValidateArgs, is_standard};
use crate::output::{Destination, print};
use crate::text::counted;
use crate::{Failure, Outcome};

pub(crate) fn run(args: &ValidateArgs) -> Result<Outcome, Failure> {
    let limits = load(&args.files)?;
    let (names, overrides) = (limits.names().count() as u64, limits.overrides() as u64);
    let text = if args.json {
        format!("{{\"limits\":{names},\"overrides\":{overrides}}}\n")
    } else {
        format!("ok: {}, {}\n", counted(names, "limit"), counted(overrides, "override"))
    };
    print(Destination::Stdout, &text)?;
    Ok(Outcome::Well)
}

/// What the system has for `-`.
fn standard_input_as_file(path: &Path) -> &Path {
    if is_standard(path) { Path::new("/dev/stdin") } else { path }
}

/// Reads the limits; a failure has every fault.
pub(crate) fn load(files: &LimitFiles) -> Result<Limits, Failure> {
    let limits = standard_input_as_file(&files.limits);
    let overrides = files.overrides.as_deref().map(standard_input_as_file);
    Limits::from_yaml_files(limits, overrides).map_err(|error| Failure::Input(error.to_string()))
}
