//! Diorite reads the content that other programs wrote.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use common::{Bench, have, inode_of, pattern, read_file};
use diorite_ext::{FileBlock, MappingKind};

/// Files of every shape, put there by mke2fs: direct, indirect, double indirect, sparse, empty.
fn files(block: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut sparse = vec![0; block * 700];
    sparse[block * 5..block * 7].copy_from_slice(&pattern(9, block * 2));
    sparse[block * 650..].copy_from_slice(&pattern(10, block * 50));
    vec![
        ("empty", Vec::new()),
        ("small", b"hello".to_vec()),
        ("direct", pattern(1, block * 12)),
        ("single", pattern(2, block * 100 + 17)),
        ("double", pattern(3, block * 600 + 1)),
        ("sparse", sparse),
    ]
}

fn roundtrip(arguments: &str, block: usize) {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let source = bench.path("source");
    std::fs::create_dir(&source).unwrap();
    for (name, content) in files(block) {
        std::fs::write(source.join(name), content).unwrap();
    }
    let image = bench.image(&format!("{arguments} -b {block} -d {}", source.display()), "32M");
    let (device, volume) = bench.open(&image);
    let before = device.bytes.read().unwrap().clone();
    for (name, content) in files(block) {
        let inode = volume.inodes.get(inode_of(&image, name)).unwrap();
        assert_eq!(inode.attributes().size, content.len() as u64);
        assert!(read_file(&volume, &inode) == content, "{name} differs ({arguments} -b {block})");
        // Again, from the cached mappings, block by block.
        for at in 0..volume.block_size().blocks_for(content.len() as u64) {
            let mapping = volume.files.map(&inode, FileBlock(at), 1).unwrap();
            if let MappingKind::Mapped(address) = mapping.kind {
                let bytes = common::read_blocks(&volume, address.0, 1);
                let start = at as usize * block;
                let end = content.len().min(start + block);
                assert_eq!(bytes[..end - start], content[start..end], "{name} block {at}");
            }
        }
    }
    volume.close().unwrap();
    assert!(*device.bytes.read().unwrap() == before, "reading changed the image");
}

#[test]
fn ext2_files_read_back_at_every_block_size() {
    for block in [1024, 2048, 4096] {
        roundtrip("-t ext2", block);
    }
}

#[test]
fn ext4_files_read_back() {
    for block in [1024, 4096] {
        roundtrip("-t ext4", block);
    }
    roundtrip("-t ext4 -O inline_data -I 256", 4096);
    roundtrip("-t ext4 -O bigalloc -C 16384", 4096);
    roundtrip("-t ext3", 1024);
}

/// ARCHITECTURE invariant 8: what lies together on the device is one mapping, whatever index blocks lie between.
#[test]
fn contiguous_run_is_one_mapping_across_index_blocks() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let source = bench.path("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("f"), pattern(3, 1024 * 1000)).unwrap();
    let image = bench.image(&format!("-t ext2 -b 1024 -d {}", source.display()), "32M");
    let (_, volume) = bench.open(&image);
    let inode = volume.inodes.get(inode_of(&image, "f")).unwrap();
    let mut mappings = Vec::new();
    let mut at = 0;
    while at < 1000 {
        let mapping = volume.files.map(&inode, FileBlock(at), u64::MAX).unwrap();
        assert!(matches!(mapping.kind, MappingKind::Mapped(_)), "{mapping:?}");
        mappings.push(mapping);
        at += mapping.blocks;
    }
    for pair in mappings.windows(2) {
        let (MappingKind::Mapped(a), MappingKind::Mapped(b)) = (pair[0].kind, pair[1].kind) else { panic!() };
        assert_ne!(a.0 + pair[0].blocks, b.0, "these are one mapping: {pair:?}");
    }
    let past_end = volume.files.map(&inode, FileBlock(1000), 10).unwrap();
    assert_eq!((past_end.kind, past_end.blocks), (MappingKind::Hole, 10));
}
