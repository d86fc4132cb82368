//! Limits from YAML: defaults, and overrides in the three forms that Boulder has had.

mod beside;
#[cfg(feature = "watch")]
mod copy;
mod duration;
mod entry;
mod events;
mod faults;
mod field;
mod ids;
mod loader;
mod names;
mod numbers;
mod source;
mod walk;
mod written;

use std::path::Path;

use crate::error::{ConfigFault, Error};
use crate::limits::{Limits, LimitsBuilder};

#[cfg(feature = "watch")]
pub(crate) use copy::{FileCopy, Identity};
pub use loader::YamlLoader;
use names::Names;
use source::Source;
use walk::Role;

/// # Limits from YAML
///
/// A file has defaults, overrides, or both. It is a map of the entries below, or a list of maps:
///
/// ```yaml
/// NewOrdersPerAccount: {burst: 300, count: 300, period: 180m}          # a default
/// RequestsPerClient: {burst: 20, count: 10, period: 1s, id: ipAddress} # one of a limit of one's own
/// NewOrdersPerAccount:12345678: {burst: 300, count: 600, period: 180m} # an override of one id
/// CertificatesPerDomain:                                               # an override of several
///   burst: 40
///   count: 40
///   period: 1s
///   ids:
///     - example.com
///     - id: example.org
///       comment: a customer
/// ```
///
/// `burst` and `count` are whole numbers from 1; `period` is Go's duration text, such as `60s` or
/// `1h30m`. A default may name another `algorithm` than `gcra`, with numbers as the constructors of
/// [`Limit`](crate::Limit) take them; overrides have the numbers of their limit's algorithm:
///
/// ```yaml
/// SearchPerUser: {algorithm: fixed_window, limit: 10, window: 60s, id: string}
/// ApiPerKey: {algorithm: token_bucket, limit: 15, window: 60s, burst: 3, id: string}
/// NotesPerUser: {algorithm: leaky_bucket, size: 10, drip_rate: 250ms, drip_size: 1, id: string}
/// LegacyPerUser: {algorithm: leaky_bucket, max: 10, duration: 5s, min_interval: 1s, id: string}
/// SearchPerUser:alice: {limit: 100, window: 60s}
/// ```
///
/// `drip_rate` and `drip_size` may be left out, for 1 s and 1. `enabled: false` in a default is no limit
/// for anybody, those with overrides included; its numbers may be left out.
///
/// Beside its numbers a default may have a [`mode`](crate::limits::LimitMode), `enforce` or `shadow`; beside
/// enforced ones a `shadow`, numbers that are only tried; and a `max_debt`, the units that a bucket may
/// owe beyond its burst. An override may have a `max_debt` of its own, and a `comment`, an `owner`, and a day on
/// which it `expires`: it applies through the end of that day, UTC. In a list of ids an id may have the
/// last three itself, which count before the list's:
///
/// ```yaml
/// PerUser: {burst: 20, count: 10, period: 1s, id: string, shadow: {burst: 10, count: 10, period: 1s}}
/// PerAddress: {burst: 20, count: 10, period: 1s, id: ipAddress, mode: shadow, max_debt: 40}
/// PerUser:alice: {burst: 200, count: 100, period: 1s, owner: sales, expires: 2026-12-31}
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
/// Defaults stand in the map form only. A file is UTF-8, at most 128 MiB, one document, nested at most
/// 64 deep, without aliases and tags; a byte-order mark at its start is skipped. Nothing is guessed: what is missing, unknown, given twice or out of range is refused, and every fault of a file is reported (up to 100,000).
///
/// Some characters are faults wherever they stand, in comments as well: control characters other than
/// tab and line ends (DEL and U+0080 to U+009F are control characters), a carriage return without a line
/// feed, and U+0085, U+2028 and U+2029, which end a line to readers of YAML 1.1 or in an editor, and not to
/// all others. Double quotes can have them as escapes, such as `"\u2028"`.
///
/// ## Ids under the format `string`
///
/// The other formats refuse what is not an id of theirs. Under `string` every text is an id, so a file is
/// held to more. Refused is what cannot be meant:
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
/// The rest is taken as it is written, and [`Limits::warnings`] and `tollgate validate` warn of what looks
/// like another id, with the line and the id in a form that is seen:
///
/// | kind | the id has |
/// |---|---|
/// | `invisible` | a character that is not seen or looks like a blank: U+00A0 and other white space, U+200B, a byte-order mark, marks of direction, variation selectors, control characters (as escapes) |
/// | `invisible` | a typographic quotation mark at an end |
/// | `unnormalized` | not the composed form of Unicode (NFC), in which text is typed; or the compatibility form (NFKC) of it has an override, too |
///
/// Ids are compared byte by byte: the id of a request is not normalised either. Code can have any text of 1
/// to 1024 bytes ([`LimitsBuilder::override_id`]).
impl Limits {
    /// The limits that a file declares, with the overrides of another.
    ///
    /// Defaults stand in the first file; overrides in either. The cost is one pass over the text: a
    /// million overrides take some 2 s, and at the peak the text and about 110 bytes an override, and
    /// 150 more for one with a short comment or owner of its own. In brackets, an element of a list may have a million commas, colons and quotes at most.
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
        YamlLoader::new().files(limits, overrides)
    }

    /// The limits of a text, overrides included; faults name it `<text>`.
    ///
    /// The cost is that of [`from_yaml_files`](Limits::from_yaml_files).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`], with every fault of the text.
    ///
    /// # Example: a limit of one's own, and an override
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
        YamlLoader::new().text(text)
    }

    /// The limits of one text with the overrides of another; faults name them `<limits>` and
    /// `<overrides>`.
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
        YamlLoader::new().texts(limits, overrides)
    }
}

fn load(
    loader: YamlLoader,
    limits: &Source<'_>,
    overrides: Option<&Source<'_>>,
) -> Result<Limits, Error> {
    let mut load = Load {
        builder: Limits::builder(),
        names: Names::new(),
        files: [limits.name(), overrides.map(Source::name).unwrap_or_default()],
        faults: Vec::new(),
        unreadable: 0,
    };
    load.names.add_boulders(&load.builder, loader.wants_public());
    load.read(limits, Role::Limits);
    if let Some(overrides) = overrides {
        load.read(overrides, Role::Overrides);
    }
    load.finish()
}

/// One load, of one file or two.
struct Load {
    builder: LimitsBuilder,
    names: Names,
    /// By [`Role`].
    files: [String; 2],
    faults: Vec<ConfigFault>,
    /// How many of the faults are files that cannot be read.
    unreadable: usize,
}

impl Load {
    fn read(&mut self, source: &Source<'_>, role: Role) {
        match source.text() {
            Ok(text) => {
                let faults =
                    walk::walk(&text, role, &self.files, &mut self.names, &mut self.builder);
                let declares_nothing = self.builder.is_empty() && !self.names.has_faulty();
                if role == Role::Limits && declares_nothing {
                    // That is the fault: no name is called unknown for it.
                    self.names.set_incomplete();
                }
                self.faults.extend(faults);
            }
            Err(refusal) => {
                // What an unread file declares is not known: no name is called unknown for it.
                self.names.set_incomplete();
                self.unreadable += usize::from(refusal.is_io);
                self.faults.push(ConfigFault {
                    file: self.files[role as usize].clone(),
                    line: refusal.line,
                    path: String::new(),
                    message: refusal.message,
                });
            }
        }
    }

    fn finish(mut self) -> Result<Limits, Error> {
        if self.faults.is_empty() {
            self.builder.set_files(self.files.into());
            return Ok(self.builder.build());
        }
        Err(Error::from_faults(self.faults, self.unreadable))
    }
}
