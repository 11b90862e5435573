//! Two views of one set of pending requests: by sector, and by arrival.
//!
//! Removal from the middle of the arrival list is lazy: the entry of a removed request is dropped when it reaches the
//! front.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use super::table::{Key, RequestTable};
use super::{Request, RequestId};

/// Pending requests of one direction or one queue.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    by_sector: BTreeSet<(u64, Key)>,
    arrivals: VecDeque<(Key, RequestId)>,
}

/// The side on which a request joins another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Back,
    Front,
}

impl Sorted {
    pub(super) fn is_empty(&self) -> bool {
        self.by_sector.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_sector.len()
    }

    pub(super) fn insert(&mut self, table: &RequestTable, key: Key) {
        let request = table.request(key);
        self.by_sector.insert((request.sector.0, key));
        self.arrivals.push_back((key, request.id));
    }

    /// Remove a request that is still pending in `table`.
    pub(super) fn remove(&mut self, table: &RequestTable, key: Key) {
        let request = table.request(key);
        let was_there = self.by_sector.remove(&(request.sector.0, key));
        assert!(was_there, "a pending request is in its queue");
        if self.arrivals.front().is_some_and(|(first, _)| *first == key) {
            self.arrivals.pop_front();
        }
        if self.by_sector.is_empty() {
            self.arrivals.clear();
        }
        let by_sector = &self.by_sector;
        let still_here = |key: &Key, id: &RequestId| {
            table.is_pending(*key, *id) && by_sector.contains(&(table.request(*key).sector.0, *key))
        };
        while self.arrivals.front().is_some_and(|(key, id)| !still_here(key, id)) {
            self.arrivals.pop_front();
        }
    }

    /// The oldest request.
    pub(super) fn oldest(&self) -> Option<Key> {
        self.arrivals.front().map(|(key, _)| *key)
    }

    pub(super) fn first(&self) -> Option<Key> {
        self.by_sector.first().map(|(_, key)| *key)
    }

    /// The first at or after a sector.
    pub(super) fn at_or_after(&self, sector: u64) -> Option<Key> {
        self.by_sector.range((sector, Key::default())..).next().map(|(_, key)| *key)
    }

    /// The neighbours of a request that is still in the set.
    pub(super) fn neighbours(&self, sector: u64, key: Key) -> (Option<Key>, Option<Key>) {
        let at = (sector, key);
        let previous = self.by_sector.range(..at).next_back().map(|(_, key)| *key);
        let next = self.by_sector.range((Bound::Excluded(at), Bound::Unbounded)).next().map(|(_, key)| *key);
        (previous, next)
    }

    /// Merge `request` into a pending neighbour, at its back or its front. The merged request keeps the older deadline.
    pub(super) fn merge(
        &mut self,
        table: &mut RequestTable,
        request: &Request,
        max_sectors: u64,
    ) -> Option<Key> {
        let back =
            self.by_sector.range(..(request.sector.0, Key::default())).next_back().map(|(_, key)| *key);
        let front = self.at_or_after(request.end().0);
        let fits = |key: &Key, side: Side| {
            let pending = table.request(*key);
            let adjacent = match side {
                Side::Back => pending.end() == request.sector,
                Side::Front => request.end() == pending.sector,
            };
            adjacent
                && pending.can_merge_with(request)
                && (pending.is_sync() || !request.is_sync())
                && pending.sectors.saturating_add(request.sectors) <= max_sectors
        };
        if let Some(key) = back.filter(|key| fits(key, Side::Back)) {
            let pending = &mut table.slot_mut(key).request;
            pending.sectors += request.sectors;
            pending.flags |= request.flags;
            return Some(key);
        }
        let key = front.filter(|key| fits(key, Side::Front))?;
        let pending = &mut table.slot_mut(key).request;
        self.by_sector.remove(&(pending.sector.0, key));
        pending.sector = request.sector;
        pending.sectors += request.sectors;
        pending.flags |= request.flags;
        self.by_sector.insert((request.sector.0, key));
        Some(key)
    }
}
