//! Changes of a bucket take turns, and are tried again for a time.

use super::*;
use crate::core::shared::Turn;

/// A store in memory that answers at once. Others come before its changes a number of times.
#[derive(Clone)]
struct Contended {
    inner: Arc<dyn SharedStore>,
    lost: Arc<Mutex<u32>>,
    patience: Duration,
    /// The times of a turn, of a call to read and of a change.
    takes: [Duration; 3],
    log: Log,
}

type Log = Arc<Mutex<Vec<String>>>;

impl std::fmt::Debug for Contended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Contended")
    }
}

/// A turn, which logs its end.
struct Ends(Log);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.lock().push("end".into());
    }
}

impl SharedStore for Contended {
    fn charge(&self, members: Arc<[SharedMember]>) -> Reply<Found> {
        std::thread::sleep(self.takes[1]);
        self.log.lock().push("read".into());
        self.inner.charge(members)
    }

    fn replace(&self, changes: Arc<[Change]>) -> Reply<Replaced> {
        std::thread::sleep(self.takes[2]);
        self.log.lock().push("replace".into());
        let mut lost = self.lost.lock();
        if *lost > 0 {
            *lost -= 1;
            // No text is `?`, so that it answers what there is.
            let changes = changes
                .iter()
                .map(|change| Change { before: Some((*b"?").into()), ..change.clone() });
            return self.inner.replace(changes.collect());
        }
        self.inner.replace(changes)
    }

    fn is_on(&self, clock: &Clock) -> bool {
        self.inner.is_on(clock)
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn turn(&self, key: &str) -> Turn {
        std::thread::sleep(self.takes[0]);
        self.log.lock().push(format!("turn of {key}"));
        let turn: Box<dyn Send> = Box::new(Ends(self.log.clone()));
        Box::pin(std::future::ready(Some(turn)))
    }

    fn run(&self, mut task: Task) {
        assert!(poll(task.as_mut()).is_ready());
    }
}

/// Makes a limit on a store before whose changes others come `lost` times. `takes`: the ms of a turn, of a call that reads, and
/// of a change.
fn contended(lost: u32, patience_ms: u64, takes: [u64; 3]) -> (KeyedLimit, Contended) {
    let (clock, _hand) = Clock::manual();
    let store = Contended {
        inner: Store::in_memory(clock.clone()).0.store,
        lost: Arc::new(Mutex::new(lost)),
        patience: Duration::from_millis(patience_ms),
        takes: takes.map(Duration::from_millis),
        log: Arc::default(),
    };
    let handle = StoreHandle { store: Arc::new(store.clone()), prefix: Box::default() };
    let options = LimiterOptions::default().clock(clock).store(Store(handle)).counting(true);
    let limiter = Limiter::with_options(limits(exact()), options);
    (limiter.limit("All").unwrap(), store)
}

/// Refunds units of a shared bucket. Returns whether the refund was made, and the calls of the store.
fn refund(lost: u32, patience_ms: u64, takes: [u64; 3]) -> (bool, Vec<String>) {
    let (all, Contended { log, .. }) = contended(lost, patience_ms, takes);
    assert!(all.spend_blocking("a", 3).unwrap().allowed());
    log.lock().clear();
    let refunded = block_on(all.refund_shared("a", 1));
    let is_made = refunded.map(|decision| assert_eq!(decision.remaining(), Some(3))).is_ok();
    let log = std::mem::take(&mut *log.lock());
    (is_made, log)
}

#[test]
fn turns_last_from_the_read_to_the_end() {
    let (is_made, log) = refund(2, 60_000, [0, 0, 0]);
    assert!(is_made);
    assert_eq!(log, ["turn of All:a", "read", "replace", "replace", "replace", "end"]);
}

#[test]
fn patience_begins_after_the_turn() {
    assert!(refund(1, 400, [500, 0, 0]).0);
}

#[test]
fn each_change_is_tried_once() {
    assert!(refund(0, 10, [0, 20, 0]).0);
    assert!(refund(0, 0, [0, 0, 0]).0);
}

#[test]
fn changes_end_after_the_patience() {
    let (is_made, log) = refund(500, 20, [0, 0, 1]);
    assert!(!is_made);
    assert!(log.len() < 30, "{}", log.len());
}

/// No caller waits for the settlement of a receipt: it is made when the others have become fewer.
#[test]
fn settlements_in_the_background_are_tried_again() {
    for (lost, left, errors) in [(3, 4, 0), (100_000, 2, 1)] {
        let (all, store) = contended(0, 2, [0, 0, 1]);
        let (_, receipt) = all.spend_estimate_blocking("a", 3).unwrap();
        *store.lost.lock() = lost;
        store.log.lock().clear();
        let _ = receipt.unwrap().settle(1);
        let turns = store.log.lock().iter().filter(|what| what.starts_with("turn")).count();
        assert!(turns > 1 && (errors == 0 || turns == 7), "{turns}");
        let counters = all.limiter.counters();
        let counted = counters.limits.iter().find(|limit| limit.name == "All").unwrap();
        assert_eq!(counted.errors, errors);
        assert_eq!(all.check_blocking("a", 0).unwrap().remaining(), Some(left), "of 5");
    }
}
