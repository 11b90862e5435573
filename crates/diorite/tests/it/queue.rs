//! Transfers in flight take effect in the order of submission, whatever their order of completion.

use crate::common;
use std::sync::atomic::Ordering::SeqCst;

use common::{Random, Watched, aligned_pattern, assert_device_clean, memory_volume, pattern};
use diorite::{
    AlignedBuf, DirectIo, DirectQueue, DirectReader, DirectWriter, ErrorKind, Filesystem, FilesystemOptions,
};
use diorite_ext_tools::mkfs::MkfsOptions;

fn open() -> (std::sync::Arc<dyn diorite::BlockDevice>, Filesystem) {
    let device = memory_volume(64, &MkfsOptions::default());
    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    (device, filesystem)
}

/// A queue that keeps its transfers in flight, and one that runs them together.
const KINDS: [fn(u32) -> DirectQueue; 2] = [DirectQueue::new, DirectQueue::batched];

/// generic/207, 239, 465: when a completion is delivered, size and content are there.
#[test]
fn a_completion_comes_after_size_and_mapping() {
    KINDS.into_iter().for_each(size_and_mapping_of);
}

fn size_and_mapping_of(queue: fn(u32) -> DirectQueue) {
    let (device, filesystem) = open();
    let file = filesystem.create_file("/file").expect("create");
    let mut queue = queue(8);
    let mut done = Vec::new();
    let mut random = Random(7);
    let mut expected = vec![0; 1 << 20];
    for round in 0..400_u64 {
        let block = random.below(256);
        let len = 512 << random.below(4);
        let mut memory = AlignedBuf::zeroed(4096, 4096);
        memory.copy_from_slice(&pattern(4096, round));
        let offset = block * 4096;
        expected[offset as usize..offset as usize + len].copy_from_slice(&memory[..len]);
        while queue.in_flight() == 8 {
            queue.reap(1, &mut done).expect("reap");
        }
        queue.write(&file, offset, memory, len, round).expect("submit");
        for finished in done.drain(..) {
            finished.result.expect("write");
        }
    }
    while queue.in_flight() > 0 {
        queue.reap(8, &mut done).expect("reap");
    }
    for finished in done.drain(..) {
        finished.result.expect("write");
    }
    let size = file.size() as usize;
    for offset in (0..size).step_by(4096) {
        while queue.in_flight() == 8 {
            queue.reap(1, &mut done).expect("reap");
        }
        queue
            .read(&file, offset as u64, AlignedBuf::zeroed(4096, 4096), 4096, offset as u64)
            .expect("submit");
    }
    while queue.in_flight() > 0 {
        queue.reap(8, &mut done).expect("reap");
    }
    for finished in &done {
        let got = *finished.result.as_ref().expect("read");
        let at = finished.tag as usize;
        assert!(finished.memory[..got] == expected[at..at + got], "at {at}");
    }
    assert_eq!(filesystem.stats().bytes_copied, 0, "ARCHITECTURE invariant 1");
    drop((queue, file));
    filesystem.close().expect("close");
    assert_device_clean(&device);
}

#[test]
fn overlapping_transfers_of_one_queue_take_effect_in_order() {
    KINDS.into_iter().for_each(order_of);
}

fn order_of(queue: fn(u32) -> DirectQueue) {
    let (_, filesystem) = open();
    let file = filesystem.create_file("/file").expect("create");
    let mut queue = queue(16);
    for round in 0..16_u8 {
        let mut memory = AlignedBuf::zeroed(8192, 4096);
        memory.fill(round);
        queue.write(&file, 4096, memory, 8192, 0).expect("submit");
    }
    if let Err(refused) = queue.read(&file, 0, AlignedBuf::zeroed(16384, 4096), 16384, 1) {
        assert!(refused.is_full(), "{refused}");
    }
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.reap(1, &mut done).expect("reap");
    }
    let mut memory = [1; 12288];
    file.read_exact_at(&mut memory, 0).expect("read");
    assert!(memory[..4096].iter().all(|byte| *byte == 0) && memory[4096..].iter().all(|byte| *byte == 15));
}

/// A wait for one transfer of a batch is a wait for all; where one fails, only that one does.
#[test]
fn a_batch_ends_as_a_whole_and_each_transfer_has_its_own_result() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    let options = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
    let file = options.open("/file").expect("create");
    file.write_all_at(&aligned_pattern(16 * 4096, 1), 0).expect("write");
    let fails_from = file.extents().expect("extents")[0].sector.expect("data").to_bytes() + 8 * 4096;
    for (fails_from, failing) in [(u64::MAX, 0), (fails_from, 8)] {
        device.writes_fail_from.store(fails_from, SeqCst);
        let mut queue = DirectQueue::batched(32);
        for page in 0..16 {
            queue.write(&file, page * 4096, aligned_pattern(4096, page), 4096, page).expect("submit");
        }
        assert_eq!(queue.in_flight(), 16);
        let mut done = Vec::new();
        assert_eq!(queue.reap(1, &mut done).expect("reap"), 16);
        for finished in done {
            assert_eq!(finished.result.is_err(), finished.tag >= 16 - failing, "page {}", finished.tag);
            assert!(finished.memory[..] == pattern(4096, finished.tag), "its own memory");
        }
    }
    device.writes_fail_from.store(u64::MAX, SeqCst);
    let mut content = AlignedBuf::zeroed(8 * 4096, 4096);
    file.read_exact_at(&mut content, 0).expect("read");
    assert!((0..8).all(|page| content[page * 4096..][..4096] == pattern(4096, page as u64)));
}

#[test]
fn streams_carry_any_length_without_a_copy() {
    let (device, filesystem) = open();
    for (round, len) in [0, 1, 511, 512, 4096, 65536, 65537, 1 << 20, (3 << 20) + 777].into_iter().enumerate()
    {
        let data = pattern(len, round as u64);
        let path = format!("/stream{round}");
        let options =
            filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
        let mut writer =
            DirectWriter::new(options.open(&path).expect("create"), 0, 65536, 4).expect("writer");
        for chunk in data.chunks(65536) {
            writer.buffer().expect("buffer")[..chunk.len()].copy_from_slice(chunk);
            writer.submit(chunk.len()).expect("submit");
        }
        let file = writer.finish().expect("finish");
        assert_eq!(file.size(), len as u64);
        let mut reader = DirectReader::new(file, 0, 16384, 5).expect("reader");
        let mut read = Vec::new();
        while let Some(chunk) = reader.next_chunk().expect("read") {
            read.extend_from_slice(chunk);
        }
        assert!(read == data, "{len} bytes");
    }
    assert!(filesystem.stats().bytes_copied < 9 * 512, "only the tails");
    filesystem.close().expect("close");
    assert_device_clean(&device);
}

/// A writer whose caller ignored the error of a submission finished with success, over a gap.
#[test]
fn a_stream_ends_with_its_first_error() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    let options = filesystem.open_options().write(true).create(true).direct(DirectIo::Required);
    let mut writer = DirectWriter::new(options.open("/file").expect("create"), 0, 8192, 3).expect("writer");
    let mut failed = 0;
    for round in 0..12 {
        device.writes_fail_from.store(if round == 4 { 0 } else { u64::MAX }, SeqCst);
        let submitted = writer.buffer().map(drop).and_then(|()| writer.submit(8192));
        failed += u64::from(submitted.is_err_and(|error| error.kind() == ErrorKind::Io));
    }
    assert!(failed > 0, "some call has reported it");
    let error = writer.finish().map(drop).expect_err("it is reported again");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

/// A file that ends within a block is read block by block to its end: the last read is short, and the one that begins where it ended is empty, as by
/// `read_at`. It was refused as unaligned.
#[test]
fn reads_at_an_unaligned_end_are_short_and_empty() {
    for queue in KINDS {
        let (_device, filesystem) = open();
        let content = pattern(4096 + 1000, 3);
        filesystem.write("/file", &content).expect("write");
        let file =
            filesystem.open_options().read(true).direct(DirectIo::Required).open("/file").expect("open");
        let mut queue = queue(2);
        let (mut offset, mut found) = (0, Vec::new());
        loop {
            queue.read(&file, offset, AlignedBuf::zeroed(4096, 4096), 4096, 1).expect("submit");
            let finished = queue.next_finished().expect("reap").expect("in flight");
            let len = finished.result.expect("read");
            assert_eq!(len, file.read_at(&mut AlignedBuf::zeroed(4096, 4096), offset).expect("read"));
            found.extend_from_slice(&finished.memory[..len]);
            offset += len as u64;
            if len == 0 {
                break;
            }
        }
        assert_eq!(found, content);
        // Before the end the alignment counts.
        for (offset, len) in [(1, 4096), (4096, 1000), (5000, 4096)] {
            let refused = queue.read(&file, offset, AlignedBuf::zeroed(4096, 4096), len, 1);
            let error = refused.expect_err("unaligned").error;
            assert_eq!(error.kind(), ErrorKind::InvalidAlignment, "{offset} {len}: {error}");
        }
        assert_eq!(queue.in_flight(), 0);
    }
}

/// A sync does not wait for a write in flight, as in the kernel: it waited for itself, where dirty pages were near.
#[test]
fn a_sync_beside_an_unreaped_write_ends() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for queue in KINDS {
            let (device, filesystem) = open();
            let cached = filesystem.create_file("/file").expect("create");
            cached.write_all_at(&pattern(1 << 20, 1), 0).expect("write");
            cached.sync_all().expect("sync");
            let direct = filesystem
                .open_options()
                .read(true)
                .write(true)
                .direct(DirectIo::Required)
                .open("/file")
                .expect("open");
            let mut queue = queue(2);
            let mut memory = AlignedBuf::zeroed(8192, 4096);
            memory.fill(9);
            queue.write(&direct, 16384, memory, 8192, 1).expect("submit");
            for offset in [0, 8192, 12288, 24576, 40960] {
                cached.write_all_at(&[7; 4096], offset).expect("another range");
            }
            cached.sync_data().expect("sync");
            direct.sync_all().expect("sync");
            filesystem.sync().expect("sync");
            // The data of the sync is on the device, without transfers in flight.
            queue.next_finished().expect("reap").expect("in flight").result.expect("written");
            drop((queue, cached, direct));
            let mut expected = pattern(1 << 20, 1);
            for offset in [0, 8192, 12288, 24576, 40960] {
                expected[offset..offset + 4096].fill(7);
            }
            expected[16384..24576].fill(9);
            assert_eq!(filesystem.read("/file").expect("read"), expected);
            filesystem.close().expect("close");
            assert_device_clean(&device);
        }
        sender.send(()).expect("the test waits");
    });
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the sync ends");
}
