//! Three tests: a call looks for room under the cap while another call inserts its key; a word is read under newer limits;
//! the fast path finds keys beyond the first line.

use std::cell::Cell;

use super::epoch::pin;
use super::migration::FIRST_LOG2;
use super::pressure_tests::{OneLimit, store_key};
use super::{Change, Rules, Seeds, Table};
use crate::store::key::{LimitIndex, LimitTag, Stamp};
use crate::store::{Absent, CellKey, Outdated, StoreKey, UpdateError};

const FIRST: u64 = 1;
const OTHER: u64 = 2;

/// Spends for the key `OTHER` when the table asks for the first time whether a bucket is full.
struct Meanwhile<'t> {
    table: &'t Table,
    is_due: Cell<bool>,
}

fn spend(table: &Table, id: u64, rules: &impl Rules) -> Result<(), UpdateError> {
    let id_bytes = id.to_le_bytes();
    let key = store_key(table, &id_bytes);
    let change = Change { key: &key, absent: Absent::Insert, now_ns: 10 };
    // A unit is 100 ns.
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
            assert_eq!(spend(self.table, OTHER, &OneLimit), Ok(()), "it takes the only room");
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
fn a_key_inserted_meanwhile_is_not_refused() {
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

/// The limits after [`OneLimit`], under which a unit takes twice as long.
struct SlowerLimit;

impl Rules for SlowerLimit {
    fn owed(&self, _: CellKey<'_>, _: LimitTag, _: u64, _: u64) -> Option<(LimitTag, u64)> {
        unreachable!("there is no sweep")
    }

    fn generation(&self) -> u64 {
        1
    }

    fn migrated(&self, _: CellKey<'_>, _: LimitTag, word: u64) -> Option<(LimitTag, u64)> {
        Some((SlowerLimit::tag(), 2 * word))
    }

    fn converted(
        &self,
        _: CellKey<'_>,
        from: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated> {
        assert_eq!(to, SlowerLimit::tag());
        Ok(if from == to { word } else { 2 * word })
    }

    fn record_end(&self, _: LimitTag) {}
}

impl SlowerLimit {
    fn tag() -> LimitTag {
        Stamp::new(LimitIndex(0), 1).tag(0)
    }
}

#[test]
fn words_of_older_limits_are_read_converted() {
    let table = Table::with_shape(8, 1, FIRST_LOG2, Seeds::new());
    assert_eq!(spend(&table, FIRST, &OneLimit), Ok(()));
    let id_bytes = FIRST.to_le_bytes();
    let key = StoreKey { tag: SlowerLimit::tag(), ..store_key(&table, &id_bytes) };
    // No call has brought the shard to the new limits yet.
    assert_eq!(table.look(&key, &SlowerLimit), Ok(Some(220)));
    let change = Change { key: &key, absent: Absent::Insert, now_ns: 10 };
    let mut met = Vec::new();
    let updated = table.update(change, &SlowerLimit, &mut |word| {
        met.push(word);
        None
    });
    assert_eq!(updated, Ok(()));
    assert_eq!(met, [220], "a denial is decided on the new units as well");
}

/// Of 512 keys in one shard some are not in the line where their search begins. Searches end at a vacant slot.
#[test]
fn the_fast_path_finds_keys_further_on() {
    const KEYS: u64 = 512;
    let table = Table::with_shape(1024, 1, FIRST_LOG2, Seeds::new());
    (0..KEYS).for_each(|id| assert_eq!(spend(&table, id, &OneLimit), Ok(())));
    let guard = pin();
    let word_of = |id: u64| {
        let fingerprint = store_key(&table, &id.to_le_bytes()).fingerprint;
        let home = table.home(&guard, fingerprint).expect("no migration");
        let is_further_on = home.line.iter().all(|slot| slot.live_word(fingerprint).is_none());
        (home.known().map(|known| known.word()), is_further_on)
    };
    let found: Vec<_> = (0..KEYS).map(word_of).collect();
    let further_on = found.iter().filter(|(word, is_further_on)| word.is_some() && *is_further_on);
    assert!(further_on.count() > KEYS as usize / 50);
    // Searches of more than 16 slots are left to the slow path.
    let missing = found.iter().filter(|(word, _)| word.is_none()).count();
    assert!(missing < KEYS as usize / 50, "{missing}");
    assert!(found.iter().all(|(word, _)| word.is_none_or(|word| word == 110)));
    assert!((KEYS..4 * KEYS).all(|id| word_of(id).0.is_none()));
}
