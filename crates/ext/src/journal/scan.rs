//! Finding what a journal still has to give: transactions that were committed, blocks that were revoked, and the newest content of
//! each block.
//!
//! Where it sits: the first half of recovery; it writes nothing. What it finds is a [`Replay`].
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

use diorite_block::BlockDevice;

use super::fast_commit;
use super::format::{
    CommitTime, CompatFeatures, Header, JournalSuperblock, RecordKind, RecordLayout, TagFlags,
    TransactionChecksum,
};
use super::log_map::{LogMap, LogReader};
use super::replay::{Replay, ReplayedBlock};
use crate::{BlockSize, Corrupt, FsBlock, Result};

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
            self.open.checksum.get_or_insert_default().update(&block);
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
