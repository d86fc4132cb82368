//! A key that gets its cell while a call for it looks for a place.

use std::cell::Cell;

use super::migration::FIRST_LOG2;
use super::pressure::{OneLimit, store_key};
use super::{Change, Rules, Seeds, Table};
use crate::store::key::LimitTag;
use crate::store::{Absent, CellKey, Outdated, UpdateError};

const FIRST: u64 = 1;
const OTHER: u64 = 2;

/// Does something else when it is asked for the first time whether a bucket is full.
struct Meanwhile<'t> {
    table: &'t Table,
    is_due: Cell<bool>,
}

fn spend(table: &Table, id: u64, rules: &impl Rules) -> Result<(), UpdateError> {
    let id_bytes = id.to_le_bytes();
    let key = store_key(table, &id_bytes);
    let change = Change { key: &key, absent: Absent::Insert, now_ns: 10 };
    // A hundred ns each.
    table.update(change, rules, &mut |word| Some(word.max(10) + 100))
}

impl Rules for Meanwhile<'_> {
    fn owed(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        if self.is_due.replace(false) {
            assert_eq!(spend(self.table, OTHER, &OneLimit), Ok(()), "it takes the one place");
        }
        OneLimit.owed(key, tag, word, at_ns)
    }

    fn generation(&self) -> u64 {
        OneLimit.generation()
    }

    fn migrated(&self, key: CellKey<'_>, tag: LimitTag, word: u64) -> Option<(LimitTag, u64)> {
        OneLimit.migrated(key, tag, word)
    }

    fn converted(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated> {
        OneLimit.converted(key, tag, word, to)
    }

    fn record_end(&self, tag: LimitTag) {
        OneLimit.record_end(tag);
    }
}

#[test]
fn a_key_that_got_its_cell_meanwhile_is_not_refused_at_the_cap() {
    let table = Table::with_shape(1, 1, FIRST_LOG2, Seeds::new());
    let id_bytes = FIRST.to_le_bytes();
    let first = store_key(&table, &id_bytes);
    let change = Change { key: &first, absent: Absent::Insert, now_ns: 1 };
    assert_eq!(table.update(change, &OneLimit, &mut |_| Some(5)), Ok(()), "full at 5");
    let rules = Meanwhile { table: &table, is_due: Cell::new(true) };
    assert_eq!(spend(&table, OTHER, &rules), Ok(()), "it has a cell by now");
    assert!(!rules.is_due.get());
    let id_bytes = OTHER.to_le_bytes();
    let word = table.look(&store_key(&table, &id_bytes), &OneLimit).unwrap();
    assert_eq!((word, table.size().cells), (Some(210), 1), "both are charged, in one cell");
}
