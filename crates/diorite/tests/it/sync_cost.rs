//! The writes of a sync, counted at the device: the data of the file, and the metadata of the transaction that refers to it.

use crate::common;
use std::sync::Arc;

use common::{Watched, aligned_pattern, memory_volume};
use diorite::{BlockDevice, DirectIo, File, Filesystem, FilesystemOptions};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

/// An ext2 volume on a device that keeps writes back until they are flushed.
fn open() -> Filesystem {
    let options = MkfsOptions { flavor: Flavor::Ext2, block_size: Some(4096), ..MkfsOptions::default() };
    let device = Watched::new(memory_volume(64, &options), |geometry| {
        (geometry.volatile_cache, geometry.fua) = (true, false);
    });
    FilesystemOptions::new().open_device(device as Arc<dyn BlockDevice>).expect("open")
}

/// The requests that reach the device during `act`: bios, blocks of 4 KiB, flushes.
fn cost(filesystem: &Filesystem, act: impl FnOnce()) -> (u64, u64, u64) {
    let before = filesystem.stats();
    act();
    let device = filesystem.stats().since(&before).device;
    (device.writes, device.write_bytes / 4096, device.flushes)
}

fn file(filesystem: &Filesystem, path: &str, direct: DirectIo) -> File {
    filesystem.open_options().read(true).write(true).create(true).direct(direct).open(path).expect("open")
}

fn write(file: &File, len: usize, offset: u64, seed: u64) {
    file.write_all_at(&aligned_pattern(len, seed), offset).expect("write");
}

#[test]
fn a_sync_writes_what_it_must() {
    for direct in [DirectIo::Off, DirectIo::Required] {
        let filesystem = open();
        let file = file(&filesystem, "/file", direct);
        write(&file, 65536, 0, 1);
        file.sync_all().expect("sync");
        let data = cost(&filesystem, || {
            write(&file, 65536, 0, 2);
            file.sync_data().expect("sync");
        });
        assert_eq!(data, (1, 16, 1), "{direct:?}: an overwrite is its data and a flush");
        let all = cost(&filesystem, || {
            write(&file, 65536, 0, 3);
            file.sync_all().expect("sync");
        });
        assert_eq!(all, (2, 17, 1), "{direct:?}: and the inode with its time");
        let nothing = cost(&filesystem, || file.sync_all().expect("sync"));
        assert_eq!(nothing, (0, 0, 1), "{direct:?}: nothing is left to write");
        let (_, blocks, flushes) = cost(&filesystem, || {
            write(&file, 4096, 65536, 4);
            file.sync_data().expect("sync");
        });
        assert!(
            blocks == 5 && flushes == 2,
            "{direct:?}: a block more is data, flushed before what leads to it: inode, indirect block, bitmap, descriptor"
        );
    }
}

/// Another file's data and inode are not written, however much of it waits.
#[test]
fn a_sync_leaves_the_others_alone() {
    let filesystem = open();
    let file = file(&filesystem, "/file", DirectIo::Off);
    write(&file, 65536, 0, 1);
    filesystem.sync().expect("sync");
    let other = self::file(&filesystem, "/other", DirectIo::Off);
    write(&other, 1 << 20, 0, 5);
    let data = cost(&filesystem, || {
        write(&file, 65536, 0, 2);
        file.sync_data().expect("sync");
    });
    assert_eq!(data, (1, 16, 1));
    let waits = cost(&filesystem, || other.sync_data().expect("sync"));
    assert!(waits.1 >= 256, "what waited is written when it is asked for: {waits:?}");
}
