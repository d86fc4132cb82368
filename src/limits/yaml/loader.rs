//! The options with which YAML is read.

use std::path::Path;

use super::load;
use super::source::Source;
use crate::error::Error;
use crate::limits::Limits;

/// Reads limits from YAML with options. Without options it does the same as [`Limits::from_yaml_files`] and its
/// siblings.
///
/// # Example: overrides for clients of a private network
///
/// ```
/// # #[cfg(feature = "boulder")] {
/// use tollgate::Limits;
/// use tollgate::limits::YamlLoader;
///
/// let text = "NewRegistrationsPerIPAddress: {burst: 20, count: 20, period: 1s}\n\
///             NewRegistrationsPerIPAddress:10.0.0.2: {burst: 20, count: 40, period: 1s}\n";
/// assert!(Limits::from_yaml(text).unwrap_err().to_string().contains("reserved address block"));
///
/// let limits = YamlLoader::new().allow_reserved(true).text(text)?;
/// assert_eq!(limits.overrides(), 1);
/// # }
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct YamlLoader {
    allow_reserved: bool,
}

impl YamlLoader {
    /// Returns a loader without options.
    pub fn new() -> YamlLoader {
        YamlLoader::default()
    }

    /// Sets whether overrides of Boulder's limits may have addresses and networks in private, reserved and
    /// documentation blocks, such as `10.0.0.2` and `2001:db8::/48`. All other rules for ids stay, such as that for the
    /// canonical form. Custom limits always accept such ids. Default: no, as in Boulder.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "boulder")] {
    /// # use tollgate::limits::YamlLoader;
    /// let text = "NewRegistrationsPerIPAddress: {burst: 20, count: 20, period: 1s}\n\
    ///             NewRegistrationsPerIPAddress:10.0.0.2: {burst: 40, count: 20, period: 1s}\n";
    /// assert!(YamlLoader::new().text(text).unwrap_err().is_invalid_config());
    /// assert!(YamlLoader::new().allow_reserved(true).text(text).is_ok());
    /// # }
    /// ```
    pub fn allow_reserved(self, allow: bool) -> YamlLoader {
        YamlLoader { allow_reserved: allow }
    }

    /// Reads the limits of a file, and the overrides of another: see [`Limits::from_yaml_files`].
    ///
    /// # Errors
    ///
    /// Those of [`Limits::from_yaml_files`].
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::YamlLoader;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.yml");
    /// std::fs::write(&path, "PerUser: {burst: 20, count: 10, period: 1s, id: string}")?;
    /// let limits = YamlLoader::new().files(&path, None)?;
    /// assert!(limits.limit("PerUser").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn files(
        self,
        limits: impl AsRef<Path>,
        overrides: Option<&Path>,
    ) -> Result<Limits, Error> {
        load(self, &Source::File(limits.as_ref()), overrides.map(Source::File).as_ref())
    }

    /// Reads the limits of a text, with overrides: see [`Limits::from_yaml`].
    ///
    /// # Errors
    ///
    /// Those of [`Limits::from_yaml`].
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::YamlLoader;
    /// let limits = YamlLoader::new().text("PerUser: {burst: 20, count: 10, period: 1s, id: string}")?;
    /// assert_eq!(limits.limit("PerUser")?.algorithm(), Some("gcra"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn text(self, text: &str) -> Result<Limits, Error> {
        load(self, &Source::Text("<text>", text), None)
    }

    /// Reads the limits of one text, and the overrides of another: see [`Limits::from_yaml_with_overrides`].
    ///
    /// # Errors
    ///
    /// Those of [`Limits::from_yaml_with_overrides`].
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::YamlLoader;
    /// let limits = "PerUser: {burst: 20, count: 10, period: 1s, id: string}";
    /// let overrides = "- PerUser: {burst: 40, count: 10, period: 1s, ids: [alice, bob]}";
    /// assert_eq!(YamlLoader::new().texts(limits, overrides)?.overrides(), 2);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn texts(self, limits: &str, overrides: &str) -> Result<Limits, Error> {
        let overrides = Source::Text("<overrides>", overrides);
        load(self, &Source::Text("<limits>", limits), Some(&overrides))
    }

    /// Parses the limits of files that were read before.
    #[cfg(feature = "watch")]
    pub(crate) fn copies(
        self,
        limits: &super::FileCopy,
        overrides: Option<&super::FileCopy>,
    ) -> Result<Limits, Error> {
        load(self, &limits.source(), overrides.map(super::FileCopy::source).as_ref())
    }

    /// Whether overrides of Boulder's limits may not have ids in reserved blocks.
    pub(super) fn wants_public(self) -> bool {
        !self.allow_reserved
    }
}
