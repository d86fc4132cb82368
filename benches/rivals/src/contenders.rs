//! Each limiter's way to make the calls.

use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use governor::clock::DefaultClock;
use tollgate::sweep::SweepOptions;
use tollgate::{Bucket, Clock, Decision, Error, Limiter};

use crate::floor::Floor;
use crate::ids::{Key, Text, Uuid, V4};
use crate::limiters::{self, Governor, handle};
use crate::others;
use crate::work::{Contender, Contenders, Outcome, Setup, Who, Work};

/// The keys of one call of `spend_many`.
const MANY: usize = 16;
/// The time between two passes over all buckets.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

fn keys<K>(setup: Setup, nth: impl Fn(u32) -> K) -> Arc<[K]> {
    (0..setup.keys as u32).map(nth).collect()
}

/// Whether a call was allowed. An error stops the bench.
#[inline]
fn is_allowed(decision: Result<Decision, Error>) -> bool {
    decision.expect("the id has the limit's format").allowed()
}

/// One limit, with keys of one type.
pub(crate) fn single<K: Key>(setup: Setup) -> Contenders {
    let keys = keys(setup, K::nth);
    Box::new(move || {
        let mut all = vec![tollgate_single(setup, &keys), floor_single(setup, &keys)];
        if setup.outcome != Outcome::Check {
            all.push(governor_single::<K, RandomState>(Who::GovernorDefault, setup, &keys));
            all.push(governor_single::<K, ahash::RandomState>(Who::GovernorAhash, setup, &keys));
            all.push(rate_net_single(setup, &keys));
            let is_of_tollgate =
                matches!(setup.work, Work::Counting | Work::Sweeping | Work::Many16);
            if !is_of_tollgate && setup.keys <= others::MOST_KEYS {
                all.extend(others::single(setup, &keys));
            }
        }
        all
    })
}

fn tollgate_single<K: Key>(setup: Setup, keys: &Arc<[K]>) -> Contender {
    let options = setup.table.options();
    let is_counting = setup.work == Work::Counting;
    let options = if is_counting { options.counting(true) } else { options };
    let limiter = limiters::tollgate(setup.rule(), options);
    let limit = handle(&limiter, K::LIMIT);
    if setup.work == Work::Many16 {
        return Contender::of_orders(Who::Tollgate, keys, move |keys, order| {
            let mut decisions = Vec::with_capacity(MANY);
            let calls = order.chunks(MANY).map(|many| {
                limit.spend_many(many.iter().map(|&i| keys[i as usize].id()), 1, &mut decisions);
                decisions.drain(..).filter_map(Result::ok).filter(Decision::allowed).count()
            });
            calls.sum()
        });
    }
    if setup.outcome == Outcome::Check {
        // A check makes no key known.
        for key in keys.iter() {
            is_allowed(limit.spend(key.id(), 1));
        }
        return Contender::new(Who::Tollgate, keys, move |key: &K| {
            is_allowed(limit.check(key.id(), 1))
        });
    }
    let spend = move |key: &K| is_allowed(limit.spend(key.id(), 1));
    let contender = Contender::new(Who::Tollgate, keys, spend);
    if setup.work != Work::Sweeping {
        return contender;
    }
    let options = SweepOptions::default().interval(SWEEP_INTERVAL);
    contender.with_sweeper(limiter.start_sweeper(options).expect("the interval is not 0"))
}

fn governor_single<K: Key, S: Hasher>(who: Who, setup: Setup, keys: &Arc<[K]>) -> Contender {
    let limiter = Arc::new(governor::<K, S>(setup));
    let checked = limiter.clone();
    let contender = Contender::new(who, keys, move |key| checked.check_key(key).is_ok());
    if setup.work != Work::Sweeping {
        return contender;
    }
    contender.with_sweeper(Repeated::start(move || limiter.retain_recent()))
}

fn rate_net_single<K: Key>(setup: Setup, keys: &Arc<[K]>) -> Contender {
    let limiter = Arc::new(limiters::rate_net(setup.rule()));
    let checked = limiter.clone();
    let contender = Contender::new(Who::RateNet, keys, move |key: &K| key.is_allowed_by(&checked));
    if setup.work != Work::Sweeping {
        return contender;
    }
    contender.with_sweeper(Repeated::start(move || {
        limiter.retain_recent();
    }))
}

fn floor_single<K: Key>(setup: Setup, keys: &Arc<[K]>) -> Contender {
    match (setup.writes(), setup.late_clock) {
        (true, false) => floor_of::<K, false, false>(setup, keys),
        (true, true) => floor_of::<K, false, true>(setup, keys),
        (false, false) => floor_of::<K, true, false>(setup, keys),
        (false, true) => floor_of::<K, true, true>(setup, keys),
    }
}

fn floor_of<K: Key, const READS: bool, const LATE: bool>(
    setup: Setup,
    keys: &Arc<[K]>,
) -> Contender {
    let (floor, answer) = (Floor::new(setup.keys), setup.is_allowed());
    Contender::new(Who::Floor, keys, move |key| {
        black_box(floor.touch::<READS, LATE>(key));
        answer
    })
}

/// A hasher of governor's table.
trait Hasher: BuildHasher + Default + Clone + Send + Sync + 'static {}
impl<S: BuildHasher + Default + Clone + Send + Sync + 'static> Hasher for S {}

fn governor<K: Key, S: Hasher>(setup: Setup) -> Governor<K, S, DefaultClock> {
    limiters::governor(setup.rule(), DefaultClock::default())
}

/// Two limits, each with keys of its own type.
pub(crate) fn batch_of_2(setup: Setup) -> Contenders {
    let keys = keys(setup, |nth| (Text::nth(nth), u64::nth(nth)));
    Box::new(move || {
        let limiter = tollgate_of_2(setup, &keys);
        let [texts, numbers] = [Text::LIMIT, u64::LIMIT].map(|name| handle(&limiter, name));
        let [first, second] = [(); 2].map(|()| Floor::new(setup.keys));
        let rate_nets = [(); 2].map(|()| limiters::rate_net(setup.rule()));
        let mut all = vec![
            Contender::new(Who::Tollgate, &keys, move |(text, number)| {
                let members = [texts.member(text.id()), numbers.member(number.id())];
                let batch = limiter.batch(&members);
                match setup.work {
                    Work::Receipt => {
                        let charged = batch.spend_estimate();
                        matches!(&charged, Ok((decision, _)) if decision.allowed())
                    }
                    _ => is_allowed(batch.spend()),
                }
            }),
            governor_of_2::<RandomState>(Who::GovernorDefault, setup, &keys),
            governor_of_2::<ahash::RandomState>(Who::GovernorAhash, setup, &keys),
            Contender::new(Who::RateNet, &keys, move |(text, number)| {
                text.is_allowed_by(&rate_nets[0]) & number.is_allowed_by(&rate_nets[1])
            }),
            Contender::new(Who::Floor, &keys, move |(text, number)| {
                black_box(first.touch::<false, false>(text));
                black_box(second.touch::<false, false>(number));
                true
            }),
        ];
        if setup.work == Work::Batch2 {
            all.push(others::batch_of_2(setup, &keys));
        }
        all
    })
}

fn tollgate_of_2(setup: Setup, keys: &[(Text, u64)]) -> Limiter {
    let mut limits = limiters::limits(setup.rule());
    if setup.work == Work::Overrides {
        let limit = || setup.rule().tollgate();
        for (text, number) in keys {
            let with_text = limits.override_id(Text::LIMIT, text.text(), limit());
            let with_both = with_text.expect("each id once");
            let number = number.to_string();
            limits = with_both.override_id(u64::LIMIT, &number, limit()).expect("each id once");
        }
    }
    Limiter::with_options(limits.build(), setup.table.options()).unwrap()
}

fn governor_of_2<S: Hasher>(who: Who, setup: Setup, keys: &Arc<[(Text, u64)]>) -> Contender {
    let (texts, numbers) = (governor::<Text, S>(setup), governor::<u64, S>(setup));
    // Both checks, as a caller without batches makes them.
    Contender::new(who, keys, move |(text, number)| {
        texts.check_key(text).is_ok() & numbers.check_key(number).is_ok()
    })
}

/// Four limits, each with keys of its own type.
pub(crate) fn batch_of_4(setup: Setup) -> Contenders {
    let keys = keys(setup, |nth| (Text::nth(nth), Uuid::nth(nth), u64::nth(nth), V4::nth(nth)));
    Box::new(move || {
        let limiter = limiters::tollgate(setup.rule(), setup.table.options());
        let names = [Text::LIMIT, Uuid::LIMIT, u64::LIMIT, V4::LIMIT];
        let [texts, uuids, numbers, addresses] = names.map(|name| handle(&limiter, name));
        vec![
            Contender::new(Who::Tollgate, &keys, move |(text, uuid, number, address)| {
                let members = [
                    texts.member(text.id()),
                    uuids.member(uuid.id()),
                    numbers.member(number.id()),
                    addresses.member(address.id()),
                ];
                is_allowed(limiter.batch(&members).spend())
            }),
            governor_of_4::<RandomState>(Who::GovernorDefault, setup, &keys),
            governor_of_4::<ahash::RandomState>(Who::GovernorAhash, setup, &keys),
        ]
    })
}

fn governor_of_4<S: Hasher>(
    who: Who,
    setup: Setup,
    keys: &Arc<[(Text, Uuid, u64, V4)]>,
) -> Contender {
    let (texts, uuids) = (governor::<Text, S>(setup), governor::<Uuid, S>(setup));
    let (numbers, addresses) = (governor::<u64, S>(setup), governor::<V4, S>(setup));
    Contender::new(who, keys, move |(text, uuid, number, address)| {
        let both = texts.check_key(text).is_ok() & uuids.check_key(uuid).is_ok();
        both & numbers.check_key(number).is_ok() & addresses.check_key(address).is_ok()
    })
}

/// A bucket without a key.
pub(crate) fn bucket(setup: Setup) -> Contenders {
    Box::new(move || {
        let keys: Arc<[()]> = Arc::new([()]);
        let bucket = Bucket::new(setup.rule().tollgate(), Clock::system());
        let direct = governor::RateLimiter::direct(setup.rule().governor());
        vec![
            Contender::new(Who::Tollgate, &keys, move |()| is_allowed(bucket.spend(1))),
            Contender::new(Who::GovernorDefault, &keys, move |()| direct.check().is_ok()),
            others::bucket(setup, &keys),
        ]
    })
}

/// A thread that makes a call again and again, until it is dropped.
struct Repeated {
    end: mpsc::SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Repeated {
    fn start(call: impl Fn() + Send + 'static) -> Repeated {
        let (end, ended) = mpsc::sync_channel(1);
        let thread = thread::spawn(move || {
            while ended.recv_timeout(SWEEP_INTERVAL).is_err() {
                call();
            }
        });
        Repeated { end, thread: Some(thread) }
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.end.send(()).expect("the thread waits for it");
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the calls do not panic");
        }
    }
}
