//! Tests the page of `examples/axum.rs` in headless Chromium: presses its buttons until they are denied,
//! waits as long as the answer says, and presses them again. The test of the same name in
//! `crates/tollgate-cli` tests the page of `tollgate replay --report`.
#![cfg(all(feature = "tower", feature = "yaml"))]

#[path = "axum_example/browser.rs"]
mod browser;
#[path = "axum_example/server.rs"]
mod server;

use std::time::{Duration, Instant};

use browser::{Browser, Element, wait_for};
use serde_json::json;
use server::Server;

/// More presses than any limit of the example allows at once.
const PRESSES_MAX: u32 = 20;

/// The part of the page for one limit.
struct Card<'b> {
    browser: &'b Browser,
    name: &'static str,
    button: Element<'b>,
    status: Element<'b>,
    left: Element<'b>,
    calls: u32,
}

/// A denial, as the page shows it.
struct Denied {
    pressed: Instant,
    wait_s: u64,
}

impl<'b> Card<'b> {
    fn new(browser: &'b Browser, name: &'static str) -> Card<'b> {
        let part = |part: &str| browser.find(&format!("#limit-{name} {part}"));
        let (button, status, left) = (part("button"), part(".status"), part(".left"));
        Card { browser, name, button, status, left, calls: 0 }
    }

    /// Presses the button and returns the answer that the page shows.
    fn press(&mut self) -> String {
        self.calls += 1;
        let start = format!("Call {}: ", self.calls);
        self.button.click();
        wait_for(&format!("{}: {start}", self.name), || {
            self.status.text().strip_prefix(&start).map(ToOwned::to_owned)
        })
    }

    /// A field of the last answer.
    fn field(&self, name: &str) -> String {
        self.browser
            .run(&format!(
                "const names = [...document.querySelectorAll('#limit-{} dt')];\
                 const found = names.find((dt) => dt.textContent === '{name}');\
                 return found ? found.nextElementSibling.textContent : '';",
                self.name
            ))
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Presses until a call is denied, and checks all that the page then shows.
    fn press_until_denied(&mut self) -> Denied {
        for _ in 0..PRESSES_MAX {
            let pressed = Instant::now();
            let said = self.press();
            let denied = format!("429, denied by {}: again in ", self.name);
            let Some(wait) = said.strip_prefix(&denied) else {
                assert!(said.starts_with("200, allowed"), "{}: {said}", self.name);
                assert_eq!(self.button.attribute("aria-disabled"), "false");
                continue;
            };
            let wait_s = wait.strip_suffix(" s").unwrap().parse().unwrap();
            assert_eq!(self.field("retry-after"), format!("{wait_s}"), "{}", self.name);
            return Denied { pressed, wait_s };
        }
        panic!("{}: {PRESSES_MAX} calls, and none denied", self.name);
    }

    /// Whether the button keeps its focus while it waits, and ignores a press. Checked in one step, because
    /// the wait may end at any time.
    fn ignores_a_click(&self) -> bool {
        let seen = self.browser.run(&format!(
            "const of = (part) => document.querySelector('#limit-{} ' + part);\
             const button = of('button'), said = of('.status').textContent;\
             if (button.ariaDisabled !== 'true') return null;\
             button.click();\
             return [of('.status').textContent === said, button.textContent,\
                     document.activeElement.closest('section').id];",
            self.name
        ));
        let Some(seen) = seen.as_array() else { return false };
        assert_eq!(seen[0], true, "{}: a press while it waits says something", self.name);
        assert!(seen[1].as_str().unwrap().starts_with("Again in "), "{seen:?}");
        assert_eq!(seen[2], format!("limit-{}", self.name), "the focus stays");
        true
    }

    /// Waits until the page enables the button, which is no sooner than the answer said.
    fn wait(&self, denied: &Denied) {
        wait_for(&format!("{}: the end of the wait", self.name), || {
            (self.status.text() == "You may spend again.").then_some(())
        });
        assert!(denied.pressed.elapsed() >= Duration::from_secs(denied.wait_s), "{}", self.name);
        assert_eq!(self.button.attribute("aria-disabled"), "false");
        assert_eq!(self.button.text(), "Spend one");
    }
}

#[test]
#[ignore = "needs Chromium: .ci/run installs it"]
fn button_is_denied_then_admitted_after_the_wait() {
    let server = Server::start(&[]);
    let browser = Browser::start();
    browser.open(&format!("http://{}/", server.address));
    let mut cards: Vec<Card<'_>> =
        ["search", "orders", "notes", "calls"].map(|name| Card::new(&browser, name)).into();

    let (mut denied, mut denials) = (Vec::new(), 0);
    for card in &mut cards {
        let full = wait_for("what remains", || Some(card.left.text()).filter(|t| !t.is_empty()));
        let (all, rest) = full.split_once(" of ").unwrap();
        assert!(rest.starts_with(&format!("{all} can be spent now")), "{}: {full}", card.name);
        // Records the bar and the figure at the moment in which nothing can be spent, however short it is.
        browser.run(&format!(
            "const of = (part) => document.querySelector('#limit-{0} ' + part);\
             window.empty ??= {{}};\
             new MutationObserver(() => {{\
                 if (of('.bar').ariaValueNow !== '0') return;\
                 window.empty['{0}'] = [of('.bar i').style.width, of('.left').textContent[0]];\
             }}).observe(of('.bar'), {{ attributes: true }});",
            card.name
        ));
        // Again if the machine stalled for as long as the wait is.
        let denial = loop {
            let denial = card.press_until_denied();
            denials += 1;
            if card.ignores_a_click() {
                break denial;
            }
        };
        denied.push(denial);
        // While the limit denies, the figure and the bar show that nothing can be spent, whatever is left
        // of a window's quota.
        let empty = format!("return window.empty['{}'] ?? null", card.name);
        let shown = wait_for(card.name, || Some(browser.run(&empty)).filter(|s| !s.is_null()));
        assert_eq!(shown, json!(["0%", "0"]), "{}", card.name);
    }
    assert_eq!(cards[0].field("x-ratelimit-remaining"), "0");
    let orders = browser.find("#limit-orders .bar").attribute("aria-valuetext");
    let (now, window) = orders.split_once("; ").expect("two figures");
    assert!(now.ends_with(" of 3 can be spent now"), "{orders}");
    assert!(window.ends_with(" of 13 are left in this window"), "{orders}");

    // The shortest waits first, so that they pass together.
    for (card, denied) in cards.iter_mut().zip(&denied).rev() {
        card.wait(denied);
        let said = card.press();
        assert!(said.starts_with("200, allowed"), "{} after the wait: {said}", card.name);
    }
    // The browser reports a 429; any other complaint is a fault of the page.
    let complaints = browser.complaints();
    assert_eq!(complaints.len(), denials, "{complaints:#?}");
    assert!(complaints.iter().all(|line| line.contains("429")), "{complaints:#?}");
}

#[test]
#[ignore = "needs Chromium: .ci/run installs it"]
fn page_is_self_contained_labelled_and_fits_phones() {
    let server = Server::start(&[]);
    let browser = Browser::start();
    browser.resize(500, 800);
    browser.open(&format!("http://{}/", server.address));
    let mut together = Card::new(&browser, "together");
    assert_eq!(together.press(), "200, allowed");
    assert!(together.field("ratelimit").starts_with("\"search\";r=4;"));

    let loaded = browser.run(
        "return performance.getEntriesByType('resource')\
         .map((entry) => entry.name).filter((name) => !name.startsWith(location.origin + '/'))",
    );
    assert_eq!(loaded, json!([]), "from elsewhere");
    let overflow =
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.run(overflow), 0, "nothing is wider than a phone");
    assert_eq!(browser.find("#limit-notes .bar").label(), "What can be spent of notes");
    assert_eq!(browser.find("#limit-notes").label(), "notes leaky bucket");
    assert_eq!(browser.find("#limit-notes .status").attribute("role"), "status");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// The words of the page that are broken over two lines. A word ends at a space, or after a separator in a
/// field's value.
const BROKEN: &str = "
    const broken = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        if (!node.parentElement.checkVisibility() || node.parentElement.closest('script')) continue;
        for (const { 0: word, index } of node.data.matchAll(/[^\\s;,]+[;,]?/g)) {
            const range = document.createRange();
            range.setStart(node, index);
            range.setEnd(node, index + word.length);
            if (new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size > 1) {
                broken.push(word);
            }
        }
    }
    return broken;";

#[test]
#[ignore = "needs Chromium: .ci/run installs it"]
fn together_names_denying_limits_without_broken_words() {
    let server = Server::start(&[]);
    let browser = Browser::start();
    browser.open(&format!("http://{}/", server.address));
    let denied_by = |all: &str, expected: &str| {
        // Again if the machine stalled so long that a limit allows a call again.
        wait_for(expected, || {
            browser.open(&format!("http://{}/", server.address));
            let _ = browser.find("#limit-together");
            browser.run(&format!(
                "for (const name of {all}) for (let call = 0; call < 6; call++) {{\
                     const asks = new XMLHttpRequest();\
                     asks.open('GET', '/api/' + name, false);\
                     asks.send();\
                 }}"
            ));
            let said = Card::new(&browser, "together").press();
            said.starts_with(&format!("429, denied by {expected}: again in ")).then_some(())
        });
    };
    denied_by("['search']", "search");
    denied_by("['search', 'orders']", "search and orders");
    denied_by("['search', 'orders', 'calls']", "search, orders and calls");
    for name in ["search", "orders", "notes", "calls"] {
        let _ = Card::new(&browser, name).press();
    }
    for width in [1000, 700, 500, 360, 320] {
        let metrics =
            json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500});
        browser.tell("Emulation.setDeviceMetricsOverride", metrics);
        assert_eq!(browser.run(BROKEN), json!([]), "at {width}");
        let overflow =
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.run(overflow), 0, "at {width}");
    }
    // The search for broken words finds one.
    let narrow = "for (const value of document.querySelectorAll('dd'))\
                      value.style.cssText = 'width: 2rem; padding: 0'";
    browser.run(narrow);
    assert_ne!(browser.run(BROKEN), json!([]));
}
