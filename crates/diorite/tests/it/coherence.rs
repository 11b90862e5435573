//! ARCHITECTURE invariant 2: buffered and direct reads and writes of one file, in every order, see each other.

use crate::common;
use common::{aligned_pattern, assert_device_clean, memory_volume};
use diorite::{AlignedBuf, DirectIo, File, Filesystem, FilesystemOptions, Unaligned};
use diorite_ext_tools::mkfs::MkfsOptions;

fn open(filesystem: &Filesystem, kind: usize) -> File {
    let options = filesystem.open_options().read(true).write(true).create(true);
    let options = match kind {
        0 => options.direct(DirectIo::Off),
        1 => options.direct(DirectIo::Required),
        _ => options.direct(DirectIo::Required).unaligned(Unaligned::Bounce),
    };
    options.open("/file").expect("open")
}

fn check(file: &File, expected: &[u8], what: &str) {
    let mut memory = AlignedBuf::zeroed(expected.len().next_multiple_of(4096), 4096);
    let got = file.read_at(&mut memory, 0).expect("read");
    assert_eq!(got, expected.len(), "{what}");
    let wrong = (0..got).find(|at| memory[*at] != expected[*at]);
    assert_eq!(wrong, None, "{what}: first wrong byte");
}

/// Three writes of three kinds, overlapping, and after each a read of every kind: 27 orders.
#[test]
fn every_kind_of_read_sees_every_kind_of_write() {
    let device = memory_volume(32, &MkfsOptions::default());
    for order in 0..27 {
        let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
        let handles: Vec<File> = (0..3).map(|kind| open(&filesystem, kind)).collect();
        handles[0].set_len(0).expect("empty");
        let mut expected: Vec<u8> = Vec::new();
        for step in 0..3 {
            let kind = order / [1, 3, 9][step] % 3;
            let (offset, len) = [(0, 65536), (20480, 73728), (8192, 16384)][step];
            let data = aligned_pattern(len, (order * 3 + step) as u64);
            handles[kind].write_all_at(&data, offset as u64).expect("write");
            expected.resize(expected.len().max(offset + len), 0);
            expected[offset..offset + len].copy_from_slice(&data);
            for (reader, file) in handles.iter().enumerate() {
                check(file, &expected, &format!("order {order}, step {step}, reader {reader}"));
            }
        }
        drop(handles);
        filesystem.close().expect("close");
        let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open again");
        check(&open(&filesystem, 1), &expected, "reopened");
    }
    assert_device_clean(&device);
}

/// generic/418: processes with their own regions of one file, each with its own mixture of kinds.
#[test]
fn regions_of_one_file_do_not_disturb_each_other() {
    const REGION: usize = 5 * 4096 + 512;
    let device = memory_volume(32, &MkfsOptions::default());
    let filesystem =
        FilesystemOptions::new().cache_bytes(512 << 10).open_device(device.clone()).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let filesystem = &filesystem;
            scope.spawn(move || {
                let handles: Vec<File> = (0..3).map(|kind| open(filesystem, kind)).collect();
                let offset = (thread * REGION) as u64;
                for round in 0..60 {
                    let data = aligned_pattern(REGION / 512 * 512, (thread * 1000 + round) as u64);
                    handles[round % 3].write_all_at(&data, offset).expect("write");
                    let mut memory = AlignedBuf::zeroed(data.len(), 4096);
                    handles[round / 3 % 3].read_exact_at(&mut memory, offset).expect("read");
                    assert!(memory[..] == data[..], "thread {thread}, round {round}");
                }
            });
        }
    });
    filesystem.close().expect("close");
    assert_device_clean(&device);
}
