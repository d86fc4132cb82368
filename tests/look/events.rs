//! The events that a `tracing` subscriber gets.

use super::*;
use std::sync::{Arc, Mutex};
#[cfg(feature = "valkey")]
use tollgate::shared::block_on;
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
    // A subscriber for all threads: tracing decides once for an event whether anybody wants it, and asks the thread that comes
    // first.
    lines_of_threads();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), run);
    let lines = lines.0.lock().unwrap();
    lines.clone()
}

fn logged(options: LimiterOptions) -> Limiter {
    let (clock, _hand) = Clock::manual();
    let limits = add(no_limits(), "A", 1, LimitOptions::default()).build();
    Limiter::with_options(limits, options.clock(clock)).unwrap()
}

#[cfg(feature = "tower")]
#[test]
fn layer_logs_each_denied_request() {
    use http::{Request, Response};
    use std::convert::Infallible;
    use tollgate::http::{RateLimitLayer, Rule, extract};
    use tower::{Layer, ServiceExt, service_fn};

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let limiter = logged(LimiterOptions::default());
    let rule = || Rule::new(limiter.limit("A").unwrap(), extract::everyone("all"));
    let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
    let ask = |layer: &RateLimitLayer, request: Request<()>| {
        let Ok(_) = runtime.block_on(layer.layer(inner).oneshot(request));
    };
    let builder = || RateLimitLayer::builder(&limiter).rule(rule().shown_as("everyone"));
    let (quiet, logs) = (builder().build().unwrap(), builder().log_denials().build().unwrap());
    let serves = builder().log_denials().permissive(true).build().unwrap();
    let lines = lines_of(|| {
        ask(&logs, Request::get("/allowed").body(()).unwrap());
        for layer in [&quiet, &logs, &logs, &serves] {
            ask(layer, Request::post("/login?secret=1").body(()).unwrap());
        }
        ask(&logs, Request::get(format!("/{}", "z".repeat(300))).body(()).unwrap());
    });
    let line = |method: &str, path: &str| {
        format!(
            "INFO message=request denied method={method} path={path} limits=[\"everyone\"] retry_in=3600s"
        )
    };
    let long = format!("/{}...", "z".repeat(255));
    assert_eq!(lines, [line("POST", "/login"), line("POST", "/login"), line("GET", &long)]);
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
        let held = limiter.limit("A").unwrap();
        assert!(limiter.reload(numbers.build()).is_err());
        drop(held);
        limiter.reload(no_limits().build()).unwrap();
    });
    let room =
        |count| format!("WARN message=no room for a new key outcome=\"denied\" count={count}");
    assert_eq!(lines[..3], [room(1), room(2), room(4)]);
    assert_eq!(lines[3], "INFO message=limits reloaded generation=1 changed=true");
    assert!(lines[4].starts_with("WARN message=limits not reloaded error="), "{}", lines[4]);
    assert_eq!(lines[5], "INFO message=limits reloaded generation=2 changed=true");
    assert_eq!(lines[6], "WARN message=limits removed generation=2 limits=A");
    assert_eq!(lines.len(), 7);
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

/// The lines of all threads that have no subscriber of their own.
fn lines_of_threads() -> &'static Lines {
    static LINES: std::sync::OnceLock<Lines> = std::sync::OnceLock::new();
    LINES.get_or_init(|| {
        let lines = Lines::default();
        tracing::subscriber::set_global_default(lines.clone()).unwrap();
        lines
    })
}

#[cfg(feature = "valkey")]
fn shared_limits() -> Limits {
    let exact = LimitOptions::default().shared(tollgate::limits::Shared::Exact);
    add(no_limits(), "A", 1, exact).build()
}

#[test]
#[cfg(feature = "valkey")]
fn blocks_of_shared_limits_are_logged() {
    let store = tollgate::shared::Store::in_memory(Clock::system());
    let limiter =
        Limiter::with_options(shared_limits(), LimiterOptions::default().store(store)).unwrap();
    let a = limiter.shared("A").unwrap();
    let hour = Duration::from_secs(3600);
    let lines = lines_of(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let left = a.block("x\n", hour).await.unwrap();
            assert!(left >= hour && left < hour + Duration::from_millis(1), "{left:?}");
            assert!(a.unblock("x\n").await.unwrap());
            assert!(!a.unblock("x\n").await.unwrap());
        });
    });
    assert!(lines[0].starts_with("INFO message=blocked limit=\"A\" key=x\\n retry_in=3600"));
    assert_eq!(lines[1], "INFO message=unblocked limit=\"A\" key=x\\n retry_in=0ns");
    assert_eq!(lines.len(), 2);
}

/// No server listens at port 1.
#[test]
#[cfg(feature = "valkey")]
fn outages_are_logged() {
    let lines = lines_of_threads();
    let options = tollgate::limits::StoreOptions::new("redis://127.0.0.1:1").unwrap();
    let store = tollgate::shared::Store::connect(&options).unwrap();
    let limiter =
        Limiter::with_options(shared_limits(), LimiterOptions::default().store(store)).unwrap();
    for _ in 0..3 {
        assert!(!block_on(limiter.shared("A").unwrap().spend("x", 1)).unwrap().allowed());
    }
    let lines = lines.0.lock().unwrap();
    let began = |line: &&String| line.contains("shared limits are decided without the store");
    let began: Vec<_> = lines.iter().filter(began).collect();
    assert!(began.len() == 1 && began[0].starts_with("WARN ") && began[0].contains("127.0.0.1:1"));
}

#[test]
fn passes_of_the_sweeper_are_logged() {
    let lines = lines_of_threads();
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

/// A client without an id, or a proxy that stops to send its field, is an event a second, not one a request.
#[cfg(feature = "tower")]
#[test]
fn rejections_are_logged_once_a_second() {
    use http::{HeaderName, Request, Response};
    use std::convert::Infallible;
    use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
    use tower::{Layer, ServiceExt};

    let (clock, manual) = Clock::manual();
    let limits = add(no_limits(), "A", 1, LimitOptions::default())
        .limit("B", IdFormat::IpAddress, hourly(1))
        .unwrap();
    let limiter = Limiter::with_options(limits.build(), clock).unwrap();
    let key = extract::header_if_present(HeaderName::from_static("x-key"));
    let client = extract::client(ClientAddress::new());
    let layer = RateLimitLayer::builder(&limiter)
        .rule(Rule::new(limiter.limit("A").unwrap(), key))
        .rule(Rule::new(limiter.limit("B").unwrap(), client));
    let layer = layer.build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ask = |key: Option<&str>| {
        let mut request = Request::new(());
        for _ in 0..key.map_or(0, |_| 2) {
            request.headers_mut().append("x-key", key.unwrap().parse().unwrap());
        }
        let inner =
            tower::service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("")));
        let response = runtime.block_on(layer.layer(inner).oneshot(request)).unwrap();
        assert_ne!(response.status(), 200);
    };
    let lines = lines_of(|| {
        (0..3).for_each(|_| ask(None));
        ask(Some("k"));
        manual.advance(Duration::from_secs(1));
        ask(None);
    });
    let of_server = "WARN message=request rejected reason=\"client_address\" status=500 count=";
    let error = "error=the request has no peer address: serve with connect info, or insert tollgate::http::Peer";
    let of_client = "INFO message=request rejected reason=\"invalid_id\" status=400 count=1 error=the field x-key occurs more than once";
    assert_eq!(
        lines,
        [format!("{of_server}1 {error}"), of_client.into(), format!("{of_server}4 {error}")]
    );
}
