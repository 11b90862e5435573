//! Blocks that can tell whether they are what was written where they were written.
//!
//! On disk: a block begins with a header of 32 bytes, little-endian: magic (4), CRC-32C of the block without the
//! first 8 bytes (4), offset in the file (8), length of the block (8), the job's seed (8). The rest is pseudo-random,
//! made from offset and seed.

use super::offsets::Random;

const MAGIC: u32 = 0xd105_17e5;
const HEADER: usize = 32;

/// Fill `block` with what belongs at `offset`. Blocks shorter than the header hold the start of one.
pub(crate) fn fill(block: &mut [u8], offset: u64, seed: u64) {
    let mut random = Random::new(offset ^ seed.rotate_left(32));
    for chunk in block.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    if block.len() < HEADER {
        return;
    }
    block[..4].copy_from_slice(&MAGIC.to_le_bytes());
    block[8..16].copy_from_slice(&offset.to_le_bytes());
    let len = block.len() as u64;
    block[16..24].copy_from_slice(&len.to_le_bytes());
    block[24..32].copy_from_slice(&seed.to_le_bytes());
    let crc = crc32c::crc32c(&block[8..]);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// What is wrong with a block that was read from `offset`, if anything.
pub(crate) fn check(block: &[u8], offset: u64) -> Result<(), &'static str> {
    let Some((header, _)) = block.split_at_checked(HEADER) else { return Ok(()) };
    let number = |range: std::ops::Range<usize>| {
        header[range].iter().rev().fold(0u64, |value, byte| (value << 8) | u64::from(*byte))
    };
    if number(0..4) != u64::from(MAGIC) {
        return Err("it is not a block that this job wrote");
    }
    if number(4..8) != u64::from(crc32c::crc32c(&block[8..])) {
        return Err("its CRC-32C does not match its content");
    }
    if number(8..16) != offset {
        return Err("it belongs to another offset");
    }
    if number(16..24) != block.len() as u64 {
        return Err("it has another length");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_knows_its_content_and_its_place() {
        let mut block = vec![0; 4096];
        fill(&mut block, 8192, 1);
        assert_eq!(check(&block, 8192), Ok(()));
        assert!(check(&block, 0).is_err());
        assert!(check(&block[..2048], 8192).is_err());
        block[4000] ^= 1;
        assert!(check(&block, 8192).is_err());
        assert!(check(&[0; 4096], 0).is_err());
    }
}
