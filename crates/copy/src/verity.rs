//! Hash trees of dm-verity: the kernel compares each block of a read-only image with them.
//!
//! Interface: [`VerityLayout`] says where the tree is, [`write_verity`] writes it.
//!
//! On disk, from `hash_offset` on: one block with the superblock, then the levels of the tree, the root's first. Each block of a level holds
//! the hashes of 128 blocks of the level below. The lowest level has the hashes of the data. The format is version 1 of
//! <https://gitlab.com/cryptsetup/cryptsetup/-/wikis/DMVerity>: SHA-256 of the salt and the block, blocks of 4096 bytes.

use diorite::{AlignedBuf, BlockDevice};
use diorite_block::{BioFlags, IoError};
use sha2::{Digest, Sha256};

use crate::Watch;

/// Bytes of a block of data and of a block of hashes.
pub const VERITY_BLOCK: u64 = 4096;
/// Hashes in a block.
const HASHES: u64 = VERITY_BLOCK / HASH_BYTES as u64;
const HASH_BYTES: usize = 32;
/// Longest salt.
pub const VERITY_SALT_MAX: usize = 256;
/// Data read at once.
const CHUNK_BYTES: usize = 4 << 20;

/// The root of a tree.
pub type RootHash = [u8; HASH_BYTES];

/// The sizes of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerityLayout {
    /// Blocks of data.
    pub data_blocks: u64,
    /// Blocks of each level, the lowest first.
    levels: Vec<u64>,
}

impl VerityLayout {
    /// For this number of blocks of data.
    pub fn new(data_blocks: u64) -> Self {
        let (mut levels, mut below) = (Vec::new(), data_blocks);
        while below > 1 {
            below = below.div_ceil(HASHES);
            levels.push(below);
        }
        Self { data_blocks, levels }
    }

    /// Bytes of superblock and tree.
    pub fn hash_bytes(&self) -> u64 {
        (1 + self.levels.iter().sum::<u64>()) * VERITY_BLOCK
    }
}

/// A finished tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerityReport {
    /// The root hash.
    pub root_hash: RootHash,
    /// Blocks of data.
    pub data_blocks: u64,
    /// Offset of the superblock on the device of the hashes, in bytes.
    pub hash_offset: u64,
    /// The salt.
    pub salt: Vec<u8>,
}

/// The identity of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerityOptions {
    /// At most [`VERITY_SALT_MAX`] bytes.
    pub salt: Vec<u8>,
    /// UUID of the tree.
    pub uuid: [u8; 16],
}

/// Write the tree for the first blocks of `data` to the device `hashes` from `hash_offset` on, a multiple of [`VERITY_BLOCK`]. It can be the
/// same device. `None` if `watch` is cancelled.
///
/// # Errors
/// A device failed.
pub fn write_verity(
    (data, layout): (&dyn BlockDevice, &VerityLayout),
    (hashes, hash_offset): (&dyn BlockDevice, u64),
    options: &VerityOptions,
    watch: &dyn Watch,
) -> Result<Option<VerityReport>, IoError> {
    let salted = Sha256::new_with_prefix(&options.salt);
    let Some(mut level) = hashes_of_data(data, layout.data_blocks, &salted, watch)? else { return Ok(None) };
    let mut end = hash_offset + layout.hash_bytes();
    for blocks in &layout.levels {
        level.resize((blocks * VERITY_BLOCK) as usize, 0);
        end -= level.len() as u64;
        write(hashes, end, &level)?;
        level = hashes_of(&level, &salted);
    }
    write(hashes, hash_offset, &superblock(layout, options))?;
    hashes.flush()?;
    let mut root_hash = RootHash::default();
    root_hash.copy_from_slice(&level[..HASH_BYTES]);
    Ok(Some(VerityReport {
        root_hash,
        data_blocks: layout.data_blocks,
        hash_offset,
        salt: options.salt.clone(),
    }))
}

/// The hashes of blocks, one after the other.
fn hashes_of(blocks: &[u8], salted: &Sha256) -> Vec<u8> {
    let hash = |block: &[u8]| salted.clone().chain_update(block).finalize();
    blocks.chunks(VERITY_BLOCK as usize).flat_map(hash).collect()
}

fn hashes_of_data(
    data: &dyn BlockDevice,
    blocks: u64,
    salted: &Sha256,
    watch: &dyn Watch,
) -> Result<Option<Vec<u8>>, IoError> {
    let (mut level, mut at, end) = (Vec::new(), 0, blocks * VERITY_BLOCK);
    let mut memory = AlignedBuf::zeroed(CHUNK_BYTES, VERITY_BLOCK as usize);
    while at < end {
        if watch.is_cancelled() {
            return Ok(None);
        }
        let len = (end - at).min(CHUNK_BYTES as u64) as usize;
        data.read_bytes(at, &mut memory[..len])?;
        level.extend(hashes_of(&memory[..len], salted));
        at += len as u64;
    }
    Ok(Some(level))
}

/// Write bytes through aligned memory.
fn write(device: &dyn BlockDevice, mut at: u64, bytes: &[u8]) -> Result<(), IoError> {
    let mut memory = AlignedBuf::zeroed(bytes.len().clamp(1, CHUNK_BYTES), VERITY_BLOCK as usize);
    for chunk in bytes.chunks(CHUNK_BYTES) {
        memory[..chunk.len()].copy_from_slice(chunk);
        device.write_bytes(at, &memory[..chunk.len()], BioFlags::NONE)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// The block of the superblock: `struct verity_sb` of cryptsetup.
fn superblock(layout: &VerityLayout, options: &VerityOptions) -> Vec<u8> {
    let mut block = vec![0; VERITY_BLOCK as usize];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"verity\0\0");
    // The version of the superblock, and the hash type of the kernel.
    put(8, &1_u32.to_le_bytes());
    put(12, &1_u32.to_le_bytes());
    put(16, &options.uuid);
    put(32, b"sha256");
    put(64, &(VERITY_BLOCK as u32).to_le_bytes());
    put(68, &(VERITY_BLOCK as u32).to_le_bytes());
    put(72, &layout.data_blocks.to_le_bytes());
    put(80, &(options.salt.len() as u16).to_le_bytes());
    put(88, &options.salt);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_with_one_block() {
        let levels = |blocks| VerityLayout::new(blocks).levels;
        assert_eq!(levels(1), [0_u64; 0]);
        assert_eq!(levels(2), [1]);
        assert_eq!(levels(128), [1]);
        assert_eq!(levels(129), [2, 1]);
        assert_eq!(levels(128 * 128 + 1), [129, 2, 1]);
    }
}
