//! Explains which entry applies to an id, and why similar entries do not.

use std::time::SystemTime;

use super::Limits;
use super::entries::{LimitEntry, OverrideEntry};
use super::similar_ids::{self, NEAR_MAX, near_entry};
use crate::error::Error;
use crate::limits::explanation::{Applies, Explanation, NearEntry, WhyNot};
use crate::limits::{Id, Scratch, format};

impl Limits {
    /// Explains which entry applies to an id at `now`, and why others do not that a reader may take for it.
    ///
    /// The others are the entries that are less specific or have expired, and overrides of similar ids: ids that differ
    /// in case or in one place, or are in the same network, domain or account. The search for similar ids looks at every
    /// override of the limit, so do not call it for each request.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for an unknown name, [`Error::is_invalid_id`] for an id that does not have the
    /// limit's format.
    ///
    /// # Example: an override of another user
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tollgate::limits::{Applies, WhyNot};
    /// use tollgate::{IdFormat, Limit, Limits};
    ///
    /// let minute = Duration::from_secs(60);
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, Limit::new(20, 60, minute)?)?
    ///     .override_id("PerUser", "Alice", Limit::new(200, 600, minute)?)?
    ///     .build();
    /// let explanation = limits.explain("PerUser", "alice", SystemTime::now())?;
    /// assert_eq!(explanation.applies, Applies::Default);
    /// assert_eq!(explanation.near[0].why, WhyNot::Case);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn explain<'i>(
        &self,
        name: &str,
        id: impl Into<Id<'i>>,
        now: SystemTime,
    ) -> Result<Explanation, Error> {
        let limit = self.limit(name)?;
        let mut scratch = Scratch::new();
        let id = format::encode(limit.format(), id.into(), &mut scratch)?;
        let account = format::account_of(limit.format(), id);
        let of_account = account.and_then(|account| limit.override_at(account));

        // The overrides in the order in which a look-up tries them.
        let mut applied = None;
        let mut near = Vec::new();
        for given in [limit.override_at(id), of_account]
            .into_iter()
            .flatten()
            .chain(limit.overrides_around_id(id))
        {
            if let Some(last_day) = given.last_day().filter(|_| given.is_expired(now)) {
                near.push(near_entry(&given, WhyNot::Expired(last_day)));
            } else if applied.is_some() {
                near.push(near_entry(&given, WhyNot::LessSpecific));
            } else {
                applied = Some(given);
            }
        }
        if applied.is_some() && limit.has_default() {
            near.push(NearEntry {
                id: None,
                location: limit.location(),
                limit: limit.default_limit().cloned(),
                why: WhyNot::LessSpecific,
            });
        }
        near.extend(similar_ids::find(&limit, id, NEAR_MAX.saturating_sub(near.len())));
        Ok(Explanation { near, ..explain_entry(&limit, id, applied) })
    }
}

/// Explains the override that applies, or the default.
fn explain_entry(
    limit: &LimitEntry<'_>,
    id: &[u8],
    applied: Option<OverrideEntry<'_>>,
) -> Explanation {
    let applies = match &applied {
        Some(given) if given.id_bytes() == id => Applies::Override,
        Some(given) if given.is_of_network() => Applies::Network,
        Some(_) => Applies::Account,
        None if limit.is_disabled() => Applies::Disabled,
        None if limit.has_default() => Applies::Default,
        None => Applies::Nothing,
    };
    let default = Explanation {
        name: limit.name().into(),
        id: format::decode(limit.format(), id),
        format: limit.format(),
        applies,
        network: None,
        location: limit.location(),
        limit: limit.default_limit().cloned(),
        mode: limit.mode(),
        sharing: limit.entry().options.sharing,
        shadow: limit.shadow().cloned(),
        max_debt: limit.max_debt(),
        floors: limit.floors().map(|(name, floor)| (name.to_owned(), floor)).collect(),
        comment: None,
        owner: None,
        last_day: None,
        near: Vec::new(),
        call: None,
    };
    match applied {
        None => default,
        Some(given) => Explanation {
            network: given.is_of_network().then(|| given.id()),
            location: given.location(),
            limit: given.limit().cloned(),
            // A shadow is tried beside the default only.
            shadow: None,
            max_debt: given.max_debt(),
            comment: given.comment().map(str::to_owned),
            owner: given.owner().map(str::to_owned),
            last_day: given.last_day(),
            ..default
        },
    }
}
