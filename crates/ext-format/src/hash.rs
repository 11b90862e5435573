//! Hashes of names for indexed directories: legacy, half MD4 and TEA, each with signed and unsigned characters.
//!
//! The lowest bit of a hash marks a chain of equal hashes that crosses blocks, so hashes are even; the largest one
//! is kept for the end of a listing.

/// The hash: `hash_version` of an index root and `s_def_hash_version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashVersion {
    /// The first one.
    Legacy,
    /// Half MD4.
    HalfMd4,
    /// Tiny encryption algorithm.
    Tea,
}

/// The signedness of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Characters {
    /// -128 to 127.
    Signed,
    /// 0 to 255.
    Unsigned,
}

/// A hash with its characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryHash {
    /// The hash.
    pub version: HashVersion,
    /// The signedness of characters.
    pub characters: Characters,
    /// Seed of the volume, for half MD4 and TEA; zeros take the standard one.
    pub seed: [u32; 4],
}

/// Largest value before the end mark.
const END: u32 = 0x7fff_ffff;

/// Characters that half MD4 takes at a time.
const MD4_BLOCK: usize = 32;

impl DirectoryHash {
    /// The hash that an index root's `version` means on a volume; `None` for one that is not known (such as `SipHash`).
    /// Versions 0 to 2 take characters as the volume says, 3 to 5 are unsigned.
    pub fn new(version: u8, superblock: &crate::Superblock) -> Option<Self> {
        let unsigned = version >= 3 || superblock.unsigned_hash();
        let kind = match version {
            0 | 3 => HashVersion::Legacy,
            1 | 4 => HashVersion::HalfMd4,
            2 | 5 => HashVersion::Tea,
            _ => return None,
        };
        let characters = if unsigned { Characters::Unsigned } else { Characters::Signed };
        Some(Self { version: kind, characters, seed: superblock.hash_seed() })
    }

    /// Major hash (by which entries are placed) and minor hash (which orders entries of the same major one).
    pub fn hash(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.start();
        let (major, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => {
                for start in (0..name.len()).step_by(MD4_BLOCK) {
                    half_md4(&mut state, &self.words::<8>(&name[start..]));
                }
                (state[1], state[2])
            }
            HashVersion::Tea => {
                for start in (0..name.len()).step_by(16) {
                    tea(&mut state, &self.words::<4>(&name[start..]));
                }
                (state[0], state[1])
            }
        };
        (before_end(major), minor)
    }

    /// The state before the first character.
    fn start(&self) -> [u32; 4] {
        if self.seed == [0; 4] { [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476] } else { self.seed }
    }

    fn character(&self, byte: u8) -> u32 {
        match self.characters {
            Characters::Signed => i32::from(byte as i8) as u32,
            Characters::Unsigned => u32::from(byte),
        }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut hash) = (0x37ab_e8f9_u32, 0x12a3_fe2d_u32);
        for byte in name {
            let mut next = last.wrapping_add(hash ^ self.character(*byte).wrapping_mul(7_152_373));
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            last = hash;
            hash = next;
        }
        hash << 1
    }

    /// `N` words from the start of `text`: four characters each, filled up with its length.
    fn words<const N: usize>(&self, text: &[u8]) -> [u32; N] {
        let pad = (text.len() as u32) | (text.len() as u32) << 8;
        let pad = pad | pad << 16;
        let text = &text[..text.len().min(N * 4)];
        let mut words = [pad; N];
        let (whole, rest) = text.as_chunks::<4>();
        let add = |value: u32, byte: &u8| self.character(*byte).wrapping_add(value << 8);
        for (word, characters) in words.iter_mut().zip(whole) {
            let plain = u32::from_be_bytes(*characters);
            // Signs make a difference only if there are any.
            *word = if plain & 0x8080_8080 == 0 { plain } else { characters.iter().fold(0, add) };
        }
        if let Some(word) = words.get_mut(whole.len()) {
            *word = rest.iter().fold(pad, add);
        }
        words
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let (mut left, mut right, mut sum) = (state[0], state[1], 0_u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        let mix = |value: u32, first: u32, second: u32| {
            (value << 4).wrapping_add(first) ^ value.wrapping_add(sum) ^ (value >> 5).wrapping_add(second)
        };
        left = left.wrapping_add(mix(right, key[0], key[1]));
        right = right.wrapping_add(mix(left, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

/// The hash without the bit that is no part of it, and never the end mark.
fn before_end(major: u32) -> u32 {
    let major = major & !1;
    if major == END << 1 { (END - 1) << 1 } else { major }
}

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    let before = *state;
    let choose = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| (x & y) | ((x ^ y) & z);
    md4_round(state, input, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], choose);
    md4_round(state, input, 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], majority);
    md4_round(state, input, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], |x, y, z| x ^ y ^ z);
    for (word, add) in state.iter_mut().zip(before) {
        *word = word.wrapping_add(add);
    }
}

/// Eight steps of half MD4, one with each word of the input.
#[inline(always)]
#[allow(clippy::inline_always, reason = "with its order and shifts as constants it takes half the time")]
fn md4_round(
    state: &mut [u32; 4],
    input: &[u32; 8],
    constant: u32,
    order: [usize; 8],
    shifts: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
) {
    let [mut a, mut b, mut c, mut d] = *state;
    for (word, shift) in order.into_iter().zip(shifts.into_iter().cycle()) {
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[word]).wrapping_add(constant);
        (a, b, c, d) = (d, sum.rotate_left(shift), b, c);
    }
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::HashVersion::{HalfMd4, Legacy, Tea};
    use super::*;

    type Case<'a> = (HashVersion, [u32; 4], &'a [u8], (u32, u32));

    /// Results of `debugfs -R 'dx_hash -h VERSION [-s SEED] NAME'` of e2fsprogs 1.47.0.
    #[test]
    fn hashes_are_those_of_e2fsprogs() {
        let long = "x".repeat(40);
        let seed: [u8; 16] =
            [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        let seed = std::array::from_fn(|index| crate::le32(&seed, index * 4));
        let umlaut = b"\xe4\xf6\xfc-umlaut";
        let middle = b"this-is-a-name-of-middle-len.txt";
        let cases: [Case<'_>; 18] = [
            (Legacy, [0; 4], b"a", (0xe74b_53e2, 0)),
            (Legacy, [0; 4], b"hello", (0x3225_2546, 0)),
            (Legacy, [0; 4], long.as_bytes(), (0x382d_277e, 0)),
            (Legacy, [0; 4], umlaut, (0xa946_e540, 0)),
            (HalfMd4, [0; 4], b"a", (0xd5fa_7d7a, 0xacb4_8187)),
            (HalfMd4, seed, b"a", (0x35dc_0cc4, 0x3f1d_acef)),
            (HalfMd4, [0; 4], b"hello", (0x1746_da32, 0x4200_13b5)),
            (HalfMd4, seed, b"hello", (0xa26e_4a80, 0x97e5_b7f7)),
            (HalfMd4, [0; 4], long.as_bytes(), (0xa583_68b6, 0x7a9f_8ab7)),
            (HalfMd4, seed, long.as_bytes(), (0x5090_21ca, 0x4caa_8195)),
            (HalfMd4, [0; 4], middle, (0xe27e_af40, 0xc2da_9fb3)),
            (HalfMd4, seed, middle, (0xeb7d_afe2, 0x9141_8d81)),
            (HalfMd4, [0; 4], umlaut, (0x505e_1d58, 0x5f7c_ff20)),
            (HalfMd4, seed, umlaut, (0x31fb_1e04, 0x73c3_f754)),
            (Tea, [0; 4], b"a", (0x6d0e_a4c0, 0xc189_22df)),
            (Tea, [0; 4], b"hello", (0x6f5b_b1a8, 0x2319_17c2)),
            (Tea, [0; 4], long.as_bytes(), (0xb3f4_bbfc, 0xbfd5_48a9)),
            (Tea, [0; 4], middle, (0xcfda_fd14, 0xc811_8e45)),
        ];
        for (version, seed, name, expected) in cases {
            let hash = DirectoryHash { version, characters: Characters::Signed, seed };
            assert_eq!(hash.hash(name), expected, "{version:?} of {}", name.escape_ascii());
        }
    }
}
