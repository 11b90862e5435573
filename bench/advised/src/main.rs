//! Twelve programs: `advised prepare NAME DIR`, `advised NAME buffered|direct DIR`.
//!
//! Each reads or writes in the way that its name says, through the page cache or with direct I/O. With direct I/O, streams have four transfers
//! in flight, and what is used again has a cache of [`CACHE_BYTES`]. The last line has the elapsed and the CPU time.

mod io;

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use io::{Aligned, Pages, Reader, Way, Writer};
use rustix::time::{ClockId, clock_gettime};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The cache of a program with direct I/O.
const CACHE_BYTES: usize = 160 * MIB;

type Program = fn(&Path, Way) -> Result<u64>;

/// Names, what they need, and what they do.
const PROGRAMS: [(&str, &[(&str, usize, usize)], Program); 12] = [
    ("scan", &[("scan.data", 1, 768 * MIB)], scan),
    ("compaction", &[("run", 4, 96 * MIB)], compaction),
    ("database-larger", &[("larger.db", 1, 640 * MIB)], database_larger),
    ("database-smaller", &[("smaller.db", 1, 96 * MIB)], database_smaller),
    ("build", &[("source/c", 2000, 12 * KIB), ("source/h", 100, 24 * KIB)], build),
    ("backup", &[("base.db", 1, 128 * MIB), ("big.tar", 1, 512 * MIB)], backup),
    ("log", &[], log),
    ("model", &[("model.bin", 1, 512 * MIB)], model),
    ("hot-set", &[("hot.data", 1, 768 * MIB)], hot_set),
    ("tree", &[("tree/f", 6000, 12 * KIB)], tree),
    ("synced-log", &[], synced_log),
    ("video", &[], video),
];

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!("usage: advised prepare NAME DIR | advised NAME buffered|direct DIR");
        std::process::exit(2)
    };
    let [first, second, directory] = &words[..] else { usage() };
    let (name, way) = match (first.as_str(), second.as_str()) {
        ("prepare", name) => (name, None),
        (name, "buffered") => (name, Some(Way::Buffered)),
        (name, "direct") => (name, Some(Way::Direct)),
        _ => usage(),
    };
    let Some((_, files, program)) = PROGRAMS.iter().find(|(known, ..)| *known == name) else { usage() };
    let directory = Path::new(directory);
    let Some(way) = way else { return prepare(directory, files) };
    let (start, cpu) = (seconds(ClockId::Monotonic), seconds(ClockId::ProcessCPUTime));
    let sum = program(directory, way)?;
    println!(
        "seconds={:.4} cpu_s={:.4} sum={sum}",
        seconds(ClockId::Monotonic) - start,
        seconds(ClockId::ProcessCPUTime) - cpu
    );
    Ok(())
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn numbered(directory: &Path, name: &str, number: usize, count: usize) -> PathBuf {
    if count == 1 { directory.join(name) } else { directory.join(format!("{name}-{number}")) }
}

fn prepare(directory: &Path, files: &[(&str, usize, usize)]) -> Result<()> {
    let mut random = Random(7);
    for (name, count, bytes) in files {
        if let Some(parent) = directory.join(name).parent() {
            std::fs::create_dir_all(parent)?;
        }
        for number in 0..*count {
            let file = File::create(numbered(directory, name, number, *count))?;
            let mut part = vec![0; MIB.min(*bytes)];
            let mut offset = 0;
            while offset < *bytes {
                part.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
                let len = part.len().min(bytes - offset);
                file.write_all_at(&part[..len], offset as u64)?;
                offset += len;
            }
            if *count < 10 {
                file.sync_all()?;
            }
        }
    }
    Ok(())
}

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The work of a program on its data.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, word| sum ^ u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

fn whole(path: &Path, way: Way, call: usize) -> Result<u64> {
    let mut reader = Reader::new(path, way, call)?;
    let mut total = 0;
    loop {
        let part = reader.next()?;
        if part.is_empty() {
            return Ok(total);
        }
        total ^= sum(part);
    }
}

fn scan(directory: &Path, way: Way) -> Result<u64> {
    whole(&directory.join("scan.data"), way, 128 * KIB)
}

fn model(directory: &Path, way: Way) -> Result<u64> {
    whole(&directory.join("model.bin"), way, MIB)
}

/// Four sorted runs become one.
fn compaction(directory: &Path, way: Way) -> Result<u64> {
    let readers = (0..4).map(|number| Reader::new(&numbered(directory, "run", number, 4), way, 64 * KIB));
    let mut readers = readers.collect::<Result<Vec<_>>>()?;
    let mut writer = Writer::new(&directory.join("merged"), way)?;
    let mut total = 0;
    let mut is_open = true;
    while is_open {
        is_open = false;
        for reader in &mut readers {
            let part = reader.next()?;
            is_open |= !part.is_empty();
            total ^= sum(part);
            writer.write(part)?;
        }
    }
    writer.finish(true)?;
    Ok(total)
}

/// Four fifths of the uses are of a fifth of the pages.
fn skewed(random: &mut Random, pages: u64) -> u64 {
    let hot = pages / 5;
    if random.below(5) < 4 { random.below(hot) * 5 } else { random.below(pages) }
}

fn pages(
    path: &Path,
    way: Way,
    reads: u64,
    page: usize,
    pick: impl Fn(&mut Random, u64) -> u64,
) -> Result<u64> {
    let count = std::fs::metadata(path)?.len() / page as u64;
    let mut pages = Pages::new(path, way, page, CACHE_BYTES)?;
    let (mut random, mut memory, mut total) = (Random(3), vec![0; page], 0);
    for _ in 0..reads {
        pages.read(pick(&mut random, count), &mut memory)?;
        total ^= sum(&memory);
    }
    Ok(total)
}

fn database_larger(directory: &Path, way: Way) -> Result<u64> {
    pages(&directory.join("larger.db"), way, 60_000, 8 * KIB, skewed)
}

fn database_smaller(directory: &Path, way: Way) -> Result<u64> {
    pages(&directory.join("smaller.db"), way, 400_000, 8 * KIB, skewed)
}

/// Nine tenths of the uses are of 32 MiB.
fn hot_set(directory: &Path, way: Way) -> Result<u64> {
    pages(&directory.join("hot.data"), way, 100_000, 4 * KIB, |random, count| {
        if random.below(10) < 9 { random.below(8192) * 17 % count } else { random.below(count) }
    })
}

/// A file as a whole.
fn small(path: &Path, way: Way, memory: &mut Aligned) -> Result<u64> {
    let file = way.open(path)?;
    let len = file.read_at(memory.bytes(), 0)?;
    Ok(sum(&memory.bytes()[..len]))
}

fn build(directory: &Path, way: Way) -> Result<u64> {
    std::fs::create_dir_all(directory.join("object"))?;
    let (mut memory, mut random, mut total) = (Aligned::new(64 * KIB), Random(5), 0);
    for number in 0..2000 {
        total ^= small(&numbered(directory, "source/c", number, 2000), way, &mut memory)?;
        for _ in 0..10 {
            let header = random.below(100) as usize;
            total ^= small(&numbered(directory, "source/h", header, 100), way, &mut memory)?;
        }
        // The compiler.
        for _ in 0..40 {
            total = total.wrapping_add(sum(&memory.bytes()[..24 * KIB])).rotate_left(7);
        }
        let object = way.create(&numbered(directory, "object/o", number, 2000))?;
        object.write_all_at(&memory.bytes()[..20 * KIB], 0)?;
    }
    Ok(total)
}

fn tree(directory: &Path, way: Way) -> Result<u64> {
    let (mut memory, mut total) = (Aligned::new(64 * KIB), 0);
    for number in 0..6000 {
        total ^= small(&numbered(directory, "tree/f", number, 6000), way, &mut memory)?;
    }
    Ok(total)
}

/// A database reads pages while another thread reads a large file once, which is what the switch is for.
fn backup(directory: &Path, way: Way) -> Result<u64> {
    let big = directory.join("big.tar");
    let reader = std::thread::spawn(move || whole(&big, way, MIB));
    let mut total = pages(&directory.join("base.db"), Way::Buffered, 150_000, 8 * KIB, skewed)?;
    total ^= reader.join().expect("the reader")?;
    Ok(total)
}

fn log(directory: &Path, way: Way) -> Result<u64> {
    let mut writer = Writer::new(&directory.join("app.log"), way)?;
    let line = [b'x'; 200];
    for _ in 0..600_000 {
        writer.write(&line)?;
    }
    writer.finish(false)?;
    Ok(0)
}

fn synced_log(directory: &Path, way: Way) -> Result<u64> {
    let file = way.create(&directory.join("wal"))?;
    let mut memory = Aligned::new(4 * KIB);
    for number in 0..1500_u64 {
        memory.bytes()[0] = number as u8;
        file.write_all_at(memory.bytes(), number * 4 * KIB as u64)?;
        file.sync_data()?;
    }
    Ok(0)
}

fn video(directory: &Path, way: Way) -> Result<u64> {
    let mut writer = Writer::new(&directory.join("video.yuv"), way)?;
    let mut frame = vec![0_u8; 3 * MIB];
    for number in 0..250_u64 {
        frame[..8].copy_from_slice(&number.to_le_bytes());
        writer.write(&frame)?;
    }
    writer.finish(false)?;
    Ok(0)
}
