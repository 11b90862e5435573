//! The log alone, without a filesystem: handles that change many blocks at once, on a disk that loses its power.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diorite_block::sync::{Mutex, now, sleep};
use diorite_block::{BioFlags, BlockDevice, IoErrorKind};
use diorite_sim::crash::{RecordingDevice, Tearing};
use diorite_sim::image::{ImageDevice, SparseImage};
use diorite_sim::{Simulation, WorldOptions};

use super::log_map::LogMap;
use super::recover::{self, Content, LogVolume, Recovered, prepare_for_writing, read_superblock};
use super::replay_tests::NoFastCommits;
use super::{Journal, JournalParts};
use crate::BlockRun;
use crate::buffer::{BlockKind, BufferCache, NoChecksums};
use crate::format::{CompatFeatures, IncompatFeatures, JournalSuperblock, MAGIC};
use crate::transaction::{AbortLatch, Freed, Join, ReleaseFreed, TransactionId, Transactions};
use crate::{Access, BlockSize, FsBlock, SystemClock};

const SIZE: BlockSize = BlockSize::new(1024).unwrap();
const VOLUME_BLOCKS: u64 = 1024;
const LOG_START: u64 = 500;

#[derive(Debug, Default)]
struct Released(Mutex<Vec<BlockRun>>);

impl ReleaseFreed for Released {
    fn release_freed(&self, freed: &Freed) {
        self.0.lock().extend_from_slice(&freed.runs);
    }
}

struct World {
    journal: Arc<Journal>,
    log: Transactions,
    cache: Arc<BufferCache>,
    latch: Arc<AbortLatch>,
    released: Arc<Released>,
}

fn log_map(log_blocks: u64) -> LogMap {
    let mut map = LogMap::new();
    map.push(FsBlock(LOG_START), log_blocks / 2, VOLUME_BLOCKS).unwrap();
    map.push(FsBlock(LOG_START - 210), log_blocks - log_blocks / 2, VOLUME_BLOCKS).unwrap();
    map.finish().unwrap()
}

fn recover(device: &Arc<dyn BlockDevice>, map: &LogMap) -> crate::Result<Recovered> {
    let superblock = read_superblock(&**device, map, SIZE)?;
    let volume = LogVolume { device, map, block_size: SIZE, blocks: VOLUME_BLOCKS };
    recover::recover(&volume, superblock, Access::ReadWrite, Content::Counts, &mut NoFastCommits)
}

/// A device with an empty journal.
fn image(log_blocks: u32) -> SparseImage {
    let mut raw = vec![0u8; 1024];
    for (at, value) in [(0, MAGIC), (4, 4), (0x0c, 1024), (0x10, log_blocks), (0x14, 1), (0x18, 1)] {
        raw[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    raw[0x30..0x40].fill(3);
    let mut image = SparseImage::new(VOLUME_BLOCKS * 1024);
    image.write(LOG_START * 1024, &raw);
    image
}

fn open(device: &Arc<dyn BlockDevice>, log_blocks: u32, checksums: bool) -> World {
    let map = log_map(log_blocks.into());
    let mut recovered = recover(device, &map).unwrap();
    prepare_for_writing(&mut recovered.superblock, checksums, checksums);
    let cache = Arc::new(BufferCache::new(device.clone(), SIZE, VOLUME_BLOCKS, 1 << 20));
    cache.set_checksums(Arc::new(NoChecksums));
    let (latch, released) = (Arc::new(AbortLatch::default()), Arc::new(Released::default()));
    let (journal, first) = Journal::new(JournalParts {
        device: device.clone(),
        block_size: SIZE,
        map,
        superblock: recovered.superblock,
        cache: cache.clone(),
        latch: latch.clone(),
        clock: SystemClock::shared(),
    });
    let journal = Arc::new(journal);
    let interval = Duration::from_secs(5);
    let log =
        Transactions::new(journal.clone(), cache.clone(), latch.clone(), released.clone(), interval, first);
    World { journal, log, cache, latch, released }
}

impl World {
    /// Fill blocks with a number, in one handle.
    fn set(&self, blocks: &[u64], number: u64) -> crate::Result<TransactionId> {
        let id = self.log.begin(blocks.len() as u32)?;
        for block in blocks {
            self.fill(id, *block, number);
        }
        self.log.end(id, blocks.len() as u32, Freed::default());
        Ok(id)
    }

    fn fill(&self, id: TransactionId, block: u64, number: u64) {
        let buffer = self.cache.get(FsBlock(block), BlockKind::Plain).unwrap();
        let mut content = buffer.write();
        self.log.join(id, &buffer, Join::Changed);
        content.copy_from_slice(&pattern(number));
    }

    fn check_invariants(&self) {
        let space = self.journal.space.lock();
        let list = self.journal.checkpoint.lock();
        list.check_invariants();
        assert!(space.tail <= space.oldest_needed(&list).1);
        assert!(space.head - space.tail < self.journal.log_blocks);
    }
}

/// Content that says its number; every third looks like a block of the log's own.
fn pattern(number: u64) -> Vec<u8> {
    let mut content = number.to_le_bytes().repeat(128);
    if number.is_multiple_of(3) {
        content[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    content
}

fn number_of(image: &SparseImage, block: u64) -> u64 {
    let mut content = vec![0; 1024];
    image.read(block * 1024, &mut content);
    let number = u64::from_le_bytes(content[8..16].try_into().unwrap());
    assert!(number == 0 || content == pattern(number), "block {block} is torn");
    number
}

/// Open the image as after a crash, and give the disk back after replay.
fn replayed(image: SparseImage, log_blocks: u32) -> SparseImage {
    let lower = ImageDevice::new(image);
    let device: Arc<dyn BlockDevice> = lower.clone();
    recover(&device, &log_map(log_blocks.into())).unwrap();
    lower.image()
}

/// ARCHITECTURE invariant 6: after a crash at any flush boundary, with any of the unflushed writes, the disk holds what the first
/// so many operations did, at least all that were synced. At most 24 images for each boundary.
#[test]
fn crash_leaves_a_prefix_with_everything_synced() {
    for (seed, checksums, fua) in [(1, true, true), (2, false, true), (3, true, false)] {
        let log_blocks = 80;
        let mut random = fastrand::Rng::with_seed(seed);
        let recorder = RecordingDevice::new(&*ImageDevice::new(image(log_blocks)), fua).unwrap();
        let device: Arc<dyn BlockDevice> = recorder.clone();
        let world = open(&device, log_blocks, checksums);
        let mut states = vec![BTreeMap::new()];
        for number in 1..=120 {
            let blocks: Vec<_> = (0..random.u64(1..6)).map(|_| random.u64(1..40)).collect();
            world.set(&blocks, number).unwrap();
            let mut state = states.last().unwrap().clone();
            state.extend(blocks.iter().map(|block| (*block, number)));
            states.push(state);
            if random.u8(..3) == 0 {
                world.log.sync().unwrap();
                recorder.mark(number);
            }
            world.check_invariants();
        }
        world.log.close().unwrap();
        recorder.mark(120);
        for point in recorder.recording().crash_points() {
            let synced = point.marks().last().copied().unwrap_or(0);
            for fates in point.fates(24, Tearing::Allowed, seed) {
                let image = replayed(point.image(&fates), log_blocks);
                let found: BTreeMap<_, _> = (1..40)
                    .map(|block| (block, number_of(&image, block)))
                    .filter(|(_, number)| *number > 0)
                    .collect();
                let last = found.values().max().copied().unwrap_or(0);
                assert!(last >= synced, "synced {synced}, found {last} at point {}", point.number());
                assert_eq!(found, states[last as usize], "at point {}", point.number());
            }
        }
    }
}

/// A block that was metadata, was freed and holds file data now is never replayed over, nor written by a checkpoint.
#[test]
fn freed_blocks_are_not_replayed_over() {
    for seed in 0..4 {
        let log_blocks = 80;
        let mut random = fastrand::Rng::with_seed(seed);
        let recorder = RecordingDevice::on_image(image(log_blocks));
        let device: Arc<dyn BlockDevice> = recorder.clone();
        let world = open(&device, log_blocks, true);
        let mut data: Vec<(u64, u64)> = Vec::new();
        let mut metadata: Vec<u64> = (1..100).collect();
        for number in 1..90 {
            let at = random.usize(..metadata.len());
            world.set(&[metadata[at], 101, 102], number).unwrap();
            if random.bool() {
                world.log.sync().unwrap();
            }
            // Free it in another handle, and use it for data when it is released.
            let block = metadata.swap_remove(at);
            let id = world.log.begin(2).unwrap();
            world.fill(id, 103, number);
            world.log.forget(id, FsBlock(block));
            world.cache.discard(FsBlock(block));
            let runs = vec![BlockRun { start: FsBlock(block), blocks: 1 }];
            world.log.end(id, 2, Freed { runs, ..Freed::default() });
            if random.u8(..4) == 0 {
                world.log.sync().unwrap();
            }
            let released = std::mem::take(&mut *world.released.0.lock());
            for run in released {
                let number = 1_000_000 + number;
                device.write_bytes(run.start.0 * 1024, &pattern(number), BioFlags::NONE).unwrap();
                device.flush().unwrap();
                data.push((run.start.0, number));
                recorder.mark(data.len() as u64);
            }
            world.check_invariants();
        }
        for point in recorder.recording().crash_points() {
            let durable = point.marks().last().copied().unwrap_or(0) as usize;
            for fates in point.fates(6, Tearing::Never, seed) {
                let image = replayed(point.image(&fates), log_blocks);
                for (block, number) in &data[..durable] {
                    assert_eq!(number_of(&image, *block), *number, "block {block} at {}", point.number());
                }
            }
        }
    }
}

/// Handles of many threads, on a log so small that all threads wait for space: nothing deadlocks, and each thread's
/// blocks change together.
#[test]
fn threads_share_transactions_on_a_small_log() {
    let log_blocks = 72;
    let recorder = RecordingDevice::on_image(image(log_blocks));
    let device: Arc<dyn BlockDevice> = recorder.clone();
    let world = open(&device, log_blocks, true);
    let synced: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (world, synced) = (&world, &synced);
            scope.spawn(move || {
                for number in 1..150u64 {
                    let id =
                        world.set(&[thread * 3 + 1, thread * 3 + 2, thread * 3 + 3, 20], number).unwrap();
                    if number % 5 == thread {
                        world.log.sync_through(id).unwrap();
                        synced[thread as usize].store(number, Ordering::Release);
                    }
                }
            });
        }
    });
    world.check_invariants();
    let recording = recorder.recording();
    let points: Vec<_> = recording.crash_points().collect();
    for (index, point) in points.iter().enumerate() {
        for fates in point.fates(2, Tearing::Never, 1) {
            let image = replayed(point.image(&fates), log_blocks);
            for thread in 0..4u64 {
                let numbers = [1, 2, 3].map(|block| number_of(&image, thread * 3 + block));
                assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
                if index + 1 == points.len() {
                    assert!(numbers[0] >= synced[thread as usize].load(Ordering::Acquire));
                }
            }
        }
    }
}

/// Group commit: with 8 threads that sync every change there are fewer commits than syncs.
#[test]
fn waiting_threads_share_a_commit() {
    let device: Arc<dyn BlockDevice> = ImageDevice::new(image(400));
    let world = open(&device, 400, true);
    let before = device.counters().snapshot();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let world = &world;
            scope.spawn(move || {
                for number in 1..100 {
                    let id = world.set(&[thread + 1], number).unwrap();
                    world.log.sync_through(id).unwrap();
                }
            });
        }
    });
    let commits = world.log.durable().0 - (1 << 32);
    assert!(commits <= 792, "{commits} commits for 792 syncs");
    assert!(device.counters().snapshot().since(before).writes < 4 * 792);
}

/// ARCHITECTURE invariant 9: the first failed write ends it; the disk is as the last commit left it.
#[test]
fn failed_log_write_latches() {
    #[derive(Debug)]
    struct Failing(Arc<ImageDevice>, std::sync::atomic::AtomicBool);
    impl BlockDevice for Failing {
        fn geometry(&self) -> &diorite_block::Geometry {
            self.0.geometry()
        }
        fn counters(&self) -> &diorite_block::IoCounters {
            self.0.counters()
        }
        fn name(&self) -> String {
            "failing".to_owned()
        }
        fn execute(&self, bios: &mut [diorite_block::Bio<'_>]) -> Result<(), diorite_block::IoError> {
            if self.1.load(Ordering::Relaxed) && bios.iter().any(|bio| bio.op.is_write()) {
                return Err((self as &dyn BlockDevice).error(&bios[0], IoErrorKind::Gone));
            }
            self.0.execute(bios)
        }
        fn open_queue(
            self: Arc<Self>,
            depth: u32,
        ) -> Result<Box<dyn diorite_block::IoQueue>, diorite_block::IoError> {
            self.0.clone().open_queue(depth)
        }
    }
    let failing = Arc::new(Failing(ImageDevice::new(image(80)), false.into()));
    let device: Arc<dyn BlockDevice> = failing.clone();
    let world = open(&device, 80, true);
    world.set(&[1, 2], 7).unwrap();
    world.log.sync().unwrap();
    world.set(&[1, 2], 8).unwrap();
    failing.1.store(true, Ordering::Relaxed);
    assert!(world.log.sync().is_err(), "the sync reports it");
    failing.1.store(false, Ordering::Relaxed);
    assert!(world.latch.is_aborted());
    assert!(world.log.begin(1).is_err() && world.log.sync().is_err() && world.log.close().is_err());
    let image = replayed(failing.0.image(), 80);
    assert_eq!((number_of(&image, 1), number_of(&image, 2)), (7, 7));
}

/// A closed journal has nothing to replay, and the next opening goes on with the numbers.
#[test]
fn closed_journals_are_empty() {
    let lower = ImageDevice::new(image(80));
    let device: Arc<dyn BlockDevice> = lower.clone();
    let mut sequence = 0;
    for round in 1..4 {
        let world = open(&device, 80, round != 2);
        world.set(&[1, 2, 3], round).unwrap();
        world.log.close().unwrap();
        let mut raw = vec![0; 1024];
        lower.image().read(LOG_START * 1024, &mut raw);
        let superblock = JournalSuperblock::parse(&raw, 1024, 80).unwrap();
        assert_eq!(superblock.start, 0);
        assert!(superblock.sequence > sequence, "numbers go on");
        assert_eq!(superblock.compat, CompatFeatures::empty());
        assert_eq!(superblock.incompat.contains(IncompatFeatures::CHECKSUM_V3), round != 2);
        sequence = superblock.sequence;
        assert_eq!(number_of(&lower.image(), 3), round, "in its place");
    }
}

/// Revokes alone may need more of the log than checkpoints keep free: the transaction is committed then. The next handle once looked for
/// space until the commit interval was over.
#[test]
fn revokes_that_fill_the_log_are_committed() {
    let device: Arc<dyn BlockDevice> = ImageDevice::new(image(80));
    let mut world = open(&device, 80, true);
    world.log.interval = Duration::from_secs(20);
    let mut before = world.set(&[1], 1).unwrap();
    world.log.sync().unwrap();
    let mut commits = 0;
    for step in 0..200 {
        let began = now();
        let id = world.log.begin(1).unwrap();
        assert!(now().saturating_sub(began) < Duration::from_secs(10), "step {step}");
        commits += u32::from(id > before);
        before = id;
        for block in 0..120 {
            world.log.forget(id, FsBlock(2000 + step * 120 + block));
        }
        world.log.end(id, 1, Freed::default());
    }
    assert!((2..10).contains(&commits), "{commits} commits");
    world.log.close().unwrap();
}

/// A transaction that waits longer than the commit interval is committed by the next caller.
#[test]
fn old_transactions_are_committed_by_the_next_handle() {
    let device: Arc<dyn BlockDevice> = ImageDevice::new(image(80));
    let mut world = open(&device, 80, true);
    world.log.interval = Duration::from_millis(3);
    let first = world.set(&[1], 1).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert!(world.set(&[1], 2).unwrap() > first);
    assert_eq!(world.log.durable(), first);
    world.log.interval = Duration::from_secs(3600);
    world.log.commit_old().unwrap();
    assert_eq!(world.log.durable(), first, "the second is young");
    world.log.interval = Duration::from_millis(3);
    std::thread::sleep(Duration::from_millis(5));
    world.log.commit_old().unwrap();
    assert!(world.log.durable() > first);
}

/// A handle leaves what is old to the timer's thread, but not for longer than that may be late; one that never is old stays.
#[test]
fn a_timer_that_is_late_is_not_waited_for() {
    Simulation::run_one(WorldOptions::default(), || {
        let device: Arc<dyn BlockDevice> = ImageDevice::new(image(80));
        let mut world = open(&device, 80, true);
        let first = world.set(&[1], 1).unwrap();
        let began = now();
        assert!(world.log.wait_until_old());
        let waited = now().saturating_sub(began);
        assert!(waited > world.log.interval && waited <= world.log.interval + Duration::from_millis(1));
        sleep(Duration::from_millis(900));
        assert_eq!(world.set(&[1], 2).unwrap(), first, "the timer may still come");
        sleep(Duration::from_millis(200));
        let second = world.set(&[1], 3).unwrap();
        assert_eq!((world.log.durable(), second.0), (first, first.0 + 1), "it has not come for a second");
        world.log.end_waiting();
        assert!(!world.log.wait_until_old());
        sleep(world.log.interval + Duration::from_millis(1));
        let third = world.set(&[1], 4).unwrap();
        assert_eq!((world.log.durable(), third.0), (second, second.0 + 1), "without a timer");
        world.log.interval = Duration::MAX;
        sleep(Duration::from_secs(1_000_000));
        assert_eq!(world.set(&[1], 5).unwrap(), third);
    })
    .unwrap();
}
