//! `bonnie` without arguments: all ways of moving data, on files that are made in the directory.
//!
//! The files are removed at the end, also after an error or an interrupt.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{BlockDevice, Filesystem};
use diorite_device::{AlignedBuf, DirectIo, FileDevice, OpenOptions};

use super::chunks::{IN_FLIGHT, huge_buffer};
use super::compare::{Contender, Plan, measure};
use super::target::{HostTarget, Target};
use super::workload::Seeking;
use super::{CHUNK_BYTES, ImageTarget};
use crate::error::Error;
use crate::host::{FileIo, HostFile, Start, TemporaryFile, WorkFile, free_bytes};
use crate::machine::Machine;
use crate::machine::available_memory_bytes;
use crate::measure::background_cpu_percent;
use crate::rows::Report;
use crate::watch::{Cancel, Observer};

/// Bytes of the write that measures the disk's rate.
const PROBE_BYTES: u64 = 64 << 20;
/// Approximate passes over a file in a round of all contenders.
const PASSES_OF_A_ROUND: f64 = 24.0;
/// After this time and the least rounds, no round begins: the whole run takes less than a minute.
const BUDGET: Duration = Duration::from_secs(36);
/// Least and largest size of the files in units of 2^20 bytes, if none is given: the largest is the working set of 2001.
const MIB: RangeInclusive<u32> = 16..=400;

/// A comparison and the size of its files.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Rows and verdicts.
    pub report: Report,
    /// Size of each file in units of 2^20 bytes.
    pub size_mib: u32,
}

/// An error if files of `bytes` would fill the filesystem of `directory`.
pub fn need_space(directory: &Path, bytes: u64) -> Result<(), Error> {
    let free = free_bytes(directory)?;
    // Other programs need space too.
    let needed = bytes.saturating_add(bytes / 20).saturating_add(16 << 20);
    if needed > free {
        return Err(Error::Space {
            path: directory.to_owned(),
            needed: needed / 1_000_000,
            free: free / 1_000_000,
        });
    }
    Ok(())
}

/// Compare buffered and direct I/O of the host and of Diorite on files in `directory`: host direct with one chunk and several chunks in
/// flight, Diorite buffered with cold and warm cache. The files have `size_mib` units of 2^20 bytes, or as many as this disk writes in the time,
/// and at most a quarter of the free space and of the available memory.
pub fn compare_all(
    directory: &Path,
    size_mib: Option<u32>,
    command: String,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> Result<Comparison, Error> {
    let mut report = Report::new(command, Machine::this(Some(directory)));
    need_space(directory, 2 * PROBE_BYTES)?;
    let host = Arc::new(HostTarget::new(directory, "")?);
    let queued = Arc::new(HostTarget::new(directory, "q")?.in_flight());
    let io = if supports_direct(host.path())? { FileIo::Direct } else { FileIo::Buffered };
    let rounds_min = if size_mib.is_some() { 3 } else { 5 };
    let mib = if let Some(mib) = size_mib {
        mib
    } else {
        let most = free_mib(directory)?.clamp(*MIB.start(), *MIB.end());
        let wanted = mib_a_second(host.path(), io, cancel)? * BUDGET.as_secs_f64();
        ((wanted / (PASSES_OF_A_ROUND * f64::from(rounds_min))) as u32).clamp(*MIB.start(), most)
    };
    let size = u64::from(mib) * CHUNK_BYTES as u64;
    let image_bytes = image_bytes_for(size);
    need_space(directory, 2 * size + image_bytes)?;
    let image = TemporaryFile::new(directory, format!("Bonnie.{}.img", std::process::id()).as_ref())?;
    // All blocks are allocated and written before the tests.
    observer.begin("Preparing the image", image_bytes);
    let filled = write_all(image.path(), io, image_bytes, cancel, observer);
    observer.end();
    filled?;
    let filesystem = make_filesystem(image.path(), size, io)?;
    report.host.background_cpu_percent = Some(background_cpu_percent(Duration::from_millis(400)));

    let seeking = Seeking { seeks: 192, ..Seeking::default() };
    let plan = Plan { size, rounds_min, rounds_max: 15, budget: BUDGET, seeking };
    let result = measure(
        &contenders([&host, &queued], &filesystem, image.path(), io),
        &plan,
        cancel,
        observer,
        &mut report,
    );
    let closed = filesystem.close().map_err(|source| diorite_error(image.path(), source));
    result?;
    closed?;
    notes(&mut report, io);
    Ok(Comparison { report, size_mib: mib })
}

fn contenders(
    [host, queued]: [&Arc<HostTarget>; 2],
    filesystem: &Filesystem,
    image: &Path,
    io: FileIo,
) -> Vec<Contender> {
    let contender = |target: &Arc<dyn Target>, io, per_byte| Contender {
        target: Arc::clone(target),
        io,
        warm: false,
        per_byte,
    };
    let host: Arc<dyn Target> = Arc::<HostTarget>::clone(host);
    let queued: Arc<dyn Target> = Arc::<HostTarget>::clone(queued);
    let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ours: Arc<dyn Target> = Arc::new(ImageTarget::new(filesystem.clone(), name, "/"));
    let mut contenders = vec![contender(&host, FileIo::Buffered, true)];
    if io == FileIo::Direct {
        contenders.push(contender(&host, FileIo::Direct, false));
        contenders.push(contender(&queued, FileIo::Direct, false));
    }
    contenders.push(Contender { warm: true, ..contender(&ours, FileIo::Buffered, true) });
    contenders.push(contender(&ours, FileIo::Direct, false));
    contenders
}

fn notes(report: &mut Report, io: FileIo) {
    report.notes.push(format!(
        "Method: all ways run each test in turn on one disk; figures are medians over the rounds. Writes are synced before the \
         clock stops, and reads begin with a cold cache. Each block write makes a new file; a rewrite overwrites allocated blocks. In \
         block writes and reads, Diorite direct keeps {IN_FLIGHT} chunks in flight, as the kernel does readahead and writeback for a \
         buffered file. The host's direct I/O waits for each chunk, as in 2001, and so does each rewrite. The host's row with \
         {IN_FLIGHT} in flight has {IN_FLIGHT} threads."
    ));
    if io == FileIo::Buffered {
        report.notes.push(
            "This filesystem has no O_DIRECT: the image itself used the host's page cache. Choose another directory to \
             measure direct I/O."
                .to_owned(),
        );
    }
}

fn diorite_error(image: &Path, source: diorite::Error) -> Error {
    Error::Diorite { object: image.display().to_string(), source: Box::new(source) }
}

/// Space for one file of `size` and the metadata of the filesystem.
fn image_bytes_for(size: u64) -> u64 {
    (size + size / 12 + (32 << 20)).next_multiple_of(CHUNK_BYTES as u64)
}

fn make_filesystem(image: &Path, size: u64, io: FileIo) -> Result<Filesystem, Error> {
    let direct = match io {
        FileIo::Direct => DirectIo::Required,
        FileIo::Buffered => DirectIo::Off,
    };
    let device = FileDevice::open(image, &OpenOptions::read_write().direct(direct))
        .map_err(|error| diorite_error(image, error.into()))?;
    let device: Arc<dyn BlockDevice> = device;
    let options = MkfsOptions {
        flavor: Flavor::Ext2,
        block_size: Some(4096),
        reserved_percent: 0.0,
        ..MkfsOptions::default()
    };
    diorite::mkfs::mkfs(device.as_ref(), &options)
        .map_err(|source| Error::Mkfs { path: image.to_owned(), source })?;
    // The warm reading needs the whole file in the cache, if memory allows.
    let wanted = (size + size / 4).min(available_memory_bytes() / 2) + (16 << 20);
    let cache_bytes = usize::try_from(wanted).unwrap_or(usize::MAX);
    Filesystem::options()
        .cache_bytes(cache_bytes)
        .open_device(device)
        .map_err(|source| diorite_error(image, source))
}

/// Whether a direct write works.
fn supports_direct(path: &Path) -> Result<bool, Error> {
    let file = match HostFile::open(path, FileIo::Direct, Start::New) {
        Ok(file) => file,
        Err(Error::Host { source: rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP, .. }) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let buffer = huge_buffer(CHUNK_BYTES, AlignedBuf::try_zeroed)?;
    Ok(file.write_all_at(&buffer[..CHUNK_BYTES], 0).is_ok())
}

/// Rate of writing a new file, in 2^20 bytes a second.
fn mib_a_second(path: &Path, io: FileIo, cancel: &Cancel) -> Result<f64, Error> {
    let started = diorite_block::sync::now();
    write_all(path, io, PROBE_BYTES, cancel, &crate::watch::Silent)?;
    let seconds = diorite_block::sync::now().saturating_sub(started).as_secs_f64().max(1e-3);
    Ok(PROBE_BYTES as f64 / CHUNK_BYTES as f64 / seconds)
}

/// A quarter of the free space and available memory.
fn free_mib(directory: &Path) -> Result<u32, Error> {
    let bytes = free_bytes(directory)?.min(available_memory_bytes()) / 4;
    Ok(u32::try_from(bytes / CHUNK_BYTES as u64).unwrap_or(u32::MAX))
}

fn write_all(
    path: &Path,
    io: FileIo,
    bytes: u64,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> Result<(), Error> {
    let create = if PathBuf::from(path).exists() { Start::Existing } else { Start::New };
    let file = HostFile::open(path, io, create)?;
    file.preallocate(bytes)?;
    let mut buffer = huge_buffer(CHUNK_BYTES, AlignedBuf::try_zeroed)?;
    // A layer below might store zeros as a hole.
    buffer.fill(0xa5);
    let mut offset = 0;
    while offset < bytes {
        cancel.check()?;
        let len = (bytes - offset).min(CHUNK_BYTES as u64);
        file.write_all_at(&buffer[..len as usize], offset)?;
        offset += len;
        observer.advance(len);
    }
    file.sync()?;
    file.forget_cached()
}
