//! Servers that are neither gone nor only slow: they answer some questions, on some connections, or to some nodes of a cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::mute::{Mute, Seen, members};
use super::server::{Server, with_each};
use super::shards::Shards;
use super::{charge, member, options_of, run, secondly, wait_until};
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::shared::protocol::change::{BucketChange, Step};
use crate::shared::protocol::gate::PassedReturn;
use crate::shared::protocol::{SharedMode, SharedStore, StoreMember};
use crate::shared::valkey::link::SILENT;
use crate::shared::valkey::servers::PLACE_WITHIN;
use crate::shared::valkey::{CHANGED_WITHIN, ValkeyStore, split};
use crate::shared::{SharedLimit, block_on};
use crate::util::sync::{Ordering, Switch};

fn node(server: &Server) -> (Limiter, SharedLimit) {
    let file = format!(
        "store: {{url: \"{}\", timeout: 50ms}}\n\
         PerUser: {{burst: 1000000, count: 1, period: 1h, id: string, shared: exact, on_error: allow, for: 60s}}\n",
        server.url("")
    );
    let limiter = Limiter::new(Limits::from_yaml(&file).unwrap());
    let users = limiter.shared("PerUser").unwrap();
    wait_until("connected", || block_on(users.spend("none", 1)).is_ok_and(|it| it.allowed()));
    (limiter, users)
}

/// The server answers new connections. The time of the question restarted with each of them, so `on_error` decided nothing.
#[test]
fn a_crowd_without_script_answers_is_an_outage() {
    with_each(|binary| {
        let server = Server::start(binary);
        let (limiter, users) = node(&server);
        // As a failover begins.
        let pause = redis::cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE").to_owned();
        let () = pause.query(&mut server.connection()).unwrap();
        let is_over = Arc::new(Switch::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        for task in 0..30 {
            let (users, is_over) = (users.clone(), is_over.clone());
            runtime.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = users.spend(&format!("user{task}"), 1).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
        wait_until("paused", || limiter.counters().store().unwrap().is_paused);
        assert!(block_on(users.spend("another", 1)).unwrap().allowed());
        is_over.store(true, Ordering::Relaxed);
        drop(runtime);
    });
}

/// Something between has dropped the connection silently. Calls were sent again after another second, or two.
#[test]
fn a_new_connection_is_asked_at_once() {
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_millis(30));
    assert!(mute.is_answered());
    let began = Instant::now();
    mute.seen.lock().dropped = 1;
    assert!(!mute.is_answered());
    wait_until("answered", || mute.is_answered());
    assert!(began.elapsed() < SILENT + Duration::from_millis(500), "{:?}", began.elapsed());
}

/// The settings of a server that took longer than a call may were never known.
#[test]
fn a_late_answer_about_settings_is_read() {
    let takes = Duration::from_millis(100);
    let seen = Seen { answers: true, forgets: true, question_takes: takes, ..Seen::default() };
    let mute = Mute::start(seen, Duration::from_millis(30));
    wait_until("warned", || mute.store.warning().is_some_and(|it| it.contains("allkeys-lru")));
}

/// The gate is not whole when the server has come to the late call, though no other was late meanwhile.
#[test]
fn late_calls_narrow_the_gate_until_answered() {
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_millis(30));
    let admit = |id: usize| mute.store.admit(&mut std::iter::once(&*id.to_string()), false).ok();
    let places = || (0..1_000).filter_map(admit).collect::<Vec<_>>();
    // The answers before the late call are none of its time.
    wait_until("answered in time", || (0..40).all(|_| mute.is_answered()));
    let crowd = places();
    let most = crowd.len();
    assert!(most > 500, "{most} places");
    mute.seen.lock().dropped = 1;
    assert!(charge(&mute.store, &members()).unwrap_err().is_store_overload());
    drop(crowd);
    assert_eq!(places().len(), 4);
    wait_until("answered", || mute.is_answered());
    // Half of them, and one for each few answers.
    let places = places().len();
    assert!((most / 2..most * 3 / 5).contains(&places), "{places} of {most} places");
}

/// A batch over slots has little time left for the last of them after a slow node. It closed the gates of the others.
#[test]
fn rest_of_a_timeout_blames_no_server() {
    let seen = Seen { answers: true, takes: Duration::from_millis(25), ..Seen::default() };
    let mute = Mute::start(seen, Duration::from_millis(60));
    let admit = |id: usize| mute.store.admit(&mut std::iter::once(&*id.to_string()), false).ok();
    let places = || (0..1_000).filter_map(admit).collect::<Vec<_>>();
    let charge_within = |rest_ms| {
        let (servers, rest) = (mute.store.servers.clone(), Duration::from_millis(rest_ms));
        let asked = async move {
            servers.charge_in_slot(&members(), tokio::time::Instant::now() + rest).await
        };
        run(&mute.store, asked)
    };
    let crowd = places();
    assert!(crowd.len() > 500, "{} places", crowd.len());
    for _ in 0..5 {
        assert!(charge_within(3).unwrap_err().is_store_overload());
    }
    drop(crowd);
    assert!(places().len() > 500);
    mute.seen.lock().dropped = 1;
    for _ in 0..4 {
        assert!(charge_within(60).unwrap_err().is_store_overload());
    }
    assert_eq!(places().len(), 0);
}

/// It waited 5 s for a place behind calls that were late, and was refused for too many calls.
#[test]
fn a_pause_ends_returns_at_once() {
    let mute = Mute::start(Seen { stands: true, ..Seen::default() }, Duration::from_millis(30));
    mute.until_refused();
    let [member] = members();
    let refund = BucketChange { member, step: Step::Refund { units: 1 } };
    let error = run(&mute.store, mute.store.change([refund].into())).unwrap_err();
    assert!(error.is_store_outage(), "{error}");
}

/// The time of the question restarted at each end of a connection, and was never over.
#[test]
fn silence_goes_on_over_lost_connections() {
    let mute = Mute::start(Seen { stands: true, ..Seen::default() }, Duration::from_millis(30));
    let (began, figures) = (Instant::now(), mute.store.figures().unwrap());
    while !figures.is_paused() {
        assert!(began.elapsed() < 5 * SILENT, "not paused");
        assert!(!mute.is_answered());
        std::thread::sleep(Duration::from_millis(400));
        let connections = mute.seen.lock().connections;
        mute.seen.lock().ends = true;
        wait_until("connected again", || mute.seen.lock().connections > connections);
        mute.seen.lock().ends = false;
    }
    mute.answer();
    wait_until("answered", || mute.is_answered());
}

/// Spends behind the returns were late, and were taken for an outage.
#[test]
fn returns_of_a_crowd_are_no_outage() {
    with_each(|binary| {
        let server = Server::start(binary);
        let (limiter, users) = node(&server);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let is_over = Arc::new(Switch::default());
        for task in 0..300 {
            let (users, is_over) = (users.clone(), is_over.clone());
            runtime.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = users.refund(&format!("user{task}"), 1).await;
                }
            });
        }
        let spend = |_: usize| {
            std::thread::sleep(Duration::from_millis(10));
            block_on(users.spend("alice", 1)).unwrap()
        };
        let decisions: Vec<_> = (0..100).map(spend).collect();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(limiter.counters().store().unwrap().outages, 0);
        let overloaded = decisions.iter().filter(|decision| decision.overloaded()).count();
        assert!(overloaded < 20, "{overloaded} of 100");
    });
}

/// A node that stood still paused a server that had answered long ago, or one that answers after its stand: the time of the question
/// begins again.
#[test]
fn a_node_that_stood_still_pauses_no_server() {
    with_each(|binary| {
        for answers_later in [Duration::ZERO, SILENT + Duration::from_millis(500)] {
            let server = Server::start(binary);
            let options =
                options_of(&server.url("")).answer_timeout(Duration::from_millis(50)).unwrap();
            let store = ValkeyStore::start(&options).unwrap();
            let spend = || charge(&store, &[member("a", &secondly(1_000, 1), 1)]);
            wait_until("connected", || spend().is_ok());
            let mut control = server.connection();
            let before = Server::connections_made(&mut control);
            server.signal("-STOP");
            assert!(spend().unwrap_err().is_store_overload());
            let (stands, told) = std::sync::mpsc::channel();
            store.run(Box::pin(async move {
                stands.send(()).unwrap();
                std::thread::sleep(SILENT + Duration::from_millis(300));
            }));
            told.recv().unwrap();
            std::thread::sleep(answers_later);
            server.signal("-CONT");
            wait_until("answered", || spend().is_ok());
            assert_eq!(store.figures().unwrap().errors().paused, 0);
            assert_eq!(Server::connections_made(&mut control), before, "a pause makes another");
        }
    });
}

/// All of its calls were late by the node's own fault, so that it never asked whether the server answers.
#[test]
fn a_busy_node_finds_a_dead_server() {
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_millis(50));
    let by = mute.store.clone();
    mute.store.run(Box::pin(async move {
        // A call that is made here has its deadline in the middle of a turn.
        let charge = || tokio::spawn(by.charge(members().into()));
        loop {
            drop(charge());
            tokio::task::yield_now().await;
            std::thread::sleep(Duration::from_millis(70));
        }
    }));
    mute.seen.lock().dropped = 1;
    let figures = mute.store.figures().unwrap();
    wait_until("paused", || figures.is_paused());
    let errors = figures.errors();
    assert!(errors.timeout == 0 && errors.overload > 0, "{errors:?}");
}

/// The figure was that of the server that had paused or answered last.
#[test]
fn a_cluster_is_paused_while_one_server_is() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let options = options_of(&shards.url()).answer_timeout(Duration::from_millis(50)).unwrap();
        let store = ValkeyStore::start(&options).unwrap();
        let keys = shards.keys("a");
        let spend = |at: usize| charge(&store, &[member(&keys[at], &secondly(1_000, 1), 1)]);
        wait_until("connected", || (0..3).all(|at| spend(at).is_ok()));
        let figures = store.figures().unwrap();
        // Not asked: in the pause, or without a new connection.
        let is_refused = |at| spend(at).is_err_and(|error| !error.is_store_overload());
        shards.servers[..2].iter().for_each(|server| server.signal("-STOP"));
        wait_until("both refused", || [is_refused(0), is_refused(1)] == [true; 2]);
        assert!(figures.is_paused());
        shards.servers[0].signal("-CONT");
        wait_until("answered", || spend(0).is_ok());
        assert!(figures.is_paused(), "the other one is");
        shards.servers[1].signal("-CONT");
        wait_until("answered", || spend(1).is_ok());
        assert!(!figures.is_paused());
    });
}

/// A batch over a stopped node and a healthy one made the healthy one's gate narrow, and was denied for overload itself.
#[test]
fn batches_over_a_stopped_node_deny_no_others() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let limiter = super::cluster::node_with(&shards, ", timeout: 100ms");
        let users = limiter.shared("PerUser").unwrap();
        let at = |id: &String| shards.server_of(&format!("tollgate:PerUser:{id}"));
        let id_of = |server: usize, from: usize| {
            let mut ids = (from..).map(|id| id.to_string());
            ids.find(|id| at(id) == server).unwrap()
        };
        let ids: Vec<_> = (0..20).map(|id| id_of(0, 100 * id)).collect();
        let sick = id_of(2, 0);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        shards.servers[2].signal("-STOP");
        let round = |_: usize| {
            let members = [users.member(&*ids[0]), users.member(&*sick)];
            let batch = limiter.shared_batch(&members);
            let (mut batch, mut spends) = (Box::pin(batch.spend()), Vec::new());
            let decided: Decision = runtime.block_on(async {
                // The spends come while the batch is under way.
                let early = tokio::time::timeout(Duration::from_millis(10), &mut batch).await;
                for id in &ids {
                    let (users, id) = (users.clone(), id.clone());
                    spends.push(tokio::spawn(async move { users.spend(&id, 1).await }));
                }
                match early {
                    Ok(decided) => decided.unwrap(),
                    Err(_) => batch.await.unwrap(),
                }
            });
            assert!(!decided.allowed());
            let mut spends =
                spends.into_iter().map(|spend| runtime.block_on(spend).unwrap().unwrap());
            spends.all(|decision| !decision.overloaded())
        };
        // On a busy machine the node itself may be late in a round.
        let decided = (0..7).map(round).filter(|&is_decided| is_decided).count();
        assert!(decided >= 4, "{decided} of 7 rounds");
    });
}

/// A return has longer for its answer, so its lateness says less about the number of calls.
#[test]
fn late_returns_leave_spends_their_places() {
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_millis(100));
    let admit = |id: usize| mute.store.admit(&mut std::iter::once(&*id.to_string()), false).ok();
    let places = || (0..1_000).filter_map(admit).collect::<Vec<_>>();
    assert!(mute.is_answered());
    let crowd = places();
    assert!(crowd.len() > 500, "{} places", crowd.len());
    mute.seen.lock().dropped = 1;
    let began = Instant::now();
    let error = run(&mute.store, mute.store.charge_return(members().into())).unwrap_err();
    assert!(error.is_store_overload() && !error.is_unsent(), "{error}");
    assert!(!error.to_string().contains("100ms"), "{error}");
    assert!(began.elapsed() >= Duration::from_secs(1));
    drop(crowd);
    let places = places().len();
    assert!(places > 500, "{places} places");
}

/// The slots before have taken the time of the batch: its next slot is not asked, and its gate stays as wide.
#[test]
fn steps_that_do_not_begin_blame_no_server() {
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_millis(60));
    let admit = |id: usize| mute.store.admit(&mut std::iter::once(&*id.to_string()), false).ok();
    let places = || (0..1_000).filter_map(admit).collect::<Vec<_>>();
    let crowd: Vec<_> = (0..20).filter_map(admit).collect();
    assert_eq!(crowd.len(), 20);
    let charged = members().map(|it| StoreMember { mode: SharedMode::SpendOnly, ..it });
    let servers = mute.store.servers.clone();
    let asked = async move { split::charge(&servers, &charged, tokio::time::Instant::now()).await };
    assert!(run(&mute.store, asked).unwrap_err().is_unsent());
    drop(crowd);
    let places = places().len();
    assert!(places > 500, "{places} places");
}

/// Takes all places of returns that are free at the server of a key.
fn places_of_returns(store: &ValkeyStore, key: &str) -> Vec<PassedReturn> {
    let (servers, key) = (store.servers.clone(), key.to_owned());
    let asked = async move {
        let mut places = Vec::new();
        let called = || tokio::time::Instant::now() + Duration::from_millis(50) - PLACE_WITHIN;
        while let Ok(place) = servers.place(&key, called()).await {
            places.push(place);
        }
        Ok(places)
    };
    run(store, asked).unwrap()
}

/// Begins a charge that admits nothing.
fn begin_return(mute: &Mute) -> std::sync::mpsc::Receiver<Result<(), Error>> {
    let (tell, told) = std::sync::mpsc::channel();
    let by = mute.store.clone();
    mute.store.run(Box::pin(async move {
        let _ = tell.send(by.charge_return(members().into()).await.map(drop));
    }));
    told
}

/// The wait for a place takes none of the time for the answer, which is longer than a spend's.
#[test]
fn charges_as_returns_wait_and_have_longer() {
    let mute = Mute::start(Seen { answers: true, ..Seen::default() }, Duration::from_millis(100));
    let places = places_of_returns(&mute.store, "a");
    assert_eq!(places.len(), 512);
    let told = begin_return(&mute);
    std::thread::sleep(CHANGED_WITHIN + Duration::from_millis(200));
    drop(places);
    told.recv().unwrap().unwrap();
    mute.seen.lock().takes = Duration::from_millis(300);
    let told = begin_return(&mute);
    std::thread::sleep(Duration::from_millis(100));
    let places = places_of_returns(&mute.store, "a");
    assert_eq!(places.len(), 511, "it has its place until its answer");
    told.recv().unwrap().unwrap();
    drop(places);
    // An answer later than a spend's halves the number of returns under way.
    assert_eq!(places_of_returns(&mute.store, "a").len(), 256);
}

/// All of them waited at the node of slot 0.
#[test]
fn charges_as_returns_wait_at_their_server() {
    with_each(|binary| {
        let shards = Shards::start(binary);
        let options = options_of(&shards.url()).answer_timeout(Duration::from_millis(50)).unwrap();
        let store = ValkeyStore::start(&options).unwrap();
        let keys = shards.keys("a");
        let asked = |at: usize| [member(&keys[at], &secondly(1_000, 1), 1)];
        wait_until("connected", || (0..3).all(|at| charge(&store, &asked(at)).is_ok()));
        for full in [0, 2] {
            let _places = places_of_returns(&store, &keys[full]);
            let began = Instant::now();
            run(&store, store.charge_return(asked(2 - full).into())).unwrap();
            assert!(began.elapsed() < Duration::from_secs(2));
        }
    });
}
