//! Tests of the calls that a gate lets in, and of its numbers.

use super::*;

fn pass(gate: &Arc<Gate>, keys: &[&str]) -> Option<Passed> {
    gate.pass(keys.iter().copied(), false)
}

/// A gate of 400 calls.
fn wide() -> Arc<Gate> {
    Arc::new(Gate::new(Duration::from_millis(10)))
}

fn late() -> Result<(), Error> {
    Err(Error::new(crate::error::ErrorKind::StoreLate, "planted"))
}

/// Lets returns in until there are too many.
fn most_returns(gate: &Arc<Gate>) -> Vec<PassedReturn> {
    std::iter::from_fn(|| gate.pass_return()).collect()
}

/// Calls that are late together count once. A round leaves three quarters if the store has answered a call meanwhile.
#[test]
fn late_calls_narrow_the_gate() {
    let gate = wide();
    let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
    for (answers, expected) in [(true, 300), (true, 225), (false, 4), (true, 4), (false, 4)] {
        let calls: Vec<_> = ids.iter().filter_map(|id| pass(&gate, &[id])).collect();
        if answers {
            calls[0].noted(Ok(())).unwrap();
        }
        assert!(calls.iter().all(|call| call.noted(late()).is_err()));
        assert_eq!(gate.allowed.load(Ordering::Relaxed), expected);
    }
    for _ in 0..10 * ANSWERS {
        pass(&gate, &["a"]).unwrap().noted(Ok(())).unwrap();
    }
    assert_eq!(gate.allowed.load(Ordering::Relaxed), 14);
}

#[test]
fn gate_is_whole_after_a_time() {
    let mut gate = Gate::new(Duration::from_millis(10));
    gate.made -= Duration::from_secs(10);
    for (narrowed_us, expected) in [(9_500_001, FEWEST), (9_500_000, 400)] {
        gate.allowed.store(FEWEST, Ordering::Relaxed);
        gate.narrowed_us.store(narrowed_us, Ordering::Relaxed);
        assert_eq!(gate.allowed_at(10_000_000), expected);
    }
}

#[test]
fn gate_of_fewest_waits_for_answers() {
    let mut gate = Gate::new(Duration::from_millis(10));
    gate.made -= Duration::from_secs(10);
    let gate = Arc::new(gate);
    let waiting = gate.wait_for_answers();
    assert!(pass(&gate, &["a"]).is_some(), "a wide one does not");
    gate.allowed.store(FEWEST, Ordering::Relaxed);
    assert!(pass(&gate, &["a"]).is_none());
    drop(waiting);
    assert!(pass(&gate, &["a"]).is_some());
    assert_eq!(gate.allowed_at(gate.now_us()), FEWEST, "the wait says nothing of its width");
}

/// The number halves once for the spends that were late together, grows by one in some rounds, and is whole after a time.
#[test]
fn returns_narrow_and_grow() {
    let mut gate = Gate::new(Duration::from_millis(10));
    gate.made -= Duration::from_secs(10);
    let gate = Arc::new(gate);
    let returns = most_returns(&gate);
    let in_line: Vec<_> = (0..CROWD).map(|_| gate.stand_in_line()).collect();
    let spends = [pass(&gate, &["a"]).unwrap(), pass(&gate, &["b"]).unwrap()];
    std::thread::sleep(Duration::from_millis(1));
    gate.note_answer();
    for spend in &spends {
        assert!(spend.noted(late()).unwrap_err().is_store_overload());
        assert_eq!(gate.returns_allowed.load(Ordering::Relaxed), 100);
    }
    for answer in 1..=ROUNDS * 100 {
        returns[0].note_answer();
        let grown = usize::from(answer == ROUNDS * 100);
        assert_eq!(gate.returns_allowed.load(Ordering::Relaxed), 100 + grown);
    }
    returns[0].note_answer();
    assert_eq!(gate.returns_allowed.load(Ordering::Relaxed), 101, "the next rounds have begun");
    drop(returns);
    gate.returns_narrowed_us.store(gate.now_us() - RETURNS_WHOLE_AFTER_US, Ordering::Relaxed);
    assert_eq!(most_returns(&gate).len(), 101, "others wait");
    drop(in_line);
    assert_eq!(most_returns(&gate).len(), 200);
}

/// A gate that is wider than its crowd narrows to three quarters of the crowd.
#[test]
fn few_late_calls_narrow_a_wide_gate() {
    let gate = wide();
    let ids: Vec<_> = (0..20).map(|id| id.to_string()).collect();
    let calls: Vec<_> = ids.iter().map(|id| pass(&gate, &[id]).unwrap()).collect();
    calls[0].noted(Ok(())).unwrap();
    assert!(calls.iter().all(|call| call.noted(late()).is_err()));
    assert_eq!(gate.allowed.load(Ordering::Relaxed), 15);
}

#[test]
fn lone_late_call_narrows_nothing() {
    let gate = wide();
    for _ in 0..20 {
        assert!(pass(&gate, &["a"]).unwrap().noted(late()).is_err());
    }
    assert_eq!(gate.allowed.load(Ordering::Relaxed), 400);
}

/// Calls that are not let in are of the crowd.
#[test]
fn late_call_beside_refused_ones_is_overload() {
    for (beside, is_crowded) in [(CROWD, true), (CROWD - 1, false)] {
        let gate = wide();
        gate.allowed.store(FEWEST, Ordering::Relaxed);
        let first = pass(&gate, &["hot"]).unwrap();
        assert!((0..beside).all(|_| pass(&gate, &["hot"]).is_none()));
        assert_eq!(first.noted(late()).unwrap_err().is_store_overload(), is_crowded);
    }
}

/// A batch over two servers, of which one was late, or it is not known which.
#[test]
fn late_batches_narrow_the_late_gate() {
    for (is_known, widths) in [(true, [4, 400]), (false, [400, 400])] {
        let gates = [wide(), wide()];
        let crowds = gates.each_ref().map(|gate| [(); CROWD].map(|()| pass(gate, &["a"])));
        let [first, second] = gates.each_ref().map(|gate| pass(gate, &["b"]).unwrap());
        let batch = first.and(second);
        if is_known {
            gates[0].note_late();
        }
        assert!(batch.noted(late()).unwrap_err().is_store_overload());
        assert_eq!(gates.map(|gate| gate.allowed.load(Ordering::Relaxed)), widths);
        drop(crowds);
    }
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

/// A spend that is late behind returns is overload if the server answers, and may be an outage if it has answered none lately.
#[test]
fn returns_are_a_crowd_if_answered() {
    for (silent_us, is_crowded) in [(LATELY_US - 50_000, true), (LATELY_US, false)] {
        let mut gate = Gate::new(Duration::from_millis(10));
        gate.made -= Duration::from_secs(10);
        let gate = Arc::new(gate);
        let old: Vec<_> = (0..CROWD).map(|_| gate.stand_in_line()).collect();
        drop(old);
        let spend = pass(&gate, &["a"]).unwrap();
        let is_overload = |silent_us| {
            gate.answered_us.store(gate.now_us() - silent_us, Ordering::Relaxed);
            spend.noted(late()).unwrap_err().is_store_overload()
        };
        assert!(!is_overload(0), "those before have gone");
        // A crowd with the spend itself, also if they have gone when it is late.
        drop((0..CROWD).map(|_| gate.stand_in_line()).collect::<Vec<_>>());
        assert_eq!(is_overload(silent_us), is_crowded);
        assert_eq!(gate.allowed.load(Ordering::Relaxed), 400);
    }
}

/// Otherwise its calls would never pass.
#[test]
fn buckets_of_one_part_have_one_place() {
    let gate = wide();
    gate.allowed.store(FEWEST, Ordering::Relaxed);
    let passed = pass(&gate, &["a", "a", "a"]).unwrap();
    assert!(pass(&gate, &["a"]).is_none());
    drop(passed);
    assert!(pass(&gate, &["a"]).is_some());
}

#[test]
fn one_id_has_a_quarter_at_most() {
    let gate = wide();
    let mut passed: Vec<_> = (0..100).map(|_| pass(&gate, &["hot"]).unwrap()).collect();
    assert!(pass(&gate, &["hot"]).is_none() && pass(&gate, &["other", "hot"]).is_none());
    let others: Vec<_> = (0..300).filter_map(|id| pass(&gate, &[&id.to_string()])).collect();
    assert!(others.len() > 250, "{} of 300", others.len());
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

/// The first call of a crowd began alone, and ends when all others have ended; the last one began beside them all.
#[test]
fn first_and_last_call_is_of_crowd() {
    for (beside, is_crowded) in [(CROWD, true), (CROWD - 1, false)] {
        let gate = wide();
        let first = pass(&gate, &["a"]).unwrap();
        let others: Vec<_> = (1..beside).map(|_| pass(&gate, &["a"]).unwrap()).collect();
        let last = pass(&gate, &["b"]).unwrap();
        drop(others);
        for call in [first, last] {
            assert_eq!(call.counts[0].calls_meanwhile() > CROWD, is_crowded);
        }
        assert!(pass(&gate, &["a"]).unwrap().counts[0].calls_meanwhile() == 1);
    }
}
