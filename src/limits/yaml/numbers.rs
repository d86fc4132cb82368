//! The numbers of an entry, by its algorithm.

use crate::limit::Limit;
use crate::limit::{LimitFault, whole_of_decimal};
use crate::util::decimal::Decimal;

use super::entry::Entry;
use super::field::{Field, Named};

/// What keeps an entry's numbers from being a limit.
pub(super) enum NumberFault {
    Missing(Field),
    Invalid(LimitFault),
}

/// The two forms of leaky_bucket: an entry has one of them.
const LEAKY: [Field; 3] = [Field::Size, Field::DripRate, Field::DripSize];
const LEGACY: [Field; 3] = [Field::Max, Field::Duration, Field::MinInterval];

const DEFAULT_DRIP_RATE_NS: u64 = 1_000_000_000;

/// The limit of the numbers that an entry has; `None` if they say that there is none. Numbers that
/// were at fault when they were read are no faults here.
pub(super) fn limit(entry: &Entry<'_>, named: Named) -> Result<Option<Limit>, Vec<NumberFault>> {
    let is_legacy = entry.has_any(&LEGACY);
    let needed: &[Field] = match named {
        Named::LeakyBucket if is_legacy => &[],
        Named::LeakyBucket => &[Field::Size],
        _ => named.numbers(),
    };
    let missing: Vec<NumberFault> = needed
        .iter()
        .filter(|field| entry.line_of(**field).is_none())
        .map(|field| NumberFault::Missing(*field))
        .collect();
    // What was given and could not be read is a fault already.
    let mut given = named.numbers().iter().filter(|field| entry.line_of(**field).is_some());
    if !missing.is_empty() || given.any(|field| entry.numbers[*field as usize].is_none()) {
        return Err(missing);
    }
    let number = |field: Field| entry.numbers[field as usize];
    let needed = |field: Field| number(field).unwrap_or_default();
    let decimal = |field: Field| number(field).map(|millionths| Decimal { millionths });
    let made = match named {
        Named::Gcra => {
            let period_ns = needed(Field::Period);
            Limit::validate(needed(Field::Burst), needed(Field::Count), period_ns).map(Some)
        }
        Named::FixedWindow => {
            Limit::validate_fixed_window(needed(Field::Limit), needed(Field::Window)).map(Some)
        }
        Named::TokenBucket => {
            let (limit, window_ns) = (needed(Field::Limit), needed(Field::Window));
            Limit::validate_token_bucket(limit, window_ns, needed(Field::Burst)).map(Some)
        }
        Named::LeakyBucket if !is_legacy => leaky(
            decimal(Field::Size).unwrap_or(Decimal::ONE),
            number(Field::DripRate).unwrap_or(DEFAULT_DRIP_RATE_NS),
            decimal(Field::DripSize).unwrap_or(Decimal::ONE),
        ),
        Named::LeakyBucket => match LEAKY.into_iter().find(|field| number(*field).is_some()) {
            Some(field) => Err(LimitFault {
                field: field.name(),
                message: "not beside max, duration and min_interval: they are the older form of the same numbers".into(),
            }),
            None => Limit::validate_legacy(
                decimal(Field::Max),
                number(Field::Duration),
                number(Field::MinInterval),
            ),
        },
    };
    made.map_err(|fault| vec![NumberFault::Invalid(fault)])
}

fn leaky(
    size: Decimal,
    drip_rate_ns: u64,
    drip_size: Decimal,
) -> Result<Option<Limit>, LimitFault> {
    let size = whole_of_decimal(Field::Size.name(), size)?;
    let drip_size = whole_of_decimal(Field::DripSize.name(), drip_size)?;
    Limit::validate_leaky_bucket(size, drip_rate_ns, drip_size).map(Some)
}
