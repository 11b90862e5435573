//! From a queued transfer to pieces of the device: the walk over mappings for memory that the queue owns.

use std::ops::Range;

use diorite_block::{BioFlags, Piece, Plug, Sector};

use super::TransferMemory;
use crate::content::Content;
use crate::map::{MapCommit, StretchKind};
use crate::{Error, Result};

/// Pieces of one transfer, contiguous ones merged up to the device's largest transfer.
#[derive(Debug, Default)]
struct Pieces {
    list: Vec<Piece>,
    max: usize,
}

impl Pieces {
    fn push(&mut self, mut sector: Sector, mut memory: Range<usize>) {
        while !memory.is_empty() {
            let room = match self.list.last_mut() {
                Some(last)
                    if last.memory.end == memory.start
                        && last.memory.len() < self.max
                        && last.sector.after_bytes(last.memory.len() as u64) == sector =>
                {
                    let take = memory.len().min(self.max - last.memory.len());
                    last.memory.end += take;
                    take
                }
                _ => {
                    let take = memory.len().min(self.max);
                    self.list.push(Piece { sector, memory: memory.start..memory.start + take });
                    take
                }
            };
            sector = sector.after_bytes(room as u64);
            memory.start += room;
        }
    }
}

/// The pieces of a read, its length within the file, and what of the memory lies behind the end. `list` is empty.
pub(super) fn plan_read<M: TransferMemory>(
    content: &Content,
    range: Range<u64>,
    offset: u64,
    memory: &mut M,
    len: usize,
    list: Vec<Piece>,
) -> Result<(Vec<Piece>, usize, Range<usize>)> {
    let size = content.size();
    if offset >= size || len == 0 {
        return Ok((list, 0, 0..0));
    }
    content.write_back_locked(range, BioFlags::SYNC)?;
    let keep = (len as u64).min(size - offset);
    let geometry = content.geometry();
    // The last block whole, where there is memory for it: what lies behind it on the device, the next small file perhaps, can
    // then be moved by the same request.
    let sectors = keep.next_multiple_of(u64::from(geometry.logical_block_size));
    let reach = sectors
        .max((offset + keep).next_multiple_of(content.map.block_size()).min(offset + len as u64) - offset);
    let mut pieces = Pieces { list, max: geometry.max_transfer_bytes as usize };
    let mut at = offset;
    while at < offset + reach {
        let stretch = content.map.map(at, offset + reach - at)?;
        let end = stretch.end().min(offset + reach);
        let part = (at - offset) as usize..(end - offset) as usize;
        match stretch.kind {
            StretchKind::Mapped(first) => pieces.push(first.after_bytes(at - stretch.offset), part),
            StretchKind::Hole | StretchKind::Unwritten(_) => memory.as_mut_slice()[part].fill(0),
            StretchKind::Inline => {
                let data = content.map.read_inline()?;
                let from = (at as usize).min(data.len());
                let take = (data.len() - from).min(part.len());
                let target = &mut memory.as_mut_slice()[part];
                target[..take].copy_from_slice(&data[from..from + take]);
                target[take..].fill(0);
                content.engine.counters.bytes_copied.add(take as u64);
            }
        }
        at = end;
    }
    Ok((pieces.list, keep as usize, keep as usize..reach as usize))
}

/// The pieces of a write, and what is to be recorded. The rest of new blocks is zeroed at once.
pub(super) fn plan_write(content: &Content, offset: u64, end: u64) -> Result<(Vec<Piece>, MapCommit)> {
    content.map.check_room(offset, end.saturating_sub(offset))?;
    let block = content.map.block_size();
    let geometry = content.geometry();
    let mut pieces = Pieces { list: Vec::new(), max: geometry.max_transfer_bytes as usize };
    let mut commit = MapCommit::default();
    let zeros = &content.engine.zeros;
    let mut plug = Plug::new(geometry, BioFlags::SYNC);
    // Write `[from, to)` of the file, whose block range begins at `first`, and zeros around the caller's part.
    let mut place = |from: u64, to: u64, first: Sector, is_new: bool| {
        let (start, stop) = (from.max(offset), to.min(end));
        if is_new {
            for (mut at, until) in [(from, start), (stop, to)] {
                while at < until {
                    let take = (until - at).min(zeros.len() as u64);
                    plug.write(first.after_bytes(at - from), &zeros[..take as usize]);
                    at += take;
                }
            }
        }
        pieces.push(first.after_bytes(start - from), (start - offset) as usize..(stop - offset) as usize);
    };
    let (mut at, region_end) = (
        offset / block * block,
        if end > offset { end.next_multiple_of(block) } else { offset / block * block },
    );
    while at < region_end {
        let stretch = content.map.map(at, region_end - at)?;
        let stop = stretch.end().min(region_end);
        match stretch.kind {
            StretchKind::Mapped(first) => place(at, stop, first.after_bytes(at - stretch.offset), false),
            StretchKind::Unwritten(first) => {
                place(at, stop, first.after_bytes(at - stretch.offset), true);
                commit.converted.push((at, stop - at));
            }
            StretchKind::Hole => {
                let reserved = content.map.reserve(at, stop - at)?;
                for run in &reserved.runs {
                    place(run.offset, run.offset + run.len, run.sector, true);
                }
                commit.reserved.push(reserved);
            }
            StretchKind::Inline => {
                return Err(Error::Unsupported("the file's content is still in its inode"));
            }
        }
        at = stop;
    }
    let summary = plug.unplug(&**content.map.device())?;
    content.engine.counters.bios.add(summary.bios);
    content.engine.counters.direct_bios.add(summary.bios);
    Ok((pieces.list, commit))
}
