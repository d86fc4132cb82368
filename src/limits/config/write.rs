//! Writes limits, and the options of limits and overrides, with the fields of limits files.

use std::fmt::Display;
use std::time::Duration;

use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};

use crate::limit::display::Go;
use crate::limit::{Limit, ParameterValue, Parameters};
use crate::limits::expiry::Expiry;
use crate::limits::format::{decode_for_file, encode_override};
use crate::limits::read::{WrittenId, parse_duration};
use crate::limits::registry::{LimitEntry, OverrideEntry};
use crate::limits::{Floor, LimitMode, LimitOptions, Limits, OverrideOptions, Scratch, names};

use super::sharing;
use super::tree::Tree;

type Fields = Vec<(&'static str, Tree)>;

/// Writes a map of the store of shared limits (its URL with the password), each default under its limit's name, and each
/// override under `Name:id`.
///
/// # Errors
///
/// An error of the format for limits that a file cannot have: of custom algorithms, with an end that is not at midnight UTC, with a
/// period above 2^63 - 1 ns; and for ids that the reader refuses, such as ids with blanks at their ends, sets of names, of
/// which only the hash is known, and private addresses under Boulder's names. An override without a limit is written as
/// `unlimited: true`, without its `max_debt`, which has no effect.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limits};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
/// let text = serde_json::to_string(&limits)?;
/// assert_eq!(text, r#"{"PerUser":{"burst":20,"count":10,"period":"1s","id":"string"}}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(store) = self.store() {
            map.serialize_entry(names::STORE, &Tree::fields(sharing::store_fields(store)))?;
        }
        let mut scratch = Scratch::new();
        for limit in self.entries() {
            let name = limit.name();
            if limit.has_default() || limit.is_disabled() {
                let fields = default_fields(&limit).map_err(|why| refused(name, why))?;
                map.serialize_entry(name, &Tree::fields(fields))?;
            }
            let mut overrides: Vec<OverrideEntry<'_>> = limit.overrides().collect();
            overrides.sort_by_key(|given| given.id_bytes());
            for given in overrides {
                let shown = |why| refused(&format!("{name}:{}", given.id()), why);
                let key = format!("{name}:{}", written_id(&given, &mut scratch).map_err(shown)?);
                let fields = override_fields(&given).map_err(shown)?;
                map.serialize_entry(&*key, &Tree::fields(fields))?;
            }
        }
        map.end()
    }
}

/// Writes the fields of the limit's algorithm, and `algorithm` if it is not gcra.
///
/// # Errors
///
/// An error of the format for a custom algorithm, and for a period above 2^63 - 1 ns.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
///
/// let limit = Limit::new(20, 10, Duration::from_secs(90))?;
/// assert_eq!(serde_json::to_string(&limit)?, r#"{"burst":20,"count":10,"period":"1m30s"}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = limit_fields(self).map_err(S::Error::custom)?;
        Tree::fields(fields).serialize(serializer)
    }
}

/// Writes the fields that are not at their defaults.
///
/// # Errors
///
/// Those of the shadow's [`Limit`].
impl Serialize for LimitOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = Fields::new();
        add_options(&mut fields, self, limit_fields).map_err(S::Error::custom)?;
        Tree::fields(fields).serialize(serializer)
    }
}

/// Writes the fields that were set.
///
/// # Errors
///
/// An error of the format if the override ends at another time than midnight UTC, or after the year 9999.
impl Serialize for OverrideOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let end = self.expires.time().map(|_| self.expires);
        let (comment, owner) = (self.note.comment.as_deref(), self.note.owner.as_deref());
        let mut fields = Fields::new();
        add_override_options(&mut fields, self.max_debt, comment, owner, end)
            .map_err(S::Error::custom)?;
        Tree::fields(fields).serialize(serializer)
    }
}

fn refused<E: serde::ser::Error>(place: &str, why: impl Display) -> E {
    E::custom(format_args!("{place}: {why}"))
}

fn default_fields(entry: &LimitEntry<'_>) -> Result<Fields, String> {
    let mut fields = match entry.default_limit() {
        _ if entry.is_disabled() => vec![("enabled", Tree::Bool(false))],
        Some(limit) => limit_fields(limit)?,
        // As the older form of a leaky bucket says that there is no limit.
        None => vec![
            ("algorithm", Tree::text("leaky_bucket")),
            ("max", Tree::Integer(1)),
            ("duration", Tree::duration(Duration::ZERO)),
        ],
    };
    fields.push(("id", Tree::text(entry.format())));
    add_options(&mut fields, entry.options(), parameters)?;
    Ok(fields)
}

fn override_fields(given: &OverrideEntry<'_>) -> Result<Fields, String> {
    let mut fields = match given.limit() {
        Some(limit) => parameters(limit)?,
        None => vec![("unlimited", Tree::Bool(true))],
    };
    let end = given.expires().map(Expiry::at);
    let (comment, owner) = (given.comment(), given.owner());
    // A bucket that is never charged owes nothing.
    let max_debt = given.own_max_debt().filter(|_| given.limit().is_some());
    add_override_options(&mut fields, max_debt, comment, owner, end)?;
    Ok(fields)
}

/// Returns the text for a file that the reader turns into the same id.
fn written_id(given: &OverrideEntry<'_>, scratch: &mut Scratch) -> Result<String, String> {
    let limit = given.limit_entry();
    let id = decode_for_file(limit.format(), given.id_bytes());
    if limit.format().has_free_text() {
        WrittenId::in_quotes(&id).check()?;
    }
    let public_only = names::BOULDER.iter().any(|(name, _)| *name == limit.name());
    match encode_override(limit.format(), &id, public_only, scratch) {
        Ok(bytes) if bytes == given.id_bytes() => Ok(id),
        Ok(_) => Err("the id cannot be written: its text is another id".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the parameters, and the algorithm if it is not gcra.
fn limit_fields(limit: &Limit) -> Result<Fields, String> {
    let algorithm = match limit.algorithm() {
        "gcra" => None,
        other => Some(("algorithm", Tree::text(other))),
    };
    let parameters = parameters(limit)?;
    Ok(algorithm.into_iter().chain(parameters).collect())
}

fn parameters(limit: &Limit) -> Result<Fields, String> {
    if let Parameters::Custom(rule) = limit.parameters() {
        return Err(format!("the custom algorithm {} cannot be written", rule.name()));
    }
    let written = limit.parameters().named().map(|(name, value)| match value {
        ParameterValue::Units(units) => Ok((name, Tree::Integer(units.into()))),
        ParameterValue::Time(time) => Ok((name, duration(name, time)?)),
    });
    written.collect()
}

fn duration(field: &str, duration: Duration) -> Result<Tree, String> {
    let text = Go(duration).to_string();
    match parse_duration(&text) {
        Ok(_) => Ok(Tree::text(text)),
        Err(_) => Err(format!("{field} {text}: more than 2^63 - 1 ns cannot be written")),
    }
}

/// Adds the options of a limit that are not at their defaults. `shadow` returns the fields of the shadow.
fn add_options(
    fields: &mut Fields,
    options: &LimitOptions,
    shadow: fn(&Limit) -> Result<Fields, String>,
) -> Result<(), String> {
    if options.mode != LimitMode::default() {
        fields.push(("mode", Tree::text(options.mode)));
    }
    if let Some(limit) = &options.shadow {
        fields.push(("shadow", Tree::fields(shadow(limit)?)));
    }
    if options.max_debt > 0 {
        fields.push(("max_debt", Tree::Integer(options.max_debt.into())));
    }
    fields.extend(options.max_keys.map(|keys| ("max_keys", Tree::Integer(keys as i128))));
    if !options.floors.is_empty() {
        let floor = |(name, floor): (&str, Floor)| {
            let value = match floor {
                Floor::Units(units) => Tree::Integer(units.into()),
                Floor::Percent(_) => Tree::text(floor),
            };
            (Tree::text(name), value)
        };
        fields.push(("floors", Tree::Map(options.floors.iter().map(floor).collect())));
    }
    fields.extend(sharing::sharing_fields(&options.sharing));
    Ok(())
}

fn add_override_options(
    fields: &mut Fields,
    max_debt: Option<u64>,
    comment: Option<&str>,
    owner: Option<&str>,
    end: Option<Expiry>,
) -> Result<(), String> {
    fields.extend(max_debt.map(|units| ("max_debt", Tree::Integer(units.into()))));
    fields.extend(comment.map(|text| ("comment", Tree::text(text))));
    fields.extend(owner.map(|text| ("owner", Tree::text(text))));
    if let Some(end) = end {
        let day = end.to_string();
        if Expiry::after_day(&day) != Ok(end) {
            return Err(within_day(&day));
        }
        fields.push(("expires", Tree::text(day)));
    }
    Ok(())
}

fn within_day(end: &str) -> String {
    format!("expires {end}: only the end of a day, to 9999-12-31, can be written")
}
