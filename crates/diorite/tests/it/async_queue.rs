//! Direct transfers as futures: the threads that reap, the order of waiting futures, and dropped futures.

use crate::common;
use std::future::{Future, poll_fn};
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use common::{Random, aligned_pattern, pattern};
use diorite::{
    AsyncQueue, AsyncReader, AsyncWriter, DirectIo, DirectQueue, DirectReader, File, Filesystem,
    FilesystemOptions, RegisteredBuf, RegisteredBuffers, Transfer,
};
use diorite_device::{Backend, OpenOptions as DeviceOptions};
use diorite_ext_tools::mkfs::MkfsOptions;
use rustix::event::{PollFd, PollFlags, poll};

const PAGE: usize = 4096;

/// A volume on each kind of queue that a device may have, and a file on it for direct I/O.
fn each_kind(test: impl Fn(&str, &File)) {
    each_volume(|kind, file, _| test(kind, file));
}

fn each_volume(test: impl Fn(&str, &File, &Filesystem)) {
    for kind in ["io_uring", "threads", "deadline", "inject on threads", "memory"] {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("image");
        let mut options = FilesystemOptions::new();
        if let Some(scheduler) = ["deadline", "inject"].iter().find(|name| kind.starts_with(*name)) {
            options = options.scheduler(scheduler.parse().expect("a scheduler"));
        }
        let filesystem = if kind == "memory" {
            common::open_memory(16, &MkfsOptions::default(), &options)
        } else {
            Filesystem::create(&image, 16 << 20, &MkfsOptions::default())
                .expect("mkfs")
                .close()
                .expect("close");
            let backend = if kind.ends_with("threads") { Backend::Threads } else { Backend::Auto };
            let device =
                diorite_device::FileDevice::open(&image, &DeviceOptions::read_write().backend(backend));
            options.open_device(device.expect("device")).expect("open")
        };
        let open = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
        let file = open.open("/file").expect("file");
        test(kind, &file, &filesystem);
        drop(file);
        filesystem.close().expect("close");
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }

    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

/// Several futures at once.
async fn all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = Pin::new(future).poll(context) {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// An executor without a reactor.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

fn write_and_read(queue: &AsyncQueue, file: &File, pages: u64) -> impl Future<Output = ()> {
    let (queue, file) = (queue.clone(), file.clone());
    async move {
        let at = |page: u64| page * PAGE as u64;
        let write = |page| queue.write(&file, at(page), aligned_pattern(PAGE, page), PAGE);
        for (result, _) in all((0..pages).map(write).collect()).await {
            assert_eq!(result.expect("written"), PAGE);
        }
        let read = |page| queue.read(&file, at(page), file.buffer(PAGE).expect("memory"), PAGE);
        for (page, (result, memory)) in (0..).zip(all((0..pages).map(read).collect()).await) {
            assert_eq!(result.expect("read"), PAGE);
            assert!(memory[..] == pattern(PAGE, page)[..], "page {page}");
        }
    }
}

#[test]
fn many_tasks_share_a_queue_of_small_depth() {
    each_kind(|_, file| {
        let queue = AsyncQueue::new(4).expect("queue");
        queue.run(write_and_read(&queue, file, 100));
        assert_eq!(queue.in_flight(), 0);
    });
}

#[test]
fn a_thread_drives_the_futures_of_any_executor() {
    each_kind(|_, file| {
        let queue = AsyncQueue::new(4).expect("queue");
        let driver = queue.spawn_driver().expect("driver");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                // The same pages at once: whole pages of one pattern.
                scope.spawn(|| block_on(write_and_read(&queue, file, 50)));
            }
        });
        drop(driver);
    });
}

/// Whether a descriptor is readable within a time.
fn is_readable(descriptor: impl AsFd, seconds: i64) -> bool {
    let timeout = rustix::time::Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)).expect("poll") > 0
}

#[test]
fn the_descriptor_is_readable_while_something_can_be_reaped() {
    each_kind(|kind, file| {
        file.write_all_at(&aligned_pattern(8 * PAGE, 1), 0).expect("write");
        let mut queue = DirectQueue::new(8);
        assert!(!is_readable(queue.descriptor().expect("descriptor"), 0), "{kind}");
        for round in 0..20 {
            for page in 0..8 {
                let memory = file.buffer(PAGE).expect("memory");
                queue.read(file, page * PAGE as u64, memory, PAGE, page).expect("submitted");
            }
            queue.issue().expect("issued");
            let (mut done, mut count) = (Vec::new(), 0);
            while count < 8 {
                assert!(
                    is_readable(queue.descriptor().expect("descriptor"), 20),
                    "{kind}, {round}: {count} came"
                );
                count += queue.reap(0, &mut done).expect("reaped");
            }
            assert_eq!(count, 8);
            assert!(done.iter().all(|finished| finished.result.is_ok()));
        }
        // The watcher of a scheduled device may say it once more than needed.
        common::wait_until("nothing is left to reap", || {
            queue.reap(0, &mut Vec::new()).expect("reaped");
            !is_readable(queue.descriptor().expect("descriptor"), 0)
        });
    });
}

/// A transfer that is not reaped holds its range; those on the range wait in the order in which they came, and one that is dropped is
/// not waited for.
#[test]
fn transfers_on_one_range_wait_their_turn() {
    each_kind(|kind, file| {
        file.write_all_at(&aligned_pattern(2 * PAGE, 1), 0).expect("write");
        let queue = AsyncQueue::new(8).expect("queue");
        let woken = Arc::new(Woken::default());
        let mut first = queue.write(file, 0, aligned_pattern(2 * PAGE, 2), 2 * PAGE);
        assert!(!first.is_submitted());
        // It may have ended by the time it is polled again, but not be over before it is reaped.
        let ended_at_once = woken.poll(&mut first).is_ready();
        if ended_at_once {
            return;
        }
        assert!(first.is_submitted());
        let held = file.clone();
        let mut second = queue.write(file, PAGE as u64, aligned_pattern(PAGE, 3), PAGE);
        let mut third = queue.read(&held, PAGE as u64, file.buffer(PAGE).expect("memory"), PAGE);
        let (pending, waits) = (woken.poll(&mut second).is_pending(), !second.is_submitted());
        // Each submission reaps what has ended by then.
        if !waits {
            return;
        }
        assert!(pending, "{kind}");
        assert!(woken.poll(&mut third).is_pending());
        // That one may have reaped the first, and submitted the second.
        if second.is_submitted() {
            return;
        }
        drop(second);
        queue.run(async {
            let (result, _) = (&mut first).await;
            assert_eq!(result.expect("written"), 2 * PAGE);
            let (result, memory) = third.await;
            assert_eq!(result.expect("read"), PAGE);
            assert!(memory[..] == pattern(2 * PAGE, 2)[PAGE..], "{kind}: the second was never written");
        });
    });
}

/// A transfer that waits for a place in the queue is submitted by the reap that makes one, polled or not, and one that is dropped passes it on.
#[test]
fn a_place_in_the_queue_is_passed_on() {
    each_kind(|kind, file| {
        file.write_all_at(&aligned_pattern(4 * PAGE, 1), 0).expect("write");
        let queue = AsyncQueue::new(1).expect("queue");
        let read = |page: u64| queue.read(file, page * PAGE as u64, file.buffer(PAGE).expect("memory"), PAGE);
        let (mut first, mut second, mut third, mut fourth) = (read(0), read(1), read(2), read(3));
        let [of_first, of_others, of_fourth]: [Arc<Woken>; 3] = Default::default();
        if of_first.poll(&mut first).is_ready() {
            // Memory is as fast as that.
            return;
        }
        let polled = [of_others.poll(&mut second), of_others.poll(&mut third), of_fourth.poll(&mut fourth)];
        // Each of these may have reaped the first, and submitted the second.
        if second.is_submitted() || polled[0].is_ready() {
            return;
        }
        assert!(polled.iter().all(Poll::is_pending), "{kind}: without a place");
        assert_eq!((of_first.take(), of_others.take(), of_fourth.take()), (0, 0, 0), "{kind}");
        drop(third);
        let limit = Instant::now() + Duration::from_secs(20);
        while of_fourth.take() == 0 {
            assert!(Instant::now() < limit, "{kind}: the last waits for one that is not polled");
            queue.reap().expect("reaped");
            std::thread::yield_now();
        }
        for (mut transfer, waker) in [(fourth, &of_fourth), (second, &of_others), (first, &of_first)] {
            let Poll::Ready((result, _)) = waker.poll(&mut transfer) else { panic!("{kind}: not over") };
            assert_eq!(result.expect("read"), PAGE);
        }
        assert_eq!((of_first.take(), of_others.take()), (1, 1), "{kind}: each is woken once, at its end");
    });
}

/// A read waits for a range that another queue has, and its task does not poll it again. When the range is free the descriptor says so, and the
/// thread that reaps submits the read: a call that comes after it on the range waited for it without end.
#[test]
fn a_range_that_becomes_free_makes_the_queue_ready() {
    each_kind(|kind, file| {
        file.write_all_at(&aligned_pattern(PAGE, 1), 0).expect("write");
        let (queue, mut other) = (AsyncQueue::new(4).expect("queue"), DirectQueue::new(4));
        other.write(file, 0, aligned_pattern(PAGE, 2), PAGE, 0).expect("submitted");
        let mut read = queue.read(file, 0, file.buffer(PAGE).expect("memory"), PAGE);
        assert!(Arc::new(Woken::default()).poll(&mut read).is_pending());
        if read.is_submitted() {
            // Memory is as fast as that: the write is recorded.
            return;
        }
        assert!(!is_readable(&queue, 0), "{kind}: nothing can be done");
        assert!(other.next_finished().expect("reaped").is_some());
        assert!(is_readable(&queue, 20), "{kind}: the range is free");
        let driver = queue.spawn_driver().expect("driver");
        let (file, (written, is_written)) = (file.clone(), std::sync::mpsc::channel());
        let writer = std::thread::spawn(move || {
            written.send(file.write_at(&aligned_pattern(PAGE, 3), 0)).expect("the test waits");
        });
        let result = is_written.recv_timeout(Duration::from_secs(20));
        assert_eq!(result.expect("the range is free").expect("written"), PAGE, "{kind}");
        writer.join().expect("a thread");
        let (result, memory) = block_on(read);
        assert_eq!(result.expect("read"), PAGE);
        assert!(memory[..] == pattern(PAGE, 2)[..], "{kind}: before the write");
        drop(driver);
    });
}

/// Futures are dropped at every point of their life. No memory is lost or freed in flight, no range stays held, each page is whole.
#[test]
fn a_dropped_future_leaves_nothing_behind() {
    const PAGES: u64 = 16;
    const BUFFERS: u32 = 12;
    each_kind(|kind, file| {
        file.write_all_at(&aligned_pattern(PAGES as usize * PAGE, 0), 0).expect("write");
        let pool = RegisteredBuffers::new(PAGE, BUFFERS).expect("pool");
        let queue: AsyncQueue<RegisteredBuf> = AsyncQueue::new(4).expect("queue");
        let mut random = Random(7);
        let woken = Arc::new(Woken::default());
        let mut flying: Vec<(Transfer<RegisteredBuf>, u64)> = Vec::new();
        for round in 0..400 {
            if let Some(mut memory) = pool.try_take() {
                let at = random.below(PAGES) * PAGE as u64;
                let transfer = if random.below(2) == 0 {
                    memory.fill(1 + (round % 200) as u8);
                    queue.write(file, at, memory, PAGE)
                } else {
                    queue.read(file, at, memory, PAGE)
                };
                flying.push((transfer, random.below(4)));
            }
            let mut kept = Vec::new();
            for (mut transfer, polls) in flying {
                match polls {
                    // Never polled, or polled so often.
                    0 => drop(transfer),
                    _ => {
                        if let Poll::Ready((result, memory)) = woken.poll(&mut transfer) {
                            assert_eq!(result.expect("moved"), PAGE);
                            drop(memory);
                        } else {
                            kept.push((transfer, polls - 1));
                        }
                    }
                }
            }
            flying = kept;
            if round % 3 == 0 {
                queue.reap().expect("reaped");
            }
        }
        drop(flying);
        queue.run(poll_fn(|context| {
            context.waker().wake_by_ref();
            if queue.in_flight() == 0 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert_eq!(pool.available(), BUFFERS, "{kind}");
        let mut all = file.buffer(PAGES as usize * PAGE).expect("memory");
        file.read_exact_at(&mut all, 0).expect("no range is held");
        let first = pattern(PAGES as usize * PAGE, 0);
        for (page, was) in all.chunks(PAGE).zip(first.chunks(PAGE)) {
            assert!(page == was || page.iter().all(|byte| *byte == page[0]), "{kind}: a page of two writes");
        }
        assert_eq!(file.write_at(&all, 0).expect("no range is held"), all.len());
    });
}

/// A queue that is dropped with transfers in flight, whose futures are gone, waits for them.
#[test]
fn a_queue_is_dropped_with_transfers_in_flight() {
    each_kind(|_, file| {
        let pool = RegisteredBuffers::new(PAGE, 4).expect("pool");
        let queue: AsyncQueue<RegisteredBuf> = AsyncQueue::new(4).expect("queue");
        for page in 0..4 {
            let mut transfer = queue.write(file, page * PAGE as u64, pool.take(), PAGE);
            let _ = Arc::new(Woken::default()).poll(&mut transfer);
        }
        drop(queue);
        assert_eq!(pool.available(), 4);
    });
}

/// Streams give back what was written, also where calls are given up half way.
#[test]
fn streams_lose_nothing_when_a_call_is_given_up() {
    const LEN: usize = 1_000_003;
    each_kind(|kind, file| {
        let data = pattern(LEN, 5);
        let queue = AsyncQueue::new(3).expect("queue");
        let written = queue.run(async {
            let mut writer = AsyncWriter::new(&queue, file.clone(), 0, 8 * PAGE, 4)?;
            for (index, part) in data.chunks(30_011).enumerate() {
                writer.write_all(part).await?;
                if index == 7 {
                    writer.flush().await?;
                }
                if index % 3 == 1 {
                    // Polled once and dropped: what is written next follows what was written before.
                    let _ = pin!(writer.flush()).poll(&mut Context::from_waker(Waker::noop()));
                }
            }
            writer.finish().await
        });
        assert_eq!(written.expect("written").size(), LEN as u64, "{kind}");
        let mut back = Vec::new();
        let mut reader = AsyncReader::new(&queue, file.clone(), 0, 8 * PAGE, 4).expect("reader");
        let woken = Arc::new(Woken::default());
        loop {
            // Polled once and dropped, now and then.
            if back.len() % 3 == 0 {
                let mut call = pin!(reader.next_chunk());
                let mut context = Context::from_waker(Waker::noop());
                if let Poll::Ready(chunk) = call.as_mut().poll(&mut context) {
                    match chunk.expect("read") {
                        Some(chunk) => back.extend_from_slice(chunk),
                        None => break,
                    }
                    continue;
                }
            }
            match queue.run(reader.next_chunk()).expect("read") {
                Some(chunk) => back.extend_from_slice(chunk),
                None => break,
            }
        }
        assert!(back == data, "{kind}: {} bytes", back.len());
        drop(woken);
    });
}

/// A reader whose transfers are in flight while the file grows shows every byte, once: a piece that had met the old end was followed by what
/// came after a gap, and a reader that had seen the end never went on.
#[test]
fn readers_of_a_growing_file_leave_nothing_out() {
    const START: usize = 100_001;
    const LEN: usize = 600_007;
    each_volume(|kind, file, filesystem| {
        let data = pattern(LEN, 11);
        let open = filesystem.open_options().append(true).direct(DirectIo::Off);
        let log = open.open("/file").expect("open");
        log.append(&data[..START]).expect("written");
        let queue = AsyncQueue::new(8).expect("queue");
        let mut reader = AsyncReader::new(&queue, file.clone(), 0, PAGE, 8).expect("reader");
        let mut other = DirectReader::new(file.clone(), 0, PAGE, 8).expect("reader");
        let (mut back, mut back_of_other) = (Vec::new(), Vec::new());
        let limit = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                data[START..].chunks(7_001).for_each(|part| assert!(log.append(part).is_ok()));
            });
            // In a thread of its own: it would wait for an append that waits for what the queue has in flight.
            scope.spawn(|| {
                while back_of_other.len() < LEN {
                    assert!(
                        Instant::now() < limit,
                        "{kind}: {} bytes of a DirectReader",
                        back_of_other.len()
                    );
                    if let Some(chunk) = other.next_chunk().expect("read") {
                        back_of_other.extend_from_slice(chunk);
                    }
                }
            });
            while back.len() < LEN {
                assert!(Instant::now() < limit, "{kind}: {} bytes", back.len());
                if let Some(chunk) = queue.run(reader.next_chunk()).expect("read") {
                    back.extend_from_slice(chunk);
                }
            }
        });
        assert!(back == data, "{kind}: other bytes");
        assert!(back_of_other == data, "{kind}: other bytes of a DirectReader");
    });
}

#[test]
fn a_transfer_that_cannot_be_gives_its_memory_back() {
    each_kind(|_, file| {
        file.write_all_at(&aligned_pattern(PAGE, 1), 0).expect("write");
        let queue = AsyncQueue::new(2).expect("queue");
        let (result, memory) = queue.run(queue.read(file, 7, file.buffer(PAGE).expect("memory"), PAGE));
        assert!(result.is_err() && memory.len() == PAGE);
        let (result, _) = queue.run(queue.write(file, 0, memory, 2 * PAGE));
        assert!(result.is_err());
    });
}

/// A thread that reaps for all beside threads that reap for their own future: none takes away what wakes another.
#[test]
fn futures_end_beside_a_driver() {
    each_kind(|kind, file| {
        file.write_all_at(&aligned_pattern(64 * PAGE, 1), 0).expect("write");
        let queue: AsyncQueue = AsyncQueue::new(2).expect("a queue");
        let driver = queue.spawn_driver().expect("a thread");
        let (ended, all_ended) = std::sync::mpsc::channel();
        let start = |thread: u64| {
            let (queue, file, ended) = (queue.clone(), file.clone(), ended.clone());
            std::thread::spawn(move || {
                queue.run(async {
                    for turn in 0..300 {
                        let (page, memory) = ((turn + 20 * thread) % 60, file.buffer(PAGE).expect("memory"));
                        let (result, _) = queue.write(&file, page * PAGE as u64, memory, PAGE).await;
                        assert_eq!(result.expect("write"), PAGE);
                    }
                });
                ended.send(()).expect("the test waits");
            })
        };
        let threads = [0, 1, 2].map(start);
        for _ in 0..3 {
            let in_time = all_ended.recv_timeout(Duration::from_secs(30));
            assert!(in_time.is_ok(), "{kind}: a future waits; in flight: {}", queue.in_flight());
        }
        for thread in threads {
            thread.join().expect("a thread");
        }
        drop(driver);
    });
}

/// A write that finds the volume full finishes the queue's other transfers first, whose blocks it might have: their ends were taken from the
/// device then, and no descriptor told of them.
#[test]
fn what_a_refused_write_has_finished_is_delivered() {
    each_kind(|kind, file| {
        let (first, second) = (aligned_pattern(16 * PAGE, 1), aligned_pattern(16 * PAGE, 2));
        let at = 1 << 20;
        file.write_all_at(&first, 0).expect("write");
        fill_from(file, 2 * at);
        let (queue, of_thread) = (AsyncQueue::new(4).expect("queue"), file.clone());
        let (sender, receiver) = std::sync::mpsc::channel();
        let runner = std::thread::spawn(move || {
            let file = of_thread;
            let writes =
                vec![queue.write(&file, 0, first, 16 * PAGE), queue.write(&file, at, second, 16 * PAGE)];
            let results: Vec<_> = queue.run(all(writes)).into_iter().map(|(result, _)| result).collect();
            sender.send(results).expect("the test waits");
        });
        let results = receiver.recv_timeout(Duration::from_secs(20)).expect("both end");
        runner.join().expect("run");
        assert_eq!(results[0].as_ref().ok(), Some(&(16 * PAGE)), "{kind}");
        let refused = results[1].as_ref().expect_err("no space").kind();
        assert_eq!(refused, diorite::ErrorKind::StorageFull, "{kind}");

        let mut queue = DirectQueue::new(4);
        queue.descriptor().expect("descriptor");
        queue.write(file, 0, aligned_pattern(16 * PAGE, 3), 16 * PAGE, 7).expect("submitted");
        queue.write(file, at, aligned_pattern(16 * PAGE, 4), 16 * PAGE, 8).expect_err("no space");
        assert!(is_readable(queue.descriptor().expect("descriptor"), 0), "{kind}");
        let mut done = Vec::new();
        queue.reap(0, &mut done).expect("reap");
        assert_eq!(done.iter().map(|done| done.tag).collect::<Vec<_>>(), [7], "{kind}");
        assert!(!is_readable(queue.descriptor().expect("descriptor"), 0), "{kind}");
    });
}

/// Have the file take all blocks of the volume.
fn fill_from(file: &File, mut end: u64) {
    let mut step = 1 << 20;
    while step >= 512 {
        match file.allocate(end, step) {
            Ok(()) => end += step,
            Err(error) if error.kind() == diorite::ErrorKind::StorageFull => step /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    file.sync_all().expect("sync");
}

/// Poll two futures until both have ended.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b, mut of_a, mut of_b) = (pin!(a), pin!(b), None, None);
    poll_fn(|context| {
        if of_a.is_none() {
            of_a = ready_value(a.as_mut().poll(context));
        }
        if of_b.is_none() {
            of_b = ready_value(b.as_mut().poll(context));
        }
        if of_a.is_some() && of_b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (of_a.expect("just seen"), of_b.expect("just seen"))
}

fn ready_value<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The end of a stream waited for its range inside of a poll, while a read of the same task had it: no thread was left to reap that.
#[test]
fn the_end_of_a_stream_waits_for_a_read_of_its_own_task() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        each_kind(|kind, file| {
            file.write_all_at(&aligned_pattern(2 * PAGE, 1), 0).expect("write");
            let queue = AsyncQueue::new(4).expect("queue");
            let mut reader = AsyncReader::new(&queue, file.clone(), 0, 16 * PAGE, 1).expect("reader");
            let writer = AsyncWriter::new(&queue, file.clone(), 2 * PAGE as u64, 16 * PAGE, 1);
            let mut writer = writer.expect("writer");
            let (read, written) = queue.run(both(reader.next_chunk(), async {
                writer.write_all(&[7; 100]).await?;
                writer.finish().await
            }));
            assert!(read.expect("read").is_some_and(|chunk| chunk.len() >= 2 * PAGE), "{kind}");
            assert_eq!(written.expect("written").size(), 2 * PAGE as u64 + 100, "{kind}");
        });
        done.send(()).expect("the test waits");
    });
    ended
        .recv_timeout(Duration::from_secs(60))
        .expect("the writer waits for the reader, which no thread reaps");
}

/// The last part of a stream covers blocks in part: the bytes around it stay unchanged, wherever it began and ended.
#[test]
fn the_end_of_a_stream_leaves_the_bytes_around_it() {
    each_kind(|kind, file| {
        let mut expected = pattern(4 * PAGE, 2);
        file.write_all_at(&aligned_pattern(4 * PAGE, 2), 0).expect("write");
        for (at, len) in
            [(PAGE, 100), (2 * PAGE, PAGE + 700), (PAGE - 10, 50), (4 * PAGE + 5, 3), (3 * PAGE, 1)]
        {
            let data = pattern(len, at as u64);
            expected.resize(expected.len().max(at + len), 0);
            expected[at..at + len].copy_from_slice(&data);
            let queue = AsyncQueue::new(2).expect("queue");
            let mut writer = AsyncWriter::new(&queue, file.clone(), at as u64, PAGE, 1).expect("writer");
            let result = queue.run(async {
                writer.write_all(&data).await?;
                writer.finish().await
            });
            result.unwrap_or_else(|error| panic!("{kind}, {len} bytes at {at}: {error}"));
        }
        let mut content = file.buffer(5 * PAGE).expect("memory");
        let len = file.read_at(&mut content, 0).expect("read");
        assert_eq!(len, expected.len(), "{kind}");
        assert!(content[..len] == expected, "{kind}");
    });
}
