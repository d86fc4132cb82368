//! `tollgate diff`: compares two sets of limits.

use std::collections::HashSet;
use std::time::SystemTime;

use serde::ser::{Serialize, Serializer};
use serde_json::json;
use tollgate::limits::{LimitEntry, OverrideEntry};
use tollgate::{Limit, Limits};

use crate::args::DiffArgs;
use crate::carry_over::{Buckets, CarryOver};
use crate::fields::{ALGORITHM, CONCURRENCY, Field, SHARING, fields, sharing};
use crate::output::{Destination, print, to_json};
use crate::{Failure, Outcome, diff_text, validate};

/// Overrides of a limit that are listed without `--all`.
const MAX_LISTED: usize = 20;

/// All differences. The order of the fields of this and its parts is that of the JSON.
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
    /// The format of the ids changes, and a reload refuses that.
    #[serde(rename = "refused")]
    RefusedFormat,
    /// Units become permits, or permits become units, and a reload refuses that.
    #[serde(rename = "refused")]
    RefusedPermits,
}

impl Change {
    fn new<T>(old: Option<T>, new: Option<T>) -> Change {
        match (old, new) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Changed,
        }
    }

    /// Returns why a reload refuses the new entry of a limit in place of the old one, if it does.
    fn refusal(old: &LimitEntry<'_>, new: &LimitEntry<'_>) -> Option<Change> {
        if old.format() != new.format() {
            return Some(Change::RefusedFormat);
        }
        let (from, to) = (old.algorithm()?, new.algorithm()?);
        ((from == CONCURRENCY) != (to == CONCURRENCY)).then_some(Change::RefusedPermits)
    }
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct LimitChange {
    pub(crate) limit: String,
    pub(crate) change: Change,
    pub(crate) fields: Vec<FieldChange>,
    /// The ids that the fields apply to.
    #[serde(rename = "for")]
    pub(crate) applies_to: &'static str,
    pub(crate) live_buckets: Option<String>,
    pub(crate) overrides: OverrideChanges,
}

/// A field that differs; `None` if an entry does not have it.
#[derive(Debug)]
pub(crate) struct FieldChange {
    pub(crate) old: Option<Field>,
    pub(crate) new: Option<Field>,
}

impl FieldChange {
    pub(crate) fn name(&self) -> &'static str {
        self.old.as_ref().or(self.new.as_ref()).map_or("", |field| field.name)
    }
}

impl Serialize for FieldChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = self.old.as_ref().or(self.new.as_ref()).map(Field::json_name);
        let json = |field: &Option<Field>| field.as_ref().map(|field| field.json.clone());
        json!({"field": name, "old": json(&self.old), "new": json(&self.new)}).serialize(serializer)
    }
}

#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct OverrideChanges {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) changed: usize,
    /// Sorted by id.
    #[serde(rename = "shown")]
    pub(crate) listed: Vec<OverrideChange>,
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct OverrideChange {
    pub(crate) id: String,
    pub(crate) change: Change,
    /// The ids that the override applies to.
    #[serde(rename = "for")]
    pub(crate) applies_to: &'static str,
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
    let differ = Differ { now: args.today.now(), carry_over: args.debt, lists_all: args.all };
    let difference = differ.difference(&old, &new);
    let text = match args.json {
        true => to_json(&difference),
        false => diff_text::text(&difference),
    };
    print(Destination::Stdout, &text)?;
    let is_found = args.exit_code && !difference.limits.is_empty();
    Ok(if is_found { Outcome::Found } else { Outcome::NothingFound })
}

/// Compares two sets of limits. Overrides that have expired do not count.
struct Differ {
    now: SystemTime,
    carry_over: CarryOver,
    lists_all: bool,
}

/// The ids that an account's override applies to.
pub(crate) const ACCOUNT: &str = "the account's ids without an override";
pub(crate) const NETWORK: &str = "the network's addresses without an override of a smaller one";

const OTHER_BUCKET: &str =
    "an address has another bucket: it starts full, or as it was when it last had it";
const EVERYONE: &str = "everyone";
const WITHOUT_OVERRIDE: &str = "everyone without an override";

impl Differ {
    /// Returns the changed limits: first those of the old set in its order, then the added ones.
    fn difference(&self, old: &Limits, new: &Limits) -> Difference {
        let new_names: HashSet<_> = new.names().collect();
        let old_names: HashSet<_> = old.names().collect();
        // `limit` also finds names of Boulder's that the file does not declare.
        let kept = old.entries().filter_map(|limit| {
            let name = limit.name();
            let new = new_names.contains(name).then(|| new.limit(name).ok()).flatten();
            self.limit(Some(limit), new)
        });
        let added = new.entries().filter(|limit| !old_names.contains(limit.name()));
        let added = added.filter_map(|limit| self.limit(None, Some(limit)));
        Difference { limits: kept.chain(added).collect() }
    }

    /// Compares the old and the new entry of a limit, of which one may be missing; returns `None` if they are
    /// the same.
    fn limit(
        &self,
        old: Option<LimitEntry<'_>>,
        new: Option<LimitEntry<'_>>,
    ) -> Option<LimitChange> {
        let [old_fields, new_fields] =
            [old, new].map(|limit| limit.map_or(Vec::new(), |limit| limit_fields(&limit)));
        let [old_default, new_default] =
            [old, new].map(|limit| limit.and_then(|limit| limit.default_limit()));
        let is_off = [old, new].into_iter().flatten().any(|limit| limit.is_disabled());
        let refusal = old.zip(new).and_then(|(old, new)| Change::refusal(&old, &new));
        let buckets = new.map_or(Buckets::Converted, |new| Buckets::new(old.as_ref(), &new));
        let mut change = LimitChange {
            limit: old.or(new)?.name().to_owned(),
            change: refusal.unwrap_or(Change::new(old, new)),
            applies_to: WITHOUT_OVERRIDE,
            live_buckets: buckets.effect(self.carry_over, old_default, new_default),
            overrides: OverrideChanges::default(),
            fields: changed_fields(&old_fields, &new_fields),
        };
        match (old, new) {
            (Some(old), None) => {
                change.applies_to = EVERYONE;
                change.overrides.removed = self.valid_overrides(old).count();
            }
            (None, Some(new)) => change.overrides.added = self.valid_overrides(new).count(),
            _ if refusal.is_some() => {
                change.applies_to = EVERYONE;
                change.live_buckets = None;
            }
            // A limit that is switched off has no overrides to compare.
            _ if is_off => change.applies_to = EVERYONE,
            (Some(old), Some(new)) => {
                change.applies_to = applies_to(&change.fields);
                change.overrides = self.overrides(old, new);
            }
            (None, None) => {}
        }
        let is_same = change.change == Change::Changed
            && change.fields.is_empty()
            && change.overrides.count() == 0;
        (!is_same).then_some(change)
    }

    fn is_valid(&self, entry: &OverrideEntry<'_>) -> bool {
        !entry.is_expired(self.now)
    }

    fn valid_overrides<'a>(
        &self,
        limit: LimitEntry<'a>,
    ) -> impl Iterator<Item = OverrideEntry<'a>> {
        limit.overrides().filter(|entry| self.is_valid(entry))
    }

    fn overrides(&self, old: LimitEntry<'_>, new: LimitEntry<'_>) -> OverrideChanges {
        let like = |limit: LimitEntry<'_>, entry: &OverrideEntry<'_>| {
            limit.override_like(entry).is_some_and(|like| self.is_valid(&like))
        };
        let changed = self.valid_overrides(old).filter_map(|before| {
            let after = new.override_like(&before).filter(|after| self.is_valid(after));
            let differ = after.is_none_or(|after| differ(&before, &after));
            differ.then(|| (before.id(), Some(before), after))
        });
        let added = self.valid_overrides(new).filter(|after| !like(old, after));
        let added = added.map(|after| (after.id(), None, Some(after)));
        let mut pairs: Vec<_> = changed.chain(added).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));

        let mut changes = OverrideChanges::default();
        for (_, before, after) in &pairs {
            match Change::new(before.as_ref(), after.as_ref()) {
                Change::Added => changes.added += 1,
                Change::Removed => changes.removed += 1,
                _ => changes.changed += 1,
            }
        }
        let max_listed = if self.lists_all { pairs.len() } else { MAX_LISTED };
        let listed = pairs
            .into_iter()
            .take(max_listed)
            .map(|(id, before, after)| self.override_change(id, (old, before), (new, after)));
        changes.listed = listed.collect();
        changes
    }

    fn override_change(
        &self,
        id: String,
        (old, before): (LimitEntry<'_>, Option<OverrideEntry<'_>>),
        (new, after): (LimitEntry<'_>, Option<OverrideEntry<'_>>),
    ) -> OverrideChange {
        let fields_of = |entry: Option<OverrideEntry<'_>>| {
            entry.map_or(Vec::new(), |entry| override_fields(&entry))
        };
        // The override that applies to the id: its own, else that of its account or of a network around it; `None` for the default.
        let applying = |limit: LimitEntry<'_>, entry: Option<OverrideEntry<'_>>| {
            let account = || limit.override_of_account(&before.or(after)?);
            let networks = || limit.overrides_around(&*before.or(after)?.id()).ok();
            let networks = || networks().into_iter().flatten();
            let mut others = account().into_iter().chain(networks());
            let given = entry.or_else(|| others.find(|other| self.is_valid(other)));
            let numbers = match given {
                Some(given) => given.limit().cloned(),
                None => limit.default_limit().cloned(),
            };
            (given.filter(OverrideEntry::is_of_network).map(|given| given.id()), numbers)
        };
        let applies_to = match before.or(after) {
            Some(entry) if entry.is_of_account() => ACCOUNT,
            Some(entry) if entry.is_of_network() => NETWORK,
            _ => "the id",
        };
        let buckets = Buckets::new(Some(&old), &new);
        let ((old_network, old), (network, new)) = (applying(old, before), applying(new, after));
        // Each network has buckets of its own.
        let live_buckets = match (&old, &new) {
            (Some(_), Some(_)) if old_network != network => Some(OTHER_BUCKET.into()),
            _ => buckets.effect(self.carry_over, old.as_ref(), new.as_ref()),
        };
        OverrideChange {
            id,
            change: Change::new(before, after),
            applies_to,
            fields: changed_fields(&fields_of(before), &fields_of(after)),
            live_buckets,
        }
    }
}

/// Returns whether two overrides differ in one of their [`override_fields`]. There may be millions of them,
/// so this allocates nothing.
fn differ(a: &OverrideEntry<'_>, b: &OverrideEntry<'_>) -> bool {
    a.limit() != b.limit()
        || (a.own_max_debt(), a.expires()) != (b.own_max_debt(), b.expires())
        || (a.comment(), a.owner()) != (b.comment(), b.owner())
}

const MODE: &str = "mode";
const MAX_DEBT: &str = "max_debt";
const FLOORS: &str = "floors";

/// Returns the ids that the changed fields of a default apply to. An override replaces the default's
/// parameters and its shadow limit; mode, `max_debt`, floors and the words of sharing also apply to ids with an override.
fn applies_to(fields: &[FieldChange]) -> &'static str {
    let is_sharing = |change: &FieldChange| SHARING.contains(&change.name());
    let is_for_everyone = |change: &FieldChange| {
        [MODE, MAX_DEBT, FLOORS].contains(&change.name()) || is_sharing(change)
    };
    match (fields.iter().all(is_for_everyone), fields.iter().any(is_for_everyone)) {
        (true, _) => EVERYONE,
        (false, false) => WITHOUT_OVERRIDE,
        (false, true) if fields.iter().any(|change| change.name() == FLOORS) => {
            "everyone without an override; mode, max_debt, floors and the words of sharing for everyone"
        }
        (false, true) if fields.iter().any(is_sharing) => {
            "everyone without an override; mode, max_debt and the words of sharing for everyone"
        }
        (false, true) => "everyone without an override; mode and max_debt for everyone",
    }
}

/// Returns the fields of a limit and its default.
fn limit_fields(limit: &LimitEntry<'_>) -> Vec<Field> {
    let mut all = vec![Field::text("id", limit.format())];
    match limit.is_disabled() {
        true => all.push(Field::flag("enabled", false)),
        false => all.extend(parameters(limit.default_limit())),
    }
    all.push(Field::text(MODE, limit.mode()));
    all.extend(limit.shadow().map(|shadow| Field::limit("shadow", shadow)));
    all.push(Field::units(MAX_DEBT, limit.max_debt()));
    all.extend(limit.max_keys().map(|keys| Field::units("max_keys", keys as u64)));
    let floors: Vec<String> =
        limit.floors().map(|(name, floor)| format!("{name} {floor}")).collect();
    if !floors.is_empty() {
        all.push(Field::text(FLOORS, floors.join(", ")));
    }
    all.extend(sharing(limit));
    all
}

/// Returns the fields of an override, without the algorithm: it is the same as the default's.
fn override_fields(entry: &OverrideEntry<'_>) -> Vec<Field> {
    let mut all = parameters(entry.limit());
    all.retain(|field| field.name != ALGORITHM);
    all.extend(entry.own_max_debt().map(|units| Field::units(MAX_DEBT, units)));
    all.extend(entry.comment().map(|text| Field::text("comment", text)));
    all.extend(entry.owner().map(|text| Field::text("owner", text)));
    all.extend(entry.last_day().map(|day| Field::text("expires", day)));
    all
}

fn parameters(limit: Option<&Limit>) -> Vec<Field> {
    limit.map_or_else(|| vec![Field::text("numbers", "no limit")], fields)
}

/// Returns the fields that differ: first those of `old` in their order, then the added ones.
fn changed_fields(old: &[Field], new: &[Field]) -> Vec<FieldChange> {
    let find =
        |fields: &[Field], name: &str| fields.iter().find(|field| field.name == name).cloned();
    let removed_or_changed = old.iter().map(|field| (Some(field.clone()), find(new, field.name)));
    let added = new.iter().filter(|field| find(old, field.name).is_none());
    let added = added.map(|field| (None, Some(field.clone())));
    let all = removed_or_changed.chain(added).filter(|(old, new)| old != new);
    // Of an added or a removed limit, that it is local says nothing.
    let all = all.filter(
        |change| !matches!(change, (Some(one), None) | (None, Some(one)) if one.is_local()),
    );
    all.map(|(old, new)| FieldChange { old, new }).collect()
}
