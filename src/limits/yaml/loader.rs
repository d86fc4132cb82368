//! How YAML is read, where that is a choice.

use std::path::Path;

use super::load;
use super::source::Source;
use crate::error::Error;
use crate::limits::Limits;

/// Reads limits from YAML with options; without any, it is what [`Limits::from_yaml_files`] and its like do.
///
/// # Example: overrides for clients of a private network
///
/// ```
/// use tollgate::Limits;
/// use tollgate::limits::YamlLoader;
///
/// let text = "NewRegistrationsPerIPAddress: {burst: 20, count: 20, period: 1s}\n\
///             NewRegistrationsPerIPAddress:10.0.0.2: {burst: 20, count: 40, period: 1s}\n";
/// assert!(Limits::from_yaml(text).unwrap_err().to_string().contains("reserved address block"));
///
/// let limits = YamlLoader::new().allow_reserved(true).text(text)?;
/// assert_eq!(limits.overrides(), 1);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct YamlLoader {
    allow_reserved: bool,
}

impl YamlLoader {
    /// A loader without options.
    pub fn new() -> YamlLoader {
        YamlLoader::default()
    }

    /// Whether overrides of Boulder's limits may be for addresses and networks in private, reserved and
    /// documentation blocks, such as `10.0.0.2` and `2001:db8::/48`: for those whose clients are there.
    /// Every other rule for ids stays, their canonical form included. Custom limits accept such ids
    /// always. Default: no, as Boulder does.
    pub fn allow_reserved(self, allow: bool) -> YamlLoader {
        YamlLoader { allow_reserved: allow }
    }

    /// The limits that a file declares, with the overrides of another: see [`Limits::from_yaml_files`].
    ///
    /// # Errors
    ///
    /// Those of [`Limits::from_yaml_files`].
    pub fn files(
        self,
        limits: impl AsRef<Path>,
        overrides: Option<&Path>,
    ) -> Result<Limits, Error> {
        load(self, &Source::File(limits.as_ref()), overrides.map(Source::File).as_ref())
    }

    /// The limits of a text, overrides included: see [`Limits::from_yaml`].
    ///
    /// # Errors
    ///
    /// Those of [`Limits::from_yaml`].
    pub fn text(self, text: &str) -> Result<Limits, Error> {
        load(self, &Source::Text("<text>", text), None)
    }

    /// The limits of one text with the overrides of another: see [`Limits::from_yaml_with_overrides`].
    ///
    /// # Errors
    ///
    /// Those of [`Limits::from_yaml_with_overrides`].
    pub fn texts(self, limits: &str, overrides: &str) -> Result<Limits, Error> {
        let overrides = Source::Text("<overrides>", overrides);
        load(self, &Source::Text("<limits>", limits), Some(&overrides))
    }

    /// The limits of files that were read before.
    #[cfg(feature = "watch")]
    pub(crate) fn copies(
        self,
        limits: &super::FileCopy,
        overrides: Option<&super::FileCopy>,
    ) -> Result<Limits, Error> {
        load(self, &Source::Copy(limits), overrides.map(Source::Copy).as_ref())
    }

    /// Whether addresses in reserved blocks are refused as ids of overrides of Boulder's limits.
    pub(super) fn wants_public(self) -> bool {
        !self.allow_reserved
    }
}
