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
    Bio, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op, SECTOR_SIZE, Sector, SharedQueue,
};

use crate::error::OpenError;
use crate::joined;

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
        Ok(joined::open_queue(self, depth))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        joined::open_shared_queue(self, depth)
    }

    fn part_of(&self) -> Option<(&Arc<dyn BlockDevice>, Sector)> {
        Some((&self.device, self.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::IoErrorKind;
    use diorite_sim::image::ImageDevice;

    /// Invariant 1.
    #[test]
    fn window_never_reaches_outside() {
        let memory = ImageDevice::zeroed(1 << 20);
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
        let memory = ImageDevice::zeroed(1 << 20);
        let window = |start, len| PartitionDevice::window(memory.clone(), String::new(), Sector(start), len);
        assert!(window(2048, 512).is_err());
        assert!(window(u64::MAX / 512, 512).is_err());
        assert!(window(0, 511).is_err());
        assert!(window(2047, 512).is_ok());
        assert!(PartitionDevice::at_offset(memory.clone(), 1 << 20).is_err());
        assert!(PartitionDevice::at_offset(memory, 100).is_err());
    }
}
