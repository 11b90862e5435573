//! Data written by Diorite is sound for e2fsck and debugfs, and equals a simple map.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Aligned, Bench, have, inode_of, pattern, read_file, write_blocks};
use diorite_block::{BioFlags, BlockDevice};
use diorite_ext::{
    Error, FileBlock, FileKind, Inode, InodeNumber, MappingKind, NodeSpec, Owner, SyncKind, Volume,
    VolumeOptions, WriteCommit, XattrMode, find_superblock, read_descriptors,
};
use diorite_ext_format::{
    DiskInode, FsBlock, GroupDescriptor, GroupFlags, GroupNumber, Incompat, InodeFlags, Layout, Superblock,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite_sim::image::{ImageDevice, SparseImage};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// An image with `count` empty files `f0`, `f1`, ...
fn image_with_files(
    bench: &Bench,
    arguments: &str,
    size: &str,
    count: usize,
) -> (std::path::PathBuf, Vec<InodeNumber>) {
    let source = bench.path("source");
    std::fs::create_dir(&source).unwrap();
    for index in 0..count {
        std::fs::write(source.join(format!("f{index}")), b"").unwrap();
    }
    let image = bench.image(&format!("{arguments} -d {}", source.display()), size);
    let inodes = (0..count).map(|index| inode_of(&image, &format!("f{index}"))).collect();
    (image, inodes)
}

/// Block by block what a file must hold; what is missing is a hole.
type Model = BTreeMap<u64, u64>;

fn check_model(volume: &Volume, inode: &Inode, model: &Model) {
    let block = volume.block_size().bytes();
    let size = inode.attributes().size;
    assert_eq!(size % block, 0);
    let (mut at, end) = (0, size / block);
    while at < end {
        let mapping = volume.files.map(inode, FileBlock(at), end - at).unwrap();
        let expected = model.range(at..at + mapping.blocks);
        match mapping.kind {
            MappingKind::Mapped(address) => {
                let content = common::read_blocks(volume, address.0, mapping.blocks);
                let blocks = content.chunks(block as usize).zip(at..);
                assert!(
                    expected.count() as u64 == mapping.blocks,
                    "a block that was never written is mapped"
                );
                for (content, at) in blocks {
                    assert!(content == pattern(model[&at], block as usize), "block {at} differs");
                }
            }
            _ => assert_eq!(expected.count(), 0, "written blocks are {mapping:?}"),
        }
        at += mapping.blocks;
    }
    assert!(model.keys().all(|at| *at < end));
}

#[derive(Clone, Debug)]
enum Step {
    Write { file: usize, at: u64, blocks: u64 },
    Unwritten { file: usize, at: u64, blocks: u64 },
    Punch { file: usize, at: u64, blocks: u64 },
    Truncate { file: usize, blocks: u64 },
    DropReservation { file: usize, at: u64, blocks: u64 },
    Sync,
    SyncInode { file: usize },
    Collapse { file: usize, at: u64, blocks: u64 },
    Insert { file: usize, at: u64, blocks: u64 },
}

fn steps(far: u64) -> impl Strategy<Value = Vec<Step>> {
    let at = || prop_oneof![0..40u64, 0..600u64, 0..far];
    let file = || 0..3usize;
    let step = prop_oneof![
        6 => (file(), at(), 1..40u64).prop_map(|(file, at, blocks)| Step::Write { file, at, blocks }),
        2 => (file(), at(), 1..200u64).prop_map(|(file, at, blocks)| Step::Unwritten { file, at, blocks }),
        2 => (file(), at(), 1..300u64).prop_map(|(file, at, blocks)| Step::Punch { file, at, blocks }),
        1 => (file(), at()).prop_map(|(file, blocks)| Step::Truncate { file, blocks }),
        1 => (file(), at(), 1..100u64).prop_map(|(file, at, blocks)| Step::DropReservation { file, at, blocks }),
        1 => Just(Step::Sync),
        1 => file().prop_map(|file| Step::SyncInode { file }),
        1 => (file(), at(), 1..50u64).prop_map(|(file, at, blocks)| Step::Collapse { file, at, blocks }),
        1 => (file(), at(), 1..50u64).prop_map(|(file, at, blocks)| Step::Insert { file, at, blocks }),
    ];
    proptest::collection::vec(step, 1..60)
}

struct World {
    volume: Arc<Volume>,
    inodes: Vec<Arc<Inode>>,
    models: Vec<Model>,
    seed: u64,
}

impl World {
    fn write(&mut self, file: usize, at: u64, blocks: u64) {
        let block = self.volume.block_size().bytes() as usize;
        let mut content = Vec::new();
        for step in 0..blocks {
            self.seed += 1;
            content.extend(pattern(self.seed, block));
            self.models[file].insert(at + step, self.seed);
        }
        let size = Some((at + blocks) * block as u64);
        write_blocks(&self.volume, &self.inodes[file], at, &content, size).unwrap();
    }

    fn run(&mut self, step: &Step) {
        let block = self.volume.block_size().bytes();
        match *step {
            Step::Write { file, at, blocks } => self.write(file, at, blocks),
            Step::Unwritten { file, at, blocks } => {
                let size = Some((at + blocks) * block);
                let result =
                    self.volume.files.allocate_unwritten(&self.inodes[file], FileBlock(at), blocks, size);
                assert!(matches!(result, Ok(()) | Err(Error::Unsupported(_))), "{result:?}");
            }
            Step::Punch { file, at, blocks } => {
                self.volume.files.punch(&self.inodes[file], FileBlock(at), blocks).unwrap();
                self.models[file].retain(|key, _| !(at..at + blocks).contains(key));
            }
            Step::Truncate { file, blocks } => {
                self.volume.files.truncate(&self.inodes[file], blocks * block).unwrap();
                self.models[file].retain(|key, _| *key < blocks);
            }
            Step::Collapse { file, at, blocks } => {
                let result = self.volume.files.collapse_range(&self.inodes[file], FileBlock(at), blocks);
                if moved(&result) {
                    let model = std::mem::take(&mut self.models[file]);
                    let kept = model.into_iter().filter(|(key, _)| !(at..at + blocks).contains(key));
                    self.models[file] =
                        kept.map(|(key, seed)| (if key < at { key } else { key - blocks }, seed)).collect();
                }
            }
            Step::Insert { file, at, blocks } => {
                let result = self.volume.files.insert_range(&self.inodes[file], FileBlock(at), blocks);
                if moved(&result) {
                    let model = std::mem::take(&mut self.models[file]).into_iter();
                    self.models[file] =
                        model.map(|(key, seed)| (if key < at { key } else { key + blocks }, seed)).collect();
                }
            }
            Step::DropReservation { file, at, blocks } => {
                drop(self.volume.files.reserve(&self.inodes[file], FileBlock(at), blocks).unwrap());
            }
            Step::Sync => self.volume.sync().unwrap(),
            Step::SyncInode { file } => {
                self.volume.sync_inode(&self.inodes[file], SyncKind::Data).unwrap();
            }
        }
    }
}

/// Whether a range was moved; it is refused on indirect mappings and past the end.
fn moved(result: &diorite_ext::Result<()>) -> bool {
    assert!(matches!(result, Ok(()) | Err(Error::Unsupported(_) | Error::InvalidArgument(_))), "{result:?}");
    result.is_ok()
}

fn model_test(arguments: &str, far: u64, cases: u32) {
    if !have(&["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let (image, numbers) = image_with_files(&bench, arguments, "24M", 3);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let result = runner.run(&steps(far), |steps| {
        let (device, volume) = bench.open(&image);
        let free = volume.space().blocks_free;
        let inodes: Vec<_> = numbers.iter().map(|number| volume.inodes.get(*number).unwrap()).collect();
        let mut world = World { volume, inodes, models: vec![Model::new(); 3], seed: 0 };
        for step in &steps {
            world.run(step);
        }
        for (inode, model) in world.inodes.iter().zip(&world.models) {
            check_model(&world.volume, inode, model);
        }
        world.volume.close().unwrap();
        bench.check(&device);
        // And once more from the disk alone; then everything is removed, and all space is free again.
        let bytes = device.bytes.read().unwrap().clone();
        let device = common::MemoryDevice::new(bytes);
        let volume = Volume::open(device.clone(), diorite_ext::VolumeOptions::default()).unwrap();
        for (number, model) in numbers.iter().zip(&world.models) {
            let inode = volume.inodes.get(*number).unwrap();
            check_model(&volume, &inode, model);
            volume.files.truncate(&inode, 0).unwrap();
            assert_eq!(inode.attributes().sectors, 0);
        }
        volume.sync().unwrap();
        assert_eq!(volume.space().blocks_free, free);
        volume.close().unwrap();
        bench.check(&device);
        Ok(())
    });
    result.unwrap();
}

#[test]
fn ext2_files_equal_a_map_of_blocks() {
    model_test("-t ext2 -b 1024", 70_000, 8);
    model_test("-t ext2 -b 4096", 4_000_000, 5);
}

#[test]
fn ext4_files_without_journal_equal_a_map_of_blocks() {
    model_test("-t ext4 -O ^has_journal -b 1024", 70_000, 8);
    model_test("-t ext4 -O ^has_journal -b 4096", 4_000_000, 5);
}

#[test]
fn files_on_volumes_with_a_journal_equal_a_map_of_blocks() {
    model_test("-t ext3 -b 1024", 70_000, 4);
    model_test("-t ext4 -b 1024", 70_000, 4);
    model_test("-t ext4 -b 4096", 4_000_000, 3);
}

#[test]
fn files_in_clusters_equal_a_map_of_blocks() {
    model_test("-t ext4 -O bigalloc -b 4096 -C 65536", 4_000_000, 6);
    model_test("-t ext4 -O bigalloc -b 1024 -C 4096", 70_000, 6);
    model_test("-t ext4 -O bigalloc,^has_journal -b 2048 -C 16384", 70_000, 4);
}

#[test]
fn full_volume_says_so_and_stays_sound() {
    if !have(&["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024 -m 0", "-t ext2 -b 1024", "-t ext4 -O ^has_journal -b 1024 -m 0"] {
        let bench = Bench::new();
        let (image, numbers) = image_with_files(&bench, arguments, "4M", 2);
        let (device, volume) = bench.open(&image);
        let inode = volume.inodes.get(numbers[0]).unwrap();
        let mut at = 0;
        let full = loop {
            match write_blocks(&volume, &inode, at * 7, &pattern(at, 5 * 1024), Some(at * 7168 + 5120)) {
                Ok(()) => at += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace), "{full:?}");
        assert!(volume.space().blocks_available < 40, "{:?}", volume.space());
        // Freed blocks are found again, though their transaction was not on disk yet.
        volume.files.truncate(&inode, 0).unwrap();
        let other = volume.inodes.get(numbers[1]).unwrap();
        write_blocks(&volume, &other, 0, &pattern(1, 2 << 20), Some(2 << 20)).unwrap();
        volume.close().unwrap();
        bench.check(&device);
    }
}

/// Appends to several files in turn: each stays in few runs.
#[test]
fn files_that_grow_side_by_side_stay_contiguous() {
    if !have(&["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -b 4096", "-t ext4 -O ^has_journal -b 4096"] {
        let bench = Bench::new();
        let (image, numbers) = image_with_files(&bench, arguments, "64M", 4);
        let (device, volume) = bench.open(&image);
        let inodes: Vec<_> = numbers.iter().map(|number| volume.inodes.get(*number).unwrap()).collect();
        for at in 0..1024 {
            for inode in &inodes {
                write_blocks(&volume, inode, at, &pattern(at, 4096), Some((at + 1) * 4096)).unwrap();
            }
        }
        for inode in &inodes {
            let (mut at, mut runs) = (0, 0);
            while at < 1024 {
                at += volume.files.map(inode, FileBlock(at), u64::MAX).unwrap().blocks;
                runs += 1;
            }
            assert!(runs <= 12, "{runs} runs ({arguments})");
        }
        volume.close().unwrap();
        bench.check(&device);
    }
}

/// A file that is larger than what is free in any group continues in the next one. It once went through the volume backwards, because
/// no group could hold as much at once as was asked for, and of the longest runs the last one was taken.
#[test]
fn file_larger_than_a_group_goes_on_forwards() {
    if !have(&["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let (image, numbers) = image_with_files(&bench, "-t ext2 -b 1024", "64M", 1);
    let (device, volume) = bench.open(&image);
    let inode = volume.inodes.get(numbers[0]).unwrap();
    let piece = pattern(1, 4 << 20);
    for number in 0..10 {
        let end = (number + 1) * piece.len() as u64;
        write_blocks(&volume, &inode, number * 4096, &piece, Some(end)).unwrap();
    }
    let (mut at, mut addresses) = (0, Vec::new());
    while at < 10 * 4096 {
        let mapping = volume.files.map(&inode, FileBlock(at), u64::MAX).unwrap();
        let MappingKind::Mapped(address) = mapping.kind else { panic!("{mapping:?}") };
        addresses.push(address.0);
        at += mapping.blocks;
    }
    assert!(addresses.is_sorted() && addresses.len() <= 8, "{addresses:?}");
    volume.close().unwrap();
    bench.check(&device);
}

/// ARCHITECTURE invariant 6 on ext2: what `sync_inode` wrote is enough to read the data after a crash.
#[test]
fn synced_file_reads_back_though_nothing_else_was_written() {
    if !have(&["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let bench = Bench::new();
    let (image, numbers) = image_with_files(&bench, "-t ext2 -b 1024", "16M", 2);
    let (device, volume) = bench.open(&image);
    let content = pattern(7, 1024 * 700);
    for number in &numbers {
        let inode = volume.inodes.get(*number).unwrap();
        write_blocks(&volume, &inode, 0, &content, Some(content.len() as u64)).unwrap();
    }
    volume.sync_inode(&volume.inodes.get(numbers[0]).unwrap(), SyncKind::Data).unwrap();
    let crashed = bench.path("crashed");
    device.save(&crashed);
    let (code, output) = common::run("e2fsck", &["-fy", &crashed.to_string_lossy()]);
    assert!(code <= 1, "{output}");
    let (_, after) = bench.open(&crashed);
    let inode = after.inodes.get(numbers[0]).unwrap();
    assert!(read_file(&after, &inode) == content);
}

/// ARCHITECTURE invariant 9: after a failed write nothing more is written, and every caller gets the error.
#[test]
fn failed_write_latches() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let (image, numbers) = image_with_files(&bench, "-t ext2", "16M", 1);
    let (device, volume) = bench.open(&image);
    let inode = volume.inodes.get(numbers[0]).unwrap();
    write_blocks(&volume, &inode, 0, &pattern(1, 4096), Some(4096)).unwrap();
    device.fail_writes.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(volume.sync(), Err(Error::Io(_))));
    device.fail_writes.store(false, std::sync::atomic::Ordering::Relaxed);
    let before = device.bytes.read().unwrap().clone();
    assert!(matches!(volume.sync(), Err(Error::ReadOnly(_))));
    assert!(matches!(volume.files.truncate(&inode, 0), Err(Error::ReadOnly(_))));
    assert!(matches!(volume.close(), Err(Error::Aborted)));
    assert!(volume.read_only_reason().unwrap().contains("an earlier write failed"));
    assert!(*device.bytes.read().unwrap() == before);
}

/// A mapping of thousands of pieces, made and removed in random order: splits, merges and levels of the tree.
#[test]
fn mapping_of_many_pieces_stays_sound() {
    if !have(&["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024", "-t ext4 -b 1024", "-t ext4 -O ^has_journal,^metadata_csum -b 1024"]
    {
        let bench = Bench::new();
        let (image, numbers) = image_with_files(&bench, arguments, "48M", 1);
        let (device, volume) = bench.open(&image);
        let inode = volume.inodes.get(numbers[0]).unwrap();
        let pieces = 6000;
        let mut order: Vec<u64> = (0..pieces).collect();
        order.sort_by_key(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let size = Some(pieces * 2048);
        for at in &order {
            let reservation = volume.files.reserve(&inode, FileBlock(at * 2), 1).unwrap();
            let reservations = vec![reservation];
            let mut commit = WriteCommit { reservations, size_at_least: size, ..WriteCommit::default() };
            volume.files.commit_write(&inode, &mut commit).unwrap();
        }
        volume.sync().unwrap();
        bench.check_running(&device);
        // Fill the gaps of one half, then cut pieces out of the other.
        for at in order.iter().filter(|at| **at < pieces / 2) {
            let reservation = volume.files.reserve(&inode, FileBlock(at * 2 + 1), 1).unwrap();
            let mut commit = WriteCommit { reservations: vec![reservation], ..WriteCommit::default() };
            volume.files.commit_write(&inode, &mut commit).unwrap();
        }
        for at in order.iter().filter(|at| **at >= pieces / 2 && **at % 3 != 0) {
            volume.files.punch(&inode, FileBlock(at * 2), 1).unwrap();
        }
        for at in 0..pieces * 2 {
            let mapped =
                matches!(volume.files.map(&inode, FileBlock(at), 1).unwrap().kind, MappingKind::Mapped(_));
            let expected = at < pieces || (at % 2 == 0 && at / 2 % 3 == 0);
            assert_eq!(mapped, expected, "block {at} ({arguments})");
        }
        volume.sync().unwrap();
        bench.check_running(&device);
        volume.files.truncate(&inode, 1 << 20).unwrap();
        volume.close().unwrap();
        bench.check(&device);
    }
}

fn spec(kind: FileKind) -> NodeSpec {
    NodeSpec { kind, permissions: 0o755, umask: 0, owner: Owner::default(), device: (0, 0) }
}

/// Change all descriptors of a volume where they are.
fn change_descriptors(
    device: &dyn BlockDevice,
    change: impl Fn(GroupNumber, &mut GroupDescriptor),
) -> Superblock {
    let superblock = find_superblock(device).unwrap().0;
    let layout = Layout::new(&superblock);
    let size = usize::from(superblock.desc_size());
    let mut descriptors = read_descriptors(device, &superblock).unwrap();
    for index in 0..layout.descriptor_blocks() {
        let at = layout.block_size.address_of(layout.descriptor_block(index));
        let mut memory = Aligned::zeroed(layout.block_size.bytes() as usize);
        let bytes = memory.bytes();
        device.read_bytes(at, bytes).unwrap();
        let first = index * layout.descriptors_per_block();
        for (place, number) in bytes.chunks_exact_mut(size).zip(first..layout.group_count) {
            let descriptor = &mut descriptors[number as usize];
            change(GroupNumber(number), descriptor);
            descriptor.write_into(place, GroupNumber(number), &superblock);
        }
        device.write_bytes(at, bytes, BioFlags::NONE).unwrap();
    }
    superblock
}

/// The kernel does not look at the flags of groups where descriptors have no checksums. Here inodes and blocks in use were given out
/// again, because a group was taken as never used.
#[test]
fn flags_of_groups_without_checksums_mean_nothing() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024", "-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg"] {
        let bench = Bench::new();
        let image = bench.image(arguments, "24M");
        let (device, volume) = bench.open(&image);
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        let mut files = Vec::new();
        for name in ["a", "b", "c"] {
            let directory = volume.names.create(&root, name.as_bytes(), &spec(FileKind::Directory)).unwrap();
            let file = volume.names.create(&directory, b"f", &spec(FileKind::Regular)).unwrap();
            let content = pattern(7, 40 << 10);
            write_blocks(&volume, &file, 0, &content, Some(content.len() as u64)).unwrap();
            files.push(file.number());
        }
        volume.close().unwrap();
        drop(volume);
        change_descriptors(&*device, |_, descriptor| {
            descriptor.flags = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
            descriptor.unused_inodes = descriptor.free_inodes;
        });
        let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        for number in 0..200 {
            let name = format!("new{number}");
            let file = volume.names.create(&root, name.as_bytes(), &spec(FileKind::Regular)).unwrap();
            assert!(!files.contains(&file.number()), "{arguments}: an inode in use was given out");
            write_blocks(&volume, &file, 0, &pattern(9, 8 << 10), Some(8 << 10)).unwrap();
        }
        for file in &files {
            let file = volume.inodes.get(*file).unwrap();
            assert!(read_file(&volume, &file) == pattern(7, 40 << 10), "{arguments}: overwritten");
        }
        volume.close().unwrap();
        bench.check(&device);
    }
}

/// A new volume as one that was ext3: no mkfs makes one with block numbers of 64 bits at once.
fn without_extents(device: &dyn BlockDevice, superblock: &mut Superblock) {
    let layout = Layout::new(superblock);
    let place = layout.locate_inode(InodeNumber::ROOT).unwrap();
    let table = read_descriptors(device, superblock).unwrap()[0].inode_table;
    let at = layout.block_size.address_of(FsBlock(table.0 + u64::from(place.table_block)));
    let mut block = vec![0; layout.block_size.bytes() as usize];
    device.read_bytes(at, &mut block).unwrap();
    let bytes = &mut block[place.offset as usize..][..usize::from(layout.inode_size)];
    let mut root = DiskInode::parse(InodeNumber::ROOT, bytes, superblock).unwrap();
    root.flags -= InodeFlags::EXTENTS;
    // The block of its only extent.
    let first: [u8; 4] = root.block[20..24].try_into().unwrap();
    root.block = [0; 60];
    root.block[..4].copy_from_slice(&first);
    root.write_into(InodeNumber::ROOT, bytes, superblock);
    device.write_bytes(at, &block, BioFlags::NONE).unwrap();
    let mut features = superblock.features();
    features.incompat -= Incompat::EXTENTS;
    superblock.set_features(features);
    let mut bytes = [0; 1024];
    superblock.write_into(&mut bytes);
    device.write_bytes(1024, &bytes, BioFlags::NONE).unwrap();
}

/// Blocks of files, directories and symbolic links without extents were chosen beyond what 32 bits can name, and their numbers cut: they
/// pointed into other files.
#[test]
fn blocks_without_extents_are_where_32_bits_reach() {
    const BLOCK: u64 = 4096;
    let device: Arc<dyn BlockDevice> = ImageDevice::new(SparseImage::new((1 << 32) * BLOCK + (1 << 30)));
    let mut options = MkfsOptions::new(Flavor::Ext4);
    options.features = "^has_journal,^resize_inode,^metadata_csum,uninit_bg,sparse_super2".to_owned();
    options.inodes = Some(1);
    options.inode_size = Some(128);
    mkfs(&*device, &options).unwrap();
    // New inodes are in the last group, and their blocks are wanted near them.
    let last = GroupNumber(((1_u64 << 32) / 32768) as u32 + 4);
    let mut superblock = change_descriptors(&*device, |number, descriptor| {
        if number < last {
            descriptor.free_inodes = 0;
        }
    });
    without_extents(&*device, &mut superblock);
    let volume = Volume::open(device, VolumeOptions::default()).unwrap();
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let file = volume.names.create(&root, b"file", &spec(FileKind::Regular)).unwrap();
    let group = |inode: &Inode| Layout::new(volume.superblock()).locate_inode(inode.number()).unwrap().group;
    assert!(group(&file) >= last, "the test has its inodes where it wants them: {:?}", group(&file));
    let content = pattern(5, 100 * BLOCK as usize);
    write_blocks(&volume, &file, 0, &content, Some(content.len() as u64)).unwrap();
    let directory = volume.names.create(&root, b"directory", &spec(FileKind::Directory)).unwrap();
    assert!(volume.names.create(&directory, b"inner", &spec(FileKind::Regular)).is_ok());
    let target = vec![b't'; 3000];
    let link = volume.names.symlink(&root, b"link", &target, Owner::default()).unwrap();
    volume.set_xattr(&file, b"user.large", &pattern(6, 1000), XattrMode::Set).unwrap();
    for inode in [&file, &directory, &link] {
        let mapping = volume.files.map(inode, FileBlock(0), 1).unwrap();
        let MappingKind::Mapped(block) = mapping.kind else { panic!("{mapping:?}") };
        assert!(u32::try_from(block.0).is_ok() && block.0 > 1000, "{block}");
    }
    volume.close().unwrap();
    let volume = Volume::open(volume.device().clone(), VolumeOptions::default()).unwrap();
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let file = volume.names.lookup(&root, b"file").unwrap();
    assert!(read_file(&volume, &file) == content);
    assert!(volume.xattrs.get(&file, b"user.large").unwrap() == pattern(6, 1000));
    assert!(volume.names.read_link(&volume.names.lookup(&root, b"link").unwrap()).unwrap() == target);
    let directory = volume.names.lookup(&root, b"directory").unwrap();
    assert!(volume.names.lookup(&directory, b"inner").is_ok());
}
