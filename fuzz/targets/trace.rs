//! Parses a line of a trace, and compares the result with that of a JSON parser.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tollgate::batch::MemberMode;

#[path = "../../crates/tollgate-cli/src/escape.rs"]
#[allow(dead_code, reason = "the command uses all of it")]
mod escape;
#[path = "../../crates/tollgate-cli/src/json.rs"]
mod json;
#[path = "../../crates/tollgate-cli/src/trace.rs"]
#[allow(dead_code, reason = "the command uses all of it; this target what reads a line")]
mod trace;

use trace::Op;

fuzz_target!(|line: &[u8]| {
    let operation = match trace::parse(line) {
        Ok(operation) => operation,
        Err(text) => {
            let mut out = Vec::new();
            trace::write_error(&mut out, &text).expect("memory");
            let written: Value = serde_json::from_slice(&out).expect("an error is JSON");
            assert_eq!(written["error"], *text);
            assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1, "{text:?}");
            return;
        }
    };
    let value: Value = serde_json::from_slice(line).expect("a line that was read is JSON");
    assert_eq!(value["at_ns"], operation.at_ns);
    let op = match operation.op {
        Op::Spend => "spend",
        Op::Check => "check",
        Op::Refund => "refund",
        Op::Reset => "reset",
    };
    assert_eq!(value["op"], op);
    let txns = value["txns"].as_array().expect("a list");
    assert_eq!(txns.len(), operation.txns.len());
    for (value, txn) in txns.iter().zip(&operation.txns) {
        let txn = &txn.0;
        assert_eq!((&value["limit"], &value["id"]), (&(*txn.limit).into(), &(*txn.id).into()));
        assert_eq!(value.get("cost").map_or(Some(1), Value::as_u64), Some(txn.cost));
        let mode = match txn.mode {
            MemberMode::CheckOnly => "check_only",
            MemberMode::SpendOnly => "spend_only",
            _ => "check_and_spend",
        };
        assert_eq!(value.get("mode").map_or(Some("check_and_spend"), Value::as_str), Some(mode));
        let factor = txn.factor().expect("it was looked at");
        let millionths = value.get("factor").map_or(Some(1.0), Value::as_f64).map(|f| f * 1e6);
        let difference = millionths.expect("a number") - factor.millionths() as f64;
        assert!(difference.abs() <= factor.millionths() as f64 * 1e-12, "{factor}");
    }
    // A line that is cut off is an error.
    let whole = line.trim_ascii();
    let cut = whole.len() * usize::from(whole[whole.len() / 2]) / 256;
    assert!(trace::parse(&whole[..cut.min(whole.len() - 1)]).is_err(), "cut at {cut}");
});
