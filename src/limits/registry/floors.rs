//! Finds the floors of a limit, and the floors that a reload must not take away.

use super::{Entry, LimitEntry, Limits, names};
use crate::error::{Error, ErrorKind};
use crate::limits::Floor;

impl Entry {
    /// Returns the floor of a name.
    ///
    /// # Errors
    ///
    /// The limit has no such floor.
    pub(crate) fn floor(&self, name: &str) -> Result<Floor, Error> {
        self.options.floors.get(name).ok_or_else(|| self.no_floor(name))
    }

    #[cold]
    fn no_floor(&self, name: &str) -> Error {
        let floors = &self.options.floors;
        let hint = names::hint(name, floors.iter().map(|(given, _)| given));
        let its = if floors.is_empty() { "none".into() } else { floors.listed() };
        let given = crate::limits::shown(name);
        let text = format!("{} has no floor {given}{hint}; its floors: {its}", self.name);
        Error::new(ErrorKind::Name, text)
    }

    /// Whether the limit was given and is not switched off. A program may ask for any floor of a limit that is not on, because
    /// the file may leave such a limit out.
    pub(crate) fn is_on(&self) -> bool {
        self.is_given() && !self.is_disabled
    }
}

impl Limits {
    /// Checks that the limits have the floors that the program asks for. `asked` has the limits of the generation before, each
    /// with the names of these floors.
    pub(crate) fn check_floors<'a, N: Iterator<Item = &'a str>>(
        &self,
        asked: impl Iterator<Item = (&'a Entry, N)>,
    ) -> Result<(), Error> {
        let mut faults = Vec::new();
        for (old, asked) in asked {
            let Some(new) = self.by_name_of(old).filter(|new| new.is_on()) else { continue };
            let is_missing = |name: &&str| new.options.floors.get(name).is_none();
            let missing: Vec<&str> = asked.filter(is_missing).collect();
            if !missing.is_empty() {
                faults.push(format!(
                    "the new {} lacks the floors {}, for which the program has asked: keep each, or set it to 0%",
                    old.name,
                    missing.join(", ")
                ));
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        let text = format!("{}{}", self.in_files(), faults.join("; "));
        Err(Error::new(ErrorKind::Limit, text))
    }
}

impl<'a> LimitEntry<'a> {
    /// Returns the floors of the limit with their names, in the order in which they were given. See
    /// [`LimitOptions::floor`](crate::limits::LimitOptions::floor).
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limits};
    /// use tollgate::limits::{Floor, LimitOptions};
    ///
    /// # let limit = Limit::new(10, 10, Duration::from_secs(60))?;
    /// let options = LimitOptions::default().floor("batch", Floor::Percent(50));
    /// let limits = Limits::builder().limit_with("Tokens", IdFormat::String, limit, options)?.build();
    /// let floors: Vec<_> = limits.limit("Tokens")?.floors().collect();
    /// assert_eq!(floors, [("batch", Floor::Percent(50))]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn floors(&self) -> impl Iterator<Item = (&'a str, Floor)> + use<'a> {
        self.entry().options.floors.iter()
    }
}
