//! What a journal still has to give: scan, revoke, and the newest content of each block.
//!
//! Where it sits: called when a volume is opened, before anything else is read of it. [`scan`] writes nothing;
//! [`Replay::apply`] puts the blocks in their places, [`super::OverlayDevice`] serves them from the log instead.
//!
//! Rules, as jbd2 has them:
//! - The log ends at the first block that has no header with the expected sequence number.
//! - A transaction counts if its commit block is there and its checksums match. A commit block with a wrong checksum
//!   ends the log. A descriptor or revoke block with a wrong checksum ends it if it is a leftover (its commit block
//!   is older than the one before), and is corruption otherwise.
//! - A block that a transaction revokes is not replayed from that transaction or an earlier one.
//! - A logged block whose checksum does not match is corruption.
//!
//! Cost: each log block is looked at once, and the surviving ones once more where there are checksums; memory is one
//! record for each tag that is in the log, never the content.

use std::collections::HashMap;

use diorite_block::{BioFlags, BlockDevice, Plug};

use super::fast_commit::{self, FastChange};
use super::format::{
    CommitTime, CompatFeatures, Header, JournalSuperblock, MAGIC, RecordKind, RecordLayout, TagFlags,
    TransactionChecksum,
};
use super::log_map::{LogMap, LogReader};
use crate::memory::BlockMemory;
use crate::{BlockSize, Corrupt, FsBlock, Result};

/// Bytes that [`Replay::apply`] holds in memory.
const BATCH_BYTES: usize = 4 << 20;

/// A block that the log has newer than its place on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayedBlock {
    /// Its place on the volume.
    pub(crate) target: FsBlock,
    /// Its newest content, as a block of the journal.
    pub(crate) log: u32,
    /// Whether its first four bytes were taken out because they look like a header.
    pub(crate) escaped: bool,
    transaction: u32,
    checksum: u32,
}

/// What a journal holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    /// Blocks to replay, by target, each once.
    pub(crate) blocks: Vec<ReplayedBlock>,
    /// Complete transactions that were found.
    pub(crate) transactions: u32,
    /// The log's block behind the last complete transaction.
    pub(crate) head: u32,
    /// The sequence number that the next transaction must have: nothing that is left in the log matches it.
    pub(crate) next_sequence: u32,
    /// What fast commits change on top of the blocks.
    pub(crate) fast: Vec<FastChange>,
}

/// Find out what has to be replayed.
pub(crate) fn scan(
    device: &dyn BlockDevice,
    map: &LogMap,
    superblock: &JournalSuperblock,
    block_size: BlockSize,
    volume_blocks: u64,
) -> Result<Replay> {
    let mut reader = LogReader::new(device, map, block_size);
    let layout = superblock.layout(block_size.bytes());
    let mut scan = Scan {
        superblock,
        layout,
        map,
        volume_blocks,
        position: superblock.start,
        head: superblock.start,
        visited: 0,
        sequence: superblock.sequence,
        last_commit: CommitTime::default(),
        tags: Vec::new(),
        revoked: HashMap::new(),
        open: Open::default(),
    };
    if superblock.start != 0 {
        while scan.step(&mut reader)? {}
    }
    let fast = match superblock.start {
        0 => Vec::new(),
        _ => fast_commit::read(&mut reader, superblock, scan.sequence)?,
    };
    let replay = Replay { fast, ..scan.finish() };
    replay.verify(&mut reader, &layout)?;
    Ok(replay)
}

/// The transaction that is being scanned: counts only when its commit block is found.
#[derive(Debug, Default)]
struct Open {
    tags: Vec<ReplayedBlock>,
    revoked: Vec<FsBlock>,
    /// First block of the transaction whose checksum does not match.
    damaged: Option<u32>,
    /// A revoke block whose count is larger than the block.
    overfull_revoke: Option<u32>,
    /// Checksum of the first generation, where the journal has those.
    checksum: Option<TransactionChecksum>,
}

struct Scan<'a> {
    superblock: &'a JournalSuperblock,
    layout: RecordLayout,
    map: &'a LogMap,
    volume_blocks: u64,
    position: u32,
    /// Behind the last complete transaction.
    head: u32,
    /// Log blocks passed so far; the log is not longer than itself.
    visited: u64,
    sequence: u32,
    last_commit: CommitTime,
    tags: Vec<ReplayedBlock>,
    /// The newest transaction (counted from the first in the log) that revoked a block.
    revoked: HashMap<FsBlock, u32>,
    open: Open,
}

impl Scan<'_> {
    /// Look at the next block of the log itself; `false` at the end.
    fn step(&mut self, reader: &mut LogReader<'_>) -> Result<bool> {
        let at = self.position;
        if self.visited >= u64::from(self.superblock.log_blocks()) {
            return Ok(false);
        }
        let block = reader.read(at)?;
        let Some(header) = Header::parse(block).filter(|header| header.sequence == self.sequence) else {
            return Ok(false);
        };
        self.advance(1);
        match header.kind {
            Some(RecordKind::Descriptor) => self.descriptor(at, reader)?,
            Some(RecordKind::Revoke) => self.revoke(at, block),
            Some(RecordKind::Commit) => {
                let block = block.to_vec();
                return self.commit(&block);
            }
            Some(RecordKind::SuperblockV1 | RecordKind::SuperblockV2) | None => return Ok(false),
        }
        Ok(true)
    }

    fn advance(&mut self, blocks: u32) {
        for _ in 0..blocks {
            self.position = self.superblock.next(self.position);
        }
        self.visited += u64::from(blocks);
    }

    /// Transactions are counted from the first one: sequence numbers wrap around.
    fn transaction(&self) -> u32 {
        self.sequence.wrapping_sub(self.superblock.sequence)
    }

    fn descriptor(&mut self, at: u32, reader: &mut LogReader<'_>) -> Result<()> {
        let block = reader.read(at)?.to_vec();
        if !self.layout.is_sealed(&block) {
            self.open.damaged.get_or_insert(at);
        }
        if self.superblock.compat.contains(CompatFeatures::CHECKSUM) {
            self.open.checksum.get_or_insert_with(TransactionChecksum::new).update(&block);
        }
        let layout = self.layout;
        for tag in layout.tags(&block) {
            if self.visited >= u64::from(self.superblock.log_blocks()) {
                // More blocks than the log has: no commit block can follow.
                return Ok(());
            }
            self.open.tags.push(ReplayedBlock {
                target: tag.target,
                log: self.position,
                escaped: tag.flags.contains(TagFlags::ESCAPED),
                transaction: self.transaction(),
                checksum: tag.checksum,
            });
            if let Some(checksum) = &mut self.open.checksum {
                checksum.update(reader.read(self.position)?);
            }
            self.advance(1);
        }
        Ok(())
    }

    fn revoke(&mut self, at: u32, block: &[u8]) {
        if !self.layout.is_sealed(block) {
            self.open.damaged.get_or_insert(at);
            return;
        }
        let Some(targets) = self.layout.revoked(block) else {
            self.open.overfull_revoke.get_or_insert(at);
            return;
        };
        self.open.revoked.extend(targets);
    }

    /// A commit block: take the open transaction over, or end the log.
    fn commit(&mut self, block: &[u8]) -> Result<bool> {
        let open = std::mem::take(&mut self.open);
        let time = CommitTime::of(block);
        if let Some(damaged) = open.damaged {
            if time >= self.last_commit {
                let what = "the checksum of a block in a committed transaction does not match";
                return Err(Corrupt::Journal { block: damaged.into(), what }.into());
            }
            return Ok(false);
        }
        let sealed = open.checksum.is_none_or(|checksum| checksum.matches(block));
        if !sealed || !self.layout.is_commit_sealed(block) {
            return Ok(false);
        }
        if let Some(block) = open.overfull_revoke {
            let what = "a revoke block counts more records than it has room for";
            return Err(Corrupt::Journal { block: block.into(), what }.into());
        }
        for tag in &open.tags {
            self.check_target(tag)?;
        }
        let transaction = self.transaction();
        self.tags.extend(open.tags);
        self.revoked.extend(open.revoked.into_iter().map(|block| (block, transaction)));
        self.last_commit = time;
        self.sequence = self.sequence.wrapping_add(1);
        self.head = self.position;
        Ok(true)
    }

    fn check_target(&self, tag: &ReplayedBlock) -> Result<()> {
        let what = if tag.target.0 >= self.volume_blocks {
            "a logged block belongs outside the volume"
        } else if self.map.contains(tag.target) {
            "a logged block belongs into the journal itself"
        } else {
            return Ok(());
        };
        Err(Corrupt::Journal { block: tag.log.into(), what }.into())
    }

    fn finish(mut self) -> Replay {
        // Stable: among equals the newest comes last.
        self.tags.sort_by_key(|tag| tag.target);
        let mut blocks: Vec<ReplayedBlock> = Vec::new();
        for tag in self.tags {
            match blocks.last_mut() {
                Some(last) if last.target == tag.target => *last = tag,
                _ => blocks.push(tag),
            }
        }
        blocks.retain(|tag| self.revoked.get(&tag.target).is_none_or(|revoked| *revoked < tag.transaction));
        Replay {
            blocks,
            head: self.head,
            transactions: self.sequence.wrapping_sub(self.superblock.sequence),
            // The transaction that was cut off has the number after the last one; skip it, so that what is left of it
            // never counts.
            next_sequence: if self.superblock.start == 0 {
                self.sequence
            } else {
                self.sequence.wrapping_add(1)
            },
            fast: Vec::new(),
        }
    }
}

impl Replay {
    /// Check the content of every block that is going to be replayed.
    fn verify(&self, reader: &mut LogReader<'_>, layout: &RecordLayout) -> Result<()> {
        if !layout.has_checksums() {
            return Ok(());
        }
        let mut in_log_order: Vec<_> = self.blocks.iter().collect();
        in_log_order.sort_unstable_by_key(|block| block.log);
        for block in in_log_order {
            let sequence = self.sequence_of(block);
            if layout.data_checksum(sequence, reader.read(block.log)?) != block.checksum {
                let what = "the checksum of a logged block does not match";
                return Err(Corrupt::Journal { block: block.log.into(), what }.into());
            }
        }
        Ok(())
    }

    fn sequence_of(&self, block: &ReplayedBlock) -> u32 {
        let first = self.next_sequence.wrapping_sub(1).wrapping_sub(self.transactions);
        first.wrapping_add(block.transaction)
    }

    /// Write every block to its place. The caller flushes the device and marks the journal empty afterwards.
    pub(crate) fn apply(&self, device: &dyn BlockDevice, map: &LogMap, block_size: BlockSize) -> Result<()> {
        let size = block_size.bytes() as usize;
        let per_batch = (BATCH_BYTES / size).max(1);
        let mut memory = BlockMemory::zeroed(per_batch.min(self.blocks.len()) * size);
        for batch in self.blocks.chunks(per_batch) {
            let memory = &mut memory[..batch.len() * size];
            read_batch(batch, memory, device, map, block_size)?;
            let mut plug = Plug::new(device.geometry(), BioFlags::META | BioFlags::SYNC);
            for (block, content) in batch.iter().zip(memory.chunks(size)) {
                plug.write(block_size.sector_of(block.target), content);
            }
            plug.unplug(device)?;
        }
        Ok(())
    }
}

/// Read the content of `batch` out of the log, in the log's order so that neighbours are one transfer.
fn read_batch(
    batch: &[ReplayedBlock],
    memory: &mut [u8],
    device: &dyn BlockDevice,
    map: &LogMap,
    block_size: BlockSize,
) -> Result<()> {
    let size = block_size.bytes() as usize;
    let mut in_log_order: Vec<_> = batch.iter().zip(memory.chunks_mut(size)).collect();
    in_log_order.sort_unstable_by_key(|(block, _)| block.log);
    let mut plug = Plug::new(device.geometry(), BioFlags::META | BioFlags::SYNC);
    for (block, to) in in_log_order {
        plug.read(block_size.sector_of(map.place_of(block.log)?.0), to);
    }
    plug.unplug(device)?;
    for (block, content) in batch.iter().zip(memory.chunks_mut(size)) {
        block.unescape(content);
    }
    Ok(())
}

impl ReplayedBlock {
    /// Make the content as it stands in the log what belongs on the volume.
    pub(crate) fn unescape(&self, content: &mut [u8]) {
        if self.escaped {
            content[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};
    use std::sync::Arc;

    use diorite_sim::image::{ImageDevice, SparseImage};

    use super::super::format::{IncompatFeatures, Tag};
    use super::super::overlay::OverlayDevice;
    use super::*;

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
            let mut sum = TransactionChecksum::new();
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
            scan(self.device(), &self.map, &self.superblock, SIZE, VOLUME_BLOCKS)
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
            let overlay = OverlayDevice::new(before, &replay, &self.map, SIZE).unwrap();
            let overlay: &dyn BlockDevice = &*overlay;
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

    /// DESIGN 4.6: the newest committed content of each block, around the end of the log and of the sequence numbers.
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

    #[test]
    fn commit_block_with_a_wrong_checksum_ends_the_log() {
        for (compat, incompat) in features()
            .into_iter()
            .filter(|(compat, incompat)| !compat.is_empty() || incompat.bits() & 0x18 != 0)
        {
            let mut log = Log::new(compat, incompat, 7, 100);
            log.transaction(&[(5, vec![1; 1024])].into(), &[], true);
            let expected = log.expected.clone();
            let end = log.position + 2;
            log.transaction(&[(6, vec![2; 1024])].into(), &[], true);
            log.transaction(&[(7, vec![2; 1024])].into(), &[], true);
            let place = log.map.place_of(end).unwrap().0.0;
            let mut commit = Log::block(log.device(), place);
            commit[0x10] ^= 1;
            log.device().write_bytes(place * 1024, &commit, BioFlags::NONE).unwrap();
            log.expected = expected;
            log.check();
            assert_eq!(log.scan().unwrap().next_sequence, 9);
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
            let error = log.scan().unwrap_err();
            assert!(error.to_string().contains(&format!("journal block {position}")), "{error}");
        }
    }

    /// DESIGN 4.10: targets outside the volume or inside the journal, and logs that never end.
    #[test]
    fn hostile_logs_are_refused_or_end() {
        for (target, what) in [(VOLUME_BLOCKS, "outside"), (u64::MAX >> 33, "outside"), (1010, "itself")] {
            let mut log = Log::new(CompatFeatures::empty(), IncompatFeatures::BLOCKS_64BIT, 7, 1);
            log.transaction(&[(target, vec![1; 1024])].into(), &[], true);
            assert!(log.scan().unwrap_err().to_string().contains(what));
        }
        let mut log = Log::new(CompatFeatures::empty(), IncompatFeatures::empty(), 7, 1);
        let mut block = vec![0; 1024];
        for _ in 0..2 * LOG_BLOCKS {
            Header::put(&mut block, RecordKind::Revoke, 7);
            block[12..16].copy_from_slice(&16u32.to_be_bytes());
            log.put(&block);
        }
        assert_eq!(log.scan().unwrap().transactions, 0);
        for _ in 0..2 * LOG_BLOCKS {
            Header::put(&mut block, RecordKind::Descriptor, 7);
            log.put(&block);
        }
        assert_eq!(log.scan().unwrap().transactions, 0);
    }

    /// DESIGN 4.10: random damage anywhere never panics or loops.
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
                    let _ = scan(log.device(), &log.map, &superblock, SIZE, VOLUME_BLOCKS);
                }
            }
        }
    }
}
