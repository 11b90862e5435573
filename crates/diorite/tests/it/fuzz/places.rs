//! Where the structures of a sound image are.

use diorite::BlockDevice;
use diorite_ext::layout::{GroupDescriptor, Layout, Superblock};
use diorite_ext::{FsBlock, InodeNumber, read_superblock};

use super::device_of;

/// The kind of a structure, and the way to recompute its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Superblock,
    Descriptor { group: u32 },
    Bitmap,
    Inode { number: u32 },
    Extents { number: u32 },
    Pointers,
    Directory { number: u32 },
    Xattr { block: u64 },
    Journal,
    Orphans { number: u32, block: u64 },
    Data,
}

impl Kind {
    /// Each kind is damaged as often as any other.
    pub(super) fn class(self) -> usize {
        match self {
            Self::Superblock => 0,
            Self::Descriptor { .. } => 1,
            Self::Bitmap => 2,
            Self::Inode { .. } => 3,
            Self::Extents { .. } => 4,
            Self::Pointers => 5,
            Self::Directory { .. } => 6,
            Self::Xattr { .. } => 7,
            Self::Journal => 8,
            Self::Orphans { .. } => 9,
            Self::Data => 10,
        }
    }
}

/// A structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// All structures, by class, and what is needed to make checksums.
pub(super) struct Places {
    pub(super) classes: Vec<Vec<Place>>,
    pub(super) superblock: Superblock,
}

impl Places {
    pub(super) fn find(bytes: &[u8]) -> Self {
        let device = device_of(bytes);
        let superblock = read_superblock(&*device as &dyn BlockDevice).expect("a sound superblock");
        let mut finder =
            Finder { bytes, block_size: superblock.block_size().bytes() as usize, places: vec![] };
        finder.add(Kind::Superblock, 1024, 1024);
        finder.groups(&superblock);
        let mut classes = vec![Vec::new(); 11];
        for place in finder.places {
            classes[place.kind.class()].push(place);
        }
        classes.retain(|class| !class.is_empty());
        Self { classes, superblock }
    }
}

struct Finder<'a> {
    bytes: &'a [u8],
    block_size: usize,
    places: Vec<Place>,
}

impl Finder<'_> {
    fn add(&mut self, kind: Kind, offset: usize, len: usize) {
        if offset + len <= self.bytes.len() {
            self.places.push(Place { kind, offset, len });
        }
    }

    fn add_block(&mut self, kind: Kind, block: u64) {
        self.add(kind, block as usize * self.block_size, self.block_size);
    }

    fn le16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes[at..at + 2].try_into().unwrap())
    }

    fn le32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn groups(&mut self, superblock: &Superblock) {
        let layout = Layout::new(superblock);
        for group in layout.groups() {
            let (FsBlock(block), within) = layout.descriptor_place(group);
            let (at, len) =
                (block as usize * self.block_size + within as usize, usize::from(superblock.desc_size()));
            self.add(Kind::Descriptor { group: group.0 }, at, len);
            let descriptor = GroupDescriptor::parse(&self.bytes[at..at + len], superblock);
            self.add_block(Kind::Bitmap, descriptor.block_bitmap.0);
            self.add_block(Kind::Bitmap, descriptor.inode_bitmap.0);
            let size = usize::from(superblock.inode_size());
            for index in 0..layout.inodes_per_group {
                let at = descriptor.inode_table.0 as usize * self.block_size + index as usize * size;
                let number = group.0 * layout.inodes_per_group + index + 1;
                if self.bytes[at..at + size].iter().any(|byte| *byte != 0) {
                    self.inode(number, at, size, superblock);
                }
            }
        }
    }

    fn inode(&mut self, number: u32, at: usize, size: usize, superblock: &Superblock) {
        self.add(Kind::Inode { number }, at, size);
        let xattrs = u64::from(self.le32(at + 0x68));
        if xattrs != 0 {
            self.add_block(Kind::Xattr { block: xattrs }, xattrs);
        }
        let (mode, flags) = (self.le16(at) & 0xf000, self.le32(at + 0x20));
        let inline = flags & 0x1000_0000 != 0;
        if inline || !matches!(mode, 0x4000 | 0x8000) {
            return;
        }
        let of_data = if superblock.orphan_file() == Some(InodeNumber(number)) {
            |number, block| Kind::Orphans { number, block }
        } else if superblock.journal_inode() == Some(InodeNumber(number)) {
            |_, _| Kind::Journal
        } else if mode == 0x4000 {
            |number, _| Kind::Directory { number }
        } else {
            |_, _| Kind::Data
        };
        if flags & 0x8_0000 != 0 {
            self.extents(number, at + 0x28, &of_data);
        } else {
            for slot in 0..15 {
                let pointer = u64::from(self.le32(at + 0x28 + slot * 4));
                self.pointers(number, pointer, slot.saturating_sub(11), &of_data);
            }
        }
    }

    fn extents(&mut self, number: u32, node: usize, of_data: &dyn Fn(u32, u64) -> Kind) {
        let (entries, depth) = (usize::from(self.le16(node + 2)), self.le16(node + 6));
        for entry in (1..=entries).map(|index| node + index * 12) {
            if depth > 0 {
                let child = u64::from(self.le32(entry + 4)) | u64::from(self.le16(entry + 8)) << 32;
                self.add_block(Kind::Extents { number }, child);
                self.extents(number, child as usize * self.block_size, of_data);
            } else {
                let start = u64::from(self.le32(entry + 8)) | u64::from(self.le16(entry + 6)) << 32;
                let len = u64::from(self.le16(entry + 4));
                let len = if len > 0x8000 { len - 0x8000 } else { len };
                (start..start + len).for_each(|block| self.add_block(of_data(number, block), block));
            }
        }
    }

    fn pointers(&mut self, number: u32, block: u64, depth: usize, of_data: &dyn Fn(u32, u64) -> Kind) {
        if block == 0 {
            return;
        }
        if depth == 0 {
            return self.add_block(of_data(number, block), block);
        }
        self.add_block(Kind::Pointers, block);
        for at in (0..self.block_size).step_by(4) {
            let child = u64::from(self.le32(block as usize * self.block_size + at));
            self.pointers(number, child, depth - 1, of_data);
        }
    }
}
