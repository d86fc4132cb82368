//! Tests what a file may say of shared limits without the feature `valkey`: that they are local.

use super::refused_values::check;
use super::*;

#[test]
fn a_local_limit_needs_no_feature() {
    let limits = read("A: {burst: 1, count: 1, period: 1s, id: string, shared: local}").unwrap();
    assert_eq!(numbers(&limits, "A", "x"), Some((1, 1, SECOND)));
}

#[test]
fn other_words_are_not_ignored() {
    check(
        &[
            (
                "A: {$REST, id: string,\n shared: exact}",
                &[
                    "2: A.shared: invalid shared \"exact\": it needs the feature \"valkey\", which this program was built without",
                ],
            ),
            (
                "A: {$REST, id: string, shared: lesed}",
                &[
                    "1: A.shared: invalid shared \"lesed\": local, leased and exact are allowed; did you mean leased?",
                ],
            ),
            (
                "A: {$REST, id: string, shared: local, on_error: local, fraction: 1, for: 1s, lease: 1s}",
                &[
                    "1: A.on_error: invalid on_error \"local\": it needs the feature \"valkey\", which this program was built without",
                    "1: A.fraction: invalid fraction \"1\": it needs the feature \"valkey\", which this program was built without",
                    "1: A.for: invalid for \"1s\": it needs the feature \"valkey\", which this program was built without",
                    "1: A.lease: invalid lease \"1s\": it needs the feature \"valkey\", which this program was built without",
                ],
            ),
            (
                "store: {url: redis://:secret@h}\nA: {$REST, id: string}",
                &[
                    "1: store: the name store is reserved for the section of the store that limits share: it needs the feature \"valkey\", which this program was built without",
                ],
            ),
        ],
        faults,
    );
}
