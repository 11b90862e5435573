//! One byte model for every way of access: a read must return the bytes of the model, whichever call wrote them.
//!
//! Ways: cached, direct, bounced, vectored, queue, streams, snapshot views, calls that do not wait or
//! leave nothing in the cache (`model/flagged.rs`), on files of a volume, of the host, and on a raw device; with
//! resize, punch, allocate, moved ranges, reopening, tiny caches and volumes that are nearly full.

mod flagged;
mod positioned;
mod queued;

use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::Arc;

use diorite::mkfs::{MkfsOptions, mkfs};
use diorite::{AlignedBuf, ErrorKind, File, Filesystem, FilesystemOptions, OpenOptions, RawFile};
use diorite_block::BlockDevice;

use crate::access::{Access, Outcome, fill, tell};
use crate::disk::{disk, marked};
use crate::formats::{FORMATS, Format};
use crate::random::{Random, stamp_bytes, stamped};

/// Largest size of a file.
const LARGEST: u64 = 300 << 10;

/// A call that may also end with "no space" or "not supported".
fn allow<T>(
    result: diorite::Result<T>,
    what: impl std::fmt::Display,
    kinds: &[ErrorKind],
) -> Outcome<Option<T>> {
    match result {
        Err(error) if kinds.contains(&error.kind()) => Ok(None),
        result => tell(result, what).map(Some),
    }
}

/// Options for a file that is used in one of the ways.
fn options<P>(way: Access, options: OpenOptions<P>, random: &mut Random) -> OpenOptions<P> {
    way.options(options).dsync(random.one_in(6))
}

/// A handle for each way.
fn handles(filesystem: &Filesystem, path: &str, random: &mut Random) -> Outcome<Vec<(Access, File)>> {
    let open = |way| {
        let options = options(way, filesystem.open_options(), random).create(true);
        Ok((way, tell(options.open(path), "open")?))
    };
    [Access::Cached, Access::Direct, Access::Bounced].into_iter().map(open).collect()
}

const FULL: ErrorKind = ErrorKind::StorageFull;
const UNSUPPORTED: ErrorKind = ErrorKind::Unsupported;

/// Where the file is.
enum FileLocation {
    Volume {
        filesystem: Option<Filesystem>,
        device: Arc<dyn BlockDevice>,
        extents: bool,
    },
    /// On a volume that other threads use as well.
    Shared {
        filesystem: Filesystem,
        path: String,
        extents: bool,
    },
    Host(PathBuf),
    Raw(Arc<dyn BlockDevice>),
}

/// The file under test and its model.
struct Subject {
    place: FileLocation,
    handles: Vec<(Access, File)>,
    /// The volume is nearly full.
    is_full: bool,
    model: Vec<u8>,
    random: Random,
    stamp: u64,
    /// Offset and length of direct transfers are multiples of this.
    unit: u64,
    /// Block size of the volume, for moved ranges.
    block: u64,
}

/// Run one case of about `calls` calls; an error describes the difference.
pub fn run(case: u64, calls: usize) -> Outcome<u64> {
    run_in(case, calls, Subjects::All)
}

/// The files that are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subjects {
    /// Of volumes, of the host, and raw devices.
    All,
    /// Of the host, in its directory for temporary files.
    Host,
}

/// As [`run`], on some files.
pub fn run_in(case: u64, calls: usize, subjects: Subjects) -> Outcome<u64> {
    let mut random = Random::new(case ^ 0x0de1);
    let directory =
        tempfile::Builder::new().prefix("diorite-torture-").tempdir().map_err(|error| error.to_string())?;
    let format = random.pick(&FORMATS);
    let full = random.one_in(3);
    let kind = if subjects == Subjects::Host { 0 } else { random.below(10) };
    let (place, block, label) = match kind {
        0..2 => (FileLocation::Host(directory.path().join("file")), 4096, "host file".to_owned()),
        2 => (FileLocation::Raw(disk(marked(LARGEST), true, case)), 512, "raw device".to_owned()),
        _ => {
            let place = volume(&format, full, case)?;
            let label = format!("{}{}", format.name, if full { ", nearly full" } else { "" });
            (place, u64::from(format.block_size), label)
        }
    };
    let mut subject = Subject::new(place, block, random, case << 20);
    subject.is_full = full;
    subject.run(calls).map_err(|what| format!("case {case} ({label}): {what}"))?;
    Ok(calls as u64)
}

/// The same on the file `path` of a volume that other threads use as well; `stamp` is not that of any of them.
pub(crate) fn run_beside_others(
    filesystem: &Filesystem,
    format: &Format,
    path: String,
    random: Random,
    stamp: u64,
    calls: usize,
) -> Outcome {
    let place = FileLocation::Shared { filesystem: filesystem.clone(), path, extents: format.has_extents() };
    Subject::new(place, u64::from(format.block_size), random, stamp).run(calls)
}

/// An empty volume, or one with some tens of blocks left.
fn volume(format: &Format, full: bool, case: u64) -> Outcome<FileLocation> {
    let disk = disk(marked(format.megabytes << 20), true, case);
    let options = MkfsOptions { reserved_percent: 0.0, ..format.options(case) };
    mkfs(&*disk, &options).map_err(|error| error.to_string())?;
    let device: Arc<dyn BlockDevice> = disk;
    if full {
        let filesystem = tell(FilesystemOptions::new().open_device(Arc::clone(&device)), "open")?;
        let block_size = filesystem.statfs().block_size;
        fill(&filesystem, (case % 40 + 20).min(LARGEST / block_size + 4))?;
        tell(filesystem.close(), "close")?;
    }
    let extents = format.has_extents();
    Ok(FileLocation::Volume { filesystem: None, device, extents })
}

impl Subject {
    fn new(place: FileLocation, block: u64, random: Random, stamp: u64) -> Self {
        Self {
            place,
            handles: Vec::new(),
            is_full: false,
            model: Vec::new(),
            random,
            stamp,
            unit: 512,
            block,
        }
    }

    fn run(&mut self, calls: usize) -> Outcome {
        self.reopen()?;
        for call in 0..calls {
            let before = self.model.len();
            self.step().map_err(|what| format!("call {call} (size {before}): {what}"))?;
        }
        self.compare_all()
    }

    fn bytes(&mut self, offset: u64, len: usize) -> Vec<u8> {
        self.stamp += 1;
        stamped(self.stamp, offset, len)
    }

    fn aligned(&mut self, offset: u64, len: usize) -> AlignedBuf {
        self.stamp += 1;
        let mut memory = AlignedBuf::zeroed(len, 4096);
        stamp_bytes(self.stamp, offset, &mut memory);
        memory
    }

    fn size(&self) -> u64 {
        self.model.len() as u64
    }

    fn is_raw(&self) -> bool {
        matches!(self.place, FileLocation::Raw(_))
    }

    /// Close everything and open it again, by other ways and with another cache.
    fn reopen(&mut self) -> Outcome {
        let random = &mut self.random;
        self.handles.clear();
        let cache = random.pick(&[256 << 10, 512 << 10, 8 << 20]);
        match &mut self.place {
            FileLocation::Volume { filesystem, device, .. } => {
                if let Some(filesystem) = filesystem.take() {
                    tell(filesystem.close(), "close")?;
                }
                let opened = FilesystemOptions::new().cache_bytes(cache).open_device(Arc::clone(device));
                let opened = filesystem.insert(tell(opened, "open the volume")?);
                self.handles = handles(opened, "/file", random)?;
            }
            FileLocation::Shared { filesystem, path, .. } => {
                self.handles = handles(filesystem, path, random)?;
            }
            FileLocation::Host(path) => {
                for way in [Access::Cached, Access::Streamed, Access::Bounced, Access::Direct] {
                    let options = way.host_options().dsync(random.one_in(6));
                    self.handles.push((way, tell(options.open(&*path), "open")?));
                }
                let first = random.index(self.handles.len());
                self.handles.rotate_left(first);
            }
            FileLocation::Raw(device) => {
                let way = random.pick(&[Access::Cached, Access::Direct, Access::Bounced]);
                let options = options(way, RawFile::options(), random);
                let file = tell(options.open_device(Arc::clone(device), cache), "open")?;
                if self.model.is_empty() {
                    self.model = vec![crate::random::MARKER; file.size() as usize];
                }
                self.handles.push((way, file));
            }
        }
        self.unit = u64::from(self.handles[0].1.alignment().offset);
        if self.handles[0].1.size() != self.size() {
            return Err(format!(
                "after reopening it has {} bytes, not {}",
                self.handles[0].1.size(),
                self.size()
            ));
        }
        Ok(())
    }

    fn handle(&mut self) -> (Access, File) {
        let index = self.random.index(self.handles.len());
        self.handles[index].clone()
    }

    fn range(&mut self, unit: u64) -> (u64, u64) {
        let limit = if self.is_raw() { self.size() } else { LARGEST };
        let (size, block) = (self.size(), self.block);
        let random = &mut self.random;
        let offset = match random.below(6) {
            0 => size,
            1 => size.saturating_sub(random.below(2 * block)),
            2 => random.below(limit) / block * block,
            _ => random.below(limit),
        };
        let len = match random.below(5) {
            0 => random.within(1..700),
            1 => block,
            2 => random.within(1..4) * 4096,
            _ => random.within(1..50_000),
        };
        let offset = offset.min(limit - unit) / unit * unit;
        (offset, len.next_multiple_of(unit).min((limit - offset) / unit * unit))
    }

    fn step(&mut self) -> Outcome {
        match self.random.below(100) {
            0..20 => self.write(),
            20..37 => self.read(),
            37..45 => self.flagged(),
            45..53 => self.queue(),
            53..56 => self.write_stream(),
            56..59 => self.read_stream(),
            59..63 => self.view(),
            63..71 => self.resize(),
            71..77 => self.zero(),
            77..80 => self.allocate(),
            80..84 => self.shift(),
            84..88 => self.settle(),
            88..91 => self.reopen(),
            91..94 => self.seek(),
            94..97 => self.positioned(),
            _ => self.compare_all(),
        }
    }

    fn put(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset as usize + data.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset as usize..end].copy_from_slice(data);
    }

    fn write(&mut self) -> Outcome {
        let (way, file) = self.handle();
        let unit = if way == Access::Direct { self.unit } else { 1 };
        let (offset, len) = self.range(unit);
        let data = self.aligned(offset, len as usize);
        let written = if self.random.one_in(3) {
            let split = self.random.below(len + 1) / unit.max(16) * unit.max(16);
            let (first, second) = data.split_at(split.min(len) as usize);
            file.write_vectored_at(&[IoSlice::new(first), IoSlice::new(second)], offset)
        } else {
            file.write_at(&data, offset)
        };
        let what = format!("write of {len} at {offset}, {way:?}");
        // Refused for lack of space: nothing is written. Written in part: that many bytes and no more.
        let written = allow(written, &what, &[FULL])?.unwrap_or(0);
        if written > data.len() {
            return Err(format!("{what}: it wrote {written}"));
        }
        self.put(offset, &data[..written]);
        if written < data.len() {
            self.compare_all().map_err(|wrong| format!("{what} wrote {written}; then {wrong}"))?;
        }
        Ok(())
    }

    fn expect(&self, what: &str, offset: u64, len: u64, found: &[u8]) -> Outcome {
        let start = offset.min(self.size()) as usize;
        let end = (offset + len).min(self.size()) as usize;
        let expected = &self.model[start..end.max(start)];
        if found == expected {
            return Ok(());
        }
        let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
        let at = first.map_or_else(String::new, |at| {
            format!("; byte {} is {:#x}, not {:#x}", start + at, found[at], expected[at])
        });
        Err(format!("{what} of {len} at {offset}: {} bytes, {} expected{at}", found.len(), expected.len()))
    }

    fn read(&mut self) -> Outcome {
        let (way, file) = self.handle();
        let unit = if way == Access::Direct { self.unit } else { 1 };
        let (offset, len) = self.range(unit);
        let mut memory = AlignedBuf::zeroed(len as usize, 4096);
        let got = if self.random.one_in(3) {
            let split = (self.random.below(len + 1) / unit.max(16) * unit.max(16)).min(len);
            let (first, second) = memory.split_at_mut(split as usize);
            file.read_vectored_at(&mut [IoSliceMut::new(first), IoSliceMut::new(second)], offset)
        } else {
            file.read_at(&mut memory, offset)
        };
        let got = tell(got, format_args!("read of {len} at {offset}, {way:?}"))?;
        self.expect(&format!("read by {way:?}"), offset, len, &memory[..got])
    }

    /// After a change that failed on the way: each byte of the range is old or new, all others are old.
    fn adopt(&mut self, offset: u64, data: &[u8]) -> Outcome {
        let found = self.read_all()?;
        for (at, byte) in found.iter().enumerate() {
            let old = self.model.get(at).copied().unwrap_or(0);
            let new = at.checked_sub(offset as usize).and_then(|at| data.get(at)).copied().unwrap_or(old);
            if *byte != old && *byte != new {
                return Err(format!(
                    "after a change that failed, byte {at} is {byte:#x}, neither {old:#x} nor {new:#x}"
                ));
            }
        }
        if found.len() < self.model.len() {
            return Err(format!("a change that failed has cut the file to {}", found.len()));
        }
        self.model = found;
        Ok(())
    }

    fn view(&mut self) -> Outcome {
        let (_, file) = self.handle();
        let (offset, len) = self.range(1);
        let mut found = Vec::new();
        tell(file.view(offset, len as usize, &mut |piece| found.extend_from_slice(piece)), "view")?;
        self.expect("view", offset, len, &found)
    }

    fn resize(&mut self) -> Outcome {
        let (size, block) = (self.size(), self.block);
        let random = &mut self.random;
        let to = match random.below(5) {
            0 => random.below(size + 1),
            1 => size / 2 / block * block,
            2 => size + random.below(2 * block),
            3 => random.below(block),
            _ => random.below(LARGEST),
        };
        let to = to.min(LARGEST);
        let (_, file) = self.handle();
        let done = file.set_len(to);
        if self.is_raw() {
            return match done {
                Ok(()) if to == size => Ok(()),
                Ok(()) => Err("the size of a device was changed".to_owned()),
                Err(_) => Ok(()),
            };
        }
        if allow(done, format_args!("set_len to {to}"), &[FULL])?.is_some() {
            self.model.resize(to as usize, 0);
        }
        Ok(())
    }

    fn zero(&mut self) -> Outcome {
        let (offset, len) = self.range(if self.is_raw() { self.unit } else { 1 });
        let (_, file) = self.handle();
        let punch = self.random.one_in(2);
        let done = if punch { file.punch_hole(offset, len) } else { file.zero_range(offset, len) };
        let what = format!("{} of {len} at {offset}", if punch { "punch_hole" } else { "zero_range" });
        // A full volume can be emptied.
        let allowed: &[ErrorKind] = if punch { &[UNSUPPORTED] } else { &[FULL, UNSUPPORTED] };
        if allow(done, &what, allowed)?.is_none() {
            return self.adopt(offset, &vec![0; len as usize]);
        }
        let end = (offset + len).min(self.size()) as usize;
        let start = (offset as usize).min(end);
        self.model[start..end].fill(0);
        Ok(())
    }

    fn allocate(&mut self) -> Outcome {
        let (offset, len) = self.range(1);
        let (_, file) = self.handle();
        let what = format!("allocate of {len} at {offset}");
        if allow(file.allocate(offset, len), what, &[FULL, UNSUPPORTED])?.is_none() {
            return self.adopt(self.size(), &vec![0; LARGEST as usize]);
        }
        let end = (offset + len) as usize;
        self.model.resize(self.model.len().max(end), 0);
        Ok(())
    }

    /// Take a range out, or make one.
    fn shift(&mut self) -> Outcome {
        let (FileLocation::Volume { extents: true, .. } | FileLocation::Shared { extents: true, .. }) =
            self.place
        else {
            return Ok(());
        };
        let blocks = self.size() / self.block;
        if blocks < 3 {
            return Ok(());
        }
        let at = self.random.below(blocks - 1);
        let count = self.random.within(1..(blocks - at).max(2));
        let (offset, len) = (at * self.block, count * self.block);
        let (_, file) = self.handle();
        let collapse = self.random.one_in(2);
        let is_possible = if collapse { offset + len < self.size() } else { self.size() + len <= LARGEST };
        if !is_possible {
            return Ok(());
        }
        let done = if collapse { file.collapse_range(offset, len) } else { file.insert_range(offset, len) };
        let what = format!("{} {len} at {offset}", if collapse { "collapse" } else { "insert" });
        if allow(done, what, &[FULL, ErrorKind::InvalidInput])?.is_some() {
            let (range, new) = if collapse { (offset..offset + len, 0) } else { (offset..offset, len) };
            self.model.splice(range.start as usize..range.end as usize, vec![0; new as usize]);
        }
        Ok(())
    }

    /// Calls that must not change anything.
    fn settle(&mut self) -> Outcome {
        let (_, file) = self.handle();
        let (offset, len) = self.range(1);
        let done = match self.random.below(4) {
            0 => file.sync_data(),
            1 => file.sync_all(),
            2 => file.drop_cached(offset, len),
            _ => match &self.place {
                FileLocation::Volume { filesystem: Some(filesystem), .. }
                | FileLocation::Shared { filesystem, .. } => filesystem.drop_caches(),
                _ => file.drop_cached(0, u64::MAX),
            },
        };
        tell(done, "sync or drop")?;
        self.compare_with_host()
    }

    /// A reported hole reads as zeros.
    fn seek(&mut self) -> Outcome {
        let (_, file) = self.handle();
        let mut at = 0;
        while at < self.size() {
            let data = match file.seek_data(at) {
                Ok(data) => data,
                Err(error) if error.kind() == ErrorKind::BeyondEnd => self.size(),
                Err(error) => return Err(format!("seek_data: {error}")),
            };
            let hole = &self.model[at as usize..data.min(self.size()) as usize];
            if let Some(byte) = hole.iter().position(|byte| *byte != 0) {
                return Err(format!("byte {} is in a hole, by seek_data({at}) = {data}", at + byte as u64));
            }
            if data >= self.size() {
                return Ok(());
            }
            at = tell(file.seek_hole(data), "seek_hole")?;
            if at <= data {
                return Err(format!("seek_hole({data}) = {at}"));
            }
        }
        Ok(())
    }

    fn read_all(&mut self) -> Outcome<Vec<u8>> {
        let (way, file) = self.handle();
        let len = (file.size() + 4096).next_multiple_of(4096);
        let mut memory = AlignedBuf::zeroed(len as usize, 4096);
        let got = tell(file.read_at(&mut memory, 0), format_args!("read by {way:?}"))?;
        if got as u64 != file.size() {
            return Err(format!("a read of all gave {got} bytes, and the size is {}", file.size()));
        }
        Ok(memory[..got].to_vec())
    }

    fn compare_all(&mut self) -> Outcome {
        let found = self.read_all()?;
        self.expect("read of all", 0, u64::MAX / 2, &found)
    }
}
