//! Makes the limit of an entry from the parameters that were read.

use crate::limit::Limit;
use crate::limit::{LimitFault, whole_of_decimal};
use crate::util::decimal::Decimal;

use super::entry::Entry;
use super::fields::{Field, FileAlgorithm};

/// A fault because of which an entry makes no limit.
pub(super) enum EntryFault {
    Missing(Field),
    Invalid(LimitFault),
}

/// The parameters of the two forms of leaky_bucket. An entry has those of one form only.
const LEAKY: [Field; 3] = [Field::Size, Field::DripRate, Field::DripSize];
const LEGACY: [Field; 3] = [Field::Max, Field::Duration, Field::MinInterval];

const DEFAULT_DRIP_RATE_NS: u64 = 1_000_000_000;

/// Makes the limit of an entry; `None` if its parameters say that there is no limit. A parameter that could not be read
/// was reported already: the list of faults may be empty.
pub(super) fn make(
    entry: &Entry<'_>,
    algorithm: FileAlgorithm,
) -> Result<Option<Limit>, Vec<EntryFault>> {
    let is_legacy = algorithm == FileAlgorithm::LeakyBucket && entry.has_any(&LEGACY);
    let required: &[Field] = match algorithm {
        FileAlgorithm::LeakyBucket if is_legacy => &[],
        FileAlgorithm::LeakyBucket => &[Field::Size],
        FileAlgorithm::Concurrency => &[Field::Max],
        _ => algorithm.parameters(),
    };
    let is_given = |field: &&Field| entry.line_of(**field).is_some();
    let missing: Vec<EntryFault> = required
        .iter()
        .filter(|field| !is_given(field))
        .map(|field| EntryFault::Missing(*field))
        .collect();
    let value = |field: Field| entry.values[field as usize];
    let mut given = algorithm.parameters().iter().filter(is_given);
    if !missing.is_empty() || given.any(|field| value(*field).is_none()) {
        return Err(missing);
    }
    let required = |field: Field| value(field).unwrap_or_default();
    let decimal = |field: Field| value(field).map(|millionths| Decimal { millionths });
    let made = match algorithm {
        FileAlgorithm::Gcra => {
            let period_ns = required(Field::Period);
            Limit::validate(required(Field::Burst), required(Field::Count), period_ns).map(Some)
        }
        FileAlgorithm::AtMost => {
            let (limit, window_ns) = (required(Field::Limit), required(Field::Window));
            Limit::validate_at_most(limit, window_ns, required(Field::Burst)).map(Some)
        }
        FileAlgorithm::FixedWindow => {
            Limit::validate_fixed_window(required(Field::Limit), required(Field::Window)).map(Some)
        }
        FileAlgorithm::TokenBucket => {
            let (limit, window_ns) = (required(Field::Limit), required(Field::Window));
            Limit::validate_token_bucket(limit, window_ns, required(Field::Burst)).map(Some)
        }
        FileAlgorithm::LeakyBucket if !is_legacy => leaky_bucket(
            decimal(Field::Size).unwrap_or(Decimal::ONE),
            value(Field::DripRate).unwrap_or(DEFAULT_DRIP_RATE_NS),
            decimal(Field::DripSize).unwrap_or(Decimal::ONE),
        ),
        FileAlgorithm::Concurrency => {
            let max = decimal(Field::Max).unwrap_or(Decimal::ONE);
            let retry_after_ns = value(Field::RetryAfter).unwrap_or(Limit::RETRY_AFTER_NS);
            match max.ceil().checked_mul(Decimal::ONE.millionths) {
                Some(millionths) if millionths == max.millionths => {
                    Limit::validate_concurrency(max.ceil(), retry_after_ns).map(Some)
                }
                _ => Err(LimitFault {
                    field: Field::Max.name(),
                    message: format!("invalid max {max}: a whole number from 1 is allowed"),
                }),
            }
        }
        FileAlgorithm::Custom(_) => Ok(None),
        FileAlgorithm::LeakyBucket => match LEAKY.into_iter().find(|field| value(*field).is_some()) {
            Some(field) => Err(LimitFault {
                field: field.name(),
                message: "not beside max, duration and min_interval: they are the older form of the same numbers".into(),
            }),
            None => Limit::validate_legacy(
                decimal(Field::Max),
                value(Field::Duration),
                value(Field::MinInterval),
            ),
        },
    };
    made.map_err(|fault| vec![EntryFault::Invalid(fault)])
}

fn leaky_bucket(
    size: Decimal,
    drip_rate_ns: u64,
    drip_size: Decimal,
) -> Result<Option<Limit>, LimitFault> {
    let size = whole_of_decimal(Field::Size.name(), size)?;
    let drip_size = whole_of_decimal(Field::DripSize.name(), drip_size)?;
    Limit::validate_leaky_bucket(size, drip_rate_ns, drip_size).map(Some)
}
