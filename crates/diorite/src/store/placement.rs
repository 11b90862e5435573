//! From ranges of a file to ranges of its device: the one walk over mappings, for every way to read and to write.
//!
//! Where it sits: between the content of a file and the device. The walk of a read has a target with the memory, in file order: [`PlugReads`] has
//! borrowed memory, the queue's target memory that the queue owns. The walk of a write makes a list of transfers ([`Placed`]), which become bios over
//! borrowed memory or pieces of a queue's memory. What is contiguous on the device becomes one transfer, whatever blocks of metadata lie between (ARCHITECTURE invariant 8).
//!
//! Interface:
//! - Holes and unwritten ranges are zeroed in memory at a read and cost no I/O (ARCHITECTURE invariant 7).
//! - A write into a hole or an unwritten range fills the rest of its blocks with zeros, so that nothing that stood there before
//!   becomes readable (ARCHITECTURE invariant 5).
//! - The caller holds the range lock on whole blocks around the ranges until the transfer has ended.

use std::ops::Range;

use diorite_block::sync::{Work, work};
use diorite_block::{BioFlags, BlockDevice, Geometry, Piece, Plug, PlugSummary, Sector};

use crate::store::map::{MapBlocks, Mapping, MappingKind, WriteCommit};
use crate::store::reservation::Reservation;
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

/// Where the bytes of a [`Transfer`] come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The next ones of the caller's memory.
    Data,
    /// Zeros: the rest of a new block.
    Zeros,
}

/// A range of the device that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) sector: Sector,
    pub(crate) len: u64,
    pub(crate) source: Source,
}

/// Where a write goes, and what it has reserved.
#[derive(Debug)]
pub(crate) struct Placed {
    /// In file order.
    pub(crate) transfers: Vec<Transfer>,
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
/// there are fewer blocks than a hole needs, what follows has no place.
pub(crate) fn place_write(
    map: &dyn MapBlocks,
    parts: &[Range<u64>],
    reservation: &mut Reservation<'_>,
) -> Result<Placed> {
    map.check_process()?;
    let begin = parts.first().map_or(0, |part| part.start) / map.block_size() * map.block_size();
    let end = parts.last().map_or(0, |part| part.end);
    let mut placed = Placed { transfers: Vec::new(), commit: WriteCommit::default(), begin, end };
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
    /// Whether what recording this takes was counted, and is certain only as long as no other thread takes blocks.
    pub(crate) fn is_counted(&self) -> bool {
        self.commit.reserved.iter().any(|reserved| reserved.token.is_counted())
    }

    /// Whether blocks at `at` must wait for a write of their own: recording them may fail, and then nothing of that write is seen, also not
    /// what is overwritten in its place.
    fn must_wait(&self, at: u64, is_counted: bool, reservation: &Reservation<'_>) -> bool {
        is_counted && reservation.is_exclusive() && at > self.begin
    }

    /// One region of whole blocks. Returns where it stopped for lack of space, if it did.
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
    /// An overwrite of blocks that are there, within the recorded size: one transfer, and nothing to record.
    pub(crate) fn overwrite(window: &Range<u64>, sector: Sector) -> Self {
        let len = window.end - window.start;
        let transfers = vec![Transfer { sector, len, source: Source::Data }];
        Self { transfers, commit: WriteCommit::default(), begin: window.start, end: window.end }
    }

    fn data(&mut self, sector: Sector, len: u64) {
        self.push(Transfer { sector, len, source: Source::Data });
    }

    fn zeros(&mut self, sector: Sector, len: u64) {
        self.push(Transfer { sector, len, source: Source::Zeros });
    }

    fn push(&mut self, transfer: Transfer) {
        match self.transfers.last_mut() {
            _ if transfer.len == 0 => {}
            Some(last)
                if last.source == transfer.source && last.sector.after_bytes(last.len) == transfer.sector =>
            {
                last.len += transfer.len;
            }
            _ => self.transfers.push(transfer),
        }
    }

    /// Write a range that had no data: the parts in it, and zeros between them.
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

    /// The bios that write `segments`, which have at least as many bytes, and zeros around them.
    pub(crate) fn plug<'a, 's: 'a>(
        &self,
        geometry: &Geometry,
        flags: BioFlags,
        mut segments: impl Iterator<Item = &'s [u8]>,
        zeros: &'a [u8],
    ) -> Plug<'a> {
        let mut plug = Plug::new(geometry, flags);
        let mut rest: &'s [u8] = &[];
        for transfer in &self.transfers {
            let (mut to, mut len) = (transfer.sector, transfer.len);
            if transfer.source == Source::Zeros {
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
        for transfer in self.transfers.iter().filter(|transfer| transfer.source == Source::Zeros) {
            write_zeros(&mut plug, zeros, transfer.sector, transfer.len);
        }
        plug
    }

    /// The data as pieces of one memory, each at most `max` bytes.
    pub(crate) fn pieces(&self, mut list: Vec<Piece>, max: usize) -> Vec<Piece> {
        let mut at = 0;
        for transfer in self.transfers.iter().filter(|transfer| transfer.source == Source::Data) {
            push_pieces(&mut list, max, &mut at, transfer.sector, transfer.len);
        }
        list
    }
}

/// Add pieces for the next `len` bytes of a memory, up to `at` of which has its place; what is contiguous on the device is merged up to `max` bytes.
pub(crate) fn push_pieces(list: &mut Vec<Piece>, max: usize, at: &mut usize, mut sector: Sector, len: u64) {
    let mut memory = *at..*at + len as usize;
    *at = memory.end;
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

/// Submit bios, and wait for them.
pub(crate) fn submit(plug: Plug<'_>, device: &dyn BlockDevice) -> Result<PlugSummary> {
    work(Work::Submit(plug.bios().len() as u64));
    Ok(plug.unplug(device)?)
}

/// Zeros of any length, from the few that there are.
pub(crate) fn write_zeros<'a>(plug: &mut Plug<'a>, zeros: &'a [u8], mut to: Sector, mut len: u64) {
    while len > 0 {
        let now = &zeros[..(zeros.len() as u64).min(len) as usize];
        plug.write(to, now);
        (to, len) = (to.after_bytes(now.len() as u64), len - now.len() as u64);
    }
}
