//! Drivers that report a finer alignment than they respect. zram reports 512 bytes for memory, and moves whole pages: a read into memory
//! that lies across pages wrote beside it, into the program's heap.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![expect(clippy::disallowed_methods, reason = "switches of the kernel are files, too")]

use crate::common;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use common::{LoopDevice, is_root};
use diorite_block::{BioFlags, BlockDevice};
use diorite_device::{AlignedBuf, Backend, DirectIo, FileDevice, OpenOptions};

/// Devices of zram have a table for the whole machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A compressed disk in memory, removed when dropped.
struct Zram(u32);

impl Zram {
    /// None, with a visible reason, where there can be none.
    fn new(bytes: u64) -> Option<Self> {
        let control = Path::new("/sys/class/zram-control/hot_add");
        if !is_root() || !control.exists() {
            println!("SKIPPED: zram devices need root and a kernel with zram-control");
            return None;
        }
        let number = match std::fs::read_to_string(control) {
            Ok(number) => number.trim().parse().unwrap(),
            Err(error) => {
                println!("SKIPPED: no zram device: {error}");
                return None;
            }
        };
        let device = Self(number);
        std::fs::write(format!("/sys/block/zram{number}/disksize"), bytes.to_string()).unwrap();
        Some(device)
    }

    fn path(&self) -> PathBuf {
        format!("/dev/zram{}", self.0).into()
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", self.0.to_string());
    }
}

/// A filesystem of the kernel on a device, unmounted when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(device: &Path) -> Option<Self> {
        let made = Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(device).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("SKIPPED: no mke2fs");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").arg(device).arg(directory.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            println!("SKIPPED: mount refused");
            return None;
        }
        Some(Self(directory))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Busy for a moment where another thread starts a program.
        let unmounted = |_| {
            let status = Command::new("umount").arg(self.0.path()).status();
            let ends = status.is_ok_and(|status| status.success());
            (!ends).then(|| std::thread::sleep(std::time::Duration::from_millis(100)));
            ends
        };
        let ends = (0..50).any(unmounted);
        assert!(ends || std::thread::panicking(), "it cannot be unmounted");
    }
}

const BYTES: usize = 256 << 10;

/// Writes and reads with memory as badly aligned as is allowed, guarded on both sides; the bytes are what another way reads.
fn keeps_to_its_memory(path: &Path, backend: Backend) {
    let options = OpenOptions::read_write().direct(DirectIo::Required).backend(backend);
    let device = FileDevice::open(path, &options).unwrap();
    let memory = device.geometry().memory_alignment as usize;
    assert!(memory >= 4096, "{}: {memory} bytes were believed", path.display());
    let start = 4096 + memory;
    let mut buffer = AlignedBuf::zeroed(start + BYTES + 8192, 8192);
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = (at / 7 % 251) as u8 | 1;
    }
    let written = buffer[start..start + BYTES].to_vec();
    let device: &dyn BlockDevice = &*device;
    device.write_bytes(64 << 10, &buffer[start..start + BYTES], BioFlags::SYNC).unwrap();
    buffer.fill(0xA5);
    device.read_bytes(64 << 10, &mut buffer[start..start + BYTES]).unwrap();
    assert!(buffer[start..start + BYTES] == written, "{}: other bytes", path.display());
    let mut beside = buffer[..start].iter().chain(&buffer[start + BYTES..]);
    assert!(beside.all(|byte| *byte == 0xA5), "{}: written beside the memory", path.display());
}

#[test]
fn a_device_that_moves_whole_pages_is_given_whole_pages() {
    let _guard = ONE_AT_A_TIME.lock();
    let Some(zram) = Zram::new(64 << 20) else { return };
    // Fresh, where nothing can be seen of it; then with a filesystem on it.
    keeps_to_its_memory(&zram.path(), Backend::IoUring);
    let made = Command::new("mke2fs").args(["-q", "-F", "-t", "ext2"]).arg(zram.path()).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no mke2fs");
        return;
    }
    keeps_to_its_memory(&zram.path(), Backend::Threads);
}

/// A new image is one hole, which the filesystem fills with zeros by itself: a read of it proves nothing about the driver below.
#[test]
fn an_image_on_such_a_device_is_given_whole_pages() {
    let _guard = ONE_AT_A_TIME.lock();
    let Some(zram) = Zram::new(64 << 20) else { return };
    let Some(mounted) = Mounted::new(&zram.path()) else { return };
    let image = mounted.0.path().join("image");
    common::make_file(&image, 8 << 20);
    keeps_to_its_memory(&image, Backend::IoUring);
    keeps_to_its_memory(&image, Backend::Threads);
    let other = mounted.0.path().join("backing file");
    common::make_file(&other, 8 << 20);
    let Some(disk) = LoopDevice::attach(&other, 4096) else { return };
    keeps_to_its_memory(disk.path(), Backend::IoUring);
}
