//! A window on another device: a partition, or all from an offset on.
//!
//! Where it sits: between a filesystem and a device with several. It shifts addresses and splits nothing.
//!
//! Invariants:
//! 1. Nothing outside the window is accessed: every bio and every piece is checked against the size of the window
//!    before its address is shifted.

pub(crate) mod table;

use std::sync::Arc;

use diorite_block::{
    Bio, BlockDevice, Completed, Geometry, IoCounters, IoError, IoQueue, Notify, Op, QueueWait, QueuedIo,
    SECTOR_SIZE, Sector, SharedQueue, Watch,
};

use crate::error::OpenError;
use crate::watched::Watched;

/// See the module's head.
#[derive(Debug)]
pub struct PartitionDevice {
    device: Arc<dyn BlockDevice>,
    name: String,
    start: Sector,
    geometry: Geometry,
    counters: IoCounters,
}

impl PartitionDevice {
    /// The window of `len_bytes` (rounded down to whole blocks) at `start`, with its own name.
    ///
    /// # Errors
    /// It is not aligned to logical blocks, or not within the device.
    pub fn window(
        device: Arc<dyn BlockDevice>,
        name: String,
        start: Sector,
        len_bytes: u64,
    ) -> Result<Arc<Self>, OpenError> {
        let bad = |why| Err(OpenError::BadWindow { device: device.name(), why });
        let outer = device.geometry();
        let block = u64::from(outer.logical_block_size);
        let offset = start.to_bytes();
        if !offset.is_multiple_of(block) {
            return bad(format!(
                "its start at byte {offset} is not a multiple of the device's block size {block}; open the image with \
                 direct I/O `preferred` or `off` (without --direct)"
            ));
        }
        let capacity_bytes = len_bytes - len_bytes % block;
        let fits = offset.checked_add(capacity_bytes).is_some_and(|end| end <= outer.capacity_bytes);
        if capacity_bytes == 0 || !fits {
            return bad(format!(
                "{len_bytes} bytes at byte {offset} do not fit into its {} bytes",
                outer.capacity_bytes
            ));
        }
        // Aligned within the partition must be aligned on the device as well.
        let start_aligned = 1_u64
            .checked_shl(offset.trailing_zeros())
            .map_or(u32::MAX, |unit| u32::try_from(unit).unwrap_or(u32::MAX));
        let geometry = Geometry {
            capacity_bytes,
            atomic_write_bytes: outer.atomic_write_bytes.min(start_aligned),
            ..outer.clone()
        };
        Ok(Arc::new(Self { device, name, start, geometry, counters: IoCounters::default() }))
    }

    /// Partition `number` of the device's partition table.
    ///
    /// # Errors
    /// The table cannot be read, or has no such partition; the error lists the existing ones.
    pub fn open(device: Arc<dyn BlockDevice>, number: u32) -> Result<Arc<Self>, OpenError> {
        let partition = table::partition(&*device, number)?;
        let name = format!("{}?partition={number}", device.name());
        let (start, len_bytes) = (partition.start, partition.len_bytes);
        let capacity = device.geometry().capacity_bytes;
        if start
            .0
            .checked_mul(SECTOR_SIZE)
            .and_then(|start| start.checked_add(len_bytes))
            .is_none_or(|end| end > capacity)
        {
            let why = format!(
                "partition {number} ends beyond the device, which has {capacity} bytes: it was cut, or the table is another disk's; \
                 restore the whole disk or image, or correct the table"
            );
            return Err(OpenError::BadWindow { device: device.name(), why });
        }
        Self::window(device, name, start, len_bytes)
    }

    /// All of the device from a byte offset on.
    ///
    /// # Errors
    /// As [`PartitionDevice::window`].
    pub fn at_offset(device: Arc<dyn BlockDevice>, offset_bytes: u64) -> Result<Arc<Self>, OpenError> {
        let name = format!("{}?offset={offset_bytes}", device.name());
        let Some(len) = device.geometry().capacity_bytes.checked_sub(offset_bytes) else {
            let why = format!("offset {offset_bytes} is past its {} bytes", device.geometry().capacity_bytes);
            return Err(OpenError::BadWindow { device: device.name(), why });
        };
        if !offset_bytes.is_multiple_of(SECTOR_SIZE) {
            let why = format!("offset {offset_bytes} is not a multiple of 512");
            return Err(OpenError::BadWindow { device: device.name(), why });
        }
        Self::window(device, name, Sector::containing(offset_bytes), len)
    }

    /// The same window, read-only.
    pub fn read_only(window: &Self) -> Arc<Self> {
        let geometry = Geometry { read_only: true, ..window.geometry.clone() };
        let (device, name, start) = (Arc::clone(&window.device), window.name.clone(), window.start);
        Arc::new(Self { device, name, start, geometry, counters: IoCounters::default() })
    }

    /// The device under the window.
    pub fn outer(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// First sector of the window on the device under it.
    pub fn start(&self) -> Sector {
        self.start
    }

    fn moved_in(&self, op: Op, sector: Sector) -> Sector {
        // A flush has no address. The sum cannot overflow: the sector was checked against the window.
        if op == Op::Flush { sector } else { Sector(sector.0 + self.start.0) }
    }

    fn moved_out(&self, op: Op, sector: Sector) -> Sector {
        if op == Op::Flush { sector } else { Sector(sector.0.saturating_sub(self.start.0)) }
    }

    /// Shift the address of an error of the device under the window. Errors of devices further down stay unchanged.
    fn moved_error(&self, mut error: IoError) -> IoError {
        if error.device != self.device.name() {
            return error;
        }
        error.device.clone_from(&self.name);
        error.sector = self.moved_out(error.op, error.sector);
        error
    }

    fn check(&self, io: &QueuedIo) -> Result<(), IoError> {
        for piece in &io.pieces {
            let len = piece.memory.len() as u64;
            self.geometry.check_range(io.op, piece.sector, len).map_err(|kind| IoError {
                device: self.name.clone(),
                op: io.op,
                sector: piece.sector,
                len,
                kind,
            })?;
        }
        Ok(())
    }
}

impl BlockDevice for PartitionDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        (self as &dyn BlockDevice).check(bios)?;
        for bio in &mut *bios {
            self.counters.count(bio.op, bio.len());
            bio.sector = self.moved_in(bio.op, bio.sector);
        }
        let result = self.device.execute(bios);
        for bio in bios {
            bio.sector = self.moved_out(bio.op, bio.sector);
        }
        result.map_err(|error| self.moved_error(error))
    }

    fn release(&self) {
        self.device.release();
    }

    fn table_sector_bytes(&self) -> u32 {
        self.device.table_sector_bytes()
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        let inner = Arc::clone(&self.device).open_queue(depth)?;
        Ok(Box::new(WindowQueue { inner, device: self, refused: Vec::new(), notify: Watched::default() }))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        let inner = Arc::clone(&self.device).open_shared_queue(depth)?;
        Some(Box::new(WindowQueue { inner, device: self, refused: Vec::new(), notify: Watched::default() }))
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

/// The queue of the device under the window, with shifted addresses.
#[derive(Debug)]
struct WindowQueue<Q: ?Sized> {
    device: Arc<PartitionDevice>,
    /// Rejected operations.
    refused: Vec<Completed>,
    inner: Box<Q>,
    /// Called for rejected operations.
    notify: Watched,
}

impl<Q: ?Sized> WindowQueue<Q> {
    fn move_out(&self, ended: &mut [Completed]) {
        for completed in ended {
            let op = completed.io.op;
            for piece in &mut completed.io.pieces {
                piece.sector = self.device.moved_out(op, piece.sector);
            }
            if let Err(error) = std::mem::replace(&mut completed.result, Ok(())) {
                completed.result = Err(self.device.moved_error(error));
            }
        }
    }
}

impl<Q: SharedQueue + ?Sized> SharedQueue for WindowQueue<Q> {
    fn collect(&mut self, done: &mut Vec<Completed>) {
        done.append(&mut self.refused);
        let first = done.len();
        self.inner.collect(done);
        self.move_out(&mut done[first..]);
    }

    fn begin_wait(&mut self) -> QueueWait {
        if self.refused.is_empty() { self.inner.begin_wait() } else { QueueWait::over() }
    }
}

impl<Q: IoQueue + ?Sized> IoQueue for WindowQueue<Q> {
    fn depth(&self) -> u32 {
        self.inner.depth()
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + self.refused.len() as u32
    }

    fn submit(&mut self, mut io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight() >= self.depth() {
            return Err(io);
        }
        let device = &self.device;
        if let Err(error) = device.check(&io) {
            self.refused.push(Completed { io, result: Err(error) });
            self.notify.call();
            return Ok(());
        }
        if io.op == Op::Flush {
            device.counters.count(io.op, 0);
        }
        for piece in &mut io.pieces {
            device.counters.count(io.op, piece.memory.len() as u64);
            piece.sector = device.moved_in(io.op, piece.sector);
        }
        self.inner.submit(io).map_err(|mut io| {
            for piece in &mut io.pieces {
                piece.sector = device.moved_out(io.op, piece.sector);
            }
            io
        })
    }

    fn issue(&mut self) -> Result<(), IoError> {
        self.inner.issue()
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let before = done.len();
        done.append(&mut self.refused);
        let refused = done.len() - before;
        let reaped = self.inner.reap(wait_for.saturating_sub(refused as u32), done)?;
        self.move_out(&mut done[before + refused..]);
        Ok(refused + reaped)
    }

    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        self.notify.set(&notify);
        self.inner.watch(notify)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use diorite_block::IoErrorKind;

    /// Invariant 1.
    #[test]
    fn window_never_reaches_outside() {
        let memory = MemoryDevice::new(1 << 20);
        let window = PartitionDevice::window(memory.clone(), "w".into(), Sector(8), 4096).unwrap();
        let device: &dyn BlockDevice = &*window;
        device.write_bytes(0, &[1; 4096], diorite_block::BioFlags::SYNC).unwrap();
        let error = device.write_bytes(3584, &[2; 1024], diorite_block::BioFlags::SYNC).unwrap_err();
        assert!(matches!(error.kind, IoErrorKind::OutOfRange { capacity: 4096 }), "{error}");
        assert_eq!((error.device.as_str(), error.sector), ("w", Sector(7)));
        let mut around = vec![9; 4096 + 1024];
        (&*memory as &dyn BlockDevice).read_bytes(3584, &mut around).unwrap();
        assert!(around[..512].iter().chain(&around[512 + 4096..]).all(|byte| *byte == 0));
        assert!(around[512..512 + 4096].iter().all(|byte| *byte == 1));
    }

    #[test]
    fn impossible_windows_are_refused() {
        let memory = MemoryDevice::new(1 << 20);
        let window = |start, len| PartitionDevice::window(memory.clone(), String::new(), Sector(start), len);
        assert!(window(2048, 512).is_err());
        assert!(window(u64::MAX / 512, 512).is_err());
        assert!(window(0, 511).is_err());
        assert!(window(2047, 512).is_ok());
        assert!(PartitionDevice::at_offset(memory.clone(), 1 << 20).is_err());
        assert!(PartitionDevice::at_offset(memory, 100).is_err());
    }
}
