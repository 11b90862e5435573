//! From a queued read to pieces of the device, for memory that the queue owns.

use std::ops::Range;

use diorite_block::{BioFlags, Piece, Sector};

use super::TransferMemory;
use crate::Result;
use crate::content::Content;
use crate::content::direct::check_alignment;
use crate::store::placement::{ReadTarget, place_read, push_pieces};

struct Reads<'m> {
    pieces: Vec<Piece>,
    /// Most bytes of a piece.
    max: usize,
    /// Bytes of the memory that have their place.
    at: usize,
    memory: &'m mut [u8],
}

impl ReadTarget for Reads<'_> {
    fn data(&mut self, from: Sector, len: u64) {
        push_pieces(&mut self.pieces, self.max, &mut self.at, from, len);
    }

    fn zeros(&mut self, len: u64) {
        let end = self.at + len as usize;
        self.memory[self.at..end].fill(0);
        self.at = end;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        self.memory[self.at..end].copy_from_slice(bytes);
        self.at = end;
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
    let max = geometry.max_transfer_bytes as usize;
    let mut target = Reads { pieces: list, max, at: 0, memory: memory.as_mut_slice() };
    let found = place_read(&*content.store.map, std::iter::once(offset..offset + reach), &mut target)?;
    content.engine.counters.bytes_copied.add(found.copied);
    Ok((target.pieces, keep as usize, keep as usize..reach as usize))
}
