//! The route of a queued transfer: the files under a device, and the raw transfers to them.
//!
//! Where it sits: under the ring queue, which keeps the parts of a transfer until they complete. This module checks a transfer and cuts it.
//!
//! Safety policy: pieces become raw transfers into memory that the transfer owns. The owner of the parts keeps the transfer.
#![allow(unsafe_code)]

use std::sync::Arc;

use diorite_block::{
    BioFlags, BioMemory, BlockDevice, IoError, IoErrorKind, Op, Piece, QueuedIo, QueuedMemory, Sector,
};

use super::layout::Layout;
use super::raw::{Direction, RawTransfer};
use crate::open::file::FileDevice;

/// The file under a device, and the offset of the device in it in sectors; none for other devices.
pub(crate) fn file_under(device: &dyn BlockDevice) -> Option<(&FileDevice, u64)> {
    if let Some((outer, start)) = device.part_of() {
        let (file, shift) = file_under(&**outer)?;
        return Some((file, shift + start.0));
    }
    Some((device.as_any()?.downcast_ref()?, 0))
}

/// A file that entries go to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Keeps the file, and windows on it, open.
    device: Arc<dyn BlockDevice>,
    /// Offset of the device in the file, in bytes.
    shift: u64,
}

impl Target {
    /// The underlying target, if that is a file with a ring.
    pub(crate) fn of(device: &Arc<dyn BlockDevice>) -> Option<Self> {
        let (_, sectors) = file_under(&**device).filter(|(file, _)| file.uses_ring())?;
        Some(Self { device: Arc::clone(device), shift: Sector(sectors).to_bytes() })
    }

    /// The underlying file.
    pub(crate) fn file_device(&self) -> &FileDevice {
        file_under(&*self.device).expect("a target is made of a file").0
    }
}

/// The device that a queue belongs to, and the files under it.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) front: Arc<dyn BlockDevice>,
    pub(crate) layout: Layout,
    pub(crate) targets: Vec<Target>,
    /// The first byte of `front` in the layout.
    pub(crate) base: u64,
}

impl Route {
    /// The route of a file, or of a window on one.
    pub(crate) fn to_file(front: &Arc<dyn BlockDevice>) -> Option<Self> {
        let targets = vec![Target::of(front)?];
        Some(Self { front: Arc::clone(front), layout: Layout::Single, targets, base: 0 })
    }

    /// Whether the front counts apart from the file.
    fn counts_apart(&self, target: &dyn BlockDevice) -> bool {
        !std::ptr::addr_eq(&raw const *self.front, &raw const *target)
    }

    /// Count an operation that was submitted, on the front and on windows in between.
    pub(crate) fn count_submitted(&self, io: &QueuedIo) {
        if self.layout == Layout::Single && !self.counts_apart(self.targets[0].file_device()) {
            return;
        }
        if io.op == Op::Flush {
            self.front.counters().count(io.op, 0);
        }
        for piece in &io.pieces {
            self.front.counters().count(io.op, piece.memory.len() as u64);
        }
    }
}

/// One raw transfer of a slot, and its file.
#[derive(Debug)]
pub(crate) struct PartOf {
    pub(crate) transfer: RawTransfer,
    pub(crate) target: usize,
    /// Offset on the file in bytes, for messages.
    pub(crate) start: u64,
}

/// Run the parts of a transfer by calls of this thread. Returns the first error.
pub(crate) fn run_by_calls(targets: &[Target], op: Op, parts: &mut [PartOf]) -> Result<(), IoError> {
    let mut result = Ok(());
    for PartOf { transfer, target, start } in parts {
        let device = targets[*target].file_device();
        device.counters().count(op, transfer.len());
        let ended = transfer.run_by_call(device.raw_fd()).map_err(|kind| {
            let (sector, len) = (Sector::containing(*start), transfer.len());
            IoError { device: device.name(), op, sector, len, kind }
        });
        result = result.and(ended);
    }
    result
}

/// Check a transfer as a whole, and turn its pieces into raw transfers.
///
/// # Safety
/// The transfer's memory must not be dropped or touched until all of `parts` have ended.
pub(crate) unsafe fn prepare(
    route: &Route,
    io: &mut QueuedIo,
    parts: &mut Vec<PartOf>,
) -> Result<(), IoError> {
    let op = io.op;
    let error = |sector, len, kind| Err(IoError { device: route.front.name(), op, sector, len, kind });
    if op != Op::Read {
        for target in &route.targets {
            let file = target.file_device();
            let checked = if op == Op::Flush { file.check_size() } else { file.check_not_truncated() };
            checked.or_else(|kind| error(Sector(0), 0, kind))?;
        }
    }
    let direction = match op {
        Op::Read => Direction::Read,
        Op::Write => Direction::Write,
        Op::Flush => return Ok(()),
        Op::Discard | Op::WriteZeroes => return error(Sector(0), 0, IoErrorKind::Unsupported),
    };
    io.check(&*route.front)?;
    let memory = match (&mut io.memory, direction) {
        (QueuedMemory::Owned(memory), Direction::Read) => memory.as_mut_slice().as_mut_ptr(),
        (QueuedMemory::Owned(memory), Direction::Write) => memory.as_slice().as_ptr().cast_mut(),
        (QueuedMemory::None, _) => std::ptr::null_mut(),
        // SAFETY: the transfer keeps the loan; the rest is promised by the caller.
        (QueuedMemory::Lent(_), _) => return unsafe { prepare_lent(route, io, direction, parts) },
    };
    for Piece { sector, memory: range } in &io.pieces {
        let segment = (memory.wrapping_add(range.start), range.len());
        // SAFETY: inside the memory (checked), which our caller keeps.
        unsafe { cut(route, direction, *sector, std::iter::once(segment), parts) };
    }
    mark_durable(io, parts);
    Ok(())
}

/// The parts of a bio whose memory is lent.
///
/// # Safety
/// As for [`prepare`].
unsafe fn prepare_lent(
    route: &Route,
    io: &mut QueuedIo,
    direction: Direction,
    parts: &mut Vec<PartOf>,
) -> Result<(), IoError> {
    io.for_each_bio(|bio| {
        route.front.geometry().check(bio).map_err(|kind| (*route.front).error(bio, kind))?;
        let sector = bio.sector;
        // SAFETY: promised by the caller.
        unsafe {
            match &mut bio.memory {
                BioMemory::Read(list) => {
                    let segments = list.iter_mut().map(|segment| (segment.as_mut_ptr(), segment.len()));
                    cut(route, direction, sector, segments, parts);
                }
                BioMemory::Write(list) => {
                    let segments = list.iter().map(|segment| (segment.as_ptr().cast_mut(), segment.len()));
                    cut(route, direction, sector, segments, parts);
                }
                BioMemory::None(_) => {}
            }
        }
        Ok(())
    })?;
    mark_durable(io, parts);
    Ok(())
}

/// A durable write with one part needs no flush.
fn mark_durable(io: &QueuedIo, parts: &mut [PartOf]) {
    if let [only] = parts {
        only.transfer.durable = io.op == Op::Write && io.flags.contains(BioFlags::FUA);
    }
}

/// Cut one device range, whose memory comes in segments, along the layout.
///
/// # Safety
/// The memory must stay valid, and for a read not be accessed otherwise, until the parts have ended.
unsafe fn cut(
    route: &Route,
    direction: Direction,
    sector: Sector,
    segments: impl Iterator<Item = (*mut u8, usize)>,
    parts: &mut Vec<PartOf>,
) {
    let first_of_range = parts.len();
    let mut offset = route.base + sector.to_bytes();
    for (mut address, len) in segments {
        for run in route.layout.runs(offset, len as u64) {
            let (target, len) = (&route.targets[run.child], run.len as usize);
            let start = run.offset + target.shift;
            let adjacent = parts[first_of_range..].iter_mut().rev().find(|part| part.target == run.child);
            // SAFETY: promised by the caller.
            if !adjacent.is_some_and(|part| unsafe { part.transfer.append(start, address, len) }) {
                let granularity = target.file_device().granularity();
                // SAFETY: as above.
                let transfer =
                    unsafe { RawTransfer::from_range(direction, start, address, len, granularity) };
                parts.push(PartOf { transfer, target: run.child, start });
            }
            address = address.wrapping_add(len);
        }
        offset += len as u64;
    }
}
