//! Many threads fill a volume at once, through the cache and directly, in order and at random offsets, while other threads make and
//! remove names. A write without space fails with ENOSPC, and accepted data is never lost (ARCHITECTURE invariant 5).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::sync::Arc;

use common::{Random, assert_device_clean, memory_volume, pattern};
use diorite::{AlignedBuf, DirectIo, ErrorKind, Filesystem, FilesystemOptions};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const UNIT: usize = 4096;
const MEGABYTES: u64 = 48;

/// A file, and the units of it that were accepted: number and seed.
type Accepted = (String, Vec<(u64, u64)>);

fn unit(seed: u64) -> AlignedBuf {
    let mut memory = AlignedBuf::zeroed(UNIT, UNIT);
    memory.copy_from_slice(&pattern(UNIT, seed));
    memory
}

/// Write files until there is no space for a unit. `writer` decides how.
fn fill(filesystem: &Filesystem, writer: u64, round: u64) -> Vec<Accepted> {
    let mut random = Random(round * 100 + writer + 1);
    let mut all = Vec::new();
    for number in 0.. {
        let path = format!("/w{writer}-{number}");
        let direct = if writer % 4 == 3 { DirectIo::Required } else { DirectIo::Off };
        let options = filesystem.open_options().read(true).write(true).create(true).direct(direct);
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == diorite::ErrorKind::StorageFull => return all,
            Err(error) => panic!("{path}: {error}"),
        };
        let (mut accepted, units) = (Vec::new(), 1 + random.below(600));
        for at in 0..units {
            // In rows, or each in a part of the mapping of its own.
            let at = if writer % 4 == 1 { at * 1031 % 50_000 } else { at };
            let seed = random.next() | 1;
            match file.write_all_at(&unit(seed), at * UNIT as u64) {
                Ok(()) => accepted.push((at, seed)),
                // That what was written earlier is lost has the same number.
                Err(error)
                    if error.kind() == diorite::ErrorKind::StorageFull
                        && !error.to_string().contains("lost") =>
                {
                    all.push((path, accepted));
                    return all;
                }
                Err(error) => panic!("{path}: {error}"),
            }
        }
        all.push((path, accepted));
    }
    all
}

fn filled_by_many(flavor: Flavor, block_size: u32) {
    for round in 0..3 {
        let options = MkfsOptions {
            flavor,
            block_size: Some(block_size),
            reserved_percent: 0.0,
            ..MkfsOptions::default()
        };
        let device = memory_volume(MEGABYTES, &options);
        let cache = FilesystemOptions::new().cache_bytes(16 << 20);
        let filesystem = cache.open_device(Arc::clone(&device)).unwrap();
        let all: Vec<Accepted> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..6)
                .map(|writer| (writer, &filesystem))
                .map(|(w, f)| scope.spawn(move || fill(f, w, round)))
                .collect();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        filesystem.sync().unwrap();
        let bytes: usize = all.iter().map(|(_, accepted)| accepted.len() * UNIT).sum();
        assert!(bytes > 30 << 20, "{flavor:?}: only {bytes} bytes were taken");
        for (path, accepted) in &all {
            let file = filesystem.open_options().read(true).direct(DirectIo::Required).open(path).unwrap();
            let mut memory = AlignedBuf::zeroed(UNIT, UNIT);
            // A place that was written twice holds what was written last.
            let last: std::collections::BTreeMap<_, _> = accepted.iter().copied().collect();
            for (at, seed) in last {
                file.read_at(&mut memory, at * UNIT as u64).unwrap();
                assert!(*memory == *unit(seed), "{path}: unit {at} is lost");
            }
        }
        filesystem.close().unwrap();
        assert_device_clean(&device);
    }
}

#[test]
fn nothing_that_was_taken_is_lost_on_ext4() {
    filled_by_many(Flavor::Ext4, 4096);
    filled_by_many(Flavor::Ext4, 1024);
}

#[test]
fn nothing_that_was_taken_is_lost_on_ext2() {
    filled_by_many(Flavor::Ext2, 4096);
    filled_by_many(Flavor::Ext2, 1024);
}

/// ARCHITECTURE invariant 5: the pages of a write that finds no space are not made of what their memory held before, which is
/// another file's data here.
#[test]
fn a_refused_write_leaves_no_others_data_in_the_cache() {
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let device = memory_volume(16, &MkfsOptions { flavor, ..MkfsOptions::default() });
        let filesystem = FilesystemOptions::new().cache_bytes(4 << 20).open_device(device).unwrap();
        let sparse = filesystem.create_file("/sparse").unwrap();
        sparse.set_len(1 << 20).unwrap();
        let others = filesystem.create_file("/others").unwrap();
        let secret = vec![0xAA; 16 * UNIT];
        let mut at = 0;
        // In units at the end, so that nothing is left.
        for len in [secret.len(), UNIT] {
            while others.write_all_at(&secret[..len], at).is_ok() {
                at += len as u64;
            }
        }
        filesystem.sync().unwrap();
        filesystem.drop_caches().unwrap();
        // With a whole step of pages, and with one whose ends are not those of pages.
        for (at, len) in [(0, 16 * UNIT), (UNIT as u64 * 32, UNIT), ((1 << 20) - 100, UNIT)] {
            let refused = sparse.write_at(&vec![0xBB; len], at).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::StorageFull);
        }
        assert_eq!(sparse.size(), 1 << 20);
        let mut memory = vec![1; 1 << 20];
        assert_eq!(sparse.read_at(&mut memory, 0).unwrap(), memory.len());
        assert!(
            memory.iter().all(|byte| *byte == 0),
            "{flavor:?}: {:x?}",
            memory.iter().find(|byte| **byte != 0)
        );
    }
}
