//! `tollgate explain`: why is a call answered as it is?

use std::fmt::Write;

use serde_json::{Value, json};
use tollgate::limits::{Applies, ExplainedCall, Explanation, NearEntry};
use tollgate::limits::{LimitMode, Location};
use tollgate::{Decision, Limit};

use crate::args::ExplainArgs;
use crate::engine::Engine;
use crate::input::{Lines, name};
use crate::numbers::{self, capacity, nanos};
use crate::output::{Destination, Results, print, to_json};
use crate::progress::Progress;
use crate::replay::{LineCounts, Session, replay};
use crate::side::Side;
use crate::tally::Tally;
use crate::text::{grouped, shortened, wait};
use crate::{Failure, Outcome, validate};

/// Characters of an id or a comment that are shown.
const MAX_SHOWN_CHARS: usize = 1024;

pub(crate) fn run(args: &ExplainArgs) -> Result<Outcome, Failure> {
    let mut lines = args.traffic.path().map(Lines::open).transpose()?;
    let limits = validate::load(&args.files)?;
    let now = args.today.now();
    // Its buckets are those of that day, whatever day it is.
    let mut engine = Engine::new(limits.clone().as_of(now));
    let (mut counts, mut skipped) = (LineCounts::default(), Vec::new());
    if let Some(lines) = &mut lines {
        let mut session = Session {
            side: Side { engine, tally: Tally::default() },
            file: name(&args.files.limits),
            against: None,
            decisions: Results::open(None)?,
            collected: None,
            progress: Progress::new(lines),
        };
        (counts, skipped) = replay(lines, &mut session, &args.traffic)?;
        session.progress.finish();
        engine = session.side.engine;
    }
    let refused = |error: tollgate::Error| Failure::NotDone(error.to_string());
    let mut explanation = limits.explain(&args.limit, &*args.id, now).map_err(refused)?;
    explanation.call = engine.explain(&args.limit, &args.id, args.cost).map_err(refused)?.call;
    let text = match args.json {
        true => to_json(&object(&explanation)),
        false => text(&explanation),
    };
    print(Destination::Stdout, &text)?;
    let skipped: String = skipped.iter().map(|line| format!("{line}\n")).collect();
    print(Destination::Stderr, &skipped)?;
    Ok(counts.outcome())
}

/// One fact a line.
fn text(explanation: &Explanation) -> String {
    let Explanation { limit, id, format, max_debt, .. } = explanation;
    let mut lines = vec![
        ("key".to_owned(), format!("{limit}:{} ({format})", tamed(id))),
        ("applies".into(), applies(explanation)),
    ];
    let mut fact = |name: &str, fact: Option<String>| {
        lines.extend(fact.map(|fact| (name.to_owned(), fact)));
    };
    fact("comment", explanation.comment.as_deref().map(tamed));
    fact("owner", explanation.owner.as_deref().map(tamed));
    fact("until the end of", explanation.last_day.clone());
    fact("mode", (explanation.mode != LimitMode::Enforce).then(|| explanation.mode.to_string()));
    fact("shadow", explanation.shadow.as_ref().map(Limit::to_string));
    fact("max_debt", (*max_debt > 0).then(|| grouped(*max_debt)));
    if let Some(call) = &explanation.call {
        fact("state", Some(state(&call.state, explanation.numbers.as_ref())));
        fact(&format!("a spend of {}", grouped(call.cost)), Some(answer(call)));
    }
    for near in &explanation.near {
        fact("does not apply", Some(not(near)));
    }
    let mut text = String::new();
    for (name, fact) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {fact}");
    }
    text
}

fn applies(explanation: &Explanation) -> String {
    let what = match explanation.applies {
        Applies::Override => "the override of this id",
        Applies::Account => "the override of its account",
        Applies::Default => "the default",
        Applies::Disabled => "nothing, the limit is switched off",
        _ => "nothing, there is no default and no override",
    };
    let at = at(explanation.location.as_ref());
    match (explanation.applies, &explanation.numbers) {
        (_, Some(numbers)) => format!("{what}{at}: {numbers}"),
        (Applies::Override | Applies::Account | Applies::Default, None) => {
            format!("{what}{at}: no limit")
        }
        (_, None) => format!("{what}{at}"),
    }
}

fn not(near: &NearEntry) -> String {
    let what = match &near.id {
        Some(id) => format!("the override of {}", tamed(id)),
        None => "the default".into(),
    };
    let numbers = near.numbers.as_ref().map_or("no limit".into(), Limit::to_string);
    format!("{what}{}, {numbers}: {}", at(near.location.as_ref()), near.why)
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
        (false, _) => format!("denied, allowed in {}", wait(decision.retry_in())),
    }
}

fn tamed(text: &str) -> String {
    shortened(text, MAX_SHOWN_CHARS)
}

fn object(explanation: &Explanation) -> Value {
    let file = |location: &Option<Location>| location.as_ref().map(|at| at.file.clone());
    let line = |location: &Option<Location>| location.as_ref().map(|at| at.line);
    let near = |near: &NearEntry| {
        json!({
            "id": near.id,
            "file": file(&near.location),
            "line": line(&near.location),
            "numbers": numbers::to_json(near.numbers.as_ref()),
            "why": near.why.to_string(),
        })
    };
    let call = explanation.call.as_ref();
    json!({
        "limit": explanation.limit,
        "id": explanation.id,
        "format": explanation.format.to_string(),
        "applies": explanation.applies.to_string(),
        "file": file(&explanation.location),
        "line": line(&explanation.location),
        "numbers": numbers::to_json(explanation.numbers.as_ref()),
        "mode": explanation.mode.to_string(),
        "shadow": numbers::to_json(explanation.shadow.as_ref()),
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
    })
}
