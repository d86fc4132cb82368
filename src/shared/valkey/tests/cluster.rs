//! A cluster of three servers: batches over its slots, nodes that end, slots that move, and the bound of several nodes.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::processes::{Nodes, for_each_way, pause, units_above_the_bound};
use super::server::with_each;
use super::shards::Shards;
use super::{charge, member, options_of, run, secondly, wait_until};
use crate::error::Error;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limits::{Limits, StoreOptions};
use crate::shared::block_on;
use crate::shared::protocol::change::{BucketChange, Step};
use crate::shared::protocol::{SharedMode, SharedStore, StoreMember};
use crate::shared::valkey::script::Scripts;
use crate::shared::valkey::{ValkeyStore, split};

fn options(shards: &Shards, answer_ms: u64) -> StoreOptions {
    options_of(&shards.url()).answer_timeout(Duration::from_millis(answer_ms)).unwrap()
}

pub(super) fn connected(shards: &Shards, scripts: Scripts, answer_ms: u64) -> ValkeyStore {
    let store = ValkeyStore::with_scripts(&options(shards, answer_ms), scripts).unwrap();
    let limit = secondly(1, 1);
    wait_until("connected", || {
        let keys = shards.keys("none");
        let checked =
            |key: &String| StoreMember { mode: SharedMode::CheckOnly, ..member(key, &limit, 0) };
        charge(&store, &keys.each_ref().map(checked)).is_ok()
    });
    store
}

pub(super) fn hourly(burst: u64) -> Limit {
    Limit::new(burst, 1, Duration::from_secs(3600)).unwrap()
}

pub(super) fn spend(store: &ValkeyStore, key: &str) -> Result<bool, Error> {
    charge(store, &[member(key, &hourly(1_000), 1)]).map(|found| found.denied.is_none())
}

#[test]
fn batches_over_slots_charge_all_or_none() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = connected(&shards, Scripts::new(), 2_000);
        let keys = shards.keys("a");
        // The members of a batch are not in the order of the slots.
        let batch = |costs: [u64; 3]| {
            let [low, middle, high] = &keys;
            [(high, 2), (low, 5), (middle, 5)].map(|(key, burst)| {
                member(key, &hourly(burst), costs[keys.iter().position(|k| k == key).unwrap()])
            })
        };
        let texts = || keys.each_ref().map(|key| shards.text(key));
        assert!(store.is_split(&batch([1, 1, 1])));
        let found = charge(&store, &batch([1, 2, 1])).unwrap();
        assert_eq!((found.denied, &found.texts[..]), (None, &[None, None, None][..]));
        assert!(found.times.iter().all(|&time| time > 1_700_000_000_000_000_000));
        let after = texts();
        assert!(after.iter().all(Option::is_some));
        // Each of them denies once; the first in the order of the batch is named; nothing is written.
        for (costs, denied) in [([1, 1, 2], 0), ([5, 1, 1], 1), ([1, 4, 1], 2), ([5, 4, 2], 0)] {
            assert_eq!(charge(&store, &batch(costs)).unwrap().denied, Some(denied), "{costs:?}");
            assert_eq!(texts(), after);
        }
        // A member that cannot deny does not, and is charged if its bucket has the units.
        let mut last = batch([4, 3, 2]);
        last[0].mode = SharedMode::SpendOnly;
        let found = charge(&store, &last).unwrap();
        assert_eq!(found.denied, None);
        let found: Vec<_> =
            found.texts.iter().map(|text| text.as_deref().map(<[u8]>::to_vec)).collect();
        let of_batch =
            [&after[2], &after[0], &after[1]].map(|text| text.clone().map(String::into_bytes));
        assert_eq!(found, of_batch);
        let now = texts();
        assert_eq!(now[2], after[2]);
        assert!(now[0] != after[0] && now[1] != after[1]);
    });
}

/// Makes scripts that have `to` in place of `from`, which is in charge.lua once: two of them have it.
fn scripts_with(from: &str, to: &str) -> Scripts {
    let places = Cell::new(0);
    let scripts = Scripts::from(|text| {
        places.set(places.get() + text.matches(from).count());
        text.replace(from, to)
    });
    assert_eq!(places.get(), 2, "{from:?}");
    scripts
}

/// Scripts by which a check never denies, as if another call had come between the checks and the charges.
fn scripts_with_late_denials() -> Scripts {
    scripts_with("elseif (mode == '0' or mode == '1') and", "elseif mode == '0' and")
}

#[test]
fn late_denial_gives_other_slots_back() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = connected(&shards, scripts_with_late_denials(), 2_000);
        for (name, limit) in [
            ("a", hourly(5)),
            ("b", Limit::fixed_window(5, Duration::from_secs(3600)).unwrap()),
            ("c", Limit::leaky_bucket(5, 1, Duration::from_secs(3600)).unwrap()),
        ] {
            let keys = shards.keys(name);
            let batch = |last| {
                [(0, 1), (1, 2), (2, last)].map(|(at, cost)| member(&keys[at], &limit, cost))
            };
            let buckets = || keys.each_ref().map(|key| shards.text(key));
            assert_eq!(charge(&store, &batch(5)).unwrap().denied, None);
            let after = buckets();
            for _ in 0..2 {
                assert_eq!(charge(&store, &batch(1)).unwrap().denied, Some(2));
                // On a busy machine its deadline may come before all is given back, which goes on then.
                wait_until("given back", || buckets() == after);
            }
            // A bucket that was not there is full again.
            let keys = [shards.keys(&format!("{name}x"))[0].clone(), keys[2].clone()];
            let batch = keys.each_ref().map(|key| member(key, &limit, 1));
            assert_eq!(charge(&store, &batch).unwrap().denied, Some(1));
            assert_eq!(charge(&store, &[member(&keys[0], &limit, 5)]).unwrap().denied, None);
        }
    });
}

#[test]
fn failure_of_a_slot_gives_others_back() {
    let writes = "for n = 1, #writes, 3 do";
    let fails = "if find(KEYS[1], 'fails') then return redis.error_reply('OOM by the test') end";
    with_each(|binary| {
        let shards = Shards::start(binary);
        let scripts = scripts_with(writes, &format!("{writes} {fails}"));
        let store = connected(&shards, scripts, 2_000);
        let limit = Limit::fixed_window(5, Duration::from_secs(3600)).unwrap();
        let [low, middle, _] = shards.keys("a");
        let [_, _, high] = shards.keys("fails");
        let error = charge(&store, &[&low, &middle, &high].map(|key| member(key, &limit, 2)));
        assert!(error.unwrap_err().to_string().contains("OOM"));
        for key in [low, middle] {
            assert_eq!(charge(&store, &[member(&key, &limit, 5)]).unwrap().denied, None, "{key}");
        }
    });
}

#[test]
fn spend_only_members_are_charged_once() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = connected(&shards, Scripts::new(), 2_000);
        let mut batch = shards.keys("a").map(|key| member(&key, &hourly(5), 1));
        batch[0].mode = SharedMode::SpendOnly;
        assert_eq!(charge(&store, &batch).unwrap().denied, None);
        for (cost, is_denied) in [(4, false), (1, true)] {
            let last = batch.clone().map(|member| StoreMember { cost, ..member });
            for mut member in last {
                member.mode = SharedMode::CheckAndSpend;
                let found = charge(&store, std::slice::from_ref(&member)).unwrap();
                assert_eq!(found.denied.is_some(), is_denied, "{cost} of {}", member.key);
            }
        }
    });
}

#[test]
fn charges_go_back_beside_those_of_others() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = connected(&shards, Scripts::new(), 2_000);
        let [first, second, _] = shards.keys("a");
        for (key, others) in [(first, 1), (second, 0)] {
            let members = [member(&key, &hourly(5), 2)];
            let found = charge(&store, &members).unwrap();
            assert_eq!(charge(&store, &[member(&key, &hourly(5), others)]).unwrap().denied, None);
            let servers = store.servers.clone();
            let giving = async move {
                split::give_back(&servers, &members, &found).await;
                Ok(())
            };
            run(&store, giving).unwrap();
            for (cost, is_denied) in [(5 - others, false), (1, true)] {
                let found = charge(&store, &[member(&key, &hourly(5), cost)]).unwrap();
                assert_eq!(found.denied.is_some(), is_denied);
            }
        }
    });
}

#[test]
fn tag_puts_a_batch_into_one_slot() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        // With them a batch over slots would be charged before it is denied.
        let store = connected(&shards, scripts_with_late_denials(), 2_000);
        let keys = ["p{tag}:a", "p{tag}:b", "p{tag}:c"];
        let batch = |cost| keys.map(|key| member(key, &hourly(5), cost));
        let calls = store.servers.figures().calls();
        assert!(!store.is_split(&batch(1)));
        assert_eq!(charge(&store, &batch(3)).unwrap().denied, None);
        assert_eq!(charge(&store, &batch(3)).unwrap().denied, Some(0));
        assert_eq!(store.servers.figures().calls() - calls, 2, "one script a batch");
        let change =
            |key: &str| BucketChange { member: member(key, &hourly(5), 0), step: Step::Look };
        let changes = |keys: &[&str]| keys.iter().map(|key| change(key)).collect::<Arc<[_]>>();
        assert_eq!(run(&store, store.change(changes(&keys))).unwrap().texts.len(), 3);
        let error = run(&store, store.change(changes(&["a", "b"]))).unwrap_err();
        assert!(error.is_store_failure() && error.to_string().contains("slots"), "{error}");
    });
}

#[test]
fn a_lost_node_fails_its_slots_alone() {
    with_each(|binary| {
        for is_killed in [true, false] {
            let mut shards = Shards::start(binary);
            let store = connected(&shards, Scripts::new(), 200);
            let keys = shards.keys("a");
            let all = || keys.each_ref().map(|key| member(key, &hourly(1_000), 1));
            assert!(charge(&store, &all()).unwrap().denied.is_none());
            let before = shards.text(&keys[0]);
            match is_killed {
                true => shards.servers[2].kill(),
                false => shards.servers[2].signal("-STOP"),
            }
            let began = Instant::now();
            let mut failed = 0;
            while began.elapsed() < Duration::from_secs(4) {
                let call = Instant::now();
                let error = spend(&store, &keys[2]).unwrap_err();
                let text = error.to_string();
                assert!(error.is_undecided(), "{text}");
                assert!(text.contains("redis-cluster://127.0.0.1"), "{text}");
                // A batch that has a member there has no answer, and charges nothing elsewhere.
                let error = charge(&store, &all()).unwrap_err();
                assert!(error.is_undecided(), "{error}");
                assert!(call.elapsed() < Duration::from_secs(3), "{:?}", call.elapsed());
                assert!(spend(&store, &keys[1]).unwrap(), "other slots go on");
                failed += 1;
                pause(5);
            }
            assert!(failed > 100, "calls fail at once after the first: {failed}");
            assert_eq!(shards.text(&keys[0]), before);
            match is_killed {
                true => shards.servers[2].restart(),
                false => shards.servers[2].signal("-CONT"),
            }
            wait_until("answered", || charge(&store, &all()).is_ok());
        }
    });
}

/// Answers of the other nodes ended the outage, and each new one allowed all calls for a second.
#[test]
fn an_outage_lasts_while_a_node_is_lost() {
    with_each(|binary| {
        let mut shards = Shards::start(binary);
        let limit = "{burst: 20, count: 10, period: 1s, id: string, shared: exact, on_error: allow, for: 1s, fraction: 0.1}";
        let url = shards.url();
        let file = format!("store: {{url: \"{url}\", timeout: 200ms}}\nA: {limit}");
        let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
        let a = limiter.shared("A").unwrap();
        let keys = shards.keys("tollgate:A:");
        let [well, _, lost] = keys.each_ref().map(|key| &key["tollgate:A:".len()..]);
        let spend = |id: &str| block_on(a.spend(id, 1)).is_ok_and(|decision| decision.allowed());
        wait_until("connected", || block_on(a.blocked_for("none")).is_ok());
        shards.servers[2].kill();
        wait_until("an outage", || {
            spend(lost);
            limiter.counters().store().unwrap().is_outage
        });
        for _ in 0..3 {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(5_200) {
                assert!(spend(well), "another node answers");
                std::thread::sleep(Duration::from_millis(200));
            }
            let allowed = (0..20).filter(|_| spend(lost)).count();
            assert!((1..=3).contains(&allowed), "a burst of 2: {allowed}");
        }
        assert_eq!(limiter.counters().store().unwrap().outages, 1);
        shards.servers[2].restart();
        wait_until("the end", || spend(lost) && !limiter.counters().store().unwrap().is_outage);
    });
}

#[test]
fn a_promoted_replica_goes_on() {
    with_each(|binary| {
        let mut shards = Shards::start(binary);
        shards.add_replica(binary);
        let store = connected(&shards, Scripts::new(), 200);
        let keys = shards.keys("a");
        let all = |cost| keys.each_ref().map(|key| member(key, &hourly(9), cost));
        assert!(charge(&store, &all(4)).unwrap().denied.is_none());
        let charged = shards.text(&keys[2]);
        wait_until("copied", || shards.text_of_replica(&keys[2]) == charged);
        shards.servers[2].kill();
        assert!(charge(&store, &all(4)).unwrap_err().is_store_outage());
        let began = Instant::now();
        let one = [member(&keys[2], &hourly(9), 1)];
        wait_until("promoted", || charge(&store, &one).is_ok());
        println!("promoted and found after {:?}", began.elapsed());
        assert!(charge(&store, &all(4)).unwrap().denied.is_none());
        let found = charge(&store, &all(1)).unwrap();
        assert_eq!(found.denied, Some(2), "9 of 9 units are used there, and 8 elsewhere");
    });
}

#[test]
fn moved_slots_are_followed() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = connected(&shards, Scripts::new(), 2_000);
        let [key, ..] = shards.keys("a");
        let spend = || {
            let found = charge(&store, &[member(&key, &hourly(9), 1)]).unwrap();
            (found.denied, found.texts[0].is_some())
        };
        assert_eq!(spend(), (None, false));
        let before = store.figures().unwrap().errors();
        shards.begin_move(&key, 1);
        // The old node sends the call on for this time.
        assert_eq!([spend(), spend()], [(None, true); 2]);
        shards.end_move(&key, 1);
        let spends: Vec<_> = (0..7).map(|_| spend()).collect();
        assert_eq!(spends[..6], [(None, true); 6]);
        assert_eq!(spends[6], (Some(0), true), "nothing was forgotten");
        assert_eq!(store.figures().unwrap().errors(), before, "a call that goes on is no error");
    });
}

#[test]
fn a_single_server_is_no_cluster() {
    with_each(|binary| {
        let server = super::server::Server::start(binary);
        let store =
            ValkeyStore::start(&options_of(&server.url("").replace("redis:", "redis-cluster:")))
                .unwrap();
        wait_until("refused", || {
            let text = spend(&store, "a").unwrap_err().to_string();
            text.contains("cluster support disabled")
        });
    });
}

const LIMITS: &str = "
PerUser: {burst: 60, count: 1, period: 1h, id: string, shared: exact}
PerTeam: {algorithm: fixed_window, limit: 50, window: 1h, id: string, shared: exact}
All: {burst: 40, count: 1, period: 1h, id: string, shared: exact}
Leased: {burst: 1000, count: 1, period: 1h, id: string, shared: leased}
";

fn node(shards: &Shards, more: &str) -> Limiter {
    node_with(shards, &format!(", timeout: 2s{more}"))
}

/// `options`: those of the store beside its address.
pub(super) fn node_with(shards: &Shards, options: &str) -> Limiter {
    let url = shards.url();
    let file = format!("store: {{url: \"{url}\"{options}}}\n{LIMITS}");
    let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
    let users = limiter.shared("PerUser").unwrap();
    wait_until("connected", || block_on(users.blocked_for("none")).is_ok());
    limiter
}

#[test]
fn limiters_admit_no_more_over_slots() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        for tag in ["", ", tag: limits"] {
            let nodes = [node(&shards, tag), node(&shards, tag), node(&shards, tag)];
            let allowed: usize = std::thread::scope(|scope| {
                let spend = |node: &'_ Limiter| {
                    let limit = |name| node.shared(name).unwrap();
                    let (users, teams, all) = (limit("PerUser"), limit("PerTeam"), limit("All"));
                    let members = [users.member("bob"), teams.member("red"), all.member("x")];
                    let spend = |_: &usize| {
                        let decision = block_on(node.shared_batch(&members).spend()).unwrap();
                        assert!(decision.allowed() || decision.denied_by().is_some());
                        decision.allowed()
                    };
                    (0..40).filter(spend).count()
                };
                let threads: Vec<_> =
                    nodes.iter().map(|node| scope.spawn(move || spend(node))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            let left = |name: &str| {
                let limit = nodes[0].shared(name).unwrap();
                let id = match name {
                    "PerUser" => "bob",
                    "PerTeam" => "red",
                    _ => "x",
                };
                block_on(limit.check(id, 0)).unwrap().remaining().unwrap() as usize
            };
            // A batch that was denied late may have cost units that it did not get, never the other way round.
            let used = [60 - left("PerUser"), 50 - left("PerTeam"), 40 - left("All")];
            println!("{tag:?}: {allowed} allowed, used {used:?}");
            assert!(used.iter().all(|&used| used >= allowed), "{allowed} of {used:?}");
            assert!(allowed > 10);
            if !tag.is_empty() {
                assert_eq!((allowed, used), (40, [40; 3]));
            }
        }
    });
}

#[test]
fn batches_over_slots_ask_no_leases() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let node = node(&shards, "");
        let (leased, all) = (node.shared("Leased").unwrap(), node.shared("All").unwrap());
        let leased_units = || {
            let text = (0..3).find_map(|at| {
                let get = redis::cmd("GET").arg("tollgate:Leased:bob").to_owned();
                get.query::<Option<String>>(&mut shards.servers[at].connection()).ok().flatten()
            });
            text.is_some_and(|text| text.contains('|'))
        };
        let members = [leased.member("bob"), all.member("x")];
        for _ in 0..10 {
            assert!(block_on(node.shared_batch(&members).spend()).unwrap().allowed());
        }
        assert!(!leased_units());
        for id in ["bob", "eve", "dan", "tim"] {
            for _ in 0..3 {
                assert!(block_on(leased.spend(id, 1)).unwrap().allowed());
            }
            assert!(leased.spend_here(id, 1).unwrap().allowed(), "from the lease");
        }
        assert!(leased_units());
        // One call gives leases of several slots back.
        assert_eq!(block_on(node.give_leases_back()).unwrap(), 4);
        assert!(!leased_units());
        let left = block_on(leased.check("bob", 0)).unwrap().remaining();
        assert_eq!(left, Some(1000 - 14));
    });
}

#[test]
fn processes_keep_the_bound_while_slots_move() {
    with_each(|binary| {
        for_each_way(|shared| {
            let shards = Shards::start(binary);
            let mut nodes = Nodes::start_with(shared, &shards.url());
            let key = "tollgate:All:one";
            wait_until("spent", || shards.text(key).is_some());
            pause(1000);
            let to = (shards.server_of(key) + 1) % 3;
            shards.begin_move(key, to);
            pause(500);
            shards.end_move(key, to);
            nodes.replace_one();
            pause(500);
            shards.servers[to].signal("-STOP");
            pause(500);
            shards.servers[to].signal("-CONT");
            pause(2500);
            let (uses, from_leases) = nodes.end();
            let units: u64 = uses.iter().map(|(.., cost)| cost).sum();
            println!("{shared}: {units} units, {from_leases} from leases");
            assert!(units > 1000, "the nodes have spent: {units}");
            assert_eq!(units_above_the_bound(&uses), 0, "{shared}");
        });
    });
}
