//! Divides the cap on keys among the limits: see [`capacity`](crate::store::capacity).

use super::{Entry, Limits, shadow};
use crate::error::{Error, ErrorKind};
use crate::store::capacity::LimitPart;
use crate::store::key::LimitIndex;

impl Limits {
    /// Divides `max_keys` places. A limit that gives `max_keys` has that number and takes no others. Of the rest, half
    /// is divided equally among the other limits that have buckets in this process. A shadow counts as a limit. A limit with
    /// networks divides its part equally among them and the addresses that are in none.
    pub(crate) fn parts(&self, max_keys: usize) -> Result<Vec<LimitPart>, Error> {
        let mut given: Vec<Option<usize>> =
            self.entries.iter().map(|entry| entry.options.max_keys).collect();
        for entry in self.entries.iter().filter(|entry| entry.options.shadow.is_some()) {
            if let Some(index) = self.by_name.get(&*entry.shadow_name()) {
                given[index.0 as usize] = entry.options.max_keys;
            }
        }
        let is_counted = |it: &Entry| it.has_buckets() && !it.is_of_network();
        let with_buckets = || self.entries.iter().zip(&given).filter(|(it, _)| is_counted(it));
        let sum: u128 = with_buckets().filter_map(|(_, given)| *given).map(|it| it as u128).sum();
        let Some(rest) = usize::try_from(sum).ok().and_then(|sum| max_keys.checked_sub(sum)) else {
            return Err(self.too_many(sum, (max_keys, "")));
        };
        let without = with_buckets().find(|(_, given)| given.is_none());
        if let (0, 1.., Some((entry, _))) = (rest, sum, without) {
            let why = format!(", less 1 for {}, which has none", entry.public_name());
            return Err(self.too_many(sum, (max_keys - 1, &why)));
        }
        let own = rest / 2 / with_buckets().filter(|(_, given)| given.is_none()).count().max(1);
        let part = |(entry, given): (&Entry, &Option<usize>)| match *given {
            _ if !is_counted(entry) => LimitPart::default(),
            Some(own) => LimitPart { own, is_closed: true },
            None => LimitPart { own, is_closed: false },
        };
        let mut parts: Vec<LimitPart> = self.entries.iter().zip(&given).map(part).collect();
        for (at, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.has_networks())
        {
            let networks: Vec<LimitIndex> = entry.limits_of_networks().collect();
            let LimitPart { own, is_closed } = parts[at];
            let each = own / (networks.len() + usize::from(entry.default.is_some())).max(1);
            if is_closed && each == 0 {
                return Err(self.too_few(entry, networks.len()));
            }
            for &LimitIndex(index) in &networks {
                parts[index as usize] = LimitPart { own: each, is_closed };
            }
            parts[at].own = own - each * networks.len();
        }
        Ok(parts)
    }

    /// The error of a limit with fewer places of its own than it has networks.
    fn too_few(&self, entry: &Entry, networks: usize) -> Error {
        let least = networks + usize::from(entry.default.is_some());
        let text = format!(
            "{}max_keys of {} is less than 1 for each of its {networks} networks and for the addresses outside: at least {least} is allowed",
            self.in_files(),
            entry.name
        );
        Error::new(ErrorKind::Limit, text)
    }

    /// Counts the limits that have buckets in this process.
    pub(crate) fn count_with_buckets(&self) -> usize {
        self.entries.iter().filter(|entry| entry.has_buckets()).count()
    }

    /// The error of limits whose own numbers are more than the limiter has for them. `why` follows the limiter's number.
    fn too_many(&self, sum: u128, (most, why): (usize, &str)) -> Error {
        const SHOWN: usize = 3;
        let given = |entry: &&Entry| entry.has_buckets() && !shadow::is_name(&entry.name);
        let given = self.entries.iter().filter(given);
        let named: Vec<String> = given
            .filter_map(|entry| Some(format!("{} {}", entry.name, entry.options.max_keys?)))
            .collect();
        let more = if named.len() > SHOWN { ", ..." } else { "" };
        let shown = named[..named.len().min(SHOWN)].join(", ");
        let text = format!(
            "{}max_keys of the limits ({shown}{more}) are {sum} in all, shadows included: at most {most}, the limiter's max_keys{why}, is allowed",
            self.in_files()
        );
        Error::new(ErrorKind::Limit, text)
    }
}

impl Entry {
    /// Whether some id of the limit can have a bucket in this process.
    fn has_buckets(&self) -> bool {
        self.any_limit().is_some() && !self.is_shared()
    }
}

#[cfg(all(test, feature = "valkey", not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Limit;
    use crate::limits::{IdFormat, LimitOptions, Shared};

    /// The buckets of a shared limit are in its store.
    #[test]
    fn a_shared_limit_has_no_part() {
        let limit = || Limit::new(1, 1, Duration::from_secs(60)).unwrap();
        let shared = LimitOptions::default().shared(Shared::Exact);
        let builder = Limits::builder().limit_with("A", IdFormat::String, limit(), shared).unwrap();
        let limits = builder.limit("B", IdFormat::String, limit()).unwrap().build();
        let own: Vec<_> = limits.parts(100).unwrap().iter().map(|part| part.own).collect();
        assert_eq!(own[own.len() - 2..], [0, 50]);
    }
}
