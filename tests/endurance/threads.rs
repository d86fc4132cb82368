//! Runs the threads of a round and records their grants.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::reserve::{Receipt, Reservation};
use tollgate::{Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::clock::{Origin, first_reading, last_reading};
use super::generations::Generations;
use super::random::Random;

/// A limit of the run: its interval stays, its burst is one of two.
pub(crate) struct RunLimit {
    name: &'static str,
    format: IdFormat,
    bursts: [u64; 2],
    pub(crate) interval_ns: u64,
}

pub(crate) const LIMITS: [RunLimit; 3] = [
    RunLimit { name: "Slow", format: IdFormat::String, bursts: [3, 3], interval_ns: 5_000_000 },
    RunLimit { name: "Fast", format: IdFormat::String, bursts: [4, 9], interval_ns: 250_000 },
    RunLimit {
        name: "CertificatesPerDomainPerAccount",
        format: IdFormat::RegIdDomainOrCidr,
        bursts: [4, 7],
        interval_ns: 500_000,
    },
];
/// Ids of each limit.
pub(crate) const IDS: usize = 6;
const SPENDERS: u64 = 4;
const MAX_WAIT: Duration = Duration::from_millis(60);
const MAX_HELD: usize = 24;

/// A granted cost; 0 if it was not used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) limit: usize,
    pub(crate) id: usize,
    /// When the cost may be used, by the clock's reading that decided the call.
    pub(crate) at_ns: u64,
    /// Later than `at_ns` for a reservation that was due when it was first looked at: it was granted until then.
    latest_ns: u64,
    /// The begin of the call, and its end.
    pub(crate) asked_ns: u64,
    /// When its place was first reserved, at the earliest: the call may have taken a vacant one.
    pub(crate) charged_ns: u64,
    pub(crate) over_ns: u64,
    pub(crate) cost: u64,
    /// When it was settled or cancelled.
    ended_ns: u64,
}

/// Units that a settlement, a cancel or a batch may have returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Return {
    pub(crate) limit: usize,
    pub(crate) id: usize,
    pub(crate) began_ns: u64,
    pub(crate) over_ns: u64,
    pub(crate) units: u64,
}

/// The other threads' calls so far.
pub(crate) struct Done {
    pub(crate) generations: [Generations; LIMITS.len()],
    /// The readings of the sweeps: a bucket that a sweep dropped is new as of its reading.
    sweeps_ns: Vec<u64>,
}

impl Done {
    /// The latest time at which a grant may have been decided.
    pub(crate) fn latest_of(&self, grant: &Grant) -> u64 {
        let before = self.sweeps_ns.partition_point(|&at| at <= grant.over_ns);
        let swept_ns = before.checked_sub(1).map_or(0, |last| self.sweeps_ns[last]);
        swept_ns.max(grant.latest_ns)
    }
}

#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    settled_early: AtomicU64,
    cancelled: AtomicU64,
    batches: AtomicU64,
    returning_batches: AtomicU64,
    blocks: AtomicU64,
    reloads: AtomicU64,
    files: AtomicU64,
}

pub(crate) struct Threads {
    origin: Origin,
    limiter: Limiter,
    handles: Vec<KeyedLimit>,
    done: Mutex<Done>,
    counts: Counts,
    stop: AtomicBool,
    folder: tempfile::TempDir,
}

/// The limits of a generation: which of the two bursts each has, and whether accounts have overrides in
/// place of the default.
fn limits(second: [bool; LIMITS.len()], turn: u64) -> Limits {
    let mut builder = Limits::builder();
    for (kind, second) in LIMITS.iter().zip(second) {
        let limit = Limit::new(kind.bursts[usize::from(second)], 1, ns(kind.interval_ns)).unwrap();
        let is_composite = kind.format != IdFormat::String;
        let has_accounts = is_composite && turn % 3 == 1;
        let default = (!has_accounts).then(|| limit.clone());
        builder = builder.limit(kind.name, kind.format, default).unwrap();
        for account in ["1", "2"].iter().filter(|_| has_accounts) {
            builder = builder.override_id(kind.name, *account, limit.clone()).unwrap();
        }
    }
    // A limit that changes nothing for the others.
    let other = Limit::new(1 + turn, 1, Duration::from_secs(1)).unwrap();
    builder.limit("Other", IdFormat::String, other).unwrap().build()
}

impl Threads {
    pub(crate) fn new(engine: Engine) -> Threads {
        let origin = Origin::new();
        // The table grows beyond the reserved memory, and shrinks again.
        let options = LimiterOptions::default().clock(origin.clock()).engine(engine).reserve(100);
        let limiter = Limiter::with_options(limits([false; LIMITS.len()], 0), options).unwrap();
        let handles = LIMITS.iter().map(|kind| limiter.limit(kind.name).unwrap()).collect();
        let mut generations: [Generations; LIMITS.len()] = Default::default();
        for (generations, kind) in generations.iter_mut().zip(&LIMITS) {
            generations.add(0, 0, kind.bursts[0]);
        }
        let done = Mutex::new(Done { generations, sweeps_ns: Vec::new() });
        let memory = std::path::Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Threads {
            origin,
            limiter,
            handles,
            done,
            counts: Counts::default(),
            stop: AtomicBool::new(false),
            folder: folder.unwrap(),
        }
    }

    pub(crate) fn done(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().unwrap()
    }

    /// Runs all threads for a time, and until all reservations are due. In one round of three nothing is reloaded.
    pub(crate) fn round(&mut self, round: u64, time: Duration) -> (Vec<Grant>, Vec<Return>) {
        self.done.lock().unwrap().sweeps_ns.clear();
        self.stop.store(false, Ordering::Relaxed);
        let shared = &*self;
        let (grants, returns): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
            let spend = |number| scope.spawn(move || shared.spender(round * 100 + number));
            let spenders: Vec<_> = (0..SPENDERS).map(spend).collect();
            if !round.is_multiple_of(3) {
                scope.spawn(move || shared.reloader(round));
            }
            scope.spawn(|| shared.sweeper());
            scope.spawn(|| shared.writer());
            scope.spawn(move || shared.blocker(round));
            std::thread::sleep(time);
            shared.stop.store(true, Ordering::Relaxed);
            spenders.into_iter().map(|spender| spender.join().unwrap()).unzip()
        });
        let (grants, returns) = (grants.concat(), returns.concat());
        let last = grants.iter().map(|grant: &Grant| grant.at_ns).max().unwrap_or(0);
        while self.origin.now() <= last {
            std::thread::sleep(Duration::from_millis(1));
        }
        (grants, returns)
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Sweeps everything after all units have come back: nothing may be left.
    pub(crate) fn end(self) {
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..2 {
            while !self.limiter.sweep(1 << 20).finished {}
        }
        assert_eq!(self.limiter.stats().cells, 0, "all buckets are full");
    }

    pub(crate) fn figures(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        format!(
            "{} calls, {} settled early, {} cancelled, {} batches, {} with returns, {} reloads, {} sweeps, {} files, {} blocks",
            of(&counts.calls),
            of(&counts.settled_early),
            of(&counts.cancelled),
            of(&counts.batches),
            of(&counts.returning_batches),
            of(&counts.reloads),
            self.limiter.stats().steps,
            of(&counts.files),
            of(&counts.blocks),
        )
    }

    fn spender(&self, seed: u64) -> (Vec<Grant>, Vec<Return>) {
        let mut spender = Spender {
            all: self,
            random: Random(seed),
            grants: Vec::new(),
            returns: Vec::new(),
            places: Vec::new(),
            receipts: Vec::new(),
        };
        let mut calls = 0;
        while self.goes_on() {
            spender.step();
            calls += 1;
            if calls % 256 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        self.counts.calls.fetch_add(calls, Ordering::Relaxed);
        (spender.grants, spender.returns)
    }

    fn reloader(&self, round: u64) {
        let mut random = Random(round);
        let mut second = [false; LIMITS.len()];
        while self.goes_on() {
            std::thread::sleep(Duration::from_millis(random.within(2, 60)));
            let turn = self.counts.reloads.fetch_add(1, Ordering::Relaxed);
            let before = second;
            second = std::array::from_fn(|limit| limit > 0 && random.chance(1, 2));
            // `Afresh` forgets reservations, which keep their times: for a while there would be two rates.
            let debt = random.pick(&[CarryOver::Share, CarryOver::Units, CarryOver::Time]);
            let limits = limits(second, turn);
            let began = self.origin.now();
            self.limiter.reload_with(limits, debt).unwrap();
            let over = self.origin.now();
            let mut done = self.done.lock().unwrap();
            for (limit, generations) in done.generations.iter_mut().enumerate() {
                // Unchanged numbers change no bucket, wherever they come from.
                if before[limit] != second[limit] {
                    generations.add(began, over, LIMITS[limit].bursts[usize::from(second[limit])]);
                }
            }
        }
        // Back to the first limits, for the next round.
        let began = self.origin.now();
        self.limiter.reload_with(limits([false; LIMITS.len()], 0), CarryOver::Share).unwrap();
        let over = self.origin.now();
        let mut done = self.done.lock().unwrap();
        for (generations, kind) in done.generations.iter_mut().zip(&LIMITS) {
            generations.add(began, over, kind.bursts[0]);
        }
    }

    fn sweeper(&self) {
        let mut random = Random(5);
        while self.goes_on() {
            let cells = random.pick(&[1, 100, 1 << 20]);
            let (_, at) = first_reading(|| self.limiter.sweep(cells));
            self.done.lock().unwrap().sweeps_ns.push(at);
            std::thread::sleep(Duration::from_micros(random.within(200, 5000)));
        }
    }

    fn writer(&self) {
        let file = self.folder.path().join("buckets");
        while self.goes_on() {
            self.limiter.snapshot(&file).unwrap();
            let limits = limits([false; LIMITS.len()], 0);
            let read = Limiter::restore(limits, LimiterOptions::default(), &file);
            if let Err(error) = read {
                // A snapshot without ids can be read into one engine only.
                panic!("{error}");
            }
            self.counts.files.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    fn blocker(&self, seed: u64) {
        let mut random = Random(seed);
        while self.goes_on() {
            let limit = random.below(LIMITS.len() as u64) as usize;
            let id = id_of(limit, random.below(IDS as u64) as usize);
            if random.chance(1, 2) {
                let time = Duration::from_micros(random.within(1, 20_000));
                let _ = self.handles[limit].block(id, time);
                self.counts.blocks.fetch_add(1, Ordering::Relaxed);
            } else {
                self.handles[limit].unblock(id).unwrap();
            }
            std::thread::sleep(Duration::from_micros(random.within(50, 3000)));
        }
    }
}

struct Spender<'a> {
    all: &'a Threads,
    random: Random,
    grants: Vec<Grant>,
    returns: Vec<Return>,
    /// Open reservations, each with the index of its grant.
    places: Vec<(Reservation, usize)>,
    receipts: Vec<(Receipt, usize, Instant)>,
}

impl Spender<'_> {
    fn step(&mut self) {
        let limit = self.random.below(LIMITS.len() as u64) as usize;
        let id = self.random.below(IDS as u64).min(self.random.below(IDS as u64)) as usize;
        let cost = self.random.within(1, 3);
        let (all, name) = (self.all, id_of(limit, id));
        let handle = &all.handles[limit];
        match self.random.below(22) {
            20.. => self.batch(),
            0..8 => {
                let (said, at) = first_reading(|| handle.spend(name, cost).unwrap());
                if said.allowed() && said.remaining().is_some() {
                    self.grant(limit, id, at, at, cost);
                }
            }
            8..11 => {
                let ((said, receipt), at) =
                    first_reading(|| handle.spend_estimate(name, cost).unwrap());
                if let Some(receipt) = receipt.filter(|_| said.remaining().is_some()) {
                    let grant = self.grant(limit, id, at, at, cost);
                    self.receipts.push((receipt, grant, Instant::now()));
                }
            }
            11..15 => self.reserve(limit, id, cost),
            15..18 => self.end_place(),
            _ => self.settle(),
        }
        if self.places.len() > MAX_HELD {
            self.end_place();
        }
        if self.receipts.len() > MAX_HELD {
            self.settle();
        }
    }

    /// Spends from one bucket of each of two or three limits.
    fn batch(&mut self) {
        let (all, first) = (self.all, self.random.below(2) as usize);
        let ids = std::array::from_fn::<_, { LIMITS.len() }, _>(|_| {
            self.random.below(IDS as u64).min(self.random.below(IDS as u64)) as usize
        });
        let limits = first..LIMITS.len();
        let members: Vec<_> = limits
            .clone()
            .map(|limit| all.handles[limit].member(id_of(limit, ids[limit])).cost(1))
            .collect();
        let batch = all.limiter.batch(&members);
        let mut each: Vec<Decision> = Vec::new();
        let (said, asked) = first_reading(|| batch.spend_into(&mut each).unwrap());
        let at = last_reading();
        // A batch that returns its charges reads the clock again: it was denied while it charged, or met a reload.
        if asked != at {
            let over_ns = all.origin.now();
            let back = |limit| Return { limit, id: ids[limit], began_ns: asked, over_ns, units: 1 };
            self.returns.extend(limits.clone().map(back));
            all.counts.returning_batches.fetch_add(1, Ordering::Relaxed);
        }
        if !said.allowed() {
            return;
        }
        for (limit, own) in limits.zip(each) {
            if own.remaining().is_some() {
                self.grant(limit, ids[limit], asked, at, 1);
            }
        }
        all.counts.batches.fetch_add(1, Ordering::Relaxed);
    }

    fn grant(&mut self, limit: usize, id: usize, asked_ns: u64, at_ns: u64, cost: u64) -> usize {
        let over_ns = self.all.origin.now();
        let grant = Grant {
            limit,
            id,
            at_ns,
            latest_ns: at_ns,
            asked_ns,
            charged_ns: asked_ns,
            over_ns,
            cost,
            ended_ns: 0,
        };
        self.grants.push(grant);
        self.grants.len() - 1
    }

    fn reserve(&mut self, limit: usize, id: usize, cost: u64) {
        let handle = &self.all.handles[limit];
        let most = self.random.pick(&[Duration::ZERO, MAX_WAIT / 4, MAX_WAIT]);
        let (place, asked) = first_reading(|| handle.reserve(id_of(limit, id), cost, most));
        let Ok(place) = place else { return };
        let wait = place.wait();
        let at = if wait.is_zero() { asked } else { last_reading() + wait.as_nanos() as u64 };
        let looked_at = last_reading();
        let grant = self.grant(limit, id, asked, at, cost);
        self.grants[grant].latest_ns = at.max(looked_at);
        self.grants[grant].charged_ns = asked.min(at.saturating_sub(MAX_WAIT.as_nanos() as u64));
        self.places.push((place, grant));
    }

    /// Cancels a reservation or turns it into a receipt.
    fn end_place(&mut self) {
        if self.places.is_empty() {
            return;
        }
        let at = self.random.below(self.places.len() as u64) as usize;
        let (place, grant) = self.places.swap_remove(at);
        let wait = place.wait();
        if self.random.chance(1, 3) {
            let (began_ns, units) = (self.all.origin.now(), self.grants[grant].cost);
            place.cancel();
            self.ended(grant, began_ns, units);
            if self.grants[grant].ended_ns < self.grants[grant].at_ns {
                // Its time had not come: another call may take the place.
                self.grants[grant].cost = 0;
            }
            self.all.counts.cancelled.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.receipts.push((place.into_receipt(), grant, Instant::now() + wait));
    }

    /// Records that units of a grant were returned.
    fn ended(&mut self, grant: usize, began_ns: u64, units: u64) {
        let grant = &mut self.grants[grant];
        let (limit, id, over_ns) = (grant.limit, grant.id, self.all.origin.now());
        grant.ended_ns = over_ns;
        self.returns.push(Return { limit, id, began_ns, over_ns, units });
    }

    fn settle(&mut self) {
        if self.receipts.is_empty() {
            return;
        }
        let at = self.random.below(self.receipts.len() as u64) as usize;
        let is_early = self.receipts[at].2 > Instant::now();
        let (receipt, grant, _) = self.receipts.swap_remove(at);
        let actual = self.random.within(0, self.grants[grant].cost);
        let (began_ns, units) = (self.all.origin.now(), self.grants[grant].cost - actual);
        let _ = receipt.settle(actual);
        self.ended(grant, began_ns, units);
        self.all.counts.settled_early.fetch_add(u64::from(is_early), Ordering::Relaxed);
    }
}

fn id_of(limit: usize, id: usize) -> &'static str {
    const PLAIN: [&str; IDS] = ["a", "b", "c", "d", "e", "f"];
    const OF_ACCOUNTS: [&str; IDS] =
        ["1:a.com", "1:b.com", "2:a.com", "2:b.com", "2:c.com", "2:d.com"];
    if LIMITS[limit].format == IdFormat::String { PLAIN[id] } else { OF_ACCOUNTS[id] }
}

fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}
