//! Simulated clients that each obey one field alone: none is denied at its first retry, none waits needlessly.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::clock::ManualClock;
use tollgate::http::{
    Answer, Fields, PlugLimitNames, Policy, RateLimitLayer, Reset, Rule, Style, extract,
};
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, Limits};
use tower::{Layer, Service};

use crate::random::Random;

const SECOND: Duration = Duration::from_secs(1);
const DENIALS_OF_EACH: u32 = 1_000;

/// The field that a client obeys.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Obeys {
    RetryAfter,
    /// `t` of the current draft: the largest one of a denial, or that of a limit of which nothing remains.
    T,
    /// A field in seconds, and the field with the units that remain.
    Seconds(&'static str, &'static str),
    /// A field in seconds since 1970, and the field with the units that remain.
    Epoch(&'static str, &'static str),
    /// A field that only tells when to come again.
    Wait(&'static str),
}

/// A layer with one to three limits, and the cost of all its requests.
struct World {
    layer: RateLimitLayer,
    limits: Vec<KeyedLimit>,
    manual: ManualClock,
    cost: u64,
    text: String,
}

fn any_limit(random: &mut Random, only_windows: bool) -> Limit {
    let ms = |random: &mut Random, most| Duration::from_millis(random.within(1, most));
    let units = random.within(1, 6);
    match if only_windows { 1 } else { random.below(4) } {
        0 => {
            let period = Duration::from_nanos(random.within(1, 100_000_000_000));
            Limit::new(units, random.within(1, 4), period).unwrap()
        }
        1 => Limit::fixed_window(units, ms(random, 100_000)).unwrap(),
        2 => Limit::token_bucket(units, units + random.below(20), ms(random, 100_000)).unwrap(),
        _ => Limit::leaky_bucket(units, random.within(1, 3), ms(random, 20_000)).unwrap(),
    }
}

impl World {
    fn any(random: &mut Random, style: &Style, only_windows: bool) -> World {
        let limits: Vec<Limit> =
            (0..random.within(1, 3)).map(|_| any_limit(random, only_windows)).collect();
        let most = limits.iter().map(Limit::burst).min().unwrap();
        let cost = if random.chance(3, 4) { 1 } else { random.within(1, most) };
        let world = World::of(limits, style, cost);
        world.manual.advance(Duration::from_nanos(random.below(3_000_000_000)));
        world
    }

    fn of(each: Vec<Limit>, style: &Style, cost: u64) -> World {
        let names = ["a", "b", "c"];
        let mut limits = Limits::builder();
        for (name, limit) in names.iter().zip(&each) {
            limits = limits.limit(name, IdFormat::String, limit.clone()).unwrap();
        }
        let (clock, manual) = Clock::manual();
        let limiter = Limiter::with_options(limits.build(), clock).unwrap();
        let limits: Vec<_> =
            names.iter().zip(&each).map(|(name, _)| limiter.limit(name).unwrap()).collect();
        let fields = Fields::new([style.clone()]).unwrap();
        let mut builder = RateLimitLayer::builder(&limiter).fields(fields);
        for limit in &limits {
            let rule = Rule::new(limit.clone(), extract::everyone("all"));
            builder = builder.rule(rule.cost(move |_| cost));
        }
        let text = format!("{style:?}, cost {cost}, {each:?}");
        World { layer: builder.build().unwrap(), limits, manual, cost, text }
    }

    /// Sends a request. Returns whether it was served, and the fields.
    fn ask(&self) -> (bool, HeaderMap) {
        let inner = tower::service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let response = pin!(self.layer.layer(inner).call(Request::new(())));
        let Poll::Ready(Ok(response)) = response.poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("the layer and the service answer at once")
        };
        let is_served = response.status() == StatusCode::OK;
        assert!(is_served || response.status() == StatusCode::TOO_MANY_REQUESTS);
        (is_served, response.into_parts().0.headers)
    }

    fn would_deny(&self) -> bool {
        self.limits.iter().any(|limit| !limit.check("all", self.cost).unwrap().allowed())
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<f64> {
    headers.get(name).map(|value| value.to_str().unwrap().parse().unwrap())
}

/// Returns the wait that a client reads from a response that was sent after `now`. `None`: the client does not wait.
fn wait(obeys: Obeys, is_served: bool, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let seconds = match obeys {
        Obeys::RetryAfter | Obeys::Wait(_) if is_served => None,
        Obeys::RetryAfter => number(headers, "retry-after"),
        Obeys::Wait(name) => number(headers, name),
        Obeys::Seconds(reset, remaining) | Obeys::Epoch(reset, remaining) => {
            let is_used_up = number(headers, remaining) == Some(0.0);
            number(headers, reset).filter(|_| !is_served || is_used_up)
        }
        Obeys::T => {
            let list: List = Parser::new(headers["ratelimit"].as_bytes()).parse().unwrap();
            let times = list.into_iter().filter_map(|entry| {
                let ListEntry::Item(item) = entry else { panic!("{headers:?}") };
                let integer = |key| match item.params.get(key) {
                    Some(BareItem::Integer(number)) => Some(i64::from(*number)),
                    _ => None,
                };
                integer("t").filter(|_| !is_served || integer("r") == Some(0))
            });
            times.max().map(|time| time as f64)
        }
    }?;
    let wait = Duration::from_millis((seconds * 1000.0).round() as u64);
    Some(match obeys {
        Obeys::Epoch(..) => (UNIX_EPOCH + wait).duration_since(now).unwrap_or_default(),
        _ => wait,
    })
}

/// Runs a client that obeys the field until it has been denied often enough. Returns the number of denials.
fn obey(random: &mut Random, style: &Style, obeys: Obeys, only_windows: bool) -> u32 {
    let mut denials = 0;
    while denials < DENIALS_OF_EACH {
        let world = World::any(random, style, only_windows);
        for _ in 0..40 {
            world.manual.advance(Duration::from_nanos(match random.below(4) {
                0 => random.below(2_000_000_000),
                1 => random.below(1_000_000),
                _ => 0,
            }));
            let now = SystemTime::now();
            let (is_served, headers) = world.ask();
            denials += u32::from(!is_served);
            let said = format!("{obeys:?} of {headers:?}: {}", world.text);
            let wait = wait(obeys, is_served, &headers, now);
            assert!(is_served || wait.is_some(), "no wait: {said}");
            // After an allowed call, the fields tell the time to one more unit, whatever the call's cost.
            let Some(wait) = wait.filter(|_| !is_served || world.cost == 1) else { continue };
            // A time of day is rounded up as well, and was read a moment later than here.
            let slack = match obeys {
                Obeys::Epoch(..) => SECOND + Duration::from_millis(500),
                _ => SECOND,
            };
            let early = wait.saturating_sub(slack);
            world.manual.advance(early);
            assert!(early.is_zero() || world.would_deny(), "waited too long: {said}");
            world.manual.advance(wait - early);
            assert!(!world.would_deny(), "denied at the first retry: {said}");
            assert!(world.ask().0, "denied at the first retry: {said}");
        }
    }
    denials
}

#[test]
fn clients_that_obey_one_field_are_admitted() {
    let plug_limit = || {
        let wait = HeaderName::from_static("x-wait");
        Style::PlugLimit(PlugLimitNames::default().retry_after(wait))
    };
    let draft = Obeys::Seconds("ratelimit-reset", "ratelimit-remaining");
    let x = Obeys::Seconds("x-ratelimit-reset", "x-ratelimit-remaining");
    let epoch = Obeys::Epoch("x-ratelimit-reset", "x-ratelimit-remaining");
    let table = [
        (Style::Ietf, Obeys::RetryAfter),
        (Style::Ietf, Obeys::T),
        (Style::Draft06, Obeys::RetryAfter),
        (Style::Draft06, draft),
        (Style::Draft03, Obeys::RetryAfter),
        (Style::Draft03, draft),
        (Style::XRateLimit(Reset::Delta), Obeys::RetryAfter),
        (Style::XRateLimit(Reset::Delta), x),
        (Style::XRateLimit(Reset::Epoch), epoch),
        (plug_limit(), Obeys::RetryAfter),
        (plug_limit(), Obeys::Wait("x-wait")),
        (Style::Sharkey, Obeys::RetryAfter),
        (Style::Sharkey, Obeys::Wait("x-ratelimit-reset")),
    ];
    let mut random = Random(40);
    let denials: u32 =
        table.iter().map(|(style, obeys)| obey(&mut random, style, *obeys, false)).sum();
    // PlugLimit's reset is the end of a window, and so a wait only where the limits are fixed windows.
    let denials = denials + obey(&mut random, &plug_limit(), x, true);
    assert!(denials >= 10_000, "{denials}");
}

/// The 300th of 300 in 180 minutes leaves nothing for 36 s, not for 3 hours.
#[test]
fn a_used_up_limit_tells_its_next_unit() {
    let hours = Limit::new(300, 300, 180 * 60 * SECOND).unwrap();
    let world = World::of(vec![hours, Limit::new(2, 2, SECOND).unwrap()], &Style::Ietf, 1);
    for _ in 0..299 {
        assert!(world.ask().0);
        world.manual.advance(Duration::from_nanos(1_000_000));
        let _ = world.limits[1].reset("all").unwrap();
    }
    let said = |(is_served, headers): (bool, HeaderMap)| {
        let wait = headers.get("retry-after").map(|wait| wait.to_str().unwrap().to_owned());
        (is_served, headers["ratelimit"].to_str().unwrap().to_owned(), wait)
    };
    let last = said(world.ask());
    assert_eq!(last, (true, r#""a";r=0;t=36, "b";r=1;t=1"#.into(), None));
    let denied = said(world.ask());
    assert_eq!(denied, (false, r#""a";r=0;t=36, "b";r=1"#.into(), Some("36".into())));
    let _ = world.limits[0].reset("all").unwrap();
    assert!(world.ask().0);
    // The other limit denies: `Retry-After: 1` is the only wait.
    let denied = said(world.ask());
    assert_eq!(denied, (false, r#""a";r=299, "b";r=0;t=1"#.into(), Some("1".into())));
}

/// `t` of an allowed request counts from the call's own reading of the clock, after one at which buckets were swept.
#[test]
fn next_unit_is_there_after_clock_went_back() {
    for limit in [
        Limit::new(3, 3, 3 * SECOND).unwrap(),
        Limit::fixed_window(3, 3 * SECOND).unwrap(),
        Limit::token_bucket(2, 3, 3 * SECOND).unwrap(),
        Limit::leaky_bucket(3, 1, SECOND).unwrap(),
    ] {
        let (clock, hand) = Clock::manual();
        let limits = Limits::builder().limit("A", IdFormat::String, limit.clone()).unwrap().build();
        let limiter = Limiter::with_options(limits, clock).unwrap();
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("other", 1).unwrap().allowed());
        hand.set(100 * SECOND);
        while !limiter.sweep(1_000).finished {}
        hand.set(50 * SECOND);
        let asked = a.spend("id", 1).unwrap();
        let policy = Policy::new("A", &limit).unwrap();
        let mut headers = HeaderMap::new();
        let answer = Answer::one(&policy, asked);
        Fields::new([Style::Draft06]).unwrap().write(&mut headers, &answer, UNIX_EPOCH);
        let reset: u32 = headers["ratelimit-reset"].to_str().unwrap().parse().unwrap();
        hand.advance(reset * SECOND);
        let later = a.check("id", 0).unwrap();
        assert!(
            later.remaining() > asked.remaining(),
            "{}: {headers:?}, {later:?}",
            limit.algorithm()
        );
    }
}
