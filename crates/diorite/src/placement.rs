//! From ranges of a file to ranges of its device: the one walk over mappings, for every way to read and to write.
//!
//! Where it sits: between the content of a file and the device. A walk names ranges of the file; its target has the memory, in file
//! order: [`PlugReads`] and [`PlugWrites`] have borrowed memory and make bios of it, the queue's target has memory that the queue
//! owns. What is contiguous on the device becomes one transfer, whatever blocks of metadata lie between (ARCHITECTURE invariant 8).
//!
//! Interface:
//! - Holes and unwritten ranges are zeroed in memory at a read and cost no I/O (ARCHITECTURE invariant 7).
//! - A write into a hole or an unwritten range fills the rest of its blocks with zeros, so that nothing that stood there before
//!   becomes readable (ARCHITECTURE invariant 5).
//! - The caller holds the range lock on whole blocks around the ranges until the transfer has ended.

use std::ops::Range;

use diorite_block::sync::{Work, work};
use diorite_block::{BioFlags, BlockDevice, Geometry, Plug, PlugSummary, Sector};

use crate::map::{MapBlocks, Mapping, MappingKind, WriteCommit};
use crate::write::space::Blocks;
use crate::{Error, Result};

/// How far a mapping is asked for beyond the part at hand, where more parts follow: that saves a walk for each.
const READ_MORE: u64 = 4 << 20;

/// Memory that is read into, in file order.
pub(crate) trait ReadTarget {
    /// The next `len` bytes come from here.
    fn data(&mut self, from: Sector, len: u64);
    /// The next `len` bytes are zeros.
    fn zeros(&mut self, len: u64);
    /// The next bytes are these.
    fn bytes(&mut self, bytes: &[u8]);
}

/// Memory that is written from, in file order.
pub(crate) trait WriteTarget {
    /// The next `len` bytes go here.
    fn data(&mut self, to: Sector, len: u64);
    /// Zeros go here.
    fn zeros(&mut self, to: Sector, len: u64);
}

/// What a walk for a read found beside the data.
#[derive(Debug, Default)]
pub(crate) struct ReadFound {
    /// Ranges that have no written block on the device.
    pub(crate) unmapped: Vec<Range<u64>>,
    /// Bytes copied out of the inode.
    pub(crate) copied: u64,
    /// Bios that it took.
    pub(crate) bios: u64,
}

/// What a walk for a write reserved.
#[derive(Debug)]
pub(crate) struct Placed {
    /// What to record once the data has been written.
    pub(crate) commit: WriteCommit,
    /// The block where it begins.
    begin: u64,
    /// The data before here has its place: all of it, or what there was space for.
    pub(crate) end: u64,
}

/// Place reads of `parts`, in file order. Zeroes what has no data at once.
pub(crate) fn place_read(
    map: &dyn MapBlocks,
    parts: impl IntoIterator<Item = Range<u64>>,
    target: &mut impl ReadTarget,
) -> Result<ReadFound> {
    let mut found = ReadFound::default();
    let mut current: Option<Mapping> = None;
    let mut parts = parts.into_iter().peekable();
    while let Some(Range { start: mut at, end }) = parts.next() {
        let more = if parts.peek().is_some() { READ_MORE } else { 0 };
        while at < end {
            let mapping = match current.filter(|mapping| mapping.offset <= at && at < mapping.end()) {
                Some(mapping) => mapping,
                None => map.map(at, end.saturating_add(more) - at)?,
            };
            current = Some(mapping);
            let mapping = mapping.within(&(at..end));
            let stop = mapping.end();
            match mapping.kind {
                MappingKind::Mapped(first) => target.data(first, mapping.len),
                MappingKind::Hole | MappingKind::Unwritten(_) => {
                    target.zeros(mapping.len);
                    found.note_unmapped(at..stop);
                }
                MappingKind::Inline => {
                    let content = map.read_inline()?;
                    let within = |offset: u64| content.len().min(offset as usize);
                    let bytes = &content[within(at)..within(stop)];
                    target.bytes(bytes);
                    target.zeros(stop - at - bytes.len() as u64);
                    found.copied += bytes.len() as u64;
                    found.note_unmapped(at..stop);
                }
            }
            at = stop;
        }
    }
    Ok(found)
}

impl ReadFound {
    fn note_unmapped(&mut self, range: Range<u64>) {
        match self.unmapped.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.unmapped.push(range),
        }
    }
}

/// The place in a list of parts up to which they are used.
struct Cursor<'p> {
    parts: &'p [Range<u64>],
    used: u64,
}

impl Cursor<'_> {
    /// Whether all parts are used.
    fn is_at_end(&self) -> bool {
        self.parts.is_empty()
    }

    /// The next piece that begins before `end`, cut there.
    fn next_before(&mut self, end: u64) -> Option<Range<u64>> {
        let part = self.parts.first()?;
        let start = part.start + self.used;
        if start >= end {
            return None;
        }
        let stop = part.end.min(end);
        if stop == part.end {
            (self.parts, self.used) = (&self.parts[1..], 0);
        } else {
            self.used += stop - start;
        }
        Some(start..stop)
    }

    /// Whole blocks around the next parts that share a block or follow each other.
    fn region(&self, block: u64) -> Option<Range<u64>> {
        let first = self.parts.first()?;
        let mut end = first.start;
        for part in self.parts {
            if part.start > end {
                break;
            }
            end = part.end.next_multiple_of(block);
        }
        Some(first.start / block * block..end)
    }
}

/// Place writes of `parts`: in file order, none empty. Blocks are reserved for holes, and the rest of new blocks is zeroed. Where
/// `blocks` gives fewer than a hole needs, what follows has no place.
pub(crate) fn place_write(
    map: &dyn MapBlocks,
    parts: &[Range<u64>],
    blocks: &mut Blocks<'_>,
    target: &mut impl WriteTarget,
) -> Result<Placed> {
    map.check_process()?;
    let begin = parts.first().map_or(0, |part| part.start) / map.block_size() * map.block_size();
    let end = parts.last().map_or(0, |part| part.end);
    let mut placed = Placed { commit: WriteCommit::default(), begin, end };
    let mut cursor = Cursor { parts, used: 0 };
    while let Some(region) = cursor.region(map.block_size()) {
        placed.commit.reserved.extend(map.reserve_past_end(region.end)?);
        if let Some(at) = placed.region(map, region, &mut cursor, blocks, target)? {
            return Ok(Placed { end: at, ..placed });
        }
    }
    Ok(placed)
}

impl Placed {
    /// Whether what recording this takes was counted, and is certain only as long as no other thread takes blocks.
    pub(crate) fn is_counted(&self) -> bool {
        self.commit.reserved.iter().any(|reserved| reserved.token.is_counted())
    }

    /// Whether blocks at `at` must wait for a write of their own: recording them may fail, and then nothing of that write is seen, also not
    /// what is overwritten in its place.
    fn must_wait(&self, at: u64, is_counted: bool, blocks: &Blocks<'_>) -> bool {
        is_counted && blocks.is_exclusive() && at > self.begin
    }

    /// One region of whole blocks. Returns where it stopped for lack of space, if it did.
    fn region(
        &mut self,
        map: &dyn MapBlocks,
        region: Range<u64>,
        cursor: &mut Cursor<'_>,
        blocks: &mut Blocks<'_>,
        target: &mut impl WriteTarget,
    ) -> Result<Option<u64>> {
        let start = region.start;
        let ends_here = |error: &Error, at: u64, blocks: &Blocks<'_>| {
            error.is_no_space() && blocks.is_exclusive() && at > start
        };
        for mapping in map.mappings(region) {
            let mapping = mapping?;
            let (at, end) = (mapping.offset, mapping.end());
            match mapping.kind {
                MappingKind::Mapped(first) => {
                    while let Some(piece) = cursor.next_before(end) {
                        target.data(first.after_bytes(piece.start - at), piece.end - piece.start);
                    }
                }
                MappingKind::Unwritten(first) => {
                    let promised = match blocks.reserve_conversion(map, at, mapping.len) {
                        Err(error) if ends_here(&error, at, blocks) => return Ok(Some(at)),
                        promised => promised?,
                    };
                    let is_counted = promised.as_ref().is_some_and(|reserved| reserved.token.is_counted());
                    if self.must_wait(at, is_counted, blocks) {
                        return Ok(Some(at));
                    }
                    self.commit.reserved.extend(promised);
                    fill(at..end, first, cursor, target);
                    self.commit.converted.push((at, mapping.len));
                    if is_counted && blocks.is_exclusive() && !cursor.is_at_end() {
                        return Ok(Some(end));
                    }
                }
                MappingKind::Hole => {
                    let reserved = match blocks.reserve(map, at, mapping.len) {
                        Err(error) if ends_here(&error, at, blocks) => return Ok(Some(at)),
                        reserved => reserved?,
                    };
                    let is_counted = reserved.token.is_counted();
                    if self.must_wait(at, is_counted, blocks) {
                        return Ok(Some(at));
                    }
                    let mut next = at;
                    for run in &reserved.runs {
                        assert_eq!(run.offset, next, "a reservation covers the hole in order");
                        next = run.offset + run.len;
                        fill(run.offset..next, run.sector, cursor, target);
                    }
                    self.commit.reserved.push(reserved);
                    assert!(next == end || blocks.is_exclusive(), "a reservation covers the whole hole");
                    if next < end || is_counted && blocks.is_exclusive() && !cursor.is_at_end() {
                        return Ok(Some(next));
                    }
                }
                MappingKind::Inline => {
                    return Err(Error::Unsupported("the file's content is still in its inode"));
                }
            }
        }
        Ok(None)
    }
}

/// Write a range that had no data: the parts in it, and zeros between them.
fn fill(range: Range<u64>, first: Sector, cursor: &mut Cursor<'_>, target: &mut impl WriteTarget) {
    let sector = |at: u64| first.after_bytes(at - range.start);
    let mut at = range.start;
    while let Some(piece) = cursor.next_before(range.end) {
        target.zeros(sector(at), piece.start - at);
        target.data(sector(piece.start), piece.end - piece.start);
        at = piece.end;
    }
    target.zeros(sector(at), range.end - at);
}

/// Borrowed memory that is read into.
#[derive(Debug)]
pub(crate) struct PlugReads<'a, I> {
    plug: Plug<'a>,
    flags: BioFlags,
    segments: I,
    rest: &'a mut [u8],
}

impl<'a, I: Iterator<Item = &'a mut [u8]>> PlugReads<'a, I> {
    pub(crate) fn new(geometry: &Geometry, flags: BioFlags, segments: I) -> Self {
        Self { plug: Plug::new(geometry, flags), flags, segments, rest: &mut [] }
    }

    /// The next memory, at most `len` bytes; none at the end.
    fn next(&mut self, len: u64) -> Option<&'a mut [u8]> {
        while self.rest.is_empty() {
            self.rest = self.segments.next()?;
        }
        let take = (self.rest.len() as u64).min(len) as usize;
        let (now, later) = std::mem::take(&mut self.rest).split_at_mut(take);
        self.rest = later;
        Some(now)
    }

    /// Submit what was placed, and wait for it.
    pub(crate) fn submit(&mut self, device: &dyn BlockDevice) -> Result<PlugSummary> {
        submit(std::mem::replace(&mut self.plug, Plug::new(device.geometry(), self.flags)), device)
    }
}

impl<'a, I: Iterator<Item = &'a mut [u8]>> ReadTarget for PlugReads<'a, I> {
    fn data(&mut self, mut from: Sector, mut len: u64) {
        while len > 0
            && let Some(now) = self.next(len)
        {
            let taken = now.len() as u64;
            self.plug.read(from, now);
            (from, len) = (from.after_bytes(taken), len - taken);
        }
    }

    fn zeros(&mut self, mut len: u64) {
        while len > 0
            && let Some(now) = self.next(len)
        {
            now.fill(0);
            len -= now.len() as u64;
        }
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty()
            && let Some(now) = self.next(bytes.len() as u64)
        {
            now.copy_from_slice(&bytes[..now.len()]);
            bytes = &bytes[now.len()..];
        }
    }
}

/// Borrowed memory that is written from, and zeros of our own.
#[derive(Debug)]
pub(crate) struct PlugWrites<'a, I> {
    plug: Plug<'a>,
    segments: I,
    rest: &'a [u8],
    zeros: &'a [u8],
}

impl<'a, I: Iterator<Item = &'a [u8]>> PlugWrites<'a, I> {
    /// What was placed, to be submitted with more.
    pub(crate) fn into_plug(self) -> Plug<'a> {
        self.plug
    }

    pub(crate) fn new(geometry: &Geometry, flags: BioFlags, segments: I, zeros: &'a [u8]) -> Self {
        Self { plug: Plug::new(geometry, flags), segments, rest: &[], zeros }
    }

    /// Bios that submit what was placed.
    pub(crate) fn bios(&self) -> usize {
        self.plug.bios().len()
    }

    /// Submit what was placed, and wait for it.
    pub(crate) fn submit(self, device: &dyn BlockDevice) -> Result<PlugSummary> {
        submit(self.plug, device)
    }
}

fn submit(plug: Plug<'_>, device: &dyn BlockDevice) -> Result<PlugSummary> {
    work(Work::Submit(plug.bios().len() as u64));
    Ok(plug.unplug(device)?)
}

impl<'a, I: Iterator<Item = &'a [u8]>> WriteTarget for PlugWrites<'a, I> {
    fn data(&mut self, mut to: Sector, mut len: u64) {
        while len > 0 {
            if self.rest.is_empty() {
                let Some(next) = self.segments.next() else { return };
                self.rest = next;
                continue;
            }
            let (now, later) = self.rest.split_at((self.rest.len() as u64).min(len) as usize);
            self.plug.write(to, now);
            (to, len, self.rest) = (to.after_bytes(now.len() as u64), len - now.len() as u64, later);
        }
    }

    fn zeros(&mut self, to: Sector, len: u64) {
        write_zeros(&mut self.plug, self.zeros, to, len);
    }
}

/// Zeros of any length, from the few that there are.
pub(crate) fn write_zeros<'a>(plug: &mut Plug<'a>, zeros: &'a [u8], mut to: Sector, mut len: u64) {
    while len > 0 {
        let now = &zeros[..(zeros.len() as u64).min(len) as usize];
        plug.write(to, now);
        (to, len) = (to.after_bytes(now.len() as u64), len - now.len() as u64);
    }
}
