//! Futures on a simulated disk, in shuffled order and dropped at random: results are those of a model.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use diorite::{
    AlignedBuf, AsyncQueue, AsyncReader, AsyncWriter, DirectIo, File, FilesystemOptions, Transfer,
    TransferMemory,
};
use diorite_block::{BlockDevice, IoOwner, sync};
use diorite_ext_tools::mkfs::{MkfsOptions, mkfs};
use diorite_sim::{Order, SimDisk, Simulation, WorldOptions};

const PAGE: usize = 4096;
const PAGES: u64 = 8;

/// The possible values of a page: the last value, and those of dropped writes.
type Model = Vec<BTreeSet<u8>>;

struct Case {
    queue: AsyncQueue,
    file: File,
    state: u64,
    model: Model,
    next_value: u8,
}

/// One transfer of a page.
struct Flying {
    page: u64,
    write: Option<u8>,
    transfer: Transfer<AlignedBuf>,
}

impl Case {
    fn below(&mut self, bound: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }

    fn start(&mut self, page: u64) -> Flying {
        let at = page * PAGE as u64;
        let mut memory = AlignedBuf::zeroed(PAGE, PAGE);
        if self.below(2) == 0 {
            return Flying { page, write: None, transfer: self.queue.read(&self.file, at, memory, PAGE) };
        }
        self.next_value = self.next_value % 250 + 1;
        memory.fill(self.next_value);
        Flying {
            page,
            write: Some(self.next_value),
            transfer: self.queue.write(&self.file, at, memory, PAGE),
        }
    }

    fn end(&mut self, flying: &Flying, (result, memory): (diorite::Result<usize>, AlignedBuf)) {
        assert_eq!(result.expect("moved"), PAGE);
        let possible = &mut self.model[flying.page as usize];
        assert!(memory.iter().all(|byte| *byte == memory[0]), "a page is whole");
        if let Some(value) = flying.write {
            *possible = BTreeSet::from([value]);
        } else {
            assert!(possible.contains(&memory[0]), "{} of {possible:?}", memory[0]);
            *possible = BTreeSet::from([memory[0]]);
        }
    }

    /// One transfer a page at once; some are dropped, before, while or after they are in flight.
    async fn run(&mut self) {
        let mut flying: Vec<Flying> = Vec::new();
        for _ in 0..150 {
            let page = self.below(PAGES);
            if flying.iter().all(|other| other.page != page) {
                let new = self.start(page);
                flying.push(new);
            }
            let waits = flying.len() > 2 && self.below(2) == 0;
            let ended = std::future::poll_fn(|context| {
                for (index, one) in flying.iter_mut().enumerate() {
                    if let Poll::Ready(output) = Pin::new(&mut one.transfer).poll(context) {
                        return Poll::Ready(Some((index, output)));
                    }
                }
                if waits { Poll::Pending } else { Poll::Ready(None) }
            })
            .await;
            if let Some((index, output)) = ended {
                let one = flying.swap_remove(index);
                self.end(&one, output);
            }
            if self.below(4) == 0 && !flying.is_empty() {
                let dropped = flying.swap_remove(self.below(flying.len() as u64) as usize);
                if let (Some(value), true) = (dropped.write, dropped.transfer.is_submitted()) {
                    self.model[dropped.page as usize].insert(value);
                }
            }
        }
        for mut one in flying {
            let output = (&mut one.transfer).await;
            self.end(&one, output);
        }
        for page in 0..PAGES {
            let memory = AlignedBuf::zeroed(PAGE, PAGE);
            let transfer = self.queue.read(&self.file, page * PAGE as u64, memory, PAGE);
            let mut one = Flying { page, write: None, transfer };
            let output = (&mut one.transfer).await;
            self.end(&one, output);
        }
    }
}

/// Reads whole pages meanwhile, by calls that wait.
fn read_beside(file: &File) {
    let mut memory = AlignedBuf::zeroed(2 * PAGE, PAGE);
    for round in 0..40 {
        let offset = round % (PAGES - 1) * PAGE as u64;
        file.read_exact_at(&mut memory, offset).expect("read");
        assert!(memory.chunks(PAGE).all(|page| page.iter().all(|byte| *byte == page[0])), "a page is whole");
    }
}

/// Do something with a file of zeros on a simulated disk. A world in which all threads wait without end is a failure.
fn in_world(seed: u64, body: impl FnOnce(&File) + Send + 'static) {
    let disk = SimDisk::named(["ssd", "sata-2009"][seed as usize % 2]).expect("a disk");
    let options = MkfsOptions { size_bytes: Some(32 << 20), ..MkfsOptions::default() };
    mkfs(&*disk, &options).expect("mkfs");
    let kind = ["none", "deadline", "inject"][seed as usize % 3].parse().expect("a scheduler");
    let world = WorldOptions { seed, order: Order::Shuffled, ..WorldOptions::default() };
    let simulation = Simulation::with_options(world);
    let ended = Arc::new(Mutex::new(false));
    let has_ended = Arc::clone(&ended);
    simulation.spawn("main", IoOwner::default(), move || {
        let device: Arc<dyn BlockDevice> = disk;
        let filesystem = FilesystemOptions::new().scheduler(kind).open_device(device).expect("open");
        let open = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
        let file = open.open("/file").expect("file");
        file.write_all_at(&AlignedBuf::zeroed(PAGES as usize * PAGE, PAGE), 0).expect("write");
        body(&file);
        drop(file);
        filesystem.close().expect("close");
        *has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        sync::sleep(Duration::from_secs(100));
    });
    simulation.run().unwrap_or_else(|deadlock| panic!("seed {seed}: {deadlock}"));
    assert!(*ended.lock().unwrap_or_else(PoisonError::into_inner), "seed {seed}");
}

fn simulate(seed: u64) {
    in_world(seed, move |file| {
        let beside = file.clone();
        let reader = sync::spawn("reader", move || read_beside(&beside)).expect("a thread");
        let queue = AsyncQueue::new(1 + (seed % 5) as u32).expect("queue");
        let model = vec![BTreeSet::from([0]); PAGES as usize];
        let mut case = Case { queue: queue.clone(), file: file.clone(), state: seed, model, next_value: 0 };
        queue.run(case.run());
        // Transfers dropped in flight are reaped, so that the reader's range is free.
        reap_all(&queue);
        reader.join();
    });
}

fn reap_all(queue: &AsyncQueue<impl TransferMemory + 'static>) {
    while queue.in_flight() > 0 {
        queue.run(async { queue.reap().expect("reaped") });
        sync::sleep(Duration::from_millis(1));
    }
}

/// A message from one task to another.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<(bool, Option<Waker>)>>);

impl Said {
    fn say(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    async fn heard(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.1 = Some(context.waker().clone());
            if state.0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Poll once, for a task that does something else then.
fn poll_once(transfer: &mut Transfer<AlignedBuf>) {
    assert!(Pin::new(transfer).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn futures_are_those_of_a_model_whatever_is_dropped() {
    let seeds = std::env::var("DIORITE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    (0..seeds).for_each(simulate);
}

/// Of one task.
struct TaskWaker {
    is_woken: AtomicBool,
    executor: Mutex<Waker>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.executor.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}

/// Tasks of one thread, each polled only when it was woken.
async fn all_tasks<'t>(tasks: Vec<Pin<Box<dyn Future<Output = ()> + 't>>>) {
    let task_waker =
        || TaskWaker { is_woken: AtomicBool::new(true), executor: Mutex::new(Waker::noop().clone()) };
    let mut tasks: Vec<_> = tasks.into_iter().map(|task| (task, Arc::new(task_waker()))).collect();
    std::future::poll_fn(|context| {
        tasks.retain_mut(|(task, waker)| {
            waker.executor.lock().unwrap_or_else(PoisonError::into_inner).clone_from(context.waker());
            let is_woken = waker.is_woken.swap(false, Ordering::SeqCst);
            !is_woken
                || task.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(waker)))).is_pending()
        });
        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A writer has all its buffers in the queue, and its task waits for the task of a reader: the place in the queue that became free was
/// given to the writer's next transfer, which its task did not submit, and not to the reader's. Nothing was in flight then, and both waited.
#[test]
fn a_task_that_waits_for_another_keeps_no_place_from_it() {
    for depth in 1..=4_u32 {
        in_world(depth.into(), move |file| {
            let queue = AsyncQueue::new(depth).expect("queue");
            let (is_read, len) = (Said::default(), 2 * depth as usize * PAGE);
            let write = async {
                let at = PAGES * PAGE as u64;
                let mut writer =
                    AsyncWriter::new(&queue, file.clone(), at, PAGE, 2 * depth).expect("a writer");
                writer.write_all(&vec![7; len]).await.expect("taken");
                is_read.heard().await;
                writer.finish().await.expect("written");
            };
            let read = async {
                let mut reader = AsyncReader::new(&queue, file.clone(), 0, PAGE, 2).expect("a reader");
                let chunk = reader.next_chunk().await.expect("read");
                assert_eq!(chunk.map(<[u8]>::len), Some(PAGE));
                is_read.say();
            };
            queue.run(all_tasks(vec![Box::pin(write), Box::pin(read)]));
            reap_all(&queue);
            let mut back = vec![0; len];
            file.read_exact_at(&mut back, PAGES * PAGE as u64).expect("read");
            assert!(back.iter().all(|byte| *byte == 7));
        });
    }
}

/// A write waits for its range, and its task is not polled when it is its turn. Calls of threads on the range, which come after it, waited
/// for it without end: also where it was no transfer of the queue that had the range.
#[test]
fn a_transfer_that_waits_for_its_range_needs_no_poll() {
    for seed in 0..6 {
        in_world(seed, move |file| {
            let queue = AsyncQueue::new(4).expect("queue");
            let filled = |byte: u8| {
                let mut memory = AlignedBuf::zeroed(PAGE, PAGE);
                memory.fill(byte);
                memory
            };
            let beside = file.clone();
            let mut first = (seed % 2 == 0).then(|| queue.write(file, 0, filled(1), PAGE));
            let holder = if let Some(first) = &mut first {
                poll_once(first);
                None
            } else {
                let write = move || drop(beside.write_all_at(&AlignedBuf::zeroed(4 << 20, PAGE), 0));
                let holder = sync::spawn("holder", write).expect("a thread");
                sync::sleep(Duration::from_micros(200));
                Some(holder)
            };
            let mut second = queue.write(file, 0, filled(2), PAGE);
            poll_once(&mut second);
            assert!(!second.is_submitted(), "seed {seed}: the range is not free");
            let (is_read, read) = (Said::default(), file.clone());
            let said = is_read.clone();
            let reader = sync::spawn("reader", move || {
                let mut memory = AlignedBuf::zeroed(PAGE, PAGE);
                read.read_exact_at(&mut memory, 0).expect("read");
                assert!(memory.iter().all(|byte| *byte == 2), "after the write");
                said.say();
            });
            queue.run(is_read.heard());
            assert!(second.is_submitted());
            assert_eq!(queue.run(second).0.expect("written"), PAGE);
            if let Some(first) = first {
                assert_eq!(queue.run(first).0.expect("written"), PAGE);
            }
            reader.expect("a thread").join();
            holder.into_iter().for_each(sync::JoinHandle::join);
        });
    }
}
