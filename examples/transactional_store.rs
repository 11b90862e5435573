//! A small transactional page store over a buffer pool: a redo log with group commit, writeback after the log, recovery after a kill.
//!
//! - A transaction changes numbers in pages. Its changes go to the log first; many threads share one write of the log.
//! - Its pages have the LSN of its log record ([`PageMut::set_lsn`](diorite_pool::PageMut::set_lsn)). The pool writes none of them before the record is durable. So no
//!   page on the disk is newer than the log, and recovery undoes nothing.
//! - Recovery applies every record since the last checkpoint. A checkpoint writes all dirty pages and begins a new log.
//!
//! The disk must write a page of 4 KiB atomically. Without that, a log must also contain full pages.
//!
//! ```text
//! cargo run --release -p diorite-pool --example transactional_store
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, RwLock};

use diorite::{DirectIo, File, HostFile};
use diorite_pool::{BufferPool, FileId};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PAGE: usize = 4096;
const SLOTS: u64 = PAGE as u64 / 8;
const ACCOUNTS: u64 = 200 * SLOTS;
/// A quarter of the pages.
const FRAMES: usize = 50;
const LOG_BYTES: u64 = 1 << 20;
const THREADS: u64 = 4;
/// Each thread counts its transactions in its own account, after the others.
const COUNTERS: u64 = ACCOUNTS - THREADS;

/// A redo log: groups of records, each group in its own blocks, with a checksum.
struct Log {
    file: File,
    state: Mutex<LogState>,
    written: Condvar,
}

#[derive(Default)]
struct LogState {
    /// Records that no thread writes yet.
    waiting: Vec<u8>,
    next_lsn: u64,
    durable_lsn: u64,
    is_writing: bool,
    /// Number of the log: groups of an earlier log are not read.
    epoch: u64,
    end: u64,
    error: Option<String>,
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

impl Log {
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().expect("no thread panics with the log")
    }

    /// Read the groups of the last epoch, oldest first; new groups follow them.
    fn open(path: &Path, mut apply: impl FnMut(u64, u64) -> Result<()>) -> Result<Self> {
        let options = HostFile::options().read(true).write(true).create(true).dsync(true);
        let file = options.direct(DirectIo::Preferred).open(path)?;
        file.set_len(LOG_BYTES + PAGE as u64)?;
        let mut block = file.buffer(PAGE)?;
        file.read_exact_at(&mut block, 0)?;
        let epoch = words(&block).next().unwrap_or(0);
        let mut end = PAGE as u64;
        while end < LOG_BYTES {
            file.read_exact_at(&mut block, end)?;
            let header: Vec<u64> = words(&block).take(3).collect();
            let [of_epoch, sum, len] = header[..] else { break };
            let blocks = (24 + len).next_multiple_of(PAGE as u64);
            if of_epoch != epoch || len > LOG_BYTES || end + blocks > LOG_BYTES + PAGE as u64 {
                break;
            }
            let mut group = file.buffer(blocks as usize)?;
            file.read_exact_at(&mut group, end)?;
            let records = &group[24..24 + len as usize];
            if checksum(records) != sum ^ epoch {
                break;
            }
            let numbers: Vec<u64> = words(records).collect();
            for change in numbers.chunks_exact(2) {
                apply(change[0], change[1])?;
            }
            end += blocks;
        }
        let state = Mutex::new(LogState { epoch, end, ..LogState::default() });
        Ok(Self { file, state, written: Condvar::new() })
    }

    /// Begin a new log. The caller has written every page.
    fn reset(&self) -> Result<()> {
        let mut state = self.state();
        let mut block = self.file.buffer(PAGE)?;
        block[..8].copy_from_slice(&(state.epoch + 1).to_le_bytes());
        self.file.write_all_at(&block, 0)?;
        (state.epoch, state.end) = (state.epoch + 1, PAGE as u64);
        Ok(())
    }

    /// Add a record, and return its LSN.
    fn add(&self, changes: &[(u64, u64)]) -> u64 {
        let mut state = self.state();
        state
            .waiting
            .extend(changes.iter().flat_map(|(slot, value)| [*slot, *value]).flat_map(u64::to_le_bytes));
        state.next_lsn += 1;
        state.next_lsn
    }

    /// Wait until a record is durable. The first waiting thread writes for all.
    fn make_durable(&self, lsn: u64, pool: &BufferPool) -> Result<()> {
        let mut state = self.state();
        while state.durable_lsn < lsn {
            if let Some(error) = &state.error {
                return Err(error.clone().into());
            }
            if state.is_writing {
                state = self.written.wait(state).expect("no thread panics with the log");
                continue;
            }
            state.is_writing = true;
            let (records, to) = (std::mem::take(&mut state.waiting), state.next_lsn);
            let (epoch, at) = (state.epoch, state.end);
            drop(state);
            let written = self.write_group(epoch, at, &records);
            state = self.state();
            state.is_writing = false;
            match written {
                Ok(end) => (state.end, state.durable_lsn) = (end, to),
                Err(error) => state.error = Some(error.to_string()),
            }
            pool.set_durable_lsn(state.durable_lsn);
            self.written.notify_all();
        }
        Ok(())
    }

    fn write_group(&self, epoch: u64, at: u64, records: &[u8]) -> Result<u64> {
        let mut group = self.file.buffer((24 + records.len()).next_multiple_of(PAGE))?;
        group[..8].copy_from_slice(&epoch.to_le_bytes());
        group[8..16].copy_from_slice(&(checksum(records) ^ epoch).to_le_bytes());
        group[16..24].copy_from_slice(&(records.len() as u64).to_le_bytes());
        group[24..24 + records.len()].copy_from_slice(records);
        self.file.write_all_at(&group, at)?;
        Ok(at + group.len() as u64)
    }

    fn is_nearly_full(&self) -> bool {
        self.state().end > LOG_BYTES / 2
    }
}

/// Numbers by slot, changed in transactions.
struct Store {
    pool: BufferPool,
    file: FileId,
    log: Log,
    /// Held shared by transactions, and exclusively by a checkpoint.
    checkpoint: RwLock<()>,
    /// Locks of slots, taken in order.
    locks: Vec<Mutex<()>>,
}

impl Store {
    fn open(directory: &Path) -> Result<Self> {
        let options = HostFile::options().read(true).write(true).create(true).direct(DirectIo::Preferred);
        let pages = options.open(directory.join("pages"))?;
        pages.set_len(ACCOUNTS * 8)?;
        let pool = BufferPool::options().page_bytes(PAGE).pages(FRAMES).create()?;
        let file = pool.open_file("pages", pages)?;
        let log = Log::open(&directory.join("log"), |slot, value| set(&pool, file, slot, value, 0))?;
        let locks = (0..256).map(|_| Mutex::new(())).collect();
        let store = Self { pool, file, log, checkpoint: RwLock::new(()), locks };
        store.checkpoint()?;
        Ok(store)
    }

    fn checkpoint(&self) -> Result<()> {
        let _alone = self.checkpoint.write().expect("no transaction panics");
        self.pool.flush(self.file)?;
        self.log.reset()
    }

    fn get(&self, slot: u64) -> Result<u64> {
        let page = self.pool.fetch(self.file.page(slot / SLOTS))?;
        Ok(words(&page).nth((slot % SLOTS) as usize).expect("a slot of the page"))
    }

    /// Set slots to new numbers, all or none. Durable when it returns.
    fn transact(&self, slots: &[u64], change: impl FnOnce(&mut [u64])) -> Result<()> {
        if self.log.is_nearly_full() {
            self.checkpoint()?;
        }
        let _running = self.checkpoint.read().expect("no transaction panics");
        let mut stripes: Vec<_> = slots.iter().map(|slot| *slot as usize % self.locks.len()).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let _held: Vec<_> =
            stripes.iter().map(|at| self.locks[*at].lock().expect("no transaction panics")).collect();
        let mut values = slots.iter().map(|slot| self.get(*slot)).collect::<Result<Vec<_>>>()?;
        change(&mut values);
        let changes: Vec<_> = slots.iter().copied().zip(values).collect();
        let lsn = self.log.add(&changes);
        for (slot, value) in changes {
            set(&self.pool, self.file, slot, value, lsn)?;
        }
        self.log.make_durable(lsn, &self.pool)
    }
}

fn set(pool: &BufferPool, file: FileId, slot: u64, value: u64, lsn: u64) -> Result<()> {
    let mut page = pool.fetch_exclusive(file.page(slot / SLOTS))?;
    page.set_lsn(lsn);
    page.as_chunks_mut::<8>().0[(slot % SLOTS) as usize] = value.to_le_bytes();
    Ok(())
}

/// Threads move money between accounts until the process is killed, and report their durable transactions.
fn work(directory: &Path) -> Result<()> {
    let store = Store::open(directory)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || -> Result<()> {
                    let mut seed = thread * 7919 + u64::from(std::process::id());
                    let mut account = || {
                        seed = seed
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        (seed >> 33) % COUNTERS
                    };
                    loop {
                        let (from, to) = (account(), account());
                        if from == to {
                            continue;
                        }
                        let mut done = 0;
                        store.transact(&[from, to, COUNTERS + thread], |values| {
                            values[0] = values[0].wrapping_sub(1);
                            values[1] = values[1].wrapping_add(1);
                            values[2] += 1;
                            done = values[2];
                        })?;
                        writeln!(std::io::stdout(), "{thread} {done}")?;
                    }
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no transaction panics"))
    })
}

/// Kill a worker again and again: no money is made or lost, and no durable transaction is missing.
fn kill_and_recover(worker: impl Fn(&Path) -> Command, kills: u64) -> Result<u64> {
    let directory = tempfile::tempdir()?;
    let mut durable = [0; THREADS as usize];
    for kill in 0..kills {
        let mut child = worker(directory.path()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // Other lines come from the test runner.
        let mut read = |line: String| {
            let words: Vec<_> = line.split_whitespace().map_while(|word| word.parse::<u64>().ok()).collect();
            if let [thread, count] = words[..] {
                durable[thread as usize] = durable[thread as usize].max(count);
            }
        };
        for line in lines.by_ref().take(50 + 37 * kill as usize) {
            read(line?);
        }
        child.kill()?;
        lines.map_while(std::result::Result::ok).for_each(read);
        child.wait()?;
        let store = Store::open(directory.path())?;
        let mut sum = 0_u64;
        for slot in 0..COUNTERS {
            sum = sum.wrapping_add(store.get(slot)?);
        }
        assert_eq!(sum, 0, "a transaction was done by half");
        for (thread, durable) in durable.iter().enumerate() {
            let count = store.get(COUNTERS + thread as u64)?;
            assert!(count >= *durable, "thread {thread} did {durable} transactions, and {count} are there");
        }
    }
    Ok(durable.iter().sum())
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [_, command, directory] = &arguments[..]
        && command == "work"
    {
        return work(directory.as_ref());
    }
    let program = std::env::current_exe()?;
    let worker = |directory: &Path| {
        let mut command = Command::new(&program);
        command.arg("work").arg(directory);
        command
    };
    let transactions = kill_and_recover(worker, 10)?;
    println!("killed 10 times: {transactions} transactions, all there");
    Ok(())
}

#[cfg(test)]
const WORK: &str = "TRANSACTIONAL_STORE_WORK";

#[test]
fn nothing_durable_is_lost() {
    let worker = |directory: &Path| {
        let mut command = Command::new(std::env::current_exe().expect("this program has a name"));
        command.args(["--exact", "worker", "--nocapture"]).env(WORK, directory);
        command
    };
    assert!(kill_and_recover(worker, 4).expect("every kill is survived") > 100);
}

/// The process that is killed.
#[test]
fn worker() {
    if let Some(directory) = std::env::var_os(WORK) {
        work(directory.as_ref()).expect("killed before anything fails");
    }
}
