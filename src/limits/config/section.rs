//! Reads and writes a map of options whose values are scalars.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use crate::limit::display::Go;
use crate::limits::read::{
    Faults, Path, Scalar, boolean, named, parse_duration, shown_scalar, unknown_field,
    whole_number_or_0,
};

use super::nodes::scalar;
use super::read::refused;
use super::tree::Tree;

/// The value of an option. The errors of its methods say what was given and what is allowed.
pub(crate) struct Given<'t>(Scalar<'t>);

impl Given<'_> {
    /// Returns a whole number from 0.
    pub(crate) fn number<T: TryFrom<u64>>(&self) -> Result<T, String> {
        let number = whole_number_or_0(&self.0, "a whole number from 0")?;
        let too_large = |_| {
            let bits = 8 * size_of::<T>();
            format!("{number}: less than 2^{bits} is allowed")
        };
        T::try_from(number).map_err(too_large)
    }

    pub(crate) fn boolean(&self) -> Result<bool, String> {
        boolean(&self.0, "true or false")
    }

    /// Returns a duration in the notation of limits files.
    pub(crate) fn duration(&self) -> Result<Duration, String> {
        parse_duration(&self.0.text).map(Duration::from_nanos)
    }

    /// Returns the value that a name stands for.
    pub(crate) fn named<T: Copy>(&self, values: &[(&str, T)]) -> Result<T, String> {
        named(&self.0.text, values)
    }
}

/// Reads a map of the options `names`, each at most once, and gives each to `set`. All faults become one error.
pub(crate) fn read_section<'de, D: Deserializer<'de>>(
    deserializer: D,
    names: &[&str],
    mut set: impl FnMut(&str, &Given<'_>) -> Result<(), String>,
) -> Result<(), D::Error> {
    let mut faults = Faults::new("");
    let root = Path::Root;
    match Tree::deserialize(deserializer)? {
        Tree::Map(entries) => {
            let mut seen: Vec<&str> = Vec::new();
            for (key, value) in &entries {
                let key = scalar(key).text;
                let at = root.key(&key);
                let Some(name) = names.iter().find(|name| **name == key) else {
                    faults.add(None, &at, unknown_field(&key, names));
                    continue;
                };
                if seen.contains(name) {
                    faults.add(None, &at, "the field was given before".into());
                    continue;
                }
                seen.push(name);
                if let Err(reason) = one(value).and_then(|given| set(name, &given)) {
                    faults.add(None, &at, format!("invalid {name} {reason}"));
                }
            }
        }
        other => {
            faults.add(None, &root, format!("{}: a map of options is allowed", shown_value(&other)))
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(refused(faults.into_sorted())) }
}

fn one(value: &Tree) -> Result<Given<'_>, String> {
    match value {
        Tree::Null | Tree::List(_) | Tree::Map(_) => {
            Err(format!("{}: a value is allowed", shown_value(value)))
        }
        other => Ok(Given(scalar(other))),
    }
}

/// Shows a value in a message.
fn shown_value(value: &Tree) -> String {
    match value {
        Tree::List(_) => "a list".into(),
        Tree::Map(_) => "a map".into(),
        other => shown_scalar(&scalar(other)),
    }
}

/// Writes a map of options.
pub(crate) fn write_section<S: Serializer>(
    serializer: S,
    options: Vec<(&'static str, Tree)>,
) -> Result<S::Ok, S::Error> {
    Tree::fields(options).serialize(serializer)
}

impl Tree {
    /// Makes the text of a duration, in the notation of limits files.
    pub(crate) fn duration(duration: Duration) -> Tree {
        Tree::text(Go(duration))
    }

    /// Makes the name of a value.
    pub(crate) fn name<T: PartialEq>(value: &T, values: &[(&str, T)]) -> Tree {
        let named = values.iter().find(|(_, named)| named == value);
        named.map_or(Tree::Null, |(name, _)| Tree::text(name))
    }
}
