//! Blocks whose content shows whether they are the blocks that were written to this offset.
//!
//! On disk: each `verify_interval` of a block (by default the whole block) begins with a header, little-endian: magic (4), number
//! of the check (4), offset in the file (8), length (8), seed of the job (8), number of the write (8), and the checksum of
//! all but itself. The rest is the pattern, or pseudo-random bytes made from offset, seed and number. So a lost overwrite is
//! detected as well. With `verify=pattern` there is no header, and a lost overwrite is not detected.

use std::fmt;

use super::random::Random;
use crate::language::check::{HEADER, Verify};

const MAGIC: u32 = 0xd105_17e6;

/// The identity of a write, which makes its content unique together with the offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The job's seed.
    pub(crate) seed: u64,
    /// The number of the write within the job.
    pub(crate) number: u64,
}

/// A difference between a block and what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Start of the wrong part.
    pub(crate) offset: u64,
    pub(crate) what: &'static str,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl Verify {
    /// Fill `block` with the content for `offset`.
    pub(crate) fn fill(&self, block: &mut [u8], offset: u64, stamp: Stamp) {
        for (offset, part) in self.parts(block.len(), offset) {
            self.fill_part(&mut block[part], offset, stamp);
        }
    }

    /// Check a block that was read from `offset`. `number` is the number of its write, if it is known.
    pub(crate) fn check(&self, block: &[u8], offset: u64, number: Option<u64>) -> Result<(), Mismatch> {
        for (offset, part) in self.parts(block.len(), offset) {
            self.check_part(&block[part], offset, number).map_err(|what| Mismatch { offset, what })?;
        }
        Ok(())
    }

    /// The parts of a block with their offsets in the file. A last part that is too short for a header joins the one before it.
    fn parts(&self, len: usize, offset: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + use<> {
        let step = self.interval.map_or(len, |interval| interval as usize).max(1);
        let least = self.header_bytes();
        (0..len).step_by(step).filter_map(move |start| {
            let end = if len.saturating_sub(start + step) < least.max(1) { len } else { start + step };
            (len - start >= least).then_some((offset + start as u64, start..end))
        })
    }

    fn fill_part(&self, part: &mut [u8], offset: u64, stamp: Stamp) {
        let header = self.header_bytes();
        if self.pattern.is_empty() {
            randomize(part, offset ^ stamp.seed.rotate_left(32) ^ stamp.number.rotate_left(48));
        } else {
            // The pattern begins at the start of the part, not after the header.
            part.iter_mut().zip(self.pattern.iter().cycle()).for_each(|(byte, pattern)| *byte = *pattern);
        }
        if header == 0 {
            return;
        }
        part[..4].copy_from_slice(&MAGIC.to_le_bytes());
        part[4..8].copy_from_slice(&(self.check as u32).to_le_bytes());
        part[8..16].copy_from_slice(&offset.to_le_bytes());
        let len = part.len() as u64;
        part[16..24].copy_from_slice(&len.to_le_bytes());
        part[24..32].copy_from_slice(&stamp.seed.to_le_bytes());
        part[32..40].copy_from_slice(&stamp.number.to_le_bytes());
        let sum = checksum(part, header).to_le_bytes();
        part[HEADER..header].copy_from_slice(&sum[..header - HEADER]);
    }

    fn check_part(&self, part: &[u8], offset: u64, written: Option<u64>) -> Result<(), &'static str> {
        let header = self.header_bytes();
        let is_pattern = |from: usize| {
            let expected = self.pattern.iter().cycle().skip(from % self.pattern.len().max(1));
            self.pattern.is_empty()
                || part[from..].iter().zip(expected).all(|(byte, expected)| byte == expected)
        };
        if header > 0 {
            let number = |range: std::ops::Range<usize>| {
                part[range].iter().rev().fold(0u64, |value, byte| (value << 8) | u64::from(*byte))
            };
            if number(0..4) != u64::from(MAGIC) {
                return Err("no job wrote this block");
            }
            if number(4..8) != u64::from(self.check as u32) {
                return Err("it was written with another check");
            }
            if number(8..16) != offset {
                return Err("it belongs to another offset");
            }
            if number(16..24) != part.len() as u64 {
                return Err("it has another length");
            }
            if part[HEADER..header] != checksum(part, header).to_le_bytes()[..header - HEADER] {
                return Err("its checksum does not match its content");
            }
            if written.is_some_and(|written| written != number(32..40)) {
                return Err("it holds the content of an earlier write");
            }
        }
        if is_pattern(header) { Ok(()) } else { Err("it does not hold the pattern") }
    }
}

/// The checksum of a part without its own bytes.
fn checksum(part: &[u8], header: usize) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&part[..HEADER]), &part[header..])
}

/// Pseudo-random bytes.
pub(crate) fn randomize(block: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    for chunk in block.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::check::Check;

    /// Each check detects a changed byte, a wrong offset and a wrong length, as far as it covers them.
    #[test]
    fn a_block_knows_its_content_and_its_place() {
        for (name, check) in Check::NAMES {
            for interval in [None, Some(512)] {
                let pattern = if check == Check::Pattern { vec![1, 2, 3] } else { Vec::new() };
                let verify = Verify { check, interval, pattern, after: true, ..Verify::default() };
                let mut block = vec![0; 4096];
                let stamp = Stamp { seed: 1, number: 7 };
                verify.fill(&mut block, 8192, stamp);
                assert_eq!(verify.check(&block, 8192, Some(7)), Ok(()), "{name}");
                if check == Check::None {
                    continue;
                }
                if verify.header_bytes() > 0 {
                    assert!(verify.check(&block, 0, None).is_err(), "{name}");
                    assert!(verify.check(&block, 8192, Some(8)).is_err(), "{name}: of an earlier write");
                    assert_eq!(
                        verify.check(&block[..2048], 8192, None).is_err(),
                        interval.is_none(),
                        "{name}"
                    );
                }
                assert!(verify.check(&[0; 4096], 0, None).is_err(), "{name}");
                block[4000] ^= 1;
                assert_eq!(verify.check(&block, 8192, None).is_err(), check != Check::Meta, "{name}");
            }
        }
    }

    #[test]
    fn a_pattern_is_checked_after_the_header() {
        let pattern = vec![0xaa, 0x55, 0x5a];
        let verify = Verify { check: Check::Meta, pattern, interval: Some(512), ..Verify::default() };
        let mut block = vec![0; 2048];
        verify.fill(&mut block, 512, Stamp::default());
        assert_eq!(verify.check(&block, 512, None), Ok(()));
        block[600] ^= 1;
        assert_eq!(verify.check(&block, 512, None).unwrap_err().offset, 1024);
    }
}
