//! Atomic writes (`IoFlags::ATOMIC`): after a power cut at any moment, all of the write is on the disk or nothing of it, on a device that tears
//! other writes. A write that cannot be atomic fails, and changes nothing.

use std::io::IoSlice;
use std::sync::Arc;

use diorite::mkfs::mkfs;
use diorite::{AlignedBuf, BlockDevice, DirectIo, ErrorKind, File, Filesystem, FilesystemOptions, IoFlags};
use diorite_sim::crash::{Loss, RecordingDevice};
use diorite_torture::disk::{disk, marked};
use diorite_torture::formats::Format;
use diorite_torture::random::Random;

const UNIT: usize = 16 << 10;

fn memory(value: u8, len: usize) -> AlignedBuf {
    let mut memory = AlignedBuf::zeroed(len, 4096);
    memory.fill(value);
    memory
}

fn volume(format: &str, seed: u64) -> (Arc<RecordingDevice>, Filesystem) {
    let format = Format::by_name(format).expect("format");
    let disk = disk(marked(format.megabytes << 20), false, seed);
    mkfs(&*disk, &format.options(seed)).expect("mkfs");
    let filesystem =
        FilesystemOptions::new().open_device(disk.clone() as Arc<dyn BlockDevice>).expect("open");
    (disk, filesystem)
}

fn open(filesystem: &Filesystem) -> File {
    let options = filesystem.open_options().read(true).write(true).create(true);
    options.direct(DirectIo::Required).open("/file").expect("open")
}

/// Overwrites of units, then cuts at every event: whether each unit is of one write.
fn overwrites(flags: IoFlags, seed: u64) -> bool {
    let (disk, filesystem) = volume("ext4-4k-bigalloc", seed);
    let file = open(&filesystem);
    file.write_all_at(&memory(1, 4 * UNIT), 0).expect("fill");
    // Also a hole, and blocks that were never written.
    file.set_len(16 * UNIT as u64).expect("size");
    file.allocate(8 * UNIT as u64, 4 * UNIT as u64).expect("allocate");
    filesystem.sync().expect("sync");
    let begin = disk.now();
    for round in 0..12_u8 {
        let at = u64::from(round) * 5 % 12 * UNIT as u64;
        let written = file.write_with(&[IoSlice::new(&memory(round + 2, UNIT))], at, flags);
        assert_eq!(written.expect("write"), UNIT);
    }
    let recording = disk.recording();
    drop((file, filesystem));
    let mut random = Random::new(seed);
    let mut replay = recording.replay();
    let mut is_whole = true;
    for event in begin..recording.event_count() {
        replay.advance(event);
        if random.one_in(3) {
            continue;
        }
        for loss in [Loss::Sectors, Loss::Some] {
            let image = replay.point().image_after(loss, &(2..4), random.number());
            let disk = diorite_torture::disk::disk(image, false, seed);
            let filesystem =
                FilesystemOptions::new().open_device(disk as Arc<dyn BlockDevice>).expect("open");
            let mut bytes = memory(0, 16 * UNIT);
            open(&filesystem).read_exact_at(&mut bytes, 0).expect("read");
            is_whole &= bytes.chunks(UNIT).all(|unit| unit.iter().all(|byte| *byte == unit[0]));
            filesystem.close().expect("close");
        }
    }
    is_whole
}

#[test]
fn an_atomic_write_is_never_torn() {
    for seed in 0..3 {
        assert!(overwrites(IoFlags::ATOMIC, seed), "seed {seed}");
    }
}

/// The device of this test does tear other writes.
#[test]
fn another_write_is_torn() {
    assert!((0..3).any(|seed| !overwrites(IoFlags::NONE, seed)));
}

#[test]
fn what_cannot_be_promised_fails() {
    let (_, filesystem) = volume("ext4-4k", 1);
    let file = open(&filesystem);
    assert_eq!(file.alignment().atomic_write as usize, UNIT);
    file.write_all_at(&memory(1, 8 * UNIT), 0).expect("fill");
    let data = memory(2, 2 * UNIT);
    let write = |len: usize, at: usize, file: &File| {
        file.write_with(&[IoSlice::new(&data[..len])], at as u64, IoFlags::ATOMIC)
            .map_err(|error| error.kind())
    };
    assert_eq!(write(2 * UNIT, 0, &file), Err(ErrorKind::InvalidInput), "larger than the device's unit");
    assert_eq!(write(12 << 10, 0, &file), Err(ErrorKind::InvalidInput), "no power of two");
    assert_eq!(
        write(8 << 10, 4 << 10, &file),
        Err(ErrorKind::InvalidInput),
        "not at a multiple of its length"
    );
    assert_eq!(write(100, 0, &file), Err(ErrorKind::InvalidAlignment));
    assert_eq!(write(4096, 8 * UNIT, &file), Err(ErrorKind::Unsupported), "beyond the end");
    let buffered = filesystem.open_options().read(true).write(true).open("/file").expect("open");
    assert_eq!(write(4096, 0, &buffered), Err(ErrorKind::Unsupported), "through the cache");
    let segments: Vec<IoSlice<'_>> = data[..UNIT].chunks(128).map(IoSlice::new).collect();
    let scattered = file.write_with(&segments, 0, IoFlags::ATOMIC).map_err(|error| error.kind());
    assert!(matches!(scattered, Err(ErrorKind::InvalidAlignment)), "{scattered:?}");
    let mut now = memory(0, 8 * UNIT);
    file.read_exact_at(&mut now, 0).expect("read");
    assert!(now.iter().all(|byte| *byte == 1), "nothing was written");
    assert_eq!(write(4096, 4096, &file), Ok(4096), "a block is always in one piece");
    let plain = diorite_sim::image::ImageDevice::zeroed(32 << 20);
    mkfs(&*plain, &diorite::mkfs::MkfsOptions::default()).expect("mkfs");
    let filesystem = FilesystemOptions::new().open_device(plain as Arc<dyn BlockDevice>).expect("open");
    let file = open(&filesystem);
    file.write_all_at(&memory(1, 4096), 0).expect("fill");
    assert_eq!(write(4096, 0, &file), Err(ErrorKind::Unsupported), "the device promises nothing");
}
