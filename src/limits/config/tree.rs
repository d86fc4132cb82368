//! Defines the tree of values that any self-describing format becomes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::limits::read::{DEPTH_MAX, too_deep};

/// A value of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    /// In the order of the source. A key may occur twice.
    Map(Vec<(Tree, Tree)>),
}

impl Tree {
    pub(crate) fn text(text: impl fmt::Display) -> Tree {
        Tree::Text(text.to_string())
    }

    /// Makes a map of fields.
    pub(crate) fn fields(fields: Vec<(&'static str, Tree)>) -> Tree {
        Tree::Map(fields.into_iter().map(|(name, value)| (Tree::text(name), value)).collect())
    }
}

/// The keys of the maps of one entry as which two crates give values that serde has no type for: the date of toml, and
/// the number of serde_json with its feature `arbitrary_precision`.
const DATE: &str = "$__toml_private_datetime";
const NUMBER: &str = "$serde_json::private::Number";

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        Seed { depth: 0 }.deserialize(deserializer)
    }
}

/// Reads a value inside of `depth` lists and maps.
#[derive(Clone, Copy)]
struct Seed {
    depth: usize,
}

impl Seed {
    fn inner<E: Error>(self) -> Result<Seed, E> {
        if self.depth >= DEPTH_MAX {
            return Err(E::custom(too_deep()));
        }
        Ok(Seed { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a configuration")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Tree, D::Error> {
        self.deserialize(inner)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Integer(value))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Tree, E> {
        // No number is so large, but an id may be: its text has every digit.
        Ok(i128::try_from(value).map_or_else(|_| Tree::text(value), Tree::Integer))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let inner = self.inner()?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Tree::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let inner = self.inner()?;
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(inner)? {
            entries.push((key, map.next_value_seed(inner)?));
        }
        if let [(Tree::Text(key), Tree::Text(text))] = &*entries {
            match &**key {
                DATE => return Ok(Tree::text(text)),
                NUMBER => return Ok(number(text)),
                _ => {}
            }
        }
        Ok(Tree::Map(entries))
    }

    /// A tag of YAML.
    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Tree, A::Error> {
        Err(A::Error::custom("a tag or a variant of an enum: a value alone is allowed"))
    }
}

fn number(text: &str) -> Tree {
    let integer = text.parse().map(Tree::Integer).ok();
    integer.or_else(|| text.parse().map(Tree::Float).ok()).unwrap_or_else(|| Tree::text(text))
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Null => serializer.serialize_unit(),
            Tree::Bool(value) => serializer.serialize_bool(*value),
            // Of the types in which an integer fits, the one that most formats have.
            Tree::Integer(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => serializer.serialize_u64(value),
                (_, Ok(value)) => serializer.serialize_i64(value),
                _ => serializer.serialize_i128(*value),
            },
            Tree::Float(value) => serializer.serialize_f64(*value),
            Tree::Text(text) => serializer.serialize_str(text),
            Tree::List(values) => serializer.collect_seq(values),
            Tree::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
