//! Large numbers: a million names in a directory, 16 TiB, a file of 100,000 extents. Each workload reports times, checks, and the
//! largest memory use of the process. Full volumes are in `full.rs`.

use std::path::Path;
use std::time::Instant;

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite::{Filesystem, FilesystemOptions};
use diorite_device::{Create, FileDevice, OpenOptions};

use crate::place::Place;
use crate::{Failure, Figures};

/// The largest file of the host's ext4: 16 TiB minus 1 MiB.
const FAR_BYTES: u64 = (16 << 40) - (1 << 20);

/// Memory of the program without an image, with the rings of its threads.
const PROGRAM_MIB: f64 = 16.0;

/// Size of a file on that volume, so that blocks are far from its start.
const WIDE_BYTES: u64 = 1 << 40;

pub(crate) fn filesystem(place: &Place) -> Result<&Filesystem, Failure> {
    match place {
        Place::Image(filesystem) => Ok(filesystem),
        Place::Host => Err("only on an image".into()),
    }
}

/// Named and timed steps.
pub(crate) struct Steps {
    pub(crate) figures: Figures,
    last: Instant,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { figures: Vec::new(), last: Instant::now() }
    }

    /// A figure without a time.
    pub(crate) fn note(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), value));
    }

    /// Do not measure the work since the last step.
    pub(crate) fn skip(&mut self) {
        self.last = Instant::now();
    }

    /// A step of `count` operations has ended.
    pub(crate) fn rate(&mut self, name: &str, count: u64) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.figures.push((format!("{name}_per_s"), count as f64 / seconds));
        self.last = Instant::now();
    }

    /// A step has ended.
    pub(crate) fn seconds(&mut self, name: &str) {
        self.figures.push((format!("{name}_s"), self.last.elapsed().as_secs_f64()));
        self.last = Instant::now();
    }

    pub(crate) fn end(mut self) -> Result<Figures, Failure> {
        self.figures.push(("peak_rss_mib".to_owned(), peak_rss_mib()?));
        Ok(self.figures)
    }
}

/// The largest memory use of this process, in MiB.
fn peak_rss_mib() -> Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// Many names in one directory are made, found, listed, and nine tenths removed. `metadata_mib` is the volume's limit.
pub(crate) fn million(place: &Place, count: usize, metadata_mib: Option<usize>) -> Result<Figures, Failure> {
    let filesystem = filesystem(place)?;
    let path = |n: usize| format!("/many/file-{n:08}");
    filesystem.create_dir("/many")?;
    let mut steps = Steps::new();
    (0..count).try_for_each(|n| place.create(&path(n)))?;
    filesystem.sync()?;
    steps.rate("create", count as u64);
    (0..count).try_for_each(|n| place.size_of(&path(n)).map(drop))?;
    steps.rate("lookup", count as u64);
    let mut listed = 0;
    let directory = filesystem.resolve("/many")?;
    directory.read_directory(0, &mut |_| {
        listed += 1;
        true
    })?;
    if listed != count + 2 {
        return Err(format!("{listed} names listed").into());
    }
    steps.rate("readdir", count as u64);
    let removed = count / 10 * 9;
    (0..removed).try_for_each(|n| place.remove(&path(n)))?;
    filesystem.sync()?;
    steps.rate("unlink", removed as u64);
    // Two and a half times the option, as documented, plus the program.
    let allowed = metadata_mib.unwrap_or(64) as f64 * 2.5 + PROGRAM_MIB;
    steps.note("allowed_rss_mib", allowed);
    steps.end()
}

/// A new volume of nearly 16 TiB in a sparse file.
pub(crate) fn make(path: &Path) -> Result<Filesystem, Failure> {
    let open = OpenOptions::read_write().create(Create::NewSized(FAR_BYTES));
    let device = FileDevice::open(path, &open)?;
    mkfs(&*device, &MkfsOptions::new(Flavor::Ext4))?;
    Ok(FilesystemOptions::new().open_device(device)?)
}

/// Blocks at large offsets of a file and of the volume.
pub(crate) fn far(place: &Place) -> Result<Figures, Failure> {
    let filesystem = filesystem(place)?;
    let mut steps = Steps::new();
    // Top-level directories are spread over the volume.
    for n in 0..64 {
        filesystem.create_dir(format!("/d{n}"))?;
        let file = filesystem.create_file(format!("/d{n}/file"))?;
        file.write_all_at(&[n as u8; 10_000], 0)?;
    }
    let offsets: Vec<u64> = (12..44).map(|bit| (1 << bit) - 4096).chain([FAR_BYTES - (1 << 30)]).collect();
    let file = filesystem.create_file("/far")?;
    for offset in &offsets {
        file.write_all_at(&offset.to_le_bytes(), *offset)?;
    }
    filesystem.sync()?;
    steps.seconds("write");
    filesystem.drop_caches()?;
    for offset in &offsets {
        let mut found = [0; 8];
        file.read_exact_at(&mut found, *offset)?;
        if u64::from_le_bytes(found) != *offset {
            return Err(format!("other bytes at {offset}").into());
        }
    }
    steps.seconds("read");
    let wide = filesystem.create_file("/wide")?;
    wide.allocate(0, WIDE_BYTES)?;
    wide.write_all_at(&[9; 4096], WIDE_BYTES - 4096)?;
    wide.sync_all()?;
    let furthest =
        wide.extents()?.iter().filter_map(|extent| extent.sector).map(|sector| sector.0 * 512).max();
    steps.seconds("allocate");
    steps.figures.push(("furthest_byte_tib".to_owned(), furthest.unwrap_or(0) as f64 / (1_u64 << 40) as f64));
    steps.end()
}

/// A file with a hole in every other block is written and read; then every other written block is punched.
pub(crate) fn extents(place: &Place, count: u64) -> Result<Figures, Failure> {
    const STRIDE: u64 = 8192;
    let filesystem = filesystem(place)?;
    let file = filesystem.create_file("/extents")?;
    let mut steps = Steps::new();
    for n in 0..count {
        file.write_all_at(&[n as u8 | 1; 4096], n * STRIDE)?;
    }
    file.sync_all()?;
    steps.rate("write", count);
    let found = file.extents()?.len() as u64;
    if found != count {
        return Err(format!("{found} extents").into());
    }
    steps.seconds("list");
    let mut memory = vec![0; 1 << 20];
    for n in (0..count).step_by(128) {
        let len = file.read_at(&mut memory, n * STRIDE)?;
        for (at, block) in memory[..len].chunks(STRIDE as usize).enumerate() {
            if block[0] != (n as usize + at) as u8 | 1 || block.get(4096).is_some_and(|byte| *byte != 0) {
                return Err(format!("other bytes in extent {}", n as usize + at).into());
            }
        }
    }
    steps.rate("read", count);
    for n in (0..count).step_by(2) {
        file.punch_hole(n * STRIDE, 4096)?;
    }
    file.sync_all()?;
    steps.rate("punch", count / 2);
    let left = file.extents()?.len() as u64;
    if left != count - count.div_ceil(2) {
        return Err(format!("{left} extents left").into());
    }
    steps.figures.push(("extents".to_owned(), count as f64));
    steps.end()
}
