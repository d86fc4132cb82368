//! Writes the fields of each style.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{Entry, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Answer, Item};
use crate::decision::Decision;
use crate::http::Policy;
use crate::http::names::PlugLimitNames;
use crate::http::retry_after::{milliseconds, retry_after, seconds};
use crate::http::structured::{
    PARTITION, is_list, push_bytes_parameter, push_integer, push_parameter, separate,
};
use crate::http::style;
use crate::http::style::{Reset, Style};
use crate::http::text::{number, value_of};

/// Returns whether the existing fields of a style are at least as strict as the answer with its `remaining` units. Fields are
/// compared as [`Answer::strictest`] compares limits: a denial, then a longer wait, then fewer units. Existing fields with
/// units left tell no wait. Fields without a number of remaining units never are as strict.
pub(super) fn existing_is_as_strict(
    (headers, style, already_denied): (&HeaderMap, &Style, bool),
    answer: &Answer<'_>,
    remaining: u64,
    now: SystemTime,
) -> bool {
    let existing = text_of(style.remaining_in(headers)).and_then(|text| text.parse::<u64>().ok());
    let Some(existing) = existing else { return false };
    let existing_waits = already_denied || existing == 0;
    let existing_ms = text_of(style.time_in(headers)).filter(|_| existing_waits);
    let existing_ms = existing_ms.and_then(milliseconds_of).unwrap_or(0);
    let (decision, own) = (&answer.decision, answer.alone());
    let waits = !decision.allowed() || remaining == 0 || !decision.retry_in().is_zero();
    let next_in = || own.strictest().map_or(Duration::ZERO, |strictest| own.next_in(strictest));
    let wait_ms = match style {
        _ if !waits => 0,
        Style::XRateLimit(reset) => reset_value(*reset, next_in(), now).saturating_mul(1000),
        Style::PlugLimit(_) => seconds(own.full_in()).saturating_mul(1000),
        Style::Sharkey => milliseconds(own.full_in()),
        _ => seconds(next_in()).saturating_mul(1000),
    };
    (already_denied, existing_ms, Reverse(existing))
        >= (!decision.allowed(), wait_ms, Reverse(remaining))
}

fn text_of(value: Option<&HeaderValue>) -> Option<&str> {
    value?.to_str().ok()
}

/// Returns the time of a field in milliseconds: whole seconds, or seconds with decimals, of which three count.
fn milliseconds_of(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let seconds: u64 = seconds.parse().ok()?;
    let ms: u64 = format!("{decimals:0<3}").get(..3)?.parse().ok()?;
    Some(seconds.saturating_mul(1000).saturating_add(ms))
}

/// Replaces a field. Without a value it stays as it is.
pub(super) fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        // A map that has its maximum of 24,576 entries refuses the field, and the response goes out without it.
        let _ = headers.try_insert(name, value);
    }
}

/// Appends a list's members to a field, on one line, because some clients read only the first.
pub(super) fn append(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    let Some(value) = value else { return };
    // A full map refuses the field, as in `put`.
    match headers.try_entry(name) {
        Ok(Entry::Vacant(entry)) => {
            let _ = entry.try_insert(value);
        }
        Ok(Entry::Occupied(mut entry)) => {
            if let Some(all) = joined(entry.iter().chain([&value])) {
                entry.insert(all);
            }
        }
        Err(_) => {}
    }
}

/// Joins the members of several lists. A line that is no list, such as a service's own, is left out: clients must ignore the
/// whole field for it (RFC 9651, 4.2), with the members of the other lines.
fn joined<'v>(lists: impl Iterator<Item = &'v HeaderValue>) -> Option<HeaderValue> {
    let mut joined = Vec::new();
    for list in lists.map(|list| list.as_bytes().trim_ascii()) {
        if list.is_empty() || !is_list(list) {
            continue;
        }
        if !joined.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(list);
    }
    HeaderValue::from_bytes(&joined).ok()
}

/// Returns the item whose policy already has the values to write: the only one, if it has no partition key.
fn item_of_policy<'i, 'a>(answer: &'i Answer<'a>) -> Option<&'i Item<'a>> {
    answer.only_item().filter(|item| item.partition.is_none())
}

pub(super) fn write_ietf(headers: &mut HeaderMap, answer: &Answer<'_>) {
    let policies = match (item_of_policy(answer), answer.lists) {
        (Some(item), _) => Some(item.policy.values.ietf.clone()),
        (None, Some(lists)) => lists.ietf.clone(),
        (None, None) => answer.ietf_list(),
    };
    append(headers, style::RATELIMIT_POLICY, policies);
    let limits = value_of(|text| {
        for item in answer.items() {
            separate(text);
            let decision = &item.decision;
            // In a denied call, a limit that allows it has no `t`, which would differ from `Retry-After`. Exception: the service
            // denied the call, no wait is known, and the limit has no unit left.
            let has_no_wait = answer.already_denied && answer.wait.is_none();
            let tells = !answer.is_denial || (has_no_wait && item.remaining() == 0);
            let more_in_s = || tells.then(|| seconds(item.more_in()));
            text.push_str(&item.policy.figures.name_text);
            push_parameter(text, ";r=", item.remaining());
            if let Some(time) = retry_after(decision).or_else(more_in_s) {
                push_parameter(text, ";t=", time);
            }
            if let Some(key) = item.partition {
                push_bytes_parameter(text, PARTITION, key);
            }
        }
    });
    append(headers, style::RATELIMIT, limits);
}

/// Returns the policies in the form of the drafts up to 06, without names.
pub(super) fn unnamed_policies(answer: &Answer<'_>) -> Option<HeaderValue> {
    match (item_of_policy(answer), answer.lists) {
        (Some(item), _) => Some(item.policy.values.draft06.clone()),
        (None, Some(lists)) => lists.draft06.clone(),
        (None, None) => answer.unnamed_list(),
    }
}

/// Writes the limit's field of the drafts 00 to 03: the strictest limit's quota, then all policies. With
/// `keep_number` an existing quota stays, if the field is a list. Returns whether it has stayed.
pub(super) fn write_limit_with_policies(
    headers: &mut HeaderMap,
    answer: &Answer<'_>,
    strictest: &Item<'_>,
    keep_number: bool,
) -> bool {
    let existing = joined(headers.get_all(style::RATELIMIT_LIMIT).iter()).filter(|v| !v.is_empty());
    let keep_number = keep_number && existing.is_some();
    let value = match (existing, item_of_policy(answer)) {
        (None, Some(item)) => Some(item.policy.values.draft03.clone()),
        (None, None) => value_of(|text| {
            push_integer(text, strictest.policy.quota());
            answer.items().for_each(|item| item.policy.figures.add_unnamed(text));
        }),
        (Some(existing), _) => {
            let number = strictest.policy.values.quota.as_bytes();
            let mut list = existing.as_bytes().to_vec();
            if !keep_number {
                let end = list.iter().position(|&byte| byte == b',').unwrap_or(list.len());
                list.splice(..end, number.iter().copied());
            }
            let list = HeaderValue::from_bytes(&list).ok();
            joined(list.iter().chain(unnamed_policies(answer).iter()))
        }
    };
    put(headers, style::RATELIMIT_LIMIT, value);
    keep_number
}

/// Writes the remaining units and the reset of the drafts up to 06. On a denial the reset equals `Retry-After`.
pub(super) fn write_draft(headers: &mut HeaderMap, next_in: Duration, remaining: u64) {
    let reset = seconds(next_in);
    put(headers, style::RATELIMIT_REMAINING, number(remaining));
    put(headers, style::RATELIMIT_RESET, number(reset));
}

pub(super) fn reset_value(reset: Reset, next_in: Duration, now: SystemTime) -> u64 {
    match reset {
        Reset::Delta => seconds(next_in),
        Reset::Epoch => {
            // A clock before 1970 counts as 1970.
            let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            seconds(now.saturating_add(next_in))
        }
    }
}

/// Writes the `Retry-After` of an enforced denial. `within`: an inner layer has denied the call, and its `Retry-After` stays if
/// it is longer or no number.
pub(crate) fn write_wait(
    headers: &mut HeaderMap,
    decision: &Decision,
    enforced: bool,
    within: bool,
) {
    let Some(wait) = retry_after(decision).filter(|_| enforced) else { return };
    let is_shorter = |existing: &HeaderValue| {
        existing
            .to_str()
            .is_ok_and(|text| text.parse::<u64>().is_ok_and(|existing| existing < wait))
    };
    if !within || headers.get(RETRY_AFTER).is_none_or(is_shorter) {
        put(headers, RETRY_AFTER, number(wait));
    }
}

/// Writes the `Retry-After` of an allowed call whose next one has to wait. An existing one stands: that of the service tells
/// when to repeat work that failed, and may be a date; that of a denial is the wait of all its limits.
pub(crate) fn write_next_wait(headers: &mut HeaderMap, wait_s: Option<u64>) {
    if let Some(wait) = wait_s
        && !headers.contains_key(RETRY_AFTER)
    {
        put(headers, RETRY_AFTER, number(wait));
    }
}

/// Writes PlugLimit's fields except `Retry-After`. Returns the seconds of [`write_next_wait`]. `replaces`: the answer of another
/// limit has written these fields.
pub(super) fn write_plug_limit(
    headers: &mut HeaderMap,
    names: &PlugLimitNames,
    answer: &Answer<'_>,
    policy: &Policy,
    remaining: u64,
    replaces: bool,
) -> Option<u64> {
    let decision = &answer.decision;
    put(headers, names.limit.clone(), Some(policy.values.plug_limit.clone()));
    put(headers, names.reset.clone(), number(seconds(answer.full_in())));
    put(headers, names.remaining.clone(), number(remaining));
    let denied_wait = answer.wait();
    let wait_s = denied_wait.map(seconds).or_else(|| {
        let next = seconds(decision.retry_in());
        (policy.figures.token_burst.is_some() && next > 0).then_some(next)
    });
    let wait_s = wait_s.filter(|_| answer.enforced);
    if names.retry_after == RETRY_AFTER {
        // The answer's own decision may be that of a part of the limits, and `write_wait` has written a denial's wait.
        return wait_s.filter(|_| denied_wait.is_none());
    }
    if replaces {
        // It belongs to the set that is replaced.
        headers.remove(&names.retry_after);
    }
    // On an allowed call the service's own wait stands, as in `write_next_wait`.
    let keep = denied_wait.is_none() && headers.contains_key(&names.retry_after);
    if let Some(wait) = wait_s.filter(|_| !keep) {
        put(headers, names.retry_after.clone(), number(wait));
    }
    None
}

pub(super) fn write_sharkey(headers: &mut HeaderMap, answer: &Answer<'_>, remaining: u64) {
    put(headers, style::X_CLEAR, decimal(answer.full_in()));
    put(headers, style::X_REMAINING, number(remaining));
    match answer.wait() {
        Some(wait) => put(headers, style::X_RESET, decimal(wait)),
        None => {
            // An existing one belongs to the set that is replaced.
            headers.remove(style::X_RESET);
        }
    }
}

/// Returns a time in seconds with three decimals, rounded up.
fn decimal(time: Duration) -> Option<HeaderValue> {
    let ms = milliseconds(time);
    value_of(|text| {
        // Writing to a string does not fail.
        let _ = write!(text, "{}.{:03}", ms / 1000, ms % 1000);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_parts_of_a_second() {
        for (text, ms) in
            [("7", 7000), ("1.5", 1500), ("1.25", 1250), ("1.0005", 1000), ("0.001", 1)]
        {
            assert_eq!(milliseconds_of(text), Some(ms), "{text}");
        }
        for text in ["", "x", "1.x", "-1"] {
            assert_eq!(milliseconds_of(text), None, "{text}");
        }
    }
}
