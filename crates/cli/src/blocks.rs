//! `cp --bs`: blocks of one file or device of the host, copied to a place in another one, as `dd` does.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use diorite::{DirectIo, File, HostFile, Unaligned};
use diorite_copy::{Span, SpanCopier, SpanError};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde_json::json;

use crate::args::Cp;
use crate::devices::refuse_to_destroy;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::location::Location;
use crate::output::Output;
use crate::progress::{CopyProgress, CopySays};

/// The copied range and its place in the destination, in bytes.
struct Place {
    skip: u64,
    seek: u64,
    /// `None`: to the end of the source.
    len: Option<u64>,
}

impl Place {
    fn of(arguments: &Cp, block: u64) -> Result<Self> {
        let bytes = |flag: &str, blocks: u64| {
            blocks.checked_mul(block).filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(|| {
                Failure::Usage(format!(
                    "{flag} {blocks}: more than 8 EiB with --bs {block}; use fewer blocks"
                ))
            })
        };
        if block == 0 {
            return Err(Failure::Usage("--bs 0: a block has at least one byte".to_owned()));
        }
        Ok(Self {
            skip: bytes("--skip", arguments.skip.unwrap_or(0))?,
            seek: bytes("--seek", arguments.seek.unwrap_or(0))?,
            len: arguments.count.map(|count| bytes("--count", count)).transpose()?,
        })
    }
}

/// Copy blocks from one file of the host to another.
pub(crate) fn copy(
    arguments: &Cp,
    (sources, to): (&[Location], &Location),
    block: u64,
    direct: DirectIo,
    output: &mut Output,
) -> Result<()> {
    let ([Location::Host(from)], Location::Host(to)) = (sources, to) else { return Err(usage()) };
    let place = Place::of(arguments, block)?;
    let (source, target) = (kind_of(from)?.ok_or_else(|| missing(from))?, kind_of(to)?);
    if target.as_ref().is_some_and(|target| is_same(&source, target)) {
        return Err(Failure::Failed(format!(
            "{}: not copied: source and destination are the same file",
            from.display()
        )));
    }
    if target.is_some() && !arguments.force {
        refuse_to_destroy(&to.display().to_string(), "cp")?;
    }
    interrupt::is_changing();
    let open = |path: &Path, writes: bool| {
        let options = HostFile::options().read(true).write(writes).create(writes);
        options
            .direct(direct)
            .unaligned(Unaligned::Bounce)
            .open(path)
            .map_err(|error| Failure::of(path.display(), "open", &error))
    };
    let reader = open(from, false)?;
    let writer = open(to, true)?;
    let is_device = target.is_some_and(|target| target.file_type().is_block_device());
    let size = reader.size();
    let len = size.saturating_sub(place.skip).min(place.len.unwrap_or(u64::MAX));
    if is_device && place.seek.saturating_add(len) > writer.size() {
        return Err(Failure::Failed(format!(
            "{}: no space: {len} bytes at offset {} do not fit into its {} bytes; use --count",
            to.display(),
            place.seek,
            writer.size()
        )));
    }
    let progress = CopyProgress::new(len, interrupt::cancel(), CopySays::default());
    let copied = copy_spans(&place, len, (&reader, from), (&writer, to), is_device, &progress);
    let copied =
        copied.and_then(|()| finish(arguments, &place, len, (&reader, from), (&writer, to), &progress));
    progress.finish();
    copied?;
    if arguments.common.reporting.json {
        output.json(json!({ "command": "cp", "bytes": len, "verified": arguments.verify }))?;
    }
    Ok(())
}

fn usage() -> Failure {
    Failure::Usage("cp: --bs copies from one file or device of the host to another; write FROM TO".to_owned())
}

fn missing(path: &Path) -> Failure {
    Failure::Failed(format!("{}: cannot open: no such file or directory", path.display()))
}

/// The file at a path, which must be a regular file or a block device.
fn kind_of(path: &Path) -> Result<Option<Metadata>> {
    let found = match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|error| Failure::host(path.display(), "open", &error))?,
    };
    if found.is_file() || found.file_type().is_block_device() {
        return Ok(Some(found));
    }
    Err(Failure::Usage(format!(
        "{}: --bs copies blocks of regular files and block devices; leave it out",
        path.display()
    )))
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let is_device = one.file_type().is_block_device() && other.file_type().is_block_device();
    (one.dev(), one.ino()) == (other.dev(), other.ino()) || is_device && one.rdev() == other.rdev()
}

fn copy_spans(
    place: &Place,
    len: u64,
    (reader, from): (&File, &Path),
    (writer, to): (&File, &Path),
    is_device: bool,
    progress: &CopyProgress,
) -> Result<()> {
    let failed = |error| Failure::of(to.display(), "set the size of", &error);
    let mut copier = SpanCopier::default();
    let mut copy = |start: u64, end: u64| {
        let span = Span { from: place.skip + start, to: place.seek + start, len: end - start };
        copier.copy(reader, writer, span, progress).map_err(|error| failure(error, from, to))
    };
    if is_device {
        // Old data is in the place of holes.
        return copy(0, len).map(drop);
    }
    // As dd: the rest of the destination is cut off.
    writer.set_len(place.seek).map_err(failed)?;
    let mut at = 0;
    while at < len
        && let Some((start, end)) = next_data(from, place.skip + at)?
    {
        // A hole is not read; its end is a whole block of the source, and any byte of the destination.
        let start = start.saturating_sub(place.skip).max(at) / HOLE_BYTES * HOLE_BYTES;
        let (start, end) = (start.max(at), end.saturating_sub(place.skip).min(len));
        if start >= end {
            break;
        }
        copy(start, end)?;
        at = end;
    }
    writer.set_len(place.seek + len).map_err(failed)
}

/// Keeps transfers aligned after a hole.
const HOLE_BYTES: u64 = 4096;

/// The next range with data of a file.
fn next_data(path: &Path, offset: u64) -> Result<Option<(u64, u64)>> {
    let failed = |error: std::io::Error| Failure::host(path.display(), "look for data in", &error);
    let file = std::fs::File::options().read(true).open(path).map_err(failed)?;
    let start = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A filesystem without holes, or a device.
        Err(_) => return Ok(Some((offset, u64::MAX))),
    };
    Ok(Some((start, rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap_or(u64::MAX))))
}

fn failure(error: SpanError, from: &Path, to: &Path) -> Failure {
    match error {
        SpanError::Read(error) => Failure::of(from.display(), "read", &error),
        SpanError::Write(error) => Failure::of(to.display(), "write", &error),
        SpanError::Interrupted => {
            Failure::Failed(format!("{}: interrupted; only a part of the blocks was copied", to.display()))
        }
    }
}

/// Make the copy durable, and compare it.
fn finish(
    arguments: &Cp,
    place: &Place,
    len: u64,
    (reader, from): (&File, &Path),
    (writer, to): (&File, &Path),
    progress: &CopyProgress,
) -> Result<()> {
    if !arguments.no_sync {
        writer.sync_all().map_err(|error| Failure::of(to.display(), "sync", &error))?;
    }
    if !arguments.verify {
        return Ok(());
    }
    let span = Span { from: place.skip, to: place.seek, len };
    let is_equal =
        SpanCopier::is_equal(reader, writer, span, progress).map_err(|error| failure(error, from, to))?;
    if is_equal { Ok(()) } else { Err(Failure::Failed(differs(from, to))) }
}

/// The message of `--verify`.
pub(crate) fn differs(from: &Path, to: &Path) -> String {
    format!(
        "{}: differs from {}: the source changed during the copy, or a device is defective; copy it again",
        to.display(),
        from.display()
    )
}
