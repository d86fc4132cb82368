//! The pause after a question without an answer, and connections that are lost under load or while nothing is asked.

use std::time::{Duration, Instant};

use super::mute::{Mute, Seen, members};
use super::{charge, wait_until};
use crate::observe::store_counters::StoreErrors;
use crate::shared::protocol::SharedStore;
use crate::shared::valkey::link::SILENT;

/// Questions alone are asked in a pause, and the answer to one ends it.
#[test]
fn a_server_without_answers_is_left_alone() {
    let began = Instant::now();
    let seen = Seen { stands: true, ..Seen::default() };
    let mute = Mute::start(seen, Duration::from_millis(30));
    mute.until_refused();
    assert!(began.elapsed() > SILENT, "a slow server has the time to come to its calls");
    let before = mute.scripts();
    // Four, and those that this process sent too late for the server to be blamed; without an end 66.
    assert!((1..=8).contains(&before), "asked {before} times");
    let began = Instant::now();
    while began.elapsed() < 2 * SILENT + Duration::from_millis(500) {
        assert!(!mute.is_answered());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(mute.scripts(), before, "a call was sent in the pause");
    assert!((3..=4).contains(&mute.seen.lock().connections), "one for each silent question");
    mute.answer();
    wait_until("answered", || mute.is_answered());
    assert!(mute.is_answered() && !mute.store.figures().unwrap().is_paused());
}

/// Each answer takes longer than a call may: such a network, or a server, never decides a call.
#[test]
fn a_server_that_is_always_late_is_paused() {
    let slow = Duration::from_millis(30);
    let seen = Seen { answers: true, takes: slow, question_takes: slow, ..Seen::default() };
    let mute = Mute::start(seen, Duration::from_millis(10));
    mute.until_refused();
    let connections = mute.seen.lock().connections;
    std::thread::sleep(2 * SILENT);
    wait_until("paused", || mute.call().is_err() && mute.store.figures().unwrap().is_paused());
    assert_eq!(mute.seen.lock().connections, connections, "one that answers stays");
    let mut seen = mute.seen.lock();
    (seen.takes, seen.question_takes) = (Duration::ZERO, Duration::ZERO);
    drop(seen);
    wait_until("answered", || mute.is_answered());
}

/// A few calls are late, and each question is.
#[test]
fn late_questions_beside_answers_are_no_pause() {
    let slow = Duration::from_millis(40);
    let seen = Seen { answers: true, question_takes: slow, ..Seen::default() };
    let mute = Mute::start(seen, Duration::from_millis(30));
    mute.seen.lock().takes = slow;
    assert!(!mute.is_answered());
    mute.seen.lock().takes = Duration::ZERO;
    let began = Instant::now();
    while began.elapsed() < SILENT + Duration::from_secs(1) {
        let _ = mute.is_answered();
        std::thread::sleep(Duration::from_millis(5));
        assert!(!mute.store.figures().unwrap().is_paused(), "{:?}", began.elapsed());
    }
}

/// Calls are late because of each other: the questions between are answered in time. They began a pause, in which `on_error: allow`
/// let a flood in.
#[test]
fn a_server_with_late_answers_is_not_paused() {
    let seen = Seen { answers: true, takes: Duration::from_millis(30), ..Seen::default() };
    let mute = Mute::start(seen, Duration::from_millis(10));
    let (began, mut late) = (Instant::now(), 0);
    while began.elapsed() < SILENT + Duration::from_millis(500) {
        // A node that is late by as much finds the answer.
        if let Err(error) = charge(&mute.store, &members()) {
            assert!(error.is_store_overload() && !error.is_unsent(), "{error}");
            late += 1;
        }
        std::thread::sleep(Duration::from_millis(90));
    }
    assert!(late > 5, "{late} late calls");
    assert!(!mute.store.figures().unwrap().is_paused());
    assert_eq!(mute.seen.lock().connections, 1);
}

#[test]
fn refusals_of_the_server_are_no_pause() {
    let refusing = Seen { refuses: Some("OOM by the test"), ..Seen::default() };
    let mute = Mute::start(refusing, Duration::from_secs(5));
    for _ in 0..20 {
        let error = charge(&mute.store, &members()).unwrap_err().to_string();
        assert!(error.contains("OOM"), "{error}");
    }
}

#[test]
fn an_answer_ends_a_row_of_failures() {
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_secs(5));
    for _ in 0..8 {
        let ends_at = mute.scripts() + 1;
        mute.seen.lock().ends_at = Some(ends_at);
        assert!(!mute.is_answered());
        wait_until("answered", || {
            let answered = charge(&mute.store, &members()).map_err(|error| error.to_string());
            assert!(
                !answered.as_ref().is_err_and(|error| error.contains("no answer came in time for"))
            );
            answered.is_ok()
        });
    }
}

#[test]
fn late_failures_leave_the_new_connection() {
    let mute = Mute::start(Seen::default(), Duration::from_millis(400));
    let (tell, done) = std::sync::mpsc::channel();
    let begin = || {
        let (by, tell) = (mute.store.clone(), tell.clone());
        mute.store.run(Box::pin(async move {
            let _ = tell.send(by.charge(members().into()).await.is_ok());
        }));
    };
    // One of the first calls ends the first connection, and the call after it fails once the second is made.
    wait_until("connected again", || {
        begin();
        std::thread::sleep(Duration::from_millis(200));
        begin();
        assert!(!done.recv().unwrap());
        std::thread::sleep(Duration::from_millis(50));
        mute.seen.lock().connections == 2
    });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(mute.seen.lock().connections, 2);
}

/// A server that is slow for a moment lets all calls of a busy program fail at once.
#[test]
fn calls_late_for_a_moment_are_no_pause() {
    let mute = Mute::start(Seen { stands: true, ..Seen::default() }, Duration::from_millis(200));
    for round in 0..3 {
        let (tell, done) = std::sync::mpsc::channel();
        for _ in 0..40 {
            let (by, tell) = (mute.store.clone(), tell.clone());
            mute.store.run(Box::pin(async move {
                let error = by.charge(members().into()).await.unwrap_err().to_string();
                let _ = tell.send(error.contains("no answer came in time for"));
            }));
        }
        drop(tell);
        assert!(!done.iter().any(|is_refused| is_refused), "round {round}");
    }
    mute.until_refused();
}

#[test]
fn failures_are_counted_by_their_kind() {
    let mute = Mute::start(Seen { stands: true, ..Seen::default() }, Duration::from_millis(30));
    mute.until_refused();
    let figures = mute.store.figures().unwrap();
    let StoreErrors { timeout, paused, .. } = figures.errors();
    assert!((1..=4).contains(&timeout) && paused >= 1, "{:?}", figures.errors());
    // A loaded machine may also be too late for some.
    assert!(figures.calls() >= timeout);
    assert!(figures.is_paused());
    assert!(!mute.is_answered());
    assert_eq!(figures.errors().paused, paused + 1);
    mute.answer();
    wait_until("answered", || mute.is_answered());
    assert!(!figures.is_paused());
    // The connection ends with the next call.
    let before = figures.errors().no_connection;
    let ends_at = mute.scripts() + 1;
    mute.seen.lock().ends_at = Some(ends_at);
    assert!(!mute.is_answered());
    assert_eq!(figures.errors().no_connection, before + 1);
}

#[test]
fn steps_of_the_servers_clock_are_counted() {
    let answering = Seen { answers: true, ..Seen::default() };
    let mute = Mute::start(answering, Duration::from_secs(5));
    let figures = mute.store.figures().unwrap();
    let counts = || (figures.clock_steps().0.count, figures.clock_steps().1.count);
    assert!(mute.is_answered());
    let before = counts();
    mute.seen.lock().ahead_s = 3_600;
    assert!(mute.is_answered());
    assert_eq!(counts(), (before.0 + 1, before.1));
    let size = figures.clock_steps().0.last;
    assert!(size > Duration::from_secs(3_590) && size <= Duration::from_secs(3_600), "{size:?}");
    mute.seen.lock().ahead_s = 0;
    assert!(mute.is_answered());
    assert_eq!(counts(), (before.0 + 1, before.1 + 1));
}

#[test]
fn calls_lost_together_make_one_connection() {
    let answering = Seen { answers: true, ..Seen::default() };
    let mute = Mute::start(answering, Duration::from_secs(5));
    for times in 1..=5 {
        let ends_at = mute.scripts() + 50;
        mute.seen.lock().ends_at = Some(ends_at);
        let (tell, done) = std::sync::mpsc::channel();
        for _ in 0..100 {
            let (by, tell) = (mute.store.clone(), tell.clone());
            mute.store.run(Box::pin(async move {
                let _ = tell.send(by.charge(members().into()).await.is_ok());
            }));
        }
        drop(tell);
        assert!(done.iter().any(|is_answered| !is_answered), "a connection was lost");
        wait_until("answered", || mute.is_answered());
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(mute.seen.lock().connections, 1 + times);
        assert!(mute.is_answered());
    }
}

/// A call that was sent before another timed out, and whose connection then ends: a new one is made at once.
#[test]
fn lost_calls_beside_a_failure_connect_anew() {
    let mute = Mute::start(Seen::default(), Duration::from_millis(400));
    // The first connection's trials are over.
    std::thread::sleep(Duration::from_millis(500));
    let (tell, done) = std::sync::mpsc::channel();
    let begin = || {
        let (by, tell) = (mute.store.clone(), tell.clone());
        mute.store.run(Box::pin(async move {
            let _ = tell.send(by.charge(members().into()).await.is_ok());
        }));
    };
    begin();
    std::thread::sleep(Duration::from_millis(200));
    begin();
    assert!(!done.recv().unwrap(), "it is late");
    let before = mute.seen.lock().connections;
    mute.seen.lock().ends = true;
    assert!(!done.recv().unwrap(), "it is lost");
    mute.seen.lock().ends = false;
    wait_until("connected again", || mute.seen.lock().connections > before);
}

/// None of them is a call: more of them than failures that begin a pause begin none.
#[test]
fn connections_lost_between_calls_are_no_failures() {
    let answering = Seen { answers: true, ..Seen::default() };
    let mute = Mute::start(answering, Duration::from_secs(5));
    let figures = mute.store.figures().unwrap();
    let (calls, errors) = (figures.calls(), figures.errors());
    for times in 1..=6 {
        mute.seen.lock().ends = true;
        std::thread::sleep(Duration::from_millis(50));
        mute.seen.lock().ends = false;
        wait_until("connected again", || mute.seen.lock().connections == 1 + times);
    }
    wait_until("given to calls", || mute.store.is_ready("a"));
    assert_eq!(figures.calls(), calls);
    assert!(mute.is_answered());
    assert!(!figures.is_paused());
    assert_eq!(figures.errors(), errors);
}

#[test]
fn a_silent_connection_between_calls_is_replaced() {
    let answering = Seen { answers: true, ..Seen::default() };
    let mute = Mute::start(answering, Duration::from_millis(100));
    assert!(mute.is_answered());
    let figures = mute.store.figures().unwrap();
    let errors = figures.errors();
    mute.seen.lock().dropped = 1;
    wait_until("connected again", || mute.seen.lock().connections == 2);
    // The new one is given to calls when its beginning is answered.
    std::thread::sleep(Duration::from_millis(200));
    assert!(mute.is_answered());
    assert_eq!(figures.errors(), errors);
    std::thread::sleep(2 * SILENT);
    assert_eq!(mute.seen.lock().connections, 2, "a connection that answers stays");
}

/// Calls on the silent connection begin a pause while attempts to make another one get no answer.
#[test]
fn a_replaced_connection_is_lost_once() {
    let answering = Seen { answers: true, ..Seen::default() };
    let mute = Mute::start(answering, Duration::from_millis(30));
    mute.seen.lock().dropped = usize::MAX;
    wait_until("attempted", || mute.seen.lock().connections == 2);
    wait_until("paused", || {
        assert!(!mute.is_answered());
        mute.store.figures().unwrap().is_paused()
    });
    mute.seen.lock().dropped = 0;
    wait_until("answered", || mute.is_answered());
    let connections = mute.seen.lock().connections;
    std::thread::sleep(2 * SILENT);
    assert!(mute.is_answered());
    assert_eq!(mute.seen.lock().connections, connections);
}

#[test]
fn redirects_that_nobody_follows_are_counted() {
    // A cluster follows a redirect if it names an address.
    for (scheme, to) in [("redis", "MOVED 1 127.0.0.1:1"), ("redis-cluster", "MOVED 1 ?:1")] {
        let moving = Seen { refuses: Some(to), ..Seen::default() };
        let mute = Mute::start_as(scheme, moving, Duration::from_millis(100));
        let counted = || {
            let errors = mute.store.figures().unwrap().errors();
            let StoreErrors { timeout, no_connection, paused, refused, unknown_text, overload } =
                errors;
            timeout + no_connection + paused + refused + unknown_text + overload
        };
        for _ in 0..3 {
            let before = counted();
            let error = charge(&mute.store, &members()).unwrap_err();
            assert!(error.is_store_outage(), "{error}");
            assert_eq!(counted(), before + 1, "{scheme}: {error}");
        }
    }
}

/// No call was sent any more: the places of late calls waited for the answer to a question that had gone with its connection.
#[test]
fn questions_lost_with_their_connection_free_places() {
    let mute = Mute::start(Seen::default(), Duration::from_millis(30));
    for _ in 0..4 {
        let sent = (0..10).filter(|_| {
            let before = mute.scripts();
            assert!(!mute.is_answered());
            mute.scripts() > before
        });
        assert!((3..=4).contains(&sent.count()), "no call is sent behind four late ones");
        let connections = mute.seen.lock().connections;
        mute.seen.lock().ends = true;
        wait_until("lost", || !mute.store.is_ready("a"));
        mute.seen.lock().ends = false;
        wait_until("connected again", || mute.seen.lock().connections > connections);
        let admit = || mute.store.admit(&mut std::iter::once("a"), false);
        wait_until("let in", || admit().is_ok());
    }
}

/// A call may wait longer for its answer than a server may be silent.
#[test]
fn long_timeouts_make_pauses_late() {
    let slow = Duration::from_millis(3_000);
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_millis(2_900));
    let mut seen = mute.seen.lock();
    (seen.takes, seen.question_takes) = (slow, Duration::from_millis(2_400));
    drop(seen);
    // The answer to the question comes 2.5 s after it, in time.
    let began = Instant::now();
    assert!(!mute.is_answered());
    while began.elapsed() < Duration::from_secs(6) {
        assert!(!mute.store.figures().unwrap().is_paused(), "{:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
}
