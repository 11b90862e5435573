//! The probes: each moves data for a short time. Those that write come first, because they fill the scratch file.
//!
//! The pages of the file are dropped before each probe that reads from the disk.

use std::path::Path;
use std::sync::mpsc::channel;

use diorite_bench::{
    Cancel, Error, HostFile, Machine, Observer, WorkFile, available_memory_bytes, free_bytes,
};

use super::curve::{Curve, Point};
use super::scratch::{Counted, Scratch, clock, memory, repeat, since};
use super::{Buffered, Direct, Probes};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Sizes of calls at random, and of writes.
const SIZES: [usize; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];
/// Sizes of calls in order.
const IN_ORDER: [usize; 3] = [4 * KIB, 64 * KIB, MIB];
/// Transfers in flight of direct streams, and the size of each.
const STREAM_DEPTH: usize = 4;
/// Bytes of each transfer of a direct stream.
const STREAM_BYTES: usize = MIB;
/// Sizes of calls in order, for which the kernel reads ahead in different ways.
const AHEAD: [usize; 5] = [4 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, MIB];
/// The kernel's readahead is at its full size after so many bytes.
const RAMP_BYTES: u64 = 16 << 20;
/// The scratch file; smaller where space or memory is short.
const SCRATCH_BYTES: u64 = 256 << 20;
const SCRATCH_BYTES_MIN: u64 = 16 << 20;
/// Phases, for the progress.
const PHASES: u64 = 12;

/// A good time for one probe.
pub const PROBE_S: f64 = 0.06;

/// Where to probe.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Directory of the scratch file, on the disk of the files.
    pub directory: &'a Path,
    /// Memory that files can use, if the caller knows better than the system.
    pub memory_bytes: Option<u64>,
    /// Time of one of the 37 probes.
    pub probe_s: f64,
}

/// Measure. The scratch file is removed at the end, also after a cancel.
///
/// # Errors
/// A call failed, or the caller cancelled.
pub fn measure(settings: Settings<'_>, cancel: &Cancel, observer: &dyn Observer) -> Result<Probes, Error> {
    let bytes = scratch_bytes(settings.directory)?;
    let start = clock();
    observer.begin("probing the disk", PHASES);
    let new = || Scratch::new(settings.directory, bytes, settings.probe_s, cancel.clone());
    // The file of the first probes is removed before the second one is made.
    let found = new().and_then(|scratch| new_blocks(&scratch, observer)).and_then(|new_blocks| {
        let scratch = new()?;
        all(&scratch, new_blocks, observer)
    });
    observer.end();
    let (buffered, direct, copy) = found?;
    let place = Machine::this(Some(settings.directory)).filesystem.unwrap_or_default();
    Ok(Probes {
        place: place.split(" (").next().unwrap_or_default().to_owned(),
        memory_bytes: settings.memory_bytes.unwrap_or_else(crate::memory::for_files),
        scratch_bytes: bytes,
        seconds: since(start).seconds,
        buffered,
        direct,
        copy,
    })
}

fn scratch_bytes(directory: &Path) -> Result<u64, Error> {
    let free = free_bytes(directory)?;
    let bytes = SCRATCH_BYTES.min(free / 4).min(available_memory_bytes() / 4) / MIB as u64 * MIB as u64;
    if bytes < SCRATCH_BYTES_MIN {
        let (needed, free) = (4 * SCRATCH_BYTES_MIN / 1_000_000, free / 1_000_000);
        return Err(Error::Space { path: directory.to_owned(), needed, free });
    }
    Ok(bytes)
}

/// Direct writes of new blocks, one at a time and several in flight. `None` without direct I/O.
fn new_blocks(scratch: &Scratch, observer: &dyn Observer) -> Result<Option<(Curve, Curve)>, Error> {
    let Some(file) = &scratch.direct else { return Ok(None) };
    let part = scratch.bytes / 8;
    let mut points = Vec::new();
    for (index, size) in IN_ORDER.into_iter().enumerate() {
        let memory = memory(size)?;
        // After the part that the stream writes.
        let start = scratch.bytes + index as u64 * part;
        let mut next = start;
        points.push(repeat(scratch, size, Counted::Typical, || {
            file.write_all_at(&memory, next)?;
            next += size as u64;
            Ok(next + size as u64 <= start + part)
        })?);
    }
    let behind = stream(scratch, Direction::Write)?;
    observer.advance(1);
    Ok(Some((Curve::new(points), behind)))
}

fn all(
    scratch: &Scratch,
    new_blocks: Option<(Curve, Curve)>,
    observer: &dyn Observer,
) -> Result<(Buffered, Option<Direct>, Curve), Error> {
    let step = |curve: Result<Curve, Error>| {
        observer.advance(1);
        curve
    };
    let mut buffered = Buffered { write: step(write_new(scratch))?, ..Buffered::default() };
    fill(scratch)?;
    buffered.overwrite = step(each(&IN_ORDER, |size| overwrite(scratch, size)))?;
    buffered.sync = step(each(&SIZES, |size| sync(&scratch.buffered, scratch, size)))?;
    buffered.hit = step(each(&IN_ORDER, |size| hit(scratch, size)))?;
    buffered.random = step(each(&SIZES, |size| random(&scratch.buffered, scratch, size)))?;
    buffered.ahead = step(each(&AHEAD, |size| in_order(&scratch.buffered, scratch, size, RAMP_BYTES)))?;
    let copy = step(each(&SIZES, |size| copy(scratch, size)))?;
    let (Some(file), Some((write_new, behind))) = (&scratch.direct, new_blocks) else {
        return Ok((buffered, None, copy));
    };
    let direct = Direct {
        random: step(each(&SIZES, |size| random(file, scratch, size)))?,
        in_order: each(&IN_ORDER, |size| in_order(file, scratch, size, 0))?,
        ahead: step(stream(scratch, Direction::Read))?,
        write: step(each(&SIZES, |size| write_random(file, scratch, size)))?,
        write_new,
        behind,
        sync: step(each(&SIZES, |size| sync(file, scratch, size)))?,
    };
    Ok((buffered, Some(direct), copy))
}

fn each(sizes: &[usize], probe: impl Fn(usize) -> Result<Point, Error>) -> Result<Curve, Error> {
    sizes.iter().map(|size| probe(*size)).collect::<Result<_, _>>().map(Curve::new)
}

/// Offsets in order, until the end of the file.
fn in_turn(scratch: &Scratch, size: usize) -> impl FnMut() -> Option<u64> + use<> {
    let (mut next, end) = (0, scratch.bytes);
    move || {
        let offset = next;
        next += size as u64;
        (next <= end).then_some(offset)
    }
}

fn at_random(scratch: &Scratch, size: usize) -> impl FnMut() -> u64 + use<> {
    let count = scratch.bytes / size as u64;
    let mut random = fastrand::Rng::new();
    move || random.u64(..count) * size as u64
}

/// Drop the pages of the file, which needs that they are clean.
fn forget(scratch: &Scratch) -> Result<(), Error> {
    scratch.buffered.sync()?;
    scratch.buffered.forget_cached()
}

/// New pages of a new file: each size gets a part of it.
fn write_new(scratch: &Scratch) -> Result<Curve, Error> {
    let part = scratch.bytes / IN_ORDER.len() as u64;
    let mut points = Vec::new();
    for (index, size) in IN_ORDER.into_iter().enumerate() {
        let memory = memory(size)?;
        let (mut next, end) = (index as u64 * part, (index as u64 + 1) * part);
        points.push(repeat(scratch, size, Counted::All, || {
            scratch.buffered.write_all_at(&memory, next)?;
            next += size as u64;
            Ok(next + size as u64 <= end)
        })?);
        // Dirty pages of one size would slow the next one.
        forget(scratch)?;
    }
    Ok(Curve::new(points))
}

/// Each page of the file gets content.
fn fill(scratch: &Scratch) -> Result<(), Error> {
    let memory = memory(STREAM_BYTES)?;
    let file = scratch.direct.as_ref().unwrap_or(&scratch.buffered);
    let mut next = in_turn(scratch, STREAM_BYTES);
    while let Some(offset) = next() {
        scratch.cancel.check()?;
        file.write_all_at(&memory, offset)?;
    }
    forget(scratch)
}

fn overwrite(scratch: &Scratch, size: usize) -> Result<Point, Error> {
    let memory = memory(size)?;
    let spots = (4 * MIB / size) as u64;
    for spot in 0..spots {
        scratch.buffered.write_all_at(&memory, spot * size as u64)?;
    }
    let mut turn = 0;
    let point = repeat(scratch, size, Counted::Typical, || {
        turn = (turn + 1) % spots;
        scratch.buffered.write_all_at(&memory, turn * size as u64)?;
        Ok(true)
    })?;
    scratch.buffered.sync()?;
    Ok(point)
}

fn sync(file: &HostFile, scratch: &Scratch, size: usize) -> Result<Point, Error> {
    let memory = memory(size)?;
    let mut next = at_random(scratch, size);
    let mut writes = super::curve::Cost::default();
    let mut calls = 0_u32;
    let mut point = repeat(scratch, size, Counted::Typical, || {
        let start = clock();
        file.write_all_at(&memory, next())?;
        writes += since(start);
        calls += 1;
        file.sync()?;
        Ok(true)
    })?;
    let mean = writes * (1.0 / f64::from(calls.max(1)));
    point.cost.seconds = (point.cost.seconds - mean.seconds).max(0.0);
    point.cost.cpu_s = (point.cost.cpu_s - mean.cpu_s).max(0.0);
    Ok(point)
}

fn hit(scratch: &Scratch, size: usize) -> Result<Point, Error> {
    let mut memory = memory(size)?;
    let cached = 16 * MIB as u64;
    let mut offset = 0;
    while offset < cached {
        offset += scratch.buffered.read_at(&mut memory, offset)?.max(1) as u64;
    }
    let mut next = 0;
    repeat(scratch, size, Counted::Typical, || {
        scratch.buffered.read_at(&mut memory, next)?;
        next = (next + size as u64) % cached;
        Ok(true)
    })
}

fn random(file: &HostFile, scratch: &Scratch, size: usize) -> Result<Point, Error> {
    forget(scratch)?;
    let mut memory = memory(size)?;
    let mut next = at_random(scratch, size);
    // A range that was read before would be a hit.
    let mut seen = std::collections::HashSet::new();
    repeat(scratch, size, Counted::Typical, || {
        let mut offset = next();
        for _ in 0..8 {
            if !seen.contains(&offset) {
                break;
            }
            offset = next();
        }
        seen.insert(offset);
        file.read_at(&mut memory, offset)?;
        Ok(seen.len() as u64 * 2 * size as u64 <= scratch.bytes)
    })
}

/// The first `ramp_bytes` do not count.
fn in_order(file: &HostFile, scratch: &Scratch, size: usize, ramp_bytes: u64) -> Result<Point, Error> {
    forget(scratch)?;
    let mut memory = memory(size)?;
    let mut next = in_turn(scratch, size);
    while let Some(offset) = next() {
        file.read_at(&mut memory, offset)?;
        if offset + size as u64 >= ramp_bytes.min(scratch.bytes / 4) {
            break;
        }
    }
    repeat(scratch, size, Counted::All, || {
        let Some(offset) = next() else { return Ok(false) };
        file.read_at(&mut memory, offset)?;
        Ok(true)
    })
}

fn write_random(file: &HostFile, scratch: &Scratch, size: usize) -> Result<Point, Error> {
    let memory = memory(size)?;
    let mut next = at_random(scratch, size);
    repeat(scratch, size, Counted::Typical, || {
        file.write_all_at(&memory, next())?;
        Ok(true)
    })
}

/// From one part of memory to another one that is not in the CPU's cache.
fn copy(scratch: &Scratch, size: usize) -> Result<Point, Error> {
    let source = memory(16 * MIB)?;
    let mut target = memory(size)?;
    let mut at = 0;
    repeat(scratch, size, Counted::Typical, || {
        target.copy_from_slice(&source[at..at + size]);
        std::hint::black_box(&mut target);
        at = (at + size) % (16 * MIB);
        Ok(true)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// The file in order by threads, each with one transfer at a time.
fn stream(scratch: &Scratch, direction: Direction) -> Result<Curve, Error> {
    let Some(file) = &scratch.direct else { return Ok(Curve::default()) };
    let end = scratch.bytes / STREAM_BYTES as u64;
    let next = std::sync::atomic::AtomicU64::new(0);
    let (failures, failed) = channel();
    let mut memories = (0..STREAM_DEPTH).map(|_| memory(STREAM_BYTES)).collect::<Result<Vec<_>, _>>()?;
    let start = clock();
    std::thread::scope(|scope| {
        for memory in &mut memories {
            let failures = failures.clone();
            let next = &next;
            scope.spawn(move || {
                loop {
                    let turn = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if turn >= end {
                        return;
                    }
                    let offset = turn * STREAM_BYTES as u64;
                    let moved = scratch.cancel.check().and_then(|()| match direction {
                        Direction::Read => file.read_at(memory, offset).map(drop),
                        Direction::Write => file.write_all_at(memory, offset),
                    });
                    if let Err(error) = moved {
                        // The receiver lives as long as this scope.
                        let _ = failures.send(error);
                        return;
                    }
                }
            });
        }
    });
    let spent = since(start);
    if let Ok(error) = failed.try_recv() {
        return Err(error);
    }
    let cost = spent * (1.0 / end.max(1) as f64);
    Ok(Curve::new(vec![Point { bytes: STREAM_BYTES as u64, cost }]))
}

#[cfg(test)]
mod tests {
    use diorite_bench::Silent;

    use super::*;

    /// Each curve has points, costs are positive, and the scratch file is gone.
    #[test]
    fn probes_are_complete_and_leave_nothing() {
        let directory = tempfile::tempdir_in(".").expect("a directory");
        let settings = Settings { directory: directory.path(), memory_bytes: Some(1 << 30), probe_s: 0.002 };
        let probes = measure(settings, &Cancel::default(), &Silent).expect("probes");
        let Buffered { hit, ahead, random, write, overwrite, sync } = &probes.buffered;
        for curve in [hit, ahead, random, write, overwrite, sync, &probes.copy] {
            assert!(curve.points().len() >= 3, "{probes:?}");
            assert!(curve.points().iter().all(|point| point.cost.seconds > 0.0), "{probes:?}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).expect("a list").count(), 0);
        let text = serde_json::to_string(&probes).expect("JSON");
        assert_eq!(serde_json::from_str::<Probes>(&text).expect("probes").buffered.hit.points().len(), 3);
    }

    #[test]
    fn a_cancelled_probe_removes_its_file() {
        let directory = tempfile::tempdir_in(".").expect("a directory");
        let cancel = Cancel::default();
        cancel.cancel();
        let settings = Settings { directory: directory.path(), memory_bytes: None, probe_s: 0.002 };
        assert!(matches!(measure(settings, &cancel, &Silent), Err(Error::Interrupted)));
        assert_eq!(std::fs::read_dir(directory.path()).expect("a list").count(), 0);
    }
}
