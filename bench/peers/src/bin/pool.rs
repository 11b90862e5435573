//! A buffer pool as a user has it, for `cargo xtask bench pool`: the time of a hit, and a page workload ten times larger than the memory.
//!
//! ```text
//! pool hit                                     nanoseconds of a fetch and release, one thread
//! pool work ENGINE DIRECTORY PAGES SECONDS     TPC-B-like: each operation changes a random account's page, a teller's and a branch's, and
//!                                              adds to a history page
//! ```
//! ENGINE is `pool-direct` (the pool is the only cache), `pool-shared` (the same, with files that other processes may open as well), `pool-cached` (the kernel's page cache is under it), or `kernel` (`pread` and `pwrite`,
//! the kernel's page cache alone). All have the same memory: a cgroup of the pool's size and the 8 MiB that a process with a pool takes beside it.

use std::error::Error;
use std::fs::OpenOptions;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use diorite::DirectIo;
use diorite_pool::{BufferPool, FileId, PageFile};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE: usize = 4096;
/// Pages of a file for each page of memory.
const LARGER: u64 = 10;
const ACCOUNT_BYTES: usize = 100;
const BESIDE_THE_POOL: u64 = 8 << 20;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hit"] => hit(),
        ["work", engine, directory, pages, seconds] => {
            work(engine, Path::new(directory), pages.parse()?, Duration::from_secs_f64(seconds.parse()?))
        }
        _ => Err("usage: pool hit | pool work ENGINE DIRECTORY PAGES SECONDS".into()),
    }
}

/// A sequence of numbers that costs little.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

/// Fetch and release pages that are in the pool: few, so that the processor's caches have all, and many.
fn hit() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("pages");
    let pages = 16_384;
    OpenOptions::new().write(true).create_new(true).open(&path)?.set_len(pages * PAGE as u64)?;
    let pool = BufferPool::options().page_bytes(PAGE).pages(pages as usize).create()?;
    let file = pool.open_file("pages", PageFile::open(&path, DirectIo::Preferred)?)?;
    for number in 0..pages {
        drop(pool.fetch(file.page(number))?);
    }
    let rounds = 4_000_000_u64;
    let mut figures = String::new();
    for working_set in [64, 1024, pages] {
        let mut random = Random(88_172_645_463_325_252);
        let mut empty = Random(88_172_645_463_325_252);
        let start = Instant::now();
        for _ in 0..rounds {
            black_box(empty.below(working_set));
        }
        let overhead = start.elapsed();
        let shared = {
            let start = Instant::now();
            for _ in 0..rounds {
                let page = pool.fetch(file.page(random.below(working_set)))?;
                black_box(&page);
            }
            start.elapsed()
        };
        let exclusive = {
            let start = Instant::now();
            for _ in 0..rounds {
                let page = pool.fetch_exclusive(file.page(random.below(working_set)))?;
                black_box(&page);
            }
            start.elapsed()
        };
        let ns = |time: Duration| time.saturating_sub(overhead).as_secs_f64() * 1e9 / rounds as f64;
        let (shared, exclusive) = (ns(shared), ns(exclusive));
        figures += &format!(
            "\"fetch_ns_{working_set}\": {shared:.1}, \"fetch_exclusive_ns_{working_set}\": {exclusive:.1}, "
        );
    }
    println!("{{{figures}\"huge_pages\": {}}}", u8::from(pool.stats().huge_pages));
    Ok(())
}

/// Where pages are changed.
enum Pages {
    Pool { pool: BufferPool, file: FileId },
    Kernel { file: std::fs::File, page: Vec<u8> },
}

impl Pages {
    fn change(&mut self, number: u64, slot: usize, delta: u64) -> Result<()> {
        let add = |page: &mut [u8]| {
            let record = &mut page[slot * ACCOUNT_BYTES..][..8];
            let value = u64::from_le_bytes(record.try_into().expect("eight bytes")).wrapping_add(delta);
            record.copy_from_slice(&value.to_le_bytes());
        };
        match self {
            Self::Pool { pool, file } => add(&mut pool.fetch_exclusive(file.page(number))?),
            Self::Kernel { file, page } => {
                file.read_exact_at(page, number * PAGE as u64)?;
                add(page);
                file.write_all_at(page, number * PAGE as u64)?;
            }
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Pool { pool, .. } => Ok(pool.close()?),
            Self::Kernel { file, .. } => Ok(file.sync_data()?),
        }
    }
}

fn work(engine: &str, directory: &Path, pool_pages: u64, time: Duration) -> Result<()> {
    let cgroup = Cgroup::enter(pool_pages * PAGE as u64 + BESIDE_THE_POOL)?;
    let accounts = pool_pages * LARGER;
    let (branches, tellers, history) = (8, 80, 256);
    let path = directory.join("pool-work");
    make(&path, accounts + branches + tellers + history)?;
    let mut pages = match engine {
        "kernel" => {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            Pages::Kernel { file, page: vec![0; PAGE] }
        }
        "pool-direct" | "pool-cached" | "pool-shared" => {
            let pool = BufferPool::options().page_bytes(PAGE).pages(pool_pages as usize).create()?;
            let file = match engine {
                "pool-direct" => PageFile::open(&path, DirectIo::Required)?,
                "pool-shared" => PageFile::shared(&path, DirectIo::Required)?,
                _ => PageFile::open(&path, DirectIo::Off)?,
            };
            let file = pool.open_file("pages", file)?;
            Pages::Pool { pool, file }
        }
        other => return Err(format!("no engine {other}").into()),
    };
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut transactions = |pages: &mut Pages, time: Duration| -> Result<u64> {
        let (start, mut count) = (Instant::now(), 0_u64);
        while start.elapsed() < time {
            for _ in 0..16 {
                let slots = (PAGE / ACCOUNT_BYTES) as u64;
                let account = random.below(accounts * slots);
                pages.change(account / slots, (account % slots) as usize, 1)?;
                let teller = random.below(tellers);
                pages.change(accounts + branches + teller, 0, 1)?;
                pages.change(accounts + teller / 10, 0, 1)?;
                let entry = count / slots % history;
                pages.change(accounts + branches + tellers + entry, (count % slots) as usize, 1)?;
                count += 1;
            }
        }
        Ok(count)
    };
    transactions(&mut pages, time / 2)?;
    let start = Instant::now();
    let (cpu, own, read) = (machine_cpu(start)?, own_cpu()?, bytes_read()?);
    let count = transactions(&mut pages, time)?;
    let stats =
        if let Pages::Pool { pool, .. } = &pages { format!("{:?}", pool.stats()) } else { String::new() };
    let read = (bytes_read()? - read) / PAGE as u64;
    pages.end()?;
    let (cpu, own, seconds) = (machine_cpu(start)? - cpu, own_cpu()? - own, start.elapsed().as_secs_f64());
    std::fs::remove_file(&path)?;
    let (all, own_rate, machine_rate) = (count as f64, count as f64 / own, count as f64 / cpu);
    println!(
        "{{\"engine\": \"{engine}\", \"ops_per_s\": {:.0}, \"ops_per_machine_cpu_s\": {machine_rate:.0}, \"ops_per_own_cpu_s\": {own_rate:.0}, \
         \"pages_read_per_op\": {:.3}, \"memory_most\": {}, \"limited\": {}, \"stats\": \"{stats}\"}}",
        all / seconds,
        read as f64 / all,
        cgroup.as_ref().map_or(0, Cgroup::most_bytes),
        u8::from(cgroup.is_some())
    );
    Ok(())
}

/// A file with every block written, and none in the kernel's cache.
fn make(path: &Path, pages: u64) -> Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let piece = vec![0_u8; 1 << 20];
    let mut at = 0;
    while at < pages * PAGE as u64 {
        let len = piece.len().min((pages * PAGE as u64 - at) as usize);
        file.write_all_at(&piece[..len], at)?;
        at += len as u64;
    }
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// Seconds of all processors that were not idle, from some moment on: elapsed time without idle time, which the kernel measures. (The time
/// that was not idle it samples at ticks, which misses much of what threads do that sleep and wake all the time.)
fn machine_cpu(since: Instant) -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let fields: Vec<f64> =
        stat.lines().next().unwrap_or("").split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let idle = [3, 4, 7].iter().filter_map(|&index| fields.get(index)).sum::<f64>() / 100.0;
    Ok(since.elapsed().as_secs_f64() * std::thread::available_parallelism()?.get() as f64 - idle)
}

/// Seconds of this process.
fn own_cpu() -> Result<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Bytes that this process has had from the disk, also into the kernel's cache.
fn bytes_read() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("/proc/self/io has no read_bytes")?.parse()?)
}

/// Memory that this process, and the kernel's cache for it, may have. None where that takes rights that it has not.
struct Cgroup(PathBuf);

impl Cgroup {
    fn enter(bytes: u64) -> Result<Option<Self>> {
        let name = format!("diorite-pool-{}", std::process::id());
        for (place, file) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let path = Path::new(place).join(&name);
            if std::fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self(path);
            if std::fs::write(group.0.join(file), bytes.to_string()).is_ok() {
                std::fs::write(group.0.join("cgroup.procs"), std::process::id().to_string())?;
                return Ok(Some(group));
            }
        }
        Ok(None)
    }

    /// The most memory that it had.
    fn most_bytes(&self) -> u64 {
        let file = ["memory.max_usage_in_bytes", "memory.peak"]
            .map(|name| std::fs::read_to_string(self.0.join(name)));
        file.into_iter().flatten().find_map(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A group that has a process cannot be removed.
        let parent = self.0.parent().expect("a group has a parent").join("cgroup.procs");
        let _ = std::fs::write(parent, std::process::id().to_string());
        let _ = std::fs::remove_dir(&self.0);
    }
}
