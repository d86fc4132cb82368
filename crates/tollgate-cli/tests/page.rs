//! Tests the page of `tollgate replay --report` in a browser: its numbers equal those of the summary and of
//! the decisions, it suits phones and dark mode, and it runs no script from an id.

#[path = "../../../tests/axum_example/browser.rs"]
#[allow(dead_code, reason = "the test of the other page uses all of it")]
mod browser;
mod support;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use browser::Browser;
use support::{EXAMPLE_LIMITS, EXAMPLE_LOG, Sandbox};

/// A folder with a page, and the summary of the run that wrote the page.
struct Report {
    dir: Sandbox,
    summary: Value,
}

const NEW: &str = "RequestsPerClient: {burst: 15, count: 12, period: 1s, id: ipAddress}\n";

impl Report {
    fn new(traffic: &str, files: &[(&str, &str)]) -> Report {
        let dir = Sandbox::new();
        files.iter().for_each(|(name, content)| dir.put(name, content));
        let ran = dir.run(&format!(
            "replay --limits old.yml --against new.yml --decisions old.jsonl --report r.html --json {traffic}"
        ));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        Report { summary: ran.json(), dir }
    }

    /// Replays the log of `examples/` under its limits and a candidate.
    fn of_the_example() -> Report {
        let files = [("old.yml", EXAMPLE_LIMITS), ("new.yml", NEW), ("access.log", EXAMPLE_LOG)];
        let report = Report::new("--log access.log --rule RequestsPerClient=client", &files);
        let ran = report.dir.run(
            "replay --limits new.yml --log access.log --rule RequestsPerClient=client --decisions new.jsonl",
        );
        assert_eq!(ran.status, Some(0), "{ran:?}");
        report
    }

    fn url(&self) -> String {
        format!("file://{}", self.dir.path("r.html").display())
    }

    fn read(&self, name: &str) -> String {
        self.dir.get(name)
    }
}

/// Opens the page at a width, in light or dark mode.
fn show(browser: &Browser, url: &str, width: u32, scheme: &str) {
    let metrics =
        json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500});
    browser.tell("Emulation.setDeviceMetricsOverride", metrics);
    let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
    browser.tell("Emulation.setEmulatedMedia", json!({ "features": features }));
    browser.open(url);
}

/// Returns the rows of a table: texts, and numbers without commas.
fn rows(browser: &Browser, selector: &str) -> Value {
    browser.run(&format!(
        "const read = (cell) => {{
           if (!('value' in cell.dataset)) return cell.textContent;
           const number = Number(cell.textContent.replaceAll(',', ''));
           return number === Number(cell.dataset.value) ? number : 'not what is shown';
         }};
         const tables = document.querySelectorAll('table{selector}');
         if (tables.length !== 1) return tables.length + ' tables {selector}';
         return [...tables[0].tBodies[0].rows].map((row) => [...row.cells].map(read));"
    ))
}

/// Counts the lines of each second: denied and allowed by the limits in force, newly denied and newly let
/// through.
fn by_second(report: &Report) -> BTreeMap<String, [u64; 4]> {
    let log = report.read("access.log");
    let second = |line: &str| {
        let time = line.split(['[', ' ', ']']).find(|word| word.starts_with("20/Nov/2026:"));
        format!("2026-11-20 {}", &time.unwrap()["20/Nov/2026:".len()..])
    };
    let mut seconds: Vec<String> = log.lines().map(second).collect();
    seconds.sort();
    let (old, new) = (report.read("old.jsonl"), report.read("new.jsonl"));
    let mut counts: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    for (second, (old, new)) in seconds.into_iter().zip(old.lines().zip(new.lines())) {
        let [old, new] = [old, new].map(|line| line.starts_with("{\"allowed\":true"));
        let of_second = counts.entry(second).or_default();
        of_second[usize::from(old)] += 1;
        match (old, new) {
            (true, false) => of_second[2] += 1,
            (false, true) => of_second[3] += 1,
            _ => {}
        }
    }
    counts
}

/// Counts the clients with a line that the candidate decides differently.
fn clients_affected(report: &Report) -> usize {
    let (log, old, new) =
        (report.read("access.log"), report.read("old.jsonl"), report.read("new.jsonl"));
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_by_key(|line| line.split(['[', ']']).nth(1).unwrap());
    let allowed = |line: &str| line.starts_with("{\"allowed\":true");
    let decisions = old.lines().zip(new.lines());
    let changed =
        lines.into_iter().zip(decisions).filter(|(_, (old, new))| allowed(old) != allowed(new));
    changed.map(|(line, _)| line.split(' ').next().unwrap()).collect::<BTreeSet<_>>().len()
}

#[test]
#[ignore = "needs Chromium: .ci/run installs it"]
fn numbers_on_the_page_are_right() {
    let report = Report::of_the_example();
    let browser = Browser::start();
    show(&browser, &report.url(), 1000, "light");
    let summary = &report.summary;
    let against = &summary["against"];
    let facts = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('[data-fact]')].map((fact) =>
           [fact.dataset.fact, Number(fact.firstChild.textContent.replaceAll(',', ''))]))",
    );
    let expected = json!({"lines": summary["lines"], "skipped": 0, "allowed": summary["allowed"],
        "denied": summary["denied"], "newly denied": against["newly_denied"],
        "newly let through": against["newly_allowed"], "clients affected": clients_affected(&report)});
    assert_eq!(facts, expected);
    let top = summary["top_denied"].as_array().unwrap().iter();
    let top: Value = top.map(|top| json!([top["limit"], top["id"], top["denied"]])).collect();
    assert_eq!(rows(&browser, "[data-table=denied]"), top);
    let limit = &against["limits"]["RequestsPerClient"];
    let row = [
        "newly_denied",
        "newly_allowed",
        "denied_by_both",
        "allowed_by_both",
        "denied_in_force",
        "denied",
    ];
    let row: Vec<Value> = [json!("RequestsPerClient")]
        .into_iter()
        .chain(row.map(|name| limit[name].clone()))
        .collect();
    assert_eq!(rows(&browser, "[data-table=changes]"), json!([row]));

    let counts = by_second(&report);
    let of = |columns: [usize; 2]| -> Value {
        let rows = counts.iter().map(|(second, of)| (second, columns.map(|column| of[column])));
        rows.filter(|(_, of)| *of != [0, 0])
            .map(|(second, of)| json!([second, of[0], of[1]]))
            .collect()
    };
    let table =
        |name: &str| rows(&browser, &format!("[data-table={name}][data-limit=RequestsPerClient]"));
    assert_eq!(table("time"), of([0, 1]));
    assert_eq!(rows(&browser, "[data-table=changes-time]"), of([2, 3]));
    let keys: u64 =
        table("closeness").as_array().unwrap().iter().map(|row| row[1].as_u64().unwrap()).sum();
    assert_eq!(keys, summary["limits"]["RequestsPerClient"]["keys"]);

    // The columns have the heights of those counts, to a pixel.
    for (chart, class, column) in [
        ("time", "denied", 0),
        ("time", "allowed", 1),
        ("changes-time", "denied", 2),
        ("changes-time", "let-through", 3),
    ] {
        let drawn = browser.run(&format!(
            "return [...document.querySelectorAll('figure[data-chart={chart}] \
             rect.{class}')].map((rect) => [rect.x.baseVal.value, rect.height.baseVal.value])"
        ));
        let mut drawn: Vec<(f64, f64)> = serde_json::from_value(drawn).unwrap();
        drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
        let counts: Vec<f64> =
            counts.values().map(|of| of[column] as f64).filter(|count| *count > 0.0).collect();
        assert_eq!(drawn.len(), counts.len(), "{chart} {class}");
        let most = counts.iter().copied().fold(0.0, f64::max);
        let highest = drawn.iter().map(|(_, height)| *height).fold(0.0, f64::max);
        for ((_, height), count) in drawn.iter().zip(&counts) {
            // A column is at least one pixel high.
            let expected = (count / most * highest).max(1.0);
            assert!(
                (height - expected).abs() <= 0.02,
                "{chart} {class}: {height} for {count} of {most}"
            );
        }
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
#[ignore = "needs Chromium: .ci/run installs it"]
fn the_page_suits_phones_and_dark_mode() {
    let report = Report::of_the_example();
    let browser = Browser::start();
    show(&browser, &report.url(), 360, "light");
    let details = browser.find("figure[data-chart=time] details");
    assert_eq!(details.attribute("open"), "");
    browser.find("figure[data-chart=time] summary").click();
    assert_eq!(details.attribute("open"), "true", "a table opens without a script");
    browser
        .run("document.querySelectorAll('details').forEach((details) => { details.open = true; })");
    let widths = "return [innerWidth, document.documentElement.scrollWidth]";
    assert_eq!(browser.run(widths), json!([360, 360]), "nothing is wider than the phone");
    let sizes = browser.run(
        "return [...document.querySelectorAll('svg text')].map((text) =>
           parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)",
    );
    let sizes: Vec<f64> = serde_json::from_value(sizes).unwrap();
    assert!(sizes.len() > 50 && sizes.iter().all(|px| *px > 9.5), "text of charts: {sizes:?}");
    let cut = browser.run(
        "const box = (of) => of.getBoundingClientRect();
         return [...document.querySelectorAll('svg text')].filter((text) =>
           box(text).left < box(text.ownerSVGElement).left - 1
           || box(text).right > box(text.ownerSVGElement).right + 1).map((text) => text.textContent)",
    );
    assert_eq!(cut, json!([]), "labels that are cut off");

    // Light and dark mode have different colours, all with enough contrast.
    let colors = "const style = (of, what) => getComputedStyle(document.querySelector(of))[what];
        return [style('body', 'backgroundColor'), style('figure', 'backgroundColor'),
          style('body', 'color'), style('.quiet', 'color'), style('svg text', 'fill'),
          style('.tiles .denied dd', 'color'),
          style('figure[data-chart=time] rect.denied', 'fill')]";
    let mut seen: Vec<Vec<String>> = Vec::new();
    for scheme in ["light", "dark"] {
        show(&browser, &report.url(), 360, scheme);
        let colors: Vec<String> = serde_json::from_value(browser.run(colors)).unwrap();
        for (on, of, least) in [(0, 2, 7.0), (0, 3, 4.5), (1, 4, 4.5), (1, 5, 4.5), (1, 6, 3.0)] {
            let contrast = contrast(&colors[on], &colors[of]);
            assert!(contrast >= least, "{scheme}: {contrast} of {} on {}", colors[of], colors[on]);
        }
        seen.push(colors);
    }
    assert!(seen[0].iter().zip(&seen[1]).all(|(day, dark)| day != dark), "{seen:?}");

    let unnamed = browser.run(
        "return [...document.querySelectorAll('svg')].filter((svg) =>
           !svg.closest('[role=img]')?.ariaLabel).length",
    );
    assert_eq!(unnamed, 0, "charts that say nothing to those who do not see them");
    let label = browser.find("figure[data-chart=time] [role=img]").label();
    let denied = report.summary["denied"].as_u64().unwrap();
    let denied = format!("{},{:03} denied", denied / 1000, denied % 1000);
    assert!(
        label.starts_with("Allowed and denied over time: ") && label.contains(&denied),
        "{label}"
    );
    assert_eq!(browser.run("return performance.getEntriesByType('resource').length"), 0);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// A table has a hint for each direction in which it scrolls, and no other hint.
#[test]
#[ignore = "needs Chromium: .ci/run installs it"]
fn scrolling_tables_have_hints() {
    let report = Report::of_the_example();
    let browser = Browser::start();
    for width in [360, 1000] {
        show(&browser, &report.url(), width, "light");
        browser.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })");
        let tables = "return [...document.querySelectorAll('.scroll')].map((box) => {
            const says = (of) => {
              const hint = box.querySelector('.hint ' + of);
              return getComputedStyle(hint).visibility === 'visible' && hint.offsetHeight > 10;
            };
            return [box.ariaLabel, box.scrollWidth > box.clientWidth, says('.sideways'),
              box.scrollHeight > box.clientHeight, says('.down')];
          })";
        // Scroll timelines are active from the next frame on.
        browser.run("return new Promise((done) => setTimeout(done, 300))");
        let tables: Vec<(String, bool, bool, bool, bool)> =
            serde_json::from_value(browser.run(tables)).unwrap();
        for (name, is_wider, says_sideways, is_higher, says_down) in &tables {
            assert_eq!(says_sideways, is_wider, "{width}: {name} sideways");
            assert_eq!(says_down, is_higher, "{width}: {name} down");
        }
        let scrolling = tables.iter().filter(|(_, is_wider, ..)| *is_wider).count();
        assert!(width > 500 || scrolling >= 4, "{width}: {tables:?}");
        assert!(tables.iter().any(|(_, is_wider, ..)| !is_wider), "{width}: {tables:?}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Returns the contrast of two colours such as `rgb(1, 2, 3)`, as WCAG defines it.
fn contrast(a: &str, b: &str) -> f64 {
    let luminance = |color: &str| {
        let parts = color.trim_start_matches("rgb(").trim_end_matches(')').split(", ");
        let parts = parts.map(|part| part.parse::<f64>().unwrap() / 255.0);
        let linear =
            parts.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        linear.zip([0.2126, 0.7152, 0.0722]).map(|(part, weight)| part * weight).sum::<f64>()
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
#[ignore = "needs Chromium: .ci/run installs it"]
fn scripts_in_ids_are_only_text() {
    let ids = [
        "<script>document.title='taken'</script>",
        "<img src=x onerror=\"document.title='taken'\">",
        "'\"></table></svg><script>document.title='taken'</script>",
        "&lt;b&gt;",
        "\u{202e}txt.exe",
        "a\u{0}b\u{1b}[2J",
    ];
    let mut trace = String::new();
    for (i, id) in ids.iter().enumerate() {
        // The first id has the most denials.
        for at_ns in 0..10 - i {
            let txn = json!({"limit": "PerPath", "id": id});
            trace +=
                &format!("{{\"at_ns\":{},\"op\":\"spend\",\"txns\":[{txn}]}}\n", i * 100 + at_ns);
        }
    }
    let old = "PerPath: {burst: 2, count: 1, period: 1h, id: string}\n";
    let new = "PerPath: {burst: 1, count: 1, period: 1h, id: string}\n";
    let report =
        Report::new("--trace t.jsonl", &[("old.yml", old), ("new.yml", new), ("t.jsonl", &trace)]);
    let browser = Browser::start();
    show(&browser, &report.url(), 360, "dark");
    let shown = [ids[0], ids[1], ids[2], ids[3], "\\u{202e}txt.exe", "a\\u{0}b\\u{1b}[2J"];
    let expected: Value =
        shown.iter().enumerate().map(|(i, id)| json!(["PerPath", id, 8 - i])).collect();
    assert_eq!(rows(&browser, "[data-table=denied]"), expected);
    let labels = browser.run(
        "return [...document.querySelectorAll('figure[data-chart=denied] text')].map((text) => text.textContent.trim())",
    );
    for id in &shown[3..] {
        assert!(labels.as_array().unwrap().contains(&json!(id)), "{id} in {labels}");
    }
    let elements = "return [document.title, document.scripts.length, document.images.length, document.querySelectorAll('b').length]";
    assert_eq!(browser.run(elements), json!(["Tollgate: t.jsonl", 0, 0, 0]));
    let widths = "return [innerWidth, document.documentElement.scrollWidth]";
    assert_eq!(browser.run(widths), json!([360, 360]));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
