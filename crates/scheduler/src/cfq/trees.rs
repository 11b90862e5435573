//! The order among queues: by class, by kind of work, by key, by arrival.

use std::collections::BTreeMap;

use super::Ticks;

/// Names a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueIndex(pub(super) usize);

/// Priority class, in the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TreeClass {
    RealTime,
    BestEffort,
    Idle,
}

impl TreeClass {
    pub(super) const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];
}

/// Kinds of work: index of a tree within its class. With 2.6.32's rules (and in the idle class) all is in tree 0.
pub(super) const ASYNC: usize = 0;
pub(super) const SYNC_NOIDLE: usize = 1;
pub(super) const SYNC: usize = 2;

/// A tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeName {
    pub(super) class: TreeClass,
    pub(super) workload: usize,
}

/// The position of a queue in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreePosition {
    pub(super) tree: TreeName,
    pub(super) key: Ticks,
    arrival: u64,
}

/// All trees.
#[derive(Debug, Default)]
pub(super) struct ClassTrees {
    trees: [[BTreeMap<(Ticks, u64), QueueIndex>; 3]; 3],
    arrivals: u64,
}

impl ClassTrees {
    fn tree(&self, name: TreeName) -> &BTreeMap<(Ticks, u64), QueueIndex> {
        &self.trees[name.class as usize][name.workload]
    }

    pub(super) fn add(&mut self, tree: TreeName, key: Ticks, queue: QueueIndex) -> TreePosition {
        self.arrivals += 1;
        let place = TreePosition { tree, key, arrival: self.arrivals };
        self.trees[tree.class as usize][tree.workload].insert((key, place.arrival), queue);
        place
    }

    pub(super) fn remove(&mut self, place: TreePosition) {
        let tree = &mut self.trees[place.tree.class as usize][place.tree.workload];
        let removed = tree.remove(&(place.key, place.arrival));
        assert!(removed.is_some(), "a queue stands where it says");
    }

    pub(super) fn first(&self, name: TreeName) -> Option<(Ticks, QueueIndex)> {
        self.tree(name).first_key_value().map(|((key, _), queue)| (*key, *queue))
    }

    pub(super) fn last_key(&self, name: TreeName) -> Option<Ticks> {
        self.tree(name).last_key_value().map(|((key, _), _)| *key)
    }

    pub(super) fn count(&self, name: TreeName) -> usize {
        self.tree(name).len()
    }

    pub(super) fn class_count(&self, class: TreeClass) -> usize {
        self.trees[class as usize].iter().map(BTreeMap::len).sum()
    }

    /// Everything, for a description.
    pub(super) fn all(&self) -> Vec<(TreePosition, QueueIndex)> {
        let mut list = Vec::new();
        for class in TreeClass::ALL {
            for workload in [ASYNC, SYNC_NOIDLE, SYNC] {
                let tree = TreeName { class, workload };
                let entries = self.tree(tree).iter();
                list.extend(entries.map(|((key, arrival), queue)| {
                    (TreePosition { tree, key: *key, arrival: *arrival }, *queue)
                }));
            }
        }
        list
    }

    #[cfg(test)]
    pub(super) fn holds(&self, place: TreePosition, queue: QueueIndex) -> bool {
        self.tree(place.tree).get(&(place.key, place.arrival)) == Some(&queue)
    }
}
