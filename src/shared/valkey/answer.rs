//! Reads the answers of the scripts. The server may be another program: every answer is checked.

use redis::Value;

use super::link::Link;
use crate::core::shared::{Found, Replaced};
use crate::error::Error;

/// Reads the answer of a charge; `None` if the script for one gcra bucket leaves it to the general one.
pub(super) fn found(link: &Link, members: usize, value: Value) -> Result<Option<Found>, Error> {
    let parts = match value {
        Value::BulkString(text) if text == b"general" => return Ok(None),
        Value::Array(parts) if [members + 3, 2 * members + 3].contains(&parts.len()) => parts,
        _ => return Err(link.unknown_answer()),
    };
    let read = |mut parts: Vec<Value>| {
        let units = |value| match value {
            Value::Int(units) => u64::try_from(units).ok(),
            _ => None,
        };
        let mut leased = parts.drain(members + 3..).map(units).collect::<Option<Vec<_>>>()?;
        leased.resize(members, 0);
        let texts = parts.drain(3..).map(text).collect::<Option<_>>()?;
        let denied = match parts[2] {
            Value::Int(0) => None,
            // The texts say what is wrong: no member has this position.
            Value::Int(-1) => Some(usize::MAX),
            Value::Int(position) => Some(usize::try_from(position).ok()?.checked_sub(1)?),
            _ => return None,
        };
        Some(Found { unix_ns: time(&parts[0], &parts[1])?, denied, texts, leased })
    };
    read(parts).map(Some).ok_or_else(|| link.unknown_answer())
}

/// Reads the answer of a replacement.
pub(super) fn replaced(link: &Link, changes: usize, value: Value) -> Result<Replaced, Error> {
    let mut parts = match value {
        Value::BulkString(text) if text == b"replaced" => return Ok(Replaced::Done),
        Value::Array(parts) if parts.len() == changes + 2 => parts,
        _ => return Err(link.unknown_answer()),
    };
    let texts = parts.drain(2..).map(text).collect::<Option<_>>();
    let changed = time(&parts[0], &parts[1]).zip(texts);
    let changed = changed.map(|(unix_ns, texts)| Replaced::Changed { unix_ns, texts });
    changed.ok_or_else(|| link.unknown_answer())
}

/// Reads a text of a bucket; the outer `None` is a value of another kind.
fn text(value: Value) -> Option<Option<Box<[u8]>>> {
    match value {
        Value::Nil => Some(None),
        Value::BulkString(text) => Some(Some(text.into())),
        _ => None,
    }
}

/// Reads the server's time, in ns since 1970.
fn time(s: &Value, us: &Value) -> Option<u64> {
    let number = |value: &Value| match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    number(s)?.checked_mul(1_000_000_000)?.checked_add(number(us)?.checked_mul(1_000)?)
}
