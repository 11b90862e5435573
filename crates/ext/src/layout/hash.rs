//! Hashes of names for indexed directories: legacy, half MD4 and TEA, each with signed and unsigned characters.
//!
//! The lowest bit of a hash marks a chain of equal hashes that crosses blocks, so hashes are even; the largest one
//! is kept for the end of a listing.

/// Which hash: `hash_version` of an index root and `s_def_hash_version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashVersion {
    /// The first one.
    Legacy,
    /// Half MD4.
    HalfMd4,
    /// Tiny encryption algorithm.
    Tea,
}

/// How characters become numbers.
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
    /// Which hash.
    pub version: HashVersion,
    /// Which characters.
    pub characters: Characters,
    /// Seed of the volume, for half MD4 and TEA; zeros take the standard one.
    pub seed: [u32; 4],
}

/// Largest value before the end mark.
const END: u32 = 0x7fff_ffff;

impl DirectoryHash {
    /// The hash that an index root's `version` means on a volume; `None` for one that is not known (such as `SipHash`).
    /// Versions 0 to 2 take characters as the volume says, 3 to 5 are unsigned.
    pub fn new(version: u8, superblock: &crate::layout::Superblock) -> Option<Self> {
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
        let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        if self.seed != [0; 4] {
            state = self.seed;
        }
        let (major, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => {
                for start in (0..name.len()).step_by(32) {
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
        let major = major & !1;
        (if major == END << 1 { (END - 1) << 1 } else { major }, minor)
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
        for (word, chunk) in words.iter_mut().zip(text.chunks(4)) {
            *word = chunk.iter().fold(pad, |value, byte| self.character(*byte).wrapping_add(value << 8));
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

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let choose: Mix = |x, y, z| z ^ (x & (y ^ z));
    let majority: Mix = |x, y, z| (x & y).wrapping_add((x ^ y) & z);
    let parity: Mix = |x, y, z| x ^ y ^ z;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (choose, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (majority, 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (parity, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, shifts) in rounds {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[word]).wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}
