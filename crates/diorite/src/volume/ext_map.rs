//! The mapping of a file on an ext volume.
//!
//! Translates units and types. A claim on data blocks also claims the blocks that their mapping may need, so that
//! writeback cannot run out of space for an indirect block.
//!
//! Invariant: claimed blocks belong to the data until it is on the device. A reservation takes a claim over in one
//! step, and an unused rest returns in one step, so that no other file can take the blocks in between.

use std::sync::Arc;

use diorite_block::sync::{Mutex, Rank};
use diorite_block::{BlockDevice, Sector};
use diorite_ext::{Claim, FileBlock, Inode, MappingKind as BlockMapping, Reservation, Volume};

use crate::Result;
use crate::store::map::{
    MapBlocks, Mapping, MappingKind, ReservationToken, Reserved, ReservedRun, SyncKind, WriteCommit,
};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct ExtMap {
    volume: Arc<Volume>,
    inode: Arc<Inode>,
    claims: Arc<Mutex<Claims>>,
}

/// Blocks of the volume that this file has claimed.
#[derive(Debug, Default)]
struct Claims {
    /// For dirty data that has no blocks.
    data: u64,
    /// For the mapping of that data.
    mapping: u64,
    /// Upper bound of the calls that claimed `data`: each may need another part of the mapping.
    calls: u64,
    /// The part of `data` that is becoming a reservation.
    moving: u64,
    /// The part of that which was given up meanwhile.
    given_up: u64,
    /// Blocks that reservations took over and that their pages have not given up yet.
    reserved: u64,
}

impl Claims {
    /// Take everything out, for a reservation that may need it.
    fn take(&mut self) -> Claim {
        self.moving = std::mem::take(&mut self.data);
        Claim { data: self.moving, mapping: std::mem::take(&mut self.mapping) }
    }

    /// Put back the rest of a reservation. Returns the blocks that are no longer needed.
    fn put_back(&mut self, own: Claim, taken: Claim) -> u64 {
        self.moving = 0;
        self.data += own.data - taken.data;
        self.mapping += own.mapping - taken.mapping;
        self.reserved += taken.data;
        let given_up = std::mem::take(&mut self.given_up);
        self.give_up(given_up)
    }

    /// Give up claims of data blocks. Returns how many blocks of the volume become free.
    fn give_up(&mut self, blocks: u64) -> u64 {
        let of_reserved = blocks.min(self.reserved);
        self.reserved -= of_reserved;
        let data = (blocks - of_reserved).min(self.data);
        self.data -= data;
        if self.moving > 0 {
            self.given_up += blocks - of_reserved - data;
        } else if self.data == 0 {
            self.calls = 0;
            return data + std::mem::take(&mut self.mapping);
        }
        data
    }
}

/// A reservation, whose claims go back to the file if it is not used.
#[derive(Debug)]
struct Token {
    reservation: Option<Reservation>,
    volume: Arc<Volume>,
    claims: Arc<Mutex<Claims>>,
}

impl Drop for Token {
    fn drop(&mut self) {
        let Some(mut reservation) = self.reservation.take() else { return };
        let taken = reservation.taken();
        if taken == Claim::default() {
            return;
        }
        // Claimed again before the blocks are free.
        self.volume.files.renew_claim(taken.data);
        let mut claims = self.claims.lock();
        claims.data += taken.data;
        claims.reserved -= taken.data.min(claims.reserved);
        claims.mapping += reservation.take_mapping_claim();
    }
}

impl ReservationToken for Token {
    fn is_counted(&self) -> bool {
        self.reservation.as_ref().is_some_and(Reservation::is_counted)
    }
}

impl ExtMap {
    /// The mapping of `inode`.
    pub(crate) fn new(volume: Arc<Volume>, inode: Arc<Inode>) -> Self {
        Self { volume, inode, claims: Arc::new(Mutex::ranked(Rank::Claims, Claims::default())) }
    }

    /// The blocks that a range of bytes touches: the first, and how many.
    fn blocks(&self, offset: u64, len: u64) -> (FileBlock, u64) {
        let size = self.volume.block_size();
        let first = size.block_of(offset);
        let end = size.blocks_for(offset.saturating_add(len.max(1)));
        (first, end - first.0)
    }

    /// Claim blocks for data, and for the mapping of all claimed data of the file. The lock is held until the claim
    /// is made, since two callers at once would each count on the other's mapping blocks.
    fn claim_blocks(&self, blocks: u64) -> Result<()> {
        let mut claims = self.claims.lock();
        let data = claims.data + claims.moving + blocks;
        let wanted = self.volume.files.mapping_need_max(&self.inode, data, claims.calls + 1);
        let mapping = wanted.saturating_sub(claims.mapping);
        self.volume.files.claim(blocks + mapping)?;
        claims.data += blocks;
        claims.mapping += mapping;
        claims.calls += 1;
        Ok(())
    }

    /// Keep unused mapping blocks for the other claimed data, as far as it may need them.
    fn keep_for_mapping(&self, blocks: u64) {
        let mut claims = self.claims.lock();
        let wanted = self.volume.files.mapping_need_max(&self.inode, claims.data, claims.calls);
        let kept = wanted.saturating_sub(claims.mapping).min(blocks);
        claims.mapping += kept;
        drop(claims);
        self.volume.files.release_claim(blocks - kept);
    }

    /// Reserve with the claims of the file; the rest stays claimed.
    fn with_claim(
        &self,
        reserve: impl FnOnce(Claim) -> diorite_ext::Result<Reservation>,
    ) -> Result<Reserved> {
        let own = self.claims.lock().take();
        let result = reserve(own);
        let taken = result.as_ref().map(Reservation::taken).unwrap_or_default();
        let unwanted = self.claims.lock().put_back(own, taken);
        self.volume.files.release_claim(unwanted);
        Ok(self.reserved(result?))
    }

    fn reserved(&self, reservation: Reservation) -> Reserved {
        let size = self.volume.block_size();
        let runs = reservation
            .runs()
            .iter()
            .map(|run| ReservedRun {
                offset: size.offset_of(run.start),
                len: run.blocks.saturating_mul(size.bytes()),
                sector: Sector::containing(size.address_of(run.block)),
            })
            .collect();
        let (volume, claims) = (Arc::clone(&self.volume), Arc::clone(&self.claims));
        Reserved { runs, token: Box::new(Token { reservation: Some(reservation), volume, claims }) }
    }
}

impl MapBlocks for ExtMap {
    fn device(&self) -> &Arc<dyn BlockDevice> {
        self.volume.device()
    }

    fn check_process(&self) -> Result<()> {
        Ok(self.volume.check_process()?)
    }

    fn block_size(&self) -> u64 {
        self.volume.block_size().bytes()
    }

    fn recorded_size(&self) -> u64 {
        self.inode.size()
    }

    fn max_size(&self) -> u64 {
        self.volume.files.max_size(&self.inode)
    }

    fn map(&self, offset: u64, len: u64) -> Result<Mapping> {
        let (first, count) = self.blocks(offset, len);
        let found = self.volume.files.map(&self.inode, first, count)?;
        let size = self.volume.block_size();
        let sector = |block| Sector::containing(size.address_of(block));
        let kind = match found.kind {
            BlockMapping::Hole => MappingKind::Hole,
            BlockMapping::Mapped(block) => MappingKind::Mapped(sector(block)),
            BlockMapping::Unwritten(block) => MappingKind::Unwritten(sector(block)),
            BlockMapping::Inline => MappingKind::Inline,
        };
        Ok(Mapping {
            offset: size.offset_of(found.start),
            len: found.blocks.saturating_mul(size.bytes()),
            kind,
        })
    }

    fn is_inline(&self) -> Result<bool> {
        // Most volumes have no inline files at all.
        Ok(self.volume.has_inline_data()
            && self.volume.files.map(&self.inode, FileBlock(0), 1)?.kind == BlockMapping::Inline)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<Reserved> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.reserved(self.volume.files.reserve(&self.inode, first, count)?))
    }

    fn reserve_claimed(&self, offset: u64, len: u64) -> Result<Reserved> {
        let (first, count) = self.blocks(offset, len);
        self.with_claim(|own| self.volume.files.reserve_claimed(&self.inode, first, count, own))
    }

    fn reserve_conversion(&self, offset: u64, len: u64, is_claimed: bool) -> Result<Option<Reserved>> {
        let (first, count) = self.blocks(offset, len);
        let reserve = |own| self.volume.files.reserve_conversion(&self.inode, first, count, own);
        let reserved =
            if is_claimed { self.with_claim(reserve) } else { Ok(self.reserved(reserve(Claim::default())?)) };
        reserved.map(Some)
    }

    fn check_quota(&self, offset: u64, len: u64) -> Result<()> {
        if !self.volume.quotas.is_enforced() {
            return Ok(());
        }
        let (first, count) = self.blocks(offset, len);
        let (mut at, end, mut holes) = (first, first.0 + count, 0);
        while at.0 < end {
            let mapping = self.volume.files.map(&self.inode, at, end - at.0)?;
            let blocks = mapping.blocks.clamp(1, end - at.0);
            holes += if mapping.kind == BlockMapping::Hole { blocks } else { 0 };
            at = FileBlock(at.0 + blocks);
        }
        Ok(self.volume.quotas.check(&self.inode, holes)?)
    }

    fn claim(&self, blocks: u64) -> Result<()> {
        self.volume.quotas.claim(&self.inode, blocks)?;
        self.claim_blocks(blocks).inspect_err(|_| self.volume.quotas.release_claim(&self.inode, blocks))
    }

    fn release_claim(&self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        self.volume.quotas.release_claim(&self.inode, blocks);
        let freed = self.claims.lock().give_up(blocks);
        self.volume.files.release_claim(freed);
    }

    fn commit(&self, commit: WriteCommit) -> Result<()> {
        let size = self.volume.block_size();
        let mut reservations: Vec<Reservation> = commit
            .reserved
            .into_iter()
            .filter_map(|reserved| reserved.into_token::<Token>().reservation.take())
            .collect();
        let promised: u64 = reservations.iter_mut().map(Reservation::take_mapping_claim).sum();
        let converted = commit
            .converted
            .into_iter()
            .map(|(offset, len)| (size.block_of(offset), len / size.bytes()))
            .collect();
        let mut commit = diorite_ext::WriteCommit {
            reservations,
            converted,
            size_at_least: commit.size_at_least,
            modified: commit.modified,
        };
        let result = self.volume.files.commit_write(&self.inode, &mut commit);
        // Blocks that were not recorded are claimed by the data again.
        for reservation in
            commit.reservations.into_iter().filter(|reservation| !reservation.runs().is_empty())
        {
            drop(self.reserved(reservation));
        }
        let used = promised.min(*result.as_ref().unwrap_or(&0));
        self.volume.files.release_claim(used);
        self.keep_for_mapping(promised - used);
        Ok(result.map(drop)?)
    }

    fn allocate(&self, offset: u64, len: u64, size_at_least: Option<u64>) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.files.allocate_unwritten(&self.inode, first, count, size_at_least)?)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.files.zero(&self.inode, first, count)?)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        Ok(self.volume.files.truncate(&self.inode, size)?)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.files.punch(&self.inode, first, count)?)
    }

    fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.files.collapse_range(&self.inode, first, count)?)
    }

    fn insert_range(&self, offset: u64, len: u64) -> Result<()> {
        let (first, count) = self.blocks(offset, len);
        Ok(self.volume.files.insert_range(&self.inode, first, count)?)
    }

    fn read_inline(&self) -> Result<Vec<u8>> {
        Ok(self.volume.files.read_inline(&self.inode)?)
    }

    fn zero_inline(&self, offset: u64, end: u64) -> Result<()> {
        Ok(self.volume.files.zero_inline(&self.inode, offset..end)?)
    }

    fn make_not_inline(&self) -> Result<()> {
        Ok(self.volume.files.make_not_inline(&self.inode)?)
    }

    fn is_durable(&self, kind: SyncKind) -> bool {
        self.volume.is_inode_durable(&self.inode, kind)
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        Ok(self.volume.sync_inode(&self.inode, kind)?)
    }
}
