//! Servers that refuse, stand still, end, or hold something else: each call ends in time with an error that says so.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Commands, cmd};

use super::server::{Server, with_each};
use super::shards::Shards;
use super::{
    charge, member, options, options_of, secondly, wait_for, wait_until, wait_until_connected,
};
use crate::error::Error;
use crate::limit::Limit;
use crate::limits::StoreOptions;
use crate::observe::store_counters::StoreErrors;
use crate::shared::block_on;
use crate::shared::protocol::SharedStore;
use crate::shared::valkey::ValkeyStore;
use crate::util::sync::{AtomicU64, Ordering, Switch};

/// A store with the default timeout of answers.
fn store_of(server: &Server) -> ValkeyStore {
    let quick = options_of(&server.url("")).answer_timeout(Duration::from_millis(100)).unwrap();
    let store = ValkeyStore::start(&quick).unwrap();
    wait_until_connected(&store);
    store
}

fn spend(store: &ValkeyStore, key: &str) -> Result<bool, Error> {
    charge(store, &[member(key, &secondly(1_000_000, 1), 1)]).map(|found| found.denied.is_none())
}

fn failed(store: &ValkeyStore, key: &str, wanted: &str) {
    let error = spend(store, key).unwrap_err();
    assert!(error.is_store_failure());
    let text = error.to_string();
    assert!(text.contains(wanted), "{wanted:?} in {text:?}");
    assert!(text.contains("127.0.0.1") && !text.contains("secret"), "{text}");
}

/// Returns the error of a call that says why the store cannot connect, in `words`. On a busy machine a call may be late,
/// and its error says that.
fn refusal(options: &StoreOptions, words: &str) -> String {
    let store = ValkeyStore::start(options).unwrap();
    let why = || spend(&store, "a").unwrap_err().to_string();
    wait_for(words, || {
        Some(why()).filter(|text| text.contains(words) && !text.contains("being made"))
    })
}

#[test]
fn a_wrong_password_is_an_error_without_it() {
    with_each(|binary| {
        let server = Server::start_with(binary, &["--requirepass", "the-right-one"]);
        for user in ["", ":my-secret@", "me:my-secret@"] {
            let text = refusal(&options_of(&server.url(user)), "password");
            assert!(!text.contains("secret"), "{text}");
        }
        let right = options_of(&server.url(":the-right-one@"));
        let store = ValkeyStore::start(&right).unwrap();
        wait_until_connected(&store);
        assert!(!format!("{store:?}").contains("right"), "{store:?}");
    });
}

#[test]
fn no_server_is_an_error_at_once() {
    let text = refusal(&options_of("redis://127.0.0.1:1"), "there is no connection");
    assert!(text.contains("127.0.0.1:1"), "{text}");
}

#[test]
fn tls_to_a_plain_server_fails() {
    with_each(|binary| {
        let server = Server::start(binary);
        let url = server.url("").replace("redis://", "rediss://");
        refusal(&options_of(&url), "there is no connection");
    });
}

#[test]
fn keys_of_others_are_errors_and_stay() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = store_of(&server);
        let mut connection = server.connection();
        let () = connection.rpush("list", "a").unwrap();
        let errors = || store.figures().unwrap().errors();
        let before = errors();
        failed(&store, "list", "WRONGTYPE");
        assert_eq!(errors(), StoreErrors { refused: before.refused + 1, ..before });
        assert_eq!(connection.llen::<_, u64>("list").unwrap(), 1);
        // A text that is no bucket has no position that denies: the node names the fault.
        let () = connection.set("text", "hello").unwrap();
        let found = charge(&store, &[member("text", &secondly(5, 1), 1)]).unwrap();
        assert_eq!(found.denied, Some(usize::MAX));
        assert_eq!(connection.get::<_, String>("text").unwrap(), "hello");
    });
}

#[test]
fn redirects_to_a_plain_url_are_refusals() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let store = ValkeyStore::start(&options(&shards.servers[0])).unwrap();
        let [here, elsewhere, _] = shards.keys("a");
        wait_until("connected", || spend(&store, &here).is_ok());
        let errors = || store.figures().unwrap().errors();
        let before = errors();
        assert!(spend(&store, &here).unwrap());
        for times in 1..=6 {
            failed(&store, &elsewhere, "begin the URL with redis-cluster://");
            assert_eq!(errors(), StoreErrors { refused: before.refused + times, ..before });
        }
    });
}

#[test]
fn a_full_store_and_a_replica_refuse() {
    with_each(|binary| {
        let server = Server::start_with(binary, &["--maxmemory-policy", "noeviction"]);
        let store = store_of(&server);
        let mut connection = server.connection();
        let () = cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec(&mut connection).unwrap();
        failed(&store, "a", "OOM");
        let () = cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).exec(&mut connection).unwrap();
        assert!(spend(&store, "a").unwrap());
        let to = Server::start(binary);
        let () = cmd("REPLICAOF").arg("127.0.0.1").arg(to.port()).exec(&mut connection).unwrap();
        let is_refused = || spend(&store, "b").is_err_and(|error| error.is_store_failure());
        wait_until("refused", is_refused);
        wait_until("a replica", || {
            spend(&store, "b").is_err_and(|error| error.to_string().contains("replica"))
        });
        let mut primary = to.connection();
        assert!(!primary.exists::<_, bool>("b").unwrap(), "nothing is charged");
    });
}

#[test]
fn a_server_that_may_forget_gets_a_warning() {
    with_each(|binary| {
        for (memory, policy, is_warned) in [
            ("0", "allkeys-lru", false),
            ("100mb", "noeviction", false),
            ("100mb", "volatile-ttl", false),
            ("100mb", "allkeys-lru", true),
            ("100mb", "volatile-lru", true),
        ] {
            let settings = ["--maxmemory", memory, "--maxmemory-policy", policy];
            let server = Server::start_with(binary, &settings);
            let store = store_of(&server);
            if is_warned {
                wait_until("warned", || store.warning().is_some());
                let text = store.warning().unwrap();
                assert!(text.contains(policy) && text.contains("127.0.0.1"), "{text}");
            } else {
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(store.warning(), None, "{settings:?}");
            }
        }
        // A user that may not ask for the settings gets none, and can go on.
        let user = ["--user", "default", "on", "nopass", "~*", "+@all", "-config"];
        let memory = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
        let server = Server::start_with(binary, &[&user[..], &memory[..]].concat());
        let store = store_of(&server);
        std::thread::sleep(Duration::from_millis(50));
        assert!(spend(&store, "a").unwrap());
        assert_eq!(store.warning(), None);
    });
}

#[test]
fn scripts_are_loaded_again() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = Arc::new(store_of(&server));
        let allowed = Arc::new(AtomicU64::new(0));
        let ends = Arc::new(Switch::new(false));
        let (by, count, until) = (store.clone(), allowed.clone(), ends.clone());
        let spender = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                count.fetch_add(spend(&by, "hot").unwrap().into(), Ordering::Relaxed);
            }
        });
        let mut connection = server.connection();
        // However busy the machine is: until flushes came between many calls.
        let sent = || store.figures().unwrap().scripts_sent();
        let is_done = || allowed.load(Ordering::Relaxed) > 100 && sent() > 10;
        let began = Instant::now();
        while !is_done() && !spender.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(60), "{} texts sent", sent());
            let () = cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        ends.store(true, Ordering::Relaxed);
        spender.join().unwrap();
    });
}

/// Calls until calls succeed again; each call must end within its deadline and a tenth of a second.
fn until_it_answers(store: &ValkeyStore, within: Duration) {
    let began = Instant::now();
    loop {
        let call = Instant::now();
        let is_answered = spend(store, "again").is_ok();
        assert!(call.elapsed() < Duration::from_secs(2), "{:?}", call.elapsed());
        if is_answered {
            return;
        }
        assert!(began.elapsed() < within, "no answer within {within:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn failures_end(binary: &Path, stop: impl Fn(&mut Server), go_on: impl Fn(&mut Server)) {
    let mut server = Server::start(binary);
    let store = store_of(&server);
    assert!(spend(&store, "a").unwrap());
    stop(&mut server);
    let began = Instant::now();
    let mut texts = Vec::new();
    while began.elapsed() < Duration::from_millis(2_700) {
        let call = Instant::now();
        texts.push(spend(&store, "a").unwrap_err().to_string());
        assert!(call.elapsed() < Duration::from_secs(2), "{:?}", call.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    let quick = texts.iter().filter(|text| !text.contains("no answer within")).count();
    assert!(quick > 100, "calls fail at once after the first: {quick} of {}", texts.len());
    go_on(&mut server);
    // A pause has a jitter that is as long as itself.
    until_it_answers(&store, Duration::from_millis(4_500));
}

#[test]
fn a_stopped_server_fails_calls_in_time() {
    with_each(|binary| {
        failures_end(binary, |server| server.signal("-STOP"), |server| server.signal("-CONT"));
    });
}

#[test]
fn a_killed_server_fails_calls_in_time() {
    with_each(|binary| failures_end(binary, Server::kill, Server::restart));
}

#[test]
fn a_paused_server_fails_calls_in_time() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = store_of(&server);
        let mut connection = server.connection();
        let () = cmd("CLIENT").arg(&["PAUSE", "400", "ALL"]).exec(&mut connection).unwrap();
        let text = spend(&store, "a").unwrap_err().to_string();
        // The other one if this process was late as well.
        let is_late = text.contains("no answer within 100ms") || text.contains("too late to read");
        assert!(is_late, "{text}");
        until_it_answers(&store, Duration::from_millis(4_500));
    });
}

#[test]
fn the_thread_ends_with_its_store() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = store_of(&server);
        let clients = || {
            let list: String = cmd("CLIENT").arg("LIST").query(&mut server.connection()).unwrap();
            list.lines().count()
        };
        assert_eq!(clients(), 2);
        drop(store);
        wait_until("one connection", || clients() == 1);
    });
}

#[test]
fn a_denial_writes_nothing() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = ValkeyStore::start(&options(&server)).unwrap();
        wait_until_connected(&store);
        let minutely = Limit::new(2, 1, Duration::from_secs(60)).unwrap();
        let spend = |cost| charge(&store, &[member("a", &minutely, cost)]).unwrap().denied;
        assert_eq!(spend(2), None);
        let mut connection = server.connection();
        let writes = |connection: &mut redis::Connection| {
            let info: String = cmd("INFO").arg("persistence").query(connection).unwrap();
            let line = info.lines().find(|line| line.starts_with("rdb_changes")).unwrap();
            line.split(':').nth(1).unwrap().to_owned()
        };
        let before = writes(&mut connection);
        assert_eq!((spend(1), spend(2), spend(0)), (Some(0), Some(0), None));
        assert_eq!(writes(&mut connection), before);
    });
}

/// The rights that the guide names.
#[test]
fn least_rights_of_the_guide_suffice() {
    let guide = include_str!("../../../../docs/shared.md");
    let rights =
        guide.lines().find_map(|line| line.strip_prefix("ACL SETUSER tollgate on >secret "));
    let user: Vec<&str> = ["--user", "tollgate", "on", ">secret"]
        .into_iter()
        .chain(rights.unwrap().split(' '))
        .collect();
    with_each(|binary| {
        let server = Server::start_with(binary, &user);
        let file = format!(
            "store: {{url: \"{}\", timeout: 1s}}\n\
             Exact: {{burst: 5, count: 1, period: 1h, id: string, shared: exact}}\n\
             Leased: {{burst: 50, count: 1, period: 1h, id: string, shared: leased}}\n",
            server.url("tollgate:secret@")
        );
        let limiter = crate::Limiter::new(crate::Limits::from_yaml(&file).unwrap());
        let [exact, leased] = ["Exact", "Leased"].map(|name| limiter.shared(name).unwrap());
        assert!(block_on(exact.spend("a", 2)).unwrap().allowed());
        assert!(block_on(exact.refund("a", 2)).unwrap().allowed());
        let (_, receipt) = block_on(exact.spend_estimate("a", 2)).unwrap();
        assert_eq!(block_on(receipt.unwrap().settle(1)).unwrap().remaining(), Some(4));
        assert!(block_on(exact.block("a", Duration::from_secs(9))).is_ok());
        assert!(block_on(exact.unblock("a")).unwrap());
        assert!(block_on(exact.reset("a")).unwrap().allowed());
        assert!((0..3).all(|_| block_on(leased.spend("a", 1)).unwrap().allowed()));
        assert!(block_on(limiter.give_leases_back()).unwrap() > 0);
        let store = limiter.counters().store().unwrap();
        assert_eq!((store.errors, store.outages), (StoreErrors::default(), 0));
    });
}

/// Whether a store is ready within a time, whether it is connected, and its last error.
fn ready(url: &str, within_ms: u64) -> (Result<(), String>, bool, Option<String>) {
    // A busy machine needs more than the default of 10 ms now and then.
    let options = options_of(url).answer_timeout(Duration::from_secs(2)).unwrap();
    let store = crate::shared::Store::connect(&options).unwrap();
    let ready = block_on(store.ready(Duration::from_millis(within_ms)));
    (ready.map_err(|error| error.to_string()), store.is_connected(), store.last_error())
}

#[test]
fn a_start_finds_what_is_wrong() {
    with_each(|binary| {
        let server =
            Server::start_with(binary, &["--user", "reader", "on", ">secret", "+get", "~*"]);
        let (is_ready, is_connected, last) = ready(&server.url(""), 5_000);
        assert_eq!((is_ready, is_connected, last), (Ok(()), true, None));
        // It is connected, and its answer is no.
        let (refused, is_connected, last) = ready(&server.url("reader:secret@"), 300);
        let refused = refused.unwrap_err();
        assert!(is_connected && refused.contains("permission"), "{refused}");
        assert!(last.unwrap().contains("permission"));
        let (refused, is_connected, last) = ready(&server.url("reader:wrong@"), 300);
        let refused = refused.unwrap_err();
        assert!(!is_connected && refused.contains("password"), "{refused}");
        assert!(last.unwrap().contains("password") && !refused.contains("wrong@"));
    });
    let (refused, is_connected, last) = ready("redis://127.0.0.1:1", 100);
    assert!(refused.unwrap_err().contains("there is no connection") && !is_connected);
    assert!(last.unwrap().contains("127.0.0.1:1"));
}

#[test]
fn a_start_waits_for_its_server() {
    with_each(|binary| {
        let mut server = Server::start(binary);
        server.kill();
        let url = server.url("");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ready(&url, 10_000));
            std::thread::sleep(Duration::from_millis(300));
            server.restart();
            let (is_ready, is_connected, last) = waits.join().unwrap();
            assert!(is_ready.is_ok() && is_connected && last.is_some(), "{is_ready:?}");
        });
    });
}

/// Whether the thread of a store has ended.
fn no_store_thread() -> bool {
    let names = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    !names.filter_map(name).any(|name| name.trim() == "tollgate-store")
}

/// The next test runs this one in a separate process, because the stores of other tests have threads in this one.
#[test]
#[ignore = "a program of another test"]
fn dropped_starts_end_their_thread() {
    for within in [Duration::from_secs(3600), Duration::MAX] {
        let store = crate::shared::Store::connect(&options_of("redis://127.0.0.1:1")).unwrap();
        {
            let mut ready = Box::pin(store.ready(within));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(ready.as_mut().poll(&mut context).is_pending());
        }
        drop(store);
        wait_until("ended", no_store_thread);
    }
}

#[test]
fn dropped_starts_ask_nothing_more() {
    let test = "shared::valkey::tests::failures::dropped_starts_end_their_thread";
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored"])
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

/// A store without a thread: its task spun in the first poll.
#[test]
fn a_store_that_cannot_start_says_so() {
    let file = "store: {url: 'rediss://127.0.0.1:1#tls'}\n\
                A: {burst: 5, count: 1, period: 1h, id: string, shared: exact}\n";
    let limiter = crate::Limiter::new(crate::Limits::from_yaml(file).unwrap());
    let (store, began) = (limiter.store().unwrap(), Instant::now());
    assert!(block_on(store.ready(Duration::from_secs(60))).unwrap_err().is_store_failure());
    assert!(began.elapsed() < Duration::from_secs(30) && !store.is_connected());
    assert!(store.last_error().is_some());
}

#[test]
fn a_start_finds_servers_that_write_nothing() {
    with_each(|binary| {
        let user = |right| ["--user", "reader", "on", ">secret", "+@all", right, "~*"];
        for right in ["-set", "-del", "-time", "-get"] {
            let server = Server::start_with(binary, &user(right));
            let (refused, _, last) = ready(&server.url("reader:secret@"), 300);
            let refused = refused.expect_err(right);
            let is_right =
                refused.contains("can't run this command") || refused.contains("permission");
            assert!(is_right && last.is_some(), "{right}: {refused}");
        }
        let server = Server::start_with(binary, &user("+get"));
        let replica =
            Server::start_with(binary, &["--replicaof", "127.0.0.1", &server.port().to_string()]);
        wait_until("a replica", || {
            let role: Vec<redis::Value> = cmd("ROLE").query(&mut replica.connection()).unwrap();
            role[3] == redis::Value::BulkString(b"connected".into())
        });
        let refused = ready(&replica.url(""), 300).0.unwrap_err();
        assert!(refused.contains("replica"), "{refused}");
        assert!(ready(&server.url(""), 5_000).0.is_ok());
        let left: Vec<String> = cmd("KEYS").arg("*").query(&mut server.connection()).unwrap();
        assert!(left.is_empty(), "{left:?}");
        let mut connection = server.connection();
        let () = connection.set("tollgate:A:x", "12 apples").unwrap();
        let file = format!(
            "store: {{url: \"{}\"}}\nA: {{burst: 5, count: 1, period: 1h, id: string, shared: exact}}\n",
            server.url("")
        );
        let limiter = crate::Limiter::new(crate::Limits::from_yaml(&file).unwrap());
        let store = limiter.store().unwrap();
        block_on(store.ready(Duration::from_secs(5))).unwrap();
        assert!(block_on(limiter.shared("A").unwrap().spend("x", 1)).is_err());
        assert!(store.last_error().unwrap().contains("12 apples"));
    });
}

/// The first answer of the server is late.
#[test]
fn a_start_outlasts_a_late_answer() {
    with_each(|binary| {
        let server = Server::start(binary);
        let store = crate::shared::Store::connect(&options_of(&server.url(""))).unwrap();
        wait_until("connected", || store.is_connected());
        server.signal("-STOP");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| block_on(store.ready(Duration::from_secs(20))));
            std::thread::sleep(Duration::from_millis(300));
            server.signal("-CONT");
            assert!(waits.join().unwrap().is_ok());
        });
    });
}
