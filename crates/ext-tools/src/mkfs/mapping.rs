//! Maps of the few files that a new volume has: extents, or block numbers with indirect blocks.

use crate::mkfs::MkfsError;
use crate::mkfs::space::Space;
use diorite_ext_format::extent::{
    ENTRY_SIZE, Extent, Header, Index, MAX_WRITTEN, entry_offset, set_checksum,
};
use diorite_ext_format::inode::BLOCK_AREA_SIZE;
use diorite_ext_format::{BlockSize, FileBlock, FsBlock};
use diorite_ext_format::{ChecksumSeed, put};

/// Direct block numbers in an inode.
const DIRECT: usize = 12;

/// The content of `i_block`, and the blocks that it needs besides.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) block_area: [u8; BLOCK_AREA_SIZE],
    pub(super) blocks: Vec<(FsBlock, Vec<u8>)>,
}

/// The first block of the file that an entry of an extent node is for, and the entry.
type Entry = (FileBlock, [u8; ENTRY_SIZE]);

/// The runs as extents of at most the longest length.
fn extents_of(runs: &[(FsBlock, u64)]) -> Vec<Entry> {
    let mut extents = Vec::new();
    let mut at = 0;
    for &(block, count) in runs {
        let mut done = 0;
        while done < count {
            let blocks = (count - done).min(u64::from(MAX_WRITTEN)) as u32;
            let (start, block) = (FileBlock(at + done), FsBlock(block.0 + done));
            extents.push((start, Extent { start, blocks, block, unwritten: false }.to_entry()));
            done += u64::from(blocks);
        }
        at += count;
    }
    extents
}

/// Map `runs` by extents; nodes that do not fit in the inode are taken from `space`.
pub(super) fn by_extents(
    runs: &[(FsBlock, u64)],
    block_size: BlockSize,
    seed: Option<ChecksumSeed>,
    space: &mut Space,
) -> Result<Mapped, MkfsError> {
    let mut mapped = Mapped { block_area: [0; BLOCK_AREA_SIZE], blocks: Vec::new() };
    let in_inode = Header::capacity_of(BLOCK_AREA_SIZE);
    let size = block_size.bytes() as usize;
    let capacity = Header::capacity_of(size);
    let write = |entries: &[Entry], node: &mut [u8], capacity, depth| {
        Header { entries: entries.len() as u16, capacity, depth, generation: 0 }.write_into(node);
        for (index, (_, entry)) in entries.iter().enumerate() {
            put(node, entry_offset(index), entry);
        }
    };
    let (mut entries, mut depth) = (extents_of(runs), 0);
    while entries.len() > usize::from(in_inode) {
        let mut parents = Vec::new();
        for below in entries.chunks(usize::from(capacity)) {
            let block = space.take_runs(0, 1).ok_or(MkfsError::NoSpace)?[0].0;
            let mut bytes = vec![0; size];
            write(below, &mut bytes, capacity, depth);
            if let Some(seed) = seed {
                set_checksum(&mut bytes, seed);
            }
            mapped.blocks.push((block, bytes));
            let start = below[0].0;
            parents.push((start, Index { start, block }.to_entry()));
        }
        entries = parents;
        depth += 1;
    }
    write(&entries, &mut mapped.block_area, in_inode, depth);
    Ok(mapped)
}

/// Map `runs` by block numbers: 12 in the inode, then trees of one, two and three levels.
pub(super) fn by_numbers(
    runs: &[(FsBlock, u64)],
    block_size: BlockSize,
    space: &mut Space,
) -> Result<Mapped, MkfsError> {
    let numbers: Vec<u32> = runs
        .iter()
        .flat_map(|(block, count)| block.0..block.0 + count)
        .map(|block| u32::try_from(block).map_err(|_| MkfsError::NoSpace))
        .collect::<Result<_, _>>()?;
    let mut mapped = Mapped { block_area: [0; BLOCK_AREA_SIZE], blocks: Vec::new() };
    let per_block = (block_size.bytes() / 4) as usize;
    let (direct, mut rest) = numbers.split_at(numbers.len().min(DIRECT));
    for (index, number) in direct.iter().enumerate() {
        put(&mut mapped.block_area, index * 4, &number.to_le_bytes());
    }
    for level in 1..=3 {
        if rest.is_empty() {
            return Ok(mapped);
        }
        let (here, after) = rest.split_at(rest.len().min(per_block.pow(level)));
        let root = tree(here, level, per_block, space, &mut mapped.blocks)?;
        put(&mut mapped.block_area, (DIRECT + level as usize - 1) * 4, &root.to_le_bytes());
        rest = after;
    }
    if rest.is_empty() { Ok(mapped) } else { Err(MkfsError::NoSpace) }
}

fn tree(
    numbers: &[u32],
    level: u32,
    per_block: usize,
    space: &mut Space,
    blocks: &mut Vec<(FsBlock, Vec<u8>)>,
) -> Result<u32, MkfsError> {
    let block = space.take_runs(0, 1).ok_or(MkfsError::NoSpace)?[0].0;
    let number = u32::try_from(block.0).map_err(|_| MkfsError::NoSpace)?;
    let mut bytes = vec![0; per_block * 4];
    for (index, below) in numbers.chunks(per_block.pow(level - 1)).enumerate() {
        let child = if level == 1 { below[0] } else { tree(below, level - 1, per_block, space, blocks)? };
        put(&mut bytes, index * 4, &child.to_le_bytes());
    }
    blocks.push((block, bytes));
    Ok(number)
}
