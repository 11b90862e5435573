//! Direct writes.

use std::io::IoSlice;
use std::sync::Arc;

use diorite_block::BioFlags;

use crate::content::plan::{Room, plan_write};
use crate::content::{Attempt, Content, Position, pages_of};
use crate::direct::{WINDOW, check_alignment};
use crate::map::Durability;
use crate::{Result, SyncMode};

/// How the data of a synchronous write becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Its bios carried FUA, where the device has that.
    ByFua,
    /// It needs a flush, where the device has a cache.
    ByFlush,
}

impl Content {
    /// Write from the caller's memory; returns where it went and how much was written: less only when the volume filled up
    /// on the way.
    pub(crate) fn write_direct(
        self: &Arc<Self>,
        data: &[IoSlice<'_>],
        position: Position,
        sync: SyncMode,
    ) -> Result<(u64, usize)> {
        self.with_room(|attempt| self.write_direct_once(data, position, sync, attempt))
    }

    fn write_direct_once(
        self: &Arc<Self>,
        data: &[IoSlice<'_>],
        position: Position,
        sync: SyncMode,
        attempt: Attempt,
    ) -> Result<(u64, usize)> {
        let segments = data.iter().map(|segment| (segment.as_ptr().addr(), segment.len()));
        let offset = match position {
            Position::At(offset) => offset,
            Position::End => self.size(),
        };
        let len: u64 = data.iter().map(|segment| segment.len() as u64).sum();
        if len > 0 {
            check_alignment(self.geometry(), offset, segments.clone())?;
        }
        let (offset, range_lock) = self.lock_for_write(position, len)?;
        if len == 0 {
            return Ok((offset, 0));
        }
        check_alignment(self.geometry(), offset, segments)?;
        self.leave_inode()?;
        let range = self.locked_range(offset, offset + len);
        self.write_back_locked(range.clone(), BioFlags::SYNC)?;
        let pages = pages_of(range.start, range.end);
        self.drop_pages(pages.clone());
        let mut done = 0;
        let taking = self.take_blocks(attempt)?;
        let result = match attempt {
            Attempt::First => self.write_windows(data, offset, sync, &mut done),
            Attempt::Alone => self.write_segments(data, offset, sync, &mut done),
        };
        drop(taking);
        // Nothing can have come between, by the lock; this is what holds if that ever changes.
        self.drop_pages(pages);
        drop(range_lock);
        match result {
            Err(error) if done == 0 || !Self::is_no_space(&error) => return Err(error),
            _ => {}
        }
        self.engine.counters.direct_write_bytes.add(done);
        self.finish_sync(sync, Durable::ByFua)?;
        Ok((offset, done as usize))
    }

    fn write_windows(
        self: &Arc<Self>,
        data: &[IoSlice<'_>],
        offset: u64,
        sync: SyncMode,
        done: &mut u64,
    ) -> Result<()> {
        let mut parts: Vec<(u64, &[u8])> = Vec::with_capacity(data.len());
        let mut at = offset;
        for segment in data {
            let mut rest: &[u8] = segment;
            while !rest.is_empty() {
                let window_start = parts.first().map_or(at, |(offset, _)| *offset);
                let room = WINDOW - (at - window_start);
                let (now, later) = rest.split_at(rest.len().min(room as usize));
                parts.push((at, now));
                (at, rest) = (at + now.len() as u64, later);
                if at - window_start == WINDOW {
                    self.write_window(&parts, sync)?;
                    *done = at - offset;
                    parts.clear();
                }
            }
        }
        if !parts.is_empty() {
            self.write_window(&parts, sync)?;
            *done = at - offset;
        }
        Ok(())
    }

    /// Write a segment after the other, as far as there is room.
    fn write_segments(
        &self,
        data: &[IoSlice<'_>],
        offset: u64,
        sync: SyncMode,
        done: &mut u64,
    ) -> Result<()> {
        let (mut at, mut written) = (offset, offset);
        for memory in data.iter().flat_map(|segment| segment.chunks(WINDOW as usize)) {
            let end = at + memory.len() as u64;
            let result = self.write_what_fits(at, memory, end, sync, &mut written);
            *done = written - offset;
            result?;
            at = end;
        }
        Ok(())
    }

    /// Write one window, then record it. The caller has the range exclusively.
    pub(crate) fn write_window(&self, parts: &[(u64, &[u8])], sync: SyncMode) -> Result<()> {
        let end = parts.last().map_or(0, |(offset, memory)| offset + memory.len() as u64);
        self.write_window_to(parts, end, sync)
    }

    /// As [`Content::write_window`], where the file ends within the last part.
    pub(crate) fn write_window_to(&self, parts: &[(u64, &[u8])], end: u64, sync: SyncMode) -> Result<()> {
        let mut flags = BioFlags::SYNC;
        if sync != SyncMode::None && self.geometry().fua {
            flags |= BioFlags::FUA;
        }
        if let Some((start, _)) = parts.first() {
            self.map.check_room(*start, end - start)?;
        }
        let plan = plan_write(&*self.map, parts, &self.engine.zeros, flags, Room::Unclaimed)?;
        let (summary, mut commit) = plan.submit(&*self.map)?;
        self.engine.counters.bios.add(summary.bios);
        self.engine.counters.direct_bios.add(summary.bios);
        commit.size_at_least = (end > self.map.recorded_size()).then_some(end);
        self.note_modified();
        self.commit(commit)?;
        self.grow(end);
        Ok(())
    }

    /// Make a finished write as durable as the handle wants it.
    pub(crate) fn finish_sync(&self, sync: SyncMode, durable: Durable) -> Result<()> {
        let geometry = self.geometry();
        let needs_flush = geometry.volatile_cache && !(geometry.fua && durable == Durable::ByFua);
        match sync {
            SyncMode::All => self.sync_recorded(Durability::All),
            SyncMode::Data if self.is_unsynced() => self.sync_recorded(Durability::Data),
            // An overwrite of blocks that a sync can find already: the data alone.
            SyncMode::Data if needs_flush => {
                self.engine.counters.flushes.add(1);
                Ok(self.map.device().flush()?)
            }
            SyncMode::Data | SyncMode::None => Ok(()),
        }
    }
}
