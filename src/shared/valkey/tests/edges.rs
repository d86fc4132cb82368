//! The scripts at single points that random calls rarely meet: they decide and write as `decide.rs` does.

use std::time::Duration;

use redis::{Commands, Connection};

use super::server::{Server, with_each};
use super::{charge, member, options, secondly, wait_until_connected};
use crate::algorithm::factor::Factor;
use crate::limit::Limit;
use crate::shared::protocol::decide::{decide, denied_by, written};
use crate::shared::protocol::groups::MAX_GROUP_UNITS;
use crate::shared::protocol::lease::{LeaseEnd, LeaseRequest};
use crate::shared::protocol::{SharedMode, StoreMember};
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
    fn charge(&mut self, text: &str, member: &StoreMember) -> (bool, u64) {
        let () = self.connection.set(&*member.key, text).unwrap();
        let members = std::slice::from_ref(member);
        let found = charge(&self.store, members).unwrap();
        assert_eq!(found.unix_ns, NOW_MS * MS);
        let decided = decide(members, &found.texts, found.unix_ns).unwrap();
        assert_eq!(found.denied, denied_by(members, &decided), "{text:?} {member:?}");
        let is_allowed = found.denied.is_none();
        let granted = decided[0].granted.filter(|_| is_allowed);
        assert_eq!(found.leased[..], [granted.map_or(0, |granted| granted.units)], "{text:?}");
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
        let kept = StoreMember { keep_ms: 1, ..plain.clone() };
        for member in [plain, kept] {
            let full_ns = NOW_MS * MS + 4_000_000_000;
            assert!(edges.charge(&full_ns.to_string(), &member).0);
            assert!(!edges.charge(&(full_ns + 1).to_string(), &member).0);
        }
    });
}

#[test]
fn leases_end_at_their_ms() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let limit = secondly(40, 1);
        for before_ms in [2, 1, 0, 1_200] {
            // The later group is still leased when the first one ends.
            let at_ms = NOW_MS + 1 - before_ms;
            let groups = format!("{}|0|{at_ms}|5|{}|7", NOW_MS * MS, NOW_MS + 900);
            edges.charge(&groups, &member("a", &limit, 1));
        }
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
            Limit::leaky_bucket(10, 1, seconds(20)).unwrap(),
            Limit::fixed_window(10, seconds(200)).unwrap(),
            Limit::token_bucket(10, 10, seconds(200)).unwrap(),
        ] {
            let scaled = own.scaled(Factor::from_millionths(250_000)).unwrap().unwrap();
            let text = format!("{NOW_MS}:39");
            let unscaled = Some(Box::new(own.clone()));
            let charged = StoreMember { unscaled, keep_ms: 200_001, ..member("a", &scaled, 1) };
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
        let (limit, end_ms) = (secondly(40, 1), NOW_MS + 900);
        let end = LeaseEnd { tag_ms: end_ms, granted: 3, unspent: 5 };
        let ending = StoreMember { lease: asking(0, Some(end)), ..member("a", &limit, 1) };
        let text = format!("{}|0|{end_ms}|7", NOW_MS * MS + 20_000_000_000);
        assert_eq!(edges.charge(&text, &ending), (true, 0));
        let left = |cost| StoreMember { mode: SharedMode::CheckOnly, ..member("a", &limit, cost) };
        let text: String = edges.connection.get("a").unwrap();
        assert!(edges.charge(&text, &left(22)).0 && !edges.charge(&text, &left(23)).0);
    });
}

#[test]
fn full_groups_take_no_more_leases() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let large = Limit::new(1 << 23, 1_000_000, Duration::from_secs(1)).unwrap();
        let asking = StoreMember { lease: asking(8, None), ..member("a", &large, 1) };
        let end_ms = (NOW_MS / 1_000 + 2) * 1_000;
        for (units, leased) in [(MAX_GROUP_UNITS - 8, 8), (MAX_GROUP_UNITS - 7, 0)] {
            let text = format!("{}|0|{end_ms}|{units}", NOW_MS * MS);
            assert_eq!(edges.charge(&text, &asking), (true, leased), "beside {units}");
        }
    });
}

#[test]
fn times_to_keep_texts_are_capped() {
    with_each(|binary| {
        let server = Server::start(binary);
        let mut edges = Edges::new(&server);
        let kept = StoreMember { keep_ms: 5_000_000_000_000, ..member("a", &secondly(5, 1), 1) };
        assert!(edges.charge(&(NOW_MS * MS).to_string(), &kept).0);
    });
}
