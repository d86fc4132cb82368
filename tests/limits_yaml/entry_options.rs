//! Tests the options of entries: modes, shadows, debts, comments, owners and ends.

use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::limits::{LimitMode, LimitOptions, OverrideEntry, OverrideOptions};
use tollgate::{IdFormat, Limit};

use super::refused_values::check;
use super::*;

/// 00:00 UTC on 2027-01-01, when the last day of 2026 is over: `date -u -d 2027-01-01 +%s`.
const NEW_YEAR: u64 = 1_798_761_600;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[track_caller]
fn given<'a>(limits: &'a Limits, name: &str, id: &str) -> OverrideEntry<'a> {
    limits.limit(name).unwrap().override_of(id).unwrap().expect("it was given")
}

/// Returns comment, owner and last day of an override.
#[track_caller]
fn said<'a>(
    limits: &'a Limits,
    name: &str,
    id: &str,
) -> (Option<&'a str>, Option<&'a str>, Option<String>) {
    let given = given(limits, name, id);
    (given.comment(), given.owner(), given.last_day())
}

#[test]
fn overrides_have_comment_owner_and_end() {
    let limits = read(
        "Own: {burst: 1, count: 1, period: 1s, id: string}\n\
         Own:a: {comment: 'a: trial', expires: 2026-12-31, burst: 2, count: 1, period: 1s, owner: sales}\n\
         Own:b: {burst: 2, count: 1, period: 1s, owner: , comment: ~}\n",
    )
    .unwrap();
    let day = Some("2026-12-31".to_owned());
    assert_eq!(said(&limits, "Own", "a"), (Some("a: trial"), Some("sales"), day));
    assert_eq!(said(&limits, "Own", "b"), (None, None, None));
    let a = given(&limits, "Own", "a");
    assert_eq!(a.expires(), Some(at(NEW_YEAR)));
    // It applies through the end of its last day.
    assert!(!a.is_expired(at(NEW_YEAR - 1)) && a.is_expired(at(NEW_YEAR)));
    assert!(!given(&limits, "Own", "b").is_expired(at(u64::from(u32::MAX))));
}

/// In the list form, the list and each of its ids may have options.
#[test]
fn options_of_an_id_precede_its_lists() {
    for ids_come_first in [true, false] {
        let ids = "    ids:\n    - a\n    - {id: b, comment: own}\n    \
                   - {expires: 2026-12-31, owner: me, id: c}\n    - {id: d, expires: 2027-06-30}\n    \
                   - {id: e, expires: 2026-12-31}\n";
        let rest = "    expires: 2028-02-29\n    comment: shared\n    owner: all\n    \
                    burst: 3\n    count: 1\n    period: 1s\n";
        let body = if ids_come_first { [ids, rest] } else { [rest, ids] }.concat();
        let limits = read_both(
            "Own: {burst: 1, count: 1, period: 1s, id: string}",
            &format!("- Own:\n{body}- Own: {{burst: 9, count: 1, period: 1s, ids: [z]}}\n"),
        )
        .unwrap();
        let of = |id| said(&limits, "Own", id);
        let day = |text: &str| Some(text.to_owned());
        assert_eq!(of("a"), (Some("shared"), Some("all"), day("2028-02-29")));
        assert_eq!(of("b"), (Some("own"), Some("all"), day("2028-02-29")));
        assert_eq!(of("c"), (Some("shared"), Some("me"), day("2026-12-31")));
        assert_eq!(of("d"), (Some("shared"), Some("all"), day("2027-06-30")));
        assert_eq!(of("e"), (Some("shared"), Some("all"), day("2026-12-31")));
        assert_eq!(of("z"), (None, None, None));
        for id in ["a", "b", "c", "d", "e"] {
            assert_eq!(numbers(&limits, "Own", id), Some((3, 1, SECOND)), "{id}");
        }
        assert_eq!(numbers(&limits, "Own", "z"), Some((9, 1, SECOND)));
    }
}

#[test]
fn every_entry_knows_its_file_and_line() {
    let limits = read_both(
        "# none\nOwn: {burst: 1, count: 1, period: 1s, id: string}\n\
         Own:a: {burst: 2, count: 1, period: 1s}\n",
        "- Own:\n    burst: 3\n    count: 1\n    period: 1s\n    ids:\n    - b\n    - id: c\n",
    )
    .unwrap();
    let own = limits.limit("Own").unwrap();
    let place = |id| given(&limits, "Own", id).location().unwrap().to_string();
    assert_eq!(own.location().unwrap().to_string(), "<limits>:2");
    assert_eq!(
        (&*place("a"), &*place("b"), &*place("c")),
        ("<limits>:3", "<overrides>:6", "<overrides>:7")
    );
    // A limit of Boulder's that was not given, and limits made in code, have no location.
    assert_eq!(limits.limit("NewOrdersPerAccount").unwrap().location(), None);
    let in_code = Limits::builder().limit("A", IdFormat::String, None).unwrap();
    let in_code = in_code.override_id("A", "x", None).unwrap().build();
    assert_eq!(in_code.limit("A").unwrap().location(), None);
    assert_eq!(given(&in_code, "A", "x").location(), None);
}

#[test]
fn limits_have_mode_shadow_and_debt() {
    let limits = read(
        "A: {burst: 20, count: 10, period: 1s, id: string}\n\
         B: {burst: 20, count: 10, period: 1s, id: string, mode: shadow, max_debt: 0}\n\
         C:\n  mode: enforce\n  shadow: {burst: 5, count: 5, period: 2s}\n  max_debt: 40\n  \
           burst: 20\n  count: 10\n  period: 1s\n  id: string\n\
         C:own: {burst: 20, count: 10, period: 1s, max_debt: 7}\n\
         C:none: {burst: 20, count: 10, period: 1s, max_debt: 0}\n\
         C:limits: {burst: 20, count: 10, period: 1s}\n\
         D: {shadow: {limit: 3, window: 1s}, algorithm: fixed_window, limit: 4, window: 1s, id: string}\n\
         E: {algorithm: leaky_bucket, size: 4, id: string, shadow: {max: 2, duration: 1s}}\n\
         F: {enabled: false, id: string, mode: shadow, max_debt: 3}\n",
    )
    .unwrap();
    let limit = |name| limits.limit(name).unwrap();
    let of = |name| (limit(name).mode(), limit(name).shadow().cloned(), limit(name).max_debt());
    assert_eq!(of("A"), (LimitMode::Enforce, None, 0));
    assert_eq!(of("B"), (LimitMode::Shadow, None, 0));
    assert_eq!(of("C"), (LimitMode::Enforce, Limit::new(5, 5, 2 * SECOND).ok(), 40));
    assert_eq!(of("D").1, Limit::fixed_window(3, SECOND).ok());
    assert_eq!(of("E").1, Limit::leaky_bucket(2, 1, SECOND / 2).ok());
    assert_eq!((limit("F").is_disabled(), limit("F").mode()), (true, LimitMode::Shadow));
    // An override may have its own debt, also 0.
    let debt = |id| given(&limits, "C", id).max_debt();
    assert_eq!((debt("own"), debt("none"), debt("limits")), (7, 0, 40));
}

#[test]
fn own_debt_without_room_is_refused() {
    let window = "algorithm: fixed_window, limit: 16777210, window: 1s, id: string";
    let limits =
        read(&format!("A: {{{window}, max_debt: 5}}\nA:x: {{limit: 16777213, window: 1s}}\n"))
            .unwrap();
    assert_eq!(limits.limit("A").unwrap().max_debt(), 5);
    assert_eq!(given(&limits, "A", "x").max_debt(), 2);
    assert_eq!(
        faults(&format!(
            "A: {{{window},\n  max_debt: 6}}\nA:x: {{limit: 16777213, window: 1s, max_debt: 3}}\n"
        )),
        [
            "2: A.max_debt: invalid max_debt 6: at most 5 is allowed beside fixed_window: limit 16777210, window 1s",
            "3: A:x.max_debt: invalid max_debt 3: at most 2 is allowed beside fixed_window: limit 16777213, window 1s",
        ]
    );
}

#[test]
fn dates() {
    let allowed = "a date such as 2026-12-31, from 1970-01-01 to 9999-12-31, is allowed";
    for bad in ["2026-02-29", "2026-12-32", "31.12.2026", "1969-12-31", "2026-12-31T00:00:00Z"] {
        let wanted = format!("invalid expires {bad:?}: {allowed}");
        let text =
            format!("NewOrdersPerAccount:1: {{burst: 1, count: 1, period: 1s, expires: '{bad}'}}");
        assert_eq!(faults(&text), [format!("1: NewOrdersPerAccount:1.expires: {wanted}")]);
        let text = format!(
            "- NewOrdersPerAccount: {{burst: 1, count: 1, period: 1s, ids: [{{id: 1, expires: '{bad}'}}]}}"
        );
        assert_eq!(faults(&text), [format!("1: [0].NewOrdersPerAccount.ids[0].expires: {wanted}")]);
    }
}

#[test]
fn faulty_options_are_refused() {
    check(
        &[
            (
                "A:x: 1",
                &[
                    "1: A:x: unknown limit \"A\"; a custom limit is declared before its overrides, with the format of its ids, such as id: ipAddress",
                    "1: A:x: \"1\": a map with burst, count and period is allowed",
                ],
            ),
            (
                "A: {$REST, id: string, mode: shadwo}",
                &[
                    "1: A.mode: invalid mode \"shadwo\": enforce and shadow are allowed; did you mean shadow?",
                ],
            ),
            (
                "A: {$REST, id: string, mode: }",
                &["1: A.mode: invalid mode null: enforce or shadow is allowed"],
            ),
            (
                "A: {$REST, id: string, max_debt: -1}",
                &[
                    "1: A.max_debt: invalid max_debt \"-1\": a whole number from 0, in plain digits, is allowed",
                ],
            ),
            (
                "A: {$REST, id: string, shadow: 1}",
                &[
                    "1: A.shadow: invalid shadow \"1\": a map of numbers, as an override has them, is allowed",
                ],
            ),
            (
                "A: {$REST, id: string, shadow: [1]}",
                &["1: A.shadow: a list: a map of numbers, as an override has them, is allowed"],
            ),
            (
                "A: {$REST, id: string,\n shadow: {burst: 0, brust: 1,\n  period: 1s, shadow: {}}}",
                &[
                    "2: A.shadow.burst: invalid burst 0: at least 1 is allowed",
                    "2: A.shadow.brust: unknown field: burst, count and period are allowed; did you mean burst?",
                    "2: A.shadow: no count: a whole number from 1 is wanted",
                    "3: A.shadow.shadow: unknown field: burst, count and period are allowed",
                ],
            ),
            (
                "A: {$REST, id: string, shadow: {limit: 1, window: 1s}}",
                &[
                    "1: A.shadow.limit: unknown field: burst, count and period are allowed",
                    "1: A.shadow.window: unknown field: burst, count and period are allowed",
                    "1: A.shadow: no burst: a whole number from 1 is wanted",
                    "1: A.shadow: no count: a whole number from 1 is wanted",
                    "1: A.shadow: no period: a duration such as 60s, 180m or 1h30m is wanted",
                ],
            ),
            (
                "A: {$REST, id: string, mode: shadow,\n shadow: {$REST}}",
                &["2: A.shadow: not beside mode: shadow, whose own numbers are only tried"],
            ),
            (
                "A: {algorithm: leaky_bucket, max: 1, duration: 0s, id: string, shadow: {size: 1}}",
                &["1: A.shadow: not beside no limit: mode: shadow is for numbers that stand alone"],
            ),
            (
                "A: {algorithm: leaky_bucket, size: 1, id: string, shadow: {min_interval: 0s}}",
                &["1: A.shadow: no limit: numbers that limit are wanted"],
            ),
            (
                "A: {$REST, id: string, comment: x, owner: y, expires: 2026-12-31}",
                &[
                    "1: A.comment: not without ids: it belongs to an override",
                    "1: A.owner: not without ids: it belongs to an override",
                    "1: A.expires: not without ids: it belongs to an override",
                ],
            ),
            (
                "NewOrdersPerAccount: {$REST, ids: [1], mode: shadow, shadow: {$REST}}",
                &[
                    "1: NewOrdersPerAccount.mode: not beside ids: it belongs to the limit's default",
                    "1: NewOrdersPerAccount.shadow: not beside ids: it belongs to the limit's default",
                ],
            ),
            (
                "NewOrdersPerAccount:1: {$REST, mode: shadow}",
                &[
                    "1: NewOrdersPerAccount:1.mode: unknown field: burst, count, period, unlimited, max_debt, comment, owner and expires are allowed",
                ],
            ),
            (
                "NewOrdersPerAccount:1: {$REST, owner: [x], comment: {a: b}, expires: }",
                &[
                    "1: NewOrdersPerAccount:1.owner: a list: text is allowed",
                    "1: NewOrdersPerAccount:1.comment: a map: text is allowed",
                    "1: NewOrdersPerAccount:1.expires: invalid expires null: a date such as 2026-12-31 is allowed",
                ],
            ),
            (
                "- NewOrdersPerAccount: {$REST, ids: [{id: 1, expires: , owner: [x]}]}",
                &[
                    "1: [0].NewOrdersPerAccount.ids[0].expires: invalid expires null: a date such as 2026-12-31 is allowed",
                    "1: [0].NewOrdersPerAccount.ids[0].owner: a list: text is allowed",
                ],
            ),
        ],
        faults,
    );
}

#[test]
fn in_code_the_same_options_are_refused() {
    let text = IdFormat::String;
    let gcra = || Limit::new(20, 10, SECOND).unwrap();
    let window = Limit::fixed_window(1, SECOND).unwrap();
    let with = |options| Limits::builder().limit_with("A", text, gcra(), options);
    for (options, wanted) in [
        (
            LimitOptions::default().shadow(window.clone()),
            "numbers of fixed_window beside numbers of gcra: a limit has one algorithm",
        ),
        (
            LimitOptions::default().shadow(gcra()).mode(LimitMode::Shadow),
            "not beside mode: shadow, whose own numbers are only tried",
        ),
        (
            LimitOptions::default().max_debt(u64::MAX),
            "invalid max_debt 18446744073709551615: at most 46116860164 is allowed beside burst 20, count 10, period 1s",
        ),
    ] {
        let error = with(options).unwrap_err();
        assert!(error.is_invalid_limit(), "{error:?}");
        assert_eq!(error.to_string(), wanted);
    }
    let builder = with(LimitOptions::default().shadow(gcra()).max_debt(9)).unwrap();
    let options = OverrideOptions::default().max_debt(u64::MAX);
    let error = builder.clone().override_with("A", "x", gcra(), options.clone()).unwrap_err();
    assert!(
        error.is_invalid_limit() && error.to_string().contains("invalid max_debt"),
        "{error:?}"
    );
    // An override without a limit has no debt.
    let limits = builder.override_with("A", "x", None, options).unwrap().build();
    assert_eq!(given(&limits, "A", "x").max_debt(), 0);
    assert_eq!(limits.limit("A").unwrap().shadow(), Some(&gcra()));
}

#[test]
fn max_keys_is_of_the_default() {
    let limits = read(
        "Own: {burst: 1, count: 1, period: 1s, id: string, max_keys: 5000}\n\
         Other: {burst: 1, count: 1, period: 1s, id: string}\n",
    )
    .unwrap();
    let max_keys = |name| limits.limit(name).unwrap().max_keys();
    assert_eq!((max_keys("Own"), max_keys("Other")), (Some(5000), None));
    let limiter = tollgate::Limiter::with_options(
        limits.clone(),
        tollgate::LimiterOptions::default().max_keys(20_000),
    )
    .unwrap();
    let own = limiter.limit("Own").unwrap();
    for id in 0..6_000 {
        let _ = own.spend(format!("{id}").as_str(), 1).unwrap();
    }
    assert_eq!(limiter.stats().cells, 5000);
    check(
        &[
            (
                "Own: {burst: 1, count: 1, period: 1s, id: string, max_keys: 0}",
                &["1: Own.max_keys: invalid max_keys 0: at least 1 is allowed"],
            ),
            (
                "Own: {burst: 1, count: 1, period: 1s, id: string}\n\
             Own:a: {burst: 2, count: 1, period: 1s, max_keys: 7}",
                &["2: Own:a.max_keys: not in an override: it belongs to the limit's default"],
            ),
        ],
        faults,
    );
    let none = LimitOptions::default().max_keys(0);
    let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
    let refused = Limits::builder().limit_with("Own", IdFormat::String, limit, none).unwrap_err();
    assert!(refused.is_invalid_limit(), "{refused}");
}

/// The fields of an override before its default tell what it limits: one of permits was none at all.
#[test]
fn overrides_of_permits_may_come_first() {
    let of_account = "NewOrdersPerAccount:5: {max: 10}\n";
    let default = "NewOrdersPerAccount: {algorithm: concurrency, max: 3}\n";
    for text in [of_account.to_owned() + default, default.to_owned() + of_account] {
        let limits = read(&text).unwrap();
        let own = limits.limit_for("NewOrdersPerAccount", 5).unwrap();
        assert_eq!(own.map(|limit| (limit.algorithm(), limit.burst())), Some(("concurrency", 10)));
    }
    let gcra = "NewOrdersPerAccount: {burst: 1, count: 1, period: 1s}\n";
    let found = faults(&(of_account.to_owned() + gcra));
    assert!(found.len() == 1 && found[0].contains("a limit has one algorithm"), "{found:?}");
}

#[test]
fn fields_of_defaults_are_not_beside_ids() {
    let text = "NewOrdersPerAccount: {burst: 30, count: 20, period: 1s, ids: [5], max_keys: 7}\n";
    let wanted =
        "1: NewOrdersPerAccount.max_keys: not beside ids: it belongs to the limit's default";
    assert_eq!(faults(text), [wanted]);
}

#[test]
fn a_fault_names_a_field_that_is_there() {
    let text = "E: {algorithm: leaky_bucket, max: 2000000, duration: 100us, id: string}\n";
    let found = faults(text);
    assert!(found[0].starts_with("1: E.duration: invalid duration 100µs"), "{found:?}");
}
