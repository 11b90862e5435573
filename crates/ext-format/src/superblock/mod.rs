//! The superblock: geometry and state of the volume.
//!
//! Where it sits: [`RawSuperblock`] (`raw.rs`) is the bytes on the disk; [`Superblock`] is the same after every number that others
//! rely on has been checked (`validate.rs`). Setters change the raw bytes, so unknown fields survive.
//!
//! Invariants, after `parse`:
//! 1. `first_data_block < blocks_count`, and every group but the last has `blocks_per_group` blocks.
//! 2. `group_count * inodes_per_group == inodes_count`, which fits in 32 bits.
//! 3. A group's bitmaps are one block each, its inode table fits in the group, all descriptors fit in the volume.
//! 4. `inode_size` is a power of two from 128 to the block size; `desc_size` is a power of two from 32 to 1024.

mod geometry;
mod raw;
#[cfg(test)]
pub(crate) mod tests;
mod validate;

use std::fmt;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::checksum::crc32c;
use crate::mmp;
use crate::{BlockSize, Corrupt, DataMode, FsBlock, GroupNumber, Incompatible, InodeNumber, Owner, Result};
use crate::{ChecksumSeed, Compat, Features, Incompat, QuotaKind, RoCompat};

pub use geometry::{BackupRule, InodeLocation, Layout, is_sparse_backup};
pub use raw::{
    ENCODING_STRICT, ENCODING_UTF8, FLAG_SIGNED_HASH, FLAG_UNSIGNED_HASH, MAGIC, RawSuperblock, STATE_ERROR,
    STATE_ORPHANS, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};

/// `s_creator_os` of the GNU Hurd.
const CREATOR_HURD: u32 = 1;

/// A superblock whose numbers have been checked.
#[derive(Clone)]
pub struct Superblock {
    raw: RawSuperblock,
    block_size: BlockSize,
    features: Features,
}

impl fmt::Debug for Superblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uuid, blocks) = (crate::uuid_text(&self.uuid()), self.blocks_count());
        let mut text = f.debug_struct("Superblock");
        text.field("uuid", &uuid)
            .field("blocks", &blocks)
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

/// An error with a field, its value, and the required value.
fn bad<T>(field: &'static str, value: impl Into<u64>, why: &'static str) -> Result<T> {
    Err(Corrupt::Superblock { field, value: value.into(), why }.into())
}

impl Superblock {
    /// Parse and check the 1024 bytes of a superblock: magic number, checksum, then every number. Features that cannot
    /// be read are rejected with the name of the feature.
    ///
    /// # Errors
    /// `Corrupt`, with the field, or `Incompatible`, with the feature.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let superblock = Self::parse_any_features(bytes)?;
        superblock.check_readable()?;
        Ok(superblock)
    }

    /// The error that names the features with which it cannot be read.
    ///
    /// # Errors
    /// `Incompatible`, with the features.
    pub fn check_readable(&self) -> Result<()> {
        let unreadable = self.features.unreadable();
        if unreadable.is_empty() {
            return Ok(());
        }
        Err(Incompatible::Features { names: unreadable.join(", ") }.into())
    }

    /// As [`Superblock::parse`], but whatever the features are: to describe a volume that cannot be opened.
    ///
    /// # Errors
    /// `Corrupt`, with the field.
    pub fn parse_any_features(bytes: &[u8]) -> Result<Self> {
        let Ok((raw, _)) = RawSuperblock::read_from_prefix(bytes) else {
            return bad("length", bytes.len() as u64, "a superblock has 1024 bytes");
        };
        let superblock = Self::from_raw(&raw)?;
        superblock.validate_checksum()?;
        Ok(superblock)
    }

    /// Check the numbers of raw fields; the checksum is not looked at.
    ///
    /// # Errors
    /// `Corrupt`, with the field.
    pub fn from_raw(raw: &RawSuperblock) -> Result<Self> {
        if raw.magic.get() != MAGIC {
            return Err(Corrupt::Magic { found: raw.magic.get() }.into());
        }
        if raw.rev_level.get() > 1 {
            return Err(Incompatible::Revision(raw.rev_level.get()).into());
        }
        let block_size = 1024_u32.checked_shl(raw.log_block_size.get()).and_then(BlockSize::new);
        let Some(block_size) = block_size.filter(|_| raw.log_block_size.get() <= 6) else {
            return bad("s_log_block_size", raw.log_block_size.get(), "it must be 0 to 6 (1 to 64 KiB)");
        };
        let features = if raw.rev_level.get() == 0 {
            Features::default()
        } else {
            Features {
                compat: Compat::from_bits_retain(raw.feature_compat.get()),
                incompat: Incompat::from_bits_retain(raw.feature_incompat.get()),
                ro_compat: RoCompat::from_bits_retain(raw.feature_ro_compat.get()),
            }
        };
        if features.has_incompat(Incompat::JOURNAL_DEV) {
            return Err(Incompatible::JournalDevice { uuid: raw.uuid }.into());
        }
        let superblock = Self { raw: *raw, block_size, features };
        superblock.validate_sizes()?;
        superblock.validate_groups()?;
        superblock.validate_descriptors()?;
        superblock.validate_inodes()?;
        Ok(superblock)
    }

    fn right_checksum(&self) -> u32 {
        crc32c(!0, &self.raw.as_bytes()[..SUPERBLOCK_SIZE - 4])
    }

    /// Store into `bytes` (at least 1024), with the checksum if the volume has one.
    pub fn write_into(&mut self, bytes: &mut [u8]) {
        if self.features.metadata_csum() {
            self.raw.checksum = U32::new(self.right_checksum());
        }
        bytes[..SUPERBLOCK_SIZE].copy_from_slice(self.raw.as_bytes());
    }

    /// Store a backup for `group`: the same with its own group number.
    pub fn write_backup_into(&self, bytes: &mut [u8], group: GroupNumber) {
        let mut backup = self.clone();
        backup.raw.block_group_nr = U16::new(group.0 as u16);
        backup.write_into(bytes);
    }

    /// The raw fields.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// The raw fields, for changes that keep the invariants of the module head.
    pub fn raw_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }

    /// Take over what an administrator sets, and no mount changes: label, UUID, reserved blocks, checks, default options. Returns whether
    /// anything differed. The other superblock must be of the same filesystem; nothing is taken over otherwise.
    pub fn take_settings(&mut self, other: &Self) -> bool {
        let identity = |of: &Self| (of.raw.mkfs_time, of.raw.hash_seed, of.blocks_count(), of.inodes_count());
        if identity(self) != identity(other) || self.block_size != other.block_size {
            return false;
        }
        let before = self.raw;
        let (new, theirs) = (&mut self.raw, &other.raw);
        new.r_blocks_count_lo = theirs.r_blocks_count_lo;
        new.r_blocks_count_hi = theirs.r_blocks_count_hi;
        // The first superblock that a mount writes counts the mount; the device's does not yet.
        if new.mtime == theirs.mtime && new.mtime_hi == theirs.mtime_hi {
            new.mnt_count = theirs.mnt_count;
        }
        new.max_mnt_count = theirs.max_mnt_count;
        new.errors = theirs.errors;
        (new.lastcheck, new.lastcheck_hi) = (theirs.lastcheck, theirs.lastcheck_hi);
        new.checkinterval = theirs.checkinterval;
        (new.def_resuid, new.def_resgid) = (theirs.def_resuid, theirs.def_resgid);
        (new.volume_name, new.last_mounted) = (theirs.volume_name, theirs.last_mounted);
        new.def_hash_version = theirs.def_hash_version;
        (new.default_mount_opts, new.mount_opts) = (theirs.default_mount_opts, theirs.mount_opts);
        (new.raid_stride, new.raid_stripe_width) = (theirs.raid_stride, theirs.raid_stripe_width);
        new.mmp_interval = theirs.mmp_interval;
        let has_seed = |of: &Self| of.features.has_incompat(Incompat::CSUM_SEED);
        if has_seed(other) && !has_seed(self) && other.checksum_seed() == self.checksum_seed() {
            self.raw.checksum_seed = other.raw.checksum_seed;
            let mut features = self.features;
            features.incompat |= Incompat::CSUM_SEED;
            self.set_features(features);
        }
        // Without a stored seed, checksums of metadata depend on the UUID.
        if has_seed(self) || !self.features.metadata_csum() {
            self.raw.uuid = other.raw.uuid;
        }
        self.raw.as_bytes() != before.as_bytes()
    }

    /// Features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Change the features. Revision 0 has none: with its first one a volume becomes revision 1, of the sizes that revision 0 always
    /// has (`ext4_update_dynamic_rev` of the kernel).
    pub fn set_features(&mut self, features: Features) {
        if self.raw.rev_level.get() == 0 && features != Features::default() {
            self.raw.first_ino = U32::new(self.first_inode().0);
            self.raw.inode_size = U16::new(self.inode_size());
            self.raw.rev_level = U32::new(1);
        }
        self.features = features;
        self.raw.feature_compat = U32::new(features.compat.bits());
        self.raw.feature_incompat = U32::new(features.incompat.bits());
        self.raw.feature_ro_compat = U32::new(features.ro_compat.bits());
    }

    /// Block size.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks of the volume, from block 0.
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.raw.blocks_count_lo, self.raw.blocks_count_hi)
    }

    /// Blocks kept for the reserved user.
    pub fn reserved_blocks_count(&self) -> u64 {
        self.wide(self.raw.r_blocks_count_lo, self.raw.r_blocks_count_hi)
    }

    /// The user and the group that may use those blocks, beside the superuser; the group 0 stands for no group.
    pub fn reserved_blocks_owner(&self) -> Owner {
        Owner { uid: self.raw.def_resuid.get().into(), gid: self.raw.def_resgid.get().into() }
    }

    /// Free blocks (blocks, not clusters): a hint, the groups know better.
    pub fn free_blocks_count(&self) -> u64 {
        self.wide(self.raw.free_blocks_count_lo, self.raw.free_blocks_count_hi).min(self.blocks_count())
    }

    /// Set the number of free blocks.
    pub fn set_free_blocks_count(&mut self, blocks: u64) {
        self.raw.free_blocks_count_lo = U32::new(blocks as u32);
        if self.features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            self.raw.free_blocks_count_hi = U32::new((blocks >> 32) as u32);
        }
    }

    /// Free inodes: a hint, the groups know better.
    pub fn free_inodes_count(&self) -> u32 {
        self.raw.free_inodes_count.get().min(self.inodes_count())
    }

    /// Set the number of free inodes.
    pub fn set_free_inodes_count(&mut self, inodes: u32) {
        self.raw.free_inodes_count = U32::new(inodes);
    }

    fn wide(&self, low: U32, high: U32) -> u64 {
        let high = if self.features.has_incompat(Incompat::SIXTY_FOUR_BIT) { high.get() } else { 0 };
        u64::from(low.get()) | u64::from(high) << 32
    }

    /// Inodes of the volume.
    pub fn inodes_count(&self) -> u32 {
        self.raw.inodes_count.get()
    }

    /// Clusters that the filesystem's own structures take, the journal too; 0 if they were not counted.
    pub fn overhead_clusters(&self) -> u64 {
        u64::from(self.raw.overhead_blocks.get())
    }

    /// Bytes of an inode.
    pub fn inode_size(&self) -> u16 {
        if self.raw.rev_level.get() == 0 { 128 } else { self.raw.inode_size.get() }
    }

    /// First inode that a file can have.
    pub fn first_inode(&self) -> InodeNumber {
        InodeNumber(if self.raw.rev_level.get() == 0 { 11 } else { self.raw.first_ino.get() })
    }

    /// Bytes of a group descriptor.
    pub fn desc_size(&self) -> u16 {
        if self.features.has_incompat(Incompat::SIXTY_FOUR_BIT) { self.raw.desc_size.get() } else { 32 }
    }

    /// The part of a bitmap's checksum that a descriptor can hold.
    pub fn bitmap_checksum_mask(&self) -> u32 {
        if self.desc_size() >= 64 { u32::MAX } else { 0xffff }
    }

    /// The seed of all checksums.
    pub fn checksum_seed(&self) -> ChecksumSeed {
        if self.features.has_incompat(Incompat::CSUM_SEED) {
            ChecksumSeed(self.raw.checksum_seed.get())
        } else {
            ChecksumSeed::of_uuid(&self.raw.uuid)
        }
    }

    /// Whether inodes have the fields of the GNU Hurd, as [`DiskInode::translator`](crate::DiskInode::translator), in place of Linux's.
    pub fn is_hurd(&self) -> bool {
        self.raw.creator_os.get() == CREATOR_HURD
    }

    /// UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.raw.uuid
    }

    /// Label, up to the first NUL.
    pub fn label(&self) -> &[u8] {
        until_nul(&self.raw.volume_name)
    }

    /// The last mount point, up to the first NUL.
    pub fn last_mounted(&self) -> &[u8] {
        until_nul(&self.raw.last_mounted)
    }

    /// Bits `STATE_*`.
    pub fn state(&self) -> u16 {
        self.raw.state.get()
    }

    /// Set bits `STATE_*`.
    pub fn set_state(&mut self, state: u16) {
        self.raw.state = U16::new(state);
    }

    /// Why `e2fsck` is to run before the volume is changed, at a time in seconds since 1970: in the order in which the kernel asks when it
    /// mounts one (`ext4_setup_super`).
    pub fn check_reason(&self, now: i64) -> Option<CheckReason> {
        let raw = &self.raw;
        // A limit of -1, or 0: none.
        let mounts_max = raw.max_mnt_count.get() as i16;
        let interval = i64::from(raw.checkinterval.get());
        let checked = i64::from(raw.lastcheck.get()) | i64::from(raw.lastcheck_hi) << 32;
        if self.state() & STATE_VALID == 0 {
            Some(CheckReason::NotClosed)
        } else if self.state() & STATE_ERROR != 0 {
            Some(CheckReason::Errors)
        } else if mounts_max > 0 && raw.mnt_count.get() >= mounts_max as u16 {
            Some(CheckReason::Mounts)
        } else if interval > 0 && checked + interval <= now {
            Some(CheckReason::Time)
        } else {
            None
        }
    }

    /// The inode of the journal, if it is on this volume.
    pub fn journal_inode(&self) -> Option<InodeNumber> {
        let inode = self.raw.journal_inum.get();
        (self.features.has_compat(Compat::HAS_JOURNAL) && inode != 0).then_some(InodeNumber(inode))
    }

    /// UUID of an external journal, if there is one.
    pub fn external_journal(&self) -> Option<[u8; 16]> {
        (self.features.has_compat(Compat::HAS_JOURNAL) && self.raw.journal_inum.get() == 0)
            .then_some(self.raw.journal_uuid)
    }

    /// The number of the device that an external journal was on last, in the kernel's form.
    pub fn journal_device(&self) -> u32 {
        self.raw.journal_dev.get()
    }

    /// First inode of the list of orphans; like all of the list it is checked where it is followed.
    pub fn last_orphan(&self) -> Option<InodeNumber> {
        let inode = self.raw.last_orphan.get();
        (inode != 0).then_some(InodeNumber(inode))
    }

    /// Set the first inode of the list of orphans.
    pub fn set_last_orphan(&mut self, inode: Option<InodeNumber>) {
        self.raw.last_orphan = U32::new(inode.map_or(0, |inode| inode.0));
    }

    /// The inode of the orphan file, if there is one.
    pub fn orphan_file(&self) -> Option<InodeNumber> {
        let inode = self.raw.orphan_file_inum.get();
        (self.features.has_compat(Compat::ORPHAN_FILE) && inode != 0).then_some(InodeNumber(inode))
    }

    /// Seed of directory hashes: four little-endian numbers, as stored.
    pub fn hash_seed(&self) -> [u32; 4] {
        std::array::from_fn(|index| crate::le32(&self.raw.hash_seed, index * 4))
    }

    /// `s_def_hash_version`: the hash of new indexed directories.
    pub fn default_hash_version(&self) -> u8 {
        self.raw.def_hash_version
    }

    /// Whether directory hashes take characters as unsigned.
    pub fn unsigned_hash(&self) -> bool {
        self.raw.flags.get() & FLAG_UNSIGNED_HASH != 0
    }

    /// The encoding of names that ignore case; `None` on a volume without `casefold`.
    pub fn encoding(&self) -> Option<u16> {
        self.features.has_incompat(Incompat::CASEFOLD).then(|| self.raw.encoding.get())
    }

    /// Whether names that are not valid in the encoding are refused in directories that ignore case.
    pub fn strict_encoding(&self) -> bool {
        self.encoding().is_some() && self.raw.encoding_flags.get() & ENCODING_STRICT != 0
    }

    /// Extra bytes that new inodes get beyond the first 128.
    pub fn want_extra_isize(&self) -> u16 {
        let most = self.inode_size().saturating_sub(128);
        let want = self.raw.want_extra_isize.get();
        let usual = if most >= 32 { 32 } else { 0 };
        let known = self.features.has_ro_compat(RoCompat::EXTRA_ISIZE) && want.is_multiple_of(4);
        if known && want >= 4 && want <= most { want } else { usual }
    }

    /// The block of multi-mount protection.
    pub fn mmp_block(&self) -> Option<FsBlock> {
        self.features.has_incompat(Incompat::MMP).then(|| FsBlock(self.raw.mmp_block.get()))
    }

    /// Seconds between updates of the block of multi-mount protection.
    pub fn mmp_update_interval(&self) -> u16 {
        match self.raw.mmp_interval.get() {
            0 => mmp::UPDATE_INTERVAL,
            seconds => seconds.min(mmp::CHECK_INTERVAL_MAX),
        }
    }

    /// Default journal mode of data (`tune2fs -o journal_data`).
    pub fn default_data_mode(&self) -> DataMode {
        match self.raw.default_mount_opts.get() & 0x60 {
            0x20 => DataMode::Journal,
            0x60 => DataMode::Writeback,
            _ => DataMode::Ordered,
        }
    }

    /// The hidden file that counts use by kind, if the volume has one.
    pub fn quota_inode(&self, kind: QuotaKind) -> Option<InodeNumber> {
        let number = match kind {
            QuotaKind::User => self.raw.usr_quota_inum.get(),
            QuotaKind::Group => self.raw.grp_quota_inum.get(),
            QuotaKind::Project => self.raw.prj_quota_inum.get(),
        };
        (self.features.has_ro_compat(RoCompat::QUOTA) && number != 0).then_some(InodeNumber(number))
    }

    /// Whether an inode is one of the filesystem's own: the root directory, the journal, the orphan file, a quota file...
    pub fn is_own_inode(&self, number: InodeNumber) -> bool {
        number < self.first_inode() || self.orphan_file() == Some(number) || self.is_quota_inode(number)
    }

    /// Whether an inode is that of a quota file.
    pub fn is_quota_inode(&self, number: InodeNumber) -> bool {
        QuotaKind::ALL.into_iter().any(|kind| self.quota_inode(kind) == Some(number))
    }

    /// Set when the volume was last written.
    pub fn set_write_time(&mut self, seconds: i64) {
        self.raw.wtime = U32::new(seconds as u32);
        self.raw.wtime_hi = (seconds >> 32) as u8;
    }

    /// Set when the volume was last mounted, and count it.
    pub fn set_mount_time(&mut self, seconds: i64) {
        self.raw.mtime = U32::new(seconds as u32);
        self.raw.mtime_hi = (seconds >> 32) as u8;
        self.raw.mnt_count = U16::new(self.raw.mnt_count.get().saturating_add(1));
    }

    /// KiB written over the volume's life.
    pub fn kib_written(&self) -> u64 {
        self.raw.kbytes_written.get()
    }

    /// Set the KiB written over the volume's life.
    pub fn set_kib_written(&mut self, kib: u64) {
        self.raw.kbytes_written = U64::new(kib);
    }
}

/// Why a volume needs a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckReason {
    /// It has no journal, and was in use when the program or the machine stopped.
    NotClosed,
    /// Errors were found.
    Errors,
    /// It was mounted as often as it may be between two checks (`tune2fs -c`).
    Mounts,
    /// Its last check was as long ago as it may be (`tune2fs -i`).
    Time,
}

impl fmt::Display for CheckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotClosed => "it was not closed cleanly, and what it has recorded as free may be in use",
            Self::Errors => "errors were found in it, and it was not checked since",
            Self::Mounts => "it was mounted as often as it may be between two checks (tune2fs -c)",
            Self::Time => "its last check is as long ago as it may be (tune2fs -i)",
        })
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
