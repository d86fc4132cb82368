//! Tests networks as ids of overrides: the forms that have them, and their faults.

use super::refused_values::check;
use super::*;
use tollgate::limits::OverrideOptions;
use tollgate::{IdFormat, Limit};

const OWN: &str = "Own: {burst: 1, count: 1, period: 1s, id: ipAddress}\n";

fn burst(limits: &Limits, id: &str) -> Option<u64> {
    numbers(limits, "Own", id).map(|(burst, ..)| burst)
}

#[test]
fn each_form_of_overrides_has_networks() {
    for text in [
        "Own:10.0.0.0/8: {burst: 2, count: 1, period: 1s}\n\
         Own:2001:db8::/32: {burst: 2, count: 1, period: 1s}\n\
         Own:10.1.0.0/16: {unlimited: true}\n",
        "Own: {burst: 2, count: 1, period: 1s, ids: [10.0.0.0/8, '2001:db8::/32']}\n\
         Own:10.1.0.0/16: {unlimited: true}\n",
        "- Own: {ids: [10.0.0.0/8, {id: '2001:db8::/32', comment: ours, expires: 2026-12-31}], burst: 2, count: 1, period: 1s}\n\
         - Own: {unlimited: true, ids: [10.1.0.0/16]}\n",
    ] {
        let limits = read_both(OWN, text).expect(text);
        assert_eq!(limits.overrides(), 3, "{text}");
        for (id, wanted) in [
            ("10.2.0.1", Some(2)),
            ("10.1.2.3", None),
            ("11.0.0.1", Some(1)),
            ("2001:db8:ffff::1", Some(2)),
            ("2001:db9::1", Some(1)),
        ] {
            assert_eq!(burst(&limits, id), wanted, "{id} {text}");
        }
        let own = limits.limit("Own").unwrap();
        let given = own.override_of("10.1.0.0/16").unwrap().expect("it was given");
        assert!(given.is_of_network() && given.limit().is_none() && given.id() == "10.1.0.0/16");
        let around = own.overrides_around("10.1.2.3").unwrap();
        let around: Vec<String> = around.iter().map(|given| given.id()).collect();
        assert_eq!(around, ["10.1.0.0/16", "10.0.0.0/8"], "{text}");
    }
}

#[test]
fn faulty_networks_are_refused() {
    check(
        &[
            (
                "10.0.0.1/8",
                &[
                    "1: [0].Own.ids[0]: invalid ipAddress \"10.0.0.1/8\": must be in canonical form, \"10.0.0.0/8\"",
                ],
            ),
            (
                "10.0.0.1/32",
                &[
                    "1: [0].Own.ids[0]: invalid ipAddress \"10.0.0.1/32\": is one address: must be \"10.0.0.1\"",
                ],
            ),
            (
                "10.0.0.0/40",
                &[
                    "1: [0].Own.ids[0]: invalid ipAddress \"10.0.0.0/40\": must have a prefix of at most 32 bits",
                ],
            ),
            (
                "10.0.0.0/8/8",
                &[
                    "1: [0].Own.ids[0]: invalid ipAddress \"10.0.0.0/8/8\": must be an IP address, or a network such as \"10.0.0.0/8\"",
                ],
            ),
            (
                "'::ffff:10.0.0.0/104'",
                &[
                    "1: [0].Own.ids[0]: invalid ipAddress \"::ffff:10.0.0.0/104\": is a network of IPv4-mapped addresses, must be in canonical form, \"10.0.0.0/8\"",
                ],
            ),
        ],
        |id| {
            let overrides = format!("- Own: {{burst: 2, count: 1, period: 1s, ids: [{id}]}}");
            strip(&read_both(OWN, &overrides).expect_err(id), "<overrides>")
        },
    );
    let once = "Own:10.0.0.0/8: {unlimited: true}\n";
    let twice = faults(&format!("{OWN}{once}{once}"));
    assert!(twice[0].contains("was given before, on line 2"), "{twice:?}");
    // Boulder's limits have no networks of reserved addresses, and a tuple has none.
    assert_eq!(
        faults("NewRegistrationsPerIPAddress:10.0.0.0/9: {unlimited: true}"),
        [
            "1: NewRegistrationsPerIPAddress:10.0.0.0/9: invalid ipAddress \"10.0.0.0/9\": is in a reserved address block, 10.0.0.0/8 (private use)"
        ]
    );
    assert!(read("NewRegistrationsPerIPAddress:8.8.0.0/16: {unlimited: true}").is_ok());
    let pair = "Own: {burst: 1, count: 1, period: 1s, id: 'ipAddress:string'}\nOwn:10.0.0.0/8:a: {unlimited: true}\n";
    assert!(
        faults(pair)[0].contains("ipAddress \"10.0.0.0/8\": must be an IP address"),
        "{:?}",
        faults(pair)
    );
}

/// The warning about the end names the larger network; one in which the HTTP layer has no id is warned of.
#[test]
fn warnings_know_networks() {
    let limits = read(&format!(
        "{OWN}Own:10.0.0.0/8: {{burst: 2, count: 1, period: 1s}}\n\
         Own:10.1.0.0/16: {{burst: 3, count: 1, period: 1s, expires: 2026-11-21}}\n\
         Own:2001:db8::/32: {{burst: 3, count: 1, period: 1s}}\n\
         Own:2001:db8:0:1::8000/113: {{burst: 3, count: 1, period: 1s}}\n"
    ));
    let now = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_910_400);
    let warnings = limits.unwrap().warnings(now);
    let texts: Vec<String> = warnings.iter().map(|warning| warning.to_string()).collect();
    assert_eq!(
        texts,
        [
            "<text>:3: Own:10.1.0.0/16: the override of 10.1.0.0/16 expired on 2026-11-21: the override of 10.0.0.0/8, burst 2, count 1, period 1s, applies",
            "<text>:5: Own:2001:db8:0:1::8000/113: the override of 2001:db8:0:1::8000/113 applies to no client of the HTTP layer, which counts these by their /64: write 2001:db8:0:1::",
        ]
    );
}

/// The store keeps no networks, in whichever order the two come.
#[cfg(feature = "valkey")]
#[test]
fn shared_limits_have_no_networks() {
    let why =
        "a shared limit has no overrides of networks: overrides of single addresses are allowed";
    let shared = "Own: {burst: 1, count: 1, period: 1s, id: ipAddress, shared: exact}\n";
    let text = format!("{shared}Own:10.0.0.0/8: {{burst: 2, count: 1, period: 1s}}\n");
    assert_eq!(faults(&text), [format!("2: Own:10.0.0.0/8: {why}")]);
    let listed = read_both(shared, "- Own: {unlimited: true, ids: [10.0.0.1, 10.0.0.0/8]}");
    assert_eq!(strip(&listed.unwrap_err(), "<overrides>"), [format!("1: [0].Own.ids[1]: {why}")]);
    // Boulder's overrides may come before their default.
    let boulders = "NewRegistrationsPerIPAddress:8.8.0.0/16: {burst: 2, count: 1, period: 1s}\n\
                    NewRegistrationsPerIPAddress: {burst: 1, count: 1, period: 1s, shared: exact}\n";
    assert_eq!(faults(boulders), [format!("2: NewRegistrationsPerIPAddress: {why}")]);
    let local = read(&text.replace("shared: exact", "shared: local")).unwrap();
    let own = |limits: Limits| limits.limit("Own").unwrap().shared();
    assert_eq!(
        own(local.share_all(tollgate::limits::Shared::Exact)),
        tollgate::limits::Shared::Local
    );
}

#[test]
fn an_ended_network_is_left_out() {
    let text =
        format!("{OWN}Own:10.0.0.0/8: {{burst: 2, count: 1, period: 1s, expires: 2026-11-21}}\n");
    let limits = read(&text).unwrap();
    assert_eq!(burst(&limits, "10.2.0.1"), Some(2));
    let now = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_910_400);
    assert_eq!(burst(&limits.valid_at(now), "10.2.0.1"), Some(1));
}

#[test]
fn limits_have_a_number_of_networks() {
    const MOST: usize = 65_536;
    let network = |at: usize| format!("10.{}.{}.{}/31", at >> 15, at >> 7 & 255, at << 1 & 255);
    let limit = Limit::new(2, 1, Duration::from_secs(1)).unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_910_400);
    let options = OverrideOptions::default().expires(now);
    let mut builder = Limits::builder().limit("Own", IdFormat::IpAddress, None).unwrap();
    for at in 0..MOST {
        let network = network(at);
        let added = builder.override_with("Own", &*network, limit.clone(), options.clone());
        builder = added.unwrap();
    }
    let limits = builder.build();
    assert_eq!((limits.overrides(), burst(&limits, "10.1.255.255")), (MOST, Some(2)));
    let another = "Own:11.0.0.0/8: {burst: 3, count: 1, period: 1s}\n";
    let add = |limits| tollgate::limits::Loader::new().before(limits).text(another);
    let error = add(limits.clone()).unwrap_err();
    let wanted = "1: Own:11.0.0.0/8: one network more than 65536, the most of all limits together";
    assert_eq!(strip(&error, "<text>"), [wanted]);
    // Those that have ended are none of them.
    let limits = add(limits.valid_at(now)).unwrap();
    assert_eq!((limits.overrides(), burst(&limits, "11.0.0.1")), (1, Some(3)));
}
