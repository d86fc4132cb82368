//! `tollgate validate`: are the files good?

use tollgate::Limits;

use crate::args::{LimitFiles, ValidateArgs};
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

/// Reads the limits; a failure has every fault.
pub(crate) fn load(files: &LimitFiles) -> Result<Limits, Failure> {
    Limits::from_yaml_files(&files.limits, files.overrides.as_deref())
        .map_err(|error| Failure::Input(error.to_string()))
}
