//! The sound images: each made by our mkfs and filled by the library with one of everything.

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite::{DirectIo, FileKind, Filesystem, InodeNumber, NodeSpec, Owner, SetAttributes, XattrMode};
use diorite_ext::layout::{GroupDescriptor, Layout};
use diorite_ext::{FsBlock, read_superblock};

use super::{bytes_of, device_of};

/// How an image is made.
pub(super) struct Recipe {
    pub(super) name: &'static str,
    flavor: Flavor,
    block_size: u32,
    inode_size: u16,
    features: &'static str,
    megabytes: usize,
    /// Bytes of a cluster, with `bigalloc`.
    cluster: Option<u32>,
    /// A flag that gets an inode that cannot have it from the library, which has neither keys nor Merkle trees.
    flag: Option<(&'static str, u32)>,
    /// Taken as it is while the volume is in use: with a journal to replay and orphans to remove.
    in_use: bool,
}

const PLAIN: Recipe = Recipe {
    name: "",
    flavor: Flavor::Ext4,
    block_size: 1024,
    inode_size: 256,
    features: "^metadata_csum",
    megabytes: 6,
    cluster: None,
    flag: None,
    in_use: false,
};

pub(super) const RECIPES: &[Recipe] = &[
    Recipe { name: "ext2", flavor: Flavor::Ext2, features: "", megabytes: 4, ..PLAIN },
    Recipe {
        name: "ext2 4K",
        flavor: Flavor::Ext2,
        block_size: 4096,
        inode_size: 128,
        features: "",
        ..PLAIN
    },
    Recipe { name: "ext3", flavor: Flavor::Ext3, features: "", ..PLAIN },
    Recipe { name: "ext3 in use", flavor: Flavor::Ext3, features: "", in_use: true, ..PLAIN },
    Recipe { name: "ext4", ..PLAIN },
    Recipe { name: "ext4 in use", in_use: true, ..PLAIN },
    Recipe { name: "ext4 4K", block_size: 4096, megabytes: 12, ..PLAIN },
    Recipe { name: "ext4 checksums", features: "", ..PLAIN },
    Recipe { name: "ext4 checksums in use", features: "", in_use: true, ..PLAIN },
    Recipe { name: "ext4 orphan_file in use", features: "orphan_file,^metadata_csum", in_use: true, ..PLAIN },
    Recipe { name: "ext4 inline", features: "inline_data,^metadata_csum,^has_journal", ..PLAIN },
    Recipe { name: "ext4 inline checksums", features: "inline_data,large_dir,^has_journal", ..PLAIN },
    Recipe { name: "ext4 32-bit, indirect", features: "^64bit,^extent,^metadata_csum,^has_journal", ..PLAIN },
    Recipe { name: "ext4 meta_bg", features: "meta_bg,^resize_inode,^metadata_csum", ..PLAIN },
    Recipe { name: "ext4 ea_inode", features: "ea_inode,^metadata_csum", ..PLAIN },
    Recipe {
        name: "ext4 bigalloc",
        features: "bigalloc,^metadata_csum",
        cluster: Some(4096),
        megabytes: 12,
        ..PLAIN
    },
    Recipe {
        name: "ext4 bigalloc in use",
        features: "bigalloc,quota",
        cluster: Some(2048),
        megabytes: 12,
        in_use: true,
        ..PLAIN
    },
    Recipe { name: "ext4 casefold", features: "casefold,^metadata_csum", ..PLAIN },
    Recipe { name: "ext4 quota", features: "quota,project,^metadata_csum", ..PLAIN },
    Recipe { name: "ext4 quota in use", features: "quota,project,orphan_file", in_use: true, ..PLAIN },
    Recipe { name: "ext4 fast_commit in use", features: "fast_commit,^metadata_csum", in_use: true, ..PLAIN },
    Recipe {
        name: "ext4 encrypt",
        features: "encrypt,^metadata_csum",
        flag: Some(("/many", 0x800)),
        ..PLAIN
    },
    Recipe {
        name: "ext4 verity",
        features: "verity,^metadata_csum",
        flag: Some(("/large", 0x10_0000)),
        ..PLAIN
    },
    Recipe { name: "ext4 uninit_bg", features: "^metadata_csum,uninit_bg,^has_journal", ..PLAIN },
];

impl Recipe {
    /// The image.
    pub(super) fn make(&self) -> Vec<u8> {
        let device = device_of(&vec![0; self.megabytes << 20]);
        let options = MkfsOptions {
            flavor: self.flavor,
            block_size: Some(self.block_size),
            inode_size: Some(self.inode_size),
            cluster_size: self.cluster,
            inodes: Some(512),
            features: self.features.to_owned(),
            uuid: Some([7; 16]),
            hash_seed: Some([9; 16]),
            ..MkfsOptions::default()
        };
        mkfs(&*device, &options).unwrap_or_else(|error| panic!("{}: mkfs: {error}", self.name));
        let filesystem = Filesystem::options().open_device(device.clone()).expect("open");
        fill(&filesystem, u64::from(self.block_size))
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        if !self.in_use {
            let flagged = self.flag.map(|(path, flag)| {
                (filesystem.resolve(path).expect("resolve").attributes().expect("attributes").inode, flag)
            });
            filesystem.close().expect("close");
            let mut bytes = bytes_of(&device);
            if let Some((inode, flag)) = flagged {
                set_flag(&mut bytes, inode, flag);
            }
            return bytes;
        }
        filesystem.sync().expect("sync");
        // Later changes are only in the journal.
        let open = filesystem.create_file("/orphan").expect("create");
        open.write_all_at(&vec![5; 30_000], 0).expect("write");
        filesystem.remove_file("/orphan").expect("remove");
        filesystem.rename("/small", "/renamed").expect("rename");
        filesystem.remove_file("/many/name-000040-").expect("remove");
        filesystem.sync().expect("sync");
        let bytes = bytes_of(&device);
        drop(open);
        bytes
    }
}

/// Set a flag in the bytes of an inode of a volume without checksums.
fn set_flag(bytes: &mut [u8], inode: InodeNumber, flag: u32) {
    let superblock = read_superblock(&*device_of(bytes)).expect("a sound superblock");
    let layout = Layout::new(&superblock);
    let place = layout.locate_inode(inode).expect("an inode");
    let (FsBlock(block), within) = layout.descriptor_place(place.group);
    let size = superblock.block_size().bytes();
    let at = (block * size) as usize + within as usize;
    let descriptor = &bytes[at..at + usize::from(superblock.desc_size())];
    let table = GroupDescriptor::parse(descriptor, &superblock).inode_table;
    let at = ((table.0 + u64::from(place.table_block)) * size + u64::from(place.offset)) as usize + 0x20;
    let flags = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    bytes[at..at + 4].copy_from_slice(&(flags | flag).to_le_bytes());
}

/// One of everything.
fn fill(filesystem: &Filesystem, block: u64) -> diorite::Result<()> {
    filesystem.create_file("/small")?.write_all_at(&[1; 3000], 0)?;
    filesystem.create_file("/tiny")?.write_all_at(b"in the inode, perhaps", 0)?;
    filesystem.create_file("/large")?.write_all_at(&vec![2; 600 << 10], 0)?;
    // Each second block: more extents than a root and one level of nodes of 1 KiB take.
    let sparse = filesystem.open_options().write(true).create(true).direct(DirectIo::Off).open("/sparse")?;
    let data = vec![3; block as usize];
    for index in 0..400 {
        sparse.write_all_at(&data, index * 2 * block)?;
    }
    sparse.write_all_at(&data, 300 << 20)?;
    drop(sparse);
    filesystem.create_file("/allocated")?.allocate(0, 200 << 10)?;
    filesystem.create_dir_all("/deep/er/and/deeper")?;
    filesystem.create_file("/deep/er/and/deeper/file")?.write_all_at(b"x", 5000)?;
    filesystem.create_dir("/many")?;
    // Without regard to case, where the format has that.
    let many = filesystem.resolve("/many")?;
    let flags = Some(many.attributes()?.flags | 0x4000_0000);
    let _ = many.set_attributes(&SetAttributes { flags, ..SetAttributes::default() });
    for index in 0..150 {
        filesystem.create_file(format!("/many/name-{index:06}-{}", "long".repeat(index % 40)))?;
    }
    filesystem.hard_link("/large", "/many/link")?;
    filesystem.symlink("small", "/fast")?;
    filesystem.symlink("very/".repeat(60) + "long", "/slow")?;
    filesystem.symlink("loop", "/loop")?;
    for (name, kind) in [("/pipe", FileKind::Fifo), ("/disk", FileKind::BlockDevice)] {
        let spec = NodeSpec { kind, permissions: 0o600, umask: 0, owner: Owner::default(), device: (8, 1) };
        filesystem.create_node(name, &spec)?;
    }
    for name in ["/small", "/deep", "/many/name-000003-longlonglong"] {
        filesystem.set_xattr(name, b"user.one", b"first", XattrMode::Set)?;
        filesystem.set_xattr(name, b"user.two", &[b'v'; 300], XattrMode::Set)?;
        filesystem.set_xattr(name, b"security.three", &[0; 30], XattrMode::Set)?;
    }
    // To an inode of its own, where the format has that.
    let _ = filesystem.set_xattr("/large", b"user.big", &[b'w'; 6000], XattrMode::Set);
    filesystem.sync()
}
