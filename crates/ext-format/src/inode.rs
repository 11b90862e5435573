//! The inode on disk: 128 bytes as in 1993, and up to the block size since.
//!
//! On disk: fields beyond byte 128 exist as far as `i_extra_isize` (byte 128) says; extended attributes follow it. A time is
//! 32 signed bits of seconds, extended by two bits of epoch and 30 of nanoseconds if there is space.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::xattr::{self, Attributes, INODE_HEADER};
use crate::{Corrupt, FileKind, FsBlock, InodeNumber, Owner, Result, Timestamp};
use crate::{Incompat, RoCompat, Superblock, is_zero, le16, le32, put};

pub use crate::inode_flags::InodeFlags;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInode {
    mode: U16,
    uid_lo: U16,
    size_lo: U32,
    atime: U32,
    ctime: U32,
    mtime: U32,
    dtime: U32,
    gid_lo: U16,
    links: U16,
    blocks_lo: U32,
    flags: U32,
    version_lo: U32,
    block: [u8; 60],
    generation: U32,
    file_acl_lo: U32,
    size_hi: U32,
    fragment: U32,
    blocks_hi: U16,
    file_acl_hi: U16,
    uid_hi: U16,
    gid_hi: U16,
    checksum_lo: U16,
    reserved: U16,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawExtra {
    extra_isize: U16,
    checksum_hi: U16,
    ctime_extra: U32,
    mtime_extra: U32,
    atime_extra: U32,
    crtime: U32,
    crtime_extra: U32,
    version_hi: U32,
    project: U32,
}

const _: () = assert!(size_of::<RawInode>() == GOOD_OLD_SIZE && size_of::<RawExtra>() == 32);

/// Bytes of every inode; more come only with a larger `s_inode_size`.
pub const GOOD_OLD_SIZE: usize = 128;
/// The offset of the number of its names.
pub const LINKS: std::ops::Range<usize> = 0x1a..0x1c;
/// Bytes of `i_block`: 15 block numbers, an extent tree's root, or inline data.
pub const BLOCK_AREA_SIZE: usize = 60;
const CHECKSUM_LO: usize = 0x7c;
const CHECKSUM_HI: usize = 0x82;

/// The fields of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInode {
    /// Kind (upper four bits) and permissions.
    pub mode: u16,
    /// User and group.
    pub owner: Owner,
    /// Size in bytes.
    pub size: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Creation, if there is space for it.
    pub created: Option<Timestamp>,
    /// When it was removed; for an orphan, the next one of the list.
    pub deletion_time: u32,
    /// Hard links.
    pub links: u16,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Flags; `HUGE_FILE` is set and cleared by the conversion as `sectors` needs it.
    pub flags: InodeFlags,
    /// Block numbers, extents or data.
    pub block: [u8; BLOCK_AREA_SIZE],
    /// Generation.
    pub generation: u32,
    /// The block of extended attributes; 0 if there is none.
    pub xattr_block: FsBlock,
    /// Bytes in use beyond the first 128.
    pub extra_isize: u16,
    /// Version, for NFS; for an `EA_INODE` the lower half holds a part of the reference count.
    pub version: u64,
    /// Project.
    pub project: u32,
}

impl Default for DiskInode {
    /// An inode that was never used.
    fn default() -> Self {
        Self {
            mode: 0,
            owner: Owner::default(),
            size: 0,
            accessed: Timestamp::default(),
            changed: Timestamp::default(),
            modified: Timestamp::default(),
            created: None,
            deletion_time: 0,
            links: 0,
            sectors: 0,
            flags: InodeFlags::empty(),
            block: [0; BLOCK_AREA_SIZE],
            generation: 0,
            xattr_block: FsBlock(0),
            extra_isize: 0,
            version: 0,
            project: 0,
        }
    }
}

impl DiskInode {
    /// The inode in `bytes`, which are `inode_size` long. Checks that the extra size fits; the checksum is checked by
    /// [`DiskInode::has_valid_checksum`].
    ///
    /// # Errors
    /// `Corrupt`, with the number and what is wrong.
    pub fn parse(number: InodeNumber, bytes: &[u8], superblock: &Superblock) -> Result<Self> {
        let fail = |what| Err(Corrupt::Inode { inode: number, what }.into());
        let Ok((raw, rest)) = RawInode::read_from_prefix(bytes) else { return fail("cut short") };
        let extra_isize = le16(rest, 0);
        let in_use = raw.mode.get() != 0 || raw.links.get() != 0;
        if in_use && (usize::from(extra_isize) > rest.len() || !extra_isize.is_multiple_of(4)) {
            return fail("i_extra_isize is larger than the inode, or not a multiple of 4");
        }
        let used = usize::from(extra_isize).min(rest.len());
        let mut extra = [0; size_of::<RawExtra>()];
        let known = used.min(extra.len());
        extra[..known].copy_from_slice(&rest[..known]);
        let extra = RawExtra::read_from_bytes(&extra).unwrap_or_else(|_| RawExtra::new_zeroed());
        let has = |end: usize| used >= end;
        let features = superblock.features();
        let flags = InodeFlags::from_bits_retain(raw.flags.get());
        let mode = raw.mode.get();
        let kind = FileKind::from_mode(mode);
        let wide_size =
            kind == Some(FileKind::Regular) || features.has_incompat(Incompat::LARGE_DIR) || kind.is_none();
        let size_hi = if wide_size { u64::from(raw.size_hi.get()) } else { 0 };
        let wide = features.has_incompat(Incompat::SIXTY_FOUR_BIT);
        let acl_hi = if wide { u64::from(raw.file_acl_hi.get()) } else { 0 };
        let half = |low: U16, high: U16| u32::from(low.get()) | u32::from(high.get()) << 16;
        Ok(Self {
            mode,
            owner: Owner { uid: half(raw.uid_lo, raw.uid_hi), gid: half(raw.gid_lo, raw.gid_hi) },
            size: u64::from(raw.size_lo.get()) | size_hi << 32,
            accessed: decode_time(raw.atime.get(), has(16).then(|| extra.atime_extra.get())),
            changed: decode_time(raw.ctime.get(), has(8).then(|| extra.ctime_extra.get())),
            modified: decode_time(raw.mtime.get(), has(12).then(|| extra.mtime_extra.get())),
            created: has(20)
                .then(|| decode_time(extra.crtime.get(), has(24).then(|| extra.crtime_extra.get()))),
            deletion_time: raw.dtime.get(),
            links: raw.links.get(),
            sectors: decode_sectors(&raw, flags, superblock),
            flags,
            block: raw.block,
            generation: raw.generation.get(),
            xattr_block: FsBlock(u64::from(raw.file_acl_lo.get()) | acl_hi << 32),
            extra_isize,
            version: u64::from(raw.version_lo.get())
                | if has(28) { u64::from(extra.version_hi.get()) << 32 } else { 0 },
            project: if has(32) { extra.project.get() } else { 0 },
        })
    }

    /// Store into `bytes`, which are `inode_size` long, and set the checksum. Bytes without a field here are kept.
    pub fn write_into(&self, number: InodeNumber, bytes: &mut [u8], superblock: &Superblock) {
        let extra_isize = usize::from(self.extra_isize).min(bytes.len().saturating_sub(GOOD_OLD_SIZE));
        if let Ok((raw, rest)) = RawInode::mut_from_prefix(bytes) {
            self.write_fixed(raw, superblock);
            let has = |end: usize| extra_isize >= end;
            raw.atime = U32::new(encode_time(self.accessed, has(16)).0);
            raw.ctime = U32::new(encode_time(self.changed, has(8)).0);
            raw.mtime = U32::new(encode_time(self.modified, has(12)).0);
            let created = self.created.unwrap_or_default();
            let fields = [
                (0, 0), // the size itself and the checksum, below
                (4, encode_time(self.changed, true).1),
                (8, encode_time(self.modified, true).1),
                (12, encode_time(self.accessed, true).1),
                (16, encode_time(created, has(24)).0),
                (20, encode_time(created, true).1),
                (24, (self.version >> 32) as u32),
                (28, self.project),
            ];
            if rest.len() >= 2 {
                put(rest, 0, &self.extra_isize.to_le_bytes());
            }
            for (offset, value) in fields.into_iter().skip(1) {
                if has(offset + 4) {
                    put(rest, offset, &value.to_le_bytes());
                }
            }
        }
        Self::set_checksum(number, bytes, superblock);
    }

    fn write_fixed(&self, raw: &mut RawInode, superblock: &Superblock) {
        let features = superblock.features();
        raw.mode = U16::new(self.mode);
        raw.uid_lo = U16::new(self.owner.uid as u16);
        raw.uid_hi = U16::new((self.owner.uid >> 16) as u16);
        raw.gid_lo = U16::new(self.owner.gid as u16);
        raw.gid_hi = U16::new((self.owner.gid >> 16) as u16);
        raw.size_lo = U32::new(self.size as u32);
        raw.size_hi = U32::new((self.size >> 32) as u32);
        raw.dtime = U32::new(self.deletion_time);
        raw.links = U16::new(self.links);
        raw.version_lo = U32::new(self.version as u32);
        raw.block = self.block;
        raw.generation = U32::new(self.generation);
        raw.file_acl_lo = U32::new(self.xattr_block.0 as u32);
        if features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            raw.file_acl_hi = U16::new((self.xattr_block.0 >> 32) as u16);
        }
        let mut flags = self.flags - InodeFlags::HUGE_FILE;
        let mut count = self.sectors;
        if features.has_ro_compat(RoCompat::HUGE_FILE) {
            if count >= 1 << 48 {
                flags |= InodeFlags::HUGE_FILE;
                count /= superblock.block_size().bytes() / 512;
            }
            raw.blocks_hi = U16::new((count >> 32) as u16);
        }
        raw.blocks_lo = U32::new(count as u32);
        raw.flags = U32::new(flags.bits());
    }

    /// The block with the name of a passive translator, which an inode of the GNU Hurd may have where others have their version.
    pub fn translator(&self, superblock: &Superblock) -> Option<FsBlock> {
        translator(self.version, superblock)
    }

    /// The kind; `None` if the mode has an unknown one.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    /// The checksum that belongs to the inode in `bytes`.
    pub fn checksum(number: InodeNumber, bytes: &[u8], superblock: &Superblock) -> u32 {
        // In one piece, with zeros where the checksum is: a call for each of many short pieces takes several times as long.
        let mut start = ChecksummedStart([0; ChecksummedStart::BYTES]);
        let (head, rest) = bytes.split_at(bytes.len().min(ChecksummedStart::INODE_BYTES));
        put(&mut start.0, 0, &number.0.to_le_bytes());
        put(&mut start.0, 4, &le32(bytes, 0x64).to_le_bytes());
        put(&mut start.0, 8, head);
        put(&mut start.0, 8 + CHECKSUM_LO, &[0; 2]);
        if has_high_checksum(bytes) {
            put(&mut start.0, 8 + CHECKSUM_HI, &[0; 2]);
        }
        let register = crc32c(superblock.checksum_seed().0, &start.0[..8 + head.len()]);
        if rest.is_empty() { register } else { crc32c(register, rest) }
    }

    /// Whether the checksum in `bytes` is right, or the volume has none. An inode of zeros was never used and has none.
    pub fn has_valid_checksum(number: InodeNumber, bytes: &[u8], superblock: &Superblock) -> bool {
        if !superblock.features().metadata_csum() || is_zero(bytes) {
            return true;
        }
        let right = Self::checksum(number, bytes, superblock);
        le16(bytes, CHECKSUM_LO) == right as u16
            && (!has_high_checksum(bytes) || le16(bytes, CHECKSUM_HI) == (right >> 16) as u16)
    }

    /// Set the checksum in `bytes`, if the volume has any.
    pub fn set_checksum(number: InodeNumber, bytes: &mut [u8], superblock: &Superblock) {
        if superblock.features().metadata_csum() && bytes.len() >= GOOD_OLD_SIZE {
            let right = Self::checksum(number, bytes, superblock);
            put(bytes, CHECKSUM_LO, &(right as u16).to_le_bytes());
            if has_high_checksum(bytes) {
                put(bytes, CHECKSUM_HI, &((right >> 16) as u16).to_le_bytes());
            }
        }
    }
}

/// The start of an inode's checksum: its number, its generation, and its first bytes; aligned as the processor's
/// instruction likes it.
#[repr(align(8))]
struct ChecksummedStart([u8; Self::BYTES]);

impl ChecksummedStart {
    /// Bytes of an inode in it: all of most.
    const INODE_BYTES: usize = 256;
    const BYTES: usize = 8 + Self::INODE_BYTES;
}

fn has_high_checksum(bytes: &[u8]) -> bool {
    bytes.len() >= GOOD_OLD_SIZE + 4 && le16(bytes, GOOD_OLD_SIZE) >= 4
}

fn decode_sectors(raw: &RawInode, flags: InodeFlags, superblock: &Superblock) -> u64 {
    let low = u64::from(raw.blocks_lo.get());
    if !superblock.features().has_ro_compat(RoCompat::HUGE_FILE) {
        return low;
    }
    let count = low | u64::from(raw.blocks_hi.get()) << 32;
    if flags.contains(InodeFlags::HUGE_FILE) {
        count * (superblock.block_size().bytes() / 512)
    } else {
        count
    }
}

/// A time from its two fields: the epoch bits shift the signed seconds by multiples of 2^32.
fn decode_time(seconds: u32, extra: Option<u32>) -> Timestamp {
    let base = i64::from(seconds as i32);
    match extra {
        Some(extra) => Timestamp {
            seconds: base + (i64::from(extra & 3) << 32),
            nanoseconds: (extra >> 2).min(999_999_999),
        },
        None => Timestamp { seconds: base, nanoseconds: 0 },
    }
}

/// The two fields of a time; a time out of range becomes the nearest one in range.
fn encode_time(time: Timestamp, with_extra: bool) -> (u32, u32) {
    let first = i64::from(i32::MIN);
    let last = if with_extra { i64::from(i32::MAX) + (3 << 32) } else { i64::from(i32::MAX) };
    let seconds = time.seconds.clamp(first, last);
    let epoch = ((seconds - i64::from(seconds as i32)) >> 32) as u32 & 3;
    // As in Linux, the first and the last second have no parts.
    let nanoseconds = if seconds == first || seconds == last { 0 } else { time.nanoseconds.min(999_999_999) };
    (seconds as u32, epoch | nanoseconds << 2)
}

impl Superblock {
    /// A time as new inodes of the volume store it: the nearest one in their range, and in whole seconds if they have no second field.
    pub fn stored_time(&self, time: Timestamp) -> Timestamp {
        let with_extra = usize::from(self.inode_size()) > GOOD_OLD_SIZE;
        let (seconds, extra) = encode_time(time, with_extra);
        decode_time(seconds, with_extra.then_some(extra))
    }
}

/// The block of a translator in the field of an inode's version.
pub fn translator(version: u64, superblock: &Superblock) -> Option<FsBlock> {
    let block = u64::from(version as u32);
    (superblock.is_hurd() && block != 0).then_some(FsBlock(block))
}

/// The size of the fields after the first 128 bytes that [`widen_extra`] would give the inode in `bytes`.
pub fn widened_extra(bytes: &[u8], want: u16) -> u16 {
    let now = le16(bytes, GOOD_OLD_SIZE);
    let (start, end) = (GOOD_OLD_SIZE + usize::from(now), GOOD_OLD_SIZE + usize::from(want));
    if now >= want || end > bytes.len() {
        return now;
    }
    let area = if now == 0 { &[] } else { &bytes[start..] };
    let mut attributes = Attributes::in_inode(area, u32::MAX);
    let is_sound = attributes.by_ref().all(|attribute| attribute.is_ok());
    let is_empty = area.len() < INODE_HEADER || le32(area, 0) != xattr::MAGIC;
    let has_space = is_empty || is_sound && attributes.free_bytes() >= end - start;
    if has_space { want } else { now }
}

/// Give the fields after the first 128 bytes of the inode in `bytes` the size `want`, as the kernel does when it writes an inode: times
/// get all their bits. Attributes in the inode move behind the new fields. The size that they have then: where the attributes leave no
/// space nothing changes.
pub fn widen_extra(bytes: &mut [u8], want: u16) -> u16 {
    let now = le16(bytes, GOOD_OLD_SIZE);
    let widened = widened_extra(bytes, want);
    if widened == now || bytes.len() < GOOD_OLD_SIZE + 2 {
        return widened;
    }
    let (start, end) = (GOOD_OLD_SIZE + usize::from(now), GOOD_OLD_SIZE + usize::from(widened));
    if now > 0 {
        xattr::move_entries(&mut bytes[start..], end - start);
    }
    bytes[start..end].fill(0);
    put(bytes, GOOD_OLD_SIZE, &widened.to_le_bytes());
    widened
}

/// The time read back from the disk, stored with or without the extra field.
pub fn time_as_stored(time: Timestamp, with_extra: bool) -> Timestamp {
    let (low, extra) = encode_time(time, with_extra);
    decode_time(low, with_extra.then_some(extra))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_from_1901_to_2446_come_back() {
        for (seconds, nanoseconds) in [
            (0, 1),
            (-1, 999_999_999),
            (i64::from(i32::MIN), 0),
            (1 << 31, 5),
            (1 << 32, 0),
            (15_032_385_534, 7),
        ] {
            let time = Timestamp { seconds, nanoseconds };
            let (low, extra) = encode_time(time, true);
            assert_eq!(decode_time(low, Some(extra)), time);
        }
        let beyond = Timestamp { seconds: i64::MAX, nanoseconds: 5 };
        let (low, extra) = encode_time(beyond, true);
        let latest = Timestamp { seconds: 15_032_385_535, nanoseconds: 0 };
        assert_eq!(decode_time(low, Some(extra)), latest, "the latest time that fits");
        let (low, _) = encode_time(beyond, false);
        assert_eq!(decode_time(low, None).seconds, i64::from(i32::MAX));
    }

    /// The fields grow, the attributes stay what they are, and where they leave no space nothing changes.
    #[test]
    fn extra_fields_are_widened_where_there_is_space() {
        let attributes = |bytes: &[u8]| -> Vec<(Vec<u8>, Vec<u8>)> {
            let area = &bytes[GOOD_OLD_SIZE + usize::from(le16(bytes, GOOD_OLD_SIZE))..];
            let found = Attributes::in_inode(area, 100).map(Result::unwrap);
            found.map(|found| (found.name.to_vec(), found.value.to_vec())).collect()
        };
        for (now, value_len, widened) in
            [(0, 0, 32), (4, 0, 32), (4, 40, 32), (4, 80, 4), (28, 60, 32), (32, 9, 32)]
        {
            let mut bytes = vec![0; 256];
            put(&mut bytes, GOOD_OLD_SIZE, &u16::to_le_bytes(now));
            if value_len > 0 {
                let start = GOOD_OLD_SIZE + usize::from(now);
                let value_at = 256 - xattr::padded_value(value_len);
                put(&mut bytes, start, &xattr::MAGIC.to_le_bytes());
                put(&mut bytes, start + 4, &[1, 1]);
                put(&mut bytes, start + 6, &((value_at - start - 4) as u16).to_le_bytes());
                put(&mut bytes, start + 12, &(value_len as u32).to_le_bytes());
                put(&mut bytes, start + 20, b"n");
                bytes[value_at..value_at + value_len].fill(7);
            }
            let before = attributes(&bytes);
            assert_eq!(before.len(), usize::from(value_len > 0));
            assert_eq!(widened_extra(&bytes, 32), widened, "{now} {value_len}");
            assert_eq!(widen_extra(&mut bytes, 32), widened);
            assert_eq!(le16(&bytes, GOOD_OLD_SIZE), widened);
            assert_eq!(attributes(&bytes), before, "{now} {value_len}");
            let new = GOOD_OLD_SIZE + usize::from(now.max(2))..GOOD_OLD_SIZE + usize::from(widened);
            assert!(bytes[new].iter().all(|byte| *byte == 0));
        }
        assert_eq!(widened_extra(&[0; 128], 0), 0);
    }

    /// The checksum in one piece is what it is byte by byte with zeros in its own place.
    #[test]
    fn checksums_skip_their_own_place() {
        let superblock = superblock(RoCompat::METADATA_CSUM);
        for (len, extra_isize) in [(128, 0), (256, 0), (256, 3), (256, 32), (512, 32), (4096, 32)] {
            let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
            if len > GOOD_OLD_SIZE {
                put(&mut bytes, GOOD_OLD_SIZE, &u16::to_le_bytes(extra_isize));
            }
            let mut plain = bytes.clone();
            put(&mut plain, CHECKSUM_LO, &[0, 0]);
            if extra_isize >= 4 {
                put(&mut plain, CHECKSUM_HI, &[0, 0]);
            }
            let start = [77_u32.to_le_bytes(), bytes[0x64..0x68].try_into().unwrap()].concat();
            let seed = superblock.checksum_seed().0;
            let right = start.iter().chain(&plain).fold(seed, |register, byte| crc32c(register, &[*byte]));
            assert_eq!(
                DiskInode::checksum(InodeNumber(77), &bytes, &superblock),
                right,
                "{len} {extra_isize}"
            );
        }
    }

    fn superblock(features: RoCompat) -> Superblock {
        let mut superblock = Superblock::from_raw(&crate::superblock::tests::sound()).unwrap();
        superblock.set_features(crate::Features { ro_compat: features, ..Default::default() });
        superblock
    }

    #[test]
    fn all_fields_come_back_and_other_bytes_stay() {
        let superblock = superblock(RoCompat::METADATA_CSUM | RoCompat::HUGE_FILE);
        let number = InodeNumber(12);
        let inode = DiskInode {
            mode: 0o100_644,
            owner: Owner { uid: 0x1234_5678, gid: 0x9abc_def0 },
            size: 0x1_2345_6789,
            created: Some(Timestamp { seconds: 1, nanoseconds: 2 }),
            links: 3,
            sectors: 0x1234_5678_9abc,
            flags: InodeFlags::EXTENTS,
            block: [7; BLOCK_AREA_SIZE],
            generation: 9,
            xattr_block: FsBlock(77),
            extra_isize: 32,
            version: 0x1_0000_0002,
            project: 5,
            ..DiskInode::default()
        };
        let mut bytes = [0; 256];
        bytes[200] = 0xee;
        inode.write_into(number, &mut bytes, &superblock);
        assert!(DiskInode::has_valid_checksum(number, &bytes, &superblock));
        assert!(!DiskInode::has_valid_checksum(InodeNumber(13), &bytes, &superblock), "of another inode");
        assert_eq!(DiskInode::parse(number, &bytes, &superblock).unwrap(), inode);
        assert_eq!(bytes[200], 0xee);
        bytes[200] ^= 1;
        assert!(!DiskInode::has_valid_checksum(number, &bytes, &superblock), "attributes are covered");
    }

    #[test]
    fn sector_counts_beyond_48_bits_are_in_blocks() {
        let superblock = superblock(RoCompat::HUGE_FILE);
        let inode = DiskInode { mode: 0o100_644, links: 1, sectors: 1 << 48, ..DiskInode::default() };
        let mut bytes = [0; 256];
        inode.write_into(InodeNumber(12), &mut bytes, &superblock);
        let again = DiskInode::parse(InodeNumber(12), &bytes, &superblock).unwrap();
        assert_eq!((again.sectors, again.flags), (1 << 48, InodeFlags::HUGE_FILE));
    }
}
