//! `data=ordered`, `writeback` and `journal`, by option, by the volume's default and by a file's flag.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::path::Path;
use std::process::Command;

use common::{Image, aligned_pattern, assert_clean, open_memory};
use diorite::{DataMode, DirectIo, File, Filesystem, FilesystemOptions, SetAttributes, Unaligned};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const JOURNAL_DATA: u32 = 0x4000;

fn open(filesystem: &Filesystem, path: &str, direct: DirectIo) -> diorite::Result<File> {
    let options = filesystem.open_options().read(true).write(true).create(true);
    options.direct(direct).unaligned(Unaligned::Bounce).open(path)
}

fn ext4() -> MkfsOptions {
    MkfsOptions { flavor: Flavor::Ext4, block_size: Some(4096), ..MkfsOptions::default() }
}

/// With data=journal, direct I/O that is preferred goes through the cache, and what is required is refused with the reason.
fn assert_falls_back(filesystem: &Filesystem, path: &str) {
    let error = open(filesystem, path, DirectIo::Required).unwrap_err();
    assert!(error.to_string().contains("data=journal"), "{error}");
    let file = open(filesystem, path, DirectIo::Preferred).unwrap();
    assert_eq!(file.direct_io(), DirectIo::Off);
    let data = aligned_pattern(300_000, 5);
    file.write_all_at(&data, 4096).unwrap();
    file.sync_all().unwrap();
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, 4096).unwrap();
    assert!(read == data[..]);
    // A rejected call has changed nothing.
    let options = filesystem.open_options().write(true).truncate(true).direct(DirectIo::Required);
    options.open(path).unwrap_err();
    assert_eq!(file.size(), 4096 + data.len() as u64);
}

#[test]
fn modes_by_option() {
    for (mode, direct) in [
        (None, DirectIo::Required),
        (Some(DataMode::Ordered), DirectIo::Required),
        (Some(DataMode::Writeback), DirectIo::Required),
        (Some(DataMode::Journal), DirectIo::Off),
    ] {
        let options = FilesystemOptions::new();
        let options = mode.map_or(options.clone(), |mode| options.data_mode(mode));
        let filesystem = open_memory(32, &ext4(), &options);
        assert_eq!(filesystem.volume().files.data_mode(), mode.unwrap_or_default());
        if direct == DirectIo::Off {
            assert_falls_back(&filesystem, "/file");
        } else {
            let file = open(&filesystem, "/file", direct).unwrap();
            file.write_all_at(&aligned_pattern(8192, 1), 0).unwrap();
            assert_eq!((file.direct_io(), filesystem.stats().bytes_copied), (direct, 0));
        }
        let device = filesystem.device().clone();
        filesystem.close().unwrap();
        common::assert_device_clean(&device);
    }
    let without = common::memory_volume(8, &MkfsOptions::default());
    let error = FilesystemOptions::new().data_mode(DataMode::Journal).open_device(without).unwrap_err();
    assert!(error.to_string().contains("needs a journal"), "{error}");
}

#[test]
fn a_file_with_the_flag_and_a_volume_with_the_default() {
    let image = Image::new(32, &ext4());
    let filesystem = Filesystem::open(&image.path).unwrap();
    filesystem.create_file("/flagged").unwrap();
    let node = filesystem.resolve("/flagged").unwrap();
    let flags = node.attributes().unwrap().flags | JOURNAL_DATA;
    node.set_attributes(&SetAttributes { flags: Some(flags), ..SetAttributes::default() }).unwrap();
    drop(node);
    assert_falls_back(&filesystem, "/flagged");
    assert_eq!(open(&filesystem, "/plain", DirectIo::Required).unwrap().direct_io(), DirectIo::Required);
    filesystem.close().unwrap();
    assert_clean(&image.path);
    let tuned = Command::new("tune2fs").args(["-o", "journal_data"]).arg(&image.path).output();
    if !tuned.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: tune2fs is not installed");
        return;
    }
    let filesystem = Filesystem::open(&image.path).unwrap();
    assert_eq!(filesystem.volume().files.data_mode(), DataMode::Journal);
    assert_falls_back(&filesystem, "/plain");
    filesystem.close().unwrap();
    assert_clean(&image.path);
}

fn shell(directory: &Path, script: &str) -> bool {
    Command::new("sh").args(["-ec", script]).current_dir(directory).output().unwrap().status.success()
}

/// The kernel with data=journal leaves data in its log; it is replayed here, changed here, and read back by the kernel.
#[test]
fn data_in_a_log_of_the_kernel_is_found_changed_and_read_back() {
    let image = Image::new(32, &ext4());
    let directory = image.path.parent().unwrap();
    let write = "mkdir mnt; mount -o loop,data=journal,commit=600 disk.img mnt; trap 'umount mnt' EXIT
        dd if=/dev/zero bs=4096 count=64 status=none | tr '\\0' a > mnt/file; touch mnt/flagged; chattr +j mnt/flagged
        head -c 100000 /dev/zero | tr '\\0' b > mnt/flagged; sync; sync -f mnt/file; cp --sparse=always disk.img live.img";
    if !shell(directory, write) {
        println!("SKIPPED: cannot mount with data=journal here");
        return;
    }
    let live = directory.join("live.img");
    let filesystem = Filesystem::open(&live).unwrap();
    let read = |path: &str, len: usize| {
        let mut memory = vec![0; len];
        filesystem.open_file(path).unwrap().read_exact_at(&mut memory, 0).unwrap();
        memory
    };
    assert!(read("/file", 64 * 4096).iter().all(|byte| *byte == b'a'));
    assert!(read("/flagged", 100_000).iter().all(|byte| *byte == b'b'));
    assert!(open(&filesystem, "/flagged", DirectIo::Required).is_err());
    open(&filesystem, "/file", DirectIo::Required)
        .unwrap()
        .write_all_at(&aligned_pattern(4096, 9), 8192)
        .unwrap();
    open(&filesystem, "/flagged", DirectIo::Preferred).unwrap().write_all_at(&[b'c'; 5000], 3).unwrap();
    filesystem.close().unwrap();
    assert_clean(&live);
    let check = "mount -o loop,data=journal live.img mnt; trap 'umount mnt' EXIT
        test $(tr -cd c < mnt/flagged | wc -c) = 5000; test $(wc -c < mnt/flagged) = 100000
        dd if=mnt/file bs=4096 skip=3 status=none | tr -d a | wc -c | grep -qx 0";
    assert!(shell(directory, check));
}
