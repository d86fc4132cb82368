//! Overrides of networks.
//!
//! A network of a limit is a limit of its own, without a public name, as a shadow is: its index is in the keys and the tags of
//! its buckets, so the table, the sweep, a reload and a snapshot treat it as any other limit. [`Limits::applying`] finds the
//! network of an address. From there on a call is one for a key of the network's limit. docs/internals/limits.md has the rest.

use std::collections::{HashMap, HashSet};

use super::{Entry, LimitEntry, Limits, LimitsBuilder, OverrideEntry};
use crate::error::Error;
use crate::limits::format::{self, NetworkId};
use crate::limits::{Id, IdFormat, LimitOptions, Scratch};
use crate::store::key::{LimitIndex, OwnedId};

/// What is between the limit's name and the network in a hidden limit's name. No valid name has a blank.
const BETWEEN: &str = " (network ";
const END: &str = ")";

/// The most networks of all limits together. Each has an index, which reloads keep while it has buckets.
pub(crate) const MAX_NETWORKS: usize = 1 << 16;

/// Whether this is the name of a network's limit.
pub(super) fn is_name(name: &str) -> bool {
    name.contains(BETWEEN)
}

/// Whether a network's limit can have this name.
#[cfg(feature = "snapshot")]
pub(super) fn is_valid_name(name: &str) -> bool {
    let parts = name.strip_suffix(END).and_then(|name| name.split_once(BETWEEN));
    parts.is_some_and(|(limit, network)| {
        super::names::is_valid_name(limit) && format::is_network_text(network)
    })
}

/// The networks with an override in one limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    /// Bit `n` is set if a network with a prefix of `n` bits has an override.
    v4_lengths: u128,
    v6_lengths: u128,
    /// The limit of each network. A network that lifts the limit has none.
    limits: HashMap<OwnedId, LimitIndex>,
}

/// For the hidden limit of a network: the public limit with the override that names the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkOf {
    pub(crate) limit: LimitIndex,
    /// Whether the limit still has the network. If it does not, no call finds the network's buckets any more.
    pub(crate) is_current: bool,
}

impl Networks {
    /// Returns the networks around an address or a network in normal form, the smallest first.
    fn around<'a>(&self, id: &'a [u8]) -> impl Iterator<Item = NetworkId> + use<'a> {
        let (lengths, bits) = match format::family_and_bits(id) {
            Some((true, bits)) => (self.v4_lengths, bits),
            Some((false, bits)) => (self.v6_lengths, bits),
            None => (0, 0),
        };
        let unused = u128::BITS.saturating_sub(bits.into());
        let mut left = lengths & u128::MAX.checked_shr(unused).unwrap_or(0);
        std::iter::from_fn(move || {
            let longest = left.checked_ilog2()?;
            left &= !(1 << longest);
            NetworkId::around(id, longest as u8)
        })
    }
}

impl Entry {
    /// Whether the limit has overrides of networks.
    pub(crate) fn has_networks(&self) -> bool {
        self.networks.is_some()
    }

    /// Whether this is the limit of a network.
    pub(crate) fn is_of_network(&self) -> bool {
        self.network_of.is_some()
    }

    /// Returns the index of a network's public limit; `own` if this is no limit of a network. A shadow keeps its own index.
    pub(crate) fn public_index(&self, own: LimitIndex) -> LimitIndex {
        self.network_of.map_or(own, |of| of.limit)
    }

    /// Returns the name that callers know. The hidden limit of a network, or a shadow, has that of its public limit.
    pub(crate) fn public_name(&self) -> &str {
        self.name.split_once(' ').map_or(&*self.name, |(name, _)| name)
    }

    /// Returns the limit of the smallest network around an address, of those whose override has not ended. `Some(None)`: it
    /// lifts the limit. `None`: no network applies, or the address has an override of its own.
    #[inline]
    pub(super) fn limit_of_network(&self, id: &[u8], now_ns: u64) -> Option<Option<LimitIndex>> {
        let networks = self.networks.as_deref()?;
        let applies = |id: &[u8]| {
            let given = self.overrides.get(id);
            given.is_some_and(|given| !self.has_ended(given.terms.0 as usize, now_ns))
        };
        if applies(id) {
            return None;
        }
        let network = networks.around(id).find(|network| applies(network.as_bytes()))?;
        Some(networks.limits.get(network.as_bytes()).copied())
    }

    /// Returns the networks among the ids with an override.
    pub(super) fn network_ids(&self) -> impl Iterator<Item = &OwnedId> {
        let (format, has_any) = (self.format, self.format == IdFormat::IpAddress);
        let ids = has_any.then(|| self.overrides.keys()).into_iter().flatten();
        ids.filter(move |id| format::is_network(format, id.as_bytes()))
    }

    /// Returns the name of the limit of a network.
    fn network_name(&self, network: &OwnedId) -> String {
        let network = format::decode(self.format, network.as_bytes());
        format!("{}{BETWEEN}{network}{END}", self.name)
    }

    /// Returns the limits of the networks.
    pub(super) fn limits_of_networks(&self) -> impl Iterator<Item = LimitIndex> {
        self.networks.iter().flat_map(|networks| networks.limits.values().copied())
    }
}

/// The fault of an override of a network in a shared limit.
pub(super) const NOT_SHARED: &str =
    "a shared limit has no overrides of networks: overrides of single addresses are allowed";

impl LimitsBuilder {
    /// Checks that a limit can have an override of this id in normal form, if it is a network. An error is the text of a fault.
    pub(crate) fn check_network(&self, index: LimitIndex, id: &[u8]) -> Result<(), String> {
        let entry = self.limits.entry(index);
        if !format::is_network(entry.format, id) {
            return Ok(());
        }
        if entry.is_shared() {
            return Err(NOT_SHARED.into());
        }
        if self.limits.network_count >= MAX_NETWORKS {
            return Err(format!(
                "one network more than {MAX_NETWORKS}, the most of all limits together"
            ));
        }
        Ok(())
    }

    /// Adds the limit of each network that has one, as a limit without a public name.
    pub(super) fn add_networks(&mut self) {
        for at in 0..self.limits.entries.len() {
            let entry = &self.limits.entries[at];
            let hidden: Vec<(String, Entry)> =
                entry.network_ids().filter_map(|id| entry.hidden(id)).collect();
            for (name, new) in hidden {
                let index = self.intern(&name, new.format);
                *self.entry_mut(index) = new;
            }
        }
    }
}

impl Entry {
    /// Makes the limit of a network, with its name; `None` if the network lifts the limit.
    fn hidden(&self, network: &OwnedId) -> Option<(String, Entry)> {
        let given = self.overrides.get(network)?;
        let terms = self.terms.get(given.terms.0 as usize)?;
        let name = self.network_name(network);
        let mut hidden = Entry::empty(&name, self.format);
        hidden.set_algorithm(terms.limit.as_ref());
        hidden.default = Some(terms.limit.clone()?);
        let max_debt = self.max_debt_of(Some(terms));
        hidden.options =
            LimitOptions { mode: self.options.mode, max_debt, ..LimitOptions::default() };
        Some((name, hidden))
    }
}

impl Limits {
    /// Finds the networks of each limit, and the limit of each network.
    pub(super) fn find_networks(&mut self) {
        let mut count = 0;
        let mut current = HashSet::new();
        for at in 0..self.entries.len() {
            let (entry, mut networks) = (&self.entries[at], Networks::default());
            for id in entry.network_ids() {
                count += 1;
                let Some((is_v4, bits)) = format::family_and_bits(id.as_bytes()) else { continue };
                let lengths =
                    if is_v4 { &mut networks.v4_lengths } else { &mut networks.v6_lengths };
                *lengths |= 1 << bits;
                let given = entry
                    .overrides
                    .get(id)
                    .and_then(|given| entry.terms.get(given.terms.0 as usize));
                if given.is_some_and(|terms| terms.limit.is_some())
                    && let Some(&limit) = self.by_name.get(&*entry.network_name(id))
                {
                    networks.limits.insert(id.clone(), limit);
                    current.insert(limit);
                }
            }
            let is_any = networks.v4_lengths | networks.v6_lengths != 0;
            self.entries[at].networks = is_any.then(|| Box::new(networks));
        }
        for (at, entry) in
            self.entries.iter_mut().enumerate().filter(|(_, entry)| is_name(&entry.name))
        {
            let limit = self.by_name.get(entry.public_name()).copied();
            let is_current = current.contains(&LimitIndex::new(at));
            entry.network_of = limit.map(|limit| NetworkOf { limit, is_current });
        }
        self.network_count = count;
    }

    /// Whether this is the limit of a network that its limit still has.
    pub(crate) fn is_current_network(&self, index: LimitIndex) -> bool {
        self.entry(index).network_of.is_some_and(|of| of.is_current)
    }

    /// Returns the public limit of a network's limit, and any other limit as it is.
    pub(crate) fn public(&self, index: LimitIndex) -> LimitIndex {
        self.entry(index).public_index(index)
    }

    /// Whether the buckets of a network may stay after a reload to `new` that removes the network's override: the public limit
    /// must still be there, be switched on, and have addresses as ids.
    pub(crate) fn may_keep_network(&self, new: &Limits, index: LimitIndex) -> bool {
        let Some(of) = self.entry(index).network_of else { return false };
        let stays = |limit: &Entry| {
            limit.format == IdFormat::IpAddress && !limit.is_disabled && limit.is_given()
        };
        new.by_name_of(self.entry(of.limit)).is_some_and(stays)
    }
}

impl<'a> LimitEntry<'a> {
    /// Returns the overrides of the networks around an address or around a smaller network, the smallest first, also those
    /// that have expired. Limits of other ids than addresses have none.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`] for an id that does not have the limit's format.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limits};
    /// let limit = |burst| Limit::new(burst, 1, Duration::from_secs(1));
    /// let limits = Limits::builder()
    ///     .limit("PerClient", IdFormat::IpAddress, limit(20)?)?
    ///     .override_id("PerClient", "10.0.0.0/8", limit(200)?)?
    ///     .override_id("PerClient", "10.1.0.0/16", limit(300)?)?
    ///     .build();
    /// let clients = limits.limit("PerClient")?;
    /// let around = |id| Ok::<_, tollgate::Error>(clients.overrides_around(id)?.iter().map(|it| it.id()).collect::<Vec<_>>());
    /// assert_eq!(around("10.1.2.3")?, ["10.1.0.0/16", "10.0.0.0/8"]);
    /// assert_eq!(around("10.1.0.0/16")?, ["10.0.0.0/8"]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn overrides_around<'i>(
        &self,
        id: impl Into<Id<'i>>,
    ) -> Result<Vec<OverrideEntry<'a>>, Error> {
        let mut scratch = Scratch::new();
        let id = format::encode_id_or_network(self.format(), id.into(), &mut scratch)?;
        Ok(self.overrides_around_id(id).collect())
    }

    /// Returns the overrides of the networks around an id in normal form, the smallest network first.
    pub(super) fn overrides_around_id<'i>(
        &self,
        id: &'i [u8],
    ) -> impl Iterator<Item = OverrideEntry<'a>> + use<'a, 'i> {
        let limit = *self;
        let around = limit.entry().networks.as_ref().map(|networks| networks.around(id));
        around.into_iter().flatten().filter_map(move |it| limit.override_at(it.as_bytes()))
    }
}

impl OverrideEntry<'_> {
    /// Whether the id is a network, so that the override applies to all of its addresses that have none themselves and are
    /// in no smaller network that has one.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, None)?;
    /// let limits = limits.override_id("PerClient", "2001:db8::/32", None)?.build();
    /// let given = limits.limit("PerClient")?.override_of("2001:db8::/32")?.expect("it was given");
    /// assert!(given.is_of_network());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_of_network(&self) -> bool {
        format::is_network(self.limit_entry().format(), self.id_bytes())
    }
}
