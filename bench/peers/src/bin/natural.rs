//! Direct I/O in the loops that a user of the library writes, over its public interface, for `cargo xtask bench natural`.
//!
//! `natural WORKLOAD IMAGE FILE OFFSET SPAN SECONDS` works on bytes `OFFSET..OFFSET + SPAN` of a file in an image and prints what it
//! reached under the keys of fio's JSON.

use std::error::Error;
use std::time::{Duration, Instant};

use diorite::{DirectIo, DirectQueue, DirectReader, File, Filesystem};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PAGE: usize = 4096;
const LARGE: usize = 1 << 20;
const DEPTH: u32 = 32;
/// Transfers from one look at the clock to the next, where they are short.
const BETWEEN_LOOKS: u32 = 8;

/// Where the transfers go.
#[derive(Clone)]
struct Places {
    offset: u64,
    span: u64,
    random: bool,
    state: u64,
}

impl Places {
    fn next(&mut self, len: usize) -> u64 {
        let slots = self.span / len as u64;
        let slot = if self.random {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            (u128::from(self.state) * u128::from(slots) >> 64) as u64
        } else {
            self.state += 1;
            (self.state - 1) % slots
        };
        self.offset + slot * len as u64
    }

    fn of_thread(&self, thread: u64) -> Self {
        Self { state: self.state.wrapping_mul(2 * thread + 3), ..self.clone() }
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workload, image, path, offset, span, seconds] = &arguments[..] else {
        eprintln!("usage: natural WORKLOAD IMAGE FILE OFFSET SPAN SECONDS");
        std::process::exit(2);
    };
    let is_write = workload.contains("write");
    let random = workload.starts_with("rand");
    let (offset, span) = (offset.parse()?, span.parse()?);
    let places = Places { offset, span, random, state: if random { 0x9e37_79b9_7f4a_7c15 } else { 0 } };

    let filesystem = Filesystem::open(image)?;
    let file = filesystem.open_options().read(true).write(is_write).direct(DirectIo::Required).open(path)?;
    let started = Instant::now();
    let end = started + Duration::from_secs_f64(seconds.parse()?);
    let cpu_before = cpu_seconds()?;
    let (transfers, len) = match workload.as_str() {
        "read-1m" => (read_each(&file, places, LARGE, end)?, LARGE),
        "write-1m" => (write_each(&file, places, LARGE, end)?, LARGE),
        "randread-4k" => (read_each(&file, places, PAGE, end)?, PAGE),
        "randwrite-4k" => (write_each(&file, places, PAGE, end)?, PAGE),
        "randread-4k-qd32" => (read_queued(&file, places, end)?, PAGE),
        "randwrite-4k-qd32" => (write_queued(&file, places, end)?, PAGE),
        "stream" => (read_stream(&file, &places, end)?, LARGE),
        threads => match threads.rsplit_once('-').and_then(|(what, n)| Some((what, n.strip_suffix('x')?))) {
            Some((what, count)) => (in_threads(what, count.parse()?, &file, &places, end)?, PAGE),
            None => return Err(format!("no workload {workload}").into()),
        },
    };
    let seconds = started.elapsed().as_secs_f64();
    let cpu = [0, 1].map(|at| cpu_seconds().map(|now| (now[at] - cpu_before[at]) / seconds * 100.0));
    let [user, system] = cpu;
    print(is_write, transfers, len, seconds, [user?, system?]);
    drop(file);
    Ok(filesystem.close()?)
}

fn read_each(file: &File, mut places: Places, len: usize, end: Instant) -> Result<u64> {
    let (mut memory, mut transfers) = (file.buffer(len)?, 0);
    while Instant::now() < end {
        for _ in 0..BETWEEN_LOOKS {
            file.read_exact_at(&mut memory, places.next(len))?;
            transfers += 1;
        }
    }
    Ok(transfers)
}

fn write_each(file: &File, mut places: Places, len: usize, end: Instant) -> Result<u64> {
    let (mut memory, mut transfers) = (file.buffer(len)?, 0);
    memory.fill(7);
    while Instant::now() < end {
        for _ in 0..BETWEEN_LOOKS {
            file.write_all_at(&memory, places.next(len))?;
            transfers += 1;
        }
    }
    Ok(transfers)
}

fn read_queued(file: &File, mut places: Places, end: Instant) -> Result<u64> {
    let mut queue = DirectQueue::new(DEPTH);
    for tag in 0..DEPTH {
        queue.read(file, places.next(PAGE), file.buffer(PAGE)?, PAGE, tag.into())?;
    }
    let (mut done, mut transfers) = (Vec::new(), 0);
    while Instant::now() < end {
        queue.reap(1, &mut done)?;
        for finished in done.drain(..) {
            finished.result?;
            transfers += 1;
            queue.read(file, places.next(PAGE), finished.memory, PAGE, finished.tag)?;
        }
    }
    Ok(transfers)
}

fn write_queued(file: &File, mut places: Places, end: Instant) -> Result<u64> {
    let mut queue = DirectQueue::new(DEPTH);
    for tag in 0..DEPTH {
        queue.write(file, places.next(PAGE), file.buffer(PAGE)?, PAGE, tag.into())?;
    }
    let (mut done, mut transfers) = (Vec::new(), 0);
    while Instant::now() < end {
        queue.reap(1, &mut done)?;
        for finished in done.drain(..) {
            finished.result?;
            transfers += 1;
            queue.write(file, places.next(PAGE), finished.memory, PAGE, finished.tag)?;
        }
    }
    Ok(transfers)
}

fn read_stream(file: &File, places: &Places, end: Instant) -> Result<u64> {
    let mut transfers = 0;
    loop {
        let mut reader = DirectReader::new(file.clone(), places.offset, LARGE, 16)?;
        let mut rest = places.span;
        while let Some(chunk) = reader.next_chunk()?.filter(|_| rest > 0) {
            rest = rest.saturating_sub(chunk.len() as u64);
            transfers += 1;
            if Instant::now() >= end {
                return Ok(transfers);
            }
        }
    }
}

fn in_threads(what: &str, count: u64, file: &File, places: &Places, end: Instant) -> Result<u64> {
    let each = match what {
        "randread-4k" => read_each,
        "randwrite-4k" => write_each,
        _ => return Err(format!("no workload {what}").into()),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|thread| scope.spawn(move || each(file, places.of_thread(thread), PAGE, end)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that reads or writes")).sum()
    })
}

/// User and system time of this process.
fn cpu_seconds() -> Result<[f64; 2]> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or("/proc/self/stat")?.1.split_whitespace().collect();
    // In hundredths of a second.
    Ok([fields[11].parse::<f64>()? / 100.0, fields[12].parse::<f64>()? / 100.0])
}

fn print(is_write: bool, transfers: u64, len: usize, seconds: f64, [user, system]: [f64; 2]) {
    let (direction, other) = if is_write { ("write", "read") } else { ("read", "write") };
    let bytes = transfers * len as u64;
    println!(
        "{{\"jobs\": [{{\"usr_cpu\": {user}, \"sys_cpu\": {system}, \"{other}\": {{\"total_ios\": 0}}, \"{direction}\": \
         {{\"total_ios\": {transfers}, \"io_bytes\": {bytes}, \"runtime\": {}, \"bw_bytes\": {}, \"iops\": {}}}}}]}}",
        seconds * 1e3,
        bytes as f64 / seconds,
        transfers as f64 / seconds,
    );
}
