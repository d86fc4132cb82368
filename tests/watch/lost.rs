//! Files that lose a limit of a live layer.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::future::ready;
use std::io::Write;
use std::sync::mpsc::{Receiver, channel};

use http::{Request, Response};
use http_body_util::Full;
use tollgate::http::{RateLimitLayer, Rule, extract};
use tower::{Layer, Service, ServiceExt};

use super::*;

fn entry(name: &str, rest: &str) -> String {
    format!("{name}: {{burst: 10, count: 1, period: 1h, id: string{rest}}}\n")
}

/// A client's view of a layer with one rule for `PerIp`, whose file is watched.
struct Guarded {
    site: Site,
    layer: RateLimitLayer,
    results: Receiver<Result<u64, String>>,
    watcher: Watcher,
}

impl Guarded {
    fn new(options: WatchOptions) -> Guarded {
        let mut site = Site::new();
        let text = entry("PerIp", "") + &entry("PerKey", "");
        site.limiter = Limiter::new(Limits::from_yaml(&text).unwrap());
        fs::write(site.file(), &text).unwrap();
        let rule = Rule::new(
            site.limiter.limit("PerIp").unwrap(),
            extract::header(http::HeaderName::from_static("client")),
        );
        let layer = RateLimitLayer::builder(&site.limiter).rule(rule).build().unwrap();
        let (log, results) = channel();
        let options = options.settle(millis(20)).poll(millis(5)).on_reload(move |result| {
            let result = result.as_ref().map(|done| done.generation).map_err(ToString::to_string);
            let _ = log.send(result);
        });
        let watcher = site.watch(options);
        let service = Guarded { site, layer, results, watcher };
        assert_eq!(service.result(), Ok(0));
        service
    }

    fn result(&self) -> Result<u64, String> {
        self.results.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    /// Returns the status of a request of `client`, and what the field `RateLimit` says is left.
    fn get(&self, client: &str) -> (u16, Option<String>) {
        let inner = tower::service_fn(|_: Request<()>| {
            ready(Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from("inner"))))
        });
        let mut service = self.layer.layer(inner);
        let request = Request::builder().header("client", client).body(()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(async { service.ready().await.unwrap().call(request).await });
        let answer = answer.unwrap();
        let field = answer.headers().get("ratelimit").map(|it| it.to_str().unwrap().to_owned());
        (answer.status().as_u16(), field)
    }

    /// Uses up the 10 of `client`.
    fn drain(&self, client: &str) {
        for _ in 0..10 {
            assert_eq!(self.get(client).0, 200);
        }
        self.still_limits(client);
    }

    fn still_limits(&self, drained: &str) {
        let (status, field) = self.get(drained);
        assert_eq!(status, 429);
        assert!(field.is_some_and(|field| field.contains("r=0")), "the layer sends its field");
    }
}

/// As of a typo in the file.
#[test]
fn typo_in_a_used_limits_name_is_refused() {
    let service = Guarded::new(WatchOptions::default());
    service.drain("a");
    fs::write(service.site.file(), entry("PerIP", "") + &entry("PerKey", "")).unwrap();
    let error = service.result().unwrap_err();
    assert!(error.contains("lack PerIp (there is PerIP at "), "{error}");
    assert!(error.contains("limits.yml: the new limits lack"), "{error}");
    assert!(error.contains("limits.yml:1)") && !error.contains("PerKey"), "{error}");
    assert!(error.contains("`enabled: false`"), "{error}");
    service.still_limits("a");
    assert_eq!(service.watcher.status().generation, 0);
    assert_eq!(service.site.limiter.counters().reload_errors, 1);

    fs::write(service.site.file(), entry("PerIp", "") + &entry("PerKey", ", shared: local"))
        .unwrap();
    assert!(service.result().is_ok(), "the right name again");
    service.still_limits("a");
}

#[test]
fn half_a_file_is_refused_beside_a_layer() {
    let service = Guarded::new(WatchOptions::default());
    service.drain("a");
    let mut file = fs::File::create(service.site.file()).unwrap();
    file.write_all(entry("PerKey", "").as_bytes()).unwrap();
    let error = service.result().unwrap_err();
    assert!(error.contains("lack PerIp, of which handles"), "{error}");
    service.still_limits("a");
    file.write_all(entry("PerIp", "").as_bytes()).unwrap();
    drop(file);
    assert!(service.result().is_ok(), "the whole file");
    service.still_limits("a");
}

#[test]
fn enabled_false_switches_a_live_layers_limit_off() {
    let service = Guarded::new(WatchOptions::default());
    service.drain("a");
    let keys = entry("PerKey", "");
    fs::write(service.site.file(), entry("PerIp", ", enabled: false") + &keys).unwrap();
    assert_eq!(service.result(), Ok(1));
    for _ in 0..20 {
        assert_eq!(service.get("a"), (200, None), "no limit, and no field");
    }
    assert_eq!(service.site.limiter.stats().cells, 0, "nothing is charged");
    fs::write(service.site.file(), entry("PerIp", ", enabled: true") + &keys).unwrap();
    assert_eq!(service.result(), Ok(2));
    service.drain("a");
    // What is off can be left out.
    fs::write(service.site.file(), "PerIp: {id: string, enabled: false}\n".to_owned() + &keys)
        .unwrap();
    assert_eq!(service.result(), Ok(3));
    fs::write(service.site.file(), &keys).unwrap();
    assert_eq!(service.result(), Ok(4));
    assert_eq!(service.get("a"), (200, None));
    fs::write(service.site.file(), entry("PerIp", "") + &keys).unwrap();
    assert_eq!(service.result(), Ok(5));
    service.drain("a");
}

#[test]
fn an_option_removes_limits_of_live_layers() {
    let service = Guarded::new(WatchOptions::default().remove_missing(true));
    service.drain("a");
    fs::write(service.site.file(), entry("PerKey", "")).unwrap();
    assert_eq!(service.result(), Ok(1));
    assert_eq!(service.get("a"), (200, None));
    assert_eq!(service.site.limiter.counters().limits_removed, 1);
}
