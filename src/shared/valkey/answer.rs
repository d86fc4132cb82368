//! Reads the answers of the scripts. The server may be another program: every answer is checked.

use redis::Value;
use smallvec::{SmallVec, smallvec};

use crate::shared::protocol::text;
use crate::shared::protocol::{Changed, Found};

/// Reads the answer of a charge.
pub(super) fn found(members: usize, value: Value) -> Option<Found> {
    let mut parts = match value {
        Value::BulkString(text) => return found_plain(members, &text),
        Value::Array(parts) if [members + 3, 2 * members + 3].contains(&parts.len()) => parts,
        _ => return None,
    };
    let units = |value| match value {
        Value::Int(units) => u64::try_from(units).ok(),
        _ => None,
    };
    let mut leased = parts.drain(members + 3..).map(units).collect::<Option<SmallVec<_>>>()?;
    leased.resize(members, 0);
    let texts = parts.drain(3..).map(bucket).collect::<Option<_>>()?;
    let denied = match parts[2] {
        Value::Int(0) => None,
        // A text is at fault, and the node finds it: no member has this position.
        Value::Int(-1) => Some(usize::MAX),
        Value::Int(position) => Some(usize::try_from(position).ok()?.checked_sub(1)?),
        _ => return None,
    };
    Some(Found { unix_ns: time(&parts[0], &parts[1])?, denied, texts, leased, times: Vec::new() })
}

/// Reads the answer of the script for plain gcra buckets.
fn found_plain(members: usize, answer: &[u8]) -> Option<Found> {
    let mut parts = answer.split(|&byte| byte == b' ');
    let mut number = || text::number(parts.next()?);
    let unix_ns = unix_ns(number()?, number()?)?;
    let denied = usize::try_from(number()?).ok()?.checked_sub(1);
    let texts: Vec<_> = parts.map(|text| (text != b"-").then(|| text.into())).collect();
    let is_whole = texts.len() == members && denied.is_none_or(|position| position < members);
    is_whole.then(|| Found {
        unix_ns,
        denied,
        texts,
        leased: smallvec![0; members],
        times: Vec::new(),
    })
}

/// Reads the answer of change.lua.
pub(super) fn changed(changes: usize, value: Value) -> Option<Changed> {
    let Value::Array(mut parts) = value else { return None };
    if parts.len() != changes + 2 {
        return None;
    }
    let texts = parts.drain(2..).map(bucket).collect::<Option<_>>()?;
    Some(Changed { unix_ns: time(&parts[0], &parts[1])?, texts })
}

/// Reads a text of a bucket; the outer `None` is a value of another kind.
fn bucket(value: Value) -> Option<Option<Box<[u8]>>> {
    match value {
        Value::Nil => Some(None),
        Value::BulkString(text) => Some(Some(text.into())),
        _ => None,
    }
}

/// Reads the server's time, in ns since 1970.
fn time(s: &Value, us: &Value) -> Option<u64> {
    let number = |value: &Value| match value {
        Value::BulkString(text) => text::number(text),
        _ => None,
    };
    unix_ns(number(s)?, number(us)?)
}

fn unix_ns(s: u64, us: u64) -> Option<u64> {
    s.checked_mul(1_000_000_000)?.checked_add(us.checked_mul(1_000)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_for_plain_buckets() {
        let found = found_plain(2, b"1790000000 7 2 1790000000000000001 -").unwrap();
        assert_eq!(found.unix_ns, 1_790_000_000_000_007_000);
        assert_eq!(found.denied, Some(1));
        assert_eq!(found.texts, [Some(b"1790000000000000001"[..].into()), None]);
        assert_eq!(found_plain(1, b"1 7 0 -").unwrap().denied, None);
        for other in ["", "OK", "1 7", "1 7 0", "1 7 2 -", "1 7 0 - -", "1 x 0 -", "-1 7 0 -"] {
            assert_eq!(found_plain(1, other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(found_plain(1, b"1 \xff 0 -"), None);
        // The reader of texts names the bucket.
        assert_eq!(found_plain(1, b"1 7 0 \xff").unwrap().texts, [Some(b"\xff"[..].into())]);
    }
}
