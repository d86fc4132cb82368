//! Describes the limits of a run in a form that can be printed, pasted and shrunk.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "valkey")]
use tollgate::limits::Shared;
use tollgate::limits::{Floor, LimitMode, LimitOptions, LimitsBuilder, Loader, OverrideOptions};
use tollgate::{Error, Id, IdFormat, Limit, Limits};

/// A limit that runs use: its name, the format of its ids, and its ids.
pub(crate) struct TestLimit {
    pub(crate) name: &'static str,
    /// The name of the format of its ids.
    pub(crate) format: &'static str,
    pub(crate) ids: &'static [&'static str],
}

/// The number of limits of rates. The limits of permits come after them in [`KNOWN`].
pub(crate) const RATES: usize = 6;

/// Every run starts with all but [`LATE`], which a reload adds.
pub(crate) const KNOWN: [TestLimit; 8] = [
    TestLimit { name: "Plain", format: "string", ids: &["a", "b", "c", "d", "e", "f"] },
    TestLimit {
        name: "CertificatesPerDomainPerAccount",
        format: "regId:domainOrCIDR",
        ids: &["1:a.com", "1:b.com", "2:a.com", "2:b.com", "3:a.com"],
    },
    TestLimit {
        name: "PerDomain",
        format: "regId:domain",
        ids: &["7:x.org", "7:y.org", "8:x.org", "8:y.org", "9:z.org"],
    },
    TestLimit { name: "Accounts", format: "regId", ids: &["11", "12", "13", "14"] },
    TestLimit {
        name: "Late",
        format: "string:integer",
        ids: &["a:1", "a:-1", "a longer id than most are:1"],
    },
    TestLimit {
        name: "Addresses",
        format: "ipAddress",
        ids: &["10.1.2.3", "10.1.9.9", "10.2.0.1", "9.9.9.9", "2001:db8::7"],
    },
    TestLimit { name: "Streams", format: "string", ids: &["a", "b", "c", "an id of many bytes"] },
    TestLimit {
        name: "Flights",
        format: "regId:domain",
        ids: &["7:x.org", "7:y.org", "8:x.org", "9:z.org"],
    },
];

/// The limit of rates that no run starts with.
#[allow(dead_code, reason = "for random worlds")]
pub(crate) const LATE: usize = 4;

/// The name of the floors.
pub(crate) const FLOOR: &str = "batch";

/// The limit whose overrides may be of networks.
pub(crate) const ADDRESSES: usize = 5;

/// A network: its text, those of the ids of [`ADDRESSES`] that are in it, and an address in it that no operation uses.
pub(crate) struct Network {
    pub(crate) text: &'static str,
    pub(crate) ids: &'static [usize],
    #[allow(dead_code, reason = "shared limits have no networks")]
    pub(crate) first_id: &'static str,
}

/// The networks, the smaller of two around an address first.
pub(crate) const NETWORKS: [Network; 4] = [
    Network { text: "10.1.0.0/16", ids: &[0, 1], first_id: "10.1.255.255" },
    Network { text: "10.0.0.0/8", ids: &[0, 1, 2], first_id: "10.255.255.255" },
    Network { text: "2001:db8::/32", ids: &[4], first_id: "2001:db8:ffff::" },
    Network { text: "0.0.0.0/0", ids: &[0, 1, 2, 3], first_id: "255.255.255.255" },
];

/// The number of limits with buckets: the limits, and then the networks.
pub(crate) const PLACES: usize = KNOWN.len() + NETWORKS.len();

/// The limit that callers name for the buckets of a place.
pub(crate) fn known_at(place: usize) -> &'static TestLimit {
    KNOWN.get(place).unwrap_or(&KNOWN[ADDRESSES])
}

/// The name of a limit that denies batches. Batches charge it after the limits that come before it.
pub(crate) const DENIES: &str = "Zdenies";

/// For each limit an id that no operation uses. With it a run uses its largest factor first.
pub(crate) const FIRST_IDS: [&str; 6] =
    ["none", "99:none.com", "99:none.org", "99", "none:0", "2001:db9::"];

/// The largest factor of a call. A run uses it first for each limit, also for one that a reload brings, so that no sweep comes
/// before the limiter knows it.
pub(crate) const LARGEST_FACTOR: u64 = 3_000_000;

impl TestLimit {
    /// Returns an id in the type that a program would have it in.
    pub(crate) fn id(&self, id: usize) -> Id<'static> {
        let text = self.ids[id];
        let number = |text: &str| text.parse::<i64>().unwrap();
        match self.format {
            "regId" => Id::from(number(text)),
            "ipAddress" => Id::from(text.parse::<std::net::IpAddr>().unwrap()),
            "string:integer" => {
                let (name, rest) = text.split_once(':').unwrap();
                Id::from((name, number(rest)))
            }
            _ => Id::from(text),
        }
    }

    /// The account that an id belongs to.
    pub(crate) fn account_of(&self, id: usize) -> Option<u64> {
        let (account, _) =
            self.ids[id].split_once(':').filter(|_| self.format.starts_with("regId"))?;
        account.parse().ok()
    }
}

/// A list whose `Debug` output is code.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("List(vec!")?;
        f.debug_list().entries(&self.0).finish()?;
        f.write_str(")")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Gcra { burst: u64, count: u64, period_ms: u64 },
    Fixed { limit: u64, window_ms: u64 },
    Tokens { limit: u64, window_ms: u64, burst: u64 },
    Leaky { size: u64, rate_ms: u64, drip: u64 },
    Permits { max: u64 },
}

/// The limits of one generation, in the order of [`KNOWN`]. `None`: the generation lacks the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec(pub(crate) List<Option<LimitSpec>>);

impl Spec {
    /// Whether a reload from `old` leaves a limit and its overrides as they are, none of which has an end.
    #[allow(dead_code, reason = "runs of several nodes have no list of places")]
    pub(crate) fn keeps(&self, old: &Spec, limit: usize) -> bool {
        let has_ends = |it: &LimitSpec| it.overrides.0.iter().any(|over| over.ends_s.is_some());
        let without_floor = |spec: &Spec| {
            spec.limit(limit).map(|it| LimitSpec { floor: Floor::Units(0), ..it.clone() })
        };
        without_floor(self) == without_floor(old) && !self.limit(limit).is_some_and(has_ends)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitSpec {
    pub(crate) default: Option<Numbers>,
    /// Whether the limit is in shadow mode.
    pub(crate) shadow: bool,
    /// The shadow limit beside the default.
    pub(crate) tried: Option<Numbers>,
    pub(crate) overrides: List<Over>,
    pub(crate) sharing: Sharing,
    /// What calls with the priority [`FLOOR`] leave. Limits of rates that are not shared have it.
    pub(crate) floor: Floor,
}

/// Where the buckets of a limit are.
#[allow(dead_code, reason = "limits of one node are local")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Local,
    Exact,
    Leased { lease_ms: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) target: Target,
    pub(crate) numbers: Option<Numbers>,
    /// When it ends, in seconds of the system's clock since the run began.
    pub(crate) ends_s: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An index into the limit's ids.
    Id(usize),
    Account(u64),
    /// An index into [`NETWORKS`].
    Network(usize),
}

impl Numbers {
    /// The algorithm and the fields of a file.
    fn fields(self) -> (&'static str, String) {
        match self {
            Numbers::Gcra { burst, count, period_ms } => {
                ("gcra", format!("burst: {burst}, count: {count}, period: {period_ms}ms"))
            }
            Numbers::Fixed { limit, window_ms } => {
                ("fixed_window", format!("limit: {limit}, window: {window_ms}ms"))
            }
            Numbers::Tokens { limit, window_ms, burst } => {
                ("token_bucket", format!("limit: {limit}, window: {window_ms}ms, burst: {burst}"))
            }
            Numbers::Leaky { size, rate_ms, drip } => {
                let fields = format!("size: {size}, drip_rate: {rate_ms}ms, drip_size: {drip}");
                ("leaky_bucket", fields)
            }
            Numbers::Permits { max } => ("concurrency", format!("max: {max}")),
        }
    }

    pub(crate) fn limit(self) -> Limit {
        let ms = Duration::from_millis;
        let made = match self {
            Numbers::Gcra { burst, count, period_ms } => Limit::new(burst, count, ms(period_ms)),
            Numbers::Fixed { limit, window_ms } => Limit::fixed_window(limit, ms(window_ms)),
            Numbers::Tokens { limit, window_ms, burst } => {
                Limit::token_bucket(burst, limit, ms(window_ms))
            }
            Numbers::Leaky { size, rate_ms, drip } => Limit::leaky_bucket(size, drip, ms(rate_ms)),
            Numbers::Permits { max } => Limit::concurrency(max),
        };
        made.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

impl Sharing {
    /// The fields of a file.
    fn fields(self) -> String {
        match self {
            Sharing::Local => String::new(),
            Sharing::Exact => ", shared: exact".into(),
            Sharing::Leased { lease_ms } => format!(", shared: leased, lease: {lease_ms}ms"),
        }
    }

    #[cfg(feature = "valkey")]
    fn of(self, options: LimitOptions) -> LimitOptions {
        match self {
            Sharing::Local => options,
            Sharing::Exact => options.shared(Shared::Exact),
            Sharing::Leased { lease_ms } => {
                options.shared(Shared::Leased).lease(Duration::from_millis(lease_ms))
            }
        }
    }
}

impl Over {
    fn id(&self, known: &TestLimit) -> String {
        match self.target {
            Target::Id(id) => known.ids[id].into(),
            Target::Account(number) => number.to_string(),
            Target::Network(at) => NETWORKS[at].text.into(),
        }
    }

    /// Whether a file gives it. Files have whole days only, no override without numbers, and no `max` without an algorithm.
    fn is_of_file(&self, of: &LimitSpec) -> bool {
        let is_of_permits = matches!(self.numbers, Some(Numbers::Permits { .. }));
        let is_known = of.default.is_some() || !is_of_permits;
        self.ends_s.is_none() && self.numbers.is_some() && is_known
    }

    /// The end by the system's clock. `began_s` is the start of the run in seconds since 1970.
    pub(crate) fn ends(&self, began_s: i64) -> Option<SystemTime> {
        let at = |s: i64| UNIX_EPOCH + Duration::from_secs((began_s + s).max(0) as u64);
        self.ends_s.map(at)
    }

    /// Whether it names this id, the id's account or a network around it.
    pub(crate) fn is_for(&self, known: &TestLimit, id: usize) -> bool {
        match self.target {
            Target::Id(at) => at == id,
            Target::Account(account) => known.account_of(id) == Some(account),
            Target::Network(at) => NETWORKS[at].ids.contains(&id),
        }
    }
}

impl Spec {
    pub(crate) fn limit(&self, limit: usize) -> Option<&LimitSpec> {
        self.0.0.get(limit)?.as_ref()
    }

    pub(crate) fn limits(&self) -> impl Iterator<Item = (usize, &LimitSpec)> {
        self.0.0.iter().enumerate().filter_map(|(at, limit)| Some((at, limit.as_ref()?)))
    }

    /// Returns the limits and ids that have an override of their own.
    #[allow(dead_code, reason = "limits of several nodes have no cap")]
    pub(crate) fn ids_with_overrides(&self) -> impl Iterator<Item = (usize, usize)> {
        self.limits().flat_map(|(limit, spec)| {
            spec.overrides.0.iter().filter_map(move |over| match over.target {
                Target::Id(id) => Some((limit, id)),
                Target::Account(_) | Target::Network(_) => None,
            })
        })
    }

    /// Makes the limits: some defaults by code, then the others and some overrides by a file, then the other overrides by
    /// code.
    #[allow(dead_code, reason = "limits of one node have a denier")]
    pub(crate) fn build(&self, began_s: i64) -> Limits {
        self.build_with(began_s, None)
    }

    /// Like `build`, with another limit of the name [`DENIES`].
    pub(crate) fn build_with(&self, began_s: i64, denies: Option<&Limit>) -> Limits {
        let before = self.defaults_of_code().unwrap();
        let (spec, denies) = (self.clone(), denies.cloned());
        let after = move |limits| {
            let limits = spec.overrides_of_code(limits, began_s)?;
            match &denies {
                Some(denies) => limits.limit(DENIES, IdFormat::String, denies.clone()),
                None => Ok(limits),
            }
        };
        let file = self.file();
        if file.is_empty() {
            return after(before).unwrap().build();
        }
        let loader = Loader::new().before(before.build()).after(after);
        loader.text(&file).unwrap_or_else(|error| panic!("{error}\n{file}"))
    }

    fn defaults_of_code(&self) -> Result<LimitsBuilder, Error> {
        let mut builder = Limits::builder();
        for (at, spec) in self.limits().filter(|(at, spec)| !spec.is_of_file(*at)) {
            let known = &KNOWN[at];
            let mut options = LimitOptions::default();
            if spec.shadow {
                options = options.mode(LimitMode::Shadow);
            } else if let Some(tried) = spec.tried.filter(|_| spec.default.is_some()) {
                options = options.shadow(tried.limit());
            }
            #[cfg(feature = "valkey")]
            {
                options = spec.sharing.of(options);
            }
            if let Some(floor) = spec.floor_at(at) {
                options = options.floor(FLOOR, floor);
            }
            let (format, default) = (known.format.parse()?, spec.default.map(Numbers::limit));
            builder = builder.limit_with(known.name, format, default, options)?;
        }
        Ok(builder)
    }

    fn overrides_of_code(
        &self,
        mut builder: LimitsBuilder,
        began_s: i64,
    ) -> Result<LimitsBuilder, Error> {
        for (at, spec) in self.limits() {
            for over in spec.overrides.0.iter().filter(|over| !over.is_of_file(spec)) {
                let mut options = OverrideOptions::default();
                if let Some(end) = over.ends(began_s) {
                    options = options.expires(end);
                }
                let (known, numbers) = (&KNOWN[at], over.numbers.map(Numbers::limit));
                builder = builder.override_with(known.name, &*over.id(known), numbers, options)?;
            }
        }
        Ok(builder)
    }

    fn file(&self) -> String {
        let mut file = String::new();
        for (at, spec) in self.limits() {
            let known = &KNOWN[at];
            if let Some(numbers) = spec.default.filter(|_| spec.is_of_file(at)) {
                let (algorithm, fields) = numbers.fields();
                let shadow = match (spec.shadow, spec.tried) {
                    (true, _) => ", mode: shadow".into(),
                    (false, Some(tried)) => format!(", shadow: {{{}}}", tried.fields().1),
                    (false, None) => String::new(),
                };
                let sharing = spec.sharing.fields();
                let floor = spec.floor_at(at);
                let floors = floor.map(|floor| format!(", floors: {{{FLOOR}: {floor}}}"));
                let floors = floors.unwrap_or_default();
                file += &format!(
                    "{}: {{algorithm: {algorithm}, {fields}, id: {:?}{shadow}{sharing}{floors}}}\n",
                    known.name, known.format
                );
            }
        }
        for (at, spec) in self.limits() {
            for over in spec.overrides.0.iter().filter(|over| over.is_of_file(spec)) {
                let key = format!("{}:{}", KNOWN[at].name, over.id(&KNOWN[at]));
                let (_, fields) = over.numbers.expect("no file has overrides without").fields();
                file += &format!("{key:?}: {{{fields}}}\n");
            }
        }
        file
    }
}

impl LimitSpec {
    fn floor_at(&self, limit: usize) -> Option<Floor> {
        (limit < RATES && self.sharing == Sharing::Local).then_some(self.floor)
    }

    /// Whether a file gives the default. By the numbers, so that a reload moves defaults from code to files and back.
    fn is_of_file(&self, limit: usize) -> bool {
        self.default
            .is_some_and(|numbers| (numbers.limit().burst() as usize + limit).is_multiple_of(2))
    }
}
