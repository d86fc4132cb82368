//! Reads and writes [`LimiterOptions`] and [`SweepOptions`] as sections of an application's configuration.

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::options::LimiterOptions;
use super::sweeper::SweepOptions;
use crate::core::at_cap::AtCap;
use crate::limits::config::{Tree, read_section, write_section};
use crate::observe::top_denied::TopDenied;
use crate::store::Engine;

const ENGINES: &[(&str, Engine)] = &[
    ("lock_free", Engine::LockFree),
    #[cfg(feature = "exact")]
    ("exact", Engine::Exact),
];

const AT_CAP: &[(&str, AtCap)] =
    &[("share", AtCap::Share), ("deny", AtCap::Deny), ("allow", AtCap::Allow)];

const LIMITER_OPTIONS: &[&str] = &[
    "engine",
    "max_keys",
    "reserve",
    "max_blocks",
    "max_vacant_places",
    "at_cap",
    "counting",
    "top_denied",
    #[cfg(feature = "tracing")]
    "log_denials",
];

/// Reads a map of options with the names of the methods; an option that is not given has its default. `engine` is
/// `lock_free` or `exact`; `at_cap` is `share`, `deny` or `allow`. A clock is set in code.
///
/// # Errors
///
/// An error of the format, with a line for each fault.
///
/// # Example
///
/// ```
/// use tollgate::LimiterOptions;
///
/// let options: LimiterOptions = serde_json::from_str(r#"{"max_keys": 1000000, "at_cap": "deny"}"#)?;
/// let error = serde_json::from_str::<LimiterOptions>(r#"{"max_key": 1}"#).unwrap_err();
/// assert!(error.to_string().contains("did you mean max_keys?"));
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for LimiterOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LimiterOptions, D::Error> {
        let mut options = LimiterOptions::default();
        read_section(deserializer, LIMITER_OPTIONS, |name, given| {
            let read = std::mem::take(&mut options);
            options = match name {
                "engine" => read.engine(given.named(ENGINES)?),
                "max_keys" => read.max_keys(given.number()?),
                "reserve" => read.reserve(given.number()?),
                "max_blocks" => read.max_blocks(given.number()?),
                "max_vacant_places" => read.max_vacant_places(given.number()?),
                "at_cap" => read.at_cap(given.named(AT_CAP)?),
                "counting" => read.counting(given.boolean()?),
                "top_denied" => {
                    let entries = given.number()?;
                    if entries > TopDenied::MAX_ENTRIES {
                        return Err(format!(
                            "{entries}: at most {} is allowed",
                            TopDenied::MAX_ENTRIES
                        ));
                    }
                    read.top_denied(entries)
                }
                #[cfg(feature = "tracing")]
                "log_denials" => read.log_denials(given.number()?),
                _ => read,
            };
            Ok(())
        })?;
        Ok(options)
    }
}

/// Writes all options except the clock.
impl Serialize for LimiterOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = |number: usize| Tree::Integer(number as i128);
        let size = self.size();
        let options = vec![
            ("engine", Tree::name(&self.engine, ENGINES)),
            ("max_keys", number(size.max_keys)),
            ("reserve", number(size.reserved)),
            ("max_blocks", number(self.max_blocks)),
            ("max_vacant_places", number(self.max_vacant_places)),
            ("at_cap", Tree::name(&self.at_cap, AT_CAP)),
            ("counting", Tree::Bool(self.counting)),
            ("top_denied", number(self.top_denied)),
            #[cfg(feature = "tracing")]
            ("log_denials", Tree::Integer(self.log_denials.into())),
        ];
        write_section(serializer, options)
    }
}

/// Reads `interval`, a duration such as `500ms`, and `step`, a whole number; an option that is not given has its
/// default.
///
/// # Errors
///
/// An error of the format, with a line for each fault.
///
/// # Example
///
/// ```
/// use tollgate::sweep::SweepOptions;
///
/// let options: SweepOptions = serde_json::from_str(r#"{"interval": "500ms"}"#)?;
/// assert_eq!(serde_json::to_string(&options)?, r#"{"interval":"500ms","step":16384}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for SweepOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SweepOptions, D::Error> {
        let mut options = SweepOptions::default();
        read_section(deserializer, &["interval", "step"], |name, given| {
            options = match name {
                "interval" => options.interval(given.duration()?),
                _ => options.step(given.number()?),
            };
            Ok(())
        })?;
        Ok(options)
    }
}

/// Writes both options.
impl Serialize for SweepOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (interval, step) = (Tree::duration(self.interval), Tree::Integer(self.step as i128));
        write_section(serializer, vec![("interval", interval), ("step", step)])
    }
}
