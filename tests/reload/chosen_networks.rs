//! Compares networks with a caller that chooses between several limits by the address.

use std::time::Duration;

use tollgate::limits::LimitsBuilder;
use tollgate::{IdFormat, KeyedLimit, Limiter, Limits};

use super::networks::{IDS, with, with_default};
use super::support::{ENGINES, full_size, hourly, limiter, seconds, sweep_all};

/// Another limiter, whose caller chooses a limit by the address.
struct Chosen {
    limiter: Limiter,
    hand: tollgate::clock::ManualClock,
    /// The networks, each with its units now, and those with which its limit is declared.
    networks: Vec<(&'static str, u32, u8, Option<u64>, u64)>,
}

const POOL: [(&str, u32, u8); 6] = [
    ("0.0.0.0/0", 0, 0),
    ("10.0.0.0/8", 0x0a00_0000, 8),
    ("10.1.0.0/16", 0x0a01_0000, 16),
    ("10.1.2.0/24", 0x0a01_0200, 24),
    ("10.2.0.0/15", 0x0a02_0000, 15),
    ("9.0.0.0/8", 0x0900_0000, 8),
];

impl Chosen {
    fn name(at: usize) -> String {
        format!("N{at}")
    }

    fn limits(&self, default: u64) -> Limits {
        let builder = Limits::builder().limit("A", IdFormat::IpAddress, hourly(default)).unwrap();
        let add = |builder: LimitsBuilder, (at, network): (usize, &(_, _, _, _, u64))| {
            builder.limit(&Chosen::name(at), IdFormat::IpAddress, hourly(network.4)).unwrap()
        };
        self.networks.iter().enumerate().fold(builder, add).build()
    }

    /// Returns the limit that an address has; `None` if its network lifts it.
    fn limit_of(&self, id: &str) -> Option<KeyedLimit> {
        let address = u32::from(id.parse::<std::net::Ipv4Addr>().unwrap());
        let is_in = |at: &usize| {
            let (_, base, bits, now, _) = self.networks[*at];
            now.is_some()
                && address.checked_shr(32 - u32::from(bits)).unwrap_or(0)
                    == base.checked_shr(32 - u32::from(bits)).unwrap_or(0)
        };
        let around = (0..POOL.len()).filter(is_in).max_by_key(|at| self.networks[*at].2);
        let name = around.map_or("A".into(), Chosen::name);
        let is_lifted = around.is_some_and(|at| self.networks[at].3 == Some(0));
        (!is_lifted).then(|| self.limiter.limit(&name).unwrap())
    }
}

/// Networks are as if the caller had chosen between several limits by the address, over random reloads.
#[test]
fn networks_are_limits_that_the_address_chooses() {
    let mut seed = 1_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for case in 0..full_size(4, 2_000) {
        for engine in ENGINES {
            let (limiter, hand) = limiter(with(&[]), engine);
            let a = limiter.limit("A").unwrap();
            let networks = POOL.map(|(text, base, bits)| (text, base, bits, None, 1)).to_vec();
            let mut chosen = {
                let (limiter, hand) = super::support::limiter(Limits::builder().build(), engine);
                Chosen { limiter, hand, networks }
            };
            for step in 0..12 {
                let default = [10, 40, 100][random(3) as usize];
                for (.., now, declared) in &mut chosen.networks {
                    *now = (random(3) == 0).then(|| [0, 10, 20, 1000][random(4) as usize]);
                    if let Some(burst @ 1..) = now {
                        *declared = *burst;
                    }
                }
                let given = chosen.networks.iter().filter_map(|it| Some((it.0, it.3?)));
                let given: Vec<_> = given.collect();
                limiter.reload(with_default(Some(hourly(default)), &given)).unwrap();
                chosen.limiter.reload(chosen.limits(default)).unwrap();
                for round in 0..8 {
                    let id = IDS[random(4) as usize];
                    let cost = random(12);
                    let context = || {
                        format!(
                            "case {case}, step {step}, round {round}, {engine:?}, {id}, {given:?}"
                        )
                    };
                    let other = chosen.limit_of(id);
                    let say = |it: Result<tollgate::Decision, tollgate::Error>| {
                        it.map(|it| (it.allowed(), it.remaining(), it.retry_in(), it.reset_in()))
                            .ok()
                    };
                    let none = Some((true, None, Duration::ZERO, Duration::ZERO));
                    let (ours, theirs) = match random(5) {
                        0 => (
                            say(a.refund(id, cost)),
                            other.map_or(none, |it| say(it.refund(id, cost))),
                        ),
                        1 => {
                            let of = |handle: &KeyedLimit, limiter: &Limiter| {
                                say(limiter.batch(&[handle.member(id).cost(cost)]).spend())
                            };
                            (of(&a, &limiter), other.map_or(none, |it| of(&it, &chosen.limiter)))
                        }
                        _ => (
                            say(a.spend(id, cost)),
                            other.map_or(none, |it| say(it.spend(id, cost))),
                        ),
                    };
                    assert_eq!(ours, theirs, "{}", context());
                    if random(4) == 0 {
                        let jump = seconds([1, 100, 900][random(3) as usize]);
                        hand.advance(jump);
                        chosen.hand.advance(jump);
                    }
                    if random(4) == 0 {
                        sweep_all(&limiter);
                    }
                }
            }
        }
    }
}
