//! Logs made by hand, scanned and replayed: sound, cut off, damaged, hostile.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use diorite_sim::image::{ImageDevice, SparseImage};

use diorite_block::{BioFlags, BlockDevice};

use super::fast::FastCommits;
use super::log_map::{LogMap, LogReader};
use super::replay::Replay;
use super::scan::scan;
use super::scratch::ScratchDevice;
use crate::format::{
    CommitTime, CompatFeatures, Header, IncompatFeatures, JournalSuperblock, MAGIC, RecordKind, Tag,
    TagFlags, TransactionChecksum,
};
use crate::{BlockSize, Corrupt, FsBlock, Result};

/// For a filesystem without fast commits.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoFastCommits;

impl FastCommits for NoFastCommits {
    fn read(&mut self, _: &mut LogReader<'_>, _: &JournalSuperblock, _: u32) -> Result<Option<Corrupt>> {
        Ok(None)
    }

    fn clear(&mut self) {}

    fn is_empty(&self) -> bool {
        true
    }

    fn replay(&self, _: Arc<ScratchDevice>) -> Result<Result<(), Corrupt>> {
        Ok(Ok(()))
    }
}

const SIZE: BlockSize = BlockSize::new(1024).unwrap();
const VOLUME_BLOCKS: u64 = 2048;
const LOG_BLOCKS: u32 = 120;

/// A volume with a journal in two parts, and what replay must give.
struct Log {
    device: Arc<ImageDevice>,
    map: LogMap,
    superblock: JournalSuperblock,
    position: u32,
    sequence: u32,
    expected: BTreeMap<u64, Vec<u8>>,
}

impl Log {
    fn new(compat: CompatFeatures, incompat: IncompatFeatures, sequence: u32, start: u32) -> Self {
        let device = ImageDevice::new(SparseImage::new(VOLUME_BLOCKS * 1024));
        let mut map = LogMap::new();
        map.push(FsBlock(1500), 70, VOLUME_BLOCKS).unwrap();
        map.push(FsBlock(1000), u64::from(LOG_BLOCKS) - 70, VOLUME_BLOCKS).unwrap();
        let mut raw = vec![0; 1024];
        Header::put(&mut raw, RecordKind::SuperblockV2, 0);
        for (at, value) in [(0x0c, 1024), (0x10, LOG_BLOCKS), (0x14, 1)] {
            raw[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        raw[0x30..0x40].fill(9);
        let mut superblock = JournalSuperblock::parse(&raw, 1024, LOG_BLOCKS.into()).unwrap();
        superblock.set_features(compat, incompat);
        (superblock.start, superblock.sequence) = (start, sequence);
        let superblock = JournalSuperblock::parse(&superblock.encode(), 1024, LOG_BLOCKS.into()).unwrap();
        let map = map.finish().unwrap();
        Self { device, map, superblock, position: start, sequence, expected: BTreeMap::new() }
    }

    fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn put(&mut self, block: &[u8]) {
        let place = self.map.place_of(self.position).unwrap().0;
        self.device().write_bytes(place.0 * 1024, block, BioFlags::NONE).unwrap();
        self.position = self.superblock.next(self.position);
    }

    /// Log a transaction; without `commit` it does not count.
    fn transaction(&mut self, blocks: &BTreeMap<u64, Vec<u8>>, revoked: &[u64], commit: bool) {
        let layout = self.superblock.layout(1024);
        let mut own = vec![0; 1024];
        let mut sum = TransactionChecksum::default();
        let revokes: Vec<_> = revoked.iter().copied().map(FsBlock).collect();
        if !revokes.is_empty() {
            assert_eq!(layout.put_revoke(&mut own, self.sequence, &revokes), revokes.len());
            self.put(&own);
        }
        let mut logged = Vec::new();
        for (target, content) in blocks {
            let mut content = content.clone();
            let escaped = content[..4] == MAGIC.to_be_bytes();
            if escaped {
                content[..4].fill(0);
            }
            let flags = if escaped { TagFlags::ESCAPED } else { TagFlags::empty() };
            let checksum = layout.data_checksum(self.sequence, &content);
            logged.push((Tag { target: FsBlock(*target), flags, checksum }, content));
        }
        let mut rest = &logged[..];
        while !rest.is_empty() {
            let tags: Vec<_> = rest.iter().map(|(tag, _)| *tag).collect();
            let count = layout.put_descriptor(&mut own, self.sequence, &tags);
            sum.update(&own);
            self.put(&own);
            for (_, content) in &rest[..count] {
                sum.update(content);
                self.put(content);
            }
            rest = &rest[count..];
        }
        if commit {
            layout.put_commit(&mut own, self.sequence, CommitTime { seconds: 5, nanoseconds: 0 });
            if self.superblock.compat.contains(CompatFeatures::CHECKSUM) {
                own[0x0c..0x0e].copy_from_slice(&[1, 4]);
                own[0x10..0x14].copy_from_slice(&sum.finalize().to_be_bytes());
            }
            self.put(&own);
            self.sequence = self.sequence.wrapping_add(1);
            self.expected.extend(blocks.clone());
            self.expected.retain(|block, _| !revoked.contains(block) || blocks.contains_key(block));
            // A revoked block of the same transaction is not replayed either.
            self.expected.retain(|block, _| !revoked.contains(block));
        }
    }

    fn scan(&self) -> Result<Replay> {
        scan::<crate::Error>(
            self.device(),
            &self.map,
            &self.superblock,
            SIZE,
            VOLUME_BLOCKS,
            &mut NoFastCommits,
        )
    }

    fn block(device: &dyn BlockDevice, block: u64) -> Vec<u8> {
        let mut memory = vec![0; 1024];
        device.read_bytes(block * 1024, &mut memory).unwrap();
        memory
    }

    /// Replay gives what is expected, through the overlay and in place.
    fn check(&self) {
        let replay = self.scan().unwrap();
        let before = ImageDevice::new(self.device.image());
        let overlay = ScratchDevice::new(before, SIZE).with_log(&replay, &self.map).unwrap();
        let overlay: &dyn BlockDevice = &overlay;
        replay.apply(self.device(), &self.map, SIZE).unwrap();
        for block in 0..1000 {
            let expected = self.expected.get(&block).cloned().unwrap_or(vec![0; 1024]);
            assert_eq!(Self::block(self.device(), block), expected, "block {block}");
        }
        let mut half = [0; 512];
        for block in 0..1000 {
            let placed = Self::block(self.device(), block);
            assert_eq!(Self::block(overlay, block), placed, "block {block}");
            overlay.read_bytes(block * 1024 + 512, &mut half).unwrap();
            assert_eq!(half, placed[512..]);
        }
    }
}

fn features() -> Vec<(CompatFeatures, IncompatFeatures)> {
    use IncompatFeatures as F;
    let mut list = vec![(CompatFeatures::CHECKSUM, F::REVOKE)];
    for checksum in [F::empty(), F::CHECKSUM_V2, F::CHECKSUM_V3] {
        list.push((CompatFeatures::empty(), checksum | F::REVOKE));
        list.push((CompatFeatures::empty(), checksum | F::REVOKE | F::BLOCKS_64BIT));
    }
    list
}

fn random_blocks(random: &mut fastrand::Rng, count: usize) -> BTreeMap<u64, Vec<u8>> {
    (0..count)
        .map(|_| {
            let mut content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1024).collect();
            if random.u8(..4) == 0 {
                content[..4].copy_from_slice(&MAGIC.to_be_bytes());
            }
            (random.u64(1..100), content)
        })
        .collect()
}

/// ARCHITECTURE invariant 6: the newest committed content of each block, around the end of the log and of the sequence numbers.
#[test]
fn replay_agrees_with_a_model() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..60 {
        let (compat, incompat) = features()[round % 7];
        let sequence = if round % 3 == 0 { u32::MAX - 2 } else { random.u32(1..1000) };
        let mut log = Log::new(compat, incompat, sequence, random.u32(1..LOG_BLOCKS));
        for _ in 0..random.usize(0..6) {
            let count = random.usize(0..14);
            let blocks = random_blocks(&mut random, count);
            let revoked: HashSet<_> = (0..random.usize(0..4)).map(|_| random.u64(1..100)).collect();
            log.transaction(&blocks, &revoked.into_iter().collect::<Vec<_>>(), true);
        }
        if random.bool() {
            let blocks = random_blocks(&mut random, 5);
            log.transaction(&blocks, &[1, 2, 3], false);
        }
        log.check();
    }
}

/// One byte of a log block changed.
fn damage(log: &Log, position: u32, byte: usize) {
    let place = log.map.place_of(position).unwrap().0.0;
    let mut block = Log::block(log.device(), place);
    block[byte] ^= 1;
    log.device().write_bytes(place * 1024, &block, BioFlags::NONE).unwrap();
}

/// A power cut tears the last transaction: it and nothing else is gone.
#[test]
fn torn_end_of_the_log_is_no_damage() {
    for (compat, incompat) in features() {
        let checksums = !compat.is_empty() || incompat.bits() & 0x18 != 0;
        // The first block of the header, where no checksum protects it.
        let byte = if checksums { 0x10 } else { 0 };
        let mut log = Log::new(compat, incompat, 7, 100);
        log.transaction(&[(5, vec![1; 1024])].into(), &[], true);
        let (expected, end) = (log.expected.clone(), log.position + 2);
        log.transaction(&[(6, vec![2; 1024])].into(), &[], true);
        damage(&log, end, byte);
        log.expected = expected;
        log.check();
        let replay = log.scan().unwrap();
        assert_eq!((replay.next_sequence, replay.damage), (9, None));
    }
}

/// A damaged commit block in the middle silently dropped its transaction and the intact ones after it, and the next write lost
/// them for good. Likewise descriptors and revoke blocks that are no such any more.
#[test]
fn damage_in_the_middle_of_the_log_is_found() {
    for (compat, incompat) in features() {
        let checksums = !compat.is_empty() || incompat.bits() & 0x18 != 0;
        // Revoke block, descriptor, a logged block, commit block; the header, or the middle.
        for (block, byte) in [(0, 0), (1, 0), (3, 0), (0, 5), (3, 7), (3, 0x10)] {
            if byte == 0x10 && !checksums {
                continue;
            }
            let mut log = Log::new(compat, incompat, 7, 100);
            log.transaction(&[(5, vec![1; 1024])].into(), &[], true);
            let (expected, damaged) = (log.expected.clone(), log.position + block);
            log.transaction(&[(6, vec![2; 1024])].into(), &[9], true);
            for target in 7..10 {
                log.transaction(&[(target, vec![3; 1024])].into(), &[], true);
            }
            damage(&log, damaged, byte);
            let replay = log.scan().unwrap();
            let found = replay.damage.map(|damage| damage.to_string()).unwrap_or_default();
            assert!(found.contains(&format!("journal block {damaged}")), "{block} {byte}: {found}");
            log.expected = expected;
            log.check();
        }
    }
}

#[test]
fn damaged_content_is_named_and_nothing_is_written() {
    for position in [100, 101] {
        let mut log = Log::new(CompatFeatures::empty(), IncompatFeatures::CHECKSUM_V3, 7, 100);
        log.transaction(&[(5, vec![1; 1024])].into(), &[], true);
        let place = log.map.place_of(position).unwrap().0.0;
        let mut content = Log::block(log.device(), place);
        content[500] ^= 1;
        log.device().write_bytes(place * 1024, &content, BioFlags::NONE).unwrap();
        let replay = log.scan().unwrap();
        let damage = replay.damage.unwrap().to_string();
        assert!(damage.contains(&format!("journal block {position}")), "{damage}");
        assert!(replay.blocks.is_empty() && replay.next_sequence == 8);
    }
}

/// One damaged logged block kept the volume from being opened. What was committed before its transaction is replayed, and nothing after
/// it; versions and revoke records of the transactions that are left out do not count. A block that is newer in a later transaction is
/// not missed.
#[test]
fn replay_ends_before_the_transaction_with_a_damaged_block() {
    for incompat in [IncompatFeatures::CHECKSUM_V2, IncompatFeatures::CHECKSUM_V3] {
        for sequence in [7, u32::MAX - 1] {
            let mut log =
                Log::new(CompatFeatures::empty(), incompat | IncompatFeatures::REVOKE, sequence, 100);
            log.transaction(&[(5, vec![1; 1024]), (6, vec![1; 1024])].into(), &[], true);
            let expected = log.expected.clone();
            let damaged = log.position + 1;
            log.transaction(&[(5, vec![2; 1024]), (7, vec![2; 1024])].into(), &[], true);
            log.transaction(&[(5, vec![3; 1024])].into(), &[6], true);
            damage(&log, damaged, 700);
            // The damaged version of block 5 is not needed.
            assert_eq!(log.scan().unwrap().damage, None);
            damage(&log, damaged + 1, 700);
            let replay = log.scan().unwrap();
            let found = replay.damage.map(|damage| damage.to_string()).unwrap_or_default();
            assert!(found.contains(&format!("journal block {damaged}")), "{found}");
            assert_eq!((replay.next_sequence, replay.blocks.len()), (sequence.wrapping_add(2), 2));
            let device = ImageDevice::new(log.device.image());
            log.scan().unwrap().apply(&*device, &log.map, SIZE).unwrap();
            for block in [5, 6, 7] {
                let expected = expected.get(&block).cloned().unwrap_or(vec![0; 1024]);
                assert!(Log::block(&*device, block) == expected, "block {block}");
            }
        }
    }
}

/// ARCHITECTURE invariant 10: targets outside the volume or inside the journal, and logs that never end.
#[test]
fn hostile_logs_are_refused_or_end() {
    for (target, what) in [(VOLUME_BLOCKS, "outside"), (u64::MAX >> 33, "outside"), (1010, "itself")] {
        let mut log = Log::new(CompatFeatures::empty(), IncompatFeatures::BLOCKS_64BIT, 7, 1);
        log.transaction(&[(target, vec![1; 1024])].into(), &[], true);
        let replay = log.scan().unwrap();
        assert!(replay.damage.unwrap().to_string().contains(what));
        assert!(replay.blocks.is_empty());
    }
    let mut log = Log::new(CompatFeatures::empty(), IncompatFeatures::empty(), 7, 1);
    let mut block = vec![0; 1024];
    for _ in 0..2 * LOG_BLOCKS {
        Header::put(&mut block, RecordKind::Revoke, 7);
        block[12..16].copy_from_slice(&16u32.to_be_bytes());
        log.put(&block);
    }
    assert_eq!(log.scan().unwrap().next_sequence, 8);
    for _ in 0..2 * LOG_BLOCKS {
        Header::put(&mut block, RecordKind::Descriptor, 7);
        log.put(&block);
    }
    assert_eq!(log.scan().unwrap().next_sequence, 8);
}

/// ARCHITECTURE invariant 10: random damage anywhere never panics or loops.
#[test]
fn random_damage_is_survived() {
    let mut random = fastrand::Rng::with_seed(2);
    for round in 0..300 {
        let (compat, incompat) = features()[round % 7];
        let mut log = Log::new(compat, incompat, 3, random.u32(1..LOG_BLOCKS));
        for _ in 0..3 {
            let blocks = random_blocks(&mut random, 8);
            log.transaction(&blocks, &[4], true);
        }
        for _ in 0..random.usize(1..20) {
            let place = log.map.place_of(random.u32(0..LOG_BLOCKS)).unwrap().0.0;
            let mut block = Log::block(log.device(), place);
            block[random.usize(..64)] = random.u8(..);
            log.device().write_bytes(place * 1024, &block, BioFlags::NONE).unwrap();
        }
        if let Ok(replay) = log.scan() {
            replay.apply(log.device(), &log.map, SIZE).unwrap();
        }
    }
}

#[test]
fn damaged_superblocks_are_refused_or_used() {
    let log = Log::new(CompatFeatures::empty(), IncompatFeatures::empty(), 3, 1);
    let good = log.superblock.encode();
    for at in 0..0x60 {
        for value in [0, 1, 0x10, 0x20, 0xff] {
            let mut raw = good.clone();
            raw[at] = value;
            if let Ok(superblock) = JournalSuperblock::parse(&raw, 1024, LOG_BLOCKS.into()) {
                let _ = scan::<crate::Error>(
                    log.device(),
                    &log.map,
                    &superblock,
                    SIZE,
                    VOLUME_BLOCKS,
                    &mut NoFastCommits,
                );
            }
        }
    }
}
