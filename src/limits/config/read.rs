//! Reads limits, and the options of limits and overrides, from any self-describing format.

use serde::de::{Deserialize, Deserializer, Error as _};

use crate::error::{ConfigFault, Error};
use crate::limit::Limit;
use crate::limits::read::{
    File, Role, read_limit, read_limit_options, read_override_options, walk,
};
use crate::limits::{LimitOptions, Limits, Loader, OverrideOptions};

use super::nodes::TreeNodes;
use super::tree::Tree;

/// The most faults that an error lists.
const LISTED_MAX: usize = 20;

/// Reads the limits of a section: the entries of a [file](Limits#limits-from-yaml), in a map or in a list of maps. In a
/// map, defaults are read before overrides, because not every format keeps the order.
///
/// The rules and the messages are those of files, without lines. A reader of YAML does not tell how a text was written, so
/// three rules of files do not apply: those about quotes, about texts of several lines, and about aliases. The whole section is in memory while it is read;
/// [`Limits::from_yaml_files`] is for files with a million overrides.
///
/// # Errors
///
/// An error of the format, with a line for each fault, 20 at most.
///
/// # Example
///
/// ```
/// use tollgate::Limits;
///
/// let section = r#"{"PerUser": {"burst": 20, "count": 10, "period": 60, "id": "string"}}"#;
/// let error = serde_json::from_str::<Limits>(section).unwrap_err();
/// assert!(error.to_string().starts_with("PerUser.period: invalid period \"60\": missing unit"));
/// ```
#[cfg_attr(not(feature = "yaml"), doc = "", doc = "[`Limits::from_yaml_files`]: crate#features")]
impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limits, D::Error> {
        Loader::new().deserialize(deserializer)
    }
}

impl Loader {
    /// Reads the limits of a section, as [`Limits`] does by `Deserialize`, with the options of the loader. A struct names
    /// it in the attribute `deserialize_with`.
    ///
    /// # Errors
    ///
    /// An error of the format, with a line for each fault, 20 at most; or with the error of
    /// [`after`](Loader::after).
    ///
    /// # Example
    ///
    /// ```
    /// use serde::{Deserialize, Deserializer};
    /// use tollgate::Limits;
    /// use tollgate::limits::Loader;
    ///
    /// #[derive(Deserialize)]
    /// struct Config {
    ///     #[serde(deserialize_with = "limits")]
    ///     limits: Limits,
    /// }
    ///
    /// fn limits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Limits, D::Error> {
    ///     let loader = Loader::new().after(|limits| limits.override_id("PerUser", "probe", None));
    ///     loader.deserialize(deserializer)
    /// }
    ///
    /// let text = r#"limits.PerUser = { burst = 20, count = 10, period = "1s", id = "string" }"#;
    /// let config: Config = toml::from_str(text)?;
    /// assert_eq!(config.limits.overrides(), 1);
    /// # Ok::<(), toml::de::Error>(())
    /// ```
    pub fn deserialize<'de, D: Deserializer<'de>>(
        &self,
        deserializer: D,
    ) -> Result<Limits, D::Error> {
        let mut section = Tree::deserialize(deserializer)?;
        if let Tree::Map(entries) = &mut section {
            let is_override = |key: &Tree| matches!(key, Tree::Text(key) if key.contains(':'));
            entries.sort_by_key(|(key, _)| is_override(key));
        }
        let mut builder = self.begin();
        let mut names = self.names(&builder);
        let file = File::section(Role::Limits, &builder);
        let mut nodes = TreeNodes::new(&section);
        let faults = walk(&mut nodes, file, &mut names, &mut builder);
        if faults.is_empty() {
            self.finish(builder).map_err(D::Error::custom)
        } else {
            Err(refused(faults))
        }
    }
}

/// Reads one limit: the parameters of gcra, or of another `algorithm`, with the names that limits files have.
///
/// # Errors
///
/// An error of the format, with a line for each fault.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
///
/// let limit: Limit = serde_json::from_str(r#"{"algorithm": "fixed_window", "limit": 10, "window": "1m"}"#)?;
/// assert_eq!(limit, Limit::fixed_window(10, Duration::from_secs(60))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        read_part(deserializer, |nodes| read_limit(nodes))
    }
}

/// Reads the fields `mode`, `shadow`, `max_debt`, `max_keys` and `floors`, and those of [shared
/// limits](crate::docs::limits_files#shared-limits). The limit of `shadow` names its `algorithm` if that is not gcra.
///
/// # Errors
///
/// An error of the format, with a line for each fault.
impl<'de> Deserialize<'de> for LimitOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LimitOptions, D::Error> {
        read_part(deserializer, |nodes| read_limit_options(nodes))
    }
}

/// Reads the fields `comment`, `owner`, `expires` (a date) and `max_debt`.
///
/// # Errors
///
/// An error of the format, with a line for each fault.
impl<'de> Deserialize<'de> for OverrideOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OverrideOptions, D::Error> {
        read_part(deserializer, |nodes| read_override_options(nodes))
    }
}

fn read_part<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    read: impl for<'t> FnOnce(&mut TreeNodes<'t>) -> Result<T, Vec<ConfigFault>>,
) -> Result<T, D::Error> {
    let tree = Tree::deserialize(deserializer)?;
    read(&mut TreeNodes::new(&tree)).map_err(refused)
}

/// Makes the format's error of faults: a line for each.
pub(super) fn refused<E: serde::de::Error>(mut faults: Vec<ConfigFault>) -> E {
    let more = faults.len().saturating_sub(LISTED_MAX);
    faults.truncate(LISTED_MAX);
    let listed = Error::from_faults(faults, 0);
    match more {
        0 => E::custom(listed),
        more => E::custom(format_args!("{listed}\nand {more} more faults")),
    }
}
