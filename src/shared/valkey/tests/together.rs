//! Charges that callers have handed over at the same time, and that are sent together.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use redis::Commands;

use super::server::{Server, with_each};
use super::{member, options, secondly, wait_until, wait_until_connected};
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::shared::protocol::{Found, SharedStore, StoreMember};
use crate::shared::valkey::{MOST_TOGETHER, ValkeyStore};

/// A charge's answer, and when it came.
type Answered = (Result<Found, Error>, Instant);

/// Keeps the store's thread busy for a time, so that it finds together what is handed to it meanwhile.
fn keep_busy(store: &ValkeyStore, time: Duration) {
    let (tell, has_begun) = mpsc::channel();
    store.run(Box::pin(async move {
        tell.send(()).unwrap();
        std::thread::sleep(time);
    }));
    has_begun.recv().unwrap();
}

fn begin(store: &ValkeyStore, one: StoreMember) -> mpsc::Receiver<Answered> {
    let (tell, answer) = mpsc::channel();
    let tell = Box::new(move |found| tell.send((found, Instant::now())).unwrap());
    store.charge_and_tell([one].into(), tell);
    answer
}

/// Charges members, each by a charge of its own, that are found together.
fn together(store: &ValkeyStore, members: Vec<StoreMember>) -> Vec<Result<Found, Error>> {
    keep_busy(store, Duration::from_millis(30));
    let begun: Vec<_> = members.into_iter().map(|one| begin(store, one)).collect();
    begun.into_iter().map(|answer| answer.recv().unwrap().0).collect()
}

fn members(count: usize) -> Vec<StoreMember> {
    (0..count).map(|at| member(&format!("id{at}"), &secondly(5, 1), 1)).collect()
}

#[test]
fn each_has_its_own_answer() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = ValkeyStore::start(&options(&server)).unwrap();
        wait_until_connected(&store);
        // More than are sent at once; of one bucket the first five have units.
        let count = 3 * MOST_TOGETHER + 5;
        let mut all = members(count);
        (0..8).for_each(|at| all[2 * at].key = "one".into());
        let calls = store.figures().unwrap().calls();
        let answers = together(&store, all);
        assert_eq!(store.figures().unwrap().calls(), calls + count as u64);
        for (at, found) in answers.into_iter().enumerate() {
            let denied = ((10..16).contains(&at) && at % 2 == 0).then_some(0);
            assert_eq!(found.unwrap().denied, denied, "{at}");
        }
    });
}

#[test]
fn a_bad_bucket_fails_its_charge_alone() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = ValkeyStore::start(&options(&server)).unwrap();
        wait_until_connected(&store);
        let mut control = server.connection();
        let () = control.rpush("id3", "no text").unwrap();
        let () = control.set("id5", "no bucket").unwrap();
        for (at, found) in together(&store, members(MOST_TOGETHER)).into_iter().enumerate() {
            match at {
                3 => assert_eq!(found.unwrap_err().kind(), ErrorKind::Store),
                // The node finds the text that is at fault.
                5 => assert_eq!(found.unwrap().denied, Some(usize::MAX)),
                _ => assert_eq!(found.unwrap().denied, None, "{at}"),
            }
        }
        let left: Vec<String> = control.keys("id*").unwrap();
        assert_eq!(left.len(), MOST_TOGETHER, "each of the others was charged");
        let errors = store.figures().unwrap().errors();
        assert_eq!((errors.refused, errors.timeout, errors.no_connection), (1, 0, 0));
    });
}

#[test]
fn one_of_them_sends_each_script() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = ValkeyStore::start(&options(&server)).unwrap();
        wait_until_connected(&store);
        let minute = Duration::from_secs(60);
        let window = Limit::fixed_window(5, minute).unwrap();
        for round in 1..=3 {
            let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection()).unwrap();
            let mut all = members(4 * MOST_TOGETHER);
            // Of two scripts.
            all.iter_mut().step_by(2).for_each(|it| it.limit = window.clone());
            let before = store.figures().unwrap().scripts_sent();
            for (at, found) in together(&store, all).into_iter().enumerate() {
                let found = found.unwrap();
                assert_eq!((found.denied, found.texts[0].is_some()), (None, round > 1), "{at}");
            }
            // Those that are sent together with others do not each send both.
            let sent = store.figures().unwrap().scripts_sent() - before;
            assert!((2..=4).contains(&sent), "{sent}");
        }
    });
}

/// A clock of the caller's, or an algorithm, may panic.
#[test]
fn a_caller_that_panics_ends_no_other() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = ValkeyStore::start(&options(&server)).unwrap();
        wait_until_connected(&store);
        keep_busy(&store, Duration::from_millis(30));
        let mut all = members(4).into_iter();
        let before = begin(&store, all.next().unwrap());
        let panics = Box::new(|_| panic!("planted"));
        store.charge_and_tell(all.next().into_iter().collect(), panics);
        let after: Vec<_> = all.map(|one| begin(&store, one)).collect();
        for answer in [before].into_iter().chain(after) {
            assert_eq!(answer.recv().unwrap().0.unwrap().denied, None);
        }
    });
}

/// Charges that are sent together end at the time of the first. One that was called later has a deadline of its own.
#[test]
fn a_later_charge_waits_as_long() {
    with_each(|binary| {
        let server = Server::start(binary);
        let timeout = Duration::from_millis(200);
        let store = ValkeyStore::start(&options(&server).answer_timeout(timeout).unwrap()).unwrap();
        wait_until_connected(&store);
        server.signal("-STOP");
        keep_busy(&store, Duration::from_millis(120));
        let began = [0, 1, 2].map(|at| {
            let called = Instant::now();
            let answer = begin(&store, members(3).swap_remove(at));
            std::thread::sleep(Duration::from_millis(40));
            (called, answer)
        });
        for (called, answer) in began {
            let (found, at) = answer.recv().unwrap();
            assert!(found.is_err_and(|error| error.is_undecided()));
            assert!(at - called >= timeout, "{:?}", at - called);
        }
        server.signal("-CONT");
        wait_until("answered", || together(&store, members(1)).iter().all(Result::is_ok));
    });
}
