//! Feature flags of a volume, by the names of `mke2fs -O`.
//!
//! Three sets: `Compat` may be ignored, `RoCompat` must be known to write, `Incompat` must be known to read. Bits that
//! have no name yet are kept and shown as `FEATURE_I17` (set and bit), as e2fsprogs does.

use std::fmt;

use bitflags::{Flags, bitflags};

bitflags! {
    /// Features that a program may ignore.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Compat: u32 {
        /// Directory preallocation.
        const DIR_PREALLOC = 0x1;
        /// AFS server inodes.
        const IMAGIC_INODES = 0x2;
        /// A journal (inode 8 or a device of its own).
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// Blocks kept for the growth of the group descriptors, in inode 7.
        const RESIZE_INODE = 0x10;
        /// Hash trees in directories.
        const DIR_INDEX = 0x20;
        /// Uninitialised groups, an early form.
        const LAZY_BG = 0x40;
        /// Exclusion bitmaps of snapshots.
        const SNAPSHOT_BITMAP = 0x100;
        /// Backups in two groups only, named in the superblock.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may have a fast-commit area.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and the UUID never change (encryption keys depend on them).
        const STABLE_INODES = 0x800;
        /// Orphans are kept in a file.
        const ORPHAN_FILE = 0x1000;
    }

    /// Features that a program must know to read.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Incompat: u32 {
        /// Compressed files.
        const COMPRESSION = 0x1;
        /// Directory entries have the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// This is a journal, not a filesystem.
        const JOURNAL_DEV = 0x8;
        /// Group descriptors lie in their meta groups.
        const META_BG = 0x10;
        /// Extent trees.
        const EXTENTS = 0x40;
        /// Block numbers of more than 32 bits, group descriptors of more than 32 bytes.
        const SIXTY_FOUR_BIT = 0x80;
        /// Protection against two hosts.
        const MMP = 0x100;
        /// Bitmaps and inode tables may lie outside of their group.
        const FLEX_BG = 0x200;
        /// Values of extended attributes in inodes of their own.
        const EA_INODE = 0x400;
        /// Data in directory entries.
        const DIRDATA = 0x1000;
        /// The seed of checksums is in the superblock.
        const CSUM_SEED = 0x2000;
        /// Directories of more than 2 GiB or three index levels.
        const LARGE_DIR = 0x4000;
        /// Small files in their inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted files.
        const ENCRYPT = 0x1_0000;
        /// Directories that ignore case.
        const CASEFOLD = 0x2_0000;
    }

    /// Features that a program must know to write.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RoCompat: u32 {
        /// Backups in groups 0, 1 and powers of 3, 5 and 7 only.
        const SPARSE_SUPER = 0x1;
        /// Files of 2 GiB and more.
        const LARGE_FILE = 0x2;
        /// Never used.
        const BTREE_DIR = 0x4;
        /// Sector counts of 48 bits, or in blocks.
        const HUGE_FILE = 0x8;
        /// CRC-16 of group descriptors, and groups that are not initialised.
        const GDT_CSUM = 0x10;
        /// Directories of more than 65,000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes have fields beyond byte 128.
        const EXTRA_ISIZE = 0x40;
        /// Snapshots.
        const HAS_SNAPSHOT = 0x80;
        /// Quota files in hidden inodes.
        const QUOTA = 0x100;
        /// Allocation in clusters of several blocks.
        const BIGALLOC = 0x200;
        /// CRC-32C of all metadata.
        const METADATA_CSUM = 0x400;
        /// Replicas.
        const REPLICA = 0x800;
        /// Never to be written.
        const READONLY = 0x1000;
        /// Project quota.
        const PROJECT = 0x2000;
        /// Files share blocks.
        const SHARED_BLOCKS = 0x4000;
        /// Files with Merkle trees.
        const VERITY = 0x8000;
        /// The orphan file has entries.
        const ORPHAN_PRESENT = 0x1_0000;
    }
}

/// Features whose name in `mke2fs -O` and `dumpe2fs` is not that of their constant in small letters.
const NAMES: &[(&str, &str)] = &[
    ("RECOVER", "needs_recovery"),
    ("EXTENTS", "extent"),
    ("SIXTY_FOUR_BIT", "64bit"),
    ("CSUM_SEED", "metadata_csum_seed"),
    ("GDT_CSUM", "uninit_bg"),
    ("HAS_SNAPSHOT", "snapshot"),
    ("READONLY", "read-only"),
];

fn name_of(constant: &str) -> String {
    let name = NAMES.iter().find(|(known, _)| *known == constant);
    name.map_or_else(|| constant.to_lowercase(), |(_, name)| (*name).to_owned())
}

/// The names of all bits of a set, in the order of the bits.
fn names_of<F: Flags<Bits = u32>>(set: &F, letter: char) -> Vec<String> {
    let name = |shift: u32| {
        let flag = F::FLAGS.iter().find(|flag| flag.value().bits() == 1 << shift);
        flag.map_or_else(|| format!("FEATURE_{letter}{shift}"), |flag| name_of(flag.name()))
    };
    (0..u32::BITS).filter(|shift| set.bits() >> shift & 1 == 1).map(name).collect()
}

/// The feature of that name, or an empty set.
fn flag_of<F: Flags + Copy>(name: &str) -> F {
    F::FLAGS.iter().find(|flag| name_of(flag.name()) == name).map_or(F::empty(), |flag| *flag.value())
}

/// Other spellings that `mke2fs -O` takes.
const ALIASES: &[(&str, &str)] = &[
    ("extents", "extent"),
    ("gdt_csum", "uninit_bg"),
    ("fname_encoding", "casefold"),
    ("csum_seed", "metadata_csum_seed"),
];

/// The three sets of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// May be ignored.
    pub compat: Compat,
    /// Must be known to read.
    pub incompat: Incompat,
    /// Must be known to write.
    pub ro_compat: RoCompat,
}

impl Features {
    /// The features that this crate can read.
    pub const READABLE_INCOMPAT: Incompat = Incompat::FILETYPE
        .union(Incompat::RECOVER)
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::SIXTY_FOUR_BIT)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGE_DIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD);

    /// Features that writes of this program preserve.
    pub const WRITABLE_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY)
        .union(RoCompat::ORPHAN_PRESENT);

    /// Names of the features that have no name yet.
    pub fn unknown(&self) -> Vec<String> {
        let mut unknown = *self;
        unknown.remove(Self { compat: Compat::all(), incompat: Incompat::all(), ro_compat: RoCompat::all() });
        unknown.names()
    }

    /// Names of the features that keep this volume from being read; empty if none does.
    pub fn unreadable(&self) -> Vec<String> {
        let bad = Self { incompat: self.incompat.difference(Self::READABLE_INCOMPAT), ..Self::default() };
        bad.names()
    }

    /// Names of the features that keep this volume from being written; empty if none does.
    pub fn unwritable(&self) -> Vec<String> {
        let bad = Self {
            compat: Compat::empty(),
            incompat: self.incompat.difference(Self::READABLE_INCOMPAT),
            ro_compat: self.ro_compat.difference(Self::WRITABLE_RO_COMPAT),
        };
        let mut names = bad.names();
        // As in the kernel; `mke2fs` makes no such volume.
        if self.has_ro_compat(RoCompat::BIGALLOC) && !self.has_incompat(Incompat::EXTENTS) {
            names.push("bigalloc without extent".to_owned());
        }
        names
    }

    /// All names, in the order of `dumpe2fs`: compatible, incompatible, read-only, each by bit.
    pub fn names(&self) -> Vec<String> {
        [names_of(&self.compat, 'C'), names_of(&self.incompat, 'I'), names_of(&self.ro_compat, 'R')].concat()
    }

    /// The feature of that name, alone in its set.
    pub fn by_name(name: &str) -> Option<Self> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
        let found = Self { compat: flag_of(name), incompat: flag_of(name), ro_compat: flag_of(name) };
        (found != Self::default()).then_some(found)
    }

    /// Set everything that `other` has.
    pub fn insert(&mut self, other: Self) {
        self.compat |= other.compat;
        self.incompat |= other.incompat;
        self.ro_compat |= other.ro_compat;
    }

    /// Clear everything that `other` has.
    pub fn remove(&mut self, other: Self) {
        self.compat -= other.compat;
        self.incompat -= other.incompat;
        self.ro_compat -= other.ro_compat;
    }

    /// Whether all of `compat` are set.
    pub const fn has_compat(&self, compat: Compat) -> bool {
        self.compat.contains(compat)
    }

    /// Whether all of `incompat` are set.
    pub const fn has_incompat(&self, incompat: Incompat) -> bool {
        self.incompat.contains(incompat)
    }

    /// Whether all of `ro_compat` are set.
    pub const fn has_ro_compat(&self, ro_compat: RoCompat) -> bool {
        self.ro_compat.contains(ro_compat)
    }

    /// Whether all metadata has checksums (CRC-32C).
    pub const fn metadata_csum(&self) -> bool {
        self.has_ro_compat(RoCompat::METADATA_CSUM)
    }

    /// Whether group descriptors have a checksum of either kind, and flags for uninitialised parts.
    pub const fn group_checksums(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM.union(RoCompat::GDT_CSUM))
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_named_by_set_and_bit() {
        let features = Features {
            compat: Compat::from_bits_retain(1 << 30),
            incompat: Incompat::from_bits_retain(1 << 18) | Incompat::EXTENTS,
            ro_compat: RoCompat::from_bits_retain(1 << 20),
        };
        assert_eq!(features.to_string(), "FEATURE_C30 extent FEATURE_I18 FEATURE_R20");
        assert_eq!(features.unreadable(), ["FEATURE_I18"]);
        assert_eq!(features.unwritable(), ["FEATURE_I18", "FEATURE_R20"]);
    }

    #[test]
    fn every_name_finds_its_bit() {
        let all = Features { compat: Compat::all(), incompat: Incompat::all(), ro_compat: RoCompat::all() };
        let mut found = Features::default();
        for name in all.names() {
            found.insert(Features::by_name(&name).unwrap());
        }
        assert_eq!(found, all);
        assert_eq!(Features::by_name("extents"), Features::by_name("extent"));
        assert_eq!(Features::by_name("nonsense"), None);
    }
}
