//! The walk over mappings, from ranges of a file to ranges of its device, for all reads and writes.
//!
//! Where it sits: between the content of a file and the device. A walk makes a list ([`PlacedRead`], [`Placed`]), which becomes bios over borrowed
//! memory or pieces of a queue's memory. Data that is contiguous on the device becomes one transfer (ARCHITECTURE
//! invariant 8).
//!
//! Interface:
//! - Holes and unwritten ranges are zeroed in memory at a read and cost no I/O (ARCHITECTURE invariant 7).
//! - A write into a hole or an unwritten range fills the rest of its blocks with zeros, so that no stale block
//!   becomes readable (ARCHITECTURE invariant 5).
//! - The caller holds the range lock on whole blocks around the ranges until the transfer has ended.

use std::ops::Range;

use diorite_block::sync::{Work, work};
use diorite_block::{BioFlags, BlockDevice, Geometry, Piece, Plug, Sector};

use crate::store::map::{MapBlocks, Mapping, MappingKind, WriteCommit};
use crate::store::reservation::Reservation;
use crate::{Error, Result};

/// The distance that a look-up of a mapping extends beyond the current part if more parts follow. This saves a walk for each part.
const READ_MORE: u64 = 4 << 20;

/// The source of a part of a read.
#[derive(Debug)]
pub(crate) enum ReadSource {
    Device(Sector),
    Zeros,
    /// The inode.
    Inline(Vec<u8>),
}

/// A read, in file order: the length and the source of each part.
#[derive(Debug, Default)]
pub(crate) struct PlacedRead {
    pub(crate) parts: Vec<(u64, ReadSource)>,
    /// Ranges of the file without written blocks on the device.
    pub(crate) unmapped: Vec<Range<u64>>,
}

/// The source of the bytes of a [`PlacedPart`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The next bytes of the caller's memory.
    Data,
    /// Zeros: the rest of a new block.
    Zeros,
}

/// A range of the device that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedPart {
    pub(crate) sector: Sector,
    pub(crate) len: u64,
    pub(crate) source: Source,
}

/// The places of a write on the device, and its reservations.
#[derive(Debug)]
pub(crate) struct Placed {
    /// In file order.
    pub(crate) parts: Vec<PlacedPart>,
    /// To record once the data has been written.
    pub(crate) commit: WriteCommit,
    /// The offset of the first block.
    begin: u64,
    /// The data before this offset has its place: all of it, or as much as there was space for.
    pub(crate) end: u64,
}

impl PlacedRead {
    /// Bytes that the CPU copies from the inode.
    pub(crate) fn inline_bytes(&self) -> u64 {
        let inline = |(len, source): &(u64, ReadSource)| match source {
            ReadSource::Inline(_) => *len,
            _ => 0,
        };
        self.parts.iter().map(inline).sum()
    }
}

/// Place reads of `parts`, in file order.
pub(crate) fn place_read(
    map: &dyn MapBlocks,
    parts: impl IntoIterator<Item = Range<u64>>,
) -> Result<PlacedRead> {
    let mut placed = PlacedRead::default();
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
            let (start, stop) = (at, mapping.end());
            at = stop;
            match mapping.kind {
                MappingKind::Mapped(first) => {
                    placed.parts.push((mapping.len, ReadSource::Device(first)));
                    continue;
                }
                MappingKind::Hole | MappingKind::Unwritten(_) => {
                    placed.parts.push((mapping.len, ReadSource::Zeros));
                }
                MappingKind::Inline => {
                    let content = map.read_inline()?;
                    let within = |offset: u64| content.len().min(offset as usize);
                    let bytes = content[within(start)..within(stop)].to_vec();
                    let rest = mapping.len - bytes.len() as u64;
                    placed.parts.push((bytes.len() as u64, ReadSource::Inline(bytes)));
                    placed.parts.push((rest, ReadSource::Zeros));
                }
            }
            match placed.unmapped.last_mut() {
                Some(last) if last.end == start => last.end = stop,
                _ => placed.unmapped.push(start..stop),
            }
        }
    }
    Ok(placed)
}

/// A position in a list of parts.
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

/// Place writes of `parts`, which are in file order and not empty. Blocks are reserved for holes, and the rest of new
/// blocks is zeroed. Without enough blocks for a hole the write ends early ([`Placed::end`]).
pub(crate) fn place_write(
    map: &dyn MapBlocks,
    parts: &[Range<u64>],
    reservation: &mut Reservation<'_>,
) -> Result<Placed> {
    map.check_process()?;
    let begin = parts.first().map_or(0, |part| part.start) / map.block_size() * map.block_size();
    let end = parts.last().map_or(0, |part| part.end);
    let mut placed = Placed { parts: Vec::new(), commit: WriteCommit::default(), begin, end };
    let mut cursor = Cursor { parts, used: 0 };
    while let Some(region) = cursor.region(map.block_size()) {
        placed.commit.reserved.extend(map.reserve_past_end(region.end)?);
        if let Some(at) = placed.region(map, region, &mut cursor, reservation)? {
            return Ok(Placed { end: at, ..placed });
        }
    }
    Ok(placed)
}

impl Placed {
    /// Whether the metadata blocks were counted instead of reserved: they are certain only as long as no other thread
    /// takes blocks.
    pub(crate) fn is_counted(&self) -> bool {
        self.commit.reserved.iter().any(|reserved| reserved.token.is_counted())
    }

    /// Whether blocks at `at` need a write of their own. The commit may fail, and then no byte of that write may be
    /// visible, also not the overwritten ones.
    fn must_wait(&self, at: u64, is_counted: bool, reservation: &Reservation<'_>) -> bool {
        is_counted && reservation.is_exclusive() && at > self.begin
    }

    /// Place one region of whole blocks. Returns the offset where it stopped for lack of space, if it did.
    fn region(
        &mut self,
        map: &dyn MapBlocks,
        region: Range<u64>,
        cursor: &mut Cursor<'_>,
        reservation: &mut Reservation<'_>,
    ) -> Result<Option<u64>> {
        let start = region.start;
        let ends_here = |error: &Error, at: u64, reservation: &Reservation<'_>| {
            error.is_no_space() && reservation.is_exclusive() && at > start
        };
        for mapping in map.mappings(region) {
            let mapping = mapping?;
            let (at, end) = (mapping.offset, mapping.end());
            match mapping.kind {
                MappingKind::Mapped(first) => {
                    while let Some(piece) = cursor.next_before(end) {
                        self.data(first.after_bytes(piece.start - at), piece.end - piece.start);
                    }
                }
                MappingKind::Unwritten(first) => {
                    let promised = match reservation.reserve_conversion(map, at, mapping.len) {
                        Err(error) if ends_here(&error, at, reservation) => return Ok(Some(at)),
                        promised => promised?,
                    };
                    let is_counted = promised.as_ref().is_some_and(|reserved| reserved.token.is_counted());
                    if self.must_wait(at, is_counted, reservation) {
                        return Ok(Some(at));
                    }
                    self.commit.reserved.extend(promised);
                    self.fill(at..end, first, cursor);
                    self.commit.converted.push((at, mapping.len));
                    if is_counted && reservation.is_exclusive() && !cursor.is_at_end() {
                        return Ok(Some(end));
                    }
                }
                MappingKind::Hole => {
                    let reserved = match reservation.reserve(map, at, mapping.len) {
                        Err(error) if ends_here(&error, at, reservation) => return Ok(Some(at)),
                        reserved => reserved?,
                    };
                    let is_counted = reserved.token.is_counted();
                    if self.must_wait(at, is_counted, reservation) {
                        return Ok(Some(at));
                    }
                    let mut next = at;
                    for run in &reserved.runs {
                        assert_eq!(run.offset, next, "a reservation covers the hole in order");
                        next = run.offset + run.len;
                        self.fill(run.offset..next, run.sector, cursor);
                    }
                    self.commit.reserved.push(reserved);
                    assert!(next == end || reservation.is_exclusive(), "a reservation covers the whole hole");
                    if next < end || is_counted && reservation.is_exclusive() && !cursor.is_at_end() {
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

impl Placed {
    /// An overwrite of mapped blocks within the recorded size: one transfer, nothing to record.
    pub(crate) fn overwrite(window: &Range<u64>, sector: Sector) -> Self {
        let len = window.end - window.start;
        let parts = vec![PlacedPart { sector, len, source: Source::Data }];
        Self { parts, commit: WriteCommit::default(), begin: window.start, end: window.end }
    }

    fn data(&mut self, sector: Sector, len: u64) {
        self.push(PlacedPart { sector, len, source: Source::Data });
    }

    fn zeros(&mut self, sector: Sector, len: u64) {
        self.push(PlacedPart { sector, len, source: Source::Zeros });
    }

    fn push(&mut self, part: PlacedPart) {
        match self.parts.last_mut() {
            _ if part.len == 0 => {}
            Some(last) if last.source == part.source && last.sector.after_bytes(last.len) == part.sector => {
                last.len += part.len;
            }
            _ => self.parts.push(part),
        }
    }

    /// Write a range without data: the parts in it, and zeros between them.
    fn fill(&mut self, range: Range<u64>, first: Sector, cursor: &mut Cursor<'_>) {
        let sector = |at: u64| first.after_bytes(at - range.start);
        let mut at = range.start;
        while let Some(piece) = cursor.next_before(range.end) {
            self.zeros(sector(at), piece.start - at);
            self.data(sector(piece.start), piece.end - piece.start);
            at = piece.end;
        }
        self.zeros(sector(at), range.end - at);
    }

    /// The bios that write `segments`, and zeros around them. The segments have at least as many bytes as the write.
    pub(crate) fn plug<'a, 's: 'a>(
        &self,
        geometry: &Geometry,
        flags: BioFlags,
        mut segments: impl Iterator<Item = &'s [u8]>,
        zeros: &'a [u8],
    ) -> Plug<'a> {
        let mut plug = Plug::new(geometry, flags);
        let mut rest: &'s [u8] = &[];
        for part in &self.parts {
            let (mut to, mut len) = (part.sector, part.len);
            if part.source == Source::Zeros {
                write_zeros(&mut plug, zeros, to, len);
                continue;
            }
            while len > 0 {
                if rest.is_empty() {
                    let Some(next) = segments.next() else { return plug };
                    rest = next;
                    continue;
                }
                let (now, later) = rest.split_at((rest.len() as u64).min(len) as usize);
                plug.write(to, now);
                (to, len, rest) = (to.after_bytes(now.len() as u64), len - now.len() as u64, later);
            }
        }
        plug
    }

    /// The bios of the zeros alone.
    pub(crate) fn plug_of_zeros<'a>(&self, geometry: &Geometry, zeros: &'a [u8]) -> Plug<'a> {
        let mut plug = Plug::new(geometry, BioFlags::SYNC);
        for part in self.parts.iter().filter(|part| part.source == Source::Zeros) {
            write_zeros(&mut plug, zeros, part.sector, part.len);
        }
        plug
    }

    /// The data as pieces of one memory, each at most `max` bytes.
    pub(crate) fn pieces(&self, mut list: Vec<Piece>, max: usize) -> Vec<Piece> {
        let mut at = 0;
        for part in self.parts.iter().filter(|part| part.source == Source::Data) {
            let end = at + part.len as usize;
            push_pieces(&mut list, max, at..end, part.sector);
            at = end;
        }
        list
    }
}

/// Add pieces for a range of a memory, from `sector` on. Pieces that are contiguous are merged up to `max` bytes.
pub(crate) fn push_pieces(list: &mut Vec<Piece>, max: usize, mut memory: Range<usize>, mut sector: Sector) {
    while !memory.is_empty() {
        let taken = match list.last_mut() {
            Some(last)
                if last.memory.end == memory.start
                    && last.memory.len() < max
                    && last.sector.after_bytes(last.memory.len() as u64) == sector =>
            {
                let take = memory.len().min(max - last.memory.len());
                last.memory.end += take;
                take
            }
            _ => {
                let take = memory.len().min(max);
                list.push(Piece { sector, memory: memory.start..memory.start + take });
                take
            }
        };
        sector = sector.after_bytes(taken as u64);
        memory.start += taken;
    }
}

/// Borrowed memory in several segments, taken from its beginning.
#[derive(Debug)]
pub(crate) struct Segments<'a, I> {
    segments: I,
    rest: &'a mut [u8],
}

impl<'a, I: Iterator<Item = &'a mut [u8]>> Segments<'a, I> {
    pub(crate) fn new(segments: I) -> Self {
        Self { segments, rest: &mut [] }
    }

    /// Give the next `len` bytes to `each`, piece by piece; fewer where the memory ends.
    fn take(&mut self, mut len: u64, mut each: impl FnMut(&'a mut [u8])) {
        while len > 0 {
            if self.rest.is_empty() {
                let Some(next) = self.segments.next() else { return };
                self.rest = next;
                continue;
            }
            let take = (self.rest.len() as u64).min(len) as usize;
            let (now, later) = std::mem::take(&mut self.rest).split_at_mut(take);
            self.rest = later;
            len -= take as u64;
            each(now);
        }
    }

    /// Fill the memory of parts without a transfer, and return the bios for the others.
    pub(crate) fn plug(&mut self, placed: &PlacedRead, geometry: &Geometry, flags: BioFlags) -> Plug<'a> {
        let mut plug = Plug::new(geometry, flags);
        for (len, source) in &placed.parts {
            match source {
                ReadSource::Device(first) => {
                    let mut sector = *first;
                    self.take(*len, |memory| {
                        let next = sector.after_bytes(memory.len() as u64);
                        plug.read(std::mem::replace(&mut sector, next), memory);
                    });
                }
                ReadSource::Zeros => self.take(*len, |memory| memory.fill(0)),
                ReadSource::Inline(bytes) => {
                    let mut bytes = &bytes[..];
                    self.take(*len, |memory| {
                        let (now, later) = bytes.split_at(memory.len());
                        memory.copy_from_slice(now);
                        bytes = later;
                    });
                }
            }
        }
        plug
    }
}

/// Submit bios, and wait for them.
pub(crate) fn execute(plug: Plug<'_>, device: &dyn BlockDevice) -> Result<u64> {
    work(Work::Submit(plug.bios().len() as u64));
    Ok(plug.unplug(device)?)
}

/// Write zeros of any length from a short slice of zeros.
pub(crate) fn write_zeros<'a>(plug: &mut Plug<'a>, zeros: &'a [u8], mut to: Sector, mut len: u64) {
    while len > 0 {
        let now = &zeros[..(zeros.len() as u64).min(len) as usize];
        plug.write(to, now);
        (to, len) = (to.after_bytes(now.len() as u64), len - now.len() as u64);
    }
}
