//! The scripts and their arguments.

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, RedisWrite, Script, ServerErrorKind, ToRedisArgs, Value};

use smallvec::{SmallVec, smallvec};

use crate::algorithm::rule::Rule;
use crate::core::shared::lease::LeaseRequest;
use crate::core::shared::{Change, SharedMember, SharedMode};
use crate::observe::store_figures::StoreFigures;

const NS_PER_S: u64 = 1_000_000_000;
/// The times of a limit must be below it, so that charge_gcra.lua computes exactly.
const MAX_GCRA_NS: u64 = 1 << 52;

pub(super) struct Scripts {
    charge: Text,
    charge_gcra: Text,
    replace: Text,
}

/// The text of a script, and the hash by which a server that has run it knows it.
struct Text {
    text: String,
    hash: String,
}

/// A call of a script.
pub(super) struct ScriptCall<'s> {
    script: &'s Text,
    keys: SmallVec<[&'s str; 4]>,
    arguments: SmallVec<[Argument<'s>; 16]>,
}

/// An argument, which is written when the command is made.
enum Argument<'s> {
    Number(u64),
    Text(&'s [u8]),
}

impl ToRedisArgs for Argument<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self {
            Argument::Number(number) => number.write_redis_args(out),
            Argument::Text(text) => text.write_redis_args(out),
        }
    }
}

impl<'s> ScriptCall<'s> {
    fn new(script: &'s Text) -> ScriptCall<'s> {
        ScriptCall { script, keys: SmallVec::new(), arguments: SmallVec::new() }
    }

    fn key(&mut self, key: &'s str) {
        self.keys.push(key);
    }

    fn number(&mut self, number: u64) {
        self.arguments.push(Argument::Number(number));
    }

    fn text(&mut self, text: &'s [u8]) {
        self.arguments.push(Argument::Text(text));
    }

    /// Asks the server by the script's hash. If the server does not know it, sends the text: it has not run then, and no
    /// other call can come between.
    pub(super) async fn ask(
        &self,
        mut connection: impl ConnectionLike,
        figures: &StoreFigures,
    ) -> RedisResult<Value> {
        let Text { text, hash } = self.script;
        match self.command("EVALSHA", hash).query_async(&mut connection).await {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                figures.count_script_sent();
                self.command("EVAL", text).query_async(&mut connection).await
            }
            answer => answer,
        }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys[..]).arg(&self.arguments[..]);
        command
    }
}

impl Scripts {
    pub(super) fn new() -> Scripts {
        Scripts::from(|script| script.into())
    }

    /// Makes the scripts of texts that `change` may change.
    pub(super) fn from(change: impl Fn(&str) -> String) -> Scripts {
        let script = |text| {
            let text = change(text);
            Text { hash: Script::new(&text).get_hash().into(), text }
        };
        Scripts {
            charge: script(include_str!("charge.lua")),
            charge_gcra: script(include_str!("charge_gcra.lua")),
            replace: script(include_str!("replace.lua")),
        }
    }

    /// Makes the call that charges a batch.
    pub(super) fn charge<'s>(&'s self, members: &'s [SharedMember]) -> ScriptCall<'s> {
        let mut call = ScriptCall::new(&self.charge);
        let asks = members.iter().any(|member| member.lease.is_some());
        call.number(asks.into());
        for member in members {
            let mode = match member.mode {
                SharedMode::CheckAndSpend => 0,
                SharedMode::CheckOnly => 1,
                SharedMode::SpendOnly => 2,
                SharedMode::LookOnly => 3,
            };
            let (rule, numbers) = numbers(member);
            call.key(&member.key);
            call.text(rule);
            [mode, member.cost, member.keep_ms].into_iter().for_each(|number| call.number(number));
            numbers.into_iter().for_each(|number| call.number(number));
            if asks {
                let lease = member.lease.map_or([0; 5], |LeaseRequest { want, length_ms, end }| {
                    let end = end.map_or([0; 3], |end| [end.tag_ms, end.granted, end.unspent]);
                    [want, length_ms, end[0], end[1], end[2]]
                });
                lease.into_iter().for_each(|number| call.number(number));
            }
        }
        call
    }

    /// Makes the call that charges plain gcra buckets; `None` for another batch.
    pub(super) fn charge_gcra<'s>(&'s self, members: &'s [SharedMember]) -> Option<ScriptCall<'s>> {
        let mut call = ScriptCall::new(&self.charge_gcra);
        for member in members {
            let gcra = member.limit.rule().gcra()?;
            let is_plain = member.mode == SharedMode::CheckAndSpend
                && member.cost > 0
                && member.keep_ms == 0
                && member.lease.is_none()
                && gcra.burst_offset_ns() < MAX_GCRA_NS;
            if !is_plain {
                return None;
            }
            call.key(&member.key);
            // At most the burst offset, because the cost is at most the burst.
            call.number(gcra.emission_interval_ns() * member.cost);
            call.number(gcra.burst_offset_ns());
        }
        Some(call)
    }

    /// Makes the call that replaces texts.
    pub(super) fn replace<'s>(&'s self, changes: &'s [Change]) -> ScriptCall<'s> {
        let mut call = ScriptCall::new(&self.replace);
        for Change { key, before, after } in changes {
            let (text, keep_ms) =
                after.as_ref().map_or(("", 0), |(text, keep_ms)| (text, *keep_ms));
            call.key(key);
            call.text(before.as_deref().unwrap_or_default());
            call.text(text.as_bytes());
            call.number(keep_ms);
        }
        call
    }
}

/// Returns the letter of a member's rule, and its numbers.
fn numbers(member: &SharedMember) -> (&'static [u8], SmallVec<[u64; 7]>) {
    match member.limit.rule() {
        Rule::Gcra(gcra) => {
            // At most the burst offset, because the cost is at most the burst.
            let cost_ns = gcra.emission_interval_ns() * member.cost;
            // The units of leases have no factor.
            let leased = member.own_limit().rule().gcra().unwrap_or(gcra);
            let times_ns = [cost_ns, gcra.burst_offset_ns(), leased.emission_interval_ns()];
            let parts = times_ns.into_iter().flat_map(|ns| [ns / NS_PER_S, ns % NS_PER_S]);
            (b"g", parts.chain([leased.burst()]).collect())
        }
        Rule::Window(window) => {
            let own_quota = match member.own_limit().rule() {
                Rule::Window(own) => own.quota,
                _ => window.quota,
            };
            let (quota, burst) = (window.quota.into(), window.burst.into());
            (b"w", smallvec![quota, burst, window.window_ms, own_quota.into()])
        }
        Rule::LeakyBucket(leaky) => {
            let own_rate_ms = match member.own_limit().rule() {
                Rule::LeakyBucket(own) => own.drip_rate_ms,
                _ => leaky.drip_rate_ms,
            };
            let (size, drip) = (leaky.size.into(), leaky.drip_size.into());
            (b"l", smallvec![size, drip, leaky.drip_rate_ms, own_rate_ms])
        }
        Rule::Custom(_) => unreachable!("a custom algorithm is refused where the limits are made"),
    }
}
