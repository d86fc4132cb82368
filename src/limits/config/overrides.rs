//! Overrides of a section of their own, apart from their limits.

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use crate::error::Error;
use crate::limits::read::{Names, Role, walk};
use crate::limits::{Limits, LimitsBuilder};

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
        let mut builder = LimitsBuilder::from_limits(self);
        let mut names = Names::new(&builder, true);
        for (name, index) in builder.given() {
            names.add(name, index);
        }
        let files = [String::new(), String::new()];
        let mut nodes = TreeNodes::new(&overrides.section);
        let faults = walk(&mut nodes, Role::Overrides, &files, &mut names, &mut builder);
        if faults.is_empty() { Ok(builder.build()) } else { Err(Error::from_faults(faults, 0)) }
    }
}
