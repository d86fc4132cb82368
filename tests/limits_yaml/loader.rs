//! Tests the loader: limits of code joined with those of files, and custom algorithms that files name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tollgate::algorithm::Algorithm;
use tollgate::limits::{AlgorithmFields, Loader};
use tollgate::reload::CarryOver;
use tollgate::{Clock, Error, IdFormat, Limit, Limiter, Limits};

use super::named::Named;

const SECOND: Duration = Duration::from_secs(1);

fn named(size: u64, gap: Duration) -> Result<Arc<dyn Algorithm>, Error> {
    Ok(Arc::new(Named(Limit::new(size, 1, gap)?, "named")))
}

fn make(fields: &mut AlgorithmFields<'_>) -> Result<Arc<dyn Algorithm>, Error> {
    let (size, gap) = (fields.whole_number("size"), fields.duration("gap"));
    let is_wide = fields.has("wide") && fields.boolean("wide")?;
    if fields.has("note") && fields.text("note")? == "bad" {
        return Err(fields.refuse("note", "any other text is allowed"));
    }
    let size = size?;
    named(if is_wide { size * 10 } else { size }, gap?)
}

fn loader() -> Loader {
    Loader::new().algorithm("named", make).unwrap()
}

fn gcra(burst: u64) -> Limit {
    Limit::new(burst, 1, SECOND).unwrap()
}

fn tenants() -> Limits {
    let limits = Limits::builder().limit("PerTenant", IdFormat::Integer, gcra(5)).unwrap();
    limits.override_id("PerTenant", 1, gcra(6)).unwrap().build()
}

fn burst(limits: &Limits, name: &str, id: impl Into<tollgate::Id<'static>>) -> Option<u64> {
    limits.limit_for(name, id).unwrap().map(|limit| limit.burst())
}

fn faults(loader: &Loader, text: &str) -> Vec<String> {
    let faults = loader.text(text).expect_err(text);
    faults.faults().iter().map(ToString::to_string).collect()
}

#[test]
fn code_and_files_are_one() {
    let loader = loader().before(tenants()).after(|limits| {
        limits.override_id("PerUser", "alice", gcra(9))?.limit("Own", IdFormat::String, gcra(4))
    });
    let limits = loader
        .texts(
            "PerUser: {burst: 2, count: 1, period: 1s, id: string}\n\
             PerTenant:2: {burst: 7, count: 1, period: 1s}",
            "- PerTenant: {burst: 8, count: 1, period: 1s, ids: [3]}",
        )
        .unwrap();
    assert_eq!([1, 2, 3, 4].map(|id| burst(&limits, "PerTenant", id)), [6, 7, 8, 5].map(Some));
    assert_eq!(burst(&limits, "Own", "bob"), Some(4));

    let (clock, _) = Clock::manual();
    let limiter = Limiter::with_options(limits, clock).unwrap();
    let [tenants, users, own] =
        ["PerTenant", "PerUser", "Own"].map(|name| limiter.limit(name).unwrap());
    let spend = |cost| {
        let all = [
            tenants.member(3).cost(8),
            users.member("alice").cost(9),
            own.member("bob").cost(cost),
        ];
        limiter.batch(&all).spend().unwrap()
    };
    assert!(own.spend("bob", 1).unwrap().allowed());
    assert_eq!(spend(4).denied_by(), Some(2));
    assert!(spend(3).allowed());
    let left = [tenants.check(3, 0), users.check("alice", 0), own.check("bob", 0)];
    assert_eq!(left.map(|decision| decision.unwrap().remaining()), [Some(0); 3]);
}

/// Each default and each override is given once, by code or by a file.
#[test]
fn nothing_is_given_by_both() {
    let given = |text: &str| faults(&Loader::new().before(tenants()), text);
    assert_eq!(
        given("PerTenant: {burst: 1, count: 1, period: 1s, id: integer}"),
        ["<text>:1: PerTenant: the limit PerTenant was given twice"]
    );
    assert_eq!(
        given("PerTenant: {burst: 1, count: 1, period: 1s, id: string}"),
        ["<text>:1: PerTenant.id: the ids of PerTenant are integer, not string"]
    );
    assert_eq!(
        given("PerTenant:1: {burst: 1, count: 1, period: 1s}"),
        ["<text>:1: PerTenant:1: the id \"1\" was given before, in code"]
    );
    assert_eq!(
        given("PerTenant:2: {limit: 1, window: 1s}"),
        [
            "<text>:1: PerTenant:2.limit: unknown field: burst, count, period, unlimited, max_debt, comment, owner and expires are allowed",
            "<text>:1: PerTenant:2.window: unknown field: burst, count, period, unlimited, max_debt, comment, owner and expires are allowed",
            "<text>:1: PerTenant:2: no burst: a whole number from 1 is wanted",
            "<text>:1: PerTenant:2: no count: a whole number from 1 is wanted",
            "<text>:1: PerTenant:2: no period: a duration such as 60s, 180m or 1h30m is wanted"
        ]
    );
    let loader = Loader::new().after(|limits| limits.override_id("PerUser", "alice", gcra(9)));
    let text = "PerUser: {burst: 2, count: 1, period: 1s, id: string}\n";
    let twice = loader.text(&format!("{text}PerUser:alice: {{burst: 2, count: 1, period: 1s}}"));
    assert!(twice.unwrap_err().is_invalid_id());
    let unknown = loader.text("PerUsr: {burst: 2, count: 1, period: 1s, id: string}");
    assert!(unknown.unwrap_err().to_string().starts_with("unknown limit \"PerUser\""));
}

/// A function after a faulty file would find limits missing.
#[test]
fn code_after_a_faulty_file_does_not_run() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let loader = Loader::new().after(|limits| {
        RUNS.fetch_add(1, Relaxed);
        Ok(limits)
    });
    assert!(loader.text("PerUser: {burst: 0, count: 1, period: 1s, id: string}").is_err());
    assert_eq!(RUNS.load(Relaxed), 0);
    loader.text("PerUser: {burst: 1, count: 1, period: 1s, id: string}").unwrap();
    assert_eq!(RUNS.load(Relaxed), 1);
}

#[test]
fn each_location_is_in_its_own_file() {
    let first = "A: {burst: 1, count: 1, period: 1s, id: string}\n";
    let first =
        Limits::from_yaml_with_overrides(first, "- A: {burst: 2, count: 1, period: 1s, ids: [x]}");
    let loader =
        Loader::new().before(first.unwrap()).after(|limits| limits.override_id("B", "z", gcra(1)));
    let text = "B: {burst: 1, count: 1, period: 1s, id: string}\n\
                \n\
                A:y: {burst: 1, count: 2, period: 1s}";
    let limits = loader.text(text).unwrap();
    let place = |name: &str, id| {
        let given = limits.limit(name).unwrap().override_of(id).unwrap().unwrap();
        given.location().map(|location| location.to_string())
    };
    assert_eq!(place("A", "x").as_deref(), Some("<overrides>:1"));
    assert_eq!(place("A", "y").as_deref(), Some("<text>:3"));
    assert_eq!(place("B", "z"), None);
    let warnings = limits.warnings(std::time::SystemTime::now());
    let shown: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(shown.last().unwrap().starts_with("B:z: "), "code is last: {shown:?}");
    assert_eq!(
        faults(&loader, "A:x: {burst: 1, count: 1, period: 1s}"),
        ["<text>:1: A:x: the id \"x\" was given before, on line 1 of <overrides>"]
    );
}

#[test]
fn a_file_names_a_registered_algorithm() {
    let limits = loader()
        .text(
            "A: {gap: 2s, size: 3, id: string, algorithm: named, shadow: {size: 1, gap: 1s}, max_debt: 0}\n\
             A:alice: {size: 4, gap: 1s, owner: sales}\n\
             ids: {algorithm: named, size: 1, gap: 1s, id: string}\n\
             B: {algorithm: named, id: string, enabled: false}\n\
             C: {algorithm: named, id: string, mode: shadow, size: 2, gap: 1s, wide: true, note: \"\"}\n",
        )
        .unwrap();
    let entry = limits.limit("A").unwrap();
    assert_eq!(entry.algorithm(), Some("named"));
    assert_eq!(entry.shadow().map(Limit::burst), Some(1));
    assert_eq!([burst(&limits, "A", "bob"), burst(&limits, "A", "alice")], [Some(3), Some(4)]);
    assert_eq!([burst(&limits, "B", "bob"), burst(&limits, "C", "bob")], [None, Some(20)]);
}

#[test]
fn the_fields_of_an_algorithm_have_faults() {
    let rest = "algorithm: named, id: string";
    let check = |fields: &str, wanted: &[&str]| {
        let text = format!("A: {{{rest}, {fields}}}");
        assert_eq!(faults(&loader(), &text), wanted, "{text}");
    };
    check("size: 1", &["<text>:1: A: no gap: a duration such as 60s, 180m or 1h30m is wanted"]);
    check(
        "size: x, gap: [1]",
        &[
            "<text>:1: A.size: invalid size \"x\": a whole number from 0, in plain digits, is allowed",
            "<text>:1: A.gap: a list: a duration such as 60s, 180m or 1h30m is allowed",
        ],
    );
    check(
        "size: ~, gap: {a: 1}",
        &[
            "<text>:1: A.size: invalid size null: a whole number from 0 is allowed",
            "<text>:1: A.gap: a map: a duration such as 60s, 180m or 1h30m is allowed",
        ],
    );
    check(
        "size: 1, gap: 1s, wide: yes",
        &["<text>:1: A.wide: invalid wide \"yes\": true or false is allowed"],
    );
    check(
        "size: 1, gap: 1s, sise: 2",
        &[
            "<text>:1: A.sise: unknown field: size, gap, wide, note, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed; did you mean size?",
        ],
    );
    check(
        "size: 1, gap: 1s, size: 2",
        &["<text>:1: A.size: the field was given before, on line 1"],
    );
    check("size: 0, gap: 1s", &["<text>:1: A: invalid burst 0: at least 1 is allowed"]);
    check(
        "size: 1, gap: 1s, note: bad",
        &["<text>:1: A.note: invalid note \"bad\": any other text is allowed"],
    );
    check(
        "size: 1, gap: 1s, shadow: {gap: 1s}",
        &["<text>:1: A.shadow: no size: a whole number from 0 is wanted"],
    );
    let many: String = (0..65).map(|field| format!("f{field}: 1, ")).collect();
    let many = faults(&loader(), &format!("A: {{{rest}, {many}}}"));
    assert_eq!(many[0], "<text>:1: A.f64: more than 64 fields: no algorithm has so many");
    assert_eq!(
        faults(&loader(), "A: {algorithm: nmaed, id: string}"),
        [
            "<text>:1: A.algorithm: invalid algorithm \"nmaed\": gcra, at_most, fixed_window, token_bucket, leaky_bucket, concurrency and named are allowed; did you mean named?"
        ]
    );
}

#[test]
fn an_algorithm_is_what_it_is_called() {
    let under = |name: &'static str| {
        let make = move |_: &mut AlgorithmFields<'_>| -> Result<Arc<dyn Algorithm>, Error> {
            Ok(Arc::new(Named(gcra(1), name)))
        };
        Loader::new().algorithm("named", make).unwrap()
    };
    let text = "A: {algorithm: named, id: string}";
    assert!(under("named").text(text).is_ok());
    assert_eq!(
        faults(&under("nmaed"), text),
        [
            "<text>:1: A: the algorithm registered as named calls itself \"nmaed\": Algorithm::name must return \"named\""
        ]
    );
    let asks_for_id =
        Loader::new().algorithm("named", |fields| named(fields.whole_number("id")?, SECOND));
    assert_eq!(
        faults(&asks_for_id.unwrap(), text),
        ["<text>:1: A: the field id has another meaning: no algorithm can have it"]
    );
    for (name, why) in [
        ("gcra", "it is a built-in algorithm's"),
        ("named", "it was registered before"),
        (
            "a b",
            "a letter, then letters, digits, '_', '.' or '-', at most 128 characters, is allowed",
        ),
        ("", "a letter, then letters, digits, '_', '.' or '-', at most 128 characters, is allowed"),
    ] {
        let error = loader().algorithm(name, make).unwrap_err();
        assert!(error.is_invalid_name());
        assert_eq!(
            error.to_string(),
            format!("invalid name {name:?} of a custom algorithm: {why}")
        );
    }
}

/// The numbers of a custom limit of code can be overridden by a file only if the file's reader knows the algorithm.
#[test]
fn code_may_have_a_registered_algorithm() {
    let in_code = || {
        let limit = Limit::custom(named(3, SECOND).unwrap()).unwrap();
        Limits::builder().limit("A", IdFormat::String, limit).unwrap().build()
    };
    let text = "A:alice: {size: 4, gap: 1s}";
    let limits = loader().before(in_code()).text(text).unwrap();
    assert_eq!([burst(&limits, "A", "bob"), burst(&limits, "A", "alice")], [Some(3), Some(4)]);
    for text in [text, "A:alice: {burst: 4, count: 1, period: 1s}"] {
        assert_eq!(
            faults(&Loader::new().before(in_code()), text),
            [
                "<text>:1: A:alice: the algorithm of A is \"named\", which is not registered by Loader::algorithm: its overrides are made in code"
            ]
        );
    }
}

/// A reload of the same fields changes no bucket, whatever the reload does to changed limits.
#[test]
fn equal_fields_are_the_same_limit() {
    let text = |gap: &str| {
        format!(
            "A: {{algorithm: named, size: 3, gap: {gap}, id: string}}\n\
             A:alice: {{gap: 60s, size: 3}}\n"
        )
    };
    let loader = loader();
    let limiter = Limiter::new(loader.text(&text("60s")).unwrap());
    let limits = limiter.limit("A").unwrap();
    let left = || ["alice", "bob"].map(|id| limits.check(id, 0).unwrap().remaining());
    for id in ["alice", "bob"] {
        assert!(limits.spend(id, 2).unwrap().allowed());
    }
    limiter.reload_with(loader.clone().text(&text("60s")).unwrap(), CarryOver::Afresh).unwrap();
    assert_eq!(left(), [Some(1), Some(1)]);
    limiter.reload_with(loader.text(&text("61s")).unwrap(), CarryOver::Afresh).unwrap();
    assert_eq!(left(), [Some(1), Some(3)], "only the default has changed");
    for quoted in ["'60s'", "60s"] {
        // A text in quotes may be another value.
        limiter.reload_with(loader.text(&text(quoted)).unwrap(), CarryOver::Share).unwrap();
    }
    assert_eq!(left(), [Some(1), Some(3)]);
}

/// One limit is made for equal fields. Fields are equal if their texts are, one by one, and how they are written.
#[test]
fn fields_that_differ_make_limits_of_their_own() {
    let make = |fields: &mut AlgorithmFields<'_>| {
        let of_b = if fields.has("b") { 100 * fields.text("b")?.len() as u64 } else { 0 };
        named(fields.text("a")?.len() as u64 + of_b, SECOND)
    };
    let loader = Loader::new().algorithm("named", make).unwrap();
    let text = "A: {algorithm: named, a: 1, b: 2, id: string}\n\
                B: {algorithm: named, a: 1 b plain 2, id: string}\n\
                C: {algorithm: named, a: 'null', id: string}\n";
    let limits = loader.clone().text(text).unwrap();
    assert_eq!(
        ["A", "B", "C"].map(|name| burst(&limits, name, "x")),
        [Some(101), Some(11), Some(4)]
    );
    let with_null = format!("{text}D: {{algorithm: named, a: null, id: string}}\n");
    assert_eq!(faults(&loader, &with_null), ["<text>:4: D.a: invalid a null: text is allowed"]);
}

/// Each registration has its own function, also in clones of one loader.
#[test]
fn clones_may_register_other_functions() {
    let by = |factor: u64| {
        let make = move |fields: &mut AlgorithmFields<'_>| {
            let size = fields.whole_number("size")?;
            named(size * factor, SECOND)
        };
        Loader::new().allow_reserved(true).clone().algorithm("named", make).unwrap()
    };
    let base = Loader::new();
    let other =
        base.clone().algorithm("named", |fields| named(fields.whole_number("width")?, SECOND));
    let ten =
        base.clone().algorithm("named", |fields| named(10 * fields.whole_number("size")?, SECOND));
    let text = "A: {algorithm: named, size: 5, id: string}";
    let (one, ten) = (by(1).text(text).unwrap(), ten.unwrap().text(text).unwrap());
    assert_eq!([burst(&one, "A", "x"), burst(&ten, "A", "x")], [Some(5), Some(50)]);
    assert_eq!(
        faults(&other.unwrap(), text),
        ["<text>:1: A: no width: a whole number from 0 is wanted"]
    );
}

/// A default that is switched off or at fault still says which fields its overrides have.
#[test]
fn overrides_know_the_algorithm_of_any_default() {
    let limits =
        loader().text("A: {algorithm: named, id: string, enabled: false}\nA:x: {size: 3, gap: 1s}");
    assert!(limits.unwrap().limit("A").unwrap().is_disabled());
    assert_eq!(
        faults(&loader(), "A: {algorithm: named, size: 1, id: string}\nA:x: {size: 3, gap: 1s}"),
        ["<text>:1: A: no gap: a duration such as 60s, 180m or 1h30m is wanted"]
    );
}

#[test]
fn a_long_text_is_no_field() {
    let text = |len: usize| {
        let note = "x".repeat(len);
        format!("A: {{algorithm: named, id: string, size: 1, gap: 1s, note: {note}}}")
    };
    assert!(loader().text(&text(1024)).is_ok());
    assert_eq!(
        faults(&loader(), &text(1025)),
        ["<text>:1: A.note: a text of more than 1024 bytes: no algorithm has such a field"]
    );
}
