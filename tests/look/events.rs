//! The events that a `tracing` subscriber gets.

use super::*;
use std::sync::{Arc, Mutex};
use tollgate::sweep::SweepOptions;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Collects each event as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tollgate"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn lines_of(run: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), run);
    let lines = lines.0.lock().unwrap();
    lines.clone()
}

fn logged(options: LimiterOptions) -> Limiter {
    let (clock, _hand) = Clock::manual();
    let limits = add(no_limits(), "A", 1, LimitOptions::default()).build();
    Limiter::with_options(limits, options.clock(clock))
}

#[test]
fn first_denials_and_some_others_are_logged() {
    let limiter = logged(LimiterOptions::default().log_denials(3));
    let a = limiter.limit("A").unwrap();
    let lines = lines_of(|| {
        for _ in 0..8 {
            let _ = a.spend("x\n\u{202e}y", 1).unwrap();
        }
        let long = "z".repeat(100);
        let _ = (a.spend(&*long, 1).unwrap(), a.check(&*long, 1).unwrap());
        assert!(!limiter.batch(&[a.member(&*long)]).spend().unwrap().allowed());
    });
    let line = |key: &str| format!("INFO message=denied limit=\"A\" key={key} retry_in=3600s");
    let hostile = line("x\\n\\u{202e}y");
    let mut expected = vec![hostile; 3];
    expected.push(line(&format!("{}...", "z".repeat(64))));
    assert_eq!(
        lines, expected,
        "the first denials of two keys, and the first and the fourth of six others"
    );
}

#[test]
#[cfg(feature = "exact")]
fn reloads_and_full_tables_are_logged() {
    let options = LimiterOptions::default()
        .max_keys(1)
        .engine(Engine::Exact)
        .at_cap(tollgate::options::AtCap::Deny);
    let limiter = logged(options);
    let lines = lines_of(|| {
        for id in ["x", "x", "1", "2", "3", "4", "5"] {
            let _ = limiter.limit("A").unwrap().spend(id, 1).unwrap();
        }
        limiter.reload(add(no_limits(), "A", 2, LimitOptions::default()).build()).unwrap();
        let numbers = Limits::builder().limit("A", IdFormat::RegId, hourly(1)).unwrap();
        assert!(limiter.reload(numbers.build()).is_err());
    });
    let room =
        |count| format!("WARN message=no room for a new key outcome=\"denied\" count={count}");
    assert_eq!(lines[..3], [room(1), room(2), room(4)]);
    assert_eq!(lines[3], "INFO message=limits reloaded generation=1 changed=true");
    assert!(lines[4].starts_with("WARN message=limits not reloaded error="), "{}", lines[4]);
    assert_eq!(lines.len(), 5);
}

#[test]
fn blocks_are_logged() {
    let limiter = logged(LimiterOptions::default());
    let a = limiter.limit("A").unwrap();
    let lines = lines_of(|| {
        let hour = Duration::from_secs(3600);
        assert_eq!(a.block("x\n", hour).unwrap(), hour);
        assert!(a.unblock("x\n").unwrap() && !a.unblock("x\n").unwrap());
    });
    let line = |done, left| format!("INFO message={done} limit=\"A\" key=x\\n retry_in={left}");
    assert_eq!(lines, [line("blocked", "3600s"), line("unblocked", "0ns")]);
}

#[test]
fn passes_of_the_sweeper_are_logged() {
    // The sweeper runs on its own thread, so the subscriber is global.
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let limiter = logged(LimiterOptions::default());
    let interval = Duration::from_millis(1);
    let sweeper = limiter.start_sweeper(SweepOptions::default().interval(interval)).unwrap();
    let swept = |line: &String| line.starts_with("DEBUG message=swept looked_at=");
    let was_logged = || lines.0.lock().unwrap().iter().any(swept);
    // Half a minute is enough on any machine: the event comes with the first pass.
    let tries = (0..3000).take_while(|_| !was_logged()).map(|_| std::thread::sleep(10 * interval));
    assert!(tries.count() < 3000, "no pass was logged in half a minute");
    drop(sweeper);
}
