//! Sorts items by time, as far as a time window reaches.

use std::collections::{BTreeMap, VecDeque};

/// Holds each item until the latest time of all items is more than the window after the item's time.
///
/// Items with the same time leave in the order in which they came. A log's times are whole seconds. So a window has few
/// times with many items each, and a map of queues is faster than a heap.
#[derive(Debug)]
pub(crate) struct Reorder<T> {
    window_ns: u64,
    max_held: usize,
    by_time: BTreeMap<u64, VecDeque<T>>,
    held: usize,
    /// The latest time of all items.
    latest_ns: u64,
    /// The time of the last item that left.
    reached_ns: Option<u64>,
    late: u64,
    ended: bool,
}

impl<T> Reorder<T> {
    /// Creates a window that holds at most `max_held` items. If there are more, [`pop`](Reorder::pop) returns the
    /// oldest early.
    pub(crate) fn new(window_ns: u64, max_held: usize) -> Reorder<T> {
        Reorder {
            window_ns,
            max_held,
            by_time: BTreeMap::new(),
            held: 0,
            latest_ns: 0,
            reached_ns: None,
            late: 0,
            ended: false,
        }
    }

    /// Adds an item, and returns whether it is late: older than the window or than the last item that left. A late item gets
    /// the time of the last item that left; if none has left, it keeps its time.
    pub(crate) fn push(&mut self, at_ns: u64, item: T) -> bool {
        let is_outside = at_ns < self.latest_ns.saturating_sub(self.window_ns);
        let is_late = is_outside || self.reached_ns.is_some_and(|reached_ns| at_ns < reached_ns);
        self.late += u64::from(is_late);
        let at_ns = self.reached_ns.filter(|_| is_late).unwrap_or(at_ns);
        self.latest_ns = self.latest_ns.max(at_ns);
        self.by_time.entry(at_ns).or_default().push_back(item);
        self.held += 1;
        is_late
    }

    /// Returns the next item that may leave, and its time. The times never decrease.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let mut oldest = self.by_time.first_entry()?;
        let at_ns = *oldest.key();
        let is_outside = self.latest_ns - at_ns > self.window_ns;
        if !(is_outside || self.ended || self.held > self.max_held) {
            return None;
        }
        let item = oldest.get_mut().pop_front()?;
        if oldest.get().is_empty() {
            oldest.remove();
        }
        self.held -= 1;
        self.reached_ns = Some(at_ns);
        Some((at_ns, item))
    }

    /// Ends the input: from now on [`pop`](Reorder::pop) returns all items that are held.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Returns how many items were late.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(reorder: &mut Reorder<usize>, times: &[u64]) -> Vec<(u64, usize)> {
        let mut taken = Vec::new();
        for (i, &at_ns) in times.iter().enumerate() {
            reorder.push(at_ns, i);
            taken.extend(std::iter::from_fn(|| reorder.pop()));
        }
        reorder.end();
        taken.extend(std::iter::from_fn(|| reorder.pop()));
        taken
    }

    #[test]
    fn items_leave_once_the_window_passed() {
        let mut reorder = Reorder::new(10, 100);
        reorder.push(100, 'a');
        reorder.push(110, 'b');
        assert_eq!(reorder.pop(), None, "an item exactly as old as the window is inside it");
        reorder.push(111, 'c');
        assert_eq!(reorder.pop(), Some((100, 'a')));
        assert_eq!(reorder.pop(), None);
    }

    #[test]
    fn late_items_get_the_last_time() {
        let mut reorder = Reorder::new(10, 100);
        let taken = run(&mut reorder, &[100, 120, 95, 130, 121]);
        assert_eq!(taken, [(100, 0), (100, 2), (120, 1), (121, 4), (130, 3)]);
        assert_eq!(reorder.late(), 1);
    }

    #[test]
    fn items_older_than_the_window_are_late() {
        let mut reorder = Reorder::new(10, 100);
        assert_eq!(run(&mut reorder, &[100, 200, 150]), [(100, 0), (100, 2), (200, 1)]);
        assert_eq!(reorder.late(), 1);
        let mut reorder = Reorder::new(10, 100);
        assert_eq!(run(&mut reorder, &[200, 100]), [(100, 1), (200, 0)], "no item left before it");
        assert_eq!(reorder.late(), 1);
    }

    #[test]
    fn a_full_window_releases_the_oldest() {
        let mut reorder = Reorder::new(1000, 2);
        let taken = run(&mut reorder, &[5, 4, 3, 2]);
        assert_eq!(taken, [(3, 2), (3, 3), (4, 1), (5, 0)]);
        assert_eq!(reorder.late(), 1);
    }

    proptest! {
        #[test]
        fn inside_the_window_the_sort_is_stable(
            times in proptest::collection::vec(0_u64..50, 0..300), base in 0_u64..1 << 61,
        ) {
            let times: Vec<u64> = times.iter().map(|time| base + time).collect();
            let mut reorder = Reorder::new(50, 1000);
            let mut sorted: Vec<(u64, usize)> = times.iter().copied().zip(0..).collect();
            sorted.sort_by_key(|(at_ns, _)| *at_ns);
            prop_assert_eq!(run(&mut reorder, &times), sorted);
            prop_assert_eq!(reorder.late(), 0);
        }

        #[test]
        fn each_item_leaves_once_in_order(
            times in proptest::collection::vec(0_u64..1000, 0..300),
            window_ns in 0_u64..500, max_held in 0_usize..50,
        ) {
            let taken = run(&mut Reorder::new(window_ns, max_held), &times);
            prop_assert!(taken.is_sorted_by_key(|(at_ns, _)| *at_ns));
            let mut items: Vec<usize> = taken.iter().map(|(_, item)| *item).collect();
            items.sort_unstable();
            prop_assert_eq!(items, (0..times.len()).collect::<Vec<_>>());
        }
    }
}
