//! The slots of a cluster: which one a key is in, and which node has which.

use redis::Value;

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Returns the slot of a key: of the text in its first braces, if there is some, else of the whole key.
pub(super) fn slot_of(key: &str) -> u16 {
    let in_braces = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = in_braces.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    hashed.bytes().fold(0, with_byte) % SLOTS
}

/// CRC-16/XMODEM, bit by bit: a key has about 40 bytes.
fn with_byte(crc: u16, byte: u8) -> u16 {
    (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
        let shifted = crc << 1;
        if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
    })
}

/// Slots in a row, and the host and port of the node that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Reads the answer of `CLUSTER SLOTS`. `asked`: the host of the node that gave it, which may leave its own host out. `None`:
/// it is another answer, or names no node.
pub(super) fn slot_ranges(answer: Value, asked: &str) -> Option<Vec<SlotRange>> {
    let Value::Array(rows) = answer else { return None };
    let rows = rows.into_iter().map(|row| range(row, asked));
    let ranges: Vec<_> = rows.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
    (!ranges.is_empty()).then_some(ranges)
}

/// Reads one row; the inner `None` has a node whose host is not known yet.
fn range(row: Value, asked: &str) -> Option<Option<SlotRange>> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &*row else {
        return None;
    };
    let slot = |number: i64| u16::try_from(number).ok().filter(|&slot| slot < SLOTS);
    let [host, Value::Int(port), ..] = &**primary else { return None };
    let host = match host {
        Value::Nil => asked.to_owned(),
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        _ => return None,
    };
    let host = match host.as_str() {
        "?" => return Some(None),
        "" => asked.to_owned(),
        _ => host,
    };
    let (first, last, port) = (slot(*first)?, slot(*last)?, u16::try_from(*port).ok()?);
    Some((first <= last).then_some(SlotRange { first, last, host, port }))
}

/// Splits the address that a node names, `host:port`, where the host may be left out. `None`: it does not know the host.
pub(super) fn host_and_port(address: &str, asked: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = match host {
        "?" => return None,
        "" => asked,
        host => host,
    };
    Some((host.into(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // From CLUSTER KEYSLOT of Valkey 9.1.
        for (key, slot) in [
            ("", 0),
            ("foo", 12182),
            ("123456789", 12739),
            ("tollgate:PerUser:alice", 2381),
            ("a{foo}b{bar}", 12182),
            ("{}foo", 9500),
            ("{foo", 13308),
            ("a{}b{c}", 7353),
            ("}a{b}", 3300),
        ] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!("123456789".bytes().fold(0, with_byte), 0x31c3);
    }

    #[test]
    fn answers_of_nodes_are_read() {
        let node = |host: Value| Value::Array(vec![host, Value::Int(7000)]);
        let row = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let range =
            |first, last, host: &str| SlotRange { first, last, host: host.into(), port: 7000 };
        let text = |text: &str| Value::BulkString(text.into());
        let rows = vec![
            row(0, 9, node(text("::1"))),
            row(10, 19, node(text(""))),
            row(20, 29, node(text("?"))),
            row(30, 39, node(Value::Nil)),
        ];
        let found = slot_ranges(Value::Array(rows), "asked");
        let wanted = vec![range(0, 9, "::1"), range(10, 19, "asked"), range(30, 39, "asked")];
        assert_eq!(found, Some(wanted));
        for other in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![row(0, 16_384, node(text("a")))]),
            Value::Array(vec![row(-1, 5, node(text("a")))]),
            Value::Array(vec![row(0, 5, Value::Array(vec![]))]),
        ] {
            assert_eq!(slot_ranges(other.clone(), "asked"), None, "{other:?}");
        }
        assert_eq!(host_and_port("h:1", "asked"), Some(("h".into(), 1)));
        assert_eq!(host_and_port(":1", "asked"), Some(("asked".into(), 1)));
        assert_eq!(host_and_port("::1:1", "asked"), Some(("::1".into(), 1)));
        assert_eq!(host_and_port("h", "asked"), None);
        assert_eq!(host_and_port("?:1", "asked"), None);
    }
}
