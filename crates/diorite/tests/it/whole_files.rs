//! Whole files in one call, and streams as `std::io` knows them.
#![allow(missing_docs)]

use crate::common;
use std::io::{BufRead, Read, Write};

use common::{open_memory, pattern};
use diorite::{
    AsyncQueue, AsyncReader, AsyncWriter, DirectIo, DirectReader, DirectWriter, ErrorKind, Filesystem,
    FilesystemOptions, Unaligned,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

fn open(direct: DirectIo) -> Filesystem {
    let options = MkfsOptions::new(Flavor::Ext4);
    open_memory(32, &options, &FilesystemOptions::new().direct(direct))
}

/// As `std::fs::{read, write, read_to_string}`, also where all files are for direct I/O.
#[test]
fn a_file_is_read_and_written_in_one_call() {
    for direct in [DirectIo::Off, DirectIo::Preferred, DirectIo::Required] {
        let filesystem = open(direct);
        for len in [0, 1, 4096, 70_001] {
            let content = pattern(len, 7);
            filesystem.write("/file", &content).unwrap();
            assert_eq!(filesystem.read("/file").unwrap(), content, "{direct:?} {len}");
        }
        filesystem.write("/text", "æ").unwrap();
        assert_eq!(filesystem.read_to_string("/text").unwrap(), "æ");
        filesystem.write("/text", [0xff]).unwrap();
        let error = filesystem.read_to_string("/text").unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidData, Some("/text".as_ref())));
        assert_eq!(filesystem.read("/none").unwrap_err().kind(), ErrorKind::NotFound);
        filesystem.close().unwrap();
    }
}

/// Content, permissions and holes; a file copied to itself would be empty.
#[test]
fn a_copy_keeps_permissions_and_holes() {
    for direct in [DirectIo::Off, DirectIo::Required] {
        let filesystem = open(direct);
        filesystem.write("/from", pattern(5000, 1)).unwrap();
        let file = filesystem.open_options().write(true).unaligned(Unaligned::Bounce).open("/from").unwrap();
        file.write_all_at(&pattern(100, 2), 3 << 20).unwrap();
        file.set_len(9 << 20).unwrap();
        drop(file);
        filesystem.set_permissions("/from", 0o741).unwrap();
        filesystem.write("/to", pattern(9000, 3)).unwrap();
        assert_eq!(filesystem.copy("/from", "/to").unwrap(), 9 << 20);
        assert!(filesystem.read("/to").unwrap() == filesystem.read("/from").unwrap());
        filesystem.sync().unwrap();
        let (from, to) = (filesystem.metadata("/from").unwrap(), filesystem.metadata("/to").unwrap());
        assert_eq!((to.permissions, to.sectors), (0o741, from.sectors));
        filesystem.symlink("from", "/link").unwrap();
        assert_eq!(filesystem.copy("/from", "/link").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(filesystem.read("/from").unwrap().len(), 9 << 20);
        filesystem.close().unwrap();
    }
}

/// Pieces of any length, flushes between them, by copy and without.
#[test]
fn streams_are_readers_and_writers_of_std() {
    let filesystem = open(DirectIo::Required);
    let mut whole = Vec::new();
    let options = filesystem.open_options().read(true).write(true).create(true);
    let mut writer = DirectWriter::new(options.open("/file").unwrap(), 0, 8192, 3).unwrap();
    for (round, len) in [1, 511, 512, 20_000, 8192, 3, 100_001, 4096, 77].into_iter().enumerate() {
        let data = pattern(len, round as u64);
        writer.write_all(&data).unwrap();
        whole.extend_from_slice(&data);
        if round % 3 == 1 {
            writer.flush().unwrap();
            // All that is a whole block is in the file.
            let blocks = whole.len() / 512 * 512;
            let mut memory = diorite::AlignedBuf::zeroed(blocks.next_multiple_of(4096), 4096);
            assert_eq!(options.open("/file").unwrap().read_at(&mut memory, 0).unwrap(), blocks);
            assert!(memory[..blocks] == whole[..blocks]);
        }
    }
    let buffer = writer.buffer().unwrap();
    let len = buffer.len().min(33);
    buffer[..len].fill(9);
    whole.extend(std::iter::repeat_n(9, len));
    writer.submit(len).unwrap();
    assert!(writer.write(&[1]).is_err() || len == 33 && whole.len() % 8192 == 0);
    drop(writer.finish().unwrap());
    assert!(filesystem.read("/file").unwrap() == whole);

    let mut read = Vec::new();
    let file = options.open("/file").unwrap();
    DirectReader::new(file.clone(), 0, 8192, 3).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == whole);
    let mut reader = DirectReader::new(file.clone(), 0, 8192, 3).unwrap();
    let first = reader.fill_buf().unwrap()[..10].to_vec();
    reader.consume(10);
    assert_eq!((&first[..], reader.next_chunk().unwrap().unwrap()), (&whole[..10], &whole[10..8192]));
    assert_eq!(reader.next_chunk().unwrap().unwrap(), &whole[8192..16384]);
    drop(reader);
    let lines = DirectReader::new(file, 0, 8192, 3).unwrap().split(b'\n').count();
    assert_eq!(lines, whole.split(|byte| *byte == b'\n').count());
    filesystem.close().unwrap();
}

/// Buffers that a file has no use for are not made; a number that no machine has memory for is an error that names the limit. Both took
/// memory until there was none.
#[test]
fn streams_take_no_memory_that_they_cannot_use() {
    let filesystem = open(DirectIo::Required);
    let whole = pattern(100_000, 3);
    filesystem.write("/file", &whole).unwrap();
    filesystem.write("/empty", []).unwrap();
    let options = filesystem.open_options().read(true).write(true);
    let file = options.open("/file").unwrap();
    for (offset, buffers) in [(0, u32::MAX), (8192, u32::MAX), (1 << 40, u32::MAX), (0, 1)] {
        let mut read = Vec::new();
        DirectReader::new(file.clone(), offset, 4096, buffers).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == whole[whole.len().min(offset as usize)..], "{offset} {buffers}");
        let queue = AsyncQueue::new(4).unwrap();
        let mut reader = AsyncReader::new(&queue, file.clone(), offset, 4096, buffers).unwrap();
        let first = queue.run(reader.next_chunk()).unwrap().map(<[u8]>::len);
        assert_eq!(first, (offset < 100_000).then_some(4096));
    }
    let mut empty = DirectReader::new(options.open("/empty").unwrap(), 0, 1 << 20, u32::MAX).unwrap();
    assert!(empty.next_chunk().unwrap().is_none());
    let queue = AsyncQueue::new(4).unwrap();
    for (bytes, buffers, is_allowed) in [
        (4096, u32::MAX, false),
        (4096, 4097, false),
        (4096, 4096, true),
        (1 << 30, 5, false),
        (usize::MAX - 4095, 1, false),
    ] {
        let results = [
            DirectWriter::new(file.clone(), 0, bytes, buffers).map(drop),
            AsyncWriter::new(&queue, file.clone(), 0, bytes, buffers).map(drop),
        ];
        for result in results {
            match result {
                Ok(()) => assert!(is_allowed, "{buffers} of {bytes}"),
                Err(error) => {
                    assert!(!is_allowed && error.kind() == ErrorKind::InvalidInput, "{error}");
                    assert!(error.to_string().contains("at most 4096 buffers, and 4 GiB"), "{error}");
                }
            }
        }
    }
}
