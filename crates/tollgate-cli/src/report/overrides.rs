//! Formats the table of the overrides that applied to ids of the traffic.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use tollgate::Limit;
use tollgate::limits::Location;

use super::page::Run;
use super::sections::PageLimit;
use super::tables::{Cell, Table};
use crate::engine::LimitNo;
use crate::escape::Escaped;
use crate::side::Side;
use crate::tally::Key;
use crate::text::{counted_grouped, grouped};

/// Overrides of a limit in its table.
const MAX_ROWS: usize = 20;

/// The lines of the ids that an override applies to, in at least one of the files.
#[derive(Debug, Default)]
struct Applied {
    /// The override's limit under the limits in force and under the candidate; `None` if the default applies.
    now: Option<String>,
    then: Option<String>,
    ids: u64,
    allowed: u64,
    denied: u64,
    denied_then: u64,
}

/// Returns the override that applies to an id: its own id, and its limit and place as text.
fn override_of(side: &Side, limit: &str, id: &str) -> Option<(String, String)> {
    let (override_id, limit, place) = side.engine.override_of(limit, id)?;
    let limit = limit.as_ref().map_or("no limit".into(), Limit::to_string);
    Some((override_id, limit + &at(place)))
}

fn at(place: Option<Location>) -> String {
    place.map(|place| format!(", at {place}")).unwrap_or_default()
}

/// Formats the entry that applies to an id, as `override: ...` or `default: ...`.
pub(super) fn entry(side: &Side, limit: &str, id: &str) -> String {
    match override_of(side, limit, id) {
        Some((_, limit)) => format!("override: {limit}"),
        None => {
            let place = side.engine.limits().limit(limit).ok().and_then(|limit| limit.location());
            format!("default: {}{}", default(side, limit), at(place))
        }
    }
}

/// Formats the kinds of two [entries](entry), such as `, override now, default then`, if they differ.
pub(super) fn kinds(now: &str, then: &str) -> String {
    let kind = |entry: &str| entry.split(':').next().unwrap_or_default().to_owned();
    match (kind(now), kind(then)) {
        (now, then) if now == then => String::new(),
        (now, then) => format!(", {now} now, {then} then"),
    }
}

/// Formats the default of a limit.
pub(super) fn default(side: &Side, limit: &str) -> String {
    match side.engine.limits().limit(limit).map(|limit| limit.default_limit().cloned()) {
        Ok(Some(limit)) => limit.to_string(),
        Ok(None) => "no limit".into(),
        Err(_) => "has no such limit".into(),
    }
}

fn overrides(side: &Side, limit: &str) -> usize {
    side.engine.limits().limit(limit).map_or(0, |limit| limit.overrides().len())
}

/// Formats the number of overrides, and how many of them applied, if the limit has overrides.
pub(super) fn count(side: &Side, limit: &str) -> String {
    let all = overrides(side, limit);
    if all == 0 {
        return String::new();
    }
    let number = side.engine.known(limit);
    let keys = number.into_iter().flat_map(|number| keys(side, number));
    let applied = keys.filter_map(|key| side.engine.override_of(limit, &key.normalized));
    let applied: BTreeSet<String> = applied.map(|(id, ..)| id).collect();
    let all = counted_grouped(all as u64, "override");
    let files = match &*files(side, limit).into_iter().collect::<Vec<_>>() {
        [] => String::new(),
        files => format!(", in {}", files.join(" and ")),
    };
    format!("; {all}, {} of them applied{files}", grouped(applied.len() as u64))
}

/// Returns the files that have overrides of a limit.
fn files(side: &Side, limit: &str) -> BTreeSet<String> {
    let limits = side.engine.limits();
    let overrides = limits.limit(limit).into_iter().flat_map(|limit| limit.overrides());
    let files = overrides.filter_map(|entry| entry.location()).map(|place| place.file);
    files.map(|file| Escaped(&file).to_string()).collect()
}

/// Formats the overrides of a limit that applied, sorted by their number of lines.
pub(super) fn applied(run: &Run<'_>, limit: &PageLimit) -> Markup {
    let mut rows: Vec<(String, Applied)> = by_override(run, limit).into_iter().collect();
    if rows.is_empty() {
        return html! {};
    }
    // Ties stay sorted by id.
    rows.sort_by_key(|(_, applied)| std::cmp::Reverse(applied.allowed + applied.denied));
    let rest = rows.len().saturating_sub(MAX_ROWS);
    let is_compared = run.candidate.is_some();
    let rows = rows.into_iter().take(MAX_ROWS).map(|(id, applied)| {
        let Applied { now, then, ids, allowed, denied, denied_then } = applied;
        let or_default = |limit: Option<String>| Cell::Words(limit.unwrap_or("the default".into()));
        let mut cells = vec![Cell::Foreign(id), or_default(now)];
        cells.extend(is_compared.then(|| or_default(then)));
        cells.extend([ids, allowed, denied].map(Cell::Count));
        cells.extend(is_compared.then_some(Cell::Count(denied_then)));
        cells
    });
    let header = match is_compared {
        true => "override of|limit now|limit then|ids|allowed now|denied now|denied then",
        false => "override of|limit|ids|allowed|denied",
    };
    let table = Table {
        name: "overrides",
        limit: Some(&limit.name),
        label: "Overrides that applied",
        header: header.split('|').collect(),
        rows: rows.collect(),
    };
    html! {
        div.card {
            h3 { "Overrides that applied" }
            (table.markup())
            @if rest > 0 { p.quiet { "And " (grouped(rest as u64)) " more, of fewer lines." } }
        }
    }
}

fn by_override(run: &Run<'_>, limit: &PageLimit) -> BTreeMap<String, Applied> {
    let mut by_override: BTreeMap<String, Applied> = BTreeMap::new();
    let candidate = run.candidate_side();
    let mut sides = [Some(run.side), candidate].into_iter().flatten();
    if sides.all(|side| overrides(side, &limit.name) == 0) {
        return by_override;
    }
    let mut add = |key: &Key, [allowed, denied, denied_then]: [u64; 3]| {
        let find = |side| override_of(side, &limit.name, &key.normalized);
        let (now, then) = (find(run.side), candidate.and_then(find));
        let Some((id, _)) = now.as_ref().or(then.as_ref()) else { return };
        let applied = by_override.entry(id.clone()).or_default();
        applied.now = now.map(|(_, limit)| limit);
        applied.then = then.map(|(_, limit)| limit);
        applied.ids += 1;
        applied.allowed += allowed;
        applied.denied += denied;
        applied.denied_then += denied_then;
    };
    if let Some(number) = limit.in_force {
        for key in keys(run.side, number) {
            let then = candidate.map_or(0, |side| side.denied(&limit.name, &key.normalized));
            add(key, [key.allowed, key.denied, then]);
        }
    } else if let Some((side, number)) = candidate.zip(limit.candidate) {
        keys(side, number).for_each(|key| add(key, [0, 0, key.denied]));
    }
    by_override
}

fn keys(side: &Side, limit: LimitNo) -> impl Iterator<Item = &Key> {
    side.tally.seen().map(|(_, key)| key).filter(move |key| key.limit == limit)
}
