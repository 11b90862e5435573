//! The size of a host file is that of the written data, not a multiple of the device's blocks, also with concurrent calls.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and the host is the judge"
)]

use crate::common;
use common::{aligned_pattern, pattern};
use diorite::{DirectIo, DirectWriter, ErrorKind, HostFile, OpenOptions, Unaligned};

fn options() -> OpenOptions<HostFile> {
    HostFile::options().read(true).write(true).create(true)
}

/// A write that ended cut off those of the same stream that had landed beyond it.
#[test]
fn writes_of_one_stream_do_not_cut_each_other_off() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..60 {
        let path = directory.path().join(format!("file{round}"));
        let file = options().direct(DirectIo::Preferred).open(&path).unwrap();
        let data = pattern(1_000_000 + round * 777, round as u64);
        let mut writer = DirectWriter::new(file, 0, 16384, 8).unwrap();
        for chunk in data.chunks(16384) {
            writer.buffer().unwrap()[..chunk.len()].copy_from_slice(chunk);
            writer.submit(chunk.len()).unwrap();
        }
        drop(writer.finish().unwrap());
        let host = std::fs::read(&path).unwrap();
        assert!(host == data, "round {round}: {} bytes of {}", host.len(), data.len());
    }
}

/// Threads that append blocks at places of their own.
#[test]
fn threads_that_extend_a_file_do_not_cut_each_other_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = options().direct(DirectIo::Preferred).open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let file = &file;
            scope.spawn(move || {
                for block in 0..100 {
                    let at = block * 4 + thread;
                    file.write_all_at(&aligned_pattern(4096, at), at * 4096).unwrap();
                }
            });
        }
    });
    drop(file);
    let host = std::fs::read(&path).unwrap();
    assert_eq!(host.len(), 400 * 4096);
    for (at, block) in host.chunks(4096).enumerate() {
        assert!(block == pattern(4096, at as u64), "block {at}");
    }
}

/// The last block was written whole, and the file stayed as long as that.
#[test]
fn a_file_is_as_long_as_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let length = || std::fs::metadata(&path).unwrap().len();
    let direct =
        |options: OpenOptions<HostFile>| options.direct(DirectIo::Preferred).unaligned(Unaligned::Bounce);
    let all = [options(), options().dsync(true), options().sync(true)];
    for open in all.iter().cloned().chain(all.iter().cloned().map(direct)) {
        let _ = std::fs::remove_file(&path);
        let file = open.open(&path).unwrap();
        file.write_all_at(&[1; 1000], 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(length(), 1000, "{open:?}");
        for round in 0..2 {
            file.write_all_at(&[2; 10], 985).unwrap();
            file.sync_data().unwrap();
            assert_eq!(length(), 1000, "{open:?}: after overwrite {round}");
        }
        file.set_len(5000).unwrap();
        file.write_all_at(&[3; 10], 4900).unwrap();
        drop(file);
        assert_eq!(length(), 5000, "{open:?}: after a write in the last block");
    }
}

/// `allocate` on a host's file set its size and gave it no blocks, and `allocate_keep_size` did nothing and said that all was well.
#[test]
fn what_is_allocated_has_blocks_of_the_host() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let host = || std::fs::metadata(&path).unwrap();
    let file = options().open(&path).unwrap();
    file.allocate(0, 100_000).unwrap();
    assert_eq!(host().len(), 100_000);
    assert!(host().blocks() * 512 >= 100_000, "{} blocks", host().blocks());
    file.set_len(1_000_000).unwrap();
    file.allocate_keep_size(500_000, 500_000).unwrap();
    assert_eq!(host().len(), 1_000_000);
    assert!(host().blocks() * 512 >= 600_000, "{} blocks", host().blocks());
    assert_eq!(file.allocate_keep_size(900_000, 500_000).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!((file.size(), host().len()), (1_000_000, 1_000_000));
}
