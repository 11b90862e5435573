//! From parts of a file to bios: the one walk over mappings that buffered and direct I/O share.
//!
//! Where it sits: between the content of a file and the device's plug. A part is an offset in the file and the memory
//! for it. Parts come in file order and do not overlap; what is contiguous on the device becomes one bio, whatever
//! blocks of metadata lie between (ARCHITECTURE invariant 8).
//!
//! Interface:
//! - Holes and unwritten stretches are zeroed in memory at a read and cost no I/O (ARCHITECTURE invariant 7).
//! - A write into a hole or an unwritten stretch fills the rest of its blocks with zeros of our own, so that nothing that stood
//!   there before becomes readable (ARCHITECTURE invariant 5). The parts' memory is not touched.
//! - The caller holds the range lock on whole blocks around the parts until the plan is done with.

use std::ops::Range;

use diorite_block::sync::{Work, work};
use diorite_block::{BioFlags, Plug, PlugSummary, Sector};

use crate::map::{MapBlocks, MapCommit, Stretch, StretchKind};
use crate::{Error, Result};

/// Reads that are ready to be submitted.
#[derive(Debug)]
pub(crate) struct ReadPlan<'a> {
    plug: Plug<'a>,
    /// Ranges that have no written block on the device.
    pub(crate) unmapped: Vec<Range<u64>>,
    /// Bytes copied out of the inode.
    pub(crate) copied: u64,
}

/// Writes that are ready to be submitted, and what is to be recorded afterwards.
#[derive(Debug)]
pub(crate) struct WritePlan<'a> {
    plug: Plug<'a>,
    /// What to record once the data has been written.
    pub(crate) commit: MapCommit,
    room: Room,
}

fn sector_at(stretch: &Stretch, first: Sector, offset: u64) -> Sector {
    first.after_bytes(offset - stretch.offset)
}

/// The stretch at `offset`, checked to reach beyond it.
fn map_at(map: &dyn MapBlocks, offset: u64, end: u64) -> Result<Stretch> {
    let stretch = map.map(offset, end - offset)?;
    assert!(
        stretch.offset <= offset && stretch.end() > offset,
        "a mapping covers the offset that was asked for"
    );
    Ok(stretch)
}

/// Plan reads. Zeroes what has no data at once.
pub(crate) fn plan_read<'a>(
    map: &dyn MapBlocks,
    parts: impl IntoIterator<Item = (u64, &'a mut [u8])>,
    flags: BioFlags,
) -> Result<ReadPlan<'a>> {
    let plug = Plug::new(map.device().geometry(), flags);
    let mut plan = ReadPlan { plug, unmapped: Vec::new(), copied: 0 };
    let mut current: Option<Stretch> = None;
    for (mut offset, mut memory) in parts {
        while !memory.is_empty() {
            let end = offset.saturating_add(memory.len() as u64);
            let stretch = match current.filter(|stretch| stretch.offset <= offset && offset < stretch.end()) {
                Some(stretch) => stretch,
                // Asking for more than this part needs saves a walk for each of many small parts.
                None => map_at(map, offset, end.saturating_add(READ_MORE))?,
            };
            current = Some(stretch);
            let take = (stretch.end() - offset).min(memory.len() as u64);
            let (now, later) = memory.split_at_mut(take as usize);
            match stretch.kind {
                StretchKind::Mapped(first) => plan.plug.read(sector_at(&stretch, first, offset), now),
                StretchKind::Hole | StretchKind::Unwritten(_) => {
                    now.fill(0);
                    plan.note_unmapped(offset..offset + take);
                }
                StretchKind::Inline => plan.read_inline(map, offset, now)?,
            }
            (offset, memory) = (offset + take, later);
        }
    }
    Ok(plan)
}

/// How far a mapping is asked for beyond the part at hand.
const READ_MORE: u64 = 4 << 20;

impl ReadPlan<'_> {
    fn note_unmapped(&mut self, range: Range<u64>) {
        match self.unmapped.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.unmapped.push(range),
        }
    }

    fn read_inline(&mut self, map: &dyn MapBlocks, offset: u64, memory: &mut [u8]) -> Result<()> {
        let content = map.read_inline()?;
        let from = (offset as usize).min(content.len());
        let take = (content.len() - from).min(memory.len());
        memory[..take].copy_from_slice(&content[from..from + take]);
        memory[take..].fill(0);
        self.copied += take as u64;
        self.note_unmapped(offset..offset + memory.len() as u64);
        Ok(())
    }

    /// Submit and wait.
    pub(crate) fn submit(self, map: &dyn MapBlocks) -> Result<PlugSummary> {
        work(Work::Submit(self.plug.bios().len() as u64));
        Ok(self.plug.unplug(&**map.device())?)
    }
}

/// The place in a list of parts up to which they are used.
struct Cursor<'p, 'a> {
    parts: &'p [(u64, &'a [u8])],
    used: usize,
}

impl<'a> Cursor<'_, 'a> {
    /// The next piece before `end`: its offset and at most `end - offset` of its bytes.
    fn next_before(&mut self, end: u64) -> Option<(u64, &'a [u8])> {
        let (offset, memory) = *self.parts.first()?;
        let (offset, rest) = (offset + self.used as u64, &memory[self.used..]);
        if offset >= end {
            return None;
        }
        let take = rest.len().min((end - offset) as usize);
        if take == rest.len() {
            (self.parts, self.used) = (&self.parts[1..], 0);
        } else {
            self.used += take;
        }
        Some((offset, &rest[..take]))
    }
}

/// Where the blocks for holes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// From what is promised to nobody.
    Unclaimed,
    /// The data has claimed them.
    Claimed,
}

/// Plan writes: `parts` in file order, none empty. Blocks are reserved for holes; `zeros` fills what is not covered of them.
pub(crate) fn plan_write<'a>(
    map: &dyn MapBlocks,
    parts: &[(u64, &'a [u8])],
    zeros: &'a [u8],
    flags: BioFlags,
    room: Room,
) -> Result<WritePlan<'a>> {
    let block = map.block_size();
    let plug = Plug::new(map.device().geometry(), flags);
    let mut plan = WritePlan { plug, commit: MapCommit::default(), room };
    let mut cursor = Cursor { parts, used: 0 };
    while let Some((first, _)) = cursor.parts.first() {
        let start = first / block * block;
        let mut end = *first;
        // Parts that share a block or follow each other are one region of whole blocks.
        for (offset, memory) in cursor.parts {
            if *offset > end {
                break;
            }
            end = offset.saturating_add(memory.len() as u64).next_multiple_of(block);
        }
        plan.region(map, start..end, &mut cursor, zeros)?;
    }
    Ok(plan)
}

impl<'a> WritePlan<'a> {
    fn region(
        &mut self,
        map: &dyn MapBlocks,
        region: Range<u64>,
        cursor: &mut Cursor<'_, 'a>,
        zeros: &'a [u8],
    ) -> Result<()> {
        let mut at = region.start;
        while at < region.end {
            let stretch = map_at(map, at, region.end)?;
            let end = stretch.end().min(region.end);
            match stretch.kind {
                StretchKind::Mapped(first) => {
                    while let Some((offset, memory)) = cursor.next_before(end) {
                        self.plug.write(sector_at(&stretch, first, offset), memory);
                    }
                }
                StretchKind::Unwritten(first) => {
                    let base = sector_at(&stretch, first, at);
                    self.fill(at..end, base, cursor, zeros);
                    self.commit.converted.push((at, end - at));
                }
                StretchKind::Hole => {
                    let reserved = match self.room {
                        Room::Unclaimed => map.reserve(at, end - at),
                        Room::Claimed => map.reserve_claimed(at, end - at),
                    }?;
                    let mut next = at;
                    for run in &reserved.runs {
                        assert_eq!(run.offset, next, "a reservation covers the hole in order");
                        next = run.offset + run.len;
                        self.fill(run.offset..next, run.sector, cursor, zeros);
                    }
                    assert_eq!(next, end, "a reservation covers the whole hole");
                    self.commit.reserved.push(reserved);
                }
                StretchKind::Inline => {
                    return Err(Error::Unsupported("the file's content is still in its inode"));
                }
            }
            at = end;
        }
        Ok(())
    }

    /// Write a range that had no data: the parts in it, and zeros between them.
    fn fill(&mut self, range: Range<u64>, first: Sector, cursor: &mut Cursor<'_, 'a>, zeros: &'a [u8]) {
        let mut at = range.start;
        loop {
            let next = cursor.next_before(range.end);
            let until = next.map_or(range.end, |(offset, _)| offset);
            while at < until {
                let take = (until - at).min(zeros.len() as u64);
                self.plug.write(first.after_bytes(at - range.start), &zeros[..take as usize]);
                at += take;
            }
            let Some((offset, memory)) = next else { break };
            self.plug.write(first.after_bytes(offset - range.start), memory);
            at = offset + memory.len() as u64;
        }
    }

    /// Submit and wait.
    pub(crate) fn submit(self, map: &dyn MapBlocks) -> Result<(PlugSummary, MapCommit)> {
        work(Work::Submit(self.plug.bios().len() as u64));
        let summary = self.plug.unplug(&**map.device())?;
        Ok((summary, self.commit))
    }
}
