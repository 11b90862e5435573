//! The backing store of a file, below its page cache: the mapping, the size and the modification time, in memory and as recorded, and
//! transfers between memory and the file's blocks.
//!
//! Where it sits: above [`MapBlocks`]; below [`FileCache`](crate::cache::file_cache::FileCache) and direct I/O. Its callers hold the
//! range locks. The steps of a write are in `write.rs`, allocation without data in `content/resize.rs`.
//!
//! Interface: the size in memory ([`BackingStore::size`]) is the size that readers see. [`MapBlocks::recorded_size`]
//! follows when data is written.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diorite_block::{BioFlags, BlockDevice, Geometry};

use crate::store::PAGE_SIZE;
use crate::store::map::{MapBlocks, WriteCommit};
use crate::store::pending_time::{ContentTimes, PendingTime};
use crate::store::placement::{Segments, execute, place_read};
use crate::store::range_lock::RangeLock;
use crate::store::shared::SharedStore;
use crate::{Error, Result, SetTime};

/// See the module's head.
pub(crate) struct BackingStore {
    pub(crate) map: Box<dyn MapBlocks>,
    pub(crate) ranges: RangeLock,
    pub(crate) shared: Arc<SharedStore>,
    size: AtomicU64,
    pub(crate) time: PendingTime,
    /// See `end.rs`.
    pub(crate) end_is_zero: AtomicBool,
    /// The content may be in the inode.
    may_be_inline: AtomicBool,
}

diorite_block::short_debug!(BackingStore);

impl BackingStore {
    /// The file as it is recorded now.
    pub(crate) fn new(map: Box<dyn MapBlocks>, shared: Arc<SharedStore>) -> Result<Self> {
        let logical = u64::from(map.device().geometry().logical_block_size);
        if logical > PAGE_SIZE || map.block_size() < logical || map.block_size() > shared.zeros.len() as u64 {
            return Err(Error::Unsupported(
                "devices with logical blocks larger than 4096 bytes are not supported",
            ));
        }
        let is_inline = map.is_inline()?;
        Ok(Self {
            size: AtomicU64::new(map.recorded_size()),
            map,
            ranges: RangeLock::default(),
            shared,
            time: PendingTime::default(),
            end_is_zero: AtomicBool::new(false),
            may_be_inline: AtomicBool::new(is_inline),
        })
    }

    /// The size that readers see.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// The size is at least `end` now.
    pub(crate) fn grow(&self, end: u64) {
        // Most writes do not grow their file, and a load is cheaper.
        if end > self.size() {
            self.size.fetch_max(end, Ordering::AcqRel);
        }
    }

    /// The mapping has this size now. The caller has everything after the smaller size exclusively.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The device.
    pub(crate) fn device(&self) -> &dyn BlockDevice {
        &**self.map.device()
    }

    /// The device's geometry.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.map.device().geometry()
    }

    /// The device's logical block size.
    pub(crate) fn logical(&self) -> u64 {
        u64::from(self.geometry().logical_block_size)
    }

    /// Set the modification time to now, unless the caller sets it itself.
    pub(crate) fn note_modified(&self) {
        if self.shared.content_times == ContentTimes::ByWrite {
            self.time.set(self.shared.clock.now());
        }
    }

    /// Record a finished write, with the pending modification time.
    pub(crate) fn commit(&self, mut commit: WriteCommit) -> Result<()> {
        if commit.is_empty() {
            return Ok(());
        }
        self.time.record(|pending| {
            commit.modified = pending.map(SetTime::To).or(commit.modified);
            self.map.commit(commit)
        })
    }

    /// Read parts of the file into the next memory of `segments`. Returns the ranges without data, and the number of bios.
    pub(crate) fn read_parts<'a, S: Iterator<Item = &'a mut [u8]>>(
        &self,
        parts: impl IntoIterator<Item = Range<u64>>,
        segments: &mut Segments<'a, S>,
        flags: BioFlags,
    ) -> Result<(Vec<Range<u64>>, u64)> {
        let placed = place_read(&*self.map, parts)?;
        let bios = execute(segments.plug(&placed, self.geometry(), flags), self.device())?;
        self.shared.counters.bytes_copied.add(placed.inline_bytes());
        self.shared.counters.bios.add(bios);
        Ok((placed.unmapped, bios))
    }

    /// Unit in which ranges are locked: whole pages and whole blocks.
    pub(crate) fn unit(&self) -> u64 {
        self.map.block_size().max(PAGE_SIZE)
    }

    /// A range rounded outwards to [`BackingStore::unit`].
    pub(crate) fn locked_range(&self, start: u64, end: u64) -> Range<u64> {
        let unit = self.unit();
        start / unit * unit..end.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
    }

    /// Bytes of the unit in which a page is clean or dirty.
    pub(crate) fn part_size(&self) -> u64 {
        self.map.block_size().min(PAGE_SIZE)
    }

    /// The parts of `page` that a range of bytes touches, one bit each.
    pub(crate) fn parts(&self, page: u64, range: &Range<u64>) -> u8 {
        let (base, part) = (page * PAGE_SIZE, self.part_size());
        let from = range.start.saturating_sub(base) / part;
        let to = (range.end.min(base + PAGE_SIZE) - base).div_ceil(part);
        let below = |count: u64| ((1_u16 << count) - 1) as u8;
        below(to) & !below(from)
    }

    /// The end of a write of `len` bytes at `offset`, if the file can have it.
    pub(crate) fn end_of_write(&self, offset: u64, len: u64) -> Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => return Ok(end),
            _ => {}
        }
        let max_bytes = self.map.max_size();
        match offset.checked_add(len) {
            Some(end) if end <= max_bytes => Ok(end),
            _ => Err(diorite_ext::Error::FileTooLarge { max_bytes }.into()),
        }
    }

    /// Whether the content may be in the inode (`inline_data`). Once it is in blocks it stays there.
    pub(crate) fn may_be_inline(&self) -> bool {
        self.may_be_inline.load(Ordering::Acquire)
    }

    /// Whether the content is in the inode.
    pub(crate) fn is_inline(&self) -> Result<bool> {
        Ok(self.may_be_inline() && self.map.is_inline()?)
    }

    /// The content is in blocks from now on.
    pub(crate) fn set_not_inline(&self) {
        self.may_be_inline.store(false, Ordering::Release);
    }
}
