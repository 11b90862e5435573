//! ARCHITECTURE invariant 9, with an error at every write and flush of a workload in turn: metadata latches the volume, data is reported to the
//! call that needs it on the device, and the next such call writes it.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{aligned_pattern, assert_device_clean, memory_volume, pattern};
use diorite::{AlignedBuf, BlockDevice, DirectIo, File, Filesystem, FilesystemOptions, Result};
use diorite_block::{Bio, BioFlags, Geometry, IoCounters, IoError, IoErrorKind, IoQueue, Op};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const LEN: usize = 64 << 10;

/// Fails one write or flush.
#[derive(Debug)]
struct FailsOnce {
    inner: Arc<dyn BlockDevice>,
    geometry: Geometry,
    count: AtomicU64,
    fails_at: u64,
    /// The failed write was data of a file.
    failed_data: AtomicBool,
    failed: AtomicBool,
}

impl BlockDevice for FailsOnce {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        self.inner.counters()
    }

    fn name(&self) -> String {
        "fails-once".to_owned()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        for bio in bios.iter() {
            if matches!(bio.op, Op::Write | Op::Flush)
                && self.count.fetch_add(1, Ordering::SeqCst) == self.fails_at
            {
                self.failed.store(true, Ordering::SeqCst);
                let is_data = bio.op == Op::Write && !bio.flags.contains(BioFlags::META);
                self.failed_data.store(is_data, Ordering::SeqCst);
                return Err(IoError {
                    device: self.name(),
                    op: bio.op,
                    sector: bio.sector,
                    len: bio.len(),
                    kind: IoErrorKind::Device(std::io::Error::from_raw_os_error(5)),
                });
            }
        }
        self.inner.execute(bios)
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        let device: Arc<dyn BlockDevice> = self;
        Ok(<dyn BlockDevice>::immediate_queue(device, depth))
    }
}

fn open(filesystem: &Filesystem, direct: DirectIo) -> Result<File> {
    filesystem.open_options().read(true).write(true).create(true).direct(direct).open("/file")
}

/// Buffered and direct writes, new and over what is there, each made durable. How many calls reported an error.
fn work(filesystem: &Filesystem, file: &File, direct: &File) -> usize {
    let data = aligned_pattern(LEN, 1);
    let results = [
        file.write_all_at(&data, 0),
        file.sync_all(),
        file.write_all_at(&data[..5000], 3000),
        file.sync_data(),
        direct.write_all_at(&data, LEN as u64),
        direct.write_all_at(&data, 0),
        file.sync_all(),
        filesystem.create_dir("/directory").map(drop),
        filesystem.sync(),
    ];
    results.iter().filter(|result| result.is_err()).count()
}

/// Whether there was anything left to fail.
fn fail_at(options: &MkfsOptions, fails_at: u64) -> bool {
    let inner = memory_volume(8, options);
    let mut geometry = inner.geometry().clone();
    geometry.volatile_cache = true;
    let device = Arc::new(FailsOnce {
        inner: inner.clone(),
        geometry,
        count: 0.into(),
        fails_at,
        failed_data: false.into(),
        failed: false.into(),
    });
    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("opening writes nothing");
    let what = || format!("{:?}, write {fails_at}", options.flavor);
    let (Ok(file), Ok(direct)) = (open(&filesystem, DirectIo::Off), open(&filesystem, DirectIo::Required))
    else {
        assert!(filesystem.read_only_reason().is_some(), "{}: a metadata write failed", what());
        return true;
    };
    let other = open(&filesystem, DirectIo::Off).expect("open");
    let reported = work(&filesystem, &file, &direct);
    if !device.failed.load(Ordering::SeqCst) {
        assert_eq!(reported, 0, "{}: nothing failed", what());
        return false;
    }
    if !device.failed_data.load(Ordering::SeqCst) {
        assert!(filesystem.read_only_reason().is_some(), "{}: metadata latches", what());
        assert!(
            reported > 0 && filesystem.sync().is_err() && filesystem.sync().is_err(),
            "{}: and says so",
            what()
        );
        assert!(filesystem.create_file("/later").is_err(), "{}", what());
        return true;
    }
    assert_eq!(filesystem.read_only_reason(), None, "{}: data does not latch", what());
    assert_eq!(reported, 1, "{}: to one call", what());
    other.sync_data().expect("nothing was lost");
    let data = pattern(2 * LEN, 3);
    file.write_all_at(&data, 0).expect("written again");
    file.sync_all().expect("and durable");
    filesystem.sync().expect("all of it");
    let mut memory = AlignedBuf::zeroed(2 * LEN, 4096);
    direct.read_exact_at(&mut memory, 0).expect("read");
    assert!(memory[..] == data[..], "{}", what());
    drop((file, direct, other));
    filesystem.close().expect("close");
    assert_device_clean(&inner);
    true
}

#[test]
fn an_error_at_every_write_latches_metadata_and_loses_no_data() {
    for flavor in [Flavor::Ext2, Flavor::Ext3, Flavor::Ext4] {
        let options = MkfsOptions { flavor, ..MkfsOptions::default() };
        let mut at = 0;
        while fail_at(&options, at) {
            at += 1;
        }
        assert!(at > 8, "{flavor:?}: {at} writes");
    }
}
