//! Overrides in a separate section, apart from their limits.

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use crate::error::Error;
use crate::limits::read::{File, Role, walk};
use crate::limits::{Limits, LimitsBuilder, Loader};

use super::nodes::TreeNodes;
use super::tree::Tree;

/// The overrides of a section of a configuration, in the forms that a file of overrides has:
/// [`Limits::with_overrides`] checks them and adds them to their limits.
///
/// # Example
///
/// ```
/// use serde::Deserialize;
/// use tollgate::Limits;
/// use tollgate::limits::Overrides;
///
/// #[derive(Deserialize)]
/// struct Config {
///     limits: Limits,
///     overrides: Overrides,
/// }
///
/// let config: Config = toml::from_str(
///     r#"
///     limits.PerUser = { burst = 20, count = 10, period = "1s", id = "string" }
///
///     [[overrides]]
///     PerUser = { burst = 200, count = 100, period = "1s", ids = ["alice", "bob"] }
///     "#,
/// )?;
/// let limits = config.limits.with_overrides(&config.overrides)?;
/// assert_eq!(limits.overrides(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Overrides {
    section: Tree,
}

/// # Errors
///
/// An error of the format for values that no limits have, such as a tag of YAML. The rest is checked by
/// [`Limits::with_overrides`], which has the limits.
impl<'de> Deserialize<'de> for Overrides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Overrides, D::Error> {
        Ok(Overrides { section: Tree::deserialize(deserializer)? })
    }
}

/// Writes the section as it was read.
impl Serialize for Overrides {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.section.serialize(serializer)
    }
}

impl Limits {
    /// Adds the overrides of a section.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_config`], with every fault of the overrides ([`Error::faults`]), which have no file and no
    /// line. An id that has an override already is a fault.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::Limits;
    /// use tollgate::limits::Overrides;
    ///
    /// let limits: Limits =
    ///     serde_json::from_str(r#"{"PerUser": {"burst": 20, "count": 10, "period": "1s", "id": "string"}}"#)?;
    /// let overrides: Overrides = serde_json::from_str(
    ///     r#"[{"PerUsr": {"burst": 40, "count": 10, "period": "1s", "ids": ["alice"]}}]"#,
    /// )?;
    /// let error = limits.with_overrides(&overrides).unwrap_err();
    /// assert!(error.to_string().starts_with("[0].PerUsr: unknown limit \"PerUsr\"; did you mean PerUser?"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn with_overrides(self, overrides: &Overrides) -> Result<Limits, Error> {
        add(&Loader::new(), LimitsBuilder::from_limits(self), overrides)
    }
}

impl Loader {
    /// Adds the overrides of a section to the limits of [`before`](Loader::before).
    ///
    /// # Errors
    ///
    /// Those of [`Limits::with_overrides`].
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "boulder")] {
    /// # use tollgate::Limits;
    /// # use tollgate::limits::{Loader, Overrides};
    /// let limits: Limits =
    ///     serde_json::from_str(r#"{"NewRegistrationsPerIPAddress": {"burst": 20, "count": 20, "period": "1s"}}"#)?;
    /// let overrides: Overrides = serde_json::from_str(
    ///     r#"[{"NewRegistrationsPerIPAddress": {"burst": 40, "count": 20, "period": "1s", "ids": ["10.0.0.2"]}}]"#,
    /// )?;
    /// let limits = Loader::new().allow_reserved(true).before(limits).overrides(&overrides)?;
    /// assert_eq!(limits.overrides(), 1);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn overrides(&self, overrides: &Overrides) -> Result<Limits, Error> {
        add(self, self.begin(), overrides)
    }
}

fn add(
    loader: &Loader,
    mut builder: LimitsBuilder,
    overrides: &Overrides,
) -> Result<Limits, Error> {
    let mut names = loader.names(&builder);
    let file = File::section(Role::Overrides, &builder);
    let mut nodes = TreeNodes::new(&overrides.section);
    let faults = walk(&mut nodes, file, &mut names, &mut builder);
    if faults.is_empty() { loader.finish(builder) } else { Err(Error::from_faults(faults, 0)) }
}
