//! Scan of a journal: committed transactions, blocks that were revoked, and the newest content of
//! each block.
//!
//! Where it sits: the first half of recovery; it writes nothing. The result is a [`Replay`].
//!
//! Rules, as jbd2 has them:
//! - The log ends at the first block that has no header with the expected sequence number.
//! - A transaction counts if its commit block is there and its checksums match. A commit block with a wrong checksum
//!   ends the log. A descriptor or revoke block with a wrong checksum ends it if it is a leftover (its commit block
//!   is older than the one before), and is damage otherwise.
//! - Where the log ends, it was cut off or it is damaged: a transaction is written only after the one before is durable, so
//!   an intact block of a later one, or the intact commit block of this one, says that this one was whole ([`find_later`]).
//! - A block that a transaction revokes is not replayed from that transaction or an earlier one.
//! - A committed transaction that is damaged (the checksum of a logged block does not match, a tag or revoke record
//!   is not valid) ends the replay: it and later ones are not replayed, so the volume has the state before it ([`Replay::damage`]).
//!   jbd2 refuses such a volume as a whole.
//!
//! Cost: each log block is looked at once, and the surviving ones once more if there are checksums; where one of these is damaged, all
//! logged blocks once more; after the end of the log, as many blocks as a transaction can have. Memory is one record for each tag
//! that is in the log, never the content.

use std::collections::HashMap;

use diorite_block::BlockDevice;

use super::fast::FastCommits;
use super::log_map::{LogMap, LogReader};
use super::replay::{Replay, ReplayedBlock};
use crate::format::{
    CommitTime, CompatFeatures, Header, JournalSuperblock, RecordKind, RecordLayout, TagFlags,
    TransactionChecksum,
};
use crate::{BlockSize, Corrupt, FsBlock, Result};

/// No transaction has more than this part of the log's blocks, whatever writes it.
const TRANSACTION_SHARE: u64 = 3;

/// Find the blocks to replay.
pub(super) fn scan<E>(
    device: &dyn BlockDevice,
    map: &LogMap,
    superblock: &JournalSuperblock,
    block_size: BlockSize,
    volume_blocks: u64,
    fast: &mut dyn FastCommits<E>,
) -> Result<Replay> {
    let mut reader = LogReader::new(device, map, block_size);
    let layout = superblock.layout(block_size.bytes());
    let mut scan = Scan {
        superblock,
        layout,
        map,
        volume_blocks,
        position: superblock.start,
        heads: Vec::new(),
        visited: 0,
        sequence: superblock.sequence,
        last_commit: CommitTime::default(),
        tags: Vec::new(),
        revoked: Vec::new(),
        open: Open::default(),
        damage: None,
        end: End::default(),
    };
    if superblock.start != 0 {
        while scan.step(&mut reader)? {}
        if scan.damage.is_none() {
            scan.damage = scan.find_later(&mut reader)?;
        }
        if scan.damage.is_none() {
            scan.damage = fast.read(&mut reader, superblock, scan.sequence)?;
        }
    }
    let mut blocks = scan.newest();
    if layout.has_checksums() && scan.first_damaged(&blocks, &mut reader)?.is_some() {
        scan.end_before_damage(&mut reader)?;
        fast.clear();
        blocks = scan.newest();
    }
    Ok(scan.finish(blocks))
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
    /// Checksum of the first generation, if the journal has those.
    checksum: Option<TransactionChecksum>,
}

/// Where the scan ended, and after how many blocks of complete transactions.
#[derive(Debug, Default)]
struct End {
    block: u32,
    complete: u64,
}

struct Scan<'a> {
    superblock: &'a JournalSuperblock,
    layout: RecordLayout,
    map: &'a LogMap,
    volume_blocks: u64,
    position: u32,
    /// Where the log goes on after each complete transaction.
    heads: Vec<u32>,
    /// Log blocks passed so far; the log is not longer than itself.
    visited: u64,
    sequence: u32,
    last_commit: CommitTime,
    tags: Vec<ReplayedBlock>,
    /// Revoked blocks, each with its transaction (counted from the first in the log), the oldest first.
    revoked: Vec<(FsBlock, u32)>,
    open: Open,
    /// Of the transaction after the last complete one.
    damage: Option<Corrupt>,
    end: End,
}

impl Scan<'_> {
    /// Look at the next block of the log itself; `false` at the end.
    fn step(&mut self, reader: &mut LogReader<'_>) -> Result<bool> {
        let at = self.position;
        self.end.block = at;
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
                return Ok(self.commit(&block));
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
        if !self.layout.has_valid_checksum(&block) {
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
        if !self.layout.has_valid_checksum(block) {
            self.open.damaged.get_or_insert(at);
            return;
        }
        let Some(targets) = self.layout.revoked(block) else {
            self.open.overfull_revoke.get_or_insert(at);
            return;
        };
        self.open.revoked.extend(targets);
    }

    /// A commit block: take the open transaction over and return `true`, or end the log.
    fn commit(&mut self, block: &[u8]) -> bool {
        let open = std::mem::take(&mut self.open);
        let time = CommitTime::of(block);
        if let Some(damaged) = open.damaged {
            if time >= self.last_commit {
                let what = "the checksum of a block in a committed transaction does not match";
                self.damage = Some(Corrupt::Journal { block: damaged.into(), what });
            }
            return false;
        }
        let is_intact = open.checksum.is_none_or(|checksum| checksum.matches(block));
        if !is_intact || !self.layout.has_valid_commit_checksum(block) {
            return false;
        }
        if let Some(block) = open.overfull_revoke {
            let what = "a revoke block counts more records than fit into it";
            self.damage = Some(Corrupt::Journal { block: block.into(), what });
            return false;
        }
        if let Some(damage) = open.tags.iter().find_map(|tag| self.wrong_target(tag)) {
            self.damage = Some(damage);
            return false;
        }
        let transaction = self.transaction();
        self.tags.extend(open.tags);
        self.revoked.extend(open.revoked.into_iter().map(|block| (block, transaction)));
        self.last_commit = time;
        self.sequence = self.sequence.wrapping_add(1);
        self.heads.push(self.position);
        self.end.complete = self.visited;
        true
    }

    /// After the last complete transaction.
    fn head(&self) -> u32 {
        self.heads.last().copied().unwrap_or(self.superblock.start)
    }

    /// Whether the transaction at which the scan ended was whole once: then its damage is named.
    fn find_later(&self, reader: &mut LogReader<'_>) -> Result<Option<Corrupt>> {
        let log_blocks = u64::from(self.superblock.log_blocks());
        let left = (log_blocks - self.end.complete.min(log_blocks)).min(log_blocks / TRANSACTION_SHARE + 2);
        let mut at = self.head();
        for _ in 0..left {
            if self.is_later(reader.read(at)?, left) {
                let what = "a committed transaction is damaged, and a later one is intact";
                return Ok(Some(Corrupt::Journal { block: self.end.block.into(), what }));
            }
            at = self.superblock.next(at);
        }
        Ok(None)
    }

    /// Whether a block was written when the transaction at which the scan ended was durable already. It is of one of the next `left`
    /// transactions, or its own commit block.
    fn is_later(&self, block: &[u8], left: u64) -> bool {
        let Some(header) = Header::parse(block) else { return false };
        let later = u64::from(header.sequence.wrapping_sub(self.sequence));
        match header.kind {
            Some(RecordKind::Descriptor | RecordKind::Revoke) => {
                (1..=left).contains(&later) && self.layout.has_valid_checksum(block)
            }
            Some(RecordKind::Commit) => {
                // A commit block with a checksum of the first generation may be written before its transaction is.
                let first = u64::from(self.superblock.compat.contains(CompatFeatures::CHECKSUM));
                let is_newer = CommitTime::of(block) >= self.last_commit;
                (first..=left).contains(&later) && is_newer && self.layout.has_valid_commit_checksum(block)
            }
            _ => false,
        }
    }

    fn wrong_target(&self, tag: &ReplayedBlock) -> Option<Corrupt> {
        let what = if tag.target.0 >= self.volume_blocks {
            "a logged block belongs outside the volume"
        } else if self.map.contains(tag.target) {
            "a logged block belongs to the journal itself"
        } else {
            return None;
        };
        Some(Corrupt::Journal { block: tag.log.into(), what })
    }

    /// The newest version of each block, without those that were revoked since.
    fn newest(&mut self) -> Vec<ReplayedBlock> {
        // Stable: among equals the newest comes last.
        self.tags.sort_by_key(|tag| tag.target);
        let mut blocks: Vec<ReplayedBlock> = Vec::new();
        for tag in &self.tags {
            match blocks.last_mut() {
                Some(last) if last.target == tag.target => *last = *tag,
                _ => blocks.push(*tag),
            }
        }
        let revoked: HashMap<FsBlock, u32> = self.revoked.iter().copied().collect();
        blocks.retain(|tag| revoked.get(&tag.target).is_none_or(|revoked| *revoked < tag.transaction));
        blocks
    }

    /// Of these blocks, the one of the oldest transaction whose content does not have its checksum.
    fn first_damaged(
        &self,
        blocks: &[ReplayedBlock],
        reader: &mut LogReader<'_>,
    ) -> Result<Option<ReplayedBlock>> {
        let mut oldest_first = blocks.to_vec();
        oldest_first.sort_unstable_by_key(|block| (block.transaction, block.log));
        for block in oldest_first {
            let sequence = self.superblock.sequence.wrapping_add(block.transaction);
            if self.layout.data_checksum(sequence, reader.read(block.log)?) != block.checksum {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// A block to replay is damaged: the replay ends before the first transaction that has any damaged block.
    fn end_before_damage(&mut self, reader: &mut LogReader<'_>) -> Result<()> {
        let Some(damaged) = self.first_damaged(&self.tags, reader)? else { return Ok(()) };
        let end = damaged.transaction;
        self.tags.retain(|tag| tag.transaction < end);
        self.revoked.retain(|(_, transaction)| *transaction < end);
        self.heads.truncate(end as usize);
        self.sequence = self.superblock.sequence.wrapping_add(end);
        let what = "the checksum of a logged block does not match";
        self.damage = Some(Corrupt::Journal { block: damaged.log.into(), what });
        Ok(())
    }

    fn finish(self, blocks: Vec<ReplayedBlock>) -> Replay {
        Replay {
            blocks,
            head: self.head(),
            // The transaction that was cut off has the number after the last one; skip it, so that what is left of it
            // never counts.
            next_sequence: if self.superblock.start == 0 {
                self.sequence
            } else {
                self.sequence.wrapping_add(1)
            },
            damage: self.damage,
        }
    }
}
