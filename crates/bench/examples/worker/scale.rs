//! Large numbers: a million names in a directory, 16 TiB, a file of 100,000 extents, a full volume. Each says how long it took,
//! what it found to be right, and how much memory the process had at most.

use std::path::Path;
use std::time::Instant;

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite::{Filesystem, FilesystemOptions};
use diorite_device::{Create, FileDevice, OpenOptions};

use crate::place::Place;
use crate::{Failure, Figures};

/// As much as fits a file of the host's ext4: 16 TiB but 1 MiB.
const FAR_BYTES: u64 = (16 << 40) - (1 << 20);

/// What a file is allocated on that volume, so that something lies far from its beginning.
const WIDE_BYTES: u64 = 1 << 40;

fn filesystem(place: &Place) -> Result<&Filesystem, Failure> {
    match place {
        Place::Image(filesystem) => Ok(filesystem),
        Place::Host => Err("only on an image".into()),
    }
}

/// Figures with a clock: each step is timed and named.
struct Steps {
    figures: Figures,
    last: Instant,
}

impl Steps {
    fn new() -> Self {
        Self { figures: Vec::new(), last: Instant::now() }
    }

    /// A step has ended that did `count` things.
    fn rate(&mut self, name: &str, count: u64) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.figures.push((format!("{name}_per_s"), count as f64 / seconds));
        self.last = Instant::now();
    }

    /// A step has ended.
    fn seconds(&mut self, name: &str) {
        self.figures.push((format!("{name}_s"), self.last.elapsed().as_secs_f64()));
        self.last = Instant::now();
    }

    fn end(mut self) -> Result<Figures, Failure> {
        self.figures.push(("peak_rss_mib".to_owned(), peak_rss_mib()?));
        Ok(self.figures)
    }
}

/// The most memory that this process has had, in MiB.
fn peak_rss_mib() -> Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// Many names in one directory: made, found, listed, removed but for a tenth.
pub(crate) fn million(place: &Place, count: usize) -> Result<Figures, Failure> {
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
    steps.end()
}

/// A new volume of nearly 16 TiB in a sparse file.
pub(crate) fn make(path: &Path) -> Result<Filesystem, Failure> {
    let open = OpenOptions::read_write().create(Create::NewSized(FAR_BYTES));
    let device = FileDevice::open(path, &open)?;
    mkfs(&*device, &MkfsOptions { flavor: Flavor::Ext4, ..MkfsOptions::default() })?;
    Ok(FilesystemOptions::new().open_device(device)?)
}

/// Files at far places of a file and of the volume.
pub(crate) fn far(place: &Place) -> Result<Figures, Failure> {
    let filesystem = filesystem(place)?;
    let mut steps = Steps::new();
    // Top-level directories spread over the volume.
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

/// A file in which every other block is a hole: written, read, every other one of the rest punched.
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

/// A volume that is filled to 99 % with holes all over, used like that, and then filled to the last block.
pub(crate) fn full(place: &Place) -> Result<Figures, Failure> {
    const SMALL: u64 = 64 << 10;
    let filesystem = filesystem(place)?;
    filesystem.create_dir("/fill")?;
    let write = |path: &str, bytes: u64| -> Result<(), Failure> {
        let file = filesystem.create_file(path)?;
        Ok(file.write_all_at(&vec![1; bytes as usize], 0)?)
    };
    let mut steps = Steps::new();
    let mut files = 0;
    // The directory grows on the way.
    while filesystem.statfs().blocks_available > 4 * SMALL / filesystem.statfs().block_size {
        write(&format!("/fill/{files}"), SMALL)?;
        files += 1;
    }
    filesystem.sync()?;
    steps.rate("fill_files", files);
    // One file of four hundred goes: the free blocks are in pieces of one file.
    let freed = files.div_ceil(400);
    let mut holes = (0..files).step_by(400);
    holes.try_for_each(|n| Ok::<(), Failure>(filesystem.remove_file(format!("/fill/{n}"))?))?;
    filesystem.sync()?;
    steps.rate("free_files", freed);
    let space = filesystem.statfs();
    steps.figures.push((
        "used_percent".to_owned(),
        100.0 - 100.0 * space.blocks_available as f64 / space.blocks as f64,
    ));
    steps.last = Instant::now();
    (0..freed).try_for_each(|n| write(&format!("/again-{n}"), SMALL / 2))?;
    filesystem.sync()?;
    steps.rate("refill_files", freed);
    let mut pieces = 0;
    for n in 0..freed {
        pieces += filesystem.open_file(format!("/again-{n}"))?.extents()?.len();
    }
    steps.figures.push(("extents_per_file".to_owned(), pieces as f64 / freed as f64));
    let file = filesystem.create_file("/last")?;
    let data = vec![2; 1 << 16];
    let mut offset = 0;
    let error = loop {
        match file.write_all_at(&data, offset) {
            Ok(()) => offset += data.len() as u64,
            Err(error) => break error,
        }
    };
    if error.errno() != 28 {
        return Err(error.into());
    }
    file.sync_all()?;
    filesystem.sync()?;
    steps.seconds("until_no_space");
    steps.end()
}
