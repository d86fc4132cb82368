//! The overrides that applied to the ids that were seen, and their numbers.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::page::Replayed;
use super::sections::Shown;
use super::tables::{Cell, Table};
use super::words;
use crate::engine::LimitNo;
use crate::side::Side;
use crate::tally::Key;

/// Overrides of a limit that are shown.
const MAX_SHOWN: usize = 20;

/// The lines of the ids that an override applies to, in one of the files at least.
#[derive(Debug, Default)]
struct Applied {
    /// The override's numbers under the limits in force and under the candidate; `None`: the default applies.
    now: Option<String>,
    then: Option<String>,
    ids: u64,
    allowed: u64,
    denied: u64,
    denied_then: u64,
}

/// The override that applies to an id of a file: its own id, and its numbers in words.
fn override_of(side: &Side, limit: &str, id: &str) -> Option<(String, String)> {
    let (given_id, numbers) = side.engine.override_of(limit, id)?;
    Some((given_id, numbers.map_or("no limit".into(), |numbers| words::limit(&numbers))))
}

/// The entry that applies to an id of a file, as `override: ...` or `default: ...`.
pub(super) fn applying(side: &Side, limit: &str, id: &str) -> String {
    match override_of(side, limit, id) {
        Some((_, numbers)) => format!("override: {numbers}"),
        None => format!("default: {}", default(side, limit)),
    }
}

/// What differs between the files in the kind of entry that applies to an id: behind the id, above its bar.
pub(super) fn kinds(now: &str, then: &str) -> String {
    let kind = |entry: &str| entry.split(':').next().unwrap_or_default().to_owned();
    match (kind(now), kind(then)) {
        (now, then) if now == then => String::new(),
        (now, then) => format!(", {now} now, {then} then"),
    }
}

/// The default numbers of a limit in a file.
pub(super) fn default(side: &Side, limit: &str) -> String {
    match side.engine.limits().limit(limit).map(|limit| limit.default_limit()) {
        Ok(Some(limit)) => words::limit(limit),
        Ok(None) => "no limit".into(),
        Err(_) => "has no such limit".into(),
    }
}

/// How many overrides a limit has in a file.
fn overrides(side: &Side, limit: &str) -> usize {
    side.engine.limits().limit(limit).map_or(0, |limit| limit.overrides().len())
}

/// How many overrides a limit has in a file, and how many of them applied: nothing where it has none.
pub(super) fn count(side: &Side, limit: &str) -> String {
    let all = overrides(side, limit);
    if all == 0 {
        return String::new();
    }
    let mut applied = BTreeSet::new();
    if let Some(number) = side.engine.known(limit) {
        let given = keys(side, number).map(|key| side.engine.override_of(limit, &key.normalized));
        applied.extend(given.flatten().map(|(id, _)| id));
    }
    let s = if all == 1 { "" } else { "s" };
    let (all, applied) = (words::number(all as u64), words::number(applied.len() as u64));
    format!("; {all} override{s}, {applied} of them applied")
}

/// The overrides of a limit that applied, those of the most lines first.
pub(super) fn applied(run: &Replayed<'_>, limit: &Shown) -> Markup {
    let mut rows: Vec<(String, Applied)> = by_override(run, limit).into_iter().collect();
    if rows.is_empty() {
        return html! {};
    }
    let lines = |applied: &Applied| applied.allowed + applied.denied;
    rows.sort_by(|(a, a_applied), (b, b_applied)| {
        lines(b_applied).cmp(&lines(a_applied)).then_with(|| a.cmp(b))
    });
    let left = rows.len().saturating_sub(MAX_SHOWN);
    let is_compared = run.candidate.is_some();
    let cells = rows.into_iter().take(MAX_SHOWN).map(|(id, applied)| {
        let or_default =
            |numbers: Option<String>| Cell::Words(numbers.unwrap_or("the default".into()));
        let mut cells = vec![Cell::Foreign(id), or_default(applied.now)];
        cells.extend(is_compared.then(|| or_default(applied.then)));
        cells.extend([applied.ids, applied.allowed, applied.denied].map(Cell::Count));
        cells.extend(is_compared.then_some(Cell::Count(applied.denied_then)));
        cells
    });
    let header: &[&str] = match is_compared {
        true => &[
            "override of",
            "limit now",
            "limit then",
            "ids",
            "allowed now",
            "denied now",
            "denied then",
        ],
        false => &["override of", "limit", "ids", "allowed", "denied"],
    };
    let table = Table {
        name: "overrides",
        limit: Some(&limit.name),
        label: "Overrides that applied",
        header,
        rows: cells.collect(),
    };
    html! {
        div.card {
            h3 { "Overrides that applied" }
            (table.markup())
            @if left > 0 { p.quiet { "And " (words::number(left as u64)) " more, of fewer lines." } }
        }
    }
}

fn by_override(run: &Replayed<'_>, limit: &Shown) -> BTreeMap<String, Applied> {
    let mut by_override: BTreeMap<String, Applied> = BTreeMap::new();
    let mut sides = [Some(run.side), run.candidate].into_iter().flatten();
    if sides.all(|side| overrides(side, &limit.name) == 0) {
        return by_override;
    }
    let mut add = |key: &Key, counts: [u64; 3]| {
        let of = |side| override_of(side, &limit.name, &key.normalized);
        let now = of(run.side);
        let then = run.candidate.and_then(of);
        let Some((id, _)) = now.as_ref().or(then.as_ref()) else { return };
        let applied = by_override.entry(id.clone()).or_default();
        applied.now = now.map(|(_, numbers)| numbers);
        applied.then = then.map(|(_, numbers)| numbers);
        applied.ids += 1;
        applied.allowed += counts[0];
        applied.denied += counts[1];
        applied.denied_then += counts[2];
    };
    if let Some(number) = limit.in_force {
        for key in keys(run.side, number) {
            let then = run.candidate.map_or(0, |it| it.denied(&limit.name, &key.normalized));
            add(key, [key.allowed, key.denied, then]);
        }
    } else if let Some((candidate, number)) = run.candidate.zip(limit.candidate) {
        for key in keys(candidate, number) {
            add(key, [0, 0, key.denied]);
        }
    }
    by_override
}

fn keys(side: &Side, limit: LimitNo) -> impl Iterator<Item = &Key> {
    side.tally.seen().map(|(key, _, _)| side.tally.get(key)).filter(move |key| key.limit == limit)
}
