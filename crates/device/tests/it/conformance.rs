//! One suite for every device: the same calls give the same results on each back end.
//!
//! Each test below opens one kind of device and runs all of [`suite::run`] on it.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use std::sync::Arc;

use common::{LoopDevice, image, suite};
use diorite_block::{BlockDevice, Geometry, Sector};
use diorite_device::{Backend, DirectIo, FileDevice, JoinedDevice, OpenOptions, PartitionDevice};
use diorite_scheduler::ScheduledDevice;
use diorite_sim::image::ImageDevice;

const BYTES: u64 = 8 << 20;

fn file(backend: Backend, direct: DirectIo) {
    let (_directory, path) = image(BYTES);
    let options = OpenOptions::read_write().backend(backend).direct(direct);
    let device = FileDevice::open(&path, &options).unwrap();
    assert_eq!(device.is_direct(), direct != DirectIo::Off);
    assert_eq!(device.backend(), backend);
    suite::run(device.clone());
    drop(device);
    let read_only = OpenOptions::read_only().backend(backend).direct(direct);
    suite::read_only(FileDevice::open(&path, &read_only).unwrap());
    let device = FileDevice::open(&path, &options).unwrap();
    suite::truncated_underneath(device, &path);
}

#[test]
fn file_io_uring_direct() {
    file(Backend::IoUring, DirectIo::Required);
}

#[test]
fn file_io_uring_buffered() {
    file(Backend::IoUring, DirectIo::Off);
}

#[test]
fn file_threads_direct() {
    file(Backend::Threads, DirectIo::Required);
}

#[test]
fn file_threads_buffered() {
    file(Backend::Threads, DirectIo::Off);
}

/// Through the queue that the threads of a scheduled device share.
#[test]
fn files_with_a_scheduler() {
    for backend in [Backend::IoUring, Backend::Threads] {
        for scheduler in ["deadline", "cfq:fixed", "inject"] {
            let scheduled = |lower: Arc<dyn BlockDevice>| {
                ScheduledDevice::of_kind(&lower, scheduler.parse().unwrap()).unwrap()
            };
            let (_directory, path) = image(BYTES);
            let options = OpenOptions::read_write().backend(backend).direct(DirectIo::Required);
            let file = FileDevice::open(&path, &options).unwrap();
            suite::run(scheduled(file.clone()));
            let window = PartitionDevice::window(file, "window".into(), Sector(8), BYTES - 8192).unwrap();
            suite::run(scheduled(window));
        }
    }
}

#[test]
fn block_device() {
    for backend in [Backend::IoUring, Backend::Threads] {
        for sector_size in [512, 4096] {
            let (_directory, path) = image(BYTES);
            let Some(disk) = LoopDevice::attach(&path, sector_size) else { return };
            let options = OpenOptions::read_write().backend(backend).direct(DirectIo::Required);
            let device = FileDevice::open(disk.path(), &options).unwrap();
            assert!(device.is_block_device());
            assert_eq!(device.geometry().logical_block_size, sector_size);
            suite::run(device);
            suite::read_only(FileDevice::open(disk.path(), &OpenOptions::read_only()).unwrap());
        }
    }
}

/// Through the host's page cache there are no large sectors.
#[test]
fn block_device_buffered() {
    let (_directory, path) = image(BYTES);
    let Some(disk) = LoopDevice::attach(&path, 4096) else { return };
    let device = FileDevice::open(disk.path(), &OpenOptions::read_write().direct(DirectIo::Off)).unwrap();
    assert_eq!(device.geometry().logical_block_size, 512);
    suite::run(device);
}

#[test]
fn memory() {
    suite::run(ImageDevice::zeroed(BYTES));
}

#[test]
fn memory_with_4096_byte_blocks() {
    let geometry = Geometry {
        logical_block_size: 4096,
        memory_alignment: 512,
        max_transfer_bytes: 64 << 10,
        max_segments: 4,
        ..ImageDevice::geometry_for(BYTES)
    };
    suite::run(ImageDevice::zeroed_with(geometry.clone()));
    suite::read_only(ImageDevice::zeroed_with(Geometry { read_only: true, ..geometry }));
}

#[test]
fn partition() {
    let (_directory, path) = image(2 * BYTES);
    for direct in [DirectIo::Required, DirectIo::Off] {
        let options = OpenOptions::read_write().direct(direct);
        let outer: Arc<dyn BlockDevice> = FileDevice::open(&path, &options).unwrap();
        suite::run(PartitionDevice::window(outer, "window".into(), Sector(2048), BYTES).unwrap());
    }
    let memory = ImageDevice::zeroed(2 * BYTES);
    suite::run(PartitionDevice::window(memory, "window".into(), Sector(63), BYTES).unwrap());
}

/// Files and windows on files, striped and in a row, with each back end; then with memory among them.
#[test]
fn joined() {
    for (backend, direct) in [
        (Backend::IoUring, DirectIo::Required),
        (Backend::IoUring, DirectIo::Off),
        (Backend::Threads, DirectIo::Required),
    ] {
        let images = [image(BYTES), image(BYTES), image(2 * BYTES)];
        let options = OpenOptions::read_write().backend(backend).direct(direct);
        let children = || -> Vec<Arc<dyn BlockDevice>> {
            let open = |path| FileDevice::open(path, &options).unwrap();
            let window = PartitionDevice::window(open(&images[2].1), "window".into(), Sector(8), BYTES);
            vec![open(&images[0].1), open(&images[1].1), window.unwrap()]
        };
        suite::run(JoinedDevice::striped(children(), 64 << 10).unwrap());
        suite::run(JoinedDevice::striped(children(), 4096).unwrap());
        suite::run(JoinedDevice::linear(children()).unwrap());
        let mut mixed = children();
        mixed[1] = ImageDevice::zeroed(BYTES);
        suite::run(JoinedDevice::striped(mixed, 16 << 10).unwrap());
    }
    let memory = || -> Arc<dyn BlockDevice> { ImageDevice::zeroed(BYTES) };
    let inner: Arc<dyn BlockDevice> = JoinedDevice::linear(vec![memory(), memory()]).unwrap();
    suite::run(JoinedDevice::striped(vec![inner, memory(), memory()], 1 << 20).unwrap());
}
