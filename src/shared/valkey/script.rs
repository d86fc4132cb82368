//! The scripts and their arguments.

use redis::aio::MultiplexedConnection;
use redis::{Arg, Cmd, Pipeline, RedisResult, Script, ServerErrorKind, Value};
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use crate::algorithm::gcra::Gcra;
use crate::algorithm::rule::Rule;
use crate::limit::Limit;
use crate::shared::protocol::change::{BucketChange, Step};
use crate::shared::protocol::lease::LeaseRequest;
use crate::shared::protocol::text::{start_unix_ms, tat_unix_ns};
use crate::shared::protocol::{SharedMode, StoreMember};
use crate::shared::store_figures::StoreFigures;
use crate::util::lock::Mutex;
use crate::util::time::saturating_ns;

const NS_PER_S: u64 = 1_000_000_000;
/// The times of a limit must be below it, so that charge_gcra.lua computes exactly.
const MAX_GCRA_NS: u64 = 1 << 52;

pub(super) struct Scripts {
    charge: Text,
    charge_gcra: Text,
    change: Text,
}

/// The text of a script, and the hash by which a server that has run it knows it.
struct Text {
    text: String,
    hash: String,
}

/// Calls of scripts that are sent together.
pub(super) struct ScriptCalls<'s> {
    scripts: SmallVec<[&'s Text; 1]>,
    /// Each names its script by the hash.
    commands: Pipeline,
}

impl<'s> ScriptCalls<'s> {
    pub(super) fn with_capacity(calls: usize) -> ScriptCalls<'s> {
        ScriptCalls {
            scripts: SmallVec::with_capacity(calls),
            commands: Pipeline::with_capacity(calls),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.scripts.len()
    }

    fn push(&mut self, script: &'s Text, command: Cmd) {
        self.scripts.push(script);
        self.commands.add_command(command);
    }

    /// Asks the server by the hashes of the scripts, and returns an answer to each. If the server does not know a script, sends its
    /// text: it has not run then. Of many first calls one sends it, and the others ask again by the hash. `sent`: when
    /// a text was last sent to the server. `is_asking`: another node has sent the call here, which is a single one.
    pub(super) async fn ask(
        &self,
        mut connection: MultiplexedConnection,
        is_asking: bool,
        (figures, sent): (&StoreFigures, &Mutex<Option<Instant>>),
    ) -> Vec<RedisResult<Value>> {
        let mut asked_at = Instant::now();
        let mut answers = send(&self.commands, &mut connection, is_asking).await;
        loop {
            let is_unknown = |answer: &RedisResult<Value>| {
                answer.as_ref().is_err_and(|error| error.kind() == ServerErrorKind::NoScript.into())
            };
            let unknown: SmallVec<[usize; 1]> =
                (0..answers.len()).filter(|&at| is_unknown(&answers[at])).collect();
            if unknown.is_empty() {
                return answers;
            }
            // Questions by the hash that come later follow the text on the same connection.
            let is_first = {
                let mut sent_at = sent.lock();
                let is_first = sent_at.is_none_or(|sent_at| sent_at < asked_at);
                if is_first {
                    *sent_at = Some(Instant::now());
                }
                is_first
            };
            let mut again = Pipeline::with_capacity(unknown.len());
            for (at, command) in self.commands.cmd_iter().enumerate() {
                if is_first && at == unknown[0] {
                    figures.count_script_sent();
                    again.add_command(self.scripts[at].with_text(command));
                } else if unknown.contains(&at) {
                    again.add_command(command.clone());
                }
            }
            asked_at = Instant::now();
            let answers_again = send(&again, &mut connection, is_asking).await;
            unknown.into_iter().zip(answers_again).for_each(|(at, answer)| answers[at] = answer);
        }
    }
}

impl Text {
    /// Begins a command that names the script by its hash. `arguments`: how many come after the keys, at most about.
    fn command<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k Box<str>>,
        arguments: usize,
    ) -> Cmd {
        const NAME_HASH_AND_NUMBER: usize = 3;
        let (count, bytes) = (NAME_HASH_AND_NUMBER + keys.len() + arguments, 64 * (1 + keys.len()));
        let mut command = Cmd::with_capacity(count, bytes + 16 * arguments);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        for key in keys {
            command.arg(&**key);
        }
        command
    }

    /// Returns the command that sends the script's text in place of its hash.
    fn with_text(&self, by_hash: &Cmd) -> Cmd {
        const NAME_AND_HASH: usize = 2;
        let mut command = redis::cmd("EVAL");
        command.arg(&self.text);
        for argument in by_hash.args_iter().skip(NAME_AND_HASH) {
            if let Arg::Simple(argument) = argument {
                command.arg(argument);
            }
        }
        command
    }
}

/// Sends commands, and returns an answer to each. `is_asking`: a single one is sent behind one that says that another node has
/// sent it here: without that a node that is getting a slot refuses it. Both are sent as one, so that no other call comes between.
async fn send(
    commands: &Pipeline,
    connection: &mut MultiplexedConnection,
    is_asking: bool,
) -> Vec<RedisResult<Value>> {
    let count = commands.len();
    let sent = match is_asking {
        false => connection.send_packed_commands(commands, 0, count).await,
        true => {
            let mut all = redis::pipe();
            all.cmd("ASKING");
            for command in commands.cmd_iter() {
                all.add_command(command.clone());
            }
            connection.send_packed_commands(&all, 1, count).await
        }
    };
    match sent {
        // The error of a whole pipeline would not say where the slot is.
        Ok(answers) => answers.into_iter().map(Value::extract_error).collect(),
        Err(error) => vec![Err(error); count],
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
            charge: script(concat!(include_str!("bucket.lua"), "\n", include_str!("charge.lua"))),
            charge_gcra: script(concat!(
                include_str!("charge_gcra.lua"),
                "\n",
                include_str!("bucket.lua"),
                "\n",
                include_str!("charge.lua")
            )),
            change: script(concat!(include_str!("bucket.lua"), "\n", include_str!("change.lua"))),
        }
    }

    /// Adds the call that charges a batch: of the quick script for plain gcra buckets if it fits the batch.
    pub(super) fn charge<'s>(&'s self, calls: &mut ScriptCalls<'s>, members: &[StoreMember]) {
        match self.charge_gcra(members) {
            Some(command) => calls.push(&self.charge_gcra, command),
            None => calls.push(&self.charge, self.charge_any(members)),
        }
    }

    /// Makes the command that charges a batch.
    fn charge_any(&self, members: &[StoreMember]) -> Cmd {
        const NUMBERS: usize = 16;
        let keys = members.iter().map(|member| &member.key);
        let mut command = self.charge.command(keys, NUMBERS * members.len());
        let asks = members.iter().any(|member| member.lease.is_some());
        command.arg(asks);
        for member in members {
            let (rule, numbers) = numbers(&member.limit, member, member.cost);
            let of_member = [member.mode as u64, member.cost, member.keep_ms];
            command.arg(rule).arg(&of_member).arg(&numbers[..]);
            if asks {
                let lease = member.lease.map_or([0; 5], |LeaseRequest { want, length_ms, end }| {
                    let end = end.map_or([0; 3], |end| [end.tag_ms, end.granted, end.unspent]);
                    [want, length_ms, end[0], end[1], end[2]]
                });
                command.arg(&lease);
            }
        }
        command
    }

    /// Makes the command that charges plain gcra buckets; `None` for another batch.
    pub(super) fn charge_gcra(&self, members: &[StoreMember]) -> Option<Cmd> {
        const NUMBERS: usize = 4;
        if !members.iter().all(|member| plain_numbers(member).is_some()) {
            return None;
        }
        let keys = members.iter().map(|member| &member.key);
        let mut command = self.charge_gcra.command(keys, NUMBERS * members.len());
        for numbers in members.iter().filter_map(plain_numbers) {
            command.arg(&numbers);
        }
        Some(command)
    }

    /// Adds the call that changes buckets.
    pub(super) fn change<'s>(&'s self, calls: &mut ScriptCalls<'s>, changes: &[BucketChange]) {
        const NUMBERS: usize = 16;
        let keys = changes.iter().map(|change| &change.member.key);
        let mut command = self.change.command(keys, NUMBERS * changes.len());
        command.arg(0);
        for change in changes {
            let (member, step) = (&change.member, &change.step);
            let limit = step.limit(member);
            let (rule, numbers) = numbers(limit, member, 1);
            let (name, x12, x34) = step_numbers(step, limit.rule());
            command.arg(rule).arg(name).arg(member.keep_ms);
            command.arg(&x12).arg(&x34).arg(&numbers[..]);
        }
        calls.push(&self.change, command);
    }
}

/// Returns the numbers of a plain gcra bucket for charge_gcra.lua; `None` for another bucket.
fn plain_numbers(member: &StoreMember) -> Option<[u64; 4]> {
    let gcra = member.limit.rule().gcra()?;
    // The units of leases have no factor.
    let leased = member.own_limit().rule().gcra()?;
    let is_plain = member.mode == SharedMode::CheckAndSpend
        && member.cost > 0
        && member.keep_ms == 0
        && member.lease.is_none()
        && gcra.burst_offset_ns() < MAX_GCRA_NS
        && leased.emission_interval_ns() < MAX_GCRA_NS;
    // At most the burst offset, because the cost is at most the burst.
    is_plain.then(|| {
        let cost_ns = gcra.emission_interval_ns() * member.cost;
        [cost_ns, gcra.burst_offset_ns(), leased.emission_interval_ns(), leased.burst()]
    })
}

/// Returns a step's name in change.lua, and its numbers `x1` to `x4`.
fn step_numbers(step: &Step, rule: &Rule) -> (&'static str, [i128; 2], [i128; 2]) {
    const NONE: [i128; 2] = [0, 0];
    let time = |ns: u64| [i128::from(ns / NS_PER_S), i128::from(ns % NS_PER_S)];
    // Of gcra units are a time.
    let interval_ns = rule.gcra().map(Gcra::emission_interval_ns);
    let units_of = |units: u64| match interval_ns {
        Some(interval_ns) => time(interval_ns.saturating_mul(units)),
        None => [units.into(), -1],
    };
    match *step {
        Step::Look => ("look", NONE, NONE),
        Step::Refund { units } => ("return", units_of(units), NONE),
        Step::Return { units, charge } => {
            let returned = match rule {
                Rule::Gcra(_) => time(charge.interval_ns().saturating_mul(units)),
                _ => [units.into(), charge.window_ms().map_or(-1, |ms| start_unix_ms(ms).into())],
            };
            ("return", returned, NONE)
        }
        Step::Owe { units, max_debt } => ("owe", units_of(units), units_of(max_debt)),
        Step::Reset => ("reset", NONE, NONE),
        Step::Block { time: block } => ("block", time(saturating_ns(block)), NONE),
        Step::Unblock => ("unblock", NONE, NONE),
        Step::Reserve { units, at_most_ns } => ("reserve", units_of(units), time(at_most_ns)),
        Step::Cancel { units, word } => ("cancel", units_of(units), time(tat_unix_ns(word))),
        Step::SpendUpTo { most } => ("spend_up_to", [most.into(), 0], NONE),
        Step::Drain { leave } => ("drain", [leave.into(), 0], NONE),
    }
}

/// Returns the letter of a rule, and its numbers. A text is kept by the member's limit and by the one without its factor: the
/// last number is that of the slower one.
fn numbers(limit: &Limit, member: &StoreMember, cost: u64) -> (&'static str, SmallVec<[u64; 7]>) {
    let both = [member.limit.rule(), member.own_limit().rule()];
    match limit.rule() {
        Rule::Gcra(gcra) => {
            // At most the burst offset, because the cost is at most the burst.
            let cost_ns = gcra.emission_interval_ns() * cost;
            // The units of leases have no factor.
            let leased = member.own_limit().rule().gcra().unwrap_or(gcra);
            let times_ns = [cost_ns, gcra.burst_offset_ns(), leased.emission_interval_ns()];
            let parts = times_ns.into_iter().flat_map(|ns| [ns / NS_PER_S, ns % NS_PER_S]);
            ("g", parts.chain([leased.burst()]).collect())
        }
        Rule::Window(window) => {
            let quotas = both.into_iter().filter_map(|rule| match rule {
                Rule::Window(window) => Some(window.quota),
                _ => None,
            });
            let least = quotas.min().unwrap_or(window.quota);
            let (quota, burst) = (window.quota.into(), window.burst.into());
            ("w", smallvec![quota, burst, window.window_ms, least.into()])
        }
        Rule::LeakyBucket(leaky) => {
            let rates_ms = both.into_iter().filter_map(|rule| match rule {
                Rule::LeakyBucket(leaky) => Some(leaky.drip_rate_ms),
                _ => None,
            });
            let longest_ms = rates_ms.max().unwrap_or(leaky.drip_rate_ms);
            let (size, drip) = (leaky.size.into(), leaky.drip_size.into());
            ("l", smallvec![size, drip, leaky.drip_rate_ms, longest_ms])
        }
        Rule::Concurrency(_) | Rule::Custom(_) => {
            unreachable!("concurrency and custom algorithms are refused where the limits are made")
        }
    }
}
