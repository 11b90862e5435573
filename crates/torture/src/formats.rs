//! The volumes that are tortured: every format, block sizes from 1 to 64 KiB, with and without features.

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite_sim::image::SparseImage;

use crate::disk::{disk, marked};

/// A kind of volume.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// For messages and `--format`.
    pub name: &'static str,
    /// ext2, ext3, ext4.
    pub flavor: Flavor,
    /// Bytes of a block.
    pub block_size: u32,
    /// As `mke2fs -O` takes them.
    pub features: &'static str,
    /// Size of the volume.
    pub megabytes: u64,
    /// Whether it has a journal.
    pub journal: bool,
}

const fn format(
    name: &'static str,
    flavor: Flavor,
    block_size: u32,
    features: &'static str,
    megabytes: u64,
    journal: bool,
) -> Format {
    Format { name, flavor, block_size, features, megabytes, journal }
}

/// All kinds.
pub const FORMATS: [Format; 25] = [
    format("ext2-1k", Flavor::Ext2, 1024, "", 4, false),
    format("ext2-4k", Flavor::Ext2, 4096, "", 6, false),
    format("ext2-64k", Flavor::Ext2, 65536, "", 24, false),
    format("ext2-2k-plain", Flavor::Ext2, 2048, "^resize_inode,^dir_index,^filetype", 4, false),
    format("ext2-1k-uninit", Flavor::Ext2, 1024, "uninit_bg", 12, false),
    format("ext3-1k", Flavor::Ext3, 1024, "", 6, true),
    format("ext3-4k", Flavor::Ext3, 4096, "", 12, true),
    format("ext3-16k", Flavor::Ext3, 16384, "", 40, true),
    format("ext4-1k", Flavor::Ext4, 1024, "", 6, true),
    format("ext4-1k-groups", Flavor::Ext4, 1024, "", 20, true),
    format("ext4-2k", Flavor::Ext4, 2048, "", 8, true),
    format("ext4-4k", Flavor::Ext4, 4096, "", 12, true),
    format("ext4-8k", Flavor::Ext4, 8192, "", 24, true),
    format("ext4-16k", Flavor::Ext4, 16384, "", 40, true),
    format("ext4-32k", Flavor::Ext4, 32768, "", 80, true),
    format("ext4-64k", Flavor::Ext4, 65536, "", 160, true),
    format("ext4-1k-nocsum", Flavor::Ext4, 1024, "^metadata_csum,uninit_bg", 12, true),
    format("ext4-4k-inline", Flavor::Ext4, 4096, "inline_data", 12, true),
    format("ext4-4k-bigalloc", Flavor::Ext4, 4096, "bigalloc", 24, true),
    format("ext4-1k-orphan-file", Flavor::Ext4, 1024, "orphan_file", 6, true),
    format("ext4-4k-quota", Flavor::Ext4, 4096, "quota,project", 12, true),
    format("ext4-1k-blocks", Flavor::Ext4, 1024, "^extent,^64bit", 6, true),
    format("ext4-1k-nojournal", Flavor::Ext4, 1024, "^has_journal", 12, false),
    format("ext4-4k-nojournal", Flavor::Ext4, 4096, "^has_journal", 8, false),
    format("ext4-64k-nojournal", Flavor::Ext4, 65536, "^has_journal", 24, false),
];

impl Format {
    /// By name.
    pub fn by_name(name: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// Whether there is a second group, with a copy of the superblock.
    pub fn has_backup(&self) -> bool {
        let groups = (self.megabytes << 20).div_ceil(8 * u64::from(self.block_size).pow(2));
        groups > 1
    }

    /// Whether files are mapped by extents.
    pub fn has_extents(&self) -> bool {
        self.flavor == Flavor::Ext4 && !self.features.contains("^extent")
    }

    /// Whether ranges of whole blocks can be moved within a file. With clusters they are larger than the files of most tests.
    pub fn moves_blocks(&self) -> bool {
        self.has_extents() && !self.features.contains("bigalloc")
    }

    /// Options of its volume.
    pub fn options(&self, seed: u64) -> MkfsOptions {
        let options = MkfsOptions {
            flavor: self.flavor,
            block_size: Some(self.block_size),
            features: self.features.to_owned(),
            inodes: Some(256),
            journal_blocks: self.journal.then_some(1024),
            ..MkfsOptions::default()
        };
        options.reproducible(seed, diorite::Timestamp { seconds: 1_700_000_000, nanoseconds: 0 })
    }

    /// An empty volume on a device that was full of [`MARKER`](crate::random::MARKER).
    pub fn make(&self) -> SparseImage {
        let disk = disk(marked(self.megabytes << 20), true, 1);
        // As mke2fs, mkfs gives a volume of less than 2048 blocks no journal.
        match mkfs(&*disk, &self.options(7)) {
            Ok(report) => assert!(!report.journal_left_out, "{}: it is too small for its journal", self.name),
            Err(error) => panic!("{}: {error}", self.name),
        }
        disk.content()
    }
}
