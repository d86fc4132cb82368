//! The counters that a recorder of the crate `metrics` gets.

use super::*;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use std::collections::HashMap;

#[test]
fn a_recorder_gets_the_counters() {
    let limits = add(no_limits(), "A", 4, shadow_beside(1));
    let (limiter, _hand) = limiter(add(limits, "B", 1, shadow_mode()), Engine::LockFree);
    for name in ["A", "A", "B", "B", "B"] {
        let _ = limiter.limit(name).unwrap().spend("k", 1).unwrap();
    }
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        limiter.publish_metrics();
        let _ = limiter.limit("A").unwrap().spend("k", 3).unwrap();
        limiter.publish_metrics();
    });
    let published: HashMap<String, DebugValue> = recorder
        .snapshotter()
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels =
                key.key().labels().map(|label| format!("{}={}", label.key(), label.value()));
            (format!("{} {}", key.key().name(), labels.collect::<Vec<_>>().join(",")), value)
        })
        .collect();
    let counters = [
        ("tollgate_decisions_total limit=A,outcome=allowed", 2),
        ("tollgate_decisions_total limit=A,outcome=denied", 1),
        ("tollgate_decisions_total limit=B,outcome=allowed", 3),
        ("tollgate_near_total limit=B", 3),
        ("tollgate_cost_total limit=A", 2),
        ("tollgate_shadow_denied_total limit=A", 2),
        ("tollgate_shadow_denied_total limit=B", 2),
        ("tollgate_errors_total limit=A", 0),
        ("tollgate_overflow_total outcome=overflowed", 0),
        ("tollgate_swept_total ", 0),
        ("tollgate_reload_errors_total ", 0),
        ("tollgate_limits_removed_total ", 0),
    ];
    for (series, value) in counters {
        assert_eq!(published.get(series), Some(&DebugValue::Counter(value)), "{series}");
    }
    let gauges = [
        ("tollgate_keys ", 3.0),
        ("tollgate_limit_burst limit=A", 4.0),
        ("tollgate_limit_enforced limit=B", 0.0),
        ("tollgate_limit_shadow_burst limit=A", 1.0),
        ("tollgate_limits_generation ", 0.0),
    ];
    for (series, value) in gauges {
        assert_eq!(published.get(series), Some(&DebugValue::Gauge(value.into())), "{series}");
    }
    assert!(published.keys().all(|series| !series.contains("=k")), "no series has a key");
}
