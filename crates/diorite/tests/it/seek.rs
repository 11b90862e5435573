//! Holes and data as `lseek` returns them, for data on the device and for dirty data in the cache.

use crate::common;
use common::{open_memory, pattern};
use diorite::{ErrorKind, File, FilesystemOptions};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

/// Mappings of data, found by going from data to hole to data.
fn data(file: &File) -> Vec<(u64, u64)> {
    let (mut at, mut found) = (0, Vec::new());
    while let Ok(start) = file.seek_data(at) {
        at = file.seek_hole(start).expect("at the end at the latest");
        found.push((start, at));
    }
    assert_eq!(file.seek_data(file.size()).expect_err("the end").kind(), ErrorKind::BeyondEnd);
    assert_eq!(file.seek_hole(file.size()).expect_err("the end").kind(), ErrorKind::BeyondEnd);
    found
}

/// Blocks smaller than a page: what waits for write-back is reported as it will be, not as whole pages.
#[test]
fn dirty_blocks_are_data_and_their_neighbours_are_not() {
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let options = MkfsOptions { flavor, block_size: Some(1024), ..MkfsOptions::default() };
        let filesystem = open_memory(16, &options, &FilesystemOptions::new());
        let file = filesystem.create_file("/file").expect("create");
        for at in [1, 3, 10, 200] {
            file.write_all_at(&pattern(1024, at), at * 1024).expect("write");
        }
        file.write_all_at(&pattern(100, 1), 300 * 1024 + 50).expect("write");
        let expected: Vec<_> =
            [(1, 2), (3, 4), (10, 11), (200, 201)].map(|(a, b)| (a * 1024, b * 1024)).into();
        let expected = [expected, vec![(300 * 1024, 300 * 1024 + 150)]].concat();
        assert_eq!(data(&file), expected, "{flavor:?}: in the cache");
        assert_eq!(file.seek_data(3 * 1024 + 7).expect("data"), 3 * 1024 + 7);
        assert_eq!(file.seek_hole(2 * 1024 + 7).expect("hole"), 2 * 1024 + 7);
        file.sync_data().expect("sync");
        assert_eq!(data(&file), expected, "{flavor:?}: on the device");
    }
}

/// A hole up to the end, or beyond it, takes the last block as a whole, as in Linux: nothing in it can be read any more.
#[test]
fn a_hole_to_the_end_frees_the_last_block() {
    let options = MkfsOptions::new(Flavor::Ext4);
    let filesystem = open_memory(16, &options, &FilesystemOptions::new());
    let file = filesystem.create_file("/file").expect("create");
    file.write_all_at(&pattern(30_000, 1), 0).expect("write");
    file.sync_all().expect("sync");
    file.punch_hole(20_000, 10_000).expect("punch");
    assert_eq!((file.size(), data(&file)), (30_000, vec![(0, 20 * 1024)]));
    file.sync_all().expect("sync");
    assert_eq!(file.metadata().expect("stat").sectors, 40);
    let mut all = vec![1; 30_000];
    file.read_exact_at(&mut all, 0).expect("read");
    assert!(all[..20_000] == pattern(30_000, 1)[..20_000] && all[20_000..].iter().all(|byte| *byte == 0));
}
