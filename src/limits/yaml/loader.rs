//! Reads files and texts of YAML with the options of a loader.

use std::path::Path;

use super::load;
use super::source::Source;
use crate::error::Error;
use crate::limits::{Limits, Loader};

/// Files and texts of YAML.
impl Loader {
    /// Reads the limits of a file, and the overrides of another: see [`Limits::from_yaml_files`].
    ///
    /// # Errors
    ///
    /// Those of [`Limits::from_yaml_files`].
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::Loader;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.yml");
    /// std::fs::write(&path, "PerUser: {burst: 20, count: 10, period: 1s, id: string}")?;
    /// let limits = Loader::new().files(&path, None)?;
    /// assert!(limits.limit("PerUser").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn files(
        &self,
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
    /// # use tollgate::limits::Loader;
    /// let limits = Loader::new().text("PerUser: {burst: 20, count: 10, period: 1s, id: string}")?;
    /// assert_eq!(limits.limit("PerUser")?.algorithm(), Some("gcra"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn text(&self, text: &str) -> Result<Limits, Error> {
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
    /// # use tollgate::limits::Loader;
    /// let limits = "PerUser: {burst: 20, count: 10, period: 1s, id: string}";
    /// let overrides = "- PerUser: {burst: 40, count: 10, period: 1s, ids: [alice, bob]}";
    /// assert_eq!(Loader::new().texts(limits, overrides)?.overrides(), 2);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn texts(&self, limits: &str, overrides: &str) -> Result<Limits, Error> {
        let overrides = Source::Text("<overrides>", overrides);
        load(self, &Source::Text("<limits>", limits), Some(&overrides))
    }

    /// Parses the limits of files that were read before.
    #[cfg(feature = "watch")]
    pub(crate) fn copies(
        &self,
        limits: &super::FileCopy,
        overrides: Option<&super::FileCopy>,
    ) -> Result<Limits, Error> {
        load(self, &limits.source(), overrides.map(super::FileCopy::source).as_ref())
    }
}
