//! Files of the host and whole devices: the same calls and guarantees as for a file of a volume, with another mapping.

use crate::common;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use common::{Random, Watched, aligned_pattern, pattern};
use diorite::{AlignedBuf, BlockDevice, DirectIo, ErrorKind, HostFile, OpenOptions, RawFile, Unaligned};
use diorite_block::Geometry;
use diorite_sim::image::ImageDevice;

fn options<P>(options: OpenOptions<P>, kind: u64) -> OpenOptions<P> {
    let options = options.read(true).write(true);
    match kind {
        0 => options,
        1 => options.direct(DirectIo::Preferred),
        _ => options.direct(DirectIo::Preferred).unaligned(Unaligned::Bounce),
    }
}

/// Random writes and cuts of each kind, each handle closed before the next opens, against a vector and the host's own reading.
#[test]
fn a_host_file_is_what_the_host_reads() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("file");
    let mut model: Vec<u8> = Vec::new();
    let mut random = Random(99);
    for round in 0..60 {
        let file = options(HostFile::options().create(true), random.below(3)).open(&path).expect("open");
        for step in 0..4 {
            let (offset, len) = (random.below(60_000) as usize, random.below(9_000) as usize + 1);
            if random.below(6) == 0 {
                file.set_len(offset as u64).expect("cut");
                model.resize(offset, 0);
            } else {
                let data = pattern(len, round * 10 + step);
                file.write_all_at(&data, offset as u64).expect("write");
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&data);
            }
            let mut memory = vec![0xee; model.len() + 100];
            let got = file.read_at(&mut memory, 0).expect("read");
            assert!(got == model.len() && memory[..got] == model[..], "round {round}");
        }
        assert_eq!(file.metadata().expect("stat").size, model.len() as u64);
        drop(file);
        #[expect(clippy::disallowed_methods, reason = "the judge")]
        let host = std::fs::read(&path).expect("read");
        assert!(host == model, "round {round}: {} and {} bytes", host.len(), model.len());
    }
}

#[test]
fn a_raw_device_is_one_file_of_fixed_size() {
    let device: Arc<dyn BlockDevice> = ImageDevice::zeroed((1 << 20) + 1536);
    for kind in 0..3 {
        let file = options(RawFile::options(), kind).open_device(device.clone(), 1 << 20).expect("open");
        assert_eq!(file.size(), (1 << 20) + 1536);
        let data = aligned_pattern(5 * 4096, kind);
        file.write_all_at(&data, (1 << 20) + 1536 - data.len() as u64).expect("write up to the end");
        assert_eq!(
            file.write_at(&data, (1 << 20) - 4096).expect_err("beyond the end").kind(),
            ErrorKind::FileTooLarge
        );
        assert!(file.set_len(4096).is_err());
        drop(file);
        let mut memory = aligned_pattern(data.len(), 100);
        device.read_bytes((1 << 20) + 1536 - data.len() as u64, &mut memory).expect("read");
        assert!(memory[..] == data[..], "kind {kind}");
    }
}

/// Segments of any multiples of a sector, at any sector, are one request: what buffers in a list were to raw devices of 2002.
#[test]
fn segments_of_any_sectors_are_one_request() {
    let geometry = Geometry { memory_alignment: 512, max_segments: 64, ..ImageDevice::geometry_for(1 << 20) };
    let device: Arc<dyn BlockDevice> = ImageDevice::zeroed_with(geometry);
    let file = options(RawFile::options(), 1)
        .direct(DirectIo::Required)
        .open_device(device.clone(), 0)
        .expect("open");
    let sectors = [1, 3, 8, 2, 17, 1, 5];
    let mut parts: Vec<_> = sectors.iter().map(|count| AlignedBuf::zeroed(count * 512, 512)).collect();
    for (part, number) in parts.iter_mut().zip(1..) {
        part.fill(number);
    }
    let before = device.counters().snapshot();
    let len: usize = sectors.iter().sum::<usize>() * 512;
    let segments: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    assert_eq!(file.write_vectored_at(&segments, 7 * 512).expect("written"), len);
    let written = device.counters().snapshot().since(before);
    assert_eq!((written.writes, written.write_bytes), (1, len as u64));
    let mut back: Vec<_> = sectors.iter().rev().map(|count| AlignedBuf::zeroed(count * 512, 512)).collect();
    let mut segments: Vec<_> = back.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    assert_eq!(file.read_vectored_at(&mut segments, 7 * 512).expect("read"), len);
    let read = device.counters().snapshot().since(before);
    assert_eq!((read.reads, read.read_bytes), (1, len as u64));
    let (there, again): (Vec<u8>, Vec<u8>) = (
        parts.iter().flat_map(|part| part.to_vec()).collect(),
        back.iter().flat_map(|part| part.to_vec()).collect(),
    );
    assert!(there == again);
}

/// `close` says what could not be written back, which a drop keeps to itself.
#[test]
fn closing_reports_what_could_not_be_written() {
    let device = Watched::new(ImageDevice::zeroed(1 << 20), |_| {});
    let open = || {
        let shared: Arc<dyn BlockDevice> = device.clone();
        options(RawFile::options(), 0).open_device(shared, 1 << 20).expect("open")
    };
    let file = open();
    file.write_all_at(&[7; 10_000], 5000).expect("cached");
    file.close().expect("written back");
    let mut there = [0; 10_000];
    open().read_exact_at(&mut there, 5000).expect("read");
    assert_eq!(there, [7; 10_000]);
    let file = open();
    file.write_all_at(&[8; 10_000], 5000).expect("cached");
    device.writes_fail_from.store(0, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(file.close().expect_err("the device fails").kind(), ErrorKind::Io);
}

/// After the end of a file there is nothing to align: the last read of a file that ends within a block begins there.
#[test]
fn a_direct_read_after_the_end_returns_nothing() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("file");
    options(HostFile::options().create(true), 0)
        .open(&path)
        .and_then(|file| file.append(&[1; 5000]))
        .expect("made");
    let file = options(HostFile::options(), 1).direct(DirectIo::Required).open(&path).expect("open");
    let mut memory = file.buffer(4096).expect("memory");
    for offset in [5000, 5001, 8192, 1 << 40] {
        assert_eq!(file.read_at(&mut memory, offset).expect("the end"), 0, "at {offset}");
    }
    assert_eq!(file.read_at(&mut memory[..100], 5000).expect("the end"), 0);
    assert!(file.read_at(&mut memory, 1000).is_err(), "before the end it is to be aligned");
}
