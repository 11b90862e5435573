//! A device that fails: the caller that gets the error, and the content of the pool and the disk afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use diorite::{DirectIo, ErrorKind, HostFile, RawFile};
use diorite_block::{Bio, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op};
use diorite_pool::{BufferPool, Error, FileId, PageFile};
use diorite_sim::crash::RecordingDevice;
use diorite_sim::faults::{Effect, Fault};
use diorite_sim::image::{ImageDevice, SparseImage};

const PAGE: u64 = 4096;
const SECTORS: u64 = PAGE / 512;

struct Failing {
    pool: BufferPool,
    file: FileId,
    device: Arc<RecordingDevice>,
}

fn failing(frames: usize) -> Failing {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    let options = RawFile::options().read(true).write(true).direct(DirectIo::Required);
    let file = options.open_device(Arc::clone(&device) as _, 0).expect("the test is set up");
    let pool =
        BufferPool::options().pages(frames).background_writer(false).create().expect("the test is set up");
    let file = pool.open_file("f", file).expect("the test is set up");
    Failing { pool, file, device }
}

fn on_page(op: Op, number: u64) -> Fault {
    Fault::on(op, Effect::Error(5)).at(number * SECTORS..(number + 1) * SECTORS)
}

/// Each page of a flush cannot be written, with others and by itself: the error is reported once, the page is still dirty and right, and the
/// next flush writes it.
#[test]
fn a_failed_write_back_is_reported_once_and_lost_never() {
    // Pages that follow each other are one transfer, others a batch of several.
    for (failed, apart) in (0..20).flat_map(|failed| [(failed, 1), (failed * 2, 2)]) {
        let Failing { pool, file, device } = failing(32);
        for number in (0..20).map(|number| number * apart) {
            pool.create_page(file.page(number)).unwrap().fill(number as u8 + 1);
        }
        // A transfer of several pages fails, and then that of the page alone.
        device.add(on_page(Op::Write, failed).times(if apart == 1 { 2 } else { 1 }));
        match pool.flush(file) {
            Err(Error::WriteBack { errors: 1, page, errno: 5, file }) => {
                assert_eq!((&*file, page), ("f", failed));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((pool.stats().dirty_pages, pool.stats().written_pages), (1, 19));
        pool.check(file).expect("reported already");
        assert!(pool.fetch(file.page(failed)).unwrap().iter().all(|byte| *byte == failed as u8 + 1));
        pool.flush(file).expect("nothing fails any more");
        assert_eq!(pool.stats().dirty_pages, 0);
        pool.check_invariants().unwrap();
        drop(pool);
    }
}

/// Writes for frames fail as long as the device does: what is dirty stays, others' pages are evicted, and the owner hears of it.
#[test]
fn pages_that_cannot_be_written_stay() {
    let Failing { pool, file, device } = failing(16);
    for number in 0..4 {
        pool.create_page(file.page(number)).unwrap().fill(7);
    }
    device.add(Fault::on(Op::Write, Effect::Error(5)).times(u64::MAX));
    for number in 4..100 {
        assert!(pool.fetch(file.page(number)).unwrap().iter().all(|byte| *byte == 0));
    }
    pool.flush(file).expect_err("the device still fails");
    for number in 0..4 {
        assert!(pool.fetch(file.page(number)).unwrap().iter().all(|byte| *byte == 7));
    }
    // With dirty pages alone, a frame cannot be had, and the error says so.
    for number in 4..16 {
        pool.create_page(file.page(number)).unwrap().fill(7);
    }
    assert!(matches!(pool.fetch(file.page(50)), Err(Error::NoFrames { dirty: 16, .. })));
    device.set_faults([]);
    assert!(pool.fetch(file.page(50)).is_ok());
    pool.check(file).expect_err("the failed writes since the flush");
    pool.flush(file).unwrap();
    pool.check_invariants().unwrap();
}

/// A failed read is the error of the one who asked; the page can be read when the device works again.
#[test]
fn a_failed_read_leaves_nothing_behind() {
    let Failing { pool, file, device } = failing(16);
    device.add(on_page(Op::Read, 3).times(2));
    for _ in 0..2 {
        match pool.fetch(file.page(3)) {
            Err(Error::File { source, .. }) => assert_eq!(source.kind(), ErrorKind::Io),
            other => panic!("{other:?}"),
        }
    }
    assert!(pool.fetch_exclusive(file.page(3)).is_ok());
    device.add(on_page(Op::Read, 5));
    pool.prefetch([4, 5, 6].map(|number| file.page(number))).unwrap();
    while pool.stats().prefetched < 2 || device.failed() < 3 {
        std::thread::yield_now();
    }
    assert!(pool.fetch(file.page(5)).is_ok());
    drop(pool.fetch(file.page(4)).unwrap());
    let pins: Vec<_> = (0..16).map(|number| pool.pin(file.page(number)).unwrap()).collect();
    drop(pins);
    pool.check_invariants().unwrap();
}

/// A page that a file of fixed size does not have was made and filled, and only the flush failed, without its number.
#[test]
fn a_page_beyond_the_end_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fixed");
    // Sixteen pages and a half.
    std::fs::File::create_new(&path).and_then(|file| file.set_len(16 * PAGE + PAGE / 2)).unwrap();
    let pool = BufferPool::options().pages(16).shared(true).create().unwrap();
    let shared = pool.open_file("shared", PageFile::shared(&path, DirectIo::Preferred).unwrap()).unwrap();
    refuses_from_16_on(&pool, shared);
    pool.close().unwrap();
    let pool = BufferPool::options().pages(16).create().unwrap();
    let file = pool.open_file("own", PageFile::open(&path, DirectIo::Off).unwrap()).unwrap();
    refuses_from_16_on(&pool, file);
    // Files that can grow, grow.
    let options = HostFile::options().read(true).write(true).create(true).direct(DirectIo::Preferred);
    let file = pool.open_file("grows", options.open(directory.path().join("grows")).unwrap()).unwrap();
    assert!(pool.fetch(file.page(1000)).unwrap().iter().all(|byte| *byte == 0));
    pool.create_page(file.page(20)).unwrap().fill(3);
    pool.flush(file).unwrap();
    pool.check_invariants().unwrap();
}

fn refuses_from_16_on(pool: &BufferPool, file: FileId) {
    pool.create_page(file.page(15)).expect("the file has it").fill(1);
    for number in [16, 20, (1 << 48) - 1] {
        let page = file.page(number);
        let results = [
            pool.create_page(page).map(drop),
            pool.fetch(page).map(drop),
            pool.fetch_exclusive(page).map(drop),
            pool.pin(page).map(drop),
        ];
        for result in results {
            let error = result.expect_err("the file ends before it");
            assert!(matches!(error, Error::BeyondEnd { pages: 16, .. }), "{error}");
            let expected = format!("there is no page {number}: the file can have 16 pages");
            assert!(error.to_string().contains(&expected), "{error}");
        }
        pool.prefetch([page]).expect("a hint");
    }
    pool.flush(file).expect("what there is can be written");
    assert_eq!(pool.stats().dirty_pages, 0);
}

/// The first page that failed is named, not the last, and after a report it begins again.
#[test]
fn a_failed_flush_names_the_first_page_and_why() {
    let Failing { pool, file, device } = failing(32);
    for failed in [[3, 9], [12, 17]] {
        for number in 0..20 {
            pool.create_page(file.page(number)).unwrap().fill(1);
        }
        for (number, errno) in failed.into_iter().zip([5, 28]) {
            let place = number * SECTORS..(number + 1) * SECTORS;
            device.add(Fault::on(Op::Write, Effect::Error(errno)).at(place).times(2));
        }
        let error = pool.flush(file).expect_err("two pages cannot be written").to_string();
        let expected =
            format!("f: writeback of pages failed 2 times, first of page {}: Input/output error", failed[0]);
        assert!(error.starts_with(&expected), "{error}");
        device.set_faults([]);
        pool.flush(file).unwrap();
    }
}

/// Which limit a number exceeds.
#[test]
fn impossible_sizes_are_refused_with_their_limit() {
    let refused = |bytes, pages| {
        BufferPool::options().page_bytes(bytes).pages(pages).create().expect_err("impossible").to_string()
    };
    assert_eq!(refused(4096, 1 << 50), "a pool has at most 1073741823 pages");
    assert_eq!(refused(4096, 1 << 30), "a pool has at most 1073741823 pages");
    assert_eq!(refused(4096, 7), "a pool has at least 8 pages");
    assert_eq!(refused(4097, 64), "the pages of a pool have 4096, 8192, 16384, 32768 or 65536 bytes");
}

/// Do something that may not end; its result, within a time.
fn within<T: Send + 'static>(seconds: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(seconds)).expect("it ends in time")
}

/// An exclusive guard that was never dropped: the other pages are written, and the error names the page. A close knows that no guard can live,
/// and waits for none.
#[test]
fn a_leaked_guard_does_not_keep_flush_and_close_for_ever() {
    let Failing { pool, file, .. } = failing(16);
    for number in 0..4 {
        pool.create_page(file.page(number)).unwrap().fill(1);
    }
    std::mem::forget(pool.fetch_exclusive(file.page(2)).unwrap());
    let start = Instant::now();
    let (flushed, pool) = within(60, move || (pool.flush(file), pool));
    let flush = start.elapsed();
    assert!(matches!(flushed, Err(Error::PageHeld { page: 2, .. })), "{flushed:?}");
    assert_eq!(pool.stats().dirty_pages, 1);
    let start = Instant::now();
    let closed = within(60, move || pool.close());
    assert!(matches!(closed, Err(Error::PageHeld { page: 2, .. })), "{closed:?}");
    assert!(start.elapsed() < flush, "{:?}, a flush {flush:?}", start.elapsed());
}

/// Wait for a condition, for a minute.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A guard that is dropped while a flush waits for it is no error.
#[test]
fn a_flush_waits_for_a_guard() {
    let Failing { pool, file, .. } = failing(16);
    for page in [2, 3] {
        pool.create_page(file.page(page)).unwrap().fill(1);
    }
    std::thread::scope(|scope| {
        let guard = pool.fetch_exclusive(file.page(2)).unwrap();
        let flush = scope.spawn(|| pool.flush(file));
        // The flush waits for guards after it has written the other pages.
        wait_until("the other page is written", || pool.stats().written_pages == 1);
        drop(guard);
        flush.join().unwrap().expect("the guard was dropped");
    });
    assert_eq!(pool.stats().dirty_pages, 0);
}

/// The guard or pin that is one too many panics, and leaves no count: the page can be had exclusively when the others are gone.
#[test]
fn guards_beyond_the_limit_leave_no_count() {
    let Failing { pool, file, .. } = failing(16);
    let page = file.page(1);
    let too_many = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    let guards: Vec<_> = (0..32767).map(|_| pool.fetch(page).unwrap()).collect();
    assert!(too_many(&|| drop(pool.fetch(page))));
    drop(guards);
    let pins: Vec<_> = (0..32767).map(|_| pool.pin(page).unwrap()).collect();
    assert!(too_many(&|| drop(pool.pin(page))));
    drop(pins);
    within(60, move || {
        drop(pool.fetch_exclusive(page).unwrap());
        // The frame can be evicted.
        let others: Vec<_> = (2..18).map(|number| pool.pin(file.page(number)).unwrap()).collect();
        drop(others);
        pool.check_invariants().unwrap();
    });
}

/// A device on which reads panic while it is asked to.
#[derive(Debug)]
struct Panicking {
    lower: Arc<ImageDevice>,
    panics: AtomicBool,
}

impl BlockDevice for Panicking {
    fn geometry(&self) -> &Geometry {
        self.lower.geometry()
    }

    fn counters(&self) -> &IoCounters {
        self.lower.counters()
    }

    fn name(&self) -> String {
        "panicking".to_owned()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        assert!(!self.panics.load(Ordering::SeqCst), "asked to");
        self.lower.execute(bios)
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

/// A read that panics leaves no page that is locked, or that has what was in its frame before.
#[test]
fn a_read_that_panics_leaves_no_page() {
    let mut image = SparseImage::new(1 << 20);
    image.write(3 * PAGE, &[9; PAGE as usize]);
    let device = Arc::new(Panicking { lower: ImageDevice::new(image), panics: AtomicBool::new(false) });
    let options = RawFile::options().read(true).write(true).direct(DirectIo::Required);
    let file = options.open_device(Arc::clone(&device) as _, 0).unwrap();
    let pool = BufferPool::options().pages(16).background_writer(false).create().unwrap();
    let file = pool.open_file("f", file).unwrap();
    device.panics.store(true, Ordering::SeqCst);
    let fetch = || drop(pool.fetch(file.page(3)));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(fetch)).expect_err("the device panics");
    device.panics.store(false, Ordering::SeqCst);
    within(60, move || {
        assert!(pool.fetch(file.page(3)).unwrap().iter().all(|byte| *byte == 9));
        assert_eq!(pool.peek(file.page(3), |page| page.bytes::<1>(7)), Some([9]));
        pool.check_invariants().unwrap();
    });
}

/// Frames come free one by one: a page that was read ahead waited for the frames of all others.
#[test]
fn a_page_read_ahead_does_not_wait_for_frames_of_others() {
    let Failing { pool, file, .. } = failing(160);
    let mut pins: Vec<_> = (0..160).map(|number| pool.pin(file.page(number)).unwrap()).collect();
    let evictions = pool.stats().evictions;
    pool.prefetch((200..220).map(|number| file.page(number))).unwrap();
    for taken in 1..=10 {
        pins.pop();
        wait_until("the frame is taken", || pool.stats().evictions >= evictions + taken);
    }
    assert!(pool.stats().prefetched > 0, "frames for ten pages, and none of them is read");
}
