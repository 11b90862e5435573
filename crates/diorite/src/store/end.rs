//! The end of a file: the bytes on the device after it, in its last block.
//!
//! Those bytes may be old data. They become zero on the device before a larger size is recorded, so that no crash
//! brings truncated bytes back.
//!
//! Invariant: once the rest of the last block is zero, it stays zero or becomes data until the file is truncated. New
//! blocks are zeroed around the data written to them, and cached pages are zero after the end.
//!
//! Locking: `end_is_zero` is set by a thread that holds the last block exclusively, and cleared by one that holds everything after
//! the new end exclusively.

use std::sync::atomic::Ordering;

use diorite_block::{Bio, BioFlags};

use crate::store::backing::BackingStore;
use crate::store::map::MappingKind;
use crate::{AlignedBuf, Error, Result};

impl BackingStore {
    /// Whether the rest of the last block is known to be zero on the device.
    pub(crate) fn end_is_zero(&self) -> bool {
        self.end_is_zero.load(Ordering::Acquire)
    }

    /// The file was truncated: old data follows its end on the device.
    pub(crate) fn forget_end(&self) {
        self.end_is_zero.store(false, Ordering::Release);
    }

    /// Make the rest of the last block zero on the device. The caller has that block exclusively.
    pub(crate) fn zero_end(&self) -> Result<()> {
        if self.end_is_zero() {
            return Ok(());
        }
        let size = self.size();
        let block_end = size.next_multiple_of(self.map.block_size());
        if size < block_end {
            let logical = self.logical();
            let range = size / logical * logical..block_end;
            let mapping = self.map.map(size, block_end - size)?.within(&range);
            if let MappingKind::Mapped(sector) = mapping.kind {
                self.zero_on_device(sector, (size - range.start) as usize, mapping.len as usize)?;
            }
        }
        self.end_is_zero.store(true, Ordering::Release);
        Ok(())
    }

    /// Zero `len` bytes from `sector` on, apart from the first `keep`, unless they are zero already.
    fn zero_on_device(&self, sector: diorite_block::Sector, keep: usize, len: usize) -> Result<()> {
        let alignment = self.geometry().memory_alignment.max(self.geometry().logical_block_size);
        let mut memory = AlignedBuf::try_zeroed(len, alignment as usize)
            .map_err(|source| Error::Os { what: "cannot get memory for a block", source })?;
        let device = self.map.device();
        device.execute(&mut [Bio::read(sector, &mut memory)])?;
        self.shared.counters.bios.add(1);
        if memory[keep..].iter().any(|byte| *byte != 0) {
            self.map.check_process()?;
            memory[keep..].fill(0);
            device.execute(&mut [Bio::write(sector, &memory, BioFlags::SYNC)])?;
            self.shared.counters.bios.add(1);
        }
        Ok(())
    }
}
