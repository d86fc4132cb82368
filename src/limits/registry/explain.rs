//! Which entry applies to an id, and which do not though they may look like it.

use std::time::SystemTime;

use super::entries::{LimitEntry, OverrideEntry};
use super::{Limits, near};
use crate::error::Error;
use crate::limits::explanation::{Applies, Explanation, NearEntry, WhyNot};
use crate::limits::{Id, Scratch, format};

/// The most entries that are shown beside the one that applies.
pub(super) const NEAR_MAX: usize = 8;

impl Limits {
    /// Which entry applies to an id, and why nearer-looking ones do not. `now` is the time by which
    /// overrides have expired.
    ///
    /// Beside the entries that a look-up passes over it shows overrides of ids that may have been meant:
    /// those that differ in case or in one place, or are in the same network, domain or account. They
    /// are found by a look at every override of the limit: not for a request's way.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name that is not known, [`Error::is_invalid_id`] for an id that is
    /// not of the limit's format.
    ///
    /// # Example: an override for somebody else
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
        let chain = Chain::of(&limit, id, now);
        let mut explanation = match chain.applied() {
            Some(given) => of_override(&limit, id, &given),
            None => of_default(&limit, id),
        };
        explanation.near = chain.passed_over(&limit, &explanation);
        let left = NEAR_MAX.saturating_sub(explanation.near.len());
        explanation.near.extend(near::ids(&limit, id, left));
        Ok(explanation)
    }
}

/// The overrides that a look-up asks for, the most specific first.
struct Chain<'a> {
    overrides: [Option<OverrideEntry<'a>>; 2],
    now: SystemTime,
}

impl<'a> Chain<'a> {
    fn of(limit: &LimitEntry<'a>, id: &[u8], now: SystemTime) -> Chain<'a> {
        let account = format::account_of(limit.format(), id);
        let of_account = account.and_then(|account| limit.override_at(account));
        Chain { overrides: [limit.override_at(id), of_account], now }
    }

    /// The first that has not ended.
    fn applied(&self) -> Option<OverrideEntry<'a>> {
        self.overrides.iter().flatten().find(|given| !given.is_expired(self.now)).copied()
    }

    /// Those that do not apply, and the default where an override does.
    fn passed_over(&self, limit: &LimitEntry<'_>, explanation: &Explanation) -> Vec<NearEntry> {
        let mut near = Vec::new();
        let mut has_applied = false;
        for given in self.overrides.iter().flatten() {
            let why = match given.last_day().filter(|_| given.is_expired(self.now)) {
                Some(last_day) => WhyNot::Expired(last_day),
                None if has_applied => WhyNot::LessSpecific,
                None => {
                    has_applied = true;
                    continue;
                }
            };
            near.push(near_entry(given, why));
        }
        let is_overridden = matches!(explanation.applies, Applies::Override | Applies::Account);
        if is_overridden && limit.has_default() {
            near.push(NearEntry {
                id: None,
                location: limit.location(),
                numbers: limit.default_numbers().cloned(),
                why: WhyNot::LessSpecific,
            });
        }
        near
    }
}

pub(super) fn near_entry(given: &OverrideEntry<'_>, why: WhyNot) -> NearEntry {
    NearEntry {
        id: Some(given.id()),
        location: given.location(),
        numbers: given.numbers().cloned(),
        why,
    }
}

fn of_override(limit: &LimitEntry<'_>, id: &[u8], given: &OverrideEntry<'_>) -> Explanation {
    let is_own = given.id_bytes() == id;
    Explanation {
        applies: if is_own { Applies::Override } else { Applies::Account },
        location: given.location(),
        numbers: given.numbers().cloned(),
        // Tried beside the default's alone.
        shadow: None,
        max_debt: given.max_debt(),
        comment: given.comment().map(str::to_owned),
        owner: given.owner().map(str::to_owned),
        last_day: given.last_day(),
        ..of_default(limit, id)
    }
}

fn of_default(limit: &LimitEntry<'_>, id: &[u8]) -> Explanation {
    let applies = match () {
        () if limit.is_disabled() => Applies::Disabled,
        () if limit.has_default() => Applies::Default,
        () => Applies::Nothing,
    };
    Explanation {
        limit: limit.name().into(),
        id: format::decode(limit.format(), id),
        format: limit.format(),
        applies,
        location: limit.location(),
        numbers: limit.default_numbers().cloned(),
        mode: limit.mode(),
        shadow: limit.shadow().cloned(),
        max_debt: limit.max_debt(),
        comment: None,
        owner: None,
        last_day: None,
        near: Vec::new(),
        call: None,
    }
}
