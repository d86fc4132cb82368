//! Floors: the units that calls with a priority must leave in the bucket.

use std::fmt;
use std::iter::successors;
use std::sync::OnceLock;

use crate::limit::Limit;
use crate::limits::names;

/// The units that calls with a [priority](crate::KeyedLimit::priority) must leave in the bucket: a number, or a part of the
/// burst. A limit has its floors by name: `floors: {batch: 50%}` in a file, [`LimitOptions::floor`] in code.
///
/// [`LimitOptions::floor`]: crate::limits::LimitOptions::floor
///
/// # Example
///
/// ```
/// use tollgate::limits::Floor;
///
/// assert_eq!(Floor::Percent(50).units_of(5), 3); // rounded up
/// assert_eq!(Floor::Units(20).units_of(5), 20); // more than the bucket holds: only a cost of 0 is left
/// assert_eq!(Floor::Percent(50).to_string(), "50%");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Floor {
    /// A number of units: at most the burst of the limit's default.
    Units(u64),
    /// A percentage, from 0 to 100, of the burst of the terms that apply to the id, which may be those of an override or
    /// [scaled](crate::KeyedLimit::scaled) by a factor.
    Percent(u8),
}

impl Floor {
    /// Returns the units that must be left of a burst: a percentage is rounded up.
    ///
    /// # Example
    ///
    /// See [`Floor`].
    pub fn units_of(self, burst: u64) -> u64 {
        match self {
            Floor::Units(units) => units,
            Floor::Percent(percent) => {
                let units = (u128::from(burst) * u128::from(percent)).div_ceil(100);
                u64::try_from(units).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Formats the floor as files have it: `20` or `50%`.
impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Floor::Units(units) => write!(f, "{units}"),
            Floor::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The name of a floor. Calls point to it, because they fit into few registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FloorName(Box<str>);

impl FloorName {
    pub(crate) fn new(name: &str) -> FloorName {
        FloorName(name.into())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// The units that a call must leave.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave<'n> {
    Units(u64),
    /// Those of the floor that the limit has when the call comes.
    Floor(&'n FloorName),
}

/// The floors of a limit, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floors(Vec<(FloorName, Floor)>);

/// Why a floor cannot be: its name, unless the fault is of all of them, and what is allowed.
pub(crate) type FloorFault = (Option<String>, String);

impl Floors {
    /// A call compares its floor's name with those of all floors.
    pub(crate) const MAX: usize = 16;

    pub(crate) const IN_FLIGHT: &str =
        "not for what is in flight: a batch leaves permits by Member::leaving";

    pub(crate) fn set(&mut self, name: &str, floor: Floor) {
        match self.0.iter_mut().find(|(given, _)| given.text() == name) {
            Some((_, given)) => *given = floor,
            None => self.0.push((FloorName::new(name), floor)),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Floor> {
        self.0.iter().find(|(given, _)| given.text() == name).map(|(_, floor)| *floor)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Floor)> {
        self.0.iter().map(|(name, floor)| (name.text(), *floor))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the faults of the floors of a limit with this default.
    pub(crate) fn faults(&self, limit: Option<&Limit>) -> Vec<FloorFault> {
        if limit.is_some_and(|limit| limit.rule().is_concurrency()) && !self.is_empty() {
            return vec![(None, Floors::IN_FLIGHT.into())];
        }
        let mut faults = Vec::new();
        if self.0.len() > Floors::MAX {
            faults.push((None, format!("too many floors: at most {} are allowed", Floors::MAX)));
        }
        let of_each = self.iter().filter_map(|(name, floor)| {
            Some((Some(name.to_owned()), fault_of(name, floor, limit)?))
        });
        faults.extend(of_each);
        faults
    }

    /// Says which floors there are, for messages.
    pub(crate) fn listed(&self) -> String {
        let floors: Vec<String> =
            self.iter().map(|(name, floor)| format!("{name}: {floor}")).collect();
        format!("{{{}}}", floors.join(", "))
    }
}

fn fault_of(name: &str, floor: Floor, limit: Option<&Limit>) -> Option<String> {
    if !names::is_valid_name(name) {
        return Some(format!(
            "invalid name of a floor {}: {} is allowed",
            crate::limits::shown(name),
            names::ALLOWED
        ));
    }
    match floor {
        Floor::Percent(percent) if percent > 100 => {
            Some(format!("invalid floor {floor}: at most 100% is allowed"))
        }
        Floor::Units(units) => {
            let burst = limit.map(Limit::burst).filter(|burst| units > *burst)?;
            Some(format!("invalid floor {units}: at most {burst}, the burst, is allowed"))
        }
        Floor::Percent(_) => None,
    }
}

/// The names of floors that a program has asked for. None is removed, so that callers can point to them.
#[derive(Default)]
pub(crate) struct AskedFloors(OnceLock<Box<Asked>>);

struct Asked {
    name: FloorName,
    next: AskedFloors,
}

impl AskedFloors {
    /// The most names. While a limit is off, a program may ask for any.
    const MAX: usize = 256;

    /// Adds a name unless it is there; `None` if there is no room.
    pub(crate) fn add(&self, name: &str) -> Option<&FloorName> {
        let mut at = self;
        for _ in 0..AskedFloors::MAX {
            let new =
                || Box::new(Asked { name: FloorName::new(name), next: AskedFloors::default() });
            let asked = at.0.get_or_init(new);
            if asked.name.text() == name {
                return Some(&asked.name);
            }
            at = &asked.next;
        }
        None
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let asked = successors(self.0.get(), |asked| asked.next.0.get());
        asked.map(|asked| asked.name.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_asked_for_once() {
        let asked = AskedFloors::default();
        let first = std::ptr::from_ref(asked.add("a").unwrap());
        assert!(asked.add("b").is_some());
        assert_eq!(std::ptr::from_ref(asked.add("a").unwrap()), first);
        assert_eq!(asked.names().collect::<Vec<_>>(), ["a", "b"]);
        for at in 2..AskedFloors::MAX {
            assert!(asked.add(&format!("n{at}")).is_some());
        }
        assert!(asked.add("one more").is_none() && asked.add("b").is_some());
    }

    #[test]
    fn a_part_of_the_largest_burst_is_exact() {
        assert_eq!(Floor::Percent(100).units_of(u64::MAX), u64::MAX);
        assert_eq!(Floor::Percent(0).units_of(u64::MAX), 0);
        assert_eq!(Floor::Percent(1).units_of(1), 1);
        assert_eq!(Floor::Percent(99).units_of(100), 99);
    }
}
