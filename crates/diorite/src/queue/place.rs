//! From a queued transfer to pieces of the device, for memory that the queue owns.

use std::ops::Range;

use diorite_block::{BioFlags, Piece, Plug, Sector};

use super::TransferMemory;
use crate::Result;
use crate::content::Content;
use crate::direct::check_alignment;
use crate::placement::{Placed, ReadTarget, WriteTarget, place_read, place_write, write_zeros};
use crate::write::space::Blocks;

/// Pieces of one transfer, contiguous ones merged up to the device's largest transfer.
#[derive(Debug, Default)]
struct Pieces {
    list: Vec<Piece>,
    max: usize,
    /// Bytes of the memory that have their place.
    at: usize,
}

impl Pieces {
    /// The next `len` bytes go to, or come from, `sector`.
    fn push(&mut self, mut sector: Sector, len: u64) {
        let mut memory = self.at..self.at + len as usize;
        self.at = memory.end;
        while !memory.is_empty() {
            let taken = match self.list.last_mut() {
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
            sector = sector.after_bytes(taken as u64);
            memory.start += taken;
        }
    }
}

struct Reads<'m> {
    pieces: Pieces,
    memory: &'m mut [u8],
}

impl ReadTarget for Reads<'_> {
    fn data(&mut self, from: Sector, len: u64) {
        self.pieces.push(from, len);
    }

    fn zeros(&mut self, len: u64) {
        let end = self.pieces.at + len as usize;
        self.memory[self.pieces.at..end].fill(0);
        self.pieces.at = end;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let end = self.pieces.at + bytes.len();
        self.memory[self.pieces.at..end].copy_from_slice(bytes);
        self.pieces.at = end;
    }
}

/// The pieces of a read, its length within the file, and what of the memory lies after the end. `list` is empty.
pub(super) fn read<M: TransferMemory>(
    content: &Content,
    range: Range<u64>,
    offset: u64,
    memory: &mut M,
    len: usize,
    list: Vec<Piece>,
) -> Result<(Vec<Piece>, usize, Range<usize>)> {
    let size = content.store.size();
    // At the end of any alignment, as `File::read_at`: the last read of a file that ends within a block begins there.
    if offset >= size || len == 0 {
        return Ok((list, 0, 0..0));
    }
    let segment = (memory.as_slice().as_ptr().addr(), len);
    check_alignment(content.store.geometry(), offset, [segment].into_iter())?;
    content.cache.write_back(range, BioFlags::SYNC)?;
    let keep = (len as u64).min(size - offset);
    let geometry = content.store.geometry();
    // The last block whole, where there is memory for it: what follows it on the device, the next small file perhaps, can
    // then be moved by the same request.
    let sectors = keep.next_multiple_of(u64::from(geometry.logical_block_size));
    let reach = sectors.max(
        (offset + keep).next_multiple_of(content.store.map.block_size()).min(offset + len as u64) - offset,
    );
    let pieces = Pieces { list, max: geometry.max_transfer_bytes as usize, at: 0 };
    let mut target = Reads { pieces, memory: memory.as_mut_slice() };
    let found = place_read(&*content.store.map, std::iter::once(offset..offset + reach), &mut target)?;
    content.engine.counters.bytes_copied.add(found.copied);
    Ok((target.pieces.list, keep as usize, keep as usize..reach as usize))
}

struct Writes<'a> {
    pieces: Pieces,
    plug: Plug<'a>,
    zeros: &'a [u8],
}

impl WriteTarget for Writes<'_> {
    fn data(&mut self, to: Sector, len: u64) {
        self.pieces.push(to, len);
    }

    fn zeros(&mut self, to: Sector, len: u64) {
        write_zeros(&mut self.plug, self.zeros, to, len);
    }
}

/// The pieces of a write of whole logical blocks, and what is to be recorded. The rest of new blocks is zeroed at once. `list` is empty.
pub(super) fn write(
    content: &Content,
    data: &Range<u64>,
    list: Vec<Piece>,
    blocks: &mut Blocks<'_>,
) -> Result<(Vec<Piece>, Placed)> {
    content.store.map.check_quota(data.start, data.end - data.start)?;
    let geometry = content.store.geometry();
    let pieces = Pieces { list, max: geometry.max_transfer_bytes as usize, at: 0 };
    let plug = Plug::new(geometry, BioFlags::SYNC);
    let mut target = Writes { pieces, plug, zeros: &content.engine.zeros };
    let placed = place_write(&*content.store.map, std::slice::from_ref(data), blocks, &mut target)?;
    let summary = target.plug.unplug(&**content.store.map.device())?;
    content.engine.counters.bios.add(summary.bios);
    content.engine.counters.direct_bios.add(summary.bios);
    Ok((target.pieces.list, placed))
}
