//! Reads limits from YAML: defaults, and overrides in the three forms that Boulder's versions have.

mod events;
#[cfg(feature = "watch")]
mod file_copy;
mod loader;
mod source;

use std::path::Path;

use crate::error::{ConfigFault, Error};
use crate::limits::read::{File, Names, Role, walk};
use crate::limits::{Limits, LimitsBuilder, Loader};

use events::Events;
#[cfg(feature = "watch")]
pub(crate) use file_copy::{FileCopy, Identity};
use source::Source;

/// # Limits from YAML
///
/// A file has defaults, overrides, or both. It is a map of the entries below, or a list of maps:
///
/// ```yaml
/// NewOrdersPerAccount: {burst: 300, count: 300, period: 180m}          # a default
/// RequestsPerClient: {burst: 20, count: 10, period: 1s, id: ipAddress} # a default of a custom limit
/// NewOrdersPerAccount:12345678: {burst: 300, count: 600, period: 180m} # an override of one id
/// CertificatesPerDomain:                                               # an override of two ids
///   burst: 40
///   count: 40
///   period: 1s
///   ids:
///     - example.com
///     - id: example.org
///       comment: a customer
/// ```
///
/// `burst` and `count` are whole numbers from 1; `period` is Go's duration text, such as `60s` or `1h30m`. A default may
/// name another `algorithm` than `gcra`, with the parameters of that constructor of [`Limit`](crate::Limit). Overrides
/// have the parameters of their limit's algorithm:
///
/// ```yaml
/// SearchPerUser: {algorithm: fixed_window, limit: 10, window: 60s, id: string}
/// ApiPerKey: {algorithm: token_bucket, limit: 15, window: 60s, burst: 3, id: string}
/// NotesPerUser: {algorithm: leaky_bucket, size: 10, drip_rate: 250ms, drip_size: 1, id: string}
/// LegacyPerUser: {algorithm: leaky_bucket, max: 10, duration: 5s, min_interval: 1s, id: string}
/// SearchPerUser:alice: {limit: 100, window: 60s}
/// ```
///
/// `drip_rate` and `drip_size` default to 1 s and 1. `enabled: false` in a default switches the limit off for all ids,
/// also for those with overrides; the parameters may then be omitted.
///
/// A default may also have a [`mode`](crate::limits::LimitMode), `enforce` or `shadow`; if it is enforced, a `shadow`
/// limit, which only counts the calls that it would deny; a `max_debt`, the units that a bucket may owe beyond its
/// burst; [`max_keys`](crate::limits::LimitOptions::max_keys), its own part of the limiter's; and
/// [`floors`](crate::docs::limits_files#floors), the units that calls with a priority leave. An override may have its own `max_debt`, a `comment`, an `owner`, and a day on which it `expires`: it applies
/// through the end of that day, UTC. In a list, an id may have its own comment, owner and day, which take precedence
/// over the list's. `unlimited: true` in place of the parameters [lifts the
/// limit](crate::docs::limits_files#no-limit-for-an-id) for the override's ids. Under `ipAddress` an id may be a
/// [network](crate::docs::limits_files#networks):
///
/// ```yaml
/// PerUser: {burst: 20, count: 10, period: 1s, id: string, shadow: {burst: 10, count: 10, period: 1s}}
/// PerAddress: {burst: 20, count: 10, period: 1s, id: ipAddress, mode: shadow, max_debt: 40}
/// PerUser:alice: {burst: 200, count: 100, period: 1s, owner: sales, expires: 2026-12-31}
/// PerUser:probe: {unlimited: true, comment: our own checks}
/// PerAddress:10.0.0.0/8: {burst: 200, count: 100, period: 1s}
/// PerAccount:
///   burst: 40
///   count: 40
///   period: 1s
///   owner: sales
///   ids:
///     - 17
///     - {id: 18, comment: until the migration, expires: 2026-12-31}
/// ```
///
/// A default may also say that several nodes share its buckets, and a section `store` where: see
/// [the guide](crate::docs::limits_files#shared-limits).
///
/// Only the map form has defaults. A file is UTF-8, at most 128 MiB, one document, nested at most 64 deep, without
/// aliases and tags; a byte-order mark at its start is skipped. Nothing is guessed: a field or value that is missing,
/// unknown, given twice or out of range is refused. Every fault of a file is reported, up to 100,000.
///
/// Some characters are faults everywhere, also in comments: control characters other than tab and line ends (DEL and
/// U+0080 to U+009F are control characters), a carriage return without a line feed, and U+0085, U+2028 and U+2029, which
/// some YAML readers and editors take for line ends. In double quotes they can be written as escapes, such as `"\u2028"`.
///
/// ## Ids under the format `string`
///
/// The other formats refuse a text that is no id. Under `string` every text is an id, so a file has more rules. These
/// are refused, because they cannot be meant:
///
/// | in a file | why |
/// |---|---|
/// | `PerUser:"alice": ...` | the quotes would be part of the id. `"PerUser:alice"` is alice; `'PerUser:"alice"'` is the id with quotes |
/// | `PerUser:[alice, bob]: ...` | it would be one id |
/// | `- " alice"`, `"PerUser: alice"` | a blank or tab at an end of the id |
/// | `- "alice\nsmith"` | a line break in the id: U+000A to U+000D, U+0085, U+2028 or U+2029 |
/// | an id after a `\|` or `>` | every line of the block, and every comment in it, would be part of the id |
/// | an id on more than one line, such as `- alice` with a deeper `- bob` below it | it would be one id, `alice - bob` |
///
/// All other ids are taken as they are written. [`Limits::warnings`] and `tollgate validate` warn of ids that look like
/// another id, with the line, and with the invisible characters of the id escaped:
///
/// | kind | the id has |
/// |---|---|
/// | `invisible` | a character that is invisible or looks like a blank: U+00A0 and other white space, U+200B, a byte-order mark, marks of direction, variation selectors, control characters (as escapes) |
/// | `invisible` | a typographic quotation mark at an end |
/// | `unnormalized` | another form than Unicode's composed one (NFC), in which text is typed; or a compatibility form (NFKC) that also has an override. Needs the feature `boulder`, which `tollgate validate` has |
///
/// Ids are compared byte by byte: the id of a request is not normalised either. Code can use any text of 1 to 1024 bytes
/// ([`LimitsBuilder::override_id`]).
impl Limits {
    /// Reads the limits of a file, and the overrides of another.
    ///
    /// Defaults are in the first file, overrides in either. The text is read in one pass. A million overrides take some
    /// 2 s. The peak of memory is the text and about 110 bytes an override, and 150 more for an override with its own
    /// short comment or owner. In brackets, an element of a list may have at most a million commas, colons and quotes.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`], with every fault of both files ([`Error::faults`]); [`Error::is_io`] if a
    /// file cannot be read, and that alone if nothing else is wrong.
    ///
    /// # Example: a fault has its file, line and path
    ///
    /// ```
    /// use tollgate::Limits;
    ///
    /// let path = std::env::temp_dir().join(format!("tollgate-doc-{}.yml", std::process::id()));
    /// std::fs::write(&path, "PerUser: {burst: 20, count: 10, period: 60, id: string}")?;
    /// let error = Limits::from_yaml_files(&path, None).unwrap_err();
    /// std::fs::remove_file(&path)?;
    ///
    /// let fault = &error.faults()[0];
    /// assert_eq!((fault.line, &*fault.path), (Some(1), "PerUser.period"));
    /// assert!(fault.message.starts_with("invalid period \"60\": missing unit"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_yaml_files(
        limits: impl AsRef<Path>,
        overrides: Option<&Path>,
    ) -> Result<Limits, Error> {
        Loader::new().files(limits, overrides)
    }

    /// Reads the limits of a text, with overrides. Faults name it `<text>`.
    ///
    /// The cost is that of [`from_yaml_files`](Limits::from_yaml_files).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`], with every fault of the text.
    ///
    /// # Example: a custom limit and an override
    ///
    /// ```
    /// use tollgate::Limits;
    ///
    /// let limits = Limits::from_yaml(
    ///     "PerUser: {burst: 20, count: 10, period: 1s, id: string}\n\
    ///      PerUser:alice: {burst: 200, count: 100, period: 1s}\n",
    /// )?;
    /// assert_eq!(limits.limit_for("PerUser", "alice")?.map(|limit| limit.burst()), Some(200));
    /// assert_eq!(limits.limit_for("PerUser", "bob")?.map(|limit| limit.burst()), Some(20));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn from_yaml(text: &str) -> Result<Limits, Error> {
        Loader::new().text(text)
    }

    /// Reads the limits of one text, and the overrides of another. Faults name them `<limits>` and `<overrides>`.
    ///
    /// The cost is that of [`from_yaml_files`](Limits::from_yaml_files).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`], with every fault of both texts.
    ///
    /// # Example: an override in Boulder's present form
    ///
    /// ```
    /// use tollgate::Limits;
    ///
    /// let limits = Limits::from_yaml_with_overrides(
    ///     "PerAccount: {burst: 300, count: 300, period: 180m, id: regId}",
    ///     "- PerAccount: {burst: 300, count: 600, period: 180m, ids: [{id: 12345678, comment: ours}]}",
    /// )?;
    /// let numbers = limits.limit_for("PerAccount", 12345678)?;
    /// assert_eq!(numbers.map(|limit| limit.count()), Some(600));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn from_yaml_with_overrides(limits: &str, overrides: &str) -> Result<Limits, Error> {
        Loader::new().texts(limits, overrides)
    }
}

fn load(
    loader: &Loader,
    limits: &Source<'_>,
    overrides: Option<&Source<'_>>,
) -> Result<Limits, Error> {
    let mut builder = loader.begin();
    let names = loader.names(&builder);
    let files = [limits.name(), overrides.map(Source::name).unwrap_or_default()];
    let first_file = builder.add_files(&files);
    let mut load = Load { names, builder, faults: Vec::new(), unreadable: 0 };
    load.read(limits, File { role: Role::Limits, name: &files[0], source: first_file });
    if let Some(overrides) = overrides {
        let file = File { role: Role::Overrides, name: &files[1], source: first_file + 1 };
        load.read(overrides, file);
    }
    if load.faults.is_empty() {
        return loader.finish(load.builder);
    }
    Err(Error::from_faults(load.faults, load.unreadable))
}

/// One load, of one file or two.
struct Load {
    builder: LimitsBuilder,
    names: Names,
    faults: Vec<ConfigFault>,
    /// The number of faults that are files that cannot be read.
    unreadable: usize,
}

impl Load {
    fn read(&mut self, source: &Source<'_>, file: File<'_>) {
        match source.text() {
            Ok(text) => {
                let mut spare = String::new();
                let mut events = Events::new(&text, &mut spare);
                let faults = walk(&mut events, file, &mut self.names, &mut self.builder);
                let declares_nothing = self.builder.is_empty() && !self.names.has_faulty();
                if file.role == Role::Limits && declares_nothing {
                    // That alone is reported, not also each name as unknown.
                    self.names.set_incomplete();
                }
                self.faults.extend(faults);
            }
            Err(fault) => {
                // The declarations of an unread file are not known, so no name is reported as unknown.
                self.names.set_incomplete();
                self.unreadable += usize::from(fault.is_io);
                self.faults.push(ConfigFault {
                    file: file.name.into(),
                    line: fault.line,
                    path: String::new(),
                    message: fault.message,
                });
            }
        }
    }
}
