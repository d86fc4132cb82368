//! The values of each style's fields.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{KeyRef, ListSerializer, key_ref};

use super::{Answer, Item};
use crate::decision::Decision;
use crate::http::retry_after::{milliseconds, retry_after, seconds};
use crate::http::style;
use crate::http::style::{PlugLimitNames, Reset};
use crate::http::text::{integer, number, value_of};
use crate::http::{Kind, Policy};

const REMAINING: &KeyRef = key_ref("r");
const TIME: &KeyRef = key_ref("t");
const PARTITION: &KeyRef = key_ref("pk");

/// Whether the fields that are there, of which this is what remains, say no less strictly than `decision`
/// that a client has to wait. A value that is no number says nothing.
pub(super) fn is_as_strict(
    theirs: Option<&HeaderValue>,
    over_denial: bool,
    remaining: u64,
    decision: &Decision,
) -> bool {
    let theirs = theirs.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    theirs.is_some_and(|theirs| {
        (over_denial, Reverse(theirs)) >= (!decision.allowed(), Reverse(remaining))
    })
}

pub(super) fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        // A map with its most entries, 24,576, takes no more, and a response goes without this one.
        let _ = headers.try_insert(name, value);
    }
}

/// Adds the members of a list behind those that are there, on one line: some clients read no more.
fn append(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    let Some(value) = value else { return };
    if !headers.contains_key(&name) {
        return put(headers, name, Some(value));
    }
    let all = joined(headers.get_all(&name).iter().chain([&value]));
    put(headers, name, all);
}

/// One list of all these lists' members.
fn joined<'v>(lists: impl Iterator<Item = &'v HeaderValue>) -> Option<HeaderValue> {
    let mut joined = Vec::new();
    for list in lists.filter(|list| !list.is_empty()) {
        if !joined.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(list.as_bytes());
    }
    HeaderValue::from_bytes(&joined).ok()
}

/// The only item, if there is one, and its values need no partition key.
fn only_item<'i, 'a>(answer: &'i Answer<'a>) -> Option<&'i Item<'a>> {
    let mut items = answer.items();
    let first = items.next()?;
    (items.next().is_none() && first.partition.is_none()).then_some(first)
}

pub(super) fn write_ietf(headers: &mut HeaderMap, answer: &Answer<'_>) {
    let policies = match (only_item(answer), answer.lists) {
        (Some(item), _) => Some(item.policy.ietf().clone()),
        (None, Some(lists)) => lists.ietf.clone(),
        (None, None) => answer.ietf_list(),
    };
    append(headers, style::RATELIMIT_POLICY, policies);
    let limits = value_of(|text| {
        let mut list = ListSerializer::with_buffer(text);
        for item in answer.items() {
            let decision = &item.decision;
            let time = retry_after(decision).unwrap_or_else(|| seconds(decision.reset_in()));
            let mut one = list
                .bare_item(item.policy.structured_name())
                .parameter(REMAINING, integer(item.remaining()))
                .parameter(TIME, integer(time));
            if let Some(key) = item.partition {
                one = one.parameter(PARTITION, key);
            }
            let _ = one.finish();
        }
    });
    append(headers, style::RATELIMIT, limits);
}

/// The policies as the drafts up to 06 have them.
fn unnamed_policies(answer: &Answer<'_>) -> Option<HeaderValue> {
    match (only_item(answer), answer.lists) {
        (Some(item), _) => Some(item.policy.draft06().clone()),
        (None, Some(lists)) => lists.draft06.clone(),
        (None, None) => answer.unnamed_list(),
    }
}

/// The policies' field of the drafts 04 to 06.
pub(super) fn write_policies(headers: &mut HeaderMap, answer: &Answer<'_>) {
    append(headers, style::RATELIMIT_POLICY, unnamed_policies(answer));
}

/// The limit's field of the drafts 00 to 03: the strictest limit's number, and then all policies. If
/// `theirs`, the number is the one that is there.
pub(super) fn write_limit_with_policies(
    headers: &mut HeaderMap,
    answer: &Answer<'_>,
    strictest: &Item<'_>,
    theirs: bool,
) {
    let there = joined(headers.get_all(style::RATELIMIT_LIMIT).iter()).filter(|v| !v.is_empty());
    let value = match (there, only_item(answer)) {
        (None, Some(item)) => Some(item.policy.draft03().clone()),
        (None, None) => value_of(|text| {
            let mut list = ListSerializer::with_buffer(text);
            let _ = list.bare_item(integer(strictest.policy.quota()));
            answer.items().for_each(|item| item.policy.add_unnamed(&mut list));
        }),
        (Some(there), _) => {
            let number = strictest.policy.quota_value().as_bytes();
            let mut list = there.as_bytes().to_vec();
            if !theirs {
                let end = list.iter().position(|&byte| byte == b',').unwrap_or(list.len());
                list.splice(..end, number.iter().copied());
            }
            let list = HeaderValue::from_bytes(&list).ok();
            joined(list.iter().chain(unnamed_policies(answer).iter()))
        }
    };
    put(headers, style::RATELIMIT_LIMIT, value);
}

/// What the three-field drafts share. A reset beside a `Retry-After` is to be the same instant.
pub(super) fn write_draft(headers: &mut HeaderMap, decision: &Decision, remaining: u64) {
    let reset = retry_after(decision).unwrap_or_else(|| seconds(decision.reset_in()));
    put(headers, style::RATELIMIT_REMAINING, number(remaining));
    put(headers, style::RATELIMIT_RESET, number(reset));
}

/// The time until the bucket is full; of a denial no less than what is to be waited for. A block may last longer than
/// the bucket takes.
fn reset_in(decision: &Decision) -> Duration {
    match decision.allowed() {
        true => decision.reset_in(),
        false => decision.reset_in().max(decision.retry_in()),
    }
}

pub(super) fn reset_value(reset: Reset, decision: &Decision, now: SystemTime) -> u64 {
    match reset {
        Reset::Delta => seconds(reset_in(decision)),
        Reset::Epoch => {
            // A clock before 1970 counts as 1970.
            let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            seconds(now.saturating_add(reset_in(decision)))
        }
    }
}

pub(super) fn write_plug_limit(
    headers: &mut HeaderMap,
    names: &PlugLimitNames,
    answer: &Answer<'_>,
    policy: &Policy,
    remaining: u64,
) {
    let decision = &answer.decision;
    put(headers, names.limit.clone(), Some(policy.plug_limit().clone()));
    put(headers, names.reset.clone(), number(seconds(reset_in(decision))));
    put(headers, names.remaining.clone(), number(remaining));
    let wait_s = if decision.allowed() {
        let next = seconds(decision.retry_in());
        (policy.kind() == Kind::TokenBucket && next > 0).then_some(next)
    } else {
        retry_after(decision)
    };
    // On an allowed call the service may have asked for a wait of its own, which is about what it failed
    // at, and may be a date: it stands.
    let is_taken = decision.allowed() && headers.contains_key(&names.retry_after);
    if let Some(wait) = wait_s.filter(|_| answer.enforced && !is_taken) {
        put(headers, names.retry_after.clone(), number(wait));
    }
}

pub(super) fn write_sharkey(headers: &mut HeaderMap, decision: &Decision, remaining: u64) {
    put(headers, style::X_CLEAR, decimal(reset_in(decision)));
    put(headers, style::X_REMAINING, number(remaining));
    if decision.allowed() {
        // One that is there is of the set that this one replaces.
        headers.remove(style::X_RESET);
    } else {
        put(headers, style::X_RESET, decimal(decision.retry_in()));
    }
}

/// Seconds with three decimals, rounded up.
fn decimal(time: Duration) -> Option<HeaderValue> {
    let ms = milliseconds(time);
    value_of(|text| {
        // Writing to a string does not fail.
        let _ = write!(text, "{}.{:03}", ms / 1000, ms % 1000);
    })
}
