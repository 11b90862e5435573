//! Quota files (version 2, revision 1): usage and limits of each user, group and project.
//!
//! On disk, in blocks of 1 KiB: block 0 is the header; from block 1 on a tree of four levels, in which each byte of a number,
//! the highest first, picks one of 256 block numbers; its leaves point to blocks of entries. Such a block has a header of 16
//! bytes (next and previous block with a free entry, entries in use) and 14 entries of 72 bytes. An entry of zeros is free.
//! Blocks that are not in use are a list that begins in the header. Source: the kernel's `quota_tree.c` and `quotaio_v2.h`.

pub mod tree;

use crate::{Owner, le16, le32, put};

/// Bytes of a block of the file.
pub const BLOCK_SIZE: usize = 1024;
/// The root of the tree.
pub const ROOT: u32 = 1;
/// Levels of the tree.
pub const DEPTH: u32 = 4;
/// Bytes of an entry.
pub const ENTRY_SIZE: usize = 72;
/// Entries in a block of entries.
pub const ENTRIES: usize = (BLOCK_SIZE - ENTRIES_START) / ENTRY_SIZE;
/// First byte of the entries in their block.
const ENTRIES_START: usize = 16;
/// The only revision that hidden quota files have.
const REVISION: u32 = 1;
/// Time that a user may be above a soft limit, in seconds, by default.
const GRACE: u32 = 7 * 24 * 3600;

/// Whose use a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

impl QuotaKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Place in tables of all kinds.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As `mke2fs -E quotatype=` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "usrquota",
            Self::Group => "grpquota",
            Self::Project => "prjquota",
        }
    }

    /// A word for messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }

    /// The number of the user, group or project that an inode is charged to.
    pub const fn id(self, owner: Owner, project: u32) -> u32 {
        match self {
            Self::User => owner.uid,
            Self::Group => owner.gid,
            Self::Project => project,
        }
    }

    const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

/// The header of a quota file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaHeader {
    /// Blocks of the file, header included.
    pub blocks: u32,
    /// First block of the list of blocks that are not in use; 0 for none.
    pub free_block: u32,
    /// First block of the list of blocks with a free entry; 0 for none.
    pub free_entry: u32,
    block_grace: u32,
    inode_grace: u32,
    flags: u32,
}

impl QuotaHeader {
    /// Of a file of `blocks` blocks that are all in use.
    pub const fn new(blocks: u32) -> Self {
        Self { blocks, free_block: 0, free_entry: 0, block_grace: GRACE, inode_grace: GRACE, flags: 0 }
    }

    /// The header in block 0, with numbers that lie in the file.
    ///
    /// # Errors
    /// The damage.
    pub fn parse(kind: QuotaKind, bytes: &[u8]) -> Result<Self, &'static str> {
        if le32(bytes, 0) != kind.magic() {
            return Err("the quota file's magic number is wrong");
        }
        if le32(bytes, 4) != REVISION {
            return Err("the quota file's revision is not known");
        }
        let header = Self {
            block_grace: le32(bytes, 8),
            inode_grace: le32(bytes, 12),
            flags: le32(bytes, 16),
            blocks: le32(bytes, 20),
            free_block: le32(bytes, 24),
            free_entry: le32(bytes, 28),
        };
        let lists = [header.free_block, header.free_entry];
        if header.blocks <= ROOT || lists.iter().any(|block| *block != 0 && !header.has(*block)) {
            return Err("the quota file's header points beyond its end");
        }
        Ok(header)
    }

    /// Set until when an entry may be above its soft limits: from `now` (seconds since 1970) on, if it has come to be above one;
    /// nothing below. Without `now` no limits hold, and no time begins to run.
    pub fn note_times(&self, entry: &mut QuotaEntry, now: Option<i64>) {
        let until = |time: u64, is_above: bool, grace: u32| match now {
            _ if !is_above => 0,
            Some(now) if time == 0 => now.max(0) as u64 + u64::from(grace),
            _ => time,
        };
        entry.space_time = until(entry.space_time, entry.is_above_space(entry.space), self.block_grace);
        entry.inodes_time = until(entry.inodes_time, entry.is_above_inodes(entry.inodes), self.inode_grace);
    }

    /// Whether a block other than header and root is inside the file.
    pub const fn has(&self, block: u32) -> bool {
        block > ROOT && block < self.blocks
    }

    /// Store into block 0.
    pub fn write_into(&self, kind: QuotaKind, bytes: &mut [u8]) {
        let fields = [
            kind.magic(),
            REVISION,
            self.block_grace,
            self.inode_grace,
            self.flags,
            self.blocks,
            self.free_block,
            self.free_entry,
        ];
        for (index, field) in fields.into_iter().enumerate() {
            put(bytes, index * 4, &field.to_le_bytes());
        }
    }
}

/// Byte of the block number that leads on to `id`, in a block of the tree at `level` (0 is the root).
pub const fn reference_offset(id: u32, level: u32) -> usize {
    (id >> (8 * (DEPTH - 1 - level)) & 0xff) as usize * 4
}

/// The header of a block of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntriesHeader {
    /// Next block with a free entry.
    pub next: u32,
    /// The one before.
    pub previous: u32,
    /// Entries in use.
    pub used: u16,
}

impl EntriesHeader {
    /// The header of this block.
    pub fn parse(bytes: &[u8]) -> Self {
        Self { next: le32(bytes, 0), previous: le32(bytes, 4), used: le16(bytes, 8) }
    }

    /// Store into its block.
    pub fn write_into(&self, bytes: &mut [u8]) {
        put(bytes, 0, &self.next.to_le_bytes());
        put(bytes, 4, &self.previous.to_le_bytes());
        put(bytes, 8, &self.used.to_le_bytes());
    }
}

/// Usage and limits of a user, group or project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaEntry {
    /// The number of the user, group or project.
    pub id: u32,
    /// Most inodes; 0 for any number.
    pub inodes_limit: u64,
    /// Inodes above which a time runs.
    pub inodes_soft: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Most space in KiB; 0 for any.
    pub space_limit_kib: u64,
    /// Space in KiB above which a time runs.
    pub space_soft_kib: u64,
    /// Bytes in use.
    pub space: u64,
    /// When the time for space ends.
    pub space_time: u64,
    /// When the time for inodes ends.
    pub inodes_time: u64,
}

impl QuotaEntry {
    /// Whether this number of bytes is above the soft limit.
    pub fn is_above_space(&self, bytes: u64) -> bool {
        self.space_soft_kib > 0 && bytes > self.space_soft_kib.saturating_mul(1024)
    }

    /// Whether this number of inodes is above the soft limit.
    pub fn is_above_inodes(&self, inodes: u64) -> bool {
        self.inodes_soft > 0 && inodes > self.inodes_soft
    }

    /// The entry in a slot of a block of entries; `None` if it is free.
    pub fn parse(bytes: &[u8], slot: usize) -> Option<Self> {
        let start = slot_offset(slot);
        let bytes = bytes.get(start..start + ENTRY_SIZE)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return None;
        }
        let le64 = |offset: usize| u64::from(le32(bytes, offset)) | u64::from(le32(bytes, offset + 4)) << 32;
        Some(Self {
            id: le32(bytes, 0),
            inodes_limit: le64(8),
            inodes_soft: le64(16),
            inodes: le64(24),
            space_limit_kib: le64(32),
            space_soft_kib: le64(40),
            space: le64(48),
            space_time: le64(56),
            inodes_time: le64(64),
        })
    }

    /// Store into a slot.
    pub fn write_into(&self, bytes: &mut [u8], slot: usize) {
        // An entry of zeros would be free: user 0 without usage is marked by a time that nothing else has.
        let is_blank = *self == Self::default();
        let inodes_time = if is_blank { 1 } else { self.inodes_time };
        let start = slot_offset(slot);
        put(bytes, start, &u64::from(self.id).to_le_bytes());
        let fields = [
            self.inodes_limit,
            self.inodes_soft,
            self.inodes,
            self.space_limit_kib,
            self.space_soft_kib,
            self.space,
            self.space_time,
            inodes_time,
        ];
        for (index, field) in fields.into_iter().enumerate() {
            put(bytes, start + 8 + index * 8, &field.to_le_bytes());
        }
    }
}

const fn slot_offset(slot: usize) -> usize {
    ENTRIES_START + slot * ENTRY_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_and_one_of_zeros_is_free() {
        let mut bytes = [0; BLOCK_SIZE];
        let entry = QuotaEntry { id: 0xffff_fffe, inodes: 3, space: 1 << 40, ..QuotaEntry::default() };
        entry.write_into(&mut bytes, ENTRIES - 1);
        assert_eq!(QuotaEntry::parse(&bytes, ENTRIES - 1), Some(entry));
        assert_eq!(QuotaEntry::parse(&bytes, 0), None);
        QuotaEntry::default().write_into(&mut bytes, 0);
        assert_eq!(
            QuotaEntry::parse(&bytes, 0).unwrap().inodes,
            0,
            "user 0 without files is not a free slot"
        );
        assert_eq!(QuotaEntry::parse(&bytes, ENTRIES), None);
    }

    #[test]
    fn a_header_that_leads_out_of_the_file_is_refused() {
        let mut bytes = [0; BLOCK_SIZE];
        for (header, good) in [
            (QuotaHeader { free_entry: 5, ..QuotaHeader::new(6) }, true),
            (QuotaHeader { free_entry: 6, ..QuotaHeader::new(6) }, false),
            (QuotaHeader { free_block: 1, ..QuotaHeader::new(6) }, false),
            (QuotaHeader::new(1), false),
        ] {
            header.write_into(QuotaKind::Group, &mut bytes);
            assert_eq!(QuotaHeader::parse(QuotaKind::Group, &bytes).ok(), good.then_some(header));
            assert!(QuotaHeader::parse(QuotaKind::User, &bytes).is_err());
        }
    }
}
