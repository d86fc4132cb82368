//! `tollgate explain`: shows why a call gets its decision.

#[cfg(feature = "valkey")]
use std::time::Duration;
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use tollgate::limits::{
    Applies, ExplainedCall, Explanation, Floor, LimitMode, Location, NearEntry,
};
#[cfg(feature = "valkey")]
use tollgate::shared::Store;
#[cfg(feature = "valkey")]
use tollgate::shared::block_on;
use tollgate::{Decision, Limit, Limits};
#[cfg(feature = "valkey")]
use tollgate::{Error, Limiter, LimiterOptions};

use crate::args::ExplainArgs;
use crate::escape::shortened;
use crate::fields::{self, Field, capacity, nanos};
use crate::input::Lines;
use crate::output::{Destination, print, print_messages, to_json};
use crate::replay::{LineCounts, Session, replay};
use crate::text::{grouped, wait};
use crate::{Failure, Outcome, validate};

/// The most characters of an id, a comment or an owner that are printed.
const MAX_TEXT_CHARS: usize = 1024;

pub(crate) fn run(args: &ExplainArgs) -> Result<Outcome, Failure> {
    let mut lines = args.traffic.path().map(Lines::open).transpose()?;
    let limits = validate::load(&args.files)?;
    let now = args.today.now();
    let mut session = Session::new(limits.clone().valid_at(now), &args.files)?;
    let (mut counts, mut skipped) = (LineCounts::default(), Vec::new());
    if let Some(lines) = &mut lines {
        (counts, skipped) = replay(lines, &mut session, &args.traffic)?;
        lines.finish();
    }
    let failure = |error: tollgate::Error| Failure::NotDone(error.to_string());
    let mut explanation = limits.explain(&args.limit, &*args.id, now).map_err(failure)?;
    let (call, store) = match by_store(&limits, now, args)? {
        Some((call, address)) => (call, Some(address)),
        None => {
            let engine = &mut session.side.engine;
            (engine.explain(&args.limit, &args.id, args.cost).map_err(failure)?.call, None)
        }
    };
    explanation.call = call;
    let sharing = fields::sharing(&limits.limit(&args.limit).map_err(failure)?);
    // A local limit has the field `shared` alone.
    if sharing.len() > 1 && store.is_none() && args.traffic.path().is_none() {
        let warning = format!(
            "warning: {} is shared, and the file has no store to ask: the answer is that of a full bucket\n",
            args.limit
        );
        print_messages(&warning)?;
    }
    let text = match args.json {
        true => to_json(&object(&explanation, &sharing, store)),
        false => text(&explanation, &sharing, store),
    };
    print(Destination::Stdout, &text)?;
    for rule in &session.unused_rules {
        print_messages(&format!("warning: no line is one for --rule {rule}\n"))?;
    }
    let skipped: String = skipped.iter().map(|line| format!("{line}\n")).collect();
    print_messages(&skipped)?;
    Ok(counts.outcome())
}

/// The time that the store may take to answer.
#[cfg(feature = "valkey")]
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The store's answer, and its address.
type ByStore = (Option<ExplainedCall>, String);

/// Asks the file's store, if it has the buckets of the limit. Replayed traffic has other buckets.
#[cfg(feature = "valkey")]
fn by_store(
    limits: &Limits,
    now: SystemTime,
    args: &ExplainArgs,
) -> Result<Option<ByStore>, Failure> {
    let failure =
        |error: Error| Failure::NotDone(format!("{}:{}: {error}", args.limit, escaped(&args.id)));
    let is_shared = fields::is_shared(&limits.limit(&args.limit).map_err(failure)?);
    let (Some(store), true, None) = (limits.store(), is_shared, args.traffic.path()) else {
        return Ok(None);
    };
    let explained = || {
        let store = store.clone().answer_timeout(STORE_ANSWERS_WITHIN)?;
        let options = LimiterOptions::default().store(Store::connect(&store)?);
        let limiter = Limiter::with_options(limits.clone().valid_at(now), options)?;
        block_on(limiter.shared(&args.limit)?.explain(&*args.id, args.cost))
    };
    Ok(Some((explained().map_err(failure)?.call, store.shown_url())))
}

/// Without the feature no limit is shared.
#[cfg(not(feature = "valkey"))]
fn by_store(_: &Limits, _: SystemTime, _: &ExplainArgs) -> Result<Option<ByStore>, Failure> {
    Ok(None)
}

/// Formats the explanation as text, one fact per line. `store`: its address, if it was asked.
fn text(explanation: &Explanation, sharing: &[Field], store: Option<String>) -> String {
    let Explanation { name: limit, id, format, max_debt, .. } = explanation;
    let mut lines = vec![
        ("key".to_owned(), format!("{limit}:{} ({format})", escaped(id))),
        ("applies".into(), applies(explanation)),
    ];
    let mut fact = |name: &str, fact: Option<String>| {
        lines.extend(fact.map(|fact| (name.to_owned(), fact)));
    };
    fact("comment", explanation.comment.as_deref().map(escaped));
    fact("owner", explanation.owner.as_deref().map(escaped));
    fact("until the end of", explanation.last_day.clone());
    fact("mode", (explanation.mode != LimitMode::Enforce).then(|| explanation.mode.to_string()));
    fact("shadow", explanation.shadow.as_ref().map(Limit::to_string));
    fact("max_debt", (*max_debt > 0).then(|| grouped(*max_debt)));
    fact("floors", floors(explanation));
    if !sharing.iter().any(Field::is_local) {
        sharing.iter().for_each(|field| fact(field.name, Some(field.text.clone())));
    }
    fact("asked", store);
    if let Some(call) = &explanation.call {
        fact("state", Some(state(&call.state, explanation.limit.as_ref())));
        fact(&format!("a spend of {}", grouped(call.cost)), Some(answer(call)));
    }
    for entry in &explanation.near {
        fact("does not apply", Some(near(entry)));
    }
    lines.into_iter().map(|(name, fact)| format!("{name}: {fact}\n")).collect()
}

/// Formats the floors, a percentage with its units of the limit that applies.
fn floors(explanation: &Explanation) -> Option<String> {
    let text = |(name, floor): &(String, Floor)| match (&explanation.limit, floor) {
        (Some(limit), Floor::Percent(_)) => {
            format!("{name} {floor} ({})", grouped(floor.units_of(limit.burst())))
        }
        _ => format!("{name} {floor}"),
    };
    let all: Vec<String> = explanation.floors.iter().map(text).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn applies(explanation: &Explanation) -> String {
    let entry = match explanation.applies {
        Applies::Override => "the override of this id",
        Applies::Account => "the override of its account",
        Applies::Network => "the override of a network around it,",
        Applies::Default => "the default",
        Applies::Disabled => "nothing, the limit is switched off",
        _ => "nothing, there is no default and no override",
    };
    let network = explanation.network.iter().map(|network| format!(" {}", escaped(network)));
    let at = network.chain([at(explanation.location.as_ref())]).collect::<String>();
    match (explanation.applies, &explanation.limit) {
        (_, Some(numbers)) => format!("{entry}{at}: {numbers}"),
        (Applies::Override | Applies::Account | Applies::Network | Applies::Default, None) => {
            format!("{entry}{at}: no limit")
        }
        (_, None) => format!("{entry}{at}"),
    }
}

fn near(near: &NearEntry) -> String {
    let entry = match &near.id {
        Some(id) => format!("the override of {}", escaped(id)),
        None => "the default".into(),
    };
    let numbers = near.limit.as_ref().map_or("no limit".into(), Limit::to_string);
    format!("{entry}{}, {numbers}: {}", at(near.location.as_ref()), near.why)
}

fn at(location: Option<&Location>) -> String {
    location.map(|location| format!(" at {location}")).unwrap_or_default()
}

fn state(state: &Decision, numbers: Option<&Limit>) -> String {
    let (Some(remaining), Some(numbers)) = (state.remaining(), numbers) else {
        return "no limit".into();
    };
    let left = format!("{} of {} left", grouped(remaining), grouped(capacity(numbers)));
    match state.reset_in().is_zero() {
        true => left,
        false => format!("{left}, full in {}", wait(state.reset_in())),
    }
}

fn answer(call: &ExplainedCall) -> String {
    let Some(decision) = &call.decision else {
        return "an error, it is more than the bucket can ever hold".into();
    };
    match (decision.allowed(), decision.remaining()) {
        (true, Some(remaining)) => format!("allowed, {} would be left", grouped(remaining)),
        (true, None) => "allowed, there is no limit".into(),
        (false, _) if decision.blocked() => {
            format!("denied by a block, allowed in {}", wait(decision.retry_in()))
        }
        (false, _) => format!("denied, allowed in {}", wait(decision.retry_in())),
    }
}

fn escaped(text: &str) -> String {
    shortened(text, MAX_TEXT_CHARS)
}

fn object(explanation: &Explanation, sharing: &[Field], store: Option<String>) -> Value {
    let file = |location: &Option<Location>| location.as_ref().map(|at| at.file.clone());
    let line = |location: &Option<Location>| location.as_ref().map(|at| at.line);
    let near = |near: &NearEntry| {
        json!({
            "id": near.id,
            "file": file(&near.location),
            "line": line(&near.location),
            "numbers": fields::to_json(near.limit.as_ref()),
            "why": near.why.to_string(),
        })
    };
    let call = explanation.call.as_ref();
    let mut object = json!({
        "limit": explanation.name,
        "id": explanation.id,
        "format": explanation.format.to_string(),
        "applies": explanation.applies.to_string(),
        "file": file(&explanation.location),
        "line": line(&explanation.location),
        "numbers": fields::to_json(explanation.limit.as_ref()),
        "mode": explanation.mode.to_string(),
        "shadow": fields::to_json(explanation.shadow.as_ref()),
        "max_debt": explanation.max_debt,
        "comment": explanation.comment,
        "owner": explanation.owner,
        "until": explanation.last_day,
        "cost": call.map(|call| call.cost),
        "state": call.map(|call| json!({
            "remaining": call.state.remaining(),
            "reset_in_ns": nanos(call.state.reset_in()),
        })),
        "decision": call.and_then(|call| call.decision).map(|decision| json!({
            "allowed": decision.allowed(),
            "remaining": decision.remaining(),
            "retry_in_ns": nanos(decision.retry_in()),
            "reset_in_ns": nanos(decision.reset_in()),
        })),
        "near": explanation.near.iter().map(near).collect::<Vec<_>>(),
    });
    if !explanation.floors.is_empty() {
        let floor = |(name, floor): &(String, Floor)| {
            let value = match floor {
                Floor::Units(units) => json!(units),
                _ => json!(floor.to_string()),
            };
            (name.clone(), value)
        };
        object["floors"] = explanation.floors.iter().map(floor).collect::<Map<_, _>>().into();
    }
    if let Some(store) = store {
        object["asked"] = store.into();
    }
    for field in sharing {
        object[field.json_name()] = field.json.clone();
    }
    object
}
