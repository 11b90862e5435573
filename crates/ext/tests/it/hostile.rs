//! Images with random damage: an error or an answer, never a panic, an endless loop or a write to the filesystem's own blocks.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Bench, MemoryDevice, have, pattern, run, write_blocks};
use diorite_ext::{Access, FileBlock, InodeNumber, SyncKind, Volume, VolumeOptions};

/// A small volume with files of every mapping.
fn image(bench: &Bench, arguments: &str) -> Vec<u8> {
    let source = bench.path("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("small"), pattern(1, 5000)).unwrap();
    std::fs::write(source.join("large"), pattern(2, 1 << 20)).unwrap();
    let mut sparse = vec![0; 3 << 20];
    for at in (0..sparse.len()).step_by(8192) {
        sparse[at] = 1;
    }
    std::fs::write(source.join("sparse"), sparse).unwrap();
    std::fs::create_dir(source.join("d")).unwrap();
    std::fs::write(source.join("d/f"), b"x").unwrap();
    let path = bench.image(&format!("{arguments} -b 1024 -d {}", source.display()), "8M");
    std::fs::read(path).unwrap()
}

/// Do what one can with a volume; every result is fine.
fn exercise(device: Arc<MemoryDevice>, access: Access) {
    let options = VolumeOptions { access, metadata_cache_bytes: 1 << 20, ..VolumeOptions::default() };
    let Ok(volume) = Volume::open(device, options) else { return };
    for number in 2..40 {
        let Ok(inode) = volume.inodes.get(InodeNumber(number)) else { continue };
        let attributes = inode.attributes();
        let (mut at, end) = (0, volume.block_size().blocks_for(attributes.size).min(1 << 24));
        let mut steps = 0;
        while at < end && steps < 5000 {
            let Ok(mapping) = volume.files.map(&inode, FileBlock(at), end - at) else { break };
            assert!(mapping.blocks > 0 && mapping.start == FileBlock(at));
            at += mapping.blocks;
            steps += 1;
        }
        let _ = volume.files.read_inline(&inode);
        if access == Access::ReadWrite {
            let _ = write_blocks(&volume, &inode, 3, &pattern(3, 4096), Some(7168));
            let _ = volume.files.punch(&inode, FileBlock(1), 100);
            let _ = volume.sync_inode(&inode, SyncKind::All);
            let _ = volume.files.truncate(&inode, 0);
        }
    }
    let _ = volume.sync();
    let _ = volume.close();
}

fn damage(arguments: &str, rounds: u64) {
    if !have(&["mke2fs"]) {
        return;
    }
    let bench = Bench::new();
    let sound = image(&bench, arguments);
    // Where the metadata is: the first blocks, and every block that differs from one of a file's content.
    let (_, output) = run("dumpe2fs", &[&bench.path("image").to_string_lossy()]);
    assert!(output.contains("Block count"), "{output}");
    for round in 0..rounds {
        let mut bytes = sound.clone();
        let noise = pattern(round + 1, 64);
        let flips = 1 + usize::from(noise[0] % 12);
        for flip in 0..flips {
            let word = u64::from_le_bytes(noise[flip * 4..flip * 4 + 8].try_into().unwrap());
            // Half of the damage in the superblock, descriptors and first inodes, the rest in the first MiB.
            let area = if word & 1 == 0 { 60 << 10 } else { 1 << 20 };
            let at = 1024 + (word >> 8) as usize % area;
            bytes[at] = (word >> 56) as u8;
        }
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let begin = Instant::now();
            exercise(MemoryDevice::new(bytes.clone()), access);
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(20), "round {round} took {took:?}");
        }
    }
}

#[test]
fn damaged_ext2_gives_errors_only() {
    damage("-t ext2 -N 64", 50);
}

#[test]
fn damaged_ext4_gives_errors_only() {
    damage("-t ext4 -N 64 -O ^metadata_csum,^has_journal", 30);
    damage("-t ext4 -N 64 -O ^has_journal", 30);
    damage("-t ext4 -N 64 -O inline_data,^metadata_csum,^has_journal", 30);
}
