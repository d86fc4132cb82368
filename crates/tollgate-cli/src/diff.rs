//! `tollgate diff`: what changes from one set of limits to another, for whom, and for live buckets.

use std::collections::HashSet;
use std::time::SystemTime;

use serde::ser::{Serialize, SerializeStruct, Serializer};
use tollgate::limits::{LimitEntry, OverrideEntry};
use tollgate::{Limit, Limits};

use crate::args::DiffArgs;
use crate::debt::DebtRule;
use crate::numbers::{self, Number, numbers};
use crate::output::{Destination, print, to_json};
use crate::{Failure, Outcome, diff_text, validate};

/// Overrides of a limit that are shown without `--all`.
const MAX_SHOWN: usize = 20;

/// What changes. The field order of this and what is in it is that of the JSON.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Difference {
    pub(crate) limits: Vec<LimitChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    Added,
    Removed,
    Changed,
    /// The ids have another format: a reload refuses the file.
    Refused,
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct LimitChange {
    pub(crate) limit: String,
    pub(crate) change: Change,
    pub(crate) fields: Vec<FieldChange>,
    /// Whom the fields are for.
    #[serde(rename = "for")]
    pub(crate) for_whom: &'static str,
    pub(crate) live_buckets: Option<String>,
    pub(crate) overrides: OverrideChanges,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FieldChange {
    pub(crate) field: &'static str,
    /// `None`: it was not there.
    pub(crate) old: Option<Value>,
    pub(crate) new: Option<Value>,
}

/// What a field has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Flag(bool),
    Number(Number),
    Limit(Limit),
}

impl Value {
    /// The value as people read it.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Flag(flag) => flag.to_string(),
            Value::Number(number) => number.to_text(),
            Value::Limit(limit) => limit.to_string(),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Text(text) => serializer.serialize_str(text),
            Value::Flag(flag) => serializer.serialize_bool(*flag),
            Value::Number(number) => serializer.serialize_u64(number.to_u64()),
            Value::Limit(limit) => numbers::to_json(Some(limit)).serialize(serializer),
        }
    }
}

impl Serialize for FieldChange {
    /// The name of a time says its unit.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let FieldChange { field, old, new } = self;
        let name = match old.as_ref().or(new.as_ref()) {
            Some(Value::Number(number)) => number.json_name(field),
            _ => (*field).to_owned(),
        };
        let mut object = serializer.serialize_struct("FieldChange", 3)?;
        object.serialize_field("field", &name)?;
        object.serialize_field("old", old)?;
        object.serialize_field("new", new)?;
        object.end()
    }
}

#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct OverrideChanges {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) changed: usize,
    /// In the order of their ids.
    pub(crate) shown: Vec<OverrideChange>,
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct OverrideChange {
    pub(crate) id: String,
    pub(crate) change: Change,
    /// Whom it is for.
    #[serde(rename = "for")]
    pub(crate) for_whom: &'static str,
    pub(crate) fields: Vec<FieldChange>,
    pub(crate) live_buckets: Option<String>,
}

impl OverrideChanges {
    pub(crate) fn count(&self) -> usize {
        self.added + self.removed + self.changed
    }
}

pub(crate) fn run(args: &DiffArgs) -> Result<Outcome, Failure> {
    let old = validate::load(&args.old_files())?;
    let new = validate::load(&args.new_files())?;
    let asked = Asked { now: args.today.now(), debt: args.debt, shows_all: args.all };
    let difference = asked.difference(&old, &new);
    let text = match args.json {
        true => to_json(&difference),
        false => diff_text::text(&difference),
    };
    print(Destination::Stdout, &text)?;
    let differs = args.exit_code && !difference.limits.is_empty();
    Ok(if differs { Outcome::Found } else { Outcome::NothingFound })
}

/// What is asked of two sets of limits.
struct Asked {
    now: SystemTime,
    debt: DebtRule,
    shows_all: bool,
}

/// Whom an account's override is for.
pub(crate) const ACCOUNT: &str = "the account's ids without an override";

const EVERYONE: &str = "everyone without an override";

impl Asked {
    /// The limits that change: the old ones in their order, then those that are new.
    fn difference(&self, old: &Limits, new: &Limits) -> Difference {
        let (old_names, new_names): (HashSet<_>, HashSet<_>) =
            (old.names().collect(), new.names().collect());
        let mut changes = Vec::new();
        for limit in old.entries() {
            let is_there = new_names.contains(limit.name());
            let after = new.limit(limit.name()).ok().filter(|_| is_there);
            changes.extend(match after {
                Some(after) => self.changed(limit, after),
                None => Some(self.gone(limit)),
            });
        }
        for limit in new.entries().filter(|limit| !old_names.contains(limit.name())) {
            changes.push(self.come(limit));
        }
        Difference { limits: changes }
    }

    fn gone(&self, old: LimitEntry<'_>) -> LimitChange {
        let removed = old.overrides().filter(|given| !given.is_expired(self.now)).count();
        LimitChange {
            limit: old.name().into(),
            change: Change::Removed,
            fields: changed_fields(&terms(&old), &[]),
            for_whom: "everyone",
            live_buckets: self.debt.effect(old.default_limit(), None),
            overrides: OverrideChanges { removed, ..OverrideChanges::default() },
        }
    }

    fn come(&self, new: LimitEntry<'_>) -> LimitChange {
        let added = new.overrides().filter(|given| !given.is_expired(self.now)).count();
        LimitChange {
            limit: new.name().into(),
            change: Change::Added,
            fields: changed_fields(&[], &terms(&new)),
            for_whom: EVERYONE,
            live_buckets: self.debt.effect(None, new.default_limit()),
            overrides: OverrideChanges { added, ..OverrideChanges::default() },
        }
    }

    fn changed(&self, old: LimitEntry<'_>, new: LimitEntry<'_>) -> Option<LimitChange> {
        let fields = changed_fields(&terms(&old), &terms(&new));
        if old.format() != new.format() {
            return Some(LimitChange {
                limit: old.name().into(),
                change: Change::Refused,
                fields,
                for_whom: "everyone",
                live_buckets: None,
                overrides: OverrideChanges::default(),
            });
        }
        // A limit that is off has no overrides to compare.
        let is_off = old.is_disabled() || new.is_disabled();
        let overrides = match is_off {
            true => OverrideChanges::default(),
            false => self.overrides(old, new),
        };
        if fields.is_empty() && overrides.count() == 0 {
            return None;
        }
        Some(LimitChange {
            limit: old.name().into(),
            change: Change::Changed,
            for_whom: match is_off {
                true => "everyone",
                false => for_whom(&fields),
            },
            fields,
            live_buckets: self.debt.effect(old.default_limit(), new.default_limit()),
            overrides,
        })
    }

    /// Overrides that have expired are as if they were not there.
    fn overrides(&self, old: LimitEntry<'_>, new: LimitEntry<'_>) -> OverrideChanges {
        let applies = |given: &OverrideEntry<'_>| !given.is_expired(self.now);
        let mut pairs = Vec::new();
        for before in old.overrides().filter(applies) {
            let after = new.override_like(&before).filter(applies);
            if after.is_none_or(|after| differ(&before, &after)) {
                pairs.push((before.id(), Some(before), after));
            }
        }
        for after in new.overrides().filter(applies) {
            if old.override_like(&after).filter(applies).is_none() {
                pairs.push((after.id(), None, Some(after)));
            }
        }
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        let mut changes = OverrideChanges::default();
        for (_, before, after) in &pairs {
            match (before, after) {
                (None, _) => changes.added += 1,
                (_, None) => changes.removed += 1,
                _ => changes.changed += 1,
            }
        }
        let most = if self.shows_all { pairs.len() } else { MAX_SHOWN };
        let shown = pairs.into_iter().take(most);
        changes.shown =
            shown.map(|(id, before, after)| self.one(id, (old, before), (new, after))).collect();
        changes
    }

    fn one(
        &self,
        id: String,
        (old, before): (LimitEntry<'_>, Option<OverrideEntry<'_>>),
        (new, after): (LimitEntry<'_>, Option<OverrideEntry<'_>>),
    ) -> OverrideChange {
        let change = match (before, after) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Changed,
        };
        let given =
            |given: Option<OverrideEntry<'_>>| given.map(|given| notes(&given)).unwrap_or_default();
        // What applied before, and what will: with another override or the default in its place.
        let of = |limit: LimitEntry<'_>, given: Option<OverrideEntry<'_>>| match given {
            Some(given) => given.numbers().cloned(),
            None => self.instead(limit, before.or(after)),
        };
        let is_of_account = before.or(after).is_some_and(|given| given.is_of_account());
        OverrideChange {
            id,
            change,
            for_whom: if is_of_account { ACCOUNT } else { "the id" },
            fields: changed_fields(&given(before), &given(after)),
            live_buckets: self.debt.effect(of(old, before).as_ref(), of(new, after).as_ref()),
        }
    }

    /// The numbers for an id that has no override there.
    fn instead(&self, limit: LimitEntry<'_>, of: Option<OverrideEntry<'_>>) -> Option<Limit> {
        let account = of.and_then(|given| limit.override_of_account(&given));
        match account.filter(|account| !account.is_expired(self.now)) {
            Some(account) => account.numbers().cloned(),
            None => limit.default_limit().cloned(),
        }
    }
}

/// Whether two overrides of an id differ in anything that [`notes`] shows: there may be millions.
fn differ(a: &OverrideEntry<'_>, b: &OverrideEntry<'_>) -> bool {
    let beside = |given: &OverrideEntry<'_>| (given.own_max_debt(), given.expires());
    a.numbers() != b.numbers()
        || beside(a) != beside(b)
        || (a.comment(), a.owner()) != (b.comment(), b.owner())
}

const ALGORITHM: &str = "algorithm";
const MODE: &str = "mode";
const SHADOW: &str = "shadow";
const MAX_DEBT: &str = "max_debt";

/// Whom the changes of a limit that is on are for: overrides have numbers of their own, which stand in the
/// place of what is tried beside the default's, too.
fn for_whom(fields: &[FieldChange]) -> &'static str {
    let is_beside = |change: &FieldChange| [MODE, MAX_DEBT].contains(&change.field);
    match (fields.iter().all(is_beside), fields.iter().any(is_beside)) {
        (true, _) => "everyone",
        (false, false) => EVERYONE,
        (false, true) => "everyone without an override; mode and max_debt for everyone",
    }
}

type Fields = Vec<(&'static str, Value)>;

/// What a default says.
fn terms(limit: &LimitEntry<'_>) -> Fields {
    let mut fields = vec![("id", Value::Text(limit.format().to_string()))];
    match limit.is_disabled() {
        true => fields.push(("enabled", Value::Flag(false))),
        false => fields.extend(of_numbers(limit.default_limit())),
    }
    fields.push((MODE, Value::Text(limit.mode().to_string())));
    fields.extend(limit.shadow().map(|shadow| (SHADOW, Value::Limit(shadow.clone()))));
    fields.push((MAX_DEBT, units(limit.max_debt())));
    fields
}

/// What an override says.
fn notes(given: &OverrideEntry<'_>) -> Fields {
    // One limit has one algorithm: its default says which.
    let mut fields = of_numbers(given.numbers());
    fields.retain(|(field, _)| *field != ALGORITHM);
    fields.extend(given.own_max_debt().map(|debt| (MAX_DEBT, units(debt))));
    fields.extend(given.comment().map(|text| ("comment", Value::Text(text.to_owned()))));
    fields.extend(given.owner().map(|text| ("owner", Value::Text(text.to_owned()))));
    fields.extend(given.last_day().map(|day| ("expires", Value::Text(day))));
    fields
}

fn units(units: u64) -> Value {
    Value::Number(Number::Units(units))
}

fn of_numbers(limit: Option<&Limit>) -> Fields {
    let Some(limit) = limit else { return vec![("numbers", Value::Text("no limit".into()))] };
    let algorithm = Value::Text(limit.algorithm().to_owned());
    let numbers = numbers(limit).into_iter().map(|(name, number)| (name, Value::Number(number)));
    std::iter::once((ALGORITHM, algorithm)).chain(numbers).collect()
}

/// The fields that differ: in the old order, then those that are new.
fn changed_fields(
    old: &[(&'static str, Value)],
    new: &[(&'static str, Value)],
) -> Vec<FieldChange> {
    let of = |fields: &[(&str, Value)], name: &str| {
        fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone())
    };
    let mut seen = HashSet::new();
    let names = old.iter().chain(new).map(|(name, _)| *name).filter(|name| seen.insert(*name));
    names
        .map(|field| FieldChange { field, old: of(old, field), new: of(new, field) })
        .filter(|change| change.old != change.new)
        .collect()
}
