//! The pieces of a queued read.

use std::ops::Range;

use diorite_block::{BioFlags, Piece};

use super::TransferMemory;
use crate::Result;
use crate::content::Content;
use crate::content::direct::check_alignment;
use crate::store::placement::{ReadSource, place_read, push_pieces};

/// The pieces of a read, its length within the file, and the part of the memory after the end. `list` is empty.
pub(super) fn read<M: TransferMemory>(
    content: &Content,
    range: Range<u64>,
    offset: u64,
    memory: &mut M,
    len: usize,
    mut list: Vec<Piece>,
) -> Result<(Vec<Piece>, usize, Range<usize>)> {
    let size = content.store.size();
    // At the end of the file any alignment is accepted, as in `File::read_at`.
    if offset >= size || len == 0 {
        return Ok((list, 0, 0..0));
    }
    let segment = (memory.as_slice().as_ptr().addr(), len);
    check_alignment(content.store.geometry(), offset, [segment].into_iter())?;
    content.cache.write_back(range, BioFlags::SYNC)?;
    let keep = (len as u64).min(size - offset);
    let geometry = content.store.geometry();
    // The last block is read whole if there is memory for it, so that a request for the next small file can be merged
    // with this one.
    let sectors = keep.next_multiple_of(u64::from(geometry.logical_block_size));
    let reach = sectors.max(
        (offset + keep).next_multiple_of(content.store.map.block_size()).min(offset + len as u64) - offset,
    );
    let placed = place_read(&*content.store.map, std::iter::once(offset..offset + reach))?;
    let (memory, mut at) = (memory.as_mut_slice(), 0);
    for (len, source) in &placed.parts {
        let end = at + *len as usize;
        match source {
            ReadSource::Device(first) => {
                push_pieces(&mut list, geometry.max_transfer_bytes as usize, at..end, *first);
            }
            ReadSource::Zeros => memory[at..end].fill(0),
            ReadSource::Inline(bytes) => memory[at..end].copy_from_slice(bytes),
        }
        at = end;
    }
    content.store.shared.counters.bytes_copied.add(placed.inline_bytes());
    Ok((list, keep as usize, keep as usize..reach as usize))
}
