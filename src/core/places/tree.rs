//! Keeps the vacant places of one bucket in a tree, of which each version shares most nodes with the one before.
//!
//! The tree is a treap: its places are in the order of their ends, and a node's place never has a lower rank than the places below. The
//! rank is a hash of the end, so the depth is about logarithmic, and a change copies the nodes of one path. When many batches wait, each
//! leaves a vacant place in front of its own place, and most of these are too short for any call. So each node has the length of
//! the longest place below it, and a search skips parts of the tree that are too short.

use std::sync::Arc;

use crate::core::places::Place;

#[derive(Clone, Default)]
pub(super) struct PlaceTree(Option<Arc<Node>>);

struct Node {
    place: Place,
    left: PlaceTree,
    right: PlaceTree,
    /// The length of the longest place in this node and below it.
    longest_ns: u64,
    count: usize,
}

/// The order of places. Places do not overlap, except those whose units a settlement has returned and another call has charged.
fn order(place: Place) -> (u64, u64) {
    (place.end_ns, place.start_ns)
}

impl Place {
    fn length_ns(self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// The rank of the place in the tree: a hash (the last steps of SplitMix64).
    fn rank(self) -> u64 {
        let mut rank = self.end_ns;
        rank = (rank ^ (rank >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        rank = (rank ^ (rank >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        rank ^ (rank >> 31)
    }
}

impl PlaceTree {
    fn of(place: Place, left: PlaceTree, right: PlaceTree) -> PlaceTree {
        steps::count();
        let longest_ns = place.length_ns().max(left.longest_ns()).max(right.longest_ns());
        let count = 1 + left.len() + right.len();
        PlaceTree(Some(Arc::new(Node { place, left, right, longest_ns, count })))
    }

    fn longest_ns(&self) -> u64 {
        self.0.as_ref().map_or(0, |node| node.longest_ns)
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |node| node.count)
    }

    /// Whether both are the same version.
    pub(super) fn is_same(&self, other: &PlaceTree) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }

    pub(super) fn first(&self) -> Option<Place> {
        let node = self.0.as_ref()?;
        node.left.first().or(Some(node.place))
    }

    pub(super) fn last(&self) -> Option<Place> {
        let node = self.0.as_ref()?;
        node.right.last().or(Some(node.place))
    }

    /// Finds the first place of which `length_ns` are left from `from_ns` on.
    pub(super) fn first_fitting(&self, from_ns: u64, length_ns: u64) -> Option<Place> {
        steps::count();
        let node = self.0.as_ref().filter(|node| node.longest_ns >= length_ns)?;
        if node.place.end_ns < from_ns.saturating_add(length_ns) {
            return node.right.first_fitting(from_ns, length_ns);
        }
        let own = Some(node.place).filter(|place| place.length_ns() >= length_ns);
        let before = node.left.first_fitting(from_ns, length_ns);
        before.or(own).or_else(|| node.right.first_fitting(from_ns, length_ns))
    }

    /// Splits the places in those up to `at` and the others.
    fn split(&self, at: (u64, u64)) -> (PlaceTree, PlaceTree) {
        let Some(node) = &self.0 else { return Default::default() };
        let Node { place, left, right, .. } = &**node;
        if order(*place) <= at {
            let (before, behind) = right.split(at);
            (PlaceTree::of(*place, left.clone(), before), behind)
        } else {
            let (before, behind) = left.split(at);
            (before, PlaceTree::of(*place, behind, right.clone()))
        }
    }

    /// Joins places with later ones.
    fn join(&self, later: &PlaceTree) -> PlaceTree {
        match (&self.0, &later.0) {
            (None, _) => later.clone(),
            (_, None) => self.clone(),
            (Some(one), Some(other)) if one.place.rank() >= other.place.rank() => {
                PlaceTree::of(one.place, one.left.clone(), one.right.join(later))
            }
            (Some(_), Some(other)) => {
                PlaceTree::of(other.place, self.join(&other.left), other.right.clone())
            }
        }
    }

    /// Adds a place as it is.
    pub(super) fn insert(&mut self, place: Place) {
        let (before, behind) = self.split(order(place));
        let own = PlaceTree::of(place, PlaceTree::default(), PlaceTree::default());
        *self = before.join(&own).join(&behind);
    }

    /// Removes a place that is in the tree.
    pub(super) fn remove(&mut self, place: Place) {
        let (mut before, behind) = self.split(order(place));
        before.remove_last();
        *self = before.join(&behind);
    }

    fn remove_last(&mut self) {
        let Some(node) = self.0.take() else { return };
        let Node { place, left, right, .. } = &*node;
        *self = left.clone();
        if right.0.is_some() {
            let mut right = right.clone();
            right.remove_last();
            *self = PlaceTree::of(*place, left.clone(), right);
        }
    }

    /// Adds a place. Places that touch become one.
    pub(super) fn add(&mut self, mut new: Place) {
        let (before, behind) = self.split((new.start_ns, u64::MAX));
        if let Some(place) = before.last().filter(|place| place.end_ns == new.start_ns) {
            self.remove(place);
            new.start_ns = place.start_ns;
        }
        if let Some(place) = behind.first().filter(|place| place.start_ns == new.end_ns) {
            self.remove(place);
            new.end_ns = place.end_ns;
        }
        self.insert(new);
    }

    /// Drops the places that end by `now_ns`. Returns whether there were any.
    pub(super) fn drop_passed(&mut self, now_ns: u64) -> bool {
        let is_any = self.first().is_some_and(|place| place.end_ns <= now_ns);
        if is_any {
            *self = self.split((now_ns, u64::MAX)).1;
        }
        is_any
    }
}

/// Counts the nodes that are made or looked at, for tests of the cost.
pub(crate) mod steps {
    #[cfg(test)]
    thread_local! {
        static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[inline(always)]
    pub(super) fn count() {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
    }

    /// Returns the number of steps of this thread, and begins again at 0.
    #[cfg(test)]
    pub(crate) fn take() -> u64 {
        STEPS.take()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::core::places) fn tree(parts: &[(u64, u64)]) -> PlaceTree {
        let mut tree = PlaceTree::default();
        for &(start_ns, end_ns) in parts {
            tree.insert(Place { start_ns, end_ns });
        }
        tree
    }

    pub(in crate::core::places) fn parts(tree: &PlaceTree) -> Vec<(u64, u64)> {
        let Some(node) = &tree.0 else { return Vec::new() };
        let Place { start_ns, end_ns } = node.place;
        [parts(&node.left), vec![(start_ns, end_ns)], parts(&node.right)].concat()
    }

    #[test]
    fn places_that_touch_become_one() {
        let mut all = tree(&[(80, 90), (40, 50), (60, 70)]);
        all.add(Place { start_ns: 50, end_ns: 60 });
        assert_eq!(parts(&all), [(40, 70), (80, 90)]);
        all.add(Place { start_ns: 10, end_ns: 20 });
        all.add(Place { start_ns: 90, end_ns: 95 });
        all.add(Place { start_ns: 75, end_ns: 80 });
        assert_eq!(parts(&all), [(10, 20), (40, 70), (75, 95)]);
    }

    /// Random changes beside a sorted list.
    #[test]
    fn tree_is_the_list() {
        let mut state = 1_u64;
        let mut below = move |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % most
        };
        for _ in 0..200 {
            let (mut tree, mut list) = (PlaceTree::default(), Vec::<(u64, u64)>::new());
            for _ in 0..100 {
                let start = below(300);
                let place = (start, start + 1 + below(9));
                let is_free = list.iter().all(|it| it.1 <= place.0 || place.1 <= it.0);
                let before = tree.clone();
                match below(4) {
                    0 | 1 if is_free => {
                        tree.add(Place { start_ns: place.0, end_ns: place.1 });
                        list.push(place);
                        list.sort_unstable();
                        for at in (1..list.len()).rev() {
                            if list[at - 1].1 == list[at].0 {
                                list[at - 1].1 = list.remove(at).1;
                            }
                        }
                        assert_eq!(parts(&tree), list);
                    }
                    2 if !list.is_empty() => {
                        let kept = parts(&before);
                        let (start_ns, end_ns) = list.remove(below(list.len() as u64) as usize);
                        tree.remove(Place { start_ns, end_ns });
                        assert_eq!(parts(&before), kept, "an older version stays as it is");
                    }
                    _ => {
                        let now = below(60);
                        let is_any = list.iter().any(|it| it.1 <= now);
                        assert_eq!(tree.drop_passed(now), is_any);
                        list.retain(|it| now < it.1);
                    }
                }
                assert_eq!((parts(&tree), tree.len()), (list.clone(), list.len()));
                let (from, length) = (below(300), 1 + below(12));
                let fitting = list.iter().find(|it| it.1 >= it.0.max(from) + length);
                let found = tree.first_fitting(from, length);
                assert_eq!(found.map(|it| (it.start_ns, it.end_ns)), fitting.copied());
            }
        }
    }

    /// What a change or a look at `count` places costs at most, in nodes.
    fn steps_of_one_call(count: u64) -> u64 {
        let mut tree = PlaceTree::default();
        for at in 0..count {
            tree.insert(Place { start_ns: 10 * at, end_ns: 10 * at + 4 });
        }
        let mut most = 0;
        for at in (0..count).step_by(7) {
            let place = Place { start_ns: 10 * at, end_ns: 10 * at + 4 };
            steps::take();
            assert_eq!(tree.first_fitting(10 * at, 5), None, "all are too short");
            assert_eq!(tree.first_fitting(10 * at, 4), Some(place));
            tree.remove(place);
            tree.add(place);
            most = most.max(steps::take());
        }
        most
    }

    /// A list of 64 times as many places takes few more steps, where a copy of all would take 64 times as many.
    #[test]
    fn change_copies_few_nodes() {
        let [few, many] = [256, 16_384].map(steps_of_one_call);
        println!("{few} steps of 256 places, {many} of 16,384");
        assert!(few < 250 && many < 500, "{few} {many}");
    }
}
