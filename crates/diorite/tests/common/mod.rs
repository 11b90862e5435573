//! What the scenarios share: volumes on memory and in files, and the judge.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each scenario uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use diorite::{BlockDevice, Filesystem, FilesystemOptions};
use diorite_device::{Create, FileDevice, MemoryDevice, OpenOptions};
use diorite_ext::mkfs::{MkfsOptions, mkfs};

/// An empty ext2 volume in memory.
pub fn memory_volume(megabytes: u64, options: &MkfsOptions) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = MemoryDevice::new(megabytes << 20);
    mkfs(&*device, options).expect("mkfs");
    device
}

/// An empty volume in memory, open.
pub fn open_memory(megabytes: u64, options: &MkfsOptions, with: &FilesystemOptions) -> Filesystem {
    with.open_device(memory_volume(megabytes, options)).expect("open")
}

/// An image file with an empty volume.
pub struct Image {
    pub directory: tempfile::TempDir,
    pub path: PathBuf,
}

impl Image {
    pub fn new(megabytes: u64, options: &MkfsOptions) -> Self {
        let directory = tempfile::Builder::new().prefix("diorite-").tempdir().expect("directory");
        let path = directory.path().join("disk.img");
        let open = OpenOptions::read_write().create(Create::NewSized(megabytes << 20));
        let device: Arc<dyn BlockDevice> = FileDevice::open(&path, &open).expect("image");
        mkfs(&*device, options).expect("mkfs");
        Self { directory, path }
    }
}

/// `e2fsck -fn` finds nothing; `false`, and a word about it, where there is no e2fsck.
pub fn assert_clean(image: &Path) -> bool {
    match Command::new("e2fsck").arg("-fn").arg(image).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "e2fsck -fn {}:\n{text}", image.display());
            true
        }
        Err(error) => {
            println!("SKIPPED: e2fsck: {error}");
            false
        }
    }
}

/// Copy what is on a device to a file and have it judged.
pub fn assert_device_clean(device: &Arc<dyn BlockDevice>) -> bool {
    let directory = tempfile::Builder::new().prefix("diorite-").tempdir().expect("directory");
    let path = directory.path().join("copy.img");
    let capacity = device.geometry().capacity_bytes;
    let open = OpenOptions::read_write().create(Create::NewSized(capacity));
    {
        let copy: Arc<dyn BlockDevice> = FileDevice::open(&path, &open).expect("copy");
        let mut memory = diorite::AlignedBuf::zeroed(1 << 20, 4096);
        let mut at = 0;
        while at < capacity {
            let len = (capacity - at).min(1 << 20) as usize;
            device.read_bytes(at, &mut memory[..len]).expect("read");
            if memory[..len].iter().any(|byte| *byte != 0) {
                copy.write_bytes(at, &memory[..len], diorite_block::BioFlags::NONE).expect("write");
            }
            at += len as u64;
        }
    }
    assert_clean(&path)
}

/// A sequence that a seed decides.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Bytes that differ by position and `seed`.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bytes = vec![0; len.next_multiple_of(8)];
    bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_le_bytes()));
    bytes.truncate(len);
    bytes
}

/// The same in memory that direct I/O takes.
pub fn aligned_pattern(len: usize, seed: u64) -> diorite::AlignedBuf {
    let mut memory = diorite::AlignedBuf::zeroed(len, 4096);
    memory.copy_from_slice(&pattern(len, seed));
    memory
}
