//! The scripts at single points that random calls rarely meet: they decide and write as `decide.rs` does.

use std::time::Duration;

use redis::{Commands, Connection};

use super::server::{Server, with_each};
use super::{charge, member, options, secondly, wait_until_connected};
use crate::algorithm::factor::Factor;
use crate::core::shared::decide::{decide, denied_by, written};
use crate::core::shared::groups::MAX_GROUP_UNITS;
use crate::core::shared::lease::{LeaseEnd, LeaseRequest};
use crate::core::shared::{SharedMember, SharedMode};
use crate::limit::Limit;
use crate::shared::valkey::ValkeyStore;
use crate::shared::valkey::script::Scripts;

const MS: u64 = 1_000_000;
const NOW_MS: u64 = 1_790_000_000_250;

struct Edges {
    store: ValkeyStore,
    connection: Connection,
}

impl Edges {
    /// Makes a store whose server's clock stands at [`NOW_MS`].
    fn new(server: &Server) -> Edges {
        let by_hand =
            |text: &str| text.replace("redis.call('TIME')", "redis.call('LRANGE', 'clock', 0, -1)");
        let mut connection = server.connection();
        let now = [NOW_MS / 1_000, NOW_MS % 1_000 * 1_000];
        let () = connection.rpush("clock", &now).unwrap();
        let store = ValkeyStore::with_scripts(&options(server), Scripts::from(by_hand)).unwrap();
        wait_until_connected(&store);
        Edges { store, connection }
    }

    /// Charges a member whose bucket has this text. Returns whether it is allowed, and the units of its lease.
    fn charge(&mut self, text: &str, member: &SharedMember) -> (bool, u64) {
        let () = self.connection.set(&*member.key, text).unwrap();
        let members = std::slice::from_ref(member);
        let found = charge(&self.store, members).unwrap();
        assert_eq!(found.unix_ns, NOW_MS * MS);
        let decided = decide(members, &found.texts, found.unix_ns).unwrap();
        assert_eq!(found.denied, denied_by(members, &decided), "{text:?} {member:?}");
        let is_allowed = found.denied.is_none();
        let granted = decided[0].granted.filter(|_| is_allowed);
        assert_eq!(found.leased, [granted.map_or(0, |granted| granted.units)], "{text:?}");
        let new = written(member, &decided[0], found.unix_ns).filter(|_| is_allowed);
        let after: String = self.connection.get(&*member.key).unwrap();
        let wanted = new.as_ref().map_or(text, |(text, _)| text);
        assert_eq!(after, wanted, "of {text:?} {member:?}");
        if let Some((_, keep_ms)) = new {
            let left_ms = self.connection.pttl::<_, i64>(&*member.key).unwrap().cast_unsigned();
            assert!((keep_ms - 3_000..=keep_ms).contains(&left_ms), "{left_ms} of {keep_ms}");
        }
        (is_allowed, found.leased[0])
    }
}

fn asking(want: u64, end: Option<LeaseEnd>) -> Option<LeaseRequest> {
    Some(LeaseRequest { want, length_ms: 1_000, end })
}

#[test]
fn gcra_is_exact_to_the_ns() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let plain = member("a", &secondly(5, 1), 1);
        // This one is for charge.lua.
        let kept = SharedMember { keep_ms: 1, ..plain.clone() };
        for member in [plain, kept] {
            let full_ns = NOW_MS * MS + 4_000_000_000;
            assert!(edges.charge(&full_ns.to_string(), &member).0);
            assert!(!edges.charge(&(full_ns + 1).to_string(), &member).0);
        }
    });
}

#[test]
fn ledgers_and_leases_end_at_their_ms() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let leaky = Limit::leaky_bucket(40, Duration::from_secs(1), 1).unwrap();
        let buckets = [
            (secondly(40, 1), (NOW_MS * MS).to_string()),
            (leaky, format!("{}:3", NOW_MS - 1_500)),
        ];
        for (limit, bucket) in &buckets {
            for before_ms in [2, 1, 0, 1_200] {
                let at_ms = NOW_MS + 1 - before_ms;
                edges.charge(&format!("{bucket}~1:{at_ms}:1:5:0:0:0"), &member("a", limit, 1));
                // The later group is still leased when the first one ends.
                let groups = format!("{bucket}|0|{at_ms}|5|{}|7", NOW_MS + 900);
                edges.charge(&groups, &member("a", limit, 1));
            }
        }
    });
}

#[test]
fn windows_drop_ledgers_by_their_start() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let window = Limit::fixed_window(5, Duration::from_secs(1)).unwrap();
        let starts = [0, 400, 999, 1_000, 2_500].map(|before_ms| NOW_MS - before_ms);
        for start_ms in starts {
            for needed_ms in [start_ms - 1, start_ms, start_ms + 1, NOW_MS, NOW_MS + 1] {
                let ledger = format!("~1:{needed_ms}:1:5:0:0:0");
                // The last one owes units of three windows.
                for count in [0, 1, 4, 5, 14] {
                    edges.charge(&format!("{start_ms}:{count}{ledger}"), &member("a", &window, 1));
                }
                // A bucket that was never charged.
                edges.charge(&ledger, &member("a", &window, 1));
            }
        }
    });
}

/// The units of leases are counted, and drain as the call's limit says.
#[test]
fn leases_of_counts_drain_by_the_factor() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let own = Limit::leaky_bucket(40, Duration::from_secs(1), 1).unwrap();
        let fast = own.scaled(Factor::from_millionths(500_000)).unwrap().unwrap();
        let unscaled = Some(Box::new(own));
        let member = SharedMember { unscaled, ..member("a", &fast, 1) };
        for ended_ms in [100, 700, 1_400] {
            let text = format!("{}:3|0|{}|7", NOW_MS - 1_500, NOW_MS - ended_ms);
            assert!(edges.charge(&text, &member).0);
        }
    });
}

/// The units that a call with a factor below 1 drains early are written into the ledger, which is kept until the charges
/// before have drained by the limit itself.
#[test]
fn drains_by_factors_are_in_the_ledger() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let own = Limit::leaky_bucket(40, Duration::from_secs(1), 1).unwrap();
        let mut charged = |millionths, text: &str| {
            let scaled = own.scaled(Factor::from_millionths(millionths)).unwrap().unwrap();
            let unscaled = Some(Box::new(own.clone()));
            let keep_ms = 40_001;
            let member = SharedMember { unscaled, keep_ms, ..member("a", &scaled, 1) };
            assert!(edges.charge(text, &member).0);
            edges.connection.get::<_, String>("a").unwrap()
        };
        let (last_ms, began_ns) = (NOW_MS - 3_250, NOW_MS * MS);
        let full_ms = last_ms + 10_001;
        // In 3.25 s six units drip out by the factor 0.5, and three by the limit itself up to the sixth drip.
        let drained = charged(500_000, &format!("{last_ms}:10"));
        let at_ms = last_ms + 3_000;
        assert_eq!(drained, format!("{at_ms}:5:40001~{began_ns}:{full_ms}:0:0:0:0:3"));
        // A bucket that is empty by the factor: the limit itself would have three units less at this time.
        let drained = charged(100_000, &format!("{last_ms}:10"));
        assert_eq!(drained, format!("{NOW_MS}:1:40001~{began_ns}:{full_ms}:0:0:0:0:7"));
        // A ledger that is there stays needed.
        let until_ms = NOW_MS + 60_000;
        let most = (1_u64 << 53) - 1;
        for (before, after) in [(4, 7), (most - 3, most), (most - 1, most), (most, most)] {
            let ledger = |units| format!("~1:{until_ms}:2:18446744073709551615:0:0:{units}");
            let drained = charged(500_000, &format!("{last_ms}:10{}", ledger(before)));
            assert_eq!(drained, format!("{at_ms}:5:40001{}", ledger(after)));
        }
        // By now the bucket would be full by the limit itself.
        let drained = charged(500_000, &format!("{}:10", NOW_MS - 10_002));
        assert_eq!(drained, format!("{NOW_MS}:1:40001"));
        // By a factor above 1, and when no unit has dripped out early, there is no entry.
        assert_eq!(
            charged(2_000_000, &format!("{last_ms}:10")),
            format!("{}:10:40001", last_ms + 2_000)
        );
        assert_eq!(charged(500_000, &format!("{NOW_MS}:10")), format!("{NOW_MS}:11:40001"));
    });
}

/// By a factor below 1 a bucket is full earlier than by the limit itself. Its text is kept until it is full by both.
#[test]
fn texts_are_kept_by_both_limits() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let seconds = Duration::from_secs;
        for own in [
            Limit::leaky_bucket(10, seconds(20), 1).unwrap(),
            Limit::fixed_window(10, seconds(200)).unwrap(),
            Limit::token_bucket(10, seconds(200), 10).unwrap(),
        ] {
            let scaled = own.scaled(Factor::from_millionths(250_000)).unwrap().unwrap();
            let text = format!("{NOW_MS}:39");
            let unscaled = Some(Box::new(own.clone()));
            let charged = SharedMember { unscaled, keep_ms: 200_001, ..member("a", &scaled, 1) };
            assert!(edges.charge(&text, &charged).0);
            let kept_ms: i64 = edges.connection.pttl("a").unwrap();
            assert!(kept_ms > 800_000, "{own}: 40 units last 800 s, not {kept_ms} ms");
        }
    });
}

#[test]
fn leases_give_back_what_was_granted() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let leaky = Limit::leaky_bucket(40, Duration::from_secs(1), 1).unwrap();
        let end_ms = NOW_MS + 900;
        let end = LeaseEnd { tag_ms: end_ms, granted: 3, unspent: 5 };
        for (limit, bucket) in [
            (secondly(40, 1), (NOW_MS * MS + 20_000_000_000).to_string()),
            (leaky, format!("{NOW_MS}:20")),
        ] {
            let ending = SharedMember { lease: asking(0, Some(end)), ..member("a", &limit, 1) };
            let text = format!("{bucket}|0|{end_ms}|7");
            assert_eq!(edges.charge(&text, &ending), (true, 0));
            let left =
                |cost| SharedMember { mode: SharedMode::CheckOnly, ..member("a", &limit, cost) };
            let text: String = edges.connection.get("a").unwrap();
            assert!(edges.charge(&text, &left(22)).0 && !edges.charge(&text, &left(23)).0);
        }
    });
}

#[test]
fn full_groups_take_no_more_leases() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let large = Limit::leaky_bucket(16_777_215, Duration::from_secs(1), 1).unwrap();
        let asking = SharedMember { lease: asking(8, None), ..member("a", &large, 1) };
        let end_ms = (NOW_MS / 1_000 + 2) * 1_000;
        for (units, leased) in [(MAX_GROUP_UNITS - 8, 8), (MAX_GROUP_UNITS - 7, 0)] {
            let text = format!("{NOW_MS}:1|0|{end_ms}|{units}");
            assert_eq!(edges.charge(&text, &asking), (true, leased), "beside {units}");
        }
    });
}

#[test]
fn times_to_keep_texts_are_capped() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let kept = SharedMember { keep_ms: 5_000_000_000_000, ..member("a", &secondly(5, 1), 1) };
        assert!(edges.charge(&(NOW_MS * MS).to_string(), &kept).0);
    });
}
