//! The scripts and their arguments.

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Script, ServerErrorKind, ToRedisArgs, Value};

use smallvec::{SmallVec, smallvec};

use crate::algorithm::rule::Rule;
use crate::core::shared::lease::LeaseRequest;
use crate::core::shared::{Change, SLACK_MS, SharedMember, SharedMode};

const NS_PER_S: u64 = 1_000_000_000;

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
    keys: Vec<&'s str>,
    arguments: Vec<Vec<u8>>,
}

impl<'s> ScriptCall<'s> {
    fn new(script: &'s Text) -> ScriptCall<'s> {
        ScriptCall { script, keys: Vec::new(), arguments: Vec::new() }
    }

    fn key(&mut self, key: &'s str) {
        self.keys.push(key);
    }

    fn argument(&mut self, argument: impl ToRedisArgs) {
        self.arguments.extend(argument.to_redis_args());
    }

    /// Asks the server by the script's hash. If the server does not know it, sends the text: it has not run then, and no
    /// other call can come between.
    pub(super) async fn ask(&self, mut connection: impl ConnectionLike) -> RedisResult<Value> {
        let Text { text, hash } = self.script;
        match self.command("EVALSHA", hash).query_async(&mut connection).await {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.command("EVAL", text).query_async(&mut connection).await
            }
            answer => answer,
        }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
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
        call.argument(SLACK_MS);
        for member in members {
            let mode = match member.mode {
                SharedMode::CheckAndSpend => 0,
                SharedMode::CheckOnly => 1,
                SharedMode::SpendOnly => 2,
                SharedMode::LookOnly => 3,
            };
            let (rule, numbers) = numbers(member);
            call.key(&member.key);
            match member.lease {
                Some(_) => call.argument(rule.to_ascii_uppercase()),
                None => call.argument(rule),
            }
            call.argument(mode);
            call.argument(member.cost);
            call.argument(member.keep_ms);
            numbers.iter().for_each(|number| call.argument(number));
            if let Some(LeaseRequest { want, length_ms, end }) = member.lease {
                let end = end.map_or([0; 3], |end| [end.tag_ms, end.granted, end.unspent]);
                [want, length_ms].iter().chain(&end).for_each(|number| call.argument(number));
            }
        }
        call
    }

    /// Makes the call that charges one gcra bucket; `None` for another batch.
    pub(super) fn charge_gcra<'s>(&'s self, members: &'s [SharedMember]) -> Option<ScriptCall<'s>> {
        let [member] = members else { return None };
        let is_plain = member.mode == SharedMode::CheckAndSpend
            && member.cost > 0
            && member.keep_ms == 0
            && member.lease.is_none()
            && member.limit.rule().gcra().is_some();
        if !is_plain {
            return None;
        }
        let mut call = ScriptCall::new(&self.charge_gcra);
        call.key(&member.key);
        call.argument(SLACK_MS);
        numbers(member).1[..4].iter().for_each(|number| call.argument(number));
        Some(call)
    }

    /// Makes the call that replaces texts.
    pub(super) fn replace<'s>(&'s self, changes: &'s [Change]) -> ScriptCall<'s> {
        let mut call = ScriptCall::new(&self.replace);
        for Change { key, before, after } in changes {
            let (text, keep_ms) =
                after.as_ref().map_or(("", 0), |(text, keep_ms)| (text, *keep_ms));
            call.key(key);
            call.argument(before.as_deref().unwrap_or_default());
            call.argument(text);
            call.argument(keep_ms);
        }
        call
    }
}

/// Returns the letter of a member's rule, and its numbers.
fn numbers(member: &SharedMember) -> (&'static str, SmallVec<[u64; 7]>) {
    match member.limit.rule() {
        Rule::Gcra(gcra) => {
            // At most the burst offset, because the cost is at most the burst.
            let cost_ns = gcra.emission_interval_ns() * member.cost;
            // The units of leases have no factor.
            let leased = member.guard_limit().rule().gcra().unwrap_or(gcra);
            let times_ns = [cost_ns, gcra.burst_offset_ns(), leased.emission_interval_ns()];
            let parts = times_ns.into_iter().flat_map(|ns| [ns / NS_PER_S, ns % NS_PER_S]);
            ("g", parts.chain([leased.burst()]).collect())
        }
        Rule::Window(window) => {
            ("w", smallvec![window.quota.into(), window.burst.into(), window.window_ms])
        }
        Rule::LeakyBucket(leaky) => {
            ("l", smallvec![leaky.size.into(), leaky.drip_size.into(), leaky.drip_rate_ms])
        }
        Rule::Custom(_) => unreachable!("a custom algorithm is refused where the limits are made"),
    }
}
