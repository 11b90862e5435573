//! A directory in memory, compared with a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::DirectoryEntry;

/// Blocks in memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    size: usize,
    blocks: Vec<Vec<u8>>,
    indexed: bool,
    /// Appending fails from this number of blocks on.
    full_at: usize,
}

impl Blocks for &mut Memory {
    fn inode(&self) -> InodeNumber {
        InodeNumber(20)
    }
    fn count(&self) -> u32 {
        self.blocks.len() as u32
    }
    fn read<R>(&self, block: u32, look: impl FnOnce(&[u8]) -> Result<R, BadEntry>) -> Result<R> {
        look(&self.blocks[block as usize]).map_err(|bad| corrupt(self.inode(), block, bad))
    }
    fn is_indexed(&self) -> bool {
        self.indexed
    }
}

impl ChangeBlocks for &mut Memory {
    fn change<R>(&mut self, block: u32, change: impl FnOnce(&mut [u8]) -> Result<R, BadEntry>) -> Result<R> {
        let inode = self.inode();
        change(&mut self.blocks[block as usize]).map_err(|bad| corrupt(inode, block, bad))
    }
    fn append(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<u32> {
        if self.blocks.len() >= self.full_at {
            return Err(Error::NoSpace);
        }
        let mut block = vec![0; self.size];
        fill(&mut block);
        self.blocks.push(block);
        Ok(self.blocks.len() as u32 - 1)
    }
    fn set_indexed(&mut self) -> Result<()> {
        self.indexed = true;
        Ok(())
    }
}

fn rules(block_size: usize, tail: bool, make_index: bool, levels_max: u8, version: u8) -> DirectoryRules {
    DirectoryRules {
        format: DirectoryFormat { block_size, kinds: true, tail, inodes: u32::MAX },
        make_index,
        levels_max,
        hash: HashRules { version, characters: Characters::Signed, seed: [1, 2, 3, 4] },
        blocks_max: 1 << 20,
    }
}

struct Test {
    memory: Memory,
    rules: DirectoryRules,
    start: AtomicU32,
    form: NameForm,
    model: BTreeMap<Vec<u8>, u32>,
}

impl Test {
    fn new(rules: DirectoryRules) -> Self {
        let memory = Memory { size: rules.format.block_size, full_at: usize::MAX, ..Memory::default() };
        let (start, form) = (AtomicU32::new(0), NameForm::Plain);
        let mut test = Self { memory, rules, start, form, model: BTreeMap::new() };
        test.directory().create(InodeNumber(2)).unwrap();
        test.model.insert(b".".to_vec(), 20);
        test.model.insert(b"..".to_vec(), 2);
        test
    }

    fn directory(&mut self) -> Directory<'_, &mut Memory> {
        Directory { blocks: &mut self.memory, rules: &self.rules, form: self.form, start: &self.start }
    }

    fn add(&mut self, name: &[u8], inode: u32) -> Result<()> {
        let mut directory = self.directory();
        assert_eq!(directory.find(name)?, None);
        let place = directory.make_space(name)?;
        directory.put(&place, &NewEntry { inode, kind: 1, name })?;
        self.model.insert(name.to_vec(), inode);
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) {
        let mut directory = self.directory();
        let found = directory.find(name).unwrap().unwrap();
        directory.remove(&found).unwrap();
        self.model.remove(name);
    }

    /// The entries that are listed together from a cursor on.
    fn batch(&mut self, cursor: u64) -> Result<Vec<DirectoryEntry>> {
        let mut batch = EntryBatch::default();
        self.directory().list(cursor, &mut batch)?;
        Ok((0..batch.len()).map(|nth| batch.get(nth).unwrap()).collect())
    }

    fn list(&mut self, mut cursor: u64, stop_after: usize) -> Vec<DirectoryEntry> {
        let mut all = Vec::new();
        loop {
            let mut batch = self.batch(cursor).unwrap();
            if batch.is_empty() {
                return all;
            }
            batch.truncate(stop_after);
            cursor = batch.last().unwrap().next_cursor;
            all.extend(batch);
        }
    }

    fn check(&mut self) {
        for stop_after in [usize::MAX, 1] {
            if stop_after == 1 && self.model.len() > 2000 {
                continue;
            }
            let listed = self.list(0, stop_after);
            assert_eq!(listed.len(), self.model.len());
            let listed: BTreeMap<_, _> = listed.into_iter().map(|e| (e.name, e.inode.0)).collect();
            assert_eq!(listed, self.model);
        }
        for (name, inode) in &self.model.clone() {
            assert_eq!(self.directory().find(name).unwrap().unwrap().inode.0, *inode);
        }
        if self.memory.indexed {
            self.directory().check_index().unwrap();
        }
        for (number, block) in self.memory.blocks.iter().enumerate() {
            if !self.memory.indexed || (number > 0 && !htree::looks_like_node(&self.rules.format, block)) {
                self.rules.format.check(block).unwrap();
            }
        }
    }
}

fn any_rules() -> impl Strategy<Value = DirectoryRules> {
    (
        prop_oneof![Just(1024_usize), Just(4096)],
        any::<bool>(),
        prop_oneof![3 => Just(true), 1 => Just(false)],
        0_u8..3,
    )
        .prop_map(|(size, tail, index, version)| rules(size, tail, index, 1, version))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn directory_behaves_as_a_map(
        rules in any_rules(),
        steps in proptest::collection::vec((0_u8..8, 0_u32..400, 0_usize..60), 1..900),
    ) {
        let mut test = Test::new(rules);
        for (what, n, pad) in steps {
            let name = [format!("file{n}").into_bytes(), vec![b'x'; if n % 7 == 0 { n as usize % 200 } else { 0 }]].concat();
            match what {
                0..5 if !test.model.contains_key(&name) => test.add(&name, n + 100).unwrap(),
                5 | 6 if test.model.contains_key(&name) => test.remove(&name),
                7 if pad == 0 => test.start = AtomicU32::new(n),
                7 => {
                    if let Some(found) = test.directory().find(&name).unwrap() {
                        test.directory().set_inode(&found, InodeNumber(n + 1000), 1).unwrap();
                        test.model.insert(name, n + 1000);
                    }
                }
                _ => {}
            }
        }
        test.check();
    }

    #[test]
    fn directory_that_ignores_case_behaves_as_a_map_of_folded_names(
        rules in any_rules(),
        steps in proptest::collection::vec((0_u8..8, 0_u32..300, any::<bool>(), any::<bool>()), 1..600),
    ) {
        let mut test = Test::new(rules);
        test.form = NameForm::Folded;
        let mut stored = BTreeMap::new();
        for (what, n, upper, forget) in steps {
            let lower = format!("\u{e9}t\u{e9}-{n}-stra\u{df}e");
            let name = if upper { lower.to_uppercase() } else { lower.clone() }.into_bytes();
            if forget && n < 10 {
                test.start = AtomicU32::new(n);
            }
            let found = test.directory().find(&name).unwrap();
            prop_assert_eq!(found.is_some(), stored.contains_key(&n));
            match stored.get(&n) {
                None if what < 6 => {
                    test.add(&name, n + 100).unwrap();
                    stored.insert(n, name);
                }
                Some(as_stored) if what > 4 => {
                    let found = found.unwrap();
                    prop_assert_eq!(found.inode.0, n + 100);
                    test.directory().remove(&found).unwrap();
                    test.model.remove(as_stored);
                    stored.remove(&n);
                }
                _ => {}
            }
        }
        test.check();
    }

    #[test]
    fn flipped_bits_never_panic_or_loop(
        rules in any_rules(),
        flips in proptest::collection::vec((any::<usize>(), any::<usize>(), 0_u8..8), 1..12),
        head_only in any::<bool>(),
    ) {
        let mut test = Test::new(rules);
        for n in 0..300 {
            test.add(format!("a-name-of-some-length-{n}").as_bytes(), n + 100).unwrap();
        }
        for (block, byte, bit) in flips {
            let blocks = test.memory.blocks.len();
            let size = if head_only { 48 } else { rules.format.block_size };
            test.memory.blocks[block % blocks][byte % size] ^= 1 << bit;
        }
        let mut cursor = 0;
        for _ in 0..10_000 {
            let Ok(batch) = test.batch(cursor) else { break };
            let Some(last) = batch.last() else { break };
            prop_assert!(last.next_cursor > cursor);
            cursor = last.next_cursor;
        }
        for n in 0..320 {
            let name = format!("a-name-of-some-length-{n}").into_bytes();
            let mut directory = test.directory();
            match directory.find(&name) {
                Ok(Some(found)) => { let _ = directory.remove(&found); }
                Ok(None) => {
                    if let Ok(place) = directory.make_space(&name) {
                        let _ = directory.put(&place, &NewEntry { inode: 12, kind: 1, name: &name });
                    }
                }
                Err(_) => {}
            }
        }
        let _ = test.directory().is_empty();
    }
}

#[test]
fn index_grows_to_two_and_three_levels_and_reports_when_full() {
    for (levels_max, names, width) in [(1, 5_000, 120), (2, 60_000, 240)] {
        let mut test = Test::new(rules(1024, true, true, levels_max, 1));
        let mut full = false;
        for n in 0..names {
            let name = format!("{n:0>width$}");
            match test.add(name.as_bytes(), n + 100) {
                Ok(()) => {}
                Err(Error::NoSpace) => full = true,
                Err(error) => panic!("{error}"),
            }
        }
        let root = test.directory().root().unwrap();
        assert_eq!(root.levels, levels_max);
        assert!(!full);
        test.check();
        let names: Vec<_> = test.model.keys().filter(|name| name.len() > 2).cloned().collect();
        for name in &names {
            test.remove(name);
        }
        test.check();
        assert!(test.directory().is_empty().unwrap());
    }
    let mut test = Test::new(rules(1024, true, true, 0, 1));
    let error = (0..13_000).find_map(|n| test.add(format!("{n:0>120}").as_bytes(), n + 100).err());
    assert!(matches!(error, Some(Error::NoSpace)), "{error:?}");
    test.check();
}

#[test]
fn no_space_at_any_append_leaves_a_sound_directory() {
    let mut test = Test::new(rules(1024, true, true, 2, 1));
    let mut n = 0;
    while test.memory.blocks.len() < 600 {
        test.memory.full_at = test.memory.blocks.len();
        let name = format!("{n:0>200}");
        while test.add(name.as_bytes(), n + 100).is_err() {
            test.directory().check_index().map_or_else(|_| assert!(!test.memory.indexed), |()| ());
            test.memory.full_at += 1;
        }
        n += 1;
    }
    test.check();
}

#[test]
fn entries_present_throughout_a_listing_come_exactly_once_while_leaves_split() {
    for (make_index, start) in [(true, 3), (true, 500), (false, 3), (false, 500)] {
        let mut test = Test::new(rules(1024, false, make_index, 1, 1));
        let keep: Vec<_> = (0..start).map(|n| format!("keep-{n}").into_bytes()).collect();
        for name in &keep {
            test.add(name, 100).unwrap();
        }
        let (mut cursor, mut seen, mut n) = (0, BTreeMap::new(), 0);
        loop {
            let batch = test.batch(cursor).unwrap();
            let Some(entry) = batch.into_iter().next() else { break };
            cursor = entry.next_cursor;
            *seen.entry(entry.name).or_insert(0) += 1;
            if n < 3000 {
                for _ in 0..7 {
                    test.add(format!("new-{n}").as_bytes(), 100).unwrap();
                    if n % 3 == 0 {
                        test.remove(format!("new-{n}").as_bytes());
                    }
                    n += 1;
                }
            }
        }
        for name in &keep {
            assert_eq!(seen.get(name), Some(&1), "{}", String::from_utf8_lossy(name));
        }
        assert!(seen.values().all(|times| *times == 1));
    }
}

#[test]
fn corrupt_index_is_read_in_line_and_not_written() {
    let mut test = Test::new(rules(1024, false, true, 1, 1));
    for n in 0..500 {
        test.add(format!("file-{n}").as_bytes(), n + 100).unwrap();
    }
    test.memory.blocks[0][34] = 0; // number of index entries
    assert_eq!(test.directory().find(b"file-77").unwrap().unwrap().inode.0, 177);
    assert_eq!(test.directory().find(b"file-777").unwrap(), None);
    let listed = test.list(0, 10);
    assert_eq!(listed.len(), 502);
    assert!(matches!(test.directory().make_space(b"new"), Err(Error::Corrupt(_))));
}

#[test]
fn listing_refuses_names_that_would_leave_the_directory() {
    for make_index in [false, true] {
        let mut test = Test::new(rules(1024, false, make_index, 1, 1));
        test.add(b"../../etc", 100).unwrap();
        let mut is_damaged = false;
        for cursor in [0, 2] {
            let mut batch = EntryBatch::default();
            test.directory().list(cursor, &mut batch).unwrap();
            is_damaged |= batch.is_damaged();
            assert!((0..batch.len()).all(|nth| !batch.get(nth).unwrap().name.contains(&b'/')));
        }
        assert!(is_damaged, "the name is hidden without a word");
        test.form = NameForm::Encrypted(None);
        let shown = [0, 2].map(|c| test.batch(c).unwrap()).concat();
        let all_plain =
            |name: &[u8]| name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
        assert!(shown.iter().all(|entry| all_plain(&entry.name)));
        assert!(shown.iter().any(|entry| entry.name.len() == "AAAAAAAAAAAuLi8uLi9ldGM".len()));
    }
}
