//! Tests `unlimited: true`: the forms of overrides that have it, and its faults.

use std::time::SystemTime;

use tollgate::limits::Applies;

use super::refused_values::check;
use super::*;

#[test]
fn each_form_of_overrides_has_it() {
    let limits = "Own: {burst: 1, count: 1, period: 1s, id: string}\n";
    for (form, text) in [
        (
            "keyed",
            "Own:a: {unlimited: true}\nOwn:b: {comment: why, unlimited: true, expires: 2026-12-31}\n",
        ),
        ("map", "Own: {ids: [a, {id: b, comment: why, expires: 2026-12-31}], unlimited: true}\n"),
        (
            "list",
            "- Own: {unlimited: true, ids: [a, {id: b, comment: why, expires: 2026-12-31}]}\n",
        ),
    ] {
        let limits = read_both(limits, text).expect(form);
        for id in ["a", "b"] {
            assert_eq!(limits.limit_for("Own", id).unwrap(), None, "{form} {id}");
            let given =
                limits.limit("Own").unwrap().override_of(id).unwrap().expect("it was given");
            assert!(given.limit().is_none() && given.max_debt() == 0, "{form} {id}");
            assert_eq!(given.comment(), (id == "b").then_some("why"));
            assert_eq!(given.last_day().as_deref(), (id == "b").then_some("2026-12-31"));
            let explained = limits.explain("Own", id, SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!((explained.applies, explained.limit), (Applies::Override, None), "{form}");
            assert_eq!(explained.location.map(|it| it.file).as_deref(), Some("<overrides>"));
        }
        assert_eq!(numbers(&limits, "Own", "c"), Some((1, 1, SECOND)), "{form}");
    }
}

#[test]
fn every_algorithm_and_account_has_it() {
    for default in [
        "burst: 1, count: 1, period: 1s",
        "algorithm: at_most, limit: 4, window: 1s, burst: 2",
        "algorithm: fixed_window, limit: 1, window: 1s",
        "algorithm: token_bucket, limit: 1, window: 1s, burst: 1",
        "algorithm: leaky_bucket, size: 1",
    ] {
        let text = format!("Own: {{{default}, id: string}}\nOwn:a: {{unlimited: true}}\n");
        let limits = read(&text).expect(default);
        assert_eq!(limits.limit_for("Own", "a").unwrap(), None, "{default}");
        assert!(limits.limit_for("Own", "b").unwrap().is_some(), "{default}");
    }
    // An override may come before the default of one of Boulder's names.
    let limits = read(
        "CertificatesPerDomainPerAccount:7: {unlimited: true}\n\
         CertificatesPerDomainPerAccount:7:example.com: {burst: 2, count: 1, period: 1s}\n\
         CertificatesPerDomainPerAccount: {burst: 1, count: 1, period: 1s}\n",
    );
    let limits = limits.unwrap();
    let burst = |id: &str| numbers(&limits, "CertificatesPerDomainPerAccount", id).map(|it| it.0);
    assert_eq!(burst("7:example.org"), None);
    assert_eq!((burst("7:example.com"), burst("8:example.com")), (Some(2), Some(1)));
}

#[test]
fn it_stands_in_place_of_parameters() {
    check(
        &[
            (
                "{unlimited: true, burst: 1, count: 1, period: 1s, ids: [a]}",
                &[
                    "1: [0].Own.unlimited: not beside burst, count and period: unlimited: true stands in place of parameters",
                ],
            ),
            (
                "{burst: 0, unlimited: true, max_debt: 1, ids: [a]}",
                &[
                    "1: [0].Own.unlimited: not beside burst and max_debt: unlimited: true stands in place of parameters",
                ],
            ),
            (
                "{brust: 1, unlimited: true, ids: [a]}",
                &[
                    "1: [0].Own.unlimited: not beside brust: unlimited: true stands in place of parameters",
                ],
            ),
            (
                "{unlimited: false, ids: [a]}",
                &[
                    "1: [0].Own.unlimited: invalid unlimited false: true is allowed; for a limit, write its parameters in place of unlimited",
                ],
            ),
            (
                "{unlimited: yes, ids: [a]}",
                &["1: [0].Own.unlimited: invalid unlimited \"yes\": true is allowed"],
            ),
            (
                "{unlimited: , ids: [a]}",
                &["1: [0].Own.unlimited: invalid unlimited null: true is allowed"],
            ),
            ("{unlimited: [true], ids: [a]}", &["1: [0].Own.unlimited: a list: true is allowed"]),
            (
                "{unlimited: true, unlimited: true, ids: [a]}",
                &["1: [0].Own.unlimited: the field was given before, on line 1"],
            ),
            (
                "{unlimited: true}",
                &[
                    "1: [0].Own: no ids: an override has a list of them, or one in its key, as Name:id",
                ],
            ),
            (
                "{ids: [{id: a, unlimited: true}], $REST}",
                &[
                    "1: [0].Own.ids[0].unlimited: unknown field: id, comment, owner and expires are allowed",
                ],
            ),
        ],
        |fields| override_faults(&format!("- Own: {fields}")),
    );
    assert_eq!(
        faults("Own:\n  unlimited: true\n  id: string\n  burst: 1\n  count: 1\n  period: 1s\n"),
        [
            "2: Own.unlimited: not without ids: it belongs to an override; enabled: false switches a limit off"
        ]
    );
    assert_eq!(
        faults(
            "Own: {burst: 1, count: 1, period: 1s, id: string}\nOwn:a:\n  period: 1s\n  unlimited: true\n"
        ),
        ["4: Own:a.unlimited: not beside period: unlimited: true stands in place of parameters"]
    );
}
