//! Space: reservations of buffered writes, and the choice of their blocks.

use crate::common;
use common::memory_volume;
use diorite::{AlignedBuf, DirectIo, FilesystemOptions};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

/// Small writes took the blocks for their mapping each anew, so that a file of two thirds of the free space did not
/// fit while all of it was dirty.
#[test]
fn small_buffered_writes_fill_a_volume() {
    let options = MkfsOptions { flavor: Flavor::Ext2, block_size: Some(4096), ..MkfsOptions::default() };
    let filesystem = common::open_memory(64, &options, &FilesystemOptions::new().cache_bytes(96 << 20));
    let available = filesystem.statfs().blocks_available * 4096;
    let file = filesystem.create_file("/small").expect("create");
    let data = [7u8; 8192];
    let mut at = 0;
    while at + 8192 < available - available / 8 {
        file.write_all_at(&data, at).unwrap_or_else(|error| panic!("at {at} of {available}: {error}"));
        at += 8192;
    }
    file.sync_all().expect("sync");
    let mut back = [0; 8192];
    file.read_exact_at(&mut back, at - 8192).expect("read");
    assert_eq!(back, data);
    drop(file);
    let device = filesystem.device().clone();
    filesystem.close().expect("close");
    common::assert_device_clean(&device);
}

/// Each of many scattered blocks reserved for its mapping as if it stood alone: a volume with half of its blocks free lost data that
/// it had taken.
#[test]
fn scattered_buffered_blocks_find_space() {
    let options = MkfsOptions { block_size: Some(4096), inodes: Some(64), ..MkfsOptions::default() };
    let filesystem = common::open_memory(6, &options, &FilesystemOptions::new());
    let file = filesystem.create_file("/sparse").expect("create");
    let block = vec![3; 4096];
    for index in 0..700 {
        file.write_all_at(&block, index * 8192).expect("taken");
    }
    file.sync_all().expect("what was taken is kept");
    let mut read = vec![0; 4096];
    filesystem.drop_caches().expect("drop");
    file.read_exact_at(&mut read, 699 * 8192).expect("read");
    assert_eq!(read, block);
}

/// Index blocks do not lie in the way of a file that grows: what is written in pieces is read in full bios (ARCHITECTURE
/// invariant 8).
#[test]
fn a_file_that_grows_stays_in_one_piece() {
    const PIECES: u64 = 64;
    let options = MkfsOptions { block_size: Some(4096), ..MkfsOptions::default() };
    let filesystem = FilesystemOptions::new().open_device(memory_volume(96, &options)).expect("open");
    let file = filesystem
        .open_options()
        .read(true)
        .write(true)
        .create(true)
        .direct(DirectIo::Required)
        .open("/file")
        .expect("create");
    let mut memory = AlignedBuf::zeroed(1 << 20, 4096);
    for piece in 0..PIECES {
        file.write_all_at(&memory, piece << 20).expect("write");
    }
    let before = filesystem.stats();
    for piece in 0..PIECES {
        file.read_exact_at(&mut memory, piece << 20).expect("read");
    }
    let bios = filesystem.stats().since(&before).direct_bios;
    // One piece is cut where the direct blocks end, and one where the first index block lies.
    assert!((PIECES..=PIECES + 3).contains(&bios), "{bios} bios for {PIECES} MiB");
}
