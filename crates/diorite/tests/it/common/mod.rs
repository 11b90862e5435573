//! Helpers of the scenarios: volumes in memory and in files, and their check.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each scenario uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use diorite::{BlockDevice, Filesystem, FilesystemOptions};
use diorite_device::{Create, FileDevice, OpenOptions};
use diorite_ext_tools::mkfs::{MkfsOptions, mkfs};
use diorite_sim::image::ImageDevice;

/// Wait until `is_so`, for at most a minute.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A thread that another one observes.
#[derive(Default)]
pub struct Observed(AtomicI32);

impl Observed {
    /// The calling thread is the one to observe.
    pub fn begin(&self) {
        self.0.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
    }

    /// Wait until the thread has begun and is blocked (it sleeps, at several looks in a row), or `is_over`.
    pub fn wait_until_blocked(&self, is_over: impl Fn() -> bool) {
        let mut asleep = 0;
        wait_until("the thread blocks", || {
            let id = self.0.load(Ordering::SeqCst);
            let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap_or_default();
            let sleeps = stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"));
            asleep = if sleeps { asleep + 1 } else { 0 };
            asleep > 10 || is_over()
        });
    }
}

/// An empty ext2 volume in memory.
pub fn memory_volume(megabytes: u64, options: &MkfsOptions) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = ImageDevice::zeroed(megabytes << 20);
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

/// A device that fails, waits or counts as a test wants it to.
#[derive(Debug)]
pub struct Watched {
    inner: Arc<dyn BlockDevice>,
    geometry: diorite_block::Geometry,
    /// Writes fail that begin at or after this byte.
    pub writes_fail_from: std::sync::atomic::AtomicU64,
    /// Reads and writes that failed so far.
    pub failures: std::sync::atomic::AtomicU64,
    /// Calls that read or write.
    pub calls: std::sync::atomic::AtomicU64,
    /// Reads fail while this is set.
    pub reads_fail: std::sync::atomic::AtomicBool,
    /// Data writes wait here until as many are in flight at once.
    pub gather: std::sync::Mutex<u32>,
    pub in_flight: (std::sync::Mutex<u32>, std::sync::Condvar),
    /// Addresses of the memory of reads and writes of data.
    pub addresses: std::sync::Mutex<Vec<(usize, usize)>>,
    /// Whether flushes and FUA exist.
    pub fua_writes: std::sync::atomic::AtomicU64,
}

impl Watched {
    pub fn new(inner: Arc<dyn BlockDevice>, change: impl FnOnce(&mut diorite_block::Geometry)) -> Arc<Self> {
        let mut geometry = inner.geometry().clone();
        change(&mut geometry);
        Arc::new(Self {
            inner,
            geometry,
            writes_fail_from: u64::MAX.into(),
            failures: 0.into(),
            calls: 0.into(),
            reads_fail: false.into(),
            gather: 0.into(),
            in_flight: Default::default(),
            addresses: std::sync::Mutex::default(),
            fua_writes: 0.into(),
        })
    }

    fn wait_for_company(&self) {
        let wanted = *self.gather.lock().expect("lock");
        let (count, changed) = &self.in_flight;
        let mut count = count.lock().expect("lock");
        *count += 1;
        changed.notify_all();
        let limit = std::time::Duration::from_secs(5);
        while *count < wanted {
            let (next, timeout) = changed.wait_timeout(count, limit).expect("lock");
            count = next;
            assert!(!timeout.timed_out(), "writes of disjoint ranges wait for each other");
        }
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> &diorite_block::Geometry {
        &self.geometry
    }

    fn counters(&self) -> &diorite_block::IoCounters {
        self.inner.counters()
    }

    fn name(&self) -> String {
        "watched".to_owned()
    }

    fn execute(&self, bios: &mut [diorite_block::Bio<'_>]) -> Result<(), diorite_block::IoError> {
        use std::sync::atomic::Ordering::SeqCst;

        use diorite_block::{BioFlags, BioMemory, IoErrorKind, Op};
        let gone = |bio: &diorite_block::Bio<'_>| diorite_block::IoError {
            device: self.name(),
            op: bio.op,
            sector: bio.sector,
            len: bio.len(),
            kind: IoErrorKind::Device(std::io::Error::from_raw_os_error(5)),
        };
        self.calls.fetch_add(1, SeqCst);
        for at in 0..bios.len() {
            let bio = &bios[at];
            let note = |address: usize, len| self.addresses.lock().expect("lock").push((address, len));
            match &bio.memory {
                BioMemory::Read(segments) => segments.iter().for_each(|s| note(s.as_ptr().addr(), s.len())),
                BioMemory::Write(segments) => segments.iter().for_each(|s| note(s.as_ptr().addr(), s.len())),
                BioMemory::None(_) => {}
            }
            if bio.flags.contains(BioFlags::FUA) {
                self.fua_writes.fetch_add(1, SeqCst);
            }
            if bio.op == Op::Write && bio.sector.to_bytes() >= self.writes_fail_from.load(SeqCst)
                || bio.op == Op::Read && self.reads_fail.load(SeqCst)
            {
                self.failures.fetch_add(1, SeqCst);
                let error = gone(bio);
                // Earlier lines are complete.
                return self.inner.execute(&mut bios[..at]).and(Err(error));
            }
        }
        if *self.gather.lock().expect("lock") > 0 && bios.iter().any(|bio| bio.op == Op::Write) {
            self.wait_for_company();
        }
        self.inner.execute(bios)
    }

    fn open_queue(
        self: Arc<Self>,
        depth: u32,
    ) -> Result<Box<dyn diorite_block::IoQueue>, diorite_block::IoError> {
        let device: Arc<dyn BlockDevice> = self;
        Ok(<dyn BlockDevice>::immediate_queue(device, depth))
    }
}

/// A volume on a device whose free blocks are full of garbage.
pub fn garbage_volume(megabytes: u64, options: &MkfsOptions) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = ImageDevice::zeroed(megabytes << 20);
    let mut garbage = diorite::AlignedBuf::zeroed(1 << 20, 4096);
    garbage.fill(0xa5);
    for at in 0..megabytes {
        device.write_bytes(at << 20, &garbage, diorite_block::BioFlags::NONE).expect("garbage");
    }
    mkfs(&*device, options).expect("mkfs");
    device
}
