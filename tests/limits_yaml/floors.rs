//! Floors: the units that calls with a priority leave.

use tollgate::Limiter;
use tollgate::limits::Floor;

use super::refused_values::check;
use super::*;

fn floors(limits: &Limits, name: &str) -> Vec<(String, Floor)> {
    let floors = limits.limit(name).unwrap().floors();
    floors.map(|(name, floor)| (name.to_owned(), floor)).collect()
}

#[test]
fn a_default_has_floors_by_name() {
    let limits = read(
        "Own: {burst: 100, count: 1, period: 1s, id: string, floors: {batch: 50%, Back-ground_1.x: 20}}\n\
         Own:large: {burst: 1000, count: 1, period: 1s}\n\
         Window:\n  floors:\n    all: 100%\n    none: 0%\n    zero: 0\n    quoted: '7%'\n    most: 4\n\
         \x20 algorithm: fixed_window\n  limit: 4\n  window: 1s\n  id: string\n\
         Off: {enabled: false, id: string, floors: {batch: 1000}}\n\
         Other: {burst: 1, count: 1, period: 1s, id: string}\n",
    )
    .unwrap();
    let (percent, units) = (Floor::Percent, Floor::Units);
    let named = |floors: &[(&str, Floor)]| -> Vec<_> {
        floors.iter().map(|(name, floor)| ((*name).to_owned(), *floor)).collect()
    };
    let own = named(&[("batch", percent(50)), ("Back-ground_1.x", units(20))]);
    assert_eq!(floors(&limits, "Own"), own);
    let window = [
        ("all", percent(100)),
        ("none", percent(0)),
        ("zero", units(0)),
        ("quoted", percent(7)),
        ("most", units(4)),
    ];
    assert_eq!(floors(&limits, "Window"), named(&window));
    assert_eq!(floors(&limits, "Off"), named(&[("batch", units(1000))]));
    assert_eq!(floors(&limits, "Other"), []);
    let now = std::time::SystemTime::now();
    assert_eq!(limits.explain("Own", "large", now).unwrap().floors, own);

    let own = Limiter::new(limits).limit("Own").unwrap();
    let batch = own.priority("batch").unwrap();
    assert!(batch.spend("large", 500).unwrap().allowed());
    assert!(!batch.spend("large", 1).unwrap().allowed());
    assert!(batch.spend("x", 50).unwrap().allowed());
    assert!(own.priority("Batch").unwrap_err().to_string().contains("did you mean batch?"));
}

#[test]
fn faulty_floors_are_refused() {
    let allowed = "a whole number or a whole percentage up to 100% is allowed";
    let long = "burst: 10, count: 1, period: 1s, id: string";
    for (given, shown) in [
        ("101%", "\"101%\""),
        ("-1%", "\"-1%\""),
        ("+5%", "\"+5%\""),
        ("05%", "\"05%\""),
        ("00%", "\"00%\""),
        ("%", "\"%\""),
        ("0.5%", "\"0.5%\""),
        ("50 %", "\"50 %\""),
        ("1000%", "\"1000%\""),
    ] {
        let given = if given == "%" { "'%'" } else { given };
        let text = format!("A: {{{long}, floors: {{a: {given}}}}}");
        let wanted = format!("1: A.floors.a: invalid floor {shown}: {allowed}");
        assert_eq!(faults(&text), [wanted], "{given}");
    }
    let plain = "a whole number or a whole percentage up to 100%, in plain digits, is allowed";
    for given in ["-1", "1.5", "half", "0x10", "05"] {
        let text = format!("A: {{{long}, floors: {{a: {given}}}}}");
        let wanted = format!("1: A.floors.a: invalid floor \"{given}\": {plain}");
        assert_eq!(faults(&text), [wanted], "{given}");
    }
    check(
        &[
            (
                "A:\n  burst: 10\n  count: 1\n  period: 1s\n  id: string\n  floors:\n    a: 11\n    b: 10\n    c:\n    d: {}\n    e: [1]\n    a: 1\n    f g: 1\n    h: '1'\n",
                &[
                    "7: A.floors.a: invalid floor 11: at most 10, the burst, is allowed",
                    "9: A.floors.c: null: a whole number or a whole percentage up to 100% is allowed",
                    "10: A.floors.d: a map: a whole number or a whole percentage up to 100% is allowed",
                    "11: A.floors.e: a list: a whole number or a whole percentage up to 100% is allowed",
                    "12: A.floors.a: the field was given before, on line 7",
                    "13: A.floors.\"f g\": invalid name of a floor \"f g\": a letter, then letters, digits, '_', '.' or '-', at most 128 characters, is allowed",
                    "14: A.floors.h: invalid floor \"1\": a whole number or a whole percentage up to 100%, without quotes, is allowed",
                ],
            ),
            (
                "A: {$REST, id: string, floors: 50%}\nB: {$REST, id: string, floors: [a]}\nC: {$REST, id: string, floors: {}}\nD: {$REST, id: string, floors: }",
                &[
                    "1: A.floors: invalid floors \"50%\": a map of names with units or percentages, such as {batch: 50%}, is allowed",
                    "2: B.floors: a list: a map of names with units or percentages, such as {batch: 50%}, is allowed",
                    "3: C.floors: no floor: a map of names with units or percentages, such as {batch: 50%}, is allowed",
                    "4: D.floors: invalid floors null: a map of names with units or percentages, such as {batch: 50%}, is allowed",
                ],
            ),
            (
                "A: {$REST, id: string}\nA:x: {$REST, floors: {a: 1}}\nB: {algorithm: concurrency, max: 4, id: string,\n floors: {a: 1}}",
                &[
                    "2: A:x.floors: not in an override: it belongs to the limit's default",
                    "4: B.floors: not for what is in flight: a batch leaves permits by Member::leaving",
                ],
            ),
            (
                "A: {$REST, id: string}\nA: {$REST, ids: [x], floors: {a: 1}}",
                &["2: A: the name was given before, on line 1 of the same map"],
            ),
            (
                "A: {$REST, id: string, shadow: {$REST, floors: {a: 1}}}",
                &["1: A.shadow.floors: unknown field: burst, count and period are allowed"],
            ),
        ],
        faults,
    );
    let many: Vec<String> = (0..17).map(|at| format!("f{at}: 1")).collect();
    let of = |count: usize| format!("A: {{{long}, floors: {{{}}}}}", many[..count].join(", "));
    assert!(read(&of(16)).is_ok());
    assert_eq!(faults(&of(17)), ["1: A.floors: too many floors: at most 16 are allowed"]);
    let hostile = "f: x, ".repeat(100_000);
    let text = format!("A: {{{long}, floors: {{{hostile}}}}}\nB: 1");
    assert!(faults(&text).len() > 1);
}

#[test]
fn floors_belong_to_the_default_of_lists() {
    let read = read_both(
        "A: {burst: 1, count: 1, period: 1s, id: string}",
        "- A: {burst: 1, count: 1, period: 1s, ids: [x], floors: {a: 1}}",
    );
    let error = read.unwrap_err().to_string();
    assert!(error.contains("[0].A.floors: not in an override"), "{error}");
    let read = Limits::from_yaml(
        "B: {burst: 1, count: 1, period: 1s, ids: [x], floors: {a: 1}}\nA: {burst: 1, count: 1, period: 1s, id: string}",
    );
    let error = read.unwrap_err().to_string();
    assert!(error.contains("B.floors: not beside ids"), "{error}");
}

#[cfg(feature = "valkey")]
#[test]
fn a_shared_limit_has_no_floors() {
    for word in ["exact", "leased"] {
        let text = format!("A: {{$REST, id: string, shared: {word}, floors: {{a: 1}}}}");
        check(
            &[(
                &*text,
                &[
                    "1: A.floors: a shared limit has no floors: a store decides no spend that must leave units",
                ],
            )],
            faults,
        );
    }
    assert!(
        read("A: {burst: 1, count: 1, period: 1s, id: string, shared: local, floors: {a: 1}}")
            .is_ok()
    );
}
