//! Overrides of networks: which applies to an address, and to a cell that keeps no address.
//!
//! The lock-free table keeps a fingerprint of each address. A cell of an address in a network has the tag of the network's
//! terms. No two networks share terms, so the tag tells the network. When a reload adds a network, no tag tells
//! which addresses are in it. The reload then marks the limit's cells as unsure: the fast path leaves an unsure cell to the
//! slow path, which knows the address and moves the word to the limit that applies.

use std::collections::{HashMap, HashSet};

use super::{Entry, LimitEntry, Limits, OverrideEntry, OverrideTerms, TermsIndex};
use crate::error::Error;
use crate::limit::Limit;
use crate::limits::expiry::Expiry;
use crate::limits::format::{self, NetworkId};
use crate::limits::{Id, Scratch};
use crate::store::key::{LimitIndex, LimitTag, OwnedId, Room};

/// The networks with an override in one limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    /// Bit `n` is set if a network with a prefix of `n` bits has an override.
    v4_lengths: u128,
    v6_lengths: u128,
    /// The network that has these terms.
    by_terms: HashMap<u32, OwnedId, ahash::RandomState>,
    /// Terms of networks: for each different limit and end, one.
    distinct: Vec<TermsIndex>,
    /// Whether the generation before lacks a network of these, or has it with an end.
    has_new: bool,
}

impl Networks {
    /// Returns the networks around an address or a network in normal form, the smallest first. A network is around itself
    /// if `or_itself`.
    pub(super) fn around<'a>(
        &self,
        id: &'a [u8],
        or_itself: bool,
    ) -> impl Iterator<Item = NetworkId> + use<'a> {
        let (lengths, bits) = match format::family_and_bits(id) {
            Some((true, bits)) => (self.v4_lengths, bits),
            Some((false, bits)) => (self.v6_lengths, bits),
            None => (0, 0),
        };
        let below = u32::from(bits) + u32::from(or_itself);
        let mut left =
            lengths & u128::MAX.checked_shr(u128::BITS.saturating_sub(below)).unwrap_or(0);
        std::iter::from_fn(move || {
            let longest = left.checked_ilog2()?;
            left &= !(1 << longest);
            NetworkId::around(id, longest as u8)
        })
    }
}

impl Entry {
    /// Returns the networks with an override, if there are any.
    #[inline]
    fn networks(&self) -> Option<&Networks> {
        self.networks.as_deref()
    }

    /// Returns the networks with an override that may be around an id in normal form, the smallest first.
    pub(crate) fn networks_around<'a>(
        &self,
        id: &'a [u8],
    ) -> impl Iterator<Item = NetworkId> + use<'a> {
        self.networks().map(|networks| networks.around(id, false)).into_iter().flatten()
    }

    /// Copies terms until no two networks share them.
    pub(super) fn separate_networks(&mut self) {
        let is_network = |id: &OwnedId| format::is_network(self.format, id.as_bytes());
        if !self.overrides.keys().any(is_network) {
            return;
        }
        let others = self.overrides.iter().filter(|(id, _)| !is_network(id));
        let mut taken: HashSet<u32> = others.map(|(_, given)| given.terms.0).collect();
        for (id, given) in &mut self.overrides {
            if format::is_network(self.format, id.as_bytes()) && !taken.insert(given.terms.0) {
                let Some(terms) = self.terms.get(given.terms.0 as usize).cloned() else { continue };
                given.terms = TermsIndex::new(self.terms.len());
                taken.insert(given.terms.0);
                self.terms.push(terms);
            }
        }
    }

    /// Finds the networks with an override.
    pub(super) fn find_networks(&mut self) {
        let is_network = |id: &OwnedId| format::is_network(self.format, id.as_bytes());
        let mut networks = Networks::default();
        let mut seen: HashSet<(Option<&Limit>, Expiry)> = HashSet::new();
        for (id, given) in self.overrides.iter().filter(|(id, _)| is_network(id)) {
            let Some((is_v4, bits)) = format::family_and_bits(id.as_bytes()) else { continue };
            let lengths = if is_v4 { &mut networks.v4_lengths } else { &mut networks.v6_lengths };
            *lengths |= 1 << bits;
            networks.by_terms.insert(given.terms.0, id.clone());
            if let Some(OverrideTerms { limit, expires, .. }) =
                self.terms.get(given.terms.0 as usize)
                && seen.insert((limit.as_ref(), *expires))
            {
                networks.distinct.push(given.terms);
            }
        }
        networks.has_new = self.networks().is_some_and(|known| known.has_new);
        let is_any = !networks.by_terms.is_empty();
        self.networks = is_any.then(|| Box::new(networks));
    }

    /// Finds out whether there are networks that `before`, the entry of the generation before, did not have to the end.
    pub(super) fn compare_networks(&mut self, before: &Entry) {
        let lasts = |id: &OwnedId| {
            let terms =
                before.overrides.get(id).and_then(|old| before.terms.get(old.terms.0 as usize));
            terms.is_some_and(|terms| terms.expires == Expiry::NEVER)
        };
        if let Some(networks) = &mut self.networks {
            networks.has_new = !networks.by_terms.values().all(lasts);
        }
    }

    /// Returns the network of a tag, if the tag is of one.
    fn network_of(&self, tag: LimitTag) -> Option<&[u8]> {
        let terms = tag.numbers().checked_sub(1)?;
        self.networks()?.by_terms.get(&terms).map(OwnedId::as_bytes)
    }

    /// Returns the tag of the smallest network that is around an id, or is that id, and that has not ended by `at_ns`.
    fn tag_around(&self, id: &[u8], at_ns: u64) -> Option<LimitTag> {
        let applying = |network: NetworkId| {
            let terms = self.overrides.get(network.as_bytes())?.terms;
            (!self.has_ended(terms.0 as usize, at_ns)).then(|| self.tag_of(terms, false))
        };
        self.networks()?.around(id, true).find_map(applying)
    }

    fn default_tag(&self) -> Option<LimitTag> {
        self.default.as_ref().map(|_| self.stamp.tag(0))
    }

    /// Returns the tag of the default and of each different override of a network that has a limit.
    fn possible_tags(&self) -> impl Iterator<Item = LimitTag> {
        let distinct = self.networks().map_or(&[][..], |networks| &networks.distinct);
        let has_limit = |terms: &&TermsIndex| {
            self.terms.get(terms.0 as usize).is_some_and(|terms| terms.limit.is_some())
        };
        let of_networks = distinct.iter().filter(has_limit).map(|&terms| self.tag_of(terms, false));
        self.default_tag().into_iter().chain(of_networks)
    }

    /// Returns a tag for a cell of an unknown address: that of `guess` if it has a limit.
    fn unsure_tag(&self, guess: Option<LimitTag>) -> Option<LimitTag> {
        let has_limit = |&tag: &LimitTag| self.limit_at(tag, super::BEFORE_ALL_ENDS_NS).is_some();
        guess.filter(has_limit).or_else(|| self.possible_tags().next()).map(LimitTag::unsure)
    }
}

impl Limits {
    /// Whether some limit has overrides of networks.
    pub(crate) fn has_any_networks(&self) -> bool {
        self.entries.iter().any(|entry| entry.networks.is_some())
    }

    /// Whether the limit has overrides of networks.
    pub(crate) fn has_networks(&self, index: LimitIndex) -> bool {
        self.entry(index).networks.is_some()
    }

    /// Returns the tag in these limits of a cell whose id has no override, and whose tag was `old` in the limits `before`.
    pub(crate) fn tag_after_reload(
        &self,
        before: &Limits,
        old: LimitTag,
        at_ns: u64,
    ) -> Option<LimitTag> {
        let index = old.limit()?;
        let entry = self.entry(index);
        let Some(networks) = entry.networks() else { return self.default_tag(index) };
        let network = before.entry(index).network_of(old);
        let guess = network.and_then(|network| entry.tag_around(network, at_ns));
        let guess = guess.or_else(|| entry.default_tag());
        let had_own = old.room() == Room::BesideCap;
        match old.is_unsure() || had_own || networks.has_new {
            true => entry.unsure_tag(guess),
            false => guess,
        }
    }

    /// Returns the tag of a cell that a snapshot has, without its address. `is_charged_by` tells the limit of the cell's word.
    #[cfg(feature = "snapshot")]
    pub(crate) fn tag_after_restore(
        &self,
        index: LimitIndex,
        is_charged_by: impl Fn(&Limit) -> bool,
    ) -> Option<LimitTag> {
        let entry = self.entry(index);
        if entry.networks.is_none() {
            return self.default_tag(index);
        }
        let is_charged = |&tag: &LimitTag| self.limit_at(tag).is_some_and(&is_charged_by);
        let guess = entry.possible_tags().find(is_charged);
        entry.unsure_tag(guess.or_else(|| entry.default_tag()))
    }

    /// Returns the tag that follows that of a network which ended at `end_ns`: that of the network around it, or the default's.
    pub(crate) fn tag_after_network(&self, ended: LimitTag, end_ns: u64) -> Option<LimitTag> {
        let index = ended.limit()?;
        let entry = self.entry(index);
        let around = entry.network_of(ended).and_then(|network| entry.tag_around(network, end_ns));
        around.or_else(|| self.default_tag(index))
    }

    /// Returns the tags that an unsure cell of a limit may get, apart from those of single addresses.
    pub(crate) fn possible_tags(&self, index: LimitIndex) -> impl Iterator<Item = LimitTag> {
        self.entry(index).possible_tags()
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
        limit.entry().networks_around(id).filter_map(move |it| limit.override_at(it.as_bytes()))
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
