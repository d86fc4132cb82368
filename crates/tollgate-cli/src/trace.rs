//! Parses a line of a trace, and writes a decision.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tollgate::Decision;
use tollgate::batch::MemberMode;
use tollgate::limit::Factor;

use crate::escape::shortened;
use crate::json::write_json;

/// The maximum number of characters of an error about a line.
const MAX_ERROR_CHARS: usize = 1000;
/// The maximum number of characters of a factor in an error.
const MAX_FACTOR_CHARS: usize = 40;

/// One line of a trace.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operation<'a> {
    #[serde(deserialize_with = "at_ns")]
    pub(crate) at_ns: u64,
    pub(crate) op: Op,
    #[serde(borrow, default)]
    pub(crate) txns: Vec<Object<Txn<'a>>>,
}

/// The operation that a line makes on its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Spend,
    Check,
    Refund,
    Reset,
}

/// A transaction: one bucket of a line.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Txn<'a> {
    #[serde(borrow)]
    pub(crate) limit: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) id: Cow<'a, str>,
    #[serde(default = "one", deserialize_with = "cost")]
    pub(crate) cost: u64,
    #[serde(default, deserialize_with = "mode")]
    pub(crate) mode: MemberMode,
    #[serde(borrow, default)]
    factor: Option<&'a RawValue>,
}

impl Txn<'_> {
    /// Parses the factor from its text in the line: a factor is a decimal, and a float would lose digits.
    pub(crate) fn factor(&self) -> Result<Factor, String> {
        let Some(raw) = self.factor else { return Ok(Factor::ONE) };
        let short = shortened(raw.get(), MAX_FACTOR_CHARS);
        if raw.get().starts_with(['"', '[', '{', 'n', 't', 'f']) {
            return Err(format!("invalid factor {short}: a number is needed"));
        }
        raw.get().parse().map_err(|error: tollgate::Error| error.to_string())
    }
}

/// Parses a line, from which the caller has removed the line feed.
pub(crate) fn parse(line: &[u8]) -> Result<Operation<'_>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("invalid UTF-8 at column {}", error.valid_up_to() + 1))?;
    if text.trim_ascii().is_empty() {
        return Err("the line is empty: one JSON object is needed".into());
    }
    let operation: Object<Operation<'_>> =
        serde_json::from_str(text).map_err(|error| without_line(&error))?;
    let operation = operation.0;
    if operation.txns.is_empty() {
        return Err("txns is empty: at least one transaction".into());
    }
    for txn in &operation.txns {
        txn.0.factor()?;
    }
    Ok(operation)
}

/// Writes a decision as a JSON object, and a line feed. `denied_by` is the limit's name and the id of the bucket that
/// denied.
pub(crate) fn write_decision(
    out: &mut impl Write,
    decision: &Decision,
    denied_by: Option<(&str, &str)>,
) -> io::Result<()> {
    let allowed = decision.allowed();
    let (retry_in_ns, reset_in_ns) =
        (decision.retry_in().as_nanos(), decision.reset_in().as_nanos());
    match decision.remaining() {
        Some(remaining) => write!(out, "{{\"allowed\":{allowed},\"remaining\":{remaining}")?,
        None => write!(out, "{{\"allowed\":{allowed},\"remaining\":null")?,
    }
    write!(out, ",\"retry_in_ns\":{retry_in_ns},\"reset_in_ns\":{reset_in_ns}")?;
    if let Some((name, id)) = denied_by {
        out.write_all(b",\"denied_by\":")?;
        write_json(out, &format_args!("{name}:{id}"))?;
    }
    out.write_all(b"}\n")
}

/// Writes an error as a JSON object, and a line feed.
pub(crate) fn write_error(out: &mut impl Write, error: &str) -> io::Result<()> {
    out.write_all(b"{\"error\":")?;
    write_json(out, &error)?;
    out.write_all(b"}\n")
}

/// Formats an error without the line number of `serde_json`. That number is always 1, because `serde_json` gets one
/// line at a time.
pub(crate) fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    // The text may quote a part of the line, of any length and unescaped.
    let text = shortened(text.strip_suffix(&place).unwrap_or(&text), MAX_ERROR_CHARS);
    let cut = if error.is_eof() { "the line is cut off: " } else { "" };
    match error.column() {
        0 => format!("{cut}{text}"),
        column => format!("{cut}{text} at column {column}"),
    }
}

/// Deserializes `T` from an object only. A derived struct would also accept an array.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

// A derived enum would also accept an object in place of a string.

impl<'de> Deserialize<'de> for Op {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Op, D::Error> {
        match &*Cow::<str>::deserialize(deserializer)? {
            "spend" => Ok(Op::Spend),
            "check" => Ok(Op::Check),
            "refund" => Ok(Op::Refund),
            "reset" => Ok(Op::Reset),
            word => Err(de::Error::unknown_variant(word, &["spend", "check", "refund", "reset"])),
        }
    }
}

fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MemberMode, D::Error> {
    const WORDS: &[&str] = &["check_and_spend", "check_only", "spend_only"];
    match &*Cow::<str>::deserialize(deserializer)? {
        "check_and_spend" => Ok(MemberMode::CheckAndSpend),
        "check_only" => Ok(MemberMode::CheckOnly),
        "spend_only" => Ok(MemberMode::SpendOnly),
        word => Err(de::Error::unknown_variant(word, WORDS)),
    }
}

/// Deserializes a whole number. The error names the field, whose name is `self.0`.
struct WholeVisitor(&'static str);

impl Visitor<'_> for WholeVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a whole number from 0 to {}", self.0, u64::MAX)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }
}

fn at_ns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_u64(WholeVisitor("at_ns"))
}

fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_u64(WholeVisitor("cost"))
}

fn one() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        parse(line.as_bytes()).expect_err(line)
    }

    fn with(member: &str) -> String {
        format!(r#"{{"at_ns":1,"op":"spend","txns":[{{"limit":"A","id":"x"{member}}}]}}"#)
    }

    #[test]
    fn all_fields_are_parsed() {
        let line = with(r#","cost":3,"mode":"spend_only","factor":1.0"#);
        let operation = parse(line.as_bytes()).unwrap();
        assert_eq!((operation.at_ns, operation.op), (1, Op::Spend));
        let txn = &operation.txns[0].0;
        assert_eq!(
            (&*txn.limit, &*txn.id, txn.cost, txn.mode),
            ("A", "x", 3, MemberMode::SpendOnly)
        );
        assert!(matches!(txn.id, Cow::Borrowed(_)), "an id without escapes is borrowed");
    }

    #[test]
    fn missing_fields_get_their_defaults() {
        let line = with("");
        let operation = parse(line.as_bytes()).unwrap();
        let txn = &operation.txns[0].0;
        assert_eq!((txn.cost, txn.mode), (1, MemberMode::CheckAndSpend));
    }

    #[test]
    fn escapes_in_ids_are_decoded() {
        let line = r#"{"at_ns":1,"op":"check","txns":[{"limit":"A","id":"a\"\u00e9"}]}"#;
        assert_eq!(parse(line.as_bytes()).unwrap().txns[0].0.id, "a\"\u{e9}");
    }

    #[test]
    fn errors_say_what_and_where() {
        let cut = &with("")[..38];
        let cost = "expected cost: a whole number from 0 to 18446744073709551615";
        for (line, text) in [
            ("", "the line is empty: one JSON object is needed".to_owned()),
            (cut, "the line is cut off: EOF while parsing a string at column 38".into()),
            ("[1,\"spend\",[]]", "invalid type: sequence, expected an object".into()),
            (&with(r#","cots":1"#), "unknown field `cots`, expected one of `limit`, `id`, `cost`, `mode`, `factor` at column 60".into()),
            (&with(r#","cost":-1"#), format!("invalid type: integer `-1`, {cost} at column 63")),
            (&with(r#","cost":1.5"#), format!("invalid type: floating point `1.5`, {cost} at column 64")),
            (&with(r#","cost":"1""#), format!("invalid type: string \"1\", {cost} at column 64")),
            (&with(r#","mode":"x""#), "unknown variant `x`, expected one of `check_and_spend`, `check_only`, `spend_only` at column 65".into()),
            (r#"{"at_ns":1,"op":"spend"}"#, "txns is empty: at least one transaction".into()),
            (r#"{"at_ns":1,"op":"spend","txns":[]}"#, "txns is empty: at least one transaction".into()),
            (r#"{"op":"spend","txns":[]}"#, "missing field `at_ns` at column 24".into()),
        ] {
            assert_eq!(error(line), text, "{line}");
        }
        assert_eq!(parse(b"{\"at_ns\":\xff").unwrap_err(), "invalid UTF-8 at column 10");
    }

    #[test]
    fn arrays_and_objects_for_words_are_refused() {
        error(r#"{"at_ns":1,"op":"spend","txns":[["A","x"]]}"#);
        error(r#"{"at_ns":1,"op":{"spend":null},"txns":[{"limit":"A","id":"x"}]}"#);
        error(r#"{"at_ns":1,"at_ns":1,"op":"spend","txns":[{"limit":"A","id":"x"}]}"#);
        error(&format!("{} {{}}", with("")));
    }

    #[test]
    fn factors_are_exact_or_refused() {
        for (text, millionths) in [
            ("1", 1_000_000),
            ("1.0", 1_000_000),
            ("0", 0),
            ("0.5", 500_000),
            ("1.000001", 1_000_001),
        ] {
            let line = with(&format!(",\"factor\":{text}"));
            let operation = parse(line.as_bytes()).unwrap();
            assert_eq!(operation.txns[0].0.factor().unwrap().millionths(), millionths, "{text}");
        }
        for invalid in ["-1", "-0.5", "1.0000000", "1e0", "\"1\"", "[1]", "true"] {
            let text = error(&with(&format!(",\"factor\":{invalid}")));
            assert!(text.starts_with("invalid factor "), "{invalid}: {text}");
        }
    }

    #[test]
    fn errors_are_written_as_json() {
        let mut out = Vec::new();
        write_error(&mut out, "a \"b\"\n").unwrap();
        assert_eq!(out, b"{\"error\":\"a \\\"b\\\"\\n\"}\n");
    }
}
