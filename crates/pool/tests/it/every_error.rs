//! One request of a workload fails, each in turn: the caller that needs it gets the error, nothing else changes, and the next try succeeds.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diorite::{DirectIo, ErrorKind, Filesystem, RawFile};
use diorite_block::{BlockDevice, Op};
use diorite_pool::{BufferPool, Error, FileId, PageFile};
use diorite_sim::crash::RecordingDevice;
use diorite_sim::faults::{Effect, Fault};
use diorite_sim::image::SparseImage;

const PAGE: usize = 4096;
const FRAMES: usize = 16;
const PAGES: u64 = 60;
const STEPS: u32 = 300;
const EIO: i32 = 5;

/// A pool over a file on a device, and what each page must have.
struct Run {
    device: Arc<RecordingDevice>,
    file: FileId,
    pool: BufferPool,
    expected: HashMap<u64, u8>,
    random: fastrand::Rng,
    /// Errors of reads and syncs, and failed writes of which reports told.
    failed_calls: u64,
    failed_writes: u64,
}

impl Run {
    fn new(device: Arc<RecordingDevice>, file: impl Into<PageFile>) -> Self {
        let pool = BufferPool::options().pages(FRAMES).background_writer(false).create().unwrap();
        let file = pool.open_file("f", file).unwrap();
        let (expected, random) = (HashMap::new(), fastrand::Rng::with_seed(7));
        Self { device, file, pool, expected, random, failed_calls: 0, failed_writes: 0 }
    }

    /// Count an error; the caller tries again.
    fn note(&mut self, error: &Error) {
        match error {
            Error::File { source, .. } => {
                assert_eq!(source.kind(), ErrorKind::Io, "{source}");
                self.failed_calls += 1;
            }
            Error::WriteBack { errors, errno: EIO, .. } => self.failed_writes += errors,
            other => panic!("{other:?}"),
        }
    }

    /// Try again after an error. At most two requests fail in a row.
    fn retried<T>(&mut self, act: impl Fn(&Self) -> Result<T, Error>) -> T {
        for _ in 0..2 {
            match act(self) {
                Ok(value) => return value,
                Err(error) => self.note(&error),
            }
        }
        act(self).expect("the third try succeeds")
    }

    fn step(&mut self) {
        let number = self.random.u64(..PAGES);
        let (file, fill) = (self.file, self.random.u8(1..));
        match self.random.u32(..20) {
            0..4 => {
                self.retried(|run| run.pool.create_page(file.page(number)).map(|mut page| page.fill(fill)));
                self.expected.insert(number, fill);
            }
            4..8 => {
                let before = self.expected_of(number);
                self.retried(|run| {
                    let mut page = run.pool.fetch_exclusive(file.page(number))?;
                    assert!(page.iter().all(|byte| *byte == before), "page {number}");
                    page.fill(fill);
                    Ok(())
                });
                self.expected.insert(number, fill);
            }
            8..18 => self.check_page(number),
            18 => self.retried(|run| run.pool.flush(file)),
            _ => {
                let first = number.min(PAGES - 4);
                self.pool.prefetch((first..first + 4).map(|number| file.page(number))).unwrap();
            }
        }
    }

    fn expected_of(&self, number: u64) -> u8 {
        self.expected.get(&number).copied().unwrap_or(0)
    }

    fn check_page(&mut self, number: u64) {
        let (file, expected) = (self.file, self.expected_of(number));
        self.retried(|run| {
            let page = run.pool.fetch(file.page(number))?;
            assert!(page.iter().all(|byte| *byte == expected), "page {number}");
            Ok(())
        });
    }

    /// The invariants hold. What was asked for ahead, by pins in a row too, may still be read, and a frame that is about to get it is in no table yet.
    fn settle(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while let Err(what) = self.pool.check_invariants() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// After all steps: everything can be written, nothing is held, every failed write was told of.
    fn finish(&mut self) {
        let file = self.file;
        self.device.set_faults([]);
        self.retried(|run| run.pool.flush(file));
        self.pool.check(file).expect("reported already");
        for number in 0..PAGES {
            self.check_page(number);
        }
        self.settle();
        let pins: Vec<_> =
            (0..FRAMES as u64).map(|number| self.pool.pin(file.page(number)).unwrap()).collect();
        drop(pins);
        self.settle();
        let stats = self.pool.stats();
        assert_eq!((stats.dirty_pages, stats.write_errors), (0, self.failed_writes));
    }
}

/// Run the workload with the `after`th request of this kind failing, `times` in a row: whether there was one, and the run.
fn run(mut run: Run, fault: Fault) -> (bool, Run) {
    let hits = run.device.failed();
    run.device.add(fault);
    (0..STEPS).for_each(|_| run.step());
    let was_hit = run.device.failed() > hits;
    run.finish();
    (was_hit, run)
}

fn on_raw_device(fault: Fault) -> bool {
    let device = RecordingDevice::on_image(SparseImage::new(PAGES * PAGE as u64));
    let options = RawFile::options().read(true).write(true).direct(DirectIo::Required);
    let file = options.open_device(Arc::clone(&device) as _, 0).unwrap();
    let (was_hit, run) = run(Run::new(Arc::clone(&device), file), fault);
    let expected = run.expected.clone();
    run.pool.close().unwrap();
    for number in 0..PAGES {
        let mut page = vec![0; PAGE];
        (&*device as &dyn BlockDevice).read_bytes(number * PAGE as u64, &mut page).unwrap();
        let byte = expected.get(&number).copied().unwrap_or(0);
        assert!(page.iter().all(|found| *found == byte), "page {number} on the device");
    }
    was_hit
}

fn in_a_volume(fault: Fault) -> bool {
    use diorite::mkfs::{Flavor, MkfsOptions, mkfs};

    let device = RecordingDevice::on_image(SparseImage::new(16 << 20));
    mkfs(&*device, &MkfsOptions::new(Flavor::Ext4)).unwrap();
    let open = || Filesystem::options().open_device(Arc::clone(&device) as _).unwrap();
    let volume = open();
    let options =
        |volume: &Filesystem| volume.open_options().read(true).write(true).direct(DirectIo::Required);
    let file = options(&volume).create(true).open("/f").unwrap();
    // Written once, so that only data moves below.
    file.write_all_at(&vec![0; PAGES as usize * PAGE], 0).unwrap();
    file.sync_all().unwrap();
    let (was_hit, run) = run(Run::new(Arc::clone(&device), file), fault);
    let expected = run.expected.clone();
    run.pool.close().unwrap();
    volume.close().unwrap();
    let volume = open();
    let file = options(&volume).open("/f").unwrap();
    for number in 0..PAGES {
        let mut page = file.buffer(PAGE).unwrap();
        file.read_exact_at(&mut page, number * PAGE as u64).unwrap();
        let byte = expected.get(&number).copied().unwrap_or(0);
        assert!(page.iter().all(|found| *found == byte), "page {number} in the volume");
    }
    was_hit
}

/// Each in turn, until there are no more. Pages that are written together are tried one by one after an error: two in a row are more than that.
fn each(op: Op, times: u64, run: impl Fn(Fault) -> bool) -> u64 {
    let fault = |after| Fault::on(op, Effect::Error(EIO)).after(after).times(times);
    (0..10_000).find(|after| !run(fault(*after))).expect("the workload ends")
}

#[test]
fn every_read_of_a_device_fails_once() {
    let count = each(Op::Read, 1, on_raw_device);
    assert!(count > 50, "{count}");
}

#[test]
fn every_write_to_a_device_fails() {
    for times in [1, 2] {
        let count = each(Op::Write, times, on_raw_device);
        assert!(count > 30, "{count}");
    }
}

#[test]
fn every_read_of_a_file_in_a_volume_fails_once() {
    let count = each(Op::Read, 1, in_a_volume);
    assert!(count > 50, "{count}");
}
