//! The lists against the simplest model: vectors that are searched.

use super::*;

/// A page of the model: key, and whether it is referenced.
type Page = (u64, bool);

#[derive(Default)]
struct Model {
    capacity: usize,
    /// The newest first.
    inactive: Vec<Page>,
    active: Vec<Page>,
    age: u64,
    evicted: Vec<(u64, u64)>,
    dirty: Vec<u64>,
}

impl Model {
    fn touch(&mut self, key: u64) -> bool {
        if let Some(page) = self.active.iter_mut().find(|page| page.0 == key) {
            page.1 = true;
            return true;
        }
        if let Some(at) = self.inactive.iter().position(|page| page.0 == key) {
            if self.inactive[at].1 {
                self.inactive.remove(at);
                self.active.insert(0, (key, false));
                self.age += 1;
            } else {
                self.inactive[at].1 = true;
            }
            return true;
        }
        while self.inactive.len() + self.active.len() >= self.capacity {
            while !self.active.is_empty()
                && (self.inactive.is_empty() || self.inactive.len() < self.active.len())
            {
                let page = self.active.pop().expect("not empty");
                self.inactive.insert(0, page);
            }
            let (gone, _) = self.inactive.pop().expect("not empty");
            self.dirty.retain(|dirty| *dirty != gone);
            self.evicted.retain(|(key, _)| *key != gone);
            self.evicted.push((gone, self.age));
            self.age += 1;
        }
        let known = self.evicted.iter().position(|(gone, _)| *gone == key);
        let distance = known.map(|at| self.age - self.evicted.remove(at).1);
        if distance.is_some_and(|distance| distance <= self.active.len() as u64) {
            self.active.insert(0, (key, true));
            self.age += 1;
        } else {
            self.inactive.insert(0, (key, true));
        }
        false
    }

    fn forget(&mut self, gone: impl Fn(u64) -> bool) {
        self.inactive.retain(|page| !gone(page.0));
        self.active.retain(|page| !gone(page.0));
        self.dirty.retain(|key| !gone(*key));
    }
}

fn check(lists: &TwoLists) {
    let walk = |list: List| {
        let (mut at, mut keys) = (list.head, Vec::new());
        while at != NONE {
            keys.push(lists.nodes[at as usize].key);
            at = lists.nodes[at as usize].next;
        }
        assert_eq!(keys.len() as u64, list.len);
        keys
    };
    let all = [walk(lists.inactive), walk(lists.active)].concat();
    assert_eq!(all.len(), lists.index.len(), "invariant 1");
    assert!(lists.len() <= lists.capacity, "invariant 2");
    let dirty =
        all.iter().filter(|key| lists.nodes[lists.index[key] as usize].dirty_since > 0).count() as u64;
    assert_eq!((dirty, dirty), (lists.dirty, lists.dirty_by_file.values().sum()), "invariant 3");
}

#[test]
fn random_uses_have_the_hits_of_the_model() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let capacity = random.usize(2..40);
        let mut lists = TwoLists::new(capacity as u64);
        let mut model = Model { capacity, ..Model::default() };
        let span = random.u64(1..100);
        for step in 0..600 {
            let (file, page) = (random.u32(0..2), random.u64(0..span) * random.u64(0..2) + random.u64(0..8));
            let own = key(file, page);
            match random.u32(0..20) {
                0 => {
                    let from = random.u64(0..span);
                    lists.forget(file, from);
                    model.forget(|known| file_of(known) == u64::from(file) && known >= key(file, from));
                }
                1 => {
                    let count =
                        model.dirty.iter().filter(|known| file_of(**known) == u64::from(file)).count();
                    assert_eq!(lists.sync(file), count as u64);
                    model.dirty.retain(|known| file_of(*known) != u64::from(file));
                }
                2 => {
                    let count = random.usize(0..6).min(model.dirty.len());
                    lists.write_back(count as u64);
                    model.dirty.drain(..count);
                }
                _ => {
                    assert_eq!(lists.touch(file, page), model.touch(own), "seed {seed}, step {step}");
                    if random.u32(0..3) == 0 && !model.dirty.contains(&own) {
                        model.dirty.push(own);
                    }
                    if model.dirty.contains(&own) {
                        lists.mark_dirty(file, page);
                    }
                }
            }
            assert_eq!(lists.dirty(), model.dirty.len() as u64, "seed {seed}, step {step}");
            check(&lists);
        }
    }
}

#[test]
fn a_cache_that_is_large_enough_misses_each_page_once() {
    let mut lists = TwoLists::new(50);
    assert_eq!((0..5000_u64).filter(|at| !lists.touch(3, at % 50)).count(), 50);
}

/// What LRU is known for: a loop over one page more than it holds never hits. Refault detection keeps a part of the loop.
#[test]
fn refaults_keep_a_part_of_a_loop_that_does_not_fit() {
    let hits = |pages: u64, rounds: u64| {
        let mut lists = TwoLists::new(100);
        (0..pages * rounds).filter(|at| lists.touch(1, at % pages)).count() as u64
    };
    assert_eq!(hits(101, 1), 0);
    assert_eq!(hits(100_000, 2), 0);
    assert!(hits(100, 10) == 900);
}

#[test]
fn twice_used_pages_survive_a_scan() {
    let mut lists = TwoLists::new(100);
    for _ in 0..2 {
        (0..30).for_each(|page| {
            lists.touch(1, page);
        });
    }
    (0..10_000).for_each(|page| {
        lists.touch(2, page);
    });
    assert!((0..30).all(|page| lists.contains(1, page)));
}
