//! Tests of the calls that a gate lets in, and of its numbers.

use super::*;

fn pass(gate: &Arc<Gate>, keys: &[&str]) -> Option<Passed> {
    gate.pass(keys.iter().copied(), false)
}

/// A gate of 400 calls.
fn wide() -> Arc<Gate> {
    Arc::new(Gate::new(Duration::from_millis(10)))
}

/// Lets returns in until there are too many.
fn most_returns(gate: &Arc<Gate>) -> Vec<PassedReturn> {
    std::iter::from_fn(|| gate.pass_return()).collect()
}

/// Notes twice that a call was late. `answered`: the answers in its time.
fn note_late(gate: &Gate, answered: usize) {
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(1));
    gate.note_late(began, Some(answered));
    gate.note_late(began, Some(answered));
}

fn returns_allowed(gate: &Gate) -> usize {
    gate.returns_allowed.load(Ordering::Relaxed)
}

fn allowed(gate: &Gate) -> usize {
    gate.allowed.load(Ordering::Relaxed)
}

/// Calls that are late together count once. A round leaves three quarters, or as many of the calls that the store has answered
/// meanwhile.
#[test]
fn late_calls_narrow_the_gate() {
    let gate = wide();
    (0..10 * ANSWERS).for_each(|_| gate.note_answers(1));
    assert_eq!(allowed(&gate), 400, "no more than these");
    let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
    for (answered, expected) in [(500, 300), (299, 224), (20, 15), (14, 10), (0, 4), (9, 4)] {
        let _calls: Vec<_> = ids.iter().filter_map(|id| pass(&gate, &[id])).collect();
        note_late(&gate, answered);
        assert_eq!(allowed(&gate), expected);
    }
    (0..10 * ANSWERS).for_each(|_| gate.note_answers(1));
    assert_eq!(allowed(&gate), 14);
}

/// Calls that are sent together have their answers together.
#[test]
fn answers_at_once_widen_as_much() {
    let both = [wide(), wide()];
    both.iter().for_each(|gate| gate.allowed.store(350, Ordering::Relaxed));
    for answers in [0, 1, 6, 1, 1, 8, 16, 13, 90, 2, 500] {
        both[0].note_answers(answers);
        (0..answers).for_each(|_| both[1].note_answers(1));
        let [at_once, one_by_one] = both.each_ref().map(|gate| (allowed(gate), gate.answers()));
        assert_eq!(at_once, one_by_one, "after {answers}");
    }
    assert_eq!(allowed(&both[0]), 400);
}

#[test]
fn gate_is_whole_after_a_time() {
    let mut gate = Gate::new(Duration::from_millis(10));
    gate.made -= Duration::from_secs(10);
    for (late_us, expected) in [(9_500_001, FEWEST), (9_500_000, 400)] {
        gate.allowed.store(FEWEST, Ordering::Relaxed);
        gate.late_us.store(late_us, Ordering::Relaxed);
        assert_eq!(gate.allowed_at(10_000_000), expected);
    }
}

/// The number halves once for the spends that were late together, grows by one in some rounds, and is whole after a time.
#[test]
fn returns_narrow_and_grow() {
    let mut gate = Gate::new(Duration::from_millis(10));
    gate.made -= Duration::from_secs(10);
    // A test's thread may stand still.
    gate.in_time_us = 5_000_000;
    let gate = Arc::new(gate);
    let returns = most_returns(&gate);
    let in_line = [gate.stand_in_line(), gate.stand_in_line()];
    note_late(&gate, 0);
    assert_eq!(returns_allowed(&gate), 200, "a store that answers nothing");
    (0..1_000).for_each(|_| returns[0].note_answer());
    assert_eq!(returns_allowed(&gate), 200, "no more than these");
    note_late(&gate, 1);
    assert_eq!((returns_allowed(&gate), allowed(&gate)), (100, 400));
    for answer in 1..=ROUNDS * 100 {
        returns[0].note_answer();
        assert_eq!(returns_allowed(&gate), 100 + usize::from(answer == ROUNDS * 100));
    }
    returns[0].note_answer();
    assert_eq!(returns_allowed(&gate), 101, "the next rounds have begun");
    drop(returns);
    note_late(&gate, 100);
    assert_eq!(returns_allowed(&gate), 101, "no returns beside it");
    gate.returns_narrowed_us.store(gate.now_us() - RETURNS_WHOLE_AFTER_US, Ordering::Relaxed);
    assert_eq!(most_returns(&gate).len(), 101, "others wait");
    let [_caller, other] = in_line;
    drop(other);
    assert_eq!(most_returns(&gate).len(), 200);
}

/// Those of a round count once.
#[test]
fn late_returns_narrow_their_number() {
    let mut gate = Gate::new(Duration::from_millis(10));
    gate.made -= Duration::from_secs(10);
    // A test's thread may stand still.
    gate.in_time_us = 5_000_000;
    let gate = Arc::new(gate);
    let _in_line = [gate.stand_in_line(), gate.stand_in_line()];
    for expected in [100, 50] {
        gate.returns_narrowed_us.store(0, Ordering::Relaxed);
        let mut returns = most_returns(&gate);
        returns[0].note_answer();
        assert_eq!(returns_allowed(&gate), 2 * expected, "in time");
        std::thread::sleep(Duration::from_millis(1));
        for it in &mut returns {
            it.began_us -= gate.in_time_us;
            it.note_answer();
        }
        assert_eq!(returns_allowed(&gate), expected);
    }
}

/// However few of them are still under way then: the others have had their answers.
#[test]
fn narrow_gate_has_room_for_what_was_answered() {
    for (answered, expected) in [(Some(126), 94), (None, 15)] {
        let gate = wide();
        let ids: Vec<_> = (0..20).map(|id| id.to_string()).collect();
        let _returns = most_returns(&gate);
        let _late: Vec<_> = ids.iter().map(|id| pass(&gate, &[id]).unwrap()).collect();
        std::thread::sleep(Duration::from_millis(1));
        gate.note_late(Instant::now(), answered);
        assert_eq!((allowed(&gate), returns_allowed(&gate)), (expected, 100));
    }
}

/// A few late calls narrow only a gate that is narrow.
#[test]
fn few_late_calls_narrow_no_whole_gate() {
    let ids: Vec<_> = (0..20).map(|id| id.to_string()).collect();
    for (under_way, expected) in [(CROWD + 1, 75), (CROWD, 400)] {
        let gate = wide();
        let of = |id: &String| pass(&gate, &[id]).unwrap();
        let _calls: Vec<_> = ids[..under_way].iter().map(of).collect();
        note_late(&gate, 100);
        assert_eq!(allowed(&gate), expected);
    }
    let gate = wide();
    gate.allowed.store(CROWD, Ordering::Relaxed);
    let _calls: Vec<_> = ids[..CROWD].iter().filter_map(|id| pass(&gate, &[id])).collect();
    note_late(&gate, 100);
    assert!(allowed(&gate) < CROWD);
}

/// A few returns are few even if they are all that the gate would let in, and leave spends their time.
#[test]
fn returns_are_few() {
    let gate = wide();
    let returns = most_returns(&gate);
    assert_eq!(returns.len(), 200);
    assert!(pass(&gate, &["a"]).is_some());
    drop(returns);
    gate.allowed.store(FEWEST, Ordering::Relaxed);
    let returns = most_returns(&gate);
    assert_eq!(returns.len(), 2);
}

/// Otherwise its calls would never pass.
#[test]
fn buckets_of_one_part_have_one_place() {
    let gate = wide();
    gate.allowed.store(FEWEST, Ordering::Relaxed);
    let passed = [pass(&gate, &["a", "a", "a"]).unwrap(), pass(&gate, &["a"]).unwrap()];
    assert!(pass(&gate, &["a"]).is_none());
    drop(passed);
    assert!(pass(&gate, &["a"]).is_some());
}

#[test]
fn one_id_has_half_at_most() {
    let gate = wide();
    let of_denied = || gate.pass(std::iter::once("hot"), true);
    let denied: Vec<_> = (0..100).map(|_| of_denied().unwrap()).collect();
    assert!(of_denied().is_none(), "a quarter, if it was denied lately");
    drop(denied);
    let mut passed: Vec<_> = (0..200).map(|_| pass(&gate, &["hot"]).unwrap()).collect();
    assert!(pass(&gate, &["hot"]).is_none() && pass(&gate, &["other", "hot"]).is_none());
    let others: Vec<_> = (0..200).filter_map(|id| pass(&gate, &[&id.to_string()])).collect();
    assert!(others.len() > 150, "{} of 200", others.len());
    passed.pop();
    assert!(pass(&gate, &["hot"]).is_some());
}

#[test]
fn ids_that_were_denied_leave_half() {
    let gate = wide();
    let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
    let pass = |was_denied| {
        let of = |id: &String| gate.pass(std::iter::once(&**id), was_denied);
        ids.iter().filter_map(of).collect::<Vec<_>>()
    };
    let denied = pass(true);
    assert_eq!(denied.len(), 200);
    assert_eq!(pass(false).len(), 200);
    drop(denied);
    assert_eq!(pass(true).len(), 200);
}

#[test]
fn counts_come_back_to_zero() {
    let gate = Arc::new(Gate::new(Duration::ZERO));
    let ids = (0..1_000).map(|id| id.to_string());
    let passed: Vec<_> = ids.filter_map(|id| pass(&gate, &[&id, "a"])).collect();
    assert_eq!(passed.len(), MOST[0] / SHARE);
    drop(passed);
    let under_way = |calls: &Calls| calls.0.load(Ordering::Relaxed);
    assert_eq!(under_way(&gate.under_way), 0);
    assert!(gate.parts.iter().all(|part| under_way(part) == 0));
}

/// Callers that come together, and seldom, were denied for as long as a server stood still now and then.
#[test]
fn half_of_gate_is_back_after_stall() {
    let gate = wide();
    let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
    for expected in [200, 100] {
        let calls: Vec<_> = ids.iter().filter_map(|id| pass(&gate, &[id])).collect();
        note_late(&gate, 0);
        drop(calls);
        assert_eq!(allowed(&gate), FEWEST, "while it stands still");
        // Those that are late in the same stall.
        let _calls: Vec<_> = ids.iter().filter_map(|id| pass(&gate, &[id])).collect();
        note_late(&gate, 0);
        gate.note_caught_up();
        assert_eq!(allowed(&gate), expected);
        gate.note_caught_up();
        assert_eq!(allowed(&gate), expected);
    }
    // Of a server that answers too slowly, nothing comes back.
    let _calls: Vec<_> = ids.iter().filter_map(|id| pass(&gate, &[id])).collect();
    note_late(&gate, 20);
    gate.note_caught_up();
    assert_eq!(allowed(&gate), 15);
}
