//! The state that all calls of a limiter share, and the views and sweeps that use it.

use crate::clock::Clock;
use crate::core::at_cap::Overflow;
use crate::core::block_list::BlockList;
use crate::core::generation::Generation;
use crate::core::places::VacantPlaces;
use crate::core::reloads::Reloads;
use crate::core::shared_part::SharedPart;
use crate::core::sweep_clock::SweepClock;
use crate::core::sweep_record::SweepRecord;
use crate::core::view::LimitsView;
#[cfg(feature = "tracing")]
use crate::observe::events::Denials;
#[cfg(feature = "tower")]
use crate::observe::rejections::Rejections;
use crate::observe::stats::Stats;
use crate::observe::top_denied::TopDenied;
use crate::store::{Guard, Outdated, Published, Store, Swept, pin};
use crate::util::coverage::{self, Race};
use crate::util::sync::{AtomicU64, Ordering, Switch};

/// The state that all clones and handles of a limiter share.
pub(crate) struct LimiterState {
    pub(crate) enabled: Switch,
    pub(crate) generation: Published<Generation>,
    pub(crate) clock: Clock,
    /// The latest end of an override that a call has acted upon, in ns of the clock.
    pub(crate) ended_ns: AtomicU64,
    pub(crate) store: Store,
    pub(crate) overflow: Overflow,
    pub(crate) blocks: BlockList,
    pub(crate) places: VacantPlaces,
    pub(crate) sweeps: SweepRecord,
    pub(crate) sweep_clock: SweepClock,
    pub(crate) reloads: Reloads,
    pub(crate) top_denied: Option<TopDenied>,
    #[cfg(feature = "tower")]
    pub(crate) rejections: Rejections,
    /// The store of limits that several nodes share.
    pub(crate) shared: Option<Box<dyn SharedPart>>,
    #[cfg(feature = "tracing")]
    pub(crate) denials: Option<Denials>,
}

impl LimiterState {
    #[inline(always)]
    pub(crate) fn is_enabled(&self) -> bool {
        // Relaxed: as in `set_enabled`.
        self.enabled.load(Ordering::Relaxed)
    }

    /// Returns a view of the newest limits.
    #[inline(always)]
    pub(crate) fn view<'g>(&'g self, guard: &'g Guard) -> LimitsView<'g> {
        let generation = self.generation.get(guard);
        #[cfg(tollgate_loom)]
        generation.assert_made();
        LimitsView { inner: self, generation }
    }

    /// Calls `attempt` with a view of the limits, again with a new view if the limits changed meanwhile.
    ///
    /// While a reload migrates cells, the first attempt uses the limits before. They decide a call for a cell that the reload
    /// has not come to, and the call leaves the migration of the cell's shard to the reload.
    pub(crate) fn with_view<R>(
        &self,
        mut attempt: impl FnMut(LimitsView<'_>) -> Result<R, Outdated>,
    ) -> R {
        // Repeats only if a reload came in between, or another call acted upon an override's end.
        loop {
            let guard = pin();
            let newest = self.view(&guard);
            let before = newest.generation.before();
            for generation in before.into_iter().chain([newest.generation]) {
                if let Ok(done) = attempt(LimitsView { generation, ..newest }) {
                    return done;
                }
            }
            coverage::hit(Race::Outdated);
        }
    }

    /// Makes one step of a sweep, as of `ago_ns` before now. At the end of a pass drops ended blocks and vacant places whose
    /// time has passed, and frees retired memory.
    pub(crate) fn sweep(&self, cells: usize, ago_ns: u64) -> Swept {
        let now_ns = self.clock.now_ns();
        if !self.may_sweep_at(now_ns) {
            return Swept { finished: true, ..Swept::default() };
        }
        let now_ns = now_ns.saturating_sub(ago_ns).max(1);
        let swept = {
            let guard = pin();
            let view = self.view(&guard);
            if let Some(part) = &self.shared {
                part.sweep(cells, now_ns, view);
            }
            self.store.sweep(cells, now_ns, &view)
        };
        if swept.finished {
            self.blocks.drop_ended(now_ns);
            self.blocks.collect();
            self.places.drop_passed(now_ns);
            self.places.collect();
            self.store.free_unread();
            if let Some(part) = &self.shared {
                part.free_unread();
            }
            self.free_replaced();
        }
        self.sweeps.record();
        swept
    }

    /// Returns whether a sweep may trust this reading of the clock. Counts a sweep that may not.
    pub(crate) fn may_sweep_at(&self, now_ns: u64) -> bool {
        let may = self.sweep_clock.admits(now_ns);
        if !may {
            self.sweeps.count_skipped();
        }
        may
    }

    /// Frees generations that a reload has replaced and no call reads any more.
    pub(crate) fn free_replaced(&self) {
        /// The first collection looks for readers. Two more pins can free the generations that it has looked at.
        const ROUNDS: usize = 3;
        for _ in 0..ROUNDS {
            if self.generation.is_any_retired() {
                self.generation.collect(&pin());
            }
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let (size, counts) = (self.store.size(), &self.overflow.counts);
        Stats {
            cells: size.cells,
            bytes: size.bytes,
            mapped_bytes: size.mapped_bytes,
            reserved_bytes: size.reserved_bytes,
            swept: size.dropped,
            migrations: size.migrations,
            retired: size.retired,
            put_off: size.put_off,
            // Relaxed: figures for people.
            overflowed: counts.overflowed.load(Ordering::Relaxed),
            denied_at_cap: counts.denied.load(Ordering::Relaxed),
            allowed_at_cap: counts.allowed.load(Ordering::Relaxed),
            ..self.sweeps.stats()
        }
    }
}
