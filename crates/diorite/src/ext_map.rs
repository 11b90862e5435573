//! The mapping of a file on an ext volume.
//!
//! A translation of units and types, and one thing more: a claim on data blocks brings with it a claim on the blocks that
//! mapping them may need, so that write-back cannot run out of room for an indirect block.

use std::any::Any;
use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_block::sync::Mutex;
use diorite_ext::{FileBlock, Inode, MappingKind, Reservation, SyncKind, Volume, WriteCommit};

use crate::Result;
use crate::map::{
    Durability, MapBlocks, MapCommit, ReservationToken, Reserved, ReservedRange, Stretch, StretchKind,
};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct ExtMap {
    volume: Arc<Volume>,
    inode: Arc<Inode>,
    claims: Mutex<Claims>,
}

#[derive(Debug, Default)]
struct Claims {
    data: u64,
    mapping: u64,
}

#[derive(Debug)]
struct Token(Reservation);

impl ReservationToken for Token {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ExtMap {
    /// The mapping of `inode`.
    pub(crate) fn new(volume: Arc<Volume>, inode: Arc<Inode>) -> Self {
        Self { volume, inode, claims: Mutex::default() }
    }

    /// The blocks that a range of bytes touches: the first, and how many.
    fn blocks(&self, offset: u64, len: u64) -> (FileBlock, u64) {
        let size = self.volume.block_size();
        let first = size.block_of(offset);
        let end = size.blocks_for(offset.saturating_add(len.max(1)));
        (first, end - first.0)
    }

    fn reserve_now(&self, offset: u64, len: u64) -> diorite_ext::Result<Reservation> {
        let (first, count) = self.blocks(offset, len);
        self.volume.reserve(&self.inode, first, count)
    }

    /// Claim `blocks` where space is short: each write claims for its mapping as if it stood alone, and what writes side by side
    /// will share is given back first. Returns what was claimed for the mapping.
    fn claim_tightly(&self, blocks: u64) -> diorite_ext::Result<u64> {
        let pointers = self.block_size() / 4;
        let needed = |data: u64| 2 * (data / pointers) + 8;
        let (spare, mapping) = {
            let mut claims = self.claims.lock();
            let spare = claims.mapping.saturating_sub(needed(claims.data));
            claims.mapping -= spare;
            (spare, needed(claims.data + blocks).saturating_sub(claims.mapping))
        };
        self.volume.release_claim(spare);
        self.volume.claim(blocks + mapping)?;
        Ok(mapping)
    }

    /// Claim blocks of the volume for data, and what mapping them may need.
    fn claim_blocks(&self, blocks: u64) -> Result<()> {
        let mapping = blocks / (self.block_size() / 4) + 6;
        let claimed = match self.volume.claim(blocks + mapping) {
            Ok(()) => mapping,
            Err(diorite_ext::Error::NoSpace) => self.claim_tightly(blocks)?,
            Err(error) => return Err(error.into()),
        };
        let mut claims = self.claims.lock();
        claims.data += blocks;
        claims.mapping += claimed;
        Ok(())
    }

    /// Give up the claims on blocks for the mapping: a reservation is about to take its own.
    fn release_mapping_claim(&self) -> u64 {
        let mapping = std::mem::take(&mut self.claims.lock().mapping);
        self.volume.release_claim(mapping);
        mapping
    }
}

impl MapBlocks for ExtMap {
    fn device(&self) -> &Arc<dyn BlockDevice> {
        self.volume.device()
    }

    fn block_size(&self) -> u64 {
        self.volume.block_size().bytes()
    }

    fn recorded_size(&self) -> u64 {
        self.volume.attributes(&self.inode).size
    }

    fn max_size(&self) -> u64 {
        self.volume.max_file_size(&self.inode)
    }

    fn map(&self, offset: u64, len: u64) -> Result<Stretch> {
        let (first, count) = self.blocks(offset, len);
        let mapping = self.volume.map(&self.inode, first, count)?;
        let size = self.volume.block_size();
        let kind = match mapping.kind {
            MappingKind::Hole => StretchKind::Hole,
            MappingKind::Mapped(block) => StretchKind::Mapped(size.sector_of(block)),
            MappingKind::Unwritten(block) => StretchKind::Unwritten(size.sector_of(block)),
            MappingKind::Inline => StretchKind::Inline,
        };
        Ok(Stretch {
            offset: size.offset_of(mapping.start),
            len: mapping.blocks.saturating_mul(size.bytes()),
            kind,
        })
    }

    fn is_inline(&self) -> Result<bool> {
        // Of most volumes no file is, and nobody has to look.
        Ok(self.volume.has_inline_data()
            && self.volume.map(&self.inode, FileBlock(0), 1)?.kind == MappingKind::Inline)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<Reserved> {
        let reservation = match self.reserve_now(offset, len) {
            Err(diorite_ext::Error::NoSpace) if self.release_mapping_claim() > 0 => {
                self.reserve_now(offset, len)?
            }
            result => result?,
        };
        let size = self.volume.block_size();
        let runs = reservation
            .runs()
            .iter()
            .map(|run| ReservedRange {
                offset: size.offset_of(run.start),
                len: run.blocks.saturating_mul(size.bytes()),
                sector: size.sector_of(run.block),
            })
            .collect();
        Ok(Reserved { runs, token: Box::new(Token(reservation)) })
    }

    fn check_room(&self, offset: u64, len: u64) -> Result<()> {
        if !self.volume.enforces_quota() {
            return Ok(());
        }
        let (first, count) = self.blocks(offset, len);
        let (mut at, end, mut holes) = (first, first.0 + count, 0);
        while at.0 < end {
            let mapping = self.volume.map(&self.inode, at, end - at.0)?;
            let blocks = mapping.blocks.clamp(1, end - at.0);
            holes += if mapping.kind == MappingKind::Hole { blocks } else { 0 };
            at = FileBlock(at.0 + blocks);
        }
        Ok(self.volume.check_quota(&self.inode, holes)?)
    }

    fn claim(&self, blocks: u64) -> Result<()> {
        self.volume.claim_quota(&self.inode, blocks)?;
        self.claim_blocks(blocks).inspect_err(|_| self.volume.release_quota_claim(&self.inode, blocks))
    }

    fn release_claim(&self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        self.volume.release_quota_claim(&self.inode, blocks);
        let mut claims = self.claims.lock();
        let rest = claims.data.saturating_sub(blocks);
        let mapping = if rest == 0 { claims.mapping } else { (claims.mapping * blocks) / claims.data.max(1) };
        let mapping = mapping.min(claims.mapping);
        claims.data = rest;
        claims.mapping -= mapping;
        drop(claims);
        self.volume.release_claim(blocks + mapping);
    }

    fn claimed(&self) -> u64 {
        self.claims.lock().data
    }

    fn commit(&self, commit: MapCommit) -> Result<()> {
        let size = self.volume.block_size();
        let reservations = commit
            .reserved
            .into_iter()
            .map(|reserved| {
                reserved
                    .token
                    .into_any()
                    .downcast::<Token>()
                    .expect("reservations are committed where made")
                    .0
            })
            .collect();
        let converted = commit
            .converted
            .into_iter()
            .map(|(offset, len)| (size.block_of(offset), len / size.bytes()))
            .collect();
        let commit = WriteCommit {
            reservations,
            converted,
            size_at_least: commit.size_at_least,
            modified: commit.modified,
        };
        Ok(self.volume.commit_write(&self.inode, commit)?)
    }

    fn allocate(&self, offset: u64, len: u64, size_at_least: Option<u64>) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.allocate_unwritten(&self.inode, first, count, size_at_least)?)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        Ok(self.volume.truncate(&self.inode, size)?)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.punch(&self.inode, first, count)?)
    }

    fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.collapse_range(&self.inode, first, count)?)
    }

    fn insert_range(&self, offset: u64, len: u64) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.insert_range(&self.inode, first, count)?)
    }

    fn read_inline(&self) -> Result<Vec<u8>> {
        Ok(self.volume.read_inline(&self.inode)?)
    }

    fn make_not_inline(&self) -> Result<()> {
        Ok(self.volume.make_not_inline(&self.inode)?)
    }

    fn sync(&self, durability: Durability) -> Result<()> {
        let kind = match durability {
            Durability::Data => SyncKind::Data,
            Durability::All => SyncKind::All,
        };
        Ok(self.volume.sync_inode(&self.inode, kind)?)
    }
}
