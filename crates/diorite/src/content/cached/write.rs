//! Writes through the page cache.
//!
//! A write takes its range exclusively, claims blocks for holes, makes sure that its pages are there (reading those that it
//! covers only in part), copies, and marks them dirty. Where the blocks go is decided at writeback.

use std::io::IoSlice;

use diorite_block::BioFlags;

use crate::content::write::bounce::{BounceBuffer, count_bounce};
use crate::content::write::{
    LockedRange, Position, WriteMode, WriteOp, WriteRange, Written, bytes_from, len_of,
};
use crate::content::{Content, pages_of};
use crate::store::PAGE_SIZE;
use crate::store::reservation::Reservation;
use crate::{Error, Result};

impl Content {
    /// Write `data`; less than all only when the volume filled up on the way.
    pub(crate) fn write_cached(&self, data: &[IoSlice<'_>], position: Position) -> Result<Written> {
        let len = len_of(data);
        if len == 0 {
            return Ok(Written { offset: self.store.offset_of(position), len: 0, stopped: None });
        }
        if self.engine.cache.dirty() > self.engine.dirty_limit() {
            self.engine.write_back_to(self.engine.dirty_left());
            if self.engine.cache.dirty() > self.engine.dirty_limit() && self.cache.retry.is_waiting() {
                // A file that cannot be written back does not fill the cache.
                self.cache.write_back_all()?;
            }
        }
        let LockedRange { range, id } = self.lock_range(position, len)?;
        let lock = self.store.ranges.guard(id);
        self.move_out_of_inode()?;
        let mut at = range.offset;
        let copied = data.iter().try_for_each(|segment| self.write_locked(segment, &range, &mut at));
        if at > range.offset {
            self.store.note_modified();
            self.engine.note_dirty(&self.cache);
        }
        let (end, stopped) = match copied {
            Err(error) if error.is_out_of_space() => {
                let buffer = BounceBuffer::new(&self.store, range.end - at)?;
                let rest = LockedRange { range: WriteRange { offset: at, ..range.clone() }, id: lock.keep() };
                self.write_rest_through(data, range.offset, rest, buffer)?
            }
            copied => (at, copied.err()),
        };
        Written::up_to(range.offset, end, stopped)
    }

    /// No space can be reserved for the rest of a cached write: it goes to the device at once, as far as there is
    /// space. Returns its end, and why the write is short.
    fn write_rest_through(
        &self,
        data: &[IoSlice<'_>],
        begin: u64,
        rest: LockedRange,
        mut buffer: BounceBuffer<'_>,
    ) -> Result<(u64, Option<Error>)> {
        let at = rest.range.offset;
        let data: Vec<IoSlice<'_>> = bytes_from(data, (at - begin) as usize).map(IoSlice::new).collect();
        let mut reservation = Reservation::new(&self.store.shared);
        let begun = WriteOp::begin_locked(self, rest, WriteMode::from(None), buffer.step());
        let written = begun.and_then(|mut op| {
            self.engine.retry(&mut reservation, |reservation| op.place(reservation))?;
            buffer.write(op, &data, reservation)
        });
        match written {
            Ok(written) => {
                count_bounce(&self.store, written.len as u64);
                Ok((at + written.len as u64, written.stopped))
            }
            Err(error) if error.is_out_of_space() => Ok((at, Some(error))),
            Err(error) => Err(error),
        }
    }

    /// Write the next segment of a write, whose whole range the caller has exclusively. `at` is the end of the
    /// written bytes.
    pub(in crate::content) fn write_locked(
        &self,
        mut data: &[u8],
        range: &WriteRange,
        at: &mut u64,
    ) -> Result<()> {
        while !data.is_empty() {
            let pages = pages_of(*at, *at + data.len() as u64);
            let last = pages.end.min(pages.start + self.engine.pages_per_step());
            let end = (*at + data.len() as u64).min(last * PAGE_SIZE);
            let (now, later) = data.split_at((end - *at) as usize);
            // The reservation ends when its pages are dirty: evicting pages must not stop other threads.
            self.cache.write_step(now, *at, &range.whole, &mut Reservation::new(&self.store.shared))?;
            (*at, data) = (end, later);
            if !data.is_empty() && self.engine.cache.dirty() > self.engine.dirty_limit() {
                // No other thread can write back the pages in the locked range.
                self.cache.write_back(self.store.locked_range(range.offset, end), BioFlags::NONE)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::io::IoSlice;
    use std::time::Duration;

    use super::*;
    use crate::cache::engine::{Engine, EngineOptions};
    use crate::store::toy_map::ToyMap;

    const BLOCK: u64 = 1024;

    /// A file with the smallest cache, whose dirty pages are not written back by age.
    fn file(block: u64) -> (Arc<Content>, ToyMap) {
        let options = EngineOptions {
            cache_bytes: 0,
            read_ahead_bytes: 0,
            dirty_age: Duration::from_secs(3600),
            ..EngineOptions::default()
        };
        let map = ToyMap::new(block, (4 << 20) / block, false);
        let view = map.reopen();
        let engine = Engine::new(&options).expect("memory");
        (Content::new(Box::new(map), engine).expect("content"), view)
    }

    fn write(content: &Arc<Content>, offset: u64, data: &[u8]) {
        let written = content.write_cached(&[IoSlice::new(data)], Position::At(offset)).expect("written");
        assert_eq!(written.len, data.len());
    }

    /// A long write frees frames by writing back its own pages, and not those before it, which another thread may be writing.
    #[test]
    fn a_writer_that_needs_frames_leaves_the_ranges_of_others_alone() {
        let (content, _) = file(BLOCK);
        write(&content, 0, &[1; PAGE_SIZE as usize]);
        let _theirs = content.store.ranges.exclusive(0..PAGE_SIZE);
        let frame = content.cache.pages.get(0).expect("cached").frame;
        let _writing = content.engine.cache.arena.write(frame).expect("no thread reads it");
        write(&content, 1 << 20, &vec![2; 60 * PAGE_SIZE as usize]);
        assert!(
            content.cache.pages.get(0).expect("cached").dirty != 0,
            "what they write is not on the device"
        );
    }

    /// Blocks that were claimed for what lies after the new end go back.
    #[test]
    fn a_file_that_shrinks_within_a_page_keeps_no_claim_for_what_it_lost() {
        let (content, view) = file(BLOCK);
        write(&content, 2 * BLOCK, &[1; 2 * BLOCK as usize]);
        assert_eq!(view.claimed(), 2);
        content.set_len(2 * BLOCK + 5).expect("shorter");
        assert_eq!(view.claimed(), 1);
        content.set_len(5).expect("shorter");
        assert_eq!(view.claimed(), 0);
    }

    /// The claim of a block that is larger than a page is with one of its pages, which may be cut off.
    #[test]
    fn a_block_that_the_file_still_ends_in_keeps_its_claim_until_it_is_written() {
        let (content, view) = file(4 * PAGE_SIZE);
        write(&content, 2 * PAGE_SIZE, &[1; PAGE_SIZE as usize]);
        write(&content, 0, &[2; PAGE_SIZE as usize]);
        assert_eq!(view.claimed(), 1);
        content.set_len(PAGE_SIZE).expect("shorter");
        let is_dirty = content.cache.pages.dirty() > 0;
        assert_eq!(view.claimed(), u64::from(is_dirty));
    }
}
