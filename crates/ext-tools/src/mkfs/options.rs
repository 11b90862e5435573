//! Options of a new volume, their defaults by size, and the features that follow.
//!
//! The defaults are those of e2fsprogs 1.47 with its shipped `mke2fs.conf`: block size and inodes by size (floppy, small, default,
//! big, huge), features by flavour.

use crate::mkfs::MkfsError;
use diorite_ext_format::{Compat, Features, Incompat, QuotaKind, RoCompat};
use diorite_ext_format::{Owner, Timestamp};

/// Which filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavor {
    /// ext2: no journal.
    #[default]
    Ext2,
    /// ext3: a journal.
    Ext3,
    /// ext4: a journal, extents, checksums.
    Ext4,
}

/// Where the structures of a volume are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrangement {
    /// As for a volume that keeps its size.
    #[default]
    Whole,
    /// As for a volume that is filled and then [cut](crate::resize) at its end: the journal is before all data. Groups after the first
    /// `kept_groups` have bitmaps and tables of their own, so that they leave no gap.
    CutLater {
        /// Groups that are kept in any case.
        kept_groups: u32,
    },
}

/// Options of `mkfs`. `Default` matches `mke2fs -t ext2`.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsOptions {
    /// Which filesystem.
    pub flavor: Flavor,
    /// Size of the volume in bytes; the whole device if `None`.
    pub size_bytes: Option<u64>,
    /// Block size in bytes: a power of two from 1024 to 65536. By size if `None`.
    pub block_size: Option<u32>,
    /// Bytes of a cluster (`-C`), with `bigalloc`: a power of two from the block size on. 16 blocks if `None`.
    pub cluster_size: Option<u32>,
    /// Bytes of an inode: a power of two from 128 to the block size. 256 if `None`.
    pub inode_size: Option<u16>,
    /// One inode for this many bytes (`-i`). By size if `None`.
    pub bytes_per_inode: Option<u32>,
    /// Number of inodes (`-N`); goes before `bytes_per_inode`.
    pub inodes: Option<u32>,
    /// Label, at most 16 bytes.
    pub label: Vec<u8>,
    /// UUID; random if `None`.
    pub uuid: Option<[u8; 16]>,
    /// Seed of directory hashes; random if `None`.
    pub hash_seed: Option<[u8; 16]>,
    /// Percentage of blocks for the reserved user, 0 to 50.
    pub reserved_percent: f64,
    /// Changes of the features, as `-O` takes them: `^has_journal,extent`; `none` clears all.
    pub features: String,
    /// Owner of the root directory.
    pub root_owner: Owner,
    /// Blocks of the journal's log. By size if `None`.
    pub journal_blocks: Option<u32>,
    /// With `fast_commit`: blocks after the log for fast commits. 1 for 64 of the log if `None`.
    pub fast_commit_blocks: Option<u32>,
    /// With `casefold`: names that are not valid UTF-8 are refused in directories that ignore case.
    pub strict_encoding: bool,
    /// Groups whose bitmaps and inode tables are packed together (`-G`): a power of two; 16 if not given. Needs `flex_bg`.
    pub flex_groups: Option<u32>,
    /// Reserve space for growth to this many blocks (`-E resize=`); 1024 times the size if `None`.
    pub resize_blocks: Option<u64>,
    /// Kinds of quota that are counted, with the feature `quota` (`-E quotatype=`); users and groups if `None`, and projects
    /// with the feature `project` in any case.
    pub quota_kinds: Option<Vec<QuotaKind>>,
    /// Seconds between updates of the block that keeps a second host away, with the feature `mmp`
    /// (`-E mmp_update_interval=`): 1 to 300. 5 if `None`.
    pub mmp_update_interval: Option<u16>,
    /// Discard the volume's blocks first (`-E discard`), if the device can: it makes holes in an image file, and frees blocks of a
    /// disk or a thin volume.
    pub discard: bool,
    /// Blocks of a group: a multiple of 8. As many as a bitmap has bits if `None`.
    pub blocks_per_group: Option<u32>,
    /// Where the structures are.
    pub arrangement: Arrangement,
    /// All times on the volume.
    pub time: Timestamp,
}

impl MkfsOptions {
    /// The defaults of `mke2fs -t` for that flavor.
    pub fn new(flavor: Flavor) -> Self {
        Self {
            flavor,
            size_bytes: None,
            block_size: None,
            cluster_size: None,
            inode_size: None,
            bytes_per_inode: None,
            inodes: None,
            label: Vec::new(),
            uuid: None,
            hash_seed: None,
            reserved_percent: 5.0,
            features: String::new(),
            root_owner: Owner::default(),
            journal_blocks: None,
            fast_commit_blocks: None,
            strict_encoding: false,
            flex_groups: None,
            resize_blocks: None,
            quota_kinds: None,
            mmp_update_interval: None,
            discard: false,
            blocks_per_group: None,
            arrangement: Arrangement::Whole,
            time: diorite_ext::Clock::now(&diorite_ext::SystemClock),
        }
    }
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self::new(Flavor::default())
    }
}

/// Defaults that depend on the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsageType {
    pub(super) block_size: u32,
    pub(super) bytes_per_inode: u32,
}

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

impl UsageType {
    /// For a device of `bytes`. mke2fs decides in blocks of 1 KiB, or of the size that was asked for.
    pub(super) fn of_size(bytes: u64) -> Self {
        match bytes {
            0..=0x2f_ffff => Self { block_size: 1024, bytes_per_inode: 8192 },
            _ if bytes < 512 * MIB => Self { block_size: 1024, bytes_per_inode: 4096 },
            _ if bytes < 4 * TIB => Self { block_size: 4096, bytes_per_inode: 16384 },
            _ if bytes < 16 * TIB => Self { block_size: 4096, bytes_per_inode: 32768 },
            _ => Self { block_size: 4096, bytes_per_inode: 65536 },
        }
    }
}

/// Features that `mkfs` supports; others are rejected, and the error names the feature.
const MAKEABLE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::STABLE_INODES)
        .union(Compat::FAST_COMMIT)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::SIXTY_FOUR_BIT)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::MMP)
        .union(Incompat::LARGE_DIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::VERITY),
};

impl Flavor {
    fn features(self) -> Features {
        let mut features = Features {
            compat: Compat::RESIZE_INODE | Compat::DIR_INDEX | Compat::EXT_ATTR,
            incompat: Incompat::FILETYPE,
            ro_compat: RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE,
        };
        if self != Self::Ext2 {
            features.compat |= Compat::HAS_JOURNAL;
        }
        if self == Self::Ext4 {
            features.incompat |= Incompat::EXTENTS | Incompat::FLEX_BG | Incompat::SIXTY_FOUR_BIT;
            features.ro_compat |=
                RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM | RoCompat::DIR_NLINK | RoCompat::EXTRA_ISIZE;
        }
        features
    }
}

impl MkfsOptions {
    /// The block size of a volume of `bytes` on a device with logical blocks of `logical_block_size` bytes.
    pub fn block_size_for(&self, bytes: u64, logical_block_size: u32) -> u32 {
        self.block_size.unwrap_or_else(|| UsageType::of_size(bytes).block_size.max(logical_block_size))
    }

    /// The kinds of quota files that the volume gets.
    pub(super) fn quota_files(&self, features: Features) -> Vec<QuotaKind> {
        if !features.has_ro_compat(RoCompat::QUOTA) {
            return Vec::new();
        }
        let asked = self.quota_kinds.as_deref().unwrap_or(&[QuotaKind::User, QuotaKind::Group]);
        let has_projects = features.has_ro_compat(RoCompat::PROJECT);
        let requested =
            |kind: &QuotaKind| asked.contains(kind) || (*kind == QuotaKind::Project && has_projects);
        QuotaKind::ALL.into_iter().filter(requested).collect()
    }

    /// The flavour's features with the changes, checked against each other.
    pub(super) fn resolve_features(&self) -> Result<Features, MkfsError> {
        let mut features = self.flavor.features();
        for word in self.features.split([',', ' ']).filter(|word| !word.is_empty()) {
            if word == "none" {
                features = Features::default();
                continue;
            }
            let (name, clear) = match word.strip_prefix(['^', '-']) {
                Some(name) => (name, true),
                None => (word.strip_prefix('+').unwrap_or(word), false),
            };
            let Some(feature) = Features::by_name(name) else {
                return Err(MkfsError::UnknownFeature { name: name.to_owned() });
            };
            if clear {
                features.remove(feature);
            } else {
                features.insert(feature);
            }
        }
        if self.quota_kinds.as_ref().is_some_and(|kinds| kinds.contains(&QuotaKind::Project)) {
            features.ro_compat |= RoCompat::PROJECT;
        }
        let mut refused = features;
        refused.remove(MAKEABLE);
        if refused != Features::default() {
            return Err(MkfsError::CannotMake { names: refused.names().join(", ") });
        }
        if features.metadata_csum() {
            features.ro_compat -= RoCompat::GDT_CSUM;
        }
        self.check_conflicts(features)?;
        Ok(features)
    }

    fn check_conflicts(&self, features: Features) -> Result<(), MkfsError> {
        let resize = features.has_compat(Compat::RESIZE_INODE);
        let sparse =
            features.has_ro_compat(RoCompat::SPARSE_SUPER) || features.has_compat(Compat::SPARSE_SUPER2);
        let extents = features.has_incompat(Incompat::EXTENTS);
        let clusters = features.has_ro_compat(RoCompat::BIGALLOC);
        let inline = features.has_incompat(Incompat::INLINE_DATA);
        let projects = features.has_ro_compat(RoCompat::PROJECT);
        let small_inodes = self.inode_size.is_some_and(|size| size < 256);
        let no_flex = !features.has_incompat(Incompat::FLEX_BG);
        let no_checksums = !features.metadata_csum();
        let orphan_file = features.has_compat(Compat::ORPHAN_FILE);
        let no_journal = !features.has_compat(Compat::HAS_JOURNAL);
        let wide = features.has_incompat(Incompat::SIXTY_FOUR_BIT);
        let csum_seed = features.has_incompat(Incompat::CSUM_SEED);
        let meta_groups = features.has_incompat(Incompat::META_BG);
        let larger_inodes = "use inodes of 256 bytes or more (-I 256)";
        for (conflicts, first, second, cure) in [
            (resize && !sparse, "resize_inode", "^sparse_super", "add -O ^resize_inode"),
            (resize && meta_groups, "resize_inode", "meta_bg", "add -O ^resize_inode"),
            (csum_seed && no_checksums, "metadata_csum_seed", "^metadata_csum", "add -O metadata_csum"),
            (wide && !extents, "64bit", "^extent", "add -O extent, or ^64bit"),
            (clusters && !extents, "bigalloc", "^extent", "add -O extent"),
            (self.cluster_size.is_some() && !clusters, "a cluster size (-C)", "^bigalloc", "add -O bigalloc"),
            (self.flex_groups.is_some() && no_flex, "a flex group size (-G)", "^flex_bg", "add -O flex_bg"),
            (orphan_file && no_journal, "orphan_file", "^has_journal", "add -O has_journal, or ^orphan_file"),
            (inline && small_inodes, "inline_data", "inodes of 128 bytes", larger_inodes),
            (projects && small_inodes, "project", "inodes of 128 bytes", larger_inodes),
        ] {
            if conflicts {
                return Err(MkfsError::Conflict { first, second, cure });
            }
        }
        let flex = self.flex_groups.map_or(1, u64::from);
        let seconds = self.mmp_update_interval.map_or(1, u64::from);
        let (percent, label) = (self.reserved_percent, self.label.len() as u64);
        let flex_is_valid = flex.is_power_of_two() && flex <= 1 << 30;
        for (is_valid, what, given, cure) in [
            (flex_is_valid, "the flex group size (-G)", flex, "use a power of two"),
            ((0.0..=50.0).contains(&percent), "the reserved percentage (-m)", percent as u64, "use 0 to 50"),
            (
                (1..=300).contains(&seconds),
                "the interval of multi-mount protection (-E mmp_update_interval)",
                seconds,
                "use 1 to 300 seconds",
            ),
            (label <= 16, "the length of the label", label, "use at most 16 bytes"),
        ] {
            if !is_valid {
                return Err(MkfsError::Invalid { what, given, cure });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_cannot_go_together_are_refused_with_a_cure() {
        for (features, cure) in [
            ("^sparse_super", "^resize_inode"),
            ("meta_bg", "^resize_inode"),
            ("metadata_csum_seed", "metadata_csum"),
            ("nonsense", "nonsense"),
            ("compression", "compression"),
            ("64bit", "extent"),
        ] {
            let options = MkfsOptions { features: features.to_owned(), ..MkfsOptions::default() };
            let error = options.resolve_features().unwrap_err().to_string();
            assert!(error.contains(cure), "{features}: {error}");
        }
    }
}
