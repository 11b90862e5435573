//! The replacement of the page cache without memory for pages: which pages a cache of a given size holds after a sequence of uses.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use diorite_block::NumberHasher;

use crate::cache::arena::FrameId;
use crate::cache::pages::Pages;
use crate::cache::replacement::{Replacement, ScanBudget, Uses};

/// See the module's head. Predictions use it; [`touch`](Self::touch) costs about 100 ns.
#[derive(Debug)]
pub struct CacheModel {
    replacement: Replacement,
    uses: Uses,
    files: NumberMap<ModelFile>,
    /// The file of each owner of pages.
    owners: NumberMap<u64>,
}

type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

#[derive(Debug)]
struct ModelFile {
    pages: Arc<Pages>,
    cached: NumberMap<FrameId>,
}

impl CacheModel {
    /// A cache of `pages` pages (at least one), which holds none.
    pub fn new(pages: u32) -> Self {
        let frames = pages.max(1);
        let (replacement, uses) = (Replacement::new(frames), Uses::new(frames));
        Self { replacement, uses, files: HashMap::default(), owners: HashMap::default() }
    }

    /// Use a page. Returns whether the cache has it already; else it has it now.
    pub fn touch(&mut self, file: u64, page: u64) -> bool {
        let known = self.files.get(&file).and_then(|known| known.cached.get(&page));
        if let Some(frame) = known {
            self.uses.count(*frame);
            return true;
        }
        while self.replacement.free_count() == 0 {
            self.evict();
        }
        let new = || ModelFile { pages: Arc::new(Pages::new(Arc::default())), cached: HashMap::default() };
        let known = self.files.entry(file).or_insert_with(new);
        self.owners.insert(known.pages.id(), file);
        let frame = self.replacement.take_free(&known.pages, page, &self.uses).expect("a page was evicted");
        known.cached.insert(page, frame);
        false
    }

    fn evict(&mut self) {
        let mut gone = None;
        let mut budget = ScanBudget::of(u32::MAX);
        self.replacement.evict_one(&self.uses, &mut budget, |pages, page, _| {
            gone = Some((pages.id(), page));
            true
        });
        let (owner, page) = gone.expect("a full cache has a page that can go");
        let file = self.owners.get(&owner).and_then(|file| self.files.get_mut(file));
        file.expect("a page has a file").cached.remove(&page);
    }

    /// Drop the pages of a file from `first` on.
    pub fn forget(&mut self, file: u64, first: u64) {
        if let Some(known) = self.files.get_mut(&file) {
            let replacement = &mut self.replacement;
            known.cached.retain(|page, frame| {
                let stays = *page < first;
                if !stays {
                    replacement.release(*frame);
                }
                stays
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_is_large_enough_misses_each_page_once() {
        let mut model = CacheModel::new(60);
        let misses = (0..6000_u64).filter(|at| !model.touch(at % 3, at / 3 % 20)).count();
        assert_eq!(misses, 60);
    }

    /// A hot set stays through a scan, which LRU would not keep.
    #[test]
    fn a_scan_does_not_flush_the_hot_set() {
        let mut model = CacheModel::new(100);
        for _ in 0..4 {
            for page in 0..40 {
                model.touch(1, page);
            }
        }
        for page in 0..5000 {
            model.touch(2, page);
        }
        assert!((0..40).all(|page| model.touch(1, page)));
    }

    #[test]
    fn forgotten_pages_are_missed_and_their_space_is_free() {
        let mut model = CacheModel::new(10);
        for page in 0..10 {
            model.touch(1, page);
        }
        model.forget(1, 4);
        model.forget(7, 0);
        assert_eq!((0..10).filter(|page| model.touch(1, *page)).count(), 4);
        model.replacement.check_invariants();
    }
}
